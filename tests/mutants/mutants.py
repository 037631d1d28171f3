"""Known protocol bugs, brought back one at a time: what the search must find.

A mutant is a class with one method changed, laid over whichever generation a scenario asks for.
None of this is reachable from the product. A mutant that no seed catches is a blind spot of the
generator or of an oracle: it stays, and stands in `BLIND` until that is mended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, TypeVar

from chaos.campaigns.generate import cell_of
from chaos.language.cluster import GENERATIONS
from node.core import wire
from node.core.gaps import Asked
from node.core.model import FIRST, Payload
from node.core.timing import Timing
from node.core.window import Piece, ReceiveWindow, SendWindow, Stored
from node.core.wire import Head
from node.protocols.port import Port
from node.protocols.unicast import Unicast, UnicastConfig
from node.protocols.unicast.entries import (
    Arrival,
    Batch,
    ReceiverEntry,
    SenderEntry,
    State,
)
from node.protocols.unicast.resync import Resync, Sync
from node.settings.protocols import RELIABLE_UNICAST

ALL: Final = GENERATIONS
ACKING: Final = ("UNICAST", "UNICAST3", "UNICAST3-SYNC", "UNICAST4")
"""Generations whose receivers ack; UNICAST2's report."""
ASKING: Final = ("UNICAST2", "UNICAST3", "UNICAST3-SYNC", "UNICAST4")
"""Generations whose receivers request what is missing."""
LAZY: Final = ("UNICAST3", "UNICAST3-SYNC", "UNICAST4")
"""Generations that ack late, resend only the newest message, and close slowly."""

MORE: Final = 1 << 40
"""Beyond every seqno, size and bound of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One known bug, and what is expected of the search that meets it."""

    name: str
    about: str
    source: str
    """The issue or the row of the unicast spec that describes it."""
    generations: tuple[str, ...]
    """Those in which it is a bug."""
    breaks: tuple[str, ...]
    """Guarantees of which at least one must be found broken."""
    bug: type[Unicast]

    @property
    def where(self) -> str:
        """What the table shows of it."""
        return "all" if self.generations == ALL else ", ".join(self.generations)

    def applies(self, seed: int) -> bool:
        """Whether a seed is of a generation that can have it."""
        return cell_of(seed)[0] in self.generations

    def alive(self) -> AbstractContextManager[None]:
        """Nothing is to be prepared: the bug is handed in."""
        return nullcontext()

    def make_unicast(
        self, config: UnicastConfig, timing: Timing, port: Port, first_conn: int
    ) -> Unicast:
        """The generation that a stack asks for, with this bug in it."""
        product = next(
            product for product in RELIABLE_UNICAST.values() if product.config_type is type(config)
        )
        return _mutated(self.bug, product)(config, timing, port, first_conn)


MUTANTS: Final[dict[str, Mutant]] = {}
Bug = TypeVar("Bug", bound=type[Unicast])


def mutant(
    source: str,
    breaks: tuple[str, ...],
    generations: tuple[str, ...] = ALL,
) -> Callable[[Bug], Bug]:
    """Register a bug under the name of its class, described by its docstring."""

    def register(bug: Bug) -> Bug:
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", bug.__name__).lower()
        MUTANTS[name] = Mutant(
            name=name,
            about=" ".join((bug.__doc__ or "").split()),
            source=source,
            generations=generations,
            breaks=breaks,
            bug=bug,
        )
        return bug

    return register


@cache
def _mutated(bug: type[Unicast], product: type[Unicast]) -> type[Unicast]:
    """The bug before the product in the order of resolution: its methods win."""
    return type(f"{bug.__name__}{product.__name__}", (bug, product), {})


# -- Acks and purges ------------------------------------------------------------------------------


@mutant("U-5", ("G1", "G6"))
class AcksHighestReceived(Unicast):
    """An ack reports the highest message received, beyond a gap."""

    def _ack_value(self, entry: ReceiverEntry) -> int:
        return entry.window.high


@mutant("D-12", ("G6",), ("UNICAST4",))
class AcksBeforeDelivery(Unicast):
    """A stalled receiver reports what it received, not what was consumed: no flow control."""

    def _ack_value(self, entry: ReceiverEntry) -> int:
        return entry.window.deliverable


