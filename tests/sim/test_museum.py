"""The flaw museum: each flaw shows itself where it is said to, and is gone where it was mended."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from importlib.resources import files
from itertools import pairwise
from math import inf

import pytest

from stormcast.chaos.campaigns.museum import (
    EXHIBITS,
    FIRST_VERSION,
    STRANGERS,
    WINGS,
    Exhibit,
    Shown,
    exhibit_scenario,
    tour,
)
from stormcast.chaos.language.cluster import GENERATIONS
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.session.outcome import RunOutcome
from stormcast.chaos.session.runner import run_scenario
from stormcast.node import trace
from stormcast.node.core import wire
from stormcast.node.protocols.flow import HistoricalFlow
from stormcast.node.protocols.frag import HistoricalFrag
from stormcast.node.protocols.multicast import HistoricalMulticast
from stormcast.node.protocols.unicast import Historical
from stormcast.node.trace import Event

BY_NAME = {exhibit.name: exhibit for exhibit in EXHIBITS}
SILENCE = 39.0
"""Until then there is no alarm: a gap is 30 seconds old then."""


def events_of(outcome: RunOutcome, name: str, kind: int) -> list[Event]:
    """Events of one kind in the trace of one member, in order, by the clock of the scenario."""
    evidence = outcome.run.evidence
    begun = evidence.begin
    (member,) = (one for one in evidence.members.values() if one.name == name)
    return [
        event._replace(time=event.time - begun) for event in member.events if event.kind == kind
    ]


def delivered(outcome: RunOutcome, name: str, before: float = inf) -> list[int]:
    """Seqnos of multicasts that a member delivered, of whichever sender there is."""
    return [
        seqno
        for event in events_of(outcome, name, trace.DELIVERED)
        if event.time < before
        for seqno in range(event.lo, event.hi + 1)
    ]


def held(outcome: RunOutcome, name: str, before: float = inf) -> list[int]:
    """How many messages a member's window kept for later, each time it was looked at."""
    return [
        event.lo
        for event in events_of(outcome, name, trace.GAUGE)
        if event.stream == trace.RECEIVE_MESSAGES and event.time < before
    ]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.name)
def test_a_flaw_breaks_its_guarantee_and_its_fix_holds(exhibit: Exhibit, seed: int) -> None:
    (shown,) = tour((exhibit,), seed)
    finding = shown.flawed.judgement.of(exhibit.guarantee)
    assert finding.verdict is Verdict.VIOLATED
    assert exhibit.witness in " ".join((finding.detail, *finding.witness))
    assert finding.witness
    assert shown.flawed.verdict is Verdict.VIOLATED
    assert shown.fixed.verdict is Verdict.HOLDS, shown.fixed.judgement.findings
    assert all(shown.flawed.run.bites.values())
    assert all(shown.fixed.run.bites.values())
    assert shown.is_as_described


def test_every_exhibit_has_its_file_and_every_file_its_exhibit() -> None:
    folder = files("stormcast.chaos").joinpath("scenarios", "museum")
    there = {entry.name.removesuffix(".yaml") for entry in folder.iterdir()}
    assert there == set(BY_NAME)
    assert len(BY_NAME) == len(EXHIBITS)


def test_every_historical_flaw_is_on_show() -> None:
    shown = {key for exhibit in EXHIBITS for key in exhibit.flawed if "." not in key}
    kinds = (Historical, HistoricalMulticast, HistoricalFlow, HistoricalFrag)
    flaws = {field.name for kind in kinds for field in fields(kind)}
    assert shown == flaws | {"unicast", "stack", "sealed"}


