"""`stormcast shrink`: a failed run to a small file that fails in the same way."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stormcast.chaos.campaigns.museum import EXHIBITS, exhibit_scenario
from stormcast.chaos.campaigns.replay import KeptRun
from stormcast.chaos.language.scenario import Scenario, load_scenario, parse_scenario
from stormcast.chaos.session.outcome import RunOutcome
from stormcast.chaos.session.runner import run_scenario
from stormcast.cli import Exit
from stormcast.node.core.errors import NodeError
from tests.helpers.shell import Shell

BLOWN_UP = """\
name: blown-up
guarantees: [G1, G2, G3]
cluster:
  {members: [ann, bob, cy, di], stack: unicast-museum, unicast: UNICAST2, max_batch: 1,
   historical: {repair_ends: false}, settings: {conn_close_timeout: 10s}}
network: {delay: 3ms}
workload:
  - {do: unicast, from: cy, to: di, count: 60, rate: 100/s, size: 64B}
  - {do: unicast, from: ann, to: others, count: 50, rate: 50/s, size: 64B, burst: 5, start: 1s}
  - {do: unicast, from: [bob, di], to: cy, count: 40, rate: 100/s}
timeline:
  - {at: 1s, do: delay, from: cy, to: di, delay: 20ms, for: 500ms}
  - {at: 1s, do: rule, name: last, does: drop, match: {kind: DATA, from: ann, to: bob, seqno: 50}}
  - {at: 1500ms, do: pause, member: di}
  - {at: 1600ms, do: resume, member: di}
  - {at: 1200ms, do: loss, rate: 10%, for: 500ms}
  - {at: 3500ms, do: heal, name: last}
limits: {run: 120s}
"""
"""Only the rule loses the last message to bob, which the flawed protocol never asks for."""


def keep(scenario: Scenario | str, seed: int = 1) -> Path:
    """A run directory."""
    read = parse_scenario(scenario) if isinstance(scenario, str) else scenario
    run_scenario(read, seed, out=Path("kept"))
    return Path("kept")


HOLDING = BLOWN_UP.replace("repair_ends: false", "repair_ends: true")
SMALL = parse_scenario(BLOWN_UP)
SMALL = replace(
    SMALL, guarantees=("G1",), timeline=SMALL.timeline[1:2], workload=SMALL.workload[1:2]
)


# -- What is found ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_blown_up_run_shrinks_to_what_it_takes(shell: Shell) -> None:
    """Of four members, three loads and six steps: one message, and its loss."""
    said = shell("shrink", keep(BLOWN_UP))
    assert (said.code, said.err) == (0, "")
    left = load_scenario("kept/minimal.yaml")
    assert left.cluster.members == ("n0", "n1")
    assert [load.count for load in left.workload] == [1]
    assert [type(step.action).__name__ for step in left.timeline] == ["Rule"]
    assert left.guarantees == ("G1",)
    assert left.about.startswith(
        "Seed 1 violates G1: seqno 1 was sent and never delivered. Witness"
    )
    assert "before: 4 members, 3 loads, 6 steps, 290 messages" in said.out
    assert "after:  2 members, 1 load, 1 step, 1 message" in said.out
    assert said.out.startswith(Path("kept/minimal.yaml").read_text())

    again = said.out.splitlines()[-1]
    assert again == "again: stormcast run kept/minimal.yaml --seed 1"
    ran = shell(*again.split()[2:], "--json")
    assert ran.code == 1
    assert ran.json["guarantees"] == {"G1": "violated"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["first-six-discarded", "second-message-acked-and-lost", "old-ack-purges-new-connection"],
)
def test_an_exhibit_shrinks_to_what_its_fix_still_mends(shell: Shell, name: str) -> None:
    """What is left shows the flaw, and not another one: the fixed protocol holds."""
    exhibit = next(one for one in EXHIBITS if one.name == name)
    flawed = exhibit_scenario(exhibit, exhibit.flawed)
    fixed = exhibit_scenario(exhibit, exhibit.fixed)
    said = shell("shrink", keep(flawed), "--guarantee", exhibit.guarantee, "--json")
    assert said.code == 0
    left = load_scenario("kept/minimal.yaml")
    assert len(left.cluster.members) == 2
    assert len(left.workload) <= 2
    assert len(left.timeline) <= 2
    assert sum(load.count for load in left.workload) <= 3
    cluster = replace(
        left.cluster, unicast=fixed.cluster.unicast, historical=fixed.cluster.historical
    )
    assert str(run_scenario(replace(left, cluster=cluster), 1).verdict) == "holds"


@pytest.mark.slow
def test_with_json_it_prints_one_object(shell: Shell) -> None:
    said = shell("shrink", keep(BLOWN_UP, 3), "--json", "--out", "small.yaml")
    assert (said.code, said.out.count("\n")) == (0, 1)
    found = said.json
    assert (found["scenario"], found["seed"], found["guarantee"]) == ("blown-up", 3, "G1")
    assert found["detail"] == "seqno 1 was sent and never delivered"
    assert found["before"]["members"] == 4
    assert found["after"]["members"] == 2
    assert found["after"]["messages"] == 1
    assert (found["end"], found["file"], found["crashes"]) == ("done", "small.yaml", [])
    assert found["replay"] == "stormcast run small.yaml --seed 3"
    assert not Path("kept/minimal.yaml").exists()


def test_a_name_with_spaces_is_quoted_where_it_is_to_be_pasted(shell: Shell) -> None:
    said = shell("shrink", keep(BLOWN_UP), "--budget", "0s", "--out", "a b.yaml")
    assert said.out.splitlines()[-1] == "again: stormcast run 'a b.yaml' --seed 1"


# -- How it ends -----------------------------------------------------------------------------------


def test_without_time_the_scenario_stays_what_it_is_and_that_is_said(shell: Shell) -> None:
    said = shell("shrink", keep(BLOWN_UP), "--budget", "0s")
    assert said.code == 0
    assert "0 runs, 0 found smaller; the time is up: a larger --budget may find" in said.out
    left = load_scenario("kept/minimal.yaml")
    assert replace(left, name="blown-up", about="") == parse_scenario(BLOWN_UP)


@pytest.mark.slow
def test_an_interrupted_search_keeps_the_smallest_so_far(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the tenth run."""
    run_again, runs = KeptRun.run_again, []

    def impatient(kept: KeptRun, scenario: Scenario) -> RunOutcome:
        runs.append(scenario)
        if len(runs) == 10:
            raise KeyboardInterrupt
        return run_again(kept, scenario)

    monkeypatch.setattr(KeptRun, "run_again", impatient)
    said = shell("shrink", keep(BLOWN_UP))
    assert said.code == Exit.INTERRUPTED
    assert "9 runs" in said.out
    assert "interrupted: this is the smallest so far" in said.out
    left = load_scenario("kept/minimal.yaml")
    assert len(left.cluster.members) < 4
    assert len(runs) == 10


