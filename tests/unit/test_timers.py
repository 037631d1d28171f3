"""Timers: any number of named moments, each key with at most one, taken once and in order."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormcast.node.core.timers import AFTER_FAILURE, Timers


def armed(**moments: float) -> Timers[str]:
    timers: Timers[str] = Timers()
    for key, when in moments.items():
        timers.set(key, when)
    return timers


def test_a_key_is_due_at_its_moment_and_not_before() -> None:
    timers = armed(a=1.0)
    assert list(timers.take_due(0.999)) == []
    assert list(timers.take_due(1.0)) == ["a"]


def test_a_moment_is_taken_once() -> None:
    timers = armed(a=1.0)
    assert list(timers.take_due(5.0)) == ["a"]
    assert list(timers.take_due(5.0)) == []
    assert timers.due("a") == timers.next_deadline() == inf


def test_of_keys_in_turn_that_are_due_together_another_one_leads_each_time() -> None:
    timers: Timers[str] = Timers(in_turn=True)
    timers.set("before", 0.5)
    for name in ("a", "b", "c"):
        timers.set(name, 1.0)
    orders = []
    for moment in (1.0, 2.0, 3.0):
        orders.append([key for key in timers.take_due(moment) if key != "before"])
        for key in orders[-1]:
            timers.set(key, moment + 1.0)
    assert orders == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]]
    # Earlier ones are first all the same.
    timers = Timers(in_turn=True)
    for name, when in (("last", 3.0), ("one", 2.0), ("two", 2.0), ("other", 2.0)):
        timers.set(name, when)
    assert list(timers.take_due(9.0)) == ["two", "other", "one", "last"]


def test_keys_come_earliest_first_and_of_one_moment_in_the_order_they_were_set() -> None:
    """Whoever replays a run sees the same order: it depends on nothing but what was set when."""
    timers = armed(late=3.0, second=2.0, third=2.0, first=1.0)
    assert list(timers.take_due(9.0)) == ["first", "second", "third", "late"]


def test_keys_need_no_order_of_their_own() -> None:
    timers: Timers[object] = Timers()
    keys = [object(), ("x", 1), None]
    for key in keys:
        timers.set(key, 1.0)
    assert list(timers.take_due(1.0)) == keys


def test_setting_a_key_again_moves_it_either_way() -> None:
    timers = armed(a=2.0)
    timers.set("a", 5.0)
    assert timers.next_deadline() == 5.0
    assert list(timers.take_due(2.0)) == []
    timers.set("a", 1.0)
    assert timers.next_deadline() == timers.due("a") == 1.0
    assert list(timers.take_due(9.0)) == ["a"]
    assert list(timers.take_due(9.0)) == []


def test_a_key_that_was_put_off_does_not_come_at_its_old_moment() -> None:
    """Nobody has asked for the next deadline in between."""
    timers = armed(a=2.0, b=3.0)
    timers.set("a", 5.0)
    assert list(timers.take_due(4.0)) == ["b"]
    assert list(timers.take_due(5.0)) == ["a"]


def test_a_key_that_was_moved_away_and_back_comes_once() -> None:
    timers = armed(a=1.0)
    timers.set("a", 2.0)
    timers.set("a", 1.0)
    assert list(timers.take_due(3.0)) == ["a"]


def test_set_earlier_never_puts_a_moment_off() -> None:
    timers = armed(a=2.0)
    timers.set_earlier("a", 3.0)
    assert timers.due("a") == 2.0
    timers.set_earlier("a", 1.0)
    assert timers.due("a") == 1.0
    timers.set_earlier("b", 4.0)
    assert timers.due("b") == 4.0


def test_a_moment_at_infinity_is_none_at_all() -> None:
    timers = armed(a=1.0)
    timers.set("a", inf)
    assert timers.next_deadline() == inf
    assert list(timers.take_due(inf)) == []
    timers.set_earlier("a", inf)
    assert list(timers.take_due(inf)) == []


def test_a_cancelled_key_does_not_come_and_may_be_set_anew() -> None:
    timers = armed(a=1.0, b=2.0)
    timers.cancel("a")
    timers.cancel("a")
    timers.cancel("stranger")
    assert timers.next_deadline() == 2.0
    timers.set("a", 1.0)
    assert list(timers.take_due(9.0)) == ["a", "b"]


def test_cleared_timers_forget_everything() -> None:
    timers = armed(a=1.0, b=2.0)
    timers.clear()
    assert timers.next_deadline() == timers.due("a") == inf
    assert list(timers.take_due(9.0)) == []


def test_a_key_that_is_set_while_it_is_handled_comes_again_and_not_in_the_same_round() -> None:
    """A timer that sets itself anew for `now` would else be handled for ever."""
    timers = armed(a=1.0)
    for key in list(timers.take_due(1.0)):
        timers.set(key, 1.0)
    assert timers.next_deadline() == 1.0
    assert list(timers.take_due(1.0)) == ["a"]
    assert list(timers.take_due(1.0)) == []


@pytest.mark.parametrize("moves", [100, 10_000])
def test_a_timer_that_moves_all_the_time_fills_no_memory(moves: int) -> None:
    """G5: what is kept depends on how many keys there are, not on how often they move."""
    timers = armed(still=1.0)
    tracemalloc.start()
    try:
        for number in range(moves):
            timers.set("later", 10.0 + number)
            timers.set("same", 5.0)
            timers.cancel("same")
        size, _peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 50_000
    assert list(timers.take_due(9.0)) == ["still"]
    assert timers.next_deadline() == 10.0 + moves - 1


# -- Against a model -------------------------------------------------------------------------------


KEYS = st.sampled_from("abcd")
MOMENTS = st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.0, inf])
DEEDS = st.one_of(
    st.tuples(st.just("set"), KEYS, MOMENTS),
    st.tuples(st.just("set_earlier"), KEYS, MOMENTS),
    st.tuples(st.just("cancel"), KEYS),
    st.tuples(st.just("take_due"), st.sampled_from([0.0, 1.0, 1.7, 3.0])),
    st.just(("next_deadline",)),
    st.just(("clear",)),
)


@given(st.lists(DEEDS, max_size=60))
def test_timers_are_a_mapping_from_keys_to_moments(deeds: list[tuple[object, ...]]) -> None:
    """What is due, and when, is as a plain mapping says. (The order within one moment has its own
    test.)"""
    timers: Timers[str] = Timers()
    model: dict[str, float] = {}
    for deed in deeds:
        match deed:
            case ("set", str(key), float(when)):
                timers.set(key, when)
                model[key] = when
            case ("set_earlier", str(key), float(when)):
                timers.set_earlier(key, when)
                model[key] = min(model.get(key, inf), when)
            case ("cancel", str(key)):
                timers.cancel(key)
                model.pop(key, None)
            case ("take_due", float(now)):
                taken = list(timers.take_due(now))
                moments = [model.pop(key) for key in taken]
                assert moments == sorted(moments)
                assert all(when <= now for when in moments)
                assert all(when > now for when in model.values())
            case ("next_deadline",):
                assert timers.next_deadline() == min(model.values(), default=inf)
            case ("clear",):
                timers.clear()
                model.clear()
        assert all(timers.due(key) == model.get(key, inf) for key in "abcd")


@pytest.mark.parametrize("others", [0, 1, 5])
def test_asking_for_the_next_deadline_changes_nothing(others: int) -> None:
    timers = armed(a=2.0, **{f"other{number}": 3.0 for number in range(others)})
    timers.set("a", 1.0)
    assert [timers.next_deadline() for _ in range(3)] == [1.0] * 3
    assert len(list(timers.take_due(9.0))) == others + 1


def test_what_a_due_timer_cancels_or_moves_does_not_come_in_the_same_round() -> None:
    """Both are due at once; the first one ends what the second one was for."""
    timers: Timers[str] = Timers()
    for key in ("end", "ask", "later", "last"):
        timers.set(key, 1.0)
    came = []
    for key in timers.take_due(1.0):
        came.append(key)
        if key == "end":
            timers.cancel("ask")
            timers.set("later", 2.0)
    assert came == ["end", "last"]
    assert list(timers.take_due(2.0)) == ["later"]


def test_a_timer_that_is_set_again_to_its_moment_keeps_its_place() -> None:
    """Between two looks at the earliest moment, nothing that was cancelled is forgotten: else the
    order of equal moments, and with it a run, would depend on how often was looked."""
    timers: Timers[str] = Timers()
    timers.set("a", 1.0)
    timers.set("b", 1.0)

    timers.cancel("a")
    timers.set("a", 1.0)

    assert timers.next_deadline() == 1.0
    assert list(timers.take_due(1.0)) == ["a", "b"]


def test_the_earliest_moment_at_hand_is_never_late() -> None:
    """It is exact unless it says that it was moved, and then no later than the truth."""
    timers: Timers[str] = Timers()
    for key, when in [("a", 3.0), ("b", 1.0), ("a", 2.0), ("b", 5.0), ("a", inf), ("b", 4.0)]:
        timers.set(key, when)
        at_hand, is_moved = timers.earliest, timers.is_moved
        truth = min(timers.due("a"), timers.due("b"))
        assert at_hand == truth or (is_moved and at_hand < truth)
        assert timers.next_deadline() == timers.earliest == truth
        assert not timers.is_moved


def handle(timers: Timers[str], now: float, *, failing: str, moves: dict[str, float]) -> list[str]:
    """Handle what is due, until the handling of one key fails; return the keys before it."""
    handled = []
    with suppress(MemoryError):
        for key in timers.take_due(now):
            for other, when in moves.items():
                timers.set(other, when)
            timers.next_deadline()
            if key == failing:
                raise MemoryError
            handled.append(key)
    return handled


@pytest.mark.parametrize("failing", ["a", "b", "c"])
def test_a_key_that_is_not_handled_for_a_bug_ends_no_timer(failing: str) -> None:
    """The others are due still; it comes again, but not in the next turns."""
    timers = armed(a=1.0, b=1.0, c=2.0, later=9.0)
    handled = handle(timers, 2.0, failing=failing, moves={})
    rest = [key for key in "abc" if key > failing]
    assert timers.next_deadline() == (timers.due(rest[0]) if rest else 2.0 + AFTER_FAILURE)
    assert handled + list(timers.take_due(2.1)) == [key for key in "abc" if key != failing]
    assert timers.next_deadline() == timers.due(failing) == 2.0 + AFTER_FAILURE
    assert list(timers.take_due(9.0)) == [failing, "later"]
    assert timers.next_deadline() == inf


def test_a_key_that_could_not_be_set_can_be_set_again(monkeypatch: pytest.MonkeyPatch) -> None:
    timers = armed(a=5.0)
    with monkeypatch.context() as patch:
        patch.setattr("stormcast.node.core.timers.heappush", out_of_memory)
        for key in "ab":
            with pytest.raises(MemoryError):
                timers.set(key, 1.0)
    assert timers.next_deadline() == 5.0
    for key in "ab":
        timers.set_earlier(key, 2.0)
    assert list(timers.take_due(2.0)) == ["a", "b"]


def test_keys_that_could_not_be_taken_are_due_still() -> None:
    """The third one cannot be looked up."""

    class Costly(str):
        __slots__ = ()
        fails = False

        def __hash__(self) -> int:
            if Costly.fails:
                raise MemoryError
            return super().__hash__()

    timers = armed(a=1.0, b=1.0)
    timers.set(Costly("c"), 2.0)
    Costly.fails = True
    with pytest.raises(MemoryError):
        list(timers.take_due(2.0))
    Costly.fails = False
    assert timers.next_deadline() == 1.0
    assert list(timers.take_due(2.0)) == ["a", "b", "c"]


def out_of_memory(*_rest: object) -> None:
    raise MemoryError


def test_what_was_set_or_cancelled_before_a_bug_stays_so() -> None:
    timers = armed(a=1.0, b=1.0, c=1.0, d=1.0)
    assert handle(timers, 1.0, failing="a", moves={"a": 1.5, "b": inf, "c": 1.2}) == []
    assert timers.next_deadline() == 1.0
    assert list(timers.take_due(9.0)) == ["d", "c", "a"]
