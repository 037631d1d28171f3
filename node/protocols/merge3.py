"""MERGE3: finds out that members hold different views, and tells membership which view each holds.

Each member sends now and then the id of its view (INFO) to all members that it can reach. A member
that hears of different views asks their creators, and the first member that holds each, for the
whole view. Asking a holder of each view also finds members that kept a view whose creator is gone
or has another view by now.

A member of the view that merely missed it needs no merge: its coordinator is told that it lags.

Differences from JGroups: only members that could lead a merge ask, because findings of others would
be ignored. These are the members that coordinate or created one of the views, or all members where
no creator is heard of. A pause for a view that never comes ends by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar, Final

from stormcast.node.core import wire
from stormcast.node.core.errors import BadFrame, require
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.packing import MAX_NAMED, Reader, Writer
from stormcast.node.core.wire import Head
from stormcast.node.protocols.events import Disagreement, Lagging
from stormcast.node.protocols.layer import Layer, MemberContext
from stormcast.node.protocols.port import EVERYONE
from stormcast.node.protocols.proof import Proof

MAX_STRANGERS: Final = 1024
"""Strangers whose INFO is kept until the next check; the one that was heard first is forgotten for
another. Members of past views do not count: strangers must not push them out."""
REPEAT: Final = 0.5
"""Seconds between two requests for one view: a request may be lost."""


CHECK_JITTER: Final = 0.2
"""Largest share of the check interval that is added to it at random."""
SETTLED_SHARE: Final = 0.25
"""Least share of the check interval between a view and the next check."""
ANSWERS_SHARE: Final = 0.1
"""Share of the check interval in which members must answer that sent no INFO since the check
before: they may be gone."""
LATE_SHARE: Final = 0.9
"""The same share for members that sent one: they live, and may be far away."""
FEWEST: Final = 2
"""Members that have to be asked, at least: one of each of two groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge3Config:
    """Settings of MERGE3. Durations are seconds."""

    settable: ClassVar[frozenset[str]] = frozenset()

    min_interval: float = 1.0
    """Least time between two INFOs of a member."""

    max_interval: float = 10.0
    """An INFO follows the one before after half of this, and up to this more at random. Shorter
    heals partitions sooner, and costs each member's INFO to everyone."""

    check_interval: float = 0.0
    """Between two looks at what was heard. Above `max_interval`, so that each member's INFO falls
    in it; 0: 1.6 times that."""

    max_participants: int = 100
    """Members asked for their view in one check, a third of the view if that is more; 0 all. The
    rest merges next time."""

    def __post_init__(self) -> None:
        require(
            0 < self.min_interval < self.max_interval,
            f"merge3.min_interval is {self.min_interval:g}: it must be positive and less than "
            f"merge3.max_interval, {self.max_interval:g}",
        )
        require(
            self.check_interval == 0 or self.check_interval > self.max_interval,
            f"merge3.check_interval is {self.check_interval:g}: it must be more than "
            f"merge3.max_interval, {self.max_interval:g} (0: 1.6 times that)",
        )
        require(
            self.max_participants == 0 or self.max_participants >= FEWEST,
            f"merge3.max_participants is {self.max_participants}: "
            f"a merge takes {FEWEST} (0: no limit)",
        )

    @property
    def check_every(self) -> float:
        return self.check_interval or 1.6 * self.max_interval


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
        self._heard: dict[Address, ViewId] = {}
        """By member, the newest view id that it sent since the last check."""
        self._numbers: dict[Address, int] = {}
        """By member, the number of the INFO in which it last sent its view id."""
        self._asked: dict[int, Address] = {}
        """Members that were asked for their view, and have not answered."""
        self._living: set[int] = set()
        """Members that were asked, and had sent an INFO since the check before: they live."""
        self._latest: dict[Address, tuple[float, ViewId]] = {}
        """By member, when its last INFO came, and what that said. It outlives checks and views, as
        these may come more often than INFOs; of strangers, each check may add `MAX_STRANGERS`."""
        self._strangers: dict[Address, None] = {}
        """Members heard of that were in no view with this one; the latest last."""
        self._answers: dict[Address, View] = {}
        self._cookies: dict[int, int] = {}
        """By member that was asked and wants a cookie given back: the cookie."""
        self._proof: Proof | None = None
        """Made when a stranger asks: most members are never asked by one."""
        self._info_at = inf
        self._check_at = inf
        """When the next INFO and the next check are due. They stay due across views: where views
        come often, as of a member that restarts again and again, groups would never merge."""
        self._check_number = 0
        self._info_number = 0
        self._tries = 0

    # -- The verbs ----------------------------------------------------------------------------

    def receive(self, head: Head, body: bytes, now: float) -> None:
        if head.kind == wire.INFO:
            self._on_info(*_unpack_info_untrusted(head, body), head.lo, now)
        elif head.kind == wire.VIEW_REQ:
            self._on_view_req(head, _unpack_asker_untrusted(head, body), now)
        elif head.kind == wire.COOKIE:
            if body:
                raise BadFrame("body-long")
            self._on_cookie(head)
        elif head.kind == wire.VIEW_RSP:
            self._on_view_rsp(head, _unpack_view_untrusted(body), now)
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
        self._forget()
        self._latest = {}
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
        self._forget_answers()

    def _restart(self, now: float) -> None:
        self._pause()
        self.cancel("resume")
        self._forget_members()
        self._info_at = max(now, min(self._info_at, now + self._info_delay()))
        # Members that get the view a little later than others are no disagreement.
        soonest = now + self.config.check_every * SETTLED_SHARE
        self._check_at = max(soonest, min(self._check_at, now + self._check_delay()))
        self.wake_at("info", self._info_at)
        self.wake_at("check", self._check_at)

    def _forget_members(self) -> None:
        """Forget what members of the view said before it."""
        view = self.role.view
        for member in view.members if view is not None else ():
            self._heard.pop(member, None)
            self._numbers.pop(member, None)
            self._strangers.pop(member, None)

    def _forget(self) -> None:
        self._heard = {}
        self._numbers = {}
        self._strangers = {}
        self._forget_answers()

    def _forget_answers(self) -> None:
        self._asked = {}
        self._living = set()
        self._answers = {}
        self._cookies = {}

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
        known = self._heard.get(sender)
        if known is None and not self._port.contacts.trusts(sender):
            self._make_room_for(sender)
        if known is None or (known, self._numbers[sender]) < (view_id, number):
            self._heard[sender] = view_id
            self._numbers[sender] = number
            self._latest[sender] = now, view_id
        elif not is_lagging:
            # It was delayed on its way, or came before.
            self._port.drop("info-old")

    def _make_room_for(self, stranger: Address) -> None:
        self._strangers[stranger] = None
        if len(self._strangers) > MAX_STRANGERS:
            first = next(iter(self._strangers))
            del self._strangers[first], self._heard[first], self._numbers[first]
            self._latest.pop(first, None)
            self._port.drop("heard-full")

    # -- Checking -----------------------------------------------------------------------------

    def _check(self, now: float) -> None:
        self._check_at = now + self._check_delay()
        self.wake_at("check", self._check_at)
        role, heard = self.role, self._heard
        self._forget()
        since = now - self.bounds()["info_within"]
        self._latest = {who: info for who, info in self._latest.items() if info[0] >= since}
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
        self._check_number += 1
        self._tries = 0
        self._answers = {role.address: role.view}
        self._asked = {member.short: member for member in asked if member != role.address}
        self._living = {member.short for member in heard if member.short in self._asked}
        self.wake_at("answers", now + self.config.check_every * ANSWERS_SHARE)
        self._ask(now)

    def _ask(self, now: float) -> None:
        for short, member in self._asked.items():
            if self._tries:
                self._port.reach(member, _least_info(member))
            self._ask_one(short, self._tries)
        wait = self.timing.repeat_wait(REPEAT, self._tries)
        self._tries += 1
        if self._asked:
            self.wake_at("ask", now + wait)

    def _ask_one(self, short: int, transmission: int) -> None:
        """Ask for a view. The question says who asks: to a member that does not know this one that
        is a stranger, and has to prove where it is."""
        self._port.control(
            short,
            wire.VIEW_REQ,
            self.protocol,
            self._check_number,
            body=Writer().address(self.role.address).bytes(),
            mark=self._cookies.get(short, 0),
            transmission=transmission,
        )

    def _on_cookie(self, head: Head) -> None:
        """Ask a member again that does not know this one: with the cookie that it sent."""
        if head.source in self._asked and head.lo == self._check_number and head.mark:
            self._cookies[head.source] = head.mark
            self._ask_one(head.source, head.transmission)
        else:
            self._port.drop("unasked")

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

    def _on_view_rsp(self, head: Head, view: View, now: float) -> None:
        sender = self._asked.get(head.source)
        if sender is None or head.lo != self._check_number:
            self._port.drop("unasked")
            return
        if sender not in view.members:
            raise BadFrame("not-in-its-view")
        named = sum(len(answer.members) for answer in self._answers.values())
        if named + len(view.members) > MAX_NAMED:
            self._port.drop("answers-full")
            return
        del self._asked[head.source]
        self._answers[sender] = view
        if not self._asked:
            self._conclude()

    def _wait_longer_or_conclude(self, now: float) -> None:
        """Give members that live the rest of the interval: over a long path groups would otherwise
        never merge. Strangers, of which anybody can make up many, get it if all answers agree."""
        late = self._living.intersection(self._asked)
        self._living = set()
        if late and (late & self._port.contacts.trusted or not self._differ()):
            self.wake_at("answers", now + self.config.check_every * (LATE_SHARE - ANSWERS_SHARE))
        else:
            self._conclude()

    def _differ(self) -> bool:
        return len(set(self._answers.values())) > 1

    def _conclude(self) -> None:
        """Report different views: all members have answered, or the time for answers is over."""
        self.cancel("ask")
        self.cancel("answers")
        differ = self._differ()
        answers, self._answers = self._answers, {}
        self._asked = {}
        if differ:
            said = {member: view_id for member, (_at, view_id) in self._latest.items()}
            self._port.events.append(Disagreement(answers, said))


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


def _least_info(member: Address) -> int:
    """Return the bytes that an INFO of a member had at least: the view id in it has as many more as
    a number and the identity of its creator."""
    return wire.HEAD_SIZE + len(Writer().address(member).bytes()) + 24


def _identity(member: Address) -> int:
    return member.identity


def _unpack_info_untrusted(head: Head, body: bytes) -> tuple[Address, ViewId]:
    reader = Reader(body)
    sender = reader.address_untrusted()
    view_id = reader.view_id_untrusted()
    reader.end_untrusted()
    if sender.short != head.source:
        raise BadFrame("identity")
    return sender, view_id


def _unpack_asker_untrusted(head: Head, body: bytes) -> Address:
    reader = Reader(body)
    asker = reader.address_untrusted()
    reader.end_untrusted()
    if asker.short != head.source:
        raise BadFrame("identity")
    return asker


def _unpack_view_untrusted(body: bytes) -> View:
    reader = Reader(body)
    view = reader.view_untrusted()
    reader.end_untrusted()
    return view
