"""Scenario files on real members, as processes in network namespaces, under real faults."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.backends.netns.backend import NetnsBackend, features_here
from stormcast.chaos.backends.netns.leftovers import leftovers
from stormcast.chaos.backends.run_id import RunId, start_of
from stormcast.chaos.campaigns.live import KINDS, LiveResult, live_runs, run_one
from stormcast.chaos.language.features import FEATURES
from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.records.directory import TakenError
from stormcast.chaos.session.runner import run_on
from stormcast.cli import main
from stormcast.node.keys.cluster_keys import write_new_key

pytestmark = [pytest.mark.root, pytest.mark.slow]

PAIR = """
name: pair
guarantees: [G1, G2, G3, G4, L1]
cluster: {members: 2, timing: fast}
workload:
  - {do: unicast, from: n0, to: n1, count: 100, rate: 50/s, size: 16B}
timeline:
  - {at: 500ms, do: cut, from: n0, to: n1, for: 500ms}
limits: {run: 10s, settle: 2s}
"""
SEALED = """
name: sealed
guarantees: [G1, G2, G3, G4]
cluster: {members: 2, stack: udp, timing: fast}
workload: [{do: multicast, count: 20, rate: 50/s}]
"""


@pytest.fixture(scope="module")
def features() -> Mapping[str, str | None]:
    """What this machine can do: asked once."""
    return features_here()


def live(
    act: str,
    kind: str,
    folder: Path,
    features: Mapping[str, str | None],
    key_file: Path | None = None,
) -> LiveResult:
    kinds = [one for one in KINDS if one.name == kind]
    (run,) = [run for run in live_runs(kinds) if run.act == act]
    for attempt in range(3):
        result = run_one(run, 1, folder / f"run-{attempt}", features, key_file)
        if not result.is_late:
            return result
    pytest.skip(f"this machine has too much to do: {result.detail}")


# -- What holds ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "kind"),
    [
        # All of them: `stormcast chaos-test`.
        ("order", "NAKACK2 on TCP_NIO2, no retransmission"),
        ("resync", "UNICAST4"),
        ("first lost", "NAKACK2 on TCP"),
        pytest.param("order", "UNICAST", marks=pytest.mark.long),
        pytest.param("resync", "NAKACK2 on UDP", marks=pytest.mark.long),
        pytest.param("restart", "MCAST", marks=pytest.mark.long),
        pytest.param("delayed ack", "MCAST", marks=pytest.mark.long),
    ],
)
def test_what_chaos_test_tries_holds(
    act: str, kind: str, tmp_path: Path, features: Mapping[str, str | None]
) -> None:
    result = live(act, kind, tmp_path, features)

    assert result.verdict is Verdict.HOLDS, result.detail
    assert result.resync is not None
    assert result.resync.seconds is not None
    verdict = json.loads((Path(result.directory) / "verdict.json").read_text())
    assert verdict["backend"] == "netns"
    assert all(verdict["faults"].values())


def test_chaos_test_has_its_members_seal_with_a_key_that_is_given(
    tmp_path: Path, features: Mapping[str, str | None]
) -> None:
    key = write_new_key(tmp_path / "cluster.key")
    result = live("order", "MCAST", tmp_path, features, tmp_path / "cluster.key")

    assert result.verdict is Verdict.HOLDS, result.detail
    logs = [path.read_text() for path in Path(result.directory).glob("logs/*/*-1.log")]
    assert len(logs) > 1
    assert all(f"seals with key {key.name}" in log for log in logs)


def test_members_seal_with_a_key_that_is_given_and_no_copy_of_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is named as seen from where the command runs, and members run elsewhere."""
    monkeypatch.chdir(tmp_path)
    key = write_new_key(Path("cluster.key"))
    Path("sealed.yaml").write_text(SEALED)
    words = ["sealed.yaml", "--backend", "netns", "--key-file", "cluster.key", "--out", "run"]
    assert main(["run", *words]) == 0
    logs = {path.name: path.read_text() for path in Path("run/logs").glob("*/*-1.log")}
    assert sorted(logs) == ["n0-1.log", "n1-1.log"]
    assert all(f"seals with key {key.name}" in log for log in logs.values())
    secret = key.secret.hex()
    assert Path("cluster.key").read_text().strip() == secret
    assert not [
        path
        for path in Path("run").rglob("*")
        if path.is_file() and secret.encode() in path.read_bytes()
    ]


