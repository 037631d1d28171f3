"""Linearizability of one register: is there an order of its operations that explains them all?

The search goes from line to line. An operation takes effect as late as it can: when it ends, or
when one that ends needs it before. So where the search gets stuck, the lines up to there have no
order, and those before have one. It is Wing and Gong's, with Lowe's memory of what was tried; and
what nobody needs to try is left out:

- A read of the present state takes effect at once: that hinders nobody.
- What may also never have happened takes effect only where somebody needs its value next.
- A write whose value nobody needs any more takes effect just before another write.
- Of two ways to the same state with the same operations done, the one that used fewer of the
  optional ones can do all that the other can.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from stormcast.chaos.histories.operations import NEVER, Operation
from stormcast.chaos.histories.values import Value

Used = tuple[tuple[int, int], ...]
"""How many optional calls of each kind were used; kinds of which none was are left out."""
_USED_A_STEP: Final = 16
"""Kinds that were used count as steps, so many as one: they are compared and copied."""


@dataclass(frozen=True, slots=True)
class Call:
    """An operation on a register: in some moment from line `first` to line `last`, or never where
    `last` is NEVER, it finds the state that it needs, and leaves the one that it makes."""

    operation: Operation
    needs: Value | None
    """None: it may find any state."""
    makes: Value | None
    """None: it leaves the state as it is."""
    first: int
    last: int

    @property
    def is_optional(self) -> bool:
        return self.last == NEVER

    def relaxed(self) -> Call:
        """Return the same call, which may happen at any time or never."""
        return replace(self, first=-1, last=NEVER)


@dataclass(frozen=True, slots=True)
class Answer:
    """The end of a search."""

    is_decided: bool
    stuck_at: Call | None
    """The call that no order of the lines up to its end explains."""
    states: frozenset[Value]
    """The states in which the register may be just before the end of that call."""
    steps: int

    @property
    def is_violated(self) -> bool:
        return self.is_decided and self.stuck_at is not None


class _Event(NamedTuple):
    """The first or the last line of a call that must happen."""

    line: int
    call: Call
    bit: int
    """Stands for the call in sets of calls, from its first line to its last one."""
    is_end: bool
    pending: tuple[tuple[int, Call], ...]
    """At an end: the bits and calls that have begun, and have not ended before."""
    bits: dict[int, int]
    """The bits of these calls, by their id."""


class _Node(NamedTuple):
    """A point of the search: all events before `event` are explained."""

    event: int
    state: Value
    done: int
    """The bits of pending calls that have taken effect."""
    used: Used


def search(calls: Sequence[Call], initial: Value, most_steps: int) -> Answer:
    """Look for an order of the calls, in so many steps at the most."""
    return _Search(calls, initial, most_steps).run()


class _Search:
    def __init__(self, calls: Sequence[Call], initial: Value, most_steps: int) -> None:
        self._events = _events_of([call for call in calls if not call.is_optional])
        self._optional = _Optional([call for call in calls if call.is_optional])
        self._readers: dict[Value, list[Call]] = defaultdict(list)
        for call in calls:
            if call.needs is not None:
                self._readers[call.needs].append(call)
        self._initial = initial
        self._most_steps = most_steps
        self._steps = 0
        self._tried: dict[tuple[int, Value, int], list[Used]] = {}

    def run(self) -> Answer:
        furthest = 0
        stack = [self._onwards(_Node(0, self._initial, 0, ()))]
        while stack:
            node = stack.pop()
            if node.event == len(self._events):
                return Answer(True, None, frozenset(), self._steps)
            if self._was_tried(node):
                continue
            if self._steps > self._most_steps:
                return Answer(False, None, frozenset(), self._steps)
            furthest = max(furthest, node.event)
            # Last in, first out: the call that has to end now is tried first.
            stack += reversed([self._onwards(one) for one in self._nexts(node)])
        states = frozenset(state for event, state, _done in self._tried if event == furthest)
        return Answer(True, self._events[furthest].call, states, self._steps)

    def _was_tried(self, node: _Node) -> bool:
        """Whether a node that can do as much was there before; else note this one."""
        tried = self._tried.setdefault((node.event, node.state, node.done), [])
        self._steps += len(tried)
        if any(_is_within(used, node.used) for used in tried):
            return True
        tried.append(node.used)
        return False

    def _onwards(self, node: _Node) -> _Node:
        """Return the next node at which there is a choice: the end of a call that has not taken
        effect."""
        index, state, done, used = node
        events = self._events
        while index < len(events):
            event = events[index]
            if event.is_end:
                if not done & event.bit:
                    break
                done &= ~event.bit
            elif event.call.makes is None and event.call.needs == state:
                done |= event.bit
            index += 1
        self._steps += 1 + index - node.event + len(used) // _USED_A_STEP
        return _Node(index, state, done, used)

    def _nexts(self, node: _Node) -> Iterator[_Node]:
        """Yield what may come next; what the ending call does first."""
        event = self._events[node.event]
        waiting = [(bit, call) for bit, call in event.pending if not node.done & bit]
        value = event.call.needs
        waiting.sort(key=lambda one: one[1] is not event.call and one[1].makes != value)
        for bit, call in waiting:
            if call.makes is not None and (call.needs is None or call.needs == node.state):
                after = node._replace(state=call.makes, done=node.done | bit)
                yield self._settled(after, call.needs)
        wanted = {call.needs for _bit, call in waiting if call.needs is not None}
        for makes, kind in self._optional.useful(node.state, wanted, node.used, event.line):
            after = node._replace(state=makes, used=_with_one_more(node.used, kind))
            yield self._settled(after, self._optional.needs(kind))

    def _settled(self, node: _Node, needed: Value | None) -> _Node:
        """Return a node to which a call led that needed a state, or any, with all that takes effect
        besides: reads of the new state, and before a write all writes that nobody reads."""
        event, done = self._events[node.event], node.done
        for bit, call in event.pending:
            if call.makes is None and call.needs == node.state:
                done |= bit
        if needed is None:
            for bit, call in event.pending:
                if call.needs is None and not done & bit and self._is_unread(call, event, done):
                    done |= bit
        return node._replace(done=done)

    def _is_unread(self, write: Call, event: _Event, done: int) -> bool:
        """Whether nobody needs the value of a write any more."""
        assert write.makes is not None
        for call in self._readers.get(write.makes, ()):
            if call.last >= event.line:
                bit = event.bits.get(id(call))
                if bit is None or not done & bit:
                    return False
        return True


class _Optional:
    """Calls that may never have happened. Those that need and make the same are of one kind: of
    these it does not matter which one is used, as long as enough of them have begun."""

    def __init__(self, calls: Sequence[Call]) -> None:
        begun: dict[tuple[Value | None, Value], list[int]] = defaultdict(list)
        for call in calls:
            if call.makes is not None:
                begun[call.needs, call.makes].append(call.first)
        self._needs = [needs for needs, _makes in begun]
        self._firsts = [sorted(firsts) for firsts in begun.values()]
        self._makers: dict[Value, list[int]] = defaultdict(list)
        for kind, (_needs, makes) in enumerate(begun):
            self._makers[makes].append(kind)

    def needs(self, kind: int) -> Value | None:
        """Return the state that a kind needs; None: any."""
        return self._needs[kind]

    def useful(
        self, state: Value, wanted: set[Value], used: Used, line: int
    ) -> Iterator[tuple[Value, int]]:
        """Yield the states that calls begun before a line may make now, and their kinds, if
        somebody needs these states, perhaps by way of further optional calls."""
        if not self._firsts:
            return
        asked = wanted - {state}
        looking = list(asked)
        while looking:
            value = looking.pop()
            for kind in self._makers.get(value, ()):
                number = next((number for one, number in used if one == kind), 0)
                if number >= bisect_left(self._firsts[kind], line):
                    continue
                needs = self._needs[kind]
                if needs is None or needs == state:
                    yield value, kind
                elif needs not in asked:
                    asked.add(needs)
                    looking.append(needs)


def _is_within(used: Used, other: Used) -> bool:
    """Whether of each kind no more calls were used than elsewhere."""
    if used == other:
        return True
    numbers = dict(other)
    return all(number <= numbers.get(kind, 0) for kind, number in used)


def _with_one_more(used: Used, kind: int) -> Used:
    numbers = dict(used)
    numbers[kind] = numbers.get(kind, 0) + 1
    return tuple(numbers.items())


def _events_of(calls: Sequence[Call]) -> list[_Event]:
    """Return the first and last lines of calls in their order, each call with a bit of its own as
    long as it is pending."""
    marks = [(call.first, False, call) for call in calls] + [
        (call.last, True, call) for call in calls
    ]
    marks.sort(key=lambda mark: mark[0])
    events: list[_Event] = []
    pending: dict[int, tuple[int, Call]] = {}
    free: list[int] = []
    for line, is_end, call in marks:
        if is_end:
            bit = pending[id(call)][0]
            bits = {one: kept for one, (kept, _call) in pending.items()}
            events.append(_Event(line, call, bit, is_end, tuple(pending.values()), bits))
            del pending[id(call)]
            free.append(bit)
        else:
            bit = free.pop() if free else 1 << len(pending)
            pending[id(call)] = (bit, call)
            events.append(_Event(line, call, bit, is_end, (), {}))
    return events
