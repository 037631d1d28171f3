"""A member's turns, on one thread: when a turn begins, and what it does.

A turn begins when something arrived, a deadline came, or the application sent; it ends the stack's
turn, hands frames to the transport and messages to the application, and sets one timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final

from stormcast.node.core.model import Address, Delivery, View
from stormcast.node.protocols.port import Abandoned
from stormcast.node.stack import News, Stack
from stormcast.node.transports.base import Transport
from stormcast.node.transports.monitors import Monitors
from stormcast.node.transports.peer_places import MAX_LEARNED

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
        self.on_deliveries: Callable[[list[Delivery]], None] = ignore
        self.on_view: Callable[[View], None] = ignore
        self.on_left: Callable[..., None] = ignore
        self.on_abandoned: Callable[[Abandoned], None] = ignore
        self.after: list[Callable[[], None]] = []
        """Called once at the end of the next turn."""
        self._now = clock
        self._loop: asyncio.AbstractEventLoop
        self._stack: Stack
        self._transport: Transport
        self._monitors: Monitors | None = None
        self._members: dict[int, Address] = {}
        """Addresses by short id: members of the last view, and others that were located since."""
        self._view: View | None = None
        """The last view of which the application was told."""
        self._told = 0
        """Of the views that are news: how many the application was told of already."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._due = inf
        self._is_in_turn = False
        self._has_left = False

    # -- Life ----------------------------------------------------------------------------------

    def start(self, stack: Stack, transport: Transport, monitors: Monitors | None) -> None:
        """Start the stack, and do the first turn."""
        self._loop = asyncio.get_running_loop()
        self._stack = stack
        self._transport = transport
        self._monitors = monitors
        self.is_running = True
        stack.start(self._now())
        self.turn()

    def stop(self) -> None:
        """Stop the stack: send its last frames, and hand over its last messages."""
        self.is_running = False
        frames = self._stack.stop(self._now())
        news = self._stack.take_news()
        self._locate(news)
        self._transport.send(frames)
        # A receive window that ends hands up the messages that waited in it: they were acked.
        deliveries = self._stack.take_deliveries()
        if deliveries:
            self._hand_over(deliveries, news.views)
        self._tell_abandoned(news)
        if self._timer is not None:
            self._timer.cancel()

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
        if self._due + patience <= now:
            stack.tick(now)
            patience = 0.0
        stack.is_held = transport.room.is_full
        # Before the turn ends, so that an answer leaves in it.
        deliveries = stack.take_deliveries()
        if deliveries:
            if stack.views:
                self._hand_over(deliveries, stack.views)
            else:
                self.on_deliveries(deliveries)
            self.is_wanted = False
        frames = stack.end_turn(now)
        news = stack.take_news() if stack.has_news() else None
        if news is not None:
            self._locate(news)
        if frames:
            # Before the transport forgets who has left: the answer to a leave is among them.
            transport.send(frames)
        if news is not None:
            self._act_on(news)
        # Own messages, which are handed over as they leave: after the view that they belong to.
        deliveries = stack.take_deliveries()
        if deliveries:
            self.on_deliveries(deliveries)
        if self.after:
            called, self.after = self.after, []
            for call in called:
                call()
        self._due = due = stack.next_deadline()
        if due <= now and not patience:
            self.is_wanted = True

    def _act_on(self, news: News) -> None:
        """Act on what the stack says besides frames and messages: links, views, messages given up,
        and that it has left."""
        for view in news.views:
            # Before the links, which are to these: what strangers have named says less, and may
            # have left no room.
            self._members.update((member.short, member) for member in view.members)
        if self._monitors is not None:
            for peer, is_wanted in news.links:
                self._monitors.change(self._members.get(peer, peer), is_wanted=is_wanted)
        for view in news.views:
            self._members = {member.short: member for member in view.members}
            self._transport.on_view(view.members)
            if self._monitors is not None:
                self._monitors.on_view(view.members)
        self._tell_views(news.views, len(news.views))
        self._told = 0
        self._tell_abandoned(news)
        if self._stack.has_left and not self._has_left:
            self._has_left = True
            self.on_left()

    def _hand_over(self, deliveries: list[Delivery], views: list[View]) -> None:
        """Hand over deliveries, and tell of each view before the first message of who is new in it.
        Views without such a message are told of when frames have left."""
        first_views = _first_views(views, self._view, self._told)
        start = 0
        for at, delivery in enumerate(deliveries):
            until = first_views.get(delivery.source, 0)
            if until > self._told:
                if at > start:
                    self.on_deliveries(deliveries[start:at])
                start = at
                self._tell_views(views, until)
        self.on_deliveries(deliveries[start:])

    def _tell_views(self, views: list[View], until: int) -> None:
        """Tell the application of the first `until` views, except those that it was told of."""
        for view in views[self._told : until]:
            self._told += 1
            self._view = view
            self.on_view(view)

    def _tell_abandoned(self, news: News) -> None:
        for one in news.abandoned:
            self.on_abandoned(one)

    def _locate(self, news: News) -> None:
        for short in news.doubted:
            self._transport.doubt(short)
        for address in news.located:
            if len(self._members) < MAX_LEARNED:
                self._members.setdefault(address.short, address)
            self._transport.locate(address)
        for address in news.proved:
            self._transport.trust(address)


def _first_views(views: list[View], before: View | None, told: int) -> dict[int, int]:
    """Return, by short id of who is new, the number of the first view with it; views are counted
    from 1, and the first `told` of them are past."""
    first: dict[int, int] = {}
    known = {member.short for member in before.members} if before is not None else set()
    for number, view in enumerate(views[told:], told + 1):
        members = {member.short for member in view.members}
        for short in members - known:
            first.setdefault(short, number)
        known = members
    return first


def ignore(*_what: object) -> None:
    """Do nothing: for an event to which nobody listens."""
