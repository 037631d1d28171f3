"""Known protocol bugs, brought back one at a time: what the search must find.

A mutant replaces methods of the parts that unicast is made of, for as long as a run lasts. None of
this is reachable from the product. A mutant that no seed catches is a blind spot of the generator
or of an oracle: it stays, and stands in `BLIND` until that is mended, with a
test that it fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from stormcast.chaos.campaigns.generate import cell_of
from stormcast.chaos.language.cluster import GENERATIONS
from stormcast.node.core import wire
from stormcast.node.core.gaps import Asked
from stormcast.node.core.model import FIRST, Payload
from stormcast.node.core.window import Piece, ReceiveWindow, SendWindow, Stored
from stormcast.node.core.wire import Head
from stormcast.node.protocols import windowed
from stormcast.node.protocols.unicast import receivers
from stormcast.node.protocols.unicast.acks import Acks
from stormcast.node.protocols.unicast.asking import Asking
from stormcast.node.protocols.unicast.entries import (
    Arrival,
    Batch,
    ReceiverEntry,
    SenderEntry,
    State,
    Sync,
)
from stormcast.node.protocols.unicast.feedback import Feedback
from stormcast.node.protocols.unicast.incoming import Incoming
from stormcast.node.protocols.unicast.lifetimes import Lifetimes
from stormcast.node.protocols.unicast.outgoing import Outgoing
from stormcast.node.protocols.unicast.receivers import Receivers
from stormcast.node.protocols.unicast.repairs import Repairs
from stormcast.node.protocols.unicast.reports import AckEach, AckLate
from stormcast.node.protocols.unicast.resync import Resync
from stormcast.node.protocols.unicast.senders import Senders
from stormcast.node.protocols.unicast.state import Connections
from stormcast.node.protocols.unicast.tombstones import Tombstones
from tests.mutants.hidden import Blind
from tests.mutants.patches import Patches, applied

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
    bug: Callable[[Patches], None]

    @property
    def where(self) -> str:
        """What the table shows of it."""
        return "all" if self.generations == ALL else ", ".join(self.generations)

    def applies(self, seed: int) -> bool:
        """Whether a seed is of a generation that can have it."""
        return cell_of(seed)[0] in self.generations

    def alive(self) -> AbstractContextManager[None]:
        """While this lasts the product has the bug."""
        return applied(self.bug)


MUTANTS: Final[dict[str, Mutant]] = {}
Bug = TypeVar("Bug", bound=Callable[[Patches], None])


def mutant(
    source: str,
    breaks: tuple[str, ...],
    generations: tuple[str, ...] = ALL,
) -> Callable[[Bug], Bug]:
    """Register a bug under the name of its function, described by its docstring."""

    def register(bug: Bug) -> Bug:
        name = re.sub("_", "-", bug.__name__)
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


# -- Acks and purges ------------------------------------------------------------------------------


@mutant("U-5", ("G1", "G6"))
def acks_highest_received(patches: Patches) -> None:
    """An ack reports the highest message received, beyond a gap."""

    @patches.method(Acks)
    def value(self: Acks, entry: ReceiverEntry) -> int:
        return entry.window.high


@mutant("D-12", ("G6",), ("UNICAST4",))
def acks_before_delivery(patches: Patches) -> None:
    """A stalled receiver reports what it received, not what was consumed: no flow control."""

    @patches.method(Acks)
    def value(self: Acks, entry: ReceiverEntry) -> int:
        return entry.window.deliverable


@mutant("U-4", ("G1", "G6"))
def purges_one_too_many(patches: Patches) -> None:
    """The sender drops the first message after the acked one as well."""
    old = Feedback._acked_by

    @patches.method(Feedback)
    def _acked_by(self: Feedback, entry: SenderEntry, head: Head) -> int:
        return min(old(self, entry, head) + 1, entry.window.high)


@mutant("JGRP-968, JGRP-1577", ("G1", "G6", "G7"))
def acks_of_any_connection_count(patches: Patches) -> None:
    """An ack is believed whatever connection it names."""
    old = Feedback._sender_for

    @patches.method(Feedback)
    def _sender_for(self: Feedback, head: Head, what: str) -> SenderEntry | None:
        entry = self._entries.get(head.source)
        if entry is not None and head.kind in {wire.ACK, wire.STABLE}:
            return entry
        return old(self, head, what)

    @patches.method(Feedback)
    def _acked_by(self: Feedback, entry: SenderEntry, head: Head) -> int:
        return min(head.lo, entry.window.high)


@mutant("JGRP-1873, JGRP-1875", ("G1", "G2", "G6", "L1"))
def stamps_ignored(patches: Patches) -> None:
    """A delayed ack purges what the answer to a newer SFS still needs."""

    @patches.method(Feedback)
    def _is_stale(self: Feedback, entry: SenderEntry, head: Head, what: str, now: float) -> bool:
        return False


@mutant("JGRP-1873, D-5", ("L1", "C1", "G5", "G8"))
def timestamps_compared_as_numbers(patches: Patches) -> None:
    """When the timestamps of acks wrap, every new one looks older and is ignored."""
    old = Feedback._is_stale

    @patches.method(Feedback)
    def _is_stale(self: Feedback, entry: SenderEntry, head: Head, what: str, now: float) -> bool:
        if head.stamp < entry.last_stamp:
            self._port.drop(f"{what}-old-stamp")
            return True
        return old(self, entry, head, what, now)


@mutant("behaviours §18.2", ("C1", "G1"), ACKING)
def duplicates_not_acked(patches: Patches) -> None:
    """Duplicates are dropped without a word, so a lost ack is never repaired."""
    for reports in (AckEach, AckLate):
        patches.put(reports, "after_data", _of_new_only(reports.after_data))


def _of_new_only(old: Callable[..., None]) -> Callable[..., None]:
    def after_data(self: Any, entry: ReceiverEntry, new: int, *rest: Any) -> None:
        if new:
            old(self, entry, new, *rest)

    return after_data


@mutant("D-13", ("L1", "C1"), LAZY)
def acks_only_at_threshold(patches: Patches) -> None:
    """What is below the threshold is never acked."""

    @patches.method(Acks)
    def later(self: Acks, entry: ReceiverEntry, now: float) -> None:
        return


@mutant("U-8", ("C1",), LAZY)
def acks_every_frame(patches: Patches) -> None:
    """Acks are not delayed: one for each frame."""

    @patches.method(Acks)
    def later(self: Acks, entry: ReceiverEntry, now: float) -> None:
        self.send(entry, now)


@mutant("JGRP-1755", ("L1",))
def acks_not_flushed(patches: Patches) -> None:
    """A receive window is removed with its last ack still pending."""

    @patches.method(Acks)
    def flush(self: Acks, entry: ReceiverEntry, now: float) -> None:
        entry.acks.is_wanted = False


# -- Repair by the sender -------------------------------------------------------------------------


@mutant("JGRP-1548, behaviours §18.3", ("G1", "L1"), LAZY)
def tail_not_resent(patches: Patches) -> None:
    """The newest message is not repeated: when it is lost, nothing shows the hole."""
    _not_repairing(patches)


def _not_repairing(patches: Patches) -> None:
    @patches.method(Repairs)
    def _repair(self: Repairs, entry: SenderEntry, now: float) -> None:
        return


@mutant("JGRP-1548, JGRP-1563", ("G1", "L1"), ("UNICAST2",))
def ends_not_repaired(patches: Patches) -> None:
    """Negative acks only: neither reports nor looks notice a lost first or last message."""
    _not_repairing(patches)
    old = Feedback.on_stable

    @patches.method(Feedback)
    def on_stable(self: Feedback, head: Head, now: float) -> None:
        old(self, head._replace(mark=MORE), now)


@mutant("UNICAST3 note, HA/HS", ("G1", "L1", "C1"), LAZY)
def resends_only_once(patches: Patches) -> None:
    """The sender stops looking after its first resend."""
    old = Repairs._repair

    @patches.method(Repairs)
    def _repair(self: Repairs, entry: SenderEntry, now: float) -> None:
        if not entry.tries:
            old(self, entry, now)


@mutant("UNICAST note, resend", ("G1", "G5", "C1"), ("UNICAST",))
def resends_only_newest(patches: Patches) -> None:
    """UNICAST repeats its newest message alone, and nobody asks for the others."""

    @patches.method(Repairs)
    def _look_at_each(self: Repairs, entry: SenderEntry, now: float) -> None:
        self._look_at_acks(entry, now)


def _sending_from(patches: Patches, window: type[SendWindow[Batch]]) -> None:
    """A bug in the send window."""
    old = Senders.open

    @patches.method(Senders)
    def open(self: Senders, peer: int, now: float) -> SenderEntry:  # noqa: A001 as there
        entry = old(self, peer, now)
        config = self._state.config
        entry.window = window(config.window_messages, config.window_bytes)
        return entry


class _FirstOnly(SendWindow[Batch]):
    __slots__ = ()

    def covering(self, ranges: list[tuple[int, int]]) -> list[Stored[Batch]]:
        return super().covering(ranges)[:1]


@mutant("UNICAST3 note, example 45/50", ("C1", "G1", "L1"), ASKING)
def request_answered_in_part(patches: Patches) -> None:
    """A request is answered with the first missing batch only."""
    _sending_from(patches, _FirstOnly)


class _Everything(SendWindow[Batch]):
    __slots__ = ()

    def covering(self, ranges: list[tuple[int, int]]) -> list[Stored[Batch]]:
        return list(self)


@mutant("retransmission storms", ("C1",), ASKING)
def request_answered_with_everything(patches: Patches) -> None:
    """A request for one message is answered with all that is unacked."""
    _sending_from(patches, _Everything)


@mutant("JGRP-965, JGRP-966, U-13", ("G4",))
def sfs_answer_changes_the_stored(patches: Patches) -> None:
    """The answer to an SFS overwrites the flags of the stored batch instead of a copy's."""
    old = Repairs.answer_sfs

    @patches.method(Repairs)
    def answer_sfs(self: Repairs, entry: SenderEntry, head: Head, now: float) -> None:
        oldest = entry.window.oldest()
        if oldest is not None:
            oldest.item.flags = FIRST
        old(self, entry, head, now)


