"""Scenario files: what they mean, and that every mistake is refused at its line."""

from dataclasses import replace
from pathlib import Path

import pytest

from stormcast.chaos import faults
from stormcast.chaos.faults import Link
from stormcast.chaos.language.scenario import (
    GUARANTEES,
    Budget,
    Cluster,
    Expect,
    ExpectView,
    Limits,
    Scenario,
    ScenarioLoad,
    Step,
    dump,
    load_scenario,
    parse_scenario,
)
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.match import Match
from stormcast.node.reading.parsing import MAX_BYTES
from stormcast.node.reading.yaml_nodes import MAX_DEPTH

ALL = ("n0", "n1", "n2")

FULL = """\
name: split-and-lossy
about: "n0 is alone; then: loss."
guarantees: [G1, G8]
needs: [partition]
cluster:
  members: 3
  unicast: UNICAST4
  timing: fast
  settings: {xmit_interval: 500ms, window_messages: 100, window_bytes: 4MiB, sync: spaced}
  historical: {conn_ids: none, repair_ends: false}
  max_batch: 1
  outbox_bytes: 2KiB
  unicast_first_conn: 4294967295
network: {delay: 2ms, jitter: 1ms, loss: 0.5%, bandwidth: 8Mbit/s, reorder: 1%, reorder_by: 5ms}
workload:
  - {do: unicast, from: n0, to: [n1, n2], count: 500, rate: 100/s, size: 10B..2KiB, start: 1s}
  - {do: unicast, from: all, to: others, flags: [OOB, DONT_BUNDLE], burst: 5, oob_every: 10}
timeline:
  - {at: 5s, do: partition, groups: [[n0], [n1, n2]], for: 10s, name: split}
  - {at: 16s, do: loss, from: n0, to: all, rate: 5%}
  - {at: 20s, do: heal}
expect:
  - {by: 40s, delivered: all}
  - {by: 45s, delivered: {from: n0, to: n1, count: 1500}}
budget: {acks: 10%, resends: 150%, syncs: 1, requests: 20}
limits: {run: 1min, settle: 30s, trace: 1MiB}
"""

SMALL = """\
name: small
guarantees: [G1]
cluster: {members: 3}
"""
"""Three lines: what a test adds begins on line 4."""


def parse(extra: str = "") -> Scenario:
    return parse_scenario(SMALL + extra, "small.yaml")


def step(words: str) -> Step:
    """The one step of a timeline; line 5 of the file."""
    return parse(f"timeline:\n  - {{at: 5s, {words}}}\n").timeline[0]


def action(words: str) -> faults.Action:
    return step(words).action


