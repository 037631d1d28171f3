"""`stormcast verify` on a cluster that loses the worker which has computed all tables so far."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest

from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.session.runner import run_scenario
from stormcast.pipeline import session
from stormcast.pipeline.questions import CannotError
from tests.pipeline.batch import write_run
from tests.pipeline.standalone import HERE, SECONDS, Cluster, wait_for

RUN = """
name: run
guarantees: [G1, G2, G3, G4, L1]
cluster: {members: 2}
workload:
  - {do: unicast, from: n0, to: n1, count: 100, rate: 100/s, size: 16B}
timeline:
  - {at: 100ms, do: loss, from: n0, to: n1, rate: 10%, for: 500ms}
"""
ONE_AT_A_TIME = ("--conf", "spark.cores.max=1", "--conf", "spark.executor.memory=512m")


class Verify:
    """One call of `stormcast verify`, and what it has said so far."""

    def __init__(self, *words: str | Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "stormcast", "verify", "--json", *ONE_AT_A_TIME, *words],
            env=HERE,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.said = ""
        """On stderr."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.said += line

    def wait_until_it_says(self, text: str) -> None:
        wait_for(lambda: text in self.said or self._process.poll() is not None, lambda: self.said)
        assert text in self.said, self.said

    def end(self) -> tuple[int, str]:
        """Wait for the end; returns the exit code and what it printed."""
        assert self._process.stdout is not None
        out = self._process.stdout.read()
        code = self._process.wait(SECONDS)
        self._reader.join(SECONDS)
        return code, out

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._reader.join(SECONDS)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        self._process.wait()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    try:
        session.check_java()
    except CannotError as why:
        pytest.skip(str(why))
    outcome = run_scenario(parse_scenario(RUN), 1)
    return write_run(outcome.run.traces, tmp_path / "run")


@contextmanager
def verify_and_lose_a_worker(spark: Cluster, *words: str | Path) -> Iterator[Verify]:
    """Have a worker that is alone read the traces, then another take its place."""
    first = spark.add_worker()
    with Verify("--master", spark.url, *words) as verify:
        verify.wait_until_it_says("checking G1")
        spark.add_worker()
        first.send_signal(signal.SIGKILL)
        yield verify


@pytest.mark.slow
def test_tables_on_storage_that_all_hosts_see_outlive_the_worker(run: Path, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    with (
        Cluster(tmp_path / "spark") as spark,
        verify_and_lose_a_worker(spark, run, "--tables", tables) as verify,
    ):
        assert len(list(tables.glob("*/*/rdd-*"))) > 1, "they are kept there"
        code, out = verify.end()
    verdict = json.loads(out)
    assert {one["guarantee"]: one["verdict"] for one in verdict["findings"]}["G4"] == "holds"
    assert "crashed" not in out
    assert "Traceback" not in verify.said
    assert (code == 0) is (verdict["verdict"] == "holds")
    assert not list(tables.iterdir()), "they are removed at the end"


@pytest.mark.slow
@pytest.mark.long
def test_tables_of_the_worker_are_lost_with_it_and_nothing_is_claimed(
    run: Path, tmp_path: Path
) -> None:
    with (
        Cluster(tmp_path / "spark") as spark,
        verify_and_lose_a_worker(spark, run) as verify,
    ):
        code, out = verify.end()
    assert (code, out) == (3, "")
    assert "a worker of Spark was lost, and computed tables with it" in verify.said
    assert "--tables DIR" in verify.said
    assert "Traceback" not in verify.said