@mutant("JGRP-1807", ("G1", "G6"))
def sent_and_not_stored(patches: Patches) -> None:
    """What is sent on a connection that was closing is not kept for a resend."""
    old = Outgoing.send

    @patches.method(Outgoing)
    def send(self: Outgoing, peer: int, *rest: Any) -> None:
        entry = self._entries.get(peer)
        was_closing = entry is not None and entry.state is State.CLOSING
        old(self, peer, *rest)
        if entry is not None and was_closing:
            entry.window.ack(entry.window.high)


@mutant("JGRP-2873", ("G1", "G5", "G8", "L1", "C1"))
def numbered_and_dropped(patches: Patches) -> None:
    """A message that fills the window gets its seqno and is dropped: a hole for ever."""
    old_send, old_emit = Outgoing.send, Outgoing._emit
    filling: list[bool] = []
    dropped: set[Batch] = set()

    @patches.method(Outgoing)
    def send(self: Outgoing, peer: int, payloads: Sequence[Payload], *rest: Any) -> None:
        filling.append(self.room(peer)[0] == len(payloads))
        old_send(self, peer, payloads, *rest)
        filling.pop()

    @patches.method(Outgoing)
    def _emit(self: Outgoing, entry: SenderEntry, lo: int, batch: Batch, *rest: int) -> None:
        if filling and filling[-1]:
            dropped.add(batch)
        if batch not in dropped:
            old_emit(self, entry, lo, batch, *rest)


