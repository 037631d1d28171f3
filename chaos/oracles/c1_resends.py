"""C1, resends: a batch is sent again because a peer asked, or because its sender heard nothing.

Requests, syncs and reports are each answered once per arrival, and a network may repeat a frame.
Resends that nobody asked for happen at silent looks: in T seconds without progress there are at
most log2(1 + T / least wait) looks while the wait doubles, and T / interval after that.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from math import inf, log2
from typing import Final

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.groups import Stream
from stormcast.chaos.oracles.history import EPSILON, Connection, Member, SenderLife, Violation
from stormcast.node.core import wire
from stormcast.node.trace import PURGED, RETRANSMITTED, SENT, Event

SPARE_RESENDS: Final = 2
"""Looks that the formula for a stretch leaves out: those at its two ends."""


def violations(evidence: Evidence) -> Iterator[Violation]:
    """Batches that were sent again more often than requests and silence allow."""
    for connection in evidence.unicasts.connections.values():
        for entry in connection.entries:
            yield from _unicast(evidence, connection, entry)
            yield from _in_the_middle(evidence, connection, entry)
    for stream in evidence.groups.streams.values():
        yield from _multicast(evidence, stream)


def _unicast(evidence: Evidence, connection: Connection, entry: SenderLife) -> Iterator[Violation]:
    sender = connection.sender
    pace = sender.bounds.get("resend_within"), sender.bounds.get("request_spacing")
    if pace[0] is None or pace[1] is None:
        return
    resent = Counter(event.lo for event in entry.activity if event.kind == RETRANSMITTED)
    if not resent:
        return
    # Late turns loosen `resend_within`; the time between looks stays what it is.
    interval = sender.bounds.get("resend_interval") or pace[0] / 2
    looks = _Looks(entry, interval, min(pace[1], interval))
    last = min(evidence.over, sender.ended, entry.removed.event.time if entry.removed else inf)
    for lo, number in resent.items():
        batch = entry.batches.at(lo)
        if batch is None or number <= SPARE_RESENDS:
            continue
        silent = looks.within(batch.time, _purged_at(entry, batch, last))
        allowed = SPARE_RESENDS + len(sender.paused) + silent
        if number > allowed:
            allowed += evidence.most_copies * _asked(evidence, connection, batch)
        if number > allowed + EPSILON:
            repeats = [e for e in entry.activity if e.kind == RETRANSMITTED and e.lo == lo]
            yield _too_often(repeats, sender, batch, allowed)


def _in_the_middle(
    evidence: Evidence, connection: Connection, entry: SenderLife
) -> Iterator[Violation]:
    """Batches with others unacked before and after them that were sent again more often than asked
    for. The loss of such a batch shows as a gap, so its receiver asks."""
    sender = connection.sender
    resent: dict[int, list[Event]] = {}
    high = low = 0
    for event in entry.activity:
        if event.kind == SENT:
            high = max(high, event.hi)
        elif event.kind == PURGED:
            low = max(low, event.hi)
        elif low + 1 < event.lo and event.hi < high and event.protocol != wire.UNICAST:
            # The first generation has no requests: it repeats whatever is old.
            resent.setdefault(event.lo, []).append(event)
    for lo, repeats in resent.items():
        batch = entry.batches.at(lo)
        if batch is None:
            continue
        asked = _requests(connection, batch) + _reports(connection)
        allowed = evidence.most_copies * asked
        if len(repeats) > allowed:
            breaking = repeats[allowed]
            detail = (
                f"seqnos {batch.lo}..{batch.hi} were sent again {len(repeats)} times, with others "
                f"unacked before and after them: {asked} requests allow {allowed}"
            )
            yield Violation(breaking.time, detail, ((sender, batch), (sender, breaking)))


class _Looks:
    """The most silent looks that fit between two moments of an entry's life."""

    def __init__(self, entry: SenderLife, interval: float, least: float) -> None:
        self._interval = interval
        self._least = least
        # The first generation repeats whatever is old, progress or not.
        is_patient = entry.activity[0].protocol != wire.UNICAST
        progress = [event.time for event in entry.activity if event.kind in {SENT, PURGED}]
        self._times = progress if is_patient else []
        self._sums = [0.0]
        for before, after in zip(self._times, self._times[1:], strict=False):
            self._sums.append(self._sums[-1] + self._in(after - before))

    def within(self, start: float, end: float) -> float:
        """Return the most looks in a stretch of the entry's life."""
        times = self._times
        first, last = bisect_left(times, start), bisect_right(times, end) - 1
        if not times or first > last:
            return self._in(end - start)
        between = self._sums[last] - self._sums[first]
        return self._in(times[first] - start) + between + self._in(end - times[last])

    def _in(self, seconds: float) -> float:
        """Return the most looks in a time without progress; 0 if the least wait is longer."""
        if seconds < self._least - EPSILON:
            return 0.0
        return log2(1 + seconds / self._least) + seconds / self._interval


