"""Has a joiner prove that it is where it says: a cookie is sent there, and has to come back.

Nothing is kept for it. A cookie is a hash of the joiner's address, the time and a secret of this
member, so that only who receives frames at that address can know it. Until it came back nothing is
kept of the joiner, nobody is told of it, and nothing is sent to it that is larger than its own
frame.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

    from stormcast.node.core.model import Address

LIFE_SECONDS: Final = 30.0
"""How long a cookie is good at least; at most twice as long."""
_SECRET_BYTES: Final = 16
_COOKIE_BYTES: Final = 8
_MASK: Final = (1 << 63) - 1


class Proof:
    """Makes and checks the cookies of one member."""

    def __init__(self, dice: Random) -> None:
        self._secret = dice.randbytes(_SECRET_BYTES)

    def cookie(self, joiner: Address, now: float) -> int:
        """Return the cookie of a joiner; never 0, which stands for none."""
        return self._at(joiner, int(now // LIFE_SECONDS))

    def is_good(self, joiner: Address, cookie: int, now: float) -> bool:
        """Whether a cookie is this joiner's, and not too old."""
        period = int(now // LIFE_SECONDS)
        return cookie in (self._at(joiner, period), self._at(joiner, period - 1))

    def _at(self, joiner: Address, period: int) -> int:
        text = f"{joiner.identity:032x} {period} {joiner.where}".encode()
        digest = blake2b(text, digest_size=_COOKIE_BYTES, key=self._secret).digest()
        return (int.from_bytes(digest, "big") & _MASK) or 1
