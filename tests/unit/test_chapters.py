"""The chapters of a soak: damage in traces stays damage, and is told once."""

from __future__ import annotations

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.rest import unrest
from stormcast.chaos.oracles.verdict import Verdict, judge
from stormcast.chaos.soak.chapters import RIG, Chapters
from stormcast.node.trace import DELIVERED, HEADER, RECORD, read_blocks_untrusted
from stormcast.node.trace.files import count_events, shifted
from tests.oracles.story import Story


def told() -> dict[str, bytes]:
    return dict(Story().a_clean_exchange().told())


def members_of(traces: dict[str, bytes]) -> dict[str, bytes]:
    return {label: data for label, data in traces.items() if label != RIG}


def damaged(data: bytes) -> bytes:
    """The trace with one bit of a delivery's digest flipped."""
    at = 0
    for block in read_blocks_untrusted(data, hash64):
        for number, event in enumerate(block.events):
            if event.kind == DELIVERED:
                flipped = bytearray(data)
                flipped[at + HEADER.size + number * RECORD.size + 48] ^= 1
                return bytes(flipped)
        at += block.size
    raise AssertionError("nothing was delivered")


def test_damage_is_not_made_evidence() -> None:
    traces = told()
    label = "n1"
    traces[label] = damaged(traces[label])
    chapters = Chapters()
    chapters.add(members_of(traces), traces[RIG])

    for given in (traces, chapters.traces()):
        evidence = Evidence.from_blocks(given, hash64)
        assert evidence.defects == ["n1: block check"]
        assert judge(evidence).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("size", [1, 20, HEADER.size - 1, HEADER.size + 1])
def test_a_torn_end_is_there_once_and_ends_nothing(size: int) -> None:
    """The whole blocks count, and the end is told in one chapter only."""
    traces = told()
    label = next(iter(members_of(traces)))
    events = count_events(traces[label])
    end = shifted(traces[label], events)[:size]
    torn = {**members_of(traces), label: traces[label] + end}
    chapters = Chapters()
    for _window in range(2):
        chapters.add(torn, b"" if chapters.read else traces[RIG])
        assert chapters.traces()[label] == torn[label]
        assert chapters.read[label] == events
    chapters.turn(Evidence.from_blocks({**members_of(traces), RIG: traces[RIG]}, hash64))
    chapters.add(torn, b"")
    assert not chapters.traces().get(label, b"").endswith(end)


def test_a_trace_of_which_only_the_end_is_there_is_no_evidence() -> None:
    traces = told()
    chapters = Chapters()
    chapters.add({**members_of(traces), "n9-1": traces["n0"][:20]}, traces[RIG])
    assert Evidence.from_blocks(chapters.traces(), hash64).defects == ["n9-1: torn block header"]


@pytest.mark.parametrize("is_joined", [True, False])
def test_a_chapter_does_not_end_before_the_last_message_in_pieces_is_handed_over(
    is_joined: bool,
) -> None:
    story = Story(both_ends=True).at(19.2).offers(1).cuts(1, 2).opens()
    story.sends(1, number=1, piece=True).sends(2, number=1, piece=True)
    story.at(19.9).listens().delivers(1, piece=True).delivers(2, piece=True)
    if is_joined:
        story.is_given_whole(1, 1, 2)
    story.acks(2).purges(1, 2).quiet(19.9).ends(20.0)

    evidence = Evidence.from_blocks(story.told(), hash64)
    assert judge(evidence).verdict is Verdict.HOLDS
    assert (unrest(evidence) == "") is is_joined
