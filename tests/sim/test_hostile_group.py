"""Frames that lie about the group: counted by reason, nothing else changes, and the group goes on.

Every frame here is well-formed, with correct hashes: it claims to be of a member, of a stranger or
of another cluster. A test compares all that a member is made of before and after.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial
from random import Random
from typing import Any

import pytest

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, pack_body
from stormcast.node.core.digest import Digest
from stormcast.node.core.model import FIRST, FRAGMENT, OOB, Address, View, ViewId
from stormcast.node.core.packing import Writer
from stormcast.node.core.timers import Timers
from stormcast.node.protocols.frag import HEADER
from stormcast.node.protocols.gms.messages import (
    MergeAnswer,
    MergeId,
    MergePart,
    pack_address,
    pack_join_answer,
    pack_join_refusal,
    pack_merge_answer,
    pack_merge_id,
    pack_merge_view,
    pack_view,
    pack_view_id,
)
from tests.helpers.group import STACKS, GroupWorld, Member, formed, numbered
from tests.helpers.world import CLUSTER, TIMINGS, hash64

everywhere = pytest.mark.parametrize(
    ("stack", "timing"), [(stack, timing) for stack in STACKS for timing in TIMINGS]
)
on_both_stacks = pytest.mark.parametrize("stack", STACKS)
FAR = 1 << 61
"""A number that nothing honest comes near, and that is still a number."""
SENT = 5
"""Multicasts of each member, and unicasts to each other one, before the lies begin."""


# -- What a member is made of ------------------------------------------------------------------

LEAVES = (int, float, str, bytes, type(None), Enum, Address, View, ViewId)
UNTOLD = frozenset(
    {"tracer", "_tracer", "codec", "_codec", "refused", "drops", "heard", "_now", "gauge_at"}
    # A claim that is far off has the sender asked whether it made it.
    | {"nonce", "asked_at", "sync_tries", "_questions", "refusal"}
    # How much came in whose name, that there is something to count, and how much was recorded.
    | {"_accounts", "is_on", "_pace", "_unrecorded"}
)
"""What may change: the record, its clock, the counts by reason, that somebody was heard, and that
somebody was asked."""


def pictured(member: Member) -> dict[str, str]:
    """All state of a member's stack, by where it is; a timer is when it is due."""
    return dict(_walk(member.stack, "stack", set()))


def _walk(thing: Any, at: str, seen: set[int]) -> Iterator[tuple[str, str]]:
    if isinstance(thing, LEAVES):
        yield at, repr(thing)
    elif isinstance(thing, set | frozenset):
        yield at, repr(sorted(map(repr, thing)))
    elif isinstance(thing, list | tuple | deque):
        yield at, f"{len(thing)} entries"
        for number, entry in enumerate(thing):
            yield from _walk(entry, f"{at}[{number}]", seen)
    elif isinstance(thing, dict):
        yield at, f"{len(thing)} entries"
        for key, value in thing.items():
            yield from _walk(value, f"{at}[{key!r}]", seen)
    elif isinstance(thing, Timers):
        yield at, repr(sorted(thing._when.items(), key=repr))
    elif isinstance(thing, Random):
        yield at, str(hash(thing.getstate()))
    elif type(thing).__module__.startswith("stormcast.node.") and id(thing) not in seen:
        seen.add(id(thing))
        for name in sorted(_fields(thing) - UNTOLD):
            yield from _walk(getattr(thing, name, None), f"{at}.{name}", seen)


def _fields(thing: object) -> set[str]:
    slots = {
        name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ()) if name
    }
    return slots | set(getattr(thing, "__dict__", ()))


def changes(
    before: Mapping[str, str], after: Mapping[str, str]
) -> dict[str, tuple[object, object]]:
    return {
        at: (before.get(at), after.get(at))
        for at in sorted(before.keys() | after.keys())
        if before.get(at) != after.get(at)
    }


# -- Who lies, and to whom ---------------------------------------------------------------------


class Liar:
    """Makes well-formed frames of a member, or of X, who is nobody."""

    def __init__(self, world: GroupWorld, name: str = "X", cluster: str = CLUSTER) -> None:
        self.world = world
        self.address = Address(world.identity(name), name)
        self._codec = Codec(hash64(cluster.encode()) & 0xFFFFFFFF, world.short(name), hash64)

    def says(
        self,
        kind: int,
        protocol: int,
        lo: int = 0,
        *,
        body: bytes = b"",
        to: str = "B",
        **rest: Any,
    ) -> bytes:
        dest = self.world.short(to) if to else wire.GROUP
        conn = rest.pop("conn", 0)
        return self._codec.pack_control(kind, protocol, dest, conn, lo, body=body, **rest)

    def sends(
        self,
        lo: int,
        *payloads: bytes,
        protocol: int | None = None,
        conn: int = 0,
        mark: int = 0,
        flags: int = 0,
        header: bytes = b"",
    ) -> bytes:
        """A batch of multicasts."""
        body = pack_body(payloads, hash64, header)
        if protocol is None:
            protocol = multicast_of(self.world)
        head = self._codec.pack_data(protocol, wire.GROUP, conn, lo, body, flags, 0, mark, 0)
        return head + body.data


def multicast_of(world: GroupWorld) -> int:
    return world.machine("A").protocol


