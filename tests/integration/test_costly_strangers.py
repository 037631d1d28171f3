"""What a stranger on the network costs a member of a group at work: its memory, and what it sends
to somebody who never asked. The figures are printed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stormcast.chaos.backends.netns.network import Network
from stormcast.chaos.backends.netns.process import environment
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.plugin.live_cluster import Chaos, Clusters, LiveCluster, VerdictError
from stormcast.chaos.session.judging import judge_run
from stormcast.node.bound import bound_to_me
from tests.helpers.live import AS_SHIPPED, ENDLESS, netns, process, short_of

pytestmark = [pytest.mark.root, pytest.mark.slow]
STACKS = [
    "udp",
    *(pytest.param(stack, marks=pytest.mark.long) for stack in ("tcp", "tcp-no-retransmit")),
]

NAMES = ("n0", "n1", "n2")
JOINER = "n3"
STRANGER = "stranger"
PROGRAM = Path(__file__).parent / "costly.py"
MIB = 1 << 20
MOST = 8 * MIB
QUIET_SECONDS = 3.0
"""How long a member is watched before, for what its own work takes."""
SLOW_JOIN = "12s"
"""How long a joiner looks for members that it cannot hear, and has no view."""


@dataclass(frozen=True)
class Figures:
    """What came of an attack."""

    said: dict[str, Any]
    grown: float
    """Bytes by which the member's memory grew at most, less what it grows by itself."""

    def show(self, what: str) -> None:
        print(f"\n{what}: {self.said}, memory grown by {self.grown / MIB:.1f} MiB")


