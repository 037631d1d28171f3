"""The simulator: the same seed gives the same trace, and every fault does what its name says.

Effects are read off the traces. Messages are OOB and travel one to a frame, so that the time
between a SENT and its DELIVERED is what the network did to that frame.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.language.cluster import GENERATIONS, TIMINGS
from stormcast.chaos.language.scenario import Scenario, load_scenario, parse_scenario
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.records.directory import TakenError
from stormcast.chaos.session.judging import judge_run
from stormcast.chaos.session.plans import check_supported
from stormcast.chaos.session.record import RunRecord
from stormcast.chaos.session.runner import run_scenario
from stormcast.chaos.session.simulation import simulate
from stormcast.node import trace
from stormcast.node.core.errors import ConfigError
from stormcast.node.protocols.unicast import Unicast
from stormcast.node.trace import Event, read_blocks_untrusted

DELAY = 0.01


def story(
    *timeline: str,
    members: int = 2,
    load: str = "{do: unicast, from: n0, to: n1, count: 300, rate: 100/s, size: 64B, flags: [OOB]}",
    more: str = "",
    cluster: str = "",
    network: str = "delay: 10ms",
    guarantees: str = "G1, G2",
) -> Scenario:
    """Three seconds of messages from n0 to n1, and what happens to them."""
    steps = "".join(f"  - {{{step}}}\n" for step in timeline)
    return parse_scenario(
        f"name: story\nguarantees: [{guarantees}]\n"
        f"cluster: {{members: {members}, unicast: UNICAST3, max_batch: 1{cluster}}}\n"
        f"network: {{{network}}}\n"
        f"workload:\n  - {load}\n{more}" + (f"timeline:\n{steps}" if steps else "")
    )


class Played:
    """A run, and what its traces say."""

    def __init__(self, scenario: Scenario, seed: int = 1) -> None:
        self.run: RunRecord = simulate(scenario, seed)

    def events(self, label: str, *kinds: int) -> list[Event]:
        blocks = read_blocks_untrusted(self.run.traces[label], hash64)
        return [event for block in blocks for event in block.events if event.kind in kinds]

    def texts(self, label: str, *kinds: int) -> list[tuple[float, str]]:
        return [
            (event.time, block.text(event))
            for block in read_blocks_untrusted(self.run.traces[label], hash64)
            for event in block.events
            if event.kind in kinds
        ]

    def latencies(self, source: str = "n0-1", dest: str = "n1-1") -> list[tuple[float, float]]:
        """When each message that arrived was sent, and how long it took, in ms, in that order."""
        sent = {event.digest: event.time for event in self.events(source, trace.SENT)}
        return sorted(
            (sent[event.digest], round(1000 * (event.time - sent[event.digest]), 6))
            for event in self.events(dest, trace.DELIVERED)
            if event.digest in sent
        )

    def inside(self, begin: float, end: float) -> list[float]:
        """What messages took that were sent while a fault lasted."""
        return [took for sent, took in self.latencies() if begin <= sent < end]

    def outside(self, begin: float, end: float) -> list[float]:
        return [took for sent, took in self.latencies() if not begin <= sent < end]

    def dropped(self, label: str) -> Counter[str]:
        """How many frames a member refused, by reason."""
        counts: Counter[str] = Counter()
        for block in read_blocks_untrusted(self.run.traces[label], hash64):
            for event in block.events:
                if event.kind == trace.DROPPED:
                    counts[block.text(event)] += event.count
        return counts


def test_a_network_without_faults_takes_its_delay_and_nothing_else() -> None:
    told = Played(story())
    assert {took for _sent, took in told.latencies()} == {10.0}
    assert told.run.sent == told.run.delivered == 300
    assert told.run.complete
    assert told.run.bites == told.run.kinds == {}
    assert told.events("n0-1", trace.RETRANSMITTED) == []


# -- Determinism -----------------------------------------------------------------------------------

EVERYTHING = """\
name: everything-at-once
guarantees: [G1]
cluster: {members: 3, max_batch: 5, settings: {conn_close_timeout: 5s}}
network:
  {delay: 5ms, jitter: 1ms, loss: 1%, duplicate: 1%, reorder: 1%, reorder_by: 20ms, corrupt: 1%}
workload:
  - {do: unicast, from: all, to: others, count: 100, rate: 25/s, size: 16B..300B, burst: 5,
     oob_every: 7}
timeline:
  - {at: 200ms, do: loss, rate: 20%, for: 1s}
  - {at: 300ms, do: delay, delay: 20ms, jitter: 20ms, for: 1s}
  - {at: 400ms, do: duplicate, rate: 20%, for: 1s}
  - {at: 500ms, do: reorder, rate: 20%, by: 50ms, for: 1s}
  - {at: 600ms, do: corrupt, rate: 10%, for: 1s}
  - {at: 700ms, do: bandwidth, rate: 10KiB/s, from: n0, for: 1s}
  - {at: 800ms, do: cut, from: n0, to: n1, for: 500ms}
  - {at: 900ms, do: rule, does: hold, match: {kind: ACK, occurrence: 1..5}, for: 1s}
  - {at: 900ms, do: rule, does: delay, delay: 100ms, match: {seqno: 20..40}, for: 1s}
  - {at: 900ms, do: rule, does: corrupt, match: {kind: DATA, from: n2}, times: 3}
  - {at: 1s, do: partition, groups: random, for: 300ms}
  - {at: 1500ms, do: pause, member: random, for: 500ms}
  - {at: 1600ms, do: stall, member: n1, for: 300ms}
  - {at: 2s, do: forget, member: n1, peer: n0}
  - {at: 2100ms, do: close, member: n2, peer: n0}
  - {at: 2200ms, do: install-view, member: n0, members: [n0, n1]}
  - {at: 2300ms, do: set-attribute, member: n0, attribute: xmit_interval, value: 250ms}
  - {at: 2500ms, do: crash, member: n2, for: 400ms}
  - {at: 3s, do: restart, member: n0}
