"""The base of all transports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stormcast.node.core.model import Address
from stormcast.node.protocols.port import Frame
from stormcast.node.settings.transports import TransportConfig
from stormcast.node.transports.interfaces import Interface
from stormcast.node.transports.owner import TransportOwner
from stormcast.node.transports.room import Room

if TYPE_CHECKING:
    from stormcast.node.keys.seals import Seals


class Transport(ABC):
    """Carries frames; may lose, repeat and reorder them, and never makes any up."""

    def __init__(self, config: TransportConfig, owner: TransportOwner) -> None:
        self.owner = owner
        self.where = ""
        """The place that others are told, as `host[port]`."""
        self.port = 0
        """The port that is bound."""
        self.room = Room(config, owner)
        self.counters: Counter[str] = Counter()
        """By name, the number of times that each rare event happened."""
        self._base = config
        self.no_multicast = ""
        """The reason why multicast reaches nobody; empty: it may reach somebody, or it is not
        wanted."""

    # -- Life --------------------------------------------------------------------------------

    @abstractmethod
    def open(self, interface: Interface) -> None:
        """Bind the sockets; afterwards `where` is known. BindError if that fails."""

    @abstractmethod
    def start(self, address: Address, cluster: int, seals: Seals | None = None) -> None:
        """Begin to receive, as this member; where it has keys, hellos are sealed, too."""

    @abstractmethod
    def close(self) -> None:
        """Send what can leave at once, and close."""

    @abstractmethod
    async def drain(self) -> None:
        """Wait, within a bound, until queued frames have left; called before `close`."""

    @abstractmethod
    def frame_limit(self) -> int:
        """Return the bytes of a frame that travels whole."""

    @abstractmethod
    def describe(self) -> list[str]:
        """Return lines that say what is bound."""

    def _announce(self, host: str, port: int) -> None:
        """Set `port`, and `where`, the place that others are told."""
        config = self._base
        self.port = port
        self.where = f"{config.external_addr or host}[{config.external_port or port}]"

    # -- Frames ------------------------------------------------------------------------------

    @abstractmethod
    def poll(self) -> None:
        """Read what has arrived, and have a turn."""

    @abstractmethod
    def send(self, frames: list[Frame]) -> None:
        """Send frames, or queue them; frames that do not fit are dropped and counted."""

    @abstractmethod
    def locate(self, address: Address) -> None:
        """Remember where a member is, by its address."""

    @abstractmethod
    def trust(self, address: Address) -> None:
        """Remember where a stranger is that has proved it: frames do not change that any more."""

    @abstractmethod
    def doubt(self, short: int) -> None:
        """Forget where a stranger proved to be: another one has its short id."""

    @abstractmethod
    def on_view(self, members: Sequence[Address]) -> None:
        """Take in the members of a new view."""

    # -- Figures -----------------------------------------------------------------------------

    @abstractmethod
    def queued(self) -> tuple[int, int]:
        """Return how many frames and bytes wait to be sent."""

    def stats(self) -> dict[str, int | float]:
        """Return counters and gauges by name."""
        frames, size = self.queued()
        return {**self.counters, "queued_frames": frames, "queued_bytes": size}
