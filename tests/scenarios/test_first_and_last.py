"""The messages that nothing before or after them would show to be missing, and acks that come late
(G1, G6, L1)."""

from __future__ import annotations

import pytest

from stormcast.chaos.plugin.live_cluster import Chaos, Clusters
from tests.scenarios.stories import every_generation

pytestmark = pytest.mark.slow

DATAGRAMS = ("udp", "mcast")


@every_generation
def test_the_first_message_of_a_connection_is_lost(
    cluster: Clusters, chaos: Chaos, unicast: str
) -> None:
    group = cluster(members=2, stack="unicast-only", unicast=unicast, max_batch=1)
    with chaos.rule("drop", kind="DATA", seqno=1, transmission=0, source="n0") as rule:
        group.unicast(source="n0", dest="n1", count=5, rate="100/s")
        group.wait_until_delivered()
    assert rule.bites == 1
    group.finish()


@every_generation
def test_the_last_message_is_lost_and_silence_follows(
    cluster: Clusters, chaos: Chaos, unicast: str
) -> None:
    group = cluster(members=2, stack="unicast-only", unicast=unicast, max_batch=1)
    with chaos.rule("drop", kind="DATA", seqno=5, transmission=0, source="n0") as rule:
        group.unicast(source="n0", dest="n1", count=5, rate="100/s")
        group.wait_until_delivered()
    assert rule.bites == 1
    group.finish()


@pytest.mark.parametrize("stack", DATAGRAMS)
@pytest.mark.parametrize("seqno", [1, 5], ids=["first", "last"])
def test_the_first_or_the_last_multicast_is_lost(
    cluster: Clusters, chaos: Chaos, stack: str, seqno: int
) -> None:
    """Of every member, at every other."""
    protocol = "MCAST" if stack == "mcast" else "NAKACK2"
    group = cluster(members=3, stack=stack, max_batch=1)
    with chaos.rule("drop", protocol=protocol, kind="DATA", seqno=seqno, transmission=0) as rule:
        group.multicast(count=5, rate="100/s")
        group.wait_until_delivered()
    assert rule.bites >= 3
    group.finish()


@every_generation
def test_acks_that_come_late_purge_nothing_that_is_still_needed(
    cluster: Clusters, chaos: Chaos, unicast: str
) -> None:
    """What n1 reports is held back, and arrives when n1 has lost its window and found it again."""
    group = cluster(members=2, stack="unicast-only", unicast=unicast)
    acks = chaos.rule("hold", kind=["ACK", "STABLE"], source="n1", dest="n0")
    group.unicast(source="n0", dest="n1", count=100, rate="50/s")
    group.wait_for(50, "n0", "n1")
    chaos.forget("n1", "n0", half="receiver")
    group.wait(1)
    acks.release()
    group.wait(1)
    acks.end()
    assert acks.bites > 0
    group.wait_for(100, "n0", "n1")
    group.finish()
