"""Asks members for the views that they hold, in one check, and keeps their answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from stormcast.node.core import wire
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.packing import MAX_NAMED, Writer
from stormcast.node.protocols.merge3.frames import least_info

if TYPE_CHECKING:
    from stormcast.node.core.model import Address, View
    from stormcast.node.core.timing import Timing
    from stormcast.node.core.wire import Head
    from stormcast.node.protocols.port import Port

REPEAT: Final = 0.5
"""Seconds between two requests for one view: a request may be lost."""


class Questions:
    """The members that were asked in the present check, and the views that they answered with."""

    def __init__(self, me: Address, port: Port, timing: Timing) -> None:
        self._me = me
        self._port = port
        self._timing = timing
        self._asked: dict[int, Address] = {}
        """Members that were asked for their view, and have not answered."""
        self._living: set[int] = set()
        """Members that were asked, and had sent an INFO since the check before: they live."""
        self._answers: dict[Address, View] = {}
        self._cookies: dict[int, int] = {}
        """By member that was asked and wants a cookie given back: the cookie."""
        self._check_number = 0
        self._tries = 0

    @property
    def are_open(self) -> bool:
        """Whether an answer is missing."""
        return bool(self._asked)

    def begin(self, own: View, asked: Iterable[Address], living: Iterable[Address]) -> None:
        """Begin a check with this member's own view: whom to ask, and who was heard of late."""
        self._check_number += 1
        self._tries = 0
        self._answers = {self._me: own}
        self._asked = {member.short: member for member in asked if member != self._me}
        self._living = {member.short for member in living if member.short in self._asked}

    def ask(self) -> float:
        """Ask those that have not answered; return after how many seconds to ask again."""
        for short, member in self._asked.items():
            if self._tries:
                self._port.reach(member, least_info(member))
            self._ask_one(short, self._tries)
        wait = self._timing.repeat_wait(REPEAT, self._tries)
        self._tries += 1
        return wait

    def _ask_one(self, short: int, transmission: int) -> None:
        """Ask for a view. The question says who asks: to a member that does not know this one that
        is a stranger, and has to prove where it is."""
        self._port.control(
            short,
            wire.VIEW_REQ,
            wire.MERGE3,
            self._check_number,
            body=Writer().address(self._me).bytes(),
            mark=self._cookies.get(short, 0),
            transmission=transmission,
        )

    def on_cookie(self, head: Head) -> None:
        """Ask a member again that does not know this one: with the cookie that it sent."""
        if head.source in self._asked and head.lo == self._check_number and head.mark:
            self._cookies[head.source] = head.mark
            self._ask_one(head.source, head.transmission)
        else:
            self._port.drop("unasked")

    def take(self, head: Head, view: View) -> bool:
        """Take an answer; return whether it was the last that was missing."""
        sender = self._asked.get(head.source)
        if sender is None or head.lo != self._check_number:
            self._port.drop("unasked")
            return False
        if sender not in view.members:
            raise BadFrame("not-in-its-view")
        named = sum(len(answer.members) for answer in self._answers.values())
        if named + len(view.members) > MAX_NAMED:
            self._port.drop("answers-full")
            return False
        del self._asked[head.source]
        self._answers[sender] = view
        return not self._asked

    def take_late(self) -> bool:
        """Whether to wait longer, which may be asked once in a check: for members that live, as
        over a long path groups would otherwise never merge. For strangers, of which anybody can
        make up many, only if all answers agree."""
        late = self._living.intersection(self._asked)
        self._living = set()
        return bool(late) and bool(late & self._port.contacts.trusted or not self._differ())

    def _differ(self) -> bool:
        return len(set(self._answers.values())) > 1

    def take_answers(self) -> dict[Address, View]:
        """End the check; return the answers if they differ, else none."""
        answers = self._answers if self._differ() else {}
        self._answers = {}
        self._asked = {}
        return answers

    def forget(self) -> None:
        """Ask nobody any more, and forget the answers."""
        self._asked = {}
        self._living = set()
        self._answers = {}
        self._cookies = {}
