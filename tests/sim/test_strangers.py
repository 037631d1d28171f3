"""Strangers on the way between members: what they do without a key, and not to members with one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stormcast.chaos import faults
from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.backends.by_name import make_backend
from stormcast.chaos.backends.sim import strangers
from stormcast.chaos.campaigns.museum import EXHIBITS, STRANGERS, Exhibit, Shown, tour
from stormcast.chaos.language.features import FEATURES, ONLY_SIMULATED
from stormcast.chaos.language.scenario import Scenario, parse_scenario
from stormcast.chaos.language.shipped import find_shipped
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.session.outcome import RunOutcome
from stormcast.chaos.session.plans import cluster_plan
from stormcast.chaos.session.runner import run_scenario
from stormcast.node import trace
from stormcast.node.keys import seals

WING = {exhibit.name: exhibit for exhibit in EXHIBITS if exhibit.wing == STRANGERS}


def shown(name: str) -> Shown:
    (found,) = tour((WING[name],))
    return found


def exhibit_without_a_stranger(name: str) -> Scenario:
    """The exhibit's scenario for members without a key, and without the attack."""
    scenario = find_shipped(name).read()
    timeline = tuple(
        step for step in scenario.timeline if not isinstance(step.action, faults.ByStranger)
    )
    cluster = replace(scenario.cluster, sealed=False)
    return replace(scenario, cluster=cluster, timeline=timeline, text="")


def refused(outcome: RunOutcome, name: str) -> dict[str, int]:
    """What a member refused, by reason."""
    (member,) = (one for one in outcome.run.evidence.members.values() if one.name == name)
    counted: dict[str, int] = {}
    for number, event in enumerate(member.events):
        if event.kind == trace.DROPPED:
            reason = member.texts[number]
            counted[reason] = counted.get(reason, 0) + event.count
    return counted


def overheard(outcome: RunOutcome) -> list[trace.Event]:
    return outcome.run.evidence.rig.overheard


def with_timeline(steps: str, *, sealed: bool = False, stack: str = "udp") -> Scenario:
    return parse_scenario(
        "name: strangers\nguarantees: [G1, G2, G4, S1]\n"
        f"cluster: {{members: 2, stack: {stack}, sealed: {str(sealed).lower()}}}\n"
        "workload: [{do: unicast, from: n0, to: n1, count: 20, rate: 20/s, start: 1s}]\n"
        f"timeline: [{steps}]\n"
    )


# -- The museum's -------------------------------------------------------------------------------


@pytest.mark.parametrize("exhibit", WING.values(), ids=lambda exhibit: exhibit.name)
def test_it_is_the_stranger_and_nothing_else_that_does_it(exhibit: Exhibit) -> None:
    """Without a key and without a stranger all of it holds."""
    outcome = run_scenario(exhibit_without_a_stranger(exhibit.name), 1)
    assert outcome.verdict is Verdict.HOLDS, outcome.judgement.findings


def test_an_eavesdropper_hears_as_much_and_reads_nothing() -> None:
    found = shown("read-on-the-way")
    sent = {
        event.digest
        for member in found.flawed.run.evidence.members.values()
        for event in member.events
        if event.kind == trace.SENT
    }
    assert len(overheard(found.flawed)) > 100
    assert {event.digest for event in overheard(found.flawed)} == sent
    assert len(overheard(found.fixed)) == len(overheard(found.flawed))
    assert found.fixed.run.bites == found.flawed.run.bites
    assert not sent & {event.digest for event in overheard(found.fixed)}