# -- Requests of the receiver ---------------------------------------------------------------------


@mutant("JGRP-1539", ("C1",), ASKING)
def asks_at_first_sight(patches: Patches) -> None:
    """The two-look rule is skipped: messages still under way are requested."""
    old = Asking.look

    @patches.method(Asking)
    def look(self: Asking, entry: ReceiverEntry, now: float) -> None:
        entry.gaps.missing_before = max(entry.gaps.missing_before, entry.window.seen)
        old(self, entry, now)


@mutant("JGRP-1539, behaviours §18.21", ("C1",), ASKING)
def asks_at_every_frame(patches: Patches) -> None:
    """Every frame that finds a gap requests all of it again."""
    old = Incoming._take

    @patches.method(Incoming)
    def _take(self: Incoming, entry: ReceiverEntry, arrival: Arrival, now: float) -> None:
        old(self, entry, arrival, now)
        if missing := entry.window.missing(MORE):
            entry.gaps.asked = entry.gaps.asked or [Asked(missing[-1][1], now)]
            self._asking._request(entry, missing, now)


@mutant("UNICAST2 note, gaps", ("G1", "G5", "L1", "C1"), ASKING)
def requests_not_repeated(patches: Patches) -> None:
    """A gap is requested once; when the request or its answer is lost, it stays."""
    old = Asking.look

    @patches.method(Asking)
    def look(self: Asking, entry: ReceiverEntry, now: float) -> None:
        for asked in entry.gaps.asked:
            asked.at = now
        old(self, entry, now)


