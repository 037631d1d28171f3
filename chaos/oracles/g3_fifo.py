"""G3, FIFO: within an epoch deliveries ascend, with no step back and no skip; OOB is exempt."""

from __future__ import annotations

from collections.abc import Iterator

from stormcast.chaos.oracles import hand_over
from stormcast.chaos.oracles.coverage import first_gap
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.groups import Window
from stormcast.chaos.oracles.history import EPSILON, Epoch, Member, Violation
from stormcast.node.core.model import DONT_LOOPBACK, OOB
from stormcast.node.trace import Event


def violations(evidence: Evidence) -> Iterator[Violation]:
    """Deliveries at or behind their predecessor, or beyond a seqno that nothing accounts for."""
    for epoch in evidence.unicasts.epochs():
        receiver = epoch.connection.receiver
        # `before` is the highest delivery in order so far. G1 judges where a window starts.
        before: Event | None = None
        early = {event.lo: event for event in _early_before(epoch)}
        for event in epoch.delivered:
            if event.flags & OOB:
                early[event.lo] = event
                continue
            if before is not None and (fault := _fault(epoch, before, event, early)):
                yield Violation(event.time, fault, ((receiver, before), (receiver, event)))
            if before is None or event.hi > before.hi:
                before = event
    for window in evidence.groups.windows():
        yield from _multicasts(window)
    yield from _across_windows(evidence)
    yield from hand_over.found_in(evidence, "G3")


def _across_windows(evidence: Evidence) -> Iterator[Violation]:
    """Deliveries that come in a later window than what was sent after them."""
    for entry in evidence.unicasts.entries():
        if len(entry.connection.epochs) > 1:
            of_epoch: dict[Epoch, list[Event]] = {each: [] for each in entry.connection.epochs}
            for epoch, event in entry.delivered:
                of_epoch[epoch].append(event)
            yield from _late(entry.connection.receiver, [*of_epoch.values()], "seqno")
    for stream in evidence.groups.streams.values():
        for windows in stream.windows.values():
            delivered = [window.genuine for window in windows.values()]
            if len(delivered) > 1:
                receiver = next(iter(windows.values())).receiver
                yield from _late(receiver, delivered, "multicast")


def _late(receiver: Member, windows: list[list[Event]], what: str) -> Iterator[Violation]:
    """Deliveries below the highest one of the windows before. One that came before is G2's."""
    past: list[Event] = []
    reached: Event | None = None
    for delivered in windows:
        for event in delivered:
            if event.flags & OOB or reached is None or event.lo > reached.hi:
                continue
            if not any(each.lo <= event.lo <= each.hi for each in past):
                detail = (
                    f"{what} {event.lo} was delivered after {reached.hi}, which an earlier window "
                    "delivered"
                )
                yield Violation(event.time, detail, ((receiver, reached), (receiver, event)))
        past += delivered
        regular = [event for event in delivered if not event.flags & OOB]
        reached = max([*([reached] if reached else []), *regular], key=_last, default=None)


def _last(event: Event) -> int:
    return event.hi


def _early_before(epoch: Epoch) -> Iterator[Event]:
    """Yield the OOB deliveries of earlier windows on the connection: they still count."""
    for past in epoch.connection.epochs:
        if past is epoch:
            return
        yield from (event for event in past.delivered if event.flags & OOB)


def _multicasts(window: Window) -> Iterator[Violation]:
    """Steps back and skips in a window on multicasts, which also says where it begins."""
    receiver = window.receiver
    before: Event | None = window.opened.event if window.opened else None
    reached = window.offset
    knows_start = window.is_own or window.opened is not None
    early: dict[int, Event] = {event.lo: event for event in window.early_before()}
    for event in window.delivered:
        if event.flags & OOB:
            early[event.lo] = event
            if event.lo > window.offset:
                continue
        fault = ""
        if event.lo <= reached:
            is_below = event.lo <= window.offset
            why = (
                f"its window begins after {window.offset}" if is_below else f"{reached} was before"
            )
            fault = f"multicast {event.lo} was delivered, and {why}"
        elif event.lo > reached + 1 and knows_start:
            fault = _passed_over(window, reached, event, early)
        if fault:
            witness = ((receiver, before),) if before else ()
            yield Violation(event.time, fault, (*witness, (receiver, event)))
        if event.hi > reached:
            before, reached, knows_start = event, event.hi, True


def _passed_over(window: Window, reached: int, event: Event, early: dict[int, Event]) -> str:
    """Describe the first seqno that nothing accounts for between `reached` and a delivery; empty:
    there is none."""
    at = reached + 1
    while at in early and at < event.lo:
        at = early[at].hi + 1
    if at >= event.lo:
        return ""
    parts = [*early.values(), *(s for s in window.skipped if s.time <= event.time + EPSILON)]
    if window.is_own:
        batches = window.stream.batches.between(reached + 1, event.lo - 1)
        parts += [batch for batch in batches if batch.flags & DONT_LOOPBACK]
    skipped = first_gap(reached + 1, event.lo - 1, parts)
    if skipped is None:
        return ""
    return f"multicast {event.lo} was delivered after {reached}, and {skipped} was not"


def _fault(epoch: Epoch, before: Event, event: Event, early: dict[int, Event]) -> str:
    """Describe how a delivery breaks the order after the one before; empty: it does not."""
    if event.lo <= before.hi:
        return f"seqno {event.lo} was delivered after seqno {before.hi}"
    at = before.hi + 1
    while at in early and at < event.lo:
        at = early[at].hi + 1
    if at == event.lo:
        return ""
    parts = [*early.values(), *_accounted(epoch, before.hi + 1, event.lo - 1, event.time)]
    skipped = first_gap(before.hi + 1, event.lo - 1, parts)
    if skipped is None:
        return ""
    return f"seqno {event.lo} was delivered after seqno {before.hi}, and seqno {skipped} was not"


def _accounted(epoch: Epoch, lo: int, hi: int, time: float) -> Iterator[Event]:
    """Yield the events that explain a hole: skips, and messages to oneself with DONT_LOOPBACK."""
    # A skip names the seqno up to which it gave up; without a first one, it gave up all below.
    yield from (skip for skip in epoch.skipped if skip.time <= time)
    if epoch.connection.is_to_self:
        for entry in epoch.connection.entries:
            yield from (
                batch for batch in entry.batches.between(lo, hi) if batch.flags & DONT_LOOPBACK
            )
