"""`stormcast executor`: what Spark tells it becomes the words that start Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from stormcast.exits import Exit
from stormcast.pipeline import session
from stormcast.pipeline.executor import BACKEND, TOLD, command, executor
from stormcast.pipeline.questions import CannotError

SET = {name: f"of {name}" for name in TOLD.values()} | {
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_JAVA_OPT_0": "-Da=b c",
    "SPARK_JAVA_OPT_1": "-Dd=e",
    "SPARK_JAVA_OPT_3": "-Dnot=there",
    "JAVA_HOME": "/java",
}


def test_java_is_told_all_that_the_driver_has_set() -> None:
    words = command(SET, Path("/spark"))
    assert words[0] == "/java/bin/java"
    assert words[1:7] == ["-Da=b c", "-Dd=e", "-Xms512m", "-Xmx512m", "-cp", "/spark/jars/*"]
    assert words[7] == BACKEND
    assert dict(zip(words[8::2], words[9::2], strict=True)) == {
        flag: f"of {name}" for flag, name in TOLD.items()
    }


def test_jars_that_the_driver_names_come_after_those_of_spark() -> None:
    words = command(SET | {"SPARK_CLASSPATH": "/more.jar"}, Path("/spark"))
    assert "/spark/jars/*:/more.jar" in words


@pytest.mark.parametrize("name", ["SPARK_EXECUTOR_MEMORY", *TOLD.values()])
def test_it_is_refused_elsewhere_than_in_a_pod_of_spark(name: str) -> None:
    told = {key: value for key, value in SET.items() if key != name}
    with pytest.raises(CannotError, match=f"Spark starts this in its pods, and sets {name}$"):
        command(told, Path("/spark"))


def test_a_person_who_calls_it_is_told_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "check_java", lambda _who: None)
        assert executor([]) == Exit.USAGE
    said = capsys.readouterr().err
    assert said.startswith("stormcast executor: Spark starts this in its pods, and sets SPARK_")
    assert said.count("\n") == 1