def _purged_at(entry: SenderLife, batch: Event, last: float) -> float:
    """Return the time at which the last of a batch was purged; `last` if it was not."""
    at = bisect_left(entry.purged, batch.hi, key=lambda purge: purge.hi)
    return min(last, entry.purged[at].time) if at < len(entry.purged) else last


def _asked(evidence: Evidence, connection: Connection, batch: Event) -> int:
    """Count the requests for a batch, and all syncs and reports of its connection: those that come
    late may be answered with batches that were sent after them."""
    pair = connection.receiver.short, connection.sender.short
    asked = sum(1 for sync in evidence.unicasts.syncs.get(pair, ()) if sync.conn == connection.conn)
    return asked + _requests(connection, batch) + _reports(connection)


def _requests(connection: Connection, batch: Event) -> int:
    return sum(
        1
        for epoch in connection.epochs
        for request in epoch.requested
        if request.lo <= batch.hi and batch.lo <= request.hi
    )


def _reports(connection: Connection) -> int:
    """Count the reports of UNICAST2: batches above the seqno that one names are sent again."""
    return sum(1 for epoch in connection.epochs for ack in epoch.acked if ack.stream == wire.STABLE)


def _too_often(repeats: list[Event], sender: Member, batch: Event, allowed: float) -> Violation:
    breaking = repeats[min(int(allowed), len(repeats) - 1)]
    detail = (
        f"seqnos {batch.lo}..{batch.hi} were sent again {len(repeats)} times: "
        f"requests and silence allow {int(allowed)}"
    )
    return Violation(breaking.time, detail, ((sender, batch), (sender, breaking)))


def _multicast(evidence: Evidence, stream: Stream) -> Iterator[Violation]:
    """Multicasts that were repeated more often than requests and `tail_repeats` allow."""
    resent = Counter(event.lo for _by, event in stream.resent)
    if not resent:
        return
    requests = [
        (request.event, _answers(evidence, window.receiver))
        for window in stream.all_windows()
        for request in window.requested
    ]
    sender = stream.sender
    for lo, number in resent.items():
        batch = stream.batches.at(lo)
        if batch is None:
            continue
        tail = sender.bound(batch.protocol, "tail_repeats") or 0
        asked = sum(n for r, n in requests if r.lo <= batch.hi and batch.lo <= r.hi)
        allowed = evidence.most_copies * asked + tail
        if number > allowed:
            repeats = [(by, event) for by, event in stream.resent if event.lo == lo]
            detail = (
                f"multicasts {batch.lo}..{batch.hi} were sent again {number} times: "
                f"{asked} requests allow {int(allowed)}"
            )
            breaking = repeats[int(allowed)]
            yield Violation(breaking[1].time, detail, ((sender, batch), breaking))


def _answers(evidence: Evidence, receiver: Member) -> int:
    """Return how many members may answer one request of a member."""
    asks_all = any(settings.get("use_mcast_xmit_req") for settings in receiver.protocols.values())
    return len(evidence.members) if asks_all else 1
