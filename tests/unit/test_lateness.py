"""What a member promises that lives in real time."""

from __future__ import annotations

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.chaos.backends.netns.watch import LATE_SECONDS
from stormcast.chaos.oracles import c1_requests
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.node import trace
from stormcast.node.core.model import Address
from stormcast.node.runtime import LATENESS
from stormcast.node.settings import load_settings
from stormcast.node.stack import Stack
from stormcast.node.trace.tracer import Tracer


def promises(lateness: float) -> dict[str, float]:
    settings = load_settings("unicast-only", "compatible")
    tracer = Tracer(1, 0, hash, lambda _block: None)
    stack = Stack(Address(1, "n", ""), "c", settings, hash, tracer, 0.0)
    return stack.record.bounds(lateness)["UNICAST3"]


def test_what_is_due_may_be_later_and_what_is_spaced_closer_by_the_lateness_of_a_turn() -> None:
    exact, late = promises(0.0), promises(0.2)
    assert late["ack_within"] == exact["ack_within"] + 0.2
    assert late["resend_within"] == exact["resend_within"] + 0.2
    assert late["request_spacing"] == max(
        exact["request_spacing"] - 0.2, exact["request_spacing"] / 2
    )
    assert late["request_patience"] == max(
        exact["request_patience"] - 0.2, exact["request_patience"] / 2
    )
    others = [name for name in exact if not name.endswith(("_within", "_spacing", "_patience"))]
    assert others
    assert all(late[name] == exact[name] for name in others)


@pytest.mark.parametrize("name", ["request_spacing", "request_patience"])
def test_no_spacing_vanishes(name: str) -> None:
    assert promises(1e6)[name] == promises(0.0)[name] / 2


class Late:
    """A member of a process: it has its turns when the test says so."""

    def __init__(self, name: str) -> None:
        self.blocks: list[bytes] = []
        self.address = Address(ord(name), name)
        self.tracer = Tracer(self.address.short, 0, hash64, self.blocks.append)
        settings = load_settings("unicast-only", "compatible", max_batch=1)
        self.stack = Stack(self.address, "c", settings, hash64, self.tracer, 0.0, lateness=LATENESS)

    def frames(self, now: float) -> list[bytes]:
        """What leaves in a turn."""
        return [head + body for _dest, head, body in self.stack.end_turn(now)]

    def take(self, frames: list[bytes], now: float) -> list[bytes]:
        """Take frames in one turn; return those that leave in it."""
        for frame in frames:
            self.stack.receive(frame, now)
        return self.frames(now)

    def trace(self, now: float) -> bytes:
        self.stack.stop(now)
        self.tracer.seal()
        return b"".join(self.blocks)


def test_a_look_that_begins_late_and_the_next_in_time_are_no_impatience() -> None:
    """What is lost just before the late look is asked for in less than the interval between two."""
    a, b = Late("A"), Late("B")
    interval = b.stack.unicast.config.xmit_interval

    def sends(now: float, *, is_lost: bool = False) -> None:
        assert a.stack.try_send(b.address.short, b"x")
        frames = a.frames(now)
        if not is_lost:
            b.take(frames, now)

    sends(0.010)
    sends(0.020, is_lost=True)
    sends(0.030)
    sends(interval + 0.001, is_lost=True)
    sends(interval + 0.002)
    for now in (interval + 0.003, 2 * interval):
        b.stack.tick(now)
        b.take(a.take(b.frames(now), now), now)
    now = 3 * interval
    evidence = Evidence.from_blocks({"A": a.trace(now), "B": b.trace(now)}, hash64)
    requests = [
        event for event in evidence.members[b.address.short].events if event.kind == trace.REQUESTED
    ]
    assert [(request.lo, request.hi) for request in requests] == [(2, 4)]
    assert list(c1_requests.violations(evidence)) == []


def test_a_rig_notes_what_members_do_not_allow_for() -> None:
    assert LATE_SECONDS == LATENESS
