"""Growth is found where there is some, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from stormcast.chaos.soak.drift import LEAST, slope_of
from tests.fuzz.rounds import BLOCKS, LEAK, MIB, NOISE, after_warm_up, leaks

FRAMES = 1_000_000
KIB = 1 << 10


def samples(
    growth: Callable[[float], float], seed: int = 1, frames: int = FRAMES, spread: float = 100 * KIB
) -> list[tuple[float, float]]:
    """Resident memory after each block of frames, in whole pages, with noise that wears off."""
    dice, last, found = Random(seed), 0.0, []
    for block in range(BLOCKS + 1):
        sent = frames * block / BLOCKS
        last = 0.5 * last + dice.gauss(0, spread)
        found.append((sent, 35 * MIB + (growth(sent) + last) // 4096 * 4096))
    return found


def is_found(found: list[tuple[float, float]]) -> bool:
    counted = after_warm_up(found)
    return leaks(slope_of(counted), counted[-1][0] - counted[0][0], NOISE)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("leak", [5 * LEAK, 200.0, 5000.0])
def test_a_leak_is_found_under_noise(leak: float, seed: int) -> None:
    """40 bytes per frame are found in a round of a million frames, with noise of 100 KiB."""
    assert is_found(samples(lambda sent: leak * sent, seed))


@pytest.mark.parametrize("seed", range(50))
def test_noise_is_no_leak(seed: int) -> None:
    assert not is_found(samples(lambda _sent: 0.0, seed))
    assert not is_found(samples(lambda _sent: 0.0, seed, spread=MIB))


@pytest.mark.parametrize("at", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_step_of_an_allocator_is_no_leak(at: float) -> None:
    """A pool that is taken once, whenever that is, and however large it is."""
    for step in (256 * KIB, 4 * MIB, 30 * MIB):
        assert not is_found(samples(lambda sent, s=step: s * (sent > at * FRAMES)))


def test_tables_that_fill_up_at_the_beginning_are_no_leak() -> None:
    assert not is_found(samples(lambda sent: min(sent, FRAMES / 5) * 400))
    assert not is_found(samples(lambda sent: 8 * MIB * (1 - 2.0 ** (-sent / (FRAMES / 20)))))


def test_a_limit_is_a_limit() -> None:
    """Twice what noise may be is found; half of it is not."""
    counted = FRAMES * 3 / 4
    limit = max(LEAK, NOISE / counted)
    assert is_found(samples(lambda sent: 2 * limit * sent))
    assert not is_found(samples(lambda sent: limit / 2 * sent))


def test_outliers_do_not_move_the_slope() -> None:
    found = samples(lambda sent: 60 * sent, spread=0)
    for number in range(12, BLOCKS, 8):
        found[number] = (found[number][0], found[number][1] + 500 * MIB)
    assert slope_of(after_warm_up(found)).value == pytest.approx(60, rel=0.1)


def test_too_few_samples_say_nothing() -> None:
    few = [(float(n), 1000.0 * MIB * n) for n in range(LEAST - 1)]
    assert not slope_of(few).is_above(0.0)
    assert slope_of([*few, (float(LEAST), 1000.0 * MIB * LEAST)]).is_above(0.0)
    assert slope_of([]).value == 0.0
