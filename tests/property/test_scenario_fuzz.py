"""Scenario files under fire: any scenario survives a dump, any text is read or refused politely."""

from dataclasses import fields
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormcast.chaos import faults
from stormcast.chaos.campaigns.generate import generate
from stormcast.chaos.language.protocol_settings import Settings
from stormcast.chaos.language.scenario import (
    GENERATIONS,
    GUARANTEES,
    LEAST_BANDWIDTH,
    NEEDS,
    Budget,
    Cluster,
    Expect,
    ExpectView,
    Limits,
    Link,
    Scenario,
    ScenarioLoad,
    Step,
    dump,
    parse_scenario,
)
from stormcast.chaos.language.schedule import format_plan, schedule
from stormcast.node.core import wire
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.match import Match
from stormcast.node.core.model import FLAG_NAMES
from stormcast.node.member.loads import FLAGS
from stormcast.node.protocols.flow import HistoricalFlow
from stormcast.node.protocols.frag import HistoricalFrag
from stormcast.node.protocols.multicast import HistoricalMulticast
from stormcast.node.protocols.unicast import Historical
from stormcast.node.settings.protocols import CONFIGS, RELIABLE_MULTICAST, RELIABLE_UNICAST

RUN = 1000.0
SAMPLE = """\
name: sample
about: "text: with # things"
guarantees: [G1, G8]
needs: [partition]
cluster: {members: 3, settings: {xmit_interval: 500ms, sync: spaced, x: true}, max_batch: 1}
network: {delay: 2ms, loss: 0.5%, bandwidth: 8Mbit/s, reorder: 1%, reorder_by: 5ms}
workload:
  - {do: unicast, from: n0, to: [n1, n2], count: 500, rate: 100/s, size: 10B..2KiB, flags: [OOB]}
timeline:
  - {at: 5s, do: partition, groups: [[n0], [n1, n2]], for: 10s, name: split}
  - {at: 6s, do: rule, does: hold, match: {kind: ACK, from: n1, seqno: 5..9}, times: 3}
  - {at: 20s, do: heal}
expect:
  - {by: 40s, delivered: {from: n0, to: n1, count: 500}}
budget: {acks: 10%, syncs: 1}
limits: {run: 1min, trace: 1MiB}
"""

NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,9}", fullmatch=True)
MEMBERS = st.integers(2, 5).map(lambda count: tuple(f"n{n}" for n in range(count))) | st.lists(
    NAMES.map(lambda name: f"m-{name}"), min_size=2, max_size=4, unique=True
).map(tuple)
TIMES = st.floats(0.0, RUN / 2).filter(lambda value: value == 0.0 or value > 1e-9)
SPANS = st.floats(1e-9, RUN / 2)
SHARES = st.floats(1e-9, 1.0)
# What takes everything, always, is refused.
LASTING_SHARES = st.floats(1e-9, 0.999)
COUNTS = st.integers(1, 1000)
# Without half surrogate pairs and what YAML forbids in a file: no text of a file holds them.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
VALUES = {
    "bool": st.booleans(),
    "int": st.integers(0, 10_000),
    "float": st.floats(0.0, 3600.0).filter(lambda value: value == 0.0 or value > 1e-9),
    "Share": st.just(0.0) | SHARES,
    "str": st.sampled_from(["spaced", "none", "true", "off", "first", "127.0.0.1", "a b: #", ""]),
}
"""Values of settings, by the type of the field."""


def settings_of(*kinds: type) -> st.SearchStrategy[Settings]:
    """Any settings that one of these dataclasses has."""
    known = {field.name: VALUES.get(str(field.type)) for kind in kinds for field in fields(kind)}
    drawn = {name: values for name, values in known.items() if values is not None}
    return st.fixed_dictionaries({}, optional=drawn).map(lambda found: tuple(found.items()))


OF_UNICAST = settings_of(*(CONFIGS[name] for name in RELIABLE_UNICAST))
OF_MULTICAST = settings_of(*(CONFIGS[name] for name in RELIABLE_MULTICAST))
FLAWS = settings_of(Historical, HistoricalMulticast, HistoricalFlow, HistoricalFrag)
OF_PROTOCOLS = st.fixed_dictionaries(
    {}, optional={name: settings_of(config) for name, config in CONFIGS.items()}
).map(lambda found: tuple(found.items()))


def some(members: faults.Names) -> st.SearchStrategy[faults.Names]:
    return st.lists(st.sampled_from(members), min_size=1, unique=True).map(tuple)


def words(known: tuple[str, ...], least: int = 0) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(known), min_size=least, unique=True).map(tuple)


def ranges(low: int, high: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(low, high), st.integers(low, high)).map(
        lambda ends: (min(ends), max(ends))
    )


