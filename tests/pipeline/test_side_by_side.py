"""Checks that are done side by side: all at once, each with its own outcome, and shared tables are
made once."""

from __future__ import annotations

from collections.abc import Callable
from threading import Barrier, Event, Thread, get_ident
from typing import cast

import pytest
from pyspark.sql import SparkSession

from stormcast.pipeline.side_by_side import AT_ONCE, side_by_side
from stormcast.pipeline.tables.kept import made_once

PATIENCE = 20.0


class _Context:
    """No JVM is here to be told; it notes what it would be told, by thread."""

    def __init__(self) -> None:
        self.told: dict[int, set[str]] = {}

    def setLocalProperty(self, key: str, _value: str) -> None:  # noqa: N802 as PySpark calls it
        self.told.setdefault(get_ident(), set()).add(key)


class _Spark:
    def __init__(self) -> None:
        self.sparkContext = _Context()


FAKE = _Spark()
SPARK = cast("SparkSession", FAKE)


def test_works_are_done_at_the_same_time() -> None:
    all_there = Barrier(AT_ONCE)

    threads = set()

    def work() -> int:
        threads.add(get_ident())
        return all_there.wait(PATIENCE)

    done = side_by_side(SPARK, {str(number): work for number in range(AT_ONCE)})
    assert sorted(done.values()) == list(range(AT_ONCE))
    # What is told to Spark for the tables of a thread is told by each thread.
    told = FAKE.sparkContext.told
    assert all(told[thread] == {"callSite.short", "callSite.long"} for thread in threads)


def test_the_order_is_the_one_that_was_given() -> None:
    second_is_done = Event()

    def first() -> str:
        assert second_is_done.wait(PATIENCE)
        return "one"

    def second() -> str:
        second_is_done.set()
        return "two"

    done = side_by_side(SPARK, {"first": first, "second": second})
    assert list(done.items()) == [("first", "one"), ("second", "two")]


def test_what_one_raises_is_raised_and_the_rest_is_left() -> None:
    may_end = Event()
    begun: list[int] = []

    def fail() -> None:
        raise RuntimeError("Spark went away")

    def wait() -> None:
        assert may_end.wait(PATIENCE)

    def rest(number: int) -> Callable[[], None]:
        return lambda: begun.append(number)

    # All threads but that of the first one are busy: what comes after it has no thread until then.
    works: dict[str, Callable[[], None]] = {"fails": fail}
    works |= {f"waits {number}": wait for number in range(AT_ONCE)}
    works |= {f"rest {number}": rest(number) for number in range(5)}
    with pytest.raises(RuntimeError, match="Spark went away"):
        side_by_side(SPARK, works)
    may_end.set()
    assert not begun


class _Tables:
    def __init__(self, making: Callable[[], object]) -> None:
        self._making = making

    @made_once
    def table(self) -> object:
        """It is slow to make."""
        return self._making()

    @made_once
    def other(self) -> tuple[object, str]:
        """It needs another one."""
        return self.table, "other"


def test_a_table_is_made_once_though_two_ask_at_the_same_time() -> None:
    both_asked = Event()
    made: list[object] = []

    def making() -> object:
        made.append(object())
        # Nobody can say when the other one waits, but only that it does not get here, too.
        both_asked.wait(0.3)
        return made[-1]

    tables = _Tables(making)
    got: list[object] = []
    threads = [
        Thread(target=lambda: got.append(tables.table)),
        Thread(target=lambda: got.append(tables.other[0])),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(made) == 1
    assert got == [made[0], made[0]]
    assert _Tables(making).table is not made[0]


def test_a_table_that_could_not_be_made_is_made_anew() -> None:
    outcomes: list[Callable[[], object]] = [lambda: "made", lambda: 1 / 0]

    def making() -> object:
        return outcomes.pop()()

    tables = _Tables(making)
    with pytest.raises(ZeroDivisionError):
        _ = tables.table
    assert tables.table == "made"
