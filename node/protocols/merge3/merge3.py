"""The protocol: says which view this member holds, checks who holds another, and reports it."""

from __future__ import annotations

from math import inf
from typing import Final

from stormcast.node.core import wire
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.packing import Writer
from stormcast.node.core.wire import Head
from stormcast.node.protocols.events import Disagreement, Lagging
from stormcast.node.protocols.layer import Layer, MemberContext
from stormcast.node.protocols.merge3.config import Merge3Config
from stormcast.node.protocols.merge3.frames import (
    unpack_asker_untrusted,
    unpack_info_untrusted,
    unpack_view_untrusted,
)
from stormcast.node.protocols.merge3.heard import Heard
from stormcast.node.protocols.merge3.questions import Questions
from stormcast.node.protocols.port import EVERYONE
from stormcast.node.protocols.proof import Proof

CHECK_JITTER: Final = 0.2
"""Largest share of the check interval that is added to it at random."""
SETTLED_SHARE: Final = 0.25
"""Least share of the check interval between a view and the next check."""
ANSWERS_SHARE: Final = 0.1
"""Share of the check interval in which members must answer that sent no INFO since the check
before: they may be gone."""
LATE_SHARE: Final = 0.9
"""The same share for members that sent one: they live, and may be far away."""


class Merge3(Layer):
    """Collects view ids; asks for views when they differ."""

    protocol = wire.MERGE3
    config_type = Merge3Config
    config: Merge3Config

    def __init__(
        self,
        config: Merge3Config,
        context: MemberContext,
    ) -> None:
        super().__init__(config, context)
        self._heard = Heard(self._port)
        self._questions = Questions(self.role.address, self._port, self.timing)
        self._proof: Proof | None = None
        """Made when a stranger asks: most members are never asked by one."""
        self._info_at = inf
        self._check_at = inf
        """When the next INFO and the next check are due. They stay due across views: where views
        come often, as of a member that restarts again and again, groups would never merge."""
        self._info_number = 0

    # -- The verbs ----------------------------------------------------------------------------

    def receive(self, head: Head, body: bytes, now: float) -> None:
        if head.kind == wire.INFO:
            self._on_info(*unpack_info_untrusted(head, body), head.lo, now)
        elif head.kind == wire.VIEW_REQ:
            self._on_view_req(head, unpack_asker_untrusted(head, body), now)
        elif head.kind == wire.COOKIE:
            if body:
                raise BadFrame("body-long")
            self._questions.on_cookie(head)
        elif head.kind == wire.VIEW_RSP:
            if self._questions.take(head, unpack_view_untrusted(body)):
                self._conclude()
        else:
            raise BadFrame("kind")

    def on_timer(self, what: str, now: float) -> None:
        if what == "info":
            self._tell(now)
        elif what == "check":
            self._check(now)
        elif what == "ask":
            self._ask(now)
        elif what == "answers":
            self._wait_longer_or_conclude(now)
        else:
            self._restart(now)

    def on_tentative(self, view: View, now: float) -> None:
        """Pause while a view is installed at one member after the other: that is no disagreement
        (JGRP-1009)."""
        self._pause()
        # Should the view not come, the pause must not last.
        self.wake_at("resume", now + self.config.check_every)

    def on_view(self, view: View, now: float) -> None:
        self._restart(now)

    def stop(self, now: float) -> None:
        self._pause()
        self._heard.clear()
        self.cancel("resume")

    def bounds(self) -> dict[str, float]:
        config = self.config
        return {
            "info_spacing": max(config.min_interval, config.max_interval / 2),
            "info_within": 1.5 * config.max_interval,
            "check_within": config.check_every * (1.0 + CHECK_JITTER + LATE_SHARE),
        }

    # -- Telling ------------------------------------------------------------------------------

    def _pause(self) -> None:
        for what in ("info", "check", "ask", "answers"):
            self.cancel(what)
        self._questions.forget()

    def _restart(self, now: float) -> None:
        self._pause()
        self.cancel("resume")
        view = self.role.view
        # What members of the view said before it is old.
        self._heard.forget_members(view.members if view is not None else ())
        self._info_at = max(now, min(self._info_at, now + self._info_delay()))
        # Members that get the view a little later than others are no disagreement.
        soonest = now + self.config.check_every * SETTLED_SHARE
        self._check_at = max(soonest, min(self._check_at, now + self._check_delay()))
        self.wake_at("info", self._info_at)
        self.wake_at("check", self._check_at)

    def _info_delay(self) -> float:
        config = self.config
        drawn = self.dice.uniform(0.001, config.max_interval) + config.max_interval / 2
        return max(config.min_interval, drawn)

    def _check_delay(self) -> float:
        """Return a random delay: with equal delays, two members that lead merges at the same time
        and cancel each other's would do so for ever."""
        return self.config.check_every * self.dice.uniform(1.0, 1.0 + CHECK_JITTER)

    def _tell(self, now: float) -> None:
        self._info_at = now + self._info_delay()
        self.wake_at("info", self._info_at)
        role = self.role
        if role.view is None or role.is_leaving:
            return
        self._info_number += 1
        body = Writer().address(role.address).view_id(role.view.id).bytes()
        self._port.control(EVERYONE, wire.INFO, self.protocol, self._info_number, body=body)

    def _on_info(self, sender: Address, view_id: ViewId, number: int, now: float) -> None:
        view = self.role.view
        if view is None:
            self._port.drop("no-view")
            return
        if not self.is_waiting("check"):
            self._port.drop("info-not-now")
            return
        is_lagging = (
            self.role.is_coordinator
            and view_id.number < view.id.number
            and sender in view.members
            and view_id.creator in view.members
        )
        if is_lagging:
            self._port.events.append(Lagging(sender))
        if not self._heard.note(sender, view_id, number, now) and not is_lagging:
            self._port.drop("info-old")

    # -- Checking -----------------------------------------------------------------------------

    def _check(self, now: float) -> None:
        self._check_at = now + self._check_delay()
        self.wake_at("check", self._check_at)
        role = self.role
        heard = self._heard.take(since=now - self.bounds()["info_within"])
        self._questions.forget()
        if role.view is None or role.is_leaving:
            return
        heard[role.address] = role.view.id
        creators = {view_id.creator for view_id in heard.values()}
        # Where a creator is gone, the member that coordinates in its place leads. But members whose
        # views order them differently may each expect another to lead: if no creator is heard of,
        # all members ask.
        is_led = not creators.isdisjoint(heard)
        if is_led and not role.is_coordinator and role.address not in creators:
            return
        asked = _chosen(heard, role.view, self.config.max_participants)
        if not asked:
            return
        self._questions.begin(role.view, asked, heard)
        self.wake_at("answers", now + self.config.check_every * ANSWERS_SHARE)
        self._ask(now)

    def _ask(self, now: float) -> None:
        wait = self._questions.ask()
        if self._questions.are_open:
            self.wake_at("ask", now + wait)

    def _on_view_req(self, head: Head, asker: Address, now: float) -> None:
        view = self.role.view
        if view is None or self.role.is_leaving:
            return
        if not self._port.contacts.trusts(asker):
            # A view is much larger than the question for it.
            self._proof = self._proof or Proof(self.dice)
            if not self._proof.believes(self._port, self.protocol, asker, head, now):
                return
        self._port.control(
            head.source,
            wire.VIEW_RSP,
            self.protocol,
            head.lo,
            body=Writer().view(view).bytes(),
            transmission=head.transmission,
        )

    def _wait_longer_or_conclude(self, now: float) -> None:
        """Give members that live the rest of the interval."""
        if self._questions.take_late():
            self.wake_at("answers", now + self.config.check_every * (LATE_SHARE - ANSWERS_SHARE))
        else:
            self._conclude()

    def _conclude(self) -> None:
        """Report different views: all members have answered, or the time for answers is over."""
        self.cancel("ask")
        self.cancel("answers")
        answers = self._questions.take_answers()
        if answers:
            self._port.events.append(Disagreement(answers, self._heard.latest()))


def _chosen(heard: dict[Address, ViewId], view: View, limit: int) -> list[Address]:
    """Return the members to ask: the creator of each view, the first member that holds it, and the
    own coordinator; nobody if all views are the same."""
    by_id: dict[ViewId, list[Address]] = {}
    for member, view_id in heard.items():
        by_id.setdefault(view_id, []).append(member)
    if len(by_id) == 1:
        return []
    holders = {min(holders, key=_identity) for holders in by_id.values()}
    others = {view_id.creator for view_id in by_id}
    # The coordinator of the own view may not be the view's creator. Its report is needed, else
    # members that have it choose another leader.
    others.add(view.coordinator)
    # One of each view first: answers of one view alone are no disagreement. The same rule at all
    # members, so that they choose the same ones.
    ordered = [*sorted(holders, key=_identity), *sorted(others - holders, key=_identity)]
    return ordered[: max(limit, len(view.members) // 3)] if limit else ordered


def _identity(member: Address) -> int:
    return member.identity
