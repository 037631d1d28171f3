"""The windows against naive ones with one dictionary entry per seqno (P-12, P-22; G2, G3, G5)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stormcast.node.core.window import Piece, ReceiveWindow, SendWindow

EVERYTHING = 1 << 40
LONG = settings(max_examples=2 * settings.default.max_examples, stateful_step_count=60)

OFFSETS = st.sampled_from([0, 2, 20, 300_000, (1 << 31) - 7, (1 << 63) - 40])
CAPACITIES = st.integers(1, 40)
COUNTS = st.integers(1, 8)
SIZES = st.integers(1, 40) | st.integers(1, 200)
SELDOM = st.sampled_from([False, False, False, True])

Range = tuple[int, int]


@dataclass(frozen=True)
class Batch:
    """What a batch carries does not matter here, only which one it is."""

    name: int
    lo: int
    hi: int
    size: int
    oob: bool


def as_ranges(seqnos: list[int]) -> list[Range]:
    """Ascending seqnos as ranges, both ends included."""
    ranges: list[Range] = []
    for seqno in seqnos:
        if ranges and ranges[-1][1] == seqno - 1:
            ranges[-1] = (ranges[-1][0], seqno)
        else:
            ranges.append((seqno, seqno))
    return ranges


def as_seqnos(ranges: list[Range]) -> list[int]:
    return [seqno for lo, hi in ranges for seqno in range(lo, hi + 1)]


@dataclass
class Held:
    """One seqno: its batch (None where it was delivered out of band), and who pays for it."""

    batch: Batch | None
    charge: int | None


class NaiveReceiver:
    """A receive window as its specification reads: a dictionary, and loops over every seqno."""

    def __init__(self, offset: int, capacity: int) -> None:
        self.capacity = capacity
        self.delivered = self.seen = offset
        self.held: dict[int, Held] = {}
        self.skipped: set[int] = set()
        self.sizes: list[int] = []

    @property
    def deliverable(self) -> int:
        seqno = self.delivered
        while seqno + 1 in self.held or seqno + 1 in self.skipped:
            seqno += 1
        return seqno

    @property
    def high(self) -> int:
        return max([self.deliverable, *self.held])

    def charges(self, above: int = 0) -> dict[int, int]:
        """Bytes by charge, of what is held above a seqno."""
        numbers = {held.charge for seqno, held in self.held.items() if seqno > above}
        return {number: self.sizes[number] for number in numbers if number is not None}

    def absent(self) -> list[int]:
        known = self.held.keys() | self.skipped
        return [seqno for seqno in range(self.delivered + 1, self.seen + 1) if seqno not in known]

    def missing(self, limit: int, ranges_limit: int) -> list[Range]:
        return as_ranges(as_seqnos(as_ranges(self.absent())[:ranges_limit])[:limit])

    def see(self, batch: Batch) -> list[Range]:
        """Note that the batch exists; returns which of it is new and within the window."""
        top = min(batch.hi, self.delivered + self.capacity)
        self.seen = max(self.seen, top)
        return as_ranges([seqno for seqno in self.absent() if batch.lo <= seqno <= batch.hi])

    def hold(self, lo: int, hi: int, batch: Batch) -> None:
        self.sizes.append(batch.size)
        charge = None if batch.oob else len(self.sizes) - 1
        for seqno in range(lo, hi + 1):
            assert seqno not in self.held
            self.held[seqno] = Held(None if batch.oob else batch, charge)

    def take_ready(self) -> list[tuple[int, Batch | None]]:
        last = self.deliverable
        in_order = [seqno for seqno in range(self.delivered + 1, last + 1) if seqno in self.held]
        taken = [(seqno, self.held.pop(seqno).batch) for seqno in in_order]
        self._advance(last)
        return taken

    def take_early(self, above: int) -> list[int]:
        """Take batches with an even name that are behind a gap."""
        taken = [
            seqno
            for seqno, held in sorted(self.held.items())
            if seqno > above and held.batch is not None and not held.batch.name % 2
        ]
        for seqno in taken:
            self.held[seqno] = Held(None, None)
        return taken

    def skip_to(self, seqno: int) -> int:
        ahead = range(self.deliverable + 1, seqno + 1)
        gone = [number for number in ahead if number not in self.held]
        if not gone:
            return 0
        self.skipped.update(gone)
        self.seen = max(self.seen, seqno)
        rest = self.held.get(seqno + 1)
        for number, held in self.held.items():
            # The part of a piece above the cut goes on paying for the whole.
            if rest and number <= seqno and held.charge == rest.charge:
                held.charge = None
        if not any(number <= self.deliverable for number in self.held):
            self._advance(self.deliverable)
        return len(gone)

    def _advance(self, seqno: int) -> None:
        self.delivered = seqno
        self.skipped = {number for number in self.skipped if number > seqno}


class ReceiveMachine(RuleBasedStateMachine):
    """Batches arrive anywhere around the window; what comes out is compared after every step."""

    def begin(self, offset: int, capacity: int, capacity_bytes: int) -> None:
        self.window: ReceiveWindow[Batch] = ReceiveWindow(offset, capacity, capacity_bytes)
        self.model = NaiveReceiver(offset, capacity)
        self.names = 0
        self.is_consuming = True
        self.in_order: list[int] = []
        self.out_of_band: set[int] = set()

    @rule(count=COUNTS, size=SIZES, oob=SELDOM)
    def the_next_arrives(self, count: int, size: int, *, oob: bool) -> None:
        self.arrive(self.window.deliverable + 1, count, size, oob=oob)

    @rule(gap=st.integers(1, 6), count=COUNTS, size=SIZES, oob=SELDOM)
    def something_after_a_gap_arrives(self, gap: int, count: int, size: int, *, oob: bool) -> None:
        self.arrive(self.window.high + 1 + gap, count, size, oob=oob)

    @rule(distance=st.integers(-8, 48), count=st.integers(1, 60), size=SIZES, oob=SELDOM)
    def anything_arrives(self, distance: int, count: int, size: int, *, oob: bool) -> None:
        self.arrive(self.window.delivered + distance, count, size, oob=oob)

    @rule(before=st.integers(0, 2), after=st.integers(0, 2), size=SIZES, oob=SELDOM)
    def what_was_missing_arrives(self, before: int, after: int, size: int, *, oob: bool) -> None:
        for lo, hi in self.window.missing(8, 1):
            self.arrive(lo - before, before + hi - lo + 1 + after, size, oob=oob)

    @rule()
    def the_application_takes(self) -> None:
        delivered = self.window.delivered
        taken = [
            (seqno, piece.item)
            for piece in self.window.take_ready()
            for seqno in range(piece.lo, piece.hi + 1)
        ]
        assert taken == self.model.take_ready()
        for seqno, batch in taken:
            assert seqno > delivered
            if batch is None:
                assert seqno in self.out_of_band
            else:
                assert batch.lo <= seqno <= batch.hi
                assert seqno not in self.out_of_band  # G2
                self.in_order.append(seqno)

    @rule()
    def what_may_overtake_a_gap_is_taken(self) -> None:
        """Their places stay, so that no copy is taken."""
        ready_to = self.window.deliverable
        taken = self.window.take_early(lambda batch: not batch.name % 2)
        seqnos = as_seqnos([(piece.lo, piece.hi) for piece in taken])
        assert seqnos == self.model.take_early(ready_to)
        assert self.out_of_band.isdisjoint(seqnos)
        assert set(self.in_order).isdisjoint(seqnos)  # G2
        self.out_of_band.update(seqnos)

    @rule()
    def what_is_taken_is_put_back(self) -> None:
        """It is held again; only what was skipped before it is past."""
        pieces = self.window.take_ready()
        self.window.put_back(pieces)
        if pieces:
            self.model._advance(pieces[0].lo - 1)
        self.window.put_back_early(self.window.take_early(lambda batch: not batch.name % 2))

    @rule()
    def the_application_stalls_or_resumes(self) -> None:
        self.is_consuming = not self.is_consuming

    @rule(limit=st.integers(1, 20), ranges_limit=st.integers(1, 5))
    def the_receiver_asks(self, limit: int, ranges_limit: int) -> None:
        assert self.window.missing(limit, ranges_limit) == self.model.missing(limit, ranges_limit)

    @rule(distance=st.integers(-3, 40))
    def the_sender_gives_up(self, distance: int) -> None:
        window = self.window
        seqno = min(window.delivered + distance, window.delivered + window.capacity)
        assert window.skip_to(seqno) == self.model.skip_to(seqno)

    @rule()
    def everything_missing_arrives(self) -> None:
        """Whatever happened before, resending what is missing ends with nothing missing (G1)."""
        self.the_application_takes()
        for _ in range(self.window.capacity):
            for seqno, _hi in self.window.missing(1):
                self.arrive(seqno, 1, 1, oob=False)
                assert self.window.deliverable >= seqno
                self.the_application_takes()
        assert not self.window.has_gap()
        assert len(self.window) == self.window.bytes == 0

    @invariant()
    def the_window_equals_the_model(self) -> None:
        window, model = self.window, self.model
        assert window.delivered == model.delivered
        assert window.deliverable == model.deliverable
        assert window.high == model.high
        assert window.seen == model.seen
        assert len(window) == len(model.held) + len(model.skipped)
        assert window.missing(EVERYTHING) == as_ranges(model.absent())
        assert window.has_gap() == bool(model.absent())
        assert window.bytes == sum(model.charges().values())

    @invariant()
    def the_window_is_bounded(self) -> None:
        """G5, in messages and in bytes; a batch larger than the bound is held alone."""
        window = self.window
        assert window.delivered <= window.deliverable <= window.high <= window.seen
        assert window.seen <= window.delivered + window.capacity
        is_alone = len(self.model.charges()) == 1
        assert window.bytes <= window.capacity_bytes or is_alone
        assert window.bytes_bound() == max(window.capacity_bytes, window.bytes)

    @invariant()
    def order_is_kept_and_nothing_comes_twice(self) -> None:
        assert self.in_order == sorted(set(self.in_order))  # G2 and G3.

    def arrive(self, lo: int, count: int, size: int, *, oob: bool) -> None:
        lo = max(1, lo)
        batch = Batch(self.names, lo, lo + count - 1, size, oob)
        self.names += 1
        pieces = self.window.add(batch.lo, batch.hi, size, batch, oob=oob)
        for piece in pieces:
            assert piece.item is batch
            assert piece.size == size
        self.settle(batch, [(piece.lo, piece.hi) for piece in pieces])
        if oob:
            direct = as_seqnos([(piece.lo, piece.hi) for piece in pieces])
            assert self.out_of_band.isdisjoint(direct)
            assert set(self.in_order).isdisjoint(direct)
            self.out_of_band.update(direct)
        if self.is_consuming:
            self.the_application_takes()

    def settle(self, batch: Batch, taken: list[Range]) -> None:
        """Bring the model to where the window is, or find that it must not be there."""
        raise NotImplementedError


class RoomyReceiveWindow(ReceiveMachine):
    """Without pressure on bytes the window is the dictionary, exactly."""

    @initialize(offset=OFFSETS, capacity=CAPACITIES)
    def open(self, offset: int, capacity: int) -> None:
        self.begin(offset, capacity, EVERYTHING)

    def settle(self, batch: Batch, taken: list[Range]) -> None:
        assert taken == self.model.see(batch)
        for lo, hi in taken:
            self.model.hold(lo, hi, batch)


class TightReceiveWindow(ReceiveMachine):
    """Under pressure a window may refuse and evict: only what it must, and it asks for it again."""

    @initialize(offset=OFFSETS, capacity=CAPACITIES, capacity_bytes=st.integers(1, 90))
    def open(self, offset: int, capacity: int, capacity_bytes: int) -> None:
        self.begin(offset, capacity, capacity_bytes)

    def settle(self, batch: Batch, taken: list[Range]) -> None:
        model, window = self.model, self.window
        new = model.see(batch)
        ready_to = model.deliverable
        evicted = [seqno for seqno in as_seqnos(window.missing(EVERYTHING)) if seqno in model.held]
        if evicted:
            self.check_eviction(evicted, batch, taken, ready_to)
        for seqno in evicted:
            del model.held[seqno]
        for lo, hi in taken:
            assert (lo, hi) in new
            model.hold(lo, hi, batch)
        for lo, hi in new:
            if (lo, hi) not in taken:
                self.check_refusal(hi, batch)

    def check_eviction(
        self, evicted: list[int], batch: Batch, taken: list[Range], ready_to: int
    ) -> None:
        """The highest first, whole pieces, for something lower, and never what was delivered."""
        model = self.model
        going = [model.held[seqno] for seqno in evicted]
        staying = {seqno: held for seqno, held in model.held.items() if seqno not in evicted}
        assert taken, "evicted for nothing"
        assert not batch.oob, "what is delivered at once needs no room"
        assert min(evicted) > max(ready_to, taken[0][1])
        assert all(held.batch for held in going), "G2: the place of an OOB message was lost"
        charges = {held.charge for held in going}
        assert charges.isdisjoint(held.charge for held in staying.values())
        islands = [seqno for seqno, held in staying.items() if held.batch and seqno > ready_to]
        assert max(islands, default=0) < min(evicted)
        added = batch.size * len(taken)
        assert sum(model.charges().values()) + added > self.window.capacity_bytes

    def check_refusal(self, hi: int, batch: Batch) -> None:
        """What is refused would not fit even if everything above it were evicted."""
        window = self.window
        assert not batch.oob
        evictable = sum(self.model.charges(above=hi).values())
        assert evictable < window.bytes + batch.size - window.capacity_bytes
        assert evictable < window.bytes


class SendMachine(RuleBasedStateMachine):
    """A send window against a dictionary from each unacked seqno to the number of its batch."""

    @initialize(capacity=CAPACITIES, capacity_bytes=st.integers(1, 400))
    def open(self, capacity: int, capacity_bytes: int) -> None:
        self.window: SendWindow[int] = SendWindow(capacity, capacity_bytes)
        self.unacked: dict[int, int] = {}
        self.ranges: dict[int, Range] = {}
        self.sizes: dict[int, int] = {}
        self.low = self.high = 0

    @rule(count=COUNTS, size=SIZES)
    def a_batch_is_sent_if_there_is_room(self, count: int, size: int) -> None:
        messages, room = self.window.room()
        # A window that holds nothing takes one batch of any size, else that batch never leaves.
        if count > messages or (size > room and self.unacked):
            return
        name = len(self.sizes)
        assert self.window.append(count, size, name) == self.high + 1
        self.ranges[name] = (self.high + 1, self.high + count)
        self.sizes[name] = size
        self.unacked |= dict.fromkeys(range(self.high + 1, self.high + count + 1), name)
        self.high += count

    @rule(count=COUNTS, size=SIZES)
    def a_batch_is_taken_back(self, count: int, size: int) -> None:
        """The window is as before; the invariants compare it."""
        if count <= self.window.room()[0]:
            self.window.append(count, size, -1)
            self.window.take_back()

    @precondition(lambda self: self.high > 0)
    @rule(data=st.data())
    def an_ack_arrives(self, data: st.DataObject) -> None:
        """Anywhere: old, at the end of a batch, or inside one."""
        seqno = data.draw(st.integers(max(0, self.low - 3), self.high), label="seqno")
        before = set(self.unacked.values())
        self.unacked = {number: name for number, name in self.unacked.items() if number > seqno}
        self.low = max(self.low, seqno)
        completed = before - set(self.unacked.values())
        newest = self.window.ack(seqno)
        assert (newest.item if newest else None) == max(completed, default=None)

    @precondition(lambda self: self.high > 0)
    @rule(data=st.data())
    def a_request_arrives(self, data: st.DataObject) -> None:
        near = st.integers(max(1, self.low - 3), self.high + 3)
        wanted = sorted(data.draw(st.sets(near, max_size=12), label="wanted"))
        found = [stored.item for stored in self.window.covering(as_ranges(wanted))]
        retained = sorted(set(self.unacked.values()))
        held = {name: set(range(lo, hi + 1)) for name, (lo, hi) in self.ranges.items()}
        assert found == [name for name in retained if held[name].intersection(wanted)]

    @invariant()
    def the_window_equals_the_model(self) -> None:
        window = self.window
        retained = sorted(set(self.unacked.values()))
        used = sum(self.sizes[name] for name in retained)
        assert [(stored.item, stored.lo, stored.hi, stored.size) for stored in window] == [
            (name, *self.ranges[name], self.sizes[name]) for name in retained
        ]
        assert (window.low, window.high, len(window)) == (self.low, self.high, len(self.unacked))
        assert window.bytes == used
        assert window.room() == (window.capacity - len(window), window.capacity_bytes - used)
        if retained:
            assert window.oldest() is next(iter(window))
            assert window.newest() is list(window)[-1]
        else:
            assert window.oldest() is window.newest() is None

    @invariant()
    def the_window_is_bounded(self) -> None:
        """G5: within both bounds; the one batch that may exceed the bytes is alone."""
        window = self.window
        assert window.low <= window.high <= window.low + window.capacity
        assert window.bytes <= window.capacity_bytes or len(list(window)) == 1
        assert window.bytes_bound() == max(window.capacity_bytes, window.bytes)


TestRoomyReceiveWindow = pytest.mark.slow(RoomyReceiveWindow.TestCase)
TestRoomyReceiveWindow.settings = LONG
TestTightReceiveWindow = pytest.mark.slow(TightReceiveWindow.TestCase)
TestTightReceiveWindow.settings = LONG
TestSendWindow = pytest.mark.slow(SendMachine.TestCase)


@dataclass(frozen=True)
class Arrival:
    """A batch, as far from the first seqno, how it is cut up elsewhere, and what happens next."""

    distance: int
    count: int
    oob: bool
    cut: int
    then_take: bool


ARRIVALS = st.lists(
    st.builds(
        Arrival, st.integers(1, 40), st.integers(1, 12), SELDOM, st.integers(1, 4), st.booleans()
    ),
    max_size=30,
)


@given(offset=OFFSETS, capacity=CAPACITIES, arrivals=ARRIVALS)
def test_splitting_a_batch_changes_nothing(
    offset: int, capacity: int, arrivals: list[Arrival]
) -> None:
    """P-12: the same seqnos in the same order, in batches here and cut into smaller ones there."""
    whole = Result(offset, capacity)
    pieces = Result(offset, capacity)
    for arrival in arrivals:
        lo = offset + arrival.distance
        hi = lo + arrival.count - 1
        whole.arrive(lo, hi, oob=arrival.oob)
        for first in range(lo, hi + 1, arrival.cut):
            pieces.arrive(first, min(hi, first + arrival.cut - 1), oob=arrival.oob)
        if arrival.then_take:
            whole.take()
            pieces.take()
        assert whole.state() == pieces.state()
    whole.take()
    pieces.take()
    assert whole.state() == pieces.state()
    assert set(whole.regular).isdisjoint(whole.direct)


class Result:
    """What an application got from one receive window."""

    def __init__(self, offset: int, capacity: int) -> None:
        self.window: ReceiveWindow[str] = ReceiveWindow(offset, capacity, EVERYTHING)
        self.regular: list[int] = []
        self.direct: list[int] = []

    def arrive(self, lo: int, hi: int, *, oob: bool) -> None:
        new = self.window.add(lo, hi, 1, "batch", oob=oob)
        if oob:
            self.direct += seqnos_of(new)

    def take(self) -> None:
        self.regular += seqnos_of([piece for piece in self.window.take_ready() if piece.item])

    def state(self) -> tuple[object, ...]:
        window = self.window
        marks = (window.delivered, window.deliverable, window.high, window.seen)
        return marks, window.missing(EVERYTHING), self.regular, self.direct


def seqnos_of(pieces: list[Piece[str]]) -> list[int]:
    return as_seqnos([(piece.lo, piece.hi) for piece in pieces])
