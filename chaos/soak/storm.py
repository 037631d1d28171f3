"""Storms: faults and loads that are drawn from a seed, one window after the other, within a budget.

A window is a scenario of its own: the same seed and number give the same one, whatever came before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final

from stormcast.chaos import faults
from stormcast.chaos.faults import Action, Link, Names
from stormcast.chaos.language.cluster import Cluster
from stormcast.chaos.language.scenario import Limits, Scenario
from stormcast.chaos.language.timeline import Step
from stormcast.chaos.language.workload import ScenarioLoad

Span = tuple[float, float]
"""The least and the most seconds, or another pair of bounds."""

SIZES: Final = ((16, 100), (16, 2000), (1000, 8000), (30_000, 200_000))
ALL: Final = (*(f"G{n}" for n in range(1, 9)), "A1", "V1", "V2", "V3", "V4", "C1", "L1")
REJOIN_SECONDS: Final = 10.0
"""Seconds that a member has to come back before another one may go."""
LARGE: Final = 10_000
"""A load of messages above so many bytes has a fiftieth of the rate."""
WINDOW: Final = 20.0
"""Seconds after which Spark, which needs some twenty more, tells of a violation within a minute."""
LEAST_LIMIT: Final = 600.0
"""Seconds that any window may take until all is well, however short it is."""
WHOLE_TRACE: Final = 1 << 40
"""No bound of a trace: chapters bound it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """The faults and loads that a soak may draw, and how many at once."""

    name: str = "storm"
    about: str = ""
    cluster: Cluster
    network: Link = field(default_factory=Link)
    guarantees: Names = ALL
    kinds: Names = ()
    """Kinds of fault, of KINDS; none: all."""
    every: Span = (1.0, 8.0)
    """Seconds from the begin of one fault to that of the next."""
    lasting: Span = (0.2, 6.0)
    at_once: int = 3
    """The most faults at one time."""
    window: float = WINDOW
    """Seconds of storm; a quiet phase follows."""
    loads: tuple[int, int] = (2, 4)
    """The least and the most loads of a window."""
    rate: Span = (5.0, 60.0)
    """Messages per second of each load."""
    sizes: tuple[tuple[int, int], ...] = SIZES
    """Ranges of sizes in bytes; each load draws one."""
    settle: float = 30.0

    @property
    def drawn_kinds(self) -> Names:
        """The kinds of fault that are drawn."""
        return self.kinds or tuple(KINDS)

    @property
    def limits(self) -> Limits:
        """The limits of each window."""
        return Limits(run=max(10 * self.window, LEAST_LIMIT), settle=self.settle, trace=WHOLE_TRACE)

    def scenario(self, seed: int, number: int) -> Scenario:
        """Return the scenario of a window."""
        return _Drawing(self, seed, number).scenario()

    def widest(self) -> Scenario:
        """Return a scenario with each kind once: what a backend must be able to do."""
        dice, names = Random(0), self.cluster.members
        steps = (
            Step(at=1.0, action=KINDS[kind](dice, names), duration=0.1)
            for kind in self.drawn_kinds
            if kind != "restart"
        )
        load = ScenarioLoad(
            do="multicast",
            sources=names,
            dests=names,
            count=1,
            rate=1.0,
            size=max(self.sizes, key=lambda size: size[1]),
        )
        return Scenario(
            name=self.name,
            cluster=self.cluster,
            network=self.network,
            guarantees=self.guarantees,
            needs=("multicast",),
            workload=(load,),
            timeline=tuple(steps),
            limits=self.limits,
        )


