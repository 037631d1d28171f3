"""A controller that is going to be killed: it makes a network, starts an agent, and does one thing
to the network after the other, renewing in between.

Usage: controller.py FOLDER RUN SEED LEASE bound|free. It prints the pid of its agent as soon as
something acts. An agent that is bound dies with it.
"""

from __future__ import annotations

import random
import sys
import time
from contextlib import suppress
from pathlib import Path

from stormcast.chaos import faults
from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.netns import Network, RunId, agent
from stormcast.chaos.language.network_state import NetworkState

NAMES = ("n0", "n1")
LATE = 0.5
"""How often something is late, too."""


def states(draw: random.Random, network: Network) -> NetworkState:
    """Something by which nothing passes from n0 to n1, and perhaps nothing the other way: it is
    dropped, or waits at the agent for longer than anybody would."""
    there = draw.choice(
        (
            faults.Cut(sources=("n0",), dests=("n1",)),
            faults.Partition(groups=(("n0",), ("n1",))),
            faults.Loss(sources=NAMES, dests=NAMES, rate=1.0),
        )
    )
    more = faults.Loss(sources=NAMES, dests=NAMES, rate=draw.random())
    late = faults.Delay(sources=("n1",), dests=("n0",), delay=60.0)
    acting: dict[str, faults.NetworkFault] = {"f1": there, "f2": more}
    if draw.random() < LATE:
        acting["f3"] = late
    return NetworkState(members=NAMES, places=network.places(), faults=acting, seed=1)


def main(folder: Path, run: str, seed: int, lease: float, bound: str) -> None:
    draw = random.Random(seed)
    parsed = RunId.parse(run)
    assert parsed is not None
    network = Network(parsed, NAMES)
    network.make()
    if bound == "free":
        agent.bound_to_me = tuple
    process = agent.AgentProcess(network.run, network.sites(), folder, lease)
    process.apply(states(draw, network))
    print(process.pid, flush=True)
    while True:
        # A machine that is busy may let a lease lapse; this is not about that.
        for _renewal in range(draw.randint(0, 3)):
            time.sleep(draw.uniform(0, lease / 4))
            with suppress(BackendError):
                process.renew()
        with suppress(BackendError):
            process.apply(states(draw, network))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[5])
