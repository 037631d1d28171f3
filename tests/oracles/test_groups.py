"""Reading groups out of traces: views, streams, windows, and what settings say of them."""

from __future__ import annotations

from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.groups import last_view, since, view_at
from stormcast.chaos.oracles.history import Member
from stormcast.chaos.oracles.verdict import Verdict, judge
from stormcast.chaos.oracles.witness import describe
from stormcast.node import trace
from stormcast.node.core import wire
from tests.oracles.story import IDS, Story


def read(story: Story) -> Evidence:
    return Evidence.from_blocks(story.told(), xxh3_64_intdigest)


def member(evidence: Evidence, label: str) -> Member:
    return evidence.members[IDS[label]]


def test_multicasts_are_indexed_by_their_sender_and_receivers() -> None:
    evidence = read(Story().a_group().a_clean_cast().a_clean_cast(6, 8, at=2.0))

    assert evidence.defects == []
    assert evidence.unicasts.connections == {}
    stream = evidence.groups.streams[IDS["n0"]]
    assert [event.hi for event in stream.sent] == [5, 8]
    assert [event.hi for _place, event in stream.purged] == [5, 8]
    for label in ("n0", "n1", "n2"):
        assert [event.hi for event in stream.delivered_to(member(evidence, label))] == [5, 8]
    assert evidence.messages_sent == 8


def test_a_member_has_another_since_the_last_view_that_lacked_it() -> None:
    story = Story().a_group().at(2.0).installs(2, "n0", "n2").at(3.0).installs(3, "n0", "n1", "n2")
    evidence = read(story.at(4.0).installs(4, "n0", "n1"))
    n0, n1, n2 = (member(evidence, label) for label in ("n0", "n1", "n2"))

    begin = since(n0, n1)
    assert begin is not None
    assert begin.number == 3
    assert since(n0, n2) is None
    met = since(n1, n0)
    assert met is not None
    assert met.number == 1, "n1 never saw the view without it"
    now, last = view_at(n0, 3.5), last_view(n0)
    assert now is not None
    assert last is not None
    assert (now.number, last.number) == (3, 4)
    assert view_at(n0, 0.1) is None


def test_a_batch_belongs_to_the_view_that_it_names() -> None:
    """Within a turn the view may be recorded after what was sent in it."""
    story = Story().a_group("n0", "n1").at(2.0).casts(1, view=2).installs(2, "n0", "n1", "n2")
    story.at(3.0).casts(2)
    stream = read(story).groups.streams[IDS["n0"]]

    assert stream.sent_in == [1, 1]


def test_what_names_no_window_is_of_the_newest() -> None:
    story = Story().a_group().at(1.0).unwatches("n1", "n0").watches("n1", "n0", epoch=7)
    evidence = read(story.at(2.0).confirms(1, epoch=0))

    windows = evidence.groups.streams[IDS["n0"]].windows_of(member(evidence, "n1"))
    assert [window.number for window in windows] == [1, 7]
    assert len(windows[1].acked) == 1


def test_a_sender_that_was_heard_by_multicast_must_have_left_a_trace() -> None:
    blocks = Story().a_group().a_clean_cast().told()
    del blocks["n0"]

    evidence = Evidence.from_blocks(blocks, xxh3_64_intdigest)
    assert evidence.defects == ["a0 was heard and left no trace"]


def test_a_view_of_nonsense_is_no_evidence() -> None:
    story = Story().a_group()
    story._note(trace.VIEW, "n0", "n0", protocol=0, lo=9, text="a0,frog")

    (defect,) = read(story).defects
    assert defect == "n0: 'a0,frog' is no list of members"


