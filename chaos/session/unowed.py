"""Loads of multicasts that were never for some members: they prove less than they seem to.

A load is what its members sent of it, whenever that was: what is late, or is kept waiting, leaves
after the time that the scenario names. Messages tell no load. They leave in the order in which they
are due, so the number of a message says of which load it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from heapq import merge

from stormcast.chaos.language.scenario import Expect, Scenario
from stormcast.chaos.language.workload import ScenarioLoad
from stormcast.chaos.oracles.application import last_number
from stormcast.chaos.oracles.history import Member
from stormcast.chaos.oracles.owed import Unowed, unowed_multicasts
from stormcast.chaos.oracles.verdict import RUN, Finding, Verdict
from stormcast.chaos.session.agenda import EPSILON
from stormcast.chaos.session.facts import name_of
from stormcast.chaos.session.record import RunRecord
from stormcast.node.core.wire import GROUP


def unowed_findings(scenario: Scenario, run: RunRecord) -> list[Finding]:
    """Return doubts about expectations that all is delivered: multicasts that were never for some
    of the expected dests, because their sender was alone or in views without them."""
    dests = {
        name
        for expect in scenario.expect
        if isinstance(expect, Expect) and expect.count is None
        for name in expect.dests
    }
    return [Finding(RUN, Verdict.UNKNOWN, line) for line in _lines(scenario, run, dests)]


def unowed_loads(scenario: Scenario, run: RunRecord) -> tuple[str, ...]:
    """Return a line on each load of multicasts that was never for some members, whether or not the
    scenario expects them to have it: the load proves less than it seems to."""
    return tuple(_lines(scenario, run, {*scenario.cluster.members}))


def _lines(scenario: Scenario, run: RunRecord, dests: Collection[str]) -> list[str]:
    if not dests or run.evidence.defects:
        return []
    found: dict[str, None] = {}
    for load, unowed in _unowed(scenario, run):
        # The scenario has one name for all incarnations of a member.
        sender = name_of(unowed.sender)
        missing = [name for name in map(name_of, unowed.missing) if name in dests]
        if missing or (unowed.is_alone and {*dests} != {sender}):
            what = f"{unowed.messages} multicasts of {sender} from t={load.start:g} on were"
            who = f"never for {', '.join(missing)}, who were not in its views"
            found[f"{what} {'sent while it was alone' if unowed.is_alone else who}"] = None
    return list(found)


def _unowed(scenario: Scenario, run: RunRecord) -> Iterator[tuple[ScenarioLoad, Unowed]]:
    evidence = run.evidence
    loads = [load for load in scenario.workload if load.do == "multicast"]
    senders = {name_of(member): member for member in evidence.members.values() if member.lives}
    numbers = {name: _numbers([load for load in loads if name in load.sources]) for name in senders}
    for load in loads:
        for name in load.sources:
            if name in senders:
                sender, of_load = senders[name], numbers[name].pop(0)
                before = _offered_before(run, sender)
                # Of what a member sent before this run no load of the scenario knows.
                before -= _before_begin(run, sender)
                unowed = unowed_multicasts(evidence, sender, of_load, before)
                if unowed is not None:
                    yield load, unowed


def _numbers(loads: list[ScenarioLoad]) -> list[Collection[int]]:
    """Return for each load of one member the numbers of its messages, from 1 for the first that is
    due."""
    if len(loads) == 1:
        return [range(1, loads[0].count + 1)]
    found: list[set[int]] = [set() for _load in loads]
    for number, (_time, at) in enumerate(merge(*map(_due, loads, range(len(loads)))), 1):
        found[at].add(number)
    return [*found]


def _due(load: ScenarioLoad, at: int) -> Iterator[tuple[float, int]]:
    """Yield for each message of a load when it is due, and the load's place."""
    for number in range(load.count):
        yield load.start + number // load.burst * load.burst / load.rate, at


def _offered_before(run: RunRecord, sender: Member) -> int:
    """Return how many multicasts earlier incarnations of a member offered: it sends the rest."""
    evidence, offered = run.evidence, 0
    for (short, dest), outgoing in evidence.application.outgoing.items():
        member = evidence.find(short)
        if dest == GROUP and member is not sender and name_of(member) == name_of(sender):
            told = outgoing.offered.hi if outgoing.offered is not None else 0
            offered += max(told, last_number(outgoing)) - _before_begin(run, member)
    return offered


def _before_begin(run: RunRecord, sender: Member) -> int:
    """Return how many multicasts of a member had left before the run began, as in a soak."""
    outgoing = run.evidence.application.outgoing.get((sender.short, GROUP))
    numbers = outgoing.numbers() if outgoing is not None else ()
    begin = run.zero - EPSILON
    return max((last for event, _first, last in numbers if event.time < begin), default=0)
