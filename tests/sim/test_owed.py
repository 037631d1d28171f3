"""What a run owed is said; where nothing was owed, `delivered: all` proves nothing."""

from __future__ import annotations

import pytest

from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.oracles.verdict import RUN, Verdict
from stormcast.chaos.session.outcome import RunOutcome
from stormcast.chaos.session.runner import run_scenario

HEAD = """
name: owed
about: Ninety multicasts.
guarantees: [G1]
"""
TAIL = """
workload:
  - {do: multicast, from: n0, count: 90, rate: 100/s, size: 100B, start: 2s}
expect:
  - {by: 25s, delivered: all}
limits: {run: 30s}
"""


def run(cluster: str, timeline: str = "") -> RunOutcome:
    return run_scenario(parse_scenario(f"{HEAD}cluster: {cluster}\n{timeline}{TAIL}"), 1)


def test_a_run_says_what_was_owed_and_what_of_it_arrived() -> None:
    outcome = run("{members: 3, stack: udp, timing: fast}")
    assert outcome.verdict is Verdict.HOLDS
    assert str(outcome.judgement.owed) == "270 of 270 delivered (90 multicasts to 3 members)"


@pytest.mark.parametrize(
    ("cluster", "timeline", "why"),
    [
        (
            "{members: 3, stack: udp, timing: fast, late: [n1, n2]}",
            "timeline:\n  - {at: 5s, do: join, member: n1}\n  - {at: 5s, do: join, member: n2}\n",
            "90 multicasts of n0 from t=2 on were sent while it was alone",
        ),
        (
            "{members: 3, stack: udp, timing: fast, protocols: {FD_ALL3: {timeout: 500ms, "
            "interval: 100ms}, VERIFY_SUSPECT2: {timeout: 200ms}}}",
            "timeline:\n  - {at: 600ms, do: partition, groups: [[n0, n1], [n2]], for: 5s}\n",
            "89 multicasts of n0 from t=2 on were never for n2, who were not in its views",
        ),
    ],
)
def test_a_load_that_was_never_for_those_it_was_meant_for_proves_nothing(
    cluster: str, timeline: str, why: str
) -> None:
    outcome = run(cluster, timeline)
    assert outcome.verdict is Verdict.UNKNOWN
    found = [f.detail for f in outcome.judgement.findings if f.guarantee == RUN]
    assert found[0] == why
    assert all("traffic is below the floor" in more for more in found[1:])
