"""A stranger on the network sends what nobody should, to members that are at work.

`STORMCAST_FUZZ=1000000` sends a million datagrams in place of a hundred thousand.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stormcast.chaos.backends.netns.names import BRIDGE
from stormcast.chaos.backends.netns.network import Network
from stormcast.chaos.backends.netns.process import environment
from stormcast.chaos.plugin.live_cluster import Clusters, LiveCluster
from stormcast.node.bound import bound_to_me
from tests.helpers.live import (
    AS_SHIPPED,
    ENDLESS,
    label,
    netns,
    process,
    short_of,
    stats,
    suspicions,
)

pytestmark = [pytest.mark.root, pytest.mark.slow]

FUZZ = int(os.environ.get("STORMCAST_FUZZ", "100000"))
STREAMS = min(FUZZ // 20, 10_000)
"""Not more: each takes a port of the stranger's for a minute, and soon he would look for one."""
NAMES = ("n0", "n1", "n2")
STRANGER = "stranger"
PROGRAM = Path(__file__).parent / "hostile.py"
MIB = 1 << 20
RATE = 12_000
"""Datagrams a second: what the members take besides their work, so that none is lost uncounted."""
IN_HEADS = ("short", "magic", "version", "cluster", "head-check", "size", "truncated", "digest")


def talking(cluster: Clusters, stack: str) -> tuple[LiveCluster, Stranger]:
    """Three members at work, and somebody in a namespace of his own on their bridge."""
    backend = netns()
    group = cluster(
        (*NAMES, STRANGER),
        stack=stack,
        late=[STRANGER],
        backend=backend,
        protocols=AS_SHIPPED.get(stack, {}),
    )
    group.multicast(ENDLESS, NAMES, rate="100/s", size="16B..2KiB")
    group.unicast(ENDLESS, NAMES, rate="50/s", size="16B..500B")
    group.wait_for_traffic(*NAMES)
    return group, Stranger(group, backend.opened.network)


