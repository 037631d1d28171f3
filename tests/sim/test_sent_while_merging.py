"""What a member that is alone multicasts while it is being merged can be asked for afterwards."""

from __future__ import annotations

import pytest

from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.session.runner import run_scenario
from stormcast.node.trace import SKIPPED, VIEW

TEXT = """
name: sent-while-a-digest-is-in-use
about: One holds a view of its own and multicasts while it is being merged.
guarantees: [G1, G2, G3, G4, A1]
cluster: {members: 4, stack: STACK, timing: fast, joins: one-by-one,
  protocols: {MERGE3: {min_interval: 1s, max_interval: 2s, check_interval: 3s}}}
network: {delay: 20ms}
workload:
  - {do: multicast, from: n2, count: 2000, rate: 100/s, start: 1s, size: 50B}
timeline:
  - {at: 1s, do: rule, does: drop, match: {kind: DATA, from: n2, to: n1}, for: 15s}
  - {at: 3s, do: install-view, member: n2, members: [n2]}
  - {at: 11s, do: install-view, member: n2, members: [n2]}
"""


@pytest.mark.parametrize("stack", ["udp", "mcast"])
def test_nothing_that_a_digest_promises_is_gone(stack: str) -> None:
    """The digest of the merge says up to where n2 has multicast. n2 goes on, alone in its view, so
    that nobody would miss it; but n1 begins right behind the digest."""
    outcome = run_scenario(parse_scenario(TEXT.replace("STACK", stack)), 1, min_bites=0)
    members = {member.name: member for member in outcome.run.evidence.members.values()}
    assert outcome.verdict is Verdict.HOLDS, outcome.judgement.findings
    sizes = [event.count for event in members["n2"].events if event.kind == VIEW]
    assert sizes.count(1) == 2, "it was alone twice"
    assert sizes[-1] == 4
    skipped = [event for event in members["n1"].events if event.kind == SKIPPED]
    assert not skipped
