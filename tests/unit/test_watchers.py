"""Connections of members that watch this one."""

from __future__ import annotations

from typing import Any

from stormcast.node.transports.watchers import Watcher, Watchers


class Transport:
    """A connection from some address."""

    def __init__(self) -> None:
        self.is_closed = False
        self.written = b""

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 9) if name == "peername" else self

    def setsockopt(self, *_option: int) -> None:
        """Take whatever is set."""

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    abort = close


def test_a_connection_that_was_accepted_before_the_end_and_comes_after_it_is_closed() -> None:
    watchers = Watchers(4)
    early, late = Transport(), Transport()
    made: list[Any] = [early, late]
    Watcher(b"hello", watchers).connection_made(made[0])
    watchers.close()
    Watcher(b"hello", watchers).connection_made(made[1])
    assert (early.is_closed, early.written) == (True, b"hello")
    assert (late.is_closed, late.written) == (True, b"")
