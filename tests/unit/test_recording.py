"""The records of several scenarios on one cluster: each holds what happened in it, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from xxhash import xxh3_64_intdigest

from stormcast.chaos.backends.sim.backend import SimBackend
from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.session.record import RunRecord
from stormcast.chaos.session.session import Session
from stormcast.node.trace import FAULT, read_blocks_untrusted

PAIR = parse_scenario("""
name: pair
guarantees: [G1]
cluster: {members: 2, timing: fast}
workload:
  - {do: unicast, from: n0, to: n1, count: 10, rate: 50/s, size: 16B}
limits: {run: 60s}
""")


class Real(SimBackend):
    """The simulator, of which a session knows only what it knows of a real machine: the machine
    stood still in the first second, and n1 was given a message that nobody sent."""

    observed = None  # type: ignore[assignment]

    def standstills(self) -> list[tuple[float, float]]:
        return [(0.0, 1.0)]

    def ask(self, name: str, method: str, target: str, body: object = None) -> Any:
        said = super().ask(name, method, target, body)
        if (name, target) == ("n1", "/state"):
            return said | {"workload": said["workload"] | {"mismatches": 1}}
        return said


def standstills(run: RunRecord) -> list[dict[str, Any]]:
    """Return the pauses that the rig wrote."""
    blocks = read_blocks_untrusted(run.traces["rig"], xxh3_64_intdigest)
    texts = [block.text(event) for block in blocks for event in block.events if event.kind == FAULT]
    return [text for text in map(json.loads, texts) if text["phase"] == "on"]


def test_what_the_record_before_told_is_not_told_again() -> None:
    session = Session(PAIR, 1, Real(), Path())
    session.open()
    session.gather()

    first, second = session.go_on(PAIR, dict), session.go_on(PAIR, dict)

    assert len(standstills(first)) == 2, "one of each member"
    assert first.mismatches == ["n1 got 1 messages that nobody sent"]
    assert not standstills(second)
    assert not second.mismatches
