"""The schedule: every end explicit, every choice made by the seed, everything mended at the end."""

import pytest

from stormcast.chaos import faults
from stormcast.chaos.language.scenario import Scenario, parse_scenario
from stormcast.chaos.language.schedule import End, TimedStep, format_plan, schedule

ALL = ("n0", "n1", "n2", "n3", "n4")


def scenario(*steps: str, workload: str = "[]") -> Scenario:
    lines = "".join(f"  - {{{step}}}\n" for step in steps)
    return parse_scenario(
        "name: x\nguarantees: [G1]\ncluster: {members: 5}\n"
        f"workload: {workload}\ntimeline:{lines and chr(10)}{lines or ' []' + chr(10)}"
    )


def plan(*steps: str, workload: str = "[]", seed: int = 7) -> list[tuple[float, str, str]]:
    """What the schedule does: time, word, fault."""
    timed = schedule(scenario(*steps, workload=workload), seed)
    return [(step.at, step.do, step.fault) for step in timed]


def test_for_becomes_an_explicit_end() -> None:
    timed = schedule(scenario("at: 5s, do: cut, from: n0, to: n1, for: 10s"), 0)
    assert timed == (
        TimedStep(at=5.0, fault="f1", do="cut", action=faults.Cut(sources=("n0",), dests=("n1",))),
        TimedStep(at=15.0, fault="f1", do="end", action=End(fault="f1")),
    )


def test_faults_are_numbered_as_they_stand_in_the_file_unless_named() -> None:
    assert plan(
        "at: 3s, do: cut, for: 1s",
        "at: 1s, do: loss, rate: 5%, name: rain, for: 1s",
        "at: 2s, do: close, member: n0, peer: n1",
    ) == [
        (1.0, "loss", "rain"),
        (2.0, "end", "rain"),
        (2.0, "close", "f3"),
        (3.0, "cut", "f1"),
        (4.0, "end", "f1"),
    ]


def test_cures_are_not_counted_as_faults() -> None:
    assert plan("at: 1s, do: cut", "at: 2s, do: heal", "at: 3s, do: crash, member: n0") == [
        (1.0, "cut", "f1"),
        (2.0, "heal", ""),
        (3.0, "crash", "f2"),
    ]


def test_at_one_time_the_order_of_the_file_holds_and_ends_come_first() -> None:
    assert plan(
        "at: 5s, do: cut, name: a, for: 1s",
        "at: 6s, do: cut, name: c, for: 1s",
        "at: 6s, do: cut, name: b, for: 1s",
    ) == [
        (5.0, "cut", "a"),
        (6.0, "end", "a"),
        (6.0, "cut", "c"),
        (6.0, "cut", "b"),
        (7.0, "end", "c"),
        (7.0, "end", "b"),
    ]


def test_a_fault_that_was_healed_does_not_end_again() -> None:
    assert plan("at: 1s, do: cut, for: 9s", "at: 2s, do: heal") == [
        (1.0, "cut", "f1"),
        (2.0, "heal", ""),
    ]


def test_heal_by_name_leaves_the_others_to_the_end() -> None:
    assert plan(
        "at: 1s, do: cut, name: a", "at: 1s, do: cut, name: b", "at: 2s, do: heal, name: a"
    ) == [(1.0, "cut", "a"), (1.0, "cut", "b"), (2.0, "heal", "a"), (2.0, "heal", "")]


def test_what_is_broken_is_mended_when_steps_and_loads_are_over() -> None:
    assert plan(
        "at: 1s, do: rule, does: hold",
        "at: 2s, do: pause, member: n1",
        "at: 3s, do: stall, member: n2",
        "at: 4s, do: crash, member: n3",
        workload="[{do: unicast, count: 1000, rate: 100/s, start: 2s}]",
    )[4:] == [
        (12.0, "heal", ""),
        (12.0, "release", ""),
        (12.0, "resume", "f2"),
        (12.0, "consume", "f3"),
    ]


def test_a_clean_end_needs_no_mending() -> None:
    assert plan("at: 1s, do: pause, member: n1", "at: 2s, do: resume, member: n1") == [
        (1.0, "pause", "f1"),
        (2.0, "resume", "f1"),
    ]
    assert plan() == []


