"""Taking messages from the application: what is refused for now, and what for ever."""

from __future__ import annotations

from typing import Any

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.model import FRAGMENT, NO_FC, NO_RELIABILITY, OOB, Address
from stormcast.node.protocols.frag import FragConfig
from stormcast.node.stack.accepting import Acceptor
from stormcast.node.stack.lane import MAX_MESSAGE, MESSAGE_OVERHEAD
from stormcast.node.stack.outbox import Outbox
from tests.helpers.parts import ME, PEER, Parts, bare_settings

BOUND = 10_000


class Granting:
    """Flow control, as far as this asks it."""

    def __init__(self, most: int) -> None:
        self.max_message = most


def acceptor(*, frag: FragConfig | None = None, credits_: int = 0) -> tuple[Acceptor, Outbox]:
    settings = bare_settings(outbox_bytes=BOUND)
    if frag is not None:
        # FRAG stands in groups only, and nothing else of a group is needed here.
        layers = (("FRAG", frag), *settings.layers)
        object.__setattr__(settings, "layers", layers)
    flow: dict[int, Any] = {wire.UFC: Granting(credits_)} if credits_ else {}
    outbox = Outbox(Address(ME, "a"), Parts().port, BOUND, has_group=False)
    return Acceptor(settings, outbox, flow, hash64), outbox


def test_messages_of_one_set_of_flags_share_a_run() -> None:
    accept, outbox = acceptor()
    for flags in (0, 0, OOB, OOB, 0):
        assert accept.try_send(PEER, b"x", flags)
    assert [(run.flags, len(run.payloads)) for run in outbox.lane(PEER).runs] == [
        (0, 2),
        (OOB, 2),
        (0, 1),
    ]


def test_the_flag_of_pieces_is_no_caller_s_to_set() -> None:
    """Not behind a large message either, whose pieces have it: the message would become another."""
    accept, outbox = acceptor(frag=FragConfig(frag_size=1000))
    assert accept.try_send(PEER, bytes(3000))
    with pytest.raises(ConfigError, match="unknown"):
        accept.try_send(PEER, b"x", FRAGMENT)
    assert [len(run.payloads) for run in outbox.lane(PEER).runs] == [3]


def test_a_full_lane_refuses_and_another_does_not() -> None:
    accept, _outbox = acceptor()
    assert accept.try_send(PEER, bytes(BOUND - MESSAGE_OVERHEAD))
    assert not accept.try_send(PEER, b"")
    assert accept.try_send(PEER + 1, b"")


def test_a_message_beyond_the_bound_enters_an_empty_lane_alone() -> None:
    accept, outbox = acceptor()
    assert accept.try_send(PEER, bytes(3 * BOUND))
    assert not accept.try_send(PEER, b"x")
    assert outbox.pending(PEER) == 1


def test_what_no_frame_carries_is_an_error() -> None:
    accept, outbox = acceptor()
    with pytest.raises(ConfigError, match=f"a frame carries {MAX_MESSAGE}"):
        accept.try_send(PEER, memoryview(bytes(MAX_MESSAGE + 1)))
    assert outbox.pending(PEER) == 0


def test_a_transport_may_carry_less_and_never_more() -> None:
    accept, _outbox = acceptor()
    accept.limit_messages(500)
    accept.limit_messages(1000)
    assert accept.try_send(PEER, bytes(500))
    with pytest.raises(ConfigError, match="a message of 501 bytes: UDP carries 500"):
        accept.try_send(PEER, bytes(501))


def test_a_message_that_no_receiver_ever_grants_is_an_error() -> None:
    accept, _outbox = acceptor(credits_=300)
    assert accept.try_send(PEER, bytes(300))
    with pytest.raises(ConfigError, match="max_credits is 300"):
        accept.try_send(PEER, bytes(301))
    assert accept.try_send(PEER, bytes(301), NO_FC)


def test_a_large_message_enters_in_pieces_whole_or_not_at_all() -> None:
    accept, outbox = acceptor(frag=FragConfig(frag_size=1000))
    assert accept.try_send(PEER, bytes(2500))
    lane = outbox.lane(PEER)
    (run,) = lane.runs
    assert run.flags == FRAGMENT
    assert list(map(len, run.payloads)) == [1000, 1000, 500]
    assert outbox.pending(PEER) == 1
    room = lane.room
    assert not accept.try_send(PEER, bytes(room))
    assert lane.room == room


def test_the_pieces_of_a_large_message_stay_within_the_bound() -> None:
    """Each of them costs its overhead: a message that fits only without is refused."""
    accept, outbox = acceptor(frag=FragConfig(frag_size=1000))
    assert accept.try_send(PEER, bytes(5000))
    lane = outbox.lane(PEER)
    most = (lane.room // (1000 + MESSAGE_OVERHEAD)) * 1000
    assert not accept.try_send(PEER, bytes(lane.room - MESSAGE_OVERHEAD))
    assert accept.try_send(PEER, bytes(most))
    assert 0 <= lane.room < 1000 + MESSAGE_OVERHEAD


def gauges(outbox: Outbox) -> list[tuple[int, int]]:
    """What is in the lanes, and their bounds."""
    records: list[tuple[float, ...]] = outbox._port.tracer.records
    before = len(records)
    outbox.gauge(1.0)
    return [(int(record[9]), int(record[10])) for record in records[before:]]


@pytest.mark.parametrize("size", [2 * BOUND, 3 * BOUND])
def test_a_message_that_came_in_alone_is_its_own_bound(size: int) -> None:
    for frag in (None, FragConfig(frag_size=1000)):
        accept, outbox = acceptor(frag=frag)
        assert accept.try_send(PEER, bytes(size))
        ((full, bound),) = gauges(outbox)
        assert BOUND < full == bound
        lane = outbox.lane(PEER)
        lane.room = 10
        assert gauges(outbox) == [(BOUND - 10, BOUND)]
        # What came in beyond the bound by a mistake would be seen.
        lane.room = -10
        assert gauges(outbox) == [(BOUND + 10, BOUND)]


def test_what_is_sent_without_reliability_is_not_cut() -> None:
    accept, outbox = acceptor(frag=FragConfig(frag_size=1000))
    assert accept.try_send(PEER, bytes(1500), NO_RELIABILITY)
    assert [run.cut for run in outbox.lane(PEER).runs] == [None]


def test_unknown_flags_are_an_error() -> None:
    accept, _outbox = acceptor()
    with pytest.raises(ConfigError, match="flags 0x40000000: unknown"):
        accept.try_send(PEER, b"x", 0x4000_0000)
