"""The bytes of a stranger on a new connection are a hello, or are refused for one reason."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Address
from stormcast.node.keys.cluster_keys import ClusterKey
from stormcast.node.keys.seals import Seals
from stormcast.node.transports.handshake import (
    LENGTH,
    NONCE_SIZE,
    PLAIN,
    SEALED_COOKIE,
    Hello,
    pack_hello,
    unpack_hello_untrusted,
)
from stormcast.node.transports.peer_places import parse_where

CLUSTER = 0xC1
REASONS = {
    "hello-short",
    "hello-cookie",
    "hello-version",
    "hello-cluster",
    "hello-role",
    "body-short",
    "body-long",
    "address",
}

PRINTABLE = st.characters(exclude_categories=("C", "Z"), include_characters=" ")
TEXTS = st.text(PRINTABLE, max_size=60).filter(lambda text: len(text.encode()) < 256)
ADDRESSES = st.builds(Address, st.integers(1, (1 << 128) - 1), TEXTS, TEXTS)
NOTHING = st.just(b"")
SERIALS = st.integers(0, (1 << 64) - 1)
HELLOS = st.builds(Hello, st.just(CLUSTER), SERIALS, ADDRESSES, st.just(PLAIN), NOTHING, NOTHING)
NONCES = st.binary(min_size=NONCE_SIZE, max_size=NONCE_SIZE)
SEALED = st.builds(Hello, st.just(CLUSTER), SERIALS, ADDRESSES, st.integers(1, 5), NONCES, NONCES)
KEY = ClusterKey(bytes(range(32)))


def seals(short: int) -> Seals:
    return Seals([KEY], CLUSTER, short)


def read(body: bytes, opener: Seals | None = None) -> Hello | None:
    try:
        return unpack_hello_untrusted(body, CLUSTER, opener)
    except BadFrame as bad:
        reason = bad.reason
    assert reason in REASONS
    return None


@given(HELLOS)
def test_what_was_said_is_what_is_heard(hello: Hello) -> None:
    heard = read(pack_hello(hello)[LENGTH.size :])
    assert heard == hello
    assert heard is not None
    assert heard.address.name == hello.address.name
    assert heard.address.where == hello.address.where


@given(SEALED)
def test_what_was_sealed_is_what_is_heard(hello: Hello) -> None:
    assert read(pack_hello(hello, seals(1))[LENGTH.size :], seals(2)) == hello


@given(st.binary(max_size=80), st.booleans())
def test_noise_of_who_has_the_key_is_refused_for_a_reason(noise: bytes, begins: bool) -> None:
    front = pack_hello(Hello(CLUSTER, 1, Address(1, "n")))[LENGTH.size :][:18]
    text = SEALED_COOKIE + (front[4:] if begins else b"") + noise
    read(seals(1).seal_text(text), seals(2))


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=40))
def test_a_name_that_is_heard_is_printable(name: str) -> None:
    heard = read(pack_hello(Hello(CLUSTER, 1, Address(1, name, name)))[LENGTH.size :])
    assert heard is not None
    assert heard.address.name.isprintable()
    assert heard.address.where.isprintable()


@given(st.binary(max_size=300), st.booleans())
def test_noise_is_refused_for_a_reason(noise: bytes, begins: bool) -> None:
    front = pack_hello(Hello(CLUSTER, 1, Address(1, "n")))[LENGTH.size :][:18]
    heard = read(front + noise if begins else noise)
    if heard is not None:
        # Whatever place it names, looking at it raises nothing.
        parse_where(heard.address.where)


@given(HELLOS, st.data())
def test_damage_is_refused_or_harmless(hello: Hello, data: st.DataObject) -> None:
    body = bytearray(pack_hello(hello)[LENGTH.size :])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body)))
        end = data.draw(st.integers(at, min(len(body), at + 20)))
        body[at:end] = data.draw(st.binary(max_size=12))
    heard = read(bytes(body))
    assert heard is None or heard.cluster == CLUSTER


@given(st.text(max_size=80))
def test_any_text_is_a_place_or_none(text: str) -> None:
    place = parse_where(text)
    assert place is None or 0 < place[1] < 1 << 16


@given(
    st.text(alphabet="0123456789abcdef:.%[]\x00²٣ ", max_size=40),
    st.text(alphabet="0123456789²٣+-_ \x00", max_size=8),
)
def test_any_text_that_looks_like_a_place_is_one_or_none(host: str, port: str) -> None:
    place = parse_where(f"{host}[{port}]")
    assert place is None or 0 < place[1] < 1 << 16
