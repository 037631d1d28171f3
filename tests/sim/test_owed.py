"""What a run owed is said; where nothing was owed, `delivered: all` proves nothing."""

from __future__ import annotations

import pytest

from stormcast.chaos.commands.run import report
from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.oracles.verdict import RUN, Verdict
from stormcast.chaos.session.outcome import RunOutcome
from stormcast.chaos.session.runner import run_scenario
from stormcast.node.member.workload import Job

HEAD = """
name: owed
about: Ninety multicasts.
guarantees: [G1]
"""
IMPATIENT = """{members: 3, stack: udp, timing: fast, protocols: {
  FD_ALL3: {timeout: 500ms, interval: 100ms}, VERIFY_SUSPECT2: {timeout: 200ms}}}"""
TAIL = """
workload:
  - {do: multicast, from: n0, count: 90, rate: 100/s, size: 100B, start: 2s}
expect:
  - {by: 25s, delivered: all}
limits: {run: 30s}
"""


def run(cluster: str, timeline: str = "") -> RunOutcome:
    return run_scenario(parse_scenario(f"{HEAD}cluster: {cluster}\n{timeline}{TAIL}"), 1)


def test_a_run_says_what_was_owed_and_what_of_it_arrived() -> None:
    outcome = run("{members: 3, stack: udp, timing: fast}")
    assert outcome.verdict is Verdict.HOLDS
    assert str(outcome.judgement.owed) == "270 of 270 delivered (90 multicasts to 3 members)"


@pytest.mark.parametrize(
    ("cluster", "timeline", "why"),
    [
        (
            "{members: 3, stack: udp, timing: fast, late: [n1, n2]}",
            "timeline:\n  - {at: 5s, do: join, member: n1}\n  - {at: 5s, do: join, member: n2}\n",
            "90 multicasts of n0 from t=2 on were sent while it was alone",
        ),
        (
            IMPATIENT,
            "timeline:\n  - {at: 600ms, do: partition, groups: [[n0, n1], [n2]], for: 5s}\n",
            "90 multicasts of n0 from t=2 on were never for n2, who were not in its views",
        ),
    ],
)
def test_a_load_that_was_never_for_those_it_was_meant_for_proves_nothing(
    cluster: str, timeline: str, why: str
) -> None:
    outcome = run(cluster, timeline)
    assert outcome.verdict is Verdict.UNKNOWN
    found = [f.detail for f in outcome.judgement.findings if f.guarantee == RUN]
    assert found[0] == why
    assert all("traffic is below the floor" in more for more in found[1:])


def test_such_a_load_is_named_where_nothing_expects_it_to_be_delivered_too() -> None:
    text = f"""{HEAD}
cluster: {IMPATIENT}
workload:
  - {{do: multicast, from: n0, count: 90, rate: 100/s, size: 100B, start: 2s}}
  - {{do: multicast, from: n2, count: 90, rate: 100/s, size: 100B, start: 20s}}
timeline:
  - {{at: 500ms, do: partition, groups: [[n0], [n1, n2]], for: 5s}}
limits: {{run: 30s}}
"""
    # With bites asked for, the floor of traffic makes it `unknown` anyway.
    outcome = run_scenario(parse_scenario(text), 1, min_bites=0)
    assert outcome.verdict is Verdict.HOLDS
    line = "90 multicasts of n0 from t=2 on were sent while it was alone"
    assert outcome.unowed() == (line,)
    assert outcome.as_json()["unowed"] == [line]
    assert line in report(outcome).splitlines()


@pytest.mark.parametrize(
    ("restarted", "why"),
    [
        ("n2", "90 multicasts of n2 from t=15 on were sent while it was alone"),
        ("n1", "90 multicasts of n2 from t=15 on were never for n1, who were not in its views"),
    ],
)
def test_a_restart_hides_no_load_that_was_never_for_somebody(restarted: str, why: str) -> None:
    """Each incarnation of a member is named by its label then, and the scenario knows one name."""
    rest = [name for name in ("n0", "n1", "n2") if name != restarted]
    text = f"""{HEAD}
cluster: {{members: 3, stack: udp, timing: fast}}
workload:
  - {{do: multicast, from: all, count: 5, rate: 20/s, size: 100B}}
  - {{do: multicast, from: n2, count: 90, rate: 100/s, size: 100B, start: 15s}}
timeline:
  - {{at: 1s, do: partition, groups: [[{restarted}], [{", ".join(rest)}]], for: 40s}}
  - {{at: 3s, do: restart, member: {restarted}}}
expect:
  - {{by: 60s, delivered: all}}
limits: {{run: 70s}}
"""
    outcome = run_scenario(parse_scenario(text), 1)
    assert why in [f.detail for f in outcome.judgement.findings if f.guarantee == RUN]


