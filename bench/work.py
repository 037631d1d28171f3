"""The work that is measured: the same for every program that takes part in a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.errors import BenchError

MODES: Final = ("multicast", "unicast", "roundtrip")
TRANSPORTS: Final = ("udp", "tcp", "tcp-nio2")
PEERS: Final = ("jgroups", "jgroups-tuned", "aeron", "aeron-60k", "raw")
OURS: Final = "ours"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One kind of traffic. Everyone multicasts, or the last member sends to the first."""

    mode: str
    transport: str = "udp"
    members: int = 3
    size: int = 1000
    """Bytes of a message."""
    loss: float = 0.0
    """Share of the datagrams that vanish."""
    delay: float = 0.0
    """Seconds by which everything arrives later."""

    def __post_init__(self) -> None:
        for is_good, complaint in (
            (self.mode in MODES, f"no mode {self.mode}"),
            (self.transport in TRANSPORTS, f"no transport {self.transport}"),
            (self.members >= 2, "--members: at least 2"),  # noqa: PLR2004 one to send, one to receive
            (self.size >= 1, "--size: at least 1 byte"),
            (0 <= self.loss < 1, "--loss: a share below 1, or per cent below 100%"),
            (self.delay >= 0, "--delay: not negative"),
            (
                not self.loss or self.transport == "udp",
                "--loss: within a TCP stream the kernel repairs it; use --transport udp",
            ),
        ):
            if not is_good:
                raise BenchError(complaint)

    @property
    def is_latency(self) -> bool:
        """Whether the figure is a time: then lower is better."""
        return self.mode == "roundtrip"

    @property
    def unit(self) -> str:
        return {
            "multicast": "messages delivered per member and second",
            "unicast": "messages delivered per second",
            "roundtrip": "microseconds, median",
        }[self.mode]

    def names(self) -> list[str]:
        """Return the members in the order in which they start: `n1` receives unicasts."""
        return [f"n{number}" for number in range(1, self.members + 1)]

    def __str__(self) -> str:
        extras = [f"{self.loss:.3g} of the datagrams lost"] if self.loss else []
        extras += [f"{self.delay * 1e3:g} ms later"] if self.delay else []
        what = f"{self.mode} {self.transport}, {self.members} members, {self.size:,} B"
        return ", ".join([what, *extras])
