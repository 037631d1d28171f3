"""The controller: what came of each run is told, whatever it is, and no run ends the others. On
the simulator, without rights."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from stormcast.chaos.backends.netns.process import Process, environment, until
from stormcast.chaos.commands.serve import Controller, serve
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.oracles.verdict import Judgement
from stormcast.chaos.session import runner
from stormcast.chaos.session.judging import judge_run
from stormcast.chaos.session.record import RunRecord
from stormcast.chaos.session.simulation import simulate
from stormcast.node.control.trust import trusting
from tests.helpers.certificates import Issuer

pytestmark = pytest.mark.slow

GOOD = """\
guarantees: [G1, G3]
cluster: {members: 2}
workload: [{do: unicast, count: 20}]
"""
BITES_NOT = GOOD + "timeline: [{at: 30s, do: loss, rate: 50%, for: 1s}]\n"
FLAWED = """\
guarantees: [G1]
cluster: {members: 2, stack: unicast-museum, unicast: UNICAST, historical: {conn_ids: none}}
workload: [{do: unicast, from: n0, to: n1, count: 100, rate: 50/s}]
timeline: [{at: 1s, do: forget, member: n1, peer: n0}]
"""
LONG = """\
guarantees: [G1]
cluster: {members: 2}
workload: [{do: unicast, count: 1000000, rate: 1000/s}]
limits: {run: 2000s, trace: 2GiB}
"""


class Served:
    """A controller process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: Process | None = None
        (folder / "scenarios").mkdir()

    def write(self, name: str, text: str) -> None:
        (self.folder / "scenarios" / f"{name}.yaml").write_text(f"name: {name}\n{text}")

    def run(self, *flags: str) -> Process:
        words = (
            sys.executable,
            "-m",
            "stormcast",
            "serve",
            "--scenarios",
            "scenarios",
            *flags,
        )
        if "--backend" not in flags:
            words += ("--backend", "sim")
        self.process = Process(words, self.folder, "serve", environment({}))
        return self.process

    @property
    def log(self) -> str:
        return self.process.tail(200) if self.process is not None else ""

    def get(self, path: str, context: ssl.SSLContext | None = None) -> tuple[int, str]:
        """What it tells."""
        until(lambda: "listens on" in self.log, 20.0, lambda: self.log, 0.05)
        url = re.search(r"listens on (\S+)", self.log)
        assert url is not None
        try:
            with urllib.request.urlopen(url[1] + path, timeout=10, context=context) as answer:  # noqa: S310 http, of this test
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    yield made
    if made.process is not None:
        made.process.kill()


def test_each_run_is_told_and_errors_do_not_end_the_others(served: Served) -> None:
    served.write("a-good", GOOD)
    served.write("b-broken", "guarantees: [G1]\ncluster: {members: 2}\nclustre: {}\n")
    served.write("c-never-bit", BITES_NOT)
    served.write("d-good", GOOD)
    assert served.run("--once", "--json", "--seed", "7").wait(60.0) == 3
    told = [json.loads(line) for line in served.log.splitlines() if line.startswith("{")]
    assert [(one["scenario"], one["verdict"], one["seed"]) for one in told] == [
        ("a-good", "holds", 7),
        ("b-broken", "error", 7),
        ("c-never-bit", "unknown", 7),
        ("d-good", "holds", 7),
    ]
    assert "clustre" in told[1]["error"]
    verdict = json.loads((served.folder / "runs" / "a-good-7" / "verdict.json").read_text())
    assert verdict["verdict"] == "holds"


def test_a_violation_outweighs_everything_else(served: Served) -> None:
    served.write("a-flawed", FLAWED)
    served.write("b-broken", "cluster: 1\n")
    code = served.run("--once").wait(60.0)
    assert served.log.splitlines()[0].startswith("violated"), served.log
    assert code == 1


def test_it_stays_and_tells_what_came_of_its_runs(served: Served) -> None:
    served.write("good", GOOD)
    served.write("never-bit", BITES_NOT)
    process = served.run("--listen", "127.0.0.1:0", "--probes", "127.0.0.1:0")
    assert served.get("/livez")[0] == 200
    probes = re.search(r"listens on \S+ and (\S+)", served.log)
    assert probes is not None
    with urllib.request.urlopen(f"{probes[1]}/livez", timeout=10) as answer:  # noqa: S310 http, of this test
        assert answer.status == 200
    until(lambda: "unknown" in served.log, 30.0, lambda: served.log, 0.05)
    assert served.get("/readyz")[0] == 200
    status, text = served.get("/metrics")
    assert status == 200
    for line in (
        'stormcast_runs_total{scenario="good",verdict="holds"} 1.0',
        'stormcast_runs_total{scenario="good",verdict="violated"} 0.0',
        'stormcast_runs_total{scenario="never-bit",verdict="unknown"} 1.0',
        'stormcast_run_active{scenario="good"} 0.0',
        'stormcast_run_messages_total{scenario="good"} 40.0',
        'stormcast_run_last_bites{fault="f1",scenario="never-bit"} 0.0',
    ):
        assert line in text.splitlines(), text
    assert process.is_alive
    assert process.stop(15.0) == 3
    assert "Traceback" not in served.log


