"""Removes members from a failing scenario, with all parts that concern only them."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from stormcast.chaos.campaigns.shrink.trials import REPAIRS, Trials
from stormcast.chaos.language.scenario import Scenario

WITHOUT_EFFECT: Final = frozenset({"name", "about"})
"""Fields of a scenario that have no effect on its run."""
_GONE: Final = object()
"""Stands for a part that concerned only removed members."""


def remove_members(trials: Trials) -> None:
    """Try to remove members, in halves down to single ones, and to rename the rest n0, n1, …"""
    chunk = len(trials.best.scenario.cluster.members) - 1
    while chunk > 0:
        at = len(trials.best.scenario.cluster.members)
        while at > 0:
            gone = trials.best.scenario.cluster.members[max(0, at - chunk) : at]
            at -= chunk
            smaller = _without_members(trials.best.scenario, frozenset(gone))
            if smaller is not None and not trials.try_scenario(_renamed(smaller), repairs=REPAIRS):
                # The fate of frames depends on names: with others the run may hold.
                trials.try_scenario(smaller, repairs=REPAIRS)
        chunk //= 2
    trials.try_scenario(_renamed(trials.best.scenario))


def _without_members(scenario: Scenario, gone: frozenset[str]) -> Scenario | None:
    """Return a scenario without some members, and without parts that concern only them; None if no
    member would be left."""
    cluster = scenario.cluster
    if gone.issuperset(cluster.members):
        return None
    # In the cluster a list of names may become empty; elsewhere an empty list has a meaning.
    listed: dict[str, Any] = {
        part.name: tuple(one for one in value if one not in gone)
        for part in fields(cluster)
        if isinstance(value := getattr(cluster, part.name), tuple)
    }
    parts: dict[str, Any] = {
        part.name: tuple(left for one in entries if (left := _without(one, gone)) is not _GONE)
        for part in fields(scenario)
        if isinstance(entries := getattr(scenario, part.name), tuple)
        and any(map(is_dataclass, entries))
    }
    return replace(scenario, cluster=replace(cluster, **listed), **parts)


def _without(value: Any, gone: frozenset[str]) -> Any:  # noqa: ANN401 a part of any kind
    """Return a part without some members; `_GONE` if it concerns no other members."""
    if isinstance(value, str):
        return _GONE if value in gone else value
    if isinstance(value, tuple):
        left = tuple(part for one in value if (part := _without(one, gone)) is not _GONE)
        return _GONE if value and not left else left
    if is_dataclass(value) and not isinstance(value, type):
        parts = {part.name: _without(getattr(value, part.name), gone) for part in fields(value)}
        return _GONE if _GONE in parts.values() else replace(value, **parts)
    return value


def _renamed(scenario: Scenario) -> Scenario:
    """Return a scenario with members renamed to the default names n0, n1, …"""
    members = scenario.cluster.members
    new = dict(zip(members, (f"n{number}" for number in range(len(members))), strict=True))
    parts = {
        part.name: _translated(getattr(scenario, part.name), new)
        for part in fields(scenario)
        if part.compare and part.name not in WITHOUT_EFFECT
    }
    return replace(scenario, **parts)


def _translated(value: Any, new: dict[str, str]) -> Any:  # noqa: ANN401 a part of any kind
    if isinstance(value, str):
        return new.get(value, value)
    if isinstance(value, tuple):
        return tuple(_translated(one, new) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {part.name: _translated(getattr(value, part.name), new) for part in fields(value)}
        return replace(value, **parts)
    return value
