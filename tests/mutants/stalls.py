"""Known bugs of multicasts that wait for a stalled application, or on a connection that is late.

No guarantee says what becomes of messages behind a gap when their window ends before its
application took them, nor how soon a window has room again: tests find these.
"""

from __future__ import annotations

from typing import Any

from stormcast.node.core.model import View
from stormcast.node.protocols.multicast import state, windows
from stormcast.node.protocols.multicast.asking import Asking
from stormcast.node.protocols.multicast.feedback import Feedback
from stormcast.node.protocols.multicast.outgoing import Outgoing
from stormcast.node.protocols.multicast.views import Views
from stormcast.node.protocols.multicast.windows import Windows
from stormcast.node.protocols.stable import Stable
from stormcast.node.protocols.windowed import gauge_received
from tests.mutants.groups import mutant
from tests.mutants.hidden import hidden
from tests.mutants.patches import Patches

STALLED = "sim/test_stalled_multicasts.py::test_"


@mutant("windows that end", ("G1",), story="what-a-stalled-member-held-of-one-that-was-excluded-1")
def untaken_multicasts_end_with_their_window(patches: Patches) -> None:
    """A view that ends a window forgets what a stalled application had yet to take of it."""
    old = Windows.hand_up

    @patches.method(Windows)
    def hand_up(self: Any, entry: Any, now: float) -> int:
        return old(self, entry, now) if self._state.is_consuming else 0


@hidden("windows that end", STALLED + "a_message_in_pieces_is_whole_though_its_sender_goes")
def pieces_are_given_up_before_the_rest_is_joined(patches: Patches) -> None:
    """What a window has left is handed up after the view that gives up the pieces before it."""

    @patches.method(Views)
    def hand_up_ending(
        _self: Any, _view: View, _digest: object, _mutual: object, _now: float
    ) -> None:
        return


@hidden("windows that end", STALLED + "an_oob_message_behind_a_gap_is_handed_over_with_its_window")
def stalled_oob_messages_wait_for_a_gap(patches: Patches) -> None:
    """An OOB message that came during a stall waits for what is missing, also for ever."""
    patches.put(windows, "hand_up_oob", lambda *_more: 0)


@hidden("bounds", STALLED + "ended_windows_leave_a_stalled_application_two_windows_at_most")
def ended_windows_pile_up(patches: Patches) -> None:
    """With each merge one more window waits for a stalled application."""
    patches.put(windows, "is_withholding", lambda *_more, **_named: False)


@hidden(
    "bounds", "unit/test_multicast_receiving.py::test_a_window_that_holds_places_only_is_gauged"
)
def places_are_not_gauged(patches: Patches) -> None:
    """A window that holds only places of OOB messages, behind a gap, counts as empty."""

    def gauge(port: Any, protocol: int, peer: int, window: Any, now: float) -> None:
        if window.bytes:
            gauge_received(port, protocol, peer, window, now)

    patches.put(state, "gauge_received", gauge)


@hidden("stalls", STALLED + "own_messages_count_as_waiting")
def own_multicasts_do_not_wait(patches: Patches) -> None:
    """The own multicasts that waited for the application are not counted."""
    old = Outgoing.deliver_held

    @patches.method(Outgoing)
    def deliver_held(self: Any, now: float) -> int:
        old(self, now)
        return 0


@hidden("stalls", STALLED + "the_end_of_a_long_stall_frees_windows_at_once")
def the_end_of_a_stall_is_no_reason_to_vote(patches: Patches) -> None:
    """A member that took everything at last votes when it is asked again."""

    @patches.method(Stable)
    def on_taken(_self: Any, _now: float) -> None:
        return


@hidden(
    "connections that are late",
    STALLED + "what_is_late_for_long_is_no_gap_where_nothing_is_retransmitted",
)
def late_multicasts_are_gaps(patches: Patches) -> None:
    """Without retransmission a gap is what others have received and this member has not."""

    @patches.method(Feedback)
    def _note_received(self: Any, entry: Any, received: int, now: float) -> None:
        if entry.window.seen < received <= entry.farthest():
            entry.window.note(received)
            self._asking.notice(entry, now)


@mutant("windows that begin", ("G1", "G5", "G8"), story="a-place-above-a-gap-from-the-start-1")
def gaps_from_the_start_are_not_noticed(patches: Patches) -> None:
    """A window that is opened with the place of an OOB message asks for nothing before it."""
    old_install, old_notice, installing = Views.install, Asking.notice, list[bool]()

    @patches.method(Views)
    def install(self: Any, *more: Any) -> None:
        installing.append(True)
        old_install(self, *more)
        installing.clear()

    @patches.method(Asking)
    def notice(self: Any, entry: Any, now: float) -> None:
        if not installing:
            old_notice(self, entry, now)

    @patches.method(Feedback)
    def _note_received(self: Any, entry: Any, received: int, now: float) -> None:
        if entry.window.seen < received <= entry.farthest():
            entry.window.note(received)
            self._asking.notice(entry, now)
