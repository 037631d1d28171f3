"""Reads packets that pass a queue, by offsets, and changes a few of them, with scapy, whose layer
for our frames is made from their one description (stormcast.node.core.wire).

scapy takes half a second to import and most of a millisecond per packet. So it is loaded beside the
loop that serves the packets, and is not used on the way that every packet takes.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from xxhash import xxh3_64_intdigest

from stormcast.chaos.faults.outcome import damaged
from stormcast.node.core import wire
from stormcast.node.core.model import FLAG_NAMES

if TYPE_CHECKING:
    from scapy.packet import Packet

Bytes = bytes | memoryview

TCP: Final = 6
UDP: Final = 17
UDP_HEADER: Final = 8
IPV4_HEADER: Final = 20
IPV6_HEADER: Final = 40
MIN_TCP_HEADER: Final = 20
_U16: Final = struct.Struct(">H")
_LOW16: Final = 0xFFFF
_LOADING: Final = threading.Lock()


class Offsets(NamedTuple):
    """The offsets in an IP packet, and some fields of its header."""

    source: bytes
    """The source address, in its packed form."""
    protocol: int
    transport: int
    """The offset of the transport's header, behind that of IP."""
    frame: int
    """The offset of the first frame; 0 if this is no datagram of ours."""
    is_multicast: bool


def locate(packet: Bytes) -> Offsets | None:
    """Return the offsets in a packet, whose IP fragments were put together before; None if the
    packet is shorter than its headers."""
    size = len(packet)
    if size < IPV4_HEADER:
        return None
    if packet[0] >> 4 == 4:  # noqa: PLR2004 the version of IP
        transport, protocol, source = (packet[0] & 15) * 4, packet[9], bytes(packet[12:16])
        is_multicast = packet[16] >> 4 == 14  # noqa: PLR2004 224.0.0.0/4
    elif size >= IPV6_HEADER:
        transport, protocol, source = IPV6_HEADER, packet[6], bytes(packet[8:24])
        is_multicast = packet[24] == 0xFF  # noqa: PLR2004 ff00::/8
    else:
        return None
    frame = transport + UDP_HEADER
    if size < frame:
        return None
    if protocol != UDP or size < frame + wire.HEAD_SIZE or packet[frame] != wire.MAGIC:
        frame = 0
    return Offsets(source, protocol, transport, frame, is_multicast)


def preamble(packet: Bytes, place: Offsets) -> bytes:
    """Return the preamble of the first frame in a datagram of ours."""
    return bytes(packet[place.frame : place.frame + wire.PREAMBLE_SIZE])


def identity(packet: Bytes, place: Offsets) -> bytes | None:
    """Return the identity on which a packet's fate depends: that of its first frame.

    For a segment of a stream it is a number that its retransmission does not share. None for any
    other packet, which has no fate.
    """
    if place.frame:
        return wire.identity(preamble(packet, place))
    at = place.transport
    if place.protocol != TCP or len(packet) < at + MIN_TCP_HEADER:
        return None
    # Sequence and acknowledgement numbers; and the checksum, which covers the time stamps, too.
    number = bytes(packet[at + 4 : at + 12]) + bytes(2) + bytes(packet[at + 16 : at + 18])
    return number.rjust(wire.IDENTITY_SIZE, b"\0")


def numbered(packet: int, place: Offsets) -> bytes | None:
    """Return the identity of a datagram that is no frame of ours: its number in its queue, so that
    each one meets a fate of its own. None for any other packet."""
    if place.protocol != UDP or place.frame:
        return None
    return packet.to_bytes(wire.IDENTITY_SIZE, "big")


def packed(address: str) -> bytes:
    """Return an address in its packed form."""
    return ip_address(address).packed


def for_member(packet: bytes, place: Offsets, own: Iterable[bytes]) -> bytes:
    """Return a copy of a packet that reaches the member at one of its `own` addresses.

    A packet to one of these stays as it is. A multicast becomes a unicast: a multicast sent from
    inside would leave this machine again. Its destination port becomes its source port, since all
    members of a group have the same one.
    """
    begin, end = (16, 20) if packet[0] >> 4 == 4 else (24, 40)  # noqa: PLR2004 version of IP
    dest = packet[begin:end]
    addresses = [address for address in own if len(address) == end - begin]
    if dest in addresses or not addresses or place.protocol != UDP:
        return packet
    at = place.transport
    changed = bytearray(packet)
    changed[begin:end] = addresses[0]
    changed[at + 2 : at + 4] = packet[at : at + 2]
    check = _U16.unpack_from(packet, at + 6)[0]
    if check:
        old, new = dest + packet[at + 2 : at + 4], addresses[0] + packet[at : at + 2]
        _U16.pack_into(changed, at + 6, _adjusted(check, old, new))
    return bytes(changed)


