"""What every backend promises, one story each: chaos/backends/base.py, line by line."""

from __future__ import annotations

import pytest

from stormcast.chaos import faults
from stormcast.chaos.backends.base import LEASE_SECONDS, BackendError, MemberError
from stormcast.chaos.faults import Cut, Loss, NetworkFault, Partition, Rule
from stormcast.chaos.language.features import FEATURES
from stormcast.chaos.oracles.verdict import Verdict, judge
from stormcast.chaos.soak.player import Forgets, Weighs
from stormcast.node import trace
from stormcast.node.core.match import Match
from stormcast.weights import AGENT
from tests.conformance.lab import NAMES, Lab

STATE_KEYS = {
    "name",
    "short",
    "identity",
    "where",
    "cluster",
    "stack",
    "timing",
    "state",
    "view",
    "stats",
    "workload",
    "probes",
    "bound",
    "journal",
    "journal_trouble",
    "keys",
}

REPAIR_SECONDS = 1.5
"""In which a sender repeats what was not acked, with fast timing."""
HALVES = Partition(groups=(("n0",), ("n1", "n2")))
DATA_TO_N1 = Match(kinds=("DATA",), protocols=("UNICAST3",), sources=("n0",), dests=("n1",))


# -- What there is -------------------------------------------------------------------------------


def test_a_probe_speaks_of_every_feature_and_of_nothing_else(lab: Lab) -> None:
    probed = lab.backend.features()
    assert list(probed) == list(FEATURES)
    assert all(why is None or (why and "\n" not in why) for why in probed.values())


def test_a_probe_leaves_the_backend_as_it_was(lab: Lab) -> None:
    first = dict(lab.backend.features())
    lab.open()
    assert dict(lab.backend.features()) == first


def test_nobody_runs_before_it_is_started(lab: Lab) -> None:
    lab.open()
    assert [lab.backend.is_alive(name) for name in NAMES] == [False] * 3
    with pytest.raises(MemberError):
        lab.ask("n0", "GET", "/state")


def test_who_is_unknown_is_refused_by_name(lab: Lab) -> None:
    lab.open()
    backend = lab.backend
    for verb in (
        backend.start,
        backend.stop,
        backend.kill,
        backend.restart,
        backend.pause,
        backend.resume,
        backend.is_alive,
    ):
        with pytest.raises(BackendError, match="nobody"):
            verb("nobody")
    with pytest.raises(BackendError, match="nobody"):
        lab.backend.set_test_protocols("nobody", {})
    with pytest.raises(BackendError, match="nobody"):
        lab.ask("nobody", "GET", "/state")


def test_what_does_not_run_cannot_be_stopped_or_paused(lab: Lab) -> None:
    lab.open()
    for verb in (lab.backend.stop, lab.backend.pause, lab.backend.resume):
        with pytest.raises(BackendError, match="n0"):
            verb("n0")


def test_closing_is_safe_at_any_time_and_twice(lab: Lab) -> None:
    lab.backend.close()
    lab.backend.clear()
    lab.open()
    lab.backend.start("n0")
    lab.backend.clear()
    lab.backend.clear()
    lab.backend.close()
    lab.backend.close()
    lab.backend.clear()


# -- Time ----------------------------------------------------------------------------------------


def test_waiting_takes_its_time_or_ends_when_it_is_done(lab: Lab) -> None:
    lab.open()
    backend = lab.backend
    began = backend.now()
    assert not backend.wait(0.5)
    assert backend.now() >= began + 0.5
    assert not backend.wait(0.2, lambda: False)
    looked: list[float] = []

    def is_done() -> bool:
        looked.append(backend.now())
        return len(looked) > 2

    assert backend.wait(30.0, is_done)
    assert len(looked) == 3
    assert backend.now() < began + 30.0


# -- Members -------------------------------------------------------------------------------------


def test_started_members_are_ready_in_a_while_and_are_one_group(lab: Lab) -> None:
    lab.open_and_start()
    assert all(map(lab.backend.is_alive, NAMES))
    lab.send("n0", 50)
    lab.wait_for(50, "n0", *NAMES)


def test_members_without_a_group_are_told_of_each_other(lab: Lab) -> None:
    lab.need("no-group")
    lab.open_and_start("unicast-only")
    lab.send("n0", 50, "n1")
    lab.wait_for(50, "n0", "n1")
    assert lab.received("n2", "n0") == 0
    assert lab.state("n0")["view"] is None


