"""Frames of strangers, of every kind: none makes a member send more to anybody than came in that
one's name, and however many they are, what a member keeps of them is bounded."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, pack_body
from stormcast.node.core.digest import Digest
from stormcast.node.core.model import FIRST, OOB, Address, View, ViewId
from stormcast.node.core.packing import Writer
from stormcast.node.protocols.gms.messages import (
    MergeAnswer,
    MergeId,
    pack_address,
    pack_join_answer,
    pack_join_refusal,
    pack_merge_answer,
    pack_merge_id,
    pack_view,
    pack_view_id,
)
from tests.helpers.group import GroupWorld
from tests.helpers.world import CLUSTER, TIMINGS, Member

FEW = settings(max_examples=max(1, settings.default.max_examples * 2 // 5))
NAMES = "ABCDEFGH"
STRANGERS = 3
FIRST_STRANGER = 0x7100_0000
VICTIM = Address(0x7200_0000, "victim", "198.18.0.9[7800]")
QUICK = {
    "MERGE3": {"min_interval": 0.5, "max_interval": 1.0, "check_interval": 3.0},
    "FD_ALL3": {"timeout": 4000.0, "interval": 1000.0},
}
MOST_ENTRIES = 12_000
"""Entries of all tables of a member together, whatever strangers send."""


def stranger(number: int) -> Address:
    return Address(FIRST_STRANGER + number, f"x{number}", "198.18.0.8[7800]")


def alien_view(source: Address) -> View:
    """A view that names others, which never said anything."""
    others = (Address(VICTIM.identity + number, "v", VICTIM.where) for number in range(40))
    return View(ViewId(3, source), (source, *others))


def bodies(source: Address, of: View) -> dict[str, bytes]:
    """Bodies that kinds of a group have, well-formed."""
    alien = alien_view(source)
    seqnos = Digest({member.short: (0, 0) for member in alien.members})
    merge = MergeId(source, 1)
    answer = MergeAnswer(merge, False, alien, Digest({source.short: (0, 0)}))
    asker = Writer().address(source).u8(0).bytes()
    return {
        "none": b"",
        "address": pack_address(source),
        "of the victim": pack_address(VICTIM),
        "asker": asker,
        "long asker": asker.ljust(288, b"\0"),
        "server": Writer().address(source).u8(3).address(VICTIM).bytes(),
        "info": Writer().address(source).view_id(alien.id).bytes(),
        "info of the view": Writer().address(source).view_id(of.id).bytes(),
        "info that names": Writer().address(source).view_id(ViewId(2, VICTIM)).bytes(),
        "view id": pack_view_id(of.id),
        "old view id": pack_view_id(ViewId(0, of.id.creator)),
        "view": Writer().view(alien).bytes(),
        "new view": pack_view(alien),
        "welcome": pack_join_answer(alien, seqnos),
        "refusal": pack_join_refusal(source, "no"),
        "merge": pack_merge_id(merge),
        "merge answer": pack_merge_answer(answer),
        "vote": Writer().view_id(of.id).digest(seqnos).bytes(),
        "suspects": Writer().addresses(of.members).bytes(),
    }


FITTING = {
    wire.DISCOVERY: (wire.GET_MBRS_REQ, wire.GET_MBRS_RSP),
    wire.MERGE3: (wire.INFO, wire.VIEW_REQ, wire.VIEW_RSP, wire.COOKIE),
    wire.GMS: (
        wire.JOIN_REQ,
        wire.JOIN_RSP,
        wire.COOKIE,
        wire.PROVE,
        wire.PROOF,
        wire.LEAVE_REQ,
        wire.LEAVE_RSP,
        wire.VIEW,
        wire.VIEW_ACK,
        wire.GET_VIEW,
        wire.MERGE_REQ,
        wire.MERGE_RSP,
        wire.GET_DIGEST_REQ,
        wire.GET_DIGEST_RSP,
        wire.CANCEL_MERGE,
    ),
    wire.VERIFY_SUSPECT2: (wire.ARE_YOU_DEAD, wire.I_AM_NOT_DEAD),
    wire.FD_ALL3: (wire.HEARTBEAT,),
    wire.FD_SOCK2: (wire.SUSPECT, wire.UNSUSPECT, wire.CLOSE),
    wire.STABLE_PROTOCOL: (wire.GOSSIP, wire.STABILITY),
    wire.UFC: (wire.CREDIT, wire.CREDIT_REQ),
    wire.MFC: (wire.CREDIT, wire.CREDIT_REQ),
    wire.UNICAST3: (
        wire.ACK,
        wire.SFS,
        wire.XMIT_REQ,
        wire.CLOSE,
        wire.RESET_TO,
        wire.STABLE,
    ),
    wire.NAKACK2: (
        wire.ACK,
        wire.XMIT_REQ,
        wire.HIGHEST_SEQNO,
        wire.BASELINE,
        wire.BASELINE_REQ,
    ),
    wire.MCAST: (
        wire.ACK,
        wire.XMIT_REQ,
        wire.HIGHEST_SEQNO,
        wire.BASELINE,
        wire.BASELINE_REQ,
    ),
}
"""Protocols of the stacks, and the kinds of each."""
SPOKEN = sorted((protocol, kind) for protocol, kinds in FITTING.items() for kind in kinds)


@dataclass(frozen=True)
class Lie:
    """One frame of a stranger, and the pause after it."""

    source: int
    spoken: tuple[int, int]
    body: str
    lo: int
    conn: int
    mark: int
    flags: int
    transmission: int
    is_for_all: bool
    is_data: bool
    pause: float

    def frame(self, world: GroupWorld, target: Member) -> bytes:
        source = stranger(self.source)
        codec = Codec(hash64(CLUSTER.encode()) & 0xFFFFFFFF, source.short, hash64)
        dest = wire.GROUP if self.is_for_all else target.short
        if self.is_data:
            multicast = target.stack.multicast
            assert multicast is not None
            unicast = target.stack.unicast
            protocol = multicast.protocol if self.is_for_all else unicast.protocol
            conn = 0 if self.is_for_all else self.conn
            body = pack_body([b"x"], hash64)
            flags = self.flags & (FIRST if self.lo == 1 else 0) | self.flags & OOB
            return codec.pack_data(protocol, dest, conn, self.lo, body, flags, 0, 0, 0) + body.data
        protocol, kind = self.spoken
        view = target.stack.view
        assert view is not None
        ranges = ((self.lo, self.lo + 2),) if kind == wire.XMIT_REQ else ()
        is_multicast = protocol in (wire.NAKACK2, wire.MCAST)
        conn = target.short if is_multicast and ranges else self.conn
        return codec.pack_control(
            kind,
            protocol,
            dest,
            conn,
            ranges[-1][1] if ranges else self.lo,
            mark=self.mark,
            flags=self.flags & FIRST,
            transmission=self.transmission,
            ranges=ranges,
            body=b"" if ranges else bodies(source, view)[self.body],
        )


some_view = View(ViewId(1, VICTIM), (VICTIM,))
FITS = {
    wire.GET_MBRS_REQ: ("asker", "long asker", "server"),
    wire.GET_MBRS_RSP: ("asker", "server"),
    wire.INFO: ("info", "info of the view", "info that names"),
    wire.VIEW_REQ: ("none", "address", "of the victim"),
    wire.VIEW_RSP: ("view",),
    wire.JOIN_REQ: ("address",),
    wire.JOIN_RSP: ("welcome", "refusal"),
    wire.LEAVE_REQ: ("address",),
    wire.LEAVE_RSP: ("address",),
    wire.VIEW: ("new view",),
    wire.VIEW_ACK: ("view id", "old view id"),
    wire.GET_VIEW: ("view id", "old view id"),
    wire.MERGE_REQ: ("merge",),
    wire.GET_DIGEST_REQ: ("merge",),
    wire.CANCEL_MERGE: ("merge",),
    wire.MERGE_RSP: ("merge answer",),
    wire.GET_DIGEST_RSP: ("merge answer",),
    wire.GOSSIP: ("vote",),
    wire.STABILITY: ("vote",),
    wire.SUSPECT: ("suspects",),
    wire.UNSUSPECT: ("suspects",),
}
"""Bodies that a kind may have; others have none."""


@st.composite
def lies(draw: Callable[..., Any]) -> Lie:
    spoken = draw(st.sampled_from(SPOKEN))
    fits = FITS.get(spoken[1], ("none",))
    body = draw(st.sampled_from([*fits, *fits, *sorted(bodies(stranger(0), some_view))]))
    return Lie(
        draw(st.integers(0, STRANGERS - 1)),
        spoken,
        body,
        draw(st.integers(0, 4)),
        draw(st.sampled_from([0, 1, 1, 2])),
        draw(st.sampled_from([0, 0, 1])),
        draw(st.sampled_from([0, FIRST, FIRST | OOB, OOB])),
        draw(st.integers(0, 2)),
        draw(st.booleans()),
        draw(st.sampled_from([True, False, False])),
        draw(st.sampled_from([0.0, 0.0, 0.01, 0.6, 4.0])),
    )


class Ledger:
    """What came in the name of each stranger, and what a member sent to it."""

    def __init__(self, world: GroupWorld, target: Member) -> None:
        self.world = world
        self.target = target
        self.came: Counter[tuple[int, str]] = Counter()
        self.members = {member.short for member in world} | {wire.GROUP}
        self._seen = len(world.wire)
        self.left: Counter[tuple[int, str]] = Counter()

    def receive(self, source: int, frame: bytes) -> None:
        self.came[source, "frames"] += 1
        self.came[source, "bytes"] += len(frame)
        self.target.receive(frame)
        self.settle()

    def settle(self) -> None:
        """Nobody was sent more than came in its name, up to now."""
        for sent in self.world.wire[self._seen :]:
            dest = sent.head.dest
            if sent.source == self.target.name and dest not in self.members:
                self.left[dest, "frames"] += 1
                self.left[dest, "bytes"] += len(sent.data)
        self._seen = len(self.world.wire)
        for what, size in self.left.items():
            assert size <= self.came[what], (what, size, self.came[what])


def made(stack: str, timing: str) -> GroupWorld:
    world = GroupWorld(NAMES, stack, timing, protocols=QUICK)
    for name in NAMES:
        world.multicast(name, b"1", b"2", b"3")
    world.advance(2.0)
    return world


@pytest.mark.slow
@pytest.mark.parametrize("stack", ["udp", "mcast", "tcp-no-retransmit"])
@pytest.mark.parametrize("at", ["A", "B"])
@FEW
@given(told=st.lists(lies(), min_size=1, max_size=12), timing=st.sampled_from(TIMINGS))
def test_nobody_is_sent_more_than_came_in_its_name(
    at: str, stack: str, timing: str, told: list[Lie]
) -> None:
    """Neither at once nor later, when questions and acks are repeated."""
    world = made(stack, timing)
    ledger = Ledger(world, world[at])
    for lie in told:
        ledger.receive(stranger(lie.source).short, lie.frame(world, world[at]))
        world.advance(lie.pause)
        ledger.settle()
    world.advance(20.0)
    ledger.settle()


@pytest.mark.parametrize("at", ["A", "B"])
@pytest.mark.parametrize("spoken", SPOKEN, ids=lambda one: "-".join(map(str, one)))
def test_each_question_alone_is_answered_by_no_more(at: str, spoken: tuple[int, int]) -> None:
    """Each kind with each body, from a stranger of its own."""
    world = made("udp", "fast")
    ledger = Ledger(world, world[at])
    for number, body in enumerate(sorted(bodies(stranger(0), some_view))):
        for is_for_all in (True, False):
            who = 2 * number + is_for_all
            lie = Lie(who, spoken, body, 1, 1, 0, FIRST, 0, is_for_all, False, 0.0)
            ledger.receive(stranger(who).short, lie.frame(world, world[at]))
    world.advance(8.0)
    ledger.settle()


def test_a_gap_is_not_asked_for_again_and_again() -> None:
    """Two messages of a stranger with a gap between them: it is asked no more often than it spoke,
    though its window stays for a minute."""
    world = made("udp", "compatible")
    ledger = Ledger(world, world["B"])
    for lo in (1, 9):
        lie = Lie(0, (0, 0), "", lo, 1, 0, FIRST, 0, False, True, 0.0)
        ledger.receive(stranger(0).short, lie.frame(world, world["B"]))
    world.advance(50.0)
    ledger.settle()
    assert ledger.left[stranger(0).short, "frames"] in (1, 2)
    assert len(world["B"].events(trace.REQUESTED)) <= 2, (
        "nor is the journal filled with what was not asked"
    )


# -- Memory ------------------------------------------------------------------------------------


def tables(thing: Any, at: str, seen: set[int]) -> Iterator[tuple[str, int]]:
    """Every table of a member, with its length."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, dict | list | set | frozenset | tuple | deque):
        yield at, len(thing)
        values = thing.values() if isinstance(thing, dict) else thing
        for value in list(values)[:5]:
            yield from tables(value, f"{at}[]", seen)
    elif type(thing).__module__.startswith("stormcast.node."):
        names = {n for kind in type(thing).__mro__ for n in getattr(kind, "__slots__", ())}
        for name in sorted(names | set(getattr(thing, "__dict__", ()))):
            yield from tables(getattr(thing, name, None), f"{at}.{name}", seen)


