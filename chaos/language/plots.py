"""Plots: several steps that together reach a state of a connection that one fault hardly ever
reaches. The search draws them, and so do soaks.

Each begins, and mostly ends, within TRAFFIC_SECONDS.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from stormcast.chaos import faults
from stormcast.chaos.language.timeline import Step
from stormcast.node.core.match import Match

TRAFFIC_SECONDS: Final = 8.0
"""Seconds in which there is traffic, at least."""


class Dice(Protocol):
    """What a plot is drawn by."""

    random: Random
    settings: dict[str, object]
    """Settings of the unicast protocol that a plot needs, for who can give them to members."""

    def pair(self) -> tuple[str, str]:
        """Draw two members, mostly a sender and its receiver."""
        ...

    def seconds(self, low: float, high: float) -> float:
        """Draw some seconds."""
        ...


def lose(source: str, dest: str, half: str) -> faults.Action:
    """Return the step that has a half of a connection from `source` to `dest` forgotten; `both`:
    the source forgets all it has of its peer."""
    if half == "receiver":
        return faults.Forget(member=dest, peer=source, half="receiver")
    return faults.Forget(member=source, peer=dest, half=half)


def late_first(dice: Dice) -> list[Step]:
    """A first frame is overtaken by its repeat, and arrives when its window has been lost (R-3)."""
    random = dice.random
    source, dest = dice.pair()
    steps = []
    at = 0.0
    if random.random() < 0.5:
        # Have the connection before it lost, so that a new one begins.
        at = dice.seconds(0.3, TRAFFIC_SECONDS - 3.5)
        steps.append(Step(at=at, action=lose(source, dest, "sender")))
    end = at + dice.seconds(0.1, 3.0)
    first = Match(kinds=("DATA",), sources=(source,), dests=(dest,), seqno=(1, 1))
    hold = faults.Rule(does="hold", match=first, times=1)
    steps.append(Step(at=at, action=hold, duration=end - at))
    lost = max(at, end - dice.seconds(0.0, 0.3))
    steps.append(Step(at=lost, action=lose(source, dest, "receiver")))
    if random.random() < 0.6:
        # The first seqno is asked for in vain: an answer is awaited when the old frame comes.
        deaf = faults.Cut(sources=(dest,), dests=(source,))
        steps.append(Step(at=lost, action=deaf, duration=dice.seconds(0.3, 1.0)))
    return steps


def stale_acks(dice: Dice) -> list[Step]:
    """Acks arrive after their window or connection has been lost (JGRP-1873)."""
    random = dice.random
    source, dest = dice.pair()
    at, length = dice.seconds(0.0, TRAFFIC_SECONDS - 2.0), dice.seconds(0.1, 2.0)
    acks = Match(kinds=("ACK", "STABLE"), sources=(dest,), dests=(source,))
    does = random.choice(("hold", "delay"))
    rule = faults.Rule(does=does, match=acks, delay=length if does == "delay" else 0.0)
    steps = [Step(at=at, action=rule, duration=length)]
    for _ in range(random.randint(1, 2)):
        half = random.choice(("receiver", "sender"))
        steps.append(Step(at=dice.seconds(at, at + length), action=lose(source, dest, half)))
    return steps


def churn(dice: Dice) -> list[Step]:
    """Connections follow each other so fast that frames of several are under way (D-4, D-6)."""
    random = dice.random
    source, dest = dice.pair()
    at, length = dice.seconds(0.0, TRAFFIC_SECONDS - 2.0), dice.seconds(0.05, 1.0)
    early = Match(
        kinds=("DATA",), sources=(source,), dests=(dest,), seqno=(1, random.randint(1, 5))
    )
    rule = faults.Rule(does="hold", match=early, times=random.choice((1, 2, None)))
    steps = [Step(at=at, action=rule, duration=length)]
    for _ in range(random.randint(2, 4)):
        half = random.choice(("receiver", "sender", "sender"))
        steps.append(Step(at=dice.seconds(at, at + length), action=lose(source, dest, half)))
    return steps


def full_and_lost(dice: Dice) -> list[Step]:
    """A full window is lost, and with it the position within a batch that it had reached."""
    source, dest = dice.pair()
    at, length = dice.seconds(0.3, TRAFFIC_SECONDS - 3.5), dice.seconds(1.0, 3.0)
    lost = lose(source, dest, "receiver")
    return [
        Step(at=at, action=faults.Stall(member=dest), duration=length),
        Step(at=dice.seconds(at + length / 2, at + length), action=lost),
    ]


def idle_in_a_stall(dice: Dice) -> list[Step]:
    """A stalled receiver takes nothing for longer than an idle connection lives, while its sender
    has a full window. No frame is under way for longer than the connection is remembered."""
    source, dest = dice.pair()
    dice.settings.update(
        conn_expiry_timeout=dice.random.choice((0.5, 1.5)),
        conn_close_timeout=6.0,
        window_messages=dice.random.choice((16, 64)),
    )
    at, length = dice.seconds(0.3, 3.0), dice.seconds(7.0, 10.0)
    steps = [Step(at=at, action=faults.Stall(member=dest), duration=length)]
    if dice.random.random() < 0.5:
        steps.append(Step(at=dice.seconds(at, TRAFFIC_SECONDS), action=lose(source, dest, "both")))
    return steps


def closed_amid_loss(dice: Dice) -> list[Step]:
    """A sender closes its connection while much of what it sends is lost, and goes on sending."""
    source, dest = dice.pair()
    at, length = dice.seconds(0.3, TRAFFIC_SECONDS - 2.0), dice.seconds(0.5, 2.0)
    loss = faults.Loss(sources=(source,), dests=(dest,), rate=round(dice.seconds(0.3, 0.9), 3))
    steps = [Step(at=at, action=loss, duration=length)]
    for _ in range(dice.random.randint(1, 3)):
        closing = faults.Close(member=source, peer=dest)
        steps.append(Step(at=dice.seconds(at, at + length), action=closing))
    return steps


Plot = Callable[[Dice], list[Step]]
PLOTS: Final[tuple[Plot, ...]] = (late_first, stale_acks, churn, full_and_lost, idle_in_a_stall)
"""Those that the search draws: each of its seeds would be another one if it drew more of them."""
