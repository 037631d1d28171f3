"""`stormcast search --master`: the same rows as without, and all of them though a worker dies."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stormcast.pipeline import session
from stormcast.pipeline.questions import CannotError
from stormcast.pipeline.tasks import _last_word, _patient
from tests.pipeline.standalone import HERE, SECONDS, Cluster, wait_for


@pytest.fixture(autouse=True)
def java() -> None:
    try:
        session.check_java()
    except CannotError as why:
        pytest.skip(str(why))


def a_search(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "stormcast", "search", "--json", *words],
        cwd=folder,
        env=HERE,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def rows_in(out: Path) -> list[dict[str, Any]]:
    """All rows that are whole, in whatever file."""
    lines = (line for path in out.glob("rows/*") for line in path.read_bytes().splitlines(True))
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


def but_seconds(rows: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {row["seed"]: {**row, "seconds": None} for row in rows}


@pytest.mark.slow
def test_a_worker_that_dies_loses_no_seed_and_none_counts_twice(tmp_path: Path) -> None:
    """Two parts of twenty seeds, one at each worker; the first worker dies in the middle."""
    words = ("--seeds", "40", "--from", "300")
    # Not before both are there: each is to have a part.
    asked = (
        "spark.executor.memory=512m",
        "spark.cores.max=2",
        "spark.scheduler.minRegisteredResourcesRatio=1.0",
    )
    settings = [word for one in asked for word in ("--conf", one)]
    with Cluster(tmp_path / "spark") as spark:
        first, _second = spark.add_worker(), spark.add_worker()
        with a_search(
            tmp_path, *words, "--out", "far", "--master", spark.url, *settings
        ) as searching:
            out = tmp_path / "far"
            try:
                wait_for(
                    lambda: len([file for file in out.glob("rows/*") if file.stat().st_size]) == 2,
                    lambda: str(searching.poll()),
                )
                first.send_signal(signal.SIGKILL)
                said, talk = searching.communicate(timeout=SECONDS)
            finally:
                searching.kill()
        assert searching.returncode == 0, talk
    assert len(list(out.glob("rows/*"))) == 3, "a part was run by both"

    total = json.loads(said)
    rows = but_seconds(rows_in(out))
    assert sorted(rows) == list(range(300, 340))
    assert (total["seeds"], total["resumed"]) == (40, 0)
    assert total["events"] == sum(row["events"] for row in rows.values())

    with a_search(tmp_path, *words, "--out", "near", "--workers", "2") as searching:
        said, talk = searching.communicate(timeout=SECONDS)
    assert searching.returncode == 0, talk
    assert but_seconds(rows_in(tmp_path / "near")) == rows


@pytest.mark.slow
def test_ctrl_c_ends_it_and_it_goes_on_without_spark(tmp_path: Path) -> None:
    """What one engine began another ends."""
    words = ("--seeds", "30", "--out", "kept")
    out = tmp_path / "kept"
    with a_search(tmp_path, *words, "--master", "local[1]") as searching:
        try:
            wait_for(lambda: rows_in(out), lambda: str(searching.poll()))
            searching.send_signal(signal.SIGINT)
            said, talk = searching.communicate(timeout=SECONDS)
        finally:
            searching.kill()
    assert searching.returncode == 130, talk
    assert "to go on: stormcast search --seeds 30 --from 0 --out kept --master 'local[1]'" in talk
    assert "Traceback" not in talk
    before = json.loads(said)["seeds"]
    assert 1 <= before < 30
    with a_search(tmp_path, *words, "--workers", "2") as searching:
        said, talk = searching.communicate(timeout=SECONDS)
    assert searching.returncode == 0, talk
    total = json.loads(said)
    assert total["seeds"] == 30
    assert total["resumed"] >= before
    assert sorted(but_seconds(rows_in(out))) == list(range(30))


# -- Small print -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("local", "local[1,4]"),
        ("local[3]", "local[3,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,7]", "local[2,7]"),
        ("spark://a:7077", "spark://a:7077"),
    ],
)
def test_one_machine_tries_a_task_as_often_as_many_do(asked: str, given: str) -> None:
    assert _patient(asked) == given


def test_what_a_task_died_of_is_found_in_what_spark_says() -> None:
    said = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collect.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed 4 times
Traceback (most recent call last):
  File "serializers.py", line 472, in loads
ModuleNotFoundError: No module named 'chaos'

org.apache.spark.SparkException: again
"""
    assert _last_word(Exception(said)) == "ModuleNotFoundError: No module named 'chaos'"
    assert _last_word(Exception("Job 0 cancelled\nmore")) == "Job 0 cancelled"
