"""Changes settings while the stack runs, by the names of protocol and setting."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from stormcast.node.core.errors import ConfigError
from stormcast.node.reading.fields import convert

if TYPE_CHECKING:
    from stormcast.node.protocols.multicast import Multicast
    from stormcast.node.protocols.unicast import Unicast
    from stormcast.node.settings import StackSettings
    from stormcast.node.settings.stack_settings import Layers


class Attributes:
    """Changes settings of the reliable unicast and the reliable multicast of one member."""

    def __init__(
        self, settings: StackSettings, unicast: Unicast, multicast: Multicast | None
    ) -> None:
        self._settings = settings
        self._unicast = unicast
        self._multicast = multicast

    def set(self, name: str, value: object, layers: Layers, now: float) -> None:
        """Change `xmit_interval` of unicast, or `NAKACK2.xmit_interval` of another protocol.
        `layers` are the protocols that the stack has now."""
        settings = self._settings
        protocol, _dot, attribute = name.rpartition(".")
        machine = self._machine(protocol, name)
        kinds = {field.name: field.type for field in dataclasses.fields(machine.config)}
        if attribute in machine.config.settable:
            whole = f"{protocol or settings.unicast}.{attribute}"
            value = convert(whole, value, kinds[attribute])
        if machine is self._multicast and attribute == "xmit_interval":
            assert isinstance(value, float)
            settings.check_retransmission(value, layers)
        elif machine is self._multicast and attribute == "slow_member_timeout":
            assert isinstance(value, float)
            settings.check_slow_members(value)
        machine.set_attribute(attribute, value, now)

    def _machine(self, protocol: str, name: str) -> Unicast | Multicast:
        settings = self._settings
        if protocol in ("", settings.unicast):
            return self._unicast
        if self._multicast is not None and protocol == settings.multicast:
            return self._multicast
        raise ConfigError(
            f"{name}: no protocol {protocol} with settings that may change; "
            f"there is {settings.unicast}"
            + (f" and {settings.multicast}" if settings.multicast else "")
        )