@mutant("U-4", ("G1", "G6"))
class PurgesOneTooMany(Unicast):
    """The sender drops the first message after the acked one as well."""

    def _acked_by(self, entry: SenderEntry, head: Head) -> int:
        return min(super()._acked_by(entry, head) + 1, entry.window.high)


@mutant("JGRP-968, JGRP-1577", ("G1", "G6", "G7"))
class AcksOfAnyConnectionCount(Unicast):
    """An ack is believed whatever connection it names."""

    def _sender_for(self, head: Head, what: str) -> SenderEntry | None:
        entry = self._senders.get(head.source)
        if entry is not None and head.kind in {wire.ACK, wire.STABLE}:
            return entry
        return super()._sender_for(head, what)

    def _acked_by(self, entry: SenderEntry, head: Head) -> int:
        return min(head.lo, entry.window.high)


@mutant("JGRP-1873, JGRP-1875", ("G1", "G2", "G6", "L1"))
class StampsIgnored(Unicast):
    """A delayed ack purges what the answer to a newer SFS still needs."""

    def _is_stale(self, entry: SenderEntry, head: Head, what: str) -> bool:
        return False


@mutant("JGRP-1873, D-5", ("L1", "C1", "G5", "G8"))
class TimestampsComparedAsNumbers(Unicast):
    """When the timestamps of acks wrap, every new one looks older and is ignored."""

    def _is_stale(self, entry: SenderEntry, head: Head, what: str) -> bool:
        if head.stamp < entry.last_stamp:
            self._port.drop(f"{what}-old-stamp")
            return True
        return super()._is_stale(entry, head, what)


@mutant("behaviours §18.2", ("C1", "G1"), ACKING)
class DuplicatesNotAcked(Unicast):
    """Duplicates are dropped without a word, so a lost ack is never repaired."""

    def _after_data(
        self, entry: ReceiverEntry, new: int, size: int, flags: int, now: float
    ) -> None:
        if new:
            super()._after_data(entry, new, size, flags, now)  # type: ignore[safe-super]


@mutant("D-13", ("L1", "C1"), LAZY)
class AcksOnlyAtThreshold(Unicast):
    """What is below the threshold is never acked."""

    def _ack_later(self, entry: ReceiverEntry, now: float) -> None:
        return


@mutant("U-8", ("C1",), LAZY)
class AcksEveryFrame(Unicast):
    """Acks are not delayed: one for each frame."""

    def _ack_later(self, entry: ReceiverEntry, now: float) -> None:
        self._send_ack(entry, now)


@mutant("JGRP-1755", ("L1",))
class AcksNotFlushed(Unicast):
    """A receive window is removed with its last ack still pending."""

    def _flush_ack(self, entry: ReceiverEntry, now: float) -> None:
        return


# -- Repair by the sender -------------------------------------------------------------------------


@mutant("JGRP-1548, behaviours §18.3", ("G1", "L1"), LAZY)
class TailNotResent(Unicast):
    """The newest message is not repeated: when it is lost, nothing shows the hole."""

    def _repair(self, entry: SenderEntry, now: float) -> None:
        return


@mutant("JGRP-1548, JGRP-1563", ("G1", "L1"), ("UNICAST2",))
class EndsNotRepaired(Unicast):
    """Negative acks only: neither reports nor looks notice a lost first or last message."""

    def _repair(self, entry: SenderEntry, now: float) -> None:
        return

    def _on_stable(self, head: Head, now: float) -> None:
        super()._on_stable(head._replace(mark=MORE), now)


@mutant("UNICAST3 note, HA/HS", ("G1", "L1", "C1"), LAZY)
class ResendsOnlyOnce(Unicast):
    """The sender stops looking after its first resend."""

    def _repair(self, entry: SenderEntry, now: float) -> None:
        if not entry.tries:
            super()._repair(entry, now)


@mutant("UNICAST note, resend", ("G1", "G5", "C1"), ("UNICAST",))
class ResendsOnlyNewest(Unicast):
    """UNICAST repeats its newest message alone, and nobody asks for the others."""

    def _look_at_acks(self, entry: SenderEntry, now: float) -> None:
        Unicast._look_at_acks(self, entry, now)  # noqa: SLF001 past UNICAST's own


