"""`stormcast bench sim`, the group's part: whole scenarios, as `stormcast run` runs them.

Five members form a group by themselves and multicast over a network that loses 1 %; the trace is on
and every application checks every payload. The time to judge the traces is not part of the figure.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Final, NamedTuple

from bench.rounds import Rounds
from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.session.simulation import simulate

SCENARIO: Final = """
name: bench
guarantees: [G1]
cluster: {{members: 5, stack: udp, timing: fast}}
network: {{loss: 1%}}
workload:
  - {{do: multicast, from: all, count: {count}, rate: {rate}/s, burst: {burst}, size: 100B}}
limits: {{run: {run}s, settle: 1s, trace: 2000MiB}}
"""


class GroupLoad(NamedTuple):
    """The load of each member."""

    name: str
    seconds: int
    burst: int
    every: float
    """Virtual seconds between two bursts."""

    def scenario(self) -> str:
        rate = round(self.burst / self.every)
        return SCENARIO.format(
            count=rate * self.seconds, rate=rate, burst=self.burst, run=self.seconds + 10
        )


LOADS: Final = (
    GroupLoad("bursts of 1 each 2 ms", 10, 1, 0.002),
    GroupLoad("bursts of 20 each 20 ms", 60, 20, 0.02),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSimFigure(Rounds):
    """Several rounds of one load; a round is events per second."""

    name: str
    events: int
    virtual: float
    seconds: float
    """Seconds of the median round."""
    delivered: int


def measure(load: GroupLoad, *, rounds: int = 3) -> GroupSimFigure:
    """Run the same scenario several times, after one round to warm up."""
    scenario = parse_scenario(load.scenario())
    rates = []
    for _ in range(rounds + 1):
        gc.collect()
        began = perf_counter()
        run = simulate(scenario, 1)
        rates.append(run.events / (perf_counter() - began))
        assert run.complete, "the load did not end: raise limits.run"
    return GroupSimFigure(
        name=load.name,
        rounds=tuple(rates[1:]),
        events=run.events,
        virtual=run.seconds,
        seconds=run.events / median(rates[1:]),
        delivered=run.delivered,
    )