def test_a_member_that_runs_is_not_started_again(lab: Lab) -> None:
    lab.open()
    lab.backend.start("n0")
    with pytest.raises(BackendError, match="n0"):
        lab.backend.start("n0")
    assert lab.backend.is_alive("n0")


def test_who_is_stopped_leaves_its_group_and_ends(lab: Lab) -> None:
    lab.open_and_start()
    lab.backend.stop("n2")
    lab.wait_for_view("n0", "n1")
    lab.wait_until(lambda: not lab.backend.is_alive("n2"), "n2 has ended")
    (life,) = lab.lives("n2")
    assert trace.STOP in [event.kind for event in life]


def test_who_is_killed_is_gone_at_once_without_a_word(lab: Lab) -> None:
    lab.open_and_start()
    lab.backend.kill("n2")
    assert not lab.backend.is_alive("n2")
    with pytest.raises(MemberError):
        lab.ask("n2", "GET", "/state")
    lab.wait_for_view("n0", "n1")
    (life,) = lab.lives("n2")
    assert trace.STOP not in [event.kind for event in life]
    lab.backend.kill("n2")


def test_a_restart_is_a_new_incarnation_in_the_same_place(lab: Lab) -> None:
    lab.open_and_start()
    before = lab.state("n1")
    lab.backend.restart("n1")
    lab.wait_for_view(*NAMES)
    after = lab.state("n1")
    assert after["identity"] != before["identity"]
    assert after["where"] == before["where"]
    assert [len(lab.lives(name)) for name in NAMES] == [1, 2, 1]


def test_a_member_begins_with_the_test_protocols_that_it_is_given(lab: Lab) -> None:
    """They meet its very first frames: it finds nobody, and is in a group only without them."""
    lab.open_and_start()
    lab.backend.set_test_protocols("n1", {"DROP": {"match": {"kind": "GET_MBRS_RSP"}}})
    lab.backend.restart("n1")
    lab.wait_until(lambda: lab.is_ready("n1"), "n1 is ready")
    (drop,) = lab.ask("n1", "GET", "/probes")
    assert drop["name"] == "DROP"
    assert drop["struck"] > 0
    lab.backend.set_test_protocols("n1", {})
    lab.backend.restart("n1")
    lab.wait_for_view(*NAMES)
    assert lab.ask("n1", "GET", "/probes") == []


def test_a_restart_also_starts_who_is_down(lab: Lab) -> None:
    lab.open_and_start()
    lab.backend.kill("n1")
    lab.backend.restart("n1")
    lab.wait_for_view(*NAMES)


def test_who_is_paused_does_nothing_and_takes_what_waited_when_it_goes_on(lab: Lab) -> None:
    lab.need("pause")
    lab.open_and_start()
    lab.backend.pause("n1")
    assert lab.backend.is_alive("n1")
    lab.send("n0", 20)
    lab.wait_for(20, "n0", "n2")
    with pytest.raises(MemberError):
        lab.ask("n1", "GET", "/workload")
    lab.backend.resume("n1")
    lab.wait_for(20, "n0", "n1")
    lab.wait_for_view(*NAMES)


def test_a_pause_lasts_while_time_passes(lab: Lab) -> None:
    lab.need("pause")
    lab.open_and_start()
    lab.backend.pause("n1")
    lab.wait(LEASE_SECONDS + 1.5)
    with pytest.raises(MemberError):
        lab.ask("n1", "GET", "/workload")
    lab.backend.resume("n1")
    lab.wait_until(lambda: lab.is_ready("n1"), "n1 answers again")


def test_a_pause_that_nobody_renews_ends(lab: Lab) -> None:
    lab.need("pause")
    if lab.kind.why_pauses_last:
        pytest.skip(lab.kind.why_pauses_last)
    lab.open_and_start()
    lab.backend.pause("n1")
    lab.neglect(LEASE_SECONDS + 1.0)
    lab.wait_until(lambda: lab.is_ready("n1"), "n1 answers again")


def test_who_is_paused_can_be_killed_and_comes_back_running(lab: Lab) -> None:
    lab.need("pause")
    lab.open_and_start()
    lab.backend.pause("n1")
    lab.backend.kill("n1")
    assert not lab.backend.is_alive("n1")
    lab.backend.start("n1")
    lab.wait_for_view(*NAMES)


