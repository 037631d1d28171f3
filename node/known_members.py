"""The members that a channel knows: those of the view, and those that it has met."""

from __future__ import annotations

from stormcast.node.core.errors import ConfigError
from stormcast.node.core.model import Address, View


class KnownMembers:
    """Addresses by short id, in the order in which they became known."""

    def __init__(self) -> None:
        self._known: dict[int, Address] = {}

    def __contains__(self, short: int) -> bool:
        return short in self._known

    def add(self, member: Address) -> None:
        """Remember a member that no view has named."""
        self._known[member.short] = member

    def on_view(self, view: View) -> None:
        """Add the members of a view; forget all others once those are the larger part."""
        members = {member.short: member for member in view.members}
        self._known.update(members)
        if len(self._known) > 2 * len(members):
            self._known = members

    def of(self, short: int) -> Address:
        """Return the address of a short id; an unknown one has its short id for a name."""
        return self._known.get(short) or Address(short, f"{short:08x}")

    def named(self, name: str) -> Address:
        """Look up a member by its name; of two with one name, the one that came last."""
        for address in reversed(self._known.values()):
            if address.name == name:
                return address
        raise ConfigError(
            f"no member named {name!r} in the view; "
            f"there is {', '.join(sorted(map(str, self._known.values()))) or 'nobody'}"
        )