def test_again_and_again_with_other_seeds_and_no_more_directories_than_allowed(
    served: Served,
) -> None:
    served.write("good", GOOD)
    process = served.run("--every", "200ms", "--keep", "2")
    until(lambda: served.log.count("holds") >= 4, 60.0, lambda: served.log, 0.05)
    assert process.stop(15.0) == 0
    seeds = re.findall(r"good seed (\d+)", served.log)
    assert seeds[:4] == ["1", "2", "3", "4"]
    runs = served.folder / "runs"
    kept = {path.name for path in runs.glob("good-*")}
    assert (runs / "latest").resolve().name == f"good-{len(seeds)}" or len(kept) == 2
    assert kept <= {f"good-{len(seeds) + n}" for n in (-1, 0, 1)}


def test_told_to_end_in_the_middle_of_a_run_it_ends(served: Served) -> None:
    served.write("long", LONG)
    process = served.run("--listen", "127.0.0.1:0")
    until(
        lambda: 'active{scenario="long"} 1.0' in served.get("/metrics")[1],
        30.0,
        lambda: served.log,
        0.1,
    )
    os.kill(process.pid, signal.SIGTERM)
    process.wait(20.0)
    assert "holds" not in served.log
    assert "Traceback" not in served.log


@pytest.mark.parametrize("is_judging", [False, True])
def test_a_round_that_was_told_to_end_does_not_hold(
    served: Served, monkeypatch: pytest.MonkeyPatch, *, is_judging: bool
) -> None:
    """Whether the signal comes in a run or between a run and its verdict."""
    served.write("a-good", GOOD)
    served.write("b-good", GOOD)
    judged: list[str] = []

    def judge(scenario: Scenario, *more: Any) -> Judgement:
        judged.append(scenario.name)
        if is_judging and len(judged) == 2:
            signal.raise_signal(signal.SIGTERM)
        return judge_run(scenario, *more)

    def play(*more: Any, **words: Any) -> RunRecord:
        if not is_judging and judged:
            signal.raise_signal(signal.SIGTERM)
        return simulate(*more, **words)

    monkeypatch.setattr(runner, "judge_run", judge)
    monkeypatch.setattr(runner, "simulate", play)
    assert served_once(served) == 130


def test_a_round_without_a_verdict_does_not_hold(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files went as they were replaced."""
    served.write("a-good", GOOD)
    lock = Controller._lock

    def lose(controller: Controller, held: ExitStack) -> None:
        (served.folder / "scenarios" / "a-good.yaml").unlink()
        lock(controller, held)

    monkeypatch.setattr(Controller, "_lock", lose)
    assert served_once(served) == 3


def served_once(served: Served) -> int:
    """Run one round in this process; it sets handlers of signals."""
    before = [(one, signal.getsignal(one)) for one in (signal.SIGTERM, signal.SIGINT)]
    folder = served.folder
    words = ["--backend", "sim", "--once", "--scenarios", str(folder / "scenarios")]
    try:
        return serve([*words, "--runs", str(folder / "runs")])
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def test_its_metrics_are_served_over_tls(served: Served) -> None:
    served.write("good", GOOD)
    files = Issuer().write(served.folder / "tls")
    given = ("--certificate-file", str(files.certificate), "--private-key-file", str(files.key))
    nowhere = (*given[:3], "nowhere")
    assert served.run("--listen", "127.0.0.1:0", *nowhere).wait(20.0) == 2
    (line,) = served.log.splitlines()
    assert "--private-key-file nowhere: No such file" in line

    process = served.run("--listen", "127.0.0.1:0", *given)
    status, text = served.get("/metrics", trusting(str(files.ca)))
    assert status == 200
    assert 'stormcast_runs_total{scenario="good",verdict="holds"}' in text
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        served.get("/metrics", ssl.create_default_context())
    assert process.stop(15.0) == 0


def test_of_two_that_keep_runs_in_one_directory_the_second_is_refused(served: Served) -> None:
    """Each would remove the other's directories. The first goes on; another directory is free."""
    served.write("good", GOOD)
    first = served.run("--listen", "127.0.0.1:0", "--runs", "kept")
    until(lambda: "holds" in served.log, 30.0, lambda: served.log, 0.1)
    said = served.log
    try:
        assert served.run("--once", "--runs", "kept/../kept").wait(20.0) == 2
        (line,) = served.log.removeprefix(said).strip().splitlines()
        assert re.fullmatch(
            r"stormcast serve: --runs kept/../kept: another stormcast serve keeps its runs there "
            rf"\((process {first.pid}|another process)\); end it, or name another directory",
            line,
        )
        assert served.run("--once", "--runs", "other").wait(30.0) == 0
    finally:
        first.kill()
    assert served.run("--once", "--runs", "kept").wait(30.0) == 0, "it is free again"


@pytest.mark.parametrize(
    ("flags", "remedy"),
    [
        ((), "no *.yaml in it"),
        (("--release", "x"), "is of --backend kubernetes"),
        (("--every", "5"), "unit"),
        (("--every", "0s"), "say how often"),
        (("--listen", "nowhere"), "HOST:PORT"),
        (("--listen", "0.0.0.0:0"), "it needs TLS; set --certificate-file and --private-key-file"),
        (("--certificate-file", "c", "--private-key-file", "k"), "goes with --listen"),
        (("--ca-file", "x"), "--ca-file is of --backend kubernetes"),
        (("--probes", "127.0.0.1:0"), "--probes goes with --listen"),
        (("--listen", "127.0.0.1:0", "--probes", "nowhere"), "--probes is 'nowhere'"),
        (("--keep", "0"), "keep one"),
    ],
)
def test_what_cannot_work_is_one_line(served: Served, flags: tuple[str, ...], remedy: str) -> None:
    assert served.run(*flags).wait(20.0) == 2
    (line,) = served.log.splitlines()
    assert remedy in line
