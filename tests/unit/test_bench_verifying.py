"""What judging large runs costs is measured with all that a judge starts; only sound runs count."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bench import verifying
from bench.large_run import make
from bench.tree import Cost, cost_of
from bench.verifying import Row, bench

BUSY = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
"""Needs 0.3 s of CPU."""


def test_a_cost_contains_what_nobody_waited_for() -> None:
    """The command ends at once, and what it has started works on."""
    leaves = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {BUSY!r}])"
    cost, _said = cost_of([sys.executable, "-c", leaves])

    assert cost.code == 0
    assert cost.cpu >= 0.3
    assert cost.memory >= 5


def test_a_cost_has_what_the_command_printed_and_its_code() -> None:
    cost, said = cost_of([sys.executable, "-c", "print('one\\ntwo'); raise SystemExit(3)"])

    assert (cost.code, said.strip()) == (3, "one\ntwo")


def test_who_interrupts_a_measurement_ends_what_it_has_started(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    sleeps = (
        f"import os, pathlib, time; pathlib.Path({str(told)!r}).write_text(str(os.getpid())); "
        "time.sleep(60)"
    )
    measures = (
        f"import sys; from bench.tree import cost_of; cost_of([sys.executable, '-c', {sleeps!r}])"
    )
    with subprocess.Popen([sys.executable, "-c", measures], stderr=subprocess.DEVNULL) as running:
        wait_until(lambda: told.exists() and told.read_text() != "")
        running.send_signal(signal.SIGINT)
        running.wait()
    wait_until(lambda: not Path(f"/proc/{told.read_text()}").exists())


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)


def _cost(cpu: float, memory: int = 100) -> Cost:
    return Cost(code=0, seconds=cpu / 2, cpu=cpu, memory=memory)


def test_a_row_compares_medians() -> None:
    row = Row(
        1000, 20, {"verify": (_cost(8), _cost(10, 300), _cost(30)), "duckdb": (_cost(2), _cost(2))}
    )

    assert row.ratio == 5
    told = row.as_json()
    assert (told["verify"]["cpu"], told["verify"]["memory_mib"], told["ratio"]) == (10, 300, 5)
    assert "ratio" not in Row(1000, 20, {"verify": (_cost(8),)}).as_json()


@pytest.mark.parametrize(
    ("verdict", "found", "says"),
    [
        ("holds", 0, None),
        ("violated", 0, "verify does not say"),
        ("holds", 1, "duckdb does not say"),
    ],
)
def test_a_figure_is_of_a_run_that_holds_to_both(
    verdict: str,
    found: int,
    says: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def cost_of(command: list[str]) -> tuple[Cost, str]:
        told: dict[str, Any] = {"verdict": verdict} if "stormcast" in command else {"G1": found}
        return _cost(1), json.dumps(told)

    monkeypatch.setattr(verifying, "cost_of", cost_of)
    monkeypatch.setattr(verifying, "find_spec", lambda _name: "is there")
    words = ["--events", "10000", "--rounds", "1", "--peer", "duckdb"]
    assert bench("verify", words) == (0 if says is None else 3)
    out, err = capsys.readouterr()
    if says is None:
        assert "takes 1.0 times the CPU of duckdb" in out
    else:
        assert says in err


def test_a_peer_that_is_not_here_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verifying, "find_spec", lambda _name: None)
    assert bench("verify", ["--peer", "duckdb"]) == 3
    assert "no duckdb here: pip install duckdb" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--events", "9"], "10000 or more"),
        (["--senders", "6"], "1 to 5"),
        (["--batch", "2000"], "1 to 1024"),
        (["--rounds", "0"], "1 or more"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        bench("verify", words)
    assert says in capsys.readouterr().err


@pytest.mark.skipif(find_spec("duckdb") is None, reason="no duckdb here: pip install duckdb")
@pytest.mark.parametrize(
    ("number", "change", "guarantee"),
    [(0, "lost", "G1"), (7, "lost", "G1"), (7, "twice", "G2"), (7, "late", "G3")],
)
def test_the_peer_finds_what_is_planted(
    tmp_path: Path, number: int, change: str, guarantee: str
) -> None:
    """Of the deliveries of one member, one is lost, doubled, or comes after the next one."""
    from pyarrow import compute, parquet  # noqa: PLC0415 only where duckdb is

    from bench.peers.duckdb_judge import judge  # noqa: PLC0415 as above

    make(tmp_path, 10_000)
    assert set(judge(tmp_path).values()) == {0}
    path = tmp_path / "n1-1.parquet"
    rows = parquet.read_table(path)
    is_one = compute.and_(
        compute.and_(compute.equal(rows["kind"], "delivered"), compute.equal(rows["peer"], 0xA0)),
        compute.equal(rows["protocol"], "NAKACK2"),
    )
    at = [index for index, flag in enumerate(is_one.to_pylist()) if flag][number]
    told = rows.to_pylist()
    row = dict(told[at])
    if change == "lost":
        del told[at]
    elif change == "twice":
        told.append({**row, "number": len(told)})
    else:
        told[at]["number"] += 1000
    parquet.write_table(type(rows).from_pylist(told, schema=rows.schema), path)
    assert judge(tmp_path)[guarantee] > 0
