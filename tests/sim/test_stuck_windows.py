"""G5: a window that holds messages behind a gap at the end of a run is seen in a run, too."""

from __future__ import annotations

from typing import Any

import pytest

from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.session.runner import run_scenario
from stormcast.node.protocols.multicast.asking import Asking

LOSSY = """
name: nobody-asks-again
guarantees: [G5]
cluster: {members: 3, stack: udp, timing: fast}
workload:
  - {do: multicast, from: all, count: 60, rate: 30/s, size: 100B}
timeline:
  - {at: 1s, do: loss, rate: 30%, for: 500ms}
limits: {run: 60s}
"""


def found() -> list[str]:
    judgement = run_scenario(parse_scenario(LOSSY), 3).judgement
    return [finding.detail for finding in judgement.findings if str(finding.verdict) != "holds"]


def test_a_gap_that_is_asked_for_leaves_nothing_behind_it() -> None:
    assert found() == []


def test_what_waits_behind_a_gap_at_the_end_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows say what they hold at the end, or later: not a moment before."""

    def never(_self: Asking, *_arguments: Any) -> None:
        return

    monkeypatch.setattr(Asking, "request", never)
    assert any("at the end of the run, behind a gap" in detail for detail in found())
