"""The paths on which nfqueue decides: those of the simulator, without the faults that tc does.

For these, packets wait where they go out. A multicast that is to be slow for some receivers only
goes out at once; so its paths have the faults of tc, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from stormcast.chaos import faults
from stormcast.chaos.drivers.base import (
    NFQUEUE,
    TC,
    driver_of,
    is_base_delayed_by,
    slow_for_multicasts,
)
from stormcast.chaos.drivers.packets import Offsets
from stormcast.chaos.drivers.selection import statements
from stormcast.chaos.faults.paths import Path, PathMaker
from stormcast.chaos.language.network_state import NetworkState


class Ways(NamedTuple):
    """The paths of packets from one member to another."""

    unicasts: Path
    multicasts: Path

    def path(self, place: Offsets) -> Path:
        """Return the path of one packet."""
        return self.multicasts if place.is_multicast else self.unicasts


def ways_to(state: NetworkState, dest: str, maker: PathMaker) -> Mapping[str, Ways]:
    """Return the paths to one member, by sender."""
    return {source: _ways(state, source, dest, maker) for source in state.members if source != dest}


def _ways(state: NetworkState, source: str, dest: str, maker: PathMaker) -> Ways:
    path = maker.path(source, dest, *_acting(state, NFQUEUE))
    if slow_for_multicasts(state, source, dest) is None:
        return Ways(path, path)
    return Ways(path, maker.path(source, dest, *_acting(state, NFQUEUE, TC)))


def _acting(
    state: NetworkState, *slowing: str
) -> tuple[faults.Link, Mapping[str, faults.NetworkFault]]:
    """Return the network's own link and its faults, without delays and limits of other drivers than
    `slowing`."""
    is_late = any(is_base_delayed_by(state, driver) for driver in slowing)
    base = replace(
        state.base,
        delay=state.base.delay if is_late else 0.0,
        bandwidth=state.base.bandwidth if TC in slowing else None,
    )
    left = {
        fault: action
        for fault, action in state.faults.items()
        if TC in slowing or driver_of(action, netem=state.netem) != TC
    }
    return base, left


def asks(state: NetworkState, source: str, dest: str) -> bool:
    """Whether nft leaves packets of a path to nfqueue."""
    return any("mark" in one.verdict for one in statements(state, dest, source))


def may_corrupt(state: NetworkState) -> bool:
    """Whether frames may be corrupted."""
    return state.base.corrupt > 0 or any(
        isinstance(fault, faults.Corrupt)
        or (isinstance(fault, faults.Rule) and fault.does == "corrupt")
        for fault in state.faults.values()
    )
