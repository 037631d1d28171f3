"""Guests that run already: what the test has started without us, in a network of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stormcast.chaos.backends.netns.network import Network
from stormcast.chaos.backends.netns.running import run_command
from stormcast.chaos.backends.run_id import RunId
from stormcast.chaos.plugin.guests import GuestMaker
from stormcast.chaos.plugin.live_cluster import Chaos
from stormcast.node.core.errors import ConfigError, NodeError
from tests.helpers.leaving_nothing import nothing_is_left

pytestmark = [pytest.mark.root, pytest.mark.slow]
_nothing_is_left = pytest.fixture(scope="module", autouse=True)(nothing_is_left)

READS = (
    "import time, sys, urllib.request as u\nwhile True:\n try: u.urlopen('http://'+sys.argv[1]+"
    "':8000/', timeout=1).read()\n except OSError: pass\n time.sleep(0.05)"
)


class Lab:
    """A web server and its reader, each in a namespace. No run of ours knows them."""

    def __init__(self) -> None:
        self.network = Network(RunId.next(), ("web", "reader"))
        self.network.make()
        self.address = self.network.address("web")
        server = ("-m", "http.server", "8000", "--bind", self.address)
        self.web = self._start("web", *server)
        self.reader = self._start("reader", "-c", READS, self.address)

    def _start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.network.inside(name, (sys.executable, *words)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def space(self, name: str) -> str:
        return self.network.run.namespace(name)

    def close(self) -> None:
        for process in (self.web, self.reader):
            process.kill()
            process.wait()
        self.network.remove()


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    try:
        yield made
    finally:
        made.close()


def written(folder: Path, lab: Lab, timeline: str, web: str = "") -> Path:
    file = folder / "scenario.yaml"
    web = web or f"netns:{lab.space('web')}"
    file.write_text(
        f"name: found\nguests:\n  web: {{target: '{web}', ready: {{tcp: 8000, within: 60s}}}}\n"
        f"  reader: {{target: 'pid:{lab.reader.pid}'}}\ntimeline:\n{timeline}"
        "expect: {ready_within: 60s}\nlimits: {run: 100s}\n"
    )
    return file


def run(file: Path, out: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, "-m", "stormcast", "run", str(file), "--out", str(out)),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


STEPS = """\
  - {at: 500ms, do: partition, groups: [[web], [reader]], for: 2s, name: parted}
  - {at: 3s, do: pause, member: web, for: 1s, name: paused}
  - {at: 5s, do: drop, from: reader, to: web, match: {to_port: 8000}, for: 1s, name: lost}
"""


def test_what_runs_already_is_struck_and_left_running(tmp_path: Path, lab: Lab) -> None:
    said = run(written(tmp_path, lab, STEPS), tmp_path / "run")
    assert said.returncode == 0, said.stdout + said.stderr
    faults = json.loads((tmp_path / "run/verdict.json").read_text())["faults"]
    assert faults.pop("paused") > 0
    assert min(faults.values()) > 0
    assert lab.web.poll() is None
    assert lab.reader.poll() is None
    assert "nft" not in run_command(
        ("ip", "netns", "exec", lab.space("web"), "nft", "list", "ruleset")
    )


def test_one_that_ends_meanwhile_is_a_doubt(tmp_path: Path, lab: Lab) -> None:
    steps = "  - {at: 1s, do: loss, rate: 50%, for: 5s}\n"
    file = written(tmp_path, lab, steps, web=f"pid:{lab.web.pid}")
    rig = subprocess.Popen(
        (sys.executable, "-m", "stormcast", "run", str(file), "--out", str(tmp_path / "run")),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until = time.monotonic() + 60
    while "drop" not in run_command(lab.network.inside("web", ("nft", "list", "ruleset"))):
        assert time.monotonic() < until
        time.sleep(0.1)
    lab.web.kill()
    said, _wrong = rig.communicate(timeout=120)
    assert rig.returncode == 3, said
    assert "web ended by itself" in said


@pytest.mark.parametrize(
    ("web", "why"),
    [
        ("netns:nobody", "there is no such network namespace"),
        ("pid:1", "runs this command, or the machine"),
        ("pid:HERE", "runs this command, or the machine"),
    ],
)
def test_what_is_not_there_or_must_not_be_struck_is_refused(
    tmp_path: Path, lab: Lab, web: str, why: str
) -> None:
    web = web.replace("HERE", str(os.getpid()))
    said = run(written(tmp_path, lab, STEPS, web=web), tmp_path / "run")
    assert said.returncode == 3
    assert why in said.stderr.splitlines()[-1]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_it_goes_on_however_the_rig_ends(tmp_path: Path, lab: Lab, how: signal.Signals) -> None:
    file = written(tmp_path, lab, "  - {at: 500ms, do: pause, member: web, for: 90s}\n")
    rig = subprocess.Popen(
        (sys.executable, "-m", "stormcast", "run", str(file), "--out", str(tmp_path / "run")),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def state() -> str:
        return Path(f"/proc/{lab.web.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def wait_for(states: str) -> None:
        until = time.monotonic() + 60
        while state() not in states:
            assert time.monotonic() < until
            time.sleep(0.05)

    try:
        wait_for("T")
    finally:
        rig.send_signal(how)
        rig.wait()
    wait_for("SR")


def test_in_pytest_they_are_struck_and_left_running(
    lab: Lab, guest: GuestMaker, chaos: Chaos
) -> None:
    web = guest(target=f"netns:{lab.space('web')}", ready={"tcp": 8000, "within": "60s"})
    reader = guest(target=f"pid:{lab.reader.pid}")
    assert web.address == lab.address
    asks = "import socket, sys; socket.create_connection((sys.argv[1], 8000), 2)"
    reader.run(sys.executable, "-c", asks, web.address)
    with pytest.raises(ConfigError, match="none does: their networks are apart"):
        guest("sleep 9")
    with pytest.raises(ConfigError, match="all pods, or none is"):
        guest(target="pod:web-0")
    with chaos.partition([web], [reader]) as parted:
        with pytest.raises(AssertionError):
            reader.run(sys.executable, "-c", asks, web.address)
        assert parted.bites > 0
    with chaos.pause(web) as paused:
        pass
    assert paused.bites == 1
    reader.run(sys.executable, "-c", asks, web.address)
    with pytest.raises(ConfigError, match="crash: what runs already is not started again"):
        chaos.kill(web)
    with pytest.raises(ConfigError, match="before the first fault"):
        guest(target=f"netns:{lab.space('reader')}")
    assert (web.is_alive, reader.is_alive) == (True, True)


def test_in_pytest_one_that_is_not_there_is_said(guest: GuestMaker) -> None:
    with pytest.raises(NodeError, match="there is no such network namespace"):
        guest(target="netns:no-such-namespace")
