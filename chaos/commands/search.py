"""`stormcast search`: runs generated scenarios, on all cores or on many hosts."""

from __future__ import annotations

import argparse
import json
import secrets
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.backends.signals import sigterm_interrupts
from stormcast.chaos.campaigns.errors import error_in_words
from stormcast.chaos.campaigns.generate import CELLS
from stormcast.chaos.campaigns.rows import Plan, SearchDirectory, StorageError, plan_of
from stormcast.chaos.campaigns.search import (
    Engine,
    Group,
    Processes,
    Search,
    SearchResult,
    empty_cells,
)
from stormcast.chaos.campaigns.shrunk import MINIMAL, shrink_kept
from stormcast.chaos.commands.arguments import (
    add_json,
    add_spark_settings,
    parser_of,
    read_count,
    read_duration,
    read_seed,
)
from stormcast.chaos.commands.output import (
    RUNS,
    end_progress,
    in_columns,
    progress,
    refuse,
    say,
)
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.exits import Exit
from stormcast.node.core.errors import ConfigError, NodeError

RANDOM: Final = "random"
DRAWN_BELOW: Final = 10**10
"""The bound of a drawn first seed: large enough that two searches hardly ever overlap, and short
enough to type."""
SHRINK_SECONDS: Final = 60.0
MINUTE: Final = 60.0
NAMED: Final = 20
"""Empty cells are listed if they are at most so many: a short search leaves most cells empty."""

OnSpark = Callable[[argparse.Namespace], AbstractContextManager[Engine]]
"""From the arguments about Spark to an engine."""


def search(argv: list[str], on_spark: OnSpark | None = None) -> int:
    """Run `stormcast search --seeds N`: generated scenarios, as tasks of an engine."""
    args = _arguments(argv)
    try:
        firsts = [_draw() if first is None else first for first in args.first or [0]]
        plan = plan_of(firsts, args.seeds)
        if args.master is None and (args.conf or args.py_files):
            raise ConfigError("--conf and --py-files are of --master, which is missing")
        if args.master is not None and args.workers is not None:
            raise ConfigError("--workers are processes of this machine: drop it, or --master")
        engine: AbstractContextManager[Engine] = nullcontext(Processes(args.workers))
        if args.master is not None:
            if on_spark is None:
                raise Unsupported("--master: nothing here knows Spark")
            engine = on_spark(args)
        out = args.out or _fresh(RUNS / "search")
        if None in (args.first or []):
            say(f"drawn: stormcast search {plan.words()}")
        with sigterm_interrupts(), SearchDirectory(out).opened(plan) as directory:
            return _Command(args, plan, directory, out).run(engine)
    except Unsupported as refusal:
        say(f"stormcast: {refusal}")
        return Exit.UNKNOWN
    except (ConfigError, StorageError, OSError) as error:
        return refuse(error)


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = parser_of(
        "search",
        "Run generated scenarios, one per seed, on all cores, or on the hosts of a Spark master. "
        "What does not hold is kept, grouped by how it fails, and the smallest of each group is "
        "shrunk. Ctrl-C ends it; the same command with the same --out goes on.",
    )
    parser.add_argument("--seeds", type=read_count, default=500, help="how many (default 500)")
    parser.add_argument(
        "--from",
        dest="first",
        action="append",
        type=_read_first,
        help="the first one (default 0), or random; may be given several times, each for so many "
        "seeds",
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="where rows are kept, and runs that do not hold: of this search, or empty (default a "
        "fresh one, runs/search, search-2 …)",
    )
    parser.add_argument("--workers", type=read_count, help="processes (default: one per core)")
    parser.add_argument(
        "--shrink-budget",
        type=_read_budget,
        default=SHRINK_SECONDS,
        help="how long to look for a smaller scenario of each failure (default 60s; 0: not at all)",
    )
    spark = parser.add_argument_group("on Spark, with --out on storage that all hosts share")
    spark.add_argument("--master", help="of Spark: spark://HOST:PORT, local[*], k8s://…")
    add_spark_settings(spark)
    spark.add_argument(
        "--py-files",
        action="append",
        default=[],
        type=Path,
        metavar="ZIP",
        help="sent to each worker: packages that are not installed there",
    )
    add_json(parser)
    return parser.parse_args(argv)


def _read_first(text: str) -> int | None:
    """Read a seed; None if it is to be drawn."""
    return None if text == RANDOM else read_seed(text)


def _read_budget(text: str) -> float:
    return 0.0 if text == "0" else read_duration(text)


def _draw() -> int:
    return secrets.randbelow(DRAWN_BELOW)


