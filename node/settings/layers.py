"""The settings of one protocol of a stack, with the historical flaws that concern it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from stormcast.node.core.errors import require
from stormcast.node.protocols.flow import HistoricalFlow
from stormcast.node.protocols.frag import HistoricalFrag
from stormcast.node.protocols.multicast import HistoricalMulticast
from stormcast.node.protocols.testing import TEST_PROTOCOLS, read_test_protocol
from stormcast.node.protocols.unicast import Historical
from stormcast.node.reading.fields import build
from stormcast.node.settings.jgroups_names import setting_here
from stormcast.node.settings.protocols import CONFIGS

Values = Mapping[str, object]

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


def build_layer(name: str, values: dict[str, object], historical: Values) -> Any:  # noqa: ANN401 the type follows the name
    """Build the settings of a protocol, with those historical flaws that are of its kind."""
    if name in TEST_PROTOCOLS:
        return read_test_protocol(name, values)
    config = build(CONFIGS[name], values, name, setting_here)
    kind = _KINDS.get(name)
    if kind is None:
        return config
    mine = {key: value for key, value in historical.items() if _FLAWS.get(key, Historical) is kind}
    return dataclasses.replace(config, historical=build(kind, mine, "historical"))


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