def test_the_check_would_see_a_cipher_that_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seals with a tag around messages in the clear: the eavesdropper reads them."""

    class Clear:
        def encrypt(self, _nonce: bytes, content: bytes, _proved: bytes) -> bytes:
            return bytes(content) + bytes(16)

        def decrypt(self, _nonce: bytes, content: Any, _proved: bytes) -> bytes:
            return bytes(content[:-16])

    monkeypatch.setattr(seals, "_cipher", lambda *_about: Clear())
    outcome = run_scenario(find_shipped("read-on-the-way").read(), 1)
    assert outcome.judgement.of("S1").verdict is Verdict.VIOLATED
    assert outcome.judgement.of("G1").verdict is Verdict.HOLDS


def test_a_replay_is_refused_frame_by_frame() -> None:
    found = shown("kept-alive-by-a-replay")
    for name in ("a", "b"):
        # Of two answers to a search, the second is not waited for.
        assert refused(found.flawed, name).keys() <= {"search-over"}
    counted = [refused(found.fixed, name)["replayed"] for name in ("a", "b")]
    assert sum(counted) == found.fixed.run.bites["tape"] > 50


def test_a_forged_message_is_delivered_or_refused_with_and_without_a_seal() -> None:
    found = shown("message-in-anothers-name")
    assert len(found.flawed.run.mismatches) == found.flawed.run.bites["f1"] == 3
    assert not found.fixed.run.mismatches
    counted = refused(found.fixed, "b")
    assert (counted["forged"], counted["not-sealed"]) == (3, 3)


def test_a_forged_wish_to_leave_is_done_or_refused() -> None:
    found = shown("leave-in-anothers-name")
    assert refused(found.flawed, "c")["leave-unasked"] == 1
    assert refused(found.fixed, "a")["not-sealed"] == 1
    sizes = [
        {len(view.members) for view in member.views}
        for member in found.fixed.run.evidence.members.values()
        if member.name == "a"
    ]
    assert sizes == [{1, 2, 3, 4}], "nobody was let go"


# -- The verbs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("stack", ["tcp", "tcp-nio2"])
@pytest.mark.parametrize("sealed", [False, True])
def test_connections_are_listened_to_as_well(stack: str, *, sealed: bool) -> None:
    steps = "{at: 0s, do: listen, for: 4s}"
    outcome = run_scenario(with_timeline(steps, stack=stack, sealed=sealed), 1)
    assert overheard(outcome)
    expected = Verdict.HOLDS if sealed else Verdict.VIOLATED
    assert outcome.judgement.of("S1").verdict is expected
    assert outcome.judgement.of("G1").verdict is Verdict.HOLDS


@pytest.mark.parametrize("step", ["replay, after: 1s", "forge, says: message"])
def test_a_stranger_that_sends_is_refused_on_connections(step: str) -> None:
    with pytest.raises(Unsupported, match="choose a stack on UDP, or listen"):
        run_scenario(with_timeline(f"{{at: 1s, do: {step}}}", stack="tcp"), 1)


@pytest.mark.parametrize(
    "step", ["listen", "replay, after: 1s", "forge, says: message", "forge, says: leave"]
)
def test_real_members_have_no_strangers(step: str, tmp_path: Path) -> None:
    scenario = with_timeline(f"{{at: 1s, do: {step}}}")
    there = {**dict.fromkeys(FEATURES), **ONLY_SIMULATED}
    with pytest.raises(Unsupported, match=r"needs strangers: .*use --backend sim"):
        cluster_plan(scenario, 1, "run", tmp_path, there)


def test_the_simulator_has_what_only_the_simulator_has() -> None:
    features = make_backend("sim").features()
    assert {features[name] for name in ONLY_SIMULATED} == {None}


def test_a_replay_sends_as_often_as_it_is_told_and_not_beyond_its_end() -> None:
    """Both hear the last message, which n0 sends at 1.95 s; one is gone before a second is over."""
    tape = "do: replay, from: n0, to: n1, kind: DATA, after: 1s, copies: 3"
    steps = f"{{at: 1920ms, {tape}, for: 500ms}}, {{at: 1920ms, {tape}, for: 10s}}"
    outcome = run_scenario(with_timeline(steps), 1, min_bites=0)
    assert outcome.run.bites == {"f1": 0, "f2": 3}
    assert outcome.judgement.of("G2").verdict is Verdict.HOLDS, "seqnos tell repeats from messages"


def test_what_strangers_keep_and_note_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers, "MOST_NOTED", 5)
    monkeypatch.setattr(strangers, "MOST_KEPT", 4)
    steps = "{at: 0s, do: listen}, {at: 0s, do: replay, kind: DATA, after: 1s, for: 5s}"
    outcome = run_scenario(with_timeline(steps), 1, min_bites=0)
    assert len(overheard(outcome)) == 5
    assert outcome.run.bites["f1"] > 20, "what it hears is counted all the same"
    assert outcome.run.bites["f2"] == 4


def test_equal_seeds_give_equal_strangers() -> None:
    scenario = find_shipped("message-in-anothers-name").read()
    first, again = (run_scenario(scenario, 7).run.traces for _ in range(2))
    assert first == again
