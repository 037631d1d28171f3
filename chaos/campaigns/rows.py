"""The directory of a search: its plan, a row for each seed that was run, and the runs that do not
hold.

Each task appends rows to a file of its own, one line at a time, as seeds end. So nothing depends on
the process that started the search: a seed with a row is done, wherever it ran, and a later process
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
from stormcast.machine import in_words
from stormcast.node.core.errors import ConfigError, NodeError

PLAN: Final = "search.json"
ROWS: Final = "rows"
LOCK: Final = "lock"
UNFINISHED: Final = ".unfinished-"
"""The prefix of names of files and run directories that are still being written."""
_PART: Final = f"{UNFINISHED}{PLAN}"
VERDICTS: Final = {str(verdict): verdict for verdict in Verdict}
PART: Final = 20
"""Seeds of a task: some seconds of work, so that starting a task costs little in comparison, and a
killed task leaves little work to others."""


class StorageError(NodeError):
    """A run has no result, or its directory cannot be written, because the machine has run out of
    something; this says nothing about the run."""


@dataclass(frozen=True, slots=True)
class SeedResult:
    """The result of one seed: a row."""

    seed: int
    verdict: Verdict
    events: int
    messages: int
    faults: tuple[str, ...]
    """Kinds of faults that bit."""
    broken: tuple[str, ...] = ()
    """Findings that do not hold, each with its first witness."""
    guarantee: str = ""
    """The guarantee of the first finding that has the verdict."""
    fingerprint: str = ""
    """The fingerprint of that finding, which failures of one kind share."""
    attempt: int | None = None
    """The number of the scenario that was run among those drawn for the seed, from 0; None in rows
    of older versions."""
    owed: int | None = None
    """Messages that members owed each other, each counted for every receiver; None in rows of older
    versions, and where a run cannot be counted."""
    seconds: float = field(default=0.0, compare=False)
    """Seconds that the seed took."""

    @property
    def cell(self) -> Cell:
        """The generation or the stack, and the leading fault."""
        return cell_of(self.seed)

    def as_line(self) -> str:
        """Return the row as a line of JSON."""
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
    """Read a row; None if it is unfinished or damaged: its seed is then run again."""
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
    """The seeds of a search, and the versions of all software that runs them."""

    ranges: tuple[range, ...]
    versions: dict[str, str]

    def __len__(self) -> int:
        return sum(map(len, self.ranges))

    def parts(self) -> list[range]:
        """Split all seeds into parts, one for each task."""
        return [seeds[at : at + PART] for seeds in self.ranges for at in range(0, len(seeds), PART)]

    def as_json(self) -> dict[str, Any]:
        """Return the plan for JSON: for its file, and for `--json`."""
        ranges = [{"from": seeds.start, "seeds": len(seeds)} for seeds in self.ranges]
        return {"ranges": ranges, "versions": self.versions}

    def words(self) -> str:
        """Return the options that ask for the same search again."""
        firsts = " ".join(f"--from {seeds.start}" for seeds in self.ranges)
        return f"--seeds {len(self.ranges[0])} {firsts}"


def plan_of(firsts: Sequence[int], seeds: int) -> Plan:
    """Make a plan of `seeds` seeds from each of `firsts`; ConfigError if these ranges overlap."""
    ranges = tuple(range(first, first + seeds) for first in firsts)
    for one, other in pairwise(sorted(firsts)):
        if other < one + seeds:
            raise ConfigError(f"{seeds} seeds from {one} and from {other} overlap")
    return Plan(ranges, versions())


def read_plan(directory: Path) -> Plan:
    """Read the plan of a search's directory; ConfigError if it is missing or damaged."""
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
    """The directory in which one search keeps its plan, rows and runs."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @contextmanager
    def opened(self, plan: Plan) -> Iterator[Self]:
        """Begin a search, or resume it, and lock the directory meanwhile.

        ConfigError if the directory is of another search, or of something else."""
        self.path.mkdir(parents=True, exist_ok=True)
        is_begun = (self.path / PLAN).exists()
        # A search that was killed before its plan was there leaves these two.
        if not is_begun and not {one.name for one in self.path.iterdir()} <= {LOCK, _PART}:
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
        """Return the run directory of a seed; it exists if the seed does not hold."""
        return self.path / f"seed-{seed}"

    def rows_of(self, part: range) -> list[SeedResult]:
        """Read the rows of a part that were written so far."""
        files = (self.path / ROWS).glob(f"{part.start}-*.jsonl")
        lines = (line for file in files for line in file.read_bytes().splitlines())
        return [row for line in lines if (row := read_line(line)) is not None]

    @contextmanager
    def writer(self, part: range) -> Iterator[TextIO]:
        """Open a new file for rows of a part, which no other task writes."""
        path = self.path / ROWS / f"{part.start}-{socket.gethostname()}-{uuid4().hex[:12]}.jsonl"
        with path.open("x", encoding="utf-8", buffering=1) as file:
            yield file

    def _write(self, plan: Plan) -> None:
        part = self.path / _PART
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
        """By file name: how many bytes of whole lines were read."""

    def new(self) -> Iterator[SeedResult]:
        """Yield the rows that were added since the last call."""
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
    """Write a run directory in one step: it is complete or missing. An existing one stays: the same
    seed and versions gave the same files."""
    part = directory.parent / f"{UNFINISHED}{directory.name}-{uuid4().hex[:12]}"
    try:
        write_run(outcome, part)
        part.rename(directory)
    except OSError as error:
        if error.errno not in {errno.EEXIST, errno.ENOTEMPTY}:
            raise StorageError(f"{directory} cannot be written: {in_words(error)}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _take(lock: TextIO, directory: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(f"another search runs in {directory}: wait for it, or end it") from None
    except OSError:
        # This storage has no locks; two searches at once would only do the same work twice.
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
    """Return the differences of two sets of versions as text; empty if there are none."""
    return ", ".join(
        f"{name} {kept.get(name, 'unknown')}, here {now.get(name, 'unknown')}"
        for name in sorted(kept.keys() | now.keys())
        if kept.get(name) != now.get(name)
    )
