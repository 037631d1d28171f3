"""Finds how a scenario fails, and whether another scenario fails in the same way."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Final, NamedTuple

from stormcast.chaos import faults
from stormcast.chaos.campaigns.fingerprint import kind_of, words_of
from stormcast.chaos.language.scenario import Scenario, dump
from stormcast.chaos.language.schedule import schedule
from stormcast.chaos.oracles.verdict import Finding, Verdict
from stormcast.chaos.session.outcome import RunOutcome

ROOM: Final = 10
"""The least number of control frames that a budget must allow: a share of very few messages proves
nothing."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a failing scenario and of its run."""

    members: int
    loads: int
    steps: int
    messages: int
    events: int
    seconds: float
    """Virtual seconds of the run."""
    size_bytes: int

    def as_json(self) -> dict[str, int | float]:
        """Return a part of the object that `stormcast shrink --json` prints."""
        return asdict(self) | {"seconds": round(self.seconds, 6)}

    def __str__(self) -> str:
        return (
            f"{_many(self.members, 'member')}, {_many(self.loads, 'load')}, "
            f"{_many(self.steps, 'step')}, {_many(self.messages, 'message')}, "
            f"{_many(self.events, 'event')}, {self.seconds:.1f} virtual seconds, "
            f"{self.size_bytes} bytes"
        )


def _many(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class Found(NamedTuple):
    """A failing scenario, its failure and its size."""

    scenario: Scenario
    failure: Finding
    size: Size


class NothingToShrink(Exception):
    """The run does not fail as asked; the text says what came of it instead."""

    def __init__(self, why: str, verdict: Verdict) -> None:
        super().__init__(why)
        self.verdict = verdict
        """The verdict of the run."""


def violations(outcome: RunOutcome, guarantee: str | None = None) -> list[Finding]:
    """Return the violations of a run, of one guarantee or of all."""
    return [
        finding
        for finding in outcome.judgement.findings
        if finding.verdict is Verdict.VIOLATED and guarantee in (None, finding.guarantee)
    ]


def first_failure(scenario: Scenario, outcome: RunOutcome, guarantee: str | None) -> Found:
    """Return the first failure of the run to be shrunk; NothingToShrink if it does not fail."""
    failures = violations(outcome, guarantee)
    if not failures:
        raise NothingToShrink(_why_nothing(outcome, guarantee), outcome.verdict)
    return Found(scenario, failures[0], size_of(scenario, outcome))


def same_failure(first: Found, candidate: Scenario, outcome: RunOutcome) -> Found | None:
    """Return the failure of a candidate, if it is the same as that of the first scenario."""
    # The names of both scenarios: a word that is a name in one must not be text in the other.
    names = {*first.scenario.cluster.members, *candidate.cluster.members}
    kind = kind_of(words_of(first.failure), names)
    for finding in violations(outcome, first.failure.guarantee):
        if kind_of(words_of(finding), names) == kind:
            found = Found(candidate, finding, size_of(candidate, outcome))
            return found if _is_proof(first, found) else None
    return None


def is_fair(guarantee: str, candidate: Scenario, best: Scenario) -> bool:
    """Whether deadlines are no harder to keep than before: the last step of the candidate is not
    later, and no more members stay down."""
    if guarantee != "G8" or not candidate.expect:
        return True
    pairs = zip(_aftermath(candidate), _aftermath(best), strict=True)
    return all(now <= before for now, before in pairs)


def _is_proof(first: Found, found: Found) -> bool:
    """Whether a run was long enough to be judged as the first one was."""
    if found.failure.guarantee == "C1":
        room = min(ROOM, _room(first.scenario, first.size.messages))
        return _room(found.scenario, found.size.messages) >= room
    if found.failure.guarantee == "G8":
        # In a run that ends before its deadline, the expected might still have happened in time.
        deadline = max((one.by for one in found.scenario.expect), default=0.0)
        return found.size.seconds >= min(deadline, first.size.seconds)
    return True


def _aftermath(scenario: Scenario) -> tuple[float, int]:
    """Return the time of the last step, and how many members are down from then on."""
    # Any seed will do: it chooses members, not times.
    steps, down = schedule(scenario, 0), set()
    for step in steps:
        match step.action:
            case faults.Crash(member=member) | faults.Leave(member=member):
                down.add(member)
            case faults.Restart(member=member) | faults.Join(member=member):
                down.discard(member)
    return max((step.at for step in steps), default=0.0), len(down)


def _room(scenario: Scenario, messages: int) -> float:
    """Return how many control frames the tightest share of the budget allows for `messages`."""
    budget = scenario.budget
    shares = (budget.acks, budget.resends) if budget is not None else ()
    return min((share * messages for share in shares if share is not None), default=inf)


def _why_nothing(outcome: RunOutcome, guarantee: str | None) -> str:
    """Return the text that says why a run does not fail as asked."""
    others = list(dict.fromkeys(finding.guarantee for finding in violations(outcome)))
    if others:
        return f"the run violates {', '.join(others)}, but not {guarantee}"
    doubts = [one for one in outcome.judgement.findings if one.verdict is Verdict.UNKNOWN]
    if doubts:
        return f"the run is unknown: {doubts[0].guarantee}: {doubts[0].detail}"
    return "the run holds"


def size_of(scenario: Scenario, outcome: RunOutcome) -> Size:
    """Return the size of a scenario and of its run."""
    text = dump(replace(scenario, about=""))
    return Size(
        len(scenario.cluster.members),
        len(scenario.workload),
        len(scenario.timeline),
        outcome.run.sent,
        outcome.run.events,
        outcome.run.seconds,
        len(text.encode()),
    )
