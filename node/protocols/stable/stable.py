"""One member's part in stability: when it votes, and what it does with what it hears."""

from __future__ import annotations

from math import inf
from typing import Final

from stormcast.node.core import wire
from stormcast.node.core.digest import Digest
from stormcast.node.core.model import View
from stormcast.node.core.wire import Head
from stormcast.node.protocols.events import Stability
from stormcast.node.protocols.layer import Layer, MemberContext
from stormcast.node.protocols.stable.config import StableConfig
from stormcast.node.protocols.stable.frames import ASKS, objection, send, unpack_untrusted
from stormcast.node.protocols.stable.known import DigestSource, Known
from stormcast.node.protocols.stable.rounds import Rounds

MAX_SUSPEND: Final = 200.0
"""Seconds for which a digest is in use, at most."""
PATIENT_TRIES: Final = 8
"""Repeats at full pace, before they slow down: a member that has not voted by then is probably dead
or unreachable."""


LOST_REPEATS: Final = 6
"""Repeats at full pace that may be lost, one after the other, before a promise is broken."""


class Stable(Layer):
    """One member's votes, and at the coordinator the rounds of all members."""

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
        self.known = Known(digest_source)
        self._rounds = Rounds(self, context.port, self.known, self._wait, self._adopt)
        self._target = Digest()
        """The vote that is repeated until stability covers it."""
        self._is_urgent = False
        """Whether a window is full until stability covers that vote."""
        self._tries = 0
        self._bytes = 0
        self._messages = 0

    # -- The verbs ----------------------------------------------------------------------------

    def receive(self, head: Head, body: bytes, now: float) -> None:
        view_id, digest = unpack_untrusted(head, body)
        reason = objection(self.known, self.role, head, view_id, digest)
        if reason:
            self._port.drop(reason)
        elif head.kind == wire.GOSSIP:
            self._rounds.on_vote(head, digest, now)
        else:
            self._on_stability(head.conn, digest, bool(head.stamp & ASKS), now)

    def on_timer(self, what: str, now: float) -> None:
        if what == "gossip":
            self._wake_gossip(now)
            self._begin(now)
        elif what == "answer":
            self._answer(now)
        elif what == "repeat":
            self._repeat(now)
        elif what == "announce":
            self._rounds.announce(now, asks=True)
        else:
            self.resume(now)

    def on_view(self, view: View, now: float) -> None:
        self.known.begin(view)
        self._target = Digest()
        is_wanted = self.is_waiting("repeat") or self.is_waiting("answer")
        self._reset()
        if is_wanted:
            # Somebody may be blocked. Votes of the old view are void, so this member votes anew.
            self.wake_at("answer", now + self._wait(0))
        if not self.is_waiting("gossip"):
            self._wake_gossip(now)

    def stop(self, now: float) -> None:
        self.known.end()
        self._reset()
        self.cancel("gossip")
        self.cancel("resume")

    def bounds(self) -> dict[str, float]:
        config = self.config
        return {
            "vote_within": 2 * config.desired_avg_gossip or inf,
            "vote_repeat": config.repeat_interval,
        }

    def purge_within(self) -> float:
        """Return the seconds of peace after which what all members have is stable: until one of
        them votes, and for the repeats of votes and STABILITYs that are lost."""
        vote_within, repeat = self.bounds()["vote_within"], self.config.repeat_interval
        return vote_within + LOST_REPEATS * repeat

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
            self._target = self.known.current() or self._target
            return
        self._is_urgent = True
        self._begin(now)
        self._is_urgent = self.is_waiting("repeat")

    def on_taken(self, now: float) -> None:
        """Vote at once: a stalled application took what windows held, and senders may have been
        blocked by that for long."""
        self._tries = 0
        self._is_urgent = True
        self._begin(now)
        self._is_urgent = self.is_waiting("repeat")

    def suspend(self, seconds: float, now: float) -> None:
        """Let nothing become stable while a digest is in use, for about `seconds` at most."""
        self.known.is_suspended = True
        self._reset()
        until = now + 1.1 * min(seconds, MAX_SUSPEND)
        due = self._timers.due((self.protocol, "resume"))
        self.wake_at("resume", until if due == inf else max(due, until))

    def resume(self, now: float) -> None:
        """Vote again: the digest is no longer in use."""
        self.cancel("resume")
        if self.known.is_suspended:
            self.known.is_suspended = False
            # Votes that were omitted meanwhile should not wait for the next occasion.
            self.wake_at("answer", now + self._wait(0))

    # -- Voting -------------------------------------------------------------------------------

    def _reset(self) -> None:
        self._rounds.clear()
        self._tries = 0
        self._bytes = self._messages = 0
        for what in ("repeat", "answer"):
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
        known = self.known
        digest = known.current()
        if digest is None or not digest.is_beyond(known.stable):
            return
        if digest.seqnos != known.reported.seqnos:
            self._tries = 0
        self._target = digest
        self._vote(digest, now)

    def _answer(self, now: float) -> None:
        """Vote when asked. A member with nothing to report votes too, once in a view: without its
        vote nobody learns what it misses."""
        self._begin(now)
        digest = self.known.current()
        if digest is not None and not self.known.reported.seqnos:
            self._target = digest
            self._vote(digest, now)

    def _repeat(self, now: float) -> None:
        digest = self.known.current()
        if digest is not None and self._target.is_beyond(self.known.stable):
            self._vote(digest, now)

    def _vote(self, digest: Digest, now: float) -> None:
        known, role = self.known, self.role
        assert known.view_id is not None
        number = known.vote(digest)
        self.wake_at("repeat", now + self._wait(self._tries))
        tries, self._tries = self._tries, self._tries + 1
        if role.is_coordinator:
            self._rounds.count(role.address.short, number, digest)
            self._rounds.consider(now, is_urgent=self._is_urgent)
        elif role.view is not None:
            send(
                self._port,
                known.view_id,
                role.view.coordinator.short,
                wire.GOSSIP,
                number,
                digest,
                mark=known.heard,
                stamp=ASKS * self._is_urgent,
                transmission=tries,
            )

    # -- What is stable -----------------------------------------------------------------------

    def _on_stability(self, number: int, digest: Digest, asks: bool, now: float) -> None:  # noqa: FBT001 one private caller
        if number <= self.known.heard:
            return
        self.known.heard = number
        self._adopt(digest)
        if asks:
            # Spread: everybody was asked at the same time.
            self.wake_by("answer", now + self.dice.random() * self._wait(0) / 2)

    def _adopt(self, digest: Digest) -> None:
        known = self.known
        if digest.is_beyond(known.stable):
            self._tries = 0
        if digest.says_more(known.stable):
            # Also where no more was delivered: a member learns that it misses the last message by
            # the fact that others received more.
            known.stable = known.stable.merged(digest)
            self._port.events.append(Stability(known.stable))
        if not self._target.is_beyond(known.stable):
            self._is_urgent = False
            self.cancel("repeat")
