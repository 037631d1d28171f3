"""Which test protocols a frame passes, and what becomes of the stack when they come and go."""

from __future__ import annotations

from random import Random

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.model import Address, Delivery
from stormcast.node.core.timing import Timing
from stormcast.node.protocols.port import Port
from stormcast.node.protocols.test_protocols import read_test_protocol
from stormcast.node.protocols.unicast import Unicast3Config
from stormcast.node.settings import StackSettings
from stormcast.node.settings.transports import UdpConfig
from stormcast.node.stack import Stack
from stormcast.node.stack.test_protocols import TestProtocols
from stormcast.node.trace.tracer import Tracer

ME, PEER = 1, 2


def settings(*test_protocols: str) -> StackSettings:
    """UNICAST3 over UDP, with test protocols that let everything pass in between."""
    between = tuple((name, read_test_protocol(name, {})) for name in test_protocols)
    layers = (("UNICAST3", Unicast3Config()), *between, ("UDP", UdpConfig()))
    return StackSettings(layers=layers, timing=Timing())


def port() -> Port:
    return Port(Codec(7, ME, hash64), Tracer(ME, 0, hash64, lambda _block: None))


def passing(*names: str) -> TestProtocols:
    return TestProtocols(settings(*names), port(), Random(1), str)


def frame() -> tuple[int, bytes, bytes]:
    return PEER, Codec(7, ME, hash64).pack_control(wire.ACK, wire.UNICAST3, PEER, 1, 1), b""


def delivery() -> Delivery:
    return Delivery(PEER, 1, 1, 1, 0, b"x", 0, 1, ME)


def test_nothing_passes_where_no_probe_is() -> None:
    assert not passing().is_on
    assert passing("DISCARD").is_on


def test_frames_pass_until_the_end_of_the_turn_in_which_the_last_probe_is_taken_out() -> None:
    there = passing("DISCARD")
    there.put("DISCARD", None, "", 0.0)
    assert there.is_on
    assert [dest for dest, _head, _body in there.down([frame()], 0.0)] == [PEER]
    assert not there.is_on


def test_a_probe_that_is_refused_changes_nothing() -> None:
    there = passing()
    with pytest.raises(ConfigError, match="not in the stack"):
        there.put("DISCARD", None, "", 0.0)
    assert not there.is_on


def test_a_delivery_that_is_held_back_is_kept_for_the_end_of_the_turn() -> None:
    there = passing()
    there.put("DELAY", {"delay": 5.0}, "UNICAST3", 0.0)
    held = delivery()
    assert there.deliveries_up([held], 0.0) == []
    assert there.release(5.0) == ([], [])
    later = delivery()
    assert there.deliveries_up([later], 5.0)[-1] is held


def test_a_probe_that_was_taken_out_stays_out_when_another_is_put_in() -> None:
    """Also one that the stack was listed with, and after the turn in which it went."""
    stack = Stack(
        Address(ME, "a"),
        "test",
        settings("DISCARD"),
        hash64,
        Tracer(ME, 0, hash64, lambda _block: None),
        0.0,
    )
    stack.set_test_protocol("DISCARD", None, 0.0)
    stack.end_turn(0.0)
    stack.set_test_protocol("SHUFFLE", {}, 0.0)
    assert [test_protocol["name"] for test_protocol in stack.test_protocols()] == ["SHUFFLE"]
