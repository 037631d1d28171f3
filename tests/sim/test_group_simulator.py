"""Groups in the simulator: members come and go, multicasts reach who is in, and a run says so."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.backends.sim.backend import SimBackend
from stormcast.chaos.backends.sim.network import Network
from stormcast.chaos.backends.sim.streams import StreamNetwork
from stormcast.chaos.language.scenario import Scenario, parse_scenario
from stormcast.chaos.oracles.verdict import Finding, Verdict
from stormcast.chaos.session.judging import expectation_findings, living_at, one_group_finding
from stormcast.chaos.session.plans import check_supported
from stormcast.chaos.session.record import RunRecord
from stormcast.chaos.session.session import play
from stormcast.chaos.session.simulation import simulate
from stormcast.node import trace
from stormcast.node.trace import read_blocks_untrusted

DATAGRAMS = ("udp", "mcast")
STREAMS = ("tcp", "tcp-nio2", "tcp-no-retransmit")
STACKS = (*DATAGRAMS, *STREAMS)

MULTICASTS = "{do: multicast, from: all, count: 100, rate: 50/s, size: 64B, start: 3s}"


def story(
    *timeline: str,
    stack: str = "udp",
    members: int = 3,
    cluster: str = "",
    load: str = MULTICASTS,
    network: str = "delay: 1ms",
    more: str = "",
) -> Scenario:
    """Three members, two seconds of multicasts of each, and what happens to them."""
    steps = "".join(f"  - {{{step}}}\n" for step in timeline)
    return parse_scenario(
        "name: story\nguarantees: [G1, G8]\n"
        f"cluster: {{members: {members}, stack: {stack}, timing: fast{cluster}}}\n"
        f"network: {{{network}}}\nworkload:\n  - {load}\n{more}"
        + (f"timeline:\n{steps}" if steps else "")
        + "limits: {run: 120s}\n"
    )


def seen(run: RunRecord, label: str) -> list[tuple[str, ...]]:
    """The members of each view that an incarnation installed."""
    return [view.members for view in run.views.get(label, ())]


def finding(scenario: Scenario, run: RunRecord) -> Finding:
    """What became of the one expectation."""
    (found,) = expectation_findings(scenario, run)
    return found


# -- A group forms ------------------------------------------------------------


@pytest.mark.parametrize("stack", STACKS)
def test_members_form_one_group_and_each_gets_every_multicast(stack: str) -> None:
    run = simulate(story(stack=stack), 1)
    everyone = {"n0-1", "n1-1", "n2-1"}
    assert all(set(seen(run, label)[-1]) == everyone for label in everyone)
    assert run.sent == 300
    assert run.delivered == 900
    assert run.mismatches == []
    assert run.complete
    assert run.sent_by_pair == {
        (source, dest): 100 for source in ("n0", "n1", "n2") for dest in ("n0", "n1", "n2")
    }
    assert one_group_finding(run).verdict is Verdict.HOLDS


def test_unicasts_travel_beside_multicasts_and_are_told_apart() -> None:
    both = f"{MULTICASTS}\n  - {{do: unicast, from: n0, to: n1, count: 50, rate: 50/s, start: 3s}}"
    run = simulate(story(load=both), 1)
    assert run.mismatches == []
    assert run.sent_by_pair["n0", "n1"] == 150
    assert run.delivered == 950


def test_one_by_one_each_joins_who_is_there() -> None:
    run = simulate(story(cluster=", joins: one-by-one"), 1)
    assert seen(run, "n0-1") == [
        ("n0-1",),
        ("n0-1", "n1-1"),
        ("n0-1", "n1-1", "n2-1"),
    ]
    assert run.lives["n2-1"].start > run.lives["n1-1"].start > run.lives["n0-1"].start


def test_the_same_seed_gives_the_same_traces() -> None:
    def digest(seed: int) -> str:
        run = simulate(
            story(
                "at: 4s, do: partition, groups: isolate-coordinator, for: 2s",
                "at: 8s, do: churn, every: 1s, for: 3s",
                network="delay: 1ms, loss: 2%",
            ),
            seed,
        )
        return sha256(b"".join(run.traces[label] for label in sorted(run.traces))).hexdigest()

    assert digest(1) == digest(1) != digest(2)


# -- Members come and go ------------------------------------------------------------


def test_a_late_member_is_not_there_before_its_step() -> None:
    scenario = story(
        "at: 4s, do: join, member: n2",
        cluster=", late: [n2]",
        more="expect:\n  - {by: 20s, delivered: all}\n",
    )
    run = simulate(scenario, 1)
    assert run.lives["n2-1"].start == 4.0
    assert set(living_at(run, 3.9)) == {"n0", "n1"}
    assert set(seen(run, "n0-1")[-1]) == {"n0-1", "n1-1", "n2-1"}
    # It is wanted what was sent since it is in, and no more.
    assert run.sent_by_pair["n0", "n1"] == 100
    assert 0 < run.sent_by_pair["n0", "n2"] < 100
    assert finding(scenario, run).verdict is Verdict.HOLDS


def test_what_waits_in_the_outbox_is_for_those_who_are_in_when_it_is_numbered() -> None:
    """All are accepted at once, before n2 joins; most are numbered after it."""
    scenario = story(
        "at: 3100ms, do: join, member: n2",
        cluster=", late: [n2], max_batch: 1, multicast_settings: {window_messages: 5}",
        stack="mcast",
        load="{do: multicast, from: n0, count: 400, rate: 1000/s, burst: 400, start: 3s}",
        network="delay: 20ms",
    )
    run = simulate(scenario, 1)
    wanted, got = run.sent_by_pair["n0", "n2"], run.delivered - 800
    assert 100 < wanted < 400
    # What was in the window when it joined may reach it, too.
    assert wanted <= got <= wanted + 5


def test_who_leaves_is_through_with_it_and_ends() -> None:
    run = simulate(story("at: 4s, do: leave, member: n1"), 1)
    assert 4.0 < run.lives["n1-1"].end < 10.0
    assert set(seen(run, "n0-1")[-1]) == {"n0-1", "n2-1"}
    blocks = read_blocks_untrusted(run.traces["n1-1"], hash64)
    assert [event.kind for block in blocks for event in block.events][-1] == trace.STOP
    assert one_group_finding(run).verdict is Verdict.HOLDS


def test_who_leaves_for_a_time_joins_as_somebody_else() -> None:
    run = simulate(story("at: 4s, do: leave, member: n1, for: 5s"), 1)
    assert set(seen(run, "n0-1")[-1]) == {"n0-1", "n1-2", "n2-1"}
    assert run.kinds == {"f1": "leave"}
    assert run.bites["f1"] >= 1


def test_the_coordinator_is_whom_the_group_takes_for_it() -> None:
    """It crashes; whoever is next coordinates, and crashes, too."""
    run = simulate(
        story(
            "at: 4s, do: crash, member: coordinator",
            "at: 60s, do: crash, member: coordinator",
            members=4,
        ),
        1,
    )
    ended = {label: life.end for label, life in run.lives.items() if life.end < 100.0}
    assert sorted(ended.values()) == [4.0, 60.0]
    first = min(ended, key=lambda label: ended[label])
    second = max(ended, key=lambda label: ended[label])
    before = [view for view in run.views[second] if view.time < 4.0][-1]
    assert before.members[0] == first
    after = [view for view in run.views[second] if view.time < 60.0][-1]
    assert after.members[0] == second


def test_a_participant_is_never_the_coordinator() -> None:
    for seed in range(5):
        run = simulate(story("at: 6s, do: crash, member: random-participant"), seed)
        (gone,) = [label for label, life in run.lives.items() if life.end < 100.0]
        before = [view for view in run.views[gone] if view.time < 6.0][-1]
        assert before.members[0] != gone


def test_the_restart_of_a_role_brings_back_whom_it_struck() -> None:
    run = simulate(story("at: 4s, do: crash, member: coordinator, for: 2s"), 1)
    (gone,) = [life for life in run.lives.values() if life.end == 4.0]
    starts = [life.start for life in run.lives.values() if life.name == gone.name]
    assert 6.0 in starts
    assert min(starts) < 0.0, "the group stands when the clock of the scenario starts"


def test_a_coordinator_that_is_isolated_is_alone() -> None:
    run = simulate(
        story("at: 4s, do: partition, groups: isolate-coordinator, for: 60s", members=4), 1
    )
    sizes = sorted(len(members[-1]) for members in views_at(run, 60.0).values())
    assert sizes == [1, 3, 3, 3]


def views_at(run: RunRecord, time: float) -> dict[str, list[tuple[str, ...]]]:
    return {
        label: [view.members for view in views if view.time <= time]
        for label, views in run.views.items()
    }


# -- Streams ------------------------------------------------------------


@pytest.mark.parametrize("stack", STREAMS)
def test_over_connections_loss_only_makes_late(stack: str) -> None:
    run = simulate(story(stack=stack, network="delay: 1ms, loss: 5%, corrupt: 1%"), 1)
    assert run.delivered == 900
    dropped = [
        block.text(event)
        for label, blocks in run.traces.items()
        if label != "rig"
        for block in read_blocks_untrusted(blocks, hash64)
        for event in block.events
        if event.kind == trace.DROPPED
    ]
    assert not {"head-check", "check", "digest", "body-digest"} & set(dropped)


def test_the_end_of_a_process_is_heard_over_its_monitored_connections() -> None:
    """Long before anybody misses its heartbeats; of one that is cut off, when it is healed."""

    def learned(*more: str) -> float:
        run = simulate(story(*more, "at: 4s, do: crash, member: n2", stack="tcp"), 1)
        return next(
            view.time
            for view in run.views["n0-1"]
            if "n2-1" not in view.members[:3] and view.time > 4.0
        )

    assert learned() < 5.0
    cut = "at: 3900ms, do: partition, groups: [[n0, n1], [n2]], for: 1100ms"
    assert 5.0 < learned(cut) < 6.0


def test_a_crash_resets_the_connections_of_the_crashed() -> None:
    """Nothing of it is waited for, and who takes its place starts afresh."""
    run = simulate(story("at: 4s, do: crash, member: n2, for: 3s", stack="tcp"), 1)
    assert set(seen(run, "n0-1")[-1]) == {"n0-1", "n1-1", "n2-2"}
    assert run.complete


@pytest.mark.parametrize("holding", ["pause", "stall"])
def test_a_receive_queue_drops_what_a_busy_member_cannot_take(holding: str) -> None:
    def held(queue: int) -> int:
        cluster = f", protocols: {{TCP: {{receive_queue: {queue}}}}}"
        step = f"at: 3s, do: {holding}, member: n1, for: 1s"
        run = simulate(story(step, stack="tcp", cluster=cluster), 1)
        # Nothing is lost for good: what was dropped is asked for again.
        assert run.delivered == 900
        return run.bites["f1"]

    assert 5 <= held(5) < 80
    assert held(0) > 80


class KeepsItsNetwork(SimBackend):
    """The simulator, whose network can be looked at when the run is over."""

    network: Network | None = None

    def close(self) -> None:
        self.network = self._world.network
        super().close()


def test_bounded_send_buffers_drop_behind_a_narrow_path() -> None:
    def overflowed(buffers: int) -> int:
        cluster = f", protocols: {{TCP_NIO2: {{max_send_buffers: {buffers}}}}}"
        steps = "at: 3s, do: bandwidth, rate: 50kbit/s, from: n0, for: 3s"
        backend = KeepsItsNetwork()
        play(story(steps, stack="tcp-nio2", cluster=cluster), 1, backend, Path())
        assert isinstance(backend.network, StreamNetwork)
        return backend.network.overflowed

    assert overflowed(2) > 0
    assert overflowed(0) == 0


# -- What a run says ------------------------------------------------------------


def test_control_frames_are_counted_by_kind_and_by_who_sends_most() -> None:
    run = simulate(story(), 1)
    assert run.control["GMS/JOIN_REQ"] >= 2
    assert all(0 < run.control_most[what] <= total for what, total in run.control.items())
    assert not any(what.endswith("/DATA") for what in run.control)


def test_a_view_is_expected_of_those_and_with_those() -> None:
    def verdict(expect: str) -> Verdict:
        scenario = story(
            "at: 4s, do: crash, member: n2", more=f"expect:\n  - {{by: 100s, {expect}}}\n"
        )
        return finding(scenario, simulate(scenario, 1)).verdict

    assert verdict("seen_by: [n0, n1], view: [n0, n1]") is Verdict.HOLDS
    assert verdict("seen_by: n0, view: [n0, n1]") is Verdict.HOLDS
    assert verdict("seen_by: n0, view: all") is Verdict.VIOLATED
    assert verdict("seen_by: n0, view: n0") is Verdict.VIOLATED


def test_an_expected_view_must_be_there_in_time() -> None:
    expect = "expect:\n  - {by: 4001ms, seen_by: [n0, n1], view: [n0, n1]}\n"
    scenario = story("at: 4s, do: crash, member: n2", more=expect)
    found = finding(scenario, simulate(scenario, 1))
    assert found.verdict is Verdict.VIOLATED
    assert found.witness == ("n0 n1 in view 3 by n2-1 of n2-1 n0-1 n1-1",)


def test_multicasts_are_wanted_by_who_is_in_the_view_and_arrive() -> None:
    scenario = story(
        "at: 4s, do: crash, member: n2, for: 10s", more="expect:\n  - {by: 60s, delivered: all}\n"
    )
    run = simulate(scenario, 1)
    assert finding(scenario, run).verdict is Verdict.HOLDS
    assert run.sent_by_pair["n0", "n1"] == 100
    assert run.sent_by_pair["n0", "n2"] < 100


def test_what_is_sent_to_who_has_parted_is_not_wanted() -> None:
    """A paused member is expelled; back again, it multicasts in a view that nobody else holds."""
    scenario = story(
        "at: 4s, do: pause, member: coordinator, for: 20s",
        more="expect:\n  - {by: 90s, delivered: all}\n",
    )
    run = simulate(scenario, 1)
    assert run.sent == 300
    assert finding(scenario, run).verdict is Verdict.HOLDS
    assert one_group_finding(run).verdict is Verdict.HOLDS


def test_what_was_on_its_way_into_a_partition_is_not_wanted_after_it() -> None:
    scenario = story(
        "at: 4s, do: partition, groups: [[n0], [n1, n2]], for: 30s",
        more="expect:\n  - {by: 90s, delivered: all}\n",
    )
    run = simulate(scenario, 1)
    assert run.delivered < 900
    assert finding(scenario, run).verdict is Verdict.HOLDS


def test_two_groups_at_the_end_are_not_one() -> None:
    run = simulate(story(), 1)
    assert one_group_finding(run).verdict is Verdict.HOLDS
    last = run.views["n2-1"][-1]
    run.views["n2-1"][-1] = last._replace(number=last.number + 1)
    assert one_group_finding(run).verdict is Verdict.VIOLATED
    run.views["n2-1"][-1] = last._replace(members=last.members[:2])
    assert one_group_finding(run).verdict is Verdict.VIOLATED
    run.views["n2-1"].clear()
    assert one_group_finding(run).verdict is Verdict.VIOLATED


def test_a_multicast_needs_a_stack_with_a_group_and_a_stream_one_with_connections() -> None:
    with pytest.raises(Unsupported, match="stack unicast-only has no multicast"):
        check_supported(story(stack="unicast-only"))
    text = story().text.replace("guarantees", "needs: [stream]\nguarantees")
    with pytest.raises(Unsupported, match="stack udp runs on a datagram network; choose tcp"):
        check_supported(parse_scenario(text))
    check_supported(parse_scenario(text.replace("stack: udp", "stack: tcp")))
