"""The guarantees that Spark checks, and which of them depend on how a run ended."""

from __future__ import annotations

from typing import Final

from stormcast.pipeline.checks import (
    a1_agreement,
    c1_control_traffic,
    g1_no_loss,
    g2_once,
    g3_fifo,
    g4_intact,
    g5_bounded,
    g6_purge_safety,
    g7_connections,
    g8_back_in_time,
    l1_liveness,
    s1_unread,
    v_views,
)
from stormcast.pipeline.violations import Check

CHECKS: Final[dict[str, Check]] = {
    "G1": g1_no_loss.no_loss,
    "G2": g2_once.once,
    "G3": g3_fifo.fifo,
    "G4": g4_intact.intact,
    "G5": g5_bounded.bounded,
    "G6": g6_purge_safety.purge_safety,
    "G7": g7_connections.apart,
    "A1": a1_agreement.agreement,
    "V1": v_views.one_list,
    "V2": v_views.own_views,
    "V3": v_views.growing_ids,
    "V4": v_views.one_view,
    "C1": c1_control_traffic.control_traffic,
    "L1": l1_liveness.liveness,
    "S1": s1_unread.unread,
}
IN_TIME: Final = g8_back_in_time.GUARANTEE
"""Judged where it is known what the scenario expects."""
BUDGET: Final = "budget"
"""The internal name of violations of a scenario's budget, which are reported under C1."""
NEEDS_THE_END: Final = frozenset({"G1", "A1", "V4", "L1", "C1"})
"""Guarantees that can only be violated by a run that came to its end. So can G5 where it speaks of
the end: a receive window may then hold messages behind a gap whose repair is under way."""
ASKS_WHO_STAYS: Final = frozenset({"G1", "G8", "A1", "V4", "C1", "L1"})
"""Guarantees whose violations a death that nobody ordered may explain, if it came before."""
