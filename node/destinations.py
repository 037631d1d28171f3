"""The members to which a channel can send, in all the ways to name one."""

from __future__ import annotations

from stormcast.node.core.errors import ConfigError, require_type
from stormcast.node.core.model import Address
from stormcast.node.core.wire import GROUP
from stormcast.node.known_members import KnownMembers
from stormcast.node.runtime import Runtime

Destination = Address | int | str | None
"""A member, its short id, its name, or None for everyone."""


class Destinations:
    """Finds a member by what an application says, and has the transport learn where it is."""

    def __init__(self, runtime: Runtime, members: KnownMembers) -> None:
        self._runtime = runtime
        self._members = members

    def find(self, dest: Destination) -> int:
        """Return the short id of a destination; GROUP for everyone."""
        if dest is None:
            return GROUP
        if isinstance(dest, int):
            return dest
        if isinstance(dest, str):
            self._runtime.check_open()
            return self._members.named(dest).short
        if not isinstance(dest, Address):
            raise ConfigError(
                f"dest is of type {type(dest).__name__}: write an Address, a short id, a member's "
                "name, or None for everyone"
            )
        if dest.short not in self._members:
            self.meet(dest)
        return dest.short

    def meet(self, dest: Address) -> None:
        """Make a member known that no view has named: its address says where it is."""
        require_type("dest", dest, Address, "an Address")
        if self._runtime.is_running:
            self._members.add(dest)
            self._runtime.transport.locate(dest)
