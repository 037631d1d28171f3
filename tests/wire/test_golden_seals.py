"""Seals, taken apart as docs/wire-format.md says, without the code of the product."""

from __future__ import annotations

import struct
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core.codec import Codec
from stormcast.node.core.errors import BadFrame
from stormcast.node.keys.seals import Seals
from stormcast.node.transports.handshake import Hello, unpack_hello_untrusted
from tests.wire.make_golden import CLUSTER, DEST, FROM, KEY, SOURCE, data, group
from tests.wire.test_golden_bytes import pinned

DRAWN = bytes(range(100, 116))
MARK = sha256(b"stormcast-key-id" + KEY.secret).digest()[:4] + DRAWN + struct.pack(">I", SOURCE)


def cipher() -> AESGCM:
    info = b"stormcast-seal-1" + struct.pack(">II", CLUSTER, SOURCE)
    return AESGCM(HKDF(SHA256(), 32, salt=DRAWN, info=info).derive(KEY.secret))


@pytest.mark.parametrize(
    ("name", "number", "plain"),
    [("sealed-data", 1, data(b"hello")), ("sealed-view-request", 2, group(18, 9, lo=2))],
)
def test_a_sealed_frame(name: str, number: int, plain: bytes) -> None:
    frame = pinned(name)
    assert frame[:32] == plain[:32]
    assert frame[32:40] == struct.pack(">Q", number)
    assert frame[40:52] == plain[40:52]
    assert frame[52:56] == struct.pack(">I", len(plain) - 64 + 40)
    assert frame[56:60] == plain[56:59] + b"\1"
    assert frame[60:64] == struct.pack(">Q", hash64(frame[:60]))[4:]
    assert frame[64:88] == MARK
    nonce = bytes(4) + struct.pack(">Q", number)
    assert cipher().decrypt(nonce, frame[88:], frame[:88]) == plain[64:]


NONCES = bytes(range(16)), bytes(range(16, 32))


@pytest.mark.parametrize(
    ("name", "number", "begins"),
    [
        ("sealed-hello", 3, struct.pack(">QB", 3, 2) + b"".join(NONCES) + pinned("info")[64:]),
        ("sealed-notice", 4, struct.pack(">QB", 0, 6)),
    ],
)
def test_a_sealed_text(name: str, number: int, begins: bytes) -> None:
    text = pinned(name)
    said, seal, tag = text[:-48], text[-48:-16], text[-16:]
    front = b"SCts" + struct.pack(">HI", 1, CLUSTER)
    assert said[: len(front)] == front
    rest = said[len(front) :]
    # The address is the one that an INFO begins with.
    assert rest == begins[: len(rest)]
    assert name == "sealed-hello" or rest == begins
    assert seal == MARK + struct.pack(">Q", number)
    nonce = bytes(4) + seal[-8:]
    assert cipher().decrypt(nonce, tag, b"stormcast-text\0" + said + seal) == b""


def test_members_open_them() -> None:
    codec, seals = Codec(CLUSTER, DEST, hash64), Seals([KEY], CLUSTER, DEST)
    for name in ("sealed-data", "sealed-view-request"):
        seals.unpack_untrusted(codec, pinned(name))
    hello = unpack_hello_untrusted(pinned("sealed-hello"), CLUSTER, seals)
    assert hello == Hello(CLUSTER, 3, FROM, 2, *NONCES)
    with pytest.raises(BadFrame, match="hello-role"):
        unpack_hello_untrusted(pinned("sealed-notice"), CLUSTER, seals)
