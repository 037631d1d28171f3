"""What a sender says there is: which windows are complete, and what an incomplete one asks."""

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
from stormcast.node.protocols.multicast.state import SYNC, Streams
from stormcast.node.protocols.multicast.windows import Windows


class Baselines:
    """Has windows completed: where nothing is retransmitted, only an answer to a question that was
    asked after the last loss does."""

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
        """What makes the questions of this member hard to guess."""
        self._questions = 0
        """How many of them there were: each is another one."""

    # -- Completeness -------------------------------------------------------------------------

    def desync(self, entry: Inbound, now: float) -> None:
        """What was under way may be lost: ask until the sender has said what there is. What it said
        before, or says in answer to an earlier question, does not count."""
        entry.is_synced = False
        entry.sync_target = -1
        entry.sync_tries = 0
        entry.nonce = 0
        entry.asked_at = -inf
        if not self._state.config.retransmits:
            self._timers.set_earlier((SYNC, entry.peer), self._next_look(now))
            if entry.window.has_gap():
                self._asking.notice(entry, now)

    def check(self, entry: Inbound) -> None:
        """A window is complete when all is there that the sender has said there is."""
        if 0 <= entry.sync_target <= entry.window.deliverable:
            entry.is_synced = True
            self._timers.cancel((SYNC, entry.peer))

    def look(self, entry: Inbound, now: float) -> None:
        """Nothing is retransmitted: ask for what there is until the sender has said it, then for
        what of that is missing."""
        config = self._state.config
        if entry.is_synced or config.retransmits:
            return
        if entry.sync_target < 0 and now >= entry.asked_at + config.join_sync_interval:
            self._ask(entry, now)
        # A window that an application left full has noted no more than it had room for.
        entry.window.note(entry.sync_target)
        if entry.window.has_gap():
            self._asking.notice(entry, now)
        self._timers.set((SYNC, entry.peer), self._next_look(now))

    def _next_look(self, now: float) -> float:
        return now + self._state.config.join_sync_interval

    # -- Questions ----------------------------------------------------------------------------

    def doubt(self, entry: Inbound, now: float) -> None:
        """A forgery, or views that differed for a while: ask the sender itself. Only the answer to
        this very question is believed."""
        if now >= entry.asked_at + self._state.config.join_sync_interval:
            self._ask(entry, now)

    def _ask(self, entry: Inbound, now: float) -> None:
        """Ask a sender what there is. A repeat is the same question: any answer to it counts."""
        if not entry.nonce:
            entry.nonce = self._new_question()
        protocol, delivered = self._state.generation.protocol, entry.window.delivered
        self._port.tracer.record(trace.SYNC, now, protocol=protocol, peer=entry.peer, lo=delivered)
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
        """A sender says what of its messages can be had."""
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
            self._windows.skip_to(entry, head.mark, now)
        entry.window.note(head.lo)
        if head.flags & FIRST:
            self._on_final(entry, head, is_answer, now)
        self._reports.announced(entry, now)
        if entry.window.has_gap():
            self._asking.notice(entry, now)
        self.check(entry)

    def _on_final(self, entry: Inbound, head: Head, is_answer: bool, now: float) -> None:  # noqa: FBT001 either word
        """A sender that knows this member says what there is. Unasked it may have said so in an
        earlier view, and purged more since, without this member. Where nothing is retransmitted
        only an answer completes a window: what comes unasked may have left before the last loss."""
        config = self._state.config
        if is_answer or config.retransmits:
            is_of_this_view = is_answer or head.stamp == self._state.view_tag
            if is_of_this_view and not entry.is_synced:
                entry.sync_target = max(entry.sync_target, head.lo)
            return
        if entry.is_synced and entry.window.deliverable < head.lo and config.completes:
            # It noticed a loss that this member did not, or not yet.
            self.desync(entry, now)
        self.look(entry, now)
