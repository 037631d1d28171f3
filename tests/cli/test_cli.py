"""The command: what it prints where, and what its exit code says."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from bench import group_sim
from bench.micro import __main__ as micro
from stormcast.chaos.campaigns.library import GROUP_STACKS, Side, SideResult
from stormcast.chaos.campaigns.live import LiveResult, LiveRun
from stormcast.chaos.campaigns.museum import EXHIBITS
from stormcast.chaos.commands.suite import Again, JudgeAgain
from stormcast.chaos.language.cluster import GENERATIONS
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.cli import COMMANDS, Exit
from stormcast.node.core.errors import NodeError
from stormcast.node.trace import read_blocks_untrusted
from tests.helpers.shell import Shell

MUSEUM_PIECES = {("unicast", generation) for generation in GENERATIONS} | {
    ("stack", "group-museum"),
    ("stack", "mcast-museum"),
    ("stack", "udp"),
}
HEALTHY = """\
name: healthy
guarantees: [G1, G2, G3]
cluster: {members: 2}
workload:
  - {do: unicast, from: n0, to: n1, count: 400, rate: 400/s}
timeline:
  - {at: 200ms, do: loss, rate: 20%, for: 500ms}
"""
FLAWED = """\
name: flawed
guarantees: [G1]
cluster:
  {members: 2, stack: unicast-museum, unicast: UNICAST2, max_batch: 1,
   historical: {repair_ends: false}}
workload:
  - {do: unicast, from: n0, to: n1, count: 5, rate: 50/s, size: 64B}
timeline:
  - {at: 0s, do: rule, does: drop, match: {kind: DATA, seqno: 5, occurrence: 1}, for: 5s}
"""
TOOTHLESS = HEALTHY.replace("at: 200ms", "at: 20s")
MULTICAST = """\
name: to-all
guarantees: [G1]
cluster: {members: 3}
workload:
  - {do: multicast, from: n0, count: 10}
"""


# -- The command itself ----------------------------------------------------------------------------


def test_no_words_are_answered_with_how_to_use_it(shell: Shell) -> None:
    said = shell()
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("usage: stormcast SUB-COMMAND")


def test_help_names_every_sub_command_and_exit_code(shell: Shell) -> None:
    said = shell("--help")
    assert (said.code, said.err) == (0, "")
    for name in COMMANDS:
        assert f"\n  {name} " in said.out
    for line in ("0  holds", "1  violated", "2  usage", "3  unknown or unsupported"):
        assert line in said.out


def test_the_version_is_that_of_the_distribution(shell: Shell) -> None:
    assert shell("--version").out.startswith("stormcast 0.")


@pytest.mark.parametrize(
    ("word", "remedy"),
    [("serach", "did you mean search?"), ("zzz", "see stormcast --help"), ("--seed", "--help")],
)
def test_an_unknown_sub_command_is_answered_with_the_nearest(
    shell: Shell, word: str, remedy: str
) -> None:
    said = shell(word)
    assert (said.code, said.out) == (2, "")
    assert f"no sub-command {word!r}" in said.err
    assert remedy in said.err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_sub_command_explains_itself(shell: Shell, name: str) -> None:
    said = shell(name, "--help")
    assert said.code == 0
    assert said.out.startswith(f"usage: stormcast {name} ")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_bad_flag_is_refused_by_name(shell: Shell, name: str) -> None:
    said = shell(name, "x", "--no-such-flag")
    assert (said.code, said.out) == (2, "")
    assert f"stormcast {name}: error:" in said.err


def test_flags_are_not_abbreviated(shell: Shell) -> None:
    """`--see` would mean --seed today and something else tomorrow."""
    assert shell.run(HEALTHY, "--see", "3").code == 2


@pytest.mark.parametrize("seed", ["-1", "x", "1.5", "", "1e3", "0x10"])
def test_a_seed_is_a_whole_number(shell: Shell, seed: str) -> None:
    said = shell.run(HEALTHY, f"--seed={seed}")
    assert (said.code, said.out) == (2, "")
    assert f"{seed!r} is no seed: write a whole number from 0" in said.err


def test_a_crash_is_not_taken_for_a_verdict(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_arguments: object, **_values: object) -> None:
        raise AssertionError("our own bug")

    monkeypatch.setattr("stormcast.chaos.commands.run.run_scenario", crash)
    said = shell.run(HEALTHY)
    assert (said.code, said.out) == (Exit.UNKNOWN, "")
    assert "AssertionError: our own bug" in said.err


def test_a_pipe_other_than_stdout_that_breaks_is_an_error(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a reader of stdout may go away."""

    def crash(_words: list[str]) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("stormcast.chaos.commands.run.plan", crash)
    said = shell("plan", "any.yaml")
    assert (said.code, said.out) == (Exit.UNKNOWN, "")
    assert "BrokenPipeError: [Errno 32] Broken pipe" in said.err


