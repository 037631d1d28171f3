"""A run told by hand: who recorded what, when. Ends in the blocks of its traces."""

from __future__ import annotations

import json
from typing import Any, Final, Self, TypedDict, Unpack

from xxhash import xxh3_64_intdigest

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.model import DONT_LOOPBACK, FRAGMENT, NO_FC, OOB
from stormcast.node.trace.tracer import Tracer

IDS: Final = {"n0": 0xA0, "n1": 0xA1, "n1-2": 0xB1, "n2": 0xA2, "n3": 0xA3, "ghost": 0xEE}
"""Short ids; `n1-2` is the second incarnation of n1."""
BYTES: Final = 10
"""Bytes of a message."""


class Detail(TypedDict, total=False):
    """What is unusual about a batch."""

    conn: int
    oob: bool
    muted: bool
    """Not to be delivered to its own sender (DONT_LOOPBACK)."""
    free: bool
    """Spends no credits (NO_FC)."""
    size: int
    digest: int
    trim: int
    stream: int
    view: int
    number: int
    """Of the first message, as its application counts them; a trace of version 2 says so."""
    piece: bool
    """Of a message above `frag_size`."""


Protocols = dict[str, dict[str, Any]]
"""Settings of the protocols of a group, by name."""


class Fields(TypedDict, total=False):
    """What an event may say."""

    stream: int
    conn: int
    epoch: int
    view: int
    count: int
    lo: int
    hi: int
    size: int
    flags: int
    digest: int
    text: str


def digest_of(*what: object) -> int:
    """The digest of a batch is a function of what it is."""
    return xxh3_64_intdigest(repr(what).encode())


def as_version_1(block: bytes) -> bytes:
    """The same events in a block of version 1, as it was written before both ends were told."""
    check_at = trace.HEADER.size - 8
    front = block[:4] + (1).to_bytes(2, "little") + block[6:check_at]
    body = block[trace.HEADER.size :]
    return front + xxh3_64_intdigest(front + body).to_bytes(8, "little") + body


