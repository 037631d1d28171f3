"""Who is told what a member has to say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.wire import GROUP
from stormcast.node.known_members import KnownMembers
from stormcast.node.notices import Notices
from stormcast.node.protocols.port import Abandoned
from tests.helpers.channel import address
from tests.helpers.station import on_a_loop

A = address("a")


def notices(on_notice: Callable[[str], None] | None) -> Notices:
    members = KnownMembers()
    members.on_view(View(ViewId(1, A), (A,)))
    return Notices("n0", on_notice, members, lambda _error: None)


def test_what_was_given_up_is_said_and_told() -> None:
    said: list[str] = []
    told: list[tuple[Address | None, int, str]] = []
    made = notices(said.append)
    made.on_abandoned.set(lambda *what: told.append(what))
    made.tell_abandoned(Abandoned(A.short, 3, "aged", 3))
    made.tell_abandoned(Abandoned(GROUP, 4, "stop", 4))
    assert said == [
        "3 messages to a were given up: aged; some may have arrived",
        "4 messages to the group were given up: stop; some may have arrived",
    ]
    assert told == [(A, 3, "aged"), (None, 4, "stop")]


def test_an_exit_in_a_notice_takes_no_notice_of_what_was_given_up() -> None:
    """The line about lost messages comes first; who asked to be told of them is told all the
    same."""

    def leave(_line: str) -> None:
        raise KeyboardInterrupt

    made = notices(leave)
    told: list[int] = []
    made.on_abandoned.set(lambda _dest, count, _why: told.append(count))
    with pytest.raises(KeyboardInterrupt):
        made.tell_abandoned(Abandoned(GROUP, 3, "aged", 3))
    assert told == [3]


@on_a_loop
async def test_a_warning_to_which_nobody_listens_goes_to_the_loop() -> None:
    logged: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: logged.append(context["message"]))
    said: list[str] = []
    notices(said.append).warn("nobody reads")
    notices(None).warn("nobody reads")
    assert (said, logged) == (["nobody reads"], ["n0: nobody reads"])