def error(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse_scenario(text, "bad.yaml")
    return caught.value


def refused_at_mark(marked: str, message: str) -> None:
    """The text is refused where « stands in it."""
    before, after = marked.split("«")
    found = error(before + after)
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    assert message in found.message
    assert found.place == ("bad.yaml", line, column)
    assert str(found) == f"bad.yaml:{line}:{column}: {found.message}"


# -- What a file means ------------------------------------------------------------------------


def test_a_file_becomes_one_frozen_record_with_every_unit_resolved() -> None:
    assert parse_scenario(FULL, "full.yaml") == Scenario(
        name="split-and-lossy",
        about="n0 is alone; then: loss.",
        guarantees=("G1", "G8"),
        needs=("partition",),
        cluster=Cluster(
            members=ALL,
            unicast="UNICAST4",
            timing="fast",
            settings=(
                ("xmit_interval", 0.5),
                ("window_messages", 100),
                ("window_bytes", 4 << 20),
                ("sync", "spaced"),
            ),
            historical=(("conn_ids", "none"), ("repair_ends", False)),
            max_batch=1,
            outbox_bytes=2048,
            unicast_first_conn=4294967295,
        ),
        network=Link(
            delay=0.002,
            jitter=0.001,
            loss=0.005,
            bandwidth=1_000_000.0,
            reorder=0.01,
            reorder_by=0.005,
        ),
        workload=(
            ScenarioLoad(
                sources=("n0",),
                dests=("n1", "n2"),
                count=500,
                rate=100.0,
                size=(10, 2048),
                start=1.0,
            ),
            ScenarioLoad(
                sources=ALL,
                dests=ALL,
                excludes_self=True,
                flags=("OOB", "DONT_BUNDLE"),
                burst=5,
                oob_every=10,
            ),
        ),
        timeline=(
            Step(
                at=5.0,
                action=faults.Partition(groups=(("n0",), ("n1", "n2"))),
                name="split",
                duration=10.0,
            ),
            Step(at=16.0, action=faults.Loss(sources=("n0",), dests=ALL, rate=0.05)),
            Step(at=20.0, action=faults.Heal()),
        ),
        expect=(
            Expect(by=40.0, sources=ALL, dests=ALL),
            Expect(by=45.0, sources=("n0",), dests=("n1",), count=1500),
        ),
        budget=Budget(acks=0.1, resends=1.5, syncs=1, requests=20),
        limits=Limits(run=60.0, settle=30.0, trace=1 << 20),
    )


def test_steps_know_their_line_and_the_scenario_its_text() -> None:
    scenario = parse_scenario(FULL, "full.yaml")
    assert [one.line for one in scenario.timeline] == [19, 20, 21]
    assert (scenario.path, scenario.text) == ("full.yaml", FULL)


def test_what_is_not_said_has_its_default() -> None:
    scenario = parse()
    assert scenario == Scenario(name="small", guarantees=("G1",), cluster=Cluster(members=ALL))
    assert scenario.network == Link(delay=0.001)
    assert scenario.limits == Limits(run=60.0, settle=20.0, trace=200 << 20)


def test_members_may_be_named() -> None:
    text = "name: x\nguarantees: [G1]\ncluster: {members: [alice, bob-2]}\n"
    assert parse_scenario(text).cluster.members == ("alice", "bob-2")


def test_a_multicast_load_goes_to_all_and_is_a_need() -> None:
    scenario = parse("workload:\n  - {do: multicast, from: n0, count: 7}\n")
    assert scenario.needs == ("multicast",)
    load = scenario.workload[0]
    assert load == ScenarioLoad(
        do="multicast", sources=("n0",), dests=ALL, excludes_self=False, count=7
    )


def test_others_leaves_out_the_sender_and_named_dests_do_not() -> None:
    def pairs(to: str) -> list[tuple[str, str]]:
        load = parse(f"workload:\n  - {{do: unicast, from: n0, to: {to}}}\n").workload[0]
        return list(load.pairs())

    assert pairs("others") == [("n0", "n1"), ("n0", "n2")]
    assert pairs("all") == [("n0", "n0"), ("n0", "n1"), ("n0", "n2")]
    assert pairs("n0") == [("n0", "n0")]
    assert pairs("[n2, n1]") == [("n0", "n2"), ("n0", "n1")]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "do: partition, groups: [[n0], [n1, n2]]",
            faults.Partition(groups=(("n0",), ("n1", "n2"))),
        ),
        ("do: partition, groups: random", faults.Partition(groups=())),
        ("do: cut, from: n0, to: n1", faults.Cut(sources=("n0",), dests=("n1",))),
        ("do: cut", faults.Cut(sources=ALL, dests=ALL)),
        ("do: loss, rate: 5%", faults.Loss(sources=ALL, dests=ALL, rate=0.05)),
        (
            "do: delay, to: [n1, n2], delay: 20ms, jitter: 5ms",
            faults.Delay(sources=ALL, dests=("n1", "n2"), delay=0.02, jitter=0.005),
        ),
        ("do: duplicate, rate: 1%", faults.Duplicate(sources=ALL, dests=ALL, rate=0.01)),
        (
            "do: reorder, rate: 1%, by: 10ms",
            faults.Reorder(sources=ALL, dests=ALL, rate=0.01, by=0.01),
        ),
        ("do: corrupt, rate: 100%", faults.Corrupt(sources=ALL, dests=ALL, rate=1.0)),
        (
            "do: bandwidth, rate: 1MiB/s",
            faults.Bandwidth(sources=ALL, dests=ALL, rate=float(1 << 20)),
        ),
        ("do: rule, does: drop", faults.Rule(does="drop")),
        (
            "do: rule, does: delay, delay: 1s, times: 3, match: {protocol: UNICAST3}",
            faults.Rule(does="delay", delay=1.0, times=3, match=Match(protocols=("UNICAST3",))),
        ),
        (
            "do: rule, does: duplicate, copies: 2, match: {kind: [DATA, ACK], flags: [FIRST, OOB]}",
            faults.Rule(
                does="duplicate",
                copies=2,
                match=Match(kinds=("DATA", "ACK"), flags=("FIRST", "OOB")),
            ),
        ),
        (
            "do: rule, does: hold, match: {from: n1, to: n0, seqno: 5..9, occurrence: 1, "
            "transmission: 0..2, connection: 2}",
            faults.Rule(
                does="hold",
                match=Match(
                    sources=("n1",),
                    dests=("n0",),
                    seqno=(5, 9),
                    occurrence=(1, 1),
                    transmission=(0, 2),
                    connection=2,
                ),
            ),
        ),
        ("do: crash, member: random", faults.Crash(member="random")),
        ("do: pause, member: n1", faults.Pause(member="n1")),
        ("do: restart, member: n1", faults.Restart(member="n1")),
        ("do: forget, member: n0, peer: n1", faults.Forget(member="n0", peer="n1")),
        (
            "do: forget, member: n0, peer: n1, half: receiver",
            faults.Forget(member="n0", peer="n1", half="receiver"),
        ),
        ("do: close, member: n0, peer: n1", faults.Close(member="n0", peer="n1")),
        (
            "do: install-view, member: n0, members: [n1, n0]",
            faults.InstallView(at_members=("n0",), members=("n1", "n0")),
        ),
        (
            "do: install-view, member: all, members: all",
            faults.InstallView(at_members=ALL, members=ALL),
        ),
        (
            "do: set-attribute, member: n0, attribute: xmit_interval, value: 100ms",
            faults.SetAttribute(member="n0", attribute="xmit_interval", value=0.1),
        ),
        (
            "do: set-attribute, member: n0, attribute: ack_threshold, value: 10",
            faults.SetAttribute(member="n0", attribute="ack_threshold", value=10),
        ),
        ("do: stall, member: n2", faults.Stall(member="n2")),
        ("do: partition, groups: isolate-random", faults.Partition(shape="isolate-random")),
        (
            "do: gilbert-elliott, to: n1, p_bad: 1%, p_good: 20%, loss_bad: 80%, loss_good: 1%",
            faults.GilbertElliott(
                sources=ALL, dests=("n1",), p_bad=0.01, p_good=0.2, loss_bad=0.8, loss_good=0.01
            ),
        ),
        (
            "do: nth-loss, nth: 10, burst: 3",
            faults.NthLoss(sources=ALL, dests=ALL, nth=10, burst=3),
        ),
        ("do: leave, member: coordinator", faults.Leave(member="coordinator")),
        (
            "do: crash, member: random-participant",
            faults.Crash(member="random-participant"),
        ),
        (
            "do: churn, members: [n1, n2], every: 2s, for: 9s",
            faults.Churn(members=("n1", "n2"), every=2.0),
        ),
        (
            "do: set-attribute, member: n0, attribute: NAKACK2.xmit_interval, value: 0s",
            faults.SetAttribute(member="n0", attribute="NAKACK2.xmit_interval", value=0.0),
        ),
    ],
)
def test_every_action_is_read(words: str, expected: faults.Action) -> None:
    assert action(words) == expected


