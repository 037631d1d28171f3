"""The longest time that a frame may be under way, and connections that live hardly longer."""

from __future__ import annotations

from typing import Final

from stormcast.chaos import faults
from stormcast.chaos.campaigns.generate.groups.dice import GroupDraw

STREAM_GIVES_UP: Final = 15.8
"""Seconds until a kernel gives up a connection on which no retransmission gets through."""
QUEUE_LIFE: Final = 2.0
"""Seconds for which a bandwidth limit or a kernel's retransmission may keep a frame."""


def frame_life(draw: GroupDraw) -> float:
    """Return for how many seconds the steps may keep a frame under way. A removed connection must
    be remembered for longer, so that its late frames are recognized."""
    longest = 0.0
    broken: list[tuple[float, float]] = []
    for step in draw.steps:
        action, duration = step.action, step.duration or 0.0
        match action:
            case faults.Rule(does="hold") | faults.Pause():
                longest = max(longest, duration)
            case faults.Rule(delay=delay):
                longest = max(longest, delay)
            case faults.Delay():
                longest = max(longest, action.delay + action.jitter)
            case faults.Reorder():
                longest = max(longest, action.by)
            case faults.Bandwidth():
                longest = max(longest, QUEUE_LIFE)
        if isinstance(action, faults.NetworkFault) and not isinstance(action, faults.Rule):
            broken.append((step.at, step.at + duration))
    # A kernel keeps frames that it could not send until the network lets them pass.
    return max(longest, _longest_stretch(broken)) if draw.is_stream else longest


def _longest_stretch(spans: list[tuple[float, float]]) -> float:
    """Return how long a frame may take that meets one of these faults after the other."""
    longest = begin = end = 0.0
    for start, stop in sorted(spans):
        if start > end:
            begin = start
        end = max(end, stop + QUEUE_LIFE)
        longest = max(longest, end - begin)
    return longest


def short_lives(draw: GroupDraw, at_least: float = 0.0) -> float:
    """Set short timeouts after which idle connections are closed, and then removed; returns the sum
    of both, in seconds."""
    expiry = draw.random.choice((0.5, 1.0, 2.0))
    close = max(at_least, round(frame_life(draw) + draw.seconds(0.3, 1.5), 3))
    draw.settings.update(conn_expiry_timeout=expiry, conn_close_timeout=close)
    return expiry + close
