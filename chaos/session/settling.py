"""The end of a run: everything has arrived, all members are in one view, and silence has lasted as
long as it takes to check the promises about silence. Real time is dear, so it lasts no longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, inf, log
from typing import Any, Final

from stormcast.chaos.faults import Link
from stormcast.chaos.faults.outcome import QUEUE_SECONDS
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.oracles.evidence import TRAVELS, Evidence
from stormcast.chaos.records.rig_trace import RigTrace
from stormcast.chaos.session.roster import Roster, State
from stormcast.node.core.wire import MAX_BODY

STILL_SECONDS: Final = 1.5
"""Seconds without a new message, or a piece of one, after which none is expected, at least."""
REGROUPING: Final = ("suspect_within", "verify_within", "info_within", "check_within", "merge")
"""The bounds of the steps, one after the other, from a heal to one view of all living members."""
LONGEST_WAIT: Final = 15.0
"""Seconds of silence that are worth waiting for; longer promises are left to the simulator."""
MARGIN: Final = 0.5
KEPT_OUT: Final = ("stack.refused.transport-queue-full", "transport.dropped_queue_full")
"""Counters of frames that found the queue of the transport full."""
OVERHEAD: Final = 200
"""Bytes of a frame besides its message, at most."""
BY_CHANCE: Final = 1e-6
"""How likely it may be that repairs fail in a row although each of them might have worked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """The seconds for which the end of a run waits, by the members' own bounds."""

    quiet: float = 0.0
    """The silence at the end."""
    regroup: float = 0.0
    """The time in which a group expels the dead and finds those that were cut off."""
    hold: float = 0.0
    """The time for which members may refuse to merge, because merges came to nothing before."""
    still: float = STILL_SECONDS
    """The time without a new message after which none is expected, if no repair fails."""
    again: float = STILL_SECONDS
    """How much longer that is for each repair that fails."""

    @classmethod
    def by_promises(cls, evidence: Evidence, scenario: Scenario, *, is_virtual: bool) -> Waits:
        """Return what a scenario has to wait for, by what members recorded as they started."""
        asked = scenario.guarantees
        if is_virtual:
            # Silence costs little here, so C1's is waited for even where C1 is not asked for.
            quiet = quiet_seconds(evidence, (*asked, "C1"), inf)
        else:
            quiet = min(quiet_seconds(evidence, asked, LONGEST_WAIT), scenario.limits.settle)
        return cls(
            quiet=quiet,
            regroup=regroup_seconds(evidence),
            hold=hold_seconds(evidence),
            still=still_seconds(evidence),
            again=again_seconds(evidence),
        )


class Settling:
    """Looks at members again and again, and says when no more messages are to come."""

    def __init__(self, roster: Roster, *, is_patient: bool) -> None:
        self._roster = roster
        self.still_for = STILL_SECONDS
        """Seconds without a new message after which none is expected: longer than members wait
        before they ask or repeat."""
        self.again_for = STILL_SECONDS
        """Seconds after which what found the queue of a transport full is sent again."""
        self.tries = 1
        """How many repairs in a row it may take until one works."""
        self._is_patient = is_patient
        """Whether to wait for messages that may never come, as long as allowed: time is free."""
        self._last: dict[str, tuple[int, int]] = {}
        """Messages received, and bytes of messages that miss pieces, at the last look."""
        self._arrived = 0.0
        """The time of the last look that found other ones."""
        self._kept_out = 0
        """Frames that found the queue of a transport full, of all members, at the last look."""
        self._kept_out_before = 0
        """Those of them that did so before the last message came."""
        self.since = 0.0
        """The time of the last look that found something new."""
        self._has_gaps = False
        """Whether a member had a gap at the last look that it reports, and then repairs, when the
        gap is old enough: that may be long after everything else."""
        self.is_apart = False
        """Whether members held different views at the last look that met all of them."""

    def is_moving(self, now: float) -> bool:
        """Whether messages are to come: a look at members within the last `still_for` found new
        ones, or pieces, or frames that will have their turn in the queue of a transport, or the
        last look found a gap that will be an alarm."""
        return self._has_gaps or now - self.since < self.still_for

    def is_settled(self, now: float) -> bool:
        """Whether all members have everything and hold one view; instead of having everything it is
        enough, where time is not free, that nothing came for `still_for`."""
        roster = self._roster
        if roster.joining or roster.leaving.intersection(roster.living()):
            return False
        states = roster.states()
        if len(states) < len(roster.living()):
            return False
        self._note_progress(states, now)
        self._has_gaps = any(state["workload"]["standing_gaps"] for state in states.values())
        self.is_apart = roster.has_group and not _is_one_view(states)
        if self.is_apart or self._has_gaps:
            return False
        is_still = not self._is_patient and now - self.since >= self.still_for
        return is_still or has_all(states, has_group=roster.has_group)

    def _note_progress(self, states: Mapping[str, State], now: float) -> None:
        progress = {name: _progress(state) for name, state in states.items()}
        kept_out = sum(map(_kept_out, states.values()))
        if progress != self._last:
            self._last, self._arrived, self.since = progress, now, now
            self._kept_out_before = kept_out
        elif kept_out != self._kept_out and not self._had_turns(kept_out, now):
            self.since = now
        self._kept_out = kept_out

    def _had_turns(self, kept_out: int, now: float) -> bool:
        """Whether all frames that found a queue full have had their turn since the last message
        came, each as often as it may take. They take turns, at least one of them each time that
        they are sent again; what is still kept out after that is for members that are gone."""
        tries, times = self.tries, (now - self._arrived) / self.again_for
        if times <= 2 * tries:
            return False
        at_once = (kept_out - self._kept_out_before) / times
        return times >= tries * (at_once + 2)


