"""Additions to drawn scenarios, besides what their seed draws.

Each extra has dice of its own. So a new one changes only the scenarios that get it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final, NamedTuple

from stormcast.chaos.campaigns.generate.extras import (
    groups,
    later,
    members,
    paths,
    tuning,
    wires,
)
from stormcast.chaos.campaigns.generate.extras.deadlines import (
    comes_back,
    deadlines,
    gives_nothing_up,
)
from stormcast.chaos.campaigns.generate.extras.keys import keys
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.stacks import settings_of
from stormcast.node.core.errors import ConfigError


class Extra(NamedTuple):
    """One addition, and the scenarios that it fits."""

    add: Callable[[Scenario, Random], Scenario]
    share: float
    """The share of the scenarios that it fits."""
    fits: Callable[[Scenario], bool]

    @property
    def name(self) -> str:
        """Its name in texts, and that of its dice."""
        return self.add.__name__.replace("_", " ")


def _any(_scenario: Scenario) -> bool:
    return True


def _is_group(scenario: Scenario) -> bool:
    return bool(scenario.needs)


def _is_unicast(scenario: Scenario) -> bool:
    return not scenario.needs


def _is_datagram_group(scenario: Scenario) -> bool:
    return scenario.cluster.stack in ("udp", "mcast")


def _is_patient(scenario: Scenario) -> bool:
    """Whether frames may come later than drawn: a group whose connections live for a short time may
    have a plot that lasts hardly longer."""
    return not scenario.needs or "conn_close_timeout" not in dict(scenario.cluster.settings)


def _has_datagrams(scenario: Scenario) -> bool:
    """Whether no kernel gives up what it could not send for minutes."""
    return scenario.cluster.stack in ("unicast-only", "udp", "mcast")


def _has_narrow_window(scenario: Scenario) -> bool:
    return scenario.cluster.stack == "mcast" and groups.has_small_messages(scenario)


def _is_answered(scenario: Scenario) -> bool:
    """Whether nobody goes on sending to a member that is away for good: what a small outbox takes
    is given up after a minute, and only then it takes more. A view ends that in a group."""
    return _is_group(scenario) or all(comes_back(step, scenario) for step in scenario.timeline)


EXTRAS: Final = (
    Extra(keys, 0.15, _any),
    Extra(paths.long_paths, 0.05, _any),
    Extra(paths.long_cut, 0.02, _has_datagrams),
    Extra(groups.few_participants, 0.03, _is_group),
    Extra(groups.restless_member, 0.03, _is_group),
    Extra(groups.narrow_window, 0.1, _has_narrow_window),
    Extra(groups.endless_lives, 0.03, _any),
    Extra(tuning.other_unicast, 0.15, _is_datagram_group),
    Extra(members.departures, 0.1, _is_unicast),
    Extra(members.all_flags, 0.1, _is_unicast),
    Extra(later.late_steps, 0.1, _is_patient),
    Extra(later.second_wave, 0.08, _any),
    Extra(wires.rare_rules, 0.1, _is_patient),
    Extra(wires.poor_network, 0.1, _is_patient),
    Extra(tuning.rare_settings, 0.1, _any),
    Extra(tuning.small_outbox, 0.05, _is_answered),
    # The last, as what others add may have messages given up, or end a member for good.
    Extra(deadlines, 1.0, gives_nothing_up),
)


def with_extras(scenario: Scenario, seed: int, attempt: int) -> Scenario:
    """Return a scenario with the extras that its seed draws, without those that its settings do
    not allow."""
    for extra in EXTRAS:
        random = Random(f"stormcast/{extra.name}/{seed}/{attempt}")
        if extra.fits(scenario) and random.random() < extra.share:
            added = extra.add(scenario, random)
            if _is_accepted(added):
                about = f"{scenario.about[:-1]}, with {extra.name}."
                scenario = replace(added, about=about)
    return scenario


def _is_accepted(scenario: Scenario) -> bool:
    try:
        settings_of(scenario)
    except ConfigError:
        return False
    return True
