"""The verdict on a run with guests: what the history shows, whether guests are ready again, and
whether the run proves anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from stormcast.chaos.guests.scenario import GuestScenario
from stormcast.chaos.histories.judging import FaultWindow, judge
from stormcast.chaos.histories.operations import History
from stormcast.chaos.histories.readiness import judge_readiness
from stormcast.chaos.oracles.verdict import RUN, Finding, Judgement, Verdict, worst

CLOCK_SECONDS: Final = 0.001
"""A time of a history may be rounded by so much."""


@dataclass(slots=True, kw_only=True)
class Seen:
    """Everything that is known of a run. Times are seconds from its beginning."""

    history: History | None = None
    """None: there is no client."""
    seconds: float = 0.0
    windows: list[FaultWindow] = field(default_factory=list)
    bites: Mapping[str, int] = field(default_factory=dict)
    samples: Mapping[str, list[tuple[float, bool]]] = field(default_factory=dict)
    """Of each guest that says when it is ready: the times at which it was asked, and the answers.
    """
    stayed_down: frozenset[str] = frozenset()
    """Guests that were killed and not started again: nobody expects them to be ready."""
    ended: set[str] = field(default_factory=set)
    """Guests that ended by themselves."""
    doubts: list[str] = field(default_factory=list)
    """Why the run proves nothing, as far as its player knows."""


def judge_guests(scenario: GuestScenario, seen: Seen) -> Judgement:
    """Judge a run."""
    found = tuple(_findings(scenario, seen))
    return Judgement(worst(finding.verdict for finding in found), found)


def _findings(scenario: GuestScenario, seen: Seen) -> Iterator[Finding]:
    told: list[Finding] = []
    if scenario.client is not None and seen.history is not None:
        told += _of_history(scenario, seen, seen.history)
    told += _of_readiness(scenario, seen)
    told += (_doubt(text) for text in seen.doubts)
    if not seen.windows:
        told.append(_doubt("no fault was done, so nothing struck"))
    told += (
        _doubt(f"fault {fault} had no effect") for fault, number in seen.bites.items() if not number
    )
    # The history's judge and the player may have the same doubt.
    yield from dict.fromkeys(told)


def _of_history(scenario: GuestScenario, seen: Seen, history: History) -> Iterator[Finding]:
    assert scenario.client is not None
    if not history.operations and not history.problems:
        yield _doubt("the client printed no operation; its log is in logs/client")
        return
    late = [
        one
        for one in history.operations
        if max(one.start, one.end if one.end < float("inf") else 0.0) > seen.seconds + CLOCK_SECONDS
    ]
    if late:
        # A clock of its own says nothing of which operations met a fault, and violations that
        # follow from times are none.
        problem = (
            f"{history.source}:{late[0].invoked}: its time is after the end of the run: take it "
            "from the monotonic clock, less STORMCAST_ZERO"
        )
        history = replace(history, problems=(*history.problems, problem), problem_count=1)
    yield from judge(history, scenario.client.model, seen.windows, scenario.client.settle)


def _of_readiness(scenario: GuestScenario, seen: Seen) -> Iterator[Finding]:
    if scenario.expect is None:
        return
    heals = [window.end for window in seen.windows]
    asked = [name for name in seen.samples if name not in seen.stayed_down]
    for name in asked:
        found = judge_readiness(seen.samples[name], heals, scenario.expect.ready_within)
        if name in seen.ended and found.verdict is Verdict.VIOLATED:
            # Whoever ended it, such as a machine without memory, may be why it is not ready.
            found = replace(found, verdict=Verdict.UNKNOWN, detail=f"{found.detail}; it had ended")
        yield replace(found, detail=f"{name}: {found.detail}")
    if not asked:
        yield _doubt("no guest that says when it is ready was left: all were killed for good")


def _doubt(text: str) -> Finding:
    return Finding(RUN, Verdict.UNKNOWN, text)
