"""Pure functions that decide who leads a merge, who is asked, and what the merge view is."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from stormcast.node.core.digest import Digest
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.policy import merge_members
from stormcast.node.protocols.gms.messages import MergeAnswer


def by_identity(addresses: Collection[Address]) -> list[Address]:
    """Return each address once, in an order that all members compute alike."""
    return sorted(set(addresses), key=lambda address: address.identity)


def leader_of(views: Mapping[Address, View]) -> Address:
    """Return who leads the merge of these reported views: a member that reported, so it is alive.

    Of these it is the lowest that coordinates the view it holds; where none does, because all
    coordinators are gone, the lowest that created one of the views (JGRP-2092), else the lowest.
    """
    coordinators = [member for member, view in views.items() if view.coordinator == member]
    creators = [view.id.creator for view in views.values() if view.id.creator in views]
    return by_identity(coordinators or creators or views.keys())[0]


def speakers_of(views: Mapping[Address, View]) -> list[Address]:
    """Return the members to ask first: the coordinators that reported, and every member that is in
    none of their views, which would otherwise be forgotten (JGRP-1910)."""
    coordinators = [member for member, view in views.items() if view.coordinator == member]
    covered = {member for speaker in coordinators for member in views[speaker].members}
    everyone = {*views, *(member for view in views.values() for member in view.members)}
    return by_identity([*coordinators, *(everyone - covered)])


def groups_of(
    answers: Mapping[Address, MergeAnswer], heard: Mapping[Address, ViewId]
) -> dict[View, tuple[Address, ...]]:
    """Return the members that take part, by the view they hold, in that view's order.

    Each member counts for the view it holds itself, so overlapping views become groups without
    overlap. A group with a member that is busy with another merge stays out as a whole: splitting
    it would only make more to merge. So does one whose coordinator or creator was heard to hold
    its view, and does not answer: it is heard and does not hear, and would take its members back.
    """
    silent = {(member, held) for member, held in heard.items() if member not in answers}
    out = {
        answer.view
        for answer in answers.values()
        if answer.is_rejected or not silent.isdisjoint(_leading(answer.view))
    }
    holders: dict[View, set[Address]] = {}
    for member, answer in answers.items():
        if answer.view not in out:
            holders.setdefault(answer.view, set()).add(member)
    return {
        view: tuple(member for member in view.members if member in group)
        for view, group in holders.items()
    }


def _leading(view: View) -> tuple[tuple[Address, ViewId], ...]:
    """Return who may lead a merge because of a view, each with its id."""
    return (view.coordinator, view.id), (view.id.creator, view.id)


def merged_members(groups: Mapping[View, tuple[Address, ...]]) -> tuple[Address, ...]:
    """The members of the merge view, in order."""
    return merge_members(groups.values())


def merged_digest(members: Collection[Address], answers: Mapping[Address, MergeAnswer]) -> Digest:
    """Return where each sender's stream goes on, as the sender itself said."""
    return Digest({m.short: answers[m].digest[m.short] for m in members})


def partners_of(groups: Mapping[View, tuple[Address, ...]]) -> dict[Address, frozenset[int]]:
    """Return for each member the members that had it in the view they held."""
    partners: dict[Address, set[int]] = {m: set() for group in groups.values() for m in group}
    for view, group in groups.items():
        shorts = [holder.short for holder in group]
        for member in view.members:
            if member in partners:
                partners[member].update(shorts)
    return {member: frozenset(shorts) for member, shorts in partners.items()}
