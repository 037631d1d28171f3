"""Settings of protocols in a scenario, each read and written as the protocol has it.

The stack decides which protocols and settings there are: a name that no protocol has is kept as it
is written, and the stack refuses it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from stormcast.node.reading.items import Item
from stormcast.node.reading.notations import Notation, Plain
from stormcast.node.settings.layers import flaw_notation, setting_notation
from stormcast.node.settings.protocols import RELIABLE_MULTICAST, RELIABLE_UNICAST

Settings = tuple[tuple[str, object], ...]
"""Names and values of settings."""

_IDENTIFIER: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_UNREAD: Final = Notation(lambda item: item.name, lambda value: value)


def _settings(notation_of: Callable[[str], Notation | None]) -> Notation:
    """Return the notation of a mapping of settings, given that of each by its name."""

    def read(item: Item) -> Settings:
        pairs = []
        for key, value in item.pairs():
            name = key.word(
                _IDENTIFIER, "the name of a setting is in small letters, such as xmit_interval"
            )
            pairs.append((name, (notation_of(name) or _UNREAD).read(value)))
        return tuple(pairs)

    def write(settings: Settings) -> Plain:
        return {name: _written(notation_of(name) or _UNREAD, value) for name, value in settings}

    return Notation(read, write)


def _written(notation: Notation, value: object) -> Plain:
    """Return a value as a file has it; a program may have given it as text, with its unit."""
    return value if isinstance(value, str) else notation.write(value)


def settings_of(protocols: Iterable[str]) -> Notation:
    """Return the notation of settings that one of these protocols has."""
    names = tuple(protocols)
    return _settings(lambda name: setting_notation(names, name))


OF_UNICAST: Final = settings_of(RELIABLE_UNICAST)
OF_MULTICAST: Final = settings_of(RELIABLE_MULTICAST)
FLAWS: Final = _settings(flaw_notation)


def attribute_value(attribute: str) -> Notation:
    """Return the notation of a setting by the name that a step gives it: `xmit_interval` of
    unicast, or `NAKACK2.xmit_interval`."""
    protocol, _dot, name = attribute.rpartition(".")
    notation = setting_notation([protocol] if protocol else RELIABLE_UNICAST, name) or _UNREAD
    return Notation(notation.read, lambda value: _written(notation, value))
