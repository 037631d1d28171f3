"""Selects the packets that a fault strikes, in the language of nftables: pure text, from a state.

A datagram of a member begins with the preamble of a frame, whose fields are at the offsets of
node/core/wire.py. So the kernel can tell frames apart, and throw the same dice for them that a
simulation throws (chaos/faults/fate.py). The sender is not part of these conditions: `nft` checks
it before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from stormcast.chaos import faults
from stormcast.chaos.drivers.base import (
    CHANCES,
    DECIDE,
    NFQUEUE,
    DriverError,
    driver_of,
    is_base_delayed_by,
    slow_for_multicasts,
)
from stormcast.chaos.faults import Rule
from stormcast.chaos.faults.fate import fate_key, threshold
from stormcast.chaos.language.network_state import PACKETS, NetworkState
from stormcast.node.core import wire
from stormcast.node.core.match import Matcher

_BITS: Final = 8
_UDP_HEADER: Final = 64
"""Bits of the UDP header, before a datagram's payload."""
_DICE: Final = (1 << 32) - 1
"""The number of sides of the kernel's dice, which scales a hash to (hash * sides) >> 32. This is
the largest number that it takes: a hash then gives itself minus one, so every threshold can be
compared exactly."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One rule of a chain: the packets it selects, its verdict on them, and its fault."""

    condition: str
    verdict: str
    """Empty: the statement only counts."""
    fault: str | None = None
    """The fault whose counter counts the packet; None: no counter."""


def _payload(part: slice) -> str:
    """Return the nft expression of a part of a frame, in a datagram's payload."""
    return f"@th,{_UDP_HEADER + part.start * _BITS},{(part.stop - part.start) * _BITS}"


def _raw(field: str) -> str:
    return _payload(wire.span(field))


IDENTITY: Final = " . ".join(map(_payload, wire.IDENTITY))
"""The fields that identify a frame: the key of its dice."""
_OURS: Final = f"meta l4proto udp {_raw('magic')} {wire.MAGIC:#x}"

_ACCEPTS: Final = "@th,104,8 & 0x12"
"""The flags SYN and ACK: both are set (0x12) in a segment that accepts a connection."""
_SEGMENTS: Final = (
    # A segment that is sent again must meet another fate, or a connection would be stuck for ever.
    # IPv4 numbers its packets, but not those that accept a connection, before there is one. In
    # these, and with IPv6, the time stamp differs, which is within the first twelve bytes of the
    # options whether or not the segment opens a connection.
    f"meta nfproto ipv4 meta l4proto tcp {_ACCEPTS} != 0x12 jhash @nh,32,32 . @th,32,32",
    f"meta nfproto ipv4 meta l4proto tcp {_ACCEPTS} == 0x12 jhash @th,32,32 . @th,160,96",
    "meta nfproto ipv6 meta l4proto tcp jhash @th,32,32 . @th,160,96",
)


def statements(state: NetworkState, dest: str, source: str) -> list[Statement]:
    """Return the statements for packets from `source` at `dest`, in order."""
    struck = [(fault_id, fault) for fault_id, name, fault in state.struck(dest) if name == source]
    blocks = [
        fault_id for fault_id, fault in struck if isinstance(fault, faults.Partition | faults.Cut)
    ]
    if blocks:
        # Each of these faults bites, but one drop is enough: the others only count.
        return [
            *(Statement("", "", fault) for fault in blocks[:-1]),
            Statement("", "drop", blocks[-1]),
        ]
    of_packets = [(key, one) for key, one in struck if isinstance(one, faults.PacketFault)]
    found = [
        Statement(packets_met(fault.match), "drop", fault_id)
        for fault_id, fault in of_packets
        if driver_of(fault) != NFQUEUE
    ]
    found += [
        # What its headers do not tell is asked there, and so is which of them is the n-th.
        Statement(packets_met(replace(fault.match, nth=None)), _marked(DECIDE))
        for _id, fault in of_packets
        if driver_of(fault) == NFQUEUE
    ]
    if _are_connections_told(state, source, dest):
        kind = f"{_raw('kind')} {wire.DATA:#x}"
        found.append(Statement(f"{_OURS} {kind}", _marked(DECIDE)))
    for fault_id, fault in struck:
        if isinstance(fault, Rule):
            found += _rule(fault_id, fault)
    if state.base.loss:
        found += _loss(state, faults.BASE, dest, state.base.loss)
    for fault_id, fault in struck:
        if isinstance(fault, faults.Loss):
            found += _loss(state, fault_id, dest, fault.rate)
    if _has_chances(state, [fault for _id, fault in struck]):
        # Of IP fragments, which only IPv6 still has here, only the first one has ports.
        found.append(Statement("meta l4proto { tcp, udp } @th,0,16 != 0x0", _marked(CHANCES)))
    elif slow_for_multicasts(state, source, dest) is not None:
        found.append(Statement("meta l4proto udp meta pkttype multicast", _marked(CHANCES)))
    return found


