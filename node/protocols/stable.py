"""STABLE: finds out which multicasts every member has delivered, so that they can be purged (G6).

Members tell the coordinator what they have delivered (GOSSIP), the coordinator tells everybody what
all of them have (STABILITY). Both can be lost. A vote counts for one view, number and creator, and
stability is the minimum over the latest votes of exactly its members, so nothing is stable that a
member of the view has not delivered, and a member refuses a stability beyond its own votes.

A round begins with a vote that stability does not cover. It ends at once when all have voted, else
after a repeat interval, with a STABILITY that also asks who has more to report. A member repeats
its vote until it is covered, and is silent when all it knows of is stable.

Differences from JGroups, where rounds depend on timers of 20 s and a lost frame costs one of those:
votes outlive their round, since what was delivered stays delivered; votes are repeated; the
coordinator asks for votes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Final

from stormcast.node.core import wire
from stormcast.node.core.digest import Digest
from stormcast.node.core.errors import BadFrame, require
from stormcast.node.core.model import View, ViewId
from stormcast.node.core.packing import Reader, Writer
from stormcast.node.core.wire import Head
from stormcast.node.protocols.events import Stability
from stormcast.node.protocols.layer import Layer, MemberContext

DigestSource = Callable[[], Digest]
MAX_SUSPEND: Final = 200.0
"""Seconds for which a digest is in use, at most."""
PATIENT_TRIES: Final = 8
"""Repeats at full pace, before they slow down: a member that has not voted by then is probably dead
or unreachable."""
_ASKS: Final = 1
_LOW_HALF: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class StableConfig:
    """Settings of STABLE. Durations are seconds."""

    settable: ClassVar[frozenset[str]] = frozenset()

    desired_avg_gossip: float = 20.0
    """Average time between two votes of a member that has something to report and hits no other
    limit; 0 off. Shorter purges sooner when there is little traffic."""

    max_bytes: int = 2_000_000
    """Bytes of multicasts after which a member votes; 0 off. A fraction of what a window holds, so
    that it never fills while votes are under way."""

    max_messages: int = 4096
    """The same in messages, for windows that small messages fill."""

    repeat_interval: float = 0.5
    """Until a vote is repeated that has not led to stability, in `fast` at most; and between two
    STABILITYs of an unfinished round."""

    def __post_init__(self) -> None:
        for name in ("desired_avg_gossip", "max_bytes", "max_messages"):
            value = getattr(self, name)
            require(
                value >= 0,
                f"stable.{name} is {value:g}: it must not be negative (0 switches it off)",
            )
        require(
            self.repeat_interval > 0,
            f"stable.repeat_interval is {self.repeat_interval:g}: it must be positive",
        )


class Stable(Layer):
    """One member's votes, and at the coordinator the votes of all members."""

    protocol = wire.STABLE_PROTOCOL
    config_type = StableConfig
    config: StableConfig

    def __init__(
        self,
        config: StableConfig,
        context: MemberContext,
        digest_source: DigestSource,
    ) -> None:
        super().__init__(config, context)
        self._source = digest_source
        self._view_id: ViewId | None = None
        self._members: frozenset[int] = frozenset()
        self.stable = Digest()
        """What all members of the view have delivered, as far as this member knows."""
        self._heard = 0
        """The number of the latest STABILITY heard or sent, within the view."""
        self._reported = Digest()
        """The latest own vote in this view."""
        self._target = Digest()
        """The vote that is repeated until stability covers it."""
        self._is_urgent = False
        """Whether a window is full until stability covers that vote."""
        self._number = 0
        """The number of the latest own vote: tells newer votes from older ones."""
        self._tries = 0
        self._bytes = 0
        self._messages = 0
        self._votes: dict[int, tuple[int, Digest]] = {}
        """At the coordinator: the number of each member's latest vote, and the vote."""
        self._voted: set[int] = set()
        """The members that voted since the last STABILITY."""
        self._announced_at = -inf
        self._announcements = 0
        """STABILITYs since the last progress."""
        self.is_suspended = False

    # -- The verbs ----------------------------------------------------------------------------

    def receive(self, head: Head, body: bytes, now: float) -> None:
        view_id, digest = _unpack_untrusted(head, body)
        reason = self._objection(head, view_id, digest)
        if reason:
            self._port.drop(reason)
        elif head.kind == wire.GOSSIP:
            self._on_vote(head, digest, now)
        else:
            self._on_stability(head.conn, digest, bool(head.stamp & _ASKS), now)

    def on_timer(self, what: str, now: float) -> None:
        if what == "gossip":
            self._wake_gossip(now)
            self._begin(now)
        elif what == "answer":
            self._answer(now)
        elif what == "repeat":
            self._repeat(now)
        elif what == "announce":
            self._announce(now, asks=True)
        else:
            self.resume(now)

    def on_view(self, view: View, now: float) -> None:
        self._view_id = view.id
        self._members = frozenset(member.short for member in view.members)
        self.stable = self._reported = self._target = Digest()
        self._heard = 0
        is_wanted = self.is_waiting("repeat") or self.is_waiting("answer")
        self._reset()
        if is_wanted:
            # Somebody may be blocked. Votes of the old view are void, so this member votes anew.
            self.wake_at("answer", now + self._wait(0))
        if not self.is_waiting("gossip"):
            self._wake_gossip(now)

    def stop(self, now: float) -> None:
        self._view_id = None
        self._members = frozenset()
        self._reset()
        self.cancel("gossip")
        self.cancel("resume")

    def bounds(self) -> dict[str, float]:
        config = self.config
        return {
            "vote_within": 2 * config.desired_avg_gossip or inf,
            "vote_repeat": config.repeat_interval,
        }

    def on_multicast(self, messages: int, size: int, now: float) -> None:
        """Count what was received, or multicast by this member; vote when a limit is reached."""
        self._messages += messages
        self._bytes += size
        config = self.config
        if 0 < config.max_bytes <= self._bytes or 0 < config.max_messages <= self._messages:
            self._bytes = self._messages = 0
            self._begin(now)

    def hurry(self, now: float) -> None:
        """Vote with urgency: a window is full, and has room again only after a purge."""
        if self._is_urgent and self.is_waiting("repeat"):
            # The vote under way is repeated until what is delivered now is covered as well.
            self._target = self._current() or self._target
            return
        self._is_urgent = True
        self._begin(now)
        self._is_urgent = self.is_waiting("repeat")

    def suspend(self, seconds: float, now: float) -> None:
        """Let nothing become stable while a digest is in use, for about `seconds` at most."""
        self.is_suspended = True
        self._reset()
        until = now + 1.1 * min(seconds, MAX_SUSPEND)
        due = self._timers.due((self.protocol, "resume"))
        self.wake_at("resume", until if due == inf else max(due, until))

    def resume(self, now: float) -> None:
        """Vote again: the digest is no longer in use."""
        self.cancel("resume")
        if self.is_suspended:
            self.is_suspended = False
            # Votes that were omitted meanwhile should not wait for the next occasion.
            self.wake_at("answer", now + self._wait(0))

    # -- Voting -------------------------------------------------------------------------------

    def _reset(self) -> None:
        self._votes = {}
        self._voted = set()
        self._announced_at = -inf
        self._announcements = self._tries = 0
        self._bytes = self._messages = 0
        for what in ("repeat", "announce", "answer"):
            self.cancel(what)

    def _wait(self, tries: int) -> float:
        """Return the seconds between two repeats: short at first, longer with more tries."""
        interval = self.config.repeat_interval
        longest = max(interval, self.config.desired_avg_gossip)
        slower = 1 << min(max(tries - PATIENT_TRIES, 0), 10)
        return min(longest, self.timing.repeat_wait(interval, tries) * slower)

    def _wake_gossip(self, now: float) -> None:
        if self.config.desired_avg_gossip:
            self.wake_at("gossip", now + self.dice.uniform(0, 2 * self.config.desired_avg_gossip))

    def _begin(self, now: float) -> None:
        """Vote, if something is not stable, and repeat the vote until stability covers it."""
        digest = self._current()
        if digest is None or not _is_beyond(digest, self.stable):
            return
        if digest.seqnos != self._reported.seqnos:
            self._tries = 0
        self._target = digest
        self._vote(digest, now)

    def _answer(self, now: float) -> None:
        """Vote when asked. A member with nothing to report votes too, once in a view: without its
        vote nobody learns what it misses."""
        self._begin(now)
        digest = self._current()
        if digest is not None and not self._reported.seqnos:
            self._target = digest
            self._vote(digest, now)

    def _repeat(self, now: float) -> None:
        digest = self._current()
        if digest is not None and _is_beyond(self._target, self.stable):
            self._vote(digest, now)

    def _current(self) -> Digest | None:
        """Return what was delivered, for exactly the members of the view; None if not known."""
        if self.is_suspended or self._view_id is None:
            return None
        digest = self._source().restricted(self._members)
        # A window may be missing for a moment, around a view.
        return digest if len(digest.seqnos) == len(self._members) else None

    def _vote(self, digest: Digest, now: float) -> None:
        assert self._view_id is not None
        self._reported = digest
        self._number += 1
        self.wake_at("repeat", now + self._wait(self._tries))
        tries, self._tries = self._tries, self._tries + 1
        if self.role.is_coordinator:
            self._count(self.role.address.short, self._number, digest)
            self._consider(now, is_urgent=self._is_urgent)
        elif self.role.view is not None:
            self._send(
                self.role.view.coordinator.short,
                wire.GOSSIP,
                self._number,
                digest,
                mark=self._heard,
                stamp=_ASKS * self._is_urgent,
                transmission=tries,
            )

    def _on_stability(self, number: int, digest: Digest, asks: bool, now: float) -> None:  # noqa: FBT001 one private caller
        if number <= self._heard:
            return
        self._heard = number
        self._adopt(digest, now)
        if asks:
            # Spread: everybody was asked at the same time.
            self.wake_by("answer", now + self.dice.random() * self._wait(0) / 2)

    def _adopt(self, digest: Digest, now: float) -> None:
        if _is_beyond(digest, self.stable):
            self._tries = 0
        if _says_more(digest, self.stable):
            # Also where no more was delivered: a member learns that it misses the last message by
            # the fact that others received more.
            self.stable = self.stable.merged(digest)
            self._port.events.append(Stability(self.stable))
        if not _is_beyond(self._target, self.stable):
            self._is_urgent = False
            self.cancel("repeat")

    # -- Counting votes -----------------------------------------------------------------------

    def _on_vote(self, head: Head, digest: Digest, now: float) -> None:
        if not self._count(head.source, head.conn, digest):
            return
        if _is_beyond(digest, self.stable):
            self._consider(now, is_urgent=bool(head.stamp & _ASKS))
        elif head.mark < self._heard:
            # Its vote is stable already, but it missed the STABILITY that says so.
            self._send(
                head.source,
                wire.STABILITY,
                self._heard,
                self.stable,
                transmission=1 + head.conn % wire.MAX_TRANSMISSION,
            )

    def _count(self, source: int, number: int, digest: Digest) -> bool:
        """Take a vote, unless a newer one of the same member is there; whether it was taken."""
        known = self._votes.get(source)
        if known is not None and number <= known[0]:
            return False
        self._votes[source] = (number, digest)
        self._voted.add(source)
        return True

    def _count_own(self) -> bool:
        """Renew the coordinator's own vote, which needs no frame; whether there is one."""
        own = self._current()
        if own is None:
            return False
        self._number += 1
        self._reported = own
        return self._count(self.role.address.short, self._number, own)

    def _consider(self, now: float, *, is_urgent: bool) -> None:
        """End the round of a vote that is not covered: now if all have voted, else after a wait."""
        others = self._members - {self.role.address.short}
        if self._voted >= others and self._count_own() and self._is_progress():
            self._announce(now, asks=False)
            return
        wait = self._wait(self._announcements)
        # Other votes may be under way. For a blocked member the wait began with the last STABILITY.
        since = self._announced_at if is_urgent else now
        self.wake_by("announce", max(now, since + wait))

    def _minimum(self) -> Digest:
        """Return what all members of the view have delivered, by their latest votes."""
        if len(self._votes) < len(self._members):
            return self.stable
        votes = [digest.seqnos for _number, digest in self._votes.values()]
        return Digest(
            {
                member: (
                    min(vote[member][0] for vote in votes),
                    # A member knows best how much it sent; nobody can have received more.
                    min(
                        max(vote[member][1] for vote in votes),
                        self._votes[member][1].seqnos[member][1],
                    ),
                )
                for member in self._members
            }
        )

    def _is_progress(self) -> bool:
        """Whether the votes say more than is known, of what was delivered or received."""
        return _says_more(self._minimum(), self.stable)

    def _announce(self, now: float, *, asks: bool) -> None:
        """Tell everybody what is stable; with `asks`, ask them to vote if they have more."""
        self.cancel("announce")
        if not self._count_own():
            return
        stable = self._minimum()
        # Cleared first: a vote that arrives from now on belongs to the next round (JGRP-1638).
        self._voted = set()
        self._announced_at = now
        self._announcements = 0 if _is_beyond(stable, self.stable) else self._announcements + 1
        self._heard += 1
        self._adopt(stable, now)
        self._send(wire.GROUP, wire.STABILITY, self._heard, stable, stamp=_ASKS * asks)

    # -- Frames -------------------------------------------------------------------------------

    def _send(
        self,
        dest: int,
        kind: int,
        number: int,
        digest: Digest,
        *,
        mark: int = 0,
        stamp: int = 0,
        transmission: int = 0,
    ) -> None:
        assert self._view_id is not None
        self._port.control(
            dest,
            kind,
            self.protocol,
            self._view_id.number,
            body=Writer().view_id(self._view_id).digest(digest).bytes(),
            conn=number & _LOW_HALF,
            mark=mark,
            stamp=stamp,
            transmission=transmission,
        )

    def _objection(self, head: Head, view_id: ViewId, digest: Digest) -> str:
        """Return why a frame is refused; empty if it is not. Votes of two views never mix (G6)."""
        role, named = self.role, digest.seqnos.keys()
        if self.is_suspended:
            return "suspended"
        if role.view is None or view_id != self._view_id:
            return "other-view"
        if head.source not in self._members:
            return "stranger"
        if head.kind == wire.GOSSIP:
            objections = [
                (not role.is_coordinator, "not-coordinator"),
                (named != self._members, "digest-members"),
            ]
        else:
            objections = [
                (head.source != role.view.coordinator.short, "not-from-coordinator"),
                (not named <= self._members, "digest-members"),
                # The minimum of all votes is not above one's own.
                (_is_beyond(digest, self._reported), "stability-beyond-vote"),
            ]
        return next((reason for holds, reason in objections if holds), "")


def _says_more(digest: Digest, known: Digest) -> bool:
    """Whether a digest has any number above what is known."""
    nothing = (0, 0)
    return any(
        delivered > known.seqnos.get(member, nothing)[0]
        or received > known.seqnos.get(member, nothing)[1]
        for member, (delivered, received) in digest.seqnos.items()
    )


def _is_beyond(digest: Digest, other: Digest) -> bool:
    """Whether `digest` says that something was delivered which `other` does not."""
    known = other.seqnos
    nothing = (0, 0)
    return any(
        delivered > known.get(member, nothing)[0]
        for member, (delivered, _received) in digest.seqnos.items()
    )


def _unpack_untrusted(head: Head, body: bytes) -> tuple[ViewId, Digest]:
    if head.kind not in (wire.GOSSIP, wire.STABILITY):
        raise BadFrame("kind")
    reader = Reader(body)
    view_id = reader.view_id_untrusted()
    digest = reader.digest_untrusted()
    reader.end_untrusted()
    if view_id.number != head.lo:
        raise BadFrame("view")
    return view_id, digest
