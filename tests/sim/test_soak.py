"""A soak: windows of a storm on one cluster, each judged as a whole run with a short prologue."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import islice, pairwise
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.chaos import faults
from stormcast.chaos.backends.sim.backend import SimBackend
from stormcast.chaos.backends.sim.traces import WALL_NS
from stormcast.chaos.language.cluster import Cluster
from stormcast.chaos.language.features import FEATURES, ONLY_SIMULATED
from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.language.stacks import settings_of
from stormcast.chaos.language.timeline import Step
from stormcast.chaos.language.workload import ScenarioLoad
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.prologue import prologue
from stormcast.chaos.oracles.rest import unrest
from stormcast.chaos.oracles.verdict import Verdict, judge
from stormcast.chaos.records.rig_trace import RigTrace
from stormcast.chaos.session import traffic
from stormcast.chaos.session.plans import cluster_plan
from stormcast.chaos.session.simulation import simulate
from stormcast.chaos.session.traffic import Traffic, load_words
from stormcast.chaos.soak.chapters import RIG, Chapters
from stormcast.chaos.soak.kinds import KINDS, TAKES_OUT, switches
from stormcast.chaos.soak.player import Soak, Window
from stormcast.chaos.soak.storm import ALL, Storm, Turn, what_runs
from stormcast.node import trace
from stormcast.node.core.wire import GROUP
from stormcast.node.trace import Event, pack_block, read_blocks_untrusted
from stormcast.node.trace.files import blocks_from, count_events, next_number, shifted
from tests.oracles.story import Story

pytestmark = pytest.mark.slow

SMALL = ((16, 100), (16, 2000), (1000, 8000))
STACKS = ("udp", "mcast", "tcp", "tcp-nio2", "tcp-no-retransmit")
MEMBERS = ("n0", "n1", "n2", "n3")

ONLY_REAL_LACKS = dict.fromkeys((*ONLY_SIMULATED, "frames-of-streams"), "not on real packets")

Change = Callable[[int, dict[str, bytes]], Mapping[str, bytes]]
"""Changes what was written in a window, by its number and by label."""


def storm_of(stack: str, **more: object) -> Storm:
    cluster = Cluster(members=MEMBERS, stack=stack, timing="fast")
    return Storm(cluster=cluster, sizes=SMALL, **{"window": 30.0, **more})  # type: ignore[arg-type]


class Tampered(Soak):
    """A soak whose traces are kept, and may be changed before they are judged."""

    change: Change | None = None

    def __init__(self, storm: Storm, seed: int, backend: SimBackend) -> None:
        super().__init__(storm, seed, backend, Path())
        self.whole: dict[str, bytes] = {}
        """All that was ever written, numbered as it was."""
        self._nth = 0

    def _add(self, traces: Mapping[str, bytes]) -> dict[str, bytes]:
        for label, data in traces.items():
            before = self.whole.get(label, b"")
            read = next_number(before)
            new = shifted(data, read) if label == RIG else blocks_from(data, read)
            self.whole[label] = before + new
        changed = self.change(self._nth, dict(traces)) if self.change else traces
        self._nth += 1
        return super()._add(changed)


def soaked(
    storm: Storm, seed: int, windows: int, change: Change | None = None, **backend: object
) -> tuple[Tampered, list[Window]]:
    soak = Tampered(storm, seed, SimBackend(**backend))  # type: ignore[arg-type]
    soak.change = change
    soak.open()
    found = list(islice(soak.windows(), windows))
    soak.close()
    return soak, found


def bad(window: Window) -> list[tuple[str, str]]:
    return [
        (one.guarantee, one.detail)
        for one in window.judgement.findings
        if one.verdict is not Verdict.HOLDS
    ]


@pytest.mark.parametrize("stack", STACKS)
def test_each_window_and_the_whole_hold(stack: str) -> None:
    """Four chapters, each with the prologue of those before, and the history that has none."""
    soak, windows = soaked(storm_of(stack), 5, 4)

    assert [bad(window) for window in windows] == [[], [], [], []]
    assert sum(window.unrest == "" for window in windows) >= 3
    for window in windows:
        assert window.delivered > 2 * window.sent
        # Members that were started anew send the rest, and no message of an earlier window.
        assert 0.5 * _meant(window) < window.sent <= 1.02 * _meant(window)
    evidence = Evidence.from_blocks(soak.whole, xxh3_64_intdigest)
    asked = [name for name in ALL if name != "G8"]
    assert judge(evidence, asked, min_bites=0).verdict is Verdict.HOLDS


def _meant(window: Window) -> int:
    """How many messages the loads of a window have."""
    return sum(
        load.count * (len(load.sources) if load.do == "multicast" else len(list(load.pairs())))
        for load in window.scenario.workload
    )


def test_a_chapter_is_no_longer_for_what_came_before() -> None:
    soak, windows = soaked(storm_of("udp", kinds=("delay",)), 5, 6)

    assert all(window.unrest == "" for window in windows)
    whole = sum(map(count_events, soak.whole.values()))
    assert whole < sum(window.run.recorded for window in windows) < 1.02 * whole
    told = prologue(windows[-1].run.evidence, 1e6)
    assert sum(len(one.events) for one in told.values()) < 200


# -- What is planted is found, in its window and once ----------------------------------------------


def _is_batch(event: Event) -> bool:
    return event.kind == trace.DELIVERED and event.count > 0 and event.protocol != 0


def _events(data: bytes) -> list[Event]:
    blocks = read_blocks_untrusted(data, xxh3_64_intdigest)
    return [event for block in blocks for event in block.events]


def _without(data: bytes, wanted: Callable[[Event], bool]) -> bytes:
    """The blocks with something that says nothing in place of the first event that is wanted."""
    blank = dict.fromkeys(Event._fields, 0) | {"kind": trace.GAUGE}
    return _with(data, wanted, Event(**blank))


def _with(data: bytes, wanted: Callable[[Event], bool], other: Event) -> bytes:
    """The blocks with another event, at the same time, in place of the first that is wanted."""
    parts, is_found = [], False
    for block in read_blocks_untrusted(data, xxh3_64_intdigest):
        events = list(block.events)
        at = next((n for n, event in enumerate(events) if wanted(event)), None)
        if at is not None and not is_found:
            is_found = True
            events[at] = other._replace(time=events[at].time)
        heap = b"".join(map(trace.pack_text, block.texts))
        number = block.first
        parts.append(
            pack_block(block.member, number, block.wall_ns, events, heap, xxh3_64_intdigest)
        )
    assert is_found
    return b"".join(parts)


@pytest.mark.parametrize("stack", ["udp", "mcast", "tcp-no-retransmit"])
def test_a_loss_is_found_in_its_window_and_ends_its_cluster(stack: str) -> None:
    def lose(nth: int, traces: dict[str, bytes]) -> Mapping[str, bytes]:
        if nth == 2:
            traces["n1-1"] = _without(traces["n1-1"], _is_batch)
        return traces

    _soak, windows = soaked(storm_of(stack, kinds=("loss", "delay")), 7, 4, lose)

    verdicts = [str(window.judgement.verdict) for window in windows]
    # What is lost is under way for ever: another cluster has to go on.
    assert verdicts == ["holds", "holds", "violated"]
    assert windows[2].lost
    assert "G1" in {guarantee for guarantee, _detail in bad(windows[2])}


@pytest.mark.parametrize("is_judged", [True, False])
def test_messages_that_wait_in_an_outbox_are_not_forgotten(is_judged: bool) -> None:
    """Five more are accepted than leave: no chapter that follows may take those for given up."""

    def offer(nth: int, traces: dict[str, bytes]) -> Mapping[str, bytes]:
        if nth == 1:
            offered = [e for e in _events(traces["n1-1"]) if e.kind == trace.OFFERED]
            last = [e for e in offered if e.peer == GROUP][-1]
            more = last._replace(hi=last.hi + 5, count=last.count + 5)
            traces["n1-1"] = _with(traces["n1-1"], lambda event: event == last, more)
        return traces

    guarantees = ALL if is_judged else ("G2", "G3", "V1")
    storm = storm_of("udp", kinds=("delay",), guarantees=guarantees)
    _soak, windows = soaked(storm, 7, 3, offer)

    assert not any("a second time" in detail for one in windows for _name, detail in bad(one))
    assert windows[1].unrest == "messages of n1 wait in its outbox"
    if is_judged:
        # They never leave, which is told once, and another cluster has to go on.
        assert [str(one.judgement.verdict) for one in windows] == ["holds", "violated"]
        assert windows[1].lost == windows[1].unrest
    else:
        # Nobody asked for them. Their numbers are used by others, which leave; of these so many
        # seem to have been offered before.
        assert [bad(one) for one in windows] == [[], [], [("run", LESS)]]
        assert windows[2].unrest == ""


def test_a_gap_in_a_trace_makes_its_chapter_unknown() -> None:
    """What a full disk, or a hand, has taken: nobody knows what was in it."""

    def lose(nth: int, traces: dict[str, bytes]) -> Mapping[str, bytes]:
        if nth == 1:
            first = next(read_blocks_untrusted(traces["n1-1"], xxh3_64_intdigest))
            traces["n1-1"] = traces["n1-1"][first.size :]
        return traces

    _soak, windows = soaked(storm_of("udp", kinds=("delay",)), 7, 3, lose)

    assert [str(window.judgement.verdict) for window in windows] == ["holds", "unknown"]
    assert [window.lost for window in windows] == ["", "a trace is not whole"]
    assert any("missing" in detail for _guarantee, detail in bad(windows[1]))


LESS = "less was offered than the workload says"


def test_a_window_in_which_nothing_is_sent_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prologue has messages: they do not count as sent in this window."""
    begin = Traffic.begin

    def some(traffic: Traffic, load: ScenarioLoad) -> None:
        if len(found) != 1:
            begin(traffic, load)
        else:
            traffic._loads = ()

    monkeypatch.setattr(Traffic, "begin", some)
    soak = Tampered(storm_of("udp", kinds=("delay",)), 7, SimBackend())
    soak.open()
    found: list[Window] = []
    for window in islice(soak.windows(), 3):
        found += [window]

    assert [str(window.judgement.verdict) for window in found] == ["holds", "unknown", "holds"]
    assert [window.sent > 0 for window in found] == [True, False, True]
    assert bad(found[1]) == [("run", LESS), ("run", "nothing was sent")]


