"""Credits of flow control as totals: how much a sender may have sent in all.

Bytes are counted in the *sender's count*: a number that only grows while the sender lives, whoever
comes and goes. A receiver names the total that it is willing to have been sent, and never "so many
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
MAX_TOTAL: Final = 1 << 62
"""No honest total comes near; what is above would not fit a frame once credits are added."""
MAX_NUMBER: Final = 0xFF
"""Repeats are numbered with one byte, which wraps: a number that stood still would share the fate
of one lost frame for ever."""


class StreamEnd(NamedTuple):
    """Where a sender's stream to a receiver ends, as the sender knows it."""

    conn: int
    """Its connection, or where there is none, the first that may come; 0 for multicasts."""
    seqno: int
    """The last seqno sent; 0 where nothing was sent on the connection."""
    unacked: int
    """How many messages may still be under way."""

    def as_of(self, end: StreamEnd) -> StreamEnd | None:
        """This place, when the stream ends at `end`; None once its connection is gone."""
        if end.conn != self.conn or end.seqno < self.seqno:
            return None
        acked = end.seqno - end.unacked
        return self._replace(unacked=max(0, self.seqno - acked))


def is_reached(place: StreamEnd, taken: tuple[int, int] | None) -> bool:
    """Whether a receiver that has taken so much (connection, seqno) of a stream has all of it up
    to `place`. None: it has no window for that sender."""
    if not place.seqno:
        # Connections before this one have ended, and nothing was sent on it.
        return True
    if taken is None:
        return not place.unacked
    conn, seqno = taken
    if conn == place.conn:
        return seqno >= place.seqno
    # What an older connection did not deliver, it never will; without one, nothing is under way.
    return not place.conn or is_newer(conn, place.conn)


class Question(NamedTuple):
    """A sender asks for its limit: what it had sent in all when it began to ask, and where that
    was in its stream. When the connection of the place ends, it asks anew."""

    total: int
    place: StreamEnd
    is_introduction: bool
    """It does not wait yet: the receiver should learn the count before it has to."""


class Allowance:
    """What one receiver lets this member send: `total <= limit`. Both only grow.

    `base` is the count at which the two met. Nobody needs to agree on when that was: counts never
    run backwards, so a limit from before lies below the one that holds.
    """

    __slots__ = ("ask_at", "asks", "base", "introduce_at", "limit", "need", "question", "wait")

    def __init__(self, base: int, max_credits: int) -> None:
        self.base = base
        self.limit = base + max_credits
        self.introduce_at = base + max_credits // 2
        """Total above which the receiver should know the count."""
        self.need = 0
        """Bytes that wait for room; 0 when nothing does."""
        self.question: Question | None = None
        self.ask_at = -inf
        self.wait = 0.0
        self.asks = 0

    def is_short(self, total: int) -> bool:
        """Whether what waits does not fit."""
        return self.need > self.limit - total

    def next_ask(self) -> int:
        """The number of this repeat."""
        self.asks += 1
        return (self.asks - 1) & MAX_NUMBER


class Budget(Allowance):
    """An allowance with a total of its own: unicasts."""

    __slots__ = ("total",)

    def __init__(self, base: int, max_credits: int) -> None:
        super().__init__(base, max_credits)
        self.total = base


class Intake:
    """What this member has taken from one sender, in that sender's count.

    `taken` is never more than what was really taken, whatever was lost on the way, so
    `announced = taken + max_credits` never lets more than `max_credits` be under way. It is exact
    from `settle` on, and again after each.
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
        """Connection of the place at which the count was settled. What still comes of one before
        it is in that count."""
        self.announced = 0
        """The limit last named."""
        self.question: Question | None = None
        """Asked, and not yet answered for good."""
        self.is_answer_due = False
        self.answers = 0

    def took(self, size: int, conn: int) -> bool:
        """Count what the application took of a connection; whether the limit should be named
        anew."""
        if not self.is_known or (self.oldest and is_newer(self.oldest, conn)):
            return False
        self.taken += size
        return self.announced - self.taken <= self.low

    def settle(self, total: int, oldest: int = 0) -> None:
        """Everything up to `total` was taken, or will never come: it ends on connection
        `oldest`."""
        self.is_known = True
        self.taken = self.settled = total
        self.oldest = oldest

    def is_stale(self, question: Question) -> bool:
        """Whether an introduction is a repeat: counting has gone on since."""
        return question.is_introduction and self.is_known and question.total <= self.settled

    def announce(self) -> int:
        """The limit that holds from now on."""
        self.announced = self.taken + self.max_credits
        return self.announced

    def next_answer(self) -> int:
        """The number of this CREDIT."""
        self.answers += 1
        return (self.answers - 1) & MAX_NUMBER