class _FirstOnly(SendWindow[Batch]):
    __slots__ = ()

    def covering(self, ranges: list[tuple[int, int]]) -> list[Stored[Batch]]:
        return super().covering(ranges)[:1]


@mutant("UNICAST3 note, example 45/50", ("C1", "G1", "L1"), ASKING)
class RequestAnsweredInPart(Unicast):
    """A request is answered with the first missing batch only."""

    def _open_sender(self, peer: int, now: float) -> SenderEntry:
        entry = super()._open_sender(peer, now)
        entry.window = _FirstOnly(self.config.window_messages, self.config.window_bytes)
        return entry


class _Everything(SendWindow[Batch]):
    __slots__ = ()

    def covering(self, ranges: list[tuple[int, int]]) -> list[Stored[Batch]]:
        return list(self)


@mutant("retransmission storms", ("C1",), ASKING)
class RequestAnsweredWithEverything(Unicast):
    """A request for one message is answered with all that is unacked."""

    def _open_sender(self, peer: int, now: float) -> SenderEntry:
        entry = super()._open_sender(peer, now)
        entry.window = _Everything(self.config.window_messages, self.config.window_bytes)
        return entry


@mutant("JGRP-965, JGRP-966, U-13", ("G4",))
class SfsAnswerChangesTheStored(Unicast):
    """The answer to an SFS overwrites the flags of the stored batch instead of a copy's."""

    def _answer_sfs(self, entry: SenderEntry, head: Head, now: float) -> None:
        oldest = entry.window.oldest()
        if oldest is not None:
            oldest.item.flags = FIRST
        super()._answer_sfs(entry, head, now)


@mutant("JGRP-1807", ("G1", "G6"))
class SentAndNotStored(Unicast):
    """What is sent on a connection that was closing is not kept for a resend."""

    def send(
        self,
        peer: int,
        payloads: Sequence[Payload],
        flags: int,
        now: float,
        *rest: Any,  # noqa: ANN401 passed on
    ) -> None:
        entry = self._senders.get(peer)
        was_closing = entry is not None and entry.state is State.CLOSING
        super().send(peer, payloads, flags, now, *rest)
        if entry is not None and was_closing:
            entry.window.ack(entry.window.high)


@mutant("JGRP-2873", ("G1", "G5", "L1", "C1"))
class NumberedAndDropped(Unicast):
    """A message that fills the window gets its seqno and is dropped: a hole for ever."""

    def __init__(
        self, config: UnicastConfig, timing: Timing, port: Port, first_conn: int = 1
    ) -> None:
        super().__init__(config, timing, port, first_conn)
        self._drops = False
        self._dropped: set[Batch] = set()

    def send(
        self,
        peer: int,
        payloads: Sequence[Payload],
        flags: int,
        now: float,
        *rest: Any,  # noqa: ANN401 passed on
    ) -> None:
        self._drops = self.room(peer)[0] == len(payloads)
        super().send(peer, payloads, flags, now, *rest)
        self._drops = False

    def _emit(self, entry: SenderEntry, lo: int, batch: Batch, flags: int, stamp: int) -> None:
        if self._drops:
            self._dropped.add(batch)
        if batch not in self._dropped:
            super()._emit(entry, lo, batch, flags, stamp)


# -- Requests of the receiver ---------------------------------------------------------------------


@mutant("JGRP-1539", ("C1",), ASKING)
class AsksAtFirstSight(Unicast):
    """The two-look rule is skipped: messages still under way are requested."""

    def _look_at_gaps(self, entry: ReceiverEntry, now: float) -> None:
        entry.gaps.missing_before = max(entry.gaps.missing_before, entry.window.seen)
        super()._look_at_gaps(entry, now)


@mutant("JGRP-1539, behaviours §18.21", ("C1",), ASKING)
class AsksAtEveryFrame(Unicast):
    """Every frame that finds a gap requests all of it again."""

    def _take(self, entry: ReceiverEntry, arrival: Arrival, now: float) -> None:
        super()._take(entry, arrival, now)
        if missing := entry.window.missing(MORE):
            entry.gaps.asked = entry.gaps.asked or [Asked(missing[-1][1], now)]
            self._request(entry, missing, now)