def test_a_window_in_which_less_is_offered_than_it_says_proves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Traces count what a member offered over its whole life, and so over all windows before."""

    def fewer(load: ScenarioLoad, *words: object) -> dict[str, object]:
        told = load_words(load, *words)  # type: ignore[arg-type]
        is_short = len(found) == 2 and told["from"] == ["n1"]
        return {**told, "count": 1} if is_short else told

    monkeypatch.setattr(traffic, "load_words", fewer)
    soak = Tampered(storm_of("udp", kinds=("delay",)), 7, SimBackend())
    soak.open()
    found: list[Window] = []
    for window in islice(soak.windows(), 4):
        found += [window]

    assert [bad(window) for window in found] == [[], [], [("run", LESS)], []]


def test_what_an_application_got_wrong_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    soak = Tampered(storm_of("udp", kinds=("delay",)), 7, SimBackend())
    soak.open()
    end = soak.end

    def go_wrong(window: Window) -> None:
        end(window)
        if window.number == 0:
            soak._backend._world.mismatches.append("n1 got nonsense")  # type: ignore[attr-defined]

    monkeypatch.setattr(soak, "end", go_wrong)
    found = [
        [guarantee for guarantee, _detail in bad(window)] for window in islice(soak.windows(), 3)
    ]

    assert found == [[], ["G4"], []]


def test_what_was_delivered_in_an_earlier_chapter_is_not_delivered_again() -> None:
    """Of the past only one batch is told, and that is enough to see it."""
    kept: list[Event] = []

    def repeat(nth: int, traces: dict[str, bytes]) -> Mapping[str, bytes]:
        def is_it(event: Event) -> bool:
            return _is_batch(event) and event.peer != 0 and event.epoch != 0

        if nth == 1:
            kept.extend(
                event
                for block in read_blocks_untrusted(traces["n2-1"], xxh3_64_intdigest)
                for event in block.events
                if is_it(event)
            )
        if nth == 2:
            block = list(read_blocks_untrusted(traces["n2-1"], xxh3_64_intdigest))[-1]
            again = kept[0]._replace(time=block.events[-1].time, text=0)
            traces["n2-1"] += pack_block(
                block.member,
                block.first + len(block.events),
                block.wall_ns,
                [again],
                b"",
                xxh3_64_intdigest,
            )
        return traces

    _soak, windows = soaked(storm_of("udp", kinds=("delay",)), 7, 3, repeat)

    assert [bool(bad(window)) for window in windows] == [False, False, True]
    assert {"G2", "G3"} <= {guarantee for guarantee, _detail in bad(windows[2])}


def test_a_death_is_told_once() -> None:
    """Others may still send to who is dead for five minutes: that is no doubt about each window."""
    died: list[int] = []

    def die(nth: int, traces: dict[str, bytes]) -> Mapping[str, bytes]:
        rig = list(read_blocks_untrusted(traces[RIG], xxh3_64_intdigest))
        if died or nth != 1:
            return traces
        told = [
            json.loads(block.text(event))
            for block in rig
            for event in block.events
            if event.kind == trace.FAULT
        ]
        died.append(next(one["member"] for one in told if one["do"] == "restart"))
        text = {"name": "n9", "incarnation": 1, "signal": 9, "ordered": False, "member": died[0]}
        blank = dict.fromkeys(Event._fields, 0) | {"kind": trace.EXIT, "text": 1}
        event = Event(**{**blank, "time": rig[-1].events[-1].time})
        heap = trace.pack_text(json.dumps(text))
        number, wall = next_number(traces[RIG]), rig[-1].wall_ns
        traces[RIG] += pack_block(0, number, wall, [event], heap, xxh3_64_intdigest)
        return traces

    _soak, windows = soaked(storm_of("udp", kinds=("restart", "delay")), 5, 4, die)

    verdicts = [str(window.judgement.verdict) for window in windows]
    assert verdicts == ["holds", "unknown", "holds", "holds"]
    assert not windows[3].run.evidence.members[died[0]].lives


def test_who_left_before_a_chapter_and_does_not_come_back_is_gone_in_it() -> None:
    story, chapters = Story(protocols={"GMS": {}}, both_ends=True).a_group(), Chapters()
    _multicast(story, 1.0, 1, 5, "n1", "n2")
    story.at(3.0).stops("n2").at(3.1).unwatches("n0", "n2", epoch=3).unwatches("n1", "n2", epoch=3)
    chapters.turn(_judged(chapters, story.installs(2, "n0", "n1")))
    for phase, at in {"begin": 20.1, "quiet": 30.0, "end": 40.0}.items():
        story.rig.record(trace.PHASE, at, text=phase)
    _multicast(story, 21.0, 6, 7, "n1")

    second = _judged(chapters, story)
    assert [member.label for member in second.members.values() if not member.lives] == ["n2"]


def _multicast(story: Story, at: float, lo: int, hi: int, *receivers: str) -> None:
    """n0 multicasts messages, which all are handed, and drops them."""
    story.at(at).offers(lo, hi, to="").casts(lo, hi, number=lo).is_given_cast(lo, hi, "n0", "n0")
    for who in receivers:
        story.at(at + 0.1).takes(lo, hi, who).is_given_cast(lo, hi, who)
    story.at(at + 0.2).drops(lo, hi)


def _judged(chapters: Chapters, story: Story) -> Evidence:
    """The evidence of a chapter with what a story has told since; all holds in it."""
    blocks = dict(story.told())
    chapters.add(blocks, blocks.pop(RIG))
    evidence = Evidence.from_blocks(chapters.traces(), xxh3_64_intdigest)
    found = [one for one in judge(evidence).findings if one.verdict is not Verdict.HOLDS]
    assert found == []
    return evidence


def test_what_left_before_is_done_with_whatever_was_said_to_be_offered() -> None:
    def lose(nth: int, traces: dict[str, bytes]) -> Mapping[str, bytes]:
        if nth == 0:
            offered = [e for e in _events(traces["n1-1"]) if e.kind == trace.OFFERED]
            offered = [e for e in offered if e.peer == GROUP]
            last = offered[-1]._replace(text=0)
            traces["n1-1"] = _without(traces["n1-1"], lambda one: one._replace(text=0) == last)
        return traces

    soak, windows = soaked(storm_of("udp", kinds=("delay",)), 7, 3, lose)

    assert soak.whole
    assert [bad(window) for window in windows] == [[("run", LESS)], [], []]


def test_at_rest_nothing_is_under_way() -> None:
    _soak, windows = soaked(storm_of("udp", kinds=("loss",)), 3, 1)
    evidence = windows[0].run.evidence
    assert unrest(evidence) == ""
    whole = dict(windows[0].run.traces)
    label = "n1-1"
    whole[label] = _without(whole[label], lambda event: event.kind == trace.HANDED)
    assert "was not handed over yet" in unrest(Evidence.from_blocks(whole, xxh3_64_intdigest))


TO_ONESELF = """
name: to-oneself
guarantees: [G1, G2, G3, G4]
cluster: {members: 2}
workload:
  - {do: unicast, from: n0, to: all, count: 20, rate: 20/s, flags: DONT_LOOPBACK}
