"""Pure functions that decide who is in the next view, in which order, and who coordinates it.

Membership and failure detection call the same functions. If they disagreed about who coordinates
next, nobody would act when a coordinator fails (JGRP-2952).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from stormcast.node.core.model import Address


def next_members(
    members: Sequence[Address],
    joiners: Iterable[Address],
    leavers: Collection[Address],
    suspects: Collection[Address],
) -> tuple[Address, ...]:
    """The members of the next view: survivors keep their order, joiners follow as they came.

    So the oldest member coordinates. A joiner that is a member already keeps its place.
    """
    gone = {*leavers, *suspects}
    survivors = [member for member in members if member not in gone]
    return tuple(dict.fromkeys([*survivors, *joiners]))


def merge_members(groups: Iterable[Sequence[Address]]) -> tuple[Address, ...]:
    """The members of a merged view, each once.

    The lowest identity among the first members of the groups comes first, so that all who compute
    this find the same leader; then all groups follow, ordered by their first members.
    """
    ordered = sorted(
        (tuple(group) for group in groups if group),
        key=lambda group: [member.identity for member in group],
    )
    leaders = [ordered[0][0]] if ordered else []
    return tuple(dict.fromkeys([*leaders, *(member for group in ordered for member in group)]))


def is_first(me: Address, members: Sequence[Address], without: Collection[Address]) -> bool:
    """Whether `me` coordinates once the members in `without` are gone."""
    remaining = next_members(members, (), without, ())
    return bool(remaining) and remaining[0] == me
