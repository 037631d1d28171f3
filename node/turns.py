"""A member's turns, on one thread: when a turn begins, and what it does.

A turn begins when something arrived, a deadline came, or the application sent; it ends the stack's
turn, hands frames to the transport and messages to the application, and sets one timer.

The stack gives what it has for others once. Where a turn fails, for a bug or because a callback
exits the program, the next one first does what is left of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final

from stormcast.node.application import Application
from stormcast.node.news_steps import NewsSteps, do, do_all
from stormcast.node.stack import Stack
from stormcast.node.transports.base import Transport
from stormcast.node.transports.monitors import Monitors

TURNS_AT_ONCE: Final = 4
"""Turns in a row, for an application that answers what it gets, before the event loop does other
work."""
LONGEST_DRAIN: Final = 0.05
"""Seconds for which timers may wait while the sockets are never empty."""
AFTER_A_BUG: Final = 0.1
"""Seconds until the next turn after one that failed."""


class Turns:
    """Drives one stack between its transport and its application."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.number = 0
        """Turns until now."""
        self.is_running = False
        self.is_wanted = False
        """Whether a turn is to follow already."""
        self.application = Application()
        self.after: list[Callable[[], None]] = []
        """Called once at the end of the next turn."""
        self._now = clock
        self._loop: asyncio.AbstractEventLoop
        self._stack: Stack
        self._transport: Transport
        self._steps: NewsSteps
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._due = inf
        self._is_in_turn = False

    # -- Life ----------------------------------------------------------------------------------

    def start(self, stack: Stack, transport: Transport, monitors: Monitors | None) -> None:
        """Start the stack, and do the first turn."""
        self._loop = asyncio.get_running_loop()
        self._stack = stack
        self._transport = transport
        self._steps = NewsSteps(stack, transport, monitors, self.application)
        self.is_running = True
        stack.start(self._now())
        self.turn()

    def stop(self) -> None:
        """Stop the stack: send its last frames, and hand over its last messages. Nobody comes back
        for what is left: whatever fails, the rest is done, and the first failure raised behind it.
        """
        self.is_running = False
        if self._timer is not None:
            self._timer.cancel()
        frames = self._stack.stop(self._now())
        news, steps, application = self._stack.take_news(), self._steps, self.application
        steps.plan_places(news)
        failures = do_all(steps.before_frames)
        failures += do_all(deque([partial(self._transport.send, frames)]))
        # What a turn that failed has left.
        failures += do_all(steps.after_frames)
        failures += application.hand_over_last(self._stack.take_deliveries, news.views)
        failures += do_all(deque(application.abandoned_steps(news.abandoned)))
        if failures:
            raise failures[0]

    # -- When ----------------------------------------------------------------------------------

    def wake(self) -> None:
        """Request a turn soon: something was put into the stack."""
        if not self.is_wanted:
            self.is_wanted = True
            if not self._is_in_turn and self.is_running:
                self._loop.call_soon(self.turn)

    def turn(self, *, has_more: bool = False) -> None:
        """Let everything that came in since the last turn take effect.

        While more has arrived than was taken (`has_more`), timers wait, for LONGEST_DRAIN at most:
        they would ask for what is there.
        """
        if self._is_in_turn:
            self.is_wanted = True
            return
        if not self.is_running:
            return
        self._is_in_turn = True
        try:
            for _ in range(TURNS_AT_ONCE):
                self.is_wanted = False
                self._one_turn(LONGEST_DRAIN if has_more else 0.0)
                if not self.is_wanted:
                    break
        except BaseException:
            # A bug, which the event loop reports. Other work of this member must go on.
            self.is_wanted = False
            self._loop.call_later(AFTER_A_BUG, self.turn)
            raise
        finally:
            self._is_in_turn = False
        if self.is_wanted:
            self._loop.call_soon(self.turn)
        elif self._due < self._timer_at:
            self._arm()

    def _arm(self) -> None:
        """Set the one timer; if it fires too early, it is set again."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._due
        delay = max(0.0, self._due - self._now())
        self._timer = self._loop.call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_at = inf
        if self._due <= self._now():
            # What has arrived may be what a timer would ask for.
            self._transport.poll()
        elif self._due < inf:
            self._arm()

    # -- What ----------------------------------------------------------------------------------

    def _one_turn(self, patience: float) -> None:
        stack = self._stack
        transport = self._transport
        now = self._now()
        self.number += 1
        steps = self._steps
        before_frames, after_frames = steps.before_frames, steps.after_frames
        if before_frames or after_frames:
            do(before_frames)
            do(after_frames)
        if self._due + patience <= now:
            stack.tick(now)
            patience = 0.0
        stack.is_held = transport.room.is_full
        # Before the turn ends, so that an answer leaves in it.
        application = self.application
        deliveries = stack.take_deliveries()
        if application.unhanded:
            deliveries = application.take_unhanded(deliveries)
        if deliveries:
            views = stack.pending_news.views
            if views:
                application.hand_over(deliveries, views)
            else:
                application.on_deliveries(deliveries)
            self.is_wanted = False
        frames = stack.end_turn(now)
        if stack.has_news():
            steps.plan(stack.take_news())
            do(before_frames)
        if frames:
            # Before the transport forgets who has left: the answer to a leave is among them.
            transport.send(frames)
        if after_frames:
            do(after_frames)
        # Own messages, which are handed over as they leave: after the view that they belong to.
        deliveries = stack.take_deliveries()
        if deliveries:
            application.on_deliveries(deliveries)
        if self.after:
            self._call_after()
        self._due = due = stack.next_deadline()
        if due <= now and not patience:
            self.is_wanted = True

    def _call_after(self) -> None:
        called, self.after = iter(self.after), []
        try:
            for call in called:
                call()
        except BaseException:
            self.after[:0] = called
            raise
