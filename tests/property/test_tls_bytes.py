"""Bytes of strangers to an endpoint with TLS: they are refused in one way, whatever they are."""

from __future__ import annotations

import ssl
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormcast.node.control.tls import Certificate, TlsBytes, TlsError
from stormcast.node.control.trust import trusting
from tests.helpers.certificates import NAME, Files, Issuer

LARGEST_ANSWER = 16 << 10
"""Bytes that a stranger is sent at most: a certificate and what belongs to it."""
REQUEST = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Issuer().write(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def context(files: Files) -> ssl.SSLContext:
    return Certificate(files.settings, print).context(0.0)


class Client:
    """An honest client, up to what it would send."""

    def __init__(self, files: Files) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        trusted = trusting(str(files.ca))
        self._tls = trusted.wrap_bio(self._incoming, self._outgoing, server_hostname=NAME)

    def hello(self) -> bytes:
        with suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        return self._outgoing.read()

    def finish(self, answer: bytes) -> bytes:
        self._incoming.write(answer)
        self._tls.do_handshake()
        return self._outgoing.read()

    def request(self) -> bytes:
        self._tls.write(REQUEST)
        return self._outgoing.read()


def feed(server: TlsBytes, parts: list[bytes]) -> bytes:
    """Feed all parts, and the end, as far as they are taken; returns what they carried."""
    came = b""
    # Nothing but this may be raised.
    with suppress(TlsError):
        for part in (*filter(None, parts), b""):
            came += server.receive(part)
    server.end()
    assert len(server.take_outgoing()) <= LARGEST_ANSWER
    return came


@given(data=st.binary(max_size=400), begins_well=st.booleans(), cut=st.integers(1, 60))
def test_noise_is_refused_in_one_way(
    context: ssl.SSLContext, data: bytes, begins_well: bool, cut: int
) -> None:
    noise = b"\x16\x03\x01" + data if begins_well else data
    parts = [noise[start : start + cut] for start in range(0, len(noise), cut)]
    assert feed(TlsBytes(context), parts) == b""


@given(
    places=st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=4),
    length=st.integers(0, 2**16),
)
def test_a_damaged_or_broken_off_hello_is_refused_in_one_way(
    files: Files, context: ssl.SSLContext, places: list[tuple[int, int]], length: int
) -> None:
    hello = bytearray(Client(files).hello())
    for place, value in places:
        hello[place % len(hello)] = value
    assert feed(TlsBytes(context), [bytes(hello[: length % len(hello) + 1])]) == b""


@given(place=st.integers(0, 2**16), flip=st.integers(0, 255))
def test_a_request_is_taken_as_it_was_sent_or_not_at_all(
    files: Files, context: ssl.SSLContext, place: int, flip: int
) -> None:
    server, client = TlsBytes(context), Client(files)
    server.receive(client.hello())
    server.receive(client.finish(server.take_outgoing()))
    sealed = bytearray(client.request())
    sealed[place % len(sealed)] ^= flip
    assert feed(server, [bytes(sealed)]) == (b"" if flip else REQUEST)