@mutant("UNICAST2 note, gaps", ("G1", "G5", "L1", "C1"), ASKING)
class RequestsNotRepeated(Unicast):
    """A gap is requested once; when the request or its answer is lost, it stays."""

    def _look_at_gaps(self, entry: ReceiverEntry, now: float) -> None:
        for asked in entry.gaps.asked:
            asked.at = now
        super()._look_at_gaps(entry, now)


@mutant("M-7", ("C1",), ASKING)
class RequestsWhatWasDelivered(Unicast):
    """A request begins with the last message that was delivered."""

    def _request(self, entry: ReceiverEntry, ranges: list[tuple[int, int]], now: float) -> None:
        (lo, hi), *rest = ranges
        lo = min(lo, max(1, entry.window.delivered))
        super()._request(entry, [(lo, hi), *rest], now)


@mutant("JGRP-1868", ("C1",), ASKING)
class RequestsWithoutLimit(Unicast):
    """One request asks for everything that is missing."""

    def _request(self, entry: ReceiverEntry, ranges: list[tuple[int, int]], now: float) -> None:
        config = self.config
        self.config = replace(config, max_xmit_req_size=MORE)
        super()._request(entry, ranges, now)
        self.config = config


# -- Windows --------------------------------------------------------------------------------------


class BadWindow(Unicast):
    """A bug in the receive window, as `window_type` says; not a mutant by itself."""

    window_type: type[ReceiveWindow[Arrival]]

    def _open_receiver(self, peer: int, conn: int, offset: int, now: float) -> ReceiverEntry:
        entry = super()._open_receiver(peer, conn, offset, now)
        config = self.config
        entry.window = self.window_type(offset, config.window_messages, config.window_bytes)
        return entry


class _Impatient(ReceiveWindow[Arrival]):
    __slots__ = ()

    def take_ready(self) -> list[Piece[Arrival]]:
        ready = super().take_ready()
        self.skip_to(self.high)
        return ready + super().take_ready()


@mutant("U-1", ("G1", "G3", "G6"))
class DeliversPastGaps(BadWindow):
    """What lies behind a gap is delivered at once, and what fills it thrown away."""

    window_type = _Impatient


class _Unplaced(ReceiveWindow[Arrival]):
    __slots__ = ("_had",)

    def __init__(self, offset: int, capacity: int, capacity_bytes: int) -> None:
        super().__init__(offset, capacity, capacity_bytes)
        self._had: set[int] = set()

    def add(
        self, lo: int, hi: int, size: int, item: Arrival, *, oob: bool = False
    ) -> list[Piece[Arrival]]:
        if lo in self._had:
            return []
        if not oob or lo <= self.deliverable:
            return super().add(lo, hi, size, item)
        self._had.add(lo)
        return [Piece(lo, hi, size, item)]


@mutant("UNICAST note, OOB", ("G1", "G5", "L1", "C1"))
class OobNotPlaced(BadWindow):
    """What was delivered out of band gets no place in the window, which waits for it for ever."""

    window_type = _Unplaced


class _Repeating(ReceiveWindow[Arrival]):
    __slots__ = ()

    def add(
        self, lo: int, hi: int, size: int, item: Arrival, *, oob: bool = False
    ) -> list[Piece[Arrival]]:
        return super().add(lo, hi, size, item)


@mutant("U-2, behaviours §18.1", ("G2",))
class OobDeliveredTwice(BadWindow):
    """What was delivered out of band is delivered again when its turn comes."""

    window_type = _Repeating


class _Evicting(ReceiveWindow[Arrival]):
    __slots__ = ()

    def _make_room(self, piece: Piece[Arrival]) -> bool:
        has_room = super()._make_room(piece)
        if has_room and self.bytes + piece.size > self.capacity_bytes // 2:
            self._islands = [island for island in self._islands if island.lo <= piece.hi]
            self.bytes = sum(held.size for held in (*self._islands, *self._ready))
        return has_room


@mutant("U-2, node/core/window.py", ("G2",))
class EvictionForgetsOob(BadWindow):
    """Making room by bytes also frees the places of what was delivered out of band."""

    window_type = _Evicting


