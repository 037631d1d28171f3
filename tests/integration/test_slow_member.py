"""Where nothing is retransmitted: whoever is slow must lose nothing, and cost nobody his memory."""

from __future__ import annotations

import pytest

from stormcast.chaos.plugin.live_cluster import Chaos, Clusters, LiveCluster
from stormcast.node.trace import ALARM, REQUESTED
from tests.helpers.live import ENDLESS, label, netns, process, stats

pytestmark = [pytest.mark.root, pytest.mark.slow]

SLOW = "n2"
SENDERS = ("n0", "n1")
MIB = 1 << 20
WATERMARK = 2 * MIB
"""Less than windows hold: where credits do not, it is the transport that has the outbox refuse."""
PATIENT: dict[str, dict[str, object]] = {
    # Nobody is to be expelled for being slow: then what waits for him may be thrown away.
    "FD_ALL3": {"timeout": "60s"},
    "TCP_NIO2": {"user_timeout": "60s", "queue_bytes": f"{WATERMARK}B"},
}


def memory(group: LiveCluster) -> dict[str, int]:
    return {name: process(group, name).rss() for name in group.members}


def drown(group: LiveCluster, seconds: float) -> dict[str, int]:
    """Let so much time pass; returns the most memory of each."""
    most, until = memory(group), group.now + seconds
    while group.now < until:
        group.wait(0.05)
        most = {name: max(most[name], now) for name, now in memory(group).items()}
    return most


def accepted(group: LiveCluster) -> dict[str, int]:
    return {name: group.state(name)["workload"]["accepted"] for name in SENDERS}


@pytest.mark.parametrize(
    ("how", "flags"),
    [("pause", ["NO_FC"]), ("stall", [])],
    ids=["stopped-and-no-flow-control", "application-stalled"],
)
def test_a_drowned_member_gets_everything_in_the_end(
    how: str, flags: list[str], cluster: Clusters, chaos: Chaos
) -> None:
    """Two members send all they can while a third takes nothing. What waits for it waits in its
    senders' buffers; those are bounded because the outbox refuses; and when it goes on, it gets
    everything, without any retransmission."""
    group = cluster(3, stack="tcp-no-retransmit", protocols=PATIENT, backend=netns())
    before = memory(group)
    with chaos.do(how, member=SLOW):
        # A rate that nobody can keep: the outbox is offered as much as it takes.
        group.multicast(ENDLESS, SENDERS, size="8KiB", rate="100000/s", flags=flags)
        most = drown(group, 3.0)
        sent, drowned = accepted(group), {name: stats(group, name) for name in SENDERS}
        # The senders stand: one moment later they have not got rid of any more.
        group.wait(0.5)
        assert accepted(group) == sent
    group.stop()
    group.wait_until_delivered()
    totals = {label(group, name): number for name, number in accepted(group).items()}
    for name in group.members:
        assert group.state(name)["workload"]["received_from"] == totals
    evidence = group.finish().run.evidence

    for name in SENDERS:
        assert drowned[name]["workload.refused"] > 0
        assert most[name] - before[name] < 64 * MIB
        # Beyond it by what one turn had sent already.
        assert drowned[name]["transport.queued_bytes"] <= WATERMARK + MIB
        if flags:
            # The outbox goes on once half of it has left, and the kernel takes some more.
            assert drowned[name]["transport.queued_bytes"] > WATERMARK // 2
        for what in ("dropped_queue_full", "dropped_send_buffers_full"):
            assert not drowned[name].get(f"transport.{what}")
    for member in evidence.members.values():
        assert not [event for event in member.events if event.kind in (ALARM, REQUESTED)]
