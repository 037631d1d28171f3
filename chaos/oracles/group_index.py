"""Indexes the events of groups: views, streams, and windows on streams."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from stormcast.chaos.oracles.groups import Installed, Request, Stream, Window, place_in_views
from stormcast.chaos.oracles.history import Member, Noted
from stormcast.node.trace import (
    ABANDONED,
    ACKED,
    ALARM,
    CONN,
    DELIVERED,
    PURGED,
    RECEIVER_OPEN,
    RECEIVER_REMOVED,
    REQUESTED,
    RETRANSMITTED,
    SENT,
    SKIPPED,
    SYNC,
    Event,
)

_MEMBERS: Final = re.compile(r"([0-9a-fA-F]{1,8}(,[0-9a-fA-F]{1,8})*)?")
"""The text of a view. Python takes more for a number than a member writes."""


class GroupIndex:
    """The index of groups. It is fed with the events of one member after another, in order."""

    def __init__(self, find: Callable[[int], Member]) -> None:
        self._find = find
        self.streams: dict[int, Stream] = {}
        """The stream of each member, by its short id."""
        self.announced: dict[int, list[Event]] = {}
        """The HIGHEST_SEQNO announcements of each member, by its short id."""
        self.questions: dict[tuple[int, int], list[Event]] = {}
        """By member and sender, the questions what there is of the sender's multicasts."""
        self.alarms: dict[tuple[int, int], list[Event]] = {}
        """Alarms about multicasts that may be lost, by the raising member and the sender."""

    def windows(self) -> Iterator[Window]:
        """Return all lives of all windows on streams."""
        return (window for stream in self.streams.values() for window in stream.all_windows())

    def match(self) -> None:
        """Find the view in which each batch was sent, and the deliveries that match a batch."""
        for stream in self.streams.values():
            place_in_views(stream)
            for window in stream.all_windows():
                if not all(map(stream.batches.origin, window.delivered)):
                    window.genuine = [e for e in window.delivered if stream.batches.origin(e)]

    def stream(self, member: Member) -> Stream:
        """Return the stream of a member."""
        stream = self.streams.get(member.short)
        if stream is None:
            stream = self.streams[member.short] = Stream(member)
        return stream

    def note_view(self, member: Member, number: int, event: Event) -> str:
        """Note a view; returns its defect, or an empty text."""
        text = member.texts.get(number, "")
        if not _MEMBERS.fullmatch(text):
            return f"{member.label}: {text[:20]!r} is no list of members"
        shorts = tuple(int(word, 16) for word in text.split(",") if word)
        member.views.append(Installed(len(member.views), event, event.lo, event.peer, shorts))
        return ""

    def note(self, member: Member, number: int, event: Event) -> None:
        """Note an event of multicasts, or of a window on them."""
        kind = event.kind
        if kind == DELIVERED:
            self._window(member, event).deliver(event)
        elif kind == SENT:
            stream = self.stream(member)
            stream.batches.add(event)
            stream.sent_in.append(len(member.views) - 1)
        elif kind == ACKED:
            self._window(member, event).acked.append(event)
        elif kind == RETRANSMITTED:
            # A repeat of another member's multicasts names their sender.
            self.stream(self._find(event.conn) if event.conn else member).resent.append(
                (member, event)
            )
        elif kind == PURGED and not event.conn:
            self.stream(member).purged.append((len(member.views) - 1, event))
        elif kind == ABANDONED:
            self.stream(member).tell(event)
        elif kind == REQUESTED:
            window = self._window(member, event)
            window.requested.append(Request(event, window.reached))
        elif kind == SKIPPED:
            window = self._window(member, event)
            window.skipped.append(event)
            window.reached = max(window.reached, event.hi)
        elif kind == CONN:
            self._note_window_state(
                self._window(member, event), Noted(number, event, member.texts.get(number, ""))
            )
        elif kind == SYNC and not event.peer:
            self.announced.setdefault(member.short, []).append(event)
        elif kind == SYNC:
            self.questions.setdefault((member.short, event.peer), []).append(event)
        elif kind == ALARM:
            self.alarms.setdefault((member.short, event.peer), []).append(event)

    def open_window(self, member: Member, sender: int) -> Window | None:
        """Return the window that a member has on somebody's multicasts, as far as it was read."""
        stream = self.streams.get(sender)
        windows = stream.windows.get(member.short) if stream is not None else None
        if not windows:
            return None
        window = windows[next(reversed(windows))]
        return window if window.opened is not None and window.removed is None else None

    def _window(self, member: Member, event: Event) -> Window:
        """Return the window of an event; an event that names none is of the newest window."""
        stream = self.stream(self._find(event.peer))
        number = event.epoch
        if not number and event.peer != member.short and (had := stream.windows_of(member)):
            number = had[-1].number
        return stream.window(member, number)

    @staticmethod
    def _note_window_state(window: Window, noted: Noted) -> None:
        if noted.event.stream == RECEIVER_OPEN and window.opened is None:
            window.opened = noted
            window.reached = max(window.reached, noted.event.lo)
        elif noted.event.stream == RECEIVER_REMOVED:
            window.removed = noted
