"""Test protocols put in, set and taken out while a member runs."""

from __future__ import annotations

from typing import Any

import pytest

from stormcast.node import trace
from stormcast.node.core.errors import ConfigError
from tests.helpers.group import formed
from tests.helpers.world import Member, Pair, numbered


def put(member: Member, name: str, values: dict[str, Any] | None, above: str = "") -> None:
    member.stack.set_test_protocol(name, values, member.now, above)
    member.turn()


def struck(member: Member, name: str) -> int:
    return sum(
        event.count for event, text in member.told(trace.DROPPED) if text == f"probe-{name.lower()}"
    )


def names(member: Member) -> list[object]:
    return [test_protocol["name"] for test_protocol in member.stack.test_protocols()]


def opened() -> Pair:
    pair = Pair(timing="fast")
    pair.open()
    return pair


def test_a_probe_that_is_put_in_strikes_and_taken_out_strikes_no_more() -> None:
    pair = opened()
    put(pair.a, "DISCARD", {"down": 1.0})
    pair.a.send(*numbered(1, 5))
    pair.advance(3.0)
    assert pair.b.take() == []
    lost = struck(pair.a, "DISCARD")
    assert lost > 0

    put(pair.a, "DISCARD", None)
    pair.settle()
    assert pair.b.take() == numbered(1, 5), "what was lost is repaired"
    assert struck(pair.a, "DISCARD") == lost
    assert names(pair.a) == []


def test_a_member_without_probes_is_as_it_was() -> None:
    """Once the last one is out, frames take the short way again: no copies, no heads unpacked."""
    pair = opened()
    put(pair.a, "DROP", {"match": {"kind": "DATA", "times": 1}})
    put(pair.a, "DROP", None)
    put(pair.a, "DISCARD", {})
    put(pair.a, "DISCARD", None)
    pair.a.send(b"x")
    pair.settle()
    assert pair.b.take() == [b"x"]
    assert pair.a.stack.try_send(pair.b.short, b"y")
    ((_dest, _head, body),) = pair.a.stack.end_turn(pair.now)
    assert body, "handed on in parts, not joined as for a probe"
    with pytest.raises(ConfigError, match="put it in first"):
        put(pair.a, "DISCARD", None)


def test_settings_of_a_probe_change_and_the_others_stay() -> None:
    pair = opened()
    put(pair.a, "DISCARD", {"up": 1.0, "match": {"kind": "ACK"}})
    pair.a.set("DISCARD.down", 1.0)
    (test_protocol,) = pair.a.stack.test_protocols()
    assert test_protocol["settings"] == {
        "up": 1.0,
        "down": 1.0,
        "next_unicasts": 0,
        "next_multicasts": 0,
        "ignored": (),
    }
    pair.a.send(b"x")
    pair.settle()
    assert pair.b.take() == [b"x"], "the match is still of ACKs only"
    pair.a.set("DISCARD.next_unicasts", 2)
    pair.a.set("DISCARD.match", {"kind": "DATA"})
    pair.a.set("DISCARD.down", 0)
    before = struck(pair.a, "DISCARD")
    pair.a.send(b"1")
    pair.settle()
    assert pair.b.take() == [b"1"]
    assert struck(pair.a, "DISCARD") == before + 2


def test_what_a_probe_holds_back_goes_on_when_it_is_taken_out_or_set() -> None:
    pair = opened()
    for change in (None, {"delay": "1h"}):
        put(pair.a, "DELAY", {"delay": "1h", "match": {"kind": "DATA"}})
        pair.a.send(b"late")
        pair.advance(0.001)
        assert pair.b.take() == []
        put(pair.a, "DELAY", change)
        pair.advance(0.01)
        assert pair.b.take() == [b"late"]
    put(pair.a, "DELAY", None)
    put(pair.b, "DELAY", {"delay": "1h", "match": {"direction": "up"}})
    pair.a.send(b"on its way up")
    pair.advance(0.01)
    put(pair.b, "DELAY", None)
    pair.advance(0.01)
    assert pair.b.take() == [b"on its way up"]


def test_what_is_held_back_above_everything_reaches_the_application_after_all() -> None:
    pair = opened()
    put(pair.b, "DELAY", {"delay": "1h"}, above="UNICAST3")
    pair.a.send(*numbered(1, 3))
    pair.settle()
    assert pair.b.take() == []
    assert pair.a.unacked("B") == 0, "it was delivered, as far as UNICAST3 can know"
    put(pair.b, "DELAY", None)
    pair.advance(0.1)
    assert pair.b.take() == numbered(1, 3)
    pair.a.send(b"next")
    pair.settle()
    assert pair.b.take() == [b"next"]


def test_where_a_probe_stands_decides_what_passes_it() -> None:
    """Below NAKACK2 and above the detectors: multicasts are lost, heartbeats are not."""
    world = formed("AB", timing="fast")
    put(world["A"], "DROP", {"match": {"direction": "down"}}, above="VERIFY_SUSPECT2")
    world.multicast("A", b"lost")
    world.advance(10.0)
    assert world["B"].delivered == []
    assert world.views_agree("AB"), "nobody is suspected"
    put(world["A"], "DROP", None)
    world.settle()
    assert b"lost" in world["B"].delivered


def test_several_stand_in_the_order_of_the_stack() -> None:
    pair = opened()
    put(pair.a, "DROP", {"match": {"kind": "SFS"}})
    put(pair.a, "DELAY", {}, above="UNICAST3")
    put(pair.a, "DISCARD", {})
    assert [
        (test_protocol["name"], test_protocol["above"])
        for test_protocol in pair.a.stack.test_protocols()
    ] == [
        ("DELAY", "UNICAST3"),
        ("DROP", "UDP"),
        ("DISCARD", "UDP"),
    ]


@pytest.mark.parametrize(
    ("name", "values", "above", "remedy"),
    [
        ("DISCART", {}, "", "did you mean DISCARD?"),
        ("UNICAST3", {}, "", "is no test protocol"),
        ("DISCARD", {"upp": 1}, "", "unknown setting upp"),
        ("DISCARD", {"up": 2}, "", "0..1"),
        ("DISCARD", {}, "UPD", "did you mean UDP?"),
        ("DROP", {}, "UDP", "take it out before"),
        ("DROP", {"match": {"kind": "DATE"}}, "", "there is no such"),
        ("DELAY", {"delay": "0s"}, "", "set one"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    name: str, values: dict[str, Any], above: str, remedy: str
) -> None:
    pair = opened()
    put(pair.a, "DROP", {"match": {"kind": "SFS"}})
    before = pair.a.stack.test_protocols()
    with pytest.raises(ConfigError) as caught:
        put(pair.a, name, values, above)
    assert remedy in str(caught.value)
    assert pair.a.stack.test_protocols() == before
    with pytest.raises(ConfigError, match="put it in first"):
        pair.a.set("DISCARD.up", 0.5)


def test_probes_are_bounded() -> None:
    """One of each name; so the bound is of names, and a stack file's own count, too."""
    pair = opened()
    for name in ("DISCARD", "DROP", "DELAY", "DUPLICATE", "SHUFFLE", "REVERSE"):
        put(pair.a, name, {"match": {"kind": "SFS"}})
    pair.a.send(*numbered(1, 100))
    pair.settle()
    assert pair.b.take() == numbered(1, 100)
    assert len(names(pair.a)) == 6
