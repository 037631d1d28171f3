"""Which kill is the one of a number: a pure function of the seed and that number."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

RIG: Final = "rig"
AGENT: Final = "agent"
KEEPER: Final = "keeper"
MEMBER: Final = "member"
JUDGE: Final = "judge"
VICTIMS: Final = (RIG, AGENT, KEEPER, MEMBER, JUDGE)

STARTING: Final = "starting"
RUNNING: Final = "running"
HEALING: Final = "healing"
COLLECTING: Final = "collecting"
PHASES: Final = (STARTING, RUNNING, HEALING, COLLECTING)

MEMBERS: Final = ("n0", "n1", "n2")
STACKS: Final = ("udp", "mcast", "tcp", "tcp-nio2")
FAULTS: Final = ("cut", "partition", "loss", "delay", "jitter", "narrow", "pause")
MILESTONES: Final = ("begun", "network", "members")
"""What a run that starts has just told when the delay begins: nothing yet, that it makes the
network, that it starts the members."""

# Of 100 kills so many; and the seconds within the phase that a delay is drawn from. A phase of a
# victim that has neither does not exist: a judge starts and runs on Spark, where it is a process
# of its own; in a rig it judges what was collected.
_SHARES: Final[dict[tuple[str, str], tuple[int, float]]] = {
    (RIG, STARTING): (11, 0.6),
    (RIG, RUNNING): (8, 0.9),
    (RIG, HEALING): (6, 0.6),
    (RIG, COLLECTING): (4, 0.1),
    (AGENT, STARTING): (5, 0.3),
    (AGENT, RUNNING): (7, 0.9),
    (AGENT, HEALING): (6, 0.6),
    (AGENT, COLLECTING): (4, 0.4),
    (MEMBER, STARTING): (5, 0.6),
    (MEMBER, RUNNING): (6, 0.9),
    (MEMBER, HEALING): (6, 0.6),
    (MEMBER, COLLECTING): (3, 0.4),
    (KEEPER, STARTING): (4, 0.8),
    (KEEPER, RUNNING): (6, 0.8),
    (KEEPER, HEALING): (5, 1.2),
    (KEEPER, COLLECTING): (4, 0.05),
    (JUDGE, STARTING): (1, 4.0),
    (JUDGE, RUNNING): (1, 8.0),
    (JUDGE, COLLECTING): (8, 0.3),
}
CELLS: Final = tuple(_SHARES)
_TRYING: Final = 4.0
_ROUND: Final = sum(share for share, _window in _SHARES.values())


@dataclass(frozen=True, slots=True)
class Kill:
    """One SIGKILL: of whom, in which phase, and how long after it began."""

    seed: int
    number: int
    victim: str
    phase: str
    delay: float
    """Seconds from the beginning of the phase; where that is starting, from the milestone."""
    milestone: str
    stack: str
    fault: str
    member: str
    """Who is killed where the victim is a member."""

    def __str__(self) -> str:
        whom = self.member if self.victim == MEMBER else self.victim
        when = f"{self.phase} ({self.milestone})" if self.phase == STARTING else self.phase
        return f"kill {self.number}: {whom}, {when} + {self.delay:.3f}s, {self.stack}, {self.fault}"

    @property
    def is_on_spark(self) -> bool:
        """Whether the victim is `stormcast verify`."""
        return self.victim == JUDGE and self.phase != COLLECTING

    def scenario(self) -> str:
        """The scenario in which it happens: 1.5 s of traffic, and a fault from 0.3 s to 1 s. A
        judge has more to judge, or it would be over before it is struck."""
        more = _JUDGED if self.victim == JUDGE else 1
        return _SCENARIO.format(
            stack=self.stack, fault=_FAULTS[self.fault], count=60 * more, rate=40 * more
        )


def _cells(seed: int, turn: int) -> list[tuple[str, str]]:
    """Return victim and phase of a hundred kills in a row: all that there are, by their shares."""
    cells = [cell for cell, (share, _window) in _SHARES.items() for _ in range(share)]
    random.Random(f"{seed}/{turn}").shuffle(cells)
    return cells


def draw(seed: int, number: int) -> Kill:
    """Return the kill of a number."""
    dice = random.Random(f"{seed}:{number}")
    victim, phase = _cells(seed, number // _ROUND)[number % _ROUND]
    milestone = dice.choice(MILESTONES)
    # A rig that has told nothing yet tries what the machine can do, in a network of its own.
    longer = _TRYING if (victim, phase, milestone) == (RIG, STARTING, MILESTONES[0]) else 1.0
    return Kill(
        seed=seed,
        number=number,
        victim=victim,
        phase=phase,
        delay=dice.uniform(0.0, longer * _SHARES[victim, phase][1]),
        milestone=milestone,
        stack=dice.choice(STACKS),
        # A pause needs no agent.
        fault=dice.choice(FAULTS[:-1] if victim == AGENT else FAULTS),
        member=dice.choice(MEMBERS),
    )


_JUDGED: Final = 15
HEALED: Final = 1.0
"""Seconds of a scenario at which its fault ends."""
_FAULTS: Final = {
    "cut": "{at: 300ms, do: cut, from: n0, to: n1, for: 700ms}",
    "partition": "{at: 300ms, do: partition, groups: [[n0], [n1, n2]], for: 700ms}",
    "loss": "{at: 300ms, do: loss, rate: 50%, for: 700ms}",
    "delay": "{at: 300ms, do: delay, delay: 300ms, for: 700ms}",
    "jitter": "{at: 300ms, do: delay, delay: 100ms, jitter: 50ms, for: 700ms}",
    "narrow": "{at: 300ms, do: bandwidth, rate: 20KiB/s, for: 700ms}",
    "pause": "{at: 300ms, do: pause, member: n1, for: 700ms}",
}
_SCENARIO: Final = """\
name: kill
guarantees: [G1, G2, G3, G4]
cluster: {{members: 3, stack: {stack}, timing: fast}}
workload:
  - {{do: multicast, from: all, count: {count}, rate: {rate}/s, size: 64B}}
  - {{do: unicast, from: n0, to: n1, count: {count}, rate: {rate}/s, size: 64B}}
  - {{do: unicast, from: n1, to: n2, count: {count}, rate: {rate}/s, size: 64B}}
timeline:
  - {fault}
limits: {{run: 30s, settle: 1s}}
"""
