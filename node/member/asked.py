"""A member as its control endpoint sees it: a process, or a member of the simulator."""

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
    """The runtime of a member, as far as the endpoint uses it."""

    @property
    def is_running(self) -> bool: ...

    @property
    def stack(self) -> Stack: ...

    @property
    def journal(self) -> Journal | None: ...

    def now(self) -> float: ...

    def wake(self) -> None:
        """Request a turn, in which changes take effect."""


class AskedChannel(Protocol):
    """The channel of a member, as far as the endpoint uses it."""

    @property
    def runtime(self) -> AskedRuntime: ...

    @property
    def state(self) -> str: ...

    def member(self, name: str) -> Address:
        """Look up a known member by its name."""

    def set_attribute(self, name: str, value: object) -> None: ...

    def set_consuming(self, consuming: bool) -> int:  # noqa: FBT001 as the channel has it
        """Say whether the application takes messages; return how many waited for it."""


class Measured(Protocol):
    """A member, as far as its metrics need it."""

    @property
    def labels(self) -> Mapping[str, str]:
        """The names and values that identify the member."""

    @property
    def is_connected(self) -> bool: ...

    @property
    def view(self) -> View | None: ...

    @property
    def me(self) -> Address | None: ...

    def stats(self) -> Mapping[str, int | float]: ...

    def received_from(self) -> Mapping[str, int]:
        """Return the number of messages delivered, by their sender's name."""


class AskedMember(Measured, Protocol):
    """A member, as far as the endpoint shows and commands it."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> MemberSettings: ...

    @property
    def bound(self) -> list[str]:
        """Lines that say what is bound."""

    @property
    def channel(self) -> AskedChannel: ...

    @property
    def driver(self) -> Driver: ...

    @property
    def receiver(self) -> Receiver: ...

    def say(self, line: str) -> None: ...

    def leave(self) -> None: ...

    def set_peers(self, peers: tuple[Address, ...]) -> None:
        """Name the other members, in a stack without a group."""

    def add_loads(self, loads: tuple[Load, ...]) -> None:
        """Begin to send these loads."""
