"""Changes settings while the stack runs, by the names of protocol and setting."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
        settings, multicast = self._settings, self._multicast
        machines: dict[str, Unicast | Multicast] = {settings.unicast: self._unicast}
        if multicast is not None and settings.multicast is not None:
            machines[settings.multicast] = multicast
        configs = {protocol: machine.config for protocol, machine in machines.items()}
        protocol, config = settings.with_attribute(name, value, configs, layers)
        attribute = name.rpartition(".")[2]
        machines[protocol].set_attribute(attribute, getattr(config, attribute), now)
