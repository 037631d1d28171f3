"""The directory of a search: what is searched, a row for each seed that was run, and the runs that
do not hold.

Each task appends rows to a file of its own, one line at a time, as seeds end. So nothing depends on
the process that started the search: what has a row is done, wherever it ran, and who comes later
runs the rest. A line that a killed process did not finish is no row, and of a seed that was run
twice the first row counts. Several hosts may write, if the directory is on storage that they share.
"""

from __future__ import annotations

import errno
import fcntl
import json
import shutil
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self, TextIO
from uuid import uuid4

from stormcast.chaos.campaigns.generate import Cell, cell_of
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.session.outcome import RunOutcome, write_run
from stormcast.chaos.session.versions import versions
from stormcast.node.core.errors import ConfigError, NodeError

PLAN: Final = "search.json"
ROWS: Final = "rows"
LOCK: Final = "lock"
UNFINISHED: Final = ".unfinished-"
"""How the names of run directories begin that are still being written."""
VERDICTS: Final = {str(verdict): verdict for verdict in Verdict}
PART: Final = 20
"""Seeds of a task: some seconds of work, so that starting it costs little, and whoever is killed
leaves little to others."""


class StorageError(NodeError):
    """A run that cannot be kept, which says nothing of the run."""


@dataclass(frozen=True, slots=True)
class SeedResult:
    """What became of one seed: a row."""

    seed: int
    verdict: Verdict
    events: int
    messages: int
    faults: tuple[str, ...]
    """Kinds of faults that bit."""
    broken: tuple[str, ...] = ()
    """Guarantees violated, each with its first witness."""
    guarantee: str = ""
    """The first that does not hold."""
    fingerprint: str = ""
    """What that failure has in common with others of its kind."""
    seconds: float = field(default=0.0, compare=False)
    """It took so long."""

    @property
    def cell(self) -> Cell:
        """The generation or the stack, and the leading fault."""
        return cell_of(self.seed)

    def as_line(self) -> str:
        """The row as it is kept."""
        return json.dumps(
            asdict(self)
            | {
                "cell": "×".join(self.cell),
                "verdict": str(self.verdict),
                "seconds": round(self.seconds, 3),
            },
            ensure_ascii=False,
        )


def read_line(line: bytes) -> SeedResult | None:
    """A row that was kept; None: it was not finished, or is damaged, and its seed is run again."""
    try:
        kept = json.loads(line)
        del kept["cell"]
        verdict = VERDICTS[kept.pop("verdict")]
        faults, broken = tuple(kept.pop("faults")), tuple(kept.pop("broken"))
        return SeedResult(verdict=verdict, faults=faults, broken=broken, **kept)
    except (ValueError, TypeError, KeyError):
        return None


@dataclass(frozen=True, slots=True)
class Plan:
    """What is searched, and by which version of everything."""

    ranges: tuple[range, ...]
    versions: dict[str, str]

    def __len__(self) -> int:
        return sum(map(len, self.ranges))

    def parts(self) -> list[range]:
        """All seeds, in parts that are a task each."""
        return [seeds[at : at + PART] for seeds in self.ranges for at in range(0, len(seeds), PART)]

    def as_json(self) -> dict[str, Any]:
        """As it is kept, and told."""
        ranges = [{"from": seeds.start, "seeds": len(seeds)} for seeds in self.ranges]
        return {"ranges": ranges, "versions": self.versions}

    def words(self) -> str:
        """What makes the same search again."""
        firsts = " ".join(f"--from {seeds.start}" for seeds in self.ranges)
        return f"--seeds {len(self.ranges[0])} {firsts}"


def plan_of(firsts: Sequence[int], seeds: int) -> Plan:
    """A plan of so many seeds from each of some first ones; ConfigError where they overlap."""
    ranges = tuple(range(first, first + seeds) for first in firsts)
    for one, other in pairwise(sorted(firsts)):
        if other < one + seeds:
            raise ConfigError(f"{seeds} seeds from {one} and from {other} overlap")
    return Plan(ranges, versions())


def read_plan(directory: Path) -> Plan:
    """What a directory is the search of; ConfigError if nothing says so."""
    path = directory / PLAN
    try:
        kept = json.loads(path.read_bytes())
        ranges = [(int(one["from"]), int(one["seeds"])) for one in kept["ranges"]]
        said = {str(name): str(what) for name, what in kept["versions"].items()}
        if not ranges:
            raise ValueError("no ranges")
    except FileNotFoundError:
        raise ConfigError(f"{path} is not there") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"{path} is damaged: {error!r}") from None
    return Plan(tuple(range(first, first + seeds) for first, seeds in ranges), said)


