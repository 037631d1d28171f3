"""What the rig does where two steps meet at one member: what the file says, or it says so."""

from __future__ import annotations

import json
from collections import Counter
from math import inf

import pytest

from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.oracles.g1_alarms import disturbed_at
from stormcast.chaos.oracles.verdict import RUN, Verdict
from stormcast.chaos.session.outcome import RunOutcome
from stormcast.chaos.session.runner import run_scenario
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.model import OOB
from stormcast.node.trace import FAULT, SENT

GROUP = "{members: 3, stack: udp, timing: fast, joins: one-by-one}"
LOAD = "{do: multicast, from: all, count: 100, rate: 25/s}"


def run(*steps: str, cluster: str = GROUP, load: str = LOAD, expect: str = "") -> RunOutcome:
    """Play steps; a step is the inside of its braces."""
    text = "name: steps\nabout: Steps that meet.\nguarantees: [G1, G2, G3, G4]\n"
    text += f"cluster: {cluster}\nworkload:\n  - {load}\ntimeline:\n"
    text += "".join(f"  - {{{step}}}\n" for step in steps)
    if expect:
        text += f"expect:\n  - {{{expect}}}\n"
    return run_scenario(parse_scenario(text), 1)


def faults_of(outcome: RunOutcome, fault: str) -> list[tuple[float, str, str]]:
    """Time, deed and phase of each event of a fault, in seconds from the start."""
    evidence = outcome.run.evidence
    rig = evidence.rig.trace
    found = []
    for number, text in rig.texts.items():
        event = rig.events[number]
        if event.kind == FAULT and (told := json.loads(text))["id"] == fault:
            found.append((round(event.time - evidence.begin, 3), told["do"], told["phase"]))
    return found


def living(outcome: RunOutcome) -> set[str]:
    """Who lives at the end."""
    return {life.name for life in outcome.run.lives.values() if life.end > outcome.run.seconds}


def why(outcome: RunOutcome) -> list[str]:
    return [f.detail for f in outcome.judgement.findings if f.guarantee == RUN]


def test_the_end_of_a_pause_by_role_leaves_the_newer_pause_of_that_member() -> None:
    outcome = run(
        "at: 1s, do: pause, member: coordinator, for: 2s, name: first",
        "at: 2s, do: pause, member: n0, for: 3s, name: second",
    )
    assert faults_of(outcome, "first")[-1] == (2.0, "pause", "off")
    assert faults_of(outcome, "second") == [(2.0, "pause", "on"), (5.0, "pause", "off")]


def test_the_end_of_a_crash_by_role_does_nothing_to_a_member_that_is_back() -> None:
    outcome = run(
        "at: 1s, do: crash, member: coordinator, for: 6s, name: first",
        "at: 2s, do: restart, member: n0",
    )
    assert outcome.run.bites["first"] == 1
    assert sum(life.name == "n0" for life in outcome.run.lives.values()) == 2


def test_a_restart_at_random_starts_one_that_is_dead() -> None:
    outcome = run(
        "at: 1s, do: crash, member: coordinator", "at: 3s, do: restart, member: random, name: back"
    )
    assert living(outcome) == {"n0", "n1", "n2"}


def test_a_step_by_a_role_that_nobody_has_did_not_bite() -> None:
    outcome = run(
        "at: 2s, do: crash, member: n1",
        "at: 15s, do: crash, member: random-participant, for: 1s, name: ghost",
        cluster="{members: 2, stack: udp, timing: fast}",
        load="{do: multicast, from: n0, count: 100, rate: 5/s}",
    )
    assert outcome.verdict is Verdict.UNKNOWN
    assert why(outcome) == ["fault ghost (crash) did not bite: 0 times"]


@pytest.mark.parametrize("end", ["leave", "crash"])
def test_what_a_paused_member_had_sent_is_not_sent_again_when_it_is_back(end: str) -> None:
    outcome = run(
        "at: 3s, do: pause, member: n1, for: 2s",
        f"at: 4s, do: {end}, member: n1, for: 6s",
        load="{do: multicast, from: n1, count: 100, rate: 100/s}",
    )
    offered = [
        outgoing.offered.hi
        for outgoing in outcome.run.evidence.application.outgoing.values()
        if outgoing.offered is not None and outgoing.sender.name.startswith("n1")
    ]
    assert sum(offered) == 100


