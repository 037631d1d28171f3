"""What the control endpoint needs of its member: a process, or one of the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from stormcast.node.core.model import Address, View
    from stormcast.node.member.loads import Load
    from stormcast.node.member.settings import MemberSettings
    from stormcast.node.member.workload import Driver, Receiver
    from stormcast.node.stack import Stack
    from stormcast.node.trace.journal import Journal


class AskedRuntime(Protocol):
    """What drives its stack."""

    @property
    def is_running(self) -> bool: ...

    @property
    def stack(self) -> Stack: ...

    @property
    def journal(self) -> Journal | None: ...

    def now(self) -> float: ...

    def wake(self) -> None:
        """What was changed takes effect."""


class AskedChannel(Protocol):
    """What its application uses."""

    @property
    def runtime(self) -> AskedRuntime: ...

    @property
    def state(self) -> str: ...

    def member(self, name: str) -> Address:
        """Who has this name."""

    def set_attribute(self, name: str, value: object) -> None: ...

    def set_consuming(self, consuming: bool) -> int:  # noqa: FBT001 as the channel has it
        """Whether the application takes messages; returns how many waited for that."""


class Measured(Protocol):
    """A member of which there are metrics."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Who it is."""

    @property
    def is_connected(self) -> bool: ...

    @property
    def view(self) -> View | None: ...

    @property
    def me(self) -> Address | None: ...

    def stats(self) -> Mapping[str, int | float]: ...

    def received_from(self) -> Mapping[str, int]:
        """Messages that it was given, by the name of who sent them."""


class AskedMember(Measured, Protocol):
    """A member, as the endpoint shows it and commands it."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> MemberSettings: ...

    @property
    def bound(self) -> list[str]:
        """Where it listens."""

    @property
    def channel(self) -> AskedChannel: ...

    @property
    def driver(self) -> Driver: ...

    @property
    def receiver(self) -> Receiver: ...

    def say(self, line: str) -> None: ...

    def leave(self) -> None: ...

    def set_peers(self, peers: tuple[Address, ...]) -> None:
        """Be told who there is, where no group says so."""

    def add_loads(self, loads: tuple[Load, ...]) -> None:
        """Begin to send."""
