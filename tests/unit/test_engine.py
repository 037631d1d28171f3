"""Frames that a receiver has no key to open, and what else is under way on their connection."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any

from xxhash import xxh3_64_intdigest as hash64

from stormcast.chaos.backends.sim.engine import KEY_UNKNOWN, Engine, Host
from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, pack_body
from stormcast.node.core.wire import source_of

A, B, C = 0xA, 0xB, 0xC


def frame(number: int, source: int = A) -> bytes:
    body = pack_body([b"x"], hash64)
    codec = Codec(0xC1, source, hash64)
    return codec.pack_data(wire.UNICAST3, B, 1, number, body, 0, 0, 0, 0) + body.data


class Receiver:
    """Stands for a stack that cannot open some frames."""

    def __init__(self, unopened: set[bytes], reason: str) -> None:
        self.address = SimpleNamespace(short=B)
        self.settings = SimpleNamespace(has_group=False)
        self.refusal = ""
        self.taken: list[bytes] = []
        self._unopened = unopened
        self._reason = reason

    def receive(self, datagram: bytes, _now: float) -> int:
        if datagram in self._unopened:
            self.refusal = self._reason
            return 0
        self.taken.append(datagram)
        return source_of(datagram)

    def end_turn(self, _now: float) -> list[Any]:
        return []

    take_deliveries = list

    def next_deadline(self) -> float:
        return inf


class Lab:
    """One receiver, which cannot open the first frame."""

    def __init__(self, reason: str = KEY_UNKNOWN) -> None:
        self.engine = Engine(lambda *_: None, lambda *_: None)
        self.stack: Any = Receiver({frame(1)}, reason)
        self.host = Host("b", self.stack, Any)  # type: ignore[arg-type]
        self.engine.hosts[B] = self.host
        self.ended: list[int] = []
        self.engine.on_unopened = self._end

    def _end(self, host: Host, unopened: bytes) -> None:
        self.ended.append(host.short)
        self.engine.take_away(source_of(unopened), host.short)

    def all_arrive(self) -> list[bytes]:
        """Three frames of A, of which the first cannot be opened, and one of C."""
        for at, one in enumerate([frame(1), frame(2), frame(1, C), frame(3)]):
            self.engine.arrive(1.0 + at / 10, B, one)
        self.engine.run(5.0)
        return list(self.stack.taken)


def test_with_a_frame_that_cannot_be_opened_go_those_that_are_under_way_behind_it() -> None:
    lab = Lab()
    assert lab.all_arrive() == [frame(1, C)]
    assert lab.ended == [B]


def test_so_it_is_with_those_that_wait_for_a_paused_host() -> None:
    lab = Lab()
    lab.host.is_paused = True
    assert lab.all_arrive() == []
    assert lab.engine.resume(lab.host) == 2
    assert lab.stack.taken == [frame(1, C)]
    assert lab.ended == [B]


def test_a_frame_that_is_refused_for_another_reason_ends_nothing() -> None:
    for is_paused in (False, True):
        lab = Lab("digest")
        lab.host.is_paused = is_paused
        lab.all_arrive()
        lab.engine.resume(lab.host)
        assert lab.stack.taken == [frame(2), frame(1, C), frame(3)]
        assert lab.ended == []


def test_nor_does_one_that_a_stranger_sends_in_a_name() -> None:
    lab = Lab()
    lab.engine.arrive_by_a_stranger(0.5, B, frame(1))
    lab.engine.arrive(1.0, B, frame(2))
    lab.engine.run(5.0)
    assert lab.stack.taken == [frame(2)]
    assert lab.ended == []
