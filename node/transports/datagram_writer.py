"""Datagrams that leave: one write each, and a queue for what the kernel does not take."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import Counter, deque
from typing import Final

from stormcast.node.transports.bundles import Parts
from stormcast.node.transports.datagram_sockets import SEGMENT, SOL_UDP, UDP_SEGMENT
from stormcast.node.transports.interfaces import SocketAddress
from stormcast.node.transports.room import Room

NOT_CUT: Final = frozenset({errno.EINVAL, errno.EIO, errno.EMSGSIZE, errno.EOPNOTSUPP})
_REASONS: Final = {
    errno.ENOBUFS: "send_no_buffers",
    errno.EMSGSIZE: "send_too_large",
    **dict.fromkeys(
        (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EPERM, errno.EACCES),
        "send_unreachable",
    ),
}


class DatagramWriter:
    """Writes to one socket."""

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        room: Room,
        counters: Counter[str],
        *,
        offloads: bool,
    ) -> None:
        self.socket = sock
        self.offloads = offloads
        """Whether the kernel cuts packets out of one write; False once it has refused to."""
        self.group: SocketAddress | None = None
        """The group's address; None if there is no group."""
        self.sent = 0
        self.sent_bytes = 0
        self.multicasts = 0
        """The number of datagrams among `sent` that went to the group."""
        self._loop = loop
        self._room = room
        self._counters = counters
        self._waiting: deque[tuple[SocketAddress, Parts, int]] = deque()
        self._waiting_bytes = 0

    def write(self, to: SocketAddress, parts: Parts, segment: int = 0) -> None:
        """Send a datagram, or several to be cut at `segment`; or queue them."""
        if self._waiting:
            self._keep(to, parts, segment)
            return
        try:
            cut = [(SOL_UDP, UDP_SEGMENT, SEGMENT.pack(segment))] if segment else ()
            size = self.socket.sendmsg(parts, cut, 0, to)
        except BlockingIOError:
            self._keep(to, parts, segment)
            return
        except OSError as error:
            self._on_error(error, to, parts, segment)
            return
        self.sent += 1
        self.sent_bytes += size
        if to is self.group:
            self.multicasts += 1

    def _on_error(self, error: OSError, to: SocketAddress, parts: Parts, segment: int) -> None:
        if segment and error.errno in NOT_CUT:
            # The kernel does not cut for this interface, or for a path that became narrower.
            self._counters["offload_refused"] += 1
            self.offloads = False
            whole = b"".join(parts)
            for start in range(0, len(whole), segment):
                self.write(to, [whole[start : start + segment]])
        else:
            self._counters[_REASONS.get(error.errno or 0, "send_errors")] += 1

    def _keep(self, to: SocketAddress, parts: Parts, segment: int) -> None:
        """Queue a write until the socket has room; drop it if the queue is full and may drop."""
        room, waiting = self._room, self._waiting
        if room.drops and len(waiting) >= room.frames:
            self._counters["dropped_queue_full"] += 1
            return
        if not waiting:
            self._loop.add_writer(self.socket.fileno(), self.flush)
        waiting.append((to, parts, segment))
        self._waiting_bytes += sum(map(len, parts))
        if self._waiting_bytes > room.size or len(waiting) >= room.frames:
            room.is_full = True

    def flush(self) -> None:
        """Send queued writes, as far as the socket takes them."""
        waiting = self._waiting
        while waiting:
            to, parts, segment = waiting[0]
            try:
                cut = [(SOL_UDP, UDP_SEGMENT, SEGMENT.pack(segment))] if segment else ()
                size = self.socket.sendmsg(parts, cut, 0, to)
            except BlockingIOError:
                break
            except OSError as error:
                self._on_error(error, to, parts, segment)
            else:
                self.sent += 1
                self.sent_bytes += size
                if to is self.group:
                    self.multicasts += 1
            waiting.popleft()
            self._waiting_bytes -= sum(map(len, parts))
        if not waiting:
            self._loop.remove_writer(self.socket.fileno())
        self._room.reopen((self.queued(),))

    def queued(self) -> tuple[int, int]:
        """Return how many writes and bytes wait."""
        return len(self._waiting), self._waiting_bytes

    def close(self) -> None:
        """Send what can leave at once, and drop the rest."""
        self.flush()
        self._waiting.clear()
