"""TLS of a control endpoint: its certificate, which is read again when its files change, and the
bytes of a connection, without any I/O.

TLS is done on bytes that the endpoint reads itself, so a handshake has the bounds of any silent
connection: its place among the connections, and the time until the first request must have come.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from stormcast.node.control.settings import TlsSettings
from stormcast.node.core.errors import ConfigError, NodeError
from stormcast.node.keys.private_files import check_private

LOOK_SECONDS: Final = 1.0
"""Least seconds between two looks at the files. Connections are what makes it look."""
_HANDSHAKE: Final = 0x16
"""The first byte of every TLS connection; of an HTTP request it is a letter."""
_HEAD: Final = 5
"""Bytes in front of each record; the last two are its length."""
_LARGEST: Final = (16 << 10) + (2 << 10)
"""Bytes that a record may have after these."""
_CONTENT: Final = 16 << 10
"""Bytes that one may carry."""
EMPTY_RECORDS: Final = 32
"""Records without content that a client may send after the handshake, such as changes of its keys:
honest ones send next to none, and each has the endpoint derive keys and answer."""
_REMEDY: Final = "name a PEM file with the certificate, and one with its private key"

FileState = tuple[int, int, int, int]
"""Device, inode, size and time of change: a mounted Secret is replaced, other files are written."""


class TlsError(NodeError):
    """A connection whose TLS failed."""


class NotTlsError(TlsError):
    """A connection on which the client does not begin TLS."""


class Certificate:
    """The certificate and the private key of an endpoint."""

    def __init__(self, settings: TlsSettings, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._say = say
        self._states = self._look()
        self._refused: list[FileState | None] = []
        """The states of files that could not be used, and of which that was said."""
        self._context = self._load()
        self._look_at = 0.0

    def context(self, now: float) -> ssl.SSLContext:
        """Return what new connections are made with; `now` is the loop's time."""
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            states = self._look()
            if states != self._states:
                self._change(states)
        return self._context

    def _change(self, states: list[FileState | None]) -> None:
        try:
            self._context = self._load()
        except ConfigError as error:
            # Half of a change, or a mistake: what was read before is still right.
            if states != self._refused:
                self._refused = states
                self._say(f"{error}; the certificate stays as it was")
            return
        self._states = states
        self._say(f"the certificate of {self._settings.certificate_file} was read again")

    def _look(self) -> list[FileState | None]:
        return [
            _state_of(self._settings.certificate_file),
            _state_of(self._settings.private_key_file),
        ]

    def _load(self) -> ssl.SSLContext:
        """Return a context with what is in the files now; ConfigError if it cannot be used."""
        settings, names = self._settings, self._settings.names
        of_certificate = f"{names.certificate_file} {settings.certificate_file}"
        of_key = f"{names.private_key_file} {settings.private_key_file}"
        try:
            with Path(settings.certificate_file).open("rb"):
                pass
        except OSError as error:
            raise ConfigError(f"{of_certificate}: {error.strerror}; {_REMEDY}") from None
        try:
            with Path(settings.private_key_file).open("rb") as file:
                found = os.fstat(file.fileno())
        except OSError as error:
            raise ConfigError(f"{of_key}: {error.strerror}; {_REMEDY}") from None
        check_private(found, names.private_key_file, settings.private_key_file)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # A client could ask for one after the other, and each costs a signature.
        context.options |= ssl.OP_NO_RENEGOTIATION
        # Who comes again proves the token again, and after a change sees the new certificate.
        context.num_tickets = 0
        try:
            context.load_cert_chain(
                settings.certificate_file, settings.private_key_file, _refuse_encrypted
            )
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise ConfigError(f"{of_key}: it is not the key of {of_certificate}") from None
            raise ConfigError(f"{of_certificate}, {of_key}: not in PEM form; {_REMEDY}") from None
        except (OSError, ValueError) as error:
            raise ConfigError(f"{of_key}: {error}; {_REMEDY}") from None
        return context


def _refuse_encrypted() -> str:
    """Refuse a private key with a passphrase, for which OpenSSL would ask at the terminal."""
    raise ValueError("it is encrypted, and nobody is there to be asked for its passphrase")


def _state_of(path: str) -> FileState | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class Records:
    """Cuts the bytes of a connection into records."""

    def __init__(self) -> None:
        self._begun = b""

    def take(self, data: bytes) -> Iterator[bytes]:
        """Yield the records that are whole now; the rest is kept, less than one record."""
        self._begun += data
        data, start = self._begun, 0
        while len(data) - start >= _HEAD:
            length = int.from_bytes(data[start + _HEAD - 2 : start + _HEAD])
            if length > _LARGEST:
                raise TlsError(f"TLS failed: a record of {length} bytes")
            end = start + _HEAD + length
            if end > len(data):
                break
            yield data[start:end]
            start = end
        self._begun = data[start:]


class TlsBytes:
    """The server's end of one connection: bytes of the network to bytes of the client, and back."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._records = Records()
        self._has_begun = False
        self._is_ready = False
        """Whether the handshake is over."""
        self._empty = 0
        """Records without content that have come since."""
        self.has_ended = False
        """Whether the client has sent all that it will."""

    def receive(self, data: bytes) -> bytes:
        """Take bytes from the network, b"" at their end; return what they carry, which may be
        nothing. TlsError when the connection cannot go on; what is outgoing tells the client."""
        if not data:
            self.has_ended = True
            return b""
        if not self._has_begun:
            self._has_begun = True
            if data[0] != _HANDSHAKE:
                raise NotTlsError("the client does not speak TLS")
        try:
            if not self._is_ready:
                data = self._shake_hands(data)
            # One at a time: OpenSSL goes on by itself to the next one that has content.
            return b"".join(self._open(record) for record in self._records.take(data))
        except ssl.SSLZeroReturnError:
            self.has_ended = True
            return b""
        except ssl.SSLError as error:
            raise TlsError(f"TLS failed: {error.reason or error}") from None

    def _shake_hands(self, data: bytes) -> bytes:
        """Go on with the handshake; return the bytes that came behind it."""
        self._incoming.write(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return b""
        self._is_ready = True
        return self._incoming.read()

    def _open(self, record: bytes) -> bytes:
        """Return what a record carries."""
        if self.has_ended:
            return b""
        self._incoming.write(record)
        try:
            content = self._tls.read(_CONTENT)
        except ssl.SSLWantReadError:
            self._empty += 1
            if self._empty > EMPTY_RECORDS:
                raise TlsError("TLS failed: too many records without content") from None
            return b""
        self.has_ended = not content
        return content

    def pack(self, data: bytes) -> None:
        """Seal bytes for the client; `take_outgoing` returns them."""
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            raise TlsError(f"TLS failed: {error.reason or error}") from None

    def end(self) -> None:
        """Tell the client that nothing more will come."""
        if self._is_ready:
            # It would wait for the client to say the same.
            with suppress(ssl.SSLError):
                self._tls.unwrap()

    def take_outgoing(self) -> bytes:
        """Return what is to be sent, and forget it."""
        return self._outgoing.read()
