"""Leaves: asks the member that will make the view without this member, and waits a limited time.

A coordinator never makes the view that it is not in: its successor does, and stays to see that
everybody gets it (JGRP-2277).
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from stormcast.node.core import wire
from stormcast.node.core.model import Address
from stormcast.node.core.policy import next_members
from stormcast.node.core.wire import Head
from stormcast.node.protocols.events import Left
from stormcast.node.protocols.gms.messages import pack_address, unpack_address_untrusted

if TYPE_CHECKING:
    from stormcast.node.protocols.gms.client import Client
    from stormcast.node.protocols.gms.coordinator import Coordinator
    from stormcast.node.protocols.gms.state import Membership

_QUESTION: Final = "leave"


class Leaving:
    """Leaves the group gracefully."""

    def __init__(self, state: Membership, client: Client, coordinator: Coordinator) -> None:
        self._state = state
        self._client = client
        self._coordinator = coordinator
        self._asked: Address | None = None
        self._is_late = False
        """Whether what the coordinator had accepted took too long."""

    def start(self, now: float) -> None:
        """Begin to leave. Requests that the coordinator has already accepted are finished first."""
        state = self._state
        if state.role.is_leaving or state.is_gone:
            return
        state.role.is_leaving = True
        if state.view is None:
            self._client.give_up()
            self._finish()
            return
        self._wait(now)

    def look(self, now: float) -> None:
        """Ask to leave, if there is someone new to ask; finish if there is nobody."""
        state = self._state
        if not state.role.is_leaving or state.is_gone:
            return
        if state.role.is_coordinator:
            if not self._coordinator.is_idle and not self._is_late:
                self._wait_for_acks(now)
                return
            self._coordinator.stop("leaving")
        target = self._target(now)
        if target is None:
            self._finish()
        elif target != self._asked:
            self._asked = target
            state.wake_at("leave", now + state.config.leave_timeout)
            body = pack_address(state.me)
            state.repeats.say(_QUESTION, target.short, wire.LEAVE_REQ, 0, body, now)

    def _wait_for_acks(self, now: float) -> None:
        """Stop asking, and wait: the member that was asked has left, and this member, which
        coordinates now, must first bring its view to everybody."""
        if self._asked is not None:
            self._asked = None
            self._state.repeats.stop(_QUESTION)
            self._wait(now)

    def _wait(self, now: float) -> None:
        self._state.wake_at("leave", now + self._state.config.view_ack_collection_timeout)

    def _target(self, now: float) -> Address | None:
        """Return who coordinates without this member. It may be leaving, too: it leaves after this
        member."""
        view = self._state.view
        assert view is not None
        me = self._state.me
        others = next_members(view.members, (), {me}, ())
        alive = next_members(others, (), (), self._coordinator.suspects(now))
        return (alive or others or (None,))[0]

    def on_answer_untrusted(self, head: Head, body: bytes) -> None:
        """Take a LEAVE_RSP: this member is out."""
        leaver = unpack_address_untrusted(body)
        state = self._state
        if leaver != state.me or not state.role.is_leaving or state.member(head.source) is None:
            state.port.drop("leave-unasked")
        else:
            self._finish()

    def on_timer(self) -> None:
        """Have `look` ask at last, though a view is under way; or leave without an answer: failure
        detection will exclude this member."""
        if self._asked is None:
            self._is_late = True
            # Now, or the requests that wait become one view more before anybody is asked.
            self._coordinator.stop("leaving")
        else:
            self._finish()

    def _finish(self) -> None:
        self._state.leave()
        self._state.wake_at("leave", inf)
        self._state.port.events.append(Left())