"""


def everything(generation: str, timing: str) -> Scenario:
    scenario = parse_scenario(EVERYTHING)
    return replace(scenario, cluster=replace(scenario.cluster, unicast=generation, timing=timing))


@pytest.mark.slow
@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("generation", GENERATIONS)
def test_the_same_seed_gives_the_same_trace_byte_for_byte(generation: str, timing: str) -> None:
    scenario = everything(generation, timing)
    first, second = simulate(scenario, 7), simulate(scenario, 7)
    assert first == second
    # All of it happened, else this would say little.
    assert len(first.bites) == 19
    assert sum(1 for count in first.bites.values() if count) >= 16
    assert {"n0-2", "n2-2", "rig"} <= set(first.traces)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_trace_under_the_kernels_dice() -> None:
    scenario = everything("UNICAST3", "fast")
    first, second = (simulate(scenario, 7, fate="jhash") for _ in range(2))
    assert first == second
    assert first.traces != simulate(scenario, 7).traces


FINGERPRINT = """\
import sys
from hashlib import sha256
from tests.sim.test_simulator import everything
from stormcast.chaos.session.simulation import simulate
run = simulate(everything("UNICAST3-SYNC", "fast"), 7)
print(sha256(b"".join(run.traces[name] for name in sorted(run.traces))).hexdigest())
"""


@pytest.mark.slow
def test_another_process_gives_the_same_trace() -> None:
    """Hash randomization differs between processes; no order may hang on it."""
    run = simulate(everything("UNICAST3-SYNC", "fast"), 7)
    here = sha256(b"".join(run.traces[name] for name in sorted(run.traces))).hexdigest()
    for salt in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": salt}
        done = subprocess.run(
            [sys.executable, "-c", FINGERPRINT],
            cwd=Path(__file__).parents[2],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == here


@pytest.mark.slow
def test_another_seed_gives_another_run() -> None:
    scenario = everything("UNICAST3", "compatible")
    runs = [simulate(scenario, seed) for seed in (7, 8)]
    assert runs[0].bites != runs[1].bites
    told = [Played(story("at: 0s, do: loss, rate: 30%"), seed) for seed in (1, 2, 3)]
    lost = [[sent for sent, took in one.latencies() if took > 10] for one in told]
    assert lost[0] != lost[1] != lost[2] != lost[0]


def test_what_is_lost_does_not_depend_on_when_it_is_sent() -> None:
    """The same messages at twice the rate: the same first transmissions are lost."""
    lost = []
    for rate in (100, 200):
        load = f"{{do: unicast, from: n0, to: n1, count: 300, rate: {rate}/s, flags: [OOB]}}"
        told = Played(story("at: 0s, do: loss, from: n0, to: n1, rate: 30%", load=load))
        resent = {event.lo for event in told.events("n0-1", trace.RETRANSMITTED)}
        late = {event.lo for event in told.events("n1-1", trace.DELIVERED) if event.lo in resent}
        lost.append(late)
    assert 60 < len(lost[0]) < 120
    assert len(lost[0] & lost[1]) >= len(lost[0]) - 2


def test_a_fault_elsewhere_does_not_change_what_a_fault_does_here() -> None:
    """Loss from n0 to n1 takes the same frames, whatever goes on between n1 and n2."""
    loss = "at: 0s, do: loss, name: here, from: n0, to: n1, rate: 30%"
    alone = Played(story(loss, members=3))
    extra = "  - {do: unicast, from: n2, to: n1, count: 200, rate: 70/s}\n"
    crowded = Played(
        story(loss, "at: 0s, do: loss, from: n2, to: n1, rate: 50%", members=3, more=extra)
    )
    assert alone.run.bites["here"] == crowded.run.bites["here"]
    assert alone.latencies() == crowded.latencies()


# -- What each fault does to the network -----------------------------------------------------------

LINK = "from: n0, to: n1"
"""The way of the messages; acks travel the other one."""
HALF = (1.0, 2.0)
"""When faults last: the middle second of three."""


def test_delay_makes_messages_late_while_it_lasts() -> None:
    told = Played(story(f"at: 1s, do: delay, {LINK}, delay: 50ms, for: 1s"))
    assert set(told.inside(*HALF)) == {60.0}
    assert set(told.outside(*HALF)) == {10.0}
    assert told.run.bites == {"f1": 100}
    assert told.run.kinds == {"f1": "delay"}


def test_delays_that_overlap_add_up() -> None:
    told = Played(
        story(
            f"at: 1s, do: delay, {LINK}, delay: 50ms, for: 1s",
            f"at: 1500ms, do: delay, {LINK}, delay: 30ms, for: 1s",
        )
    )
    assert set(told.inside(1.0, 1.5)) == {60.0}
    assert set(told.inside(1.5, 2.0)) == {90.0}
    assert set(told.inside(2.0, 2.5)) == {40.0}


def test_jitter_scatters_messages_within_its_range() -> None:
    told = Played(story(f"at: 1s, do: delay, {LINK}, delay: 0s, jitter: 40ms, for: 1s"))
    took = told.inside(*HALF)
    assert min(took) >= 10.0
    assert max(took) < 50.0
    assert len(set(took)) > 90
    assert max(took) - min(took) > 30.0
    assert set(told.outside(*HALF)) == {10.0}


def test_loss_costs_its_share_and_they_are_repaired() -> None:
    told = Played(story(f"at: 1s, do: loss, {LINK}, rate: 40%, for: 1s"))
    late = [took for took in told.inside(*HALF) if took > 10.0]
    assert 25 <= len(late) <= 55
    assert told.run.bites["f1"] >= len(late)
    assert told.run.delivered == 300
    assert told.events("n0-1", trace.RETRANSMITTED)
    assert set(told.outside(*HALF)) == {10.0}


def test_duplicates_arrive_and_are_refused_as_such() -> None:
    told = Played(story(f"at: 1s, do: duplicate, {LINK}, rate: 30%, for: 1s"))
    assert 15 <= told.run.bites["f1"] <= 45
    assert told.dropped("n1-1") == {"duplicate": told.run.bites["f1"]}
    assert told.run.delivered == 300


def test_reordering_holds_a_share_back_so_that_later_ones_overtake() -> None:
    told = Played(story(f"at: 1s, do: reorder, {LINK}, rate: 30%, by: 25ms, for: 1s"))
    took = told.inside(*HALF)
    assert set(took) == {10.0, 35.0}
    assert told.run.bites["f1"] == took.count(35.0)
    order = [event.lo for event in told.events("n1-1", trace.DELIVERED)]
    assert order != sorted(order)
    assert set(told.outside(*HALF)) == {10.0}


def test_corrupt_frames_arrive_and_are_refused() -> None:
    told = Played(story(f"at: 1s, do: corrupt, {LINK}, rate: 30%, for: 1s"))
    refused = told.dropped("n1-1")
    assert sum(refused.values()) - refused["duplicate"] == told.run.bites["f1"] > 15
    assert set(refused) <= {
        "magic",
        "version",
        "cluster",
        "head-check",
        "digest",
        "size",
        "truncated",
        "duplicate",
    }
    assert "digest" in refused
    assert told.run.delivered == 300
    assert told.run.mismatches == []


BOTH_WAYS = "  - {do: unicast, from: n1, to: n0, count: 300, rate: 100/s, flags: [OOB]}\n"


def test_a_cut_works_one_way() -> None:
    """n0 to n1 is cut for a second: nothing arrives there, everything arrives the other way."""
    told = Played(story(f"at: 1s, do: cut, {LINK}, for: 1s", more=BOTH_WAYS))
    arrived = {round(event.time, 6) for event in told.events("n1-1", trace.DELIVERED)}
    assert not [time for time in arrived if HALF[0] + DELAY < time < HALF[1]]
    assert {took for _sent, took in told.latencies("n1-1", "n0-1")} == {10.0}
    assert told.run.delivered == 600
    assert told.run.bites["f1"] >= 100


def test_a_partition_works_both_ways_and_between_groups_only() -> None:
    more = (
        "  - {do: unicast, from: [n1, n2], to: [n0, n1], count: 300, rate: 100/s, flags: [OOB]}\n"
    )
    told = Played(
        story("at: 1s, do: partition, groups: [[n0], [n1, n2]], for: 1s", members=3, more=more)
    )

    def during(label: str) -> set[int]:
        events = told.events(label, trace.DELIVERED)
        return {one.peer for one in events if HALF[0] + DELAY < one.time < HALF[1]}

    shorts = {label: told.events(label, trace.START) for label in told.run.traces}
    assert len(shorts) == 4
    assert during("n0-1") == set()
    assert len(during("n1-1")) == 2  # n2, and n1 itself.
    assert told.run.complete


def test_bandwidth_queues_what_is_too_fast_for_it() -> None:
    """132 bytes each 10 ms; 96 kbit/s pass one each 11 ms, so the queue grows by 1 ms a message."""
    told = Played(story(f"at: 1s, do: bandwidth, {LINK}, rate: 96kbit/s, for: 1s"))
    took = told.inside(*HALF)
    assert took[0] == pytest.approx(21.0)
    assert took[50] == pytest.approx(71.0)
    assert took == sorted(took)
    assert set(told.outside(*HALF)) == {10.0}


def test_the_network_of_the_scenario_acts_all_the_time() -> None:
    told = Played(story(network="delay: 3ms, jitter: 2ms, loss: 10%, duplicate: 10%, corrupt: 5%"))
    took = [took for _sent, took in told.latencies()]
    assert min(took) >= 3.0
    assert sum(1 for one in took if one < 5.0) > 200
    dropped = told.dropped("n1-1")
    assert dropped["duplicate"] + dropped["duplicate-or-no-room"] > 10
    assert dropped["digest"] + dropped["head-check"] > 5
    assert told.run.bites == {}  # It is no fault: nobody asks whether it bit.
    assert told.run.delivered == 300


# -- Rules -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("match", "bites"),
    [
        ("{kind: DATA, seqno: 10..19, transmission: 0}", 10),
        ("{kind: DATA, from: n0, to: n1, seqno: 7, occurrence: 1}", 1),
        ("{kind: DATA, occurrence: 20..24}", 5),
        ("{kind: ACK, from: n1, occurrence: 1..2}", 2),
        ("{kind: ACK, to: n0, occurrence: 1..2}", 2),
        ("{kind: ACK, from: n0}", 0),
        ("{kind: DATA, transmission: 0, occurrence: 1..3}", 3),
        ("{kind: DATA, flags: OOB, occurrence: 1..3}", 3),
        ("{kind: DATA, flags: DONT_BUNDLE}", 0),
        ("{protocol: UNICAST3, kind: DATA, occurrence: 5}", 1),
        ("{protocol: UNICAST4}", 0),
        ("{connection: 2}", 0),
    ],
)
def test_a_rule_takes_exactly_what_it_describes(match: str, bites: int) -> None:
    told = Played(story(f"at: 0s, do: rule, does: drop, match: {match}"))
    assert told.run.bites == {"f1": bites}
    assert told.run.delivered == 300


def test_a_rule_that_drops_a_repeat_lets_the_first_and_the_next_one_pass() -> None:
    """5 is lost, its first repeat too; its second repeat arrives."""
    told = Played(
        story("at: 0s, do: rule, does: drop, match: {kind: DATA, seqno: 5, transmission: 0..1}")
    )
    assert told.run.bites == {"f1": 2}
    repeats = [event for event in told.events("n0-1", trace.RETRANSMITTED) if event.lo == 5]
    assert [event.stream for event in repeats] == [1, 2]
    assert told.run.delivered == 300


def test_a_rule_may_follow_a_connection_past_its_end() -> None:
    """The second connection of the pair begins when n0 forgets the first; the rule waits for it."""
    told = Played(
        story(
            "at: 1s, do: forget, member: n0, peer: n1, half: sender",
            "at: 500ms, do: rule, does: drop, match: {kind: DATA, connection: 2, transmission: 0}, "
            "times: 4",
        )
    )
    assert told.run.bites["f2"] == 4
    resent = told.events("n0-1", trace.RETRANSMITTED)
    assert {event.conn for event in resent} == {2}
    assert {1, 2, 3, 4} <= {event.lo for event in resent}


def test_a_rule_that_is_there_from_the_start_knows_connections_too() -> None:
    told = Played(story("at: 0s, do: rule, does: drop, match: {connection: 1, occurrence: 1..3}"))
    assert told.run.bites == {"f1": 3}


def test_a_rule_that_delays_makes_what_it_takes_late() -> None:
    told = Played(story("at: 0s, do: rule, does: delay, delay: 70ms, match: {seqno: 10..19}"))
    took = [took for _sent, took in told.latencies()]
    assert took == [10.0] * 9 + [80.0] * 10 + [10.0] * 281


def test_a_rule_that_holds_lets_go_at_its_release_and_goes_on_holding() -> None:
    """10 … 12 are held at once, 40 … 42 after the release; the end of the rule frees those."""
    told = Played(
        story(
            "at: 0s, do: rule, name: jam, does: hold, match: {kind: DATA, seqno: 10..12}",
            "at: 0s, do: rule, name: late-jam, does: hold, match: {kind: DATA, seqno: 40..42}",
            "at: 200ms, do: release, name: jam",
            "at: 600ms, do: heal, name: late-jam",
        )
    )
    at = {event.lo: event.time for event in told.events("n1-1", trace.DELIVERED)}
    assert [at[lo] for lo in (10, 11, 12)] == pytest.approx([0.21] * 3)
    assert [at[lo] for lo in (40, 41, 42)] == pytest.approx([0.61] * 3)
    assert at[13] == pytest.approx(0.13)


def test_a_rule_that_duplicates_sends_copies() -> None:
    told = Played(
        story("at: 0s, do: rule, does: duplicate, copies: 3, match: {kind: DATA, seqno: 5..6}")
    )
    assert told.run.bites == {"f1": 2}
    assert told.dropped("n1-1") == {"duplicate": 6}


def test_a_rule_that_corrupts_has_what_it_takes_refused() -> None:
    told = Played(
        story("at: 0s, do: rule, does: corrupt, match: {kind: DATA, seqno: 5..9, transmission: 0}")
    )
    assert told.run.bites == {"f1": 5}
    assert sum(told.dropped("n1-1").values()) == 5
    assert told.run.delivered == 300


def test_a_rule_ends_after_so_many_frames() -> None:
    told = Played(story("at: 1s, do: rule, does: drop, match: {kind: DATA}, times: 7"))
    assert told.run.bites == {"f1": 7}


# -- What is done to members -----------------------------------------------------------------------


def test_a_crash_ends_a_member_and_a_restart_is_somebody_else() -> None:
    told = Played(
        story("at: 1s, do: crash, member: n1", "at: 2s, do: restart, member: n1", more=BOTH_WAYS)
    )
    assert set(told.run.traces) == {"rig", "n0-1", "n1-1", "n1-2"}
    everything = tuple(trace.EVENT_NAMES)
    assert max(event.time for event in told.events("n1-1", *everything)) <= 1.0
    assert told.events("n1-1", trace.STOP) == []
    (start,) = told.events("n1-2", trace.START)
    assert start.time == 2.0
    old, new = (
        next(text for _time, text in told.texts(label, trace.START)).split(" ")[1]
        for label in ("n1-1", "n1-2")
    )
    assert old != new
    # n0 learns of the new incarnation from the workload, and opens a connection of its own to it.
    assert len({event.peer for event in told.events("n0-1", trace.SENT)}) == 2
    assert told.run.bites == {"f1": 1, "f2": 1}
    assert told.run.mismatches == []


def test_a_crash_may_be_undone_by_its_duration() -> None:
    told = Played(story("at: 1s, do: crash, member: n1, for: 500ms"))
    assert [event.time for event in told.events("n1-2", trace.START)] == [1.5]


def test_a_restart_of_a_living_member_ends_it_first() -> None:
    told = Played(story("at: 1s, do: restart, member: n0"))
    assert {"n0-1", "n0-2"} <= set(told.run.traces)
    assert max(event.time for event in told.events("n0-1", trace.SENT)) <= 1.0
    assert min(event.time for event in told.events("n0-2", trace.SENT)) >= 1.0


def test_frames_for_a_dead_incarnation_do_not_reach_its_successor() -> None:
    """n1 crashes with a second of messages under way, and is back before they arrive."""
    told = Played(
        story(
            "at: 1s, do: crash, member: n1, for: 100ms",
            network="delay: 900ms",
            load="{do: unicast, from: n0, to: n1, count: 100, rate: 100/s}",
        )
    )
    arrived = told.events("n1-2", trace.DELIVERED)
    assert arrived == []
    assert told.dropped("n1-2") == {}


def test_a_sender_that_stays_down_ends_its_load() -> None:
    outcome = run_scenario(story("at: 1s, do: crash, member: n0"), 1)
    assert outcome.run.complete
    assert outcome.verdict is Verdict.HOLDS


def test_a_dead_member_answers_nothing() -> None:
    """n0 goes on sending to n1 and resending; no ack comes from the grave."""
    told = Played(story("at: 1s, do: crash, member: n1"))
    assert max(event.time for event in told.events("n0-1", trace.SENT)) > 2.9
    assert max(event.time for event in told.events("n0-1", trace.PURGED)) <= 1.0 + DELAY


def test_a_receiver_that_stays_down_does_not_keep_the_run_from_ending() -> None:
    outcome = run_scenario(story("at: 1s, do: crash, member: n1"), 1)
    assert outcome.run.complete
    assert outcome.verdict is Verdict.HOLDS


def test_a_paused_member_does_nothing_and_takes_what_its_socket_kept() -> None:
    told = Played(story("at: 1s, do: pause, member: n1, for: 1s", more=BOTH_WAYS))
    everything = tuple(trace.EVENT_NAMES)
    times = [event.time for event in told.events("n1-1", *everything)]
    assert not [time for time in times if HALF[0] < time < HALF[1]]
    caught_up = [event for event in told.events("n1-1", trace.DELIVERED) if event.time == HALF[1]]
    assert 95 <= len(caught_up) <= 101
    assert told.run.bites["f1"] >= len(caught_up)
    assert told.run.sent == told.run.delivered == 600


def test_a_setting_of_a_paused_member_changes_when_it_goes_on_and_is_recorded_then() -> None:
    """Until then it does, and promises, what it did before."""
    change = "do: set-attribute, member: n1, attribute: conn_expiry_timeout, value: 90s"
    told = Played(story(f"at: 1s, do: pause, member: n1, for: 1s}}\n  - {{at: 1500ms, {change}"))
    texts = told.texts("rig", trace.FAULT)
    (changed,) = (time for time, text in texts if "set-attribute" in text)
    (went_on,) = (time for time, text in texts if "pause" in text and "off" in text)
    assert changed == went_on
    assert told.run.bites["f2"] == 1


def test_a_stall_of_a_paused_member_begins_and_ends_when_it_goes_on_and_is_recorded_then() -> None:
    """Until then it has taken nothing of what it acked in the stall."""
    scenario = story(
        "at: 500ms, do: stall, member: n1, for: 501ms",
        "at: 1s, do: pause, member: n1, for: 1s",
        "at: 1200ms, do: stall, member: n1, for: 1s",
        load="{do: unicast, from: n0, to: n1, count: 300, rate: 100/s}",
        cluster=", timing: fast",
        guarantees="G1, G6",
    )
    told = Played(scenario)
    texts = told.texts("rig", trace.FAULT)
    (went_on,) = (time for time, text in texts if '"pause"' in text and '"off"' in text)
    stalled = [(time, '"on"' in text) for time, text in texts if '"stall"' in text]
    assert stalled == [(0.5, True), (went_on, False), (went_on, True), (2.2, False)]
    assert judge_run(scenario, told.run, min_bites=0).verdict is Verdict.HOLDS


@pytest.mark.parametrize("told", ["[n2, n0, n1]", "n2"])
def test_a_view_by_hand_is_not_made_by_a_paused_member(told: str) -> None:
    """When it goes on it makes a view itself, without who left, before it learns of this one."""
    scenario = story(
        "at: 1s, do: pause, member: n2, for: 1s",
        "at: 1200ms, do: leave, member: n3",
        f"at: 1300ms, do: install-view, member: {told}, members: [n0, n1, n2, n3]",
        members=4,
        cluster=", stack: udp, timing: fast",
        guarantees="V1, V3",
    )
    run = simulate(scenario, 1)
    assert run.views["n0-1"][0].creator == "n2-1", "of this seed the coordinator"
    asked = "n2-1" if told == "n2" else "n0-1"
    assert any(view.time > 1.0 and len(view.members) == 4 for view in run.views[asked]), "it comes"
    assert judge_run(scenario, run, min_bites=0).verdict is Verdict.HOLDS


@pytest.mark.parametrize("later", [(), ("at: 9s, do: close, member: n0, peer: n1",)])
def test_a_load_that_begins_while_its_source_is_paused_begins_when_it_goes_on(
    later: tuple[str, ...],
) -> None:
    load = "{do: unicast, from: n0, to: n1, count: 200, rate: 100/s}"
    told = Played(story("at: 0s, do: pause, member: n0, for: 1s", *later, load=load))
    sent = [event.time for event in told.events("n0-1", trace.SENT)]
    (quiet,) = (time for time, text in told.texts("rig", trace.PHASE) if text == "quiet")
    assert sent[0] == 1.0
    assert sent[-1] < 2.3, "what is late by so little is not made up for"
    assert quiet > sent[-1]
    assert told.run.delivered == 200


def test_a_paused_member_keeps_only_what_a_socket_buffer_holds() -> None:
    load = "{do: unicast, from: n0, to: n1, count: 2000, rate: 1000/s}"
    told = Played(story("at: 500ms, do: pause, member: n1, for: 1s", load=load))
    caught_up = [event for event in told.events("n1-1", trace.DELIVERED) if event.time == 1.5]
    assert 400 <= sum(event.count for event in caught_up) <= 512
    assert told.run.delivered == 2000


def test_a_stalled_application_takes_nothing_and_then_all_of_it() -> None:
    load = "{do: unicast, from: n0, to: n1, count: 300, rate: 100/s, size: 64B}"
    told = Played(story("at: 1s, do: stall, member: n1, for: 1s", load=load))
    taken = told.events("n1-1", trace.DELIVERED)
    assert not [event for event in taken if HALF[0] + 1e-9 < event.time < HALF[1]]
    caught_up = sum(event.count for event in taken if event.time == HALF[1])
    assert 95 <= caught_up <= 101
    # At the very moment at which it goes on another one may arrive.
    assert told.run.bites["f1"] in {caught_up, caught_up - 1}
    assert told.run.delivered == 300


def test_a_setting_that_is_changed_at_run_time_takes_effect() -> None:
    """Acks come each 500 ms; from t = 1 s on each 100 ms."""
    told = Played(
        story("at: 1s, do: set-attribute, member: n1, attribute: xmit_interval, value: 100ms")
    )
    acks = [event.time for event in told.events("n1-1", trace.ACKED)]
    assert len([time for time in acks if time <= 1.0]) == 2
    assert len([time for time in acks if 1.5 < time <= 3.0]) >= 14


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("attribute: window_messages, value: 5", "window_messages can not change at run time"),
        ("attribute: xmit_interval, value: 0s", "xmit_interval is 0: it must be positive"),
        ("attribute: GMS.join_timeout, value: 1s", "no protocol GMS with settings that may change"),
    ],
)
def test_a_setting_that_no_member_takes_is_refused_before_the_run(change: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        simulate(story(f"at: 1s, do: set-attribute, member: n1, {change}"), 1)
    assert refused.value.place is not None


# -- Loads -----------------------------------------------------------------------------------------


def test_a_load_offers_its_bursts_at_its_rate() -> None:
    load = "{do: unicast, from: n0, to: n1, count: 20, rate: 10/s, burst: 5, size: 64B, start: 1s}"
    told = Played(story(load=load))
    times = Counter(round(event.time, 6) for event in told.events("n0-1", trace.SENT))
    assert times == {1.0: 5, 1.5: 5, 2.0: 5, 2.5: 5}


def test_every_nth_message_is_oob() -> None:
    load = "{do: unicast, from: n0, to: n1, count: 20, rate: 10/s, oob_every: 4}"
    told = Played(story(load=load))
    assert [e.lo for e in told.events("n0-1", trace.SENT) if e.flags & 1] == [4, 8, 12, 16, 20]


def test_two_loads_of_a_pair_keep_their_sizes() -> None:
    load = "{do: unicast, from: n0, to: n1, count: 10, rate: 10/s, size: 16B}"
    more = "  - {do: unicast, from: n0, to: n1, count: 10, rate: 10/s, size: 900B, start: 2s}\n"
    told = Played(story(load=load, more=more))
    assert {event.bytes for event in told.events("n0-1", trace.SENT)} == {20, 904}


def test_a_refused_message_is_offered_again_and_none_is_left_out() -> None:
    """A window of four and 100 ms of round trip take 40 messages a second of the 200 offered."""
    told = Played(
        story(
            load="{do: unicast, from: n0, to: n1, count: 200, rate: 200/s}",
            cluster=", settings: {window_messages: 4, ack_threshold: 1}",
            network="delay: 50ms",
        )
    )
    assert told.run.complete
    assert told.run.sent == told.run.delivered == 200
    assert told.events("n0-1", trace.BLOCKED)
    assert max(event.time for event in told.events("n1-1", trace.DELIVERED)) > 4.0


# -- Verdicts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "step",
    [
        "at: 10s, do: cut, from: n0, to: n1, for: 1s",
        "at: 1s, do: rule, does: drop, match: {kind: CLOSE}",
        "at: 4001ms, do: pause, member: n0, for: 1ms",
        "at: 5s, do: stall, member: n1, for: 1s",
        "at: 0s, do: forget, member: n0, peer: n1",
        "at: 1s, do: corrupt, from: n0, to: n1, rate: 0.0001%, for: 1ms",
    ],
)
def test_a_fault_that_did_not_bite_leaves_the_run_unknown(step: str) -> None:
    outcome = run_scenario(story(step), 1)
    assert outcome.verdict is Verdict.UNKNOWN
    (finding,) = [one for one in outcome.judgement.findings if one.verdict is not Verdict.HOLDS]
    assert finding.guarantee == "run"
    assert "did not bite: 0 times" in finding.detail


def test_a_run_without_messages_proves_nothing() -> None:
    scenario = replace(story(), workload=())
    assert run_scenario(scenario, 1).verdict is Verdict.UNKNOWN


def overloaded() -> Scenario:
    """A window of four and 400 ms of round trip take ten messages a second of the 100 offered."""
    text = story(
        cluster=", settings: {window_messages: 4, ack_threshold: 1}", network="delay: 200ms"
    ).text
    return parse_scenario(text + "limits: {run: 5s, settle: 1s}\n")


def test_a_workload_that_does_not_end_in_time_cannot_hold() -> None:
    outcome = run_scenario(overloaded(), 1)
    assert not outcome.run.complete
    details = [one.detail for one in outcome.judgement.findings]
    assert any("the workload did not end within 5s" in detail for detail in details)
    assert outcome.verdict is not Verdict.HOLDS


def test_a_workload_that_does_not_end_in_time_proves_no_violation() -> None:
    """Messages sent in the last moment of a run that was cut short are under way, not lost."""
    assert run_scenario(overloaded(), 1).verdict is Verdict.UNKNOWN


def test_an_expectation_that_is_not_met_in_time_is_a_violation_of_g8() -> None:
    base = story(f"at: 1s, do: cut, {LINK}, for: 1s").text
    for by, verdict in (("1900ms", Verdict.VIOLATED), ("5s", Verdict.HOLDS)):
        expect = f"expect:\n  - {{by: {by}, delivered: {{from: n0, to: n1, count: 150}}}}\n"
        outcome = run_scenario(parse_scenario(base + expect), 1)
        assert outcome.judgement.of("G8").verdict is verdict
        assert outcome.verdict is verdict
    assert "t=5" in outcome.judgement.of("G8").detail


def test_a_guarantee_is_reported_at_its_worst() -> None:
    """One expectation is missed, a later one is met: G8 was violated, whoever asks."""
    scenario = parse_scenario(
        story(f"at: 1s, do: cut, {LINK}, for: 1s").text
        + "expect:\n"
        + "".join(
            f"  - {{by: {by}, delivered: {{from: n0, to: n1, count: 150}}}}\n"
            for by in ("1900ms", "5s")
        )
    )
    outcome = run_scenario(scenario, 1)
    assert outcome.verdict is Verdict.VIOLATED
    assert outcome.as_json()["guarantees"]["G8"] == "violated"


def test_g8_is_judged_by_the_expectations_alone() -> None:
    text = story(guarantees="G1, G8").text + "expect:\n  - {by: 30s, delivered: all}\n"
    assert run_scenario(parse_scenario(text), 1).verdict is Verdict.HOLDS


def test_a_timeline_heals_by_name_by_duration_and_all_at_once() -> None:
    """Three faults, three ways to end: after each end messages take 10 ms again."""
    told = Played(
        story(
            f"at: 500ms, do: delay, name: one, {LINK}, delay: 10ms",
            "at: 1s, do: heal, name: one",
            f"at: 1500ms, do: delay, {LINK}, delay: 20ms, for: 500ms",
            f"at: 2500ms, do: delay, {LINK}, delay: 30ms",
            f"at: 2500ms, do: delay, {LINK}, delay: 30ms",
            "at: 2800ms, do: heal",
        )
    )
    expected = {
        (0.0, 0.5): 10,
        (0.5, 1): 20,
        (1, 1.5): 10,
        (1.5, 2): 30,
        (2, 2.5): 10,
        (2.5, 2.8): 70,
        (2.8, 3.0): 10,
    }
    for (begin, end), took in expected.items():
        assert set(told.inside(begin, end - 1e-6)) == {float(took)}, (begin, end)


def test_what_a_timeline_leaves_broken_is_healed_at_its_end() -> None:
    outcome = run_scenario(story(f"at: 1s, do: cut, {LINK}"), 1)
    assert outcome.run.delivered == 300
    assert outcome.verdict is Verdict.HOLDS


# -- The rig's own trace ---------------------------------------------------------------------------


def test_the_rig_writes_what_it_did_and_what_came_of_it() -> None:
    told = Played(
        story(
            f"at: 1s, do: cut, name: split, {LINK}, for: 1s",
            "at: 2s, do: pause, member: n1, for: 500ms",
            "at: 2700ms, do: restart, member: n0",
        )
    )
    n0, n1 = (
        int(told.texts(label, trace.START)[0][1].split(" ")[1], 16) & 0xFFFFFFFF
        for label in ("n0-1", "n1-1")
    )
    wrote = [(time, json.loads(text)) for time, text in told.texts("rig", trace.FAULT)]
    assert wrote == [
        (0.0, {"id": "network", "do": "delay", "phase": "on", "late": 0.01}),
        (1.0, {"id": "split", "do": "cut", "phase": "on"}),
        (2.0, {"id": "split", "do": "cut", "phase": "off"}),
        (2.0, {"id": "f2", "do": "pause", "phase": "on", "member": n1}),
        (2.5, {"id": "f2", "do": "pause", "phase": "off", "member": n1}),
        (2.7, {"id": "f3", "do": "restart", "phase": "on", "member": n0}),
    ]
    probes = [json.loads(text) for _time, text in told.texts("rig", trace.PROBE)]
    assert [(probe["id"], probe["do"]) for probe in probes] == [
        ("split", "cut"),
        ("f2", "pause"),
        ("f3", "restart"),
    ]
    assert {probe["id"]: probe["bit"] for probe in probes} == told.run.bites
    assert all(probe["bit"] for probe in probes)
    phases = told.texts("rig", trace.PHASE)
    assert [text for _time, text in phases] == ["begin", "quiet", "end"]
    assert phases[0][0] == 0.0
    assert phases[1][0] >= 3.0
    assert phases[2][0] == pytest.approx(told.run.seconds)


def test_quiet_lasts_longer_than_the_silence_it_must_prove() -> None:
    """UNICAST looks each 2 s and may speak for 12 looks; the run goes on beyond that."""
    scenario = story(cluster="", guarantees="L1")
    scenario = replace(scenario, cluster=replace(scenario.cluster, unicast="UNICAST"))
    told = Played(scenario)
    _begin, quiet, end = (time for time, _text in told.texts("rig", trace.PHASE))
    assert end - quiet >= 1.1 * 12 * 2.0


# -- The engine ------------------------------------------------------------------------------------


class Restless(Unicast):
    """A protocol with a timer that is always due: the bug that the engine must survive."""

    def next_deadline(self) -> float:
        return self._moment if self.receive_connections() else super().next_deadline()

    _moment = 0.0

    def tick(self, now: float) -> None:
        self._moment = now


def test_timers_that_are_always_due_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stormcast.chaos.backends.sim.engine.EVENTS_PER_INSTANT", 1000)
    run = simulate(story(), 1, make_unicast=Restless)
    assert re.match(r"1001 events at t=.*: timers that are always due", run.broke_off)


def test_many_events_at_one_moment_are_no_runaway(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three hundred messages at once are a burst, not a loop."""
    monkeypatch.setattr("stormcast.chaos.backends.sim.engine.EVENTS_PER_INSTANT", 1000)
    load = "{do: unicast, from: n0, to: n1, count: 300, rate: 300/s, burst: 300}"
    assert Played(story(load=load)).run.delivered == 300


