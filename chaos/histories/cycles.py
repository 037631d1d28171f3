"""Cycles in a graph of what comes before what."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

MOST_STARTS: Final = 50
"""Nodes of a knot from which a shortest cycle is looked for. In a larger knot the cycle that is
found may be longer than the shortest one."""


class Edge(NamedTuple):
    """One node comes before another, and why."""

    source: int
    target: int
    kind: str
    """Empty for an edge that goes on from a node that is no transaction."""
    key: str = ""


class Graph:
    """Nodes from 0 on, and edges. Nodes from `real` on only pass edges on: they cost no length."""

    def __init__(self, real: int) -> None:
        self._real = real
        self._next = real
        self._edges: dict[int, list[Edge]] = defaultdict(list)

    def new_node(self) -> int:
        """Return a node that only passes edges on."""
        self._next += 1
        return self._next - 1

    def add(self, edge: Edge) -> None:
        """Add an edge between two different nodes."""
        if edge.source != edge.target:
            self._edges[edge.source].append(edge)

    def cycle(self, kinds: frozenset[str]) -> list[Edge]:
        """Return a shortest cycle of edges of these kinds, an edge for each real node that says to
        which real node it leads; nothing if there is none."""

        def edges(node: int) -> list[Edge]:
            return [one for one in self._edges.get(node, ()) if not one.kind or one.kind in kinds]

        best: list[Edge] = []
        for knot in _knots(self._next, edges):
            starts = sorted(node for node in knot if node < self._real)[:MOST_STARTS]
            for start in starts:
                found = self._shortest(start, knot, edges)
                if found and (not best or len(found) < len(best)):
                    best = found
        return best

    def _shortest(
        self, start: int, knot: set[int], edges: Callable[[int], list[Edge]]
    ) -> list[Edge]:
        """Return the shortest way from a node back to it."""
        came: dict[int, Edge] = {}
        reached = {start: 0}
        queue = deque([(0, start)])
        while queue:
            length, node = queue.popleft()
            if length > reached[node]:
                continue
            for edge in edges(node):
                if edge.target == start:
                    return self._joined(start, [edge], came)
                if edge.target not in knot:
                    continue
                cost = length + (edge.target < self._real)
                if cost < reached.get(edge.target, cost + 1):
                    reached[edge.target] = cost
                    came[edge.target] = edge
                    if cost > length:
                        queue.append((cost, edge.target))
                    else:
                        queue.appendleft((cost, edge.target))
        return []

    def _joined(self, start: int, last: list[Edge], came: dict[int, Edge]) -> list[Edge]:
        """Return the way as edges from real node to real node."""
        way = last
        while way[-1].source != start:
            way.append(came[way[-1].source])
        joined: list[Edge] = []
        for edge in reversed(way):
            if edge.source < self._real:
                joined.append(edge)
            else:
                joined[-1] = joined[-1]._replace(target=edge.target)
        return joined


def _knots(count: int, edges: Callable[[int], list[Edge]]) -> Iterator[set[int]]:
    """Yield the sets of two and more nodes in which each can be reached from each (Tarjan), without
    recursion: a history makes ways of thousands of nodes."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in range(count):
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter(edges(root)))]
        while work:
            node, left = work[-1]
            for edge in left:
                target = edge.target
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(edges(target))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    above = work[-1][0]
                    low[above] = min(low[above], low[node])
                if low[node] == index[node]:
                    knot = set[int]()
                    while node not in knot:
                        knot.add(stack.pop())
                    on_stack -= knot
                    if len(knot) > 1:
                        yield knot
