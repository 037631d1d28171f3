"""Connections of a stream transport: what the network does to a frame makes it late, no more."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.chaos.backends.sim.streams import (
    MAX_RTO,
    RECONNECT,
    RTO,
    STREAM_TIMEOUT,
    StreamNetwork,
)
from stormcast.chaos.faults import (
    Bandwidth,
    Corrupt,
    Cut,
    Delay,
    Duplicate,
    Link,
    Loss,
    NetworkFault,
    NthLoss,
    Reorder,
    Rule,
)
from stormcast.chaos.faults.fate import FATES
from stormcast.chaos.faults.paths import PathMaker
from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, pack_body
from stormcast.node.core.match import Match

A, B = 0xA, 0xB
DELAY = 0.01
ENDS = {"sources": ("n0",), "dests": ("n1",)}


def data(lo: int, size: int = 100, source: int = A, dest: int = B) -> bytes:
    """A DATA frame of `size` bytes in all."""
    body = pack_body([bytes(size - wire.HEAD_SIZE - 4)], hash64)
    codec = Codec(0xC1, source, hash64)
    return codec.pack_data(wire.UNICAST3, dest, 1, lo, body, 0, 0, 0, 0) + body.data


class Lab:
    """A pair of members, the connection between them, and a clock."""

    def __init__(self, buffers: int = 0, **faults: NetworkFault) -> None:
        self.now = 0.0
        self.arrived: list[tuple[float, bytes]] = []
        self.lost: list[tuple[float, int, int]] = []
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self.network = StreamNetwork(
            FATES["xxh3"], self._arrive, self._call, self._take_away, self._lose, buffers
        )
        self._maker = PathMaker()
        self.acts(**faults)
        self.answers = 0

    def _arrive(self, at: float, dest: int, frame: bytes) -> None:
        if dest == B:
            self.arrived.append((at, frame))
        else:
            self.answers += 1

    def _call(self, at: float, action: Callable[[], None]) -> None:
        heappush(self._calls, (at, len(self._calls), action))

    def _take_away(self, source: int, dest: int) -> None:
        if (source, dest) == (A, B):
            self.arrived = [one for one in self.arrived if one[0] <= self.now]

    def _lose(self, at: int, peer: int) -> None:
        self.lost.append((self.now, at, peer))

    def acts(self, **faults: NetworkFault) -> None:
        """From now on these faults act, and no others."""
        self._maker.renew(1, faults)
        for ends in (("n0", "n1"), ("n1", "n0")):
            self.network.set_path(self._maker.path(*ends, Link(delay=DELAY), faults))
        self.network.on_change(self.now)

    def block(self) -> None:
        self.acts(cut=Cut(**ENDS))

    def heal(self) -> None:
        self.acts()

    def limit(self, bandwidth: float, *, cut: bool = False) -> None:
        """From now on the path takes so many bytes per second."""
        limit = Bandwidth(rate=bandwidth, **ENDS)
        if cut:
            self.acts(f1=limit, cut=Cut(**ENDS))
        else:
            self.acts(f1=limit)

    def send(self, *numbers: int, size: int = 100) -> None:
        for lo in numbers:
            self.network.send(self.network.path("n0", "n1"), B, data(lo, size), self.now)

    def answer(self) -> None:
        """A frame from B to A."""
        self.network.send(self.network.path("n1", "n0"), A, data(1, source=B, dest=A), self.now)

    def advance(self, until: float) -> None:
        while self._calls and self._calls[0][0] <= until:
            self.now, _order, action = heappop(self._calls)
            action()
        self.now = until

    def send_each(self, numbers: range, every: float) -> None:
        for lo in numbers:
            self.send(lo)
            self.advance(self.now + every)

    @property
    def numbers(self) -> list[int]:
        """What arrived, in the order of arrival."""
        ordered = sorted(self.arrived, key=lambda one: one[0])
        return [
            wire.HEAD_STRUCT.unpack_from(frame)[wire.Head._fields.index("lo")]
            for _at, frame in ordered
        ]

    @property
    def times(self) -> list[float]:
        return [at for at, _frame in self.arrived]

    def bit(self, fault: str = "f1") -> int:
        return sum(self.network.decider.counted().get(fault, {}).values())


def test_a_frame_takes_the_delay_of_its_path() -> None:
    lab = Lab()
    lab.send(1, 2)
    assert lab.arrived == [(DELAY, data(1)), (DELAY, data(2))]


def test_a_frame_that_cannot_be_opened_ends_its_connection_and_what_is_under_way_in_it() -> None:
    """The receiver hears of it first; the next frame is of a new connection."""
    lab = Lab()
    lab.send(1)
    lab.advance(DELAY)
    lab.send(2, 3)
    lab.network.end_unopened(B, data(1), DELAY)
    assert lab.numbers == [1]
    assert lab.lost == [(DELAY, B, A)]
    lab.network.end_unopened(B, data(1), DELAY)
    assert len(lab.lost) == 1
    lab.send(4)
    assert lab.numbers == [1, 4]


def test_the_next_connection_stands_a_while_later_however_short_the_way() -> None:
    """Where a frame took no time, two members made connections without end at one moment."""
    lab = Lab()
    lab.send(1)
    lab.advance(DELAY)
    lab.network.end_unopened(B, data(1), DELAY)
    lab.send(2)
    assert lab.times[-1] == DELAY + RECONNECT
    lab.advance(1.0)
    lab.send(3)
    assert lab.times[-1] == 1.0 + DELAY


def test_with_it_go_the_frames_that_a_cut_keeps_waiting() -> None:
    lab = Lab()
    lab.block()
    lab.send(1, 2)
    lab.network.end_unopened(B, data(1), 0.0)
    lab.heal()
    lab.advance(60.0)
    assert lab.numbers == []


@pytest.mark.parametrize(
    "fault",
    [
        Loss(rate=0.3, **ENDS),
        Corrupt(rate=0.3, **ENDS),
        Delay(delay=0.0, jitter=0.5, **ENDS),
        Reorder(rate=0.3, by=0.4, **ENDS),
        Duplicate(rate=0.3, **ENDS),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_nothing_is_lost_doubled_spoiled_or_overtaken(fault: NetworkFault) -> None:
    lab = Lab(f1=fault)
    lab.send_each(range(1, 301), 0.01)
    lab.advance(60.0)
    assert lab.numbers == list(range(1, 301))
    assert {frame for _at, frame in lab.arrived} == set(map(data, range(1, 301)))
    assert lab.times == sorted(lab.times)
    # Few where each strike holds up all that follow: those pass together, whatever their own dice.
    assert lab.bit() >= 5


def test_a_lost_frame_and_all_behind_it_come_when_the_kernel_repeats_it() -> None:
    lab = Lab(f1=NthLoss(nth=3, **ENDS))
    lab.send_each(range(1, 5), 0.01)
    lab.advance(1.0)
    # The third is lost; the fourth waits behind it.
    repeated = 0.02 + RTO + DELAY
    assert lab.times == pytest.approx([DELAY, 0.01 + DELAY, repeated, repeated])
    assert lab.bit() == 1


def test_what_is_repeated_in_vain_is_repeated_ever_more_rarely() -> None:
    lab = Lab()
    lab.block()
    lab.send(1)
    lab.advance(10.0)
    # One try at once, then after 0.2, 0.4, 0.8, 1.6, 1.6 … seconds more.
    pauses = [RTO, 0.4, 0.8, *[MAX_RTO] * 5]
    assert lab.bit("cut") == 1 + len(pauses)
    assert sum(pauses) < 10.0 < sum(pauses) + MAX_RTO


def test_what_a_partition_holds_back_arrives_after_it_in_order() -> None:
    lab = Lab()
    lab.block()
    lab.send_each(range(1, 11), 0.5)
    assert lab.arrived == []
    lab.heal()
    lab.send(11)
    lab.advance(5.0 + MAX_RTO + DELAY)
    assert lab.numbers == list(range(1, 12))
    assert min(lab.times) >= 5.0
    assert lab.lost == []


def test_a_connection_that_gets_nothing_through_for_too_long_ends_with_what_it_held() -> None:
    lab = Lab()
    lab.block()
    lab.send(1, 2)
    lab.advance(STREAM_TIMEOUT - 0.1)
    assert lab.lost == []
    lab.advance(STREAM_TIMEOUT + MAX_RTO)
    assert [(at, peer) for _time, at, peer in lab.lost] == [(A, B)]
    lab.heal()
    lab.send(3)
    lab.advance(60.0)
    assert lab.numbers == [3]


def test_both_directions_of_a_connection_end_together() -> None:
    """What B wrote a moment before A gave up is lost with it; nobody gives up twice."""
    lab = Lab()
    both = ("n0", "n1")
    lab.acts(cut=Cut(sources=both, dests=both))
    lab.send(1)
    lab.advance(STREAM_TIMEOUT - 1.0)
    lab.answer()
    lab.advance(60.0)
    lab.heal()
    lab.advance(120.0)
    assert lab.answers == 0
    assert [(at, peer) for _time, at, peer in lab.lost] == [(A, B)]


def test_a_connection_without_traffic_survives_any_partition() -> None:
    lab = Lab()
    lab.send(1)
    lab.block()
    lab.advance(10 * STREAM_TIMEOUT)
    lab.heal()
    lab.send(2)
    assert lab.numbers == [1, 2]
    assert lab.lost == []


def test_a_narrow_path_queues_and_drops_nothing() -> None:
    """1000 bytes at 1 kB/s: one each second, for as long as it takes."""
    lab = Lab()
    lab.limit(1000.0)
    lab.send(*range(1, 21), size=1000)
    lab.advance(20.5)
    assert lab.numbers == list(range(1, 21))
    assert lab.times == pytest.approx([number + DELAY for number in range(1, 21)])
    assert lab.bit() == 20


@pytest.mark.parametrize(("bandwidth", "each"), [(4000.0, 0.25), (500.0, 2.0)])
def test_what_queued_leaves_at_the_new_rate(bandwidth: float, each: float) -> None:
    """The limit changes when half of the third has left: its rest and what follows pass at the new
    rate, and so does what comes later, behind them (seed 702207)."""
    lab = Lab()
    lab.limit(1000.0)
    lab.send(*range(1, 7), size=1000)
    lab.advance(2.5)
    lab.limit(bandwidth)
    lab.send(7, size=1000)
    lab.advance(60.0)
    assert lab.numbers == list(range(1, 8))
    third = 2.5 + each / 2 + DELAY
    later = [third + each * number for number in range(5)]
    assert lab.times == pytest.approx([1 + DELAY, 2 + DELAY, *later])


def test_what_queued_leaves_at_once_when_the_limit_ends() -> None:
    lab = Lab()
    lab.limit(1000.0)
    lab.send(*range(1, 7), size=1000)
    lab.advance(2.5)
    lab.heal()
    lab.send(7, size=1000)
    lab.advance(60.0)
    assert lab.numbers == list(range(1, 8))
    assert lab.times == pytest.approx([1 + DELAY, 2 + DELAY, *[2.5 + DELAY] * 5])


def test_what_queued_does_not_leave_through_a_cut() -> None:
    """Two have left when the cut comes; the rest, and what was sent in it, follows after it."""
    lab = Lab()
    lab.limit(1000.0)
    lab.send(*range(1, 5), size=1000)
    lab.advance(2.5)
    lab.limit(1000.0, cut=True)
    lab.send(5, size=1000)
    lab.advance(9.0)
    assert lab.numbers == [1, 2]
    assert lab.bit("cut") > 0
    lab.limit(1000.0)
    lab.advance(20.0)
    assert lab.numbers == [1, 2, 3, 4, 5]
    assert lab.lost == []


def test_a_line_that_others_wait_in_keeps_its_time_when_paths_change() -> None:
    """Paths are rebuilt for every fault; the same rate is no change."""
    lab = Lab()
    lab.limit(1000.0)
    lab.send(*range(1, 4), size=1000)
    for moment in (0.3, 0.7, 1.0, 2.9):
        lab.advance(moment)
        lab.limit(1000.0)
    lab.advance(10.0)
    assert lab.times == pytest.approx([1 + DELAY, 2 + DELAY, 3 + DELAY])


def test_bounded_buffers_drop_what_finds_them_full() -> None:
    lab = Lab(buffers=3)
    lab.limit(1000.0)
    lab.send(*range(1, 6), size=1000)
    assert lab.network.overflowed == 2
    lab.advance(1.5)
    lab.send(6, 7, size=1000)
    lab.advance(10.0)
    assert lab.numbers == [1, 2, 3, 6]


def test_bounded_buffers_fill_behind_a_cut_and_drop_the_rest() -> None:
    lab = Lab(buffers=3)
    lab.block()
    lab.send(*range(1, 6))
    lab.heal()
    lab.advance(5.0)
    assert lab.numbers == [1, 2, 3]


def test_frames_that_leave_at_once_need_no_buffer() -> None:
    lab = Lab(buffers=1)
    lab.send(*range(1, 100))
    assert len(lab.arrived) == 99
    assert lab.network.overflowed == 0


def test_the_end_of_a_process_takes_what_waits_for_it_and_names_its_peers() -> None:
    lab = Lab()
    lab.block()
    lab.send(1)
    assert lab.network.end_process(B) == [A]
    assert lab.network.end_process(B) == []
    lab.heal()
    lab.advance(30.0)
    assert lab.arrived == []
    assert lab.lost == []


# -- Rules stand above the connection --------------------------------------------------------------


def test_a_rule_takes_frames_before_the_connection_sees_them() -> None:
    lab = Lab(r1=Rule(match=Match(seqno=(2, 2))))
    lab.send(1, 2, 3)
    assert lab.numbers == [1, 3]
    assert lab.bit("r1") == 1


def test_what_a_rule_held_or_delayed_is_written_when_it_is_let_go() -> None:
    lab = Lab(
        r1=Rule(does="hold", match=Match(seqno=(1, 1))),
        r2=Rule(does="delay", match=Match(seqno=(2, 2)), delay=2.0),
    )
    lab.send(1, 2, 3)
    lab.advance(1.0)
    assert lab.network.release("r1", lab.now) == 1
    lab.advance(3.0)
    assert lab.numbers == [3, 1, 2]
    assert lab.times == pytest.approx([DELAY, 1.0 + DELAY, 2.0 + DELAY])


def test_a_rule_may_double_and_spoil_frames() -> None:
    lab = Lab(
        r1=Rule(does="duplicate", match=Match(seqno=(1, 1)), copies=2),
        r2=Rule(does="corrupt", match=Match(seqno=(2, 2))),
    )
    lab.send(1, 2)
    assert [frame == data(1) for _at, frame in lab.arrived] == [True, True, True, False]
