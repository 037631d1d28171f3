"""Asking for what is missing: the two-look rule, and requests of bounded size (C1)."""

from __future__ import annotations

from math import inf
from typing import Final

from node import trace
from node.core import wire
from node.protocols.unicast.connections import UNLIMITED, Connections
from node.protocols.unicast.entries import (
    Asked,
    ReceiverEntry,
)

MAX_REQUESTS_PER_LOOK: Final = 64
"""Request frames that one look sends at most; the rest waits for the next look."""


class Asking(Connections):
    """Looks at the gaps of receiver entries."""

    def _look_at_gaps(self, entry: ReceiverEntry, now: float) -> None:
        """The two-look rule: ask only for what was already missing at the previous look
        (JGRP-1539)."""
        window = entry.window
        missing = window.missing(UNLIMITED)
        if not missing:
            entry.missing_before = 0
            entry.asked.clear()
            entry.look_due = inf
            return
        before, highest = entry.missing_before, missing[-1][1]
        entry.missing_before = max(before, highest)
        ask = self._due_requests(entry, missing, before, now)
        if ask:
            self._request(entry, ask, now)
        due = self.pacer.second_gap_look(now, entry.rtt) if highest > before else inf
        for asked in entry.asked:
            due = min(due, self.pacer.next_gap_look(asked.at, entry.rtt, asked.tries))
        entry.look_due = max(due, now)

    def _due_requests(
        self, entry: ReceiverEntry, missing: list[tuple[int, int]], before: int, now: float
    ) -> list[tuple[int, int]]:
        """What of the missing ranges to ask for now: never asked and seen before, or asked too long
        ago."""
        pacer, rtt = self.pacer, entry.rtt
        asked = [one for one in entry.asked if one.hi > entry.window.deliverable]
        known = asked[-1].hi if asked else entry.window.deliverable
        due: list[tuple[int, int]] = []
        lo = 0
        for one in asked:
            if pacer.next_gap_look(one.at, rtt, one.tries) <= now:
                parts = _overlap(missing, lo + 1, one.hi)
                due += parts
                one.at = now
                one.tries += 1
            lo = one.hi
        if before > known and (fresh := _overlap(missing, known + 1, before)):
            due += fresh
            asked.append(Asked(before, now))
        entry.asked = asked
        return due

    def _request(self, entry: ReceiverEntry, ranges: list[tuple[int, int]], now: float) -> None:
        """Ask, in as many frames as the size of a request makes of it, but not without limit."""
        config = self.config
        requests = split_ranges(ranges, config.max_xmit_req_size, config.max_xmit_req_ranges)
        transmission = max(asked.tries for asked in entry.asked)
        for part, number in requests[:MAX_REQUESTS_PER_LOOK]:
            self._tracer.records.append(
                (trace.REQUESTED, 0, self.protocol, 0, entry.peer, entry.conn, entry.epoch, 0,
                 number, part[0][0], part[-1][1], 0, 0, 0, 0, now)
            )  # fmt: skip
            frame = self._codec.pack_control(
                wire.XMIT_REQ, self.protocol, entry.peer, entry.conn, part[-1][1],
                transmission=min(transmission, 255), ranges=part,
            )  # fmt: skip
            self._port.frames.append((entry.peer, frame, b""))

    @staticmethod
    def _sample_round_trip(entry: ReceiverEntry, seqno: int, now: float) -> None:
        """Only an answer to the one request that can have caused it measures a round trip."""
        for asked in entry.asked:
            if seqno <= asked.hi:
                if not asked.tries and not asked.is_sampled:
                    entry.rtt.sample(now - asked.at)
                    asked.is_sampled = True
                return


def _overlap(ranges: list[tuple[int, int]], lo: int, hi: int) -> list[tuple[int, int]]:
    """The parts of ascending ranges within `lo..hi`."""
    return [(max(first, lo), min(last, hi)) for first, last in ranges if last >= lo and first <= hi]


def split_ranges(
    ranges: list[tuple[int, int]], most_seqnos: int, most_ranges: int
) -> list[tuple[list[tuple[int, int]], int]]:
    """Cut ascending ranges into requests, each with how many seqnos it asks for."""
    requests: list[tuple[list[tuple[int, int]], int]] = []
    part: list[tuple[int, int]] = []
    number = 0
    for first, last in ranges:
        lo = first
        while lo <= last:
            hi = min(last, lo + most_seqnos - number - 1)
            part.append((lo, hi))
            number += hi - lo + 1
            lo = hi + 1
            if number >= most_seqnos or len(part) >= most_ranges:
                requests.append((part, number))
                part, number = [], 0
    if part:
        requests.append((part, number))
    return requests
