"""What the trace says of a member as a whole, and when."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from stormcast.node import trace
from stormcast.node.core.model import Address
from stormcast.node.stack.record import GAUGE_INTERVAL, MAX_DROPS, Record
from tests.helpers.parts import ME, Parts, bare_settings
from tests.helpers.world import World


class Sayer:
    """Has something to say by a certain time, and a gauge."""

    def __init__(self) -> None:
        self.flush_at = 5.0
        self.said: list[str] = []

    def flush(self, _now: float) -> None:
        self.flush_at = float("inf")
        self.said.append("flush")

    def gauge(self, _now: float) -> None:
        self.said.append("gauge")


class Kept(Parts):
    def __init__(self) -> None:
        super().__init__()
        self.handed, self.outbox = Sayer(), Sayer()
        stands: Any = (self.unicast, None, self.handed, self.handed, self.outbox)
        self.record = Record(bare_settings(), self.port, *stands)


def test_a_trace_begins_with_settings_and_promises() -> None:
    kept = Kept()
    kept.record.start(Address(ME, "a"), 0.0, 1.0)
    (start,) = kept.recorded(trace.START)
    assert start.time == 1.0
    assert kept.record.gauge_at == 1.0 + GAUGE_INTERVAL


@pytest.mark.parametrize(
    ("queue", "drops", "is_promised"), [(127, True, False), (127, False, True), (128, True, True)]
)
def test_a_small_queue_of_a_transport_that_drops_promises_no_silence(
    queue: int, drops: bool, is_promised: bool
) -> None:
    """In seed 6600002012 an ack waited for 22 looks, behind requests to a dead member."""
    udp = {"queue_frames": queue, "drop_when_full": drops}
    bounds = World(members="A", stack="udp", protocols={"UDP": udp})["A"].stack.record.bounds()
    promised = {
        (protocol, name)
        for protocol in ("UNICAST3", "NAKACK2")
        for name in ("quiet_within", "purge_within", "ack_within")
        if bounds[protocol].get(name, inf) < inf
    }
    always = {("UNICAST3", "ack_within")}
    silence = {
        ("UNICAST3", "quiet_within"),
        ("NAKACK2", "quiet_within"),
        ("NAKACK2", "purge_within"),
    }
    assert promised == always | (silence if is_promised else set())


def test_what_was_refused_is_said_once_a_turn_and_counted_for_ever() -> None:
    kept = Kept()
    for turn in (1.0, 2.0):
        kept.port.drop("kind", 2)
        kept.port.drop("protocol")
        kept.record.end_turn(turn)
    assert kept.record.refused == {"kind": 4, "protocol": 2}
    assert [(one.time, one.count) for one in kept.recorded(trace.DROPPED)] == [
        (1.0, 2),
        (1.0, 1),
        (2.0, 2),
        (2.0, 1),
    ]


def test_refusals_in_turns_without_end_are_counted_and_recorded_now_and_then() -> None:
    """A frame that is refused in each of ten thousand turns of one second, and in one later."""
    kept = Kept()
    for turn in range(10_000):
        kept.port.drop("kind")
        kept.record.end_turn(1.0 + turn / 10_000)
    assert len(kept.recorded(trace.DROPPED)) == MAX_DROPS
    kept.port.drop("protocol", 5)
    kept.record.end_turn(1.9999)
    kept.port.drop("kind")
    kept.record.end_turn(2.5)
    kept.record.flush(2.6)
    dropped = [(one.time, one.count) for one in kept.recorded(trace.DROPPED)]
    assert dropped[MAX_DROPS:] == [(2.5, 10_001 - MAX_DROPS), (2.6, 5)]
    assert kept.record.refused == {"kind": 10_001, "protocol": 5}
    kept.record.flush(2.7)
    assert len(kept.recorded(trace.DROPPED)) == len(dropped)


def test_what_a_test_protocol_did_is_recorded_in_its_turn() -> None:
    """The verdict asks when a message was taken away, however many were."""
    kept = Kept()
    for turn in range(2 * MAX_DROPS):
        kept.port.drop("probe-discard")
        kept.record.end_turn(1.0 + turn / 1000)
    assert len(kept.recorded(trace.DROPPED)) == 2 * MAX_DROPS


def test_what_was_offered_and_handed_over_is_said_together_as_soon_as_one_is_due() -> None:
    kept = Kept()
    kept.outbox.flush_at = 9.0
    kept.record.end_turn(4.0)
    assert (kept.handed.said, kept.outbox.said) == ([], [])
    kept.record.end_turn(5.0)
    assert (kept.handed.said, kept.outbox.said) == (["flush"], ["flush"])


def test_the_outbox_is_gauged_where_it_is_asked_for() -> None:
    kept = Kept()
    kept.record.gauge(1.0)
    assert kept.outbox.said == []
    kept.record.gauge_all(2.0)
    assert kept.outbox.said == ["gauge"]
    assert kept.record.gauge_at == 2.0 + GAUGE_INTERVAL


@pytest.mark.parametrize(("to_all", "lasts"), [(True, 0.002), (False, 0.0)])
def test_how_long_an_answer_lasts_is_the_same_for_members_whose_turns_are_late(
    to_all: bool, lasts: float
) -> None:
    """Requests may come closer then, and an answer to all is still not given again."""
    settings = {"NAKACK2": {"use_mcast_xmit": to_all}}
    member = World(members="A", stack="udp", timing="fast", protocols=settings)["A"]
    promised = member.stack.record.bounds(lateness=0.2)["NAKACK2"]
    assert promised["request_spacing"] == member.stack.settings.timing.min_wait / 2 == 0.001
    assert promised["answer_lasts"] == lasts