# -- run -------------------------------------------------------------------------------------------


def test_a_run_that_holds_exits_with_0_and_leaves_its_directory(shell: Shell) -> None:
    said = shell.run(HEALTHY, "--seed", 7)
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("healthy: holds   seed 7   400 of 400 delivered (400 unicasts), ")
    assert "G1  holds" in said.out
    assert "faults, and how often each had an effect: f1 " in said.out
    assert said.out.endswith("run: runs/healthy-7\n")
    left = {path.name for path in (shell.folder / "runs" / "healthy-7").iterdir()}
    assert left == {"begun", "scenario.yaml", "seed", "versions.json", "trace", "verdict.json"}


def test_a_run_counts_the_events_that_its_traces_hold(shell: Shell) -> None:
    """As `stormcast verify` does, and not what the simulator had to do for them."""
    said = shell.run(HEALTHY, "--out", "kept")
    traces = (shell.folder / "kept" / "trace").glob("*.trace")
    held = sum(
        len(block.events)
        for path in traces
        for block in read_blocks_untrusted(path.read_bytes(), xxh3_64_intdigest)
    )
    assert f" {held} events, " in said.out
    assert json.loads((shell.folder / "kept" / "verdict.json").read_text())["events"] == held


def test_the_same_run_again_is_kept_beside_the_first(shell: Shell) -> None:
    """Each has a directory of its own; `runs/latest` is the last one, also where one is refused."""
    shell.run(HEALTHY, "--seed", 7)
    before = (shell.folder / "runs" / "healthy-7" / "verdict.json").read_bytes()
    said = shell.run(HEALTHY.replace("20%", "30%"), "--seed", 7)
    assert said.out.endswith("run: runs/healthy-7-2\n")
    assert (shell.folder / "runs" / "latest").resolve().name == "healthy-7-2"
    assert (shell.folder / "runs" / "healthy-7" / "verdict.json").read_bytes() == before


def test_a_directory_that_is_not_empty_is_refused(shell: Shell) -> None:
    assert shell.run(HEALTHY, "--out", "kept").code == 0
    said = shell.run(HEALTHY, "--seed", 8, "--out", "kept")
    assert (said.code, said.out) == (2, "")
    assert "kept is not empty" in said.err
    assert "--out" in said.err
    assert (shell.folder / "kept" / "seed").read_text() == "1\n"
    for words in (("--backend", "sim"), ()):
        said = shell("chaos-test", "--out", "kept", *words)
        assert (said.code, said.out) == (2, "")
        assert "kept is not empty" in said.err


def test_a_run_that_is_violated_exits_with_1_and_shows_the_witness(shell: Shell) -> None:
    said = shell.run(FLAWED)
    assert said.code == 1
    assert said.out.startswith("flawed: violated   seed 1   4 of 5 delivered (5 unicasts), ")
    assert "G1 witness: n0#" in said.out
    assert "seqnos 5..5" in said.out


def test_a_run_whose_faults_did_nothing_exits_with_3(shell: Shell) -> None:
    said = shell.run(TOOTHLESS)
    assert said.code == 3
    assert said.out.startswith("healthy: unknown   seed 1")
    assert "fault f1 (loss) did not bite: 0 times" in said.out


@pytest.mark.parametrize(
    ("text", "verdict", "code"),
    [(HEALTHY, "holds", 0), (FLAWED, "violated", 1), (TOOTHLESS, "unknown", 3)],
)
def test_with_json_a_run_prints_one_object(
    shell: Shell, text: str, verdict: str, code: int
) -> None:
    said = shell.run(text, "--json", "--seed", 4, "--out", "kept")
    assert said.code == code
    assert said.out.count("\n") == 1
    found = said.json
    assert found["verdict"] == verdict
    assert found["seed"] == 4
    assert found["run"] == "kept"
    assert set(found["guarantees"]) >= set(found["guarantees"]) & {"G1", "G2", "G3"}
    assert set(found["guarantees"].values()) <= {"holds", "violated", "unknown"}
    worst = max(found["guarantees"].values(), key=["holds", "unknown", "violated"].index)
    # A fault without teeth breaks no guarantee: it is the run that proves nothing.
    assert worst == ("holds" if verdict == "unknown" else verdict)
    assert found == json.loads((shell.folder / "kept" / "verdict.json").read_text())


