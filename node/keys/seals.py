"""Seals frames by a key of the cluster, and opens them; AES-256-GCM throughout.

Each incarnation of a member has a key of its own, by HKDF from the cluster key, its short id and
what it drew when it started, so that no number of a seal is used twice under one key. The head of a
frame stays clear, as packet filters and rules read it, and is authenticated with the body.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from stormcast.node.core import wire
from stormcast.node.core.errors import BadFrame, RepeatedFrame
from stormcast.node.core.wire import LOW_HALF, Head
from stormcast.node.keys.cluster_keys import KEY_SIZE
from stormcast.node.keys.replays import Replays

if TYPE_CHECKING:
    from stormcast.node.core.codec import Codec
    from stormcast.node.core.model import Payload
    from stormcast.node.keys.cluster_keys import ClusterKey

    Frame = tuple[int, bytes, bytes]

OVERHEAD: Final = wire.SEAL_STRUCT.size + wire.SEAL_TAG
"""Bytes that a seal adds to a frame."""
MOST_NUMBERS: Final = 1 << 40
"""Seals made under one key of an incarnation; then it draws a new one."""
MOST_SEALERS: Final = 4096
"""Incarnations whose numbers are told apart."""
MOST_STRANGERS: Final = 256
"""Of these, the incarnations that are not in the view. Each takes 8 KiB and a cipher, and whoever
recorded old frames can replay frames of any number of incarnations."""
MOST_GONE: Final = 1 << 16
"""Forgotten incarnations, as there were too many or their key was dropped: of each only the highest
number is kept."""
LATE_SECONDS: Final = 10.0
"""Seconds, up to twice as many, for which a datagram is taken after one that its sealer made later:
a network holds it back for less. Connections may hold frames back for much longer, as what a slow
one has to send waits without a bound, and hellos on other connections overtake it."""
DRAWN: Final = 16
"""Bytes that an incarnation draws."""

_MARK_AT: Final = wire.HEAD_SIZE
_BODY_AT: Final = wire.HEAD_SIZE + wire.SEAL_STRUCT.size
_ABOUT: Final = b"stormcast-seal-1"
_SECRET: Final = struct.Struct(">II")
"""cluster, short id of the sealer."""
_NONCE: Final = struct.Struct(">4xQ")
"""Four bytes of nothing, the number of the seal."""
_NUMBER: Final = struct.Struct(">Q")
_CHECK: Final = struct.Struct(">I")
_TEXT: Final = b"stormcast-text\0"
"""Front of what is authenticated of a text, which is no frame."""
_TEXT_SEAL: Final = wire.SEAL_STRUCT.size + _NUMBER.size
"""Bytes of the mark and the number after a text."""
TEXT_OVERHEAD: Final = _TEXT_SEAL + wire.SEAL_TAG
"""Bytes that a seal adds to a text."""

_AT: Final = wire.OFFSETS
_PARTS: Final = struct.Struct(
    f">{_AT['digest']}sQ{_AT['size'] - _AT['mark']}sI{_AT['seal'] - _AT['headers']}sB"
)
"""A head up to its check: around the digest, the size and the seal, which a seal changes."""
_DIGEST, _SIZE, _HEADERS, _SEAL = map(Head._fields.index, ("digest", "size", "headers", "seal"))
assert _PARTS.size == wire.CHECK_OFFSET
_new_tuple: Final = tuple.__new__

Cipher = Callable[..., bytes]


class _Sealer:
    """One incarnation of a member, as others hear it."""

    __slots__ = ("heard", "open", "replays")

    def __init__(self, open_: Cipher, highest: int) -> None:
        self.open = open_
        self.replays = Replays(highest)
        self.heard = 0
        """When it was heard last, in seals that were opened before."""


class Seals:
    """Seals what one member sends, and opens what others send to it."""

    overhead = OVERHEAD

    def __init__(
        self,
        keys: Sequence[ClusterKey],
        cluster: int,
        short: int,
        draw: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._cluster = cluster
        self._short = short
        self._draw = draw
        self._keys: dict[int, ClusterKey] = {}
        self._number = 0
        self._mark = b""
        self._seal: Cipher
        self._sealers: dict[bytes, _Sealer] = {}
        """By the front of their seals."""
        self._strangers: set[bytes] = set()
        """The sealers that are not in the view."""
        self._members: Collection[int] | None = None
        """Short ids of the view's members; None without a group, where nobody is a stranger."""
        self._gone: dict[bytes, int] = {}
        self._opened = 0
        self._period_ends = 0.0
        self.set_keys(keys)
        _of_this_process.add(self)

    # -- Keys ------------------------------------------------------------------------------------

    def set_keys(self, keys: Sequence[ClusterKey]) -> None:
        """Seal by the first of these keys from now on, and open what any of them sealed."""
        self._keys = {key.id: key for key in keys}
        self._own = keys[0]
        kept = {key.id.to_bytes(4) for key in keys}
        # A key may come back, and then what was heard under it must not be taken again.
        for mark in [mark for mark in self._sealers if mark[:4] not in kept]:
            self._put_away(mark)
        self.begin()

    @property
    def names(self) -> list[str]:
        """The ids of the keys, the one that seals first."""
        return [key.name for key in self._keys.values()]

    def begin(self) -> None:
        """Draw, and seal by a key that nobody has used."""
        self._mark = wire.SEAL_STRUCT.pack(self._own.id, self._draw(DRAWN), self._short)
        self._number = 0
        self._seal = _cipher(self._own.secret, self._cluster, self._mark).encrypt

    def _next(self) -> int:
        if self._number >= MOST_NUMBERS:
            self.begin()
        self._number += 1
        return self._number

    # -- Frames ----------------------------------------------------------------------------------

    def seal(self, frames: list[Frame], codec: Codec) -> list[Frame]:
        """Return the frames sealed, each once, however many it goes to."""
        sealed: list[Frame] = []
        hash64 = codec.hash64
        for dest, head, body in frames:
            number = self._next()
            content = body or head[wire.HEAD_SIZE :]
            before, _digest, middle, _size, last, _seal = _PARTS.unpack_from(head)
            size = len(content) + OVERHEAD
            front = _PARTS.pack(before, number, middle, size, last, wire.SEALED)
            front += _CHECK.pack(hash64(front) & LOW_HALF) + self._mark
            sealed.append((dest, front, self._seal(_NONCE.pack(number), content, front)))
        return sealed

    def tell_keys(self, codec: Codec) -> bytes:
        """Return a frame for one who sends without a key of this member."""
        frame = codec.pack_control(wire.KEYS, wire.NONE, wire.GROUP, 0, 0)
        ((_dest, head, body),) = self.seal([(wire.GROUP, frame, b"")], codec)
        return head + body

    def unpack_untrusted(
        self, codec: Codec, buffer: Payload, offset: int = 0
    ) -> tuple[Head, bytes]:
        """Return the head and body of the frame at `offset`, as they were before it was sealed, or
        raise BadFrame with the reason."""
        fields = list(codec.unpack_fields_untrusted(buffer, offset))
        if fields[_SEAL] != wire.SEALED:
            raise BadFrame("not-sealed")
        size = fields[_SIZE]
        if not OVERHEAD <= size <= wire.MAX_BODY + OVERHEAD:
            raise BadFrame("size")
        end = offset + wire.HEAD_SIZE + size
        if end > len(buffer):
            raise BadFrame("truncated")
        body_at = offset + _BODY_AT
        front = bytes(buffer[offset:body_at])
        try:
            body = self._open(front[_MARK_AT:], fields[_DIGEST], buffer[body_at:end], front)
        except RepeatedFrame as repeated:
            repeated.end = end
            raise
        size = len(body)
        if fields[_HEADERS] > size:
            raise BadFrame("size")
        # A record of the journal names a batch by this digest.
        fields[_DIGEST] = codec.hash64(body) if size else 0
        fields[_SIZE] = size
        fields[_SEAL] = 0
        return _new_tuple(Head, fields), body

    # -- Texts -----------------------------------------------------------------------------------

    def seal_text(self, text: bytes) -> bytes:
        """Return a text that is no frame, such as a hello, with a seal after it. It stays clear."""
        number = self._next()
        seal = self._mark + _NUMBER.pack(number)
        proved = _TEXT + text + seal
        return text + seal + self._seal(_NONCE.pack(number), b"", proved)

    def open_text_untrusted(self, sealed: bytes) -> bytes:
        """Return the text without its seal; BadFrame if it has none that opens."""
        at = len(sealed) - TEXT_OVERHEAD
        if at < 0:
            raise BadFrame("not-sealed")
        text, seal = sealed[:at], sealed[at : at + _TEXT_SEAL]
        number = _NUMBER.unpack(seal[-_NUMBER.size :])[0]
        mark = seal[: -_NUMBER.size]
        self._open(mark, number, sealed[at + _TEXT_SEAL :], _TEXT + text + seal)
        return text

    # -- Both ------------------------------------------------------------------------------------

    def _open(self, mark: bytes, number: int, content: Payload, proved: bytes) -> bytes:
        """Open what a sealer sealed; nothing is kept of it before its tag is verified."""
        sealer = self._sealers.get(mark)
        is_new = sealer is None
        if sealer is None:
            key = self._keys.get(int.from_bytes(mark[:4]))
            if key is None:
                raise BadFrame("key-unknown")
            opener = _cipher(key.secret, self._cluster, mark).decrypt
            sealer = _Sealer(opener, self._gone.get(mark, 0))
        try:
            body = sealer.open(_NONCE.pack(number), content, proved)
        except InvalidTag:
            raise BadFrame("forged") from None
        if not sealer.replays.take(number):
            if is_new or not sealer.replays.has(number):
                # It may not have come before: what a connection loses ends it, so that protocols
                # ask for it. Nor may repeats that need a new cipher each share a datagram.
                raise BadFrame("replayed")
            raise RepeatedFrame
        self._opened += 1
        sealer.heard = self._opened
        if is_new:
            self._keep(mark, sealer)
        return body

    def _keep(self, mark: bytes, sealer: _Sealer) -> None:
        is_stranger = self._is_stranger(mark)
        if is_stranger and len(self._strangers) >= MOST_STRANGERS:
            self._put_away(self._silent_longest(self._strangers))
        elif len(self._sealers) >= MOST_SEALERS:
            self._put_away(self._silent_longest(self._strangers or self._sealers))
        self._gone.pop(mark, None)
        self._sealers[mark] = sealer
        if is_stranger:
            self._strangers.add(mark)

    def _is_stranger(self, mark: bytes) -> bool:
        return self._members is not None and int.from_bytes(mark[-4:]) not in self._members

    def _silent_longest(self, marks: Iterable[bytes]) -> bytes:
        return min(marks, key=lambda mark: self._sealers[mark].heard)

    def on_view(self, members: Collection[int]) -> None:
        """Note the members of a view, by short id: strangers, however many are heard, do not
        displace them. Before this member has joined its group, the view is empty."""
        self._members = members
        self._strangers = set(filter(self._is_stranger, self._sealers))
        while len(self._strangers) > MOST_STRANGERS:
            self._put_away(self._silent_longest(self._strangers))

    def tick(self, now: float) -> None:
        """Refuse what is late by more than a period from now on; see `LATE_SECONDS`. Never called
        where frames come over connections."""
        if now >= self._period_ends:
            self._period_ends = now + LATE_SECONDS
            for sealer in self._sealers.values():
                sealer.replays.begin_period()

    def _put_away(self, mark: bytes) -> None:
        """Keep of a sealer the highest number alone."""
        if len(self._gone) >= MOST_GONE:
            del self._gone[next(iter(self._gone))]
        self._strangers.discard(mark)
        self._gone[mark] = self._sealers.pop(mark).replays.highest


_of_this_process: Final[WeakSet[Seals]] = WeakSet()


def _begin_all() -> None:
    """Have a forked process draw a new key: its parent goes on with the numbers that both have, and
    a number that seals two frames under one key gives both away."""
    for seals in _of_this_process:
        seals.begin()


os.register_at_fork(after_in_child=_begin_all)


def _cipher(secret: bytes, cluster: int, mark: bytes) -> AESGCM:
    """Return the cipher of one incarnation, as the front of its seals names it."""
    _key, drawn, short = wire.SEAL_STRUCT.unpack(mark)
    about = _ABOUT + _SECRET.pack(cluster, short)
    derived = HKDF(SHA256(), KEY_SIZE, salt=drawn, info=about).derive(secret)
    return AESGCM(derived)