@st.composite
def links(draw: st.DrawFn) -> Link:
    reorder = draw(st.none() | SHARES)
    return Link(
        delay=draw(TIMES),
        jitter=draw(TIMES),
        loss=draw(st.just(0.0) | LASTING_SHARES),
        duplicate=draw(st.just(0.0) | SHARES),
        reorder=reorder or 0.0,
        reorder_by=draw(SPANS) if reorder else 0.0,
        corrupt=draw(st.just(0.0) | LASTING_SHARES),
        bandwidth=draw(st.none() | st.floats(LEAST_BANDWIDTH, 1e12)),
    )


@st.composite
def loads(draw: st.DrawFn, members: faults.Names) -> ScenarioLoad:
    do = draw(st.sampled_from(["unicast", "multicast"]))
    count = draw(COUNTS)
    dests, excludes_self = (
        (members, False)
        if do == "multicast"
        else draw(st.just((members, True)) | st.tuples(some(members), st.just(False)))
    )
    return ScenarioLoad(
        do=do,
        sources=draw(some(members)),
        dests=dests,
        excludes_self=excludes_self,
        count=count,
        rate=draw(st.floats(count / 100.0, 1e6)),
        size=draw(ranges(0, wire.MAX_BODY)),
        start=draw(st.floats(0.0, 100.0).filter(lambda value: value == 0.0 or value > 1e-9)),
        burst=draw(COUNTS),
        flags=draw(words(tuple(FLAGS))),
        oob_every=draw(st.integers(0, 20)),
    )


@st.composite
def rules(draw: st.DrawFn, members: faults.Names) -> faults.Rule:
    does = draw(st.sampled_from(["drop", "delay", "hold", "duplicate", "corrupt"]))
    pair = draw(st.permutations(members))
    return faults.Rule(
        does=does,
        match=Match(
            protocols=draw(words(tuple(wire.PROTOCOL_BY_NAME))),
            kinds=draw(words(tuple(wire.KIND_BY_NAME))),
            sources=draw(st.sampled_from([(), (pair[0],)])),
            dests=draw(st.sampled_from([(), (pair[1],)])),
            connection=draw(st.none() | COUNTS),
            seqno=draw(st.none() | ranges(0, wire.MAX_SEQNO)),
            occurrence=draw(st.none() | ranges(1, 1000)),
            transmission=draw(st.none() | ranges(0, 255)),
            flags=draw(words(tuple(FLAG_NAMES.values()))),
        ),
        delay=draw(SPANS) if does == "delay" else 0.0,
        copies=draw(st.integers(1, 100)) if does == "duplicate" else 1,
        times=draw(st.none() | COUNTS),
    )


@st.composite
def link_faults(draw: st.DrawFn, members: faults.Names) -> faults.Action:
    pair = draw(st.permutations(members))
    sources, dests = draw(st.sampled_from([(members, members), (pair[:1], pair[1:])]))
    sides = {"sources": tuple(sources), "dests": tuple(dests)}
    return draw(
        st.one_of(
            st.just(faults.Cut(**sides)),
            SHARES.map(lambda rate: faults.Loss(**sides, rate=rate)),
            st.builds(
                lambda delay, jitter: faults.Delay(**sides, delay=delay, jitter=jitter),
                SPANS,
                TIMES,
            ),
            SHARES.map(lambda rate: faults.Duplicate(**sides, rate=rate)),
            st.builds(lambda rate, by: faults.Reorder(**sides, rate=rate, by=by), SHARES, SPANS),
            SHARES.map(lambda rate: faults.Corrupt(**sides, rate=rate)),
            st.floats(1e-6, 1e12).map(lambda rate: faults.Bandwidth(**sides, rate=rate)),
            st.just(faults.Partition(groups=(tuple(pair[:1]), tuple(pair[1:])))),
            st.sampled_from(faults.SHAPES[:4]).map(lambda shape: faults.Partition(shape=shape)),
            st.builds(
                lambda p_bad, p_good, loss_bad, loss_good: faults.GilbertElliott(
                    **sides, p_bad=p_bad, p_good=p_good, loss_bad=loss_bad, loss_good=loss_good
                ),
                SHARES,
                SHARES,
                SHARES,
                st.just(0.0) | SHARES,
            ),
            st.just(faults.Listen(**sides)),
            st.builds(
                lambda kinds, after, copies: faults.Replay(
                    **sides, kinds=kinds, after=after, copies=copies
                ),
                st.sampled_from([(), ("DATA",), ("ACK", "HEARTBEAT")]),
                SPANS,
                COUNTS,
            ),
            st.builds(
                lambda says, times: faults.Forge(**sides, says=says, times=times),
                st.sampled_from(faults.FORGERIES),
                COUNTS,
            ),
            st.builds(
                lambda nth, burst: faults.NthLoss(**sides, nth=nth, burst=burst),
                st.integers(2, 1000),
                COUNTS,
            ),
        )
    )