def test_every_generation_is_on_show_but_the_last() -> None:
    """UNICAST4 is UNICAST3 with a fixed window: it brought no flaw of its own into the notes."""
    unicast = [exhibit for exhibit in EXHIBITS if exhibit.wing == "unicast"]
    shown = {side["unicast"] for one in unicast for side in (one.flawed, one.fixed)}
    assert shown == set(GENERATIONS) - {"UNICAST4"}


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.name)
def test_both_sides_of_an_exhibit_differ_in_their_protocol_only(exhibit: Exhibit) -> None:
    flawed, fixed = (exhibit_scenario(exhibit, side) for side in (exhibit.flawed, exhibit.fixed))
    assert flawed != fixed
    bare = [
        replace(
            side,
            cluster=replace(side.cluster, unicast=None, historical=(), protocols=(), sealed=False),
        )
        for side in (flawed, fixed)
    ]
    assert bare[0] == bare[1]
    assert not fixed.cluster.historical
    assert flawed.timeline
    assert exhibit.guarantee in flawed.guarantees


@pytest.mark.parametrize(
    "exhibit",
    [exhibit for exhibit in EXHIBITS if len(exhibit.flawed) > 1],
    ids=lambda exhibit: exhibit.name,
)
def test_a_flaw_is_in_the_setting_not_in_the_generation(exhibit: Exhibit) -> None:
    """The generation that had the flaw, without it: the guarantee of the exhibit holds."""
    what = next(iter(exhibit.flawed))
    mended = exhibit_scenario(exhibit, {what: exhibit.flawed[what]})
    outcome = run_scenario(mended, 1)
    assert outcome.judgement.of(exhibit.guarantee).verdict is Verdict.HOLDS


def test_an_exhibit_that_shows_nothing_is_noticed() -> None:
    """A flaw that does not show, a witness that is another, a fix that does not hold."""
    exhibit = BY_NAME["last-message-dropped"]
    (good,) = tour((exhibit,))
    assert good.is_as_described
    assert not Shown(exhibit, good.fixed, good.fixed).is_as_described
    assert not Shown(exhibit, good.flawed, good.flawed).is_as_described
    other_witness = replace(exhibit, witness="seqno 4711")
    assert not Shown(other_witness, good.flawed, good.fixed).is_as_described
    other_guarantee = replace(exhibit, guarantee="G2")
    assert not Shown(other_guarantee, good.flawed, good.fixed).is_as_described


def test_the_table_says_what_was_run_and_what_came_of_it() -> None:
    (shown,) = tour((BY_NAME["stored-for-ever"],))
    row = shown.as_json()
    assert row["exhibit"] == "stored-for-ever"
    assert row["flawed"] == {"unicast": "UNICAST", "conn_ids": "none"}
    assert row["fixed"] == {"unicast": "UNICAST2"}
    assert (row["flawed_verdict"], row["fixed_verdict"]) == ("violated", "holds")
    assert row["guarantee"] == "G1"
    assert row["as_described"] is True
    assert any("25..25" in line for line in row["witness"])


# -- The multicast wing --------------------------------------------------------------------------


def test_each_wing_has_its_exhibits() -> None:
    assert Counter(exhibit.wing for exhibit in EXHIBITS) == {
        "unicast": 13,
        "multicast": 6,
        FIRST_VERSION: 5,
        STRANGERS: 4,
    }
    assert set(WINGS) == {exhibit.wing for exhibit in EXHIBITS}


@pytest.mark.parametrize("name", ["joiner-queue-drops-oldest", "joiner-queue-refuses-newest"])
def test_a_joiner_with_an_unbounded_queue_delivers_all_that_came_early(name: str) -> None:
    """B's digest stands at 100, 70 messages wait for C's first view, and 30 follow."""
    (shown,) = tour((BY_NAME[name],))
    assert delivered(shown.fixed, "c") == list(range(101, 201))
    assert not events_of(shown.fixed, "c", trace.ALARM)
    assert not held(shown.fixed, "c")


