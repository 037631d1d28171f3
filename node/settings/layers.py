"""The settings of one protocol of a stack, with the historical flaws that concern it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from stormcast.node.core.errors import require
from stormcast.node.protocols.flow import HistoricalFlow
from stormcast.node.protocols.frag import HistoricalFrag
from stormcast.node.protocols.multicast import HistoricalMulticast
from stormcast.node.protocols.testing import TEST_PROTOCOLS, read_test_protocol
from stormcast.node.protocols.unicast import Historical
from stormcast.node.reading.config_shapes import shape_of
from stormcast.node.reading.items import PlainItem
from stormcast.node.reading.notations import Notation
from stormcast.node.settings.jgroups_names import setting_here
from stormcast.node.settings.protocols import CONFIGS

Values = Mapping[str, object]
"""Values by their names; each may be an item, which knows where it was written."""

_HISTORICAL: Final[dict[type, str]] = {
    HistoricalMulticast: "multicast",
    HistoricalFlow: "flow control",
    HistoricalFrag: "FRAG",
}
"""Kinds of historical flaws besides those of unicast, and what a stack needs to have them."""
_FLAWS: Final = {field.name: kind for kind in _HISTORICAL for field in dataclasses.fields(kind)}
"""The kind of each of these flaws, by its name."""
_KINDS: Final = {
    name: type(field.default)
    for name, config in CONFIGS.items()
    for field in dataclasses.fields(config)
    if field.name == "historical"
}
"""The kind of historical flaws that a protocol may have."""
_CONFIGS: Final[dict[str, type]] = {
    **CONFIGS,
    **{name: protocol.config_type for name, protocol in TEST_PROTOCOLS.items()},
}
"""The dataclass of the settings of every protocol, test protocols too."""


def build_layer(name: str, values: Values, historical: Values) -> Any:  # noqa: ANN401 the type follows the name
    """Build the settings of a protocol, with those historical flaws that are of its kind."""
    if name in TEST_PROTOCOLS:
        return read_test_protocol(name, values)
    config = shape_of(CONFIGS[name], setting_here).read(PlainItem(values, name))
    kind = _KINDS.get(name)
    if kind is None:
        return config
    mine = {key: value for key, value in historical.items() if _FLAWS.get(key, Historical) is kind}
    flaws = shape_of(kind).read(PlainItem(mine, "historical"))
    return dataclasses.replace(config, historical=flaws)


def setting_notation(protocols: Iterable[str], name: str) -> Notation | None:
    """Return how a setting that one of these protocols has is read and written; None where none
    has it."""
    return _notation_in((_CONFIGS[one] for one in protocols if one in _CONFIGS), name)


def flaw_notation(name: str) -> Notation | None:
    """Return the same for a historical flaw."""
    return _notation_in((Historical, *_HISTORICAL), name)


def _notation_in(kinds: Iterable[type], name: str) -> Notation | None:
    return next((key.notation for kind in kinds if (key := shape_of(kind).keys.get(name))), None)


def check_flaws(historical: Values, names: Sequence[str], stack: str) -> None:
    """Refuse flaws of protocols that the stack does not have."""
    there = {_KINDS.get(name) for name in names}
    for kind, what in _HISTORICAL.items():
        stray = sorted(key for key in historical if _FLAWS.get(key) is kind)
        require(
            not stray or kind in there,
            f"historical.{', '.join(stray)}: stack {stack} has no {what}; drop it, or use a stack "
            "that has it, such as group-museum",
        )
