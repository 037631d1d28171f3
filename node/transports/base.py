"""What every transport does for its member."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence

from stormcast.node.core.model import Address
from stormcast.node.protocols.port import Frame
from stormcast.node.settings.transports import TransportConfig
from stormcast.node.transports.interfaces import Interface
from stormcast.node.transports.owner import TransportOwner
from stormcast.node.transports.room import Room


class Transport(ABC):
    """Carries frames; may lose, repeat and reorder them, and never makes any up."""

    def __init__(self, config: TransportConfig, owner: TransportOwner) -> None:
        self.owner = owner
        self.where = ""
        """What others are told."""
        self.port = 0
        """What is bound."""
        self.room = Room(config, owner)
        self.counters: Counter[str] = Counter()
        """Rare things, by name: how often each happened."""
        self._base = config

    # -- Life --------------------------------------------------------------------------------

    @abstractmethod
    def open(self, interface: Interface) -> None:
        """Bind; afterwards `where` is known. BindError says why not."""

    @abstractmethod
    def start(self, address: Address, cluster: int) -> None:
        """Begin to receive, as this member."""

    @abstractmethod
    def close(self) -> None:
        """Let everything go that can leave at once, and close."""

    @abstractmethod
    async def drain(self) -> None:
        """Before it closes: wait, within a bound, until what waits to be sent has left."""

    @abstractmethod
    def frame_limit(self) -> int:
        """Bytes of a frame that travels whole."""

    @abstractmethod
    def describe(self) -> list[str]:
        """What is bound, a line each."""

    def _announce(self, host: str, port: int) -> None:
        """Make the place that others are told."""
        config = self._base
        self.port = port
        self.where = f"{config.external_addr or host}[{config.external_port or port}]"

    # -- Frames ------------------------------------------------------------------------------

    @abstractmethod
    def poll(self) -> None:
        """Take what has arrived, and have a turn."""

    @abstractmethod
    def send(self, frames: list[Frame]) -> None:
        """Send, or keep for later; what does not fit is dropped and counted."""

    @abstractmethod
    def locate(self, address: Address) -> None:
        """A view says where a member is."""

    @abstractmethod
    def on_view(self, members: Sequence[Address]) -> None:
        """The group has changed."""

    # -- Figures -----------------------------------------------------------------------------

    @abstractmethod
    def queued(self) -> tuple[int, int]:
        """Frames and bytes that wait to be sent."""

    def stats(self) -> dict[str, int | float]:
        """Counters and gauges, by name."""
        frames, size = self.queued()
        return {**self.counters, "queued_frames": frames, "queued_bytes": size}
