"""Reading traces: whole or not at all, and who lived when."""

from __future__ import annotations

import random
from math import inf

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.history import Span
from stormcast.chaos.oracles.verdict import Verdict, judge
from stormcast.node import trace
from stormcast.node.trace import read_blocks_untrusted
from tests.oracles.impossible import DAMAGED, IMPOSSIBLE
from tests.oracles.story import IDS, Story


def read(blocks: dict[str, bytes]) -> Evidence:
    return Evidence.from_blocks(blocks, hash64)


def test_a_trace_is_indexed_by_who_spoke_with_whom() -> None:
    evidence = read(Story().a_clean_exchange().a_clean_exchange(6, 8, at=2.0).told())

    assert evidence.defects == []
    connection = evidence.unicasts.connections[IDS["n0"], IDS["n1"], 1]
    (entry,), (epoch,) = connection.entries, connection.epochs
    assert [event.hi for event in entry.sent] == [5, 8]
    assert [event.hi for event in entry.purged] == [5, 8]
    assert [event.hi for event in epoch.delivered] == [5, 8]
    assert [event for _epoch, event in entry.delivered] == epoch.delivered
    assert (evidence.rig.quiet, evidence.rig.end, evidence.messages_sent) == (10.0, 20.0, 8)


def test_an_empty_trace_is_no_evidence() -> None:
    blocks = Story().a_clean_exchange().told()

    assert read(blocks | {"n1": b""}).defects == ["n1: empty trace"]


@pytest.mark.parametrize("cut", [1, 40, 100])
def test_a_torn_trace_is_no_evidence(cut: int) -> None:
    story = Story().a_clean_exchange()
    blocks = story.told()

    evidence = read(blocks | {"n1": blocks["n1"][:-cut]})
    assert evidence.defects == ["n1: torn block"]
    assert judge(evidence).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_no_member_writes_is_no_evidence(name: str) -> None:
    blocks, reason = IMPOSSIBLE[name]

    evidence = read(blocks)
    assert any(reason in defect for defect in evidence.defects), evidence.defects
    assert judge(evidence).verdict is Verdict.UNKNOWN


def test_every_tear_and_every_flipped_byte_is_noticed() -> None:
    blocks = Story().a_clean_exchange().told()
    whole = blocks["n1"]
    chance = random.Random(1)

    for _ in range(200):
        at = chance.randrange(len(whole))
        assert read(blocks | {"n1": whole[:at]}).defects
        flipped = bytearray(whole)
        flipped[at] ^= 1 << chance.randrange(8)
        evidence = read(blocks | {"n1": bytes(flipped)})
        # Four bytes of the header are reserved, and the check does not cover them.
        assert evidence.defects or 36 <= at < 40
        judge(evidence)


def test_the_last_block_of_a_killed_member_may_be_torn() -> None:
    """What it had written and nobody saw is as if it had not happened."""
    story = Story().a_clean_exchange()
    seen = len(story.told()["n1"])
    story.at(2.0).sends(6).at(2.1).fault("crash", member="n1").delivers(6).bites(1)
    blocks = story.told()

    for length in range(seen, len(blocks["n1"])):
        evidence = read(blocks | {"n1": blocks["n1"][:length]})
        assert evidence.defects == []
        assert judge(evidence).verdict is Verdict.HOLDS


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_before_the_last_block_of_a_killed_member_is_no_evidence(name: str) -> None:
    evidence = read(DAMAGED[name])
    assert evidence.defects == ["n1: damaged: whole blocks follow"]
    assert judge(evidence).verdict is Verdict.UNKNOWN


def test_a_trace_with_blocks_of_two_members_is_no_evidence() -> None:
    blocks = Story().a_clean_exchange().told()

    mixed = read(blocks | {"n1": blocks["n1"] + blocks["n0"]})
    assert mixed.defects[0] == "n1: block of another member"


def test_two_traces_of_one_member_are_no_evidence() -> None:
    blocks = Story().a_clean_exchange().told()

    assert read(blocks | {"copy": blocks["n1"]}).defects == ["copy: the same member as n1"]


def test_a_missing_block_is_noticed() -> None:
    story = Story().a_clean_exchange()
    first = len(story.told()["n1"])
    story.at(2.0).acks(5)
    second = len(story.told()["n1"])
    story.at(3.0).acks(5)
    blocks = story.told()

    missing = blocks["n1"][:first] + blocks["n1"][second:]
    assert read(blocks | {"n1": missing}).defects == ["n1: events 4..5 are missing"]


@pytest.mark.parametrize(
    ("count", "hi", "lost"), [(3, 8, "events 6..8"), (0, 0, "events from 6 on")]
)
def test_a_trace_that_says_it_is_not_whole_is_no_evidence(count: int, hi: int, lost: str) -> None:
    """Nothing is violated in what was kept; what was not may have broken anything."""
    story = Story().a_clean_exchange()
    whole = story.told()
    assert judge(read(whole)).verdict is Verdict.HOLDS

    event = (trace.TRUNCATED, *[0] * 7, count, 6, hi, 0, 0, 0, 1, 2.0)
    numbered = sum(len(block.events) for block in read_blocks_untrusted(whole["n1"], hash64))
    text = trace.pack_text("disk full")
    notice = trace.pack_block(IDS["n1"], numbered, 0, [event], text, hash64)
    evidence = read(whole | {"n1": whole["n1"] + notice})
    assert evidence.defects == [f"n1: {lost} were not kept: disk full"]
    assert judge(evidence).verdict is Verdict.UNKNOWN
    assert {finding.verdict for finding in judge(evidence).findings} == {Verdict.UNKNOWN}


