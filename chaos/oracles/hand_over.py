"""G1 to G4 between windows and applications: deliveries are handed over, once, whole, in order.

Messages in pieces are joined between the two, and handed over where their last piece was delivered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from stormcast.chaos.oracles.application import SAYS_BOTH_ENDS, Incoming, Large
from stormcast.chaos.oracles.coverage import between, spans
from stormcast.chaos.oracles.groups import MULTICAST
from stormcast.chaos.oracles.history import Member, Violation
from stormcast.node.core.model import DONT_LOOPBACK, FRAGMENT
from stormcast.node.core.wire import GROUP
from stormcast.node.trace import DELIVERED, HANDED, JOINED, Event

if TYPE_CHECKING:
    from stormcast.chaos.oracles.evidence import Evidence


UNSAID_SECONDS: Final = 0.5
"""Seconds before the end of a run in which a hand-over may go unsaid: a member writes it within a
quarter of a second, and a turn may be late. A member that is killed does not write it at all."""


NEVER_HANDED: Final = "%d was delivered, and the application was never handed it"
DROPPED_BY_VIEW: Final = "view"
"""The reason with which a window is removed because its sender is in the view no more."""


class Breach(NamedTuple):
    """A wrong hand-over, and the guarantee that it breaks."""

    guarantee: str
    violation: Violation


def found_in(evidence: Evidence, guarantee: str) -> Iterator[Violation]:
    """Yield the breaches of one guarantee between windows and applications."""
    for breach in evidence.hand_over_breaches:
        if breach.guarantee == guarantee:
            yield breach.violation


def breaches(evidence: Evidence) -> Iterator[Breach]:
    """Yield all breaches between windows and applications."""
    yield from _handed_otherwise(evidence)
    yield from _joined_otherwise(evidence)
    yield from never_joined(evidence, evidence.rig.end - UNSAID_SECONDS)


def _handed_otherwise(evidence: Evidence) -> Iterator[Breach]:
    """Deliveries that were not handed over, or in another order or form than delivered."""
    said_until = evidence.rig.end - UNSAID_SECONDS
    for incoming in evidence.application.incoming.values():
        if incoming.receiver.version < SAYS_BOTH_ENDS:
            continue
        for breach in Walk(incoming, said_until).breaches():
            yield breach
            if breach.guarantee != "G1":
                yield from _lost_beside(incoming, said_until)


class Walk:
    """Walks along deliveries and hand-overs: both must have each message once and in the same
    order, a message in pieces where its last piece was delivered."""

    def __init__(self, incoming: Incoming, said_until: float) -> None:
        self._incoming = incoming
        self._said_until = said_until
        """Deliveries after this time may have been handed over without an event that says so."""
        self._receiver = incoming.receiver
        self._waiting: deque[Event] = deque()
        """Deliveries that are not handed over yet."""
        self._pieces: set[int] = set()
        """The seqnos of the pieces of messages that were not joined yet."""
        self._joined: dict[int, Event] = {}
        """Messages that were joined, by the seqno of their first piece."""
        self._reached = 0
        """The last seqno of the first waiting delivery that was handed over; 0: none was."""

    def breaches(self) -> Iterator[Breach]:
        """Yield the first breach, if there is one: behind it no order can be compared."""
        for event in self._incoming.events:
            if event.kind == DELIVERED:
                self._waiting.append(event)
                continue
            step = self._step_joined if event.stream == JOINED else self._step
            breach = step(event)
            if breach is not None:
                yield breach
                return
        if self._receiver.lives:
            yield from self._left_over()

    def _first(self) -> Event | None:
        """Return the first waiting delivery that is no piece; pieces before it are set aside, to be
        joined."""
        waiting = self._waiting
        while waiting and waiting[0].flags & FRAGMENT:
            self._pieces.add(waiting.popleft().lo)
        return waiting[0] if waiting else None

    def _step(self, handed: Event) -> Breach | None:
        lo = handed.lo
        while lo <= handed.hi:
            first = self._first()
            if first is None:
                return self._undelivered(handed, lo)
            start, end = _span(first)
            expected = self._reached + 1 if self._reached else start
            if lo != expected:
                return self._out_of_order(handed, first, lo, expected)
            lo = min(end, handed.hi) + 1
            self._reached = lo - 1
            if self._reached == end:
                self._reached = 0
                self._waiting.popleft()
        return None

    def _undelivered(self, handed: Event, lo: int) -> Breach:
        """Return the breach by a hand-over for which no delivery waits: of the same seqno again, or
        of one that no window delivered."""
        earlier = takewhile(lambda event: event is not handed, self._incoming.events)
        for event in earlier:
            if event.kind == HANDED and event.stream != JOINED and event.lo <= lo <= event.hi:
                what = f"{lo} was handed over for the second time"
                return self._breach("G2", handed.time, what, event, handed)
        what = f"{lo}..{handed.hi} were handed over and not delivered"
        return self._breach("G4", handed.time, what, handed)

    def _step_joined(self, handed: Event) -> Breach | None:
        waiting = self._waiting
        wanted = range(handed.lo, handed.hi + 1)
        missing = {seqno for seqno in wanted if seqno not in self._pieces}
        if not missing:
            # Its last piece was passed by: something that was delivered later came before it.
            return self._joined_wrongly(handed)
        while missing:
            if not waiting or not waiting[0].flags & FRAGMENT:
                return self._joined_wrongly(handed)
            piece = waiting.popleft().lo
            self._pieces.add(piece)
            missing.discard(piece)
        self._pieces.difference_update(wanted)
        self._joined[handed.lo] = handed
        return None

    def _joined_wrongly(self, handed: Event) -> Breach:
        what = f"the message of {handed.lo}..{handed.hi} was handed over"
        before = self._joined.get(handed.lo)
        if before is not None:
            return self._breach("G2", handed.time, f"{what} twice", before, handed)
        return self._breach("G3", handed.time, f"{what} when it was not its turn", handed)

    def _out_of_order(self, handed: Event, first: Event, lo: int, expected: int) -> Breach:
        """Return the breach by a hand-over whose first seqno is not the expected one."""
        what = f"{lo} was handed over when {expected} was next"
        if lo < expected:
            return self._breach("G2", handed.time, f"{what}: for the second time", first, handed)
        later = (each for each in self._incoming.events if each.kind == HANDED)
        if any(each.lo <= expected <= each.hi for each in later):
            return self._breach("G3", handed.time, what, first, handed)
        return self._breach("G1", first.time, NEVER_HANDED % expected, first, handed)

    def _left_over(self) -> Iterator[Breach]:
        first = self._first()
        if first is not None and first.time <= self._said_until:
            lost = self._reached + 1 if self._reached else _span(first)[0]
            yield self._breach("G1", first.time, NEVER_HANDED % lost, first)

    def _breach(self, guarantee: str, time: float, what: str, *events: Event) -> Breach:
        witness = tuple((self._receiver, event) for event in events)
        return Breach(guarantee, Violation(time, what, witness))


def _lost_beside(incoming: Incoming, said_until: float) -> Iterator[Breach]:
    """The first delivery that was never handed over, where hand-overs went wrong otherwise: seqnos
    are compared, whatever their order (G1). Messages without numbers cannot be."""
    receiver = incoming.receiver
    if not receiver.lives:
        return
    handed = spans(
        (event.lo, event.hi)
        for event in incoming.events
        if event.kind == HANDED and event.stream != JOINED
    )
    for event in incoming.events:
        if event.kind != DELIVERED or event.flags & FRAGMENT or not event.protocol:
            continue
        missing = next(between(event.lo, event.hi, handed), None)
        if missing is not None and event.time <= said_until:
            yield Breach(
                "G1", Violation(event.time, NEVER_HANDED % missing[0], ((receiver, event),))
            )
            return


def _span(delivered: Event) -> tuple[int, int]:
    """Return the first and last seqno of a delivery; a batch without seqnos counts from 1."""
    return (delivered.lo, delivered.hi) if delivered.protocol else (1, delivered.count)


# -- Messages in pieces --------------------------------------------------------------------------


def _joined_otherwise(evidence: Evidence) -> Iterator[Breach]:
    """Messages that were joined of pieces, and that nobody cut so: other bytes, a piece too few, or
    pieces of two messages (G4)."""
    index = evidence.application
    for (short, source, protocol, conn), incoming in index.incoming.items():
        sender = evidence.members.get(source)
        if sender is None or sender.version < SAYS_BOTH_ENDS:
            continue
        outgoing = index.outgoing.get((source, GROUP if protocol in MULTICAST else short))
        for lo, messages in incoming.joined.items():
            larges = outgoing.by_piece.get((protocol, conn, lo), []) if outgoing else []
            for joined in messages:
                if not any(_is_joined_as_cut(large, joined) for large in larges):
                    detail = f"a message of {lo}..{joined.hi} was joined otherwise than it was cut"
                    cut = [(sender, large.cut) for large in larges[-1:]]
                    witness = (*cut, (incoming.receiver, joined))
                    yield Breach("G4", Violation(joined.time, detail, witness))


def _is_joined_as_cut(large: Large, joined: Event) -> bool:
    cut = large.cut
    return (
        large.is_whole
        and (large.lo, large.hi) == (joined.lo, joined.hi)
        and (cut.bytes, cut.digest) == (joined.bytes, joined.digest)
    )


def never_joined(evidence: Evidence, said_until: float) -> Iterator[Breach]:
    """Yield messages whose pieces were all delivered by a time, and that were not handed over
    (G1)."""
    index = evidence.application
    for (short, dest), outgoing in index.outgoing.items():
        sender = outgoing.sender
        if sender.version < SAYS_BOTH_ENDS or not outgoing.cuts:
            continue
        for large in outgoing.large:
            if not large.is_whole:
                continue
            first = large.pieces[0]
            for receiver in _receivers(evidence, sender, dest, first):
                incoming = index.incoming.get((receiver.short, short, first.protocol, first.conn))
                if incoming is not None:
                    kept = _kept(evidence, sender, incoming, is_cast=dest == GROUP)
                    yield from _never_joined_at(large, sender, incoming, kept, said_until)


def _receivers(evidence: Evidence, sender: Member, dest: int, piece: Event) -> Iterator[Member]:
    for receiver in evidence.members.values():
        if receiver.version < SAYS_BOTH_ENDS or dest not in (GROUP, receiver.short):
            continue
        if receiver is sender and piece.flags & DONT_LOOPBACK:
            continue
        yield receiver


def _kept(
    evidence: Evidence, sender: Member, incoming: Incoming, *, is_cast: bool
) -> Iterator[dict[int, Event]]:
    """Yield the pieces, by seqno, that a member kept at one time: those of a connection outlive its
    windows; those of a stream outlive a window that is replaced, and go with a view that drops
    their sender."""
    pieces = incoming.pieces
    found: dict[int, Event] = {}
    if not is_cast:
        for each in pieces.values():
            found |= each
        yield found
        return
    windows = evidence.groups.stream(sender).windows_of(incoming.receiver)
    for window in windows:
        found |= pieces.get(window.number, {})
        if window.removed is not None and window.removed.text == DROPPED_BY_VIEW:
            yield found
            found = {}
    yield found
    named = {window.number for window in windows}
    yield from (each for number, each in pieces.items() if number not in named)


def _never_joined_at(
    large: Large,
    sender: Member,
    incoming: Incoming,
    kept: Iterator[dict[int, Event]],
    said_until: float,
) -> Iterator[Breach]:
    receiver, lo, hi = incoming.receiver, large.lo, large.hi
    if lo in incoming.joined or not receiver.lives:
        return
    pieces = next((one for one in kept if all(at in one for at in range(lo, hi + 1))), None)
    if pieces is None or max(pieces[at].time for at in range(lo, hi + 1)) > said_until:
        return
    detail = (
        f"all {hi - lo + 1} pieces of message {large.cut.lo} were delivered by "
        f"{receiver.name}, and its application was never handed it"
    )
    witness = ((sender, large.cut), (receiver, pieces[hi]))
    yield Breach("G1", Violation(large.cut.time, detail, witness))
