"""Whether a run says that nobody verifies whom it asks, and how it is told whom to believe."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.certificates import Issuer
from tests.helpers.shell import Shell

SCENARIO = """\
name: healthy
guarantees: [G1]
cluster: {members: 2}
workload:
  - {do: unicast, from: n0, to: n1, count: 4}
"""
WARNING = (
    "stormcast run: keepers and agents are asked through the API server, which does not verify "
    "their certificate; from within the cluster --ca-file does (docs/security.md)\n"
)


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    monkeypatch.delenv("STORMCAST_CA_FILE", raising=False)


@pytest.fixture
def file(shell: Shell) -> str:
    return str(shell.write(SCENARIO, "healthy.yaml"))


def test_a_run_through_the_api_server_says_what_that_leaves_open(shell: Shell, file: str) -> None:
    said = shell("run", file, "--backend", "kubernetes")
    assert said.err.count(WARNING) == 1
    assert "no cluster is configured" in said.err
    assert WARNING not in shell("run", file).err, "the simulator asks nobody"


@pytest.mark.parametrize("by", ["flag", "variable"])
def test_a_run_that_verifies_whom_it_asks_says_nothing(
    by: str, shell: Shell, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca_file = str(Issuer().write(tmp_path).ca)
    flags = ("--ca-file", ca_file) if by == "flag" else ()
    if by == "variable":
        monkeypatch.setenv("STORMCAST_CA_FILE", ca_file)
    said = shell("run", file, "--backend", "kubernetes", *flags)
    assert "no cluster is configured" in said.err
    assert WARNING not in said.err


def test_a_file_without_certificates_is_one_line(shell: Shell, file: str) -> None:
    said = shell("run", file, "--backend", "kubernetes", "--ca-file", "nowhere.crt")
    (line,) = said.err.splitlines()
    assert "--ca-file nowhere.crt: No such file" in line
    assert "--ca-file is of --backend kubernetes" in shell("run", file, "--ca-file", "x").err
