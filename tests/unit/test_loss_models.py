"""Losses with a memory: how much they take, and in what clusters."""

from __future__ import annotations

from itertools import groupby

import pytest

from stormcast.chaos.faults import Cut, GilbertElliott, Link, Names, NetworkFault, NthLoss
from stormcast.chaos.faults.fate import fate_key
from stormcast.chaos.faults.loss_models import make_model
from stormcast.chaos.faults.paths import PathMaker
from stormcast.node.core.errors import NodeError

FRAMES = 20_000
FROM: Names = ("n0",)
TO: Names = ("n1",)


def lost(action: object, frames: int = FRAMES, key: int = 1) -> list[bool]:
    model = make_model("f1", key, action)
    return [model.loses() for _ in range(frames)]


def test_every_nth_frame_is_lost() -> None:
    taken = lost(NthLoss(nth=4, sources=FROM, dests=TO), 12)
    assert [at for at, is_lost in enumerate(taken, 1) if is_lost] == [4, 8, 12]


def test_a_burst_begins_with_each_nth_frame() -> None:
    taken = lost(NthLoss(nth=5, burst=2, sources=FROM, dests=TO), 16)
    assert [at for at, is_lost in enumerate(taken, 1) if is_lost] == [5, 6, 10, 11, 15, 16]


def test_gilbert_elliott_loses_the_share_of_its_states() -> None:
    """Bad one time in five, and then it loses half: a tenth in all."""
    action = GilbertElliott(p_bad=0.05, p_good=0.2, loss_bad=0.5, sources=FROM, dests=TO)
    assert sum(lost(action)) / FRAMES == pytest.approx(0.1, abs=0.015)


def test_gilbert_elliott_loses_in_bursts_as_long_as_its_bad_times() -> None:
    action = GilbertElliott(p_bad=0.02, p_good=0.1, sources=FROM, dests=TO)
    bursts = [len(list(run)) for is_lost, run in groupby(lost(action)) if is_lost]
    assert sum(bursts) / len(bursts) == pytest.approx(10.0, rel=0.15)


def test_gilbert_elliott_may_lose_in_good_times_too() -> None:
    action = GilbertElliott(p_bad=1e-9, p_good=1.0, loss_good=0.3, sources=FROM, dests=TO)
    assert sum(lost(action)) / FRAMES == pytest.approx(0.3, abs=0.02)


def test_paths_differ_and_equal_ones_do_not() -> None:
    action = GilbertElliott(p_bad=0.1, p_good=0.1, sources=FROM, dests=TO)
    assert lost(action, 200, key=1) == lost(action, 200, key=1)
    assert lost(action, 200, key=1) != lost(action, 200, key=2)


def lost_in_periods(action: NetworkFault, frames: int) -> list[list[bool]]:
    """What is lost of the frames of two periods of a fault that comes and goes."""
    acting = {"f1": action}
    maker, found = PathMaker(), []
    for _period in range(2):
        maker.renew(1, acting)
        (model,) = maker.path("n0", "n1", Link(), acting).models
        found.append([model.loses() for _ in range(frames)])
        maker.renew(1, {})
    return found


def test_a_loss_that_comes_and_goes_counts_anew_in_each_period() -> None:
    nth = NthLoss(nth=4, sources=FROM, dests=TO)
    assert lost_in_periods(nth, 6) == [[False, False, False, True, False, False]] * 2


def test_a_loss_that_comes_and_goes_has_other_dice_in_each_period() -> None:
    first, second = lost_in_periods(
        GilbertElliott(p_bad=0.1, p_good=0.1, sources=FROM, dests=TO), 200
    )
    assert first != second
    assert first == lost(
        GilbertElliott(p_bad=0.1, p_good=0.1, sources=FROM, dests=TO),
        200,
        fate_key(1, "f1/n0", "n1"),
    )


def test_a_loss_goes_on_counting_while_other_faults_come_and_go() -> None:
    action = NthLoss(nth=4, sources=FROM, dests=TO)
    maker, taken = PathMaker(), []
    for acting in ({"f1": action}, {"f1": action, "f2": Cut(sources=("n2",), dests=TO)}):
        maker.renew(1, acting)
        (model,) = maker.path("n0", "n1", Link(), acting).models
        taken += [model.loses() for _ in range(3)]
    assert taken == [False, False, False, True, False, False]


def test_what_is_no_model_makes_none() -> None:
    with pytest.raises(NodeError, match="Cut is no model of loss"):
        make_model("f1", 1, Cut(sources=FROM, dests=TO))