def _progress(state: State) -> tuple[int, int]:
    workload = state["workload"]
    return int(workload["received"]), int(workload["unfinished_bytes"])


def _kept_out(state: State) -> int:
    return sum(int(state["stats"].get(name, 0)) for name in KEPT_OUT)


def has_all(states: Mapping[str, State], *, has_group: bool) -> bool:
    """Whether every member has got as many messages from every other as that other sent it."""
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
    """Return the seconds of silence that C1 and L1 need to be judged by the members' own bounds. A
    `quiet_within` above `longest` counts nothing, as does an L1 bound above LONGEST_WAIT."""
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


def travel_seconds(rig: RigTrace) -> float:
    """Return the seconds that an exchange takes longer because the network delays frames."""
    return TRAVELS * rig.travel


def passing_seconds(scenario: Scenario) -> float:
    """Return the seconds that an exchange takes longer on a network that is always narrow: each of
    its frames waits for others, and takes a while to pass."""
    rate = scenario.network.bandwidth
    if rate is None:
        return 0.0
    largest = min(scenario.largest, MAX_BODY) + OVERHEAD
    return TRAVELS * (QUEUE_SECONDS + largest / rate)


def landing_seconds(rig: RigTrace, now: float, longest: float) -> float:
    """Return the seconds until silence can begin: until what faults delayed has arrived, and for as
    long as an exchange takes longer; at most `longest`."""
    return min(longest, max(0.0, rig.landed_at - now) + travel_seconds(rig))


def still_seconds(evidence: Evidence) -> float:
    """Return the seconds without a new message after which none is expected, by what members say of
    their acks, repeats and requests. Where the last messages are lost, one step follows the other:
    what came is acked, the last one is repeated or announced, and then those before it are asked
    for, each after a second look at most."""
    acked = max(map(_delayed_ack, _promises(evidence)), default=0.0)
    asked = 2 * _most(evidence, "request_spacing")
    repeated = max(_most(evidence, "resend_within"), asked)
    return max(STILL_SECONDS, (acked + repeated + asked) * 1.1)


def again_seconds(evidence: Evidence) -> float:
    """Return the seconds after which a repair that failed is tried again."""
    repeated = _most(evidence, "resend_within") * 1.1
    asked = _most(evidence, "request_spacing") * 2.2
    return max(STILL_SECONDS, repeated, asked)


def _delayed_ack(bounds: Mapping[str, Any]) -> float:
    """Return the seconds by which an ack delays the repeat that follows it. A sender that is hardly
    ever acked (UNICAST2) does not wait for that."""
    looks = max(_number(bounds, "resend_interval"), 2 * _number(bounds, "request_spacing"))
    return min(_number(bounds, "ack_within"), looks)


def _most(evidence: Evidence, name: str) -> float:
    """Return the largest of a bound that members promise; 0 where nobody does."""
    return max((_number(bounds, name) for bounds in _promises(evidence)), default=0.0)


def vain_repairs(network: Link) -> int:
    """Return how many repairs in a row, each a request and its answer, may fail by chance on a
    network that always loses frames; 1 on one that loses none."""
    arrives = (1.0 - network.loss) * (1.0 - network.corrupt)
    fails = 1.0 - arrives * arrives
    if not 0.0 < fails < 1.0:
        return 1
    return ceil(log(BY_CHANCE) / log(fails))


def regroup_seconds(evidence: Evidence) -> float:
    """Return the seconds that a group may take to expel the dead and to find those cut off."""
    return sum(_most(evidence, name) for name in REGROUPING)


def hold_seconds(evidence: Evidence) -> float:
    """Return the seconds for which members may refuse to merge after the last heal, because merges
    came to nothing before."""
    return _most(evidence, "merge_hold")


def _promises(evidence: Evidence) -> Iterable[Mapping[str, Any]]:
    for member in evidence.members.values():
        yield member.bounds
        for settings in member.protocols.values():
            yield settings.get("bounds") or {}


def _number(bounds: Mapping[str, Any], name: str) -> float:
    value = bounds.get(name)
    return float(value) if value is not None and value < inf else 0.0
