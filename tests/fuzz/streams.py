"""Frames as streams: a hello, frames behind their lengths, written in pieces; each may lie.

To a group with keys every connection begins with a hello that members refuse, or that was heard on
another connection; nothing after it is read.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import Counter, deque
from contextlib import suppress
from random import Random
from typing import Final, NamedTuple

from stormcast.node.core import wire
from stormcast.node.core.model import Address
from stormcast.node.core.packing import Writer
from stormcast.node.transports.handshake import (
    ACCEPT,
    COOKIE,
    KEYS,
    MAX_HELLO,
    WATCHED,
    Hello,
    pack_hello,
)
from tests.fuzz.datagrams import count, place
from tests.fuzz.facts import hellos_in
from tests.fuzz.forging import pick
from tests.fuzz.frames import CHUNK, Frame, FrameMaker
from tests.fuzz.reading import UNKEYED, foresee, greeted
from tests.fuzz.tallies import Tally

RESET: Final = struct.pack("ii", 1, 0)
CLOSING: Final = 0xFFFFFFFF
IDLE: Final = 24
"""Connections that stay open, with whatever was said."""
PATIENCE: Final = 5.0
"""Seconds until a member has closed a connection that this end has shut."""
HELLO: Final = "transport.refused_"
"""Before the reasons for which a hello is refused, among the counters of members."""
UNASKED: Final = "transport.watchers_unasked_bytes"
UNKNOWN: Final = "transport.watchers_refused"
"""Counter of connections to FD_SOCK2's port that had not the key."""
COUNTERS: Final = (HELLO, UNASKED, UNKNOWN)
"""Fronts of the counters of transports that are foreseen."""
MOST_SAID: Final = 4096
"""Bytes that are read of what a member says."""
_LENGTH: Final = struct.Struct(">I")