class Stranger:
    """Says what nobody should."""

    def __init__(self, group: LiveCluster, network: Network) -> None:
        self.group = group
        self.network = network
        self.corpus = group.session.plan.folder / "corpus"

    def listen(self, seconds: float = 2.0) -> dict[str, int]:
        """Hear what members say."""
        heard: dict[str, int] = self._run(
            BRIDGE, "listen", corpus=str(self.corpus), seconds=seconds, most=3000
        )
        return heard

    def say(self, verb: str, **order: object) -> dict[str, Any]:
        """Say what nobody should."""
        words: dict[str, Any] = self._run(
            STRANGER,
            verb,
            corpus=str(self.corpus),
            cluster=self.group.session.plan.run,
            dest=short_of(self.group, "n0"),
            **order,
        )
        return words

    def _run(self, within: str, verb: str, **order: object) -> Any:
        path = self.corpus.with_name(f"{verb}.json")
        path.write_text(json.dumps(order))
        words = (sys.executable, str(PROGRAM), verb, str(path))
        argv = bound_to_me(self.network.inside(within, words))
        done = subprocess.run(
            argv,
            env=environment({}),
            capture_output=True,
            text=True,
            check=False,
            timeout=60 + FUZZ / 5000,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def place(self, name: str) -> tuple[str, int]:
        """Where a member is reached."""
        host, port = self.group.state(name)["where"].removesuffix("]").split("[")
        return host, int(port)


def refusals(group: LiveCluster, name: str) -> dict[str, int]:
    """What a member refused so far, by reason."""
    front = "stack.refused."
    found = stats(group, name)
    return {key.removeprefix(front): found[key] for key in found if key.startswith(front)}


def assert_unmoved(group: LiveCluster, view: object) -> None:
    """They hold the view that they held, know nobody else, and nobody was suspected."""
    group.wait_for_view(*NAMES)
    assert group.state("n0")["view"]["id"] == view
    known = {label(group, name) for name in NAMES}
    assert set(group.state("n0")["workload"]["received_from"]) == known
    group.stop()
    evidence = group.finish().run.evidence
    for short in evidence.members:
        assert suspicions(evidence, short) == []


def test_a_member_survives_hostile_datagrams(cluster: Clusters) -> None:
    """Noise, harmed frames, forged frames, and old ones again, while everyone talks: nobody is
    suspected, nothing wrong is delivered, memory stays, and counters explain each datagram."""
    group, stranger = talking(cluster, "udp")
    view = group.state("n0")["view"]["id"]
    assert stranger.listen()["protocol 17"] > 100
    target = stranger.place("n0")

    # A round before memory is measured: pools and tables take what they need.
    stranger.say(
        "datagrams",
        kinds=["garbage", "mutated", "forged"],
        count=5000,
        seed=0,
        rate=RATE,
        places=[target],
    )
    group.wait_for_traffic(*NAMES)
    rss = process(group, "n0").rss()

    # What is no frame at all: each is refused for its head, and counted once.
    before, drops = refusals(group, "n0"), stats(group, "n0")["transport.kernel_drops"]
    said = stranger.say(
        "datagrams",
        kinds=["garbage", "mutated"],
        count=FUZZ // 2,
        seed=1,
        rate=RATE,
        places=[target],
    )
    group.state("n0")
    after = refusals(group, "n0")
    dropped = stats(group, "n0")["transport.kernel_drops"] - drops
    refused = sum(after.get(why, 0) - before.get(why, 0) for why in IN_HEADS)
    assert said["sent"].keys() == {"garbage", "mutated"}
    assert refused == sum(said["sent"].values()) - dropped
    print(f"no frames: {said}, refused {refused}, dropped by the kernel {dropped}")

    # Frames that are well made, from nobody; and those of members, again.
    said = stranger.say(
        "datagrams",
        kinds=["forged", "replayed", "mutated"],
        count=FUZZ - FUZZ // 2,
        seed=2,
        rate=RATE,
        places=[target],
    )
    print(f"frames: {said}, refused {delta(after, refusals(group, 'n0'))}")
    group.wait_for_traffic(*NAMES)

    grown = process(group, "n0").rss() - rss
    print(f"memory: {rss / MIB:.1f} MiB, grown by {grown / MIB:.1f} MiB")
    assert grown < 8 * MIB
    assert_unmoved(group, view)


@pytest.mark.parametrize("stack", [pytest.param("tcp", marks=pytest.mark.long), "tcp-nio2"])
def test_a_member_survives_hostile_streams(stack: str, cluster: Clusters) -> None:
    """Connections that say what no member would, or nothing, or half of it."""
    group, stranger = talking(cluster, stack)
    view = group.state("n0")["view"]["id"]
    assert stranger.listen()["protocol 6"] > 100
    target = stranger.place("n0")

    stranger.say("streams", count=200, seed=0, place=target)
    group.wait_for_traffic(*NAMES)
    rss, before = process(group, "n0").rss(), stats(group, "n0")
    said = stranger.say("streams", count=STREAMS, seed=1, place=target)
    group.wait_for_traffic(*NAMES)
    changed = delta(before, stats(group, "n0"))
    print(f"streams: {said}, {changed}")

    sent = said["streams"]["streams"]
    assert sent > 0.99 * STREAMS
    # Those that it dialled itself, because a greeting said where somebody is, do not count.
    ended = sum(
        number
        for why, number in changed.items()
        if ".closed_" in why and not why.endswith(("_refused", "_connect-timeout"))
    )
    assert sent <= ended <= STREAMS
    assert process(group, "n0").rss() - rss < 8 * MIB
    assert_unmoved(group, view)


@pytest.mark.parametrize("stack", ["tcp", "tcp-nio2"])
def test_strangers_cannot_have_a_member_dial_the_world(stack: str, cluster: Clusters) -> None:
    """A thousand greetings, each of which names another address, and then nothing more of them."""
    group, stranger = talking(cluster, stack)
    most = 0
    stranger.say("greetings", count=1000, seed=0, place=stranger.place("n0"))
    for _look in range(15):
        group.wait(0.2)
        most = max(most, stats(group, "n0")["transport.connections_dialled"])
    group.wait_for_traffic(*NAMES)
    assert most < 100
    group.stop()


def delta(before: dict[str, Any], after: dict[str, Any]) -> dict[str, float]:
    """What has grown."""
    return {
        key: after[key] - before.get(key, 0)
        for key in after
        if isinstance(after[key], int | float) and after[key] != before.get(key, 0)
    }
