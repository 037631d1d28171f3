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
        """Of the stack's views: how many the application was told of before they are news."""
        self._unhanded: list[Delivery] = []
        """Deliveries that were taken from the stack by a turn that failed, and not handed over."""
        self._places: deque[Callable[[], None]] = deque()
        self._steps: deque[Callable[[], None]] = deque()
        """What is still to be done for the news that were taken from the stack: before frames
        leave, and afterwards."""
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
        """Stop the stack: send its last frames, and hand over its last messages. Nobody comes back
        for what is left: whatever fails, the rest is done, and the first failure raised behind it.
        """
        self.is_running = False
        if self._timer is not None:
            self._timer.cancel()
        frames = self._stack.stop(self._now())
        news = self._stack.take_news()
        self._plan_places(news)
        failures = _do_all(self._places)
        failures += _do_all(deque([partial(self._transport.send, frames)]))
        # What a turn that failed has left.
        failures += _do_all(self._steps)
        failures += self._hand_over_last(news.views)
        failures += _do_all(deque(partial(self._tell_abandoned, one) for one in news.abandoned))
        if failures:
            raise failures[0]

    def _hand_over_last(self, views: list[View]) -> list[BaseException]:
        """Hand over what is left; return what failed. A receive window that ends hands up the
        messages that waited in it: they were acked."""
        failures: list[BaseException] = []
        deliveries = self._take_deliveries()
        # With each failure a message or a view is past, at least.
        tries = len(deliveries) + len(views)
        while deliveries and len(failures) < tries:
            try:
                self._hand_over(deliveries, views)
            except BaseException as failure:  # noqa: BLE001 it is raised when all is done
                failures.append(failure)
            deliveries = self._take_deliveries()
        return failures

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
        if self._places or self._steps:
            _do(self._places)
            _do(self._steps)
        if self._due + patience <= now:
            stack.tick(now)
            patience = 0.0
        stack.is_held = transport.room.is_full
        # Before the turn ends, so that an answer leaves in it.
        deliveries = self._take_deliveries() if self._unhanded else stack.take_deliveries()
        if deliveries:
            if stack.views:
                self._hand_over(deliveries, stack.views)
            else:
                self.on_deliveries(deliveries)
            self.is_wanted = False
        frames = stack.end_turn(now)
        if stack.has_news():
            self._plan(stack.take_news())
            _do(self._places)
        if frames:
            # Before the transport forgets who has left: the answer to a leave is among them.
            transport.send(frames)
        if self._steps:
            _do(self._steps)
        # Own messages, which are handed over as they leave: after the view that they belong to.
        deliveries = stack.take_deliveries()
        if deliveries:
            self.on_deliveries(deliveries)
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

    def _plan(self, news: News) -> None:
        """Note what is to be done for what the stack says besides frames and messages: places of
        members, links, views, messages given up, and that it has left."""
        self._plan_places(news)
        steps = self._steps
        # Before the links, which are to these: what strangers have named says less, and may have
        # left no room.
        steps.extend(partial(self._know, view) for view in news.views)
        if self._monitors is not None:
            steps.extend(partial(self._watch, *link) for link in news.links)
        for view in news.views:
            steps.append(partial(self._adopt, view))
            if self._monitors is not None:
                steps.append(partial(self._monitors.on_view, view.members))
        steps.extend(partial(self._tell_view, view) for view in news.views[self._told :])
        self._told = 0
        steps.extend(partial(self._tell_abandoned, one) for one in news.abandoned)
        steps.append(self._tell_left)

    def _plan_places(self, news: News) -> None:
        places, transport = self._places, self._transport
        places.extend(partial(transport.doubt, short) for short in news.doubted)
        places.extend(partial(self._locate, address) for address in news.located)
        places.extend(partial(transport.trust, address) for address in news.proved)

    def _know(self, view: View) -> None:
        self._members.update((member.short, member) for member in view.members)

    def _watch(self, peer: int, is_wanted: bool) -> None:  # noqa: FBT001 as the news say it
        assert self._monitors is not None
        self._monitors.change(self._members.get(peer, peer), is_wanted=is_wanted)

    def _adopt(self, view: View) -> None:
        self._members = {member.short: member for member in view.members}
        self._transport.on_view(view.members)

    def _tell_view(self, view: View) -> None:
        self._view = view
        self.on_view(view)

    def _tell_abandoned(self, one: Abandoned) -> None:
        self.on_abandoned(one)

    def _tell_left(self) -> None:
        if self._stack.has_left and not self._has_left:
            self._has_left = True
            self.on_left()

    def _take_deliveries(self) -> list[Delivery]:
        """Return what is to be handed over: first what a turn that failed has left."""
        self._unhanded += self._stack.take_deliveries()
        deliveries, self._unhanded = self._unhanded, []
        return deliveries

    def _hand_over(self, deliveries: list[Delivery], views: list[View]) -> None:
        """Hand over deliveries, and tell of each view before the first message of who is new in it.
        Views without such a message are told of when frames have left."""
        start = 0
        try:
            first_views = _first_views(views, self._view, self._told)
            for at, delivery in enumerate(deliveries):
                until = first_views.get(delivery.source, 0)
                if until > self._told:
                    part, start = deliveries[start:at], at
                    if part:
                        self.on_deliveries(part)
                    self._tell_views(views, until)
            part, start = deliveries[start:], len(deliveries)
            self.on_deliveries(part)
        except BaseException:
            # The receiver keeps what it did not come to of the part that it was given.
            self._unhanded = deliveries[start:]
            raise

    def _tell_views(self, views: list[View], until: int) -> None:
        """Tell the application of the first `until` views, except those that it was told of."""
        for view in views[self._told : until]:
            self._told += 1
            self._tell_view(view)

    def _locate(self, address: Address) -> None:
        if len(self._members) < MAX_LEARNED:
            self._members.setdefault(address.short, address)
        self._transport.locate(address)


def _do(steps: deque[Callable[[], None]]) -> None:
    """Do what was noted. A step that fails is not done again: no bug must keep a member from the
    others for ever."""
    while steps:
        steps.popleft()()


def _do_all(steps: deque[Callable[[], None]]) -> list[BaseException]:
    """Do what was noted, whatever fails; return what failed."""
    failures: list[BaseException] = []
    while steps:
        try:
            _do(steps)
        except BaseException as failure:  # noqa: BLE001 the caller raises it
            failures.append(failure)
    return failures


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
