"""When protocols look: the grid of `compatible`, the round trips of `fast`."""

from __future__ import annotations

from collections.abc import Callable
from math import isclose

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stormcast.node.core.errors import ConfigError
from stormcast.node.core.rtt import RoundTrip
from stormcast.node.core.timing import Pacer, Timing, next_on_grid

NOW = st.floats(0.0, 1e6) | st.integers(0, 2_000_000).map(lambda halves: halves / 2)
INTERVALS = st.floats(1e-6, 1e4) | st.sampled_from([0.1, 0.25, 0.3, 0.5, 1.0, 1.1, 2.0, 60.0])
SECONDS = st.floats(0.0, 100.0)


def compatible(interval: float = 0.5) -> Pacer:
    return Pacer(Timing(), interval)


def fast(interval: float = 0.5, **settings: float) -> Pacer:
    return Pacer(Timing(name="fast", adaptive=True, **settings), interval)


def measured(*samples: float) -> RoundTrip:
    rtt = RoundTrip(samples[0])
    for sample in samples:
        rtt.sample(sample)
    return rtt


# -- The grid ------------------------------------------------------------------------------------


@given(now=NOW, interval=INTERVALS)
@example(now=0.3, interval=0.1)
@example(now=1e6, interval=1e-6)
@example(now=0.0, interval=0.5)
def test_the_grid_is_always_ahead_and_never_further_than_an_interval(
    now: float, interval: float
) -> None:
    """A timer that fires at its own start would spin; one that skips a tick would be late."""
    due = next_on_grid(now, interval)
    assert now < due
    assert due <= now + interval or isclose(due, now + interval, rel_tol=1e-9)


@given(now=NOW, interval=st.floats(1e-12, 1e-6))
def test_the_grid_is_ahead_even_where_it_is_finer_than_floats_are(
    now: float, interval: float
) -> None:
    assert next_on_grid(now, interval) > now


@given(start=st.floats(0.0, 1e5), interval=INTERVALS)
@example(start=1.0, interval=1e-6)
def test_no_tick_comes_twice_and_none_is_skipped(start: float, interval: float) -> None:
    """P-15: a request needs two looks, so two that are a hair apart would be one too few."""
    tick = next_on_grid(start, interval)
    for _ in range(10):
        following = next_on_grid(tick, interval)
        assert isclose(following - tick, interval, rel_tol=1e-3)
        tick = following


def test_everyone_looks_at_the_same_moments() -> None:
    """Whenever a wait begins within an interval, it ends at the same tick."""
    assert {next_on_grid(now, 0.5) for now in (10.0, 10.1, 10.25, 10.499)} == {10.5}
    assert next_on_grid(10.5, 0.5) == 11.0


# -- Compatible ----------------------------------------------------------------------------------


WAITS: dict[str, Callable[[Pacer, float, RoundTrip], float]] = {
    "ack": lambda pacer, now, _rtt: pacer.ack_at(now, now - 1.0),
    "first gap look": lambda pacer, now, _rtt: pacer.first_gap_look(now),
    "second gap look": lambda pacer, now, rtt: pacer.second_gap_look(now, rtt),
    "next gap look": lambda pacer, now, rtt: pacer.next_gap_look(now, rtt, 3),
    "next send look": lambda pacer, now, rtt: pacer.next_send_look(now, rtt, 3),
}
each_wait = pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
TICKS = {name: wait for name, wait in WAITS.items() if name != "next gap look"}


@pytest.mark.parametrize("wait", TICKS.values(), ids=TICKS)
def test_compatible_looks_at_the_next_tick_whatever_the_round_trip(
    wait: Callable[[Pacer, float, RoundTrip], float],
) -> None:
    assert wait(compatible(0.5), 7.2, measured(0.001)) == 7.5
    assert wait(compatible(0.5), 7.5, measured(30.0)) == 8.0


@each_wait
@given(now=NOW, sample=SECONDS, interval=INTERVALS)
def test_fast_never_waits_longer_than_compatible_may(
    wait: Callable[[Pacer, float, RoundTrip], float], now: float, sample: float, interval: float
) -> None:
    """C1 and L1: the interval is the pace there and only the bound here; neither looks back."""
    due = wait(fast(interval), now, measured(sample))
    assert now <= due <= now + interval
    assert wait(compatible(interval), now, measured(sample)) > now


def test_compatible_repeats_a_request_an_interval_later_even_after_a_late_tick() -> None:
    """A look that was late by 0.2 must not be followed by the next one after 0.3."""
    assert compatible(0.5).next_gap_look(7.5, RoundTrip(0.1), 0) == 8.0
    assert compatible(0.5).next_gap_look(7.7, RoundTrip(0.1), 0) == 8.5


def test_the_interval_may_change_while_running() -> None:
    pacer = compatible(0.5)
    pacer.interval = 2.0
    assert pacer.first_gap_look(7.2) == 8.0


# -- Fast ----------------------------------------------------------------------------------------


def test_fast_acks_at_once_after_a_pause_and_else_spaces_acks() -> None:
    """The first message after a silence is acked now; the next ack is `ack_delay` later."""
    pacer = fast(ack_delay=0.25)
    assert pacer.ack_at(10.0, last_ack=9.0) == 10.0
    assert pacer.ack_at(10.0, last_ack=9.875) == 10.125


