"""A cookie goes to the place that a stranger claims, and what it proves is good for that alone."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec
from stormcast.node.core.model import Address
from stormcast.node.core.packing import Writer
from stormcast.node.protocols.merge3 import MAX_STRANGERS, Merge3, Merge3Config
from stormcast.node.protocols.port import Port
from stormcast.node.protocols.proof import Proof
from stormcast.node.trace.tracer import Tracer
from stormcast.node.transports.interfaces import Interface, SocketAddress
from stormcast.node.transports.peer_places import MAX_LEARNED, HeardPlaces
from tests.helpers.layers import Layers, address, view

CLUSTER = 7
OWN = Address(1, "own", "127.0.0.1[1]")
TWIN = 1 << 64
"""Added to an identity: its short id stays."""


def at(port: int) -> SocketAddress:
    return "127.0.0.1", port


def stranger(identity: int, port: int) -> Address:
    return Address(identity, "x", f"127.0.0.1[{port}]")


class Doubter:
    """A member that believes no stranger without its cookie, and sends to real places."""

    def __init__(self) -> None:
        codec = Codec(CLUSTER, OWN.short, hash64)
        self.port = Port(codec, Tracer(OWN.short, 0, hash64, lambda _block: None))
        self.heard = HeardPlaces(Interface("lo", 1, "127.0.0.1", "loopback"), OWN)
        self._proof = Proof(Random(1))

    def asked(self, *questions: tuple[Address, int]) -> list[bool]:
        """Take questions, each with a cookie, in one turn; say which were believed."""
        return [self._ask(who, cookie) for who, cookie in questions]

    def _ask(self, who: Address, cookie: int) -> bool:
        port = self.port
        if who.short not in port.contacts.trusted:
            port.contacts.heard(who.short, 100)
        frame = Codec(CLUSTER, who.short, hash64).pack_control(
            wire.JOIN_REQ, wire.GMS, OWN.short, 0, 1, mark=cookie
        )
        head, _body = port.codec.unpack_untrusted(frame)
        return self._proof.believes(port, wire.GMS, who, head, 0.0)

    def end_turn(self) -> list[tuple[SocketAddress | None, int]]:
        """As a member's turn: say what leaves for which place, as cookies."""
        port, places = self.port, self.heard.places
        frames, port.frames = port.admitted(port.frames), []
        for short in port.doubted:
            self.heard.doubt(short)
        for one in port.located.values():
            self.heard.locate(one)
        for one in port.proved:
            places.trust(one)
        port.doubted, port.located, port.proved = [], {}, []
        marks = [(dest, wire.HEAD_STRUCT.unpack(head)) for dest, head, _body in frames]
        return [(places.at.get(dest), wire.Head._make(head).mark) for dest, head in marks]

    def cookie(self, who: Address) -> int:
        """Have who really is at a place ask for its cookie, and get it there."""
        assert self.asked((who, 0)) == [False]
        ((place, cookie),) = self.end_turn()
        assert place == self.heard.places.resolve(who.where)
        return cookie

    def prove(self, who: Address) -> None:
        assert self.asked((who, self.cookie(who))) == [True]
        assert self.end_turn() == []


def test_who_proves_a_short_id_first_does_not_have_it_for_good() -> None:
    """Two frames kept two groups apart: answers to one went where a stranger was."""
    member = Doubter()
    for pest in (stranger(TWIN + 5, 66), stranger(5, 66)):
        honest = stranger(5, 50)
        member.prove(pest)
        assert not member.port.contacts.trusts(honest)
        member.prove(honest)
        assert member.port.contacts.trusts(honest)
        assert not member.port.contacts.trusts(pest)
        assert member.heard.places.at[honest.short] == at(50)
        member.heard.learn(honest.short, at(66))
        assert member.heard.places.at[honest.short] == at(50)