def test_a_load_is_what_was_sent_of_it_whenever_that_was() -> None:
    """Who comes late sends what was due at once; of its other load, everybody gets everything."""
    text = f"""{HEAD}
cluster: {{members: 4, stack: udp, timing: fast, late: [n2]}}
workload:
  - {{do: multicast, from: [n0, n2], count: 20, rate: 10/s, size: 100B}}
  - {{do: multicast, from: [n2], count: 20, rate: 10/s, size: 100B, start: 50s}}
timeline:
  - {{at: 10s, do: partition, groups: [[n2], [n0, n1, n3]], for: 20s}}
  - {{at: 10s, do: join, member: n2}}
expect:
  - {{by: 80s, delivered: all}}
limits: {{run: 90s}}
"""
    outcome = run_scenario(parse_scenario(text), 1)
    line = "20 multicasts of n2 from t=0 on were sent while it was alone"
    assert line in [f.detail for f in outcome.judgement.findings if f.guarantee == RUN]


def test_a_load_that_came_late_and_reached_nobody_is_below_the_floor() -> None:
    text = f"""{HEAD}
cluster: {{members: 3, stack: udp, timing: fast, late: [n2]}}
workload:
  - {{do: multicast, from: [n2], count: 20, rate: 10/s, size: 100B}}
timeline:
  - {{at: 10s, do: partition, groups: [[n2], [n0, n1]], for: 20s}}
  - {{at: 10s, do: join, member: n2}}
limits: {{run: 60s}}
"""
    found = run_scenario(parse_scenario(text), 1).judgement.findings
    below = [f for f in found if "traffic is below the floor" in f.detail]
    assert [f.witness for f in below] == [("n2 to n0", "n2 to n1")]


# -- Loads to one member ---------------------------------------------------------------------------


def unicasts(timeline: str, load: str = "count: 300, rate: 10/s", stack: str = "udp") -> RunOutcome:
    """A load from n0 to n1 alone, in a group of three."""
    text = f"""
name: unicasts
about: Three hundred unicasts.
guarantees: [G1, G8]
cluster:
  members: 3
  stack: {stack}
  timing: fast
  protocols: {{FRAG: {{frag_size: 1KB, max_message_size: 10KB, max_open_bytes: 40KB}}}}
workload:
  - {{do: unicast, from: n0, to: n1, {load}}}
{timeline}
expect:
  - {{by: 55s, delivered: all}}
"""
    return run_scenario(parse_scenario(text), 1)


@pytest.mark.parametrize("stack", ["udp", "mcast", "tcp"])
@pytest.mark.parametrize(
    "step", ["do: partition, groups: [[n0, n2], [n1]]", "do: leave, member: n1"]
)
def test_a_member_that_comes_back_gets_the_rest_of_a_load(step: str, stack: str) -> None:
    """Also where it is the only one that the load is for. What was under way as they parted need
    not arrive."""
    outcome = unicasts(f"timeline:\n  - {{at: 2s, {step}, for: 4s}}", stack=stack)
    assert outcome.verdict is Verdict.HOLDS
    assert sum(outcome.run.sent_by_pair.values()) > 250


def test_a_source_that_leaves_by_two_steps_has_the_rest_to_send_once() -> None:
    """What it had sent must not be counted twice."""
    leaves = "".join(f"\n  - {{at: {at}s, do: leave, member: n0, for: 1s}}" for at in (5, 5))
    outcome = unicasts(f"timeline:{leaves}")
    doubts = [f.detail for f in outcome.judgement.findings if f.verdict is not Verdict.HOLDS]
    assert doubts == ["fault f2 (leave) did not bite: 0 times"]
    assert sum(outcome.run.sent_by_pair.values()) > 250