@st.composite
def member_actions(draw: st.DrawFn, members: faults.Names) -> faults.Action:
    member, peer = draw(st.permutations(members))[:2]
    chosen = draw(st.sampled_from([member, faults.RANDOM, *faults.ROLES]))
    half = draw(st.sampled_from(["both", "sender", "receiver"]))
    attribute, values = draw(
        st.sampled_from(
            [
                ("xmit_interval", TIMES),
                ("NAKACK2.xmit_interval", TIMES),
                ("max_bytes", COUNTS),
                ("ack_threshold", COUNTS),
                ("MCAST.ack_threshold", COUNTS),
                ("DISCARD.up", SHARES),
                ("DELAY.keep_order", st.booleans()),
                ("UNICAST3.sync", VALUES["str"]),
            ]
        )
    )
    value: object = draw(values)
    return draw(
        st.sampled_from(
            [
                faults.Crash(member=chosen),
                faults.Pause(member=chosen),
                faults.Restart(member=chosen),
                faults.Leave(member=chosen),
                faults.Churn(members=(member, peer), every=draw(st.floats(1.0, 100.0))),
                faults.Stall(member=member),
                faults.Close(member=member, peer=peer),
                faults.Forget(member=member, peer=peer, half=half),
                faults.InstallView(at_members=(member,), members=(peer, member)),
                faults.InstallView(at_members=members, members=members),
                faults.SetAttribute(member=member, attribute=attribute, value=value),
            ]
        )
    )


LASTING = (faults.NetworkFault, faults.Crash, faults.Pause, faults.Stall, faults.Leave)
FLAPPING = (faults.Partition, faults.LinkFault)


@st.composite
def steps(draw: st.DrawFn, action: faults.Action, name: str | None) -> Step:
    """An action with times that go with it."""
    at = draw(TIMES)
    if isinstance(action, faults.Churn):
        return Step(at=at, action=action, name=name, duration=draw(SPANS))
    if isinstance(action, FLAPPING) and draw(st.booleans()):
        every = draw(st.floats(10.0, RUN))
        up = every * draw(st.floats(0.01, 0.99))
        return Step(at=at, action=action, name=name, duration=draw(SPANS), every=every, up=up)
    lasts = draw(st.none() | SPANS) if isinstance(action, LASTING) else None
    return Step(at=at, action=action, name=name, duration=lasts)


@st.composite
def timelines(draw: st.DrawFn, members: faults.Names) -> tuple[Step, ...]:
    actions = draw(
        st.lists(
            st.one_of(link_faults(members), rules(members), member_actions(members)), max_size=6
        )
    )
    timeline = [
        draw(steps(action, draw(st.sampled_from([None, f"fault-{number}"]))))
        for number, action in enumerate(actions)
    ]
    healable = [step for step in timeline if isinstance(step.action, faults.NetworkFault)]
    if healable and draw(st.booleans()):
        name = draw(st.sampled_from([None, healable[0].name]))
        timeline.append(Step(at=RUN, action=faults.Heal(name=name)))
    return tuple(timeline)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    members = draw(MEMBERS)
    workload = tuple(draw(st.lists(loads(members), max_size=3)))
    needs = list(draw(words(NEEDS)))
    if "multicast" not in needs and any(load.do == "multicast" for load in workload):
        needs.append("multicast")
    pairs = sorted({pair for load in workload for pair in load.pairs() if pair[0] != pair[1]})
    expect: list[Expect | ExpectView] = []
    for source, dest in draw(st.lists(st.sampled_from(pairs), max_size=2)) if pairs else []:
        count = draw(st.sampled_from([None, 1]))
        expect.append(Expect(by=draw(TIMES), sources=(source,), dests=(dest,), count=count))
    views = st.builds(
        lambda by, seen_by: ExpectView(by=by, seen_by=seen_by, view=members), TIMES, some(members)
    )
    expect += draw(st.lists(views, max_size=2))
    return Scenario(
        name=draw(NAMES),
        about=draw(TEXTS),
        guarantees=draw(words(GUARANTEES, 1)),
        needs=tuple(needs),
        cluster=Cluster(
            members=members,
            unicast=draw(st.none() | st.sampled_from(GENERATIONS)),
            timing=draw(st.sampled_from(["compatible", "fast"])),
            settings=draw(OF_UNICAST),
            historical=draw(FLAWS),
            max_batch=draw(st.none() | COUNTS),
            unicast_first_conn=draw(st.none() | st.integers(1, (1 << 32) - 1)),
            multicast_settings=draw(OF_MULTICAST),
            protocols=draw(OF_PROTOCOLS),
            late=draw(st.sampled_from([(), members[:1]])),
            joins=draw(st.sampled_from(["together", "one-by-one"])),
        ),
        network=draw(links()),
        workload=workload,
        timeline=draw(timelines(members)),
        expect=tuple(expect),
        budget=draw(
            st.none()
            | st.builds(
                Budget,
                acks=st.floats(1e-9, 1000.0),
                resends=st.none() | SHARES,
                syncs=st.none() | st.integers(0, 10),
                requests=st.none() | COUNTS,
            )
        ),
        limits=Limits(run=RUN, settle=draw(TIMES), trace=draw(st.integers(1, 1 << 40))),
    )