def test_ctrl_c_in_a_run_ends_the_search(shell: Shell, ctrl_c: Callable[[int], None]) -> None:
    run = keep(SMALL)
    ctrl_c(2)
    said = shell("shrink", run)
    assert said.code == Exit.INTERRUPTED
    assert "interrupted: this is the smallest so far" in said.out


def test_ctrl_c_in_the_first_run_is_not_its_result(
    shell: Shell, ctrl_c: Callable[[int], None]
) -> None:
    run = keep(SMALL)
    ctrl_c(1)
    assert shell("shrink", run) == (Exit.INTERRUPTED, "", "")
    assert not Path("kept/minimal.yaml").exists()


def test_runs_that_break_off_are_said_to(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    run_again, runs = KeptRun.run_again, []

    def fragile(kept: KeptRun, scenario: Scenario) -> RunOutcome:
        runs.append(scenario)
        if len(runs) == 2:
            raise NodeError("timers that are always due")
        if len(runs) > 3:
            raise KeyboardInterrupt
        return run_again(kept, scenario)

    monkeypatch.setattr(KeptRun, "run_again", fragile)
    said = shell("shrink", keep(BLOWN_UP))
    assert "1 runs broke off, the first: NodeError('timers that are always due')" in said.out


def test_what_was_found_is_written_to_the_run_that_was_named(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run begins meanwhile, and the link `latest` leads there."""
    run, other, link = keep(SMALL), Path("other"), Path("latest")
    link.symlink_to(run)
    other.mkdir()
    run_again = KeptRun.run_again

    def move(kept: KeptRun, scenario: Scenario) -> RunOutcome:
        if not link.readlink().samefile(run):
            raise KeyboardInterrupt
        link.unlink()
        link.symlink_to(other)
        return run_again(kept, scenario)

    monkeypatch.setattr(KeptRun, "run_again", move)
    shell("shrink", link)
    assert (run / "minimal.yaml").exists()
    assert not list(other.iterdir())


@pytest.mark.slow
def test_a_terminal_sees_how_far_it_is_on_one_line(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    said = shell("shrink", keep(SMALL), "--json")
    assert said.err.count("\n") == 1
    lines = said.err.split("\r\x1b[K")[1:]
    assert len(lines) == said.json["runs"]
    assert "s of 60s, 1 runs, " in lines[0]
    assert lines[-1].strip().endswith(" bytes")


# -- What is refused -------------------------------------------------------------------------------


def test_a_run_that_holds_has_nothing_to_shrink(shell: Shell) -> None:
    out = keep(HOLDING)
    said = shell("shrink", out)
    assert (said.code, said.out) == (2, "")
    assert said.err == "stormcast: nothing to shrink: the run holds\n"
    assert not Path("kept/minimal.yaml").exists()


def test_a_run_that_holds_now_and_did_not_is_told_from_one_that_always_did(shell: Shell) -> None:
    out = keep(HOLDING)
    verdict = json.loads((out / "verdict.json").read_text())
    (out / "verdict.json").write_text(json.dumps({**verdict, "verdict": "violated"}))
    said = shell("shrink", out)
    assert said.code == 2
    assert said.err == (
        "stormcast: nothing to shrink: the run holds\n"
        "it was violated when it ran: stormcast replay kept shows what changed\n"
    )


def test_a_run_of_real_members_is_not_taken_for_a_simulated_one(shell: Shell) -> None:
    out = keep(HOLDING)
    verdict = json.loads((out / "verdict.json").read_text())
    real = {"verdict": "violated", "backend": "netns", "fate": "jhash"}
    (out / "verdict.json").write_text(json.dumps({**verdict, **real}))
    ran = "stormcast: kept ran on netns, which nothing repeats: stormcast run kept/scenario.yaml "
    said = shell("shrink", out)
    assert (said.code, said.out) == (2, "")
    assert said.err == (
        f"{ran}--seed 1 --fate jhash runs it in the simulator, and if it fails there, shrink that "
        "run\n"
    )
    assert not Path("kept/minimal.yaml").exists()
    said = shell("replay", out)
    assert (said.code, said.out) == (2, "")
    assert said.err == f"{ran}--seed 1 --backend netns\n"


def test_an_unknown_run_is_no_failed_one(shell: Shell) -> None:
    said = shell("shrink", keep(HOLDING.replace("at: 1200ms, do: loss", "at: 20s, do: loss")))
    assert said.code == 3
    assert "nothing to shrink: the run is unknown: run: fault f4 (loss) did not bite" in said.err


def test_a_guarantee_that_is_not_violated_is_refused_with_those_that_are(shell: Shell) -> None:
    said = shell("shrink", keep(BLOWN_UP), "--guarantee", "G2")
    assert (said.code, said.out) == (2, "")
    assert said.err == "stormcast: nothing to shrink: the run violates G1, but not G2\n"


@pytest.mark.parametrize("budget", ["60", "soon", "-1s", ""])
def test_a_budget_has_a_unit(shell: Shell, budget: str) -> None:
    said = shell("shrink", "kept", f"--budget={budget}")
    assert (said.code, said.out) == (2, "")
    assert f"argument --budget: {budget!r}: " in said.err
    assert "500ms" in said.err


def test_a_place_that_is_not_there_is_refused_before_the_search(shell: Shell) -> None:
    said = shell("shrink", keep(BLOWN_UP), "--out", "nowhere/small.yaml")
    assert (said.code, said.out) == (2, "")
    assert said.err == "stormcast: nowhere is no directory: make it first, or name another\n"


def test_a_minimal_scenario_that_cannot_be_written_leaves_the_one_before(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_path: Path, _target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    run = keep(SMALL)
    (run / "minimal.yaml").write_text("as it was")
    monkeypatch.setattr(Path, "replace", full)
    said = shell("shrink", run, "--budget", "0s")
    assert said.code == Exit.UNKNOWN
    assert "kept/minimal.yaml: no space left on device" in said.err
    assert (run / "minimal.yaml").read_text() == "as it was"
    assert not list(run.glob("*.part"))


def test_what_was_found_is_printed_where_it_cannot_be_written(shell: Shell) -> None:
    Path("taken").mkdir()
    said = shell("shrink", keep(BLOWN_UP), "--budget", "0s", "--out", "taken")
    assert said.code == 2
    assert "is a directory" in said.err
    assert parse_scenario(said.out).name == "blown-up-minimal"
    assert list(Path("taken").iterdir()) == []


def test_a_verdict_of_other_traces_is_said_to_be_that(shell: Shell) -> None:
    kept = keep(HOLDING)
    assert "was made from other traces" not in shell("shrink", kept).err
    (kept / "seed").write_text("2\n")
    assert "verdict.json was made from other traces" in shell("shrink", kept).err