class Besieged(GroupWorld):
    """A coordinates A, B and C. All have spoken, and all was delivered; nothing moves."""

    def __init__(self, stack: str, timing: str = "compatible", **rest: Any) -> None:
        super().__init__("ABC", stack, timing, **rest)
        self.view_id = self["A"].stack.view.id  # type: ignore[union-attr]
        self.spoken = 0
        self.speak()
        self.settle()

    def addresses(self, names: str) -> tuple[Address, ...]:
        return tuple(Address(self.identity(name), name) for name in names)

    def made(self, names: str, number: int, creator: str = "A") -> View:
        return View(ViewId(number, Address(self.identity(creator), creator)), self.addresses(names))

    def digest(self, names: str, delivered: int = SENT, received: int = SENT) -> Digest:
        return Digest({self.short(name): (delivered, received) for name in names})

    def refuses(self, reason: str, frame: bytes, at: str = "B") -> None:
        """Somebody drops the frame for this reason, and is what it was."""
        member = self[at]
        before, counted = pictured(member), member.refused.get(reason, 0)
        member.receive(frame)
        assert member.refused.get(reason, 0) == counted + 1, (reason, member.refused)
        assert changes(before, pictured(member)) == {}

    def speak(self, names: str = "ABC", listeners: str = "ABC") -> None:
        """Everybody multicasts five more, and sends five to each other member."""
        first, last = self.spoken + 1, self.spoken + SENT
        self.spoken = last
        for name in names:
            self.multicast(name, *numbered(first, last))
            for other in listeners:
                if other != name:
                    self[name].send(*numbered(first, last), to=other)

    def assert_heard(self, first: int) -> None:
        """Everybody got all that was spoken since, each word once as multicast and as unicast."""
        for name in "ABC":
            for sender in "ABC":
                copies = 1 if name == sender else 2
                got = self.got(name, sender)
                assert sorted(got) == sorted(copies * numbered(first, self.spoken)), (name, sender)

    def works(self) -> None:
        """What is said from now on is delivered once, to all, and who comes gets in."""
        for member in self:
            member.take()
        first = self.spoken + 1
        self.speak()
        self.settle()
        self.assert_heard(first)
        self.start("D")
        self.join("D")
        self.advance_until(lambda: self.views_agree("ABCD"), 30.0)


# -- Lies that change nothing -----------------------------------------------------------------

Lie = Callable[[Besieged], bytes]

GMS: dict[str, tuple[str, str, Lie]] = {
    # What it is: who hears it, why it is refused, what is said.
    "a view of a stranger": ("B", "view-from-stranger", lambda w: Liar(w).says(
        wire.VIEW, wire.GMS, 2, body=pack_view(w.made("ABX", 2)))),
    "an old view": ("B", "view-old", lambda w: Liar(w, "C").says(
        wire.VIEW, wire.GMS, 1, body=pack_view(w.made("ABC", 1, "C")))),
    "a view with a number beyond all": ("B", "view-number", lambda w: Liar(w, "A").says(
        wire.VIEW, wire.GMS, 0, body=pack_view(w.made("ABC", 1 << 62)))),
    "a view far ahead": ("B", "view-number", lambda w: Liar(w, "A").says(
        wire.VIEW, wire.GMS, 0, body=pack_view(w.made("ABC", 1 << 40)))),
    "a view number 0": ("B", "view-number", lambda w: Liar(w, "A").says(
        wire.VIEW, wire.GMS, 0, body=pack_view(w.made("ABC", 0)))),
    "a view of nobody": ("B", "view-members", lambda w: Liar(w, "A").says(
        wire.VIEW, wire.GMS, 2, body=Writer().u8(0).view_id(w.view_id).u16(0).bytes())),
    "a view that names a member twice": ("B", "view-members", lambda w: Liar(w, "A").says(
        wire.VIEW, wire.GMS, 2, body=Writer().u8(0).view_id(w.view_id).addresses(
            w.addresses("BB")).bytes())),
    "a view of more members than there are bytes": ("B", "count", lambda w: Liar(w, "A").says(
        wire.VIEW, wire.GMS, 2, body=Writer().u8(0).view_id(w.view_id).u16(65535).bytes())),
    "a view with something behind it": ("B", "body-long", lambda w: Liar(w, "A").says(
        wire.VIEW, wire.GMS, 2, body=pack_view(w.made("ABC", 2)) + b"!")),
    "half a view": ("B", "body-short", lambda w: Liar(w, "A").says(
        wire.VIEW, wire.GMS, 2, body=pack_view(w.made("ABC", 2))[:-1])),
    "a merge view of no merge": ("B", "merge-unknown", lambda w: Liar(w, "A").says(
        wire.VIEW, wire.GMS, 2, body=pack_merge_view(w.made("ABC", 2), MergePart(
            MergeId(Liar(w, "A").address, 1), w.digest("ABC"), frozenset())))),
    "a merge view whose digest lacks members": ("B", "digest-members", lambda w: Liar(w, "A").says(
        wire.VIEW, wire.GMS, 2, body=pack_merge_view(w.made("ABC", 2), MergePart(
            MergeId(Liar(w, "A").address, 1), w.digest("AX"), frozenset())))),
    "an answer to a join nobody asked for": ("B", "join-unasked", lambda w: Liar(w).says(
        wire.JOIN_RSP, wire.GMS, 1, body=pack_join_answer(w.made("ABCX", 2), w.digest("ABCX")))),
    "a welcome whose digest lacks members": ("B", "digest-members", lambda w: Liar(w, "A").says(
        wire.JOIN_RSP, wire.GMS, 1, body=pack_join_answer(w.made("ABC", 2), w.digest("AB")))),
    "a refusal of one that is in": ("B", "join-late", lambda w: Liar(w, "A").says(
        wire.JOIN_RSP, wire.GMS, 1, body=pack_join_refusal(w.addresses("B")[0], "no"))),
    "a join for somebody else": ("A", "join-source", lambda w: Liar(w).says(
        wire.JOIN_REQ, wire.GMS, 1, body=pack_address(w.addresses("D")[0]), to="A")),
    "a join at a participant": ("B", "not-coordinator", lambda w: Liar(w).says(
        wire.JOIN_REQ, wire.GMS, 1, body=pack_address(Liar(w).address))),
    "a leave for somebody else": ("A", "leave-source", lambda w: Liar(w, "C").says(
        wire.LEAVE_REQ, wire.GMS, body=pack_address(w.addresses("B")[0]), to="A")),
    "a permission to leave that nobody wants": ("B", "leave-unasked", lambda w: Liar(w, "A").says(
        wire.LEAVE_RSP, wire.GMS, body=pack_address(w.addresses("B")[0]))),
    "an ack of a stranger": ("A", "not-a-member", lambda w: Liar(w).says(
        wire.VIEW_ACK, wire.GMS, 1, body=pack_view_id(w.view_id), to="A")),
    "an ack of a view beyond all": ("A", "view-number", lambda w: Liar(w, "C").says(
        wire.VIEW_ACK, wire.GMS, 1, body=pack_view_id(ViewId(1 << 62, w.view_id.creator)),
        to="A")),
    "a stranger that asks for our view": ("A", "not-a-member", lambda w: Liar(w).says(
        wire.GET_VIEW, wire.GMS, body=pack_view_id(ViewId(0, w.view_id.creator)), to="A")),
    "a merge in another's name": ("B", "merge-source", lambda w: Liar(w).says(
        wire.MERGE_REQ, wire.GMS, 1, body=pack_merge_id(MergeId(w.addresses("A")[0], 1)))),
    "a cancellation in another's name": ("B", "merge-source", lambda w: Liar(w).says(
        wire.CANCEL_MERGE, wire.GMS, 1, body=pack_merge_id(MergeId(w.addresses("A")[0], 1)))),
    "an answer to no merge": ("A", "merge-unknown", lambda w: Liar(w).says(
        wire.MERGE_RSP, wire.GMS, 1, to="A", body=pack_merge_answer(MergeAnswer(
            MergeId(w.addresses("A")[0], 1), False, w.made("X", 2, "X"), w.digest("X"))))),
    "an answer that speaks for others": ("A", "digest-members", lambda w: Liar(w).says(
        wire.GET_DIGEST_RSP, wire.GMS, 1, to="A", body=pack_merge_answer(MergeAnswer(
            MergeId(w.addresses("A")[0], 1), False, w.made("AX", 2, "X"), w.digest("AX"))))),
    "an answer with a view without its sender": ("A", "view-members", lambda w: Liar(w).says(
        wire.MERGE_RSP, wire.GMS, 1, to="A", body=pack_merge_answer(MergeAnswer(
            MergeId(w.addresses("A")[0], 1), False, w.made("AB", 2), w.digest("X"))))),
    "a kind of another protocol": ("B", "kind", lambda w: Liar(w, "A").says(
        wire.GOSSIP, wire.GMS)),
}  # fmt: skip  # one lie after the other


