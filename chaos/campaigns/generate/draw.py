"""The dice of a generated scenario, and the faults of links that any of them may meet."""

from __future__ import annotations

from random import Random

from stormcast.chaos import faults

Names = tuple[str, ...]


class Draw:
    """The dice of one scenario, and what they may point at."""

    def __init__(self, random: Random, members: Names) -> None:
        self.random = random
        self.members = members
        self.busy: tuple[tuple[str, str], ...] = ()
        """Sender and receiver of each load between two members."""
        self.settings: dict[str, object] = {}
        """Of the unicast protocol: those that a plot cannot do without win over what is drawn."""

    def pair(self) -> tuple[str, str]:
        """Two different members, mostly such that the first sends to the second."""
        if self.busy and self.random.random() < 0.7:
            return self.random.choice(self.busy)
        one, other = self.random.sample(self.members, 2)
        return one, other

    def side(self) -> tuple[Names, Names]:
        """One directed link, or all of them."""
        if self.random.random() < 0.4:
            return self.members, self.members
        source, dest = self.pair()
        return (source,), (dest,)

    def seconds(self, low: float, high: float) -> float:
        return round(self.random.uniform(low, high), 3)

    def share(self, low: float, high: float) -> float:
        return round(self.random.uniform(low, high), 3)


def loss(draw: Draw) -> faults.Action:
    """Frames are lost, few or most."""
    sources, dests = draw.side()
    return faults.Loss(sources=sources, dests=dests, rate=draw.share(0.02, 0.6))


def delay(draw: Draw) -> faults.Action:
    """Frames are late, some of them later than others."""
    sources, dests = draw.side()
    return faults.Delay(
        sources=sources, dests=dests, delay=draw.seconds(0.001, 0.3), jitter=draw.seconds(0.0, 0.3)
    )


def duplicate(draw: Draw) -> faults.Action:
    """Frames come twice."""
    sources, dests = draw.side()
    return faults.Duplicate(sources=sources, dests=dests, rate=draw.share(0.05, 0.5))


def reorder(draw: Draw) -> faults.Action:
    """Frames come behind those that were sent after them."""
    sources, dests = draw.side()
    return faults.Reorder(
        sources=sources, dests=dests, rate=draw.share(0.05, 0.5), by=draw.seconds(0.002, 1.0)
    )


def corrupt(draw: Draw) -> faults.Action:
    """Frames come with a bit flipped."""
    sources, dests = draw.side()
    return faults.Corrupt(sources=sources, dests=dests, rate=draw.share(0.02, 0.3))


def cut(draw: Draw) -> faults.Action:
    """Nothing passes from one member to another."""
    source, dest = draw.pair()
    return faults.Cut(sources=(source,), dests=(dest,))


def partition(draw: Draw) -> faults.Action:
    """Two sides hear nothing of each other."""
    shuffled = list(draw.members)
    draw.random.shuffle(shuffled)
    at = draw.random.randint(1, len(shuffled) - 1)
    return faults.Partition(groups=(tuple(shuffled[:at]), tuple(shuffled[at:])))


def bandwidth(draw: Draw) -> faults.Action:
    """A queue builds up."""
    sources, dests = draw.side()
    return faults.Bandwidth(
        sources=sources, dests=dests, rate=float(draw.random.randint(2_000, 40_000))
    )