def test_a_full_queue_that_drops_the_oldest_leaves_a_window_that_only_grows() -> None:
    """121..170 are kept, none is delivered, and 101 is expected until the alarm."""
    (shown,) = tour((BY_NAME["joiner-queue-drops-oldest"],))
    assert not delivered(shown.flawed, "c", SILENCE)
    (opened,) = [
        event
        for event in events_of(shown.flawed, "c", trace.CONN)
        if event.stream == trace.RECEIVER_OPEN and event.lo == 100
    ]
    kept = held(shown.flawed, "c", SILENCE)
    assert kept[0] == 50
    assert kept[-1] == 80, "what follows is stored behind the gap"
    assert all(one <= other for one, other in pairwise(kept))
    (alarm,) = events_of(shown.flawed, "c", trace.ALARM)
    assert (alarm.peer, alarm.lo, alarm.hi) == (opened.peer, 101, 120)
    assert delivered(shown.flawed, "c") == list(range(101, 201)), "it is asked for after all"


def test_a_full_queue_that_refuses_the_newest_loses_what_follows() -> None:
    """101..150 are delivered, and 151 is expected until the alarm."""
    (shown,) = tour((BY_NAME["joiner-queue-refuses-newest"],))
    assert delivered(shown.flawed, "c", SILENCE) == list(range(101, 151))
    kept = held(shown.flawed, "c", SILENCE)
    assert kept[-1] == 30
    assert all(one <= other for one, other in pairwise(kept))
    (alarm,) = events_of(shown.flawed, "c", trace.ALARM)
    assert (alarm.lo, alarm.hi) == (151, 170)
    assert delivered(shown.flawed, "c") == list(range(101, 201)), "it is asked for after all"


@pytest.mark.parametrize("name", ["receive-queue-drops", "send-buffers-drop"])
def test_what_is_dropped_below_nobody_sends_again_before_an_alarm(name: str) -> None:
    """A prefix is delivered, and all that follows is stored behind the gap."""
    (shown,) = tour((BY_NAME[name],))
    prefix = delivered(shown.flawed, "c", 30.0)
    assert prefix == list(range(1, len(prefix) + 1))
    assert 100 < len(prefix) < 130
    alarms = events_of(shown.flawed, "c", trace.ALARM)
    resent = events_of(shown.flawed, "b", trace.RETRANSMITTED)
    assert 30.0 < alarms[0].time <= resent[0].time
    kept = held(shown.flawed, "c", 30.0)
    assert kept[-1] >= 100
    assert all(one <= other for one, other in pairwise(kept))
    assert delivered(shown.fixed, "c") == list(range(1, 401))


def test_disordered_sending_has_each_second_number_asked_for_in_vain() -> None:
    """1 3 4 2 5: forty times in 200 messages, at two receivers; sent in order, nobody asks."""
    (shown,) = tour((BY_NAME["disordered-sending"],))
    for name in ("n1", "n2"):
        asked = events_of(shown.flawed, name, trace.REQUESTED)
        assert [(event.lo, event.hi) for event in asked] == [
            (seqno, seqno) for seqno in range(2, 201, 5)
        ]
        assert not events_of(shown.fixed, name, trace.REQUESTED)
        assert delivered(shown.flawed, name) == delivered(shown.fixed, name) == [*range(1, 201)]


def test_over_a_stream_that_stands_still_retransmission_is_a_storm() -> None:
    """Nothing is lost, and B sends twice as much again and more; without it, nothing."""
    (shown,) = tour((BY_NAME["storm-over-a-stream"],))
    resent = events_of(shown.flawed, "b", trace.RETRANSMITTED)
    assert sum(event.count for event in resent) > 2000
    assert all(event.peer == resent[0].peer for event in resent)
    assert not events_of(shown.fixed, "b", trace.RETRANSMITTED)
    assert not events_of(shown.fixed, "c", trace.REQUESTED)
    everything = Counter([*range(1, 1001), *range(1, 101), *range(1, 101)])
    for outcome in (shown.flawed, shown.fixed):
        assert Counter(delivered(outcome, "c")) == everything, "of B, of A, and its own"


# -- The first version ---------------------------------------------------------------------------


