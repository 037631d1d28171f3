"""The data of tooltips, which the script of a page shows for a bin."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log10
from typing import Final

from stormcast.pipeline.measured import Metrics

TOLD: Final = 16
"""The most lines of a tooltip."""


def tooltips(metrics: Metrics) -> dict[str, object]:
    """Return the data for the script: per chart a list of name, unit and values per bin."""
    width = metrics.grid.width
    bins = range(metrics.grid.count)
    latency = {one.bin: one for one in metrics.latency}

    def per_second(flows: Sequence[Sequence[int]]) -> list[float]:
        return [round(sum(flow[at] for flow in flows) / width, 3) for at in bins]

    def seconds(name: str) -> list[float | None]:
        return [round(getattr(latency[at], name), 7) if at in latency else None for at in bins]

    names = metrics.names[:TOLD]
    return {
        "width": width,
        "digits": max(0, ceil(-log10(width))) + 1,
        "charts": {
            "throughput": [
                ("sent", "/s", per_second([flow.messages for flow in metrics.sent])),
                ("delivered", "/s", per_second([flow.messages for flow in metrics.heard])),
            ],
            "heard": [
                (name, "/s", per_second([f.messages for f in metrics.heard if f.receiver == name]))
                for name in names
            ],
            "latency": [
                (text, "s", seconds(name))
                for text, name in (
                    ("slowest", "most"),
                    ("p99", "p99"),
                    ("p90", "p90"),
                    ("median", "p50"),
                )
            ],
            "repairs": [
                ("sent again", "/s", per_second([metrics.resent] if metrics.resent else [])),
                ("asked for", "/s", per_second([metrics.requested] if metrics.requested else [])),
            ],
        },
    }
