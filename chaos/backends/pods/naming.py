"""Renames members for agents: an agent calls its member by the number of its pod (`n0`, `n1` …),
whatever the scenario calls it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stormcast.chaos.faults import LinkFault, Names, NetworkFault, Partition, Rule
from stormcast.chaos.language.network_state import NetworkState


def renamed(state: NetworkState, names: Mapping[str, str]) -> NetworkState:
    """Return the same state with other names of members."""
    if all(name == other for name, other in names.items()):
        return state
    return replace(
        state,
        members=_all(state.members, names),
        places={names[name]: places for name, places in state.places.items()},
        faults={key: _fault(fault, names) for key, fault in state.faults.items()},
    )


def _all(listed: Names, names: Mapping[str, str]) -> Names:
    return tuple(names[name] for name in listed)


def _fault(fault: NetworkFault, names: Mapping[str, str]) -> NetworkFault:
    if isinstance(fault, Partition):
        return replace(fault, groups=tuple(_all(group, names) for group in fault.groups))
    if isinstance(fault, LinkFault):
        return replace(fault, sources=_all(fault.sources, names), dests=_all(fault.dests, names))
    if isinstance(fault, Rule):
        match = fault.match
        sources, dests = _all(match.sources, names), _all(match.dests, names)
        return replace(fault, match=replace(match, sources=sources, dests=dests))
    return fault
