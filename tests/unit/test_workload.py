"""The workload driver: rates are kept, outboxes kept full, and payloads prove what they are."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.language.workload import ScenarioLoad
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.model import DONT_BUNDLE, NO_FC, OOB
from stormcast.node.member.jobs import CATCH_UP
from stormcast.node.member.labels import MAX_LABELS
from stormcast.node.member.loads import (
    FLAGS,
    Load,
    read_load,
    read_loads,
    write_load,
)
from stormcast.node.member.workload import CHUNK_MESSAGES, MAX_LOADS, Driver, Receiver
from stormcast.node.payloads import stream_of
from stormcast.node.reading.quantities import SETTING_DURATION
from tests.helpers.channel import FakeChannel, address, delivery

SEED = 7


def load(**keys: Any) -> Load:
    return read_load({"do": "multicast", **keys})


class Run:
    """A driver on a virtual clock."""

    def __init__(self, channel: FakeChannel, *loads: Load) -> None:
        self.channel = channel
        self.driver = Driver(channel, SEED, lambda: channel.now)
        self.driver.add(loads)

    def tick_at(self, now: float) -> float:
        """Everything that is due at a time, in as many ticks as it wants."""
        self.channel.now = now
        for _ in range(100_000):
            due = self.driver.tick(now)
            if due > now:
                return due
        raise AssertionError("it never has enough")

    def until(self, end: float, step: float = 0.001) -> None:
        """Ticks whenever they are due, and every so often."""
        while self.channel.now < end - step / 2:
            self.tick_at(self.channel.now + step)

    @property
    def loads(self) -> list[Any]:
        listed: Any = self.driver.state()["loads"]
        return list(listed)


# -- Open loop -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1, 7, 200, 3333, 10_000])
def test_a_rate_is_kept_however_late_ticks_are(rate: int) -> None:
    dice = Random(rate)
    run = Run(FakeChannel(), load(rate=f"{rate}/s", duration="4s"))
    now = 0.0
    while now < 4.0:
        run.tick_at(now)
        assert abs(len(run.channel.sent) - rate * now) <= 1
        now += dice.choice([0.0001, 0.001, 0.02, 0.4])
    run.tick_at(now)
    assert len(run.channel.sent) == 4 * rate
    assert not run.driver.is_running


def test_the_first_message_leaves_at_the_start() -> None:
    run = Run(FakeChannel(), load(rate="10/s", count=2, start="5s"))
    assert run.tick_at(0.0) == 5.0
    assert run.tick_at(4.9) == 5.0
    run.tick_at(5.0)
    assert len(run.channel.sent) == 1


def test_a_burst_leaves_at_once_and_the_rate_stays() -> None:
    run = Run(FakeChannel(), load(rate="100/s", burst=20, count=100))
    run.until(2.0, 0.01)
    times = [round(one.at, 2) for one in run.channel.sent]
    assert {at: times.count(at) for at in times} == {0.01: 20, 0.2: 20, 0.4: 20, 0.6: 20, 0.8: 20}


def test_a_count_is_what_each_destination_gets_and_then_it_is_over() -> None:
    run = Run(FakeChannel("n0", "n1", "n2"), read_load({"do": "unicast", "count": 50}))
    run.until(1.0)
    assert [len(run.channel.to(name)) for name in ("n0", "n1", "n2")] == [0, 50, 50]
    assert not run.driver.is_running


def test_what_loads_with_a_label_have_sent_is_counted_also_when_they_are_over() -> None:
    first = read_load({"do": "unicast", "to": "n1", "count": 20, "label": "7"})
    run = Run(FakeChannel("n0", "n1", "n2"), first)
    run.until(1.0)
    run.driver.add([first, read_load({"do": "multicast", "count": 5, "label": "8"}), load(count=3)])
    run.until(2.0)
    assert run.driver.sent_by_label() == {"7": {"n1": 40}, "8": {"group": 5}}


def test_of_labels_of_loads_that_are_over_the_newest_are_kept() -> None:
    run = Run(FakeChannel("n0", "n1"))
    for number in range(MAX_LABELS + 2):
        run.driver.add([read_load({"do": "multicast", "count": 1, "label": str(number)})])
        run.driver.stop()
    assert set(run.driver.sent_by_label()) == {str(n) for n in range(1, MAX_LABELS + 2)}


def test_who_is_named_gets_the_rest_when_it_comes_back() -> None:
    """Also where nobody else gets anything meanwhile."""
    run = Run(
        FakeChannel("n0", "n1", "n2"),
        read_load({"do": "unicast", "to": "n1", "rate": "100/s", "count": 100}),
    )
    run.until(0.5, 0.01)
    run.channel.install("n0", "n2")
    run.until(5.0, 0.01)
    before = len(run.channel.to("n1"))
    assert before < 100
    assert run.driver.is_running
    run.channel.install("n0", "n1", "n2")
    run.until(7.0, 0.01)
    assert len(run.channel.to("n1")) == 100
    assert not run.driver.is_running


def test_after_a_long_stop_only_so_much_is_caught_up_at_once() -> None:
    """The process was stopped for a minute: a second's worth is offered, the rest put off."""
    run = Run(FakeChannel(), load(rate="100/s", count=2_000))
    run.until(1.0, 0.01)
    before = len(run.channel.sent)
    run.tick_at(61.0)
    assert len(run.channel.sent) - before == 100 * CATCH_UP
    assert 58.9 < run.loads[0]["to"]["group"]["put_off"] < 59.1
    run.until(78.8, 0.1)
    assert len(run.channel.sent) < 2_000
    run.until(79.2, 0.1)
    assert len(run.channel.sent) == 2_000, "the count is reached, only later"


