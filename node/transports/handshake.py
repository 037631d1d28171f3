"""The hello that each end of a connection sends first: its address, its cluster, and a number.

A sealed one also says its role, and repeats what the other end has drawn (`exchange.py`).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Address
from stormcast.node.core.packing import Reader, Writer

if TYPE_CHECKING:
    from stormcast.node.keys.seals import Seals

COOKIE: Final = b"SCtp"
SEALED_COOKIE: Final = b"SCts"
"""In place of COOKIE where a seal follows the address; docs/wire-format.md."""
VERSION: Final = 1
LENGTH: Final = struct.Struct(">I")
MAX_HELLO: Final = 1024
"""Bytes of a hello; a sender that claims more is no member."""
_FRONT: Final = struct.Struct(">4sHIQ")
"""cookie, version, cluster, serial."""

NONCE_SIZE: Final = 16
_PART: Final = struct.Struct(f">B{NONCE_SIZE}s{NONCE_SIZE}s")
"""role, nonce, echo: of a sealed hello, before the address."""

PLAIN: Final = 0
"""Role of a hello that is not sealed: it has none."""
DIAL: Final = 1
ACCEPT: Final = 2
PROVE: Final = 3
WATCH: Final = 4
WATCHED: Final = 5
KEYS: Final = 6
"""Roles of sealed hellos; docs/wire-format.md. KEYS is no hello: it says that there is a key, and
nobody takes it for more."""


class Hello(NamedTuple):
    """The first message of one end of a connection."""

    cluster: int
    serial: int
    """Numbers the connections of this end, so that the later of two is known."""
    address: Address
    role: int = PLAIN
    nonce: bytes = b""
    """Bytes that the sender of this hello has drawn for this connection."""
    echo: bytes = b""
    """The bytes that the other end has drawn for it; zeros while they are not known."""


def pack_hello(hello: Hello, seals: Seals | None = None) -> bytes:
    """Return a hello as bytes, with its length in front."""
    cookie = COOKIE if seals is None else SEALED_COOKIE
    body = _FRONT.pack(cookie, VERSION, hello.cluster, hello.serial)
    if seals is not None:
        body += _PART.pack(hello.role, hello.nonce, hello.echo)
    body += Writer().address(hello.address).bytes()
    if seals is not None:
        body = seals.seal_text(body)
    return LENGTH.pack(len(body)) + body


def pack_notice(cluster: int, seals: Seals) -> bytes:
    """Return the notice for a peer without the key: it says that there is a key, and nothing
    else."""
    body = _FRONT.pack(SEALED_COOKIE, VERSION, cluster, 0) + bytes((KEYS,))
    body = seals.seal_text(body)
    return LENGTH.pack(len(body)) + body


def whole_hello_untrusted(said: memoryview) -> bytes | None:
    """Return the hello at the start of these bytes, without its length; None if it is not whole."""
    if len(said) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack_from(said)
    if size > MAX_HELLO:
        raise BadFrame("hello-length")
    body = said[LENGTH.size : LENGTH.size + size]
    return bytes(body) if len(body) == size else None


def unpack_hello_untrusted(body: bytes, cluster: int, seals: Seals | None = None) -> Hello:
    """Return the hello of a member of this cluster; BadFrame with the reason for any other."""
    if len(body) < _FRONT.size:
        raise BadFrame("hello-short")
    cookie, version, theirs, serial = _FRONT.unpack_from(body)
    if cookie not in (COOKIE, SEALED_COOKIE):
        raise BadFrame("hello-cookie")
    if version != VERSION:
        raise BadFrame("hello-version")
    if cookie == SEALED_COOKIE:
        if seals is None:
            raise BadFrame("sealed")
        body = seals.open_text_untrusted(body)
    elif seals is not None:
        raise BadFrame("not-sealed")
    part = _part_untrusted(body) if seals is not None else (PLAIN, b"", b"")
    reader = Reader(body[_FRONT.size + (_PART.size if seals is not None else 0) :])
    address = reader.address_untrusted()
    reader.end_untrusted()
    if theirs != cluster:
        raise BadFrame("hello-cluster")
    return Hello(theirs, serial, address, *part)


def _part_untrusted(body: bytes) -> tuple[int, bytes, bytes]:
    """Return role, nonce and echo of a hello that was sealed."""
    if body[_FRONT.size : _FRONT.size + 1] == bytes((KEYS,)):
        raise BadFrame("hello-role")
    if len(body) < _FRONT.size + _PART.size:
        raise BadFrame("hello-short")
    role, nonce, echo = _PART.unpack_from(body, _FRONT.size)
    return role, nonce, echo
