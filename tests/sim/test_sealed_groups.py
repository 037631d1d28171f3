"""Groups with a key: whoever has none changes nothing at all, and holders of it lose nothing."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from stormcast.chaos.campaigns.generate import generate
from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.session.runner import run_scenario
from stormcast.node.core import wire
from stormcast.node.stack.receiving import NOT_TAKEN
from stormcast.node.trace import ALARM, SYNC
from tests.helpers.group import STACKS
from tests.helpers.world import hash64
from tests.sim import test_hostile_group as hostile
from tests.sim.test_hostile_group import Besieged, changes, pictured

LIES = {
    name: lie
    for lies in (
        hostile.GMS,
        hostile.STABLE,
        hostile.MULTICAST,
        hostile.MCAST,
        hostile.DETECTION,
        hostile.STACK,
    )
    for name, (_hearer, _reason, lie) in lies.items()
}
MAY_CHANGE = ("refused", "drops", "refusal", "_now", "gauge_at", "tracer", "_tracer", "_codec")
"""What tells that something was refused."""


@pytest.fixture(name="besieged", params=STACKS)
def _besieged(request: pytest.FixtureRequest) -> Besieged:
    return Besieged(request.param, sealed=True)


def refusals(world: Besieged) -> int:
    return sum(sum(member.refused.values()) for member in world)


def nothing_changes(
    world: Besieged, datagrams: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each member hears each datagram, refuses it, and is to the last field what it was."""
    monkeypatch.setattr(hostile, "UNTOLD", frozenset(MAY_CHANGE) | {"codec"})
    before = {member.name: pictured(member) for member in world}
    sent, refused = len(world.network.sent), refusals(world)
    for datagram in datagrams:
        for member in world:
            assert member.stack.receive(datagram, world.now) in (0, NOT_TAKEN)
    for member in world:
        assert changes(before[member.name], pictured(member)) == {}
        member.turn()
    assert len(world.network.sent) == sent, "nobody was answered"
    assert refusals(world) == refused + 3 * len(datagrams)


def with_check(frame: bytearray) -> bytes:
    """Whoever changes a head can make its check fit, too."""
    check = hash64(bytes(frame[: wire.CHECK_OFFSET])) & 0xFFFFFFFF
    frame[wire.CHECK_OFFSET : wire.HEAD_SIZE] = check.to_bytes(4)
    return bytes(frame)


def test_lies_that_a_group_without_a_key_must_see_through(
    besieged: Besieged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those that it could not: here no frame is even looked at."""
    frames = [lie(besieged) for lie in LIES.values()]
    assert len(frames) > 80
    nothing_changes(besieged, frames, monkeypatch)
    besieged.works()


def test_all_that_was_ever_sent_comes_again(
    besieged: Besieged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To those who had it, and to those for whom it was not: each has another mark, or number."""
    recorded = list(dict.fromkeys(sent.data for sent in besieged.network.sent))
    assert len(recorded) > 20
    for member in besieged:
        # What was for another member is opened once, and is not for this one.
        for datagram in recorded:
            member.stack.receive(datagram, besieged.now)
        member.turn()
    nothing_changes(besieged, recorded + recorded[::-1], monkeypatch)
    besieged.works()


@pytest.mark.parametrize("seed", range(5))
def test_what_was_recorded_comes_changed(
    besieged: Besieged, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fields that protocols read, numbers of seals, marks, bodies; each with a check that fits."""
    random = Random(seed)
    recorded = [bytearray(sent.data) for sent in besieged.network.sent]
    changed = []
    for frame in random.choices(recorded, k=300):
        forged = bytearray(frame)
        for _ in range(random.choice((1, 1, 4))):
            at = random.choice([at for at in range(4, len(forged)) if not 60 <= at < 64])
            forged[at] ^= random.randrange(1, 256)
        changed.append(with_check(forged))
    nothing_changes(besieged, changed, monkeypatch)
    besieged.works()


# -- Scenarios -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(7_000, 7_030))
def test_what_the_search_draws_holds_with_a_key(seed: int) -> None:
    """Loss, duplicates, damage, pauses, restarts and merges of members that seal."""
    scenario = generate(seed)
    sealed = replace(scenario, cluster=replace(scenario.cluster, sealed=True), text="")
    outcome = run_scenario(sealed, seed, min_bites=0)
    assert outcome.verdict is Verdict.HOLDS, outcome.judgement.findings


LOSSLESS = """
name: keys-without-retransmission
guarantees: [G1, G2, G3, A1]
cluster:
  members: 3
  stack: tcp-no-retransmit
  timing: fast
  sealed: true
  multicast_settings: {{gap_alarm: 60s}}
network: {{delay: 1ms}}
workload:
  - {{do: multicast, from: all, count: 200, rate: 40/s, size: 100B}}
timeline:
  - {{at: 1s, do: change-keys, step: add}}
  - {{at: 2500ms, do: change-keys, step: turn}}
  - at: 2600ms
    do: rule
    does: hold
    match: {{protocol: NAKACK2, kind: DATA, to: n1}}
    for: {held}
  - {{at: 5s, do: change-keys, step: drop}}
limits: {{run: 300s}}
"""


@pytest.mark.parametrize(("held", "ends"), [("1s", False), ("5s", True)], ids=["before", "after"])
def test_a_key_is_dropped_when_what_it_sealed_has_arrived(held: str, *, ends: bool) -> None:
    """Nobody sends again. What is held until after the drop can be read by nobody: it ends the
    connection, so n1 asks for what was under way in it, long before the alarms."""
    outcome = run_scenario(parse_scenario(LOSSLESS.format(held=held)), 5)
    assert outcome.verdict is Verdict.HOLDS, outcome.judgement.findings
    (n1,) = [one for one in outcome.run.evidence.members.values() if one.name == "n1"]
    kinds = [event.kind for event in n1.events if event.time > outcome.run.evidence.begin + 5.0]
    assert (kinds.count(SYNC) > 0) == ends
    assert ALARM not in kinds