def handed(outcome: RunOutcome, name: str, before: float = inf) -> int:
    """How many messages the application of a member was handed."""
    return sum(
        event.count for event in events_of(outcome, name, trace.HANDED) if event.time < before
    )


def views(outcome: RunOutcome, name: str, before: float = inf) -> int:
    """How many views a member installed."""
    return sum(event.time < before for event in events_of(outcome, name, trace.VIEW))


def test_pieces_beyond_the_bounds_were_acked_and_thrown_away() -> None:
    """C's window has all 160 pieces of 40 messages, and acked them: B is told nothing."""
    (shown,) = tour((BY_NAME["refused-after-acked"],))
    for outcome in (shown.flawed, shown.fixed):
        assert sorted(delivered(outcome, "c")) == list(range(1, 161))
        assert not events_of(outcome, "b", trace.ABANDONED)
    assert handed(shown.flawed, "c") < 20
    assert handed(shown.fixed, "c") == 40
    assert not events_of(shown.flawed, "b", trace.BLOCKED)
    assert events_of(shown.fixed, "b", trace.BLOCKED), "the sender waits"


def test_a_sender_that_waited_for_credits_lost_its_connection_and_what_waited() -> None:
    """All that was sent is acked when the connection is removed, and no view changes."""
    (shown,) = tour((BY_NAME["waiting-is-not-idle"],))
    sent = sum(event.count for event in events_of(shown.flawed, "a", trace.SENT))
    (given_up,) = events_of(shown.flawed, "a", trace.ABANDONED)
    assert 25.0 < given_up.time < 45.5, "while B is stalled"
    assert given_up.count == 1000 - handed(shown.flawed, "b")
    assert handed(shown.flawed, "b") == sent
    assert handed(shown.fixed, "b") == 1000
    assert not events_of(shown.fixed, "a", trace.ABANDONED)
    assert views(shown.flawed, "b") == views(shown.fixed, "b")


def test_a_question_about_a_dead_connection_was_asked_until_the_member_was_gone() -> None:
    """What was sent on the connection is lost with it, on both sides. What follows is not sent."""
    (shown,) = tour((BY_NAME["question-about-a-dead-connection"],))
    gone = 6.5

    def asked_of(outcome: RunOutcome) -> set[int]:
        """About which connections A asks once the first one is gone."""
        return {
            event.conn
            for event in events_of(outcome, "a", trace.CREDIT)
            if event.stream == trace.ASKED and event.protocol == wire.UFC and event.time > gone
        }

    (first,) = {
        event.conn
        for event in events_of(shown.flawed, "a", trace.CREDIT)
        if event.stream == trace.ASKED and event.time < gone
    }
    assert asked_of(shown.flawed) == {first}
    assert first not in asked_of(shown.fixed)
    assert not delivered(shown.flawed, "b")
    assert handed(shown.fixed, "b") == 100
    assert not [
        event for event in events_of(shown.flawed, "a", trace.SENT) if gone < event.time < 40.0
    ]


def test_a_silent_member_was_given_up_before_a_view_excluded_it() -> None:
    """B is silent for 25 s and stays in the view. A gives up what it sent meanwhile."""
    (shown,) = tour((BY_NAME["given-up-before-the-view"],))
    for outcome in (shown.flawed, shown.fixed):
        assert views(outcome, "a") == views(outcome, "a", before=10.0)
    assert delivered(shown.flawed, "b") == list(range(1, 101))
    assert delivered(shown.fixed, "b") == list(range(1, 201))
    (removed,) = [
        event
        for event in events_of(shown.flawed, "a", trace.CONN)
        if event.stream == trace.SENDER_REMOVED
    ]
    assert 10.0 < removed.time < 35.0, "during the partition"
    assert not [
        event
        for event in events_of(shown.fixed, "a", trace.CONN)
        if event.stream == trace.SENDER_REMOVED and event.time < 35.0
    ]
