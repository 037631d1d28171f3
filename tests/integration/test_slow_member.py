"""Where nothing is retransmitted: whoever is slow must lose nothing, and cost nobody his memory."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from chaos.backends.netns import Rig
from node.trace import ALARM, REQUESTED
from tests.integration.members import (
    NAMES,
    SHORT_QUIET,
    assert_holds,
    finish,
    group,
    label,
    received_from,
    settle,
)

pytestmark = [pytest.mark.root, pytest.mark.slow]

THREE = NAMES[:3]
SLOW = "n2"
MIB = 1 << 20
WATERMARK = 2 * MIB
"""Less than windows hold: where credits do not, it is the transport that has the outbox refuse."""
PATIENT: dict[str, dict[str, object]] = {
    # Nobody is to be expelled for being slow: then what waits for him may be thrown away.
    "FD_ALL3": {"timeout": "60s"},
    "TCP_NIO2": {"user_timeout": "60s", "queue_bytes": WATERMARK},
}
FLOOD: dict[str, object] = {"do": "multicast", "size": "8KiB", "closed": True, "duration": "3600s"}


def drown(rig: Rig, seconds: float) -> dict[str, int]:
    """Send as fast as the outbox takes it for so long; returns the most memory of each sender."""
    most = dict.fromkeys(THREE, 0)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for name in THREE:
            most[name] = max(most[name], rig.members[name].rss())
        rig.sleep(0.05)
    return most


@pytest.mark.parametrize(
    ("how", "flags"),
    [("pause", ["NO_FC"]), ("stall", [])],
    ids=["stopped-and-no-flow-control", "application-stalled"],
)
def test_a_drowned_member_gets_everything_in_the_end(
    how: str, flags: list[str], tmp_path: Path
) -> None:
    """Two members send all they can while a third takes nothing. What waits for it waits in its
    senders' buffers; those are bounded because the outbox refuses; and when it goes on, it gets
    everything, without any retransmission."""
    with group(tmp_path, "tcp-no-retransmit", THREE, protocols=PATIENT) as rig:
        rig.start_all()
        before = {name: rig.members[name].rss() for name in THREE}
        getattr(rig, how)(SLOW)
        senders = THREE[:2]
        for name in senders:
            rig.start_load(name, FLOOD | ({"flags": flags} if flags else {}))
        most = drown(rig, 3.0)
        accepted = {name: rig.state(name)["workload"]["accepted"] for name in senders}
        drowned = {name: rig.stats(name) for name in senders}
        # The senders stand: one moment later they have not got rid of any more.
        rig.sleep(0.5)
        assert accepted == {name: rig.state(name)["workload"]["accepted"] for name in senders}
        getattr(rig, {"pause": "resume", "stall": "consume"}[how])(SLOW)

        settle(rig, 60.0)
        totals = {label(rig, name): rig.state(name)["workload"]["accepted"] for name in senders}
        for name in THREE:
            assert received_from(rig, name) == totals
        evidence = finish(rig, SHORT_QUIET)

    for name in senders:
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
    assert_holds(evidence)
