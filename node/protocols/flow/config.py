"""Settings of flow control."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

from stormcast.node.core.errors import require
from stormcast.node.reading.config_shapes import Share


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoricalFlow:
    """A flaw of an earlier design. Only museum stacks may have it."""

    asks_anew: bool = True
    """False: a sender that waits for credits asks about the same place of its stream for ever,
    though the connection of that place is gone."""


SOUND: Final = HistoricalFlow()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowConfig:
    """Settings of UFC and of MFC. The credits must be equal on all members."""

    settable: ClassVar[frozenset[str]] = frozenset()
    """Settings that may change while the stack runs."""

    max_credits: int = 5_000_000
    """Bytes of one sender that may be sent and not yet taken by one receiver. More hides a longer
    round trip and costs memory; a larger message can not be sent without FRAG."""

    min_threshold: Share = 0.2
    """Share of the credits at which the receiver names a new limit. Lower saves frames; higher
    keeps a sender far away from running dry."""

    max_block_time: float = 5.0
    """Seconds between two questions of a sender that waits (in `fast` timing their upper bound).
    The first one is asked at once: an answer grants nothing new, so asking is cheap."""

    historical: HistoricalFlow = field(default=SOUND)
    """A flaw to reproduce."""

    def __post_init__(self) -> None:
        require(
            0 < self.max_credits <= 1 << 40,
            f"max_credits is {self.max_credits}: it must be 1..{1 << 40} bytes",
        )
        require(
            0 < self.min_threshold < 1,
            f"min_threshold is {self.min_threshold:g}: it must lie between 0 and 1",
        )
        require(
            self.max_block_time > 0,
            f"max_block_time is {self.max_block_time:g}: it must be positive",
        )

    @property
    def min_credits(self) -> int:
        """Bytes left of a limit at which the next one is named."""
        return int(self.max_credits * self.min_threshold)