def told(world: Besieged, names: str, delivered: int = SENT, received: int = SENT) -> bytes:
    """The body of a GOSSIP or STABILITY."""
    return Writer().view_id(world.view_id).digest(world.digest(names, delivered, received)).bytes()


def unordered(world: Besieged) -> bytes:
    """More delivered than received."""
    body = Writer().view_id(world.view_id).u16(1).u32(world.short("A")).u64(FAR).u64(1)
    return body.bytes()


STABLE: dict[str, tuple[str, str, Lie]] = {
    "a vote of a stranger": ("A", "stranger", lambda w: Liar(w).says(
        wire.GOSSIP, 7, 1, body=told(w, "ABC"), conn=9, to="A")),
    "a vote at a participant": ("B", "not-coordinator", lambda w: Liar(w, "C").says(
        wire.GOSSIP, 7, 1, body=told(w, "ABC"), conn=9)),
    "a vote that names strangers": ("A", "digest-members", lambda w: Liar(w, "C").says(
        wire.GOSSIP, 7, 1, body=told(w, "ABX"), conn=9, to="A")),
    "a vote about too few": ("A", "digest-members", lambda w: Liar(w, "C").says(
        wire.GOSSIP, 7, 1, body=told(w, "AB"), conn=9, to="A")),
    "a vote of another view": ("A", "other-view", lambda w: Liar(w, "C").says(
        wire.GOSSIP, 7, 2, conn=9, to="A", body=Writer().view_id(
            ViewId(2, w.view_id.creator)).digest(w.digest("ABC")).bytes())),
    "a vote with two views": ("A", "view", lambda w: Liar(w, "C").says(
        wire.GOSSIP, 7, 2, body=told(w, "ABC"), conn=9, to="A")),
    "more delivered than received": ("A", "digest-entry", lambda w: Liar(w, "C").says(
        wire.GOSSIP, 7, 1, body=unordered(w), conn=9, to="A")),
    "a vote beyond all numbers": ("A", "digest-entry", lambda w: Liar(w, "C").says(
        wire.GOSSIP, 7, 1, conn=9, to="A", body=told(w, "ABC", FAR, 1 << 63))),
    "stability of a participant": ("B", "not-from-coordinator", lambda w: Liar(w, "C").says(
        wire.STABILITY, 7, 1, body=told(w, "ABC"), conn=9)),
    "stability of what we do not have": ("B", "stability-beyond-vote", lambda w: Liar(
        w, "A").says(wire.STABILITY, 7, 1, body=told(w, "ABC", FAR, FAR), conn=9)),
    "stability of strangers": ("B", "digest-members", lambda w: Liar(w, "A").says(
        wire.STABILITY, 7, 1, body=told(w, "X"), conn=9)),
}  # fmt: skip  # one lie after the other

