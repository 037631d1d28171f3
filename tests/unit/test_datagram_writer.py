"""Datagrams that leave: what the kernel refuses waits, is cut here, or is counted."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from stormcast.node.settings.transports import TransportConfig
from stormcast.node.transports.datagram_writer import DatagramWriter
from stormcast.node.transports.room import Room

TO = ("127.0.0.1", 9)
GROUP = ("239.1.1.1", 9)


class Kernel:
    """A socket, its loop and its station: takes writes until it is told to fail."""

    def __init__(self, **settings: Any) -> None:
        self.failures: list[int] = []
        """Errors of the next writes; 0 is none."""
        self.written: list[tuple[bytes, int]] = []
        self.flush: Callable[[], None] | None = None
        self.turns = 0
        self.counters: Counter[str] = Counter()
        this: Any = self
        self.room = Room(TransportConfig(**settings), this)
        self.writer = DatagramWriter(this, this, self.room, self.counters, offloads=True)
        self.writer.group = GROUP

    def sendmsg(self, parts: list[bytes], ancillary: Any, _flags: int, _to: object) -> int:
        number = self.failures.pop(0) if self.failures else 0
        if number == errno.EAGAIN:
            raise BlockingIOError(number, "full")
        if number:
            raise OSError(number, "failed")
        data = b"".join(parts)
        self.written.append((data, int.from_bytes(ancillary[0][2], "little") if ancillary else 0))
        return len(data)

    def fileno(self) -> int:
        return 5

    def add_writer(self, _fileno: int, call: Callable[[], None]) -> None:
        assert self.flush is None
        self.flush = call

    def remove_writer(self, _fileno: int) -> None:
        self.flush = None

    def turn(self) -> None:
        self.turns += 1


def test_what_leaves_is_counted_and_multicasts_besides() -> None:
    kernel = Kernel()
    kernel.writer.write(TO, [b"12", b"3"])
    kernel.writer.write(GROUP, [b"4"])
    # A copy of the place: probes are no multicasts of frames.
    kernel.writer.write((*GROUP,), [b"5"])
    assert (kernel.writer.sent, kernel.writer.sent_bytes, kernel.writer.multicasts) == (3, 5, 1)


def test_what_a_full_socket_does_not_take_waits_in_order() -> None:
    kernel = Kernel()
    kernel.failures = [errno.EAGAIN]
    for data in (b"1", b"22", b"3"):
        kernel.writer.write(TO, [data], 1 if data == b"22" else 0)
    assert kernel.writer.queued() == (3, 4)
    assert kernel.flush is not None
    kernel.flush()
    assert kernel.written == [(b"1", 0), (b"22", 1), (b"3", 0)]
    assert kernel.writer.queued() == (0, 0)
    assert kernel.flush is None


def test_a_full_queue_drops_and_closes_the_outbox_until_half_has_left() -> None:
    kernel = Kernel(queue_frames=4)
    kernel.failures = [errno.EAGAIN]
    for _ in range(6):
        kernel.writer.write(TO, [b"x"])
    assert kernel.room.is_full
    assert kernel.counters == {"dropped_queue_full": 2}
    kernel.failures = [0, errno.EAGAIN]
    kernel.writer.flush()
    assert kernel.room.is_full
    kernel.failures = [0, errno.EAGAIN]
    kernel.writer.flush()
    assert not kernel.room.is_full
    assert kernel.turns == 1


def test_what_the_kernel_does_not_cut_is_cut_here_and_it_is_not_asked_again() -> None:
    kernel = Kernel()
    kernel.failures = [errno.EINVAL]
    kernel.writer.write(TO, [b"aab", b"b", b"c"], 2)
    assert kernel.written == [(b"aa", 0), (b"bb", 0), (b"c", 0)]
    assert kernel.counters == {"offload_refused": 1}
    assert not kernel.writer.offloads


@pytest.mark.parametrize(
    ("number", "counted"),
    [
        (errno.ENOBUFS, "send_no_buffers"),
        (errno.EPERM, "send_unreachable"),
        (errno.EMSGSIZE, "send_too_large"),
        (errno.EBADF, "send_errors"),
    ],
)
def test_what_is_lost_is_counted_by_its_reason(number: int, counted: str) -> None:
    kernel = Kernel()
    kernel.failures = [number]
    kernel.writer.write(TO, [b"x"])
    kernel.writer.write(TO, [b"y"])
    assert kernel.counters == {counted: 1}
    assert kernel.written == [(b"y", 0)]
    assert kernel.writer.offloads