def test_whatever_ends_a_load_early_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member takes its load for done as soon as nobody is there who is to get more of it."""
    monkeypatch.setattr(
        Job, "waits_for", lambda job, sending: sending.short >= 0 and not job.is_done(sending)
    )
    outcome = unicasts("timeline:\n  - {at: 2s, do: leave, member: n1, for: 4s}")
    assert outcome.verdict is Verdict.UNKNOWN
    told = {f.detail: f.witness for f in outcome.judgement.findings if f.guarantee == RUN}
    (short,) = told["less was offered than the workload says"]
    assert "of 300 messages to n1" in str(short)


def test_a_load_that_ends_by_an_error_is_told() -> None:
    outcome = unicasts("", "count: 100, rate: 10/s, size: 100B..20KB")
    assert outcome.verdict is Verdict.UNKNOWN
    told = {f.detail: f.witness for f in outcome.judgement.findings if f.guarantee == RUN}
    (why,) = told["a load ended by an error, before all of it was offered"]
    assert "the limit is 10000" in str(why)


def test_what_is_left_of_a_load_that_does_not_end_is_told() -> None:
    """n1 lives, and is in nobody's view any more."""
    outcome = unicasts("timeline:\n  - {at: 2s, do: partition, groups: [[n0, n2], [n1]], for: 57s}")
    assert outcome.verdict is Verdict.UNKNOWN
    told = [f for f in outcome.judgement.findings if f.guarantee == RUN]
    assert "n0 has" in str(told[0].witness[0])
    assert "messages left for n1, which is not in its view" in str(told[0].witness[0])


def test_a_view_is_not_handed_to_a_member_that_nobody_has_heard_yet() -> None:
    steps = "".join(
        f"\n  - {{at: 2s, {step}}}"
        for step in (
            "do: restart, member: n0",
            "do: pause, member: n0, for: 1s",
            "do: install-view, member: all, members: all",
        )
    )
    assert not unicasts(f"timeline:{steps}", "count: 10, rate: 10/s").run.broke_off


@pytest.mark.parametrize("comes_back", ["", ", for: 1s"])
def test_without_a_group_nothing_is_expected_of_what_was_under_way_at_a_crash(
    comes_back: str,
) -> None:
    """Both to the member that crashes, and from it; and what is sent to it before anybody knows."""
    text = (
        "name: crash\nguarantees: [G1, G8]\ncluster: {members: 3, timing: fast}\n"
        "network: {delay: 100ms}\n"
        "workload:\n  - {do: unicast, from: all, to: others, count: 100, rate: 50/s}\n"
        f"timeline:\n  - {{at: 1s, do: crash, member: n1{comes_back}}}\n"
        "expect:\n  - {by: 20s, delivered: all}\n"
    )
    # With bites asked for, the floor of traffic makes it `unknown` anyway.
    outcome = run_scenario(parse_scenario(text), 1, min_bites=0)
    found = {f.guarantee: f.verdict for f in outcome.judgement.findings}
    assert found["G8"] is Verdict.HOLDS
    # Between the others everything is expected as before.
    assert outcome.run.sent_by_pair["n0", "n2"] == 100
    assert 0 < outcome.run.sent_by_pair["n0", "n1"] <= 100


@pytest.mark.parametrize("cut", ["from: n0, to: [n1, n2]", "from: [n0, n2], to: n1"])
def test_what_was_excused_at_a_parting_stands_in_for_nothing(cut: str) -> None:
    """One side excludes the other, whose connection lives on: what was under way comes after all.
    Of the second load a tenth is late."""
    text = f"""
name: one-sided
guarantees: [G1, G8]
cluster: {{members: 3, stack: udp, timing: fast}}
network: {{delay: 1ms}}
workload:
  - {{do: unicast, from: n0, to: n1, count: 1500, rate: 100/s, size: 100B}}
  - {{do: unicast, from: n0, to: n1, count: 300, rate: 100/s, size: 100B, start: 60s}}
timeline:
  - {{at: 2s, do: cut, {cut}, for: 6s}}
  - {{at: 62700ms, do: delay, from: n0, to: n1, delay: 3s, for: 6s}}
expect:
  - {{by: 63500ms, delivered: {{from: n0, to: n1}}}}
limits: {{run: 120s}}
"""
    outcome = run_scenario(parse_scenario(text), 1, min_bites=0)
    assert outcome.judgement.of("G8").verdict is Verdict.VIOLATED
    # All that was excused arrived.
    owed = outcome.run.sent_by_pair["n0", "n1"]
    assert owed < outcome.run.reached["n0", "n1"][-1][1] == 1800