def test_fast_looks_at_a_new_gap_at_once_and_again_after_the_tolerance() -> None:
    """A quarter of a round trip, but not less than the tolerance nor more than the interval."""
    pacer = fast(interval=0.5, reorder_tolerance=0.125)
    assert pacer.first_gap_look(10.0) == 10.0
    assert pacer.second_gap_look(10.0, RoundTrip(0.25)) == 10.125
    assert pacer.second_gap_look(10.0, RoundTrip(1.0)) == 10.25
    assert pacer.second_gap_look(10.0, RoundTrip(100.0)) == 10.5


def test_fast_doubles_its_wait_up_to_the_interval() -> None:
    pacer = fast(interval=1.0, min_wait=0.0625)
    looks = [pacer.next_send_look(10.0, RoundTrip(0.0), tries) - 10.0 for tries in range(7)]
    assert looks == [0.0625, 0.125, 0.25, 0.5, 1.0, 1.0, 1.0]
    assert pacer.next_send_look(10.0, RoundTrip(0.0), 10_000) == 11.0
    assert pacer.next_gap_look(10.0, RoundTrip(0.0), 1) == 10.125


def test_fast_spaces_by_a_few_round_trips_up_to_the_interval_and_never_below_the_least() -> None:
    """Four of the waits."""
    pacer = fast(1.0, min_wait=0.125)
    assert pacer.spaced(0.25, RoundTrip(0.0)) == 0.5
    assert pacer.spaced(0.25, RoundTrip(60.0)) == 1.0
    assert pacer.spaced(2.0, RoundTrip(0.0)) == 2.0


def test_compatible_keeps_a_spacing_as_it_is_set() -> None:
    assert compatible().spaced(2.0, RoundTrip(0.0)) == 2.0
    assert compatible().spaced(0.1, RoundTrip(60.0)) == 0.1


def test_a_fresh_estimate_is_the_assumed_one_and_the_floor_is_nothing() -> None:
    pacer = fast(initial_rtt=0.25)
    assert pacer.round_trip().smoothed == 0.25
    assert pacer.floor().wait(0.0, 1.0) == 0.0


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("initial_rtt", 1e-9, 0.0),
        ("min_wait", 1e-9, 0.0),
        ("reorder_tolerance", 0.0, -1e-9),
        ("ack_delay", 0.0, -1e-9),
    ],
)
def test_a_timing_that_cannot_work_names_the_setting_and_its_value(
    name: str, good: float, bad: float
) -> None:
    assert getattr(Timing(**{name: good}), name) == good
    with pytest.raises(ConfigError, match=rf"timing\.{name} is {bad}: "):
        Timing(**{name: bad})


# -- Round trips ---------------------------------------------------------------------------------


def test_a_sample_moves_the_estimate_with_the_gains_of_tcp() -> None:
    """An eighth of the error to the mean, a quarter to the deviation."""
    rtt = RoundTrip(1.0)
    assert (rtt.smoothed, rtt.deviation) == (1.0, 0.5)
    rtt.sample(2.0)
    assert (rtt.smoothed, rtt.deviation) == (1.125, 0.625)
    rtt.sample(1.125)
    assert (rtt.smoothed, rtt.deviation) == (1.125, 0.46875)


def test_the_wait_is_the_mean_and_four_deviations_within_its_bounds() -> None:
    rtt = RoundTrip(1.0)
    assert rtt.wait(floor=0.0, ceiling=10.0) == 3.0
    assert rtt.wait(floor=4.0, ceiling=10.0) == 4.0
    assert rtt.wait(floor=0.0, ceiling=2.0) == 2.0
    assert rtt.wait(floor=4.0, ceiling=2.0) == 2.0, "the bound of an interval is the last word"


@given(first=SECONDS, steady=SECONDS)
def test_a_steady_round_trip_is_learned(first: float, steady: float) -> None:
    """After a hundred equal samples the wait is close to the round trip itself."""
    rtt = RoundTrip(first)
    for _ in range(100):
        rtt.sample(steady)
    assert isclose(rtt.wait(0.0, 1000.0), steady, abs_tol=0.01)


@given(samples=st.lists(SECONDS, min_size=1), floor=SECONDS, above=SECONDS)
def test_an_estimate_stays_within_what_was_measured(
    samples: list[float], floor: float, above: float
) -> None:
    rtt = measured(*samples)
    assert min(samples) - 1e-9 <= rtt.smoothed <= max(samples) + 1e-9
    assert rtt.deviation >= 0.0
    assert floor <= rtt.wait(floor, floor + above) <= floor + above


def test_fast_counts_silence_from_the_last_change_and_compatible_from_the_look() -> None:
    rtt = RoundTrip(0.01)
    wait = rtt.smoothed + 4 * rtt.deviation
    fast = Pacer(Timing(adaptive=True), 0.5)
    assert isclose(fast.look_after_change(10.0, 9.99, rtt), 9.99 + wait)
    # The silence is over already: look at once, and never in the past.
    assert fast.look_after_change(10.0, 9.0, rtt) == 10.0
    compatible = Pacer(Timing(), 0.5)
    assert compatible.look_after_change(10.1, 9.0, rtt) == 10.5
