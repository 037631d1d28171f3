"""What `chaos-test` runs on real packets, and how it tells of it; nothing is run here."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stormcast.chaos.campaigns import live
from stormcast.chaos.campaigns.errors import KILLED
from stormcast.chaos.campaigns.library import BY_HAND, library
from stormcast.chaos.campaigns.live import (
    ACTS,
    KINDS,
    NO_MACHINE_HAS,
    NOT_BEGUN,
    LiveResult,
    LiveRun,
    lacks,
    library_runs,
    live_runs,
    run_live,
    run_one,
    table_of,
)
from stormcast.chaos.language.features import FEATURES
from stormcast.chaos.language.shipped import find_shipped
from stormcast.chaos.oracles.verdict import Finding, Judgement, Verdict
from stormcast.chaos.session.judging import LATE_SECONDS


def result(run: LiveRun, verdict: Verdict | None = Verdict.HOLDS) -> LiveResult:
    return LiveResult(run, verdict, "", 1.0, "runs/x")


def test_every_protocol_goes_through_all_that_means_something_to_it() -> None:
    runs = list(live_runs())
    assert {run.kind for run in runs} == {kind.name for kind in KINDS}
    assert {run.act for run in runs} == {act.name for act in ACTS}
    assert len({run.directory for run in runs}) == len(runs)
    without = [run.act for run in runs if "no retransmission" in run.kind]
    assert "first lost" not in without
    assert "order" in without


def test_the_library_is_run_as_it_stands_but_with_the_fast_clock() -> None:
    runs = {run.scenario.name: run for run in library_runs()}
    files = {scenario.name: scenario for scenario in library()}
    assert set(runs) == set(files)
    assert not set(BY_HAND) & set(runs)
    for name, run in runs.items():
        assert run.scenario.cluster.timing == "fast"
        assert run.scenario.timeline == files[name].timeline
        assert run.scenario.workload == files[name].workload
    assert runs["order-under-loss"].kind == "UNICAST3"
    assert runs["acks-of-one-lost"].kind == "mcast"


def test_the_table_has_protocols_down_and_of_the_library_all_its_files() -> None:
    first, *_rest = live_runs()
    assert table_of([result(first)])[:2] == [
        ("protocol", *(act.name for act in ACTS if act.name == first.act)),
        (first.kind, "holds"),
    ]
    some = list(library_runs())[:2]
    assert table_of([result(some[1], None), result(some[0])]) == [
        ("scenario", "on", "verdict"),
        (some[0].scenario.name, some[0].kind, "holds"),
        (some[1].scenario.name, some[1].kind, "-"),
    ]


# -- What this machine lacks -----------------------------------------------------------------------

HERE: dict[str, str | None] = {
    name: f"no {name}" if name in NO_MACHINE_HAS else None for name in FEATURES
}
"""The features of a machine that lacks nothing."""


def on(kind: str, act: str) -> LiveRun:
    (run,) = [run for run in live_runs() if (run.kind, run.act) == (kind, act)]
    return run


def test_a_machine_with_all_features_can_run_everything() -> None:
    assert [lacks(run, HERE) for run in [*live_runs(), *library_runs()] if lacks(run, HERE)] == []


def test_what_the_machine_lacks_counts_as_unknown_and_is_named(tmp_path: Path) -> None:
    held = on("UNICAST3", "delayed ack")
    result = run_one(held, 1, tmp_path / "run", HERE | {"rule": "no nfqueue here: modprobe it"})
    assert result.lacking == "rule: no nfqueue here: modprobe it"
    assert (result.verdict, result.counted, result.cell) == (
        None,
        Verdict.UNKNOWN,
        "unsupported",
    )


def test_what_no_machine_can_do_does_not_count(tmp_path: Path) -> None:
    """Strangers are only in the simulator, whatever else this machine lacks."""
    scenario = find_shipped("kept-alive-by-a-replay").read()
    run = LiveRun("verdict", "udp", scenario)
    result = run_one(run, 1, tmp_path / "run", HERE | {"group": "no group here"})
    assert "needs" in result.detail
    assert (result.verdict, result.counted, result.cell) == (None, None, "-")


# -- Runs side by side -----------------------------------------------------------------------------


def tries(out: Path) -> int:
    """Count a try of a run, of which its own directory keeps nothing."""
    out.mkdir()
    with out.with_suffix(".tries").open("a") as file:
        file.write(".")
    return len(out.with_suffix(".tries").read_text())


def late_once(run: LiveRun, _seed: int, out: Path, *_more: object) -> LiveResult:
    """Late at first; what loses first messages is violated meanwhile."""
    is_first = tries(out) == 1
    late = Verdict.VIOLATED if run.act == "first lost" else Verdict.UNKNOWN
    verdict = late if is_first else Verdict.HOLDS
    return LiveResult(run, verdict, "", 1.0, str(out), is_late=is_first)


def killed(run: LiveRun, _seed: int, out: Path, *_more: object) -> LiveResult:
    """Held if it is the first; else its process is killed."""
    if run.kind != "UNICAST":
        os.kill(os.getpid(), signal.SIGKILL)
    return LiveResult(run, Verdict.VIOLATED, "", 1.0, str(out))


def play(
    monkeypatch: pytest.MonkeyPatch, work: object, runs: list[LiveRun], out: Path, **more: Any
) -> dict[str, LiveResult]:
    monkeypatch.setattr(live, "run_one", work)
    results = list(run_live(runs, 1, out, HERE, **more))
    assert len(results) == len(runs)
    return {f"{one.run.kind} {one.run.act}": one for one in results}


def test_a_late_run_is_run_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = on("UNICAST3", "order")
    (found,) = play(monkeypatch, late_once, [run], tmp_path).values()
    assert (found.verdict, found.is_late) == (Verdict.HOLDS, False)
    assert (tmp_path / f"{run.directory}.tries").read_text() == ".."


def test_a_late_run_that_is_violated_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = on("UNICAST3", "first lost")
    (found,) = play(monkeypatch, late_once, [run], tmp_path).values()
    assert found.verdict is Verdict.VIOLATED
    assert (tmp_path / run.directory).is_dir()
    assert (tmp_path / f"{run.directory}.tries").read_text() == "."


@pytest.mark.parametrize(("deaths", "is_late"), [((), True), (("n1 died",), False)])
def test_a_late_run_in_which_a_member_died_is_not_run_again(
    deaths: tuple[str, ...], is_late: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nobody dies because a machine is busy, and in the next run it may not die."""
    doubt = Finding("run", Verdict.UNKNOWN, "n1 died")
    evidence = SimpleNamespace(rig=SimpleNamespace(deaths=deaths))
    outcome = SimpleNamespace(
        verdict=doubt.verdict,
        judgement=Judgement(doubt.verdict, (doubt,)),
        run=SimpleNamespace(late=LATE_SECONDS + 0.1, evidence=evidence, resync=None, notes=()),
    )
    monkeypatch.setattr(live, "run_on", lambda *_args, **_more: outcome)
    result = run_one(on("UNICAST3", "order"), 1, tmp_path / "run", HERE)
    assert (result.verdict, result.is_late) == (Verdict.UNKNOWN, is_late)