def test_a_proof_is_void_once_frames_to_its_short_id_go_elsewhere() -> None:
    """Else who proved one place could have a view sent to another one."""
    member = Doubter()
    pest, victim = stranger(5, 66), stranger(5, 50)
    member.prove(pest)
    assert member.asked((victim, 0)) == [False]
    member.port.control(pest.short, wire.VIEW_RSP, wire.MERGE3, 1, body=bytes(1000))
    ((place, _cookie),) = member.end_turn()
    assert place == at(50)
    assert pest.short not in member.port.contacts.trusted
    assert member.port.drops == {"stranger-answer": 1}


def cookies_seen(member: Doubter, by: int, *turns: Sequence[tuple[Address, int]]) -> list[int]:
    seen = []
    for questions in turns:
        member.asked(*questions)
        seen += [cookie for place, cookie in member.end_turn() if place == at(by) and cookie]
    return seen


def test_nobody_gets_the_cookie_of_another_place_to_its_own() -> None:
    """Before, it did: once it had proved its own place, or by two questions in one turn."""
    pest, victim = stranger(5, 66), stranger(5, 50)
    own = Doubter().cookie(pest)
    for turns in (
        [[(pest, own)], [(victim, 0)]],
        [[(pest, own), (victim, 0)]],
        [[(victim, 0), (pest, own)]],
        [[(victim, 0), (pest, 0)]],
        [[(pest, 0), (victim, 0)]],
    ):
        member = Doubter()
        member.heard.learn(pest.short, at(66))
        seen = cookies_seen(member, 66, *turns)
        member.asked(*((victim, cookie) for cookie in seen))
        assert not member.port.contacts.trusts(victim), turns


def test_nobody_gets_it_when_all_places_are_taken_or_by_naming_one_in_the_same_turn() -> None:
    victim = stranger(5, 50)
    full = Doubter()
    for number in range(MAX_LEARNED):
        full.heard.locate(stranger(1000 + number, 70))
    full.heard.learn(victim.short, at(66))
    assert cookies_seen(full, 66, [(victim, 0)]) == []
    full.heard.learn(victim.short, at(50))
    assert len(cookies_seen(full, 50, [(victim, 0)])) == 1, "who is there is answered all the same"
    member = Doubter()
    member.asked((victim, 0))
    member.port.locate((stranger(5, 66),))
    assert [place for place, _cookie in member.end_turn()] == [at(50)]


def test_who_was_in_a_view_gets_no_cookie_of_another_place() -> None:
    member = Doubter()
    past = stranger(5, 66)
    for members in ([OWN, past], [OWN]):
        member.port.contacts.on_view(members)
        member.heard.on_view(members)
    assert member.asked((stranger(5, 50), 0)) == [False]
    assert member.end_turn() == []
    assert member.port.drops == {"short-id-taken": 1}
    assert member.port.contacts.trusts(past)


def test_infos_in_the_short_id_of_a_member_are_bounded_like_those_of_strangers() -> None:
    world = Layers("AB", (Merge3, Merge3Config()))
    world.install(view(1, "AB"))
    for number in range(1, MAX_STRANGERS + 51):
        twin = Address(number * TWIN + address("B").identity, "x")
        body = Writer().address(twin).view_id(view(1, "AB").id).bytes()
        world.inject("B", "A", wire.MERGE3, wire.INFO, body, lo=1)
    assert world["A"].refused["heard-full"] == 50


def test_who_does_not_answer_is_asked_where_it_says_that_it_is() -> None:
    """The stranger that proved the short id keeps silent, and B never asks by itself."""
    world = Layers("AB", (Merge3, Merge3Config(min_interval=0.5, max_interval=1.0)))
    world.split("A", "B")
    world.install(view(1, "A"))
    world.install(view(1, "B"))
    port = world["A"].port
    port.prove(Address(TWIN + address("B").identity, "x"))
    body = Writer().address(address("B")).view_id(view(1, "B").id).bytes()
    for number in range(1, 8):
        world.inject("B", "A", wire.MERGE3, wire.INFO, body, lo=number)
        world.advance(0.5)
    assert len(world.sent(wire.VIEW_REQ, "A")) > 1
    assert port.doubted == [address("B").short]
    assert port.challenged[address("B").short] == address("B")
    assert not port.contacts.proved