MULTICAST: dict[str, tuple[str, str, Lie]] = {
    "a request of a stranger": ("B", "request-stranger", lambda w: Liar(w).says(
        wire.XMIT_REQ, multicast_of(w), 1, ranges=[(1, 1)], conn=w.short("B"))),
    "a request for what was never sent": ("B", "request-beyond-sent", lambda w: Liar(w, "C").says(
        wire.XMIT_REQ, multicast_of(w), 6, ranges=[(1, SENT + 1)], conn=w.short("B"))),
    "a request for nothing": ("B", "ranges", lambda w: Liar(w, "C").says(
        wire.XMIT_REQ, multicast_of(w), 6, conn=w.short("B"))),
    "a request beyond all numbers": ("B", "ranges", lambda w: Liar(w, "C").says(
        wire.XMIT_REQ, multicast_of(w), 6, ranges=[(wire.MAX_SEQNO, wire.MAX_SEQNO + 1)],
        conn=w.short("B"))),
    "a request for a stranger's": ("B", "request-unknown-sender", lambda w: Liar(w, "C").says(
        wire.XMIT_REQ, multicast_of(w), 1, ranges=[(1, 1)], conn=w.short("X"))),
    "a stranger asks for a baseline": ("B", "request-stranger", lambda w: Liar(w).says(
        wire.BASELINE_REQ, multicast_of(w))),
    "a stranger's baseline": ("B", "baseline-no-window", lambda w: Liar(w).says(
        wire.BASELINE, multicast_of(w), 7, mark=7)),
    "a baseline upside down": ("B", "baseline-order", lambda w: Liar(w, "C").says(
        wire.BASELINE, multicast_of(w), 7, mark=8)),
    "a baseline beyond all numbers": ("B", "baseline-order", lambda w: Liar(w, "C").says(
        wire.BASELINE, multicast_of(w), 1 << 63, mark=7)),
    "a baseline far ahead": ("B", "baseline-beyond-window", lambda w: Liar(w, "C").says(
        wire.BASELINE, multicast_of(w), FAR, mark=SENT)),
    "a baseline that begins far ahead": ("B", "baseline-beyond-window", lambda w: Liar(
        w, "C").says(wire.BASELINE, multicast_of(w), FAR, mark=FAR, flags=FIRST)),
    "a stranger's highest": ("B", "highest-no-window", lambda w: Liar(w).says(
        wire.HIGHEST_SEQNO, multicast_of(w), 7)),
    "a highest of nothing": ("B", "highest-order", lambda w: Liar(w, "C").says(
        wire.HIGHEST_SEQNO, multicast_of(w), 0)),
    "a highest upside down": ("B", "highest-order", lambda w: Liar(w, "C").says(
        wire.HIGHEST_SEQNO, multicast_of(w), 7, mark=8)),
    "a highest far ahead": ("B", "highest-beyond-window", lambda w: Liar(w, "C").says(
        wire.HIGHEST_SEQNO, multicast_of(w), FAR, mark=SENT)),
    "a highest that begins far ahead": ("B", "highest-beyond-window", lambda w: Liar(
        w, "C").says(wire.HIGHEST_SEQNO, multicast_of(w), FAR, mark=FAR)),
    "a message number 0": ("B", "seqno", lambda w: Liar(w, "C").sends(0, b"no")),
    "a message beyond all numbers": ("B", "seqno", lambda w: Liar(w, "C").sends(
        wire.MAX_SEQNO, b"no")),
    "a message of a connection": ("B", "seqno", lambda w: Liar(w, "C").sends(6, b"no", conn=1)),
    "a message that is gone already": ("B", "mark", lambda w: Liar(w, "C").sends(
        6, b"no", mark=6)),
    "a message far ahead": ("B", "beyond-window", lambda w: Liar(w, "C").sends(FAR, b"no")),
    "a message that skips far ahead": ("B", "beyond-window", lambda w: Liar(w, "C").sends(
        FAR, b"no", mark=FAR - 1)),
    "a kind of another protocol": ("B", "kind", lambda w: Liar(w, "C").says(
        wire.GOSSIP, multicast_of(w))),
}  # fmt: skip  # one lie after the other

MCAST: dict[str, tuple[str, str, Lie]] = {
    "an ack beyond sent": (
        "B",
        "ack-beyond-sent",
        lambda w: Liar(w, "C").says(wire.ACK, wire.MCAST, SENT + 1),
    ),
    "an ack far ahead": (
        "B",
        "ack-beyond-sent",
        lambda w: Liar(w, "C").says(wire.ACK, wire.MCAST, FAR),
    ),
    "an ack of a stranger": (
        "B",
        "ack-stranger",
        lambda w: Liar(w).says(wire.ACK, wire.MCAST, SENT),
    ),
}