def test_a_late_run_that_cannot_be_run_again_in_time_keeps_its_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The time is over as soon as the run has begun."""
    run, clock = on("UNICAST3", "order"), iter([0.0, 1.0])
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=lambda: next(clock, 100.0)))
    (found,) = play(monkeypatch, late_once, [run], tmp_path, budget=10.0).values()
    assert (found.verdict, found.is_late) == (Verdict.UNKNOWN, True)
    assert found.directory == str(tmp_path / run.directory)
    assert (tmp_path / run.directory).is_dir()


def test_a_process_that_is_killed_ends_no_other_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One run is over, one is killed, one has not begun."""
    runs = [on(kind, "order") for kind in ("UNICAST", "UNICAST2", "UNICAST3")]
    found = play(monkeypatch, killed, runs, tmp_path, lanes=1)
    assert [one.verdict for one in found.values()] == [
        Verdict.VIOLATED,
        Verdict.UNKNOWN,
        Verdict.UNKNOWN,
    ]
    assert found["UNICAST2 order"].detail == KILLED
    assert found["UNICAST3 order"].detail == NOT_BEGUN


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (KeyError("oracle"), "a bug: KeyError('oracle')"),
        (MemoryError(), "cannot allocate memory; give it more, and do it again"),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "no space left on device; make room on that disk, and do it again",
        ),
    ],
)
def test_an_error_in_a_run_is_its_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, detail: str
) -> None:
    def broken(*_words: object, **_more: object) -> None:
        raise error

    monkeypatch.setattr(live, "run_on", broken)
    result = run_one(on("UNICAST3", "order"), 1, tmp_path / "run", HERE)
    assert (result.verdict, result.detail) == (Verdict.UNKNOWN, detail)