def test_what_the_outbox_refuses_is_offered_again_in_order() -> None:
    run = Run(FakeChannel(room=30), load(rate="1000/s", count=200))
    run.until(0.1)
    assert len(run.channel.sent) == 30
    run.channel.room = 1 << 30
    run.until(0.3)
    stream = stream_of(SEED, "n0", run.channel.address.short, 0)
    assert [one.payload for one in run.channel.sent] == stream.batch(0, 200, (100, 100))
    assert run.driver.stats()["workload.refused"] > 0


def test_one_tick_offers_no_more_than_a_chunk_at_a_time() -> None:
    run = Run(FakeChannel(), load(rate="1000000/s", duration="1s"))
    run.driver.tick(0.0)
    before = len(run.channel.sent)
    assert run.driver.tick(0.5) == 0.5, "it wants to go on at once, after others had a turn"
    assert len(run.channel.sent) - before == CHUNK_MESSAGES


# -- Closed loop -----------------------------------------------------------------------------------


def test_a_closed_loop_keeps_the_outbox_full() -> None:
    run = Run(FakeChannel(room=500), load(closed=True, duration="60s"))
    run.tick_at(0.0)
    for _ in range(20):
        assert run.channel.room == 0
        run.channel.room = 77
        run.tick_at(run.channel.now + 0.001)
    assert len(run.channel.sent) == 500 + 20 * 77


def test_a_closed_loop_ends_with_its_count() -> None:
    run = Run(FakeChannel(), load(closed=True, count=12_345))
    run.tick_at(0.0)
    assert len(run.channel.sent) == 12_345
    assert not run.driver.is_running


def test_a_closed_loop_ends_with_its_duration() -> None:
    run = Run(FakeChannel(room=10), load(closed=True, duration="2s"))
    run.until(1.9, 0.1)
    assert run.driver.is_running
    run.channel.room = 10
    run.tick_at(2.0)
    assert len(run.channel.sent) == 10
    assert not run.driver.is_running


