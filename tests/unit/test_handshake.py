"""The first words on a connection: their bytes, and whatever else somebody may say."""

from __future__ import annotations

import struct

import pytest

from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Address
from stormcast.node.transports.handshake import (
    LENGTH,
    MAX_HELLO,
    VERSION,
    Hello,
    pack_hello,
    unpack_hello_untrusted,
)

CLUSTER = 0x01020304
ADDRESS = Address(0xAB << 120 | 0xCD, "n1", "198.18.0.2[7800]")
HELLO = Hello(CLUSTER, 5, ADDRESS)
BODY = bytes.fromhex(
    "53437470"  # SCtp
    "0001"  # version
    "01020304"  # cluster
    "0000000000000005"  # serial
    "ab0000000000000000000000000000cd"
    "026e31"  # n1
    "103139382e31382e302e325b373830305d"  # 198.18.0.2[7800]
)


def refusal(body: bytes, cluster: int = CLUSTER) -> str:
    with pytest.raises(BadFrame) as refused:
        unpack_hello_untrusted(body, cluster)
    return refused.value.reason


def test_golden_bytes() -> None:
    assert pack_hello(HELLO) == LENGTH.pack(len(BODY)) + BODY


def test_a_hello_is_read_as_it_was_said() -> None:
    hello = unpack_hello_untrusted(BODY, CLUSTER)
    assert hello == HELLO
    assert (hello.address.name, hello.address.where) == ("n1", "198.18.0.2[7800]")


@pytest.mark.parametrize("size", range(len(BODY)))
def test_a_hello_that_ends_too_soon_is_refused(size: int) -> None:
    assert refusal(BODY[:size]) == ("hello-short" if size < 18 else "body-short")


def test_nothing_may_follow() -> None:
    assert refusal(BODY + b"x") == "body-long"


def test_hostile_lengths_within_are_refused() -> None:
    name_at = 18 + 16
    for at in (name_at, name_at + 3):
        assert refusal(BODY[:at] + b"\xff" + BODY[at + 1 :]) == "body-short"
    where_at = name_at + 3
    assert refusal(BODY[:where_at] + b"\x00" + BODY[where_at + 1 :]) == "body-long"


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (0, b"T", "hello-cookie"),
        (3, b"P", "hello-cookie"),
        (4, b"\x01", "hello-version"),
        (5, struct.pack("B", VERSION + 1), "hello-version"),
        (5, struct.pack("B", VERSION - 1), "hello-version"),
        (6, b"\x02", "hello-cluster"),
        (9, b"\x05", "hello-cluster"),
        (18, bytes(16), "address"),
    ],
)
def test_another_cookie_version_cluster_or_nobody_is_refused(
    at: int, value: bytes, reason: str
) -> None:
    assert refusal(BODY[:at] + value + BODY[at + len(value) :]) == reason


def test_who_speaks_no_version_of_ours_is_not_told_apart_by_cluster() -> None:
    """So that a member of another cluster is named only where it is one."""
    assert refusal(b"XXXX" + BODY[4:], CLUSTER + 1) == "hello-cookie"


def test_the_longest_hello_is_read() -> None:
    longest = Hello(CLUSTER, (1 << 64) - 1, Address((1 << 128) - 1, "n" * 255, "w" * 255))
    packed = pack_hello(longest)
    assert len(packed) - LENGTH.size <= MAX_HELLO
    read = unpack_hello_untrusted(packed[LENGTH.size :], CLUSTER)
    assert read == longest
    assert (read.address.name, read.address.where) == ("n" * 255, "w" * 255)


def test_a_name_that_is_no_text_is_read_as_something() -> None:
    """Names are for people; nothing is looked up by them."""
    at = 18 + 16 + 1
    assert unpack_hello_untrusted(BODY[:at] + b"\xff\xfe" + BODY[at + 2 :], CLUSTER)