@mutant("M-7", ("C1",), ASKING)
def requests_what_was_delivered(patches: Patches) -> None:
    """A request begins with the last message that was delivered."""
    old = Asking._request

    @patches.method(Asking)
    def _request(
        self: Asking, entry: ReceiverEntry, ranges: list[tuple[int, int]], now: float
    ) -> None:
        (lo, hi), *rest = ranges
        lo = min(lo, max(1, entry.window.delivered))
        old(self, entry, [(lo, hi), *rest], now)


@mutant("JGRP-1868", ("C1",), ASKING)
def requests_without_limit(patches: Patches) -> None:
    """One request asks for everything that is missing."""
    old = Asking._request

    @patches.method(Asking)
    def _request(self: Asking, *rest: Any) -> None:
        state = self._state
        config = state.config
        state.config = replace(config, max_xmit_req_size=MORE)
        old(self, *rest)
        state.config = config


# -- Windows --------------------------------------------------------------------------------------


def _receiving_into(patches: Patches, window: type[ReceiveWindow[Arrival]]) -> None:
    """A bug in the receive window."""
    old = Receivers.open

    @patches.method(Receivers)
    def open(  # noqa: A001 as there
        self: Receivers, peer: int, conn: int, offset: int, now: float
    ) -> ReceiverEntry:
        entry = old(self, peer, conn, offset, now)
        config = self._state.config
        entry.window = window(offset, config.window_messages, config.window_bytes)
        return entry


class _Impatient(ReceiveWindow[Arrival]):
    __slots__ = ()

    def take_ready(self) -> list[Piece[Arrival]]:
        ready = super().take_ready()
        self.skip_to(self.high)
        return ready + super().take_ready()


@mutant("U-1", ("G1", "G3", "G6"))
def delivers_past_gaps(patches: Patches) -> None:
    """What lies behind a gap is delivered at once, and what fills it thrown away."""
    _receiving_into(patches, _Impatient)


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
def oob_not_placed(patches: Patches) -> None:
    """What was delivered out of band gets no place in the window, which waits for it for ever."""
    _receiving_into(patches, _Unplaced)


class _Repeating(ReceiveWindow[Arrival]):
    __slots__ = ()

    def add(
        self, lo: int, hi: int, size: int, item: Arrival, *, oob: bool = False
    ) -> list[Piece[Arrival]]:
        return super().add(lo, hi, size, item)


@mutant("U-2, behaviours §18.1", ("G2",))
def oob_delivered_twice(patches: Patches) -> None:
    """What was delivered out of band is delivered again when its turn comes."""
    _receiving_into(patches, _Repeating)


class _Evicting(ReceiveWindow[Arrival]):
    __slots__ = ()

    def _make_room(self, piece: Piece[Arrival]) -> bool:
        has_room = super()._make_room(piece)
        if has_room and self.bytes + piece.size > self.capacity_bytes // 2:
            self._islands = [island for island in self._islands if island.lo <= piece.hi]
            self.bytes = sum(held.size for held in (*self._islands, *self._ready))
        return has_room


@mutant("U-2, node/core/window.py", ("G2",))
def eviction_forgets_oob(patches: Patches) -> None:
    """Making room by bytes also frees the places of what was delivered out of band."""
    _receiving_into(patches, _Evicting)


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
def receives_without_bound(patches: Patches) -> None:
    """The receive window takes more than its capacity while the application is stalled."""
    _receiving_into(patches, _Boundless)


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
def sends_without_bound(patches: Patches) -> None:
    """The send window takes more messages than its capacity."""
    _sending_from(patches, _Roomy)