def _fresh(path: Path) -> Path:
    """Make a directory that did not exist: `path`, or `path` with a number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        fresh = path if number == 1 else path.with_name(f"{path.name}-{number}")
        try:
            fresh.mkdir()
        except FileExistsError:
            continue
        break
    return fresh


class _Command:
    """One call of the command: searches, shrinks failures, and prints the table."""

    def __init__(
        self, args: argparse.Namespace, plan: Plan, directory: SearchDirectory, out: Path
    ) -> None:
        self._args = args
        self._plan = plan
        self._directory = directory
        self._out = out
        self._search = Search(plan, directory)
        self._said = time.monotonic()

    def run(self, engine: AbstractContextManager[Engine]) -> int:
        """Search, shrink the failures, and print them; returns the exit code."""
        total, is_whole = self._search.total, False
        try:
            with engine as running:
                self._search.run(running, self._tell)
                end_progress()
                self._shrink(running, total.groups())
            is_whole = True
        except (NodeError, OSError, MemoryError) as error:
            # What was found before counts, whatever has ended the search.
            end_progress()
            say(f"stormcast: {error_in_words(error)}")
        except KeyboardInterrupt:
            end_progress()
            say(f"interrupted after {total.seeds} of {len(self._plan)} seeds")
            say(f"to go on: {self.again}")
            self._print()
            raise
        self._print()
        if total.violations:
            return Exit.VIOLATED
        return Exit.HOLDS if is_whole and not total.unknown else Exit.UNKNOWN

    @property
    def again(self) -> str:
        """The command that resumes this search."""
        words = f"stormcast search {self._plan.words()} --out {shlex.quote(str(self._out))}"
        return f"{words} --master {shlex.quote(self._args.master)}" if self._args.master else words

    def _tell(self, total: SearchResult) -> None:
        """Show the progress: on a terminal each time, elsewhere once a minute."""
        left = len(self._plan) - total.seeds
        time_left = f"{_span(left / total.rate)} left" if total.rate else "time left unknown"
        text = (
            f"{total.seeds}/{len(self._plan)} seeds, {total.rate:.1f} seeds/s, "
            f"{len(total.violations)} violated, {len(total.unknown)} unknown, "
            f"{len(total.groups())} kinds of failure, {time_left}"
        )
        progress(text)
        if not sys.stderr.isatty() and time.monotonic() > self._said + MINUTE:
            self._said = time.monotonic()
            say(text)

    def _shrink(self, engine: Engine, groups: Sequence[Group]) -> None:
        """Shrink the smallest run of each violated group, unless that was done before."""
        budget = self._args.shrink_budget
        runs = [self._directory.kept(group.smallest) for group in groups if _is_shrunk(group)]
        left = [run for run in runs if run.is_dir() and not (run / MINIMAL).exists()]
        if not budget or not left:
            return
        say(f"shrinking {len(left)} of them, for {_span(budget)} each at most")
        for why in engine.run(partial(shrink_kept, budget), left, lambda: None):
            say(f"stormcast: {why}")

    def _print(self) -> None:
        total = self._search.total
        groups = total.groups()
        if self._args.json:
            found = [
                group.as_json() | {"run": self._run_of(group), "shrunk": self._minimal_of(group)}
                for group in groups
            ]
            whole = total.as_json() | {"findings": found, "out": str(self._out)}
            print(json.dumps(whole | {"ranges": self._plan.as_json()["ranges"]}))
            return
        if groups:
            header = ("seeds", "first", "verdict", "kept", "failure")
            print(in_columns([header, *map(self._row, groups)]))
            print(f"again: stormcast search --seeds 1 --from {groups[0].first}")
        firsts = ", ".join(str(seeds.start) for seeds in self._plan.ranges)
        resumed = f" ({total.resumed} of them before)" if total.resumed else ""
        print(
            f"{total.seeds} seeds from {firsts}{resumed}, {len(total.violations)} violated, "
            f"{len(total.unknown)} unknown, {total.events} events in {total.seconds:.1f}s"
        )
        empty = empty_cells(total)
        print(f"stack × fault: {len(CELLS) - len(empty)} of {len(CELLS)} met")
        if 0 < len(empty) <= NAMED:
            print(f"not met: {', '.join('×'.join(cell) for cell in empty)}")

    def _row(self, group: Group) -> tuple[str, ...]:
        """Return a row of the table; `kept` is the shrunk scenario, else the run directory."""
        kept = self._minimal_of(group) or self._run_of(group) or "-"
        return (str(group.seeds), str(group.first), str(group.verdict), kept, group.fingerprint)

    def _run_of(self, group: Group) -> str | None:
        is_kept = self._directory.kept(group.smallest).is_dir()
        return str(self._out / f"seed-{group.smallest}") if is_kept else None

    def _minimal_of(self, group: Group) -> str | None:
        run = self._run_of(group)
        return f"{run}/{MINIMAL}" if run and Path(run, MINIMAL).exists() else None


def _is_shrunk(group: Group) -> bool:
    return group.verdict is Verdict.VIOLATED


def _span(seconds: float) -> str:
    """Return a length of time as text, such as 2min 05s."""
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02}min" if hours else f"{minutes}min {rest:02}s"