GROUPED = """\
name: grouped
guarantees: [V1, V4, G8]
cluster:
  members: 4
  stack: udp
  protocols: {GMS: {join_timeout: 1s}, MFC: {min_threshold: 40%}}
  multicast_settings: {xmit_interval: 0s, max_xmit_req_size: 10}
  late: [n2, n3]
  joins: one-by-one
timeline:
  - {at: 1s, do: join, member: n3}
  - {at: 5s, do: partition, groups: bridge, every: 4s, up: 1s, for: 10s}
  - {at: 20s, do: leave, member: random-participant, for: 5s}
  - {at: 26s, do: churn, every: 1s, for: 5s}
expect:
  - {by: 40s, seen_by: [n0, n1], view: [n0, n1, n3]}
  - {by: 50s, seen_by: all, view: all}
"""


def test_a_group_s_file_becomes_one_record_too_and_reads_back() -> None:
    scenario = parse_scenario(GROUPED)
    names = ("n0", "n1", "n2", "n3")
    assert scenario.cluster == Cluster(
        members=names,
        stack="udp",
        protocols=(("GMS", (("join_timeout", 1.0),)), ("MFC", (("min_threshold", 0.4),))),
        multicast_settings=(("xmit_interval", 0.0), ("max_xmit_req_size", 10)),
        late=("n2", "n3"),
        joins="one-by-one",
    )
    assert scenario.timeline[1] == Step(
        at=5.0, action=faults.Partition(shape="bridge"), duration=10.0, every=4.0, up=1.0
    )
    assert scenario.expect == (
        ExpectView(by=40.0, seen_by=("n0", "n1"), view=("n0", "n1", "n3")),
        ExpectView(by=50.0, seen_by=names, view=names),
    )
    assert parse_scenario(dump(scenario)) == scenario


