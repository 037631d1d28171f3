"""Plots with loads and settings of their own, which reach bounds, credits and timeouts.

A bound is reached only if it is small compared with the traffic, and a timeout only if it is short
compared with the faults. So these plots also choose settings. They are drawn last: how long a
closed connection must be remembered depends on how long the other steps hold frames back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from stormcast.chaos.campaigns.generate.groups.dice import GroupDraw
from stormcast.chaos.campaigns.generate.groups.staged import (
    connections,
    fragments,
    membership,
    settings,
)
from stormcast.chaos.language.timeline import Step

StagedPlot = Callable[[GroupDraw], list[Step]]

STAGED: Final[tuple[StagedPlot, ...]] = (
    fragments.pieces_overtake,
    fragments.pieces_overtake,
    fragments.pieces_left_over,
    fragments.outside_amid_a_message,
    fragments.all_send_large,
    fragments.all_send_large,
    connections.forgotten_while_blocked,
    connections.forgotten_while_blocked,
    connections.blocked_for_long,
    connections.blocked_for_long,
    connections.parted_unnoticed,
    connections.parted_unnoticed,
    membership.all_leave,
    membership.only_a_joiner_lives,
    settings.switch_meanwhile,
    membership.odd_views,
)
SWITCHING: Final[tuple[StagedPlot, ...]] = (
    connections.baseline_from_before,
    connections.baseline_from_before,
    settings.joiner_overflows,
    settings.joiner_overflows,
    settings.switch_meanwhile,
)
"""Further plots for groups whose retransmission is off, or may be for a while."""