def test_the_same_seed_is_the_same_run_and_another_is_not(shell: Shell) -> None:
    for seed, out in ((3, "a"), (3, "b"), (4, "c")):
        assert shell.run(HEALTHY, "--seed", seed, "--out", out).code == 0
    a, b, c = (
        (shell.folder / out / "trace" / "n1-1.trace").read_bytes() for out in ("a", "b", "c")
    )
    assert a == b != c


def test_a_run_replays_from_what_it_left(shell: Shell) -> None:
    shell.run(HEALTHY, "--seed", 5, "--out", "kept")
    seed = (shell.folder / "kept" / "seed").read_text().strip()
    said = shell("run", "kept/scenario.yaml", "--seed", seed, "--out", "again")
    assert said.code == 0
    for name in ("n0-1", "n1-1", "rig"):
        one, other = (shell.folder / out / "trace" / f"{name}.trace" for out in ("kept", "again"))
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (HEALTHY.replace("rate: 20%", "rat: 20%"), "7:", "rat"),
        (HEALTHY.replace("rate: 400/s", "rate: 400"), "5:", "rate is '400'"),
        (HEALTHY.replace("members: 2", "members: 0"), "3:", "members"),
        (HEALTHY.replace("healthy", "Not A Name"), "1:", "name"),
        (HEALTHY + "more: 1\n", "8:", "more"),
        ("name: [", "1:", ""),
        ("", "1:", ""),
    ],
)
def test_a_bad_file_is_refused_with_its_line_and_nothing_is_written(
    shell: Shell, text: str, place: str, words: str
) -> None:
    for command in (("run",), ("run", "--json"), ("plan",)):
        said = shell(command[0], shell.write(text), *command[1:])
        assert (said.code, said.out) == (2, "")
        assert f"stormcast: {shell.folder}/scenario.yaml:{place}" in said.err
        assert words in said.err
        assert said.err.count("\n") == 1 or place == "1:"
    assert [path.name for path in shell.folder.iterdir()] == ["scenario.yaml"]


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_file_that_is_not_there_is_refused_by_name(shell: Shell, command: str) -> None:
    said = shell(command, "nowhere.yaml")
    assert (said.code, said.out) == (2, "")
    assert "nowhere.yaml" in said.err
    assert "Traceback" not in said.err
    assert shell(command, shell.folder).code == 2


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        (
            "settings: {xmit_intervall: 1s}",
            "unknown setting xmit_intervall; did you mean xmit_interval?",
        ),
        ("settings: {window_messages: 0}", "window_messages is 0: it must be positive"),
        ("stack: unicast-onyl", "no stack named unicast-onyl; did you mean unicast-only?"),
        ("historical: {stamps: false}", "historical flaws are for museum stacks only"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_before_anything_is_written(
    shell: Shell, cluster: str, message: str
) -> None:
    said = shell.run(HEALTHY.replace("members: 2", f"members: 2, {cluster}"))
    assert (said.code, said.out) == (2, "")
    assert message in said.err
    assert not (shell.folder / "runs").exists()


def test_a_run_that_breaks_off_is_unknown_and_names_its_seed(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Timers that are always due are a bug of the stacks, not a wrong use of the command."""

    def runaway(*_arguments: object, **_values: object) -> None:
        raise NodeError("200001 events at t=1.0: timers that are always due")

    monkeypatch.setattr("stormcast.chaos.commands.run.run_scenario", runaway)
    said = shell.run(HEALTHY, "--seed", 9)
    assert (said.code, said.out) == (3, "")
    assert said.err == (
        "stormcast: the run broke off (seed 9): 200001 events at t=1.0: "
        "timers that are always due\n"
    )


def test_a_backend_that_is_not_there_is_unsupported(shell: Shell) -> None:
    said = shell.run(HEALTHY, "--backend", "podman")
    assert (said.code, said.out) == (3, "")
    assert "unsupported: backend 'podman'" in said.err
    assert "sim" in said.err
    assert not (shell.folder / "runs").exists()


def test_without_root_real_members_are_unsupported_and_the_remedy_is_said(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("stormcast.chaos.backends.netns", "stormcast.chaos.backends.netns.backend"):
        monkeypatch.setattr(f"{module}.what_is_missing", lambda: "network namespaces need root")
    said = shell.run(HEALTHY, "--backend", "netns", "--out", "kept")
    assert (said.code, said.out) == (3, "")
    assert "network namespaces need root; or use --backend sim" in said.err
    assert len(said.err.splitlines()) == 1
    assert not list((shell.folder / "kept").rglob("*.trace"))


def test_what_killed_runs_left_is_said_before_a_run(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = {"netns": ["process 7 of sc1-1-1", "sc1-1-1-a"]}
    monkeypatch.setattr("stormcast.chaos.commands.output.leftovers_of", left.get)
    for module in ("stormcast.chaos.backends.netns", "stormcast.chaos.backends.netns.backend"):
        monkeypatch.setattr(f"{module}.what_is_missing", lambda: "network namespaces need root")
    said = shell.run(HEALTHY, "--backend", "netns", "--out", "kept")
    assert said.err.splitlines()[0] == (
        "2 leftovers of killed runs are there: stormcast clean removes them"
    )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--namespace", "x"], "--namespace is of --backend kubernetes"),
        (["--ipv6"], "--ipv6 is of --backend docker"),
        (["--backend", "netns", "--fate", "xxh3"], "a real network throws the kernel's dice"),
        (["--timing", "slow"], "invalid choice: 'slow'"),
    ],
)
def test_words_that_another_backend_understands_are_refused(
    shell: Shell, words: list[str], why: str
) -> None:
    said = shell.run(HEALTHY, *words)
    assert (said.code, said.out) == (2, "")
    assert why in said.err


def test_a_workload_that_the_simulator_has_not_is_unsupported(shell: Shell) -> None:
    said = shell.run(MULTICAST, "--json", "--seed", 2)
    assert said.code == 3
    assert said.json == {
        "verdict": "unsupported",
        "reason": "to-all needs multicast: stack unicast-only has no multicast; "
        "choose one with a group, such as udp",
        "guarantees": {},
        "seed": 2,
        "run": None,
    }
    assert "unsupported: to-all needs multicast" in said.err
    assert [path.name for path in shell.folder.iterdir()] == ["scenario.yaml"]


@pytest.mark.parametrize("command", ["museum", "compare", "chaos-test"])
def test_no_command_runs_on_another_backend_than_it_was_told(shell: Shell, command: str) -> None:
    said = shell(command, "--backend", "podman", "--json")
    assert (said.code, said.out) == (3, "")
    assert "unsupported: backend 'podman'" in said.err


def test_the_kernels_dice_may_be_thrown(shell: Shell) -> None:
    assert shell.run(HEALTHY, "--fate", "jhash", "--out", "a").code == 0
    assert shell.run(HEALTHY, "--fate", "xxh3", "--out", "b").code == 0
    traces = [(shell.folder / out / "trace" / "n1-1.trace").read_bytes() for out in ("a", "b")]
    assert traces[0] != traces[1]


# -- plan ------------------------------------------------------------------------------------------


def test_a_plan_shows_loads_and_steps_in_order_of_time(shell: Shell) -> None:
    said = shell("plan", shell.write(HEALTHY), "--seed", 3)
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[0].startswith("healthy, seed 3: 2 members (n0 n1), unicast-only, compatible")
    assert [line.split()[:3] for line in lines[2:] if line] == [
        ["at", "fault", "do"],
        ["0.000s", "-", "unicast"],
        ["0.200s", "f1", "loss"],
        ["0.700s", "f1", "end"],
    ]


def test_a_plan_says_what_the_seed_decides(shell: Shell) -> None:
    text = HEALTHY.replace("members: 2", "members: 5").replace(
        "do: loss, rate: 20%", "do: pause, member: random"
    )
    plans = {shell("plan", shell.write(text), "--seed", seed).out for seed in range(20)}
    chosen = {line for plan in plans for line in plan.splitlines() if "pause" in line}
    assert len(chosen) == 5


# -- trace -----------------------------------------------------------------------------------------


@pytest.fixture
def kept(shell: Shell) -> Path:
    """A run directory."""
    assert shell.run(HEALTHY, "--out", "kept").code == 0
    return shell.folder / "kept"


def test_a_trace_is_printed_in_order_of_time_with_names(shell: Shell, kept: Path) -> None:
    said = shell("trace", "cat", kept)
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    times = [float(line.split()[0]) for line in lines]
    assert times == sorted(times)
    assert any("n0-1#0" in line and "start" in line for line in lines)
    assert any("sent" in line and "peer n1-1" in line for line in lines)
    assert any("rig#" in line and '"phase": "on"' in line for line in lines)


def test_a_trace_as_json_is_one_object_per_event(shell: Shell, kept: Path) -> None:
    said = shell("trace", "cat", kept, "--json", "--member", "n0-1")
    assert said.code == 0
    events = [json.loads(line) for line in said.out.splitlines()]
    assert {event["member"] for event in events} == {"n0-1"}
    assert [event["number"] for event in events] == list(range(len(events)))
    assert events[0]["event"] == "start"
    assert events[0]["text"].startswith("n0 ")
    assert sum(event["count"] for event in events if event["event"] == "sent") == 400


def test_trace_figures_count_events_and_messages(shell: Shell, kept: Path) -> None:
    said = shell("trace", "stats", kept)
    assert said.code == 0
    assert "n0-1: " in said.out
    assert "400 messages" in said.out
    figures = shell("trace", "stats", kept, "--json").json
    assert set(figures) == {"n0-1", "n1-1", "rig"}
    sender = figures["n0-1"]
    assert sender["bytes"] == (kept / "trace" / "n0-1.trace").stat().st_size
    assert sender["messages"]["sent"] == 400
    assert figures["n1-1"]["messages"]["delivered"] == 400
    assert sender["events"]["start"] == 1
    assert sender["protocols"] == ["UNICAST3"]


def test_one_trace_file_may_be_named(shell: Shell, kept: Path) -> None:
    figures = shell("trace", "stats", kept / "trace" / "n1-1.trace", "--json").json
    assert list(figures) == ["n1-1"]


@pytest.mark.parametrize("what", ["cat", "stats"])
def test_a_torn_trace_is_read_up_to_the_tear_which_is_said(
    shell: Shell, kept: Path, what: str
) -> None:
    """The other members' traces are whole, and so is the torn one's first block."""
    path = kept / "trace" / "n0-1.trace"
    whole = shell("trace", what, kept).out
    path.write_bytes(path.read_bytes()[:-10])
    said = shell("trace", what, kept)
    assert said.code == 3
    assert said.err == (f"stormcast trace: {path}: torn block; everything before it was read\n")
    assert "n1-1" in said.out
    assert said.out != whole
    if what == "cat":
        assert 100 < len(said.out.splitlines()) < len(whole.splitlines())
        assert set(said.out.splitlines()) < set(whole.splitlines())
        assert "n0-1#255 " in said.out


def test_a_file_that_is_no_trace_is_said_to_be_none(shell: Shell) -> None:
    path = shell.write("just text that goes on for longer than a block header does" * 3, "x.trace")
    for what in ("cat", "stats"):
        said = shell("trace", what, path)
        assert said.code == 3
        assert f"{path}: not a trace block" in said.err


@pytest.mark.parametrize("what", ["cat", "stats"])
def test_a_place_without_traces_is_refused(shell: Shell, kept: Path, what: str) -> None:
    for place in (shell.folder, shell.folder / "nowhere"):
        said = shell("trace", what, place)
        assert (said.code, said.out) == (2, "")
        assert f"no traces in {place}: give a run directory or a .trace file" in said.err
    assert shell("trace", what, kept, "--member", "n9").code == 2


# -- museum, search, compare, chaos-test -----------------------------------------------------------


@pytest.mark.slow
def test_the_museum_is_a_list_of_exhibits(shell: Shell) -> None:
    said = shell("museum", "--json")
    assert said.code == 0
    assert [row["exhibit"] for row in said.json] == [exhibit.name for exhibit in EXHIBITS]
    for row in said.json:
        assert row["flawed_verdict"] == "violated"
        assert row["fixed_verdict"] == "holds"
        for side in (row["flawed"], row["fixed"]):
            what, runs = next(iter(side.items()))
            assert (what, runs) in MUSEUM_PIECES


def test_one_exhibit_may_be_named(shell: Shell) -> None:
    said = shell("museum", "--exhibit", "stored-for-ever", "--seed", 2)
    assert said.code == 0
    assert len(said.out.splitlines()) == 2
    assert "UNICAST conn_ids=none" in said.out
    assert "seed 2" in said.err
    said = shell("museum", "--exhibit", "disordered-sending")
    assert said.code == 0
    assert "80 requests for 200 messages" in said.out
    said = shell("museum", "--exhibit", "stored-forever")
    assert (said.code, said.out) == (2, "")
    assert "no exhibit named stored-forever; there are: stored-for-ever, " in said.err


def test_ctrl_c_in_the_museum_says_nothing_of_an_exhibit(
    shell: Shell, ctrl_c: Callable[[int], None]
) -> None:
    ctrl_c(1)
    said = shell("museum", "--exhibit", "stored-for-ever")
    assert (said.code, said.out, said.err) == (130, "", "seed 1\n")


@pytest.mark.slow
def test_a_search_counts_what_it_ran_and_does_not_depend_on_its_workers(shell: Shell) -> None:
    """Ten seeds on one core and on two."""
    found = []
    for workers in (1, 2):
        said = shell("search", "--seeds", 10, "--workers", workers, "--json")
        assert said.code == 0
        assert said.out.count("\n") == 1
        assert {"seeds", "violations", "events", "seconds"} <= set(said.json)
        found.append({**said.json, "seconds": None, "out": None})
    assert found[0] == found[1]
    assert (found[0]["seeds"], found[0]["violations"]) == (10, 0)
    assert found[0]["events"] > 10_000


def test_a_search_may_begin_anywhere(shell: Shell) -> None:
    said = shell("search", "--seeds", 1, "--from", 1234, "--workers", 1)
    assert said.code == 0
    assert said.out.startswith("1 seeds from 1234, 0 violated, 0 unknown, ")
    assert "stack × fault: " in said.out


@pytest.mark.parametrize("flag", ["--seeds", "--workers"])
def test_a_search_over_nothing_is_refused(shell: Shell, flag: str) -> None:
    for number in ("0", "-1", "x"):
        said = shell("search", f"{flag}={number}")
        assert (said.code, said.out) == (2, "")
        assert f"'{number}': write a whole number from 1" in said.err


@pytest.mark.slow
def test_a_comparison_has_a_row_per_generation(shell: Shell) -> None:
    said = shell("compare", "--json")
    assert said.code == 0
    assert [row["unicast"] for row in said.json] == list(GENERATIONS)
    for row in said.json:
        assert {"acks", "resent", "unacked_peak_bytes", "resync_ms", "repaired_ms"} <= set(row)
        assert row["verdict"] == "holds"
    table = shell("compare", "--timing", "fast")
    assert table.code == 0
    assert [line.split()[0] for line in table.out.splitlines()] == ["unicast", *GENERATIONS]


def test_ctrl_c_in_a_comparison_ends_it(shell: Shell, ctrl_c: Callable[[int], None]) -> None:
    ctrl_c(1)
    said = shell("compare")
    assert (said.code, said.out, said.err) == (130, "", "seed 1\n")


IN_SIM = ("chaos-test", "--backend", "sim", "--timing", "fast")


@pytest.mark.slow
def test_the_chaos_test_prints_a_table_and_one_verdict(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a library of one file or two: five generations or three stacks, and the museum."""
    from stormcast.chaos.language.scenario import parse_scenario  # noqa: PLC0415 only here

    monkeypatch.setattr("stormcast.chaos.commands.suite.library", lambda: [parse_scenario(HEALTHY)])
    said = shell(*IN_SIM, "--json", "--out", "kept", "--seed", 3)
    assert said.code == 0
    assert said.json["verdict"] == "holds"
    assert said.json["seed"] == 3
    assert [row["unicast"] for row in said.json["runs"]] == list(GENERATIONS)
    assert all((shell.folder / row["run"] / "verdict.json").is_file() for row in said.json["runs"])
    assert len(said.json["museum"]) == len(EXHIBITS)

    group = parse_scenario(HEALTHY.replace("members: 2", "members: 2, stack: tcp"))
    monkeypatch.setattr(
        "stormcast.chaos.commands.suite.library", lambda: [parse_scenario(HEALTHY), group]
    )
    said = shell(*IN_SIM, "--workers", 2)
    assert said.code == 0
    words = [line.split() for line in said.out.splitlines()]
    assert ["scenario", "timing", *GENERATIONS] in words
    assert ["scenario", "timing", *GROUP_STACKS] in words
    assert ["healthy", "fast", "-", "-", "holds", "holds", "holds"] in words
    assert "verdict: holds   8 runs   seed 1" in said.out

    monkeypatch.setattr(
        "stormcast.chaos.commands.suite.library", lambda: [parse_scenario(TOOTHLESS)]
    )
    said = shell(*IN_SIM)
    assert said.code == 3
    assert "verdict: unknown   5 runs   seed 1" in said.out


def test_ctrl_c_in_the_museum_of_the_chaos_test_is_no_verdict(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, ctrl_c: Callable[[int], None]
) -> None:
    monkeypatch.setattr("stormcast.chaos.commands.suite.library", list)
    ctrl_c(1)
    said = shell(*IN_SIM, "--out", "kept")
    assert said.code == 130
    assert "verdict" not in said.out
    assert "interrupted after 0 runs; their traces are in kept" in said.err


def test_the_chaos_test_needs_root_for_real_packets_and_says_what_it_does_without(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stormcast.chaos.language.scenario import parse_scenario  # noqa: PLC0415 only here

    monkeypatch.setattr(
        "stormcast.chaos.backends.netns.why_not", lambda: "network namespaces need root"
    )
    monkeypatch.setattr("stormcast.chaos.commands.suite.library", lambda: [parse_scenario(HEALTHY)])
    monkeypatch.setattr("stormcast.chaos.commands.suite.tour", list)

    said = shell("chaos-test", "--timing", "fast", "--json", "--out", "kept")
    assert (said.code, said.json["verdict"]) == (0, "holds")
    assert "no real packets here: network namespaces need root\n" in said.err
    assert "every scenario is run in the simulator instead" in said.err

    said = shell("chaos-test", "--backend", "netns", "--json")
    assert (said.code, said.json["verdict"]) == (3, "unsupported")
    assert said.json["reason"] == "network namespaces need root"


Work = Callable[[LiveRun, Path], LiveResult]


@pytest.fixture
def on_netns(monkeypatch: pytest.MonkeyPatch) -> Callable[[Work], None]:
    """Called with a function: has it stand for each run of chaos-test on real packets."""

    def runs_are(work: Work) -> None:
        def run_live(runs: list[LiveRun], _seed: int, out: Path, *_: Any, **_more: Any) -> Any:
            yield from (work(run, out / run.directory) for run in runs)

        monkeypatch.setattr("stormcast.chaos.backends.netns.why_not", lambda: None)
        monkeypatch.setattr("stormcast.chaos.commands.suite.features_of", lambda _place: {})
        monkeypatch.setattr("stormcast.chaos.campaigns.live.run_live", run_live)

    return runs_are


LIVE = ("chaos-test", "--backend", "netns", "--only", "unicast3", "--out", "kept")


def again(verdict: Verdict) -> JudgeAgain:
    """A second judge with that verdict."""
    return lambda out, _runs: Again(verdict, f"again: {verdict}", out / "report.html")


def held(run: LiveRun, out: Path) -> LiveResult:
    return LiveResult(run, Verdict.HOLDS, "", 1.0, str(out))


def test_what_this_machine_lacks_makes_the_chaos_test_unknown(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, on_netns: Callable[[Work], None]
) -> None:
    def lacking(run: LiveRun, out: Path) -> LiveResult:
        if run.act not in ("order", "delayed ack"):
            return held(run, out)
        return LiveResult(run, None, "x needs rule: no queue", 0.0, "", lacking="rule: no queue")

    on_netns(lacking)
    monkeypatch.setattr("stormcast.suite._judge_again", again(Verdict.HOLDS))
    said = shell(*LIVE)
    assert said.code == 3
    assert "4 runs are unsupported here: rule: no queue\n" in said.out
    assert "verdict: unknown   " in said.out
    assert json.loads(Path("kept/chaos-test.json").read_text())["verdict"] == "unknown"


def test_what_no_machine_can_run_leaves_the_verdict_of_the_chaos_test(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, on_netns: Callable[[Work], None]
) -> None:
    on_netns(
        lambda run, out: (
            LiveResult(run, None, "strangers", 0.0, "") if run.act == "order" else held(run, out)
        )
    )
    monkeypatch.setattr("stormcast.suite._judge_again", again(Verdict.HOLDS))
    said = shell(*LIVE)
    assert said.code == 0
    assert "unsupported here" not in said.out


def test_the_report_of_the_chaos_test_has_the_verdict_of_both_judges(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, on_netns: Callable[[Work], None]
) -> None:
    on_netns(held)
    monkeypatch.setattr("stormcast.suite._judge_again", again(Verdict.VIOLATED))
    said = shell(*LIVE)
    assert said.code == 1
    report = json.loads(Path("kept/chaos-test.json").read_text())
    assert (report["verdict"], report["again"]) == ("violated", "again: violated")


@pytest.mark.parametrize("where", ["report", "second judge", "runs"])
def test_no_later_error_hides_the_table_and_a_violation(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    on_netns: Callable[[Work], None],
    where: str,
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")

    def fail(*_words: object) -> Any:
        raise full

    def violated(run: LiveRun, out: Path) -> LiveResult:
        if where == "runs" and run.act != "order":
            raise full
        return LiveResult(run, Verdict.VIOLATED, "G1: lost", 1.0, str(out))

    on_netns(violated)
    monkeypatch.setattr("stormcast.suite._judge_again", again(Verdict.HOLDS))
    if where == "report":
        monkeypatch.setattr("stormcast.chaos.commands.suite.write_whole", fail)
    elif where == "second judge":
        monkeypatch.setattr("stormcast.suite._judge_again", fail)
    said = shell(*LIVE)
    assert said.code == 1
    assert said.out.split()[:2] == ["protocol", "order"]
    assert "violated: G1: lost" in said.out
    assert "no space left on device; make room on that disk" in said.out + said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("error", "why", "code"),
    [
        (NodeError("timers that are always due"), "timers that are always due", 3),
        (BrokenProcessPool(), "a process of the runs was killed", 3),
        (OSError(errno.ENOSPC, "No space left on device"), "make room on that disk", 3),
    ],
)
@pytest.mark.parametrize("is_violated", [False, True])
def test_an_error_after_some_runs_in_virtual_time_does_not_hide_them(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    why: str,
    code: int,
    is_violated: bool,
) -> None:
    from stormcast.chaos.language.scenario import parse_scenario  # noqa: PLC0415 only here

    def run_sides(sides: list[Side], *_words: object) -> Any:
        yield SideResult(sides[0], Verdict.VIOLATED if is_violated else Verdict.HOLDS, "kept/x")
        raise error

    monkeypatch.setattr("stormcast.chaos.commands.suite.library", lambda: [parse_scenario(HEALTHY)])
    monkeypatch.setattr("stormcast.chaos.commands.suite.run_sides", run_sides)
    said = shell(*IN_SIM, "--out", "kept")
    assert said.code == (1 if is_violated else code)
    assert "healthy   fast    " in said.out
    assert f"verdict: {'violated' if is_violated else 'unknown'}   1 runs" in said.out
    assert why in said.err


# -- bench -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_core_benchmark_says_messages_per_second_by_size(shell: Shell) -> None:
    said = shell("bench", "core", "--json", "--rounds", 1)
    assert said.code == 0
    assert set(said.json["messages_per_second"]) == {"100", "1000", "10000"}
    assert all(rate > 0 for rate in said.json["messages_per_second"].values())
    assert {"spread", "rounds", "unicast", "timing", "python"} <= set(said.json)


@pytest.mark.slow
def test_the_simulator_benchmark_says_events_per_second(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = tuple(load._replace(seconds=1) for load in group_sim.LOADS)
    monkeypatch.setattr(group_sim, "LOADS", loads)
    said = shell("bench", "sim", "--json", "--rounds", 1, "--timing", "compatible")
    assert said.code == 0
    assert said.json["events_per_second"] > 0
    assert {"unicast", "timing", "loss", "pairs", "python"} <= set(said.json)
    figures = said.json["by_timing"]["compatible"]
    assert {"spread", "rounds", "events", "delivered", "trace_bytes"} <= set(figures)


@pytest.mark.slow
def test_the_micro_benchmarks_say_how_long_a_batch_takes(shell: Shell) -> None:
    assert micro.main(["--rounds", "1", "ACK"]) == 0
    out, _err = shell.said()
    assert [line.split("  ")[0] for line in out.splitlines()] == [
        "codec: pack ACK",
        "codec: unpack ACK",
    ]
    assert all("ns/batch" in line and "spread 0.0%" in line for line in out.splitlines())


@pytest.mark.parametrize(
    "words", [("core", "--rounds", "0"), ("core", "--rounds", "x"), ("disk",), ()]
)
def test_a_wrong_measurement_is_refused(shell: Shell, words: tuple[str, ...]) -> None:
    said = shell("bench", *words)
    assert (said.code, said.out) == (2, "")


# -- As a process ----------------------------------------------------------------------------------


ROOT = Path(__file__).parents[2]
HERE = {**os.environ, "PYTHONPATH": str(ROOT)}
"""This tree, even where another one is installed."""


def a_process(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stormcast", *words],
        cwd=folder,
        env=HERE,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_process_exits_with_the_verdict(shell: Shell) -> None:
    for text, code in ((HEALTHY, 0), (FLAWED, 1), (TOOTHLESS, 3), ("name: [", 2)):
        done = a_process(shell.folder, "run", str(shell.write(text)), "--json")
        assert done.returncode == code
        assert (done.stdout == "") == (code == 2)
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error_of_ours(kept: Path) -> None:
    """`stormcast trace cat RUN | head -1`: no traceback, and no exit code of a verdict."""
    words = [sys.executable, "-m", "stormcast", "trace", "cat", str(kept), "--json"]
    with subprocess.Popen(
        words, env=HERE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
        assert process.wait() == Exit.PIPE_CLOSED
    assert b"Traceback" not in said


@pytest.mark.slow
def test_a_process_that_searches_uses_processes_of_its_own(shell: Shell) -> None:
    done = a_process(shell.folder, "search", "--seeds", "3", "--workers", "2", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["seeds"] == 3
    assert done.stderr == ""  # Progress is for terminals.
