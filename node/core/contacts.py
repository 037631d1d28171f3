"""Bounds what is sent to strangers, so that a forged frame harms nobody but this member.

Anybody can send a frame in the name of an address that is not its own. The answer goes to that
address, so no answer may be larger than its question, and none may come in more frames. Members of
this view and of past ones are where views said. A stranger may prove that it is where it says (see
`protocols/proof.py`). To all others this member sends no more control frames than came in their
name, and no more bytes. What it sends without being asked (messages of the application, requests
to join) is not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stormcast.node.core import wire
from stormcast.node.core.credits import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stormcast.node.core.model import Address

MAX_KNOWN: Final = 1024
"""Members of past views that need no proof, so that groups that were apart merge at once."""
MAX_PROVED: Final = 1024
"""Strangers that are remembered to be where they said."""
MAX_ACCOUNTS: Final = 1024
"""Strangers of which it is known how much came in their name; the oldest is forgotten first."""
MAX_SAVED: Final = 16
"""Frames, and 64 KiB for each, that a stranger's account holds at most. A sender that saved much in
its own name could otherwise have all of it sent to another address at once."""
_SAVED_BYTES: Final = MAX_SAVED << 16
_UNASKED: Final = frozenset({wire.DATA, wire.JOIN_REQ, wire.LEAVE_REQ})
_KIND: Final = wire.OFFSETS["kind"]
_EVERYBODY: Final = (wire.GROUP, -1)
"""Destinations of frames for the group and for everyone: nobody's frame has chosen them."""


class Contacts:
    """Members and strangers that frames of one member may go to."""

    __slots__ = ("_accounts", "_known", "_view", "is_on", "proved", "trusted")

    def __init__(self) -> None:
        self.trusted: set[int] = set(_EVERYBODY)
        """Destinations that need no account. The set is never replaced, so callers may keep it."""
        self.proved: dict[int, Address] = {}
        """Strangers that gave back a cookie, the latest last."""
        self.is_on = False
        """Whether a stranger has been heard: until then there is nothing to check."""
        self._view: frozenset[int] = frozenset()
        self._known: dict[int, Address] = {}
        """Members of this view and of past ones, the latest last."""
        self._accounts: dict[int, list[int]] = {}
        """Frames and bytes that came in the name of a stranger, less what it was sent."""

    def __len__(self) -> int:
        return len(self.proved) + len(self._known) + len(self._accounts)

    def heard(self, source: int, size: int) -> None:
        """Count a frame that came in the name of a stranger."""
        account = self._accounts.get(source)
        if account is None:
            self.is_on = True
            if len(self._accounts) >= MAX_ACCOUNTS:
                del self._accounts[next(iter(self._accounts))]
            self._accounts[source] = [1, size]
        else:
            account[0] = min(account[0] + 1, MAX_SAVED)
            account[1] = min(account[1] + size, _SAVED_BYTES)

    def may_send(self, dest: int, size: int) -> bool:
        """Whether a frame of so many bytes would leave for `dest` now."""
        return size <= self.largest(dest)

    def largest(self, dest: int) -> int:
        """Return the bytes of the largest frame that may leave for `dest` now; 0 if none may."""
        if dest in self.trusted:
            return UNLIMITED
        frames, saved = self._accounts.get(dest, (0, 0))
        return saved if frames > 0 else 0

    def takes(self, dest: int, head: bytes, body: bytes) -> bool:
        """Whether a frame may leave for a stranger; counts it if so."""
        if head[_KIND] in _UNASKED:
            return True
        size = len(head) + len(body)
        if not self.may_send(dest, size):
            return False
        account = self._accounts[dest]
        account[0] -= 1
        account[1] -= size
        return True

    def trusts(self, address: Address) -> bool:
        """Whether this very address needs no account. A trusted short id alone does not tell:
        anybody can make another address with the same short id."""
        short = address.short
        owner = self._known.get(short) or self.proved.get(short, address)
        return short in self.trusted and owner.is_at_same_place(address)

    def was_member(self, short: int) -> bool:
        """Whether a short id is that of a member of this view, or of a past one that is
        remembered."""
        return short in self._known or short in self._view

    def is_taken(self, address: Address) -> bool:
        """Whether a view, this one or a past one, gives this short id another address."""
        return self._known.get(address.short, address).where != address.where

    def doubt(self, short: int, came: int) -> bool:
        """Forget that a stranger proved its address, because another address has its short id;
        False if there is nothing to forget. The frame of `came` bytes that told so is counted now:
        it was not, while the short id was trusted."""
        if self.proved.pop(short, None) is None:
            return False
        self._renew()
        self.heard(short, came)
        return True

    def prove(self, address: Address) -> None:
        """Note that a stranger is where it says."""
        if self.was_member(address.short):
            return
        self._accounts.pop(address.short, None)
        self.proved.pop(address.short, None)
        self.proved[address.short] = address
        self.trusted.add(address.short)
        if len(self.proved) > MAX_PROVED:
            del self.proved[next(iter(self.proved))]
            self._renew()

    def on_view(self, members: Sequence[Address]) -> None:
        """Note the members of a view."""
        for member in members:
            self._known.pop(member.short, None)
            self._known[member.short] = member
            self.proved.pop(member.short, None)
            self._accounts.pop(member.short, None)
        while len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._view = frozenset(member.short for member in members)
        self._renew()

    def _renew(self) -> None:
        self.trusted.clear()
        self.trusted.update(_EVERYBODY, self._view, self._known, self.proved)
