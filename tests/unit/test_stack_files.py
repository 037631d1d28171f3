"""Stacks of one's own: a file by its path, in Python, for a member and in a scenario."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.commands.run import plan, run
from stormcast.chaos.language.scenario import load_scenario, parse_scenario
from stormcast.chaos.language.stacks import settings_of
from stormcast.chaos.session.plans import check_supported
from stormcast.chaos.session.runner import run_scenario
from stormcast.node.core.errors import ConfigError
from stormcast.node.member.settings import load_member
from stormcast.node.settings import load_settings

GOOD = """\
about: A small group.
protocols:          # Top to bottom.
  - GMS:
      join_timeout: 300ms
      merge_timeout: 3s
  - STABLE
  - UNICAST3: {sync: spaced}
  - NAKACK2: {xmit_interval: 250ms}
  - PING
  - DISCARD: {up: 0.1}
  - UDP
"""
SCENARIO = """\
name: own
guarantees: [G1]
cluster: {members: 2, stack: ../stacks/mine.yaml, timing: fast}
workload: [{do: multicast, from: all, count: 5, start: 2s}]
limits: {run: 30s}
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "stacks" / "mine.yaml"
    path.parent.mkdir()
    path.write_text(GOOD)
    return path


def test_a_stack_file_is_read_by_its_path(mine: Path) -> None:
    settings = load_settings(str(mine), "fast", protocols={"GMS": {"merge_timeout": "1s"}})
    assert settings.name == "mine", "wherever it is, its traces are the same"
    assert [name for name, _config in settings.layers][:3] == ["GMS", "STABLE", "UNICAST3"]
    assert settings.of("GMS").join_timeout == 0.3
    assert settings.of("GMS").merge_timeout == 1.0
    assert not settings.is_museum
    mine.write_text(f"museum: true\n{GOOD}")
    assert load_settings(str(mine), historical={"conn_ids": "none"}).is_museum


@pytest.mark.parametrize(
    ("old", "new", "refusal"),
    [
        ("merge_timeout: 3s", "merge_timeot: 3s", ":5:7: GMS: unknown setting merge_timeot; did"),
        ("merge_timeout: 3s", "merge_timeout: 3", None),
        ("merge_timeout: 3s", "merge_timeout: x", ":5:7: GMS.merge_timeout is 'x': write"),
        ("merge_timeout: 3s", "join_timeout: 3s", ":5:7: not YAML: the key join_timeout is there"),
        ("merge_timeout: 3s", "merge_timeout: [3s", ":7:13: not YAML"),
        ("- STABLE", "- STABEL", ":6:5: unknown protocol STABEL; did you mean STABLE?"),
        ("- STABLE", "- [STABLE]", ":6:5: stack .*: name one protocol per entry"),
        ("- STABLE", "- {STABLE: {}, PING: {}}", ":6:5: stack .*: name one protocol per entry"),
        ("  - STABLE\n", "", ":7:5: stack .*: NAKACK2 needs STABLE, because"),
        ("sync: spaced", "sync: often", ":7:16: sync is 'often'"),
        ("sync: spaced", "capacity: 100", ":7:16: UNICAST3.capacity is called window_messages"),
        ("250ms", "-1s", ":8:15: NAKACK2.xmit_interval is '-1s'"),
        ("250ms", "0s", ":8:15: stack mine: NAKACK2.xmit_interval is 0, so nothing"),
        ("  - PING\n", "", ":3:5: stack .*: GMS needs STATIC or PING"),
        ("  - UDP\n", "", ":2:1: stack .*: needs exactly one transport"),
        ("up: 0.1", "up: 7", ":10:15: discard.up is 7"),
        ("- PING", "- TCPPING", ":9:5: unknown protocol TCPPING; it is STATIC here"),
        ("about:", "abuot:", ":1:1: unknown key abuot; did you mean about?"),
        ("protocols:", "protocols: 7\nx:", ":3:1: unknown key x"),
        (GOOD, "protocols: 7", ":1:1: stack .*: protocols must be a list"),
        (GOOD, "[1]", ":1:1: write `protocols:` and a list"),
        (GOOD, "", ":1:1: write `protocols:` and a list"),
    ],
)
def test_what_a_stack_file_has_wrong_is_refused_with_file_line_and_column(
    mine: Path, old: str, new: str, refusal: str | None
) -> None:
    assert old in GOOD
    mine.write_text(GOOD.replace(old, new))
    if refusal is None:
        load_settings(str(mine))
        return
    with pytest.raises(ConfigError, match=f"mine.yaml{refusal}"):
        load_settings(str(mine))


