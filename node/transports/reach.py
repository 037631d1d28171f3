"""Finds out which members hear multicasts: by asking them, because a sender cannot see it.

A question goes out by multicast; a member that hears it there answers by unicast. Until a member
has answered, frames for the group are also sent to it alone.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

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


class Reach:
    """Knows which of the other members hear this member's multicasts."""

    def __init__(
        self,
        cluster: int,
        me: int,
        secret: int,
        multicast: Callable[[bytes], None],
        unicast: Callable[[int, bytes], None],
        call_later: Callable[[float, Callable[[], None]], object],
        counters: Counter[str],
        seals: Seals | None = None,
    ) -> None:
        self.reached: set[int] = set()
        self._cluster = cluster
        self._me = me
        self._secret = secret
        self._multicast = multicast
        self._unicast = unicast
        self._call_later = call_later
        self._counters = counters
        self._seals = seals
        self._others: set[int] = set()
        self._wait = FIRST_WAIT
        self._is_waiting = False
        self._is_closed = False

    def on_view(self, others: set[int]) -> None:
        """Take in the other members of the group; a member that was away must answer again."""
        self._others = others
        self.reached &= others
        self._wait = FIRST_WAIT
        self._ask()

    def close(self) -> None:
        """Stop asking."""
        self._is_closed = True

    @property
    def is_complete(self) -> bool:
        return self.reached >= self._others

    def _ask(self) -> None:
        if self._is_closed or self._is_waiting or self.is_complete:
            return
        self._multicast(self._packed(QUESTION, self._secret))
        self._is_waiting = True
        self._call_later(self._wait, self._again)
        self._wait = min(2 * self._wait, LONGEST_WAIT)

    def _again(self) -> None:
        self._is_waiting = False
        self._ask()

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
            if not (kind == QUESTION and by_multicast and secret == self._secret):
                self._refuse("source")
        elif kind == QUESTION:
            self._on_question(short, secret, by_multicast=by_multicast)
        elif kind != HEARD:
            self._refuse("kind")
        elif secret == self._secret and short in self._others:
            self.reached.add(short)
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
