"""Attacks by hand on processes that know nothing of Stormcast, in namespaces of the test's own."""

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
from tests.helpers.leaving_nothing import nothing_is_left

pytestmark = [pytest.mark.root, pytest.mark.slow]
_nothing_is_left = pytest.fixture(scope="module", autouse=True)(nothing_is_left)

PATIENCE = 30.0
ECHO = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.bind(("", 9000))
    print("ready", flush=True)
    while True:
        data, who = s.recvfrom(2000)
        s.sendto(data, who)
"""
ASK = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(float(sys.argv[2]))
heard = 0
for number in range(int(sys.argv[3])):
    began = time.monotonic()
    s.sendto(b"the same bytes each time", (sys.argv[1], 9000))
    try:
        s.recvfrom(2000)
        heard += 1
    except TimeoutError:
        pass
print(heard, time.monotonic() - began)
"""


class Town:
    """Two namespaces, an echo in one of them, and attacks on both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.network = Network(RunId.next(), ("here", "there"))
        self._started: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Town:
        self.network.make()
        self.echo = self._start(self.network.inside("there", (sys.executable, "-c", ECHO)))
        assert self.echo.stdout is not None
        assert self.echo.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_error: object) -> None:
        for process in self._started:
            process.kill()
            process.communicate()
        self.network.remove()

    def word(self, name: str) -> str:
        return f"netns:{self.network.run.namespace(name)}"

    def ask(self, number: int = 1, patience: float = 0.5) -> tuple[int, float]:
        """How many of some questions were answered, and the seconds that the last one took."""
        words = (
            sys.executable,
            "-c",
            ASK,
            self.network.address("there"),
            str(patience),
            f"{number}",
        )
        heard, seconds = self.network.execute("here", words).split()
        return int(heard), float(seconds)

    def attack(self, *words: str) -> subprocess.Popen[str]:
        """An attack that acts by now."""
        process = self._start((sys.executable, "-m", "stormcast", "attack", *words))
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "Ctrl-C" in line, line + process.stderr.read()
        return process

    def tell(self, *words: str) -> str:
        return run_command((sys.executable, "-m", "stormcast", "attack", *words))

    def _start(self, words: tuple[str, ...]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._started.append(process)
        return process

    def heals(self) -> bool:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if self.ask()[0]:
                return True
        return False

    def tables(self) -> str:
        words = ("nft", "list", "tables")
        return "".join(self.network.execute(name, words) for name in self.network.names)


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    with Town(tmp_path) as made:
        yield made


def test_a_partition_lasts_until_ctrl_c_and_is_written_as_a_run(town: Town, tmp_path: Path) -> None:
    attack = town.attack("partition", town.word("here"), "--", town.word("there"), "--out", "kept")
    assert town.ask() == (0, pytest.approx(0.5, abs=5))
    listed = json.loads(town.tell("list", "--json"))
    mine = next(one for one in listed if one["pid"] == attack.pid)
    assert mine["struck"] >= 1
    assert 0 < mine["lease"] <= 3
    attack.send_signal(signal.SIGINT)
    out, _err = attack.communicate(timeout=PATIENCE)
    assert attack.returncode == 0
    assert "it struck" in out
    assert town.ask()[0] == 1
    assert town.tables() == ""
    kept = tmp_path / "kept"
    assert (kept / "report.html").exists()
    assert (kept / "trace" / "rig.trace").exists()
    told = json.loads((kept / "verdict.json").read_text())
    assert (told["verdict"], told["faults"]["f1"] >= 1) == ("unknown", True)


def test_an_attack_that_is_killed_heals(town: Town) -> None:
    attack = town.attack("cut", f"{town.word('here')}→{town.word('there')}")
    assert town.ask()[0] == 0
    attack.kill()
    attack.wait()
    assert town.heals()
    until = time.monotonic() + PATIENCE
    while town.tables() and time.monotonic() < until:
        time.sleep(0.1)
    assert town.tables() == "", "its agent has cleared everything"
    assert attack.pid not in [one["pid"] for one in json.loads(town.tell("list", "--json"))]


def test_equal_datagrams_meet_fates_of_their_own(town: Town) -> None:
    """The dice of Stormcast's own frames would lose all of these, or none."""
    attack = town.attack(
        "loss", town.word("here"), "--", town.word("there"), "--rate", "30%", "--for", "60s"
    )
    heard, _seconds = town.ask(30, 0.1)
    assert 3 <= heard <= 29
    assert "ended" in town.tell("heal", _id_of(town, attack.pid))
    out, _err = attack.communicate(timeout=PATIENCE)
    assert out.startswith("ended early: loss")


def test_a_delay_has_its_time_and_ends(town: Town) -> None:
    attack = town.attack(
        "delay", town.word("here"), "--", town.word("there"), "--by", "300ms", "--for", "5s"
    )
    heard, seconds = town.ask(1, 5.0)
    assert (heard, seconds >= 0.6) == (1, True), "there and back"
    attack.communicate(timeout=PATIENCE)
    assert attack.returncode == 0
    assert town.heals()


def test_a_pause_and_a_kill_strike_the_processes(town: Town) -> None:
    attack = town.attack("pause", town.word("there"), "--for", "60s")
    assert town.ask()[0] == 0
    town.tell("heal", _id_of(town, attack.pid))
    assert town.heals()
    out = str(town.folder / "killed")
    assert "it struck 1 processes" in town.tell("kill", f"pid:{town.echo.pid}", "--out", out)
    assert town.echo.wait(PATIENCE) == -signal.SIGKILL


def test_what_strikes_nothing_says_so(town: Town) -> None:
    attack = town.attack(
        "delay", town.word("here"), town.word("there"), "--by", "1s", "--for", "1s"
    )
    out, _err = attack.communicate(timeout=PATIENCE)
    assert attack.returncode == 3
    assert "it struck nothing" in out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("delay", "no-such-thing", "--by", "1s"), 2, "nothing here has this name"),
        (("delay", "pid:1", "--by", "1s"), 2, "aim at another one"),
        (("loss", "a", "--rate", "2"), 2, "it has no unit"),
        (("heal", "x9"), 2, "no attack x9 acts here"),
        (("cut", "a", "b"), 2, "it has a direction"),
    ],
)
def test_bad_words_are_one_line_with_the_remedy(
    words: tuple[str, ...], code: int, said: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        (sys.executable, "-m", "stormcast", "attack", *words),
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == code
    assert said in done.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def _id_of(town: Town, pid: int) -> str:
    found: str = next(
        one["id"] for one in json.loads(town.tell("list", "--json")) if one["pid"] == pid
    )
    return found


def test_a_second_attack_on_a_network_is_refused_and_the_first_goes_on(
    town: Town, tmp_path: Path
) -> None:
    attack = town.attack("partition", town.word("here"), "--", town.word("there"))
    words = ("delay", town.word("there"), town.word("here"), "--by", "1s", "--out", "second")
    second = subprocess.run(
        (sys.executable, "-m", "stormcast", "attack", *words),
        capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert second.returncode == 3
    there = town.network.run.namespace("there")
    assert f"another agent acts on the network of {there}" in second.stderr
    assert "Traceback" not in second.stderr
    assert town.ask()[0] == 0, "the first one acts"
    attack.send_signal(signal.SIGINT)
    attack.communicate(timeout=PATIENCE)
    assert attack.returncode == 0
    assert town.heals()
