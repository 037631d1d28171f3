"""Faults of packets that need be no frames of ours: their keys, and what is refused."""

from __future__ import annotations

import re
from typing import Final

from stormcast.chaos import faults
from stormcast.chaos.language import packet_layers
from stormcast.node.core.errors import ConfigError
from stormcast.node.reading.items import LARGEST, Item
from stormcast.node.reading.notations import (
    POSITIVE_TIME,
    Notation,
    one_of,
    size_range,
    whole,
    whole_range,
    word,
)
from stormcast.node.reading.shapes import Key, Shape

_LAYER: Final = re.compile(r"[A-Za-z0-9_]{1,64}")
_CHANGES: Final = ("change", "forge")
"""What gives fields other values."""


def _scalar(item: Item) -> str | int:
    """A number, or text."""
    try:
        return item.whole(-LARGEST, LARGEST)
    except ConfigError:
        return item.text("write a number, or a text in quotes")


def _read_fields(item: Item) -> faults.FieldValues:
    found = tuple(
        (key.word(packet_layers.FIELD, "write layer and field, such as DNS.qr"), _scalar(value))
        for key, value in item.pairs()
    )
    if not found:
        raise item.error(f"{item.key}: it names no field; add one, or remove it")
    return found


_FIELDS: Final = Notation(_read_fields, dict)
"""A mapping of fields to values: those that packets have, or that they get."""


def _check_match(item: Item, match: faults.PacketMatch) -> None:
    if match == faults.PacketMatch():
        raise item.error("match: it selects every packet; write a condition, or cut")
    if match.protocol == "icmp" and (match.to_ports or match.from_ports):
        raise item.refuse("icmp has no ports; leave them out, or write tcp or udp")


_MATCH: Final = Shape(
    faults.PacketMatch,
    {
        "protocol": Key("protocol", one_of(faults.PACKET_PROTOCOLS, "protocol"), ""),
        "to_port": Key("to_ports", whole_range(1, 65535), None),
        "from_port": Key("from_ports", whole_range(1, 65535), None),
        "size": Key("sizes", size_range(65535), None),
        "nth": Key("nth", whole(2, 1_000_000), None),
        "scapy": Key("layer", word(_LAYER, "write the name of a layer of scapy, as DNS"), ""),
        "where": Key("fields", _FIELDS, ()),
    },
    _check_match,
)

PACKETS: Final = {"match": Key("match", _MATCH.notation())}
DEEDS: Final = {
    "does": Key("does", one_of(faults.PACKET_DEEDS, "deed")),
    "delay": Key("delay", POSITIVE_TIME, 0.0),
    "copies": Key("copies", whole(1, 100), 1),
    "set": Key("fields", _FIELDS, ()),
    "times": Key("times", whole(1), None),
}


def check_deed(item: Item, fault: faults.AlterPackets) -> None:
    """Refuse keys that belong to another deed, and a deed that lacks its own."""
    does = fault.does
    if (does == "delay") != bool(fault.delay):
        raise item.error("packets: delay belongs to `does: delay`, and to nothing else")
    if does != "duplicate" and fault.copies != 1:
        raise item.peek("copies").refuse("copies belong to `does: duplicate`; remove it")
    if (does in _CHANGES) != bool(fault.fields):
        raise item.error("packets: set belongs to `does: change` and `does: forge`, and no other")


# -- Names of scapy's ------------------------------------------------------------------------------
#
# They are not checked where a fault is read: an agent reads one while packets wait, and to load
# scapy's layers takes seconds.


def asks_scapy(fault: faults.PacketFault) -> bool:
    """Whether packets must be understood, or changed, for a fault."""
    return not fault.match.is_told_by_headers or bool(getattr(fault, "fields", ()))


def check_names(fault: faults.PacketFault) -> None:
    """Refuse (ConfigError) layers, fields and values that scapy does not know."""
    if fault.match.layer:
        packet_layers.layer_of(fault.match.layer)
    for path, _value in fault.match.fields:
        packet_layers.check_field(path)
    for path, value in fault.fields if isinstance(fault, faults.AlterPackets) else ():
        packet_layers.check_value(path, value)