@pytest.mark.parametrize(
    ("more", "repairs"),
    [
        ({"attribute": "xmit_interval", "value": 0}, True),
        ({"attribute": "NAKACK2.xmit_interval", "value": 0}, False),
        ({"attribute": "NAKACK2.xmit_interval", "value": "0"}, False),
        ({"attribute": "NAKACK2.xmit_interval", "value": "-1"}, False),
        ({"attribute": "NAKACK2.xmit_interval", "value": "-1s"}, None),
        ({"attribute": "NAKACK2.xmit_interval", "value": False}, None),
        ({"attribute": "NAKACK2.xmit_interval", "value": "0s"}, False),
        ({"attribute": "NAKACK2.xmit_interval", "value": "500ms"}, True),
        ({"attribute": "NAKACK2.xmit_interval", "value": "frog"}, None),
        ({"attribute": "UNICAST3.xmit_interval", "value": 0}, True),
        ({"attribute": "max_xmit_req_size", "value": 0}, True),
        ({}, None),
    ],
)
def test_whether_multicasts_are_repaired_may_change(
    more: dict[str, Any], *, repairs: bool | None
) -> None:
    story = Story({"NAKACK2": {"xmit_interval": 1.0, "bounds": {"request_size": 5}}})
    story.a_group().at(2.0).fault("set-attribute", member="n1", **more)
    evidence = read(story)

    n0, n1 = member(evidence, "n0"), member(evidence, "n1")
    assert n1.repairs(1.0) is True
    assert n1.repairs(3.0) is repairs
    assert n0.repairs(3.0) is True
    assert (n0.bound(wire.NAKACK2, "request_size"), n1.bound(wire.NAKACK2, "request_size")) == (
        5,
        None,
    )


def test_bounds_are_looked_up_by_protocol() -> None:
    story = Story({"NAKACK2": {"bounds": {"quiet_within": 7.0}}}, quiet_within=3.0)
    n0 = member(read(story.a_group()), "n0")

    assert n0.bound(wire.UNICAST3, "quiet_within") == 3.0
    assert n0.bound(wire.NAKACK2, "quiet_within") == 7.0
    assert n0.bound(wire.MCAST, "quiet_within") is None
    assert n0.bound(wire.GMS, "quiet_within") is None


def test_faults_that_nothing_ended_are_standing() -> None:
    story = Story().a_group().fault("partition", name="f1").fault("loss", name="f2")
    evidence = read(story.at(2.0).fault("partition", "off", name="f1"))

    assert evidence.rig.standing == {"f2": "loss"}


def test_a_repeat_of_a_multicast_is_of_its_first_sender() -> None:
    story = Story().a_group().a_clean_cast().at(2.0).recasts(1, 5, "n2", "n1", of="n0")
    stream = read(story).groups.streams[IDS["n0"]]

    ((by, event),) = stream.resent
    assert (by.short, event.lo) == (IDS["n2"], 1)


def test_group_events_in_words() -> None:
    story = Story().at(1.0).installs(4, "n0", "n1", merge=True).alarms(3, 5).asks(3, joining=True)
    story.misses(5).unwatches("n1", "n0", at=5).blocks("n1").announces(9, "n1")
    story._note(trace.SUSPECT, "n1", "n0", stream=trace.CONFIRMED)
    story._note(trace.SYNC, "n1", "n0", protocol=wire.NAKACK2)
    evidence = read(story)
    n1 = member(evidence, "n1")

    assert [describe(evidence, n1, event).partition(" t=1.000 ")[2] for event in n1.events[1:]] == [
        "merged view 4 of n0: n0, n1",
        "alarm about n0 multicasts 3..5 (a gap stands)",
        "requested from n0 window 1 multicasts 3..3 (joining)",
        "skipped from n0 window 1 multicasts up to 5",
        "receiver removed from n0 window 1 at multicast 5 (view)",
        "blocked towards the group",
        "announced multicast 9",
        "confirmed n0",
        "asked n0 from which multicast on there is something",
    ]


def test_runs_without_a_group_hold_what_is_said_of_groups() -> None:
    judgement = judge(read(Story().a_clean_exchange()))

    for guarantee in ("A1", "V1", "V2", "V3", "V4"):
        assert judgement.of(guarantee).verdict is Verdict.HOLDS