@pytest.mark.parametrize("do", ["unicast, to: n1", "multicast"])
@pytest.mark.parametrize("ends", ["crash, member: n0, for: 1s", "leave, member: n0, for: 6s"])
def test_each_of_two_loads_of_a_pair_goes_on_by_itself_after_a_restart(do: str, ends: str) -> None:
    """When the member ends, it has sent 60 messages of one load, and 15 of the other."""
    outcome = run(
        f"at: 3s, do: {ends}",
        load=f"{{do: {do}, from: n0, count: 100, rate: 20/s}}\n"
        f"  - {{do: {do}, from: n0, count: 100, rate: 5/s, flags: OOB}}",
    )
    offered = Counter[int]()
    for outgoing in outcome.run.evidence.application.outgoing.values():
        for event in outgoing.events:
            if event.kind == SENT:
                offered[event.flags & OOB] += event.count
    assert offered == {0: 100, OOB: 100}


@pytest.mark.parametrize(("every", "length", "turns"), [("700ms", "4200ms", 6), ("1s", "4s", 4)])
def test_whoever_goes_in_a_churn_is_back_at_its_end(every: str, length: str, turns: int) -> None:
    """Also where the quotient of both times is no exact number."""
    outcome = run(f"at: 1s, do: churn, members: [n1, n2], every: {every}, for: {length}")
    assert outcome.run.bites["f1"] == turns
    assert living(outcome) == {"n0", "n1", "n2"}


def test_a_second_leave_of_a_member_that_leaves_does_nothing() -> None:
    outcome = run(
        "at: 2s, do: leave, member: n1, for: 3s, name: one",
        "at: 2s, do: leave, member: n1, name: two",
    )
    assert (outcome.run.bites["one"], outcome.run.bites["two"]) == (2, 0)
    assert "n1" in living(outcome)


LATE = "{members: 3, stack: udp, timing: fast, late: [n2]}"


@pytest.mark.parametrize(
    "step",
    [
        "do: crash, member: n2",
        "do: leave, member: n2",
        "do: forget, member: n1, peer: n2",
        "do: close, member: n1, peer: n2",
        "do: forget, member: n1, peer: n0",
        "do: install-view, member: n2, members: [n0, n1, n2]",
    ],
)
def test_what_strikes_nobody_did_not_bite_and_excuses_nothing(step: str) -> None:
    """n2 has not come, and between n0 and n1 there is no connection. Else an alarm of anybody, at
    any time from then on, would have a cause."""
    outcome = run(f"at: 2s, {step}, name: nobody", cluster=LATE)
    assert faults_of(outcome, "nobody") == []
    assert disturbed_at(outcome.run.evidence) == inf
    assert why(outcome)[0].startswith("fault nobody ")
    assert why(outcome)[0].endswith(" did not bite: 0 times")


@pytest.mark.parametrize("first", ["crash", "leave"])
@pytest.mark.parametrize("second", ["crash", "leave"])
def test_a_second_end_of_a_member_strikes_nobody(first: str, second: str) -> None:
    outcome = run(
        f"at: 2s, do: {first}, member: n1, for: 15s",
        f"at: 8s, do: {second}, member: n1, for: 1s, name: second",
    )
    assert faults_of(outcome, "second") == []
    assert outcome.run.bites["second"] == 0
    assert "n1" in living(outcome)


def test_a_connection_that_is_forgotten_is_a_cause() -> None:
    outcome = run(
        "at: 2s, do: forget, member: n0, peer: n1",
        load="{do: unicast, from: n0, to: n1, count: 100, rate: 25/s}",
    )
    assert [phase for _at, _do, phase in faults_of(outcome, "f1")] == ["on"]
    assert disturbed_at(outcome.run.evidence) - outcome.run.evidence.begin == 2.0


def test_who_is_to_be_back_before_it_has_left_is_back_as_soon_as_it_has() -> None:
    """It leaves for longer than the half second after which it is to be back, and nothing else is
    due for a long time then."""
    outcome = run(
        "at: 1s, do: stall, member: n0, for: 3s",
        "at: 2s, do: leave, member: n1, for: 500ms, name: out",
        "at: 30s, do: stall, member: n0, for: 1s",
    )
    ((_left, _leave, _on), (back, do, _phase), *_rest) = faults_of(outcome, "out")
    assert do == "join"
    assert 4.0 < back < 5.0


