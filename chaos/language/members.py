"""How a scenario names members."""

from __future__ import annotations

from stormcast.node.reading.items import Item
from stormcast.node.reading.notations import Names, Notation, some_of


def members_of(members: Names, *, everyone: Names | None = None) -> Notation:
    """`all`, a member, or a list of members; `everyone` is what `all` stands for."""
    everyone = members if everyone is None else everyone
    some = some_of(members, "member", at_least=1)

    def read(item: Item) -> Names:
        if not item.is_list() and item.one_of(["all", *members], "member") == "all":
            return everyone
        names: Names = some.read(item)
        return names

    return Notation(read, lambda value: "all" if value == everyone else some.write(value))
