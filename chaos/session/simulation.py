"""A scenario in the simulator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stormcast.chaos.backends.sim.backend import SimBackend
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.session.record import RunRecord
from stormcast.chaos.session.session import play
from stormcast.node.keys.cluster_keys import ClusterKey


def simulate(
    scenario: Scenario,
    seed: int,
    *,
    make_unicast: Callable[..., Any] | None = None,
    make_multicast: Callable[..., Any] | None = None,
    fate: str = "xxh3",
    keys: tuple[ClusterKey, ...] = (),
) -> RunRecord:
    """Run a scenario to its end in the simulator; no file is written."""
    backend = SimBackend(
        fate=fate, make_unicast=make_unicast, make_multicast=make_multicast, keys=keys
    )
    return play(scenario, seed, backend, Path())