@pytest.mark.parametrize(
    ("marked", "message"),
    [
        ("cluster: {members: 3, late: «[n7]}\n", "late: 'n7' is no member; known: n0"),
        ("cluster: {members: 2, late: «[n0, n1]}\n", "nobody is there to be joined"),
        ("cluster: {members: 2, joins: «never}\n", "there is no such way to join"),
        ("cluster: {members: 2, protocols: {«gms: {}}}\n", "write the name of a protocol"),
        ("cluster: {members: [«coordinator]}\n", "no reserved word"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(marked: str, message: str) -> None:
    refused_at_mark("name: x\nguarantees: [G1]\n" + marked, message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("do: «join, member: n1", "the member is there already; list it under cluster.late"),
        ("do: partition, groups: «ring", "it takes 4 members or more"),
        ("do: partition, groups: «rings", "no such way to group; list the groups"),
        ("do: cut, every: «4s, up: 1s", "it needs the key 'for'"),
        ("do: cut, every: 4s, up: «4s, for: 9s", "it must be shorter than every"),
        ("do: nth-loss, nth: «1", "it must be 2.."),
        ("do: leave, member: «nobody", "no such member"),
    ],
)
def test_a_step_of_a_group_that_cannot_be_is_refused(words: str, message: str) -> None:
    refused_at_mark(SMALL + f"timeline:\n  - {{at: 5s, {words}}}\n", message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("do: churn, every: 1s", "churn needs the key 'for'"),
        ("do: cut, every: 4s, for: 9s", "every and up need each other"),
    ],
)
def test_a_step_that_says_half_of_it_is_refused(words: str, message: str) -> None:
    refused_at_mark(SMALL + f"timeline:\n  - «{{at: 5s, {words}}}\n", message)


def test_who_is_to_see_a_view_must_be_in_it() -> None:
    refused_at_mark(
        SMALL + "expect:\n  - {by: 5s, seen_by: all, view: «[n0, n1]}\n",
        "n2 is to see this view but is not in it (V2)",
    )


def test_cures_follow_what_they_end() -> None:
    timeline = parse(
        "timeline:\n"
        "  - {at: 1s, do: rule, does: hold, name: jam}\n"
        "  - {at: 1s, do: pause, member: n0}\n"
        "  - {at: 1s, do: stall, member: n1}\n"
        "  - {at: 2s, do: release, name: jam}\n"
        "  - {at: 2s, do: heal, name: jam}\n"
        "  - {at: 2s, do: resume, member: n0}\n"
        "  - {at: 2s, do: consume, member: n1}\n"
    ).timeline
    assert [one.action for one in timeline[3:]] == [
        faults.Release(name="jam"),
        faults.Heal(name="jam"),
        faults.Resume(member="n0"),
        faults.Consume(member="n1"),
    ]


SEALED = SMALL.replace("cluster: {", "cluster: {sealed: true, ")
STEPS = [f"  - {{at: {at}s, do: change-keys, step: {step}}}\n" for at, step in enumerate(
    ("add", "turn", "drop", "add", "turn"), 1)]  # fmt: skip  # one step after the other


def test_keys_change_in_turns() -> None:
    timeline = parse_scenario(SEALED + "timeline:\n" + "".join(reversed(STEPS))).timeline
    steps = {one.at: one.action.step for one in timeline}  # type: ignore[union-attr]
    assert [steps[at] for at in sorted(steps)] == ["add", "turn", "drop", "add", "turn"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SMALL + "timeline:\n  - {at: 1s, do: «change-keys, step: add}\n", "`sealed: true`"),
        (SEALED + "timeline:\n  - {at: 1s, do: change-keys, step: «turn}\n", "this is add"),
        (
            SEALED + "timeline:\n" + STEPS[0] + "  - {at: 2s, do: change-keys, step: «drop}\n",
            "this is turn",
        ),
    ],
)
def test_keys_that_cannot_change_so_are_refused(text: str, message: str) -> None:
    refused_at_mark(text, message)


def test_every_guarantee_of_the_design_is_known() -> None:
    assert len(GUARANTEES) == len(set(GUARANTEES)) == 17
    everything = SMALL.replace("[G1]", f"[{', '.join(GUARANTEES)}]")
    assert parse_scenario(everything).guarantees == GUARANTEES


def test_quoted_words_of_yaml_1_1_are_text() -> None:
    assert parse('about: "on"\n').about == "on"


def test_settings_that_a_program_gives_as_text_are_written_as_they_are() -> None:
    """As chaos-test gives them to stacks over TCP."""
    changed = faults.SetAttribute(member="n0", attribute="xmit_interval", value="1s")
    scenario = Scenario(
        name="x",
        guarantees=("G1",),
        cluster=Cluster(
            members=ALL,
            stack="tcp",
            settings=(("xmit_interval", "300ms"),),
            protocols=(("TCP", (("user_timeout", "45s"),)), ("MFC", (("min_threshold", "40%"),))),
        ),
        timeline=(Step(at=1.0, action=changed),),
    )
    read = parse_scenario(dump(scenario))
    assert read.cluster.settings == (("xmit_interval", 0.3),)
    assert dict(read.cluster.protocols) == {
        "TCP": (("user_timeout", 45.0),),
        "MFC": (("min_threshold", 0.4),),
    }
    assert read.timeline[0].action == replace(changed, value=1.0)


