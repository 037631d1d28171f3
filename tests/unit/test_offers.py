"""Payloads that an outbox takes, or has offered again."""

from __future__ import annotations

import pytest

from stormcast.node.core.errors import ConfigError
from stormcast.node.member.jobs import Sending
from stormcast.node.member.loads import read_load
from stormcast.node.member.offers import MAX_STREAMS, Offers
from tests.helpers.channel import FakeChannel, address

LOAD = read_load({"do": "unicast", "size": "20B"})


def test_what_is_refused_is_offered_again_and_counted_once() -> None:
    channel = FakeChannel("n0", "n1", room=2)
    offers, sending = Offers(channel, 7), Sending("n1", 0.0, address("n1").short)
    assert offers.offer(LOAD, sending, 5) == 2
    channel.room = 10
    assert offers.offer(LOAD, sending, 3) == 3
    assert (offers.accepted, offers.accepted_bytes, offers.refused) == (5, 100, 1)
    stream = Offers(channel, 7).stream(sending.short)
    assert [sent.payload for sent in channel.sent] == stream.batch(0, 5, (20, 20))


def test_messages_before_one_that_is_too_large_count() -> None:
    channel = FakeChannel("n0", "n1")
    offers, sending = Offers(channel, 7), Sending("n1", 0.0, address("n1").short)
    assert offers.offer(LOAD, sending, 2) == 2
    channel.largest = 10
    with pytest.raises(ConfigError):
        offers.offer(LOAD, sending, 2)
    assert (sending.accepted, offers.accepted) == (2, 2)


def test_of_too_many_streams_those_to_the_group_and_to_members_stay() -> None:
    offers = Offers(FakeChannel("n0", "n1"), 7)
    for dest in range(MAX_STREAMS):
        offers.stream(dest)
    offers.forget_all_but([5])
    assert len(offers.sent_to()) == MAX_STREAMS
    offers.stream(MAX_STREAMS)
    offers.forget_all_but([5])
    assert list(offers.sent_to()) == ["0", "5"]