@mutant("U-6", ("G5",))
def bytes_not_counted(patches: Patches) -> None:
    """The send window is bounded in messages only."""
    old = Outgoing.room

    @patches.method(Outgoing)
    def room(self: Outgoing, peer: int) -> tuple[int, int]:
        return old(self, peer)[0], MORE


@mutant("behaviours §18.8", ("G8", "L1"))
def lane_not_woken(patches: Patches) -> None:
    """An ack frees room, and the lane that waits for it is not told."""
    old = Feedback._purge

    @patches.method(Feedback)
    def _purge(self: Feedback, entry: SenderEntry, seqno: int, now: float) -> None:
        old(self, entry, seqno, now)
        self._port.woken.clear()


@mutant("JGRP-2854, U-12", ("L1",))
def close_keeps_waiters(patches: Patches) -> None:
    """The end of a connection does not release who waits for room in it."""
    old = Senders.remove

    @patches.method(Senders)
    def remove(self: Senders, entry: SenderEntry, reason: str, now: float) -> None:
        old(self, entry, reason, now)
        self._port.closed.pop()


# -- Delivery -------------------------------------------------------------------------------------


@mutant("parts of a batch, deliveries.py", ("G4",))
def trims_one_byte_early(patches: Patches) -> None:
    """A part of a batch is cut out one byte too early."""
    _trimming(patches, whole=False)


@mutant("parts of a batch, deliveries.py", ("G4",))
def trims_one_message_early(patches: Patches) -> None:
    """A part of a batch is cut out one message too early: whole messages, but others."""
    _trimming(patches, whole=True)


def _trimming(patches: Patches, *, whole: bool) -> None:
    for module in (windowed, receivers):
        patches.put(module, "hand_up", _handing_shifted(module.hand_up, whole=whole))


def _handing_shifted(old: Callable[..., None], *, whole: bool) -> Callable[..., None]:
    def hand_up(port: Any, arrival: Arrival, lo: int, *rest: Any) -> None:
        old(port, _shifted(arrival, lo, whole=whole), lo, *rest)

    return hand_up


def _shifted(arrival: Arrival, lo: int, *, whole: bool) -> Arrival:
    skip = lo - arrival.head.lo
    if not skip:
        return arrival
    by = 1
    if whole:
        by = arrival.lengths if isinstance(arrival.lengths, int) else arrival.lengths[skip - 1]
    return arrival._replace(start=arrival.start - by)


# -- Connections ----------------------------------------------------------------------------------


@mutant("JGRP-968, scenario #6, behaviours §18.1", ("G1", "G4", "G5", "G6", "G7", "C1"))
def new_messages_in_the_old_window(patches: Patches) -> None:
    """The second message of a new connection lands in the window of the old one."""
    old = Incoming._find

    @patches.method(Incoming)
    def _find(
        self: Incoming, entry: ReceiverEntry | None, arrival: Arrival, now: float
    ) -> ReceiverEntry | None:
        if entry is not None and not arrival.head.flags & FIRST:
            return entry
        return old(self, entry, arrival, now)


@mutant("JGRP-2852, D-4", ("G1", "G2", "G6", "G7", "C1"))
def older_connection_replaces_newer(patches: Patches) -> None:
    """A late first message of an older connection destroys the window of the newer one."""
    old = Incoming._find

    @patches.method(Incoming)
    def _find(
        self: Incoming, entry: ReceiverEntry | None, arrival: Arrival, now: float
    ) -> ReceiverEntry | None:
        head = arrival.head
        if entry is None or not head.flags & FIRST:
            return old(self, entry, arrival, now)
        self._receivers.remove(entry, "replaced", now)
        return self._receivers.open(head.source, head.conn, max(head.lo - 1, head.mark), now)