def test_who_is_paused_and_told_to_leave_does_so_when_it_goes_on(lab: Lab) -> None:
    lab.need("pause")
    lab.open_and_start()
    lab.backend.pause("n1")
    lab.backend.stop("n1")
    lab.wait(1.0)
    assert lab.backend.is_alive("n1")
    with pytest.raises(MemberError):
        lab.ask("n1", "GET", "/workload")
    lab.backend.resume("n1")
    lab.wait_for_view("n0", "n2")
    lab.wait_until(lambda: not lab.backend.is_alive("n1"), "n1 has ended")
    (life,) = lab.lives("n1")
    assert trace.STOP in [event.kind for event in life]


def test_a_member_tells_the_same_of_itself_everywhere(lab: Lab) -> None:
    lab.open_and_start()
    state = lab.state("n0")
    assert set(state) == STATE_KEYS
    assert state["name"] == "n0"
    assert int(state["identity"], 16) & 0xFFFFFFFF == int(state["short"], 16)
    assert {member["name"] for member in state["view"]["members"]} == set(NAMES)


def test_a_member_refuses_what_makes_no_sense(lab: Lab) -> None:
    lab.open_and_start()
    for method, target, body in (
        ("GET", "/nonsense", None),
        ("POST", "/consume", {"consuming": "perhaps"}),
        ("POST", "/workload", {"do": "fly"}),
        ("POST", "/forget", {"peer": "nobody"}),
    ):
        with pytest.raises(MemberError):
            lab.ask("n0", method, target, body)
    assert lab.is_ready("n0")


def test_commands_reach_a_member(lab: Lab) -> None:
    """A setting, an application that takes nothing, connections that are lost, views by hand."""
    lab.need("commands")
    lab.open_and_start("unicast-only")
    lab.ask("n0", "POST", "/attributes", {"xmit_interval": "250ms"})
    lab.ask("n1", "POST", "/consume", {"consuming": False})
    lab.send("n0", 20, "n1")
    lab.wait(0.5)
    assert lab.received("n1", "n0") == 0
    lab.ask("n1", "POST", "/consume", {"consuming": True})
    lab.wait_for(20, "n0", "n1")
    assert lab.ask("n1", "POST", "/forget", {"peer": "n0", "half": "receiver"})["connected"]
    lab.send("n0", 20, "n1")
    lab.wait_for(40, "n0", "n1")
    assert lab.ask("n0", "POST", "/close", {"peer": "n1"})["connected"]
    people = [lab.person(name) for name in ("n0", "n1")]
    lab.ask("n0", "POST", "/view", {"number": 3, "creator": people[0], "members": people})
    assert lab.view("n0") == ("n0:3", frozenset({"n0", "n1"}))


def test_a_load_is_stopped_when_it_is_to(lab: Lab) -> None:
    lab.open_and_start()
    lab.ask("n0", "POST", "/workload", {"do": "multicast", "count": 100_000, "rate": "100/s"})
    lab.wait_for(5, "n0", "n1")
    lab.ask("n0", "POST", "/workload/stop", {})
    assert not lab.ask("n0", "GET", "/workload")["running"]


# -- The network ---------------------------------------------------------------------------------


def test_a_partition_keeps_everything_back_and_its_end_lets_all_be_repaired(lab: Lab) -> None:
    lab.need("partition")
    lab.open_and_start()
    lab.apply(split=HALVES)
    lab.send("n0")
    lab.send("n1")
    lab.wait_for(20, "n1", "n2")
    assert lab.received("n0", "n1") == lab.received("n1", "n0") == lab.received("n2", "n0") == 0
    lab.backend.clear()
    lab.wait_for(20, "n0", *NAMES)
    lab.wait_for(20, "n1", *NAMES)
    bitten = lab.bites("split")
    assert all(bitten[pair] > 0 for pair in (("n0", "n1"), ("n0", "n2"), ("n1", "n0")))
    assert not bitten.get(("n1", "n2"))
    assert not bitten.get(("n2", "n1"))