def flow(protocol: int) -> dict[str, tuple[str, str, Lie]]:
    return {
        "credit of a stranger": ("B", "credit-not-member", lambda w: Liar(w).says(
            wire.CREDIT, protocol, 1000)),
        "credit without end": ("B", "credit-beyond-limit", lambda w: Liar(w, "C").says(
            wire.CREDIT, protocol, FAR)),
        "credit for what was not sent": ("B", "credit-beyond-limit", lambda w: Liar(
            w, "C").says(wire.CREDIT, protocol, 1, mark=FAR)),
        "a question about a total beyond all": ("B", "credit-beyond-limit", lambda w: Liar(
            w, "C").says(wire.CREDIT_REQ, protocol, (1 << 62) + 1)),
        "a question about a place beyond all": ("B", "credit-beyond-limit", lambda w: Liar(
            w, "C").says(wire.CREDIT_REQ, protocol, 1, mark=1 << 63)),
        "credit with a body": ("B", "body-long", lambda w: Liar(w, "C").says(
            wire.CREDIT, protocol, 1, body=b"!")),
        "a kind of another protocol": ("B", "kind", lambda w: Liar(w, "C").says(
            wire.ACK, protocol, 1)),
    }  # fmt: skip  # one lie after the other


UFC = flow(wire.UFC)
MFC = flow(wire.MFC)

DETECTION: dict[str, tuple[str, str, Lie]] = {
    "a stranger's heartbeat": ("B", "stranger", lambda w: Liar(w).says(
        wire.HEARTBEAT, wire.FD_ALL3, to="")),
    "a heartbeat with a body": ("B", "kind", lambda w: Liar(w, "C").says(
        wire.HEARTBEAT, wire.FD_ALL3, body=b"!", to="")),
    "a stranger's suspicion": ("B", "stranger", lambda w: Liar(w).says(
        wire.SUSPECT, wire.FD_SOCK2, 1, to="", body=Writer().addresses(
            w.addresses("AC")).bytes())),
    "a suspicion of more than there are bytes": ("B", "count", lambda w: Liar(w, "C").says(
        wire.SUSPECT, wire.FD_SOCK2, 1, to="", body=Writer().u16(65535).bytes())),
    "a stranger clears": ("B", "stranger", lambda w: Liar(w).says(
        wire.UNSUSPECT, wire.FD_SOCK2, 1, to="", body=Writer().addresses(()).bytes())),
    "a stranger says goodbye": ("B", "stranger", lambda w: Liar(w).says(
        wire.CLOSE, wire.FD_SOCK2)),
    "a question with a body": ("B", "body-long", lambda w: Liar(w, "C").says(
        wire.ARE_YOU_DEAD, wire.VERIFY_SUSPECT2, 1, body=b"!")),
    "a stranger's sign of life": ("B", "stranger", lambda w: Liar(w).says(
        wire.I_AM_NOT_DEAD, wire.VERIFY_SUSPECT2, 1)),
    "an INFO in another's name": ("B", "identity", lambda w: Liar(w).says(
        wire.INFO, wire.MERGE3, 1, to="", body=Writer().address(
            w.addresses("A")[0]).view_id(w.view_id).bytes())),
    "a view nobody asked for": ("A", "unasked", lambda w: Liar(w, "C").says(
        wire.VIEW_RSP, wire.MERGE3, 1, to="A", body=Writer().view(w.made("C", 9, "C")).bytes())),
    "a question for a view without an asker": ("B", "body-short", lambda w: Liar(w).says(
        wire.VIEW_REQ, wire.MERGE3, 1, body=b"!")),
    "a question for a view in another's name": ("B", "identity", lambda w: Liar(w).says(
        wire.VIEW_REQ, wire.MERGE3, 1, body=Writer().address(w.addresses("A")[0]).bytes())),
    "a cookie nobody waits for": ("B", "unasked", lambda w: Liar(w).says(
        wire.COOKIE, wire.MERGE3, 1, mark=1)),
    "discovery with more than zeros": ("B", "body-long", lambda w: Liar(w).says(
        wire.GET_MBRS_REQ, wire.DISCOVERY, 1, to="", body=Writer().address(
            Liar(w).address).u8(0).u16(256).u8(1).bytes())),
    "discovery in another's name": ("B", "identity", lambda w: Liar(w).says(
        wire.GET_MBRS_REQ, wire.DISCOVERY, 1, to="", body=Writer().address(
            w.addresses("A")[0]).u8(0).bytes())),
    "discovery with flags of its own": ("B", "flags", lambda w: Liar(w).says(
        wire.GET_MBRS_REQ, wire.DISCOVERY, 1, to="", body=Writer().address(
            Liar(w).address).u8(64).bytes())),
    "an answer to a search that never was": ("B", "unasked", lambda w: Liar(w).says(
        wire.GET_MBRS_RSP, wire.DISCOVERY, FAR, body=Writer().address(
            Liar(w).address).u8(1).bytes())),
}  # fmt: skip  # one lie after the other

