"""H3, queue: nothing lost, nothing twice, nothing from nowhere, and in order per producer.

Each element is enqueued once, so that a delivery says which enqueue it is of. A dequeue whose end
nobody knows may have taken an element, or none; a drain of that kind any number of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from stormcast.chaos.histories.operations import NEVER, History, Operation, Outcome
from stormcast.chaos.histories.quiet import Quiet
from stormcast.chaos.histories.values import NULL, Value, shown, text_of
from stormcast.findings import Finding, Verdict

GUARANTEE: Final = "H3"
_WITNESSES: Final = 5
"""Lost elements, and dequeues that may have taken some, that a finding shows."""


def malformed(operation: Operation) -> str:
    """Return what no operation on a queue looks like; nothing if it is one."""
    result = operation.result
    match operation.f:
        case "enqueue":
            if operation.argument in {None, NULL}:
                return "an enqueue has no value, or null, which stands for an empty queue"
            if result not in {None, operation.argument}:
                return "the ok of an enqueue has another value than its invocation"
        case "dequeue":
            if operation.is_ok and result is None:
                return (
                    "the ok of a dequeue has no value: write the element, or null if none was there"
                )
        case "drain":
            if operation.is_ok and (not isinstance(result, tuple) or NULL in result):
                return "the value of the ok of a drain is no list of elements"
        case _:
            return "no operation of a queue: enqueue, dequeue, drain"
    return ""


def is_read(operation: Operation) -> bool:
    """Whether the operation says what was in the queue."""
    return operation.f != "enqueue"


def check(history: History, quiet: Quiet) -> list[Finding]:
    """Return a finding for each kind of violation of each queue, and for each doubt about one."""
    operations: dict[Value, list[Operation]] = defaultdict(list)
    for one in history.operations:
        operations[one.key].append(one)
    found: list[Finding] = []
    for key in sorted(operations, key=text_of):
        queue = _Queue(history, key, operations[key])
        if repeated := queue.enqueued_twice():
            found.append(repeated)
        else:
            found += [*queue.twice(), *queue.from_nowhere(), *queue.overtaken()]
            found += queue.lost(quiet)
    return found


class _Delivery(NamedTuple):
    """An element that somebody got."""

    element: Value
    operation: Operation
    place: int
    """Its place in a drain."""

    def is_before(self, other: _Delivery) -> bool:
        """Whether this one surely came first."""
        if self.operation is other.operation:
            return self.place < other.place
        return self.operation.ended < other.operation.invoked


class _Missing(NamedTuple):
    """An acknowledged element that nobody got."""

    enqueue: Operation
    deadline: int
    """The line by which somebody must have taken it: then it was passed over, or the queue was
    empty. NEVER: it may still be there."""
    proof: Operation | None
    """The operation that ends there."""


class _Queue:
    """What was done to one queue."""

    def __init__(self, history: History, key: Value, operations: list[Operation]) -> None:
        self._history = history
        self._name = "the queue" if key == NULL else f"queue {shown(key)}"
        self._enqueues = [one for one in operations if one.f == "enqueue"]
        self._takes = [one for one in operations if one.f != "enqueue"]
        self._deliveries = list(_deliveries(self._takes))
        self._firsts: dict[Value, _Delivery] = {}
        """The first delivery of each element."""
        for one in self._deliveries:
            self._firsts.setdefault(one.element, one)

    def enqueued_twice(self) -> Finding | None:
        """Return a doubt if an element was enqueued twice."""
        seen: dict[Value | None, Operation] = {}
        for one in self._enqueues:
            former = seen.setdefault(one.argument, one)
            if former is not one:
                detail = (
                    f"{self._name}: {_of(one)} is enqueued twice, so no delivery says which of them"
                    " it is of: give each element a value of its own"
                )
                witness = self._history.describe([former, one])
                return Finding(GUARANTEE, Verdict.UNKNOWN, detail, witness)
        return None

    def twice(self) -> Iterator[Finding]:
        """Yield the first element that was delivered again."""
        for one in self._deliveries:
            first = self._firsts[one.element]
            if first is not one:
                detail = f"{shown(one.element)} was delivered twice"
                yield self._violation(detail, [first.operation, one.operation])
                return

    def from_nowhere(self) -> Iterator[Finding]:
        """Yield the first delivery of what nobody can have enqueued by then."""
        enqueues = {one.argument: one for one in self._enqueues}
        for one in self._deliveries:
            enqueue = enqueues.get(one.element)
            taken = one.operation
            if enqueue is None:
                detail = "was delivered, and nobody enqueued it"
            elif enqueue.outcome is Outcome.FAIL:
                detail = "was delivered, and its enqueue failed"
            elif enqueue.invoked > taken.ended:
                detail = "was delivered before anybody enqueued it"
            else:
                continue
            witness = [taken] if enqueue is None else [enqueue, taken]
            yield self._violation(f"{shown(one.element)} {detail}", witness)
            return

    def overtaken(self) -> Iterator[Finding]:
        """Yield the first element that was delivered behind a later one of its producer."""
        for enqueues in self._by_producer():
            # From the last one on: of all that follow, the delivery that ended first, and of those
            # in one drain the first place.
            earliest: dict[int, tuple[Operation, _Delivery]] = {}
            soonest: tuple[Operation, _Delivery] | None = None
            found: list[tuple[Operation, _Delivery, Operation, _Delivery]] = []
            for enqueue in reversed(enqueues):
                delivery = self._delivery_of(enqueue)
                if delivery is None:
                    continue
                taken = delivery.operation.invoked
                if enqueue.is_ok:
                    for later in (soonest, earliest.get(taken)):
                        if later is not None and later[1].is_before(delivery):
                            found.append((enqueue, delivery, *later))
                            break
                if soonest is None or delivery.operation.ended < soonest[1].operation.ended:
                    soonest = (enqueue, delivery)
                if taken not in earliest or delivery.place < earliest[taken][1].place:
                    earliest[taken] = (enqueue, delivery)
            if found:
                first, late, second, early = min(found, key=lambda one: one[1].operation.ended)
                detail = (
                    f"{_of(second)} was delivered before {_of(first)}, which its producer had "
                    "enqueued before"
                )
                witness = {
                    one.invoked: one for one in (first, second, early.operation, late.operation)
                }
                yield self._violation(detail, list(witness.values()))
                return

    def lost(self, quiet: Quiet) -> Iterator[Finding]:
        """Yield whether more elements are missing than dequeues may have taken; a doubt if some are
        missing, or if nobody found the queue empty in quiet."""
        drain = self._drained(quiet)
        missing = self._missing(drain)
        takers = [one for one in self._takes if one.outcome is Outcome.INFO]
        begins = [one.invoked for one in takers]
        # A drain may have taken all of them.
        first_drain = next((one.invoked for one in takers if one.f == "drain"), NEVER)
        due = [one for one in missing if one.deadline < first_drain]
        for number, one in enumerate(due, 1):
            able = bisect_left(begins, one.deadline)
            if number > able:
                yield self._lost(due[:number], takers[:able])
                return
        if drain is None:
            since = quiet.after(self._enqueues).time
            detail = (
                f"{self._name}: not drained: nobody found it empty in quiet, that is after the "
                f"last enqueue, and from {since:g}s on: have the client dequeue until null"
            )
            yield Finding(GUARANTEE, Verdict.UNKNOWN, detail)
        elif missing:
            elements = ", ".join(_of(one.enqueue) for one in missing[:_WITNESSES])
            detail = (
                f"{self._name}: nobody knows whether dequeues that did not end have taken what was "
                f"acknowledged and not delivered ({len(missing)}: {elements})"
            )
            witness = [one.enqueue for one in missing[:_WITNESSES]] + takers[:_WITNESSES]
            yield Finding(GUARANTEE, Verdict.UNKNOWN, detail, self._history.describe(witness))

    def _lost(self, missing: list[_Missing], takers: list[Operation]) -> Finding:
        elements = ", ".join(_of(one.enqueue) for one in missing[:_WITNESSES])
        detail = f"lost {elements}: acknowledged, not delivered, and passed over or not there later"
        if takers:
            detail += (
                f"; {len(missing)} are missing, and no more than {len(takers)} dequeues that did "
                "not end may have taken one each"
            )
        shown_ones = missing[:_WITNESSES]
        proofs = [one.proof for one in shown_ones if one.proof is not None]
        witness = [one.enqueue for one in shown_ones] + proofs + takers[:_WITNESSES]
        at = max(one.end for one in proofs)
        return self._violation(detail, list({one.invoked: one for one in witness}.values()), at)

    def _missing(self, drain: Operation | None) -> list[_Missing]:
        """Return the acknowledged elements that nobody got, each with its deadline."""
        missing: list[_Missing] = []
        for enqueues in self._by_producer():
            # The one that ends first of: the drain, and the deliveries of what follows.
            proof = drain
            for enqueue in reversed(enqueues):
                delivery = self._delivery_of(enqueue)
                if delivery is not None:
                    if proof is None or delivery.operation.ended < proof.ended:
                        proof = delivery.operation
                elif enqueue.is_ok:
                    deadline = NEVER if proof is None else proof.ended
                    missing.append(_Missing(enqueue, deadline, proof))
        return sorted(missing, key=lambda one: (one.deadline, one.enqueue.invoked))

    def _drained(self, quiet: Quiet) -> Operation | None:
        """Return the operation that first found the queue empty in quiet."""
        begin = quiet.after(self._enqueues)
        empty = [
            one
            for one in self._takes
            if one.is_ok and (one.f == "drain" or one.result == NULL) and begin.is_before(one)
        ]
        return min(empty, key=lambda one: one.ended, default=None)

    def _by_producer(self) -> list[list[Operation]]:
        """Return what each process enqueued, in its order; without what failed."""
        producers: dict[str, list[Operation]] = defaultdict(list)
        for one in self._enqueues:
            if one.outcome is not Outcome.FAIL:
                producers[one.process].append(one)
        return list(producers.values())

    def _delivery_of(self, enqueue: Operation) -> _Delivery | None:
        assert enqueue.argument is not None
        return self._firsts.get(enqueue.argument)

    def _violation(self, detail: str, witness: list[Operation], at: float | None = None) -> Finding:
        if at is None:
            at = max(one.end for one in witness if one.is_ok)
        described = self._history.describe(list({one.invoked: one for one in witness}.values()))
        return Finding(GUARANTEE, Verdict.VIOLATED, f"{self._name}: {detail}", described, at)


def _deliveries(takes: list[Operation]) -> Iterator[_Delivery]:
    """Yield what was delivered, in the order in which it was said."""
    for one in sorted(takes, key=lambda one: one.ended):
        if one.is_ok and isinstance(one.result, tuple) and one.f == "drain":
            for place, element in enumerate(one.result):
                yield _Delivery(element, one, place)
        elif one.is_ok and one.result is not None and one.result != NULL:
            yield _Delivery(one.result, one, 0)


def _of(enqueue: Operation) -> str:
    return "" if enqueue.argument is None else shown(enqueue.argument)
