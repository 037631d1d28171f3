"""Changes a stack while it runs: settings, and which test protocols are in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stormcast.node.core.errors import require
from stormcast.node.protocols.testing import TEST_PROTOCOLS
from stormcast.node.settings.rules import losing_below
from stormcast.node.stack.attributes import Attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stormcast.node.protocols.multicast import Multicast
    from stormcast.node.protocols.unicast import Unicast
    from stormcast.node.settings import StackSettings
    from stormcast.node.stack.testing import Let, TestProtocols


class Changes:
    """Does what commands order a running stack to change."""

    def __init__(
        self,
        settings: StackSettings,
        unicast: Unicast,
        multicast: Multicast | None,
        test_protocols: TestProtocols,
        let_pass: Callable[[Let, float], None],
    ) -> None:
        self._settings = settings
        self._multicast = multicast
        self._attributes = Attributes(settings, unicast, multicast)
        self._test_protocols = test_protocols
        self._let_pass = let_pass

    def set_attribute(self, name: str, value: object, now: float) -> None:
        """Change a setting at run time: `xmit_interval` of unicast, `NAKACK2.xmit_interval` of
        another protocol, `DISCARD.up` of a test protocol."""
        protocol, _dot, attribute = name.rpartition(".")
        if protocol not in TEST_PROTOCOLS:
            self._attributes.set(name, value, self._test_protocols.layers(), now)
            return
        require(
            any(placed["name"] == protocol for placed in self._test_protocols.listed()),
            f"{name}: no {protocol} in the stack; put it in first",
        )
        self.set_test_protocol(protocol, {attribute: value}, now)

    def set_test_protocol(
        self, name: str, values: Mapping[str, object] | None, now: float, above: str = ""
    ) -> None:
        """Put a test protocol in, above another protocol (by default the transport), or change
        the one that is there; without values take it out."""
        self._let_pass(self._test_protocols.put(name, values, above, now), now)

    def unrepaired_test_protocols(self) -> list[str]:
        """Return the test protocols that lose multicasts which nobody will ask for again."""
        multicast = self._multicast
        if multicast is None or multicast.config.retransmits:
            return []
        return losing_below(self._settings.multicast or "", self._test_protocols.layers())
