"""A rig draws the fate of a frame from its identity, so frames that are sent again and again must
not be equal: a loss of one would be the loss of all."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from stormcast.chaos.campaigns.generate import generate
from stormcast.chaos.language.scenario import Scenario, load_scenario
from stormcast.chaos.session.runner import run_scenario
from stormcast.node.core import wire
from stormcast.node.protocols.port import Frame
from stormcast.node.stack.departing import Departing

MOST = 30
"""Times that a member may send one receiver frames of one identity. A question that made progress
begins anew, with the numbers of its first repeats, so some are equal."""
MERGES = Path(__file__).parent / "regressions" / "proofs-of-every-merge-alike-3070722450.yaml"


def most_alike(
    scenario: Scenario, seed: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, int, int]:
    """How often the most frequent identity of control frames was sent to one receiver, its protocol
    and its kind."""
    sent: Counter[tuple[bytes, int]] = Counter()
    take = Departing.take

    def taken(self: Departing, now: float) -> list[Frame]:
        frames = take(self, now)
        sent.update(
            (b"".join(bytes(head[part]) for part in wire.IDENTITY), dest)
            for dest, head, _body in frames
        )
        return frames

    with monkeypatch.context() as patch:
        patch.setattr(Departing, "take", taken)
        run_scenario(scenario, seed, min_bites=0)
    (identity, _dest), times = sent.most_common(1)[0]
    return times, identity[1], identity[0]


def test_no_two_merges_ask_alike_for_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups met again and again for half an hour, and each time the same frames were lost."""
    times, protocol, kind = most_alike(load_scenario(MERGES), 3070722450, monkeypatch)
    assert times <= MOST, f"kind {kind} of protocol {protocol}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100_000, 100_040))
def test_nothing_is_sent_alike_for_long(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    times, protocol, kind = most_alike(generate(seed), seed, monkeypatch)
    assert times <= MOST, f"kind {kind} of protocol {protocol}"