@pytest.mark.slow
@given(scenarios())
def test_any_scenario_reads_back_from_what_is_dumped(scenario: Scenario) -> None:
    text = dump(scenario)
    again = parse_scenario(text)
    assert again == scenario
    assert dump(again) == text


@pytest.mark.slow
@given(scenarios(), st.integers(0, 2**32 - 1))
def test_any_schedule_is_in_order_repeatable_and_free_of_chance(
    scenario: Scenario, seed: int
) -> None:
    steps = schedule(scenario, seed)
    assert steps == schedule(scenario, seed)
    assert [step.at for step in steps] == sorted(step.at for step in steps)
    assert "random" not in {getattr(step.action, "member", "") for step in steps}
    assert format_plan(scenario, seed).count("\n") == len(steps) + len(scenario.workload) + 3


@pytest.mark.slow
@given(scenarios(), st.integers(0, 2**32 - 1))
def test_any_schedule_ends_with_a_sound_network(scenario: Scenario, seed: int) -> None:
    active: set[str] = set()
    for step in schedule(scenario, seed):
        if step.do == "end" or (step.do == "heal" and step.fault):
            active.discard(step.fault)
        elif step.do == "heal":
            active.clear()
        elif isinstance(step.action, faults.NetworkFault):
            active.add(step.fault)
    assert not active


@pytest.mark.slow
@given(st.integers(0, 100_000))
def test_any_scenario_that_the_search_draws_survives_its_run_directory(seed: int) -> None:
    scenario = generate(seed)
    assert parse_scenario(dump(scenario)) == scenario


def parses_or_is_refused(text: str) -> None:
    refused = None
    try:
        parse_scenario(text, "fuzz.yaml")
    except ConfigError as error:
        refused = error
    if refused is not None:
        assert refused.place is not None
        # More breaks than newlines: YAML knows others.
        assert 1 <= refused.place.line <= len(text) + 1
        assert refused.place.column >= 1
        assert refused.place.source == "fuzz.yaml"


@given(st.text())
def test_arbitrary_text_is_refused_politely(text: str) -> None:
    parses_or_is_refused(text)


@given(st.text("[]{}:,-?&*!|>'\"%@`#\\\n\t ab01.~<=", max_size=80))
def test_arbitrary_punctuation_is_refused_politely(text: str) -> None:
    parses_or_is_refused(text)


TOKENS = st.sampled_from(
    [
        *[
            "on",
            "1:30",
            "010",
            "~",
            "null",
            "&a",
            "*a",
            "!!int",
            "<<",
            "---",
            "5s",
            "5%",
            "0",
            "[]",
        ],
        *[
            "{}",
            "all",
            "random",
            "n0",
            "n9",
            "\t",
            "\n",
            "  ",
            ": ",
            "- ",
            ",",
            '"',
            "'",
            "|",
            "-1",
        ],
        *["\\U99999999", "\x00", "\ud800", "😀", "%YAML 9.1\n---\n", "1e999", ".inf", "0x1F"],
        *["9" * 5000, f"%YAML {'9' * 5000}.1\n---\n", "x" * 2000, "[" * 100],
    ]
)


@st.composite
def edits(draw: st.DrawFn) -> tuple[int, int, str]:
    start = draw(st.integers(0, len(SAMPLE)))
    return start, draw(st.integers(0, 12)), draw(TOKENS | st.text(max_size=3))


def edited(text: str, edit: tuple[int, int, str]) -> str:
    start, length, put = edit
    return text[:start] + put + text[start + length :]


@given(st.lists(edits(), min_size=1, max_size=4))
def test_a_mutated_scenario_parses_or_is_refused_politely(
    changes: list[tuple[int, int, str]],
) -> None:
    parses_or_is_refused(reduce(edited, changes, SAMPLE))


@given(st.lists(st.integers(0, 50), min_size=1, max_size=3), TOKENS)
def test_a_value_in_a_wrong_place_is_refused_politely(places: list[int], token: str) -> None:
    words = SAMPLE.replace("{", "{ ").replace("}", " }").split(" ")
    for place in places:
        words[place % len(words)] = token
    parses_or_is_refused(" ".join(words))