STACK: dict[str, tuple[str, str, Lie]] = {
    "a view of another cluster": ("B", "cluster", lambda w: Liar(w, "A", "other").says(
        wire.VIEW, wire.GMS, 2, body=pack_view(w.made("AB", 2)))),
    "a merge of another cluster": ("B", "cluster", lambda w: Liar(w, "X", "other").says(
        wire.MERGE_REQ, wire.GMS, 1, body=pack_merge_id(MergeId(Liar(w).address, 1)))),
    "an INFO of another cluster": ("B", "cluster", lambda w: Liar(w, "X", "other").says(
        wire.INFO, wire.MERGE3, 1, to="", body=Writer().address(
            Liar(w).address).view_id(w.view_id).bytes())),
    "a multicast of another cluster": ("B", "cluster", lambda w: Liar(w, "C", "other").sends(
        6, b"no")),
    "a frame for somebody else": ("B", "other-destination", lambda w: Liar(w, "C").says(
        wire.VIEW_ACK, wire.GMS, to="A")),
    "a frame of our own": ("B", "bad-source", lambda w: Liar(w, "B").says(
        wire.HEARTBEAT, wire.FD_ALL3, to="")),
    "a frame of no protocol": ("B", "protocol", lambda w: Liar(w, "C").says(wire.ACK, 99)),
    "a control frame without a protocol": ("B", "kind", lambda w: Liar(w, "C").says(
        wire.ACK, wire.NONE)),
    "an unreliable multicast of a stranger": ("B", "unknown-sender", lambda w: Liar(w).sends(
        1, b"no", protocol=wire.NONE)),
    "an unreliable multicast of an earlier view": ("B", "other-view", lambda w: Liar(w, "C").sends(
        1, b"no", protocol=wire.NONE)),
}  # fmt: skip  # one lie after the other


LIES: list[tuple[str, str, str]] = [
    (stack, group, what)
    for stack in STACKS
    for group, lies in (
        ("GMS", GMS),
        ("STABLE", STABLE),
        ("MULTICAST", MULTICAST),
        ("MCAST", MCAST),
        ("UFC", UFC),
        ("MFC", MFC),
        ("DETECTION", DETECTION),
        ("STACK", STACK),
    )
    for what in lies
    if not (stack == "mcast" and group in ("STABLE", "MFC"))
    and not (stack == "udp" and group == "MCAST")
]


@pytest.mark.parametrize(("stack", "group", "what"), LIES)
def test_a_lie_is_counted_and_changes_nothing(stack: str, group: str, what: str) -> None:
    """All that the member is made of stays as it was, timers and credits included."""
    world = Besieged(stack)
    at, reason, lie = globals()[group][what]
    world.refuses(reason, lie(world), at)


@everywhere
def test_after_every_lie_the_group_still_works(stack: str, timing: str) -> None:
    """All lies at once, at those they are meant for, each twice."""
    world = Besieged(stack, timing)
    for listed, group, what in LIES * 2:
        if listed == stack:
            at, _reason, lie = globals()[group][what]
            world[at].receive(lie(world))
    world.works()


# -- Lies that are believed for a while ----------------------------------------------------------


@everywhere
def test_nobody_asks_for_what_never_was(stack: str, timing: str) -> None:
    """The coordinator, or whoever speaks in its name, says that others have received far more."""
    world = Besieged(stack, timing)
    world["B"].receive(
        Liar(world, "A").says(wire.STABILITY, 7, 1, body=told(world, "ABC", SENT, FAR), conn=9)
    )
    world.advance(10.0)
    assert world.requests() == []
    if stack == "udp":
        assert world["B"].refused["stability-beyond-window"] == 2
    world.works()


@on_both_stacks
@pytest.mark.parametrize("kind", [wire.BASELINE, wire.HIGHEST_SEQNO])
def test_a_stream_that_has_yet_to_begin_may_begin_anywhere(stack: str, kind: int) -> None:
    """C says, before its first word, that it is far ahead: B waits there, and only for C."""
    world = GroupWorld("ABC", stack)
    liar = Liar(world, "C")
    world["B"].receive(liar.says(kind, multicast_of(world), FAR, mark=FAR, flags=FIRST))
    world["B"].receive(liar.sends(FAR + 1, b"far"))
    world.multicast("A", b"1")
    world.settle()
    assert world.got("B", "C") == [b"far"]
    assert world.everyone_got("A", [b"1"], "ABC")


@everywhere
def test_a_piece_without_a_header_is_no_message(stack: str, timing: str) -> None:
    """In a frame that nothing numbers, of a member: it is looked at when it is delivered."""
    world = Besieged(stack, timing)
    view = world.view_id.number
    liar = Liar(world, "C")
    world["B"].receive(liar.sends(1, b"no", protocol=wire.NONE, mark=view, flags=FRAGMENT))
    world.works()
    assert world["B"].refused["fragment-header"] == 1


@everywhere
def test_strangers_fill_no_memory_and_are_forgotten(stack: str, timing: str) -> None:
    """So many multicasts are kept for who may yet be in the next view, of however many."""
    most = 50
    reliable = "MCAST" if stack == "mcast" else "NAKACK2"
    world = Besieged(stack, timing, protocols={reliable: {"max_unknown_messages": most}})
    before = pictured(world["B"])
    for number in range(2 * most):
        name = chr(0x1000 + number)
        world["B"].receive(Liar(world, name).sends(1, b"who?"))
    assert world["B"].refused["unknown-sender"] == most
    kept = [at for at in changes(before, pictured(world["B"])) if at.endswith("_strangers")]
    assert kept
    assert pictured(world["B"])[kept[0]] == f"{most} entries"
    world.advance(1.1 * world.machine("B").config.unknown_sender_timeout)
    assert world["B"].refused["unknown-sender"] == 2 * most
    assert pictured(world["B"])[kept[0]] == "0 entries"
    world.works()