class Talk(NamedTuple):
    """One connection: what is written on it, in which pieces, and how it ends."""

    hello: bytes
    written: tuple[bytes, ...]
    """Frames with what stands before each."""
    frames: tuple[Frame, ...]
    pieces: int
    end: str
    """`shut`, `reset`, `idle`, or `wait`: the member is to end it."""
    speaker: str
    """Whose hello it is: `stranger`, `member` (whose connection it takes without keys), or `nobody`
    of whom a member would take frames; to a group with keys also how it is sealed."""

    @property
    def whole(self) -> bytes:
        """Everything that is written; where the connection stays open, it ends midway."""
        data = self.hello + b"".join(self.written)
        return data[: len(data) * self.pieces // 6] if self.end == "idle" else data


def talks(maker: FrameMaker, chunk: int, *, has_hello: bool = True) -> list[Talk]:
    """Return the connections of a chunk. One ends with the first frame that no member would write,
    because nothing after it is read."""
    dice = maker.dice(chunk, "streams")
    if maker.facts.is_keyed:
        return _keyed_talks(maker, dice, maker.chunk(chunk))
    me = maker.receiver(chunk).short
    made, begun = [], list[Frame]()
    for frame in maker.chunk(chunk):
        begun.append(frame)
        if has_hello and not foresee(frame.data, me, maker.facts).sender:
            made.append(_talk(maker, dice, begun, has_hello=has_hello))
            begun = []
    if begun:
        made.append(_talk(maker, dice, begun, has_hello=has_hello))
    return made


def _talk(maker: FrameMaker, dice: Random, frames: list[Frame], *, has_hello: bool) -> Talk:
    hello, speaker = _hello(maker, dice) if has_hello else (b"", "nobody")
    written = tuple(_prefix(dice, frame.data) + frame.data for frame in frames)
    end = dice.choice(("shut",) * 8 + ("reset", "idle"))
    return Talk(hello, written, tuple(frames), dice.choice((1, 1, 2, 5)), end, speaker)


def _keyed_talks(maker: FrameMaker, dice: Random, frames: list[Frame]) -> list[Talk]:
    """One connection for several frames, of which none is read; others for a hello alone: the
    answer to that is not lost by what nobody reads."""
    made = []
    while frames:
        size = 0 if dice.random() < 0.2 else dice.choice((1, 2, 4))
        several, frames = frames[:size], frames[size:]
        hello, speaker = maker.forger.hello(dice, pick(dice, maker.others))
        if several and dice.random() < 0.05:
            # Frames at once, as to those who have no key.
            hello, speaker = b"", "nobody"
        written = tuple(_prefix(dice, frame.data) + frame.data for frame in several)
        end = dice.choice(("shut",) * 5 + ("wait",) * 3 + ("reset", "idle"))
        if end == "wait" and not greeted(hello + b"".join(written), maker.facts):
            # It would take as long as a member waits for the rest of a hello, or for a proof.
            end = "shut"
        pieces = dice.choice((1, 1, 2, 5))
        made.append(Talk(hello, written, tuple(several), pieces, end, speaker))
    return made


def _prefix(dice: Random, data: bytes) -> bytes:
    size = len(data)
    if dice.random() < 0.9:
        return _LENGTH.pack(size)
    lies = (size + 1, max(0, size - 1), 0, 63, 1 << 24, (1 << 31) - 1, CLOSING - 1, CLOSING)
    return _LENGTH.pack(dice.choice(lies))


def _hello(maker: FrameMaker, dice: Random) -> tuple[bytes, str]:
    facts = maker.facts
    how = dice.random()
    stranger = dice.choice(maker.others)
    serial = dice.choice((1, 2, 1 << 40, (1 << 64) - 1))
    if how < 0.75:
        return pack_hello(Hello(facts.cluster, serial, stranger)), "stranger"
    if how < 0.8 and not maker.is_defused:
        return pack_hello(Hello(facts.cluster, serial, dice.choice(facts.members))), "member"
    if how < 0.84:
        return b"", "nobody"
    front = struct.Struct(">4sHIQ")
    cookie = dice.choice((COOKIE, COOKIE, COOKIE, b"SCmp", b"GET "))
    version = dice.choice((1, 1, 1, 0, 2, 65535))
    cluster = dice.choice((facts.cluster, facts.cluster, 0, dice.getrandbits(32)))
    body = front.pack(cookie, version, cluster, serial) + Writer().address(stranger).bytes()
    body = dice.choice((body, body, body[: dice.randrange(len(body))], body + b"!"))
    size = dice.choice((len(body), len(body), MAX_HELLO, MAX_HELLO + 1, 0, CLOSING))
    return _LENGTH.pack(size) + body, "nobody"


class StreamAttack:
    """Makes connections, one after the other, and writes on each."""

    def __init__(self, maker: FrameMaker, *, is_monitor: bool) -> None:
        self._maker = maker
        self._is_monitor = is_monitor
        """Whether the ports of FD_SOCK2 are meant, at which nobody has anything to say."""
        self._idle: deque[socket.socket] = deque()
        self._replays: set[tuple[int, bytes]] = set()
        """The genuine hellos of a group with keys that each member was told."""

    def send(self, first: int, count_: int, rate: float) -> Tally:
        """Play the chunks of a range, at most `rate` frames a second."""
        tally = Tally()
        begun, sent = time.monotonic(), 0
        for chunk in range(first, first + count_):
            for talk in talks(self._maker, chunk, has_hello=not self._is_monitor):
                ahead = sent / rate - (time.monotonic() - begun)
                if ahead > 0:
                    time.sleep(ahead)
                self._play(talk, chunk, tally)
                sent += len(talk.frames)
        return tally

    def _play(self, talk: Talk, chunk: int, tally: Tally) -> None:
        maker = self._maker
        member = maker.receiver(chunk)
        at = place(member.where)
        if self._is_monitor:
            at = at[0], maker.facts.monitors[maker.facts.members.index(member)]
        count(talk.frames, tally)
        if talk.speaker == "member" and not self._is_monitor:
            tally.powers["view: hello of a member"] += 1
        tally.sent["connections"] += 1
        first = talk.frames[0].number if talk.frames else chunk * CHUNK
        connection = socket.socket()
        connection.settimeout(PATIENCE)
        try:
            connection.connect(at)
        except OSError as error:
            connection.close()
            tally.find(first, f"no connection to {member.name}: {error}")
            return
        self._write(connection, talk, tally)
        said = self._end(connection, talk, tally, first)
        if maker.facts.is_keyed:
            tally.sent[f"hello {talk.speaker}"] += 1
            what = self._foresee_with_key(talk, member, said, tally)
            if what:
                tally.find(first, f"hello {talk.speaker}: {what}")
        elif self._is_monitor:
            _foresee_thrown_away(talk, member.name, tally)
        else:
            self._foresee(talk, member.name, member.short, tally)

    def _write(self, connection: socket.socket, talk: Talk, tally: Tally) -> None:
        whole = talk.whole
        step = max(1, -(-len(whole) // talk.pieces))
        try:
            for at in range(0, len(whole), step):
                connection.sendall(whole[at : at + step])
        except OSError:
            # The member has closed it: that is how it refuses.
            tally.sent["cut off"] += 1

    def _end(
        self, connection: socket.socket, talk: Talk, tally: Tally, number: int
    ) -> bytes | None:
        """End a connection; return what the member has said, None if that is not known."""
        tally.sent[talk.end] += 1
        said: bytes | None = None
        if talk.end == "idle":
            self._idle.append(connection)
            while len(self._idle) > IDLE:
                self._drop(self._idle.popleft())
            return None
        if talk.end in {"shut", "wait"}:
            try:
                if talk.end == "shut":
                    connection.shutdown(socket.SHUT_WR)
                said = _read_on(connection)
            except TimeoutError:
                what = "was shut" if talk.end == "shut" else "has not the key"
                tally.find(number, f"the connection {what}, and the member keeps it")
            except OSError:
                pass
        self._drop(connection)
        return said

    def _drop(self, connection: socket.socket) -> None:
        # A reset: otherwise the port would be taken for a minute, and soon there would be none.
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connection.close()

    def _foresee(self, talk: Talk, name: str, me: int, tally: Tally) -> None:
        counts: Counter[str] = Counter()
        possible: Counter[str] = Counter()
        for frame, written in zip(talk.frames, talk.written, strict=True):
            told = foresee(frame.data, me, self._maker.facts)
            # Of a stream that ends early, or whose lengths lie, nothing is certain.
            counts += told.certain
            possible += told.possible
            if written[: _LENGTH.size] != _LENGTH.pack(len(frame.data)):
                # What follows is read with another beginning.
                possible.update(_ANY)
        if is_plain(talk):
            tally.foresee(name, counts, possible)
        else:
            tally.foresee(name, {}, counts + possible)
        why = greeted(talk.whole, self._maker.facts)
        if why:
            told = {f"{HELLO}{why}": 1}
            tally.foresee(name, *((told, {}) if talk.end == "shut" else ({}, told)))

    def _foresee_with_key(
        self, talk: Talk, member: Address, said: bytes | None, tally: Tally
    ) -> str:
        """A hello that does not open is refused, and the connection ends. A genuine one is taken
        by those who have not heard it, and then they wait for a proof. Returns what is wrong with
        what the member has said."""
        is_sure = talk.end in {"shut", "wait"}
        why = greeted(talk.whole, self._maker.facts)
        key = member.short, talk.hello
        is_genuine = not why and talk.hello[_LENGTH.size :] in self._maker.facts.said
        is_new = is_genuine and key not in self._replays and talk.whole.startswith(talk.hello)
        if is_genuine and not is_new:
            why = "replayed" if talk.whole.startswith(talk.hello) else ""
        if is_new:
            if is_sure:
                self._replays.add(key)
            told = dict.fromkeys((UNKNOWN,) if self._is_monitor else _OF_GENUINE, 1)
            told |= {UNASKED: len(talk.whole)} if self._is_monitor else {}
            tally.foresee(member.name, {}, told)
        elif why:
            told = {UNKNOWN if self._is_monitor else f"{HELLO}{why}": 1}
            tally.foresee(member.name, *((told, {}) if is_sure else ({}, told)))
        elif self._is_monitor and not is_sure:
            # Part of a hello, and silence.
            tally.foresee(member.name, {}, {UNKNOWN: 1})
        if said is None:
            return ""
        has_notice = why in UNKEYED and not self._is_monitor
        allowed = {KEYS} if has_notice else set()
        if is_new:
            allowed = {WATCHED} if self._is_monitor else {ACCEPT, KEYS}
        tally.sent["KEYS"] += bool(said) and has_notice
        is_due = has_notice and not talk.written and talk.end == "wait"
        if is_due and not said:
            return "nobody said that there is a key"
        return wrong_words(said, allowed)


def _read_on(connection: socket.socket) -> bytes:
    """Read until the member closes; return the beginning of what it has said."""
    until, said = time.monotonic() + PATIENCE, b""
    while data := connection.recv(65536):
        said = (said + data)[:MOST_SAID]
        if time.monotonic() > until:
            raise TimeoutError
    return said


def wrong_words(said: bytes, roles: set[int]) -> str:
    """Return what is wrong with what a member with a key has said on a connection; empty if it is
    nothing, or sealed hellos, one of each of these roles at most."""
    hellos = hellos_in(said)
    found = [hello[_ROLE_AT] for hello in hellos]
    if b"".join(hellos) == said and set(found) <= roles and len(set(found)) == len(found):
        return ""
    return f"the member said {len(said)} bytes ({said[:24].hex()})"


def _foresee_thrown_away(talk: Talk, name: str, tally: Tally) -> None:
    """FD_SOCK2 reads what comes, counts it and takes none of it; what is reset may be lost."""
    size = sum(map(len, talk.written))
    counts = {UNASKED: size}
    tally.foresee(name, counts if talk.end == "shut" else {}, {} if talk.end == "shut" else counts)


_ROLE_AT: Final = 4 + 18
"""Where a sealed hello has its role."""
_OF_GENUINE: Final = tuple(
    f"{HELLO}{why}"
    for why in (
        "replayed",
        "hello-role",
        "hello-length",
        "hello-short",
        "hello-cookie",
        "hello-version",
        "not-sealed",
        "key-unknown",
        "forged",
    )
)
"""What may be refused where a genuine hello is said again: the hello, or what follows it, which a
member takes for the next one."""
_ANY: Final = dict.fromkeys(("short", "magic", "version", "truncated", "size"), 1)


def is_plain(talk: Talk) -> bool:
    """Whether all of a talk must be read: a true hello of a stranger, true lengths, no reset."""
    least = _LENGTH.pack(wire.HEAD_SIZE)
    lengths = all(
        written[: _LENGTH.size] == _LENGTH.pack(len(frame.data)) >= least
        for frame, written in zip(talk.frames, talk.written, strict=True)
    )
    return talk.speaker == "stranger" and lengths and talk.end == "shut"
