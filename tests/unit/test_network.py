"""The simulated network: what each fault does to frames, and that it says so."""

from __future__ import annotations

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.chaos.backends.sim.network import Network
from stormcast.chaos.faults import (
    Bandwidth,
    Corrupt,
    Cut,
    Delay,
    Duplicate,
    Link,
    Loss,
    Names,
    NetworkFault,
    Reorder,
    Rule,
)
from stormcast.chaos.faults.fate import FATES
from stormcast.chaos.faults.outcome import COPY_GAP, QUEUE_SECONDS, damaged
from stormcast.chaos.faults.paths import COPY_SPREAD, PathMaker
from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, pack_body
from stormcast.node.core.match import Match

B = 0xB
DELAY = 0.01
SIZE = 1000
FROM: Names = ("n0",)
TO: Names = ("n1",)
CUT = Cut(sources=FROM, dests=TO)


def data(lo: int, size: int = 100, transmission: int = 0) -> bytes:
    """A DATA frame of `size` bytes in all."""
    body = pack_body([bytes(size - wire.HEAD_SIZE - 4)], hash64)
    codec = Codec(0xC1, 0xA, hash64)
    return codec.pack_data(wire.UNICAST3, B, 1, lo, body, 0, transmission, 0, 0) + body.data


def narrow(rate: float) -> Bandwidth:
    return Bandwidth(sources=FROM, dests=TO, rate=rate)


class Lab:
    """One path, and what came out at its end."""

    def __init__(self, seed: int = 1, fate: str = "xxh3", **faults: NetworkFault) -> None:
        self.arrived: list[tuple[float, int, bytes]] = []
        self.network = Network(
            FATES[fate], lambda at, dest, frame: self.arrived.append((at, dest, frame))
        )
        self._seed = seed
        self._maker = PathMaker()
        self.acts(**faults)

    def acts(self, **faults: NetworkFault) -> None:
        """From now on these faults act, and no others."""
        self._maker.renew(self._seed, faults)
        path = self._maker.path("n0", "n1", Link(delay=DELAY), faults)
        self.network.set_path(path)

    def send(self, *frames: bytes, at: float = 0.0) -> None:
        for frame in frames:
            self.network.send(self.network.path("n0", "n1"), B, frame, at)

    @property
    def times(self) -> list[float]:
        return [at for at, _dest, _frame in self.arrived]

    @property
    def frames(self) -> list[bytes]:
        return [frame for _at, _dest, frame in self.arrived]

    def bit(self, fault: str = "f1") -> int:
        return sum(self.network.decider.counted().get(fault, {}).values())


def test_a_path_without_faults_only_delays() -> None:
    lab = Lab()
    lab.send(data(1), data(2), at=3.0)
    assert lab.arrived == [(3.01, B, data(1)), (3.01, B, data(2))]
    assert lab.network.decider.counted() == {}


@pytest.mark.parametrize("fate", FATES)
def test_loss_takes_its_share_and_counts_each(fate: str) -> None:
    lab = Lab(fate=fate, f1=Loss(sources=FROM, dests=TO, rate=0.2))
    lab.send(*map(data, range(1, 2001)))
    assert lab.bit() == 2000 - len(lab.arrived)
    assert abs(lab.bit() - 400) < 75


def test_two_losses_add_up_as_independent_chances() -> None:
    loss = Loss(sources=FROM, dests=TO, rate=0.5)
    lab = Lab(f1=loss, f2=loss)
    lab.send(*map(data, range(1, 2001)))
    assert abs(len(lab.arrived) - 500) < 80
    assert abs(lab.bit("f2") - 500) < 80


def test_jitter_spreads_arrivals_over_its_range() -> None:
    lab = Lab(f1=Delay(sources=FROM, dests=TO, delay=0.0, jitter=0.5))
    lab.send(*map(data, range(1, 1001)), at=2.0)
    late = [at - 2.0 - DELAY for at in lab.times]
    assert 0.0 <= min(late) < 0.01
    assert 0.49 < max(late) < 0.5
    assert abs(sum(late) / 1000 - 0.25) < 0.02
    assert lab.bit() == 2000, "of the delay and of the jitter"


