"""Messages to and from the kernel's queues, byte for byte as the kernel has them."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import pytest

from stormcast.chaos.drivers.netlink import (
    MAX_PACKET,
    MSG_VERDICT_BATCH,
    NF_ACCEPT,
    NF_DROP,
    NetlinkError,
    attribute,
    bind_message,
    in_words,
    inside,
    parse_packet,
    settings_message,
    verdict_message,
)


def test_binding_names_the_queue_in_network_order() -> None:
    assert bind_message(0x5C00).hex(" ", 4) == (
        "1c000000 02030500 00000000 00000000 00005c00 08000100 01000000"
    )


def test_whole_packets_are_asked_for_and_a_bound_is_set() -> None:
    words = settings_message(1, 500)
    params, room = "09000200 0000ffff 02000000", "08000300 000001f4"
    assert words[20:40].hex(" ", 4) == f"{params} {room}"
    assert MAX_PACKET == 0xFFFF
    assert len(words) == struct.unpack_from("=I", words)[0]


def test_what_finds_no_room_passes() -> None:
    assert settings_message(1, 500)[40:].hex(" ", 4) == "08000400 00000001 08000500 00000001"


def test_a_verdict_names_packet_and_fate_in_network_order() -> None:
    assert verdict_message(2, 7, NF_ACCEPT).hex(" ", 4) == (
        "20000000 01030100 00000000 00000000 00000002 0c000200 00000001 00000007"
    )
    assert verdict_message(2, 7, NF_DROP)[-8:].hex() == "0000000000000007"


def test_a_verdict_for_all_so_far_is_another_message() -> None:
    words = verdict_message(2, 7, NF_ACCEPT, kind=MSG_VERDICT_BATCH)
    assert words[4:6].hex() == "0303"


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_changed_bytes_are_padded_but_counted_without_the_padding(size: int) -> None:
    words = verdict_message(2, 7, NF_ACCEPT, b"x" * size)
    assert len(words) % 4 == 0
    assert struct.unpack_from("=I", words)[0] == len(words)
    assert struct.unpack_from("=HH", words, 32) == (4 + size, 10)
    assert words[36 : 36 + size] == b"x" * size


def packet_message(*attributes: bytes) -> bytes:
    body = struct.pack("=BB2s", 2, 0, b"\x5c\x00") + b"".join(attributes)
    return struct.pack("=IHHII", 16 + len(body), 3 << 8, 0, 0, 0) + body


HEADER = attribute(1, struct.pack(">IHB", 0xABCD, 0x0800, 1))
MARK = attribute(3, struct.pack(">I", 0x5C000002))
DEVICE = attribute(5, struct.pack(">I", 3))


def test_a_packet_is_found_behind_whatever_else_is_told_of_it() -> None:
    words = packet_message(HEADER, MARK, DEVICE, attribute(10, b"packet"))
    packet, mark, begin, end = parse_packet(words, len(words)) or (0, 0, 0, 0)
    assert (packet, mark, words[begin:end]) == (0xABCD, 0x5C000002, b"packet")


def test_a_packet_without_a_mark_has_mark_zero() -> None:
    words = packet_message(HEADER, attribute(10, b"packet"))
    assert (parse_packet(words, len(words)) or ())[:2] == (0xABCD, 0)


def test_a_message_without_a_packet_or_with_a_length_beyond_its_end_is_none() -> None:
    assert parse_packet(packet_message(HEADER), 16 + 4 + len(HEADER)) is None
    whole = packet_message(HEADER, attribute(10, b"packet"))
    assert parse_packet(whole, len(whole) - 8) is None
    endless = packet_message(struct.pack("=HH", 0, 10))
    assert parse_packet(endless, len(endless)) is None


def test_a_refusal_is_told_in_words_with_its_name() -> None:
    assert "CAP_NET_ADMIN" in in_words(errno.EPERM)
    assert "(EPERM)" in in_words(errno.EPERM)
    assert "modprobe nfnetlink_queue" in in_words(errno.EINVAL)
    assert in_words(errno.ENOENT) == f"{os.strerror(errno.ENOENT)} (ENOENT)"


def test_a_namespace_that_is_not_there_is_named() -> None:
    with pytest.raises(NetlinkError, match="network namespace /run/netns/nowhere: No such file"):
        inside(Path("/run/netns/nowhere"), lambda: 1)


def test_without_a_namespace_nothing_is_entered() -> None:
    assert inside(None, lambda: 1) == 1