def packets_met(match: faults.PacketMatch) -> str:
    """Return the condition of the packets whose headers a match selects."""
    words: list[str] = []
    if match.protocol == "icmp":
        words.append("meta l4proto { icmp, ipv6-icmp }")
    elif match.protocol:
        words.append(f"meta l4proto {match.protocol}")
    elif match.to_ports or match.from_ports:
        words.append("meta l4proto { tcp, udp }")
    for key, ends in (
        ("th dport", match.to_ports),
        ("th sport", match.from_ports),
        ("meta length", match.sizes),
    ):
        if ends is not None:
            first, last = ends
            words.append(f"{key} {first}" if first == last else f"{key} {first}-{last}")
    if match.nth is not None:
        # Last: only what meets all else is counted.
        words.append(f"numgen inc mod {match.nth} == {match.nth - 1}")
    return " ".join(words)


def _marked(mark: int) -> str:
    return f"meta mark set {mark:#x} accept"


def _are_connections_told(state: NetworkState, source: str, dest: str) -> bool:
    """Whether a rule selects by the number of a connection between two members. Frames name
    connections of either direction."""
    return any(
        isinstance(fault, Rule)
        and fault.match.connection is not None
        and (fault.strikes(source, dest) or fault.strikes(dest, source))
        for fault in state.faults.values()
    )


def _has_chances(state: NetworkState, struck: list[faults.NetworkFault]) -> bool:
    """Whether nfqueue must see every packet, as models, delays or other chances are left to it."""
    base = state.base
    by_base = is_base_delayed_by(state, NFQUEUE) or any(
        getattr(base, field) for field in ("jitter", "reorder", "duplicate", "corrupt")
    )
    return by_base or any(
        not isinstance(fault, Rule | faults.PacketFault)
        and driver_of(fault, netem=state.netem) == NFQUEUE
        for fault in struck
    )


# -- Losses ----------------------------------------------------------------------------------------


def _loss(state: NetworkState, fault: str, dest: str, rate: float) -> Iterator[Statement]:
    seed = fate_key(state.seed, f"{fault}/loss", dest) & _DICE
    below = -(-threshold(rate) >> 32)
    if below > _DICE:
        yield Statement("meta l4proto { tcp, udp }", "drop", fault)
    elif below > 1:
        # A chance of one in four billion is taken for none.
        dice = f"mod {_DICE} seed {seed:#x} <= {below - 2}"
        keys = [f"meta l4proto udp jhash {IDENTITY}", *_SEGMENTS]
        if state.dice == PACKETS:
            # What others' datagrams begin with may be the same in all of them, and in a repeat.
            yield Statement(
                f"meta l4proto udp numgen random mod {_DICE} <= {below - 2}", "drop", fault
            )
            del keys[0]
        for key in keys:
            yield Statement(f"{key} {dice}", "drop", fault)


# -- Rules -----------------------------------------------------------------------------------------


def _rule(fault: str, rule: Rule) -> Iterator[Statement]:
    """Yield the statements of a rule: a drop if the preamble decides, else a mark for nfqueue."""
    wanted = Matcher(rule.match)
    known = " ".join((_OURS, *_conditions(wanted)))
    is_told = driver_of(rule) != NFQUEUE
    verdict, counter = ("drop", fault) if is_told else (_marked(DECIDE), None)
    seqno = rule.match.seqno
    if seqno is None:
        yield Statement(known, verdict, counter)
        return
    first, last = max(seqno[0], 0), min(seqno[1], wire.MAX_SEQNO)
    yield Statement(f"{known} {_within('lo', first, last)}", verdict, counter)
    before = _reaching(wanted, first)
    if before:
        # A batch that begins before the range may reach into it: nft cannot add to find that out.
        yield Statement(f"{known} {before}", _marked(DECIDE))


def _conditions(wanted: Matcher) -> Iterator[str]:
    """Yield the conditions on fields of the preamble, except the seqno."""
    if wanted.protocols:
        yield _one_of("protocol", wanted.protocols)
    if wanted.kinds:
        yield _one_of("kind", wanted.kinds)
    transmission = wanted.match.transmission
    if transmission is not None:
        last = min(transmission[1], wire.MAX_TRANSMISSION)
        yield _within("transmission", transmission[0], last)
    if wanted.flags:
        yield f"{_raw('flags')} & {wanted.flags:#x} == {wanted.flags:#x}"


def _reaching(wanted: Matcher, first: int) -> str:
    """Return the condition of batches that begin before a seqno and may contain it; empty if there
    can be none."""
    if first == 0 or (wanted.kinds and wire.DATA not in wanted.kinds):
        return ""
    return " ".join(
        (
            f"{_raw('kind')} {wire.DATA:#x}",
            _within("count", 2, wire.MAX_COUNT),
            _within("lo", max(0, first - wire.MAX_COUNT + 1), first - 1),
        )
    )


def _one_of(field: str, numbers: frozenset[int]) -> str:
    listed = ", ".join(f"{number:#x}" for number in sorted(numbers))
    return f"{_raw(field)} {{ {listed} }}"


def _within(field: str, first: int, last: int) -> str:
    if first > last:
        raise DriverError(f"{field} {first}..{last}: the first must not be above the last")
    return f"{_raw(field)} {first:#x}" if first == last else f"{_raw(field)} {first:#x}-{last:#x}"
