"""Which test protocols a frame passes, and what becomes of the stack when they come and go."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.model import NO_RELIABILITY, Address, Delivery
from stormcast.node.core.timing import Timing
from stormcast.node.protocols.port import Port
from stormcast.node.protocols.testing import read_test_protocol
from stormcast.node.protocols.unicast import Unicast3Config
from stormcast.node.settings import DISCOVERIES, StackSettings
from stormcast.node.settings.transports import UdpConfig
from stormcast.node.stack import Stack
from stormcast.node.stack.testing import TestProtocols
from stormcast.node.trace.tracer import Tracer
from tests.helpers.world import World

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


# -- What passes which -----------------------------------------------------------------------------


def in_stack(tmp_path: Path, *layers: str, **settings: object) -> World:
    """Members of a stack of these protocols, over UDP."""
    file = tmp_path / "mine.yaml"
    listed = [yaml.safe_load(layer) if "{" in layer else {layer: {}} for layer in layers]
    file.write_text(yaml.safe_dump({"about": "mine", "protocols": [*listed, {"UDP": {}}]}))
    return World(stack=str(file), **settings)  # type: ignore[arg-type]


def strikes(world: World) -> list[int]:
    return [int(str(one["struck"])) for one in world["B"].stack.test_protocols()]


@pytest.mark.parametrize("unicast", ["UNICAST", "UNICAST2", "UNICAST3", "UNICAST4"])
def test_a_delivery_is_known_by_the_protocol_that_delivered_it(
    tmp_path: Path, unicast: str
) -> None:
    matching = f"DUPLICATE: {{match: {{protocol: {unicast}, direction: up}}}}"
    world = in_stack(tmp_path, matching, unicast)
    world["A"].send(b"x", to="B")
    world.deliver()
    assert world["B"].delivered == [b"x", b"x"]


def test_a_message_without_reliability_passes_each_of_them_once(tmp_path: Path) -> None:
    above, below = "DELAY: {delay: 1ms}", "DUPLICATE: {match: {direction: up}}"
    world = in_stack(tmp_path, above, "UNICAST3", below)
    world["A"].send(b"x", to="B", flags=NO_RELIABILITY)
    world.advance(1.0)
    assert world["B"].delivered == [b"x", b"x"]
    assert strikes(world) == [2, 1]


@pytest.mark.parametrize(
    ("discovery", "values"),
    [("STATIC", {}), ("PING", {}), ("DNS_PING", {"dns_query": "members.example", "port": 7800})],
)
def test_a_test_protocol_above_discovery_sees_nothing_of_it(
    discovery: str, values: dict[str, Any]
) -> None:
    config = StackSettings(
        layers=(
            ("DISCARD", read_test_protocol("DISCARD", {"up": 1.0, "down": 1.0})),
            ("UNICAST3", Unicast3Config()),
            (discovery, DISCOVERIES[discovery].config_type(**values)),
            ("UDP", UdpConfig()),
        ),
        timing=Timing(),
    )
    there = TestProtocols(config, port(), Random(1), str)
    asked = Codec(7, ME, hash64).pack_control(wire.GET_MBRS_REQ, wire.DISCOVERY, 0, 0, 1)
    assert there.down([(0, asked, b"")], 0.0) == [(0, asked, b"")]