class _Boundless(ReceiveWindow[Arrival]):
    __slots__ = ()

    def add(
        self, lo: int, hi: int, size: int, item: Arrival, *, oob: bool = False
    ) -> list[Piece[Arrival]]:
        capacity, self.capacity = self.capacity, MORE
        try:
            return super().add(lo, hi, size, item, oob=oob)
        finally:
            self.capacity = capacity


@mutant("JGRP-2906, U-6", ("G5",), ("UNICAST", "UNICAST3", "UNICAST3-SYNC"))
class ReceivesWithoutBound(BadWindow):
    """The receive window takes more than its capacity while the application is stalled."""

    window_type = _Boundless


class _Roomy(SendWindow[Batch]):
    __slots__ = ()

    def room(self) -> tuple[int, int]:
        return MORE, super().room()[1]

    def append(self, count: int, size: int, item: Batch) -> int:
        capacity, self.capacity = self.capacity, MORE
        try:
            return super().append(count, size, item)
        finally:
            self.capacity = capacity


@mutant("U-6", ("G5",))
class SendsWithoutBound(Unicast):
    """The send window takes more messages than its capacity."""

    def _open_sender(self, peer: int, now: float) -> SenderEntry:
        entry = super()._open_sender(peer, now)
        entry.window = _Roomy(self.config.window_messages, self.config.window_bytes)
        return entry


@mutant("U-6", ("G5",))
class BytesNotCounted(Unicast):
    """The send window is bounded in messages only."""

    def room(self, peer: int) -> tuple[int, int]:
        return super().room(peer)[0], MORE


@mutant("behaviours §18.8", ("G8", "L1"))
class LaneNotWoken(Unicast):
    """An ack frees room, and the lane that waits for it is not told."""

    def _purge(self, entry: SenderEntry, seqno: int, now: float) -> None:
        super()._purge(entry, seqno, now)
        self._port.woken.clear()


@mutant("JGRP-2854, U-12", ("L1",))
class CloseKeepsWaiters(Unicast):
    """The end of a connection does not release who waits for room in it."""

    def _remove_sender(self, entry: SenderEntry, reason: str, now: float) -> None:
        super()._remove_sender(entry, reason, now)
        self._port.closed.pop()


# -- Delivery -------------------------------------------------------------------------------------


@mutant("parts of a batch, receiving.py", ("G4",))
class TrimsOneByteEarly(Unicast):
    """A part of a batch is cut out one byte too early."""

    def _deliver(self, entry: ReceiverEntry, piece: Piece[Arrival], *rest: Any) -> None:  # noqa: ANN401 as there
        super()._deliver(entry, _shifted(piece, whole=False), *rest)


@mutant("parts of a batch, receiving.py", ("G4",))
class TrimsOneMessageEarly(Unicast):
    """A part of a batch is cut out one message too early: whole messages, but others."""

    def _deliver(self, entry: ReceiverEntry, piece: Piece[Arrival], *rest: Any) -> None:  # noqa: ANN401 as there
        super()._deliver(entry, _shifted(piece, whole=True), *rest)


def _shifted(piece: Piece[Arrival], *, whole: bool) -> Piece[Arrival]:
    arrival = piece.item
    if arrival is None or piece.lo == arrival.head.lo:
        return piece
    by = 1
    if whole:
        skip = piece.lo - arrival.head.lo
        by = arrival.lengths if isinstance(arrival.lengths, int) else arrival.lengths[skip - 1]
    return piece._replace(item=arrival._replace(start=arrival.start - by))


# -- Connections ----------------------------------------------------------------------------------


@mutant("JGRP-968, scenario #6, behaviours §18.1", ("G1", "G4", "G5", "G6", "G7", "C1"))
class NewMessagesInTheOldWindow(Unicast):
    """The second message of a new connection lands in the window of the old one."""

    def _find_receiver(
        self, entry: ReceiverEntry | None, arrival: Arrival, now: float
    ) -> ReceiverEntry | None:
        if entry is not None and not arrival.head.flags & FIRST:
            return entry
        return super()._find_receiver(entry, arrival, now)


@mutant("JGRP-2852, D-4", ("G1", "G2", "G6", "G7", "C1"))
class OlderConnectionReplacesNewer(Unicast):
    """A late first message of an older connection destroys the window of the newer one."""

    def _find_receiver(
        self, entry: ReceiverEntry | None, arrival: Arrival, now: float
    ) -> ReceiverEntry | None:
        head = arrival.head
        if entry is not None and head.flags & FIRST:
            self._remove_receiver(entry, "replaced", now)
            return self._open_receiver(head.source, head.conn, max(head.lo - 1, head.mark), now)
        return super()._find_receiver(entry, arrival, now)


