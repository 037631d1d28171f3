"""What `chaos-test` runs on real packets, and how it tells of it; nothing is run here."""

from __future__ import annotations

from stormcast.chaos.campaigns.library import BY_HAND, library
from stormcast.chaos.campaigns.live import (
    ACTS,
    KINDS,
    LiveResult,
    LiveRun,
    library_runs,
    live_runs,
    table_of,
)
from stormcast.chaos.oracles.verdict import Verdict


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
