"""Frames as datagrams: one or several in each, to a member's own socket or to its group's; and what
members answer to them."""

from __future__ import annotations

import socket
import time
from collections import Counter
from typing import Final, NamedTuple

from stormcast.node.core import wire
from tests.fuzz.frames import CHUNK, QUESTION, Frame, FrameMaker
from tests.fuzz.powers import Power
from tests.fuzz.reading import foresee
from tests.fuzz.tallies import Tally

LARGEST: Final = 65_507
BURST: Final = 16
"""Datagrams between two looks at the clock."""
FILTERED: Final = "filtered"
"""What the kernel drops for a member: multicasts that say to be its own, and those without a
source."""
TRIES: Final = 100
KEYS_BYTES: Final = wire.HEAD_SIZE + 40
"""Of the frame by which a member says that there is a key."""
KEYS_LATE: Final = 2.0
"""Seconds for which a member may have said so before, and while it is read."""


class Datagram(NamedTuple):
    """What one call sends."""

    data: bytes
    is_multicast: bool
    frames: tuple[Frame, ...]


def datagrams(maker: FrameMaker, chunk: int) -> list[Datagram]:
    """Return the datagrams of a chunk."""
    dice = maker.dice(chunk, "datagrams")
    frames = maker.chunk(chunk)
    made = []
    while frames:
        several, frames = _split(frames, dice.choice((1, 1, 1, 2, 3, 8)))
        data = b"".join(frame.data for frame in several)[:LARGEST]
        is_multicast = bool(maker.facts.multicast[0]) and dice.random() < 0.1
        made.append(Datagram(data, is_multicast, tuple(several)))
    return made


def _split(frames: list[Frame], count: int) -> tuple[list[Frame], list[Frame]]:
    return frames[:count], frames[count:]


def place(where: str) -> tuple[str, int]:
    """Return host and port of `host[port]`."""
    host, _bracket, port = where.removesuffix("]").partition("[")
    return host, int(port)


class DatagramAttack:
    """Sends datagrams, each once."""

    def __init__(self, maker: FrameMaker, address: str) -> None:
        self._maker = maker
        self._facts = maker.facts
        self._replays: set[tuple[int, bytes]] = set()
        """The genuine frames of a group with keys that each member was sent."""
        self._begun = time.monotonic()
        self._told: Counter[tuple[str, int]] = Counter()
        """How often a member has said that there is a key, by where it is."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, 0))
        # There is no route by which the kernel would find the device of a multicast.
        own = socket.inet_aton(address)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 2)

    def send(self, first: int, count: int, rate: float) -> Tally:
        """Send the chunks of a range, `rate` frames a second."""
        tally = Tally()
        begun, sent = time.monotonic(), 0
        for chunk in range(first, first + count):
            for number, datagram in enumerate(datagrams(self._maker, chunk)):
                if number % BURST == 0:
                    ahead = sent / rate - (time.monotonic() - begun)
                    if ahead > 0:
                        time.sleep(ahead)
                self._send(datagram, chunk, tally)
                sent += len(datagram.frames)
            if self._facts.is_keyed:
                self._take_answers(chunk, tally)
        return tally

    def _take_answers(self, chunk: int, tally: Tally) -> None:
        """Look at what members have answered: nothing, or once a second that there is a key."""
        while True:
            try:
                data, at = self._socket.recvfrom(1 << 16, socket.MSG_DONTWAIT)
            except OSError:
                # No more has come, or an earlier datagram was answered by an error.
                return
            self._told[at] += 1
            seconds = time.monotonic() - self._begun + KEYS_LATE
            if what := wrong_answer(data, self._told[at], seconds):
                tally.find(chunk * CHUNK, f"a stranger was told {what} by {at[0]}")
            else:
                tally.sent["KEYS"] += 1

    def _send(self, datagram: Datagram, chunk: int, tally: Tally) -> None:
        facts, receiver = self._facts, self._maker.receiver(chunk)
        to = facts.multicast if datagram.is_multicast else place(receiver.where)
        self._put(datagram.data, to)
        hearers = facts.members if datagram.is_multicast else (receiver,)
        tally.sent["multicasts" if datagram.is_multicast else "datagrams"] += 1
        count(datagram.frames, tally)
        for member in hearers:
            self._foresee(datagram, member.name, member.short, tally)

    def _put(self, data: bytes, to: tuple[str, int]) -> None:
        for _ in range(TRIES):
            try:
                self._socket.sendto(data, to)
            except (BlockingIOError, ConnectionRefusedError, OSError):
                # The own queue is full, or an earlier datagram was answered by an error.
                time.sleep(0.001)
            else:
                return
        raise OSError(f"no datagram to {to} leaves this machine")

    def _foresee(self, datagram: Datagram, name: str, short: int, tally: Tally) -> None:
        data = datagram.data
        is_question = len(data) == QUESTION.size and data[:4] == b"SCmp"
        if self._facts.multicast[0] and is_question and not self._facts.is_keyed:
            # It is no frame: it is answered, or thrown away. With keys its seal is missing.
            tally.sent["questions"] += 1
            return
        if datagram.is_multicast and is_filtered(data, short):
            tally.foresee(name, {FILTERED: 1})
            return
        told = foresee(data, short, self._facts, self._replays)
        tally.foresee(name, told.certain, told.possible)


def wrong_answer(data: bytes, number: int, seconds: float) -> str:
    """Return what is wrong with what a member with a key has told a stranger, the `number`th time
    in so many seconds; empty if it is KEYS, which it may say once a second."""
    is_keys = len(data) == KEYS_BYTES and data[wire.OFFSETS["kind"]] == wire.KEYS
    if not is_keys or not data[wire.OFFSETS["seal"]]:
        return f"{len(data)} bytes ({data[:16].hex()})"
    return f"{number} times in {seconds:.0f} s that there is a key" if number > seconds else ""


def is_filtered(data: bytes, short: int) -> bool:
    """Whether the kernel keeps a multicast from the member: its own, as it seems, or too short to
    say whose it is."""
    at = wire.span("source")
    return len(data) < at.stop or data[at] == short.to_bytes(4, "big")


def count(frames: tuple[Frame, ...] | list[Frame], tally: Tally) -> None:
    """Count frames by what they may do."""
    tally.sent["frames"] += len(frames)
    for frame in frames:
        tally.powers[frame.power.value] += 1
        if frame.power is not Power.NONE:
            tally.powers[f"{frame.power.value}: {_name(frame.data)}"] += 1


def _name(data: bytes) -> str:
    kind, protocol = data[wire.OFFSETS["kind"]], data[wire.OFFSETS["protocol"]]
    known = wire.KINDS.get(kind)
    return f"{known[0] if known else kind} of {wire.PROTOCOLS.get(protocol, protocol)}"