def test_a_stall_that_was_never_begun_did_not_bite() -> None:
    """The member was paused, and killed before it went on."""
    outcome = run(
        "at: 1s, do: pause, member: n1, for: 10s",
        "at: 2s, do: stall, member: n1, for: 5s, name: stalled",
        "at: 3s, do: crash, member: n1, for: 1s",
    )
    assert outcome.run.bites["stalled"] == 0


def test_a_stall_of_a_member_that_leaves_counts() -> None:
    """It waits for what it did not take itself, and goes when nothing moved for 4 s."""
    outcome = run(
        "at: 1s, do: stall, member: n1, for: 9s, name: stalled", "at: 3s, do: leave, member: n1"
    )
    assert outcome.run.bites["stalled"] == 1


def test_a_stall_that_ends_while_a_member_leaves_counts_what_waited() -> None:
    outcome = run(
        "at: 1s, do: stall, member: n1, for: 4s, name: stalled", "at: 3s, do: leave, member: n1"
    )
    assert outcome.run.bites["stalled"] > 1


@pytest.mark.parametrize("heal", ["do: heal, name: flap", "do: heal"])
def test_a_fault_that_comes_and_goes_comes_no_more_when_it_is_healed(heal: str) -> None:
    outcome = run(
        "at: 1s, do: cut, from: n0, to: n1, every: 2s, up: 1s, for: 12s, name: flap",
        f"at: 2500ms, {heal}",
    )
    assert [at for at, _do, phase in faults_of(outcome, "flap") if phase == "on"] == [1.0]


def test_what_a_replay_kept_in_one_period_is_not_sent_in_the_next() -> None:
    """The message is sent in the first period, and would come again in the second."""
    outcome = run(
        "at: 1s, do: replay, kind: DATA, after: 1600ms, every: 2s, up: 1s, for: 8s, name: again",
        load="{do: unicast, from: n0, to: n1, count: 1, rate: 1/s, start: 1500ms}",
        cluster="{members: 2, timing: fast, unicast: UNICAST3}",
    )
    assert outcome.run.bites["again"] == 0


def test_nothing_is_released_that_is_not_held() -> None:
    with pytest.raises(ConfigError, match="it holds no frames"):
        run(
            "at: 1s, do: loss, rate: 50%, for: 4s, name: lossy",
            "at: 1s, do: rule, does: hold, match: {kind: DATA, from: n1}, for: 3s",
            "at: 2s, do: release, name: lossy",
        )


def test_frames_that_a_rule_takes_and_that_are_late_all_the_same_count_as_late() -> None:
    outcome = run(
        "at: 1s, do: rule, does: duplicate, match: {kind: DATA}, for: 3s, name: twice",
        "at: 1s, do: delay, delay: 20ms, for: 3s, name: slow",
        cluster="{members: 2, unicast: UNICAST3}",
        load="{do: unicast, from: n0, to: n1, count: 20, rate: 10/s, start: 1500ms}",
    )
    assert outcome.run.bites["twice"] > 0
    assert outcome.run.bites["slow"] >= outcome.run.bites["twice"]


def test_an_expectation_of_what_nobody_sent_proves_nothing() -> None:
    outcome = run(
        "at: 1s, do: crash, member: n2",
        load="{do: unicast, from: n0, to: n2, count: 20, rate: 10/s, start: 5s}",
        expect="by: 20s, delivered: all",
    )
    assert outcome.verdict is Verdict.UNKNOWN
    details = [f.detail for f in outcome.judgement.findings if f.verdict is Verdict.UNKNOWN]
    assert "nobody sent what was expected by t=20" in details


def test_a_load_to_a_member_that_never_comes_is_told() -> None:
    outcome = run(
        "at: 1s, do: loss, rate: 10%, for: 1s",
        cluster="{members: 3, stack: udp, timing: fast, late: [n2]}",
        load="{do: unicast, from: n0, to: [n1, n2], count: 20, rate: 10/s}",
    )
    assert "less was offered than the workload says" in why(outcome)
