"""Settings of FD_SOCK2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stormcast.node.core.errors import require


@dataclass(frozen=True, slots=True, kw_only=True)
class FdSock2Config:
    """Settings of FD_SOCK2. Durations are seconds."""

    settable: ClassVar[frozenset[str]] = frozenset()

    offset: int = 100
    """The detector listens on the transport's port plus this."""

    port_range: int = 3
    """The number of further ports that are tried, at either end, if that one is taken."""

    connect_timeout: float = 1.0
    """Time that one port may take to answer. A host that is gone costs it once for each port."""

    suspect_msg_interval: float = 5.0
    """Between two repeats of a suspicion, and two tries to reach a member that was cleared."""

    def __post_init__(self) -> None:
        require(
            0 < self.offset < 1 << 16,
            f"fd_sock2.offset is {self.offset}: it must be 1..{(1 << 16) - 1}",
        )
        for name in ("connect_timeout", "suspect_msg_interval"):
            value = getattr(self, name)
            require(value > 0, f"fd_sock2.{name} is {value:g}: it must be positive")
        require(
            self.port_range >= 0,
            f"fd_sock2.port_range is {self.port_range}: it must not be negative",
        )

    @property
    def patience(self) -> float:
        """Seconds after which a member is taken not to answer on any port."""
        return self.connect_timeout * (self.port_range + 1)
