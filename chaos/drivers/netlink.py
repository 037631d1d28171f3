"""NFQUEUE: the kernel hands packets to a program, which gives a verdict on each at any later time.
This module uses a plain netlink socket; no compiled library is needed.

A socket belongs to the network namespace in which it was made, for as long as it is open: so one
thread can serve queues in many namespaces.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from stormcast.node.core.errors import NodeError

Made = TypeVar("Made")
Take = Callable[[int, int, memoryview], None]
"""Takes a packet: its id, its mark, and its bytes from the IP header on, as a view of a buffer that
is used again for the next packet."""

# linux/netlink.h, linux/netfilter/nfnetlink.h, linux/netfilter/nfnetlink_queue.h
NETLINK_NETFILTER: Final = 12
SOL_NETLINK: Final = 270
NETLINK_NO_ENOBUFS: Final = 5
NLM_F_REQUEST: Final = 1
NLM_F_ACK: Final = 4
NLMSG_ERROR: Final = 2
SUBSYS_QUEUE: Final = 3 << 8
MSG_PACKET: Final = SUBSYS_QUEUE | 0
MSG_VERDICT: Final = SUBSYS_QUEUE | 1
MSG_CONFIG: Final = SUBSYS_QUEUE | 2
MSG_VERDICT_BATCH: Final = SUBSYS_QUEUE | 3
CFG_CMD: Final = 1
CFG_PARAMS: Final = 2
CFG_QUEUE_MAXLEN: Final = 3
CFG_MASK: Final = 4
CFG_FLAGS: Final = 5
FAIL_OPEN: Final = 1
CMD_BIND: Final = 1
COPY_PACKET: Final = 2
ATTR_PACKET_HDR: Final = 1
ATTR_VERDICT_HDR: Final = 2
ATTR_MARK: Final = 3
ATTR_PAYLOAD: Final = 10
NF_DROP: Final = 0
NF_ACCEPT: Final = 1
CLONE_NEWNET: Final = 0x40000000
SO_RCVBUFFORCE: Final = 33

_HEADER: Final = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_GENERIC: Final = struct.Struct("=BB2s")  # family, version, queue in network order
_ATTRIBUTE: Final = struct.Struct("=HH")  # length, type
_U32: Final = struct.Struct(">I")
_ERROR: Final = struct.Struct("=i")
_HEAD_SIZE: Final = _HEADER.size + _GENERIC.size
_VERDICT: Final = struct.Struct("=IHHIIBB2sHH")
"""A verdict message before the verdict itself: header, queue, head of one attribute."""
_WORD: Final = struct.Struct(">II")  # verdict, packet id
_VERDICT_SIZE: Final = _VERDICT.size + _WORD.size

MAX_PACKET: Final = 0xFFFF
"""No IP packet is larger."""
RECEIVE_BUFFER: Final = 16 << 20
"""The most bytes that wait to be read: a tenth of a second at full speed."""
MAX_UNREAD: Final = 65_536
"""More messages than find room in that buffer: Linux doubles it, and no message takes less than 512
bytes."""
VERDICTS_PER_SEND: Final = 64
ACK_SECONDS: Final = 5.0
"""Seconds to wait for an answer of the kernel, which normally comes at once."""

_WORDS: Final = {
    errno.EPERM: "another program serves this queue, or the right to do so is missing: it takes "
    "root, or CAP_NET_ADMIN in the user namespace that owns the network namespace",
    errno.EPROTONOSUPPORT: "this kernel has no netfilter netlink: modprobe nfnetlink_queue",
    errno.EINVAL: "this kernel has no NFQUEUE: modprobe nfnetlink_queue",
    errno.EOPNOTSUPP: "this kernel has no NFQUEUE: modprobe nfnetlink_queue",
    errno.EBUSY: "another program serves this queue",
    errno.ENOBUFS: "the kernel has no memory left for it",
}


class NetlinkError(NodeError):
    """The kernel refused; the text says why, and what to do."""


def in_words(number: int) -> str:
    """Return what an error number of the kernel means here, as text."""
    name = errno.errorcode.get(number, str(number))
    return f"{_WORDS.get(number, os.strerror(number))} ({name})"


# -- Messages ----------------------------------------------------------------------------------


def attribute(kind: int, value: bytes) -> bytes:
    """Pack one attribute, padded to a multiple of four bytes."""
    padding = -len(value) % 4
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(padding)


def message(kind: int, queue: int, attributes: bytes, *, flags: int = NLM_F_REQUEST) -> bytes:
    """Pack one message about a queue."""
    size = _HEAD_SIZE + len(attributes)
    generic = _GENERIC.pack(socket.AF_UNSPEC, 0, queue.to_bytes(2, "big"))
    return _HEADER.pack(size, kind, flags, 0, 0) + generic + attributes


def bind_message(queue: int) -> bytes:
    """Pack the request that the kernel hand the packets of a queue to this socket."""
    return _config(queue, attribute(CFG_CMD, struct.pack(">BxH", CMD_BIND, 0)))


def settings_message(queue: int, max_waiting: int) -> bytes:
    """Pack the settings of a queue: copy whole packets, keep at most `max_waiting`, fail open."""
    # By default the kernel splits segments that travel as one, and fills in checksums that are left
    # to hardware, before packets come here.
    params = attribute(CFG_PARAMS, struct.pack(">IB", MAX_PACKET, COPY_PACKET))
    room = attribute(CFG_QUEUE_MAXLEN, _U32.pack(max_waiting))
    # Without room, in the queue or for the message, packets pass: a driver that cannot keep up must
    # not cause losses that no fault asks for. The kernel does not count them.
    mask, flags = (attribute(kind, _U32.pack(FAIL_OPEN)) for kind in (CFG_MASK, CFG_FLAGS))
    return _config(queue, params + room + mask + flags)


def _config(queue: int, attributes: bytes) -> bytes:
    return message(MSG_CONFIG, queue, attributes, flags=NLM_F_REQUEST | NLM_F_ACK)


def verdict_message(
    queue: int, packet: int, verdict: int, payload: bytes = b"", *, kind: int = MSG_VERDICT
) -> bytes:
    """Pack the verdict on a packet, with its bytes if they changed."""
    changed = attribute(ATTR_PAYLOAD, payload) if payload else b""
    return (
        _VERDICT.pack(
            _VERDICT_SIZE + len(changed),
            kind,
            NLM_F_REQUEST,
            0,
            0,
            socket.AF_UNSPEC,
            0,
            queue.to_bytes(2, "big"),
            _ATTRIBUTE.size + _WORD.size,
            ATTR_VERDICT_HDR,
        )
        + _WORD.pack(verdict, packet)
        + changed
    )


def parse_packet(buffer: bytes | bytearray, size: int) -> tuple[int, int, int, int] | None:
    """Parse a packet message: its id, its mark, and the offsets at which the packet begins and
    ends. None for any other message."""
    packet = mark = begin = end = 0
    at = _HEAD_SIZE
    while at + 4 <= size:
        length, kind = _ATTRIBUTE.unpack_from(buffer, at)
        if length < _ATTRIBUTE.size or at + length > size:
            return None
        if kind == ATTR_PAYLOAD:
            begin, end = at + 4, at + length
        elif kind == ATTR_PACKET_HDR:
            packet = _U32.unpack_from(buffer, at + 4)[0]
        elif kind == ATTR_MARK:
            mark = _U32.unpack_from(buffer, at + 4)[0]
        at += (length + 3) & ~3
    return (packet, mark, begin, end) if end else None


# -- The socket --------------------------------------------------------------------------------


class Queue:
    """One queue of one network namespace, served by this object."""

    def __init__(self, number: int, netns: Path | None, *, max_waiting: int) -> None:
        self.number = number
        self.refused: Counter[str] = Counter()
        """By name of the kernel's error, the number of verdicts that the kernel refused."""
        self._verdicts: list[bytes] = []
        self._buffer = bytearray(MAX_PACKET + 4096)
        self._view = memoryview(self._buffer)
        self._socket = inside(netns, _open)
        try:
            self._configure(bind_message(number))
            self._configure(settings_message(number, max_waiting))
        except BaseException:
            self._socket.close()
            raise
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """Return the file descriptor to wait on."""
        return self._socket.fileno()

    def receive(self, take: Take, limit: int) -> int:
        """Hand waiting messages to `take`, up to `limit`; returns how many were read."""
        receive, buffer, view = self._socket.recv_into, self._buffer, self._view
        for count in range(limit):
            try:
                size = receive(buffer)
            except BlockingIOError:
                return count
            kind = _HEADER.unpack_from(buffer)[1]
            if kind == MSG_PACKET:
                found = parse_packet(buffer, size)
                if found is not None:
                    packet, mark, begin, end = found
                    take(packet, mark, view[begin:end])
            elif kind == NLMSG_ERROR and (number := -_ERROR.unpack_from(buffer, 16)[0]):
                # A verdict on a packet that is gone: its namespace or queue was flushed meanwhile.
                self.refused[errno.errorcode.get(number, str(number))] += 1
        return limit

    def accept(self, packet: int, payload: bytes = b"") -> None:
        """Let a packet pass, unchanged or as `payload`. The verdict is sent at `flush`."""
        self._say(verdict_message(self.number, packet, NF_ACCEPT, payload))

    def drop(self, packet: int) -> None:
        """Drop a packet. The verdict is sent at `flush`."""
        self._say(verdict_message(self.number, packet, NF_DROP))

    def accept_up_to(self, packet: int) -> None:
        """Let all undecided packets up to this one pass, in one step."""
        self._say(verdict_message(self.number, packet, NF_ACCEPT, kind=MSG_VERDICT_BATCH))

    def _say(self, verdict: bytes) -> None:
        self._verdicts.append(verdict)
        if len(self._verdicts) >= VERDICTS_PER_SEND or len(verdict) > _VERDICT_SIZE:
            self.flush()

    def flush(self) -> None:
        """Send the verdicts that wait."""
        if self._verdicts:
            verdicts, self._verdicts = self._verdicts, []
            # The kernel carries out verdicts within `send`, so this never blocks.
            self._socket.send(b"".join(verdicts))

    def close(self) -> None:
        """Close the socket: the kernel drops undecided packets. May be called twice."""
        if self._socket.fileno() < 0:
            return
        with suppress(OSError):
            self.flush()
        self._socket.close()

    def _configure(self, words: bytes) -> None:
        """Send one setting, and wait for the kernel's answer."""
        self._socket.settimeout(ACK_SECONDS)
        self._socket.send(words)
        while True:
            try:
                size = self._socket.recv_into(self._buffer)
            except TimeoutError:
                raise NetlinkError(f"queue {self.number}: the kernel does not answer") from None
            # Between binding and the last setting, packets may come already. They pass: without the
            # settings, their messages lack the bytes by which to decide.
            if _HEADER.unpack_from(self._buffer)[1] == NLMSG_ERROR:
                break
            if (found := parse_packet(self._buffer, size)) is not None:
                self.accept(found[0])
        if number := -_ERROR.unpack_from(self._buffer, 16)[0]:
            raise NetlinkError(f"queue {self.number}: {in_words(number)}")


