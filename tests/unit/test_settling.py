"""How long the end of a run waits: longer than the longest chain of repairs that is promised."""

from __future__ import annotations

import pytest

from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.session.settling import STILL_SECONDS, still_seconds
from stormcast.chaos.session.simulation import simulate

LOAD = "workload:\n  - {do: unicast, from: n0, to: n1, count: 1, rate: 1/s, size: 16B}\n"


def evidence_of(cluster: str) -> Evidence:
    text = f"name: x\nguarantees: [G1]\ncluster: {{members: 2, {cluster}}}\n{LOAD}"
    return simulate(parse_scenario(text), 1).evidence


def test_the_last_messages_are_acked_below_repeated_and_asked_for_one_after_the_other() -> None:
    """3 s to an ack, 6 s to a repeat, 6 s to a request: so long it took in seed 7156556879."""
    slow = evidence_of("unicast: UNICAST4, timing: compatible, settings: {xmit_interval: 3s}")
    assert still_seconds(slow) == pytest.approx(15 * 1.1)


def test_a_group_announces_its_last_messages_and_is_asked_for_them() -> None:
    slow = evidence_of("stack: udp, timing: compatible, multicast_settings: {xmit_interval: 3s}")
    assert still_seconds(slow) == pytest.approx((0.5 + 6 + 6) * 1.1)


def test_who_repairs_fast_is_not_waited_for_long() -> None:
    assert STILL_SECONDS <= still_seconds(evidence_of("timing: fast")) < 2.0