class _Drawing:
    """Draws one window."""

    def __init__(self, storm: Storm, seed: int, number: int) -> None:
        self._storm = storm
        self._number = number
        self._dice = Random(f"stormcast/storm/{seed}/{number}")
        self._names = storm.cluster.members

    def scenario(self) -> Scenario:
        storm = self._storm
        return Scenario(
            name=f"{storm.name}-{self._number}",
            about=f"Window {self._number} of a soak.",
            guarantees=storm.guarantees,
            needs=("multicast",),
            cluster=storm.cluster,
            network=storm.network,
            workload=tuple(self._load(nth) for nth in range(self._dice.randint(*storm.loads))),
            timeline=tuple(self._steps()),
            limits=storm.limits,
        )

    def _load(self, nth: int) -> ScenarioLoad:
        dice, storm = self._dice, self._storm
        size = dice.choice(storm.sizes)
        rate = round(dice.uniform(*storm.rate), 3)
        if size[1] > LARGE:
            # A few large messages are as much as many small ones.
            rate = max(0.2, round(rate / 50, 3))
        is_multicast = nth == 0 or dice.random() < 0.5
        sources = self._names if nth == 0 else tuple(dice.sample(self._names, 1))
        others = tuple(name for name in self._names if name not in sources)
        dests = self._names if is_multicast else tuple(dice.sample(others or self._names, 1))
        flags = dice.choice(((), (), (), ("DONT_LOOPBACK",) if is_multicast else ("NO_FC",)))
        return ScenarioLoad(
            do="multicast" if is_multicast else "unicast",
            sources=sources,
            dests=dests,
            count=max(1, int(rate * storm.window * 0.9)),
            rate=rate,
            size=size,
            burst=dice.choice((1, 1, 1, 5, 20)),
            flags=flags,
            oob_every=dice.choice((0, 0, 0, 3, 10)),
        )

    def _steps(self) -> Iterator[Step]:
        """Draw faults until the window is over: no more at once than the storm allows, and members
        that are down, held up or cut off only one at a time."""
        storm, dice = self._storm, self._dice
        kinds = storm.drawn_kinds
        at, ends = dice.uniform(*storm.every), list[float]()
        back_at, nth = 0.0, 0
        while at < storm.window * 0.8:
            ends = [end for end in ends if end > at]
            kind = dice.choice(kinds)
            lasting = min(dice.uniform(*storm.lasting), storm.window * 0.9 - at)
            if len(ends) < storm.at_once and not (kind in ON_MEMBERS and at < back_at):
                action = KINDS[kind](dice, self._names)
                is_lasting = not isinstance(action, faults.Restart)
                nth += 1
                yield Step(
                    at=round(at, 3),
                    action=action,
                    name=f"w{self._number}-{kind}-{nth}",
                    duration=round(lasting, 3) if is_lasting else None,
                )
                ends.append(at + lasting)
                if kind in ON_MEMBERS:
                    back_at = at + lasting + REJOIN_SECONDS
            at += dice.uniform(*storm.every)


# -- Kinds of fault --------------------------------------------------------------------------------

Draw = Callable[[Random, Names], Action]


def _some(dice: Random, names: Names) -> tuple[Names, Names]:
    """Draw the ends of a fault on links: of all, or of one direction between two."""
    if dice.random() < 0.5:
        return names, names
    one, other = dice.sample(names, 2)
    return (one,), (other,)


def _partition(dice: Random, names: Names) -> Action:
    return faults.Partition(shape=dice.choice(faults.SHAPES))


def _cut(dice: Random, names: Names) -> Action:
    one, other = dice.sample(names, 2)
    return faults.Cut(sources=(one,), dests=(other,))


def _loss(dice: Random, names: Names) -> Action:
    sources, dests = _some(dice, names)
    return faults.Loss(sources=sources, dests=dests, rate=round(dice.uniform(0.01, 0.4), 3))


def _delay(dice: Random, names: Names) -> Action:
    sources, dests = _some(dice, names)
    delay = round(dice.uniform(0.01, 0.3), 3)
    return faults.Delay(sources=sources, dests=dests, delay=delay, jitter=round(delay / 3, 3))


def _duplicate(dice: Random, names: Names) -> Action:
    sources, dests = _some(dice, names)
    return faults.Duplicate(sources=sources, dests=dests, rate=round(dice.uniform(0.05, 0.6), 3))


def _reorder(dice: Random, names: Names) -> Action:
    sources, dests = _some(dice, names)
    by = round(dice.uniform(0.005, 0.2), 3)
    return faults.Reorder(
        sources=sources, dests=dests, rate=round(dice.uniform(0.05, 0.5), 3), by=by
    )


def _corrupt(dice: Random, names: Names) -> Action:
    sources, dests = _some(dice, names)
    return faults.Corrupt(sources=sources, dests=dests, rate=round(dice.uniform(0.01, 0.2), 3))


def _crash(dice: Random, names: Names) -> Action:
    return faults.Crash(member=_whom(dice, names))


def _restart(dice: Random, names: Names) -> Action:
    return faults.Restart(member=_whom(dice, names))


def _leave(dice: Random, names: Names) -> Action:
    return faults.Leave(member=dice.choice(names))


def _pause(dice: Random, names: Names) -> Action:
    return faults.Pause(member=_whom(dice, names))


def _stall(dice: Random, names: Names) -> Action:
    return faults.Stall(member=dice.choice(names))


def _whom(dice: Random, names: Names) -> str:
    """Draw a member, or a role."""
    return dice.choice((*names, "coordinator", "random-participant"))


KINDS: Final[dict[str, Draw]] = {
    "partition": _partition,
    "cut": _cut,
    "loss": _loss,
    "delay": _delay,
    "duplicate": _duplicate,
    "reorder": _reorder,
    "corrupt": _corrupt,
    "crash": _crash,
    "restart": _restart,
    "leave": _leave,
    "pause": _pause,
    "stall": _stall,
}
"""The faults that a storm may draw, each by a function of dice and members."""
ON_MEMBERS: Final = frozenset({"crash", "restart", "leave", "pause"})
"""Kinds that take a member out of its group."""
