"""Settings of STABLE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stormcast.node.core.errors import require


@dataclass(frozen=True, slots=True, kw_only=True)
class StableConfig:
    """Settings of STABLE. Durations are seconds."""

    settable: ClassVar[frozenset[str]] = frozenset()

    desired_avg_gossip: float = 20.0
    """Average time between two votes of a member that has something to report and hits no other
    limit; 0 off. Shorter purges sooner when there is little traffic."""

    max_bytes: int = 2_000_000
    """Bytes of multicasts after which a member votes; 0 off. A fraction of what a window holds, so
    that it never fills while votes are under way."""

    max_messages: int = 4096
    """The same in messages, for windows that small messages fill."""

    repeat_interval: float = 0.5
    """Time until a vote that has not led to stability is repeated, in `fast` at most; and between
    two STABILITYs of an unfinished round."""

    def __post_init__(self) -> None:
        for name in ("desired_avg_gossip", "max_bytes", "max_messages"):
            value = getattr(self, name)
            require(
                value >= 0,
                f"stable.{name} is {value:g}: it must not be negative (0 switches it off)",
            )
        require(
            self.repeat_interval > 0,
            f"stable.repeat_interval is {self.repeat_interval:g}: it must be positive",
        )