def _open() -> socket.socket:
    try:
        opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    except OSError as error:
        raise NetlinkError(f"netfilter: {in_words(error.errno or 0)}") from None
    # No error when a message finds no room: its packet passes, and its number is missing.
    opened.setsockopt(SOL_NETLINK, NETLINK_NO_ENOBUFS, 1)
    try:
        opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER)
    except PermissionError:
        # Without rights in the first user namespace the buffer is as large as the system allows.
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    opened.bind((0, 0))
    return opened


# -- Namespaces --------------------------------------------------------------------------------


def inside(netns: Path | None, make: Callable[[], Made]) -> Made:
    """Call `make` in a network namespace, in a thread of its own, and return its result; the
    caller's thread stays in its namespace."""
    if netns is None:
        return make()
    made: list[Made] = []
    failed: list[BaseException] = []

    def enter() -> None:
        try:
            _enter(netns)
            made.append(make())
        except BaseException as error:  # noqa: BLE001 raised again where it can be caught
            failed.append(error)

    thread = threading.Thread(target=enter, name=f"inside {netns.name}")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]


def is_there(netns: str | None) -> bool:
    """Whether a network namespace still exists; the own one (None) always does."""
    return netns is None or Path(netns).exists()


def _enter(netns: Path) -> None:
    """Move only this thread into a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        space = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise NetlinkError(f"network namespace {netns}: {os.strerror(error.errno or 0)}") from None
    try:
        if libc.setns(space, CLONE_NEWNET):
            why = ctypes.get_errno()
            remedy = ": CAP_SYS_ADMIN is needed to enter it" if why == errno.EPERM else ""
            raise NetlinkError(f"network namespace {netns}: {os.strerror(why)}{remedy}")
    finally:
        os.close(space)