def test_a_stack_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none.yaml", "No such file"), (tmp_path, "no stack named")):
        with pytest.raises(ConfigError, match=why):
            load_settings(str(path))
    (tmp_path / "binary.yml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"binary\.yml:1:1: not UTF-8"):
        load_settings(str(tmp_path / "binary.yml"))


def test_a_member_takes_a_stack_file_by_flag_file_and_variable(mine: Path, tmp_path: Path) -> None:
    config = tmp_path / "member.yaml"
    config.write_text(f"stack: {mine}\n")
    for flags, environ in (
        ({"--stack": str(mine)}, {}),
        ({"--config": str(config)}, {}),
        ({}, {"STORMCAST_STACK": str(mine)}),
    ):
        effective = load_member(flags, environ)
        assert effective.settings.stack.of("GMS").join_timeout == 0.3
        shown = effective.as_yaml()
        assert "join_timeout: 300ms  # stack mine" in shown
        (tmp_path / "again.yaml").write_text(shown)
        again = load_member({"--config": str(tmp_path / "again.yaml")}, {})
        assert again.settings.stack == effective.settings.stack


def test_a_scenario_takes_a_stack_file_and_its_run_keeps_it(mine: Path, tmp_path: Path) -> None:
    """Relative to the scenario, wherever the command runs; and a run can be replayed when both
    files are gone or changed."""
    folder = tmp_path / "scenarios"
    folder.mkdir()
    (folder / "own.yaml").write_text(SCENARIO)
    scenario = load_scenario(folder / "own.yaml")
    assert settings_of(scenario).of("GMS").merge_timeout == 3.0
    out = tmp_path / "run"
    outcome = run_scenario(scenario, 1, out=out)
    assert outcome.run.delivered == 20
    mine.unlink()
    (folder / "own.yaml").unlink()
    kept = load_scenario(out / "scenario.yaml")
    assert kept.cluster.stack == str(out / "stacks" / "mine.yaml")
    assert (out / "stacks" / "mine.yaml").read_text() == GOOD
    again = tmp_path / "again"
    run_scenario(kept, 1, out=again)
    for trace in sorted(path.name for path in (out / "trace").iterdir()):
        assert (again / "trace" / trace).read_bytes() == (out / "trace" / trace).read_bytes()


@pytest.mark.parametrize(
    ("cluster", "start"),
    [
        ("{members: 2, settings: {xmit_intervall: 1s}}", "x.yaml:3:34: UNICAST3: unknown setting"),
        ("{members: 2, stack: upd}", "x.yaml:3:23: no stack named upd; did you mean udp?"),
        ("{members: 2, max_batch: 5, settings: {a: 1, b: 2}}", "x.yaml:3:48: UNICAST3: unknown"),
        ("{members: 2, historical: {stamps: false}}", "x.yaml:3:36: historical flaws are for"),
        ("{members: 2, multicast_settings: {x: 1}}", "x.yaml:3:44: multicast_settings: stack"),
        ("{members: 2, stack: udp, multicast_settings: {x: 1}}", "x.yaml:3:56: NAKACK2: unknown"),
        ("{members: 2, protocols: {GMS: {}}}", "x.yaml:3:35: stack unicast-only has no protocol"),
        (
            "{members: 2, stack: udp, protocols: {FRAG: {frag_size: 70KB}, GMS: {}}}",
            "x.yaml:3:54: stack udp: FRAG.frag_size is 70000",
        ),
        (
            "{members: 2, settings: {xmit_interval: 1s}, "
            "protocols: {UNICAST3: {xmit_interval: 2s}}}",
            "x.yaml:3:77: settings: xmit_interval is in protocols.UNICAST3, too",
        ),
        (
            "{members: 2, stack: udp, multicast_settings: {xmit_interval: 1s}, "
            "protocols: {NAKACK2: {xmit_interval: 2s}}}",
            "x.yaml:3:98: multicast_settings: xmit_interval is in protocols.NAKACK2, too",
        ),
    ],
)
def test_what_a_stack_refuses_of_a_scenario_has_its_place(cluster: str, start: str) -> None:
    scenario = parse_scenario(f"name: x\nguarantees: [G1]\ncluster: {cluster}\n", "x.yaml")
    with pytest.raises(ConfigError) as refused:
        settings_of(scenario)
    assert str(refused.value).startswith(start)


def test_a_view_is_not_expected_of_a_stack_without_a_group() -> None:
    text = "name: x\nguarantees: [G1]\ncluster: {members: 2}\nexpect:\n"
    scenario = parse_scenario(f"{text}  - {{by: 10s, seen_by: all, view: all}}\n", "x.yaml")
    with pytest.raises(ConfigError) as refused:
        settings_of(scenario)
    assert str(refused.value).startswith(
        "x.yaml:5:5: expect: a view is expected, and stack unicast-"
    )


def test_pods_have_no_stack_file(mine: Path) -> None:
    scenario = parse_scenario(SCENARIO.replace("../stacks/mine.yaml", str(mine)))
    check_supported(scenario, "netns")
    with pytest.raises(Unsupported, match="pods do not have that file; use a stack that ships"):
        check_supported(scenario, "kubernetes")


def test_a_stack_in_a_scenario_is_a_name_or_a_path() -> None:
    with pytest.raises(ConfigError, match=r"or a path to a \.yaml"):
        parse_scenario(SCENARIO.replace("../stacks/mine.yaml", "../stacks/mine"))


@pytest.mark.parametrize("command", [plan, run])
@pytest.mark.parametrize(
    ("name", "why"),
    [("none.yaml", "no such file or directory"), ("stacks", "is a directory")],
)
def test_a_scenario_that_cannot_be_read_is_refused_in_a_sentence(
    command: Callable[[list[str]], int],
    name: str,
    why: str,
    mine: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = mine.parent.parent / name
    assert command([str(path)]) == 2
    assert capsys.readouterr().err == f"stormcast: {path}: {why}; name another, or mend it\n"


@pytest.mark.parametrize("command", [plan, run])
@pytest.mark.parametrize("stack", ["none.yaml", "udpp"])
def test_a_scenario_whose_stack_is_not_there_has_no_plan_and_no_run(
    command: Callable[[list[str]], int],
    stack: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(SCENARIO.replace("../stacks/mine.yaml", stack))
    assert command([str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert stack in line
