"""The verdict on a history: what a model says of it, and whether the run proves anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from types import MappingProxyType
from typing import Final

from stormcast.chaos.histories import list_append, queues, register, sets, transactions
from stormcast.chaos.histories.operations import NEVER, History, HistoryError, Operation
from stormcast.chaos.histories.quiet import Quiet
from stormcast.findings import RUN, Finding, Verdict

MOST_FINDINGS: Final = 20
"""Findings of one model, the gravest first; a history of many keys may break each."""


@dataclass(frozen=True, slots=True)
class FaultWindow:
    """The time in which a fault was done, on the clock of the history."""

    start: float
    end: float
    name: str

    def __post_init__(self) -> None:
        if not (isfinite(self.start) and isfinite(self.end) and self.start <= self.end):
            raise HistoryError(
                f"fault {self.name} lasts from {self.start} to {self.end}: give two times, the "
                "second not before the first"
            )

    def strikes(self, operation: Operation) -> bool:
        """Whether an operation was surely under way in it: nobody knows how long one was that has
        no end."""
        until = operation.start if operation.ended == NEVER else operation.end
        return operation.start <= self.end and until >= self.start


@dataclass(frozen=True, slots=True)
class Model:
    """An object that clients may use, and what is promised of it."""

    guarantee: str
    malformed: Callable[[Operation], str]
    """Returns what is wrong with an operation that is none of this object."""
    is_read: Callable[[Operation], bool]
    check: Callable[[History, Quiet], list[Finding]]
    """Returns violations and doubts, of a history in which nothing is malformed."""


MODELS: Final[Mapping[str, Model]] = MappingProxyType(
    {
        "register": Model("H1", register.malformed, register.is_read, register.check),
        "set": Model("H2", sets.malformed, sets.is_read, sets.check),
        "queue": Model("H3", queues.malformed, queues.is_read, queues.check),
        "list-append": Model(
            "H4", transactions.malformed, transactions.is_read, list_append.check_strict
        ),
        "list-append-serial": Model(
            "H4", transactions.malformed, transactions.is_read, list_append.check_serial
        ),
    }
)


def judge(
    history: History, model: str, windows: Sequence[FaultWindow], settle: float = 0.0
) -> tuple[Finding, ...]:
    """Judge a history by a model, and whether it proves anything. The guest may take `settle`
    seconds after the last fault, and after the last change, until reads must show everything."""
    chosen = MODELS.get(model)
    if chosen is None:
        raise HistoryError(f"there is no model {model}: choose one of {', '.join(MODELS)}")
    if not (isfinite(settle) and settle >= 0):
        raise HistoryError(f"settle is {settle}: give seconds, from 0 on")
    healed = max((window.end for window in windows), default=0.0)
    found = _judged(history, chosen, Quiet(healed, settle))
    return (*found, *_doubts(history, chosen, windows))


def _judged(history: History, model: Model, quiet: Quiet) -> list[Finding]:
    """Return what the model says; one finding that it holds if it says nothing."""
    problems = [*history.problems]
    count = history.problem_count
    for one in history.operations:
        if why := model.malformed(one):
            count += 1
            line = one.ended if one.is_ok else one.invoked
            problems.append(f"{history.source}:{line}: {why}")
    if count:
        detail = f"{count} problems in the history, the first: {problems[0]}"
        return [Finding(model.guarantee, Verdict.UNKNOWN, detail, tuple(problems[:MOST_FINDINGS]))]
    try:
        found = model.check(history, quiet)
    except Exception as error:  # noqa: BLE001 a crashed check proves nothing, whatever crashed it
        return [Finding(model.guarantee, Verdict.UNKNOWN, f"its check crashed: {error!r}")]
    if not found:
        detail = f"no violation found in {len(history.operations)} operations"
        return [Finding(model.guarantee, Verdict.HOLDS, detail)]
    found.sort(key=lambda one: (-one.verdict.value, one.at or 0.0))
    return found[:MOST_FINDINGS]


def _doubts(history: History, model: Model, windows: Sequence[FaultWindow]) -> Iterator[Finding]:
    """Yield the reasons why a history without violations still proves nothing."""
    succeeded = [one for one in history.operations if one.is_ok]
    if not succeeded:
        yield Finding(RUN, Verdict.UNKNOWN, "no operation succeeded")
    elif not any(model.is_read(one) for one in succeeded if not model.malformed(one)):
        yield Finding(RUN, Verdict.UNKNOWN, "nothing was read")
    if not windows:
        yield Finding(RUN, Verdict.UNKNOWN, "no fault was done, so nothing struck")
    for window in windows:
        if not any(window.strikes(one) for one in history.operations):
            detail = (
                f"fault {window.name} did not strike: no operation was under way from "
                f"{window.start:g}s to {window.end:g}s"
            )
            yield Finding(RUN, Verdict.UNKNOWN, detail)