@mutant("D-5", ("G1", "L1", "C1"))
def connections_compared_as_numbers(patches: Patches) -> None:
    """When connection ids wrap, every new connection looks older and is ignored."""
    old = Incoming._find

    @patches.method(Incoming)
    def _find(
        self: Incoming, entry: ReceiverEntry | None, arrival: Arrival, now: float
    ) -> ReceiverEntry | None:
        if entry is not None and arrival.head.conn < entry.conn:
            return None
        return old(self, entry, arrival, now)


@mutant("JGRP-1347, U-3", ("G2", "G1", "C1"))
def repeated_first_reopens(patches: Patches) -> None:
    """A repeated first message of the same connection makes a second window."""
    old = Incoming.on_data

    @patches.method(Incoming)
    def on_data(self: Incoming, head: Head, body: bytes, now: float) -> None:
        entry = self._entries.get(head.source)
        if entry is not None and entry.conn == head.conn and head.flags & FIRST:
            self._receivers.remove(entry, "replaced", now)
            self._receivers.open(head.source, head.conn, max(head.lo - 1, head.mark), now)
        old(self, head, body, now)


@mutant("JGRP-1563, JGRP-2327", ("G1", "G6"))
def any_frame_opens_window(patches: Patches) -> None:
    """Without a window the first frame that comes opens one, at itself."""
    old = Incoming.__init__

    def begin(self: Incoming, *parts: Any) -> None:
        old(self, *parts)
        patches.put(self._resync, "ask", _opening(self))

    patches.put(Incoming, "__init__", begin)


def _opening(part: Incoming) -> Callable[[Arrival, float], None]:
    def ask(arrival: Arrival, now: float) -> None:
        head = arrival.head
        if entry := part._entries.get(head.source):
            part._receivers.remove(entry, "replaced", now)
        entry = part._receivers.open(head.source, head.conn, head.lo - 1, now)
        part._take(entry, arrival, now)

    return ask


@mutant("JGRP-1874, U-7", ("C1",))
def syncs_not_spaced(patches: Patches) -> None:
    """Every frame without a window is answered with an SFS."""

    @patches.method(Resync)
    def ask(self: Resync, arrival: Arrival, now: float) -> None:
        self._send(self.remember(arrival, now), now)


@mutant("sync_min_interval", ("C1",), tuple(name for name in ALL if name != "UNICAST3"))
def sync_spacing_is_the_most(patches: Patches) -> None:
    """In `fast` the least time between two SFS is taken for the most: a few round trips do."""
    old = Resync._spacing

    @patches.method(Resync)
    def _spacing(self: Resync, sync: Sync) -> float:
        pacer = self._state.pacer
        if not pacer.timing.adaptive:
            return old(self, sync)
        return pacer.spaced(0.0, self._state.round_trip(sync.peer))


@mutant("UNICAST3 note, [2, 1, 3]", ("C1",))
def asks_before_the_turn_ends(patches: Patches) -> None:
    """The first frame is asked for at once, though it may follow in the same datagram."""
    old = Resync.ask

    @patches.method(Resync)
    def ask(self: Resync, arrival: Arrival, now: float) -> None:
        old(self, arrival, now)
        self.finish_turn(now)


@mutant("R-3", ("G2", "G7"))
def tombstones_ignored(patches: Patches) -> None:
    """A late first message of a removed connection opens it again."""

    @patches.method(Tombstones)
    def conn(self: Tombstones, peer: int, now: float) -> int:
        return 0


@mutant("R-3", ("G1", "G2", "G5", "L1"))
def any_first_is_the_answer(patches: Patches) -> None:
    """While an SFS is outstanding, a stale first message is taken for its answer."""

    @patches.method(Incoming)
    def _is_answer(self: Incoming, head: Head) -> bool:
        return self._resync.knows(head.source)


@mutant("U-3, our first version", ("G2", "G5"))
def delivered_is_forgotten(patches: Patches) -> None:
    """A window that opens again delivers what the one before it had delivered."""

    @patches.method(Tombstones)
    def delivered(self: Tombstones, peer: int, conn: int) -> tuple[int, list[tuple[int, int]]]:
        return 0, []