@pytest.mark.parametrize(
    ("step", "undo"),
    [
        ("crash", faults.Restart(member="n1")),
        ("pause", faults.Resume(member="n1")),
        ("stall", faults.Consume(member="n1")),
    ],
)
def test_a_member_that_is_stopped_for_a_time_comes_back(step: str, undo: faults.Action) -> None:
    timed = schedule(scenario(f"at: 1s, do: {step}, member: n1, for: 2s"), 0)
    assert [(one.at, one.fault) for one in timed] == [(1.0, "f1"), (3.0, "f1")]
    assert timed[1].action == undo


def test_a_member_that_came_back_earlier_does_not_come_back_twice() -> None:
    assert plan("at: 1s, do: crash, member: n1, for: 5s", "at: 2s, do: restart, member: n1") == [
        (1.0, "crash", "f1"),
        (2.0, "restart", "f2"),
    ]


def test_a_crash_takes_the_pause_with_it() -> None:
    assert plan("at: 1s, do: pause, member: n1", "at: 2s, do: crash, member: n1") == [
        (1.0, "pause", "f1"),
        (2.0, "crash", "f2"),
    ]


def test_the_seed_and_nothing_else_chooses() -> None:
    one = scenario("at: 1s, do: crash, member: random", "at: 2s, do: partition, groups: random")
    assert schedule(one, 3) == schedule(one, 3)
    assert len({str(schedule(one, seed)) for seed in range(50)}) > 10


def test_a_choice_does_not_depend_on_other_faults() -> None:
    alone = schedule(scenario("at: 1s, do: pause, member: random, name: x"), 5)
    among = schedule(
        scenario("at: 0s, do: cut, for: 1s", "at: 1s, do: pause, member: random, name: x"), 5
    )
    assert alone[0] in among


def test_random_halves_are_all_members_once() -> None:
    for seed in range(20):
        action = schedule(scenario("at: 1s, do: partition, groups: random"), seed)[0].action
        assert isinstance(action, faults.Partition)
        majority, minority = action.groups
        assert len(majority) == 3
        assert sorted(majority + minority) == list(ALL)


def parted(shape: str, seed: int = 7) -> faults.Partition:
    """What the schedule makes of a partition."""
    action = schedule(scenario(f"at: 1s, do: partition, groups: {shape}"), seed)[0].action
    assert isinstance(action, faults.Partition)
    return action


def heard(partition: faults.Partition) -> dict[str, set[str]]:
    """Whom each member hears, itself apart."""
    return {
        dest: {source for source in ALL if source != dest and not partition.strikes(source, dest)}
        for dest in ALL
    }


def test_halves_are_the_first_and_the_rest() -> None:
    assert parted("halves").groups == (("n0", "n1", "n2"), ("n3", "n4"))


def test_an_isolated_member_hears_nobody_and_the_others_each_other() -> None:
    found = set()
    for seed in range(30):
        hears = heard(parted("isolate-random", seed))
        (alone,) = [name for name, others in hears.items() if not others]
        assert all(len(others) == 3 for name, others in hears.items() if name != alone)
        found.add(alone)
    assert found == set(ALL)


def test_a_bridge_hears_all_and_the_sides_only_it() -> None:
    for seed in range(10):
        hears = heard(parted("bridge", seed))
        (bridge,) = [name for name, others in hears.items() if len(others) == 4]
        assert all(bridge in others for name, others in hears.items() if name != bridge)
        assert sorted(len(others) for others in hears.values()) == [2, 2, 2, 2, 4]


def test_in_a_ring_each_hears_its_neighbours() -> None:
    assert heard(parted("ring")) == {
        "n0": {"n4", "n1"},
        "n1": {"n0", "n2"},
        "n2": {"n1", "n3"},
        "n3": {"n2", "n4"},
        "n4": {"n3", "n0"},
    }


def test_a_crash_of_who_is_down_leaves_the_restart_of_the_first() -> None:
    assert plan(
        "at: 1s, do: crash, member: n1, for: 10s", "at: 2s, do: crash, member: n1, for: 2s"
    ) == [(1.0, "crash", "f1"), (2.0, "crash", "f2"), (11.0, "restart", "f1")]


def test_a_turn_of_a_churn_leaves_the_restart_of_who_is_down_by_another_fault() -> None:
    timed = plan(
        "at: 1s, do: crash, member: n1, for: 10s",
        "at: 2s, do: churn, members: [n1], every: 1s, for: 4s",
    )
    assert [step for step in timed if step[1] in ("restart", "join")] == [(11.0, "restart", "f1")]


