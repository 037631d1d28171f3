"""What scapy finds in packets, by the names of its layers and their fields, such as DNS.qr.

scapy takes two seconds to load all its layers, and half a millisecond for a packet: whoever uses
none of this pays nothing.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from stormcast.chaos.faults import FieldValues
from stormcast.node.core.errors import ConfigError, suggestion
from stormcast.node.core.names import one_line

if TYPE_CHECKING:
    from scapy.packet import Packet

FIELD: Final = re.compile(r"[A-Za-z0-9_]{1,64}(\.[A-Za-z0-9_]{1,64}){1,4}")
_LOADING: Final = threading.Lock()
_COMPUTED: Final = ("len", "plen", "chksum", "cksum")
"""Fields that scapy computes where they are not given."""


def load() -> None:
    """Load all layers; ConfigError where scapy is not installed."""
    with _LOADING:
        _layers()


@cache
def _layers() -> Mapping[str, type[Packet]]:
    # While it is imported, scapy warns about routes and interfaces.
    logging.getLogger("scapy.runtime").setLevel(logging.ERROR)
    try:
        import scapy.layers.all  # noqa: PLC0415, F401 two seconds
        from scapy.config import conf  # noqa: PLC0415 as above
    except ImportError:
        raise ConfigError("what is in packets takes scapy: pip install scapy") from None
    return {layer.__name__: layer for layer in conf.layers}


def layer_of(name: str) -> type[Packet]:
    """Return a layer by its name; ConfigError if scapy has none."""
    load()
    known = _layers()
    if name not in known:
        raise ConfigError(f"scapy has no layer {name}{suggestion(name, known)}")
    return known[name]


def check_field(path: str) -> None:
    """Refuse (ConfigError) a field that its layer has not. What comes behind a second dot is found
    in packets only."""
    name, field = path.split(".")[:2]
    known = [one.name for one in layer_of(name).fields_desc]
    if field not in known:
        raise ConfigError(f"{name} has no field {field}{suggestion(field, known)}")


def check_value(path: str, value: str | int) -> None:
    """Refuse (ConfigError) a value that a field cannot have."""
    check_field(path)
    name, field, *inner = path.split(".")
    if inner:
        return
    try:
        made = layer_of(name)()
        made.setfieldval(field, value)
        bytes(made)
    except Exception as error:  # noqa: BLE001 scapy raises whatever its fields do
        raise ConfigError(f"{path} cannot be {value!r}: {one_line(error)}") from None


# -- In packets ------------------------------------------------------------------------------------


def parsed(packet: bytes) -> Packet:
    """Return an IP packet as scapy understands it."""
    is_ipv4 = packet[0] >> 4 == 4  # noqa: PLR2004 the version of IP
    return layer_of("IP" if is_ipv4 else "IPv6")(packet)


def meets(packet: bytes, layer: str, fields: FieldValues) -> bool:
    """Whether a packet has a layer, and fields with these values."""
    found = parsed(packet)
    return (not layer or bool(found.haslayer(layer_of(layer)))) and all(
        _has(found, path, value) for path, value in fields
    )


def changed(packet: bytes, fields: FieldValues) -> bytes | None:
    """Return a packet with other values of fields, those that it has; None if all of these had them
    already. Lengths and checksums follow unless they are among them."""
    found, is_other = parsed(packet), False
    for path, value in fields:
        owner, name = _owner(found, path)
        if owner is not None:
            before = owner.getfieldval(name)
            owner.setfieldval(name, value)
            is_other = is_other or owner.getfieldval(name) != before
    if not is_other:
        return None
    kept = {path for path, _value in fields}
    for layer in _each(found):
        for name in _COMPUTED:
            if name in layer.fields and f"{type(layer).__name__}.{name}" not in kept:
                layer.delfieldval(name)
    return bytes(found)


def _each(packet: Packet) -> Iterator[Packet]:
    """Yield the layers of a packet, from the outermost on."""
    current: Packet | None = packet
    while current:
        yield current
        current = current.payload


def _owner(packet: Packet, path: str) -> tuple[Packet | None, str]:
    """Return what in a packet has a field, and the field's name; None if nothing has it."""
    name, *inner, last = path.split(".")
    found: Any = packet.getlayer(layer_of(name))
    for part in inner:
        found = _first(_value(found, part))
    is_there = hasattr(found, "fields_desc") and found.get_field(last) is not None
    return (found if is_there else None), last


def _value(owner: Any, name: str) -> Any:  # noqa: ANN401 whatever scapy has there
    if not hasattr(owner, "fields_desc") or name not in [one.name for one in owner.fields_desc]:
        return None
    return owner.getfieldval(name)


def _first(value: Any) -> Any:  # noqa: ANN401 as above
    if isinstance(value, list):
        return value[0] if value else None
    return value


def _has(packet: Packet, path: str, wanted: str | int) -> bool:
    owner, name = _owner(packet, path)
    if owner is None:
        return False
    value = _first(owner.getfieldval(name))
    if isinstance(wanted, int):
        try:
            return int(value) == wanted
        except (TypeError, ValueError):
            return False
    if isinstance(value, bytes):
        return value.decode(errors="replace") == wanted
    # Fields with names for their values, and flags, are called by them, too.
    return wanted in (str(value), owner.get_field(name).i2repr(owner, value))