def test_reordering_lets_later_frames_overtake_a_share() -> None:
    lab = Lab(f1=Reorder(sources=FROM, dests=TO, rate=0.3, by=1.0))
    lab.send(*map(data, range(1, 1001)))
    assert set(lab.times) == {DELAY, DELAY + 1.0}
    held = lab.times.count(DELAY + 1.0)
    assert lab.bit() == held
    assert abs(held - 300) < 60


def test_a_duplicate_follows_its_original_and_is_equal_to_it() -> None:
    lab = Lab(f1=Duplicate(sources=FROM, dests=TO, rate=0.25))
    lab.send(*map(data, range(1, 1001)))
    assert abs(len(lab.arrived) - 1250) < 60
    assert lab.bit() == len(lab.arrived) - 1000
    copies = [at for at in lab.times if at > DELAY]
    assert len(copies) == lab.bit()
    assert min(copies) >= DELAY + COPY_GAP
    assert max(copies) < DELAY + COPY_GAP + COPY_SPREAD
    assert set(lab.frames) == set(map(data, range(1, 1001)))


def test_corruption_flips_one_bit_of_a_share() -> None:
    lab = Lab(f1=Corrupt(sources=FROM, dests=TO, rate=0.25))
    sent = [data(lo) for lo in range(1, 1001)]
    lab.send(*sent)
    changed = [
        (int.from_bytes(was, "big") ^ int.from_bytes(now, "big")).bit_count()
        for was, now in zip(sent, lab.frames, strict=True)
        if was != now
    ]
    assert set(changed) == {1}
    assert lab.bit() == len(changed)
    assert abs(len(changed) - 250) < 60


def test_a_corrupt_frame_differs_in_one_bit_whatever_was_drawn() -> None:
    frame = bytes(10)
    flipped = {damaged(frame, (drawn,)) for drawn in range(160)}
    assert len(flipped) == 80
    assert all(int.from_bytes(one, "big").bit_count() == 1 for one in flipped)


def test_a_blocked_path_lets_nothing_through_and_each_cause_counts() -> None:
    lab = Lab(f1=CUT, f2=CUT)
    lab.send(data(1), data(2))
    assert lab.arrived == []
    assert (lab.bit("f1"), lab.bit("f2")) == (2, 2)


def test_added_delay_counts_on_every_frame() -> None:
    lab = Lab(f1=Delay(sources=FROM, dests=TO, delay=0.5))
    lab.send(data(1), data(2), at=1.0)
    assert lab.times == [1.51, 1.51]
    assert lab.bit() == 2


def test_bandwidth_spaces_frames_by_what_they_weigh() -> None:
    """Ten frames of 1000 bytes at 100 kB/s: one each 10 ms."""
    lab = Lab(f1=narrow(100_000.0))
    lab.send(*[data(lo, SIZE) for lo in range(1, 11)])
    assert lab.times == pytest.approx([DELAY + 0.01 * place for place in range(1, 11)])
    assert lab.bit() == 10


def test_what_would_queue_too_long_behind_a_bandwidth_limit_is_lost() -> None:
    """A quarter of a second of queue at 10 kB/s is two and a half frames."""
    lab = Lab(f1=narrow(10_000.0))
    lab.send(*[data(lo, SIZE) for lo in range(1, 11)])
    assert len(lab.arrived) == 3
    assert max(lab.times) <= DELAY + QUEUE_SECONDS + SIZE / 10_000
    lab.send(data(11, SIZE), at=1.0)
    assert lab.times[-1] == pytest.approx(1.0 + DELAY + 0.1)


def test_a_new_path_keeps_the_queue_of_the_one_it_replaces() -> None:
    """Faults come and go many times a second; the line behind them stays as busy as it was."""
    lab = Lab(f1=narrow(10_000.0))
    lab.send(data(1, SIZE))
    lab.acts(f1=narrow(10_000.0), f2=Loss(sources=FROM, dests=TO, rate=1e-9))
    lab.send(data(2, SIZE))
    assert lab.times == pytest.approx([DELAY + 0.1, DELAY + 0.2])


