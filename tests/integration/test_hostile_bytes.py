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

from chaos.backends.netns import Rig
from chaos.backends.netns.commands import bound_to_me
from chaos.backends.netns.names import BRIDGE
from chaos.backends.netns.process import environment
from tests.integration.members import (
    assert_holds,
    finish,
    group,
    load,
    received_from,
    short_of,
    suspicions,
    wait_for_traffic,
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
TALK: dict[str, object] = {"do": "multicast", "rate": "100/s", "size": "16B..2KiB",
                           "duration": "3600s"}  # fmt: skip
WORDS: dict[str, object] = {"do": "unicast", "rate": "50/s", "size": "16B..500B",
                            "duration": "3600s"}  # fmt: skip


class Stranger:
    """Somebody in a namespace of his own, on the members' bridge."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.corpus = rig.folder / "corpus"

    def listen(self, seconds: float = 2.0) -> dict[str, int]:
        """Hear what members say."""
        heard: dict[str, int] = self._run(
            BRIDGE, "listen", corpus=str(self.corpus), seconds=seconds, most=3000
        )
        return heard

    def say(self, verb: str, **order: object) -> dict[str, Any]:
        """Say what nobody should."""
        words: dict[str, Any] = self._run(
            STRANGER, verb, corpus=str(self.corpus), cluster="rig",
            dest=self.rig.shorts["n0"], **order,
        )  # fmt: skip
        return words

    def _run(self, within: str, verb: str, **order: object) -> Any:  # noqa: ANN401 what it printed
        path = self.rig.folder / f"{verb}.json"
        path.write_text(json.dumps(order))
        words = (sys.executable, str(PROGRAM), verb, str(path))
        argv = bound_to_me(self.rig.network.inside(within, words))
        done = subprocess.run(  # noqa: S603 our own words
            argv, env=environment({}), capture_output=True, text=True, check=False,
            timeout=60 + FUZZ / 5000,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def place(self, name: str) -> tuple[str, int]:
        """Where a member is reached."""
        host, port = self.rig.state(name)["where"].removesuffix("]").split("[")
        return host, int(port)


def refusals(rig: Rig, name: str) -> dict[str, int]:
    """What a member refused so far, by reason."""
    front = "stack.refused."
    stats = rig.stats(name)
    return {key.removeprefix(front): stats[key] for key in stats if key.startswith(front)}


def kernel_drops(rig: Rig, name: str) -> int:
    drops: int = rig.stats(name)["transport.kernel_drops"]
    return drops


def test_a_member_survives_hostile_datagrams(tmp_path: Path) -> None:
    """Noise, harmed frames, forged frames, and old ones again, while everyone talks: nobody is
    suspected, nothing wrong is delivered, memory stays, and counters explain each datagram."""
    with group(tmp_path, "udp", (*NAMES, STRANGER)) as rig:
        rig.start_all(NAMES)
        load(rig, NAMES, TALK, WORDS)
        wait_for_traffic(rig, NAMES)
        view = rig.wait_for_view(NAMES)
        stranger = Stranger(rig)
        assert stranger.listen()["protocol 17"] > 100
        target = stranger.place("n0")

        # A round before memory is measured: pools and tables take what they need.
        stranger.say("datagrams", kinds=["garbage", "mutated", "forged"], count=5000, seed=0,
                     rate=RATE, places=[target])  # fmt: skip
        wait_for_traffic(rig, NAMES)
        rss = rig.members["n0"].rss()

        # What is no frame at all: each is refused for its head, and counted once.
        before, drops = refusals(rig, "n0"), kernel_drops(rig, "n0")
        said = stranger.say("datagrams", kinds=["garbage", "mutated"], count=FUZZ // 2, seed=1,
                            rate=RATE, places=[target])  # fmt: skip
        rig.wait_until(lambda: rig.state("n0") is not None, 5.0, "it answers")
        after = refusals(rig, "n0")
        dropped = kernel_drops(rig, "n0") - drops
        refused = sum(after.get(why, 0) - before.get(why, 0) for why in IN_HEADS)
        assert said["sent"].keys() == {"garbage", "mutated"}
        assert refused == sum(said["sent"].values()) - dropped
        print(f"no frames: {said}, refused {refused}, dropped by the kernel {dropped}")

        # Frames that are well made, from nobody; and those of members, again.
        said = stranger.say("datagrams", kinds=["forged", "replayed", "mutated"],
                            count=FUZZ - FUZZ // 2, seed=2, rate=RATE, places=[target])  # fmt: skip
        print(f"frames: {said}, refused {delta(after, refusals(rig, 'n0'))}")
        wait_for_traffic(rig, NAMES)

        grown = rig.members["n0"].rss() - rss
        print(f"memory: {rss / MIB:.1f} MiB, grown by {grown / MIB:.1f} MiB")
        assert grown < 8 * MIB
        assert rig.wait_for_view(NAMES)["id"] == view["id"]
        known = {f"{name}:{short_of(rig, name):x}" for name in NAMES}
        assert set(received_from(rig, "n0")) == known
        evidence = finish(rig)
    for short in evidence.members:
        assert suspicions(evidence, short) == []
    assert_holds(evidence)


@pytest.mark.parametrize("stack", [pytest.param("tcp", marks=pytest.mark.long), "tcp-nio2"])
def test_a_member_survives_hostile_streams(stack: str, tmp_path: Path) -> None:
    """Connections that say what no member would, or nothing, or half of it."""
    with group(tmp_path, stack, (*NAMES, STRANGER)) as rig:
        rig.start_all(NAMES)
        load(rig, NAMES, TALK, WORDS)
        wait_for_traffic(rig, NAMES)
        view = rig.wait_for_view(NAMES)
        stranger = Stranger(rig)
        assert stranger.listen()["protocol 6"] > 100
        target = stranger.place("n0")

        stranger.say("streams", count=200, seed=0, place=target)
        wait_for_traffic(rig, NAMES)
        rss, before = rig.members["n0"].rss(), rig.stats("n0")
        said = stranger.say("streams", count=STREAMS, seed=1, place=target)
        wait_for_traffic(rig, NAMES)
        after = rig.stats("n0")
        changed = delta(before, after)
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
        assert rig.members["n0"].rss() - rss < 8 * MIB
        assert rig.wait_for_view(NAMES)["id"] == view["id"]
        known = {f"{name}:{short_of(rig, name):x}" for name in NAMES}
        assert set(received_from(rig, "n0")) == known
        evidence = finish(rig)
    for short in evidence.members:
        assert suspicions(evidence, short) == []
    assert_holds(evidence)


@pytest.mark.parametrize("stack", ["tcp", "tcp-nio2"])
def test_strangers_cannot_have_a_member_dial_the_world(stack: str, tmp_path: Path) -> None:
    """A thousand greetings, each of which names another address, and then nothing more of them."""
    with group(tmp_path, stack, (*NAMES, STRANGER)) as rig:
        rig.start_all(NAMES)
        load(rig, NAMES, TALK)
        wait_for_traffic(rig, NAMES)
        stranger = Stranger(rig)
        most = 0
        stranger.say("greetings", count=1000, seed=0, place=stranger.place("n0"))
        for _look in range(15):
            rig.sleep(0.2)
            stats = rig.stats("n0")
            most = max(most, stats["transport.connections_dialled"])
        wait_for_traffic(rig, NAMES)
        assert most < 100


def delta(before: dict[str, Any], after: dict[str, Any]) -> dict[str, float]:
    """What has grown."""
    return {
        key: after[key] - before.get(key, 0)
        for key in after
        if isinstance(after[key], int | float) and after[key] != before.get(key, 0)
    }
