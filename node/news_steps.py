"""What is still to be done for the news that were taken from a stack.

The stack gives its news once: a step that was not done, because one before it failed, is done in
the next turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from stormcast.node.application import Application
from stormcast.node.core.model import Address, View
from stormcast.node.stack import News, Stack
from stormcast.node.transports.base import Transport
from stormcast.node.transports.monitors import Monitors
from stormcast.node.transports.peer_places import MAX_LEARNED

Steps = deque[Callable[[], None]]


class NewsSteps:
    """Brings news to the transport, to monitored connections, and to the application."""

    def __init__(
        self,
        stack: Stack,
        transport: Transport,
        monitors: Monitors | None,
        application: Application,
    ) -> None:
        self.before_frames: Steps = deque()
        """Steps until frames leave: where members are."""
        self.after_frames: Steps = deque()
        """Steps once frames have left."""
        self._stack = stack
        self._transport = transport
        self._monitors = monitors
        self._application = application
        self._members: dict[int, Address] = {}
        """Addresses by short id: members of the last view, and others that were located since."""

    def plan(self, news: News) -> None:
        """Note what is to be done for what the stack says besides frames and messages: places of
        members, links, views, messages given up, and that it has left."""
        self.plan_places(news)
        steps, application = self.after_frames, self._application
        # Before the links, which are to these: what strangers have named says less, and may have
        # left no room.
        steps.extend(partial(self._know, view) for view in news.views)
        if self._monitors is not None:
            steps.extend(partial(self._watch, *link) for link in news.links)
        for view in news.views:
            steps.append(partial(self._adopt, view))
            if self._monitors is not None:
                steps.append(partial(self._monitors.on_view, view.members))
        steps.extend(application.view_steps(news.views))
        steps.extend(application.abandoned_steps(news.abandoned))
        steps.append(self._tell_left)

    def plan_places(self, news: News) -> None:
        """Note what is to be done for the places of members alone."""
        places, transport = self.before_frames, self._transport
        places.extend(partial(transport.doubt, short) for short in news.doubted)
        places.extend(partial(self._locate, address) for address in news.located)
        places.extend(partial(transport.trust, address) for address in news.proved)

    def _locate(self, address: Address) -> None:
        if len(self._members) < MAX_LEARNED:
            self._members.setdefault(address.short, address)
        self._transport.locate(address)

    def _know(self, view: View) -> None:
        self._members.update((member.short, member) for member in view.members)

    def _watch(self, peer: int, is_wanted: bool) -> None:  # noqa: FBT001 as the news say it
        assert self._monitors is not None
        self._monitors.change(self._members.get(peer, peer), is_wanted=is_wanted)

    def _adopt(self, view: View) -> None:
        self._members = {member.short: member for member in view.members}
        self._transport.on_view(view.members)

    def _tell_left(self) -> None:
        if self._stack.has_left:
            self._application.tell_left()


def do(steps: Steps) -> None:
    """Do what was noted. A step that fails is not done again: no bug must keep a member from the
    others for ever."""
    while steps:
        steps.popleft()()


def do_all(steps: Steps) -> list[BaseException]:
    """Do what was noted, whatever fails; return what failed."""
    failures: list[BaseException] = []
    while steps:
        try:
            do(steps)
        except BaseException as failure:  # noqa: BLE001 the caller raises it
            failures.append(failure)
    return failures
