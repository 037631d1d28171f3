"""Who is up at the end, whatever crashes, leaves, churns and restarts meet at one member: the rule
of docs/scenarios.md in a few lines, held against the planner, and against what the rig does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from stormcast.chaos import faults
from stormcast.chaos.faults import Action
from stormcast.chaos.language.cluster import Cluster
from stormcast.chaos.language.scenario import Limits, Scenario
from stormcast.chaos.language.schedule import TimedStep, schedule
from stormcast.chaos.language.timeline import Step
from stormcast.chaos.session.runner import run_scenario

MEMBERS = ("n0", "n1", "n2", "n3")
"""Nothing is done to the first, and the last comes late."""
SEED = 1
ONE = st.sampled_from(MEMBERS[1:])
SHORT = st.sampled_from((0.3, 1.0, 2.0, 4.0, 8.0))
"""Seconds: leaving may take longer than some, and others last beyond the next steps."""


@dataclass(slots=True)
class Rule:
    """The rule: a member is down by the first fault since it was up, and back by the end of it."""

    absent: set[str] = field(default_factory=lambda: {MEMBERS[-1]})
    down: dict[str, str] = field(default_factory=dict)

    def go(self, member: str, fault: str) -> None:
        self.down.setdefault(member, fault)

    def end(self, member: str, fault: str) -> bool:
        is_due = self.down.get(member) == fault
        if is_due:
            self.start(member)
        return is_due

    def start(self, member: str) -> None:
        self.down.pop(member, None)
        self.absent.discard(member)

    @property
    def up(self) -> set[str]:
        return {*MEMBERS} - self.absent - {*self.down}


@st.composite
def timelines(draw: Callable[..., object]) -> tuple[Step, ...]:
    """Up to six steps at three members; no two of their times are equal."""
    kinds = draw(st.lists(st.sampled_from(sorted(DRAWN)), min_size=2, max_size=6))
    assert isinstance(kinds, list)
    steps = []
    for number, kind in enumerate(kinds):
        at = draw(st.integers(1, 12))
        assert isinstance(at, int)
        step = draw(DRAWN[kind])
        assert isinstance(step, Step)
        steps.append(replace(step, at=at + number / 64, name=f"f{number}"))
    return tuple(sorted(steps, key=lambda step: step.at))


def step(action: st.SearchStrategy[Action], duration: st.SearchStrategy[float | None]) -> object:
    return st.builds(Step, at=st.just(0.0), action=action, duration=duration)


DRAWN = {
    "crash": step(st.builds(faults.Crash, member=ONE), st.none() | SHORT),
    "leave": step(st.builds(faults.Leave, member=ONE), st.none() | SHORT),
    "pause": step(st.builds(faults.Pause, member=ONE), SHORT),
    "restart": step(st.builds(faults.Restart, member=ONE), st.none()),
    "join": step(st.builds(faults.Join, member=ONE), st.none()),
    "churn": step(
        st.builds(
            faults.Churn,
            members=st.lists(ONE, min_size=1, max_size=3, unique=True).map(tuple),
            every=st.sampled_from((0.5, 1.0)),
        ),
        st.sampled_from((2.0, 5.0)),
    ),
}


def scenario_of(timeline: tuple[Step, ...]) -> Scenario:
    return Scenario(
        name="overlaps",
        about="",
        guarantees=("G8", "V4"),
        cluster=Cluster(members=MEMBERS, stack="udp", timing="fast", late=MEMBERS[-1:]),
        timeline=timeline,
        workload=(),
        limits=Limits(run=60.0),
    )


GOES = ("crash", "leave")
STARTS = (faults.Restart, faults.Join)


def by_the_file(timeline: Iterable[Step], steps: Iterable[TimedStep]) -> set[str]:
    """Apply the rule to the steps of a file. Of a churn the plan says who goes when."""
    todo: list[tuple[float, str, str, str]] = []
    for one in timeline:
        action, end, fault = one.action, one.duration, one.name
        if isinstance(action, faults.Crash | faults.Leave):
            todo.append((one.at, "go", action.member, fault))
            todo += [(one.at + end, "end", action.member, fault)] if end is not None else []
        elif isinstance(action, STARTS):
            todo.append((one.at, "start", action.member, fault))
        elif isinstance(action, faults.Churn):
            assert end is not None
            turns = [each for each in steps if each.fault == fault and each.do in GOES]
            for each in turns:
                back = min(one.at + end, each.at + action.every)
                todo.append((each.at, "go", each.action.member, fault))
                todo.append((back, "end", each.action.member, fault))
    rule = Rule()
    for _at, what, member, fault in sorted(todo):
        if what == "start":
            rule.start(member)
        else:
            getattr(rule, what)(member, fault)
    return rule.up


def by_the_plan(timeline: Iterable[Step], steps: Iterable[TimedStep]) -> set[str]:
    """Apply the steps of the plan, each end of which must be due."""
    starting = {
        one.name for one in timeline if isinstance(one.action, faults.Restart | faults.Join)
    }
    rule = Rule()
    for one in steps:
        match one.action:
            case faults.Crash(member=member) | faults.Leave(member=member):
                rule.go(member, one.fault)
            case faults.Restart(member=member) | faults.Join(member=member):
                if one.fault in starting:
                    rule.start(member)
                else:
                    assert rule.end(member, one.fault), f"{one} ends what it did not begin"
    return rule.up


@given(timelines())
def test_the_plan_has_up_at_the_end_whom_the_file_has_up(timeline: tuple[Step, ...]) -> None:
    steps = schedule(scenario_of(timeline), SEED)
    assert by_the_plan(timeline, steps) == by_the_file(timeline, steps)


PAUSED = Step(at=1.0, action=faults.Pause(member="n1"), duration=6.0, name="paused")
LEAVES = Step(at=2.0, action=faults.Leave(member="n1"), duration=2.0, name="leaves")
CRASH = faults.Crash(member="n1")


@settings(max_examples=25)
@given(timelines())
@example((PAUSED, LEAVES, Step(at=3.0, action=CRASH, name="while it leaves")))
@example((PAUSED, LEAVES, Step(at=5.0, action=CRASH, name="while it is awaited")))
def test_whom_the_file_has_up_at_the_end_is_up(timeline: tuple[Step, ...]) -> None:
    scenario = scenario_of(timeline)
    run = run_scenario(scenario, SEED, min_bites=0).run
    living = {life.name for life in run.lives.values() if life.end > run.seconds}
    assert living == by_the_file(timeline, schedule(scenario, SEED))
