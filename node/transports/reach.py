"""Finds out which members hear multicasts: by asking them, because a sender cannot see it.

A question goes out by multicast; a member that hears it there answers by unicast. Until a member
has answered, frames for the group are also sent to it alone. An answer proves this for a while
only, as a network may stop carrying multicasts: so all are asked again and again.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from stormcast.node.core.errors import BadFrame

if TYPE_CHECKING:
    from stormcast.node.keys.seals import Seals

MAGIC: Final = b"SCmp"
QUESTION: Final = 1
HEARD: Final = 2
_FORM: Final = struct.Struct(">4sBIIQ")
"""magic, kind, cluster, short id of the sender, the asker's secret."""
LARGEST: Final = 128
"""Bytes of a question or an answer at most, with its seal."""
FIRST_WAIT: Final = 0.05
LONGEST_WAIT: Final = 5.0
PROOF_SECONDS: Final = 3.5 * LONGEST_WAIT
"""Seconds for which the answer to a question counts: three questions in a row may be lost."""


class Timer(Protocol):
    """A call that is to come."""

    def cancel(self) -> None: ...


class Reach:
    """Knows which of the other members hear this member's multicasts."""

    def __init__(
        self,
        cluster: int,
        me: int,
        draw: Callable[[], int],
        multicast: Callable[[bytes], None],
        unicast: Callable[[int, bytes], None],
        now: Callable[[], float],
        call_later: Callable[[float, Callable[[], None]], Timer],
        counters: Counter[str],
        seals: Seals | None = None,
    ) -> None:
        self.reached: dict[int, float] = {}
        """When the latest question was asked that a member has answered, by its short id."""
        self._cluster = cluster
        self._me = me
        self._draw = draw
        self._multicast = multicast
        self._unicast = unicast
        self._now = now
        self._call_later = call_later
        self._counters = counters
        self._seals = seals
        self._others: set[int] = set()
        self._asked: dict[int, float] = {}
        """When each question was asked of which an answer still counts, by its secret. Each has
        its own: with one for all, an old question that somebody says again would be answered, and
        prove what is no longer so."""
        self._next_wait = FIRST_WAIT
        self._wait = 0.0
        """The length of the wait that is running; 0: none is."""
        self._timer: Timer | None = None

    def on_view(self, others: set[int]) -> None:
        """Take in the other members of the group; a member that was away must answer again."""
        self._others = others
        self.reached = {short: at for short, at in self.reached.items() if short in others}
        if not self.is_complete:
            self._next_wait = FIRST_WAIT
            # Views that follow each other fast share a question.
            if self._wait != FIRST_WAIT:
                self._ask()

    def close(self) -> None:
        """Stop asking."""
        self._stop_waiting()

    @property
    def is_complete(self) -> bool:
        return self.reached.keys() >= self._others

    def _ask(self) -> None:
        now = self._now()
        try:
            self._forget_before(now - PROOF_SECONDS)
            secret = self._draw()
            self._asked[secret] = now
            self._multicast(self._packed(QUESTION, secret))
        finally:
            # A question that failed must not be the last: proofs would count for ever.
            self._wait_for(LONGEST_WAIT if self.is_complete else self._next_wait)
            self._next_wait = min(2 * self._next_wait, LONGEST_WAIT)

    def _forget_before(self, oldest: float) -> None:
        """Give up the proofs by questions that were asked before, and no longer take answers to
        them."""
        self._asked = {secret: at for secret, at in self._asked.items() if at >= oldest}
        kept = {short: at for short, at in self.reached.items() if at >= oldest}
        if len(kept) < len(self.reached):
            # A member that only lost some questions answers the next ones at once.
            self._next_wait = FIRST_WAIT
        self.reached = kept

    def _again(self) -> None:
        is_early = self._wait < LONGEST_WAIT
        self._stop_waiting()
        if not self._others:
            return
        if is_early and self.is_complete:
            self._wait_for(LONGEST_WAIT)
        else:
            self._ask()

    def _wait_for(self, seconds: float) -> None:
        self._stop_waiting()
        self._wait = seconds
        self._timer = self._call_later(seconds, self._again)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._wait = None, 0.0

    def _packed(self, kind: int, secret: int) -> bytes:
        text = _FORM.pack(MAGIC, kind, self._cluster, self._me, secret)
        return text if self._seals is None else self._seals.seal_text(text)

    def receive_untrusted(self, datagram: memoryview, *, by_multicast: bool) -> bool:
        """Take a datagram if it is a question or an answer; return whether it was one."""
        text = bytes(datagram)
        if self._seals is not None:
            try:
                text = self._seals.open_text_untrusted(text)
            except BadFrame:
                return False
        if len(text) != _FORM.size or text[:4] != MAGIC:
            return False
        _magic, kind, cluster, short, secret = _FORM.unpack(text)
        if cluster != self._cluster:
            self._refuse("cluster")
        elif short == self._me:
            # Its own questions come back to a member.
            if not (kind == QUESTION and by_multicast and secret in self._asked):
                self._refuse("source")
        elif kind == QUESTION:
            self._on_question(short, secret, by_multicast=by_multicast)
        elif kind != HEARD:
            self._refuse("kind")
        elif secret in self._asked and short in self._others:
            self.reached[short] = max(self._asked[secret], self.reached.get(short, 0.0))
        else:
            self._refuse("unasked")
        return True

    def _on_question(self, short: int, secret: int, *, by_multicast: bool) -> None:
        if by_multicast:
            self._unicast(short, self._packed(HEARD, secret))
        else:
            self._refuse("unicast")

    def _refuse(self, reason: str) -> None:
        """Count a datagram that says nothing to this member."""
        self._counters[f"refused_reach-{reason}"] += 1