@mutant("D-5", ("G1", "L1", "C1"))
class ConnectionsComparedAsNumbers(Unicast):
    """When connection ids wrap, every new connection looks older and is ignored."""

    def _find_receiver(
        self, entry: ReceiverEntry | None, arrival: Arrival, now: float
    ) -> ReceiverEntry | None:
        if entry is not None and arrival.head.conn < entry.conn:
            return None
        return super()._find_receiver(entry, arrival, now)


@mutant("JGRP-1347, U-3", ("G2", "G1", "C1"))
class RepeatedFirstReopens(Unicast):
    """A repeated first message of the same connection makes a second window."""

    def _on_data(self, head: Head, body: bytes, now: float) -> None:
        entry = self._receivers.get(head.source)
        if entry is not None and entry.conn == head.conn and head.flags & FIRST:
            self._remove_receiver(entry, "replaced", now)
            self._open_receiver(head.source, head.conn, max(head.lo - 1, head.mark), now)
        super()._on_data(head, body, now)


@mutant("JGRP-1563, JGRP-2327", ("G1", "G6"))
class AnyFrameOpensWindow(Unicast):
    """Without a window the first frame that comes opens one, at itself."""

    def _ask_first_seqno(self, arrival: Arrival, now: float) -> None:
        head = arrival.head
        if entry := self._receivers.get(head.source):
            self._remove_receiver(entry, "replaced", now)
        entry = self._open_receiver(head.source, head.conn, head.lo - 1, now)
        self._take(entry, arrival, now)


@mutant("JGRP-1874, U-7", ("C1",))
class SyncsNotSpaced(Unicast):
    """Every frame without a window is answered with an SFS."""

    def _ask_first_seqno(self, arrival: Arrival, now: float) -> None:
        self._send_sfs(self.resync.remember(arrival, now), now)


@mutant("sync_min_interval", ("C1",), tuple(name for name in ALL if name != "UNICAST3"))
class SyncSpacingIsTheMost(Unicast):
    """In `fast` the least time between two SFS is taken for the most: a few round trips do."""

    def _ask_first_seqno(self, arrival: Arrival, now: float) -> None:
        config, least = self.config, self.config.sync_min_interval
        if self.pacer.timing.adaptive:
            least = min(least, self.pacer.spaced(0.0, self._round_trip(arrival.head.source)))
        self.config = replace(config, sync_min_interval=least)
        try:
            super()._ask_first_seqno(arrival, now)
        finally:
            self.config = config


@mutant("UNICAST3 note, [2, 1, 3]", ("C1",))
class AsksBeforeTheTurnEnds(Unicast):
    """The first frame is asked for at once, though it may follow in the same datagram."""

    def _ask_first_seqno(self, arrival: Arrival, now: float) -> None:
        super()._ask_first_seqno(arrival, now)
        syncs, self.syncs_now = self.syncs_now, []
        for sync in syncs:
            sync.is_wanted = False
            self._visit_sync(sync, now)


class BadResync(Unicast):
    """A bug in what is kept without a window, as `resync_type` says; not a mutant by itself."""

    resync_type: type[Resync]

    def __init__(
        self, config: UnicastConfig, timing: Timing, port: Port, first_conn: int = 1
    ) -> None:
        super().__init__(config, timing, port, first_conn)
        self.resync = self.resync_type(config, self._looks, self._expiries)


class _Graveless(Resync):
    def tombstone(self, peer: int, now: float) -> int:
        return 0


@mutant("R-3", ("G2", "G7"))
class TombstonesIgnored(BadResync):
    """A late first message of a removed connection opens it again."""

    resync_type = _Graveless


class _Credulous(Resync):
    def is_answer(self, head: Head) -> bool:
        return head.source in self._syncs


@mutant("R-3", ("G1", "G2", "G5", "L1"))
class AnyFirstIsTheAnswer(BadResync):
    """While an SFS is outstanding, a stale first message is taken for its answer."""

    resync_type = _Credulous


