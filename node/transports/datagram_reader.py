"""Reads datagrams in bursts, from the group's socket first, with a turn after them."""

from __future__ import annotations

import socket
from collections import Counter
from typing import Final

from stormcast.node.core import wire
from stormcast.node.transports.owner import TransportOwner
from stormcast.node.transports.peer_places import HeardPlaces
from stormcast.node.transports.reach import LARGEST, Reach

KIND_AT: Final = wire.OFFSETS["kind"]
BURST: Final = 32
"""Datagrams that are taken from one socket before the member has a turn."""
LONGEST_POLL: Final = 0.005
"""Seconds after which the loop's other work has its turn, however much comes meanwhile."""


class DatagramReader:
    """Reads from the socket of a member, and from the one of its group, if it has one."""

    def __init__(
        self,
        owner: TransportOwner,
        own: socket.socket,
        group: socket.socket | None,
        reach: Reach | None,
        places: HeardPlaces,
        counters: Counter[str],
        busy_poll: float,
    ) -> None:
        self.received = 0
        self.received_bytes = 0
        self._owner = owner
        self._own = own
        self._group = group
        self._reach = reach
        self._places = places
        self._counters = counters
        self._busy_poll = busy_poll
        self._buffer = bytearray(1 << 16)
        self._view = memoryview(self._buffer)

    def poll(self) -> None:
        """Read what has arrived, from the group's socket first, and have a turn. A unicast that
        tells of multicasts must not overtake them, or they are taken for lost."""
        self._owner.turn(has_more=self._take_all())
        if self._busy_poll:
            self._poll_on()

    def _take_all(self) -> bool:
        """Take a burst of each socket; return whether there may be more."""
        has_more = False
        if self._group is not None:
            has_more = self._take(self._group, by_multicast=True)
        return self._take(self._own, by_multicast=False) or has_more

    def _poll_on(self) -> None:
        """Go on reading for `busy_poll` seconds after each datagram: an answer to this turn arrives
        sooner than the system would wake a process that sleeps."""
        owner, patience = self._owner, self._busy_poll
        now = owner.now()
        until, longest = now + patience, now + LONGEST_POLL
        while now < until and now < longest:
            before = self.received
            has_more = self._take_all()
            now = owner.now()
            if self.received != before:
                owner.turn(has_more=has_more)
                until = now + patience

    def _take(self, sock: socket.socket, *, by_multicast: bool) -> bool:
        """Take a burst of one socket; return whether there may be more."""
        owner, view, known = self._owner, self._view, self._places.places.at
        buffer = self._buffer
        receive, take, clock = owner.receive, sock.recvfrom_into, owner.now
        got = total = 0
        while got < BURST:
            try:
                size, source = take(buffer)
            except BlockingIOError:
                break
            except OSError:
                # An error that an earlier datagram met, reported on this socket.
                self._counters["receive_errors"] += 1
                break
            got += 1
            total += size
            if (
                size <= LARGEST
                and buffer[0] != wire.MAGIC
                and self._is_of_reach(view[:size], by_multicast=by_multicast)
            ):
                continue
            # The clock is read after each: nothing may seem to arrive before it was sent.
            short = receive(view[:size], clock())
            if not short:
                owner.on_refused(source, buffer[KIND_AT], size)
            elif known.get(short) != source:
                self._places.learn(short, source)
        self.received += got
        self.received_bytes += total
        return got == BURST

    def _is_of_reach(self, datagram: memoryview, *, by_multicast: bool) -> bool:
        reach = self._reach
        return reach is not None and reach.receive_untrusted(datagram, by_multicast=by_multicast)