# -- The run directory -----------------------------------------------------------------------------


def test_a_run_directory_holds_everything_to_look_again(tmp_path: Path) -> None:
    scenario = story(f"at: 1s, do: loss, {LINK}, rate: 20%, for: 1s")
    outcome = run_scenario(scenario, 5, out=tmp_path / "run")
    names = sorted(str(path.relative_to(tmp_path / "run")) for path in tmp_path.rglob("*.*"))
    assert names == [
        "scenario.yaml",
        "trace/n0-1.trace",
        "trace/n1-1.trace",
        "trace/rig.trace",
        "verdict.json",
        "versions.json",
    ]
    assert (tmp_path / "run" / "seed").read_text() == "5\n"
    assert (tmp_path / "run" / "scenario.yaml").read_text() == scenario.text
    verdict = json.loads((tmp_path / "run" / "verdict.json").read_text())
    assert verdict == json.loads(json.dumps(outcome.as_json()))
    assert verdict["verdict"] == "holds"
    assert verdict["run"] == str(tmp_path / "run")
    versions = json.loads((tmp_path / "run" / "versions.json").read_text())
    assert set(versions) == {"stormcast", "python", "xxhash", "code"}


def test_a_run_replays_from_its_directory(tmp_path: Path) -> None:
    """Also where the scenario never was a file: the museum changes what it read."""
    scenario = story(f"at: 1s, do: loss, {LINK}, rate: 20%, for: 1s")
    scenario = replace(
        scenario, cluster=replace(scenario.cluster, unicast="UNICAST4", timing="fast"), text=""
    )
    run_scenario(scenario, 5, out=tmp_path / "one")
    again = load_scenario(tmp_path / "one" / "scenario.yaml")
    seed = int((tmp_path / "one" / "seed").read_text())
    run_scenario(again, seed, out=tmp_path / "two")
    for name in ("n0-1", "n1-1", "rig"):
        one, two = (tmp_path / run / "trace" / f"{name}.trace" for run in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


def test_a_directory_is_of_one_run(tmp_path: Path) -> None:
    run_scenario(story("at: 1s, do: restart, member: n1"), 1, out=tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.glob("trace/*.trace")}
    with pytest.raises(TakenError):
        run_scenario(story(), 1, out=tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.glob("trace/*.trace")} == before


# -- What is not supported -------------------------------------------------------------------------


def test_what_the_simulator_has_not_is_said_before_anything_starts(tmp_path: Path) -> None:
    multicast = parse_scenario(
        "name: m\nguarantees: [G1]\ncluster: {members: 2}\nworkload:\n"
        "  - {do: multicast, from: n0, count: 10}\n"
    )
    with pytest.raises(Unsupported, match=r"m needs multicast: .*; choose one with a group"):
        run_scenario(multicast, 1, out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(Unsupported, match="backend 'podman' is not there yet; this version has"):
        check_supported(story(), "podman")
    for need in ("stream", "clock-skew"):
        with pytest.raises(Unsupported, match=f"needs {need}"):
            check_supported(replace(story(), needs=(need,)))
