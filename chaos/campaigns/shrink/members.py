"""Takes members out of a failing scenario, and all that is about them."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from stormcast.chaos.campaigns.shrink.trials import REPAIRS, Trials
from stormcast.chaos.language.scenario import Scenario

WITHOUT_EFFECT: Final = frozenset({"name", "about"})
"""Fields of a scenario that have no effect on its run."""
_GONE: Final = object()
"""In place of what was about a member that is taken out."""


def remove_members(trials: Trials) -> None:
    """Take members out, and all that is about them; close the gaps in their names."""
    chunk = len(trials.best.scenario.cluster.members) - 1
    while chunk > 0:
        at = len(trials.best.scenario.cluster.members)
        while at > 0:
            gone = trials.best.scenario.cluster.members[max(0, at - chunk) : at]
            at -= chunk
            smaller = _without_members(trials.best.scenario, frozenset(gone))
            if smaller is not None and not trials.try_scenario(_renamed(smaller), repairs=REPAIRS):
                # Names decide what becomes of frames: with others it may hold.
                trials.try_scenario(smaller, repairs=REPAIRS)
        chunk //= 2
    trials.try_scenario(_renamed(trials.best.scenario))


def _without_members(scenario: Scenario, gone: frozenset[str]) -> Scenario | None:
    """Without some members, and without what is only about them; None: they are all."""
    cluster = scenario.cluster
    if gone.issuperset(cluster.members):
        return None
    # Of the cluster itself a list of names may become empty; elsewhere that means something.
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
    """A part without some members; `_GONE` if nothing is left that it is about."""
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
    """With the names that members have when nobody names them: n0, n1, …"""
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
