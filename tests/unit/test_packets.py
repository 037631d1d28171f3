"""The scapy layer against the golden frames, and what is done by hand against scapy."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import TCP, IPOption_NOP
from xxhash import xxh3_64_intdigest as hash64

from stormcast.chaos.drivers import packets
from stormcast.chaos.drivers.packets import Offsets, corrupted, for_member, layers, locate, preamble
from stormcast.chaos.faults.outcome import damaged
from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, pack_body
from stormcast.node.core.wire import Head

GOLDEN = Path(__file__).parents[1] / "wire" / "golden"
SOURCES = {4: "198.18.0.2", 6: "fd00:5c::2"}
DESTS = {4: "198.18.0.3", 6: "fd00:5c::3"}
GROUPS = {4: "239.8.8.8", 6: "ff0e::8:8:8"}


def golden_frames() -> dict[str, bytes]:
    """Every recorded file that begins as a frame does."""
    found = {}
    for path in sorted(GOLDEN.glob("*.hex")):
        data = bytes.fromhex("".join(path.read_text().split()))
        if data[0] == wire.MAGIC and len(data) >= wire.HEAD_SIZE:
            found[path.stem] = data
    assert len(found) > 20
    return found


FRAMES = golden_frames()


def frame(lo: int = 1, payload: bytes = b"hello") -> bytes:
    body = pack_body([payload], hash64)
    return (
        Codec(0xC1, 0xA, hash64).pack_data(wire.UNICAST3, 0xB, 1, lo, body, 0, 0, 0, 0) + body.data
    )


def datagram(version: int = 4, payload: bytes | None = None, *, dest: str = "") -> bytes:
    known = layers()
    ip = (known.ipv4 if version == 4 else known.ipv6)(
        src=SOURCES[version], dst=dest or DESTS[version]
    )
    content = known.raw(frame() if payload is None else payload)
    return bytes(ip / known.udp(sport=7800, dport=7801) / content)


def segment(payload: bytes = b"hello", *, seq: int = 5) -> bytes:
    ip = layers().ipv4(src=SOURCES[4], dst=DESTS[4])
    return bytes(ip / TCP(sport=7800, dport=7801, seq=seq, ack=9) / layers().raw(payload))


def place(packet: bytes) -> Offsets:
    found = locate(packet)
    assert found is not None
    return found


def is_intact(packet: bytes) -> bool:
    """Whether scapy computes the checksums that stand there."""
    known = layers()
    parsed = (known.ipv4 if packet[0] >> 4 == 4 else known.ipv6)(packet)
    for layer in (known.ipv4, known.udp, TCP):
        if layer in parsed:
            del parsed[layer].chksum
    return bytes(parsed) == packet


# -- The layer ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FRAMES)
def test_scapy_reads_each_golden_frame_as_the_codec_does_and_builds_it_again(name: str) -> None:
    data = FRAMES[name]
    head = Head._make(wire.HEAD_STRUCT.unpack_from(data))
    parsed = layers().frame(data)
    for field, value in head._asdict().items():
        assert int(parsed.getfieldval(field)) == value, field
    if head.size > len(data) - wire.HEAD_SIZE:
        # Of the largest, only the beginning is recorded.
        return
    # Of a sealed frame it is the number of the seal.
    computed = {"size": None, "check": None} | ({} if head.seal else {"digest": None})
    again = layers().frame(**{**parsed.fields, **computed})
    assert bytes(again) == data


def test_fields_stand_where_the_description_says() -> None:
    names = [field.name for field in layers().frame.fields_desc]
    assert names == [*wire.FIELDS, "body"]


def test_frames_that_share_a_datagram_follow_each_other() -> None:
    parsed = layers().frame(frame(1) + frame(2))
    assert (parsed.lo, parsed.payload.lo) == (1, 2)


# -- Looking -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 6])
def test_a_frame_is_found_in_a_datagram(version: int) -> None:
    packet = datagram(version)
    found = place(packet)
    assert packet[found.frame :] == frame()
    assert found.source == packets.packed(SOURCES[version])
    assert preamble(packet, found) == frame()[: wire.PREAMBLE_SIZE]
    assert packets.identity(packet, found) == wire.identity(frame())
    assert place(memoryview(packet)) == found  # type: ignore[arg-type]


def test_options_of_ip_move_what_follows() -> None:
    known = layers()
    ip = known.ipv4(src=SOURCES[4], dst=DESTS[4], options=[IPOption_NOP()] * 4)
    packet = bytes(ip / known.udp(sport=1, dport=2) / known.raw(frame()))
    assert packet[place(packet).frame :] == frame()


def test_a_datagram_of_something_else_has_no_frame_and_no_fate() -> None:
    for payload in (b"", b"\x5c" * 63, b"x" * 200):
        packet = datagram(payload=payload)
        assert place(packet).frame == 0
        assert packets.identity(packet, place(packet)) is None


def test_what_is_not_ip_is_nothing() -> None:
    assert locate(b"") is None
    assert locate(b"\x60" * 39) is None


def test_a_segment_sent_again_meets_another_fate() -> None:
    first, again = segment(seq=5), segment(b"hellp", seq=5)
    fates = [packets.identity(one, place(one)) for one in (first, first, again)]
    assert fates[0] == fates[1] != fates[2]
    assert [len(fate or b"") for fate in fates] == [wire.IDENTITY_SIZE] * 3


# -- Changing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 6])
def test_a_copy_of_a_multicast_is_a_sound_unicast_to_the_port_of_its_sender(version: int) -> None:
    packet = datagram(version, dest=GROUPS[version])
    own = [packets.packed(DESTS[4]), packets.packed(DESTS[6])]
    copy = for_member(packet, place(packet), own)
    known = layers()
    parsed = (known.ipv4 if version == 4 else known.ipv6)(copy)
    assert (parsed.dst, parsed[known.udp].dport) == (DESTS[version], 7800)
    assert copy[place(copy).frame :] == frame()
    if version == 4:
        # The kernel computes this one as it sends the copy.
        copy = copy[:10] + bytes(known.ipv4(copy[:10] + b"\0\0" + copy[12:]))[10:12] + copy[12:]
        parsed = known.ipv4(copy)
        del parsed.chksum
        copy = bytes(parsed)
    assert is_intact(copy)


def test_a_copy_of_a_unicast_is_as_it_was() -> None:
    packet = datagram()
    assert for_member(packet, place(packet), [packets.packed(DESTS[4])]) == packet
    stream = segment()
    assert for_member(stream, place(stream), [packets.packed(DESTS[4])]) == stream


def test_a_datagram_without_a_checksum_gets_none() -> None:
    packet = bytearray(datagram(dest=GROUPS[4]))
    packet[26:28] = b"\0\0"
    copy = for_member(bytes(packet), place(packet), [packets.packed(DESTS[4])])
    assert copy[26:28] == b"\0\0"


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("drawn", [0, 7, 511, 512, 1 << 63])
def test_a_corrupt_datagram_passes_the_kernel_and_has_the_bit_that_the_simulator_flips(
    version: int, drawn: int
) -> None:
    packet = datagram(version)
    changed = corrupted(packet, place(packet), (drawn,))
    assert is_intact(changed)
    at = place(packet).frame
    assert changed[at:] == damaged(frame(), (drawn,))
    assert changed[: at - 2] == packet[: at - 2]


def test_a_corrupt_segment_keeps_its_checksum_which_tells_the_kernel() -> None:
    packet = segment()
    changed = corrupted(packet, place(packet), (12345,))
    assert not is_intact(changed)
    assert sum(a != b for a, b in zip(packet, changed, strict=True)) == 1


def test_an_empty_datagram_has_no_bit_to_flip() -> None:
    packet = datagram(payload=b"")
    assert corrupted(packet, place(packet), (3,)) == packet


@given(
    st.sampled_from((0x45, 0x4F, 0x46, 0x60, 0x00)),
    st.sampled_from((packets.UDP, packets.TCP, 1, 44)),
    st.binary(max_size=8) | st.binary(min_size=18, max_size=120),
    st.integers(0, 1 << 64),
)
def test_no_packet_however_short_or_strange_upsets_anything(
    first: int, protocol: int, rest: bytes, drawn: int
) -> None:
    """What cannot be changed in a sensible way passes as it came."""
    packet = bytearray(bytes([first]) + rest)
    for at in (6, 9):
        if at < len(packet):
            packet[at] = protocol
    data = bytes(packet)
    found = locate(data)
    if found is not None:
        packets.identity(data, found)
        for own in ([], [packets.packed(DESTS[4]), packets.packed(DESTS[6])]):
            assert len(for_member(data, found, own)) == len(data)
        assert isinstance(corrupted(data, found, (drawn,)), bytes)


def test_whoever_ends_while_scapy_is_loaded_waits_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python ends a daemon thread wherever it is, and aborts now and then."""
    may_end, loads = threading.Event(), list[threading.Thread]()

    def load() -> None:
        loads.append(threading.current_thread())
        may_end.wait(10.0)

    monkeypatch.setattr(packets, "layers", load)
    packets.load_early()
    while not loads:
        pass
    assert not loads[0].daemon
    may_end.set()
    loads[0].join()