@everywhere
def test_a_merge_that_its_leader_never_ends_is_over_in_time(stack: str, timing: str) -> None:
    """X, who is nobody but is where it says, asks A and B to merge: meanwhile nobody gets in,
    afterwards all is well."""
    world = Besieged(stack, timing)
    liar = Liar(world)
    for name in "AB":
        body = pack_merge_id(MergeId(liar.address, 1))
        ask = partial(liar.says, wire.MERGE_REQ, wire.GMS, 1, body=body, to=name)
        world[name].receive(ask())
        assert world.wire[-1].kind == wire.COOKIE
        world[name].receive(ask(mark=world.wire[-1].head.mark))
    world.start("E")
    world.join("E")
    world.advance(1.0)
    assert world.view("E") != "ABCE"
    world.advance_until(
        lambda: world.views_agree("ABCE"), 3 * world.settings.of("GMS").merge_timeout
    )
    assert world.sizes("A") == [3, 4]


@everywhere
def test_who_asks_to_join_and_is_not_there_is_excluded_again(stack: str, timing: str) -> None:
    """X proves where it is, is let in, never answers, and holds up neither messages nor the next
    who joins."""
    world = formed("ABC", stack, timing)
    liar = Liar(world)
    body = pack_address(liar.address)
    world["A"].receive(liar.says(wire.JOIN_REQ, wire.GMS, 1, body=body, to="A"))
    cookie = next(sent.head.mark for sent in reversed(world.wire) if sent.kind == wire.COOKIE)
    world["A"].receive(liar.says(wire.JOIN_REQ, wire.GMS, 1, body=body, to="A", mark=cookie))
    world.multicast("B", *numbered(1, 5))
    world.advance_until(lambda: world.sizes("A")[-2:] == [4, 3], 90.0)
    world.start("D")
    world.join("D")
    world.advance_until(lambda: world.views_agree("ABCD"), 90.0)
    world.multicast("B", *numbered(6, 10))
    world.settle()
    assert world.everyone_got("B", numbered(1, 10), "ABC")
    assert world.unpurged("B") == 0


@pytest.mark.parametrize("lie", ["it is X", "it is D", "it is nobody"])
@everywhere
def test_lies_to_a_joiner_cost_it_time_and_no_more(stack: str, timing: str, lie: str) -> None:
    """X answers D's search first: X, or D itself, is said to coordinate. D gets in all the same,
    by its next round or by a merge."""
    world = formed("ABC", stack, timing)
    liar = Liar(world)
    world.start("D")
    world.join("D")
    who = Writer().address(liar.address)
    if lie == "it is nobody":
        who.u8(1)
    else:
        who.u8(3).address(world["D"].address if lie == "it is D" else liar.address)
    for search in (1, 2, 3):
        world["D"].receive(
            liar.says(wire.GET_MBRS_RSP, wire.DISCOVERY, search, body=who.bytes(), to="D")
        )
    world.advance_until(lambda: world.views_agree("ABCD"), 60.0)
    world.multicast("D", *numbered(1, 5))
    world.settle()
    assert world.everyone_got("D", numbered(1, 5), "ABCD")


@everywhere
def test_members_that_are_said_to_be_dead_and_answer_stay_in(stack: str, timing: str) -> None:
    """In C's name A and B are told that all are suspects, strangers among them, once and again."""
    world = formed("ABC", stack, timing)
    liar = Liar(world, "C")
    everybody = (*world["A"].stack.role.members, Liar(world).address)
    body = Writer().addresses(everybody).bytes()
    for again in range(5):
        for name in "AB":
            world[name].receive(liar.says(wire.SUSPECT, wire.FD_SOCK2, again, body=body, to=name))
        world.advance(1.0)
    world.advance(30.0)
    assert world.sizes("A") == [1, 2, 3]
    assert world.views_agree("ABC")


@everywhere
def test_a_stranger_that_holds_a_view_of_its_own_moves_nobody(stack: str, timing: str) -> None:
    """X tells everybody of a view with a number beyond all, and one with members of ours in it;
    asked for it, X is silent."""
    hasty = {"min_interval": 0.5, "max_interval": 1.0, "check_interval": 3.0}
    world = formed("ABC", stack, timing, protocols={"MERGE3": hasty})
    liar = Liar(world)
    for again, number in enumerate((1, 4, FAR, (1 << 64) - 1) * 3):
        for name in "ABC":
            view_id = ViewId(number, liar.address if again % 2 else world["B"].address)
            body = Writer().address(liar.address).view_id(view_id).bytes()
            world[name].receive(liar.says(wire.INFO, wire.MERGE3, again, body=body, to=name))
        world.advance(1.0)
    world.advance(30.0)
    assert world.sizes("A") == [1, 2, 3]
    assert world.views_agree("ABC")
    world.start("D")
    world.join("D")
    world.advance_until(lambda: world.views_agree("ABCD"), 30.0)


@pytest.mark.parametrize("protocol", ["UFC", "MFC"])
@pytest.mark.parametrize("timing", TIMINGS)
def test_a_lie_about_credits_stops_a_stream_for_one_block_at_most(
    timing: str, protocol: str
) -> None:
    """In C's name B is told of a far too large total, all of it taken: what C sends still flows,
    and soon."""
    small = {"max_credits": 10_000}
    world = GroupWorld(
        "ABC", "udp", timing, protocols={"MFC": small, "UFC": small, "FRAG": {"frag_size": 1500}}
    )
    world.deliver()
    number = wire.PROTOCOL_BY_NAME[protocol]
    world["B"].receive(Liar(world, "C").says(wire.CREDIT_REQ, number, 1 << 50))
    world.deliver()
    payloads = [b"%08d" % n + bytes(992) for n in range(50)]
    if protocol == "MFC":
        world.multicast("C", *payloads)
    else:
        world["C"].send(*payloads, to="B")
    world.advance(3 * world.settings.of(protocol).max_block_time)
    assert world.got("B", "C") == payloads


