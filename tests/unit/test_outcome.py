"""What becomes of a frame where several faults act: in which order, and which of them count."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest as hash64

from stormcast.chaos.backends.sim.network import Network
from stormcast.chaos.faults import (
    Bandwidth,
    Corrupt,
    Cut,
    Delay,
    Duplicate,
    GilbertElliott,
    Link,
    Loss,
    NetworkFault,
    NthLoss,
    Reorder,
    Rule,
)
from stormcast.chaos.faults.fate import FATES
from stormcast.chaos.faults.outcome import DROP, HOLD, PASS, Decider, FrameOutcome, damaged
from stormcast.chaos.faults.paths import Path, PathMaker
from stormcast.node.core import wire
from stormcast.node.core.codec import Codec
from stormcast.node.core.match import Match

ENDS = {"sources": ("n0",), "dests": ("n1",)}
FATE = FATES["xxh3"]
SIZE = 1000
FAULTS: Mapping[str, NetworkFault] = {
    "f1": Delay(delay=0.01, jitter=0.02, **ENDS),
    "f2": Reorder(rate=0.3, by=0.05, **ENDS),
    "f3": Duplicate(rate=0.3, **ENDS),
    "f4": GilbertElliott(p_bad=0.1, p_good=0.3, loss_bad=0.8, loss_good=0.05, **ENDS),
    "f5": NthLoss(nth=7, burst=2, **ENDS),
    "f6": Corrupt(rate=0.2, **ENDS),
    "f7": Loss(rate=0.2, **ENDS),
    "f8": Bandwidth(rate=20_000.0, **ENDS),
    "f9": Cut(**ENDS),
    "r1": Rule(match=Match(seqno=(5, 9))),
    "r2": Rule(does="hold", match=Match(seqno=(9, 12))),
}


def frame(lo: int) -> bytes:
    """A preamble is all that is looked at."""
    return Codec(0xC1, 0xA, hash64).pack_control(wire.ACK, wire.UNICAST3, 0xB, 1, lo)


class Lab:
    """One path, and what is decided on it."""

    def __init__(self, base: Link | None = None, **faults: NetworkFault) -> None:
        self.decider = Decider(FATE)
        maker = PathMaker()
        maker.renew(3, faults)
        self.path: Path = maker.path("n0", "n1", base or Link(delay=0.0), faults)

    def decide(self, *numbers: int, now: float = 0.0) -> list[FrameOutcome]:
        return [self.decider.decide(self.path, frame(lo), SIZE, now) for lo in numbers]

    def bit(self, fault: str) -> int:
        return self.decider.bites[fault]["n0", "n1"]


def test_a_cut_comes_before_all_and_nothing_else_counts() -> None:
    lab = Lab(**FAULTS)
    assert {outcome.does for outcome in lab.decide(*range(1, 21))} == {DROP}
    assert lab.decider.counted() == {"f9": {("n0", "n1"): 20}}


def test_what_a_rule_takes_meets_nothing_else() -> None:
    lab = Lab(r1=Rule(does="delay", delay=1.0), f1=Loss(rate=1.0, **ENDS), f2=FAULTS["f3"])
    assert lab.decide(1, 2, now=5.0) == [FrameOutcome(PASS, 6.0)] * 2
    assert set(lab.decider.counted()) == {"r1"}


def test_of_several_rules_the_first_that_began_takes_a_frame() -> None:
    lab = Lab(r1=FAULTS["r1"], r2=FAULTS["r2"])
    assert [outcome.does for outcome in lab.decide(4, 8, 9, 10)] == [PASS, DROP, DROP, HOLD]


def test_what_a_loss_took_is_not_seen_by_losses_with_a_memory() -> None:
    lab = Lab(f1=Loss(rate=0.5, **ENDS), f2=NthLoss(nth=3, **ENDS))
    lab.decide(*range(1, 301))
    assert lab.bit("f2") == (300 - lab.bit("f1")) // 3


def test_what_finds_no_room_is_late_but_not_thrown_for() -> None:
    """Each frame takes a second of the line."""
    lab = Lab(
        f1=Bandwidth(rate=SIZE, **ENDS), f2=Duplicate(rate=1.0, **ENDS), f3=Delay(delay=0.1, **ENDS)
    )
    first, second = lab.decide(1, 2)
    assert (first.at, len(first.copies), second.does) == (pytest.approx(1.1), 1, DROP)
    assert [lab.bit(fault) for fault in ("f1", "f2", "f3")] == [2, 1, 2]


@pytest.mark.parametrize(
    ("rates", "counts"),
    [
        ((None, 500.0, 500.0), "f1"),
        ((500.0, 500.0, 500.0), "network"),
        ((None, 500.0, 400.0), "f2"),
    ],
)
def test_the_lowest_limit_counts_and_of_equal_ones_the_first(
    rates: tuple[float | None, float, float], counts: str
) -> None:
    base, first, second = rates
    lab = Lab(
        Link(delay=0.0, bandwidth=base),
        f1=Bandwidth(rate=first, **ENDS),
        f2=Bandwidth(rate=second, **ENDS),
    )
    lab.decide(1)
    assert lab.decider.counted() == {counts: {("n0", "n1"): 1}}


def test_the_networks_own_delay_is_no_fault() -> None:
    lab = Lab(Link(delay=0.2), f1=Delay(delay=0.1, **ENDS))
    assert lab.decide(1) == [FrameOutcome(PASS, pytest.approx(0.3))]
    assert lab.decider.counted() == {"f1": {("n0", "n1"): 1}}


def test_two_corruptions_damage_twice_by_the_dice_of_the_frame_as_it_was_sent() -> None:
    """Though the first one may flip a bit of what makes the frame that frame."""
    one, two = Corrupt(rate=0.4, **ENDS), Corrupt(rate=0.6, **ENDS)
    numbers = range(1, 201)
    alone = Lab(f2=two).decide(*numbers)
    first = Lab(f1=one).decide(*numbers)
    both = Lab(f1=one, f2=two).decide(*numbers)
    assert [outcome.flips for outcome in both] == [
        a.flips + b.flips for a, b in zip(first, alone, strict=True)
    ]
    assert {len(outcome.flips) for outcome in both} == {0, 1, 2}


def test_copies_are_not_damaged_and_follow_their_original() -> None:
    [outcome] = Lab(f1=Corrupt(rate=1.0, **ENDS), f2=Duplicate(rate=1.0, **ENDS)).decide(1)
    assert len(outcome.flips) == len(outcome.copies) == 1
    assert outcome.copies[0] > outcome.at


def test_what_is_no_frame_is_only_late() -> None:
    lab = Lab(**{name: fault for name, fault in FAULTS.items() if name not in ("f8", "f9")})
    outcome = lab.decider.after_losses(lab.path, None, SIZE, 1.0)
    assert outcome == FrameOutcome(PASS, 1.01)
    assert set(lab.decider.counted()) == {"f1"}


def test_what_is_let_go_has_the_delay_of_its_path_and_is_lost_in_a_cut() -> None:
    lab = Lab(Link(delay=0.2))
    assert lab.decider.let_go(lab.path, 1.0) == FrameOutcome(PASS, 1.2)
    lab = Lab(f9=FAULTS["f9"])
    assert lab.decider.let_go(lab.path, 1.0).does == DROP
    assert lab.bit("f9") == 1


def test_rules_go_on_counting_when_paths_are_made_anew_and_begin_anew_when_they_do() -> None:
    maker, rule = PathMaker(), Rule(times=2)
    assert maker.renew(1, {"r1": rule}) == []
    first = maker.rules["r1"]
    assert maker.renew(1, {"f1": FAULTS["f1"], "r1": rule}) == []
    assert maker.rules["r1"] is first
    assert maker.renew(1, {"r1": Rule(times=3)}) == ["r1"]
    assert maker.rules["r1"] is not first
    assert maker.renew(1, {}) == ["r1"]


def test_rules_are_named_in_the_order_in_which_they_began() -> None:
    maker = PathMaker()
    maker.renew(1, {"b": FAULTS["r2"], "f1": FAULTS["f1"], "a": FAULTS["r2"]})
    assert maker.rules_named(None) == ["b", "a"]
    assert maker.rules_named("a") == ["a"]
    assert maker.rules_named("f1") == []


def test_several_bits_are_flipped_behind_where_it_may_begin() -> None:
    data = bytes(10)
    assert damaged(data, ()) is data
    assert damaged(data, (0, 9), begin=8) == bytes(8) + b"\x01\x02"
    assert damaged(data, (3, 3)) == data


@given(
    names=st.sets(st.sampled_from(sorted(FAULTS))),
    loss=st.sampled_from((0.0, 0.3)),
    numbers=st.lists(st.integers(1, 40), max_size=30),
    pause=st.sampled_from((0.0, 0.03)),
)
def test_the_simulators_network_does_what_is_decided(
    names: set[str], loss: float, numbers: list[int], pause: float
) -> None:
    """Also where it does not ask for more than a loss, alone and to a group."""
    faults = {name: FAULTS[name] for name in sorted(names)}
    base = Link(delay=0.01, loss=loss)
    arrived: list[tuple[float, bytes]] = []
    expected: list[tuple[float, bytes]] = []
    lab = Lab(base, **faults)
    network = Network(FATE, lambda at, _dest, data: arrived.append((at, data)))
    path = Lab(base, **faults).path
    network.set_path(path)
    for place, lo in enumerate(numbers):
        sent, now = frame(lo), place * pause
        outcome = lab.decider.decide(lab.path, sent, len(sent), now)
        if outcome.does == PASS:
            expected += [(outcome.at, damaged(sent, outcome.flips))]
            expected += [(at, sent) for at in outcome.copies]
        if place % 2:
            network.send(path, 0xB, sent, now)
        else:
            network.send_to_each(
                [(path, 0xB)], sent, now, lambda at, _dests, data: arrived.append((at, data))
            )
    assert sorted(arrived) == sorted(expected)
    assert network.decider.counted() == lab.decider.counted()
