"""An agent that is asked in lines, in the network of one member, as in the pod of an attack."""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stormcast.chaos import faults
from stormcast.chaos.agent.client import AgentClient, AgentError
from stormcast.chaos.agent.lines import LineClient
from stormcast.chaos.backends.netns.process import environment
from stormcast.chaos.language.network_state import NetworkState
from stormcast.node.core.errors import NodeError
from tests.integration.wire_pair import Pair

pytestmark = [pytest.mark.root, pytest.mark.slow]

CUT = faults.Cut(sources=("n0",), dests=("n1",))
PATIENCE = 20.0


class Pipes:
    """A wire to a process of this machine."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def receive(self, seconds: float) -> bytes:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            if not ready.select(seconds):
                raise NodeError(f"no answer within {seconds:g} s")
        return self._process.stdout.readline()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Pair() as pair:
        yield pair


@contextmanager
def attached(
    pair: Pair, folder: Path, table: str = "sc_lines"
) -> Iterator[tuple[AgentClient, Pipes, subprocess.Popen[bytes]]]:
    words = (sys.executable, "-m", "stormcast", "agent", "--lines", table, "--name", "n1")
    with subprocess.Popen(
        pair.network.inside("n1", words),
        cwd=folder,
        env=environment({}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        wire = Pipes(process)
        try:
            yield AgentClient(LineClient("the agent", wire).ask), wire, process
        finally:
            process.kill()


def cut(pair: Pair) -> NetworkState:
    return NetworkState(members=("n0", "n1"), places=pair.network.places(), faults={"f1": CUT})


def tables(pair: Pair) -> str:
    return pair.network.execute("n1", ("nft", "list", "tables"))


def test_it_acts_until_its_input_ends_and_leaves_nothing(pair: Pair, tmp_path: Path) -> None:
    with attached(pair, tmp_path) as (client, wire, process):
        client.apply(cut(pair), 60.0)
        assert not pair.arrives("n0", patience=0.2)
        assert client.bites()["f1"]["n0", "n1"] >= 1
        wire.close()
        assert process.wait(PATIENCE) == 0
        assert pair.arrives("n0")
        assert tables(pair) == ""


def test_it_heals_when_nobody_renews(pair: Pair, tmp_path: Path) -> None:
    with attached(pair, tmp_path) as (client, _wire, _process):
        client.apply(cut(pair), 1.0)
        assert not pair.arrives("n0", patience=0.2)
        time.sleep(1.5)
        assert pair.arrives("n0")
        with pytest.raises(AgentError, match="the lease has lapsed"):
            client.renew(1.0)


def test_two_do_not_act_on_one_network(pair: Pair, tmp_path: Path) -> None:
    """The queue and the qdisc of a network are one for all: the second would take them away."""
    slow = faults.Bandwidth(sources=("n1",), dests=("n0",), rate=1000.0)
    narrow = NetworkState(members=("n0", "n1"), places=pair.network.places(), faults={"f1": slow})
    with (
        attached(pair, tmp_path, "sc_first") as (first, wire, process),
        attached(pair, tmp_path, "sc_second") as (second, _wire, _process),
    ):
        first.apply(narrow, 60.0)
        before = qdiscs(pair)
        assert "htb" in before
        with pytest.raises(AgentError, match="another agent acts on the network of n1"):
            second.apply(cut(pair), 60.0)
        assert second.bites() == {}
        assert qdiscs(pair) == before
        wire.close()
        assert process.wait(PATIENCE) == 0
        second.apply(cut(pair), 60.0)
        assert not pair.arrives("n0", patience=0.2)


def qdiscs(pair: Pair) -> list[str]:
    said = pair.network.execute("n1", ("tc", "-j", "qdisc", "show", "dev", "eth0"))
    return [str(one["kind"]) for one in json.loads(said)]