class Attack:
    """A group at work, and somebody in a namespace of his own on its bridge."""

    def __init__(self, cluster: Clusters, stack: str, *late: str, **protocols: Any) -> None:
        backend = netns()
        self.stack = stack
        self.group: LiveCluster = cluster(
            (*NAMES, *late, STRANGER),
            stack=stack,
            late=[*late, STRANGER],
            backend=backend,
            protocols={**AS_SHIPPED.get(stack, {}), **protocols},
        )
        self.group.multicast(ENDLESS, NAMES, rate="50/s", size="16B..2KiB")
        self.group.wait_for_traffic(*NAMES)
        self.network: Network = backend.opened.network

    def say(self, verb: str, target: str, **order: object) -> dict[str, Any]:
        """Have the stranger speak to a member."""
        group = self.group
        host, port = group.state(target)["where"].removesuffix("]").split("[")
        path = group.session.plan.folder / f"{verb}.json"
        order = {
            "cluster": group.session.plan.run,
            "stack": self.stack,
            "dest": short_of(group, target),
            "place": (host, int(port)),
            **order,
        }
        path.write_text(json.dumps(order))
        words = (sys.executable, str(PROGRAM), verb, str(path))
        done = subprocess.run(
            bound_to_me(self.network.inside(STRANGER, words)),
            env=environment({}),
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr
        said: dict[str, Any] = json.loads(done.stdout)
        return said

    def measure(self, target: str, act: Callable[[], dict[str, Any]]) -> Figures:
        """Watch the memory of a member while something is done to it."""
        rss = process(self.group, target).rss
        first, begun = rss(), time.monotonic()
        self.group.wait(QUIET_SECONDS)
        pace = max(0, rss() - first) / (time.monotonic() - begun)
        before, begun = rss(), time.monotonic()
        grown = 0.0
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(act)
            while not done.done():
                self.group.wait(0.05)
                own = pace * (time.monotonic() - begun)
                grown = max(grown, rss() - before - own)
        return Figures(done.result(), grown)

    def goes_on(self, act: Callable[[], Figures]) -> Figures:
        """Do something, while which all members get messages of all others."""
        exchanged = self.group.session.exchanged
        before = exchanged(NAMES)
        figures = act()
        after = exchanged(NAMES)
        assert all(after[pair] > before[pair] for pair in before), (before, after)
        self.group.wait_for_traffic(*NAMES)
        return figures

    def ends_well(self) -> None:
        """What was sent arrives, and the verdict on all of it holds."""
        self.group.stop()
        self.group.finish()

    def ends_well_but_for_strangers(self) -> None:
        """As `ends_well`, but for what the application was given of strangers: nobody who left a
        trace has sent it, so the run is `unknown`, and G4 would not hold."""
        self.group.stop()
        with pytest.raises(VerdictError, match="was heard and left no trace"):
            self.group.finish()
        outcome = self.group.outcome
        assert outcome is not None
        defects = outcome.run.evidence.defects
        assert all(re.fullmatch(r"710000.. was heard and left no trace", one) for one in defects)
        defects.clear()
        judged = judge_run(outcome.scenario, outcome.run)
        doubtful = [one for one in judged.findings if one.verdict is not Verdict.HOLDS]
        assert [one.guarantee for one in doubtful] == ["G4"], doubtful
        assert re.search(r"delivered from 710000..", doubtful[0].witness[0])


@pytest.mark.parametrize("stack", STACKS)
def test_windows_in_sixty_names(stack: str, cluster: Clusters) -> None:
    """A MiB in each name, of which the application is given the first message."""
    attack = Attack(cluster, stack)

    def windows(names: int = 60, first: int = 0) -> dict[str, Any]:
        said = {"names": names, "first": first, "bytes": MIB, "rate": 20 * MIB}
        return attack.say("windows", "n0", **said)

    # A round before memory is measured: pools and buffers take what they need.
    windows(names=4, first=200)
    figures = attack.goes_on(lambda: attack.measure("n0", windows))
    figures.show(f"windows, {stack}")
    assert figures.said["sent"] > 50 * MIB
    assert figures.grown < MOST
    attack.ends_well_but_for_strangers()


def test_multicasts_to_a_joiner_that_has_no_view(cluster: Clusters, chaos: Chaos) -> None:
    """It cannot hear the group yet, only the stranger; when it can, it joins."""
    settings = {"GMS": {"join_timeout": SLOW_JOIN}}
    attack = Attack(cluster, "tcp-no-retransmit", JOINER, **settings)
    group = attack.group
    with chaos.partition(NAMES, [JOINER, STRANGER]):
        chaos.join(JOINER)
        group.wait_until(lambda: JOINER in group.session.roster.states(), "n3 answers")
        assert group.view(JOINER) is None

        def multicasts() -> dict[str, Any]:
            return attack.say("multicasts", JOINER, seconds=2.0)

        figures = attack.goes_on(lambda: attack.measure(JOINER, multicasts))
    figures.show("multicasts before the view, tcp-no-retransmit")
    assert figures.said["sent"] > 10 * MIB
    assert figures.grown < MOST
    group.wait_for_view(*NAMES, JOINER, within=90.0)
    attack.ends_well()


@pytest.mark.parametrize(
    "stack", ["tcp", pytest.param("tcp-no-retransmit", marks=pytest.mark.long)]
)
def test_frames_that_are_begun_on_many_connections(stack: str, cluster: Clusters) -> None:
    attack = Attack(cluster, stack)

    def unfinished() -> dict[str, Any]:
        return attack.say("unfinished", "n0", count=250, bytes=3 * MIB // 4, seconds=8.0)

    figures = attack.goes_on(lambda: attack.measure("n0", unfinished))
    figures.show(f"unfinished frames, {stack}")
    assert figures.said["sent"] > 2 * MIB
    assert figures.grown < MOST
    attack.ends_well()


@pytest.mark.parametrize("stack", STACKS)
def test_joins_in_the_name_of_a_victim(stack: str, cluster: Clusters) -> None:
    """The victim gets no more bytes than were sent in its name."""
    attack = Attack(cluster, stack)
    target = attack.group.coordinator()

    def joins() -> dict[str, Any]:
        return attack.say("joins", target, count=400, seconds=10.0)

    figures = attack.goes_on(lambda: attack.measure(target, joins))
    figures.show(f"joins, {stack}")
    assert figures.said["sent"] > 40_000
    assert figures.said["arrived"] <= figures.said["sent"]
    assert figures.grown < MOST
    attack.ends_well()
