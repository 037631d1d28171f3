"""Faults of packets that nfqueue does: it finds the first that takes a packet, and what becomes of
the packet by it. What of its headers nft can tell selects what is queued; here all of it is asked
again, since several faults may have had it queued."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final, NamedTuple

from stormcast.chaos import faults
from stormcast.chaos.drivers import packets
from stormcast.chaos.drivers.base import NFQUEUE, DriverError, driver_of
from stormcast.chaos.drivers.packets import TCP, UDP, Offsets
from stormcast.chaos.faults.outcome import COPY_GAP, GOLDEN, Decider
from stormcast.chaos.faults.paths import Ends, Path
from stormcast.chaos.language import packet_layers
from stormcast.chaos.language.network_state import NetworkState
from stormcast.chaos.language.packet_faults import asks_scapy, check_names
from stormcast.node.core.errors import ConfigError

_NUMBERS: Final = {"tcp": (TCP,), "udp": (UDP,), "icmp": (1, 58)}
_PORTS: Final = struct.Struct(">HH")


class PacketOutcome(NamedTuple):
    """What a fault makes of a packet."""

    fault: str
    is_lost: bool = False
    at: float = 0.0
    """The time at which it arrives."""
    payload: bytes = b""
    """What it is changed to; empty: it stays as it is."""
    copies: tuple[tuple[float, bytes], ...] = ()
    """Further packets, and the time of each; at the same time they arrive before it."""


async def check_contents(state: NetworkState) -> None:
    """Load what understands packets, if a fault asks for that; DriverError if it knows a name of
    the fault not, or is not there. It takes seconds, in which packets may wait: so in a thread."""
    asking = [
        one
        for one in state.faults.values()
        if isinstance(one, faults.PacketFault) and asks_scapy(one)
    ]
    try:
        for one in asking:
            await asyncio.to_thread(check_names, one)
    except ConfigError as error:
        raise DriverError(str(error)) from None


class PacketFaults:
    """The faults of packets that act, and what they have counted on each path."""

    def __init__(self, decider: Decider) -> None:
        """`decider`: counts bites."""
        self._decider = decider
        self._acting: dict[str, faults.PacketFault] = {}
        """In the order in which they began."""
        self._met: defaultdict[str, Counter[Ends]] = defaultdict(Counter)
        """How many packets met each match, but for its `nth`."""
        self._taken: defaultdict[str, Counter[Ends]] = defaultdict(Counter)
        self._failed = ""
        """Why a packet passed that a fault may have had to strike; empty: none did."""

    def check(self) -> None:
        """DriverError if a packet passed that a fault may have had to strike."""
        if self._failed:
            raise DriverError(self._failed)

    def renew(self, acting: Mapping[str, faults.NetworkFault]) -> None:
        """Take the faults that act from now on; those that acted before go on counting."""
        before = self._acting
        self._acting = {
            fault: one
            for fault, one in acting.items()
            if isinstance(one, faults.PacketFault) and driver_of(one) == NFQUEUE
        }
        for fault in before:
            if self._acting.get(fault) != before[fault]:
                self._met.pop(fault, None)
                self._taken.pop(fault, None)

    def strike(
        self, path: Path, view: memoryview, place: Offsets, now: float
    ) -> PacketOutcome | None:
        """Return what the first fault that takes a packet makes of it; None if none does."""
        for fault, one in self._acting.items():
            if not one.strikes(*path.ends):
                continue
            try:
                struck = self._struck_by(fault, one, path, view, place, now)
            except Exception as error:  # noqa: BLE001 of scapy, at a packet that may hold anything
                # It passes: nobody would give it another verdict, and it would be lost.
                self._failed = f"{fault}: scapy fails at a packet to {path.ends[1]}: {error!r}"
                return None
            if struck is not None:
                self._taken[fault][path.ends] += 1
                self._decider.bites[fault][path.ends] += 1
                if not struck.is_lost:
                    self._decider.note_delay(path)
                return struck
        return None

    def _struck_by(
        self,
        fault: str,
        one: faults.PacketFault,
        path: Path,
        view: memoryview,
        place: Offsets,
        now: float,
    ) -> PacketOutcome | None:
        if not self._takes(fault, one, path.ends, view, place):
            return None
        if not isinstance(one, faults.AlterPackets):
            return PacketOutcome(fault, is_lost=True)
        number = self._taken[fault][path.ends] + 1
        return _altered(fault, one, view, place, now + path.delay, number)

    def __bool__(self) -> bool:
        return bool(self._acting)

    def _takes(
        self, fault: str, one: faults.PacketFault, ends: Ends, view: memoryview, place: Offsets
    ) -> bool:
        match = one.match
        times = one.times if isinstance(one, faults.AlterPackets) else None
        if times is not None and self._taken[fault][ends] >= times:
            return False
        if not have_headers(match, view, place):
            return False
        if not match.is_told_by_headers and not packet_layers.meets(
            bytes(view), match.layer, match.fields
        ):
            return False
        self._met[fault][ends] += 1
        return match.nth is None or self._met[fault][ends] % match.nth == 0


def have_headers(match: faults.PacketMatch, view: memoryview, place: Offsets) -> bool:
    """Whether the headers of a packet meet a match, as nft has it (`selection.packets_met`)."""
    if match.protocol and place.protocol not in _NUMBERS[match.protocol]:
        return False
    if match.sizes is not None and not match.sizes[0] <= len(view) <= match.sizes[1]:
        return False
    if match.to_ports is None and match.from_ports is None:
        return True
    if place.protocol not in (TCP, UDP):
        return False
    from_port, to_port = _PORTS.unpack_from(view, place.transport)
    return _within(from_port, match.from_ports) and _within(to_port, match.to_ports)


def _within(port: int, ends: tuple[int, int] | None) -> bool:
    return ends is None or ends[0] <= port <= ends[1]


def _altered(
    fault: str, one: faults.AlterPackets, view: memoryview, place: Offsets, at: float, number: int
) -> PacketOutcome | None:
    """Return what becomes of a packet; None where it has no other value of any field."""
    packet = bytes(view)
    match one.does:
        case "delay":
            return PacketOutcome(fault, at=at + one.delay)
        case "duplicate":
            times = (at + copy * COPY_GAP for copy in range(1, one.copies + 1))
            return PacketOutcome(fault, at=at, copies=tuple((when, packet) for when in times))
        case "corrupt":
            flipped = packets.corrupted(packet, place, (number * GOLDEN,))
            return PacketOutcome(fault, at=at, payload=flipped)
    other = packet_layers.changed(packet, one.fields)
    if other is None:
        return None
    if one.does == "forge":
        return PacketOutcome(fault, at=at, copies=((at, other),))
    return PacketOutcome(fault, at=at, payload=other)