def entries(member: Member) -> dict[str, int]:
    found = tables(member.stack, member.name, set())
    return {at: size for at, size in found if "racer" not in at}


@pytest.mark.slow
@pytest.mark.parametrize("at", ["A", "B"])
def test_however_many_strangers_speak_tables_are_bounded(at: str) -> None:
    """Some thousand names send a question of each kind, before a check and after it."""
    world = made("udp", "compatible")
    member = world[at]
    view = member.stack.view
    assert view is not None
    before = sum(entries(member).values())
    kinds = [spoken for spoken in SPOKEN if spoken[1] in FITS or spoken[1] == wire.SFS]
    for number in range(6000):
        spoken = kinds[number % len(kinds)]
        if number % 2:
            spoken = (wire.MERGE3, wire.INFO)
        body = FITS.get(spoken[1], ("none",))[0]
        lie = Lie(number, spoken, body, 1, 1, 0, 0, 0, False, number % 5 == 0, 0.0)
        member.stack.receive(lie.frame(world, member), world.now)
        if number % 100 == 0:
            member.turn()
            world.advance(0.02)
    member.turn()
    after = entries(member)
    grown = {at: size for at, size in after.items() if size > 2100}
    assert not grown, grown
    assert sum(after.values()) - before < MOST_ENTRIES