def test_a_full_lane_does_not_hold_up_another() -> None:
    channel = FakeChannel("n0", "n1", "n2")
    n1 = address("n1").short
    accept = channel.try_send

    def try_send(dest: Any, payload: bytes, flags: int = 0) -> bool:
        return dest != n1 and accept(dest, payload, flags)

    channel.try_send = try_send  # type: ignore[method-assign]
    run = Run(channel, read_load({"do": "unicast", "count": 100, "closed": True}))
    run.tick_at(0.0)
    assert len(channel.to("n2")) == 100
    assert run.driver.is_running


# -- Who is there ----------------------------------------------------------------------------------


def test_others_are_all_but_the_sender_and_all_are_all() -> None:
    for to, expected in (("others", {"n1", "n2"}), ("all", {"n0", "n1", "n2"}), ("n1", {"n1"})):
        run = Run(FakeChannel("n0", "n1", "n2"), read_load({"do": "unicast", "to": to, "count": 3}))
        run.until(1.0, 0.01)
        assert {name for name in ("n0", "n1", "n2") if run.channel.to(name)} == expected


def test_a_load_of_others_is_none_of_ours() -> None:
    run = Run(FakeChannel("n0", "n1"), load(**{"from": ["n1"], "count": 5}))
    run.until(1.0, 0.1)
    assert not run.channel.sent
    assert not run.driver.is_running


def test_whoever_is_named_is_waited_for() -> None:
    entry = {"do": "unicast", "to": ["n1", "n2"], "count": 10, "rate": "100/s"}
    run = Run(FakeChannel("n0", "n1"), read_load(entry))
    run.until(5.0, 0.01)
    assert len(run.channel.to("n1")) == 10
    assert run.driver.is_running
    run.channel.install("n0", "n1", "n2")
    run.until(6.5, 0.01)
    assert len(run.channel.to("n2")) == 10
    assert not run.driver.is_running


def test_without_a_group_destinations_are_those_who_were_told() -> None:
    channel = FakeChannel()
    channel.view = None
    loads = [
        read_load({"do": "unicast", "to": to, "count": 10, "rate": "100/s"})
        for to in ("others", "n2")
    ]
    run = Run(channel, *loads)
    run.until(1.0, 0.01)
    assert not channel.sent
    run.driver.set_peers((address("n0"), address("n1")))
    run.until(2.0, 0.01)
    assert [len(channel.to(name)) for name in ("n0", "n1", "n2")] == [0, 10, 0]
    run.driver.set_peers((address("n0"), address("n1"), address("n2")))
    run.until(3.0, 0.01)
    assert len(channel.to("n2")) == 10, "the one who was named; the others have had theirs"
    run.driver.add([read_load({"do": "unicast", "to": "n1", "count": 5, "closed": True})])
    run.until(4.0, 0.01)
    assert len(channel.to("n1")) == 15, "a later load finds them too"
    assert not run.driver.is_running


def test_without_a_group_a_peer_that_was_started_anew_gets_the_rest() -> None:
    channel = FakeChannel()
    run = Run(channel, read_load({"do": "unicast", "count": 100, "rate": "100/s"}))
    run.driver.set_peers((address("n0"), address("n1")))
    run.until(0.5, 0.01)
    # Also when a view was handed to it: that says nothing of who there is.
    channel.install("n0")
    run.driver.set_peers((address("n0"), address("n1", 2)))
    run.until(2.0, 0.01)
    assert len(channel.to("n1")) + len(channel.to("n1", 2)) == 100
    assert len(channel.to("n1", 2)) > 40


def test_whoever_leaves_is_not_waited_for_and_gets_the_rest_when_it_is_back() -> None:
    entry = {"do": "unicast", "count": 100, "rate": "100/s"}
    run = Run(FakeChannel("n0", "n1", "n2"), read_load(entry))
    run.until(0.5, 0.01)
    run.channel.install("n0", "n2")
    run.until(0.6, 0.01)
    sent = len(run.channel.to("n1"))
    assert 0 < sent < 100
    run.channel.install("n0", "n2", address("n1", 2))
    run.until(2.5, 0.01)
    assert len(run.channel.to("n1")) == sent
    assert len(run.channel.to("n1", 2)) == 100 - sent
    assert not run.driver.is_running