def test_a_cut_is_one_way(lab: Lab) -> None:
    lab.need("partition")
    lab.open_and_start("unicast-only")
    lab.apply(cut=Cut(sources=("n0",), dests=("n1",)))
    lab.send("n0", 10, "n1")
    lab.send("n0", 10, "n2")
    lab.wait_for(10, "n0", "n2")
    lab.wait(0.5)
    assert lab.received("n1", "n0") == 0
    assert {pair for pair, count in lab.bites("cut").items() if count} == {("n0", "n1")}


def test_what_is_cut_one_way_is_heard_the_other_way(lab: Lab) -> None:
    lab.need("partition")
    lab.open_and_start("unicast-only")
    lab.apply(cut=Cut(sources=("n0",), dests=("n1",)))
    lab.send("n1", 10, "n0")
    lab.wait_for(10, "n1", "n0")


def test_a_fault_lasts_as_long_as_time_is_spent_waiting(lab: Lab) -> None:
    """`wait` renews the lease, however long it is."""
    lab.need("partition")
    lab.open_and_start("unicast-only")
    lab.apply(cut=Cut(sources=("n0",), dests=("n1",)))
    lab.send("n0", 10, "n1")
    lab.wait(LEASE_SECONDS + 2.0)
    assert lab.received("n1", "n0") == 0


def test_a_lease_that_nobody_renews_ends_and_the_network_heals(lab: Lab) -> None:
    lab.need("partition")
    lab.open_and_start("unicast-only")
    lab.apply(cut=Cut(sources=("n0",), dests=("n1",)))
    began = lab.backend.now()
    lab.send("n0", 10, "n1")
    # Healed within the lease and a second; then the sender repeats what is missing.
    lab.neglect(LEASE_SECONDS + 1.0 + REPAIR_SECONDS)
    # Whoever comes back is told, and does not believe that the fault goes on.
    with pytest.raises(BackendError):
        lab.backend.renew()
    (life,) = lab.lives("n1")
    delivered = [event for event in life if event.kind == trace.DELIVERED]
    assert sum(event.count for event in delivered) == 10
    assert delivered[0].time > began + LEASE_SECONDS - 0.5


def test_a_renewed_lease_lasts(lab: Lab) -> None:
    lab.need("partition")
    lab.open_and_start("unicast-only")
    lab.apply(cut=Cut(sources=("n0",), dests=("n1",)))
    lab.send("n0", 10, "n1")
    for _ in range(4):
        lab.neglect(LEASE_SECONDS / 3)
        lab.backend.renew()
    assert lab.received("n1", "n0") == 0


def test_a_state_replaces_the_one_before_it(lab: Lab) -> None:
    lab.need("partition")
    lab.open_and_start("unicast-only")
    lab.apply(first=Cut(sources=("n0",), dests=("n1",)))
    lab.apply(second=Cut(sources=("n0",), dests=("n2",)))
    lab.send("n0", 10, "n1")
    lab.send("n0", 10, "n2")
    lab.wait_for(10, "n0", "n1")
    assert lab.received("n2", "n0") == 0
    lab.backend.clear()
    lab.wait_for(10, "n0", "n2")


def test_losses_bite_and_are_repaired(lab: Lab) -> None:
    lab.need("loss")
    lab.open_and_start()
    lab.apply(rain=Loss(sources=NAMES, dests=NAMES, rate=0.3))
    lab.send("n0", 200)
    lab.wait_for(200, "n0", *NAMES)
    lost = sum(lab.bites("rain").values())
    assert lost > 20


def test_bites_add_up_over_states_and_stay_when_the_fault_is_over(lab: Lab) -> None:
    lab.need("partition")
    lab.open_and_start("unicast-only")
    cut = Cut(sources=("n0",), dests=("n1",))
    lab.apply(cut=cut)
    lab.send("n0", 10, "n1")
    lab.wait_until(lambda: lab.bites("cut").get(("n0", "n1"), 0) > 0, "the cut bites")
    first = lab.bites("cut")["n0", "n1"]
    lab.apply(cut=cut, other=Cut(sources=("n2",), dests=("n1",)))
    assert lab.bites("cut")["n0", "n1"] >= first
    lab.wait_until(lambda: lab.bites("cut")["n0", "n1"] > first, "it goes on biting")
    lab.backend.clear()
    last = lab.bites("cut")["n0", "n1"]
    assert last > first
    lab.wait_for(10, "n0", "n1")
    assert lab.bites("cut")["n0", "n1"] == last


