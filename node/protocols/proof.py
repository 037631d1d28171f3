"""Has a stranger prove that it is where it says: a cookie is sent there, and has to come back.

Nothing is kept for it. A cookie is a hash of the stranger's address, the time and a secret of this
member, so that only who receives frames at that address can know it. Joiners are asked for one, and
members of other groups that want to know a view or to merge. Until it came back nothing is kept of
the stranger, nobody is told of it, and nothing is sent to it that is larger than its own frame.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from stormcast.node.core import wire

if TYPE_CHECKING:
    from random import Random

    from stormcast.node.core.model import Address
    from stormcast.node.core.wire import Head
    from stormcast.node.protocols.port import Port

LIFE_SECONDS: Final = 30.0
"""Seconds for which a cookie is good at least; at most twice as long."""
_SECRET_BYTES: Final = 16
_COOKIE_BYTES: Final = 8
_MASK: Final = (1 << 63) - 1


class Proof:
    """Makes and checks the cookies of one member."""

    def __init__(self, dice: Random) -> None:
        self._secret = dice.randbytes(_SECRET_BYTES)

    def believes(
        self, port: Port, protocol: int, stranger: Address, head: Head, now: float
    ) -> bool:
        """Whether a stranger's question came with its cookie, so that it is where it says. If not,
        the cookie is sent there, which need not be where the question came from."""
        if not port.may_challenge(stranger):
            return False
        if self.is_good(stranger, head.mark, now):
            port.prove(stranger)
            return True
        port.challenge(stranger)
        port.control(
            head.source,
            wire.COOKIE,
            protocol,
            head.lo,
            mark=self.cookie(stranger, now),
            transmission=head.transmission,
        )
        return False

    def cookie(self, stranger: Address, now: float) -> int:
        """Return the cookie of a stranger; never 0, which stands for none."""
        return self._at(stranger, int(now // LIFE_SECONDS))

    def is_good(self, stranger: Address, cookie: int, now: float) -> bool:
        """Whether a cookie is this stranger's, and not too old."""
        period = int(now // LIFE_SECONDS)
        return cookie in (self._at(stranger, period), self._at(stranger, period - 1))

    def _at(self, stranger: Address, period: int) -> int:
        text = f"{stranger.identity:032x} {period} {stranger.where}".encode()
        digest = blake2b(text, digest_size=_COOKIE_BYTES, key=self._secret).digest()
        return (int.from_bytes(digest, "big") & _MASK) or 1