"""


@pytest.mark.parametrize("more", ["", "  - {do: unicast, from: n0, to: n0, count: 9, rate: 9/s}"])
def test_what_a_member_sends_to_itself_and_for_nobody_is_not_under_way(more: str) -> None:
    """Nor is it told as delivered, where nothing was."""
    run = simulate(parse_scenario(TO_ONESELF + more), 1)
    chapters = Chapters()
    chapters.add(
        {label: data for label, data in run.traces.items() if label != RIG}, run.traces[RIG]
    )
    assert unrest(run.evidence) == ""

    chapters.turn(run.evidence)
    rig = RigTrace()
    for second, phase in enumerate(("begin", "quiet", "end")):
        rig.phase(run.evidence.rig.end + 100.0 * second, phase)
    chapters.add({}, rig.blocks(WALL_NS))

    told = Evidence.from_blocks(chapters.traces(), xxh3_64_intdigest)
    (n0,) = [one for one in told.members.values() if one.name == "n0"]
    delivered = [e for e in n0.events if e.kind == trace.DELIVERED and e.peer == n0.short]
    assert [event.hi for event in delivered] == ([29] if more else [])
    judged = judge(told, ["G1", "G2", "G3", "G4"], min_bites=0)
    assert [one.detail for one in judged.findings if one.verdict is not Verdict.HOLDS] == []


def test_what_was_done_to_nobody_does_not_stand_for_ever() -> None:
    """A stall of a member that was down, and a restart, have no end that anybody notes."""
    storm = storm_of("udp", kinds=("crash", "stall", "restart"), every=(0.5, 2.0))
    _soak, windows = soaked(storm, 9, 6)

    assert [bad(window) for window in windows] == [[]] * 6
    assert {window.unrest for window in windows} == {""}
    told = prologue(windows[-1].run.evidence, 1e6)
    assert len(told["rig"].events) == 0


# -- Storms ----------------------------------------------------------------------------------------


def test_a_window_follows_from_seed_and_number() -> None:
    storm = storm_of("udp")
    assert storm.scenario(4, 9) == storm.scenario(4, 9)
    assert storm.scenario(4, 9) != storm.scenario(4, 10)
    assert storm.scenario(4, 9) != storm.scenario(5, 9)


def test_a_storm_keeps_to_its_budget() -> None:
    storm = storm_of("udp", at_once=2, plots=(0, 0))
    drawn = set()
    for number in range(200):
        steps = storm.scenario(1, number).timeline
        for step in steps:
            drawn.add(kind_of(step))
            end = step.at + (step.duration or 0.0)
            others = [
                other
                for other in steps
                if other is not step and other.at <= step.at < other.at + (other.duration or 0.0)
            ]
            assert len(others) < 2
            assert end <= storm.window * 0.9 + 0.01
        away = [step for step in steps if kind_of(step) in TAKES_OUT]
        for before, after in pairwise(away):
            assert after.at >= before.at + (before.duration or 0.0) + 10.0 - 0.01
    assert drawn == {*KINDS, "set-back"}


def named_in(action: faults.Action) -> set[str]:
    """The members that a fault of a plot names."""
    ends = action.match if isinstance(action, faults.Rule) else action
    named = {getattr(action, key, None) for key in ("member", "peer")} - {None}
    return named.union(getattr(ends, "sources", ()), getattr(ends, "dests", ()))


@pytest.mark.parametrize("stack", STACKS)
def test_plots_are_about_connections_that_a_window_uses(stack: str) -> None:
    """With more plots the faults are the same; each ends with the storm of its window."""
    storm, plain = storm_of(stack, plots=(1, 2)), storm_of(stack, plots=(0, 0))
    kinds = set()
    for number in range(60):
        scenario = storm.scenario(1, number)
        faults_alone = plain.scenario(1, number).timeline
        plots = [step for step in scenario.timeline if step not in faults_alone]
        assert [step for step in scenario.timeline if step in faults_alone] == [*faults_alone]
        unicasts = [load for load in scenario.workload if load.do == "unicast"]
        busy = {frozenset((load.sources[0], load.dests[0])) for load in unicasts}
        for step in plots:
            kinds.add(type(step.action))
            assert step.at + (step.duration or 0.0) <= storm.window * 0.9 + 0.01
            assert any(pair.issuperset(named_in(step.action)) for pair in busy)
            if isinstance(step.action, faults.Rule):
                assert step.action.match.protocols[0].startswith("UNICAST")
    is_stream = stack.startswith("tcp")
    assert kinds == {faults.Forget, faults.Stall, faults.Loss, faults.Close} | (
        set() if is_stream else {faults.Rule, faults.Cut}
    )


def test_two_stacks_have_the_same_plots_but_those_that_one_cannot_play() -> None:
    udp, tcp = (storm_of(stack, plots=(1, 2), kinds=PLOTTED) for stack in ("udp", "tcp"))
    alike = 0
    for number in range(60):
        ours, theirs = ({s.name: s.at for s in plots_of(each, number)} for each in (udp, tcp))
        assert theirs.items() <= ours.items()
        alike += bool(theirs)
    assert alike >= 20


PLOTTED = ("stall", "forget", "close", "loss", "rule", "cut")


def plots_of(storm: Storm, number: int) -> list[Step]:
    steps = storm.scenario(1, number).timeline
    return [step for step in steps if "-plot-" in (step.name or "")]


def test_a_plot_is_drawn_only_where_all_its_kinds_are() -> None:
    storm = storm_of("udp", plots=(2, 2), kinds=("stall", "forget", "loss"))
    names = {step.name for number in range(20) for step in storm.scenario(1, number).timeline}
    assert any("-plot-" in name for name in names if name)
    storm = storm_of("udp", plots=(2, 2), kinds=("stall", "loss"))
    names = {step.name for number in range(20) for step in storm.scenario(1, number).timeline}
    assert not any("-plot-" in name for name in names if name)


def kind_of(step: Step) -> str:
    """The kind of a drawn fault, as its name has it."""
    return re.sub(r"^w\d+-|-\d+$", "", step.name or "")


@pytest.mark.parametrize("stack", STACKS)
def test_a_setting_that_a_storm_changes_it_sets_back(stack: str) -> None:
    storm = storm_of(stack, kinds=("set-attribute",), every=(0.2, 2.0))
    usual = settings_of(storm.widest())
    values = set()
    for number in range(50):
        scenario = storm.scenario(1, number)
        # Nothing is changed to what its member would not take.
        settings_of(scenario)
        steps = iter(scenario.timeline)
        for there, back in zip(steps, steps, strict=True):
            changed, restored = there.action, back.action
            assert isinstance(changed, faults.SetAttribute)
            assert isinstance(restored, faults.SetAttribute)
            assert there.at < back.at <= storm.window * 0.9
            assert (changed.member, changed.attribute) == (restored.member, restored.attribute)
            protocol, _dot, name = changed.attribute.rpartition(".")
            assert restored.value == getattr(usual.of(protocol or usual.unicast), name)
            assert changed.value != restored.value
            values.add((changed.attribute, changed.value))
    assert len(values) > 10
    # What may drop a frame must retransmit.
    assert ("NAKACK2.xmit_interval", 0.0) not in values


def test_where_nothing_is_dropped_a_storm_switches_retransmission_off() -> None:
    lossless = (("conn_expire_time", 0.0), ("drop_when_full", False), ("receive_queue", 0))
    cluster = Cluster(members=MEMBERS, stack="tcp", timing="fast", protocols=(("TCP", lossless),))
    assert ("NAKACK2.xmit_interval", 0.0, 0.5) in switches(cluster)


@pytest.mark.parametrize("stack", STACKS)
def test_a_rule_of_a_storm_drops_no_data(stack: str) -> None:
    storm = storm_of(stack, kinds=("rule",), every=(0.2, 1.0))
    settings, deeds, aims = settings_of(storm.widest()), set(), set()
    for number in range(100):
        for step in storm.scenario(1, number).timeline:
            assert isinstance(step.action, faults.Rule)
            match = step.action.match
            deeds.add(step.action.does)
            aims |= set(match.protocols)
            if step.action.does == "drop":
                sends_data = match.protocols[0] in (settings.unicast, settings.multicast)
                assert bool(match.kinds) == sends_data
                assert "DATA" not in match.kinds
    # Members that rule the frames of their connections themselves hold none.
    assert deeds == {"delay", "duplicate", "drop", *(() if "tcp" in stack else ("hold",))}
    assert {"GMS", "UFC", "MERGE3", settings.unicast, settings.multicast} <= aims


@pytest.mark.parametrize("stack", STACKS)
def test_each_window_of_a_storm_can_be_played_on_real_packets(stack: str, tmp_path: Path) -> None:
    has = {**dict.fromkeys(FEATURES), **ONLY_REAL_LACKS}
    storm = storm_of(stack, every=(0.5, 2.0), window=60.0)
    for scenario in (storm.widest(), *(storm.scenario(1, number) for number in range(40))):
        cluster_plan(scenario, 1, "storm", tmp_path, has)


@pytest.mark.parametrize("stack", STACKS)
def test_settings_that_change_and_rules_break_nothing(stack: str) -> None:
    storm = storm_of(stack, kinds=("set-attribute", "rule", "forget", "bandwidth", "crash", "loss"))
    _soak, windows = soaked(storm, 12, 4)
    assert [bad(window) for window in windows] == [[], [], [], []]
    bites = Counter[str]()
    for window in windows:
        for step in window.scenario.timeline:
            bites[kind_of(step)] += window.run.bites.get(step.name or "", 0)
    assert bites["set-attribute"] >= 2
    assert bites["rule"] + bites["bandwidth"] > 10
    assert bites["forget"] >= 1


def test_who_forgets_has_something_to_forget() -> None:
    """Whatever half, each `forget` is of a pair between which the window sends, if any does."""
    storm, halves = storm_of("udp", kinds=("forget",), every=(0.5, 2.0)), Counter[str]()
    for number in range(60):
        scenario = storm.scenario(1, number)
        pairs = {
            (load.sources[0], load.dests[0]) for load in scenario.workload if load.do == "unicast"
        }
        for step in scenario.timeline:
            assert isinstance(step.action, faults.Forget)
            told = (step.action.member, step.action.peer)
            as_sender, as_receiver = told in pairs, told[::-1] in pairs
            if pairs:
                fits = {"sender": as_sender, "receiver": as_receiver}
                assert fits.get(step.action.half, as_sender or as_receiver)
                halves[step.action.half] += 1
    assert min(halves[half] for half in ("sender", "receiver", "both")) > 20


def test_by_turns_members_run_other_protocols() -> None:
    turns = (Turn(), Turn(stack="mcast", timing="compatible"), Turn(unicast="UNICAST4"))
    storm = storm_of("udp", turns=turns, turn=2)
    runs = [what_runs(storm.scenario(1, number).cluster) for number in range(8)]
    first, second, third = "udp, fast", "mcast, compatible", "udp, UNICAST4, fast"
    assert runs == [first, first, second, second, third, third, first, first]
    assert [storm.turn_ends(number) for number in range(5)] == [2, 2, 4, 4, 6]
    assert [what_runs(one.cluster) for one in storm.by_turn()] == [first, second, third]
    # What is drawn is of the seed and the number alone; it is what the turn's own storm draws.
    assert storm.of_window(3).scenario(1, 3) == storm.scenario(1, 3)
    alone = storm_of("udp")
    assert (alone.by_turn(), alone.turn_ends(5)) == ((alone,), None)
    assert storm_of("udp", turns=turns[:1]).turn_ends(5) is None


def test_a_turn_may_have_other_settings() -> None:
    small = Turn(
        settings=(("window_messages", 16),),
        multicast_settings=(("window_messages", 30),),
        protocols=(("FRAG", (("frag_size", 1500),)), ("MFC", (("max_credits", 30_000),))),
        unicast_first_conn=(1 << 32) - 3,
        max_batch=3,
    )
    storm = storm_of("udp", turns=(Turn(), small), turn=1)
    usual, other = (each.cluster for each in storm.by_turn())
    assert usual == storm.cluster
    assert settings_of(storm.of_window(1).widest()).of("UNICAST3").window_messages == 16
    assert what_runs(other) == (
        "udp, fast, window_messages 16, multicast window_messages 30, FRAG.frag_size 1500, "
        "MFC.max_credits 30000, max_batch 3, unicast_first_conn 4294967293"
    )
    assert what_runs(usual) == "udp, fast"


def test_each_window_has_many_messages_and_some_have_large_ones() -> None:
    storm = Storm(cluster=Cluster(members=MEMBERS, stack="udp", timing="fast"))
    loads = [storm.scenario(1, number).workload for number in range(50)]
    assert all(first.size[1] <= 8000 and first.count >= 50 for first, *_ in loads)
    largest = [load for window in loads for load in window if load.size[1] >= 1_000_000]
    assert len(largest) > 5
    assert all(load.count <= 2 for load in largest)


def test_what_the_faults_of_a_chapter_have_counted_is_forgotten_with_it() -> None:
    backend = SimBackend()
    soak = Soak(storm_of("udp", kinds=("cut", "loss"), window=10.0), 3, backend, Path())
    soak.open()
    for window in soak.windows(0, 3):
        assert sum(window.run.bites.values()) > 0
        assert any(backend.bites().values())
        soak.end(window)
        assert not any(backend.bites().values())


@pytest.mark.long
def test_incarnations_that_are_gone_for_long_are_forgotten() -> None:
    """A soak lasts for days, and members restart all the time."""
    soak = Soak(storm_of("udp", kinds=("restart",), window=20.0), 3, SimBackend(), Path())
    soak.open()
    labels: set[str] = set()
    for window in islice(soak.windows(), 20):
        assert window.judgement.verdict is Verdict.HOLDS
        labels |= {label for label in window.run.traces if label != RIG}
    hosts = soak._backend._world.engine.hosts  # type: ignore[attr-defined]
    assert len(hosts) < len(labels) - 5


@pytest.mark.parametrize(("window", "seconds"), [(5.0, 600.0), (60.0, 600.0), (120.0, 1200.0)])
def test_a_short_window_has_time_until_all_is_well(window: float, seconds: float) -> None:
    assert storm_of("udp", window=window).limits.run == seconds


def test_what_a_backend_must_be_able_to_do_has_the_largest_messages() -> None:
    assert storm_of("udp").widest().largest == max(high for _low, high in SMALL)