# -- What is refused, and where ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("«budgets: {syncs: 1}\n", "unknown key 'budgets'; did you mean budget?"),
        ("«zzz: 1\n", "unknown key 'zzz'; known: name, guarantees, cluster"),
        ("limits: {«runn: 1s}\n", "limits: unknown key 'runn'; did you mean run?"),
        ("limits: {run: 1s,\n  «run: 2s}\n", "duplicate key 'run', first on line 4; keep one"),
        ("«name: again\n", "duplicate key 'name', first on line 1; keep one"),
        ("timeline:\n  - «{do: heal}\n", "timeline: the key 'at' is missing; add it"),
        ("timeline:\n  - «{at: 1s}\n", "timeline: the key 'do' is missing; add it"),
        ("? «[a]\n: 1\n", "a key must be a word, this one is a list"),
        ("limits: {run: «60}\n", "run is '60': it has no unit; write a duration such as"),
        ("limits: {run: «60sec}\n", "run is '60sec': it has the unknown unit 'sec'"),
        ("limits: {run: «60B}\n", "run is '60B': it has the unknown unit 'B'"),
        ("limits: {trace: «200}\n", "trace is '200': it has no unit; write a size such as"),
        ("limits: {run: «[1s]}\n", "run is a list: write a duration such as 500ms"),
        ("network: {loss: «0.05}\n", "loss is '0.05': it has no unit; write a share"),
        ("network: {loss: «101%}\n", "loss is '101%': it is above the limit of 100%"),
        ("network: {bandwidth: «8Mbit}\n", "bandwidth is '8Mbit': it has the unknown unit"),
        ("network: {bandwidth: «0B/s}\n", "bandwidth is '0B/s': it would do nothing"),
        ("about: «on\n", "about is 'on': a bare on, off, yes or no is a boolean"),
        ("about: «Yes\n", "about is 'Yes': a bare on, off, yes or no is a boolean"),
        ("«on: 1s\n", "a bare on, off, yes or no is a boolean to YAML 1.1"),
        ("limits: {run: «1:30}\n", "run is '1:30': YAML 1.1 reads this as a number to base"),
        ("budget: {syncs: «010}\n", "syncs is '010': YAML 1.1 reads a leading 0 as octal"),
        ("budget: {syncs: «1_000}\n", "syncs is '1_000': write a whole number"),
        ("budget: {syncs: «0x10}\n", "syncs is '0x10': write a whole number"),
        ("budget: {syncs: «1e3}\n", "syncs is '1e3': write a whole number"),
        ("about: «2026-01-01\n", "YAML takes it for something else than text"),
        ("about:«\n", "YAML takes it for something else than text"),
        ("about: «true\n", "YAML takes it for something else than text"),
        ("«<<: {about: x}\n", "merge keys hide what a scenario says"),
        ("budget: {syncs: «-1}\n", "syncs is '-1': it must be 0..1000000000"),
        ('budget: {syncs: «"1"}\n', "syncs is '1': write a whole number, without unit or"),
        ("budget: «{}\n", "budget: it judges nothing"),
        ("budget: «3\n", "budget is '3': write a mapping"),
        ("expect: «all\n", "expect is 'all': write a list"),
        ("about: «[x]\n", "about is a list: write text"),
        ('about: «"\\ud800"\n', "it holds half a surrogate pair"),
        ("network: «{reorder: 1%}\n", "reorder and reorder_by need each other"),
        ("network: «{loss: 100%}\n", "loss of 100%: nothing would ever arrive; write less"),
        ("network: «{corrupt: 100%}\n", "corrupt of 100%: nothing would ever arrive"),
        ("network: «{bandwidth: 999B/s}\n", "below 1000B/s lets hardly anything arrive"),
        ("needs: [«teleport]\n", "needs is 'teleport': there is no such need"),
        ("needs: [stall, «stall]\n", "needs is 'stall': it is listed twice; keep one"),
        ("workload:\n  - {do: «unikast}\n", "there is no such load; did you mean unicast?"),
        ("workload:\n  - {do: unicast, to: «n9}\n", "to is 'n9': there is no such member"),
        ("workload:\n  - {do: unicast, from: «[]}\n", "it must name 1 or more of n0, n1"),
        ("workload:\n  - {do: multicast, «to: n0}\n", "workload: unknown key 'to'"),
        ("workload:\n  - {do: unicast, count: «0}\n", "count is '0': it must be 1.."),
        ("workload:\n  - {do: unicast, rate: «0/s}\n", "it would do nothing"),
        ("workload:\n  - {do: unicast, size: «2KiB..1KiB}\n", "it ends before it begins"),
        ("workload:\n  - {do: unicast, size: «1GiB}\n", "it must be within 0..16777216"),
        ("workload:\n  - {do: unicast, flags: [«FIRST]}\n", "no such message flag"),
        ("workload:\n  - «{do: unicast, count: 12001}\n", "beyond limits.run (60s)"),
        ("timeline:\n  - {at: «61s, do: cut}\n", "it reaches 61s, beyond limits.run (60s)"),
        ("timeline:\n  - {at: 59s, do: cut, for: «2s}\n", "it reaches 61s, beyond limits.run"),
        ("timeline:\n  - «{at: 1s, do: reorder, rate: 1%}\n", "the key 'by' is missing"),
        ("timeline:\n  - «{at: 1s, do: rule, does: delay}\n", "needs the key 'delay'"),
        (
            "timeline:\n  - {at: 1s, do: cut, name: x}\n  - {at: 2s, do: cut, name: «x}\n",
            "another fault has this name",
        ),
        (
            "timeline:\n  - {at: 1s, do: cut, name: west}\n  - {at: 2s, do: heal, name: «wets}\n",
            "no earlier fault has this name; did you mean west?",
        ),
        (
            "timeline:\n  - {at: 2s, do: cut, name: west}\n  - {at: 1s, do: heal, name: «west}\n",
            "no earlier fault has this name",
        ),
        (
            "timeline:\n  - {at: 1s, do: crash, member: n0, name: x}\n"
            "  - {at: 2s, do: heal, name: «x}\n",
            "it is no network fault",
        ),
        ("expect:\n  - {by: 5s, delivered: «all}\n", "no load sends anything there"),
        ("expect:\n  - {by: 5s, delivered: «most}\n", "there is no such expectation"),
        (
            "workload:\n  - {do: unicast}\nexpect:\n  - {by: «61s, delivered: all}\n",
            "it is beyond limits.run (60s)",
        ),
        (
            "workload:\n  - {do: unicast}\n"
            "expect:\n  - {by: 9s, delivered: «{from: n0, to: n1, count: 1001}}\n",
            "but the workload sends 1000",
        ),
        ("about: «&a x\n", "anchor &a is refused"),
        ("about: «*a\n", "alias *a is refused"),
        ("about: «!!str x\n", "tag 'tag:yaml.org,2002:str' is refused"),
        ("about: «!!python/object:os.system x\n", "tag "),
        ("about: [x\n«", "not YAML: while parsing a flow sequence"),
        ("«\tabout: x\n", "not YAML: "),
        ('about: "\\U«ffffffff"\n', "not YAML: "),
        ("about: «\x00\n", "character U+0000 is not allowed in YAML; remove it"),
        ("«---\nname: second\n", "a second document begins here"),
        (
            f"about: {'[' * (MAX_DEPTH - 1)}«[x]{']' * (MAX_DEPTH - 1)}\n",
            "nested deeper than 12 levels",
        ),
    ],
)
def test_a_mistake_is_refused_at_its_place(extra: str, message: str) -> None:
    refused_at_mark(SMALL + extra, message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("do: «hael", "no such fault or action; did you mean heal?"),
        ("do: cut, «rate: 5%", "timeline: unknown key 'rate'"),
        ("do: cut, for: «0s", "for is '0s': it would do nothing"),
        ("do: close, member: n0, peer: n1, «for: 1s", "'for'"),
        ("do: cut, name: «f1", "use small letters, digits and dashes, and not network, f1"),
        ("do: «heal", "there is no earlier fault of the network"),
        ("do: «release", "there is no earlier rule that holds"),
        ("do: «resume, member: n0", "is not paused before"),
        ("do: «consume, member: n0", "is not stalled before"),
        ("do: crash, member: «n3", "there is no such member"),
        ("do: resume, member: «random", "no such member"),
        ("do: «cut, from: n0, to: n0", "it is aimed at nobody"),
        ("do: loss, rate: «0%", "it would do nothing"),
        ("do: delay, delay: «0s", "it would do nothing"),
        ("do: partition, groups: [«all]", "write a list"),
        ("do: «partition, groups: [[n0, n1, n2]]", "at nobody"),
        ("do: partition, groups: «[]", "1 or more entries"),
        ("do: rule, does: «eat", "there is no such deed"),
        ("do: rule, does: drop, delay: «1s", "has no delay"),
        ("do: rule, does: drop, copies: «2", "has no copies"),
        ("do: rule, does: drop, match: {kind: «AKC}", "mean ACK?"),
        ("do: rule, does: drop, match: {protocol: «X}", "there is no such protocol"),
        ("do: rule, does: drop, match: {seqno: «9..5}", "ends before"),
        ("do: rule, does: drop, match: {seqno: «1..2..3}", "a range"),
        ("do: rule, does: drop, match: {occurrence: «0}", "it must be 1 or more"),
        ("do: rule, does: drop, match: {transmission: «256}", "255"),
        ("do: close, member: n0, peer: «n0", "to itself"),
        ("do: install-view, member: n0, members: «[n1]", "n0 gets this view but is not in it"),
        (
            "do: set-attribute, member: n0, attribute: xmit_interval, value: «1",
            "value is '1': it has no unit",
        ),
    ],
)
def test_a_wrong_step_is_refused_at_its_place(words: str, message: str) -> None:
    refused_at_mark(f"{SMALL}timeline:\n  - {{at: 1s, {words}}}\n", message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("members: «0", "members is '0': it must be 1..256"),
        ("members: «[]", "it must name 1..256 members"),
        ("members: [a, «a]", "another member has this name"),
        ("members: [a, «all]", "no reserved word"),
        ("members: [a, «B]", "a member's name is in small letters"),
        ("members: [a, «no]", "a bare on, off, yes or no"),
        ("members: 3, unicast: «UNICAST5", "did you mean UNICAST"),
        ("members: 3, timing: «slow", "no such timing; known: compatible, fast"),
        ("members: 3, max_batch: «65536", "it must be 1..65535"),
        ("members: 3, outbox_bytes: «0B", "it must be above 0"),
        ("members: 3, outbox_bytes: «2048", "it has no unit"),
        ("members: 3, unicast_first_conn: «4294967296", "it must be 1..4294967295"),
        ("members: 3, settings: {xmit_interval: «500}", "it has no unit"),
        ("members: 3, settings: {window_bytes: «4096}", "it has no unit"),
        ("members: 3, settings: {«Xmit: 5ms}", "in small letters"),
        ("members: 3, settings: {sync: «off}", "a bare on, off, yes or no"),
        ("members: 3, settings: {sync: «True}", "YAML takes it for something else than text"),
        ("members: 3, settings: {ack_threshold: «1.5}", "write a whole number, or a size"),
        ("members: 3, settings: {xmit_interval: «5parsec}", "the unknown unit 'parsec'"),
        ("members: 3, settings: {a: 1, «a: 2}", "duplicate key 'a'"),
    ],
)
def test_a_wrong_cluster_is_refused_at_its_place(words: str, message: str) -> None:
    refused_at_mark(f"name: small\nguarantees: [G1]\ncluster: {{{words}}}\n", message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "«nam: small\nguarantees: [G1]\ncluster: {members: 3}\n",
            "unknown key 'nam'; did you mean name?",
        ),
        ("«guarantees: [G1]\ncluster: {members: 3}\n", "the key 'name' is missing; add it"),
        (
            "name: «Small One\nguarantees: [G1]\ncluster: {members: 3}\n",
            "use small letters, digits and dashes",
        ),
        ("«name: small\nguarantees: [G1]\n", "the key 'cluster' is missing; add it"),
        ("«name: small\ncluster: {members: 3}\n", "the key 'guarantees' is missing; add it"),
        ("name: small\nguarantees: «[]\ncluster: {members: 3}\n", "it must name 1 or more of G1"),
        (
            "name: small\nguarantees: [G1, «G9]\ncluster: {members: 3}\n",
            "guarantees is 'G9': there is no such guarantee",
        ),
        (
            "name: small\nguarantees: [G1]\ncluster: «{unicast: UNICAST3}\n",
            "the key 'members' is missing",
        ),
    ],
)
def test_a_wrong_beginning_is_refused_at_its_place(text: str, message: str) -> None:
    refused_at_mark(text, message)


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing yet\n"])
def test_an_empty_file_is_refused(text: str) -> None:
    assert "the file is empty" in error(text).message