def test_of_overlapping_majorities_each_member_hears_another_one() -> None:
    for seed in range(10):
        hears = heard(parted("majorities", seed))
        assert all(len(others) + 1 == 3 for others in hears.values())
        assert len({frozenset(others | {name}) for name, others in hears.items()}) == 5


def test_who_coordinates_is_not_known_before_the_run() -> None:
    action = parted("isolate-coordinator")
    assert (action.groups, action.shape) == ((), "isolate-coordinator")


def test_what_flaps_begins_each_period_anew_and_ends_with_its_time() -> None:
    assert plan("at: 10s, do: cut, every: 4s, up: 1s, for: 10s") == [
        (10.0, "cut", "f1"),
        (13.0, "end", "f1"),
        (14.0, "cut", "f1"),
        (17.0, "end", "f1"),
        (18.0, "cut", "f1"),
        (20.0, "end", "f1"),
    ]


def test_a_partition_that_flaps_parts_the_same_members_each_time() -> None:
    timed = schedule(
        scenario("at: 1s, do: partition, groups: random, every: 2s, up: 1s, for: 6s"), 3
    )
    assert len({step.action for step in timed if step.do == "partition"}) == 1


def test_what_is_healed_while_it_flaps_comes_no_more() -> None:
    """What has not begun by then begins in its time."""
    flaps = "at: 1s, do: cut, every: 4s, up: 1s, for: 8s"
    later = "at: 5s, do: loss, rate: 10%, every: 4s, up: 1s, for: 8s"
    assert plan(flaps, later, "at: 2s, do: heal") == [
        (1.0, "cut", "f1"),
        (2.0, "heal", ""),
        (5.0, "loss", "f2"),
        (8.0, "end", "f2"),
        (9.0, "loss", "f2"),
        (12.0, "end", "f2"),
    ]


def test_by_turns_churn_takes_a_member_and_brings_it_back() -> None:
    kinds = set()
    for seed in range(20):
        one = scenario("at: 1s, do: churn, members: [n1, n3], every: 2s, for: 9s, name: mill")
        timed = schedule(one, seed)
        assert [step.at for step in timed] == [1.0, 3.0, 5.0, 7.0, 9.0, 10.0]
        for gone, back in zip(timed[::2], timed[1::2], strict=True):
            assert isinstance(gone.action, faults.Leave | faults.Crash)
            assert back.action == faults.Join(member=gone.action.member)
            kinds.add((gone.do, gone.action.member))
        assert {step.fault for step in timed} == {"mill"}
    assert kinds == {(do, name) for do in ("leave", "crash") for name in ("n1", "n3")}


def test_who_leaves_for_a_time_joins_again() -> None:
    timed = schedule(scenario("at: 1s, do: leave, member: n1, for: 5s"), 0)
    assert [(step.at, step.action) for step in timed] == [
        (1.0, faults.Leave(member="n1")),
        (6.0, faults.Join(member="n1")),
    ]


def test_who_leaves_while_it_is_paused_is_there_until_it_goes_on() -> None:
    """A join meanwhile finds it there and does nothing: its pause has its end."""
    assert plan(
        "at: 1s, do: pause, member: n1, for: 10s",
        "at: 2s, do: leave, member: n1, for: 3s",
        "at: 20s, do: pause, member: n2",
        "at: 21s, do: leave, member: n2",
        "at: 22s, do: join, member: n2",
        workload="[{do: unicast, from: n0, to: n3, count: 1, rate: 1/s, start: 30s}]",
    ) == [
        (1.0, "pause", "f1"),
        (2.0, "leave", "f2"),
        (5.0, "join", "f2"),
        (11.0, "resume", "f1"),
        (20.0, "pause", "f3"),
        (21.0, "leave", "f4"),
        (22.0, "join", "f5"),
        (31.0, "resume", "f3"),
    ]


def test_a_leaver_that_is_paused_on_its_way_out_goes_on_though_a_join_came() -> None:
    """How long leaving takes is not known before the run: to another process the end of the pause
    does nothing."""
    assert plan(
        "at: 1s, do: leave, member: n1, for: 3s", "at: 2s, do: pause, member: n1, for: 5s"
    ) == [(1.0, "leave", "f1"), (2.0, "pause", "f2"), (4.0, "join", "f1"), (7.0, "resume", "f2")]