def test_a_load_is_over_when_the_last_one_who_lacks_something_has_left() -> None:
    run = Run(FakeChannel("n0", "n1"), read_load({"do": "unicast", "rate": "10/s"}))
    run.until(0.5, 0.01)
    run.channel.install("n0")
    run.until(0.6, 0.01)
    assert not run.driver.is_running


def test_a_newcomer_does_not_get_what_was_due_before_it_came() -> None:
    entry = {"do": "unicast", "duration": "10s", "rate": "100/s"}
    run = Run(FakeChannel("n0", "n1"), read_load(entry))
    run.until(5.0, 0.01)
    run.channel.install("n0", "n1", "n2")
    run.tick_at(5.01)
    assert len(run.channel.to("n2")) == 1
    run.until(10.1, 0.01)
    assert 498 <= len(run.channel.to("n2")) <= 500


def test_of_two_with_one_name_the_newer_is_meant() -> None:
    channel = FakeChannel("n0", "n1")
    channel.install("n0", address("n1"), address("n1", 2))
    run = Run(channel, read_load({"do": "unicast", "to": "n1", "count": 5}))
    run.until(1.0, 0.01)
    assert len(channel.to("n1", 2)) == 5
    assert not channel.to("n1", 1)


def test_without_a_view_nothing_is_sent_and_then_the_first_message_leaves_at_once() -> None:
    channel = FakeChannel()
    channel.view = None
    run = Run(channel, load(rate="100/s", count=10))
    run.until(3.0, 0.1)
    assert not channel.sent
    channel.install("n0")
    run.until(3.5, 0.1)
    assert len(channel.sent) == 10


# -- Messages --------------------------------------------------------------------------------------


def test_each_nth_message_is_oob_besides_what_all_are() -> None:
    flags = {"flags": ["NO_FC", "DONT_BUNDLE"], "oob_every": 3, "count": 9, "closed": True}
    run = Run(FakeChannel(), load(**flags))
    run.tick_at(0.0)
    both = NO_FC | DONT_BUNDLE
    assert [one.flags for one in run.channel.sent] == [both, both, both | OOB] * 3


def test_two_loads_to_one_destination_share_its_stream() -> None:
    run = Run(FakeChannel(), load(count=50, rate="1000/s"), load(count=50, rate="500/s"))
    run.until(1.0)
    numbers = [int.from_bytes(one.payload[:8], "big") for one in run.channel.sent]
    assert numbers == list(range(100))


def test_a_stream_goes_on_where_another_load_left_it_while_one_waited() -> None:
    """One has made payloads that the outbox refused; the other got there first."""
    run = Run(FakeChannel(room=30), load(count=50, closed=True), load(count=50, closed=True))
    run.tick_at(0.0)
    for room in (7, 40, 1, 100):
        run.driver.jobs.reverse()
        run.channel.room = room
        run.tick_at(run.channel.now + 0.002)
    numbers = [int.from_bytes(one.payload[:8], "big") for one in run.channel.sent]
    assert numbers == list(range(100))


def test_the_payloads_of_an_incarnation_follow_from_the_seed() -> None:
    """What a checker does: it knows seed, name, short id, destination and size."""
    run = Run(FakeChannel("n0", "n1"), read_load({"do": "unicast", "size": "20B..2KiB"}))
    run.until(5.1, 0.01)
    sent = run.channel.to("n1")
    stream = stream_of(SEED, "n0", address("n0").short, address("n1").short)
    assert [one.payload for one in sent] == stream.batch(0, 1000, (20, 2048))


