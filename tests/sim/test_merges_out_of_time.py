"""Merges in which a word comes late: what one member knows already, another one hears later."""

from __future__ import annotations

from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.session.simulation import simulate
from stormcast.node.trace import ALARM, MERGE, VIEW

VIEW_COMES_LATE = """
name: view-comes-late
about: n2 was alone for a while. As they merge, its windows are spoken of before n1 has the view.
guarantees: [V4]
cluster: {members: 3, stack: STACK}
network: {delay: 2ms}
workload:
  - {do: multicast, from: all, count: 20, rate: 20/s, size: 100B, start: 1s}
  - {do: multicast, from: n2, count: 60, rate: 20/s, size: 100B, start: 6s}
timeline:
  - {at: 5s, do: partition, groups: [[n0, n1], [n2]], name: split}
  - {at: 5.1s, do: install-view, member: n2, members: [n2]}
  - {at: 12s, do: heal, name: split}
  - {at: 12s, do: rule, does: delay, delay: 20ms, match: {kind: VIEW, to: n1}, for: 20s}
limits: {run: 120s, settle: 60s}
"""
LEADER_IS_PAUSED = """
name: leader-is-paused
about: The leader of a merge is paused for 30 s while it waits for answers.
guarantees: [V4]
cluster: {members: 4, stack: udp}
network: {delay: 200ms}
workload:
  - {do: multicast, from: all, count: 1400, rate: 10/s, size: 100B, start: 2s}
timeline:
  - {at: 5s, do: partition, groups: [[n0, n1], [n2, n3]], for: 75s}
  - {at: 91850ms, do: pause, member: n2, for: 30s}
limits: {run: 240s, settle: 60s}
"""


def evidence_of(text: str) -> Evidence:
    record = simulate(parse_scenario(text), 1)
    assert not record.evidence.defects
    return record.evidence


def test_no_alarm_is_raised_about_what_was_sent_in_a_view_without_this_member() -> None:
    for stack in ("udp", "mcast", "tcp", "tcp-no-retransmit"):
        evidence = evidence_of(VIEW_COMES_LATE.replace("STACK", stack))
        merges = [
            view
            for member in evidence.members.values()
            for view in member.events
            if view.kind == VIEW and view.stream == MERGE
        ]
        assert merges, "the groups merged"
        events = (event for member in evidence.members.values() for event in member.events)
        assert not [event for event in events if event.kind == ALARM], stack


def test_no_merge_ends_by_answers_that_are_older_than_anybody_waits() -> None:
    """Its view would be held by the leader alone, with windows of long ago."""
    evidence = evidence_of(LEADER_IS_PAUSED)
    (leader,) = (member for member in evidence.members.values() if member.name == "n2")
    merged = [
        (event.peer, event.lo)
        for event in leader.events
        if event.kind == VIEW and event.stream == MERGE and event.count == len(evidence.members)
    ]
    held = [
        {(event.peer, event.lo) for event in member.events if event.kind == VIEW}
        for member in evidence.members.values()
    ]
    assert all(view in views for views in held for view in merged)
