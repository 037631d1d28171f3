"""The settings of a stack as its trace keeps them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from math import inf

from stormcast.node.settings.stack_settings import StackSettings


def describe(settings: StackSettings, bounds: Mapping[str, Mapping[str, float]]) -> str:
    """Return the settings as JSON for the trace, with the bounds that each protocol promises."""
    unicast = settings.unicast
    protocols = {
        name: {**dataclasses.asdict(config), "bounds": _finite(bounds.get(name, {}))}
        for name, config in settings.layers
    }
    mine = protocols.pop(unicast)
    return json.dumps(
        {
            "stack": settings.name,
            "protocol": unicast,
            "timing": settings.timing.name,
            "protocols": protocols,
            **mine,
        },
        sort_keys=True,
    )


def _finite(bounds: Mapping[str, float]) -> dict[str, float | None]:
    return {name: None if bound == inf else bound for name, bound in bounds.items()}