def test_a_load_that_cannot_work_is_over_and_says_why() -> None:
    channel = FakeChannel()
    channel.largest = 50
    run = Run(channel, load(count=10), load(count=3, size="10B"))
    run.until(1.0, 0.01)
    assert "split it" in run.loads[0]["error"]
    assert len(channel.sent) == 3, "the others go on"
    assert not run.driver.is_running


def test_the_error_of_a_load_with_a_label_is_known_also_when_another_has_begun() -> None:
    channel = FakeChannel()
    channel.largest = 50
    run = Run(channel, load(count=10, label="7"))
    run.until(1.0, 0.01)
    run.driver.add([load(count=3, size="10B", label="8")])
    run.until(2.0, 0.01)
    assert len(run.loads) == 1
    errors: Any = run.driver.state()["errors"]
    assert list(errors) == ["7"]
    assert "split it" in errors["7"]


def test_a_closed_channel_ends_all_loads() -> None:
    run = Run(FakeChannel(), load(count=1000))
    run.tick_at(0.0)
    run.channel.is_closed = True
    run.until(0.1)
    assert not run.driver.is_running


def test_stop_ends_what_runs_and_more_can_be_begun() -> None:
    run = Run(FakeChannel(), load(duration="1h"))
    run.until(0.1)
    assert run.driver.stop() == 1
    sent = len(run.channel.sent)
    run.until(0.2)
    assert len(run.channel.sent) == sent
    run.driver.add([load(count=5, closed=True)])
    run.tick_at(0.3)
    assert len(run.channel.sent) == sent + 5


def test_loads_are_bounded() -> None:
    run = Run(FakeChannel(), *[load(duration="1h")] * MAX_LOADS)
    with pytest.raises(ConfigError, match="stop them"):
        run.driver.add([load()])


def test_it_runs_by_itself_until_everything_is_over() -> None:
    channel = FakeChannel()
    driver = Driver(channel, SEED, lambda: channel.now)
    driver.add([load(rate="50/s", count=20), load(rate="1000/s", duration="1s", start="500ms")])
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        channel.now += seconds

    asyncio.run(driver.run(sleep))
    assert len(channel.sent) == 1020
    assert max(waits) <= 0.02, "a new view or load is noticed soon"
    assert min(wait for wait in waits if wait) >= 0.001, "never a timer per message"


# -- Receiving -------------------------------------------------------------------------------------


def receiver(seed: int = SEED, verify: str = "all") -> Receiver:
    made = Receiver(seed, verify)
    view = FakeChannel("n0", "n1").view
    assert view is not None
    made.on_view(view)
    return made


def batch(number: int = 10, size: int = 64) -> list[bytes]:
    return stream_of(SEED, "n1", address("n1").short, 0).batch(0, number, (size, size))


def test_what_was_sent_is_recognised() -> None:
    one = receiver()
    one.on_batch(delivery(address("n1"), 0, batch()))
    assert one.stats() == {
        "workload.received": 10,
        "workload.received_bytes": 640,
        "workload.verified": 10,
        "workload.mismatches": 0,
    }
    assert one.by_name() == {"n1": 10}


@pytest.mark.parametrize("size", [64, 2048])
def test_anything_else_is_a_mismatch(size: int) -> None:
    payloads = batch(size=size)
    payloads[7] = payloads[7][:-1] + bytes([payloads[7][-1] ^ 1])
    one = receiver()
    one.on_batch(delivery(address("n1"), 0, payloads))
    assert one.mismatches == 1


@pytest.mark.parametrize(
    ("seed", "source", "dest"), [(8, "n1", 0), (SEED, "n0", 0), (SEED, "n1", 5)]
)
def test_a_message_of_another_stream_is_a_mismatch(seed: int, source: str, dest: int) -> None:
    one = receiver(seed)
    one.on_batch(delivery(address(source), dest, batch()))
    assert one.mismatches == 10


