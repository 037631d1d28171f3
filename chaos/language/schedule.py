"""Makes timed steps of a scenario and a seed: every end explicit, every random choice made. Pure.

Faults that the timeline leaves are ended after it, so that every run settles in a healed cluster;
crashed members stay down unless the scenario restarts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import ceil
from random import Random
from typing import Final

from stormcast.chaos import faults
from stormcast.chaos.faults import RANDOM, Action, Names
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.timeline import CURES, WORDS, Step, actions
from stormcast.chaos.language.workload import ScenarioLoad
from stormcast.node.reading.notations import Plain
from stormcast.node.reading.quantities import DURATION, RATE, SIZE
from stormcast.node.reading.shapes import Shape
from stormcast.node.reading.writing import flow

_UNDO: Final = 0
"""Sorts before _DO: of two steps at one time an end is first, so that faults do not overlap."""
_DO: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The end of one network fault."""

    fault: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedStep:
    """An action and its time, in seconds from the start of the run."""

    at: float
    fault: str
    """Id of the fault that the step begins or ends; empty where it ends all of a kind."""
    do: str
    action: Action | End


def _random_halves(names: Names, dice: Random) -> tuple[Names, ...]:
    half = (len(names) + 1) // 2
    first = set(dice.sample(names, half))
    return (
        tuple(name for name in names if name in first),
        tuple(name for name in names if name not in first),
    )


def _halves(names: Names, _dice: Random) -> tuple[Names, ...]:
    half = (len(names) + 1) // 2
    return names[:half], names[half:]


def _one_alone(names: Names, dice: Random) -> tuple[Names, ...]:
    alone = dice.choice(names)
    return (alone,), tuple(name for name in names if name != alone)


def _bridge(names: Names, dice: Random) -> tuple[Names, ...]:
    bridge, *rest = dice.sample(names, len(names))
    half = len(rest) // 2
    return (bridge, *rest[:half]), (bridge, *rest[half:])


def _ring(names: Names, _dice: Random) -> tuple[Names, ...]:
    return tuple((name, names[at - 1]) for at, name in enumerate(names))


