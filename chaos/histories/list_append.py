"""H4, list-append: transactions that append to lists and read them have a serial order.

A list that is read shows in which order its elements were appended, and so which transaction came
before which. What contradicts itself is found: in one transaction, in the lists of one key, or as a
cycle among transactions. The idea is Elle's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from stormcast.chaos.histories.cycles import Edge, Graph
from stormcast.chaos.histories.operations import History, Operation, Outcome
from stormcast.chaos.histories.values import Value, shown, text_of
from stormcast.chaos.histories.versions import Versions
from stormcast.findings import Finding, Verdict

GUARANTEE: Final = "H4"
_LEVELS: Final = (
    frozenset({"ww"}),
    frozenset({"ww", "wr"}),
    frozenset({"ww", "wr", "rw"}),
    frozenset({"ww", "wr", "rw", "rt"}),
)
"""The kinds of edges in which a cycle is looked for, the graver cycles first."""
_LISTED: Final = 5


def check_strict(history: History, _quiet: object) -> list[Finding]:
    """Judge whether there is a serial order in which nothing comes before what had ended when it
    was invoked."""
    return _check(history, _LEVELS)


def check_serial(history: History, _quiet: object) -> list[Finding]:
    """Judge whether there is any serial order."""
    return _check(history, _LEVELS[:-1])


def _check(history: History, levels: tuple[frozenset[str], ...]) -> list[Finding]:
    versions = Versions(history)
    if versions.doubt is not None:
        return [versions.doubt]
    found = list(versions.violations())
    order = _Order(history, versions)
    found += order.cycle(levels)
    found += order.unseen(is_strict="rt" in levels[-1])
    return found


class _Order:
    """The transactions that were committed, as far as anybody can tell, and their order."""

    def __init__(self, history: History, versions: Versions) -> None:
        self._history = history
        self._versions = versions
        seen = {
            versions.appends[key, element].operation.invoked
            for key, order in versions.orders.items()
            for element in order
        }
        self._nodes = [
            one
            for one in history.operations
            if one.is_ok or (one.outcome is Outcome.INFO and one.invoked in seen)
        ]
        self._numbers = {one.invoked: number for number, one in enumerate(self._nodes)}
        self._graph = Graph(len(self._nodes))
        self._unseen: dict[Value, list[Operation]] = defaultdict(list)
        """By key: who appended to it what nobody has read, and was committed."""
        for (key, element), append in versions.appends.items():
            if (
                append.operation.invoked in self._numbers
                and key not in versions.broken
                and element not in versions.places[key]
                and append.operation not in self._unseen[key][-1:]
            ):
                self._unseen[key].append(append.operation)

    def cycle(self, levels: tuple[frozenset[str], ...]) -> Iterator[Finding]:
        """Yield the gravest cycle."""
        for key, order in self._versions.orders.items():
            self._add_order(key, order)
        if "rt" in levels[-1]:
            self._add_times()
        for kinds in levels:
            if cycle := self._graph.cycle(kinds):
                nodes = [self._nodes[edge.source] for edge in cycle]
                steps = [
                    f"line {node.invoked} -{edge.kind}{edge.key and ' '}{edge.key}->"
                    for node, edge in zip(nodes, cycle, strict=True)
                ]
                name = _name_of([edge.kind for edge in cycle])
                detail = f"no serial order ({name}): {' '.join(steps)} line {nodes[0].invoked}"
                at = max(node.end for node in nodes if node.is_ok)
                witness = self._history.describe(nodes)
                yield Finding(GUARANTEE, Verdict.VIOLATED, detail, witness, at)
                return

    def unseen(self, *, is_strict: bool) -> Iterator[Finding]:
        """Yield a doubt for each key of which nobody has read what was appended last. In strict
        order a read that comes later must show it, or there is a cycle."""
        for key in sorted(self._unseen, key=text_of):
            last = max((one.reader.invoked for one in self._versions.externals[key]), default=0)
            lacking = [
                one
                for one in self._unseen[key]
                if one.is_ok and not (is_strict and one.ended < last)
            ]
            if lacking:
                lines = ", ".join(str(one.invoked) for one in lacking[:_LISTED])
                detail = (
                    f"{shown(key)}: nobody has read what {len(lacking)} transactions appended to "
                    f"it (line {lines}): have the client read each list last"
                )
                yield Finding(GUARANTEE, Verdict.UNKNOWN, detail)

    def _add_order(self, key: Value, order: tuple[Value, ...]) -> None:
        """Add what the order of one list says of those who appended to it or read it."""
        writers = [
            self._numbers[self._versions.appends[key, element].operation.invoked]
            for element in order
        ]
        name = shown(key)
        for one, following in pairwise(writers):
            self._graph.add(Edge(one, following, "ww", name))
        end = self._graph.new_node()
        unseen = [self._numbers[one.invoked] for one in self._unseen.get(key, ())]
        unseen_set = set(unseen)
        for writer in unseen:
            self._graph.add(Edge(end, writer, ""))
        if writers:
            self._graph.add(Edge(writers[-1], end, "ww", name))
        at_end: list[int] = []
        for external in self._versions.externals[key]:
            reader, length = self._numbers[external.reader.invoked], len(external.elements)
            if length:
                self._graph.add(Edge(writers[length - 1], reader, "wr", name))
            if length < len(writers):
                self._graph.add(Edge(reader, writers[length], "rw", name))
            elif reader not in unseen_set:
                self._graph.add(Edge(reader, end, "rw", name))
            else:
                at_end.append(reader)
        # Who read all that was ever seen, and appended what was not, comes before all others that
        # did. Two of these are a cycle; more would only make a larger knot.
        for reader in at_end[:2]:
            for writer in unseen if len(at_end) == 1 else at_end[:2]:
                self._graph.add(Edge(reader, writer, "rw", name))

    def _add_times(self) -> None:
        """Add that what had ended comes before what was invoked then: by a chain of nodes, one for
        each end, so that there are few edges."""
        marks = [(one.ended, number, True) for number, one in enumerate(self._nodes) if one.is_ok]
        marks += [(one.invoked, number, False) for number, one in enumerate(self._nodes)]
        last: int | None = None
        for _line, number, is_end in sorted(marks):
            if is_end:
                node = self._graph.new_node()
                self._graph.add(Edge(number, node, "rt"))
                if last is not None:
                    self._graph.add(Edge(last, node, ""))
                last = node
            elif last is not None:
                self._graph.add(Edge(last, number, ""))


def _name_of(kinds: list[str]) -> str:
    """Return the name that the field has for a cycle."""
    name = "G1c" if "wr" in kinds else "G0"
    if "rw" in kinds:
        name = "G-single" if kinds.count("rw") == 1 else "G2"
    return f"{name}, by real time" if "rt" in kinds else name