def _adjusted(check: int, old: bytes, new: bytes) -> int:
    """Adjust an Internet checksum to a change of bytes that it covers (RFC 1624)."""
    total = ~check & _LOW16
    for (before,), (after,) in zip(_U16.iter_unpack(old), _U16.iter_unpack(new), strict=True):
        total += (~before & _LOW16) + after
    while total >> 16:
        total = (total & _LOW16) + (total >> 16)
    # Zero would mean that there is no checksum.
    return ~total & _LOW16 or _LOW16


# -- With scapy --------------------------------------------------------------------------------


class Layers(NamedTuple):
    """The layers of scapy that are used, and our own."""

    ipv4: type[Packet]
    ipv6: type[Packet]
    udp: type[Packet]
    raw: type[Packet]
    frame: type[Packet]


def layers() -> Layers:
    """Return the layers. The first call loads scapy, and calls of other threads wait for it."""
    with _LOADING:
        return _loaded()


def load_early() -> None:
    """Load scapy in a thread, where it is installed."""

    def load() -> None:
        with suppress(ImportError):
            layers()

    # No daemon: a process that ends meanwhile waits a second for it. Python ends a daemon thread
    # wherever it is, and now and then aborts at that.
    threading.Thread(target=load, name="scapy").start()


@cache
def _loaded() -> Layers:
    """Load scapy, and make a layer from the description of our frames."""
    # While it is imported, scapy warns about routes and interfaces.
    logging.getLogger("scapy.runtime").setLevel(logging.ERROR)
    from scapy.layers.inet import IP, UDP  # noqa: PLC0415 half a second
    from scapy.layers.inet6 import IPv6  # noqa: PLC0415 scapy is slow to import
    from scapy.packet import Raw  # noqa: PLC0415 scapy is slow to import

    return Layers(IP, IPv6, UDP, Raw, _frame_layer())


def _frame_layer() -> type[Packet]:
    from scapy import fields  # noqa: PLC0415 scapy is slow to import
    from scapy.packet import Packet, Raw  # noqa: PLC0415 scapy is slow to import

    plain = {
        "B": fields.ByteField,
        "H": fields.ShortField,
        "I": fields.IntField,
        "Q": fields.LongField,
    }
    names = {
        "kind": {kind: name for kind, (name, _about) in wire.KINDS.items()},
        "protocol": wire.PROTOCOLS,
    }
    fixed = {"magic": wire.MAGIC, "version": wire.VERSION}
    computed = {"size", "digest", "check"}

    def field(name: str, code: str) -> Any:  # noqa: ANN401 a field of some type
        if name in names:
            return fields.ByteEnumField(name, 0, names[name])
        if name == "flags":
            ordered = [FLAG_NAMES.get(1 << bit, f"bit{bit}") for bit in range(8)]
            return fields.FlagsField(name, 0, 8, ordered)
        default = None if name in computed else fixed.get(name, 0)
        return plain[code](name, default)  # type: ignore[arg-type]  # None: to be computed

    class Frame(Packet):
        """A frame; size, digest and check are computed unless they are given."""

        name = "Stormcast"
        fields_desc = [  # noqa: RUF012 scapy's way
            *(field(name, one.code) for name, one in wire.FIELDS.items()),
            fields.StrLenField("body", b"", length_from=lambda frame: frame.size),
        ]

        def post_build(self, built: bytes, after: bytes) -> bytes:
            form, body = wire.HEAD_STRUCT, built[wire.HEAD_SIZE :]
            head = wire.Head._make(form.unpack_from(built))
            if self.size is None:
                head = head._replace(size=len(body))
            if self.digest is None and body and head.seal != wire.SEALED:
                head = head._replace(digest=xxh3_64_intdigest(body))
            if self.check is None:
                whole = xxh3_64_intdigest(form.pack(*head)[: wire.CHECK_OFFSET])
                head = head._replace(check=whole & 0xFFFFFFFF)
            return form.pack(*head) + body + after

        def guess_payload_class(self, payload: bytes) -> type[Packet]:
            # Small frames for one member share a datagram.
            is_frame = len(payload) >= wire.HEAD_SIZE and payload[0] == wire.MAGIC
            return Frame if is_frame else Raw

    return Frame


def corrupted(packet: bytes, place: Offsets, flips: tuple[int, ...]) -> bytes:
    """Return the packet with one bit flipped for each number.

    In a datagram the bits are of its payload, the same that the simulator would choose for the same
    frame, and the checksum is made to fit again: only the member itself can detect the damage. In a
    segment any bits of it are flipped, and the kernel detects that by the checksum.
    """
    if place.protocol != UDP:
        return damaged(packet, flips, place.transport)
    known = layers()
    if len(packet) == place.transport + UDP_HEADER:
        return packet
    changed = damaged(packet, flips, place.transport + UDP_HEADER)
    parsed = (known.ipv4 if packet[0] >> 4 == 4 else known.ipv6)(changed)  # noqa: PLR2004 IPv4
    datagram = parsed.getlayer(known.udp)
    if datagram is None:
        # The lengths in its headers contradict each other; the kernel will not take it either.
        return changed
    if datagram.chksum:
        # scapy computes a checksum that is not given.
        del datagram.chksum
    return bytes(parsed)