class _Forgetful(Resync):
    def delivered(self, peer: int, conn: int) -> tuple[int, list[tuple[int, int]]]:
        return 0, []


@mutant("U-3, our first version", ("G2", "G5"))
class DeliveredIsForgotten(BadResync):
    """A window that opens again delivers what the one before it had delivered."""

    resync_type = _Forgetful


class _Mixing(Resync):
    def remember(self, arrival: Arrival, now: float) -> Sync:
        before = self._syncs.get(arrival.head.source)
        kept = list(before.cached) if before and before.conn != arrival.head.conn else []
        sync = super().remember(arrival, now)
        sync.cached[:0] = kept
        return sync

    def take_cached(self, peer: int, conn: int) -> list[Arrival]:
        sync = self._syncs.get(peer)
        if sync is None:
            return []
        cached, sync.cached = sync.cached, []
        return cached


@mutant("JGRP-2327, D-6", ("G4", "G7"))
class EarlyFramesOfAnyConnection(BadResync):
    """Early frames are fed to the window that opens next, whichever connection they are of."""

    resync_type = _Mixing


class _Hoarding(Resync):
    def remember(self, arrival: Arrival, now: float) -> Sync:
        config, self.config = self.config, replace(self.config, max_cached_frames=MORE)
        try:
            return super().remember(arrival, now)
        finally:
            self.config = config


@mutant("D-6", ("G5",))
class EarlyFramesWithoutBound(BadResync):
    """Early frames are kept without a limit."""

    resync_type = _Hoarding


@mutant("U-3", ("G2",))
class OpensBelowTheAcked(Unicast):
    """A window reopens at the start of the answered batch, though a part of it was acked."""

    def _find_receiver(
        self, entry: ReceiverEntry | None, arrival: Arrival, now: float
    ) -> ReceiverEntry | None:
        unmarked = arrival._replace(head=arrival.head._replace(mark=0))
        return super()._find_receiver(entry, unmarked, now)


@mutant("JGRP-1586", ("G1",), LAZY)
class ClosedWithoutFlush(Unicast):
    """Closing throws away what is still unacked."""

    def _close_sender(self, entry: SenderEntry, reason: str, now: float) -> None:
        self._remove_sender(entry, reason, now)


@mutant("JGRP-1577, JGRP-1594", ("G1",), LAZY)
class ViewClosesAtOnce(Unicast):
    """A view without the peer removes its connections instead of letting them flush."""

    closes_at_once = True


@mutant("CLOSE", ("G5", "C1", "L1"))
class StrangersNotToldOfCloses(Unicast):
    """A connection that ends is not closed at a peer that is no member: its window stays."""

    def _end_sender(self, entry: SenderEntry, reason: str, now: float) -> None:
        if self.members is None or entry.peer in self.members:
            super()._end_sender(entry, reason, now)
        else:
            self._remove_sender(entry, reason, now)


@mutant("JGRP-942", ("C1",))
class SilentPeersNeverAge(Unicast):
    """Messages to a member that is gone are resent for ever."""

    def _is_ageing(self, entry: SenderEntry) -> bool:
        return False


_IS_REMEMBERED: Final = "what a window delivered is remembered when it opens again, so it costs "
BLIND: Final[dict[str, str]] = {
    "stamps-ignored": f"{_IS_REMEMBERED}nothing, as acks never say more; "
    "tests/sim/test_unicast_reconnect.py holds it",
    "repeated-first-reopens": f"{_IS_REMEMBERED}a resend; "
    "tests/unit/test_unicast_entries.py holds it",
    "opens-below-the-acked": f"{_IS_REMEMBERED}nothing; "
    "tests/unit/test_unicast_entries.py holds it",
    "any-first-is-the-answer": f"{_IS_REMEMBERED}nothing; "
    "tests/sim/test_unicast_reconnect.py holds it",
    "asks-before-the-turn-ends": "a trace does not say which frames came in one turn; "
    "tests/unit/test_unicast_entries.py does",
    "strangers-not-told-of-closes": "a CLOSE is sent once and may be lost, so a window that stays "
    "breaks nothing; tests/sim/test_unicast_lifecycle.py holds it",
}
"""Mutants that nothing can catch yet, and why. Their test fails as soon as one is caught."""