def _majorities(names: Names, dice: Random) -> tuple[Names, ...]:
    """Group each member of a shuffled circle with the `reach` that follow it. So each hears `reach`
    to its left and right: with itself a majority, and no two have the same one."""
    around = dice.sample(names, len(names)) * 2
    reach = (len(names) // 2 + 1) // 2
    return tuple(tuple(around[at : at + reach + 1]) for at in range(len(names)))


def _known_later(_names: Names, _dice: Random) -> tuple[Names, ...]:
    return ()


GROUPS: Final[dict[str, Callable[[Names, Random], tuple[Names, ...]]]] = {
    RANDOM: _random_halves,
    "halves": _halves,
    "isolate-random": _one_alone,
    "isolate-coordinator": _known_later,
    "bridge": _bridge,
    "ring": _ring,
    "majorities": _majorities,
}
"""The function that makes the groups of each shape of a partition."""
assert tuple(GROUPS) == faults.SHAPES


def schedule(scenario: Scenario, seed: int) -> tuple[TimedStep, ...]:
    """Return all steps of a run, in order; equal for equal arguments."""
    return tuple(_Plan(scenario, seed).steps())


def _periods(length: float, every: float) -> int:
    """Return how many periods begin within a time. Quotients of decimal fractions are not exact."""
    return ceil(round(length / every, 9))


class _Plan:
    """Walks the timeline, and keeps count of the faults that last."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.members = scenario.cluster.members
        self.absent = set(scenario.cluster.late)
        """Members that have not joined yet."""
        self.loads_end = max((load.end for load in scenario.workload), default=0.0)
        self.seed = seed
        self.ahead: list[tuple[float, int, int, str, Action | End, float | None]] = []
        self.active: dict[str, faults.NetworkFault] = {}
        # The first fault that stopped each member since it was up: its end brings the member back,
        # and that of no later one. By the member's name; a member that is only known by its role is
        # kept under that fault's id.
        self.down: dict[str, str] = {}
        self.paused: dict[str, str] = {}
        self.leaving: set[str] = set()
        """Paused members that were told to leave: they leave when they go on. Until then a join
        finds them there, and does nothing yet."""
        self.awaited: set[str] = set()
        """Members of `leaving` that a join found there: they are started when they have left."""
        self.roles: dict[str, str] = {}
        self.stalled: dict[str, str] = {}
        self.crashes: set[str] = set()
        self.flapping: set[str] = set()
        """Faults that come and go."""
        self.recurring: set[str] = set()
        """The flapping faults that have come at least once."""
        self.healed: set[str] = set()
        """The recurring faults that were healed: they come no more."""
        self.pushed = number = 0
        for step in scenario.timeline:
            if not isinstance(step.action, CURES):
                number += 1
            self._push_step(step, step.name or f"f{number}")

    def steps(self) -> Iterator[TimedStep]:
        now = 0.0
        while self.ahead:
            now, when, _order, fault, action, duration = heappop(self.ahead)
            if when == _UNDO and not self._is_due(fault, action):
                continue
            if when == _DO and fault in self.healed:
                continue
            action = self._chosen(fault, action)
            yield self._step(now, self._note(fault, action), action)
            if duration is not None:
                self._push(now + duration, _UNDO, fault, self._undo(fault, action), None)
        yield from self._clean(max(now, self.loads_end))

    def _push_step(self, step: Step, fault: str) -> None:
        """Push a step, or the steps that it stands for."""
        length = step.duration
        if isinstance(step.action, faults.Churn):
            assert length is not None
            self._push_churn(step.at, step.action, length, fault)
        elif step.every is not None and step.up is not None and length is not None:
            self.flapping.add(fault)
            for number in range(_periods(length, step.every)):
                since = number * step.every
                lasts = min(step.every - step.up, length - since)
                self._push(step.at + since, _DO, fault, step.action, lasts)
        else:
            self._push(step.at, _DO, fault, step.action, length)

    def _push_churn(self, at: float, churn: faults.Churn, length: float, fault: str) -> None:
        """Push the steps of a churn: by turns one member goes and is back; at the end all are."""
        dice = Random(f"{self.seed}:{fault}")
        number = _periods(length, churn.every)
        for turn in range(0, number, 2):
            member = dice.choice(churn.members)
            goes = dice.choice((faults.Leave, faults.Crash))(member=member)
            self._push(at + turn * churn.every, _DO, fault, goes, None)
            back = min(length, (turn + 1) * churn.every)
            self._push(at + back, _UNDO, fault, faults.Join(member=member), None)

    def _push(
        self, at: float, when: int, fault: str, action: Action | End, duration: float | None
    ) -> None:
        # No two entries have the same number, so the heap never compares actions.
        self.pushed += 1
        heappush(self.ahead, (at, when, self.pushed, fault, action, duration))

    @staticmethod
    def _step(at: float, fault: str, action: Action | End) -> TimedStep:
        do = "end" if isinstance(action, End) else WORDS[type(action)]
        return TimedStep(at=at, fault=fault, do=do, action=action)

    def _is_due(self, fault: str, action: Action | End) -> bool:
        """Whether the fault still lasts: it may have been healed, restarted or resumed before."""
        match action:
            case faults.Restart(member=member) | faults.Join(member=member):
                return self.down.get(self._key(fault, member)) == fault
            case faults.Resume(member=member):
                return self.paused.get(self._key(fault, member)) == fault
            case faults.Consume(member=member):
                return self.stalled.get(member) == fault
        return fault in self.active

    def _chosen(self, fault: str, action: Action | End) -> Action | End:
        """Return the action with every `random` in it decided by the seed."""
        dice = Random(f"{self.seed}:{fault}")
        if isinstance(action, faults.Partition) and not action.groups:
            return replace(action, groups=GROUPS[action.shape](self.members, dice))
        if (
            isinstance(action, faults.Crash | faults.Pause | faults.Restart | faults.Leave)
            and action.member == RANDOM
        ):
            # A dead member cannot be crashed again, and only a dead one wants a restart.
            if isinstance(action, faults.Restart):
                if not self.down.keys() <= set(self.members):
                    # Who is down by a role is known when the step is done.
                    return action
                fitting = [name for name in self.members if name in self.down]
            else:
                stopped = {*self.down, *self.paused, *self.absent}
                fitting = [name for name in self.members if name not in stopped]
            return replace(action, member=dice.choice(fitting or list(self.members)))
        return action

    def _key(self, fault: str, member: str) -> str:
        """Return the key of a stopped member: its name, or the fault that found it by a role."""
        return member if member in self.members else fault

    def _note(self, fault: str, action: Action | End) -> str:  # noqa: PLR0912 it is one table
        """Keep count of what an action breaks or mends; returns the fault that it belongs to."""
        match action:
            case End():
                del self.active[fault]
            case faults.NetworkFault():
                self.active[fault] = action
                if fault in self.flapping:
                    self.recurring.add(fault)
            case faults.Heal(name=None):
                self.active.clear()
                self.healed |= self.recurring
                return ""
            case faults.Heal(name=str(name)):
                self.active.pop(name, None)
                self.healed |= {name} & self.recurring
                return name
            case faults.Release(name=name):
                return name or ""
            case faults.Leave(member=member):
                key = self._key(fault, member)
                if key not in self.down and key in self.paused:
                    self.leaving.add(key)
                self._goes(fault, key)
            case faults.Crash(member=member):
                self.crashes.add(fault)
                self._goes(fault, self._key(fault, member))
                self._gone(member)
            case faults.Restart(member=member):
                # The end of a crash, which the process that was there has not outlived. A pause or
                # stall since then may be of a later one: a fault that aims at a role may have had
                # the member down before, and its end has brought it back.
                if fault not in self.crashes:
                    self._gone(member)
                self._came(fault, member)
            case faults.Join(member=member):
                # A member that is still there, such as a leaver that takes its time, is not started
                # anew: its pause or stall lasts and needs an end, which does nothing to another
                # process.
                if (key := self._key(fault, member)) in self.leaving:
                    self.awaited.add(key)
                else:
                    self._came(fault, member)
            case faults.Pause(member=member):
                self.paused[self._key(fault, member)] = fault
                self.roles[fault] = member
            case faults.Resume(member=member):
                key = self._key(fault, member)
                self.leaving.discard(key)
                if key in self.awaited:
                    self._came(fault, member)
                return self.paused.pop(key, "")
            case faults.Stall(member=member):
                self.stalled[member] = fault
            case faults.Consume(member=member):
                return self.stalled.pop(member, "")
        return fault

    def _goes(self, fault: str, key: str) -> None:
        """Note that a member is to be down: one that is down already stays so by the earlier fault.
        One that is awaited counts as back, so it is down anew."""
        if key in self.awaited:
            self.awaited.discard(key)
            self.down[key] = fault
        else:
            self.down.setdefault(key, fault)

    def _came(self, fault: str, member: str) -> None:
        key = self._key(fault, member)
        self.down.pop(key, None)
        self.awaited.discard(key)
        self.absent.discard(member)

    def _gone(self, member: str) -> None:
        """Forget the pause and the stall of a process that ends."""
        self.paused.pop(member, None)
        self.leaving.discard(member)
        self.stalled.pop(member, None)

    @staticmethod
    def _undo(fault: str, action: Action | End) -> Action | End:
        match action:
            case faults.Crash(member=member):
                return faults.Restart(member=member)
            case faults.Leave(member=member):
                return faults.Join(member=member)
            case faults.Pause(member=member):
                return faults.Resume(member=member)
            case faults.Stall(member=member):
                return faults.Consume(member=member)
        return End(fault=fault)

    def _clean(self, at: float) -> Iterator[TimedStep]:
        """Yield the steps that end all faults that last; dead members stay dead."""
        if self.active:
            yield self._step(at, "", faults.Heal())
        if any(isinstance(one, faults.Rule) and one.does == "hold" for one in self.active.values()):
            yield self._step(at, "", faults.Release())
        for fault in self.paused.values():
            yield self._step(at, fault, faults.Resume(member=self.roles[fault]))
        for member, fault in self.stalled.items():
            yield self._step(at, fault, faults.Consume(member=member))


def format_plan(scenario: Scenario, seed: int) -> str:
    """Return the timed steps and the loads as a table, in order of time, below a line about the
    cluster."""
    cluster, limits = scenario.cluster, scenario.limits
    head = (
        f"{scenario.name}, seed {seed}: {len(cluster.members)} members "
        f"({' '.join(cluster.members)}), {cluster.unicast or cluster.stack}, "
        f"{cluster.timing} timing, at most {DURATION.write(limits.run)}, "
        f"then {DURATION.write(limits.settle)} to settle"
    )
    return "\n".join([head, "", *plan_table(scenario, seed), ""])


def plan_table(scenario: Scenario, seed: int) -> list[str]:
    """Return the lines of a table of all timed steps and loads."""
    shapes = actions(scenario.cluster.members)
    rows = [(load.start, "", load.do, _load_words(load)) for load in scenario.workload]
    rows += [
        (step.at, step.fault, step.do, _words(step.action, shapes))
        for step in schedule(scenario, seed)
    ]
    rows.sort(key=lambda row: row[0])
    table = [("at", "fault", "do", "what")]
    table += [(f"{at:.3f}s", fault or "-", do, what) for at, fault, do, what in rows]
    at, fault, do = (max(len(row[column]) for row in table) for column in range(3))
    return [
        f"{row[0]:>{at}}  {row[1]:<{fault}}  {row[2]:<{do}}  {row[3]}".rstrip() for row in table
    ]


def _words(action: Action | End, shapes: dict[str, Shape]) -> str:
    if isinstance(action, End):
        return ""
    words: dict[str, Plain] = shapes[WORDS[type(action)]].write(action)
    return ", ".join(f"{key}: {flow(value)}" for key, value in words.items())


def _load_words(load: ScenarioLoad) -> str:
    low, high = map(SIZE.write, load.size)
    size = low if low == high else f"{low}..{high}"
    others = (
        " but not to themselves"
        if load.excludes_self and set(load.dests) & set(load.sources)
        else ""
    )
    text = [
        f"{' '.join(load.sources)} to {' '.join(load.dests)}{others}: {load.count} of {size} "
        f"at {RATE.write(load.rate)}, until {load.end:.3f}s"
    ]
    if load.burst > 1:
        text.append(f"bursts of {load.burst}")
    if load.oob_every:
        text.append(f"each {load.oob_every}th OOB")
    return ", ".join([*text, *load.flags])
