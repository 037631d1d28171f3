"""Comparing with a peer, without a peer: what is played, what a row says, and the page."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.backends.netns.commands import MemberSpec
from stormcast.chaos.campaigns.versus import page
from stormcast.chaos.campaigns.versus.contests import JUDGED, LeftOut, contests, on_stack
from stormcast.chaos.campaigns.versus.playing import play_all
from stormcast.chaos.campaigns.versus.rows import (
    JGROUPS,
    ROW,
    STORMCAST,
    Row,
    directory_of,
    lines_of,
    merged,
    pairs_of,
    read_row,
    read_rows,
    read_store,
    store_of,
    write_row,
)
from stormcast.chaos.commands import compare_with as command
from stormcast.chaos.language.features import FEATURES, ONLY_SIMULATED
from stormcast.chaos.language.shipped import find_shipped
from stormcast.chaos.oracles.verdict import CHECKS
from stormcast.chaos.peers.jars import JarError, class_path
from stormcast.chaos.peers.jgroups_backend import LACKS, JGroupsBackend, with_jgroups
from stormcast.chaos.peers.jgroups_member import ARTIFACTS, SETTINGS, argv_on
from stormcast.chaos.session.plans import cluster_plan
from stormcast.node.core.errors import ConfigError
from stormcast.node.settings import load_settings

HERE = {
    **dict.fromkeys(FEATURES),
    **dict.fromkeys(("netem", "first-conn", "frames-of-streams"), "not on this machine"),
    **ONLY_SIMULATED,
}
"""The features of namespaces where all is there that can be."""
OURS = Row(
    scenario="a-partition",
    stack="udp",
    system=STORMCAST,
    seed=7,
    verdict="holds",
    owed="9 of 9 delivered",
    resync=2.0567,
    healed=True,
    packets=1200,
    bytes=98_700,
    seconds=12.5,
    about="Somewhere.",
)
THEIRS = replace(
    OURS,
    system=JGROUPS,
    verdict="violated",
    resync=None,
    findings=[("G3", "violated", "multicast 41 was delivered after 39"), ("RUN", "unknown", "x")],
    witness=["G3: n2#99 t=3.1 delivered from n0 window 1 multicasts 39..39"],
)


# -- What is played ------------------------------------------------------------------------------


def test_each_scenario_is_played_on_both_stacks_and_judged_by_what_applications_see() -> None:
    played, _left_out = contests(["partition-into-halves"], HERE)
    assert [(one.name, one.stack) for one in played] == [
        ("partition-into-halves", "udp"),
        ("partition-into-halves", "tcp"),
    ]
    for one in played:
        assert one.scenario.cluster.timing == "fast"
        assert set(one.scenario.guarantees) == set(JUDGED)
    assert set(JUDGED) < {*CHECKS, "G8"}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("heartbeats-lost", "a rule knows frames of Stormcast"),
        ("slow-member-and-credits", "sets MFC, UFC of Stormcast's own stack"),
        ("keys-change-under-load", "does not know Stormcast's keys"),
    ],
)
def test_what_means_nothing_for_jgroups_is_left_out_once_and_with_the_reason(
    name: str, why: str
) -> None:
    played, left_out = contests([name], HERE)
    assert played == []
    assert [one.name for one in left_out] == [name]
    assert why in left_out[0].why


def test_what_only_one_stack_cannot_do_is_left_out_there_alone() -> None:
    no_dice = HERE | {"loss": "no dice here"}
    played, left_out = contests(["group-under-random-loss"], no_dice)
    assert (played, [one.why for one in left_out]) == ([], ["needs loss: no dice here"])
    assert contests(["no-such-scenario"], HERE) == ([], [])


def test_every_contest_can_be_planned_for_both() -> None:
    played, left_out = contests((), HERE)
    assert len(played) > 50
    assert len(left_out) > 5
    for one in played:
        for there in (HERE, with_jgroups(HERE)):
            plan = cluster_plan(one.scenario, 1, "x", Path(), there)
            assert not plan.needs & LACKS.keys()


def test_frames_share_datagrams_on_both_sides_also_where_some_are_struck() -> None:
    scenario = on_stack(find_shipped("group-under-random-loss").read(), "udp")
    (config,) = {
        tuple(member.config["protocols"]["UDP"].items())
        for member in cluster_plan(scenario, 1, "x", Path(), HERE).members
    }
    assert dict(config) == {"bundler": "transfer-queue", "offload": "never"}


# -- The member ----------------------------------------------------------------------------------


def test_a_member_binds_where_it_lives_and_asks_whom_it_is_told_of() -> None:
    spec = MemberSpec(
        name="n1",
        address="198.18.0.3",
        folder=Path("/run/n1"),
        initial_hosts=("a[7800]", "b[7800]"),
    )
    words = argv_on("tcp", "jars", {"n1": "drop"})("python", spec)
    assert "-Djgroups.bind_addr=198.18.0.3" in words
    assert "-Djgroups.tcpping.initial_hosts=a[7800],b[7800]" in words
    told = dict(pairwise(words))
    assert (told["-cp"], told["--stack"], told["--flaw"]) == ("jars", "tcp.xml", "drop")
    assert told["--journal"] == "/run/n1/journal"
    assert "none" in argv_on("udp", "jars")("python", replace(spec, initial_hosts=()))


def test_jgroups_is_as_patient_as_the_fast_timing() -> None:
    fast = load_settings("udp", "fast")
    ours = dict(fast.layers)
    for setting, value in SETTINGS.items():
        protocol, _, name = setting.partition(".")
        assert getattr(ours[protocol], name) == pytest.approx(int(value) / 1000), setting


def test_a_stack_that_jgroups_does_not_have_is_refused() -> None:
    with pytest.raises(Unsupported, match="use udp or tcp"):
        JGroupsBackend("mcast", HERE)


def test_without_a_jdk_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None if name == "javac" else name)
    with pytest.raises(JarError, match="no javac: install a JDK"):
        class_path(ARTIFACTS, [])


def test_what_maven_or_javac_say_is_one_line_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for program in ("mvn", "javac", "java"):
        (tmp_path / program).write_text("#!/bin/sh\necho '[ERROR] no route'\necho more\nexit 1\n")
        (tmp_path / program).chmod(0o755)
    with pytest.raises(JarError) as fetched:
        class_path(ARTIFACTS[:1], [])
    assert str(fetched.value) == (
        "org.jgroups:jgroups:5.5.3.Final could not be fetched ([ERROR] no route more); look "
        "whether Maven reaches a repository"
    )
    (tmp_path / "One.java").write_text("no Java\n")
    with pytest.raises(JarError, match=r"could not be compiled .*; install a JDK of version 17"):
        class_path((), [tmp_path / "One.java"])
    assert [path.name for path in (tmp_path / "cache/stormcast/peers").iterdir()] == []


# -- Rows and the page ---------------------------------------------------------------------------


def test_rows_are_kept_and_not_played_again(tmp_path: Path) -> None:
    played, _left_out = contests(["resync-of-a-group"], HERE)
    for contest in played:
        for row in (OURS, THEIRS):
            kept = replace(row, scenario=contest.name, stack=contest.stack)
            directory = tmp_path / directory_of(kept.scenario, kept.stack, kept.system)
            directory.mkdir()
            write_row(kept, directory)

    def begins(*what: object) -> None:
        raise AssertionError(what)

    rows = list(play_all(played, 7, tmp_path, HERE, begins))
    assert sorted(map(repr, rows)) == sorted(map(repr, read_rows(tmp_path)))
    assert [row.system for row in read_rows(tmp_path)] == [STORMCAST, JGROUPS] * 2


def test_a_row_that_is_kept_names_files_as_its_run_has_them(tmp_path: Path) -> None:
    """It goes into a page that others read."""
    text = f"the agent does not answer POST /apply on {tmp_path}/logs/agent.sock"

    write_row(replace(THEIRS, findings=[("run", "unknown", text)], witness=[text]), tmp_path)

    said = "the agent does not answer POST /apply on logs/agent.sock"
    kept = read_row(tmp_path / ROW)
    assert (kept.findings, kept.witness) == ([("run", "unknown", said)], [said])


def test_a_file_that_is_no_row_is_named(tmp_path: Path) -> None:
    path = tmp_path / ROW
    for text in ("", "[]", "{}", '{"findings": [], "what": 1}'):
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"row\.json is no row of a comparison: remove"):
            read_row(path)


def test_a_line_has_both_sides() -> None:
    assert page.cells([OURS, THEIRS])[1] == (
        *("a-partition", "udp"),
        *("holds", "2.06 s", "1200", "99"),
        *("violated G3", "never", "1200", "99"),
    )
    alone = replace(OURS, stack="tcp", healed=False, resync=None)
    assert page.cells([alone])[1][2:7] == ("holds", "", "1200", "99", "not played")
    assert pairs_of([OURS, THEIRS, alone]) == [(OURS, THEIRS), (alone, None)]


def test_the_page_has_table_witness_and_what_was_not_played() -> None:
    text = f"# Title\n{page.BEGIN}\nof yesterday\n{page.END}\nthe end\n"
    left_out = [LeftOut("heartbeats-lost", "a rule")]
    new = page.written(text, [OURS, THEIRS], left_out)
    assert new.startswith(f"# Title\n{page.BEGIN}\n\nSomewhere.\n\n| scenario | stack |")
    assert "| a-partition | udp | holds | 2.06 s |" in new
    assert "- G3 violated: multicast 41 was delivered after 39" in new
    assert "```\nG3: n2#99 t=3.1" in new
    assert "| heartbeats-lost | a rule |" in new
    assert new.endswith(f"{page.END}\nthe end\n")
    assert "of yesterday" not in new
    assert page.written(new, [OURS, THEIRS], left_out) == new
    with pytest.raises(ConfigError, match="FILE has no place for the results: put"):
        page.check_place("# Title", "FILE")


def test_a_page_keeps_what_was_measured_before_and_says_with_what(tmp_path: Path) -> None:
    text = f"{page.BEGIN}\n{page.END}\n"
    store = store_of(tmp_path / "page.md")
    assert (store.name, read_store(store)) == ("page.jsonl", [])
    store.write_text(lines_of([OURS, THEIRS]))
    new = replace(OURS, scenario="b-crash", about="Elsewhere.")
    again = replace(THEIRS, verdict="unknown", about="Elsewhere.")
    better = replace(OURS, packets=7, about="Elsewhere.")
    rows = merged(read_store(store), [new, again, better])
    assert rows == [better, THEIRS, new], "what is unknown takes the place of no verdict"
    assert merged([again], [replace(again, packets=3)])[0].packets == 3
    said = page.written(text, rows, [])
    assert "\n\nElsewhere.\n\na-partition: Somewhere.\n\n|" in said
    assert "| a-partition | udp | holds | 2.06 s | 7 |" in said
    store.write_text("{}\n")
    with pytest.raises(ConfigError, match=r"page\.jsonl is damaged: .* restore it"):
        read_store(store)


# -- The command ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["jgruops"], 2, "there is no peer 'jgruops': did you mean jgroups?"),
        (["jgroups", "--write", "PAGE"], 2, "has no place for the results: put <!-- compared -->"),
        (["jgroups", "--write", "NOWHERE"], 2, "no such file or directory"),
        (
            ["jgroups", "--only", "nothing-like-it", "--out", "o"],
            2,
            "no scenario with a group has that in its",
        ),
        (["jgroups", "--only", "heartbeats"], 3, "unsupported: heartbeats-lost: needs rule-drop:"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    words: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "PAGE").write_text("# A page\n")
    monkeypatch.chdir(tmp_path)
    for name in ("what_is_missing", "missing"):
        monkeypatch.setattr(command, name, lambda *_: None)
    monkeypatch.setattr(command.jgroups_member, "classes", lambda: "jars")
    monkeypatch.setattr(command, "features_here", lambda: HERE)
    assert command.compare_with(words) == code
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err
    assert [path.name for path in tmp_path.iterdir()] == ["PAGE"]


@pytest.mark.parametrize("lacking", ["what_is_missing", "missing"])
def test_what_this_machine_lacks_is_said(
    lacking: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("what_is_missing", "missing"):
        monkeypatch.setattr(command, name, lambda *_: None)
    monkeypatch.setattr(command.jgroups_member, "classes", lambda: "jars")
    monkeypatch.setattr(command, lacking, lambda *_: "no javac: install a JDK")
    assert command.compare_with(["jgroups"]) == 3
    assert capsys.readouterr().err == "unsupported: no javac: install a JDK\n"
    assert [*tmp_path.iterdir()] == []


def test_what_the_peer_violates_is_no_failure_and_what_we_do_is() -> None:
    assert command._exit([OURS, THEIRS]) == 0
    assert command._exit([OURS, replace(THEIRS, verdict="unknown")]) == 3
    assert command._exit([replace(OURS, verdict="violated"), THEIRS]) == 1