class SearchDirectory:
    """Where one search keeps what it finds."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @contextmanager
    def opened(self, plan: Plan) -> Iterator[Self]:
        """Begin a search, or go on with it, and keep others from doing so meanwhile.

        ConfigError if the directory is of another search, or of something else."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not (self.path / PLAN).exists() and any(one.name != LOCK for one in self.path.iterdir()):
            raise ConfigError(
                f"{self.path} is not empty, and no search: name another directory with --out"
            )
        with (self.path / LOCK).open("w") as lock:
            _take(lock, self.path)
            if (self.path / PLAN).exists():
                _check_same(self.path, read_plan(self.path), plan)
            else:
                self._write(plan)
            (self.path / ROWS).mkdir(exist_ok=True)
            try:
                yield self
            finally:
                self._tidy()

    def kept(self, seed: int) -> Path:
        """Where the run of a seed is, if it does not hold."""
        return self.path / f"seed-{seed}"

    def rows_of(self, part: range) -> list[SeedResult]:
        """The rows that there are of a part."""
        files = (self.path / ROWS).glob(f"{part.start}-*.jsonl")
        lines = (line for file in files for line in file.read_bytes().splitlines())
        return [row for line in lines if (row := read_line(line)) is not None]

    @contextmanager
    def writer(self, part: range) -> Iterator[TextIO]:
        """A new file for rows of a part, which nobody else writes."""
        path = self.path / ROWS / f"{part.start}-{socket.gethostname()}-{uuid4().hex[:12]}.jsonl"
        with path.open("x", encoding="utf-8", buffering=1) as file:
            yield file

    def _write(self, plan: Plan) -> None:
        part = self.path / f"{UNFINISHED}{PLAN}"
        part.write_text(json.dumps(plan.as_json(), indent=2) + "\n")
        part.replace(self.path / PLAN)

    def _tidy(self) -> None:
        for left in self.path.glob(f"{UNFINISHED}*"):
            shutil.rmtree(left, ignore_errors=True)


class Reader:
    """Reads rows as they are added, each seed once."""

    def __init__(self, directory: SearchDirectory) -> None:
        self.seeds: set[int] = set()
        self._rows = directory.path / ROWS
        self._read: dict[str, int] = {}
        """Bytes of each file that were read: whole lines."""

    def new(self) -> Iterator[SeedResult]:
        """The rows that were added since the last time."""
        for path in sorted(self._rows.glob("*.jsonl")):
            before = self._read.get(path.name, 0)
            if path.stat().st_size == before:
                continue
            with path.open("rb") as file:
                file.seek(before)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read[path.name] = before + len(whole)
            yield from self._unseen(whole.splitlines())

    def _unseen(self, lines: Iterable[bytes]) -> Iterator[SeedResult]:
        for line in lines:
            row = read_line(line)
            if row is not None and row.seed not in self.seeds:
                self.seeds.add(row.seed)
                yield row


def keep_run(outcome: RunOutcome, directory: Path) -> None:
    """Write a run directory that is there whole or not at all. If it is there it stays: the same
    seed and the same versions left the same."""
    part = directory.parent / f"{UNFINISHED}{directory.name}-{uuid4().hex[:12]}"
    try:
        write_run(outcome, part)
        part.rename(directory)
    except OSError as error:
        if error.errno not in {errno.EEXIST, errno.ENOTEMPTY}:
            raise StorageError(f"{directory} cannot be written: {error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _take(lock: TextIO, directory: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(f"another search runs in {directory}: wait for it, or end it") from None
    except OSError:
        # Storage without locks; two searches at once would only do the same work twice.
        return


def _check_same(directory: Path, kept: Plan, plan: Plan) -> None:
    if kept.ranges != plan.ranges:
        raise ConfigError(
            f"{directory} is of another search: {kept.words()}; ask for that one to go on with it, "
            "or name another directory with --out"
        )
    if others := differences(kept.versions, plan.versions):
        raise ConfigError(
            f"{directory} was begun by another version ({others}): go on with that one, or name "
            "another directory with --out"
        )


def differences(kept: dict[str, str], now: dict[str, str]) -> str:
    """What two versions differ in, as text; empty: in nothing."""
    return ", ".join(
        f"{name} {kept.get(name, 'unknown')}, here {now.get(name, 'unknown')}"
        for name in sorted(kept.keys() | now.keys())
        if kept.get(name) != now.get(name)
    )
