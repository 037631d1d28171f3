"""The members that a channel knows: those of the view, those that it has met, and former ones."""

from __future__ import annotations

from stormcast.node.core.errors import ConfigError
from stormcast.node.core.model import Address, View


class KnownMembers:
    """Addresses by short id, in the order in which they became known."""

    def __init__(self) -> None:
        self._known: dict[int, Address] = {}
        """All of them, so that a message that comes late, of one that has left, has a sender."""
        self._there: dict[int, Address] = {}
        """Those that a name can stand for: members of the view, and those of `_met`."""
        self._met: set[int] = set()
        """Those that were met while no view had them, and that no view has had since."""

    def __contains__(self, short: int) -> bool:
        return short in self._known

    def add(self, member: Address) -> None:
        """Remember a member that no view has named."""
        self._known[member.short] = member
        if member.short not in self._there:
            self._met.add(member.short)
        self._there[member.short] = member

    def on_view(self, view: View) -> None:
        """Add the members of a view; forget all others once those are the larger part."""
        members = {member.short: member for member in view.members}
        self._met.difference_update(members)
        self._known.update(members)
        if len(self._known) > 2 * len(members):
            self._known = dict(members)
            self._met.clear()
        stay = self._met | members.keys()
        self._there = {short: one for short, one in self._there.items() if short in stay} | members

    def of(self, short: int) -> Address:
        """Return the address of a short id; an unknown one has its short id for a name."""
        return self._known.get(short) or Address(short, f"{short:08x}")

    def named(self, name: str) -> Address:
        """Look up a member by its name; of two with one name, the one that came last."""
        for address in reversed(self._there.values()):
            if address.name == name:
                return address
        raise ConfigError(
            f"no member named {name!r} in the view; "
            f"there is {', '.join(sorted(map(str, self._there.values()))) or 'nobody'}"
        )
