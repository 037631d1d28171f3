"""Storms: faults and loads that are drawn from a seed, one window after the other, within a budget.

A window is a scenario of its own: the same seed and number give the same one, whatever came before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from math import inf
from random import Random
from typing import Final

from stormcast.chaos import faults
from stormcast.chaos.faults import Action, Link, Names
from stormcast.chaos.language.cluster import Cluster
from stormcast.chaos.language.plots import (
    TRAFFIC_SECONDS,
    Plot,
    churn,
    closed_amid_loss,
    full_and_lost,
    idle_in_a_stall,
    late_first,
    stale_acks,
)
from stormcast.chaos.language.protocol_settings import Settings
from stormcast.chaos.language.scenario import Limits, Scenario
from stormcast.chaos.language.timeline import Step
from stormcast.chaos.language.workload import ScenarioLoad
from stormcast.chaos.soak.kinds import KINDS, SUDDEN, TAKES_OUT, is_stream, unicast_of, usual_value
from stormcast.node.core.match import Match

Span = tuple[float, float]
"""The least and the most seconds, or another pair of bounds."""

SIZES: Final = ((16, 100), (16, 2000), (1000, 8000), (30_000, 200_000), (1_000_000, 2_000_000))
ALL: Final = (*(f"G{n}" for n in range(1, 9)), "A1", "V1", "V2", "V3", "V4", "C1", "L1")
REJOIN_SECONDS: Final = 10.0
"""Seconds that a member has to come back before another one may go."""
LARGE: Final = 10_000
"""A load of messages above so many bytes has a fiftieth of the rate: a few are as much as many
small ones."""
HUGE: Final = 500_000
"""Above so many bytes it has a thousandth."""
WINDOW: Final = 20.0
"""Seconds after which Spark, which needs some twenty more, tells of a violation within a minute."""
LEAST_LIMIT: Final = 600.0
"""Seconds that any window may take until all is well, however short it is."""
DOES: Final[dict[Plot, Names]] = {
    late_first: ("rule", "forget", "cut"),
    stale_acks: ("rule", "forget"),
    churn: ("rule", "forget"),
    full_and_lost: ("stall", "forget"),
    idle_in_a_stall: ("stall", "forget"),
    closed_amid_loss: ("loss", "close"),
}
"""The kinds of fault of each plot."""
TURN: Final = 30
"""Windows in which connections get old, and views many."""
WHOLE_TRACE: Final = 1 << 40
"""No bound of a trace: chapters bound it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What members run for some windows, in place of what their cluster says; None: that."""

    stack: str | None = None
    unicast: str | None = None
    timing: str | None = None
    settings: Settings | None = None
    historical: Settings | None = None
    max_batch: int | None = None
    outbox_bytes: int | None = None
    unicast_first_conn: int | None = None
    multicast_settings: Settings | None = None
    protocols: tuple[tuple[str, Settings], ...] | None = None

    def of(self, cluster: Cluster) -> Cluster:
        """Return the cluster of this turn."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(cluster, **{name: one for name, one in said.items() if one is not None})