def test_bites_of_faults_that_are_over_can_be_forgotten(lab: Lab) -> None:
    lab.need("partition")
    lab.open_and_start("unicast-only")
    if not isinstance(lab.backend, Forgets):
        pytest.skip("this backend keeps what it has")
    cut, other = Cut(sources=("n0",), dests=("n1",)), Cut(sources=("n2",), dests=("n1",))
    lab.apply(cut=cut, other=other)
    lab.send("n0", 10, "n1")
    lab.send("n2", 10, "n1")
    ways = {"cut": ("n0", "n1"), "other": ("n2", "n1")}
    lab.wait_until(lambda: all(lab.bites(one).get(ways[one], 0) for one in ways), "both bite")
    lab.apply(other=other)
    kept = lab.bites("other")["n2", "n1"]
    lab.backend.forget(())
    assert lab.bites("cut") == {}
    assert lab.bites("other")["n2", "n1"] >= kept
    lab.wait_for(10, "n0", "n1")
    # It comes again, and counts from nothing.
    lab.apply(cut=cut)
    lab.send("n0", 10, "n1")
    lab.wait_until(lambda: lab.bites("cut").get(ways["cut"], 0) > 0, "the cut bites again")
    lab.backend.clear()
    lab.backend.forget(())
    assert {fault: counts for fault, counts in lab.backend.bites().items() if counts} == {}
    lab.wait_for(20, "n0", "n1")
    lab.wait_for(10, "n2", "n1")


def test_members_and_agents_are_weighed(lab: Lab) -> None:
    lab.open_and_start("unicast-only")
    if not isinstance(lab.backend, Weighs):
        pytest.skip("this backend has no processes")
    # An agent may begin with the first fault.
    lab.apply(cut=Cut(sources=("n0",), dests=("n1",)))
    found = lab.backend.weights()
    agents = {name for name in found if name.startswith(AGENT)}
    members = found.keys() - agents
    assert {name.partition(":")[0] for name in members} == set(lab.names)
    assert len(members) == len(lab.names)
    assert agents
    figures = {"memory", "descriptors", "threads", "cpu"}
    assert all(set(found[name]) == figures for name in agents)
    assert all(set(found[name]) == figures | {"journal"} for name in members)
    assert all(found[name]["memory"] > 1 << 20 for name in found)
    lab.backend.clear()


def test_what_a_rule_holds_goes_on_when_it_is_released_and_the_rule_stays(lab: Lab) -> None:
    lab.need("rule")
    lab.open_and_start("unicast-only")
    lab.apply(jam=Rule(does="hold", match=DATA_TO_N1))
    lab.send("n0", 5, "n1")
    lab.wait(1.0)
    assert lab.received("n1", "n0") == 0
    lab.backend.release("jam")
    lab.wait_for(5, "n0", "n1")
    lab.send("n0", 5, "n1")
    lab.wait(1.0)
    assert lab.received("n1", "n0") == 5
    lab.backend.release(None)
    lab.wait_for(10, "n0", "n1")


def test_what_a_rule_holds_goes_on_when_the_rule_is_over(lab: Lab) -> None:
    lab.need("rule")
    lab.open_and_start("unicast-only")
    lab.apply(jam=Rule(does="hold", match=DATA_TO_N1))
    lab.send("n0", 5, "n1")
    lab.wait(1.0)
    assert lab.received("n1", "n0") == 0
    lab.apply()
    lab.wait_for(5, "n0", "n1")
    assert sum(lab.bites("jam").values()) > 0


def test_a_rule_drops_what_it_names_and_nothing_else(lab: Lab) -> None:
    """The first transmission of the first message, which is repeated in time."""
    lab.need("rule-drop")
    lab.open_and_start("unicast-only")
    match = Match(
        kinds=("DATA",), sources=("n0",), dests=("n1",), seqno=(1, 1), transmission=(0, 0)
    )
    lab.apply(first=Rule(match=match))
    lab.send("n0", 5, "n1")
    lab.send("n0", 5, "n2")
    lab.wait_for(5, "n0", "n1", "n2")
    assert lab.bites("first") == {("n0", "n1"): 1}


