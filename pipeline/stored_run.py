"""Runs that lie in an object store: what of a run is fetched to be judged, and where its results
go.

What lies there is somebody else's: names are checked before a file is made of them, sizes before
anything is fetched, and what is changed meanwhile makes the run unknown.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from stormcast.pipeline.questions import CannotError, VerifyError
from stormcast.pipeline.session import own_prefix
from stormcast.pipeline.store import Entry, Store, Url, connect, is_plain

NAMED: Final = frozenset(
    {"scenario.yaml", "seed", "begun", "verdict.json", "versions.json", "history.jsonl"}
)
"""Files of a run directory that its verdict or its report is made from, besides traces."""
TRACE: Final = ".trace"
SUFFIX: Final = ".parquet"
PARQUET: Final = "parquet"
OF: Final = "of"
"""The file in `parquet` that says of which traces it is, and by which code."""
WHOLE: Final = (OF, "_SUCCESS")
"""Files that say of their folder that it is whole."""
DEPTH: Final = 3
"""A segment of a journal lies so deep: trace/n0-1/000001.trace."""
MOST_FOLDERS: Final = 1000
MOST_FILES: Final = 10_000
TOLD: Final = 3
"""The most names in a reason."""
LONG: Final = 80
"""The most characters of a name in a reason."""
ROOM: Final = 2
"""The room that a run takes, in sizes of what is fetched: Parquet is made of its traces."""
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run in a store, and the directory to which it was fetched."""

    url: Url
    directory: Path
    doubts: tuple[str, ...]
    """Reasons why what was fetched proves nothing."""

    def named(self, text: str) -> str:
        """Return a text with the URL in place of the directory, which is soon removed."""
        return text.replace(str(self.directory), str(self.url))


@dataclass(slots=True)
class Survey:
    """What of a run is to be fetched, as it lies in the store at one time."""

    files: dict[str, Entry] = field(default_factory=dict)
    """By name in the run directory."""
    odd: list[str] = field(default_factory=list)
    """Names that no file here can have."""

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.files.values())


def fetch(store: Store, url: Url, directory: Path, tell: Callable[[str], None]) -> StoredRun:
    """Fetch what a verdict is made from; VerifyError if there is no run, CannotError if there is no
    room."""
    before = survey(store, url)
    if not any(name.endswith((TRACE, SUFFIX)) for name in before.files):
        raise VerifyError(f"{url} holds no traces: name what stormcast run has left")
    try:
        directory.mkdir(parents=True)
        _check_room(url, before.size, directory)
        tell(f"fetching {url}: {len(before.files)} files, {_mib(before.size)}")
        changed = _fetch_files(store, url, before, directory)
    except OSError as error:
        where = directory.parent
        raise CannotError(
            f"{url} cannot be fetched to {where}: {error.strerror or error}: name another folder "
            "with TMPDIR, or --tables on a cluster"
        ) from None
    after = survey(store, url)
    changed += [name for name in _unlike(before, after) if name not in changed]
    doubts = [f"it was changed while it was fetched: {_names(changed)}"] if changed else []
    if odd := [*dict.fromkeys((*before.odd, *after.odd))]:
        doubts.append(f"not fetched, because of names that no run has: {_names(odd)}")
    return StoredRun(url, directory, tuple(doubts))


def _fetch_files(store: Store, url: Url, wanted: Survey, directory: Path) -> list[str]:
    """Fetch files; return the names of those that are not as they were listed."""
    unlike = []
    for name, entry in wanted.files.items():
        into = directory / name
        into.parent.mkdir(parents=True, exist_ok=True)
        if store.fetch(f"{url.path}/{name}", into, entry.size) != entry.size:
            unlike.append(name)
    return unlike


def _check_room(url: Url, size: int, directory: Path) -> None:
    free = shutil.disk_usage(directory).free
    if size * ROOM > free:
        raise CannotError(
            f"{url} takes {_mib(size * ROOM)} to be judged, and there are {_mib(free)} where it is "
            "fetched to: name a folder with more room with TMPDIR, or --tables on a cluster"
        )


def _unlike(before: Survey, after: Survey) -> Iterator[str]:
    """Yield the names of files that are new, gone or changed."""
    for name in sorted({*before.files, *after.files}):
        if before.files.get(name) != after.files.get(name):
            yield name


def _names(names: list[str]) -> str:
    # They are in verdict.json, too, whose readers need not think of control characters.
    shown = ", ".join(ascii(name)[1:-1][:LONG] for name in names[:TOLD])
    return f"{shown} and {len(names) - TOLD} more" if len(names) > TOLD else shown


def _mib(size: int) -> str:
    return f"{size / MIB:,.1f} MiB"