def what_runs(cluster: Cluster) -> str:
    """Return what the members of a cluster run, in words."""
    said = [*filter(None, (cluster.stack, cluster.unicast, cluster.timing))]
    said += [f"{name} {value}" for name, value in cluster.settings]
    said += [f"multicast {name} {value}" for name, value in cluster.multicast_settings]
    said += [
        f"{protocol}.{name} {value}"
        for protocol, settings in cluster.protocols
        for name, value in settings
    ]
    said += [f"historical {name}" for name, _value in cluster.historical]
    others = ("max_batch", "outbox_bytes", "unicast_first_conn")
    said += [f"{name} {one}" for name in others if (one := getattr(cluster, name)) is not None]
    return ", ".join(said)


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
    plots: tuple[int, int] = (0, 2)
    """The least and the most plots of a window, besides its faults, of those whose kinds are
    drawn."""
    loads: tuple[int, int] = (2, 4)
    """The least and the most loads of a window."""
    rate: Span = (5.0, 60.0)
    """Messages per second of each load."""
    sizes: tuple[tuple[int, int], ...] = SIZES
    """Ranges of sizes in bytes; each load draws one."""
    settle: float = 30.0
    turns: tuple[Turn, ...] = ()
    """By turns members run these, each time as a new cluster; none: one cluster all the time."""
    turn: int = TURN
    """Windows of each turn."""

    def of_window(self, number: int) -> Storm:
        """Return the storm of the turn that a window is of, which has no other turns."""
        if not self.turns:
            return self
        turn = self.turns[number // self.turn % len(self.turns)]
        return replace(self, cluster=turn.of(self.cluster), turns=())

    def turn_ends(self, number: int) -> int | None:
        """Return the first window after the turn that a window is of; None: it never ends."""
        has_others = len(self.turns) > 1
        return (number // self.turn + 1) * self.turn if has_others else None

    def by_turn(self) -> tuple[Storm, ...]:
        """Return the storm of each turn."""
        return tuple(self.of_window(nth * self.turn) for nth in range(max(1, len(self.turns))))

    @property
    def drawn_kinds(self) -> Names:
        """The kinds of fault that are drawn."""
        return self.kinds or tuple(KINDS)

    @property
    def drawn_plots(self) -> list[Plot]:
        """The plots that are drawn."""
        kinds = set(self.drawn_kinds)
        return [plot for plot, does in DOES.items() if kinds.issuperset(does)]

    def has(self, plot: Plot) -> bool:
        """Whether a plot that is drawn is played: real members that rule frames of their
        connections cannot hold them."""
        return not is_stream(self.cluster) or "rule" not in DOES[plot]

    @property
    def limits(self) -> Limits:
        """The limits of each window."""
        return Limits(run=max(10 * self.window, LEAST_LIMIT), settle=self.settle, trace=WHOLE_TRACE)

    def scenario(self, seed: int, number: int) -> Scenario:
        """Return the scenario of a window."""
        return _Drawing(self.of_window(number), seed, number).scenario()

    def aimed(self, action: Action) -> Action:
        """Return what a plot does: its rules are for unicasts alone."""
        if not isinstance(action, faults.Rule):
            return action
        return replace(action, match=replace(action.match, protocols=(unicast_of(self.cluster),)))

    def widest(self) -> Scenario:
        """Return a scenario with each kind once: what a backend must be able to do."""
        dice, names = Random(0), self.cluster.members
        drawn = [KINDS[kind](dice, self.cluster) for kind in self.drawn_kinds]
        if "rule" in self.drawn_kinds and not is_stream(self.cluster):
            # The one that is drawn may be no more than a drop, of which each backend is capable.
            drawn.append(faults.Rule(does="delay", delay=0.1, match=Match(kinds=("ACK",))))
        if self.plots[1]:
            played, pair = filter(self.has, self.drawn_plots), (names[0], names[1])
            steps_of = (plot(_PlotDice(Random(0), [pair])) for plot in played)
            drawn += [self.aimed(step.action) for steps in steps_of for step in steps]
        steps = (
            Step(at=1.0, action=one, duration=None if isinstance(one, SUDDEN) else 0.1)
            for one in drawn
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


class _PlotDice:
    """The dice of one plot, on a connection that a window uses."""

    def __init__(self, dice: Random, busy: Sequence[tuple[str, str]]) -> None:
        self.random = dice
        self.settings: dict[str, object] = {}
        """What members run does not change within a turn: nobody asks for these."""
        self._busy = busy

    def pair(self) -> tuple[str, str]:
        return self.random.choice(self._busy)

    def seconds(self, low: float, high: float) -> float:
        return round(self.random.uniform(low, high), 3)


class _Drawing:
    """Draws one window."""

    def __init__(self, storm: Storm, seed: int, number: int) -> None:
        self._storm = storm
        self._seed = seed
        self._number = number
        self._dice = Random(f"stormcast/storm/{seed}/{number}")
        self._names = storm.cluster.members

    def scenario(self) -> Scenario:
        storm = self._storm
        loads = tuple(self._load(nth) for nth in range(self._dice.randint(*storm.loads)))
        # Dice of their own: a storm with more plots has the same faults.
        dice = Random(f"stormcast/storm/{self._seed}/{self._number}/plots")
        plots = [
            step
            for nth in range(dice.randint(*storm.plots))
            for step in self._plot(dice, nth, loads)
        ]
        return Scenario(
            name=f"{storm.name}-{self._number}",
            about=f"Window {self._number} of a soak.",
            guarantees=storm.guarantees,
            needs=("multicast",),
            cluster=storm.cluster,
            network=storm.network,
            workload=loads,
            timeline=tuple(sorted((*self._steps(loads), *plots), key=lambda step: step.at)),
            limits=storm.limits,
        )

    def _load(self, nth: int) -> ScenarioLoad:
        dice, storm = self._dice, self._storm
        # Each window has many messages, and plots a connection with many: the first two loads have
        # no large ones, if they may.
        small = [size for size in storm.sizes if size[1] <= LARGE]
        size = dice.choice(small if small and nth <= 1 else storm.sizes)
        rate = round(dice.uniform(*storm.rate), 3)
        if size[1] > HUGE:
            rate = max(0.06, round(rate / 1000, 3))
        elif size[1] > LARGE:
            rate = max(0.2, round(rate / 50, 3))
        is_multicast = nth == 0 or (nth > 1 and dice.random() < 0.5)
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

    def _steps(self, loads: tuple[ScenarioLoad, ...]) -> Iterator[Step]:
        """Draw faults until the window is over: no more at once than the storm allows, and members
        that are down, held up or cut off only one at a time."""
        storm, dice = self._storm, self._dice
        kinds = storm.drawn_kinds
        at, ends = dice.uniform(*storm.every), list[float]()
        # By kind: when the next one may begin.
        free_at = dict.fromkeys(kinds, 0.0)
        nth = 0
        while at < storm.window * 0.8:
            ends = [end for end in ends if end > at]
            kind = dice.choice(kinds)
            lasting = min(dice.uniform(*storm.lasting), storm.window * 0.9 - at)
            if len(ends) < storm.at_once and at >= free_at[kind]:
                nth += 1
                yield from self._fault(kind, nth, at, lasting, loads)
                ends.append(at + lasting)
                free_at |= self._bars(kind, at + lasting)
            at += dice.uniform(*storm.every)

    def _plot(self, dice: Random, nth: int, loads: Sequence[ScenarioLoad]) -> Iterator[Step]:
        """Draw a plot on a connection that a load uses, if there is one."""
        busy, plots = _busy(loads), self._storm.drawn_plots
        if not busy or not plots:
            return
        window = self._storm.window
        # What is drawn does not depend on the stack, so that the same soak can be played on two.
        plot = dice.choice(plots)
        later = dice.uniform(0.0, max(0.0, window * 0.8 - TRAFFIC_SECONDS))
        steps = plot(_PlotDice(dice, busy))
        for number, step in enumerate(steps if self._storm.has(plot) else ()):
            at = step.at + later
            if at > window * 0.8:
                continue
            lasting = step.duration and round(min(step.duration, window * 0.9 - at), 3)
            action = self._storm.aimed(step.action)
            name = f"w{self._number}-plot-{nth + 1}-{number + 1}"
            yield Step(at=round(at, 3), action=action, name=name, duration=lasting)

    def _bars(self, kind: str, end: float) -> dict[str, float]:
        """Return the kinds that a fault keeps out, each with the time from which it may begin."""
        if kind in TAKES_OUT:
            return dict.fromkeys(TAKES_OUT, end + REJOIN_SECONDS)
        if kind == "set-attribute":
            # Settings that change together may not fit each other.
            return {kind: end}
        if kind == "rule" and is_stream(self._storm.cluster):
            # Real members that rule the frames of their connections take one rule in a run.
            return {kind: inf}
        return {}

    def _fault(
        self, kind: str, nth: int, at: float, lasting: float, loads: tuple[ScenarioLoad, ...]
    ) -> Iterator[Step]:
        """Draw one fault. A setting that changes is set back: the next window begins with what the
        storm says."""
        cluster = self._storm.cluster
        action = KINDS[kind](self._dice, cluster)
        if isinstance(action, faults.Forget | faults.Close):
            action = self._of_a_connection(action, loads)
        has_end = not isinstance(action, SUDDEN)
        yield Step(
            at=round(at, 3),
            action=action,
            name=f"w{self._number}-{kind}-{nth}",
            duration=round(lasting, 3) if has_end else None,
        )
        if isinstance(action, faults.SetAttribute):
            back = replace(action, value=usual_value(action, cluster))
            name = f"w{self._number}-set-back-{nth}"
            yield Step(at=round(at + lasting, 3), action=back, name=name)

    def _of_a_connection(
        self, action: faults.Forget | faults.Close, loads: tuple[ScenarioLoad, ...]
    ) -> faults.Forget | faults.Close:
        """Return what forgets or closes a connection that a load opens, if there is one: most pairs
        of members have none."""
        busy = _busy(loads)
        if not busy:
            return action
        sender, receiver = self._dice.choice(busy)
        if isinstance(action, faults.Close):
            return replace(action, member=sender, peer=receiver)
        is_by_sender = action.half == "sender" or (
            action.half == "both" and self._dice.random() < 0.5
        )
        member, peer = (sender, receiver) if is_by_sender else (receiver, sender)
        return replace(action, member=member, peer=peer)


def _busy(loads: Sequence[ScenarioLoad]) -> list[tuple[str, str]]:
    """Return sender and receiver of each load between two members."""
    return [(load.sources[0], load.dests[0]) for load in loads if load.do == "unicast"]