def test_a_run_leaves_its_traces_and_its_logs_and_no_more(
    tmp_path: Path, features: Mapping[str, str | None]
) -> None:
    outcome = run_on(NetnsBackend(features), parse_scenario(PAIR), 7, out=tmp_path)

    assert outcome.verdict is Verdict.HOLDS
    assert (tmp_path / "seed").read_text() == "7\n"
    traces = sorted(path.name.split("-")[0] for path in (tmp_path / "trace").iterdir())
    assert traces == ["n0", "n1", "rig.trace"]
    assert (tmp_path / "logs" / "n0" / "n0-1.log").read_text().startswith("n0:")
    assert not list(tmp_path.rglob("*.sock"))
    assert not list(tmp_path.rglob("journal"))
    blocked = outcome.run.bites_by_pair["f1"]
    assert list(blocked) == [("n0", "n1")]
    assert blocked["n0", "n1"] >= 10, "half a second of fifty messages a second"


def test_a_second_run_into_the_same_directory_is_refused(
    tmp_path: Path, features: Mapping[str, str | None]
) -> None:
    outcome = run_on(NetnsBackend(features), parse_scenario(PAIR), 1, out=tmp_path)
    assert outcome.verdict is Verdict.HOLDS
    assert len(list((tmp_path / "trace").iterdir())) == 3

    with pytest.raises(TakenError):
        run_on(NetnsBackend(features), parse_scenario(PAIR), 1, out=tmp_path)


# -- What does not -------------------------------------------------------------------------------


def test_a_fault_that_does_not_bite_is_unknown(
    tmp_path: Path, features: Mapping[str, str | None]
) -> None:
    """The rule waits for a message that nobody sends."""
    rule = "do: rule, does: drop, match: {kind: DATA, seqno: 5000}, for: 500ms"
    text = PAIR.replace("do: cut, from: n0, to: n1, for: 500ms", rule)

    outcome = run_on(NetnsBackend(features), parse_scenario(text), 1, out=tmp_path)

    assert outcome.verdict is Verdict.UNKNOWN
    assert "f1 (rule) did not bite" in outcome.judgement.findings[-1].detail


def test_what_nobody_repeats_is_a_violation(
    tmp_path: Path, features: Mapping[str, str | None]
) -> None:
    """The oracles see a loss of real members: the last message is lost, and an earlier version does
    not notice."""
    text = """
name: lost-for-good
guarantees: [G1, G3]
cluster: {members: 2, stack: unicast-museum, unicast: UNICAST2, timing: fast, max_batch: 1,
  historical: {repair_ends: false}}
workload:
  - {do: unicast, from: n0, to: n1, count: 40, rate: 40/s, size: 16B}
timeline:
  - {at: 0s, do: rule, does: drop, match: {kind: DATA, seqno: 40, from: n0}, for: 2s}
limits: {run: 10s, settle: 4s}
"""
    outcome = run_on(NetnsBackend(features), parse_scenario(text), 1, out=tmp_path)

    assert outcome.verdict is Verdict.VIOLATED
    assert outcome.judgement.of("G1").witness


