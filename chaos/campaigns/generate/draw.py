"""The dice of a generated scenario, and the link faults that unicast and group scenarios share."""

from __future__ import annotations

from random import Random
from typing import Final

from stormcast.chaos import faults

Names = tuple[str, ...]
LEADING_TWICE_FROM: Final = 2
"""The attempt from which on a scenario has two leading faults: mostly those before met too little
because their one leading fault did not bite."""


def leading_faults(attempt: int) -> int:
    """Return how many leading faults a scenario gets."""
    return 1 if attempt < LEADING_TWICE_FROM else 2


class Draw:
    """The dice of one scenario, and the members and pairs to choose from."""

    def __init__(self, random: Random, members: Names) -> None:
        self.random = random
        self.members = members
        self.busy: tuple[tuple[str, str], ...] = ()
        """Sender and receiver of each load between two members."""
        self.settings: dict[str, object] = {}
        """Settings of the unicast protocol that a plot needs: they win over drawn ones."""

    def pair(self) -> tuple[str, str]:
        """Draw two different members; mostly the first has a load to the second."""
        if self.busy and self.random.random() < 0.7:
            return self.random.choice(self.busy)
        one, other = self.random.sample(self.members, 2)
        return one, other

    def side(self) -> tuple[Names, Names]:
        """Draw one directed link, or all links."""
        if self.random.random() < 0.4:
            return self.members, self.members
        source, dest = self.pair()
        return (source,), (dest,)

    def seconds(self, low: float, high: float) -> float:
        return round(self.random.uniform(low, high), 3)

    def share(self, low: float, high: float) -> float:
        return round(self.random.uniform(low, high), 3)


def loss(draw: Draw) -> faults.Action:
    """Draw a loss of few or most frames."""
    sources, dests = draw.side()
    return faults.Loss(sources=sources, dests=dests, rate=draw.share(0.02, 0.6))


def delay(draw: Draw) -> faults.Action:
    """Draw a delay, mostly with jitter."""
    sources, dests = draw.side()
    return faults.Delay(
        sources=sources, dests=dests, delay=draw.seconds(0.001, 0.3), jitter=draw.seconds(0.0, 0.3)
    )


def duplicate(draw: Draw) -> faults.Action:
    """Draw a fault that doubles frames."""
    sources, dests = draw.side()
    return faults.Duplicate(sources=sources, dests=dests, rate=draw.share(0.05, 0.5))


def reorder(draw: Draw) -> faults.Action:
    """Draw a fault that delays some frames, so that later ones overtake them."""
    sources, dests = draw.side()
    return faults.Reorder(
        sources=sources, dests=dests, rate=draw.share(0.05, 0.5), by=draw.seconds(0.002, 1.0)
    )


def corrupt(draw: Draw) -> faults.Action:
    """Draw a fault that corrupts frames."""
    sources, dests = draw.side()
    return faults.Corrupt(sources=sources, dests=dests, rate=draw.share(0.02, 0.3))


def cut(draw: Draw) -> faults.Action:
    """Draw a cut from one member to another."""
    source, dest = draw.pair()
    return faults.Cut(sources=(source,), dests=(dest,))


def partition(draw: Draw) -> faults.Action:
    """Draw a partition into two sides."""
    shuffled = list(draw.members)
    draw.random.shuffle(shuffled)
    at = draw.random.randint(1, len(shuffled) - 1)
    return faults.Partition(groups=(tuple(shuffled[:at]), tuple(shuffled[at:])))


def bandwidth(draw: Draw) -> faults.Action:
    """Draw a bandwidth limit, at which a queue builds up."""
    sources, dests = draw.side()
    return faults.Bandwidth(
        sources=sources, dests=dests, rate=float(draw.random.randint(2_000, 40_000))
    )
