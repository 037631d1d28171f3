"""Whoever is killed, and whenever: what acted on the network ends with its lease."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from stormcast.chaos.backends.netns import Network, RunId, clean, run_command
from stormcast.chaos.backends.netns.leftovers import leftovers
from stormcast.chaos.backends.netns.process import environment, until
from stormcast.chaos.backends.run_id import start_of
from stormcast.chaos.drivers.queue_rule import CHAIN_LENGTH
from tests.integration.wire_pair import Pair

pytestmark = [pytest.mark.root, pytest.mark.slow]

LEASE = 1.0
GRACE = 1.0
"""Seconds after a lease by which the network is to be healed."""
POINTS = range(20)
MORE_POINTS = range(20, 50)
AT_ONCE = 5
PROGRAM = Path(__file__).parent / "controller.py"


@dataclass(slots=True)
class Victim:
    """A controller, its agent, and the two ends of the network that they have in their hands."""

    controller: subprocess.Popen[str]
    seed: int
    run: RunId
    agent: int
    pair: Pair
    killed: float = 0.0

    def is_cut(self) -> bool:
        return not self.pair.arrives("n0", tries=3, patience=0.05)

    def kill(self, whom: str) -> None:
        if whom in ("agent", "both"):
            os.kill(self.agent, signal.SIGKILL)
        if whom in ("controller", "both"):
            self.controller.kill()
        self.killed = time.monotonic()

    def is_clean(self, name: str) -> bool:
        """Whether no table, chain or rule of its is left at one end. (An empty table of iptables'
        own may be: that program leaves it wherever it was asked anything.)"""
        words = self.pair.network.inside(name, ("nft", "list", "ruleset"))
        # The name of a chain has room for the end of that of a table.
        return self.run.table[-CHAIN_LENGTH:] not in run_command(words)

    def close(self) -> None:
        """End what still lives of the two."""
        self.controller.kill()
        self.controller.wait()
        assert self.controller.stdout is not None
        self.controller.stdout.close()
        with suppress(ProcessLookupError):
            os.kill(self.agent, signal.SIGKILL)


@dataclass(slots=True)
class Begun:
    """A controller that has not spoken yet."""

    controller: subprocess.Popen[str]
    seed: int
    run: RunId


def begin(stack: ExitStack, folder: Path, seed: int, bound: str) -> Begun:
    folder.mkdir()
    # Of this process, so that nobody takes the network for a leftover before it was looked at.
    run = RunId.next()
    stack.callback(lambda: clean(is_left=lambda other: other == run))
    words = (sys.executable, str(PROGRAM), str(folder), str(run), str(seed), str(LEASE), bound)
    # One that loses its agent has something to say, which nobody wants to know.
    with (folder / "controller.log").open("w") as log:
        controller = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=log, text=True, env=environment({})
        )
    stack.callback(controller.kill)
    return Begun(controller, seed, run)


def meet(stack: ExitStack, begun: Begun) -> Victim:
    """Wait until something acts."""
    assert begun.controller.stdout is not None
    agent = int(begun.controller.stdout.readline())
    pair = stack.enter_context(Pair(network=Network(begun.run, ("n0", "n1"))))
    victim = Victim(begun.controller, begun.seed, begun.run, agent, pair)
    stack.callback(victim.close)
    return victim


@pytest.mark.parametrize("points", [POINTS, pytest.param(MORE_POINTS, marks=pytest.mark.long)])
def test_the_network_heals_within_its_lease_whoever_is_killed_at_whatever_moment(
    points: range, tmp_path: Path
) -> None:
    """Moments drawn from seeds, in the middle of states that are applied and renewed. The agent may
    be one that dies with the controller, or one that lives on."""
    for first in points[::AT_ONCE]:
        with ExitStack() as stack:
            begun = [
                begin(stack, tmp_path / str(seed), seed, ("bound", "free")[seed % 2])
                for seed in range(first, first + AT_ONCE)
            ]
            victims = [meet(stack, each) for each in begun]
            kill_all(victims)
            for victim in victims:
                check_healed(victim)
                victim.close()
                check_cleaned(victim)


def kill_all(victims: list[Victim]) -> None:
    """Each at a moment of its own; until then nothing passes."""
    due = {victim.seed: random.Random(victim.seed) for victim in victims}
    begun = time.monotonic()
    moments = sorted((draw.uniform(0.0, 2 * LEASE), seed) for seed, draw in due.items())
    by_seed = {victim.seed: victim for victim in victims}
    for moment, seed in moments:
        time.sleep(max(0.0, begun + moment - time.monotonic()))
        assert by_seed[seed].controller.poll() is None, f"seed {seed}: the controller runs"
        until(by_seed[seed].is_cut, 10.0, lambda: f"seed {seed}: nothing is cut")  # noqa: B023 called at once
        by_seed[seed].kill(due[seed].choice(("agent", "controller", "both")))


def check_healed(victim: Victim) -> None:
    time.sleep(max(0.0, victim.killed + LEASE + GRACE - time.monotonic()))
    for source in ("n0", "n1"):
        assert victim.pair.arrives(source), f"seed {victim.seed}: {source} is not heard"
    if start_of(victim.agent) is not None:
        # It lives, so it takes away what is of no use any more.
        for name in ("n0", "n1"):
            until(
                lambda name=name: victim.is_clean(name),
                5.0,  # type: ignore[misc]
                lambda: f"seed {victim.seed}: something is left",
            )


def check_cleaned(victim: Victim) -> None:
    """What only a name shows to be ours is found by it, and removed."""

    def is_its(run: RunId) -> bool:
        return run == victim.run

    assert len(leftovers(is_left=is_its).spaces) == 3
    clean(is_left=is_its)
    assert not leftovers(is_left=is_its).names()


def test_an_agent_that_is_told_to_end_leaves_nothing_at_once(tmp_path: Path) -> None:
    """Long before the lease would end."""
    with ExitStack() as stack:
        victim = meet(stack, begin(stack, tmp_path / "told", 1, "free"))
        os.kill(victim.controller.pid, signal.SIGSTOP)
        os.kill(victim.agent, signal.SIGTERM)
        until(lambda: start_of(victim.agent) is None, 5.0, lambda: "the agent ends")
        assert victim.is_clean("n0")
        assert victim.is_clean("n1")
        assert victim.pair.arrives("n0")
        victim.close()
        check_cleaned(victim)