@pytest.mark.parametrize(("label", "who"), [("n0", "a0"), ("n1", "a1")])
def test_a_member_that_was_heard_must_have_left_a_trace(label: str, who: str) -> None:
    blocks = Story().a_clean_exchange().told()
    del blocks[label]

    assert read(blocks).defects == [f"{who} was heard and left no trace"]


@pytest.mark.parametrize("kind", [trace.ACKED, trace.REQUESTED, trace.SYNC])
def test_a_stranger_that_is_answered_need_not_have_left_a_trace(kind: int) -> None:
    """n2 answers a frame in the name of n3, of which nothing was delivered."""
    story = Story().a_clean_exchange().at(2.0)
    story._note(kind, "n2", "n3", conn=7, epoch=1, count=1, lo=1, hi=1)
    blocks = story.told()
    del blocks["n3"]

    assert read(blocks).defects == []


def test_a_member_of_the_last_view_must_have_left_a_trace() -> None:
    blocks = Story().a_group().a_clean_cast().told()
    del blocks["n2"]

    assert read(blocks).defects == ["a2 was in a view and left no trace"]


def test_a_run_without_its_end_is_no_evidence() -> None:
    blocks = Story().a_clean_exchange().told()
    del blocks["rig"]

    assert read(blocks).defects == ["the rig recorded no end of the run"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (trace.FAULT, "{half a fau"),
        (trace.FAULT, "[1]"),
        (trace.FAULT, '{"id": "f1", "do": "pause", "phase": "on", "member": []}'),
        (trace.PROBE, '{"id": "f1", "do": "loss", "bit": null}'),
    ],
)
def test_a_rig_that_talks_nonsense_is_no_evidence(kind: int, text: str) -> None:
    story = Story().a_clean_exchange()
    story.rig.record(kind, 2.0, text=text)

    (defect,) = read(story.told()).defects
    assert defect.startswith(f"rig: {text[:40]!r} does not say what it should")


def test_who_ended_how() -> None:
    story = Story().a_clean_exchange().at(2.0).sends(1, to="n2", conn=2)
    story.at(3.0).fault("restart", member="n1").at(3.5).sends(1, to="n1-2", conn=3)
    story.at(4.0).stops("n2")
    members = read(story.told()).members

    ended = {label: members[IDS[label]].ended for label in ("n0", "n1", "n1-2", "n2")}
    assert ended == {"n0": inf, "n1": 3.0, "n1-2": inf, "n2": 4.0}
    assert members[IDS["n1-2"]].name == "n1-2"


def test_a_member_is_replaced_by_whoever_starts_under_its_name() -> None:
    """No fault says so: it died by itself."""
    story = Story().a_clean_exchange().at(3.5).sends(1, to="n1-2", conn=3)

    assert read(story.told()).members[IDS["n1"]].ended == 3.5


@pytest.mark.parametrize("backwards", [False, True])
def test_of_two_that_started_at_once_the_killed_one_was_first(*, backwards: bool) -> None:
    story = Story().sends(1, to="n1").fault("restart", member="n1").sends(1, to="n1-2", conn=2)
    blocks = story.told()
    evidence = read(dict(reversed(blocks.items())) if backwards else blocks)

    ended = {label: evidence.members[IDS[label]].ended for label in ("n1", "n1-2")}
    assert ended == {"n1": 0.0, "n1-2": inf}


@pytest.mark.parametrize(
    ("do", "phase", "name"),
    [
        ("resume", "off", "heal"),
        ("resume", "on", "f9"),
        ("pause", "off", "f1"),
        ("end", "off", "f1"),
    ],
)
def test_a_pause_ends_by_its_name_or_by_a_resume(do: str, phase: str, name: str) -> None:
    story = Story().a_clean_exchange().at(2.0).fault("pause", member="n1", name="f1")
    story.at(2.5).fault("loss", "off", name="f3").fault("consume", "off", member="n1", name="f4")
    story.fault("resume", "off", member="n0", name="f5")
    story.at(3.0).fault(do, phase, member="n1", name=name)
    member = read(story.told()).members[IDS["n1"]]

    assert member.paused == [Span(2.0, 3.0)]
    assert member.stalled == []


def test_a_witness_names_the_incarnation_where_there_are_two() -> None:
    blocks = Story().a_clean_exchange().at(2.0).sends(6).told()
    once = judge(read({f"{label}-1": data for label, data in blocks.items()}))
    assert once.of("G1").witness == ("n0#4 t=2.000 sent to n1 conn 1 seqnos 6..6",)

    story = Story().a_clean_exchange().at(3.0).opens(to="n1-2", conn=2)
    twice = judge(read(story.sends(1, to="n1-2", conn=2).told()))
    assert twice.of("G1").witness == ("n0#5 t=3.000 sent to n1-2 conn 2 seqnos 1..1",)


def test_a_stall_that_nothing_ends_lasts() -> None:
    story = Story().a_clean_exchange().at(2.0).fault("stall", member="n1")

    assert read(story.told()).members[IDS["n1"]].stalled == [Span(2.0, inf)]


def test_settings_that_change_promise_nothing() -> None:
    story = Story(ack_within=0.5).a_clean_exchange().at(2.0).sends(6).at(2.1).delivers(6)
    assert judge(read(story.told())).of("L1").verdict is Verdict.VIOLATED

    story = Story(ack_within=0.5).a_clean_exchange().at(2.0).sends(6).at(2.1).delivers(6)
    story.at(0.5).fault("set-attribute", member="n1").bites(1)
    assert judge(read(story.told())).of("L1").verdict is Verdict.HOLDS
