"""What a client of TLS 1.3 seals by itself: records that no library sends when it is asked."""

from __future__ import annotations

import ssl
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

SUITE = "TLS_AES_256_GCM_SHA384"
HANDSHAKE, CONTENT = b"\x16", b"\x17"
KEY_UPDATE = bytes((24, 0, 0, 1, 1))
"""Asks the other end to change its keys, too."""


def note_secrets(context: ssl.SSLContext, path: Path) -> None:
    """Have a client write down the secrets of its connections."""
    context.keylog_filename = str(path)


class Sealer:
    """Seals in the place of a client that has shaken hands, and has sent nothing since."""

    def __init__(self, noted: Path) -> None:
        lines = [line.split() for line in noted.read_text().splitlines()]
        (secret,) = [words[2] for words in lines if words[0] == "CLIENT_TRAFFIC_SECRET_0"]
        self._secret = bytes.fromhex(secret)
        self._sealed = 0

    def content(self, data: bytes) -> bytes:
        return self._seal(CONTENT, data)

    def key_update(self) -> bytes:
        record = self._seal(HANDSHAKE, KEY_UPDATE)
        self._secret, self._sealed = self._derive(b"traffic upd", 48), 0
        return record

    def _seal(self, kind: bytes, data: bytes) -> bytes:
        start = int.from_bytes(self._derive(b"iv", 12))
        nonce = (start ^ self._sealed).to_bytes(12)
        self._sealed += 1
        head = b"\x17\x03\x03" + (len(data) + 17).to_bytes(2)
        return head + AESGCM(self._derive(b"key", 32)).encrypt(nonce, data + kind, head)

    def _derive(self, label: bytes, size: int) -> bytes:
        label = b"tls13 " + label
        info = size.to_bytes(2) + bytes((len(label),)) + label + b"\x00"
        return HKDFExpand(SHA384(), size, info).derive(self._secret)
