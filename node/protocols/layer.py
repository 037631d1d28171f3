"""The base of a group's protocols: a place in the stack, timers, the four verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from stormcast.node.core import wire
from stormcast.node.core.errors import BadFrame

if TYPE_CHECKING:
    from random import Random

    from stormcast.node.core.model import View
    from stormcast.node.core.timers import Timers
    from stormcast.node.core.timing import Timing
    from stormcast.node.core.wire import Head
    from stormcast.node.protocols.events import Role
    from stormcast.node.protocols.port import Port


class MemberContext(NamedTuple):
    """The objects that all layers of one member share."""

    role: Role
    port: Port
    timers: Timers[tuple[int, str]]
    timing: Timing
    dice: Random
    largest_body: int = wire.MAX_BODY
    """Bytes of the largest body of a frame that travels whole."""


class Layer:
    """A protocol that needs no window: it speaks in control frames, which may be lost.

    A member that needs an answer repeats its question. A layer never calls another layer: it
    enqueues events on its port, and the stack passes them on. Its timers have names, and share the
    member's one timer heap.
    """

    protocol: ClassVar[int]
    """Its number on the wire."""
    config_type: ClassVar[type[Any]]
    """The dataclass of its settings."""

    def __init__(
        self,
        config: Any,  # noqa: ANN401 each protocol has its own
        context: MemberContext,
    ) -> None:
        self.config = config
        self.role = context.role
        self.timing = context.timing
        self.dice = context.dice
        self._port = context.port
        self._timers = context.timers

    # -- The verbs ----------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Begin work: the member has started."""

    def receive(self, head: Head, body: bytes, now: float) -> None:
        """Take one checked frame of this protocol."""
        raise BadFrame("kind")

    def on_timer(self, what: str, now: float) -> None:
        """React to a timer, set with `wake_at`, that came due."""

    def on_view(self, view: View, now: float) -> None:
        """React to an installed view, which is in `role.view` already."""

    def stop(self, now: float) -> None:
        """Stop work, because the member leaves; send what still has to be sent."""

    def bounds(self) -> dict[str, float]:
        """Return what the configuration promises a checker, in seconds and counts."""
        return {}

    def gauge(self, now: float) -> None:
        """Record how full everything bounded is (G5)."""

    # -- Time ---------------------------------------------------------------------------------

    def wake_at(self, what: str, when: float) -> None:
        """Call `on_timer(what)` at `when`; a later call replaces an earlier one."""
        self._timers.set((self.protocol, what), when)

    def wake_by(self, what: str, when: float) -> None:
        """Call `on_timer(what)` at `when`, unless it is called earlier anyway."""
        self._timers.set_earlier((self.protocol, what), when)

    def cancel(self, what: str) -> None:
        """Do not call `on_timer(what)`."""
        self._timers.cancel((self.protocol, what))

    def is_waiting(self, what: str) -> bool:
        """Whether the timer `what` is set."""
        return self._timers.due((self.protocol, what)) < float("inf")
