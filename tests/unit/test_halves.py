"""How the run is found for which something crashes, and that a lost Spark is no such run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark.sql")

from stormcast.pipeline.halves import SparkLost, in_halves
from stormcast.pipeline.questions import one_line


class GoneSpark:
    """Answers nothing, as if its JVM were killed."""

    @property
    def sparkContext(self) -> Any:  # noqa: N802 as PySpark calls it
        raise ConnectionRefusedError(111, "Connection refused")


SPARK: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
GONE: Any = GoneSpark()
RUNS = tuple("abcdefgh")


def test_what_crashes_for_some_is_done_for_all_others() -> None:
    """By halves: those of `d` and `g` are told, and no other run is alone for long."""
    tried: list[str] = []
    told: list[str] = []

    def work(runs: tuple[str, ...]) -> str:
        tried.append("".join(runs))
        if {"d", "g"} & set(runs):
            raise ValueError(f"no {runs[0]}\nand more")
        return "".join(runs)

    found, crashed = in_halves(SPARK, RUNS, work, lambda runs: told.append("".join(runs)))
    assert found == ["ab", "c", "ef", "h"]
    assert crashed == {"d": "no d", "g": "no g"}
    assert tried == ["abcdefgh", "abcd", "ab", "cd", "c", "d", "efgh", "ef", "gh", "g", "h"]
    assert told == ["abcdefgh", "abcd", "cd", "efgh", "gh"]


def test_what_does_not_crash_is_done_once() -> None:
    assert in_halves(SPARK, RUNS, len) == ([8], {})
    assert in_halves(SPARK, (), len) == ([0], {})


def test_if_spark_is_gone_nothing_is_tried_again() -> None:
    tried: list[object] = []

    def work(runs: object) -> None:
        tried.append(runs)
        raise ConnectionRefusedError(111, "Connection refused")

    with pytest.raises(SparkLost, match=r"Spark went away .*: run stormcast verify again"):
        in_halves(GONE, RUNS, work)
    assert tried == [RUNS]


def test_an_error_is_told_in_the_line_that_says_most() -> None:
    assert one_line(ValueError("\nso it is\nat line 3")) == "so it is"
    assert one_line(KeyError()) == "KeyError"
    of_java = "An error occurred while calling o7.collect.\n: Job aborted\n\tat A.b(A.java:1)"
    assert one_line(ValueError(of_java)) == "Job aborted"
    of_java += "\nCaused by: Stage failed\n\tat C\nCaused by: long overflow\n\tat D\n\t... 1 more"
    assert one_line(ValueError(of_java)) == "long overflow"