def test_what_becomes_of_a_frame_does_not_depend_on_when_it_is_sent() -> None:
    """The same frames in another order and at other times: the same ones are lost and doubled."""

    def survivors(*, backwards: bool) -> list[bytes]:
        loss, copies = (
            Loss(sources=FROM, dests=TO, rate=0.3),
            Duplicate(sources=FROM, dests=TO, rate=0.3),
        )
        lab = Lab(seed=5, f1=loss, f2=copies)
        frames = [data(lo) for lo in range(1, 301)]
        for place, frame in enumerate(reversed(frames) if backwards else frames):
            lab.send(frame, at=place * (0.1 if backwards else 0.7))
        return sorted(lab.frames)

    assert survivors(backwards=False) == survivors(backwards=True)


def test_a_frame_that_is_lost_may_pass_when_it_is_sent_again() -> None:
    lab = Lab(f1=Loss(sources=FROM, dests=TO, rate=0.5))
    for lo in range(1, 51):
        for transmission in range(20):
            lab.send(data(lo, transmission=transmission))
    assert {wire.HEAD_STRUCT.unpack_from(frame)[11] for frame in lab.frames} == set(range(1, 51))


# -- Rules -----------------------------------------------------------------------------------------


def test_a_rule_that_drops_takes_what_it_matches_and_nothing_else() -> None:
    lab = Lab(r1=Rule(match=Match(seqno=(2, 3))))
    lab.send(*map(data, range(1, 6)))
    assert lab.frames == [data(1), data(4), data(5)]
    assert lab.bit("r1") == 2


def test_a_rule_that_delays_makes_its_frames_late() -> None:
    lab = Lab(r1=Rule(does="delay", match=Match(seqno=(2, 2)), delay=2.0))
    lab.send(*map(data, range(1, 4)))
    assert lab.times == [DELAY, DELAY + 2.0, DELAY]


def test_a_rule_that_duplicates_adds_copies() -> None:
    lab = Lab(r1=Rule(does="duplicate", match=Match(seqno=(2, 2)), copies=3))
    lab.send(*map(data, range(1, 4)))
    assert lab.frames == [data(1), data(2), data(2), data(2), data(2), data(3)]
    assert lab.bit("r1") == 1


def test_a_rule_that_corrupts_flips_one_bit_each_time_another() -> None:
    lab = Lab(r1=Rule(does="corrupt"))
    lab.send(*[data(1)] * 5)
    assert len(set(lab.frames)) == 5
    assert data(1) not in lab.frames


def test_a_rule_that_holds_keeps_frames_until_they_are_released_in_order() -> None:
    lab = Lab(r1=Rule(does="hold", match=Match(seqno=(1, 2))))
    lab.send(*map(data, range(1, 4)))
    assert lab.frames == [data(3)]
    assert lab.network.release("r1", 5.0) == 2
    assert lab.arrived[1:] == [(5.0 + DELAY, B, data(1)), (5.0 + DELAY, B, data(2))]
    assert lab.network.release("r1", 6.0) == 0


def test_the_first_rule_that_matches_decides() -> None:
    lab = Lab(r1=Rule(match=Match(seqno=(1, 1))), r2=Rule(does="hold"))
    lab.send(data(1), data(2))
    assert (lab.bit("r1"), lab.network.release("r2", 1.0)) == (1, 1)


@pytest.mark.parametrize("does", ["delay", "duplicate", "corrupt", "hold"])
def test_a_rule_does_not_carry_frames_across_a_partition(does: str) -> None:
    """What a rule does happens on the way; the way ends where the network is cut."""
    lab = Lab(r1=Rule(does=does), f1=CUT)
    lab.send(data(1))
    lab.network.release("r1", 1.0)
    assert lab.arrived == []
    assert lab.bit("f1") >= 1
