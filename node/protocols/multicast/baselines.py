"""Completes windows: a sender says which of its messages can be had (BASELINE), and a member whose
window is incomplete asks for that."""

from __future__ import annotations

from math import inf
from random import Random

from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import FIRST
from stormcast.node.core.wire import Head
from stormcast.node.protocols.multicast.asking import Asking
from stormcast.node.protocols.multicast.inbound import Inbound
from stormcast.node.protocols.multicast.reports import Reports
from stormcast.node.protocols.multicast.state import ALARM, SYNC, Streams
from stormcast.node.protocols.multicast.windows import Windows


class Baselines:
    """Completes windows. Where nothing is retransmitted, only the answer to a question asked after
    the last loss can complete a window."""

    def __init__(
        self, state: Streams, windows: Windows, asking: Asking, reports: Reports, dice: Random
    ) -> None:
        self._state = state
        self._port = state.port
        self._timers = state.timers
        self._windows = windows
        self._asking = asking
        self._reports = reports
        self._secret = dice.randbytes(16)
        """Makes the questions of this member hard to guess."""
        self._questions = 0
        """Number of questions so far, which makes each of them different."""

    # -- Completeness -------------------------------------------------------------------------

    def desync(self, entry: Inbound, now: float) -> None:
        """Take a window for incomplete, because messages under way may be lost: ask until the
        sender has said which can be had. What it said before, or answers to an earlier question,
        does not count."""
        entry.is_synced = False
        entry.gap_at = -1
        self._timers.cancel((ALARM, entry.peer))
        entry.sync_target = -1
        entry.sync_tries = 0
        entry.nonce = 0
        entry.asked_at = -inf
        if not self._state.config.retransmits:
            self._timers.set_earlier((SYNC, entry.peer), self._next_look(now))
            if entry.window.has_gap():
                self._asking.notice(entry, now)

    def check(self, entry: Inbound) -> None:
        """Take a window for complete if it has all that the sender said can be had."""
        if 0 <= entry.sync_target <= entry.window.deliverable:
            entry.is_synced = True
            self._timers.cancel((SYNC, entry.peer))

    def look(self, entry: Inbound, now: float) -> None:
        """If nothing is retransmitted, ask which messages can be had until the sender has said it,
        then request those of them that are missing."""
        config = self._state.config
        if entry.is_synced or config.retransmits:
            return
        if entry.sync_target < 0 and now >= entry.asked_at + config.join_sync_interval:
            self._ask(entry, entry.epoch, now)
        # A window that was full, as the application took nothing, noted only what it had room for.
        entry.window.note(entry.sync_target)
        if entry.window.has_gap():
            self._asking.notice(entry, now)
        self._timers.set((SYNC, entry.peer), self._next_look(now))

    def _next_look(self, now: float) -> float:
        return now + self._state.config.join_sync_interval

    # -- Questions ----------------------------------------------------------------------------

    def doubt(self, entry: Inbound, now: float) -> None:
        """Ask the sender itself about a frame that is too far ahead: it was forged, or views
        differed for a while. Only the answer to this very question is believed."""
        if now >= entry.asked_at + self._state.config.join_sync_interval:
            self._ask(entry, 0, now)

    def hear_of_more(self, entry: Inbound, now: float) -> None:
        """Ask the sender of a complete window, as others have more of it. The answer comes behind
        that on the same connection: what is missing then is a gap. A further answer would look like
        a statement that was not asked for, so the question is not repeated soon."""
        if not entry.nonce or now >= entry.asked_at + self._state.config.gap_alarm:
            self._ask(entry, 0, now)

    def _ask(self, entry: Inbound, epoch: int, now: float) -> None:
        """Ask a sender which messages can be had, to complete a window (`epoch`) or out of doubt
        (0). A repeat is the same question: any answer to it counts."""
        if not entry.nonce:
            entry.nonce = self._new_question()
        protocol, delivered = self._state.generation.protocol, entry.window.delivered
        self._port.tracer.record(
            trace.SYNC,
            now,
            protocol=protocol,
            peer=entry.peer,
            conn=entry.nonce,
            epoch=epoch,
            lo=delivered,
        )
        self._port.control(
            entry.peer,
            wire.BASELINE_REQ,
            protocol,
            delivered,
            stamp=entry.nonce,
            transmission=entry.sync_tries,
        )
        entry.sync_tries += 1
        entry.asked_at = now

    def _new_question(self) -> int:
        self._questions += 1
        question = self._secret + self._questions.to_bytes(8, "big")
        return (self._port.codec.hash64(question) & 0x7FFFFFFF) + 1

    # -- Answers ------------------------------------------------------------------------------

    def on_baseline(self, head: Head, now: float) -> None:
        """Take a sender's statement of which of its messages can be had."""
        if head.mark > head.lo or head.lo > wire.MAX_SEQNO:
            raise BadFrame("baseline-order")
        entry = self._state.inbound.get(head.source)
        if entry is None:
            self._port.drop("baseline-no-window")
            return
        is_answer = entry.nonce != 0 and head.stamp == entry.nonce
        if not is_answer and entry.is_far(head):
            self.doubt(entry, now)
            raise BadFrame("baseline-beyond-window")
        if is_answer:
            entry.nonce = 0
        if head.mark > entry.window.deliverable:
            self._windows.skip_to(entry, head.mark, head.conn, now)
        entry.window.note(head.lo)
        if head.flags & FIRST:
            self._on_final(entry, head, is_answer, now)
        self._reports.announced(entry, now)
        # First: a gap that is left in a window which is complete by now gets an alarm.
        self.check(entry)
        if entry.window.has_gap():
            self._asking.notice(entry, now)

    def _on_final(self, entry: Inbound, head: Head, is_answer: bool, now: float) -> None:  # noqa: FBT001 either word
        """Take the statement of a sender that has this member in its view. If unasked, it may be of
        an earlier view, and the sender may have purged more since, without this member. Where
        nothing is retransmitted, only an answer completes a window: an unasked statement may have
        been sent before the last loss."""
        config = self._state.config
        if is_answer or config.retransmits:
            is_of_this_view = is_answer or head.stamp == self._state.view_tag
            if is_of_this_view and not entry.is_synced:
                entry.sync_target = max(entry.sync_target, head.lo)
            return
        known = entry.window.deliverable if entry.is_synced else entry.sync_target
        if 0 <= known < head.lo and config.completes:
            # The sender noticed a loss that this member did not, or not yet. An answer that came
            # before it does not count either.
            self.desync(entry, now)
        self.look(entry, now)