class Story:
    """Verbs that append one event each, at the time last said; members start when first heard of.

    `n0` speaks to `n1` on connection 1, and `n1` listens in window 1, unless it says otherwise.
    Members promise the bounds they are given, and nothing else.

    Traces are of version 1, which says what windows did; with `both_ends` they are of the newest,
    and what applications offered and were handed must be told, too.
    """

    def __init__(
        self,
        protocols: Protocols | None = None,
        *,
        both_ends: bool = False,
        **bounds: float | None,
    ) -> None:
        self.both_ends = both_ends
        self.bounds = bounds
        self.protocols = protocols
        """Settings of the other protocols, where a member says what it has."""
        self.multicast = wire.NAKACK2
        self.now = 0.0
        self.has_ended = False
        self.traces: dict[str, bytes] = {}
        self._tracers: dict[str, Tracer] = {}
        self.rig = self._tracer("rig", 0)

    def at(self, time: float) -> Self:
        """What follows happens at this time."""
        self.now = time
        return self

    # -- The sender --------------------------------------------------------------------------

    def opens(self, who: str = "n0", to: str = "n1", *, conn: int = 1, why: str = "") -> Self:
        return self._conn(trace.SENDER_OPEN, who, to, conn, 0, why)

    def closes(self, who: str = "n0", to: str = "n1", *, conn: int = 1, why: str = "close") -> Self:
        return self._conn(trace.SENDER_CLOSING, who, to, conn, 0, why)

    def removes(
        self,
        who: str = "n0",
        to: str = "n1",
        *,
        conn: int = 1,
        why: str = "closed",
        unacked: int = 0,
        protocol: int = wire.UNICAST3,
    ) -> Self:
        return self._note(
            trace.CONN,
            who,
            to,
            protocol=protocol,
            stream=trace.SENDER_REMOVED,
            conn=conn,
            text=why,
            lo=unacked,
        )

    def sends(
        self, lo: int, hi: int = 0, who: str = "n0", to: str = "n1", **more: Unpack[Detail]
    ) -> Self:
        return self._batch(trace.SENT, who, to, lo, hi or lo, **more)

    def resends(
        self, lo: int, hi: int = 0, who: str = "n0", to: str = "n1", **more: Unpack[Detail]
    ) -> Self:
        more["stream"] = 1
        return self._batch(trace.RETRANSMITTED, who, to, lo, hi or lo, **more)

    def is_asked(
        self, lo: int, hi: int = 0, who: str = "n0", by: str = "n1", *, count: int = 0
    ) -> Self:
        """A request of a receiver comes, for all of these unicasts or for so many."""
        hi = hi or lo
        count = count or hi - lo + 1
        return self._note(trace.ANSWERED, who, by, conn=1, lo=lo, hi=hi, count=count)

    def purges(
        self, lo: int, hi: int = 0, who: str = "n0", to: str = "n1", *, conn: int = 1
    ) -> Self:
        hi = hi or lo
        return self._note(trace.PURGED, who, to, conn=conn, lo=lo, hi=hi, count=hi - lo + 1)

    # -- The receiver ------------------------------------------------------------------------

    def listens(
        self, who: str = "n1", to: str = "n0", *, conn: int = 1, epoch: int = 1, why: str = ""
    ) -> Self:
        return self._conn(trace.RECEIVER_OPEN, who, to, conn, epoch, why)

    def forgets(
        self, who: str = "n1", to: str = "n0", *, conn: int = 1, epoch: int = 1, why: str = "forgot"
    ) -> Self:
        return self._conn(trace.RECEIVER_REMOVED, who, to, conn, epoch, why)

    def delivers(
        self,
        lo: int,
        hi: int = 0,
        who: str = "n1",
        of: str = "n0",
        *,
        epoch: int = 1,
        part_of: tuple[int, int] | None = None,
        **more: Unpack[Detail],
    ) -> Self:
        """A batch, or with `part_of=(lo, hi)` the part of one that was new."""
        if part_of is not None:
            more.setdefault("digest", self.digest(of, who, *part_of, conn=more.get("conn", 1)))
            more["stream"] = trace.PARTIAL
        return self._batch(trace.DELIVERED, who, of, lo, hi or lo, epoch=epoch, **more)

    def acks(
        self, upto: int, who: str = "n1", to: str = "n0", *, conn: int = 1, epoch: int = 1
    ) -> Self:
        return self._note(trace.ACKED, who, to, conn=conn, epoch=epoch, lo=upto)

    def requests(
        self, lo: int, hi: int = 0, count: int = 0, who: str = "n1", to: str = "n0", epoch: int = 1
    ) -> Self:
        hi = hi or lo
        count = count or hi - lo + 1
        return self._note(trace.REQUESTED, who, to, conn=1, epoch=epoch, lo=lo, hi=hi, count=count)

    def syncs(self, who: str = "n1", to: str = "n0", *, conn: int = 1) -> Self:
        return self._note(trace.SYNC, who, to, conn=conn, lo=1)

    def skips(
        self,
        upto: int,
        who: str = "n1",
        to: str = "n0",
        *,
        epoch: int = 1,
        text: str = "the sender no longer has them",
    ) -> Self:
        return self._note(trace.SKIPPED, who, to, conn=1, epoch=epoch, hi=upto, count=1, text=text)

    def gauges(
        self, metric: int, value: int, bound: int, who: str = "n1", peer: str = "n0"
    ) -> Self:
        return self._note(trace.GAUGE, who, peer, stream=metric, lo=value, hi=bound)

    def stops(self, who: str) -> Self:
        return self._note(trace.STOP, who, None)

    # -- The applications --------------------------------------------------------------------

    def offers(self, lo: int, hi: int = 0, who: str = "n0", to: str = "n1") -> Self:
        """Have messages accepted: the application's number `lo` to `hi` for a destination."""
        hi = hi or lo
        return self._app(trace.OFFERED, who, to, count=hi - lo + 1, lo=lo, hi=hi)

    def cuts(
        self, number: int, pieces: int, who: str = "n0", to: str = "n1", *, size: int = 100
    ) -> Self:
        """Cut a message into pieces."""
        digest = digest_of("large", who, number)
        return self._app(
            trace.CUT, who, to, count=pieces, lo=number, hi=number, size=size, digest=digest
        )

    def is_given(
        self, lo: int, hi: int = 0, who: str = "n1", of: str = "n0", *, conn: int = 1
    ) -> Self:
        """The application is handed what was delivered."""
        hi = hi or lo
        return self._app(
            trace.HANDED,
            who,
            of,
            protocol=wire.UNICAST3,
            conn=conn,
            count=hi - lo + 1,
            lo=lo,
            hi=hi,
        )

    def is_given_unnumbered(self, who: str = "n1", of: str = "n0") -> Self:
        return self._app(trace.HANDED, who, of, count=1, lo=1, hi=1)

    def is_given_cast(self, lo: int, hi: int = 0, who: str = "n1", of: str = "n0") -> Self:
        hi = hi or lo
        return self._app(
            trace.HANDED, who, of, protocol=self.multicast, count=hi - lo + 1, lo=lo, hi=hi
        )

    def is_given_whole(
        self,
        number: int,
        lo: int,
        hi: int,
        who: str = "n1",
        of: str = "n0",
        *,
        size: int = 100,
        digest: int | None = None,
        conn: int = 1,
    ) -> Self:
        """The application is handed a message that came in pieces."""
        digest = digest_of("large", of, number) if digest is None else digest
        return self._app(
            trace.HANDED,
            who,
            of,
            protocol=wire.UNICAST3,
            stream=trace.JOINED,
            conn=conn,
            count=1,
            lo=lo,
            hi=hi,
            size=size,
            digest=digest,
        )

    def is_given_whole_cast(self, lo: int, hi: int, who: str = "n1", of: str = "n0") -> Self:
        """The application is handed a multicast that came in pieces."""
        return self._app(
            trace.HANDED,
            who,
            of,
            protocol=self.multicast,
            stream=trace.JOINED,
            count=1,
            lo=lo,
            hi=hi,
            size=100,
            digest=digest_of("large", of, 1),
        )

    def gives_up(
        self, lo: int, hi: int = 0, who: str = "n0", to: str = "n1", *, why: str = "forgot"
    ) -> Self:
        """Tell the application that seqnos of a connection were given up."""
        hi = hi or lo
        return self._note(
            trace.ABANDONED, who, to, conn=1, count=hi - lo + 1, lo=lo, hi=hi, text=why
        )

    def gives_up_casts(self, lo: int, hi: int = 0, who: str = "n0", *, why: str = "stop") -> Self:
        """Tell the application that multicasts were given up."""
        hi = hi or lo
        return self._group_note(
            trace.ABANDONED, who, None, count=hi - lo + 1, lo=lo, hi=hi, text=why
        )

    def throws_away(
        self,
        lo: int,
        hi: int = 0,
        who: str = "n0",
        to: str = "n1",
        *,
        why: str = "connection-closed",
    ) -> Self:
        """Tell the application that messages that waited were given up."""
        hi = hi or lo
        return self._app(trace.ABANDONED, who, to, count=hi - lo + 1, lo=lo, hi=hi, text=why)

    def _app(
        self, kind: int, who: str, peer: str, *, protocol: int = wire.NONE, **more: Unpack[Fields]
    ) -> Self:
        return self._note(kind, who, peer or None, protocol=protocol, **more)

    # -- Credits -----------------------------------------------------------------------------

    def lets(
        self, limit: int, taken: int, who: str = "n1", to: str = "n0", *, flow: int = wire.UFC
    ) -> Self:
        """Name a limit."""
        return self._note(
            trace.CREDIT, who, to, protocol=flow, stream=trace.NAMED, hi=limit, size=taken
        )

    def believes(
        self, limit: int, sent: int, who: str = "n0", of: str = "n1", *, flow: int = wire.UFC
    ) -> Self:
        """Hear of a limit."""
        return self._note(
            trace.CREDIT, who, of, protocol=flow, stream=trace.BELIEVED, hi=limit, size=sent
        )

    def wants(
        self,
        sent: int,
        seqno: int,
        who: str = "n0",
        of: str = "n1",
        *,
        conn: int = 1,
        unacked: int = 0,
        limit: int = 1000,
    ) -> Self:
        """Ask for a limit."""
        return self._note(
            trace.CREDIT,
            who,
            of,
            protocol=wire.UFC,
            stream=trace.ASKED,
            conn=conn,
            count=unacked,
            lo=seqno,
            hi=limit,
            size=sent,
        )

    # -- Messages without a number, and to self ------------------------------------------------

    def shouts(self, what: str, who: str = "n0", to: str = "n1", *, number: int = 0) -> Self:
        """Send without a number or repair (NO_RELIABILITY)."""
        self._of(to)
        self._of(who).records.append(
            (trace.SENT, 0, wire.NONE, 0, IDS[to], 0, 0, 0, 1, 0, 0, 0, digest_of(what), number,
             0, self.now)
        )  # fmt: skip  # a record's columns
        return self

    def hears(self, what: str, who: str = "n1", of: str = "n0") -> Self:
        digest = digest_of(what)
        return self._note(trace.DELIVERED, who, of, protocol=wire.NONE, count=1, digest=digest)

    # -- The group ---------------------------------------------------------------------------

    def installs(
        self, number: int, *members: str, who: str = "", by: str = "", merge: bool = False
    ) -> Self:
        """`who` (all of the members, if nobody is named) installs a view made by the first."""
        shorts = ",".join(f"{IDS[member]:08x}" for member in members)
        for each in [who] if who else members:
            self._note(
                trace.VIEW,
                each,
                by or members[0],
                protocol=0,
                stream=int(merge),
                count=len(members),
                lo=number,
                text=shorts,
            )
        return self

    def installs_in_words(self, number: int, members: str, *, who: str) -> Self:
        """Install a view with this text in place of its members."""
        return self._note(trace.VIEW, who, who, protocol=0, count=2, lo=number, text=members)

    def watches(
        self,
        who: str,
        of: str,
        *,
        after: int = 0,
        epoch: int = 1,
        why: str = "view",
        view: int = 0,
    ) -> Self:
        """Open a window on somebody's multicasts."""
        return self._group_note(
            trace.CONN,
            who,
            of,
            stream=trace.RECEIVER_OPEN,
            epoch=epoch,
            lo=after,
            text=why,
            view=view,
        )

    def unwatches(
        self, who: str, of: str, *, at: int = 0, epoch: int = 1, why: str = "view"
    ) -> Self:
        return self._group_note(
            trace.CONN, who, of, stream=trace.RECEIVER_REMOVED, epoch=epoch, lo=at, text=why
        )

    def casts(self, lo: int, hi: int = 0, who: str = "n0", **more: Unpack[Detail]) -> Self:
        """Multicast a batch, and deliver it to oneself at once."""
        self._cast(trace.SENT, who, "", lo, hi or lo, **more)
        if not more.get("muted"):
            self._cast(trace.DELIVERED, who, who, lo, hi or lo, **more)
        return self

    def casts_mutely(self, lo: int, hi: int = 0, who: str = "n0") -> Self:
        """Multicast a batch; its own delivery is told apart, or never."""
        return self._cast(trace.SENT, who, "", lo, hi or lo)

    def hears_itself(self, lo: int, hi: int = 0, who: str = "n0") -> Self:
        return self._cast(trace.DELIVERED, who, who, lo, hi or lo)

    def shouts_to_all(self, what: str, who: str = "n0") -> Self:
        """Multicast without a number or repair."""
        return self._note(
            trace.SENT, who, None, protocol=wire.NONE, count=1, digest=digest_of(what)
        )

    def is_handed(self, number: int, *members: str, who: str, digits: int = 8) -> Self:
        """A view in place of a membership protocol: nobody made it."""
        shorts = ",".join(f"{IDS[member]:0{digits}x}" for member in members)
        return self._note(trace.VIEW, who, None, protocol=0, lo=number, text=shorts)

    def recasts(self, lo: int, hi: int = 0, who: str = "n0", to: str = "", *, of: str = "") -> Self:
        """Multicast again, to all or to who asked; `of` somebody else whose messages they are."""
        hi = hi or lo
        return self._cast(trace.RETRANSMITTED, who, to, lo, hi, stream=1, conn=IDS[of] if of else 0)

    def is_asked_for_casts(
        self, lo: int, hi: int = 0, who: str = "n0", by: str = "n1", *, count: int = 0
    ) -> Self:
        """A request of a receiver comes, for all of these multicasts or for so many."""
        hi = hi or lo
        count = count or hi - lo + 1
        return self._group_note(trace.ANSWERED, who, by, lo=lo, hi=hi, count=count)

    def takes(
        self,
        lo: int,
        hi: int = 0,
        who: str = "n1",
        of: str = "n0",
        *,
        epoch: int = 1,
        part_of: tuple[int, int] | None = None,
        **more: Unpack[Detail],
    ) -> Self:
        """Deliver multicasts of another."""
        if part_of is not None:
            more.setdefault("digest", self.digest(of, "", *part_of, conn=0))
            more["stream"] = trace.PARTIAL
        return self._cast(trace.DELIVERED, who, of, lo, hi or lo, epoch=epoch, **more)

    def drops(self, lo: int, hi: int = 0, who: str = "n0", *, view: int = 0) -> Self:
        """Purge one's own multicasts."""
        hi = hi or lo
        return self._group_note(trace.PURGED, who, None, lo=lo, hi=hi, count=hi - lo + 1, view=view)

    def asks(
        self,
        lo: int,
        hi: int = 0,
        who: str = "n1",
        of: str = "n0",
        *,
        epoch: int = 1,
        joining: bool = False,
        count: int = 0,
    ) -> Self:
        """Request multicasts again."""
        hi = hi or lo
        return self._group_note(
            trace.REQUESTED,
            who,
            of,
            epoch=epoch,
            lo=lo,
            hi=hi,
            count=count or hi - lo + 1,
            stream=trace.JOINING if joining else trace.REPAIR,
        )

    def confirms(self, upto: int, who: str = "n1", of: str = "n0", *, epoch: int = 1) -> Self:
        """Ack multicasts."""
        return self._group_note(trace.ACKED, who, of, epoch=epoch, lo=upto)

    def convicts(self, of: str, who: str = "n0") -> Self:
        """Confirm a member to be dead: it was asked, and did not answer."""
        return self._note(trace.SUSPECT, who, of, protocol=0, stream=trace.CONFIRMED)

    def acquits(self, of: str, who: str = "n0") -> Self:
        """Clear a suspect: it was heard, or another member says that it lives."""
        return self._note(trace.SUSPECT, who, of, protocol=0, stream=trace.CLEARED)

    def refuses(self, reason: str, who: str = "n1") -> Self:
        """Refuse something, for this reason."""
        return self._note(trace.DROPPED, who, None, protocol=0, count=1, text=reason)

    def freezes(self, who: str = "n1") -> Self:
        """Send no acks from now on: a digest is in use."""
        return self._group_note(trace.FREEZE, who, None, lo=1)

    def thaws(self, who: str = "n1") -> Self:
        """Ack again."""
        return self._group_note(trace.FREEZE, who, None)

    def misses(
        self, upto: int, who: str = "n1", of: str = "n0", *, epoch: int = 1, meant: bool = True
    ) -> Self:
        """Give multicasts up that the sender no longer has, or never meant for this member."""
        text = "lost from this sender" if meant else "not for this member: sent before"
        return self._group_note(trace.SKIPPED, who, of, epoch=epoch, hi=upto, count=1, text=text)

    def announces(self, seqno: int, who: str = "n0") -> Self:
        return self._group_note(trace.SYNC, who, None, lo=seqno)

    def inquires(
        self, who: str = "n1", of: str = "n0", *, question: int = 1, epoch: int = 1
    ) -> Self:
        """Ask a sender what there is, to complete a window; epoch 0: out of doubt."""
        return self._group_note(trace.SYNC, who, of, conn=question, epoch=epoch, lo=0)

    def alarms(
        self,
        lo: int,
        hi: int = 0,
        who: str = "n1",
        of: str = "n0",
        *,
        epoch: int = 0,
        text: str = "a gap stands",
    ) -> Self:
        return self._group_note(trace.ALARM, who, of, lo=lo, hi=hi or lo, epoch=epoch, text=text)

    def fills(
        self, metric: int, value: int, bound: int, who: str = "n1", of: str | None = "n0"
    ) -> Self:
        """The gauge of a multicast window."""
        return self._group_note(trace.GAUGE, who, of, stream=metric, lo=value, hi=bound)

    def blocks(self, who: str = "n0", to: str | None = None) -> Self:
        return self._note(trace.BLOCKED, who, to, protocol=0, count=1)

    def a_group(self, *members: str, at: float = 0.5, number: int = 1) -> Self:
        """These members are in one view, and watch each other from the start."""
        names = members or ("n0", "n1", "n2")
        self.at(at)
        for epoch, of in enumerate(names, 1):
            for who in names:
                if who != of:
                    self.watches(who, of, epoch=epoch)
        return self.installs(number, *names)

    def a_clean_cast(self, lo: int = 1, hi: int = 5, at: float = 1.0) -> Self:
        """n0 multicasts a batch, n1 and n2 deliver it, n0 drops it."""
        self.at(at).casts(lo, hi).at(at + 0.1).takes(lo, hi).takes(lo, hi, "n2")
        return self.at(at + 0.2).drops(lo, hi)

    def _cast(
        self,
        kind: int,
        who: str,
        peer: str,
        lo: int,
        hi: int,
        *,
        epoch: int = 0,
        **more: Unpack[Detail],
    ) -> Self:
        sender = peer if kind == trace.DELIVERED else who
        count = hi - lo + 1
        size, digest = more.get("size"), more.get("digest")
        if digest is None:
            digest = self.digest(sender, "", lo, hi, conn=0)
        size = count * BYTES if size is None else size
        flags = OOB * more.get("oob", False) | DONT_LOOPBACK * more.get("muted", False)
        flags |= FRAGMENT * more.get("piece", False)
        trim = more.get("number" if kind == trace.SENT else "trim", 0)
        self._of(who).records.append(
            (kind, flags, self.multicast, more.get("stream", 0), IDS[peer] if peer else 0,
             more.get("conn", 0), epoch, more.get("view", 0), count, lo, hi, size, digest, trim,
             0, self.now)
        )  # fmt: skip  # a record's columns
        return self

    def _group_note(self, kind: int, who: str, peer: str | None, **more: Unpack[Fields]) -> Self:
        return self._note(kind, who, peer, protocol=self.multicast, **more)

    # -- The rig -----------------------------------------------------------------------------

    def fault(
        self, do: str, phase: str = "on", member: str = "", name: str = "f1", **more: object
    ) -> Self:
        """Something the rig does, to a member or to the network."""
        text: dict[str, Any] = {"id": name, "do": do, "phase": phase, **more}
        if member:
            self._of(member)
            text["member"] = IDS[member]
        self.rig.record(trace.FAULT, self.now, text=json.dumps(text))
        return self

    def exits(self, who: str = "n1", *, ordered: bool = False, **more: object) -> Self:
        """The end of a member's process; by signal 9, unless it is said how."""
        self._of(who)
        name, _, number = who.partition("-")
        text: dict[str, Any] = {"name": name, "incarnation": int(number or 1), "ordered": ordered}
        text |= {"member": IDS[who], **(more or {"signal": 9})}
        self.rig.record(trace.EXIT, self.now, text=json.dumps(text))
        return self

    def overhears(
        self, lo: int, hi: int = 0, who: str = "n0", to: str = "n1", **more: Unpack[Detail]
    ) -> Self:
        """A stranger takes what it hears for a batch, as the sender packed it unless it is said
        otherwise; `to` nobody is a multicast."""
        hi, conn = hi or lo, more.get("conn", 1 if to else 0)
        digest = more.get("digest", self.digest(who, to, lo, hi, conn=conn))
        protocol = wire.UNICAST3 if to else self.multicast
        self.rig.record(
            trace.OVERHEARD,
            self.now,
            protocol=protocol,
            peer=IDS[who],
            conn=conn,
            count=hi - lo + 1,
            lo=lo,
            hi=hi,
            size=(hi - lo + 1) * BYTES,
            digest=digest,
        )
        return self

    def bites(self, bit: int, name: str = "f1", do: str = "loss") -> Self:
        text = json.dumps({"id": name, "do": do, "bit": bit})
        self.rig.record(trace.PROBE, self.now, text=text)
        return self

    def begins(self, time: float) -> Self:
        self.at(time).rig.record(trace.PHASE, time, text="begin")
        return self

    def quiet(self, time: float) -> Self:
        self.at(time).rig.record(trace.PHASE, time, text="quiet")
        return self

    def ends(self, time: float) -> Self:
        self.at(time).rig.record(trace.PHASE, time, text="end")
        self.has_ended = True
        return self

    # -- The whole ---------------------------------------------------------------------------

    def a_clean_exchange(self, lo: int = 1, hi: int = 5, at: float = 1.0) -> Self:
        """n0 sends one batch; n1 delivers and acks it; n0 purges it."""
        if lo == 1:
            self.at(at).opens()
        self.at(at).sends(lo, hi).at(at + 0.1)
        if lo == 1:
            self.listens()
        return self.delivers(lo, hi).acks(hi).at(at + 0.2).purges(lo, hi)

    def told(self) -> dict[str, bytes]:
        """The traces of the run, which ends in quiet if nothing else was said."""
        if not self.has_ended:
            self.quiet(10.0).ends(20.0)
        for tracer in self._tracers.values():
            tracer.seal()
        return self.traces

    @staticmethod
    def digest(sender: str, receiver: str, lo: int, hi: int, *, conn: int = 1) -> int:
        """The digest of a batch, unless its SENT says otherwise."""
        return digest_of(sender, receiver, conn, lo, hi)

    def _batch(
        self,
        kind: int,
        who: str,
        peer: str,
        lo: int,
        hi: int,
        *,
        conn: int = 1,
        epoch: int = 0,
        stream: int = 0,
        oob: bool = False,
        muted: bool = False,
        free: bool = False,
        size: int | None = None,
        digest: int | None = None,
        trim: int = 0,
        number: int = 0,
        piece: bool = False,
    ) -> Self:
        if digest is None:
            sender, receiver = (peer, who) if kind == trace.DELIVERED else (who, peer)
            digest = self.digest(sender, receiver, lo, hi, conn=conn)
        count = hi - lo + 1
        flags = OOB * oob | DONT_LOOPBACK * muted | FRAGMENT * piece | NO_FC * free
        size = count * BYTES if size is None else size
        self._of(peer)
        self._of(who).records.append(
            (kind, flags, wire.UNICAST3, stream, IDS[peer], conn, epoch, 0,
             count, lo, hi, size, digest, number or trim, 0, self.now)
        )  # fmt: skip  # a record's columns
        return self

    def _conn(self, stream: int, who: str, peer: str, conn: int, epoch: int, why: str) -> Self:
        return self._note(trace.CONN, who, peer, stream=stream, conn=conn, epoch=epoch, text=why)

    def _note(
        self,
        kind: int,
        who: str,
        peer: str | None,
        *,
        protocol: int = wire.UNICAST3,
        **more: Unpack[Fields],
    ) -> Self:
        if peer is not None:
            self._of(peer)
        short = IDS[peer] if peer else 0
        self._of(who).record(kind, self.now, protocol=protocol, peer=short, **more)
        return self

    def _of(self, who: str) -> Tracer:
        if who == "ghost":
            # Somebody that is spoken of and leaves no trace.
            return Tracer(IDS[who], 0, xxh3_64_intdigest, lambda _block: None)
        tracer = self._tracers.get(who)
        if tracer is None:
            tracer = self._tracer(who, IDS[who])
            told: dict[str, Any] = {"protocol": "UNICAST3", "bounds": self.bounds}
            if self.protocols is not None:
                told["protocols"] = self.protocols
            settings = json.dumps(told)
            name = who.partition("-")[0]
            tracer.record(trace.START, self.now, text=f"{name} {IDS[who]:032x} {settings}")
        return tracer

    def _tracer(self, label: str, short: int) -> Tracer:
        blocks = self.traces
        blocks[label] = b""

        def sink(block: bytes) -> None:
            blocks[label] += block if self.both_ends else as_version_1(block)

        tracer = self._tracers[label] = Tracer(short, 0, xxh3_64_intdigest, sink)
        return tracer
