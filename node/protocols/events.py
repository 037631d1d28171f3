"""Events that protocols of one member send each other: enqueued, then passed on by the stack.

Only `node/stack/group.py` decides which protocols get which event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from stormcast.node.core.digest import Digest
from stormcast.node.core.model import Address, View, ViewId


class Suspected(NamedTuple):
    """A detector has not heard of these members for too long, or saw their connection end."""

    members: tuple[Address, ...]


class Confirmed(NamedTuple):
    """These members did not answer when they were asked: membership should exclude them."""

    members: tuple[Address, ...]


class Cleared(NamedTuple):
    """A suspected member is alive after all."""

    member: Address


class Vouched(NamedTuple):
    """Another member says that a suspect is alive. It need not be within hearing of this member."""

    member: Address


class Doubted(NamedTuple):
    """These members were confirmed to be dead long ago: they are to be asked again before
    membership excludes them."""

    members: tuple[Address, ...]


class Tentative(NamedTuple):
    """A view is about to be installed: protocols prepare for its members."""

    view: View


class Install(NamedTuple):
    """A view, and where the windows of senders begin. Both are applied as one step, digest first.

    For a merge, `mutual` has the members that were in this member's view and had this member in
    theirs: their windows stay. None: a regular view, whose digest (for a joiner) only adds windows.
    """

    view: View
    digest: Digest | None = None
    mutual: frozenset[int] | None = None


class BecameServer(NamedTuple):
    """The first view is installed: what was queued for it can be replayed."""


class SuspendStability(NamedTuple):
    """A digest is in use: what it promises may not be purged, for so many seconds at most."""

    seconds: float


class ResumeStability(NamedTuple):
    """The digest is no longer in use."""


class Stability(NamedTuple):
    """For each sender, the seqno that every member of the view has delivered, and the highest that
    anyone has received."""

    digest: Digest


class Found(NamedTuple):
    """A member that answered, or asked, in discovery."""

    address: Address
    is_server: bool
    coordinator: Address | None
    """The coordinator of its group, which may be the member itself."""


class Discover(NamedTuple):
    """Membership asks which members exist; the answers come as `Discovered`."""

    seconds: float
    """Time after which the search ends, whoever has answered."""


class Discovered(NamedTuple):
    """The members that one run of discovery found; empty when nobody answered."""

    found: tuple[Found, ...]


class Disagreement(NamedTuple):
    """Members hold different views: the view of each, as the member itself reported it."""

    views: Mapping[Address, View]
    heard: Mapping[Address, ViewId]
    """By member, the id of the view that it said of late that it holds, whether it has reported the
    view or not."""


class Lagging(NamedTuple):
    """A member of the view, which this member coordinates, still holds an older one."""

    member: Address


class Left(NamedTuple):
    """This member is out of the group."""


Event = (
    Suspected
    | Confirmed
    | Cleared
    | Vouched
    | Doubted
    | Tentative
    | Install
    | BecameServer
    | SuspendStability
    | ResumeStability
    | Stability
    | Discover
    | Discovered
    | Disagreement
    | Lagging
    | Left
)


@dataclass(slots=True)
class Role:
    """The state of a member in its group, shared by all its protocols."""

    address: Address
    view: View | None = None
    is_server: bool = False
    """Whether the first view is installed."""
    is_leaving: bool = False

    @property
    def is_coordinator(self) -> bool:
        return self.view is not None and self.view.coordinator == self.address

    @property
    def members(self) -> tuple[Address, ...]:
        """The members of the view; nobody before the first one."""
        return self.view.members if self.view is not None else ()

    def name_of(self, short: int) -> str:
        """The name of a member of the view; of anybody else its short id."""
        known = next((member.name for member in self.members if member.short == short), None)
        return known if known is not None else f"{short:08x}"
