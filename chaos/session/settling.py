"""When a run is through: everything has arrived, everyone is in one view, and silence has lasted
long enough for what is promised of it to be seen. Real time is dear, so no longer than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, Final

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.session.roster import Roster, State

STILL_SECONDS: Final = 1.5
"""Without another message for so long none is expected: longer than a sender waits before it asks
again."""
REGROUPING: Final = ("suspect_within", "verify_within", "info_within", "check_within", "merge")
"""The bounds, one after the other, of what lies between a heal and one view of all who live."""
LONGEST_WAIT: Final = 15.0
"""Seconds of silence that are worth waiting for; what takes longer is left to the simulator."""
MARGIN: Final = 0.5


class Settling:
    """Looks at members again and again, and tells when nothing more is to come."""

    def __init__(self, roster: Roster, *, is_patient: bool) -> None:
        self._roster = roster
        self._is_patient = is_patient
        """Whether it waits for what may never come, for as long as it may: where time is free."""
        self._last: dict[str, int] = {}
        self._since = 0.0

    def is_moving(self, now: float) -> bool:
        """Whether messages still arrived a moment ago, when members were last looked at."""
        return now - self._since < STILL_SECONDS

    def is_settled(self, now: float) -> bool:
        """Whether all have all that was sent and hold one view; or, where that cannot be told,
        whether nothing has come for a while."""
        roster = self._roster
        if roster.joining or roster.leaving.intersection(roster.living()):
            return False
        states = roster.states()
        if len(states) < len(roster.living()):
            return False
        received = {name: int(state["workload"]["received"]) for name, state in states.items()}
        if received != self._last:
            self._last, self._since = received, now
        if roster.has_group and not _is_one_view(states):
            return False
        is_still = not self._is_patient and now - self._since >= STILL_SECONDS
        return is_still or has_all(states, has_group=roster.has_group)


def has_all(states: Mapping[str, State], *, has_group: bool) -> bool:
    """Whether every living member has got as much from every other as that one says it sent."""
    shorts = {name: int(state["short"], 16) for name, state in states.items()}
    for source, sender in states.items():
        streams = {int(key, 16): count for key, count in sender["workload"]["streams"].items()}
        for dest, receiver in states.items():
            got = {
                int(key.rpartition(":")[2], 16): count
                for key, count in receiver["workload"]["received_from"].items()
            }
            wanted = streams.get(shorts[dest], 0) + (streams.get(0, 0) if has_group else 0)
            if source != dest and got.get(shorts[source], 0) != wanted:
                return False
    return True


def _is_one_view(states: Mapping[str, State]) -> bool:
    views = [state["view"] for state in states.values()]
    return all(view is not None and view["id"] == views[0]["id"] for view in views) and (
        not views or sorted(m["name"] for m in views[0]["members"]) == sorted(states)
    )


def quiet_seconds(evidence: Evidence, guarantees: Iterable[str], longest: float) -> float:
    """How long nothing must happen so that what the guarantees promise of it can be seen. Of quiet
    no more than the longest wait; of what is late by then, no more than is worth waiting for."""
    asked = set(guarantees)
    wanted = [0.0]
    for bounds in _promises(evidence):
        if "C1" in asked:
            quiet = _number(bounds, "quiet_within") * 1.1
            wanted.append(quiet if quiet <= longest else 0.0)
        if "L1" in asked:
            late = (_number(bounds, name) for name in ("ack_within", "resend_within"))
            wanted += [seconds for seconds in late if seconds <= LONGEST_WAIT]
    return max(wanted) + MARGIN


def regroup_seconds(evidence: Evidence) -> float:
    """How long a group may take to expel the dead and to find who was cut off."""
    bounds = list(_promises(evidence))
    return sum(max((_number(one, name) for one in bounds), default=0.0) for name in REGROUPING)


def _promises(evidence: Evidence) -> Iterable[Mapping[str, Any]]:
    for member in evidence.members.values():
        yield member.bounds
        for settings in member.protocols.values():
            yield settings.get("bounds") or {}


def _number(bounds: Mapping[str, Any], name: str) -> float:
    value = bounds.get(name)
    return float(value) if value is not None and value < inf else 0.0