def test_a_rule_that_is_applied_again_counts_on(lab: Lab) -> None:
    """The second frame that it meets, once, and not the second after each state."""
    lab.need("rule")
    lab.open_and_start("unicast-only")
    match = Match(kinds=("DATA",), sources=("n0",), dests=("n1",), occurrence=(2, 2))
    rule = Rule(match=match)
    lab.apply(second=rule)
    for total in (5, 10):
        lab.send("n0", 5, "n1")
        lab.wait_for(total, "n0", "n1")
    assert lab.bites("second") == {("n0", "n1"): 1}
    lab.apply(second=rule, other=Cut(sources=("n2",), dests=("n1",)))
    for total in (15, 20):
        lab.send("n0", 5, "n1")
        lab.wait_for(total, "n0", "n1")
    assert lab.bites("second") == {("n0", "n1"): 1}


LINKS = {"sources": NAMES, "dests": NAMES}
KINDS_OF_FAULT: dict[str, NetworkFault] = {
    "loss": Loss(rate=0.2, **LINKS),
    "loss-model": faults.NthLoss(nth=5, **LINKS),
    "delay": faults.Delay(delay=0.02, jitter=0.02, **LINKS),
    "netem": faults.Delay(delay=0.03, **LINKS),
    "duplicate": faults.Duplicate(rate=0.3, **LINKS),
    "reorder": faults.Reorder(rate=0.3, by=0.03, **LINKS),
    "corrupt": faults.Corrupt(rate=0.2, **LINKS),
    "bandwidth": faults.Bandwidth(rate=10_000.0, **LINKS),
    "rule-drop": Rule(match=Match(kinds=("DATA",), transmission=(0, 0), seqno=(3, 4))),
    "rule": Rule(does="duplicate", copies=2, match=Match(kinds=("DATA",))),
}


@pytest.mark.parametrize("feature", KINDS_OF_FAULT)
def test_every_kind_of_fault_bites_and_is_survived(lab: Lab, feature: str) -> None:
    """Whatever happens to frames, messages arrive: once, in order and as they were sent."""
    lab.need(feature)
    lab.open_and_start()
    lab.apply(f1=KINDS_OF_FAULT[feature])
    for name in NAMES:
        lab.send(name, 100)
    for name in NAMES:
        lab.wait_for(100, name, *NAMES)
    bitten = {pair: count for pair, count in lab.bites("f1").items() if count}
    assert bitten
    assert all(source != dest and {source, dest} < set(NAMES) for source, dest in bitten)
    lab.backend.clear()
    for name in NAMES:
        assert [lab.received(name, source) for source in NAMES] == [100] * 3
        assert lab.ask(name, "GET", "/workload")["mismatches"] == 0


# -- The end -------------------------------------------------------------------------------------


def test_nobody_sees_another_one_go_when_all_are_frozen(lab: Lab) -> None:
    lab.open_and_start()
    lab.wait(1.0)
    frozen = lab.backend.now()
    lab.backend.freeze()
    for name in NAMES:
        with pytest.raises(MemberError):
            lab.ask(name, "GET", "/state")
    lab.wait(1.0)
    for name in NAMES:
        (events,) = lab.lives(name)
        assert trace.STOP not in [event.kind for event in events]
        assert trace.SUSPECT not in [event.kind for event in events]
        assert events[-1].time <= frozen + 0.5


def test_what_is_collected_is_evidence_that_the_oracles_judge(lab: Lab) -> None:
    lab.open_and_start()
    for name in NAMES:
        lab.send(name, 50)
    for name in NAMES:
        lab.wait_for(50, name, *NAMES)
    lab.wait(1.0)
    evidence = lab.finish()
    assert evidence.defects == []
    assert {member.name for member in evidence.members.values()} == set(NAMES)
    judged = judge(evidence, ("G1", "G2", "G3", "G4", "G7", "A1", "V1", "V2", "V3", "V4"))
    assert judged.verdict is Verdict.HOLDS, judged.findings
    assert evidence.messages_sent == 150


def test_events_are_dated_by_the_backends_clock(lab: Lab) -> None:
    lab.open()
    before = lab.backend.now()
    lab.backend.start("n0")
    lab.wait_until(lambda: lab.is_ready("n0"), "n0 is ready")
    after = lab.backend.now()
    (life,) = lab.lives("n0")
    assert before <= life[0].time <= after
