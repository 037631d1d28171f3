"""V1 to V4, views: one id names one list, members are in their views, ids grow, all end in one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.groups import Installed, view_at
from stormcast.chaos.oracles.history import Member, Span, Violation
from stormcast.chaos.oracles.rig_record import RigRecord
from stormcast.node.trace import CLEARED, CONFIRMED, REGULAR, SUSPECT, Event

VERIFIER: Final = "VERIFY_SUSPECT2"
"""With this protocol in the stack, no member is left out of a view without being asked."""
KEEPS_APART: Final = frozenset({"partition", "cut"})
"""Faults that keep members from agreeing on a view while they last."""


def one_list(evidence: Evidence) -> Iterator[Violation]:
    """V1: ids of views that name two lists of members."""
    known: dict[tuple[int, int], tuple[Member, Installed]] = {}
    for member in evidence.members.values():
        for view in member.views:
            other, first = known.setdefault(view.id, (member, view))
            if first.members != view.members:
                detail = (
                    f"view {view.number} of {evidence.find(view.creator).name} has two lists "
                    "of members"
                )
                yield Violation(view.time, detail, ((other, first.event), (member, view.event)))


def own_views(evidence: Evidence) -> Iterator[Violation]:
    """V2: views that do not contain the member that installed them, or that leave out a living
    member which was not asked."""
    for member in evidence.members.values():
        for view in member.views:
            if member.short not in view.members:
                detail = f"{member.name} installed view {view.number}, in which it is not"
                yield Violation(view.time, detail, ((member, view.event),))
        if VERIFIER in member.protocols and not _has_views_by_hand(evidence):
            yield from _put_out_unheard(evidence, member)


def _put_out_unheard(evidence: Evidence, member: Member) -> Iterator[Violation]:
    """Living members that this one left out of a view without having confirmed them to be dead."""
    confirmed: set[int] = set()
    """Members that were confirmed since they last came into its view, and not cleared since."""
    at = 0
    for before, view in pairwise(member.views):
        while (event := member.events[at]) is not view.event:
            if event.kind == SUSPECT:
                _hear(confirmed, event)
            at += 1
        if view.creator == member.short and view.event.stream == REGULAR:
            heard = confirmed.union(view.members)
            gone = (evidence.find(short) for short in before.members if short not in heard)
            yield from (_unheard(member, before, view, one) for one in gone if one.lives)
        confirmed -= {*view.members} - {*before.members}


def _hear(confirmed: set[int], event: Event) -> None:
    """Take what one event says of a suspect."""
    if event.stream == CONFIRMED:
        confirmed.add(event.peer)
    elif event.stream == CLEARED:
        confirmed.discard(event.peer)


def _unheard(member: Member, before: Installed, view: Installed, gone: Member) -> Violation:
    detail = (
        f"view {view.number} is without {gone.name}, which lives, and was not confirmed to be dead"
    )
    return Violation(view.time, detail, ((member, before.event), (member, view.event)))


def _has_views_by_hand(evidence: Evidence) -> bool:
    """Whether the rig installed views: then any member may be left out."""
    return any(step.do == "install-view" for step in evidence.rig.steps)


def growing_ids(evidence: Evidence) -> Iterator[Violation]:
    """V3: views whose number is not above that of the view before."""
    for member in evidence.members.values():
        for before, view in pairwise(member.views):
            if view.number <= before.number:
                detail = f"view {view.number} was installed after view {before.number}"
                yield Violation(view.time, detail, ((member, before.event), (member, view.event)))


def one_view(evidence: Evidence) -> Iterator[Violation]:
    """V4: living members that do not end in one view of just the living ones.

    Members go on for a moment after the end, and may part in it: those views are not of the run.
    """
    living = [
        member
        for member in evidence.members.values()
        if member.lives and (member.views or "GMS" in member.protocols)
    ]
    if not evidence.has_group or _is_kept_apart(evidence):
        return
    expected = {member.short for member in living}
    reference: tuple[Member, Installed] | None = None
    for member in living:
        view = view_at(member, evidence.rig.end)
        if view is None:
            detail = f"{member.name} ended without a view"
            yield Violation(evidence.rig.end, detail, ((member, member.events[0]),))
            continue
        if set(view.members) != expected:
            detail = _odd(evidence, member, view, expected)
            yield Violation(evidence.rig.end, detail, ((member, view.event),))
        if reference is None:
            reference = member, view
        other, held = reference
        if held.id != view.id:
            detail = f"{other.name} and {member.name} ended in two views"
            yield Violation(evidence.rig.end, detail, ((other, held.event), (member, view.event)))


def _is_kept_apart(evidence: Evidence) -> bool:
    """Whether a fault that never ended, or a late pause, may keep members apart."""
    return not KEEPS_APART.isdisjoint(evidence.rig.standing.values()) or any(
        _is_late(span, evidence.rig)
        for member in evidence.members.values()
        if member.lives
        for span in member.paused
    )


def _is_late(pause: Span, rig: RigRecord) -> bool:
    """Whether a pause lasted into the quiet phase, and longer than what was left of the run: after
    a longer rest members have had time to come together again."""
    return pause.end > rig.quiet and rig.end - pause.end < pause.end - pause.start


def _odd(evidence: Evidence, member: Member, view: Installed, expected: set[int]) -> str:
    """Describe a last view: the living members it lacks, and its members that had ended."""
    missing = sorted(evidence.find(short).name for short in expected - {*view.members})
    gone = sorted(evidence.find(short).name for short in {*view.members} - expected)
    parts = [f"without {', '.join(missing)}"] if missing else []
    parts += [f"with {', '.join(gone)}, which had ended"] if gone else []
    return f"{member.name} ended in view {view.number} {' and '.join(parts)}"
