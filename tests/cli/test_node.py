"""`stormcast node`: flags, the printed configuration, and one line for what cannot work."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from stormcast.cli import Exit
from stormcast.node.member.options import OPTIONS, SHORTCUTS
from tests.helpers.shell import Said, Shell

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    import os  # noqa: PLC0415 only here

    for name in list(os.environ):
        if name.startswith("STORMCAST_"):
            monkeypatch.delenv(name)


def line_of(said: Said) -> str:
    """The one line that a refused command says."""
    assert said.code == Exit.USAGE
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith("stormcast node: ")
    return line.removeprefix("stormcast node: ")


def test_the_configuration_is_printed_with_origins(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORMCAST_CLUSTER", "demo")
    file = shell.write("run_for: 5s\n", "m.yaml")
    said = shell("node", "--config", file, "--name", "n1", "--print-config")
    assert said.code == Exit.HOLDS
    for line in (
        "name: n1  # flag --name",
        "cluster: demo  # environment STORMCAST_CLUSTER",
        f"run_for: 5s  # file {file}",
        "stack: udp  # default",
        "    interval: 250ms  # timing fast",
        "    sync: spaced  # stack udp",
    ):
        assert line in said.out.splitlines()


def test_what_is_printed_is_taken_again(shell: Shell) -> None:
    flags = (
        "--stack",
        "tcp",
        "--port",
        "7801",
        "--set",
        "STATIC.initial_hosts=a[1],b[2]",
        "--journal",
        "j",
        "--control",
        "[::1]:9000",
        "--seed",
        "9",
    )
    first = shell("node", *flags, "--print-config")
    file = shell.write(first.out, "again.yaml")
    second = shell("node", "--config", file, "--print-config", "--json")
    assert second.code == Exit.HOLDS
    assert second.json["settings"] == yaml.safe_load(first.out)
    assert second.json["origins"]["seed"] == f"file {file}"


def test_json_has_the_same_values(shell: Shell) -> None:
    said = shell("node", "--print-config", "--json")
    assert said.json["settings"] == yaml.safe_load(shell("node", "--print-config").out)
    assert said.json["origins"]["protocols.UDP.bind_addr"] == "default"


def test_a_file_named_by_the_environment_is_read(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORMCAST_CONFIG", str(shell.write("name: x9\n", "e.yaml")))
    assert "name: x9" in shell("node", "--print-config").out
    other = shell.write("name: y9\n", "f.yaml")
    assert "name: y9" in shell("node", "--print-config", "--config", other).out


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["--nam", "x"], "unknown flag --nam; did you mean --name?"),
        (["--clutser=x"], "did you mean --cluster?"),
        (["n1"], "n1; it takes only flags"),
        (["--name"], "expected one argument"),
        (["--stack", "upd"], "did you mean udp?"),
        (["--set", "UDP.bind_adr=x"], "did you mean bind_addr?"),
        (["--config", "nowhere.yaml"], "name a file that can be read"),
        (["--run-for", "5"], "write a duration such as 500ms"),
        (["--json"], "--print-config"),
        (["--control", "0.0.0.0:9000"], "it needs a token"),
        (["--control", "example.org:9000"], "is no address"),
        (["--stack", "tcp", "--workload", "nowhere.yaml"], "flag --workload"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(
    shell: Shell, words: list[str], remedy: str
) -> None:
    assert remedy in line_of(shell("node", *words))


def test_a_multicast_needs_a_group_to_send_to(shell: Shell) -> None:
    shell.write("- {do: multicast}\n", "load.yaml")
    words = ("--stack", "unicast-only", "--workload", "load.yaml", "--bind-addr", "127.0.0.1")
    assert "forms no group" in line_of(shell("node", *words))


def test_an_unknown_variable_is_refused(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORMCAST_STCK", "udp")
    assert "did you mean STORMCAST_STACK?" in line_of(shell("node"))


def test_help_names_every_flag_and_no_token(shell: Shell) -> None:
    said = shell("node", "--help")
    assert said.code == Exit.HOLDS
    for flag in [*(option.flag for option in OPTIONS), *SHORTCUTS, "--config", "--set"]:
        assert f" {flag} " in said.out
    assert not re.search(r"--\S*token[ =](?!_)", said.out.replace("--control-token-file", ""))


def test_the_docs_list_every_setting_with_flag_variable_and_default(shell: Shell) -> None:
    text = (DOCS / "node.md").read_text()
    rows = {
        cells[0].strip("` "): [cell.strip().strip("`") for cell in cells[1:4]]
        for line in text.partition("<!-- options -->")[2]
        .partition("<!-- /options -->")[0]
        .splitlines()
        if line.startswith("| `") and (cells := line.strip("|").split("|"))
    }
    shown = json.loads(shell("node", "--print-config", "--json").out)["settings"]
    expected = {}
    for option in OPTIONS:
        default = shown
        for part in option.key.split("."):
            default = default[part]
        expected[option.key] = [option.flag, option.variable, str(default)]
    assert rows == expected