def survey(store: Store, url: Url) -> Survey:
    """Look what of a run is to be fetched. Parquet is only fetched where there are no traces: of
    traces it is made anew, so that the verdict is of what was fetched."""
    found, folders = Survey(), 0
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        waiting += _look_into(store, url, folder, found)
        folders += 1
        if folders > MOST_FOLDERS or len(found.files) > MOST_FILES:
            raise VerifyError(
                f"{url} holds more than {MOST_FOLDERS} folders or {MOST_FILES} files, as no run "
                "does: name one run in it"
            )
    if any(name.endswith(TRACE) for name in found.files):
        found.files = {name: one for name, one in found.files.items() if not name.endswith(SUFFIX)}
    # A store may have a file and a folder of one name.
    for name in [name for name in found.files if _is_below_a_file(name, found)]:
        found.odd.append(name)
        del found.files[name]
    return found


def _is_below_a_file(name: str, found: Survey) -> bool:
    return any(str(parent) in found.files for parent in PurePosixPath(name).parents)


def _look_into(store: Store, url: Url, folder: str, found: Survey) -> list[str]:
    """Sort what is in a folder of the run; returns the folders in it to look into."""
    folders = []
    for entry in store.list_folder(f"{url.path}/{folder}".rstrip("/")):
        whole = folder + entry.name
        if entry.is_folder and whole.count("/") >= DEPTH - 1:
            continue
        if not entry.is_folder and not _is_wanted(whole):
            continue
        if not is_plain(entry.name):
            found.odd.append(whole)
        elif entry.is_folder:
            folders.append(f"{whole}/")
        else:
            found.files[whole] = entry
    return folders


def _is_wanted(name: str) -> bool:
    """Whether a file of the run is one that a verdict or a report is made from."""
    folder, _slash, last = name.rpartition("/")
    if folder == PARQUET and (last == OF or last.endswith(SUFFIX)):
        return True
    return last.endswith(TRACE) or name in NAMED


class Results:
    """Puts what is written for a run beside it in its store."""

    def __init__(self, store: Store, run: StoredRun) -> None:
        self._store = store
        self._run = run

    def place(self, path: Path) -> str:
        """Return the URL of a result, by its path in the directory to which the run was fetched."""
        return f"{self._run.url}/{path.relative_to(self._run.directory).as_posix()}"

    def put(self, path: Path) -> None:
        """Copy a file, or a folder in place of the one that is there, to the store."""
        if not path.is_dir():
            self._store.put(path, self._at(path))
            return
        # What says that the folder is whole goes first, and comes last.
        files = sorted(
            (file for file in path.iterdir() if not file.name.startswith(".")),
            key=lambda file: (file.name in WHOLE, file.name),
        )
        for name in WHOLE:
            self._store.remove(self._at(path / name))
        self._store.remove_folder(self._at(path))
        for file in files:
            self._store.put(file, self._at(file))

    def remove(self, path: Path) -> None:
        """Remove a file from the store, if it is there."""
        self._store.remove(self._at(path))

    def remove_folder(self, path: Path) -> None:
        """Remove a folder from the store, if it is there."""
        self._store.remove_folder(self._at(path))

    def _at(self, path: Path) -> str:
        return self.place(path).partition("://")[2]


class Fetched:
    """The runs that one command has fetched."""

    def __init__(self) -> None:
        self._runs: dict[Path, StoredRun] = {}
        self._store: Store | None = None

    def fetch(self, urls: Sequence[Url], into: Path, tell: Callable[[str], None]) -> list[Path]:
        """Fetch runs, each to a directory of its own name; return these, in the same order."""
        store = self._store = connect()
        directories = []
        for number, url in enumerate(urls):
            run = fetch(store, url, into / str(number) / url.name, tell)
            self._runs[run.directory] = run
            directories.append(run.directory)
        return directories

    def get(self, directory: Path) -> StoredRun | None:
        return self._runs.get(directory)

    def results(self, directory: Path) -> Results | None:
        """Return what puts the results of a run beside it; None if it was not fetched."""
        run = self._runs.get(directory)
        return Results(self._store, run) if run is not None and self._store is not None else None

    def named(self, text: str) -> str:
        """Return a text with URLs in place of the directories to which runs were fetched."""
        for run in self._runs.values():
            text = run.named(text)
        return text


@contextmanager
def scratch(tables: Path | None, *, is_local: bool) -> Iterator[Path]:
    """Provide a folder for runs that are fetched, and remove it in the end. On a cluster it is in
    `tables`, which all hosts see."""
    if not is_local and tables is None:
        raise VerifyError(
            "a run in a store is fetched first, and a cluster must see what was fetched: name "
            "storage that all its hosts see with --tables DIR, or judge here with --master local"
        )
    above = None if is_local else tables
    try:
        if above is not None:
            above.mkdir(parents=True, exist_ok=True)
            above = above.absolute()
        folder = tempfile.mkdtemp(prefix=own_prefix(), dir=above)
    except OSError as error:
        where = f"--tables {above}" if above is not None else f"TMPDIR {tempfile.gettempdir()}"
        raise CannotError(f"{where}: {error.strerror or error}") from None
    try:
        if above is not None:
            # Workers may be other users, on other hosts.
            Path(folder).chmod(0o755)
        yield Path(folder).resolve()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
