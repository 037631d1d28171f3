"""One member's knowledge of stability in its view: its own votes, and the STABILITYs that it
heard."""

from __future__ import annotations

from collections.abc import Callable

from stormcast.node.core.digest import Digest
from stormcast.node.core.model import View, ViewId

DigestSource = Callable[[], Digest]


class Known:
    """The state that a member's votes and a coordinator's rounds share."""

    __slots__ = (
        "_source",
        "heard",
        "is_suspended",
        "members",
        "number",
        "reported",
        "stable",
        "view_id",
    )

    def __init__(self, source: DigestSource) -> None:
        self._source = source
        self.view_id: ViewId | None = None
        self.members: frozenset[int] = frozenset()
        self.stable = Digest()
        """The messages that all members of the view have delivered, as far as this member knows."""
        self.heard = 0
        """The number of the latest STABILITY heard or sent, within the view."""
        self.reported = Digest()
        """The latest own vote in this view."""
        self.number = 0
        """The number of the latest own vote: tells newer votes from older ones."""
        self.is_suspended = False
        """Whether nothing may become stable, because a digest of this member is in use."""

    def begin(self, view: View) -> None:
        """Forget what was known in the view before."""
        self.view_id = view.id
        self.members = frozenset(member.short for member in view.members)
        self.stable = self.reported = Digest()
        self.heard = 0

    def end(self) -> None:
        """Forget the view: this member leaves."""
        self.view_id = None
        self.members = frozenset()

    def current(self) -> Digest | None:
        """Return what was delivered, for exactly the members of the view; None if not known."""
        if self.is_suspended or self.view_id is None:
            return None
        digest = self._source().restricted(self.members)
        # A window may be missing for a moment, around a view.
        return digest if len(digest.seqnos) == len(self.members) else None

    def vote(self, digest: Digest) -> int:
        """Note a vote of this member; returns its number."""
        self.reported = digest
        self.number += 1
        return self.number
