"""Reading a connection: frames with their lengths, and what a stranger may cost."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from stormcast.node.core import wire
from stormcast.node.transports import frame_reader
from stormcast.node.transports.connection_state import State
from stormcast.node.transports.frame_reader import CLOSING, FrameReader
from stormcast.node.transports.handshake import LENGTH
from stormcast.node.transports.stream_buffers import READ_BYTES, STRANGERS_BYTES

MOST = 100_000
SMALL, LARGE = bytes(wire.HEAD_SIZE), bytes(MOST)


class Standing:
    """A connection, its table and its member in one: they note what the reader tells them."""

    def __init__(self) -> None:
        self.state = State.OPEN
        self.last_used = 0.0
        self.got: list[int] = []
        self.held: list[int] = []
        self.causes: list[str] = []
        self.turns: list[bool] = []
        self.is_closing = False
        self.max_length = MOST
        self.owner = self.strangers = self
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        table: Any = self
        self.reader = FrameReader(table, self.ours)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def now(self) -> float:
        return 7.0

    def receive(self, frame: memoryview, _now: float) -> bool:
        self.got.append(len(frame))
        return bytes(frame[:1]) != b"!"

    def turn(self, *, has_more: bool) -> None:
        self.turns.append(has_more)

    def make_room_for(self, _connection: Standing, size: int) -> None:
        self.held.append(size)

    def drop(self, cause: str) -> None:
        self.state = State.CLOSED
        self.causes.append(cause)

    def on_end(self) -> None:
        self.causes.append("end")

    def come(self, *frames: bytes, cut: int = 0) -> None:
        """These come, but for the last `cut` bytes."""
        said = b"".join(LENGTH.pack(len(one)) + one for one in frames)
        self.theirs.sendall(said[: len(said) - cut])
        self.read()

    def read(self) -> None:
        connection: Any = self
        self.reader.on_readable(connection)


@pytest.fixture(name="standing")
def _standing() -> Iterator[Standing]:
    made = Standing()
    yield made
    made.ours.close()
    made.theirs.close()


def test_whole_frames_are_handed_over_and_the_rest_waits(standing: Standing) -> None:
    standing.reader.set_stranger(is_stranger=False)
    standing.come(SMALL, SMALL, bytes(500), cut=10)
    assert standing.got == [len(SMALL)] * 2
    standing.theirs.sendall(bytes(10))
    standing.read()
    assert standing.got == [len(SMALL)] * 2 + [500]
    assert standing.turns == [False, False]
    assert standing.last_used == 7.0


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (LENGTH.pack(MOST + 1), "bad-length"),
        (LENGTH.pack(len(SMALL) - 1), "bad-length"),
        (LENGTH.pack(len(SMALL)) + b"!" * len(SMALL), "bad-frame"),
    ],
)
def test_what_is_no_frame_ends_the_connection(standing: Standing, said: bytes, cause: str) -> None:
    standing.come(SMALL)
    standing.theirs.sendall(said)
    standing.read()
    assert standing.causes == [cause]


def test_the_other_end_says_once_that_it_closes(standing: Standing) -> None:
    standing.theirs.sendall(LENGTH.pack(CLOSING))
    standing.read()
    assert (standing.reader.is_ended, standing.causes) == (True, [])
    standing.theirs.sendall(LENGTH.pack(CLOSING))
    standing.read()
    assert standing.causes == ["bad-length"]


def test_a_stranger_has_a_large_buffer_only_for_a_large_frame(standing: Standing) -> None:
    async def play() -> None:
        standing.come(LARGE, cut=90_000)
        assert standing.held == [LENGTH.size + MOST]
        assert standing.reader.buffered == LENGTH.size + MOST
        standing.theirs.sendall(bytes(90_000))
        standing.read()
        assert standing.got == [MOST]
        assert standing.held[-1] == standing.reader.buffered == 0
        assert standing.reader.buffer.size == STRANGERS_BYTES
        standing.reader.set_stranger(is_stranger=False)
        assert standing.reader.buffer.size == READ_BYTES

    asyncio.run(play())


@pytest.mark.parametrize("state", [State.OPEN, State.RETIRING])
def test_an_open_connection_ends_if_a_strangers_frame_stays_unfinished(
    standing: Standing, monkeypatch: pytest.MonkeyPatch, state: State
) -> None:
    """The end of a retired one is timed by the connection."""
    monkeypatch.setattr(frame_reader, "UNFINISHED_SECONDS", 0.0)

    async def play() -> None:
        standing.state = state
        standing.come(SMALL, cut=1)
        await asyncio.sleep(0.01)

    asyncio.run(play())
    assert standing.causes == (["unfinished"] if state is State.OPEN else [])


def test_a_frame_of_a_member_may_take_its_time(
    standing: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_reader, "UNFINISHED_SECONDS", 0.0)

    async def play() -> None:
        standing.come(SMALL, cut=1)
        standing.reader.set_stranger(is_stranger=False)
        await asyncio.sleep(0.01)

    asyncio.run(play())
    assert standing.causes == []