def test_a_run_that_ends_before_a_gap_is_repaired_proves_no_loss(
    tmp_path: Path, features: Mapping[str, str | None]
) -> None:
    """A frame is thrown away inside of a member. Without retransmission its gap is reported, and
    repaired, after half a minute: this run ends earlier."""
    text = """
name: not-lost-yet
guarantees: [G1, A1]
cluster: {members: 2, stack: tcp-no-retransmit, timing: fast, max_batch: 1}
workload:
  - {do: multicast, from: n0, count: 40, rate: 40/s, size: 16B}
timeline:
  - {at: 0s, do: rule, does: drop, match: {kind: DATA, seqno: 20, to: n1}, for: 2s}
limits: {run: 10s, settle: 4s}
"""
    outcome = run_on(NetnsBackend(features), parse_scenario(text), 1, out=tmp_path)

    assert outcome.verdict is Verdict.UNKNOWN
    assert "raise limits.settle" in outcome.judgement.findings[-1].detail
    assert outcome.run.notes == ("done inside the members: f1",)


def test_a_rule_over_connections_meets_the_first_frames_of_a_joiner(
    tmp_path: Path, features: Mapping[str, str | None]
) -> None:
    """The answers with which it is let in; it joins when the rule is over."""
    text = """
name: mute-joiner
guarantees: [G1, G2, V1, V2]
cluster: {members: 3, stack: tcp, timing: fast, late: [n2]}
workload:
  - {do: multicast, from: n0, count: 160, rate: 20/s, size: 16B}
timeline:
  - {at: 100ms, do: rule, does: drop, match: {kind: GET_MBRS_RSP, to: n2}, for: 2s}
  - {at: 200ms, do: join, member: n2}
limits: {run: 30s, settle: 6s}
"""
    outcome = run_on(NetnsBackend(features), parse_scenario(text), 1, out=tmp_path)

    assert outcome.verdict is Verdict.HOLDS
    assert outcome.run.bites["f1"] > 0


# -- The command ---------------------------------------------------------------------------------


def test_what_cannot_be_done_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "hold.yaml"
    path.write_text(
        PAIR.replace("do: cut, from: n0, to: n1", "do: rule, does: hold").replace(
            "{members: 2", "{members: 2, stack: tcp"
        )
    )

    code = main(["run", str(path), "--backend", "netns", "--out", str(tmp_path / "run")])

    said = capsys.readouterr()
    assert (code, said.out) == (3, "")
    assert said.err.splitlines()[-1].startswith("unsupported: pair: over connections")
    assert "cannot hold frames; choose a stack on UDP" in said.err
    assert not list((tmp_path / "run").rglob("*.trace"))


def test_what_the_machine_cannot_do_is_refused_before_anything_starts(tmp_path: Path) -> None:
    lacking = {**dict.fromkeys(FEATURES), "partition": "nft is missing"}

    with pytest.raises(Unsupported, match=r"partition.*nft is missing"):
        run_on(NetnsBackend(lacking), parse_scenario(PAIR), 1, out=tmp_path)

    assert not list(tmp_path.rglob("*.trace"))


def test_ctrl_c_heals_keeps_the_traces_and_leaves_nothing(tmp_path: Path) -> None:
    path, out = tmp_path / "long.yaml", tmp_path / "run"
    path.write_text(PAIR.replace("count: 100", "count: 400").replace("for: 500ms", "for: 7s"))
    argv = [sys.executable, "-m", "stormcast", "run", str(path), "--backend", "netns", "--json"]
    process = subprocess.Popen(
        [*argv, "--out", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    mine = process.pid, start_of(process.pid)
    log = out / "logs" / "n1" / "n1-1.log"
    wait_for(lambda: log.exists() and "told of 2" in log.read_text())
    time.sleep(1.5)

    process.send_signal(signal.SIGINT)
    said, _err = process.communicate(timeout=30)

    assert process.returncode == 130
    verdict: dict[str, Any] = json.loads(said)
    assert verdict["verdict"] == "unknown"
    assert verdict["delivered"] > 0
    assert len(list((out / "trace").iterdir())) == 3

    def was_its(run: RunId) -> bool:
        return (run.pid, run.started) == mine

    assert not leftovers(is_left=was_its).names()


def wait_for(is_done: Any, timeout: float = 30.0) -> None:
    deadline = time.monotonic() + timeout
    while not is_done():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)