def test_one_of_a_batch_or_none_can_be_looked_at() -> None:
    payloads = [b"x" * 64] * 5
    for verify, expected in (("all", 5), ("one", 1), ("none", 0)):
        one = receiver(verify=verify)
        one.on_batch(delivery(address("n1"), 0, payloads))
        assert (one.mismatches, one.verified, one.messages) == (expected, expected, 5)


def test_of_a_stranger_nothing_is_known() -> None:
    one = receiver()
    one.on_batch(delivery(address("n9"), 0, batch()))
    assert (one.messages, one.verified, one.mismatches) == (10, 0, 0)


def test_short_messages_are_not_called_verified() -> None:
    one = receiver()
    one.on_batch(delivery(address("n1"), 0, batch(size=12)))
    assert (one.messages, one.verified, one.mismatches) == (10, 0, 0)


# -- Words -----------------------------------------------------------------------------------------

MEMBERS = ("n0", "n1", "n2")
ENTRIES = [
    "{do: multicast}",
    "{do: unicast}",
    "{do: unicast, from: n0, to: others}",
    "{do: unicast, from: [n0, n1], to: all}",
    "{do: unicast, from: n0, to: [n1, n2], count: 5, burst: 5}",
    "{do: unicast, from: n0, to: n0}",
    "{do: multicast, from: n1, rate: 6/min, size: 1KiB}",
    "{do: multicast, rate: 2.5/s, size: 10B..2KiB, start: 1500ms}",
    "{do: multicast, flags: [NO_FC, OOB], oob_every: 10}",
    "{do: multicast, flags: DONT_BUNDLE}",
]


def same(one: Load, other: ScenarioLoad) -> bool:
    return (
        one.do == other.do
        and (one.sources or MEMBERS) == other.sources
        and (one.dests or MEMBERS) == other.dests
        and one.excludes_self == other.excludes_self
        and (one.count, one.rate, one.size, one.start, one.burst)
        == (other.count, other.rate, other.size, other.start, other.burst)
        and (one.flags, one.oob_every) == (other.flags, other.oob_every)
    )


def in_scenario(entry: str) -> ScenarioLoad:
    text = (
        "name: x\nguarantees: [G1]\nlimits: {run: 900h}\ncluster: {members: 3, stack: udp}\n"
        f"workload: [{entry}]\n"
    )
    (found,) = parse_scenario(text).workload
    return found


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_load_means_what_it_means_in_a_scenario(entry: str) -> None:
    assert same(read_load(yaml.safe_load(entry)), in_scenario(entry))


@settings(max_examples=20)
@given(
    count=st.integers(1, 10**4),
    rate=st.integers(1, 10**6).map(lambda number: number / 100),
    size=st.tuples(st.integers(0, 70_000), st.integers(0, 70_000)).map(sorted),
    start=st.integers(0, 10**6).map(lambda number: number / 1000),
    burst=st.integers(1, 1000),
    oob_every=st.integers(0, 50),
    flags=st.sets(st.sampled_from(sorted(FLAGS))).map(sorted).map(tuple),
)
def test_what_is_written_reads_back_equal_and_a_scenario_takes_it(**keys: Any) -> None:
    one = Load(do="multicast", excludes_self=False, **{**keys, "size": tuple(keys["size"])})
    written = write_load(one)
    assert read_load(written) == one
    entry = ", ".join(f"{key}: {value}" for key, value in written.items()).replace("'", "")
    assert same(one, in_scenario(f"{{{entry}}}"))


def test_closed_duration_and_label_read_back_equal() -> None:
    closed = load(closed=True), load(closed=True, duration="90min")
    for one in (*closed, load(duration="1ms"), load(label="7")):
        assert read_load(write_load(one)) == one
    assert load(duration="3s").count is None
    assert load(duration="3s", count=5).count == 5


