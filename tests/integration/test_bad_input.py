"""What cannot work is refused at the start: one line that says what to do, and exit code 2."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from stormcast.chaos.backends.netns.commands import CONFIG
from stormcast.chaos.backends.netns.names import address4
from stormcast.chaos.backends.netns.process import environment
from tests.conformance.lab import KINDS, Lab

TIMEOUT = 20.0


def refused(folder: Path, *flags: str, within: Sequence[str] = ()) -> str:
    """Start a member that cannot start; returns the one line that it says."""
    argv = [*within, sys.executable, "-m", "stormcast", "node", *flags]
    done = subprocess.run(
        argv,
        cwd=folder,
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 2, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("stormcast node: ")
    assert "Traceback" not in line
    return line.removeprefix("stormcast node: ")


@pytest.mark.parametrize(
    ("stack", "kind", "key"),
    [("udp", socket.SOCK_DGRAM, "UDP"), ("tcp", socket.SOCK_STREAM, "TCP")],
)
def test_a_port_in_use(stack: str, kind: socket.SocketKind, key: str, tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, kind) as taken:
        taken.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            taken.listen()
        port = str(taken.getsockname()[1])
        line = refused(
            tmp_path,
            "--stack",
            stack,
            "--bind-addr",
            "127.0.0.1",
            "--port",
            port,
            "--set",
            f"{key}.port_range=0",
        )
    assert port in line
    assert "in use" in line
    assert "choose another" in line


def test_an_unknown_interface(tmp_path: Path) -> None:
    line = refused(tmp_path, "--bind-addr", "nosuch0")
    assert "nosuch0" in line
    assert "lo" in line.replace(",", " ").split(), "those that there are are named"


def test_an_address_that_no_interface_has(tmp_path: Path) -> None:
    assert "198.18.99.99" in refused(tmp_path, "--bind-addr", "198.18.99.99")


@pytest.mark.parametrize("seed", ["nosuch.invalid[7800]", "198.18.99.99", "127.0.0.1[0]"])
def test_a_seed_that_cannot_be_one(seed: str, tmp_path: Path) -> None:
    line = refused(
        tmp_path,
        "--stack",
        "tcp",
        "--bind-addr",
        "127.0.0.1",
        "--port",
        "0",
        "--initial-hosts",
        seed,
    )
    assert seed.split("[", maxsplit=1)[0] in line


def test_a_journal_in_the_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    line = refused(
        tmp_path, "--bind-addr", "127.0.0.1", "--journal", str(tmp_path / "taken" / "journal")
    )
    assert str(tmp_path / "taken") in line
    assert "name a directory" in line


@pytest.mark.skipif(os.geteuid() != 0, reason="giving up a right of root's needs root")
def test_a_journal_directory_that_is_not_writable(tmp_path: Path) -> None:
    """Root may write anywhere; so this one is without just that right."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    humble = ("setpriv", "--bounding-set", "-dac_override")
    line = refused(closed, "--bind-addr", "127.0.0.1", "--journal", str(closed), within=humble)
    assert str(closed) in line
    assert "permission denied" in line.lower()
    assert "name a directory" in line


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(KINDS["netns"], tmp_path)
    lab.open("tcp", names=("n0", "n1"))
    yield lab
    lab.backend.close()


@pytest.mark.root
def test_members_of_another_cluster_are_not_heard_and_said_to_be_there(lab: Lab) -> None:
    """A wrong cluster name is no error that a member can know of; but it says whom it hears."""
    settings = lab.folder / "n1" / CONFIG
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "cluster": "another"}))
    for name in ("n0", "n1"):
        lab.backend.start(name)
        lab.wait_for_view(name)
    for name in ("n0", "n1"):
        log = lab.folder / name / f"{name}-1.log"
        lab.wait_until(
            lambda log=log: "members of another cluster" in log.read_text(), "it says so in its log"
        )
    assert lab.view("n0") != lab.view("n1")


@pytest.mark.root
def test_a_seed_that_does_not_answer_is_named_in_the_log(lab: Lab) -> None:
    """It may come later: so the member is a group of its own meanwhile, and says why."""
    lab.backend.start("n0")
    lab.wait_for_view("n0")
    log = lab.folder / "n0" / "n0-1.log"
    lab.wait_until(lambda: address4(1) in log.read_text(), "n1's address is named")
