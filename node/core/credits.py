"""Credits of flow control as totals: how many bytes a sender may have sent in all.

Bytes are counted in the *sender's count*: a number that only grows while the sender lives, whoever
joins or leaves. A receiver names the total up to which the sender may send, and never "so many
more": a CREDIT that is lost, repeated or overtaken does no harm, because only the highest matters
(JGRP-1283: amounts drift apart, totals cannot).

An `Allowance` is what one receiver lets this member send; an `Intake` is what this member has taken
from one sender.
"""

from __future__ import annotations

from math import inf
from typing import Final, NamedTuple

from stormcast.node.core.serial import is_newer

UNLIMITED: Final = 1 << 62
"""More than anybody sends."""
MAX_TOTAL: Final = 1 << 61
"""Totals above are refused: no real total comes near, and with credits added they would be larger
than any number that a trace may say, so that a stranger could spoil the verdict of a run."""
MAX_NUMBER: Final = 0xFF
"""Repeats are numbered with one byte, which wraps: if the number stayed at its maximum, all further
repeats would be lost after one with that number was lost."""


class StreamEnd(NamedTuple):
    """The end of a sender's stream to a receiver, as the sender knows it."""

    conn: int
    """The connection; if none is open, the next that may be opened; 0 for multicasts."""
    seqno: int
    """The last seqno sent; 0 where nothing was sent on the connection."""
    unacked: int
    """Messages that may still be under way."""

    def as_of(self, end: StreamEnd) -> StreamEnd | None:
        """Return this place with `unacked` updated, when the stream ends at `end`; None once the
        connection of this place is gone."""
        if end.conn != self.conn or end.seqno < self.seqno:
            return None
        acked = end.seqno - end.unacked
        return self._replace(unacked=max(0, self.seqno - acked))


def is_reached(place: StreamEnd, taken: tuple[int, int] | None) -> bool:
    """Whether a receiver that has taken a stream up to `taken` (connection, seqno) has all of it up
    to `place`. `taken` is None where the receiver has no window for that sender."""
    if not place.seqno:
        # Connections before this one have ended, and nothing was sent on it.
        return True
    if taken is None:
        return not place.unacked
    conn, seqno = taken
    if conn == place.conn:
        return seqno >= place.seqno
    # A connection older than the receiver's will deliver no more; a place without a connection has
    # nothing under way.
    return not place.conn or is_newer(conn, place.conn)


class Question(NamedTuple):
    """A sender's question for its limit: the total it had sent when it began to ask, and where its
    stream ended then. When the connection of that place ends, the sender asks anew."""

    total: int
    place: StreamEnd
    is_introduction: bool
    """Whether the sender asks before it has to wait, so that the receiver learns its count."""


class Allowance:
    """The total up to which this member may send to one receiver: `total <= limit`. Both only grow.

    `base` is the sender's count when it met the receiver. The two need not agree on that moment:
    counts never run backwards, so an earlier limit is below the current one.
    """

    __slots__ = ("ask_at", "asks", "base", "introduce_at", "limit", "need", "question", "wait")

    def __init__(self, base: int, max_credits: int) -> None:
        self.base = base
        self.limit = base + max_credits
        self.introduce_at = base + max_credits // 2
        """Total above which the receiver should know the count."""
        self.need = 0
        """Bytes that wait for credits; 0 when nothing waits."""
        self.question: Question | None = None
        self.ask_at = -inf
        self.wait = 0.0
        self.asks = 0

    def is_short(self, total: int) -> bool:
        """Whether the bytes that wait exceed what the limit leaves."""
        return self.need > self.limit - total

    def next_ask(self) -> int:
        """Return the number of the next repeat of the question."""
        self.asks += 1
        return (self.asks - 1) & MAX_NUMBER


class Budget(Allowance):
    """An allowance with a total of its own, for unicasts."""

    __slots__ = ("total",)

    def __init__(self, base: int, max_credits: int) -> None:
        super().__init__(base, max_credits)
        self.total = base


class Intake:
    """The bytes that this member has taken from one sender, in that sender's count.

    `taken` is never more than what was really taken, whatever was lost on the way, so
    `announced = taken + max_credits` never lets more than `max_credits` be under way. Each `settle`
    makes `taken` exact.
    """

    __slots__ = (
        "announced",
        "answers",
        "is_answer_due",
        "is_known",
        "low",
        "max_credits",
        "oldest",
        "question",
        "settled",
        "taken",
    )

    def __init__(self, max_credits: int, low: int) -> None:
        self.max_credits = max_credits
        self.low = low
        self.is_known = False
        """Whether the sender's count is known; nothing is counted before."""
        self.taken = 0
        self.settled = 0
        self.oldest = 0
        """Connection of the place at which the count was settled. That count includes all messages
        of older connections, also those that still arrive."""
        self.announced = 0
        """The limit last named."""
        self.question: Question | None = None
        """The sender's question, until it is answered for good."""
        self.is_answer_due = False
        self.answers = 0

    def took(self, size: int, conn: int) -> bool:
        """Count what the application took of a connection; return whether the limit should be named
        anew."""
        if not self.is_known or (self.oldest and is_newer(self.oldest, conn)):
            return False
        self.taken += size
        return self.announced - self.taken <= self.low

    def settle(self, total: int, oldest: int = 0) -> None:
        """Note that everything up to `total` was taken, or will never come; `total` was reached on
        connection `oldest`."""
        self.is_known = True
        self.taken = self.settled = total
        self.oldest = oldest

    def is_stale(self, question: Question) -> bool:
        """Whether a question is an introduction whose total was settled already."""
        return question.is_introduction and self.is_known and question.total <= self.settled

    def announce(self) -> int:
        """Raise the limit to what may be sent now, and return it."""
        self.announced = self.taken + self.max_credits
        return self.announced

    def next_answer(self) -> int:
        """Return the number of the next CREDIT."""
        self.answers += 1
        return (self.answers - 1) & MAX_NUMBER
