"""The orders in which lists grew, as transactions have read them, and what contradicts them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from stormcast.chaos.histories.operations import History, Operation, Outcome
from stormcast.chaos.histories.transactions import Step, steps_of
from stormcast.chaos.histories.values import Value, shown
from stormcast.findings import Finding, Verdict

GUARANTEE: Final = "H4"


class Append(NamedTuple):
    """An append of one element."""

    operation: Operation
    is_last: bool
    """Whether its transaction appends nothing more to the same list."""


class External(NamedTuple):
    """What a transaction read of others: without what it had appended itself."""

    reader: Operation
    elements: tuple[Value, ...]


class Versions:
    """What all transactions appended and read, list by list."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._found: list[Finding] = []
        self.doubt: Finding | None = None
        """A doubt that lets nothing be judged: an element that was appended twice."""
        self.appends: dict[tuple[Value, Value], Append] = {}
        """By key and element."""
        self.externals: dict[Value, list[External]] = defaultdict(list)
        self.broken: set[Value] = set()
        """The keys of which some read is wrong by itself: they say nothing of any order."""
        steps = {one.invoked: steps_of(one) for one in history.operations}
        for one in history.operations:
            self._note_appends(one, steps[one.invoked])
        for one in history.operations:
            if one.is_ok:
                self._note_reads(one, steps[one.invoked])
        for key, externals in self.externals.items():
            self._check(key, externals)
        self.orders = {
            key: max((one.elements for one in externals), key=len)
            for key, externals in self.externals.items()
            if key not in self.broken
        }
        """By key: the longest list that was read. All others are beginnings of it."""
        seen = {key: frozenset(order) for key, order in self.orders.items()}
        self.places = defaultdict(frozenset[Value], seen)
        """By key: all elements that were read."""

    def violations(self) -> Iterator[Finding]:
        """Yield the first violation of each key and kind."""
        yield from self._found

    def _note_appends(self, operation: Operation, steps: tuple[Step, ...]) -> None:
        last: dict[Value, Value] = {}
        for step in steps:
            if step.appended is not None:
                last[step.key] = step.appended
        for key, appended, _found in steps:
            if appended is None:
                continue
            former = self.appends.get((key, appended))
            if former is not None and self.doubt is None:
                detail = (
                    f"{shown(appended)} is appended to {shown(key)} twice, so no read says which "
                    "of them it has: append each element once"
                )
                witness = self._history.describe([former.operation, operation])
                self.doubt = Finding(GUARANTEE, Verdict.UNKNOWN, detail, witness)
            self.appends[key, appended] = Append(operation, last[key] == appended)

    def _note_reads(self, operation: Operation, steps: tuple[Step, ...]) -> None:
        """Note what a transaction read first of each key, and check what it read again."""
        own: dict[Value, tuple[Value, ...]] = defaultdict(tuple)
        known: dict[Value, tuple[Value, ...]] = {}
        written: dict[Value, set[Value]] = defaultdict(set)
        for key, appended, _found in steps:
            if appended is not None:
                written[key].add(appended)
        for key, appended, found in steps:
            if appended is not None:
                own[key] += (appended,)
                continue
            assert found is not None
            cut = len(found) - len(own[key])
            external = found[: max(0, cut)]
            is_right = cut >= 0 and found[cut:] == own[key]
            if key not in known:
                known[key] = external
                if is_right:
                    self.externals[key].append(External(operation, external))
            if not is_right or known[key] != external:
                detail = "a transaction does not read what it had read and appended itself"
                self._violate(key, detail, [operation])
            elif written[key].intersection(external):
                detail = "a transaction reads what it appends later"
                self._violate(key, detail, [operation])

    def _check(self, key: Value, externals: list[External]) -> None:
        """Check the lists that were read of one key by themselves, and one with the other."""
        externals.sort(key=lambda one: one.reader.ended)
        longest = max(externals, key=lambda one: len(one.elements))
        judged: set[Value] = set()
        for one in externals:
            length = len(one.elements)
            if len(set(one.elements)) < length:
                self._violate(key, "a list that was read has an element twice", [one.reader])
                return
            for element in one.elements:
                # What a read before had is right, unless that one was wrong.
                if element not in judged:
                    judged.add(element)
                    if not self._is_right(key, element, one.reader):
                        return
            if longest.elements[:length] != one.elements:
                detail = "two reads cannot be of one list that grows at its end"
                self._violate(key, detail, [one.reader, longest.reader])
                return
            if length and not self._is_final(key, one):
                return

    def _is_right(self, key: Value, element: Value, reader: Operation) -> bool:
        """Whether an element can have been there when it was read."""
        append = self.appends.get((key, element))
        if append is None:
            detail = f"{shown(element)} was read, and nobody appended it"
            self._violate(key, detail, [reader])
        elif append.operation.outcome is Outcome.FAIL:
            detail = f"{shown(element)} was read, and its transaction failed (G1a)"
            self._violate(key, detail, [append.operation, reader])
        elif append.operation.invoked > reader.ended:
            detail = f"{shown(element)} was read before anybody appended it"
            self._violate(key, detail, [append.operation, reader])
        else:
            return True
        return False

    def _is_final(self, key: Value, one: External) -> bool:
        """Whether a read ends with the last element that a transaction appended."""
        append = self.appends[key, one.elements[-1]]
        if not append.is_last:
            detail = f"a read ends with {shown(one.elements[-1])}, within its transaction (G1b)"
            self._violate(key, detail, [append.operation, one.reader])
        return append.is_last

    def _violate(self, key: Value, detail: str, witness: list[Operation]) -> None:
        if key in self.broken:
            return
        self.broken.add(key)
        at = max(one.end for one in witness if one.is_ok)
        self._found.append(
            Finding(
                GUARANTEE,
                Verdict.VIOLATED,
                f"{shown(key)}: {detail}",
                self._history.describe(list({one.invoked: one for one in witness}.values())),
                at,
            )
        )
