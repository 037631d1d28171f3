"""Many kills: some at once, then `stormcast clean`, then a look at what is left of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Protocol

from stormcast.chaos.backends.netns.process import environment
from tests.kills import judges, keepers, rig
from tests.kills.beside import Beside, Neighbour
from tests.kills.found import Found, Missed
from tests.kills.plan import KEEPER, PHASES, VICTIMS, Kill, draw

TRIES = 5
"""Of a kill whose victim, or its phase, was over before: each time the delay is half."""
AT_ONCE = 6
"""For two cores: each of them mostly waits."""
BESIDE = 25
"""Among so many kills there is one run that nobody is killed in."""


class Struck(Protocol):
    """What a kill has left, before and after `clean`."""

    found: Found

    def check_clean(self) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Broken:
    """A kill after which something never came, or a check itself failed."""

    found: Found

    def check_clean(self) -> None:
        """Nothing is known of it."""

    def close(self) -> None:
        """All has ended."""


@dataclass(slots=True)
class Campaign:
    """Kills of a seed, in a folder of their own."""

    seed: int
    folder: Path
    at_once: int
    has_spark: bool
    say: Callable[[str], None]
    done: list[tuple[Kill, Found]] = field(default_factory=list)
    beside: list[Found] = field(default_factory=list)
    missed: list[Kill] = field(default_factory=list)
    skipped: list[Kill] = field(default_factory=list)
    """Those on Spark, where there is none."""
    is_kept: bool = False
    """Whether the folders of kills stay that found nothing."""
    _sound: Path | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, numbers: Iterable[int]) -> None:
        """Strike all of these numbers."""
        with Neighbour() as neighbour:
            for batch in _batches(self._kills(numbers), self.at_once):
                self._strike(batch, neighbour)

    @property
    def bad(self) -> list[tuple[str, list[str]]]:
        """What was found that must not be, by kill."""
        named = [(str(kill), found.lines) for kill, found in self.done]
        named += [("a run beside", found.lines) for found in self.beside]
        return [(name, lines) for name, lines in named if lines]

    def _kills(self, numbers: Iterable[int]) -> Iterator[Kill]:
        for number in numbers:
            kill = draw(self.seed, number)
            if kill.is_on_spark and not self.has_spark:
                self.skipped.append(kill)
            else:
                yield kill

    def _strike(self, batch: list[Kill], neighbour: Neighbour) -> None:
        with ExitStack() as undo:
            pool = undo.enter_context(ThreadPoolExecutor(len(batch)))
            futures = [(kill, pool.submit(self._begin, kill)) for kill in batch]
            try:
                struck = [(kill, one) for kill, future in futures if (one := future.result())]
            except KeyboardInterrupt:
                self.say("interrupted: those that are under way come to their end first")
                wait([future for _kill, future in futures])
                for _kill, future in futures:
                    undo.callback(_close, future)
                undo.callback(clean)
                raise
            for _kill, one in struck:
                undo.callback(one.close)
            self._look(struck, self._beside(batch), neighbour)
        for kill, one in struck:
            if not one.found.lines and not self.is_kept:
                for path in self.folder.glob(f"{kill.number}-*"):
                    shutil.rmtree(path)

    def _look(
        self, struck: list[tuple[Kill, Struck]], beside: Beside | None, neighbour: Neighbour
    ) -> None:
        """Clean, and look at what is left of some, and at what others had."""
        said = clean()
        for kill, one in struck:
            one.check_clean()
            one.found.add("clean", said)
            one.found.add("clean removed", neighbour.missing())
            self.done.append((kill, one.found))
            self._tell(str(kill), one.found)
        if beside is not None:
            self.beside.append(beside.finish())
            self._tell("the run beside", self.beside[-1])

    def _begin(self, kill: Kill) -> Struck | None:
        """Strike; None: there was nobody to be struck."""
        found = Found(kill.victim, kill.phase)
        for tried in range(TRIES):
            found.misses = tried
            folder = self.folder / f"{kill.number}-{tried}"
            sooner = replace(kill, delay=kill.delay * 0.5**tried)
            try:
                if kill.victim == KEEPER:
                    return keepers.begin(sooner, folder, found)
                if kill.is_on_spark:
                    return judges.begin(sooner, folder, found, self._sound_run())
                return rig.begin(sooner, folder, found)
            except Missed as missed:
                self.say(f"{kill}: missed, {missed}")
            except Exception as error:  # noqa: BLE001 the others go on
                found.add("it could not be looked at", [repr(error)])
                return Broken(found)
        self.missed.append(kill)
        return None

    def _sound_run(self) -> Path:
        with self._lock:
            if self._sound is None:
                self._sound = judges.make_run(self.folder / "sound")
            return self._sound

    def _beside(self, batch: list[Kill]) -> Beside | None:
        due = [kill.number for kill in batch if kill.number % BESIDE == 0]
        return Beside(self.folder / f"beside-{due[0]}", due[0]) if due else None

    def _tell(self, name: str, found: Found) -> None:
        self.say(f"{name}: {_came_of(found)}")
        for line in found.lines:
            self.say(f"    {line}")


def _close(future: Future[Struck | None]) -> None:
    if future.exception() is None and (one := future.result()):
        one.close()


def clean() -> list[str]:
    """Run `stormcast clean`; returns what is wrong with how it ended."""
    done = subprocess.run(
        (sys.executable, "-m", "stormcast", "clean"),
        capture_output=True,
        text=True,
        env=environment({}),
        check=False,
        timeout=rig.END_SECONDS,
    )
    return [] if done.returncode == 0 else [f"exit {done.returncode}: {done.stderr[-400:]}"]


def _came_of(found: Found) -> str:
    more = [f"{found.blocks} blocks"] if found.blocks else []
    more += [found.verdict] if found.verdict else []
    more += ["a fault acted"] if found.acted else []
    return ", ".join(["BAD" if found.lines else "well", *more])


def _batches(kills: Iterator[Kill], size: int) -> Iterator[list[Kill]]:
    while batch := list(islice(kills, size)):
        yield batch


def table(campaign: Campaign) -> str:
    """The kills by victim and phase; in brackets those that found something."""
    rows = [("", *PHASES, "all")]
    for victim in VICTIMS:
        of_it = [(kill, found) for kill, found in campaign.done if kill.victim == victim]
        cells = [_cell([found for kill, found in of_it if kill.phase == phase]) for phase in PHASES]
        rows.append((victim, *cells, _cell([found for _kill, found in of_it])))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    every = [found for _kill, found in campaign.done]
    lines.append(
        f"{len(every)} kills, seed {campaign.seed}: {sum(map(bool, (one.lines for one in every)))} "
        f"found something, {sum(one.blocks for one in every)} blocks on disk before, "
        f"{sum(one.acted is True for one in every)} while a fault acted, "
        f"{len(campaign.beside)} runs beside"
    )
    if campaign.missed:
        lines.append(f"{len(campaign.missed)} came too late, {TRIES} times each")
    if campaign.skipped:
        lines.append(f"{len(campaign.skipped)} skipped: there is no Spark here, or it was declined")
    return "\n".join(lines)


def _cell(found: list[Found]) -> str:
    bad = sum(map(bool, (one.lines for one in found)))
    return "-" if not found else f"{len(found)} ({bad})" if bad else str(len(found))
