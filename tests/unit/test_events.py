"""Who hears of what one protocol of a group has to say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from stormcast.node.core.model import Address
from stormcast.node.protocols.events import Cleared, Event, Left, Suspected, Vouched
from stormcast.node.stack.events import Events
from tests.helpers.parts import Parts

B = Address(2, "b")


class Protocol:
    """A protocol that notes what it hears."""

    def __init__(self, name: str, log: list[str]) -> None:
        self._name = name
        self._log = log

    def __getattr__(self, heard: str) -> Any:
        return lambda *_more: self._log.append(f"{self._name}.{heard}")


def heard(event: Event, *names: str) -> list[str]:
    """Who hears of an event in a stack with GMS and these protocols, in order."""
    log: list[str] = []
    there = dict.fromkeys(("verify", "fd_all", "fd_sock", "stable", "merge"))
    there |= {name: Protocol(name, log) for name in ("multicast", "gms", *names)}
    protocols: Any = SimpleNamespace(**there)
    port = Parts().port
    events = Events(protocols, port, lambda *_view: None, lambda _now: log.append("end"))
    port.events.append(event)
    events.drain(0.0)
    assert port.events == []
    return log


def test_a_suspicion_is_verified_where_the_stack_can_do_that() -> None:
    assert heard(Suspected((B,)), "verify") == ["verify.on_suspected"]
    assert heard(Suspected((B,))) == ["gms.on_confirmed"]


def test_a_member_that_others_vouch_for_was_not_heard_here() -> None:
    everybody = ("fd_all", "fd_sock", "verify")
    assert heard(Cleared(B), *everybody) == [f"{one}.on_cleared" for one in (*everybody, "gms")]
    assert heard(Vouched(B), *everybody) == ["verify.on_cleared", "gms.on_cleared"]


def test_who_has_left_ends() -> None:
    assert heard(Left(), "stable") == ["end"]