# -- Bombs ----------------------------------------------------------------------------------------


def piece(liar: Liar, lo: int, header: tuple[int, int, int, int], size: int, flags: int) -> bytes:
    """One piece of a message: its id, its index, of how many, of how many bytes in all."""
    return liar.sends(lo, bytes(size), flags=FRAGMENT | flags, header=HEADER.pack(*header))


@on_both_stacks
def test_messages_that_are_never_finished_are_bounded_and_freed(stack: str) -> None:
    """C begins hundreds of messages of up to a terabyte and finishes none, in order and out of
    order: what is kept stays within the limits, and is freed when C is excluded."""
    limits = {
        "frag_size": 1000,
        "max_message_size": 50_000,
        "max_open_bytes": 100_000,
        "max_open_messages": 16,
    }
    world = GroupWorld("ABC", stack, protocols={"FRAG": limits})
    liar = Liar(world, "C")
    for lo in range(1, 601):
        turn = lo // 6
        header = [
            (lo, 0, 50, 50_000),
            (lo, 0, 2, 1 << 40),
            (lo, 3, 2, 2000),
            (lo, 0, 0, 0),
            (1, lo % 40, 50 - turn // 2 % 2, 50_000),
            (lo, 0, 49_002, 50_000),
        ][lo % 6]
        world["B"].receive(piece(liar, lo, header, 1000, OOB if turn % 2 else 0))
        if lo % 100 == 0:
            # One regular message, and OOB ones.
            assert open_bytes(world["B"]) <= 50_000 + 50 * 128 + 100_000
    world.deliver()
    counted = world["B"].refused
    for reason in ("total", "index", "size", "inconsistent"):
        assert counted[f"fragment-{reason}"] > 0, counted
    # The second piece of most is another message: they can never be whole, and make room.
    assert sum_of(world["B"], "given_up") > 50
    assert open_bytes(world["B"]) > 1_000
    assert world.got("B", "C") == []
    world.multicast("A", bytes(20_000))
    world.settle()
    assert world.got("B", "A") == [bytes(20_000)]
    world.install("AB")
    assert open_bytes(world["B"]) == 0


def open_bytes(member: Member) -> int:
    """What a member keeps of unfinished messages."""
    return sum_of(member, "open_bytes")


def sum_of(member: Member, name: str) -> int:
    """What a member has under a name, anywhere."""
    picture = pictured(member)
    return sum(int(picture[at]) for at in picture if at.endswith(f".{name}"))


# -- Anything a stranger may say --------------------------------------------------------------


def babble(world: GroupWorld, liar: Liar, dice: Random) -> bytes:
    """Any kind, any protocol, any numbers, and a body that means something somewhere."""
    view = View(ViewId(dice.choice((0, 1, 2, 5, 1 << 40, FAR)), liar.address), (liar.address,))
    mine = View(view.id, (*(member.address for member in world), liar.address))
    digest = Digest({dice.choice((world.short("A"), liar.address.short)): (0, FAR)})
    merge = MergeId(dice.choice((liar.address, world["A"].address)), dice.randrange(3))
    body = dice.choice((
        b"", bytes(8), pack_address(liar.address), pack_address(world["A"].address),
        pack_view(view), pack_view(mine), pack_view_id(view.id), pack_merge_id(merge),
        pack_join_answer(mine, digest), pack_merge_answer(MergeAnswer(merge, False, mine, digest)),
        pack_merge_view(mine, MergePart(merge, digest, frozenset())),
        Writer().view_id(view.id).digest(digest).bytes(),
        Writer().address(liar.address).view_id(view.id).bytes(),
        Writer().view(mine).bytes(), Writer().addresses(mine.members).bytes(),
        Writer().address(liar.address).u8(3).address(liar.address).bytes(),
    ))  # fmt: skip  # one lie after the other
    # But a wish to be let in: whoever has that is no stranger for long.
    kind = dice.choice([kind for kind in wire.KINDS if kind != wire.JOIN_REQ])
    numbers = (0, 1, 2, 5, 6, 1000, 1 << 31, FAR, (1 << 64) - 1)
    protocol = dice.choice((*wire.PROTOCOLS, 99))
    to = dice.choice(("A", "B", "C", ""))
    return liar.says(
        kind,
        protocol,
        dice.choice(numbers),
        body=body,
        to=to,
        conn=dice.choice(numbers) & 0xFFFFFFFF,
        mark=dice.choice(numbers),
        stamp=dice.choice(numbers) & 0xFFFFFFFF,
        flags=dice.randrange(256),
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@everywhere
def test_whatever_a_stranger_says_members_go_on_together(
    stack: str, timing: str, seed: int
) -> None:
    """Hundreds of frames of X at each member, while all speak: no view changes, nothing is lost,
    and afterwards the group works as before."""
    world = Besieged(stack, timing)
    liar, dice = Liar(world), Random(seed)
    for _turn in range(20):
        for _frame in range(30):
            world["ABC"[dice.randrange(3)]].receive(babble(world, liar, dice))
        world.speak()
        world.advance(0.2)
    world.settle()
    world.assert_heard(1)
    assert [world.sizes(name) for name in "ABC"] == [[3]] * 3
    world.advance(3 * world.settings.of("GMS").merge_timeout)
    world.works()
