"""H1, register: each key is one register, linearizable, with read, write and compare-and-set."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from stormcast.chaos.histories.linearizable import Answer, Call, search
from stormcast.chaos.histories.operations import NEVER, History, Operation, Outcome
from stormcast.chaos.histories.values import NULL, Value, shown
from stormcast.findings import Finding, Verdict

GUARANTEE: Final = "H1"
MOST_STEPS: Final = 1_000_000
"""Steps of the search through a whole history; what is not decided by then is `unknown`."""
MOST_WITNESS_STEPS: Final = 200_000
"""Steps in which the witness of a violation is made small. It is as small as it is by then."""
MOST_STATES: Final = 5
"""States that a finding lists."""
MOST_WITNESS: Final = 12
"""Operations that a witness shows."""
_PAIR: Final = 2


def malformed(operation: Operation) -> str:
    """Return what no operation on a register looks like; nothing if it is one."""
    asked, result = operation.argument, operation.result
    match operation.f:
        case "read":
            if operation.is_ok and result is None:
                return "the ok of a read has no value: write what was read, or null"
        case "write":
            if asked is None or asked == NULL:
                return "a write has no value, or null, which stands for a register never written"
        case "cas":
            if not isinstance(asked, tuple) or len(asked) != _PAIR or asked[1] == NULL:
                return "the value of a cas is not [expected, new]"
        case _:
            return "no operation of a register: read, write, cas"
    if operation.f != "read" and result not in {None, asked}:
        return f"the ok of a {operation.f} has another value than its invocation"
    return ""


def is_read(operation: Operation) -> bool:
    """Whether the operation says what the register holds."""
    return operation.f in {"read", "cas"}


def check(history: History, _quiet: object) -> list[Finding]:
    """Return a finding for each key that is no register, and each on which the search gave up."""
    found: list[Finding] = []
    left = MOST_STEPS
    # Small ones first: a hard key takes no steps from the others.
    for key, calls in sorted(_calls_of(history).items(), key=lambda item: len(item[1])):
        answer = search(calls, NULL, left)
        left = max(0, left - answer.steps)
        if not answer.is_decided:
            detail = (
                f"{_name(key)}: not decided within {MOST_STEPS} steps; "
                "use more keys, fewer processes, or a value only once"
            )
            found.append(Finding(GUARANTEE, Verdict.UNKNOWN, detail))
        elif answer.stuck_at is not None:
            found.append(_violation(history, key, calls, answer))
    return found


def _calls_of(history: History) -> dict[Value, list[Call]]:
    """Return what must or may have happened to each key."""
    calls: dict[Value, list[Call]] = defaultdict(list)
    for one in history.operations:
        if one.outcome is not Outcome.FAIL and (call := _call(one)):
            calls[one.key].append(call)
    return calls


def _call(one: Operation) -> Call | None:
    """Return an operation as a call; None: it has no effect, and says nothing."""
    needs: Value | None = None
    makes: Value | None = None
    if one.f == "read":
        needs = one.result
    elif one.f == "write":
        makes = one.argument
    else:
        assert isinstance(one.argument, tuple)
        needs, makes = one.argument
    if needs == makes:
        makes = None
    if makes is None and not one.is_ok:
        return None
    return Call(one, needs, makes, one.invoked, one.completed)


def _violation(history: History, key: Value, calls: list[Call], answer: Answer) -> Finding:
    stuck = answer.stuck_at
    assert stuck is not None
    states = sorted(map(shown, answer.states))
    more = " …" if len(states) > MOST_STATES else ""
    detail = (
        f"{_name(key)}: no order explains its operations up to line {stuck.last}; "
        f"just before it could be {' or '.join(states[:MOST_STATES])}{more}"
    )
    core = _Core(calls, stuck).found()
    if len(core) > MOST_WITNESS:
        detail += f"; the last {MOST_WITNESS} of the {len(core)} operations that show it:"
    witness = history.describe([call.operation for call in core[-MOST_WITNESS:]])
    return Finding(GUARANTEE, Verdict.VIOLATED, detail, witness, stuck.operation.end)


class _Core:
    """Finds the few calls that cannot be explained even if each of the others happened at any time,
    or never."""

    def __init__(self, calls: list[Call], stuck: Call) -> None:
        until = stuck.last
        # What ends later, the register had no need to do by then.
        whole = [call if call.last <= until else replace(call, last=NEVER) for call in calls]
        # A call whose value is not there is explained by what has to do with that value, and by
        # some call that came later than all of these.
        akin = [stuck.needs in {call.needs, call.makes} for call in whole]
        order = sorted(
            range(len(whole)),
            key=lambda at: (akin[at], whole[at].first < until, _late(whole[at])),
        )
        self._calls = [whole[at] for at in order]
        self._akin = sum(akin)
        self._left = MOST_WITNESS_STEPS

    def found(self) -> list[Call]:
        """Return the calls, in the order of their ends."""
        others = 1
        while self._akin + others < len(self._calls):
            if self._suffices(self._calls[-self._akin - others :]):
                break
            others *= 2
        strict = self._calls[-self._akin - others :]
        part = len(strict) // 2
        while part:
            strict = self._without_parts(strict, part)
            part //= 2
        return sorted(strict, key=_late)

    def _without_parts(self, strict: list[Call], size: int) -> list[Call]:
        """Return the calls without those runs of so many that nothing needs."""
        start = 0
        while start < len(strict):
            fewer = strict[:start] + strict[start + size :]
            if fewer and self._suffices(fewer):
                strict = fewer
            else:
                start += size
        return strict

    def _suffices(self, strict: Sequence[Call]) -> bool:
        """Whether these alone cannot be explained."""
        if self._left <= 0:
            return False
        kept = set(map(id, strict))
        calls = [call if id(call) in kept else call.relaxed() for call in self._calls]
        answer = search(calls, NULL, self._left)
        self._left -= answer.steps
        return answer.is_violated


def _late(call: Call) -> int:
    return call.first if call.is_optional else call.last


def _name(key: Value) -> str:
    return "the register" if key == NULL else f"register {shown(key)}"
