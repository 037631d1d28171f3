"""Everything that the stack of one member is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from stormcast.node.core import wire
from stormcast.node.core.errors import ConfigError, require
from stormcast.node.core.timing import Timing
from stormcast.node.protocols.frag import FragConfig
from stormcast.node.protocols.multicast import MulticastConfig
from stormcast.node.protocols.testing import TEST_PROTOCOLS
from stormcast.node.protocols.unicast import UnicastConfig
from stormcast.node.protocols.windowed import changed
from stormcast.node.reading.config_shapes import notation_of
from stormcast.node.reading.items import item_of
from stormcast.node.settings.protocols import RELIABLE_MULTICAST, RELIABLE_UNICAST
from stormcast.node.settings.rules import check_retransmission, check_slow_members, check_values
from stormcast.node.settings.transports import TransportConfig

Layers = tuple[tuple[str, Any], ...]
"""Protocols, top to bottom, each with its settings."""

MAX_COUNT: Final = 0xFFFF
"""Messages that a frame can count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSettings:
    """Everything a member's stack is made from."""

    name: str = "unicast-only"
    layers: Layers
    """Protocols, top to bottom, each with its settings."""
    timing: Timing
    is_museum: bool = False
    """Whether it may have flaws on purpose."""

    max_batch: int = 1024
    """Messages in one batch, and so in one frame."""

    max_frame: int = 60_000
    """Bytes of payload after which a batch is closed; one message may be larger."""

    outbox_bytes: int = 8 << 20
    """Bytes accepted per destination and not yet numbered, 64 more per message. Beyond it
    `try_send` refuses."""

    def __post_init__(self) -> None:
        require(
            0 < self.max_batch <= MAX_COUNT,
            f"max_batch is {self.max_batch}: it must be 1..{MAX_COUNT}",
        )
        require(
            0 < self.max_frame <= wire.MAX_BODY,
            f"max_frame is {self.max_frame}: it must be 1..{wire.MAX_BODY}, "
            "what a frame carries at most",
        )
        # No more than a frame has room for, so that any message that fits the outbox can be sent.
        require(
            0 < self.outbox_bytes <= wire.MAX_BODY,
            f"outbox_bytes is {self.outbox_bytes}: it must be 1..{wire.MAX_BODY}",
        )
        check_values(self.layers, self.name, museum=self.is_museum, max_frame=self.max_frame)

    def of(self, name: str) -> Any:  # noqa: ANN401 the type follows the name
        """Return the settings of a protocol; None if the stack does not have it."""
        return next((config for listed, config in self.layers if listed == name), None)

    def _one_of(self, names: Mapping[str, object]) -> str | None:
        return next((name for name, _config in self.layers if name in names), None)

    @property
    def unicast(self) -> str:
        """The name of the reliable unicast."""
        name = self._one_of(RELIABLE_UNICAST)
        assert name is not None
        return name

    @property
    def unicast_config(self) -> UnicastConfig:
        config: UnicastConfig = self.of(self.unicast)
        return config

    @property
    def has_group(self) -> bool:
        """Whether members form a group."""
        return self.of("GMS") is not None

    @property
    def multicast(self) -> str | None:
        """The name of the reliable multicast, if there is one."""
        return self._one_of(RELIABLE_MULTICAST)

    @property
    def multicast_config(self) -> MulticastConfig | None:
        config: MulticastConfig | None = self.of(self.multicast) if self.multicast else None
        return config

    @property
    def fragments(self) -> FragConfig | None:
        """The settings by which large messages are split; None where they are not."""
        config: FragConfig | None = self.of("FRAG")
        return config

    @property
    def transport(self) -> str:
        """The name of the transport."""
        return self.layers[-1][0]

    @property
    def transport_config(self) -> TransportConfig:
        config: TransportConfig = self.layers[-1][1]
        return config

    @property
    def test_protocols(self) -> tuple[tuple[int, str, Any], ...]:
        """Test protocols: place in the list, name, settings."""
        return tuple(
            (place, name, config)
            for place, (name, config) in enumerate(self.layers)
            if name in TEST_PROTOCOLS
        )

    def with_attribute(
        self,
        name: str,
        value: object,
        configs: Mapping[str, Any] | None = None,
        layers: Layers | None = None,
    ) -> tuple[str, Any]:
        """Return the protocol that `name` is a setting of (`xmit_interval` of unicast,
        `NAKACK2.xmit_interval` of another one), and its settings with the value in place. What must
        not change while the stack runs is refused. `configs` are the present settings by protocol,
        and `layers` the present protocols, if they changed since the stack was made."""
        before, _dot, attribute = name.rpartition(".")
        protocol = before or self.unicast
        if protocol not in (self.unicast, self.multicast):
            raise ConfigError(
                f"{name}: no protocol {before} with settings that may change; there is "
                + " and ".join(filter(None, (self.unicast, self.multicast)))
            )
        config = (configs or {}).get(protocol) or self.of(protocol)
        if attribute in config.settable:
            notation = notation_of(type(config), attribute)
            value = notation.read(item_of(value, f"{protocol}.{attribute}"))
        changed_config = changed(config, attribute, value)
        there = layers or self.layers
        if protocol == "NAKACK2" and attribute == "xmit_interval":
            interval = changed_config.xmit_interval
            check_retransmission(there, self.name, interval, museum=self.is_museum)
        elif attribute == "slow_member_timeout":
            names = [name for name, _config in there]
            check_slow_members(names, self.name, changed_config.slow_member_timeout)
        return protocol, changed_config


def is_of_test_protocol(name: str) -> bool:
    """Whether a setting, such as `DISCARD.up`, is of a protocol that may come and go."""
    return name.rpartition(".")[0] in TEST_PROTOCOLS