@mutant("JGRP-2327, D-6", ("G4", "G7"))
def early_frames_of_any_connection(patches: Patches) -> None:
    """Early frames are fed to the window that opens next, whichever connection they are of."""
    old = Resync.remember

    @patches.method(Resync)
    def remember(self: Resync, arrival: Arrival, now: float) -> Sync:
        before = self._syncs.get(arrival.head.source)
        kept = list(before.cached) if before and before.conn != arrival.head.conn else []
        sync = old(self, arrival, now)
        sync.cached[:0] = kept
        return sync

    @patches.method(Resync)
    def take_cached(self: Resync, peer: int, conn: int) -> list[Arrival]:
        sync = self._syncs.get(peer)
        if sync is None:
            return []
        cached, sync.cached = sync.cached, []
        return cached


@mutant("D-6", ("G5",))
def early_frames_without_bound(patches: Patches) -> None:
    """Early frames are kept without a limit."""
    old = Resync.remember

    @patches.method(Resync)
    def remember(self: Resync, arrival: Arrival, now: float) -> Sync:
        state = self._state
        config, state.config = state.config, replace(state.config, max_cached_frames=MORE)
        try:
            return old(self, arrival, now)
        finally:
            state.config = config


@mutant("U-3", ("G2",))
def opens_below_the_acked(patches: Patches) -> None:
    """A window reopens at the start of the answered batch, though a part of it was acked."""
    old = Incoming._find

    @patches.method(Incoming)
    def _find(
        self: Incoming, entry: ReceiverEntry | None, arrival: Arrival, now: float
    ) -> ReceiverEntry | None:
        unmarked = arrival._replace(head=arrival.head._replace(mark=0))
        return old(self, entry, unmarked, now)


@mutant("JGRP-1586", ("G1",), LAZY)
def closed_without_flush(patches: Patches) -> None:
    """Closing throws away what is still unacked."""

    @patches.method(Senders)
    def close(self: Senders, entry: SenderEntry, reason: str, now: float) -> None:
        self.remove(entry, reason, now)


@mutant("JGRP-1577, JGRP-1594", ("G1",), LAZY)
def view_closes_at_once(patches: Patches) -> None:
    """A view without the peer removes its connections instead of letting them flush."""
    old = Connections.__init__

    def begin(self: Connections, generation: Any, *rest: Any) -> None:
        old(self, replace(generation, closes_at_once=True), *rest)

    patches.put(Connections, "__init__", begin)


@mutant("CLOSE", ("G5", "C1", "L1"))
def strangers_not_told_of_closes(patches: Patches) -> None:
    """A connection that ends is not closed at a peer that is no member: its window stays."""
    old = Senders.end

    @patches.method(Senders)
    def end(self: Senders, entry: SenderEntry, reason: str, now: float) -> None:
        members = self._state.members
        if members is None or entry.peer in members:
            old(self, entry, reason, now)
        else:
            self.remove(entry, reason, now)


@mutant("JGRP-942", ("C1",))
def silent_peers_never_age(patches: Patches) -> None:
    """Messages to a member that is gone are resent for ever."""

    @patches.method(Lifetimes)
    def _is_ageing(self: Lifetimes, entry: SenderEntry) -> bool:
        return False


_IS_REMEMBERED: Final = "what a window delivered is remembered when it opens again, so it costs "
BLIND: Final[dict[str, Blind]] = {
    "stamps-ignored": Blind(
        f"{_IS_REMEMBERED}nothing, as acks never say more",
        "tests/sim/test_unicast_reconnect.py",
    ),
    "repeated-first-reopens": Blind(
        f"{_IS_REMEMBERED}a resend",
        "tests/unit/test_unicast_entries.py",
    ),
    "opens-below-the-acked": Blind(
        f"{_IS_REMEMBERED}nothing",
        "tests/unit/test_unicast_entries.py",
    ),
    "any-first-is-the-answer": Blind(
        f"{_IS_REMEMBERED}nothing",
        "tests/sim/test_unicast_reconnect.py",
    ),
    "asks-before-the-turn-ends": Blind(
        "a trace does not say which frames came in one turn",
        "tests/unit/test_unicast_entries.py",
    ),
    "strangers-not-told-of-closes": Blind(
        "a CLOSE is sent once and may be lost, so a window that stays breaks nothing",
        "tests/sim/test_unicast_lifecycle.py",
    ),
}
"""Mutants that the search cannot find, and why. Their hunt fails as soon as one is found."""
