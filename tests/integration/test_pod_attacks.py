"""`stormcast attack` on pods whose networks are namespaces of the test's own; no cluster."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stormcast.chaos.agent.lines import Wire
from stormcast.chaos.attack.finders import Finder
from stormcast.chaos.attack.on_pods import OnPods, striking_pods
from stormcast.chaos.attack.pods import Pods
from stormcast.chaos.backends.netns.process import environment
from stormcast.chaos.commands import attack
from tests.helpers.attacked_pods import FakePods, pod
from tests.integration.test_agent_lines import PATIENCE, Pipes
from tests.integration.wire_pair import Pair

pytestmark = [pytest.mark.root, pytest.mark.slow]

NAMES = ("n0", "n1")


class RealAgents(FakePods):
    """Whoever attaches to a container gets its program, in the network of the pod."""

    def __init__(self, pair: Pair, folder: Path, undo: ExitStack) -> None:
        places = pair.network.places()
        described = [pod(number, name) for number, name in enumerate(NAMES)]
        for one, name in zip(described, NAMES, strict=True):
            one["status"]["podIPs"] = [{"ip": address} for address in places[name]]
        super().__init__(*described)
        self.processes: list[subprocess.Popen[bytes]] = []
        self._pair = pair
        self._folder = folder
        self._undo = undo

    def attach(self, target: str) -> Wire:
        name = target.split("/pods/")[1].partition("/")[0]
        (container,) = self.pods["shop", name]["spec"]["ephemeralContainers"]
        words = (sys.executable, "-m", "stormcast", *container["args"])
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            self._pair.network.inside(name, words),
            cwd=self._folder, env=environment({}), stdin=pipe, stdout=pipe,
        )  # fmt: skip  # one command
        self._undo.enter_context(process)
        self._undo.callback(process.kill)
        self.processes.append(process)
        return Pipes(process)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Pair() as pair:
        yield pair


@pytest.fixture
def cluster(pair: Pair, tmp_path: Path) -> Iterator[RealAgents]:
    with ExitStack() as undo:
        yield RealAgents(pair, tmp_path, undo)


def begun(cluster: RealAgents, *line: str) -> OnPods:
    words = [attack._SEPARATOR if word == "--" else word for word in line]
    finder = Finder(pods=Pods(cluster.opened))
    plan = attack._plan(attack._parser().parse_args(words), finder)
    work = striking_pods(plan, finder.pods.cluster)
    assert isinstance(work, OnPods)
    work.begin()
    return work


def test_a_partition_is_kept_up_counted_and_healed(pair: Pair, cluster: RealAgents) -> None:
    work = begun(cluster, "partition", "pod:n0", "--", "pod:n1")
    until = time.monotonic() + 4.0
    while time.monotonic() < until:
        # For longer than a lease, as `act` does.
        work.keep()
        assert not pair.arrives("n0", patience=0.1)
    assert not pair.arrives("n1", patience=0.1)
    work.end()
    struck = work.bites()["f1"]
    assert struck["n0", "n1"] >= 10
    assert struck["n1", "n0"] >= 1
    assert pair.arrives("n0")
    assert pair.arrives("n1")
    for process, name in zip(cluster.processes, NAMES, strict=True):
        assert process.wait(PATIENCE) == 0
        assert pair.network.execute(name, ("nft", "list", "tables")) == ""


def test_an_attack_that_is_gone_heals_by_itself(pair: Pair, cluster: RealAgents) -> None:
    """Nobody told the agents: their inputs ended, as the kubelet ends them."""
    begun(cluster, "cut", "pod:n0→pod:n1")
    assert not pair.arrives("n0", patience=0.2)
    for process in cluster.processes:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(PATIENCE) == 0
    assert pair.arrives("n0")