@pytest.mark.parametrize(
    ("keys", "remedy"),
    [
        ({"do": "multicas"}, "did you mean multicast?"),
        ({"do": None}, "choose one of unicast, multicast"),
        ({"rat": "5/s"}, "did you mean rate?"),
        ({"to": "n1"}, "unknown key to"),
        ({"do": "unicast", "to": []}, "name a member"),
        ({"do": "unicast", "to": ["n1", "n1"]}, "keep one"),
        ({"rate": 5}, "a rate with its unit, such as 200/s"),
        ({"rate": "0/s"}, "above 0"),
        ({"rate": "5/h"}, "units: /s, /min"),
        ({"size": 100}, "a size with its unit"),
        ({"size": "2KiB..1KiB"}, "the smaller"),
        ({"size": "1B..2B..3B"}, "range"),
        ({"size": "1GiB"}, "within 0..16777216"),
        ({"count": 0}, "1.."),
        ({"label": 7}, "write a word"),
        ({"label": ""}, "write a word"),
        ({"count": True}, "whole number"),
        ({"burst": "5"}, "whole number"),
        ({"start": 5}, "a duration with its unit"),
        ({"flags": ["OBB"]}, "did you mean OOB?"),
        ({"flags": ["FIRST"]}, "there is no such message flag"),
        ({"flags": ["OOB", "OOB"]}, "keep one"),
        ({"closed": "yes"}, "true or false"),
        ({"closed": True, "rate": "5/s"}, "keep one"),
        ({"duration": "0s"}, "above 0"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_write(
    keys: dict[str, Any], remedy: str
) -> None:
    with pytest.raises(ConfigError, match=r"^workload: ") as caught:
        read_load({"do": "multicast", **keys})
    assert remedy in str(caught.value)


def test_loads_come_alone_or_in_lists() -> None:
    assert read_loads({"do": "multicast"}) == read_loads([{"do": "multicast"}])
    with pytest.raises(ConfigError, match="write a mapping"):
        read_loads("multicast")
    with pytest.raises(ConfigError, match="at most"):
        read_loads([{"do": "multicast"}] * (MAX_LOADS + 1))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (10.0, "10s"),
        (0.5, "500ms"),
        (1e-6, "1us"),
        (1.5, "1500ms"),
        (6.991, "6991ms"),
        (95e-6, "95us"),
    ],
)
def test_a_duration_is_written_with_the_unit_that_suits_it(seconds: float, text: str) -> None:
    assert SETTING_DURATION.write(seconds) == text


# -- Failures --------------------------------------------------------------------------------------


def test_a_workload_that_a_bug_ends_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody awaits it: without that its loads would seem to run for ever."""
    told: list[dict[str, Any]] = []

    async def scene() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, what: told.append(what))
        run = Run(FakeChannel(), load(count=1))
        monkeypatch.setattr(run.driver, "tick", lambda _now: 1 / 0)
        run.driver.start()
        for _ in range(5):
            await asyncio.sleep(0)

    asyncio.run(scene())
    (what,) = told
    assert isinstance(what["exception"], ZeroDivisionError)


def test_a_load_for_which_there_is_no_memory_ends_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a member. In the simulator it is the memory of the whole run, which ends."""

    def none_left(*_words: object) -> list[bytes]:
        raise MemoryError

    async def scene(*, in_member: bool) -> str:
        run = Run(FakeChannel(), load(count=1))
        monkeypatch.setattr(run.driver.offers, "stream", lambda _dest: _Stream(none_left))
        if not in_member:
            run.driver.tick(run.channel.now)
            return ""
        run.driver.start()
        await asyncio.sleep(0.01)
        return run.driver.jobs[0].error

    assert asyncio.run(scene(in_member=True)).endswith("give it more, and do it again")
    with pytest.raises(MemoryError):
        asyncio.run(scene(in_member=False))


class _Stream:
    """A stream whose messages cannot be made."""

    sent = 0

    def __init__(self, batch: Any) -> None:
        self.batch = batch