def test_a_pause_ends_with_its_process() -> None:
    """Who was killed in it comes back as another process."""
    assert plan(
        "at: 1s, do: pause, member: n1, for: 10s",
        "at: 2s, do: crash, member: n1, for: 3s",
    ) == [(1.0, "pause", "f1"), (2.0, "crash", "f2"), (5.0, "restart", "f2")]


@pytest.mark.parametrize(("hold", "end"), [("stall", "consume"), ("pause", "resume")])
def test_a_hold_that_a_restart_may_not_reach_has_an_end(hold: str, end: str) -> None:
    """Who the participant is the run knows. If it is n1, the second crash finds it down, and the
    second restart does nothing: what was begun since then must end."""
    assert plan(
        "at: 1s, do: crash, member: random-participant, for: 3s",
        "at: 2s, do: crash, member: n1, for: 4s",
        f"at: 5s, do: {hold}, member: n1, for: 4s",
    ) == [
        (1.0, "crash", "f1"),
        (2.0, "crash", "f2"),
        (4.0, "restart", "f1"),
        (5.0, hold, "f3"),
        (6.0, "restart", "f2"),
        (9.0, end, "f3"),
    ]


def test_roles_stay_roles_and_each_fault_is_undone_for_itself() -> None:
    """Two coordinators crash one after the other: both are restarted, by the id of their fault."""
    timed = schedule(
        scenario(
            "at: 1s, do: crash, member: coordinator, for: 5s",
            "at: 2s, do: crash, member: coordinator, for: 5s",
            "at: 3s, do: pause, member: random-participant",
        ),
        0,
    )
    assert [(step.at, step.fault, step.action) for step in timed] == [
        (1.0, "f1", faults.Crash(member="coordinator")),
        (2.0, "f2", faults.Crash(member="coordinator")),
        (3.0, "f3", faults.Pause(member="random-participant")),
        (6.0, "f1", faults.Restart(member="coordinator")),
        (7.0, "f2", faults.Restart(member="coordinator")),
        (7.0, "f3", faults.Resume(member="random-participant")),
    ]


def test_a_random_member_is_one_that_has_joined() -> None:
    text = (
        "name: x\nguarantees: [G1]\ncluster: {members: 3, late: [n1, n2]}\n"
        "timeline:\n  - {at: 1s, do: crash, member: random}\n"
    )
    for seed in range(20):
        assert schedule(parse_scenario(text), seed)[0].action == faults.Crash(member="n0")
    joined = text.replace("timeline:\n", "timeline:\n  - {at: 0s, do: join, member: n1}\n")
    chosen = {str(schedule(parse_scenario(joined), seed)[1].action) for seed in range(20)}
    assert chosen == {str(faults.Crash(member=name)) for name in ("n0", "n1")}


def test_random_crashes_hit_the_living_and_random_restarts_the_dead() -> None:
    crashes = [f"at: {second}s, do: crash, member: random" for second in range(1, 5)]
    for seed in range(20):
        timed = schedule(scenario(*crashes, "at: 9s, do: restart, member: random"), seed)
        actions = [step.action for step in timed]
        dead = [one.member for one in actions if isinstance(one, faults.Crash)]
        back = [one.member for one in actions if isinstance(one, faults.Restart)]
        assert len(set(dead)) == 4
        assert set(back) < set(dead)


def test_the_plan_is_an_aligned_table_of_loads_and_steps() -> None:
    one = scenario(
        "at: 5s, do: partition, groups: [[n0], [n1, n2]], name: split, for: 10s",
        "at: 6s, do: rule, does: drop, match: {kind: ACK, seqno: 5..9}",
        workload="[{do: unicast, from: n0, to: [n1, n2], size: 10B..2KiB, oob_every: 10}]",
    )
    assert format_plan(one, 7) == (
        "x, seed 7: 5 members (n0 n1 n2 n3 n4), unicast-only, compatible timing, at most 60s, "
        "then 20s to settle\n"
        "\n"
        "     at  fault  do         what\n"
        " 0.000s  -      unicast    n0 to n1 n2: 1000 of 10B..2KiB at 200/s, until 5.000s, "
        "each 10th OOB\n"
        " 5.000s  split  partition  groups: [[n0], [n1, n2]]\n"
        " 6.000s  f2     rule       does: drop, match: {kind: ACK, seqno: 5..9}\n"
        "15.000s  split  end\n"
        "15.000s  -      heal\n"
    )