@pytest.mark.parametrize("text", ["- a\n", "hello\n", "---\n", "5\n"])
def test_a_file_that_is_no_mapping_is_refused(text: str) -> None:
    assert "write a mapping" in error(text).message


def test_the_last_second_of_the_run_is_in_and_the_next_moment_is_not() -> None:
    assert step("do: cut, for: 55s").duration == 55.0
    assert (
        "beyond limits.run"
        in error(SMALL + "timeline:\n  - {at: 5s, do: cut, for: 55001ms}\n").message
    )


def test_a_file_of_the_largest_size_is_read_and_one_byte_more_is_not(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_text(SMALL + "#" * (MAX_BYTES - len(SMALL)))
    assert load_scenario(path).name == "small"

    path.write_text(SMALL + "#" * (MAX_BYTES - len(SMALL) + 1))
    with pytest.raises(ConfigError, match="larger than 1048576 bytes"):
        load_scenario(path)


def test_a_character_cut_by_the_size_limit_is_too_large_not_broken(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_bytes(SMALL.encode() + b"#" * (MAX_BYTES - len(SMALL)) + "é".encode())
    with pytest.raises(ConfigError, match="larger than"):
        load_scenario(path)


def test_bytes_that_are_not_utf_8_are_refused_at_their_place(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes(SMALL.encode() + b"about: caf\xe9\n")
    with pytest.raises(ConfigError) as caught:
        load_scenario(path)
    assert caught.value.place == (str(path), 4, 11)
    assert str(caught.value).startswith(f"{path}:4:11: not UTF-8")


def test_hostile_nesting_is_refused_before_it_is_composed() -> None:
    assert "nested deeper" in error("[" * 500_000).message


def test_a_long_value_is_shortened_in_the_message() -> None:
    assert len(error(SMALL + f"limits: {{run: {'9' * 100_000}s}}\n").message) < 300


# -- Writing ----------------------------------------------------------------------------------


def test_what_is_dumped_reads_back_equal() -> None:
    scenario = parse_scenario(FULL)
    assert parse_scenario(dump(scenario)) == scenario
    assert dump(parse_scenario(dump(scenario))) == dump(scenario)


def test_a_dump_leaves_out_what_is_default_and_keeps_one_step_per_line() -> None:
    scenario = parse(
        "workload:\n  - {do: unicast, count: 1000}\n"
        "timeline:\n  - {at: 5000ms, do: cut, from: n0, to: all, for: 2min}\nlimits: {run: 3min}\n"
    )
    assert dump(scenario) == (
        "name: small\nguarantees: G1\ncluster: {members: 3}\n"
        "workload:\n  - {do: unicast}\n"
        "timeline:\n  - {at: 5s, do: cut, from: n0, for: 120s}\nlimits: {run: 180s}\n"
    )


@pytest.mark.parametrize(
    "about",
    [
        "on",
        "1:30",
        "a: b # c",
        "two\nlines",
        "tab\tend ",
        "é\u2028😀",
        '"quoted"',
        "-",
        "",
        "x" * 5000,
    ],
)
def test_any_text_survives_a_dump(about: str) -> None:
    scenario = replace(parse(), about=about)
    assert parse_scenario(dump(scenario)).about == about


# -- Expectations -----------------------------------------------------------------------------


def test_without_a_count_all_that_was_accepted_is_wanted() -> None:
    expect = Expect(by=1.0, sources=("n0", "n1"), dests=("n1",))
    assert expect.wanted({("n0", "n1"): 5, ("n2", "n1"): 7}) == {("n0", "n1"): 5}


def test_with_a_count_every_pair_must_have_it_even_if_nothing_was_accepted() -> None:
    expect = Expect(by=1.0, sources=("n0", "n1"), dests=("n1", "n2"), count=3)
    assert expect.wanted({}) == {("n0", "n1"): 3, ("n0", "n2"): 3, ("n1", "n2"): 3}


# -- Whom a fault strikes ----------------------------------------------------------------------


def struck(*active: faults.NetworkFault) -> set[str]:
    pairs = [(source, dest) for source in ALL for dest in ALL if source != dest]
    return {f"{one}>{other}" for one, other in pairs if any(f.strikes(one, other) for f in active)}


def test_a_partition_strikes_both_directions_between_its_groups() -> None:
    split = faults.Partition(groups=(("n0",), ("n1", "n2")))
    assert struck(split) == {"n0>n1", "n1>n0", "n0>n2", "n2>n0"}


def test_a_member_of_two_groups_is_a_bridge_and_one_of_none_is_alone() -> None:
    assert struck(faults.Partition(groups=(("n0", "n1"), ("n1", "n2")))) == {"n0>n2", "n2>n0"}
    assert struck(faults.Partition(groups=(("n0", "n1"),))) == {"n0>n2", "n2>n0", "n1>n2", "n2>n1"}


def test_a_cut_strikes_one_direction_and_adds_to_a_partition() -> None:
    cut = faults.Cut(sources=("n1",), dests=("n2",))
    assert struck(cut) == {"n1>n2"}
    assert struck(faults.Partition(groups=(("n0",), ("n1", "n2"))), cut) >= {"n1>n2", "n0>n1"}


def test_a_rule_strikes_the_links_of_whom_it_names() -> None:
    rule = faults.Rule(does="drop", match=Match(sources=("n0",)))
    assert rule.strikes("n0", "n1")
    assert not rule.strikes("n1", "n0")
