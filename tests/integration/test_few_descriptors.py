"""A member with 256 descriptors: connections to one of its ports leave the others alive."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.helpers.processes import Members

pytestmark = pytest.mark.slow

CROWD = 300


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    with Members(tmp_path, "--stack", "tcp-nio2") as made:
        made.descriptors = 256
        yield made


def port_of(members: Members, line: str) -> int:
    """A port that a member has said."""
    (said,) = (one for one in members.state("n0")["bound"] if line in one)
    found = re.search(r"\[(\d+)\] on|on port (\d+)", said)
    assert found is not None, said
    return int(found[1] or found[2])


@pytest.mark.parametrize("line", ["FD_SOCK2 listens", "tcp_nio2"])
def test_who_takes_all_places_of_one_port_takes_none_of_another(
    members: Members, line: str
) -> None:
    """The member goes on to answer, and another one still joins it."""
    members.form("n0")
    port = port_of(members, line)
    with ExitStack() as crowd:
        for number in range(CROWD):
            stranger = crowd.enter_context(socket.socket())
            stranger.bind((f"127.0.0.{10 + number % 50}", 0))
            stranger.settimeout(2.0)
            with suppress(OSError):
                stranger.connect(("127.0.0.1", port))
        assert members.ask("n0", "GET", "/livez") == {"live": True}
        members.start("n1", "--initial-hosts", f"127.0.0.1[{port_of(members, 'tcp_nio2')}]")
        members.wait_for_view("n0", "n1")


def test_a_limit_that_is_too_small_is_told_at_the_start(members: Members) -> None:
    members.descriptors = 100
    process = members.start("n0")
    assert process.wait(20.0) == 2
    (line,) = process.tail().splitlines()
    assert line.startswith("stormcast node: this process may have 100 file descriptors open, and")
