"""H2, set: a set that only grows keeps what was added to it, and holds nothing else."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from stormcast.chaos.histories.operations import History, Operation, Outcome
from stormcast.chaos.histories.quiet import Quiet
from stormcast.chaos.histories.values import NULL, Value, shown, text_of
from stormcast.findings import Finding, Verdict

GUARANTEE: Final = "H2"
_LISTED: Final = 5
"""Elements that a finding lists."""


def malformed(operation: Operation) -> str:
    """Return what no operation on a set looks like; nothing if it is one."""
    match operation.f:
        case "add":
            if operation.argument is None:
                return "an add has no value"
            if operation.result not in {None, operation.argument}:
                return "the ok of an add has another value than its invocation"
        case "read":
            if operation.is_ok and not isinstance(operation.result, tuple):
                return "the value of the ok of a read is no list of elements"
        case _:
            return "no operation of a set: add, read"
    return ""


def is_read(operation: Operation) -> bool:
    """Whether the operation says what is in the set."""
    return operation.f == "read"


def check(history: History, quiet: Quiet) -> list[Finding]:
    """Return a finding for each kind of violation of each key, and for each key that nobody read
    in quiet."""
    adds: dict[Value, list[Operation]] = defaultdict(list)
    reads: dict[Value, list[Operation]] = defaultdict(list)
    for one in history.operations:
        if one.f == "add":
            adds[one.key].append(one)
        elif one.is_ok:
            reads[one.key].append(one)
    found: list[Finding] = []
    for key in sorted(adds.keys() | reads.keys(), key=text_of):
        judged = _Set(history, key, adds[key], reads[key])
        found += [*judged.twice(), *judged.from_nowhere(), *judged.gone(), *judged.lost(quiet)]
    return found


class _Set:
    """What was done to one set."""

    def __init__(
        self, history: History, key: Value, adds: list[Operation], reads: list[Operation]
    ) -> None:
        self._history = history
        self._name = "the set" if key == NULL else f"set {shown(key)}"
        self._adds = adds
        self._reads = sorted(reads, key=lambda one: one.ended)
        self._contents = {one.invoked: frozenset(_elements(one)) for one in reads}

    def twice(self) -> Iterator[Finding]:
        """Yield the first read that has an element more than once."""
        for read in self._reads:
            elements = _elements(read)
            if len(elements) > len(self._contents[read.invoked]):
                more = [one for one, number in Counter(elements).items() if number > 1]
                yield self._violation(f"a read has {_list(more)} more than once", [read], read.end)
                return

    def from_nowhere(self) -> Iterator[Finding]:
        """Yield the first read of an element that nobody can have added by then."""
        first: dict[Value, int] = {}
        for one in self._adds:
            if one.outcome is not Outcome.FAIL and one.argument is not None:
                first.setdefault(one.argument, one.invoked)
        for read in self._reads:
            wrong = [one for one in _elements(read) if first.get(one, read.ended) >= read.ended]
            if wrong:
                adds = [one for one in self._adds if one.argument == wrong[0]]
                why = "nobody had added"
                if any(one.outcome is Outcome.FAIL for one in adds):
                    why = "nobody had added but in an add that failed"
                detail = f"a read has {_list(wrong)}, which {why} by then"
                yield self._violation(detail, [*adds[:1], read], read.end)
                return

    def gone(self) -> Iterator[Finding]:
        """Yield the first read without an element that a read before it had."""
        seen: dict[Value, Operation] = {}
        # Reads by their begin, each after those that had ended by then.
        ended = iter(self._reads)
        former = next(ended, None)
        for read in sorted(self._reads, key=lambda one: one.invoked):
            while former is not None and former.ended < read.invoked:
                for element in _elements(former):
                    seen.setdefault(element, former)
                former = next(ended, None)
            missing = seen.keys() - self._contents[read.invoked]
            if missing:
                least = min(missing, key=lambda one: (seen[one].ended, str(one)))
                detail = f"{_list(sorted(missing, key=str))} was read, and later not"
                yield self._violation(detail, [seen[least], read], read.end)
                return

    def lost(self, quiet: Quiet) -> Iterator[Finding]:
        """Yield the first read in quiet that lacks an acknowledged element; a doubt if there was no
        such read."""
        acked = {one.argument: one for one in reversed(self._adds) if one.is_ok}
        begin = quiet.after(self._adds)
        final = [read for read in self._reads if begin.is_before(read)]
        if not final:
            detail = (
                f"{self._name}: nobody read it in quiet, that is after the last add, and from "
                f"{begin.time:g}s on: have the client read last"
            )
            yield Finding(GUARANTEE, Verdict.UNKNOWN, detail)
        for read in final:
            missing = [one for one in acked if one not in self._contents[read.invoked]]
            if missing:
                detail = f"lost {_list(missing[::-1])}: acknowledged, and not in a read in quiet"
                yield self._violation(detail, [acked[missing[-1]], read], read.end)
                return

    def _violation(self, detail: str, witness: list[Operation], at: float) -> Finding:
        return Finding(
            GUARANTEE,
            Verdict.VIOLATED,
            f"{self._name}: {detail}",
            self._history.describe(witness),
            at,
        )


def _elements(read: Operation) -> tuple[Value, ...]:
    assert isinstance(read.result, tuple)
    return read.result


def _list(elements: list[Value] | list[Value | None]) -> str:
    """Return the first elements in words, and how many more there are."""
    more = len(elements) - _LISTED
    words = ", ".join(shown(one) for one in elements[:_LISTED] if one is not None)
    return f"{words} and {more} more" if more > 0 else words
