"""Known bugs of whole groups that need few groups meet: long paths, cuts of minutes, merges of
few participants, endless lives, alarms in the moment in which a window is completed."""

from __future__ import annotations

from typing import Any

from stormcast.node.core import acks, gaps, wire
from stormcast.node.protocols import port
from stormcast.node.protocols.frag import LEAST_EXPIRY, Reassembler
from stormcast.node.protocols.gms import repeats
from stormcast.node.protocols.merge3 import Merge3, merge3
from stormcast.node.protocols.multicast import feedback
from stormcast.node.protocols.multicast.alarms import Alarms
from stormcast.node.protocols.multicast.asking import Asking
from stormcast.node.protocols.multicast.baselines import Baselines
from stormcast.node.protocols.multicast.reports import AckDelivered
from stormcast.node.protocols.multicast.state import ALARM
from stormcast.node.protocols.unicast import resync
from tests.mutants.groups import mutant
from tests.mutants.patches import Patches


@mutant("P-23 merge3", ("V4", "G8"), extras=("long paths",))
def merges_do_not_wait_for_far_members(patches: Patches) -> None:
    """Answers that come later than a tenth of the check interval do not count."""

    @patches.method(Merge3)
    def _wait_longer_or_conclude(self: Any, _now: float) -> None:
        self._conclude()


@mutant("max_participants", ("V4", "G8"), extras=("few participants",))
def merges_ask_members_of_one_view(patches: Patches) -> None:
    """The members that a merge asks may all be of one view, the first by their identity."""

    def chosen(heard: Any, view: Any, limit: int) -> Any:
        if len(set(heard.values())) == 1:
            return []
        by_id: dict[Any, list[Any]] = {}
        for member, view_id in heard.items():
            by_id.setdefault(view_id, []).append(member)
        asked = {view_id.creator for view_id in by_id} | {view.coordinator}
        asked |= {min(holders, key=merge3._identity) for holders in by_id.values()}
        ordered = sorted(asked, key=merge3._identity)
        return ordered[: max(limit, len(view.members) // 3)] if limit else ordered

    patches.put(merge3, "_chosen", chosen)


@mutant("repeats", ("G1", "G8", "L1", "G5"), extras=("long cut",))
def repeats_stay_at_the_255th(patches: Patches) -> None:
    """From the 255th on all repeats have one number, and so one fate."""
    for module in (acks, feedback, gaps, port, repeats, resync):
        if hasattr(module, "told_apart"):
            patches.put(module, "told_apart", lambda tries: min(tries, 255))
    patches.put(wire, "told_apart", lambda tries: min(tries, 255))


@mutant("fragments, ageing", ("G1",), story="pieces-for-a-stranger-that-never-gives-up-1")
def pieces_of_strangers_go_after_a_minute(patches: Patches) -> None:
    """What a stranger began is given up after a minute, though its sender goes on for ever."""
    patches.put(Reassembler, "_expiry", LEAST_EXPIRY)
    patches.put(Reassembler, "_long_expiry", LEAST_EXPIRY)


@mutant("alarms", ("A1", "G1", "G8"), story="an-alarm-that-is-due-while-a-window-is-completed-1")
def alarms_remember_gaps_that_were_asked_for(patches: Patches) -> None:
    """A gap that was asked for stays noted as one that an alarm is set for."""
    old_look, old_desync = Alarms.look, Baselines.desync

    @patches.method(Alarms)
    def look(self: Any, entry: Any, now: float) -> None:
        if not self._state.looks_at(entry):
            old_look(self, entry, now)

    @patches.method(Baselines)
    def desync(self: Any, entry: Any, now: float) -> None:
        gap_at, due = entry.gap_at, self._timers.due((ALARM, entry.peer))
        old_desync(self, entry, now)
        entry.gap_at = gap_at
        self._timers.set((ALARM, entry.peer), due)


@mutant("alarms", ("A1", "G1", "G8"), story="a-gap-above-what-completes-a-window-1")
def gaps_above_an_answer_are_not_noticed(patches: Patches) -> None:
    """A gap that is left when a window is completed gets neither a request nor an alarm."""
    old_look, old_notice, old_check = Asking.look, Asking.notice, Baselines.check
    completed: list[Any] = []

    @patches.method(Asking)
    def look(self: Any, entry: Any, now: float) -> None:
        if self._state.looks_at(entry):
            old_look(self, entry, now)

    @patches.method(Asking)
    def notice(self: Any, entry: Any, now: float) -> None:
        if not completed:
            old_notice(self, entry, now)
        completed.clear()

    @patches.method(Baselines)
    def check(self: Any, entry: Any) -> None:
        was_synced = entry.is_synced
        old_check(self, entry)
        if entry.is_synced and not was_synced and entry.window.has_gap():
            completed.append(entry)


@mutant("acks", ("G8", "C1"), story="acks-of-an-interval-that-changed-1")
def acks_wait_by_the_old_interval(patches: Patches) -> None:
    """An ack that waits leaves by the interval of its time, whatever is set later."""

    @patches.method(AckDelivered)
    def repace(_self: Any, _entry: Any, _now: float) -> None:
        return
