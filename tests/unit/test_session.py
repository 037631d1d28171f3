"""A session over a backend: what is done when, what is refused, and how a run ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.chaos.backends.base import BackendError, ClusterPlan, MemberError, Unsupported
from stormcast.chaos.backends.kubernetes.release_access import NO_POD_HAS
from stormcast.chaos.backends.sim.backend import SimBackend
from stormcast.chaos.backends.sim.traces import WALL_NS
from stormcast.chaos.faults import Cut, Leave
from stormcast.chaos.language.features import FEATURES, ONLY_SIMULATED
from stormcast.chaos.language.network_state import NetworkState
from stormcast.chaos.language.scenario import Scenario, parse_scenario
from stormcast.chaos.language.schedule import TimedStep
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.verdict import Verdict, judge
from stormcast.chaos.records.directory import TakenError
from stormcast.chaos.records.rig_trace import UNCONFIRMED
from stormcast.chaos.session.judging import judge_run
from stormcast.chaos.session.plans import as_test_protocol, cluster_plan
from stormcast.chaos.session.record import RunRecord
from stormcast.chaos.session.runner import run_on
from stormcast.chaos.session.session import Session, play
from stormcast.chaos.session.simulation import simulate
from stormcast.node.trace import (
    DROPPED,
    FAULT,
    OUTBOX_BYTES,
    PHASE,
    RECEIVE_MESSAGES,
    read_blocks_untrusted,
)
from tests.oracles.story import Story

PAIR = """
name: pair
guarantees: [G1, G2, G3, G4, L1]
cluster: {members: 2, timing: fast}
workload:
  - {do: unicast, from: all, to: others, count: 100, rate: 50/s, size: 16B}
timeline:
  - {at: 500ms, do: cut, from: n0, to: n1, for: 300ms}
limits: {run: 20s, settle: 2s}
"""


def scenario_of(text: str, **replaced: str) -> Scenario:
    for key, value in replaced.items():
        lines = [f"{key}: {value}" if line.startswith(key) else line for line in text.splitlines()]
        text = "\n".join(lines)
    return parse_scenario(text)


NO_FRAMES = {"frames-of-streams": "a kernel does not let go of them"}


class Noting(SimBackend):
    """The simulator, which keeps what it was told and when."""

    def __init__(self, lacks: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.states: list[tuple[float, NetworkState]] = []
        self.asked: list[tuple[str, str, Any]] = []
        self.opened: list[ClusterPlan] = []
        self.is_closed = False
        self._lacks = dict(lacks or {})

    def features(self) -> Mapping[str, str | None]:
        return {**dict.fromkeys(FEATURES), **self._lacks}

    def open(self, plan: ClusterPlan) -> None:
        self.opened.append(plan)
        super().open(plan)

    def close(self) -> None:
        self.is_closed = True
        super().close()

    def apply(self, state: NetworkState) -> None:
        self.states.append((self.now(), state))
        super().apply(state)

    def ask(self, name: str, method: str, target: str, body: object = None) -> Any:
        if method == "POST":
            self.asked.append((name, target, body))
        return super().ask(name, method, target, body)


def play_it(scenario: Scenario, folder: Path, backend: SimBackend | None = None) -> RunRecord:
    return play(scenario, 1, backend or SimBackend(), folder)


def rig_events(run: RunRecord) -> list[tuple[int, float, str]]:
    return [
        (event.kind, event.time, block.text(event))
        for block in read_blocks_untrusted(run.traces["rig"], xxh3_64_intdigest)
        for event in block.events
    ]


# -- A run ---------------------------------------------------------------------------------------


def test_a_run_over_the_verbs_comes_to_what_the_simulator_itself_comes_to(tmp_path: Path) -> None:
    scenario = scenario_of(PAIR)

    run = play_it(scenario, tmp_path)

    same = simulate(scenario, 1)
    assert (run.sent, run.delivered, run.complete) == (same.sent, same.delivered, True)
    assert run.sent_by_pair == same.sent_by_pair
    assert run.kinds == {"f1": "cut"}
    assert judge_run(scenario, run).verdict is Verdict.HOLDS


def test_faults_begin_and_end_when_the_scenario_says(tmp_path: Path) -> None:
    """Before that the network was made plain, so that the first fault need not wait for it."""
    backend = Noting()

    run = play_it(scenario_of(PAIR), tmp_path, backend)

    ready, on, off = backend.states
    assert not ready[1].faults
    assert on[1].faults == {"f1": Cut(sources=("n0",), dests=("n1",))}
    assert not off[1].faults
    assert off[0] - on[0] == pytest.approx(0.3)
    faults = [(time, json.loads(text)) for kind, time, text in rig_events(run) if kind == FAULT]
    assert [(text["id"], text["phase"]) for _time, text in faults] == [("f1", "on"), ("f1", "off")]
    assert [time for time, _text in faults] == [pytest.approx(on[0]), pytest.approx(off[0])]


def test_what_a_fault_did_is_told_of_each_pair(tmp_path: Path) -> None:
    run = play_it(scenario_of(PAIR), tmp_path)

    assert run.bites["f1"] > 0
    assert dict(run.bites_by_pair["f1"]) == {("n0", "n1"): run.bites["f1"]}


def test_the_time_from_the_heal_to_the_repair_is_measured(tmp_path: Path) -> None:
    run = play_it(scenario_of(PAIR), tmp_path)

    assert run.resync is not None
    assert run.resync.after == pytest.approx(0.8)
    assert run.resync.seconds is not None
    assert 0 < run.resync.seconds < 1.0


def test_a_run_ends_as_soon_as_nothing_more_is_to_come(tmp_path: Path) -> None:
    """Quiet lasts as long as a guarantee needs, not as long as the file allows."""
    patient = scenario_of(PAIR, limits="{run: 20s, settle: 15s}")

    run = play_it(patient, tmp_path)

    quiet = next(time for kind, time, text in rig_events(run) if (kind, text) == (PHASE, "quiet"))
    assert run.seconds < 2.0 + 10.0
    assert run.seconds - quiet > 1.0, "longer than a sender waits before it sends again"


def test_a_member_that_comes_back_sends_the_rest(tmp_path: Path) -> None:
    """What the first incarnation had sent is not sent again, and what it missed is made up for."""
    scenario = scenario_of(
        PAIR.replace("do: cut, from: n0, to: n1, for: 300ms", "do: crash, member: n0, for: 500ms")
    )

    run = play_it(scenario, tmp_path)

    assert run.complete
    assert run.sent_by_pair["n0", "n1"] == pytest.approx(100, abs=2)
    assert [life.name for life in run.lives.values()].count("n0") == 2
    assert run.seconds < 12, "it does not begin again from the first message"


LEFT = """
name: left
guarantees: [G1, G2, G3, G8]
cluster: {members: 3, stack: udp, timing: fast}
workload:
  - {do: unicast, from: n0, to: n2, count: 500, rate: 50/s, size: 16B}
timeline:
  - {at: 1s, do: partition, groups: [[n0, n1], [n2]], for: 8s}
  - {at: 4s, do: restart, member: n0}
  - {at: 8s, do: leave, member: n2}
limits: {run: 90s}
"""


def test_nobody_waits_for_a_load_to_a_member_that_left_for_good(tmp_path: Path) -> None:
    """n0 comes back, and is told to send to n2, which leaves before n0 has it in its view."""
    scenario = scenario_of(LEFT)

    run = play_it(scenario, tmp_path)

    assert run.complete
    assert run.seconds < 30
    assert judge_run(scenario, run).verdict is Verdict.HOLDS


APART = """
name: apart
guarantees: [G1]
cluster:
  members: 3
  stack: udp
  timing: fast
  protocols: {MERGE3: {min_interval: 500s, max_interval: 600s, check_interval: 0s}}
workload:
  - {do: multicast, from: n0, count: 10, rate: 50/s, size: 16B}
  - {do: unicast, from: n0, to: n2, count: 10, rate: 50/s, size: 16B, start: 20s}
timeline:
  - {at: 2s, do: partition, groups: [[n0, n1], [n2]], for: 10s}
limits: {run: 90s}
"""


@pytest.mark.parametrize("player", ["session", "simulator"])
def test_a_load_that_could_not_be_sent_is_no_standstill_of_the_members(
    tmp_path: Path, player: str
) -> None:
    """The two sides never merge, so that n0 is not even asked to take a message for n2."""
    scenario = scenario_of(APART)

    run = play_it(scenario, tmp_path) if player == "session" else simulate(scenario, 1)

    findings = judge_run(scenario, run).findings
    assert not run.complete
    assert [one.detail for one in findings if one.guarantee == "run"] == [
        "the workload did not end within 90s: raise limits.run or lower the load"
    ]
    assert not any("messages wait" in one.detail for one in findings)


def test_a_stalled_application_gets_what_waited(tmp_path: Path) -> None:
    scenario = scenario_of(
        PAIR.replace("do: cut, from: n0, to: n1, for: 300ms", "do: stall, member: n1, for: 1s")
    )
    backend = Noting()

    run = play_it(scenario, tmp_path, backend)

    told = [body for name, target, body in backend.asked if target == "/consume"]
    assert told == [{"consuming": False}, {"consuming": True}]
    assert run.bites == {"f1": 50}
    assert judge_run(scenario, run).verdict is Verdict.HOLDS


def test_members_without_a_group_are_told_of_each_other_and_again_of_who_comes(
    tmp_path: Path,
) -> None:
    scenario = scenario_of(
        PAIR.replace("do: cut, from: n0, to: n1, for: 300ms", "do: restart, member: n1")
    )
    backend = Noting()

    play_it(scenario, tmp_path, backend)

    told = [body["members"] for name, target, body in backend.asked if target == "/peers"]
    identities = {person["identity"] for people in told for person in people}
    assert len(told) == 4, "each of two, twice"
    assert len(identities) == 3


def stepped(*steps: str, **replaced: str) -> Scenario:
    """PAIR with other steps."""
    lines = "\n".join(f"  - {{{step}}}" for step in steps)
    return scenario_of(
        PAIR.replace("  - {at: 500ms, do: cut, from: n0, to: n1, for: 300ms}", lines), **replaced
    )


def test_a_stall_that_ends_while_its_member_is_paused_is_over_when_that_goes_on(
    tmp_path: Path,
) -> None:
    scenario = stepped(
        "at: 500ms, do: stall, member: n1, for: 1s", "at: 1s, do: pause, member: n1, for: 2s"
    )

    run = play_it(scenario, tmp_path)

    assert run.complete
    assert run.delivered == run.sent == 200
    assert judge_run(scenario, run).verdict is Verdict.HOLDS


def test_a_paused_member_is_told_all_that_was_meant_for_it_in_order_when_it_goes_on(
    tmp_path: Path,
) -> None:
    scenario = stepped(
        "at: 1s, do: pause, member: n1, for: 1s",
        "at: 1100ms, do: stall, member: n1, for: 1500ms",
        "at: 1200ms, do: set-attribute, member: n1, attribute: conn_expiry_timeout, value: 1500ms",
        "at: 1300ms, do: forget, member: n1, peer: n0, half: receiver",
        "at: 1400ms, do: install-view, member: n1, members: [n0, n1]",
        workload="\n  - {do: unicast, from: all, to: others, count: 200, rate: 50/s, size: 16B}",
    )
    backend = Noting()

    run = play_it(scenario, tmp_path, backend)

    told = [
        target
        for name, target, _body in backend.asked
        if name == "n1" and target in {"/consume", "/attributes", "/forget", "/view"}
    ]
    assert told == ["/consume", "/attributes", "/forget", "/view", "/consume"]
    assert all(run.bites[fault] for fault in ("f1", "f2", "f3", "f4", "f5"))
    assert judge_run(scenario, run).verdict is Verdict.HOLDS


GROUP_OF_MULTICASTS = """
name: a-view-of-one
guarantees: [G1]
cluster: {members: 3, stack: udp, timing: fast}
workload:
  - {do: multicast, from: all, count: 100, rate: 50/s}
timeline:
  - {at: 1s, do: install-view, member: n1, members: [n1]}
"""


def test_a_view_that_a_member_of_a_group_takes_has_bitten(tmp_path: Path) -> None:
    """With multicasts alone there are no connections that the view could matter to."""
    text = GROUP_OF_MULTICASTS
    run = play(parse_scenario(text), 1, SimBackend(), tmp_path)

    assert [view.members for view in run.views["n1-1"]].count(("n1-1",)) == 1
    assert run.bites["f1"] == 1


def test_a_member_that_is_killed_while_it_is_paused_is_told_nothing_more(tmp_path: Path) -> None:
    backend = Noting()

    run = play_it(
        stepped(
            "at: 500ms, do: pause, member: n1, for: 2s",
            "at: 600ms, do: stall, member: n1, for: 4s",
            "at: 1s, do: restart, member: n1",
            "at: 2s, do: pause, member: n1, for: 100ms",
        ),
        tmp_path,
        backend,
    )

    assert run.complete
    assert not any(target == "/consume" for _name, target, _body in backend.asked)


def test_who_comes_while_a_member_is_paused_learns_of_it_and_it_of_them(tmp_path: Path) -> None:
    scenario = stepped(
        "at: 500ms, do: pause, member: n1, for: 3s", "at: 700ms, do: restart, member: n0"
    )

    run = play_it(scenario, tmp_path)

    assert run.complete
    # What was under way to n1 when its sender ended is owed no more.
    assert run.sent_by_pair["n0", "n1"] == pytest.approx(90, abs=5)
    assert run.sent_by_pair["n1", "n0"] == pytest.approx(100, abs=5)


def test_what_waits_for_a_process_that_is_gone_is_not_the_runs_business(tmp_path: Path) -> None:
    """A window of two messages: the rest waits at n0 for an n1 that will not come back."""
    scenario = stepped(
        "at: 500ms, do: cut, from: n0, to: n1, for: 1s",
        "at: 1s, do: restart, member: n1",
        cluster="{members: 2, timing: fast, settings: {window_messages: 2}}",
    )

    run = play_it(scenario, tmp_path)

    assert run.complete
    assert judge_run(scenario, run).verdict is Verdict.HOLDS


def test_a_run_is_not_quiet_while_messages_still_arrive(tmp_path: Path) -> None:
    """All are accepted long before windows of two messages have let them pass."""
    scenario = scenario_of(
        f"{PAIR}network: {{delay: 50ms}}\n",
        cluster="{members: 2, timing: fast, settings: {window_messages: 2}}",
        limits="{run: 100s, settle: 1s}",
    )

    run = play_it(scenario, tmp_path)

    quiet = next(time for kind, time, text in rig_events(run) if (kind, text) == (PHASE, "quiet"))
    assert max(times[-1][0] for times in run.reached.values()) < quiet
    assert run.delivered == 200


def test_a_run_is_not_over_while_messages_wait_in_outboxes(tmp_path: Path) -> None:
    """Credits let each message pass in many pieces: for seconds no application is given another."""
    scenario = parse_scenario("""
name: large-messages-by-small-credits
guarantees: [G1, L1]
cluster:
  members: 2
  stack: udp
  protocols: {MFC: {max_credits: 8000}, FRAG: {frag_size: 400}}
network: {delay: 100ms}
workload: [{do: multicast, from: n0, count: 6, rate: 10/s, size: 100KB}]
limits: {run: 100s, settle: 1s}
""")

    run = play_it(scenario, tmp_path)

    assert run.complete
    assert judge_run(scenario, run).verdict is Verdict.HOLDS


def test_both_clocks_are_read_at_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the end of a run takes: the members' clocks are the rig's, and stay so."""

    class Real(Noting):
        wall_ns = None  # type: ignore[assignment]  # As where clocks are real.

        def freeze(self) -> None:
            self.wait(5.0)
            super().freeze()

    backend = Real()
    read: list[float] = []

    def wall_at_zero(now: float) -> int:
        assert now == backend.now(), "time has passed since the other clock was read"
        read.append(now)
        return WALL_NS

    monkeypatch.setattr("stormcast.chaos.session.session.wall_at_zero", wall_at_zero)
    run = play_it(scenario_of(PAIR), tmp_path, backend)

    assert len(read) == 1
    assert judge_run(scenario_of(PAIR), run).verdict is Verdict.HOLDS


# -- What is refused -----------------------------------------------------------------------------


def test_what_a_backend_has_not_is_refused_before_anything_starts(tmp_path: Path) -> None:
    backend = Noting(lacks={"partition": "no nft; apt-get install nftables"})

    with pytest.raises(Unsupported, match=r"needs partition.*apt-get install nftables"):
        play_it(scenario_of(PAIR), tmp_path, backend)

    assert not backend.opened
    assert backend.is_closed


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ("do: rule, does: hold", "hold frames"),
        ("do: rule, does: drop, match: {connection: 2}", "choose frames by connection"),
        ("do: rule, does: drop, times: 3", "of several members together"),
        ("do: rule, does: drop}\n  - {at: 1s, do: rule, does: drop", "has 2 rules"),
    ],
)
def test_what_no_member_can_do_to_its_own_stream_is_refused(
    step: str, why: str, tmp_path: Path
) -> None:
    scenario = scenario_of(
        PAIR.replace("do: cut, from: n0, to: n1, for: 300ms", step),
        cluster="{members: 2, stack: tcp, timing: fast}",
    )

    with pytest.raises(Unsupported, match=why):
        cluster_plan(scenario, 1, "run", tmp_path, Noting(lacks=NO_FRAMES).features())


@pytest.mark.parametrize(
    ("rule", "is_refused"),
    [
        ("times: 3", True),
        ("times: 3, match: {to: [n0, n1]}", True),
        ("times: 3, match: {to: n1}", False),
        ("match: {kind: DATA, occurrence: 1}", True),
        ("match: {kind: DATA, occurrence: 1, to: n1}", False),
        ("match: {connection: 1, to: n1}", True),
        ("match: {connection: 1, kind: [DATA, ACK], to: n1}", True),
        ("match: {connection: 1, kind: DATA}", False),
        ("match: {kind: DATA, seqno: 1}", False),
    ],
)
def test_rules_that_no_agent_can_do_by_the_frames_to_its_own_member_are_refused_in_pods(
    rule: str, is_refused: bool, tmp_path: Path
) -> None:
    step = f"do: rule, does: drop, {rule}, for: 1s"
    scenario = scenario_of(PAIR.replace("do: cut, from: n0, to: n1, for: 300ms", step))

    in_pods = Noting(lacks=NO_POD_HAS).features()
    with pytest.raises(Unsupported, match="one member in `to`") if is_refused else nullcontext():
        cluster_plan(scenario, 1, "run", tmp_path, in_pods)
    cluster_plan(scenario, 1, "run", tmp_path, Noting().features())


NARROW = """
name: narrow
guarantees: G1
cluster: {{members: 2, stack: {stack}}}
network: {{bandwidth: {bandwidth}}}
workload:
  - {{do: unicast, from: n0, to: n1, count: 1, rate: 1/s, size: {size}}}
"""


@pytest.mark.parametrize(
    ("stack", "bandwidth", "size", "passes"),
    [
        ("unicast-only", "100000B/s", "26KB", False),
        ("unicast-only", "100000B/s", "24KB", True),
        ("unicast-only", "2000B/s", "1KB", True),
        ("udp, protocols: {FRAG: {frag_size: 60KB}}", "100000B/s", "50KB", False),
        ("tcp", "100000B/s", "50KB", True),
        ("udp, protocols: {FRAG: {frag_size: 8KB}}", "100000B/s", "50KB", True),
    ],
)
def test_datagrams_that_never_find_room_are_refused_on_real_packets(
    stack: str,
    bandwidth: str,
    size: str,
    passes: bool,
    tmp_path: Path,
) -> None:
    scenario = parse_scenario(NARROW.format(stack=stack, bandwidth=bandwidth, size=size))
    there = {**dict.fromkeys(FEATURES), **ONLY_SIMULATED}
    if passes:
        cluster_plan(scenario, 1, "run", tmp_path, there)
    else:
        with pytest.raises(
            Unsupported, match=r"has no room for all of them.*use a stack with FRAG"
        ):
            cluster_plan(scenario, 1, "run", tmp_path, there)
    cluster_plan(scenario, 1, "run", tmp_path, dict.fromkeys(FEATURES))


def test_a_rule_on_a_stream_is_done_inside_the_member_and_said_to_be(tmp_path: Path) -> None:
    scenario = scenario_of(
        PAIR.replace(
            "do: cut, from: n0, to: n1, for: 300ms",
            "do: rule, does: drop, match: {kind: HEARTBEAT, to: n1, from: n0}, for: 1s",
        ),
        cluster="{members: 2, stack: tcp, timing: fast}",
    )
    backend = Noting(lacks=NO_FRAMES)

    run = play_it(scenario, tmp_path, backend)

    rule = scenario.timeline[0].action
    told = [(name, body) for name, target, body in backend.asked if target == "/probes"]
    assert told == [("n1", as_test_protocol(rule)), ("n1", {"DROP": None})]  # type: ignore[arg-type]
    assert run.bites["f1"] > 0
    assert run.notes == ("done inside the members: f1",)


def test_a_rule_inside_members_follows_them_through_pauses_and_restarts(tmp_path: Path) -> None:
    rule = "do: rule, does: drop, match: {kind: HEARTBEAT, to: [n1, n2]}"
    scenario = scenario_of(
        PAIR.replace(
            "  - {at: 500ms, do: cut, from: n0, to: n1, for: 300ms}",
            "  - {at: 100ms, do: pause, member: n1, for: 500ms}\n"
            f"  - {{at: 200ms, {rule}, for: 1s}}\n"
            "  - {at: 1190ms, do: restart, member: n2}",
        ),
        cluster="{members: 3, stack: tcp, timing: fast}",
    )
    backend = Noting(lacks=NO_FRAMES)

    run = play_it(scenario, tmp_path, backend)

    put = as_test_protocol(scenario.timeline[1].action)  # type: ignore[arg-type]
    told = [(name, body) for name, target, body in backend.asked if target == "/probes"]
    assert told == [
        ("n2", put),
        ("n1", put),
        ("n1", {"DROP": None}),
        # It was started anew with the rule.
        ("n2", {"DROP": None}),
    ]
    assert run.complete


TO_A_JOINER = """
  - {at: 100ms, do: rule, does: drop, match: {kind: GET_MBRS_RSP, to: n2}, for: 1500ms, name: mute}
  - {at: 200ms, do: join, member: n2}
"""


def test_a_rule_inside_members_acts_on_the_first_frame_of_one_that_joins(tmp_path: Path) -> None:
    """Not only when it is ready: here that would be too late. When the rule ends, it joins."""
    scenario = scenario_of(
        PAIR.replace("  - {at: 500ms, do: cut, from: n0, to: n1, for: 300ms}", TO_A_JOINER),
        cluster="{members: 3, stack: tcp, timing: fast, late: [n2]}",
    )
    backend = Noting(lacks=NO_FRAMES)

    run = play_it(scenario, tmp_path, backend)

    told = [(name, body) for name, target, body in backend.asked if target == "/probes"]
    assert told == [("n2", {"DROP": None})]
    assert run.bites["mute"] > 0
    assert run.complete


class Slow(Noting):
    """A process takes half a second until it answers."""

    def start(self, name: str) -> None:
        super().start(name)
        self.answers_at = self.now() + 0.5

    def ask(self, name: str, method: str, target: str, body: object = None) -> Any:
        if name == "n2" and self.now() < self.answers_at:
            raise MemberError("n2 does not answer yet")
        return super().ask(name, method, target, body)


@pytest.mark.parametrize(
    ("step", "is_setting"),
    [
        ("stall, member: n2, for: 2s", False),
        ("set-attribute, member: n2, attribute: xmit_interval, value: 1s", True),
    ],
)
def test_what_one_that_starts_is_told_later_is_recorded_once(
    step: str, *, is_setting: bool, tmp_path: Path
) -> None:
    """A setting from the first request on, which the member may have read late."""
    steps = f"""
  - {{at: 200ms, do: join, member: n2}}
  - {{at: 300ms, name: told, do: {step}}}"""
    scenario = scenario_of(
        PAIR.replace("\n  - {at: 500ms, do: cut, from: n0, to: n1, for: 300ms}", steps),
        cluster="{members: 3, timing: fast, late: [n2]}",
    )

    run = play_it(scenario, tmp_path, Slow())

    events = [(at, json.loads(text)) for kind, at, text in rig_events(run) if kind == FAULT]
    (begun,) = [
        (at - run.evidence.begin, told)
        for at, told in events
        if (told["id"], told["phase"]) == ("told", "on")
    ]
    if is_setting:
        assert begun[0] == pytest.approx(0.3, abs=0.05)
    assert begun[0] + begun[1].get("within", 0.0) >= 0.7
    assert begun[1]["member"] != 0


@pytest.mark.parametrize(
    ("answers", "within"), [("at once", None), ("late", 0.02), ("never", UNCONFIRMED)]
)
def test_of_a_change_of_settings_it_is_recorded_within_which_time_it_was_made(
    answers: str, within: float | None, tmp_path: Path
) -> None:
    """A member is asked, and changes its setting before it answers: nobody knows when."""

    class Slowly(Noting):
        ahead = 0.0

        def now(self) -> float:
            return super().now() + self.ahead

        def ask(self, name: str, method: str, target: str, body: object = None) -> Any:
            if target == "/attributes" and answers == "never":
                raise MemberError("n1 does not answer")
            if target == "/attributes" and answers == "late":
                self.ahead = 0.02
            return super().ask(name, method, target, body)

    step = "set-attribute, member: n1, attribute: xmit_interval, value: 1s"
    scenario = scenario_of(PAIR.replace("cut, from: n0, to: n1, for: 300ms", step))

    run = play_it(scenario, tmp_path, Slowly())

    told = [(at, json.loads(text)) for kind, at, text in rig_events(run) if kind == FAULT]
    ((at, change),) = ((at, text) for at, text in told if text["do"] == "set-attribute")
    assert at - run.evidence.begin == pytest.approx(0.5)
    assert change.get("within") == (within and pytest.approx(within))


@pytest.mark.parametrize("last", ["leave", "crash"])
def test_who_has_just_ended_need_not_be_told_to_stop(last: str, tmp_path: Path) -> None:
    class Ending(Noting):
        """One that leaves answers no more, or ends between a look at it and a request."""

        def ask(self, name: str, method: str, target: str, body: object = None) -> Any:
            if name == "n1" and target == "/workload/stop":
                if last == "crash":
                    self.kill(name)
                raise MemberError("n1 does not answer")
            return super().ask(name, method, target, body)

    scenario = scenario_of(PAIR)
    session = Session(scenario, 1, Ending(), tmp_path)
    session.open()
    session.gather()
    session.traffic.begin(scenario.workload[0])
    session.wait_until(0.5)
    if last == "leave":
        # What it has sent is not acked: so it does not end at once.
        cut = Cut(sources=("n1",), dests=("n0",))
        session.nemesis.do(TimedStep(at=0.5, fault="f8", do="cut", action=cut))
        session.wait_until(1.0)
        session.nemesis.do(TimedStep(at=1.0, fault="f9", do="leave", action=Leave(member="n1")))

    session.traffic.stop()

    assert {load.count for load in session.traffic.played()} < set(range(1, 100))


def test_a_rule_that_ends_before_a_member_can_be_asked_is_taken_out_as_soon_as_it_can(
    tmp_path: Path,
) -> None:
    scenario = scenario_of(
        PAIR.replace(
            "  - {at: 500ms, do: cut, from: n0, to: n1, for: 300ms}",
            TO_A_JOINER.replace("1500ms", "300ms"),
        ),
        cluster="{members: 3, stack: tcp, timing: fast, late: [n2]}",
    )
    backend = Slow(lacks=NO_FRAMES)

    run = play_it(scenario, tmp_path, backend)

    told = [(name, body) for name, target, body in backend.asked if target == "/probes"]
    assert told == [("n2", {"DROP": None})]
    assert run.complete


@pytest.mark.parametrize("again", ["restart, member: n1", "crash, member: n1, for: 100ms"])
@pytest.mark.parametrize(
    ("which", "times", "bites"),
    [
        ("occurrence: 1", "", 1),
        ("occurrence: 2..4", "", 3),
        ("from: n0", "times: 2, ", 2),
        ("occurrence: 1..80", "times: 40, ", 40),
    ],
)
def test_a_rule_inside_a_member_goes_on_in_its_next_process(
    tmp_path: Path, again: str, which: str, times: str, bites: int
) -> None:
    """What it struck in the first is counted, and the second begins with what is left of it."""
    rule = f"do: rule, does: drop, {times}match: {{kind: DATA, to: n1, {which}}}"
    scenario = scenario_of(
        PAIR.replace(
            "  - {at: 500ms, do: cut, from: n0, to: n1, for: 300ms}",
            f"  - {{at: 1ms, {rule}, for: 5s}}\n  - {{at: 500ms, do: {again}}}",
        ),
        cluster="{members: 2, stack: tcp, timing: fast}",
    )

    run = play_it(scenario, tmp_path, Noting(lacks=NO_FRAMES))

    dropped = [
        event.count
        for member in run.evidence.members.values()
        for number, event in enumerate(member.events)
        if event.kind == DROPPED and member.texts.get(number) == "probe-drop"
    ]
    assert (run.bites["f1"], sum(dropped)) == (bites, bites)


# -- Doubts --------------------------------------------------------------------------------------


def test_a_fault_that_does_not_bite_leaves_the_run_unknown(tmp_path: Path) -> None:
    silent = scenario_of(
        PAIR.replace("from: n0, to: n1, for: 300ms", "from: n1, to: n0, for: 300ms").replace(
            "from: all, to: others", "from: n0, to: n1, start: 2s"
        )
    )

    run = play_it(silent, tmp_path)

    assert run.bites == {"f1": 0}
    assert judge_run(silent, run).verdict is Verdict.UNKNOWN


def test_a_pair_that_delivers_nothing_is_traffic_below_the_floor(tmp_path: Path) -> None:
    scenario = scenario_of(PAIR)
    run = play_it(scenario, tmp_path)
    run.backend = "netns"
    assert judge_run(scenario, run).verdict is Verdict.HOLDS

    del run.reached["n1", "n0"]

    finding = judge_run(scenario, run).findings[-1]
    assert (finding.verdict, finding.witness) == (Verdict.UNKNOWN, ("n1 to n0",))


@pytest.mark.parametrize("end", ["crash", "leave", "pause"])
def test_a_load_that_an_error_ended_is_told_whatever_its_member_did_later(
    tmp_path: Path, end: str
) -> None:
    """n1's first load is too large, its second is not, and then n1 is gone."""
    text = f"""
name: too-large
guarantees: [G1]
cluster: {{members: 3, stack: udp, timing: fast, protocols: {{FRAG: {{max_message_size: 300KB}}}}}}
workload:
  - {{do: multicast, from: n1, count: 10, size: 301KB, rate: 100/s}}
  - {{do: multicast, from: [n0, n1], count: 10, size: 100B, start: 1s}}
timeline:
  - {{at: 3s, do: {end}, member: n1{", for: 1s" if end == "pause" else ""}}}
"""
    scenario = parse_scenario(text)
    judgement = judge_run(scenario, play_it(scenario, tmp_path))
    (found,) = [one for one in judgement.findings if one.detail.startswith("a load ended by")]
    assert found.witness == ("n1: a message of 301000 bytes: the limit is 300000",)
    assert judgement.verdict is Verdict.UNKNOWN


def test_a_step_that_comes_late_leaves_the_run_unknown(tmp_path: Path) -> None:
    """A second is more than what the scenario may have meant."""

    class Slow(Noting):
        def apply(self, state: NetworkState) -> None:
            super().apply(state)
            if state.faults:
                self.wait(1.5)

    scenario = scenario_of(PAIR)
    run = play_it(scenario, tmp_path, Slow())

    assert run.late == pytest.approx(1.2)
    assert judge_run(scenario, run).verdict is Verdict.UNKNOWN


def test_a_fault_that_ends_and_comes_again_in_one_late_look_pauses_all_the_same(
    tmp_path: Path,
) -> None:
    """Each beginning takes so long that the next one is due with its end."""

    class Slow(Noting):
        def apply(self, state: NetworkState) -> None:
            super().apply(state)
            if state.faults:
                self.wait(0.21)

    flapping = scenario_of(PAIR.replace("for: 300ms", "every: 200ms, up: 20ms, for: 700ms"))
    backend = Slow()
    run = play_it(flapping, tmp_path, backend)

    acting = [bool(state.faults) for _at, state in backend.states[1:]]
    assert acting == [True, False] * (len(acting) // 2)
    faults = [json.loads(text)["phase"] for kind, _time, text in rig_events(run) if kind == FAULT]
    assert faults == ["on", "off"] * (len(faults) // 2)
    assert len(faults) == len(acting) > 2


# -- Early ends ----------------------------------------------------------------------------------


class Interrupted(Noting):
    """Somebody presses Ctrl-C while a fault acts, so many seconds after it began."""

    def __init__(self, after: float = 0.0) -> None:
        super().__init__()
        self._after = after

    def wait(self, seconds: float, is_done: Callable[[], bool] | None = None) -> bool:
        if self.states and self.states[-1][1].faults:
            super().wait(self._after)
            raise KeyboardInterrupt
        return super().wait(seconds, is_done)


def test_an_interrupted_run_heals_and_keeps_what_there_is(tmp_path: Path) -> None:
    scenario, backend = scenario_of(PAIR), Interrupted()

    run = play_it(scenario, tmp_path, backend)

    assert not backend.states[-1][1].faults
    assert run.is_cut_short
    assert run.delivered > 0
    judgement = judge_run(scenario, run)
    assert judgement.verdict is Verdict.UNKNOWN
    assert "interrupted" in judgement.findings[-1].detail
    assert backend.is_closed


def test_what_waits_in_an_outbox_at_the_end_is_recorded(tmp_path: Path) -> None:
    """Its sender could not fill a gap with it yet."""
    busy = PAIR.replace("count: 100, rate: 50/s, size: 16B", "count: 400, rate: 200/s, size: 60KB")
    cut_off = scenario_of(busy.replace("for: 300ms", "for: 3s"))

    run = play_it(cut_off, tmp_path, Interrupted(after=2.0))

    assert any(
        gauge.stream == OUTBOX_BYTES and gauge.lo > 0 and gauge.time >= run.evidence.rig.end
        for _member, gauge in run.evidence.gauges
    )


@pytest.mark.parametrize(("bound", "least", "most"), [("", 6_000, 30_000), ("1KiB", 1, 1024)])
def test_an_outbox_takes_what_the_scenario_says(bound: str, least: int, most: int) -> None:
    """While a link is cut nothing more is sent than the window holds; the load waits, and all of it
    arrives once the link is whole."""
    text = PAIR.replace("for: 300ms", "for: 2s").replace("count: 100", "count: 200")
    cluster = "{members: 2, timing: fast, settings: {window_messages: 4, ack_threshold: 1}"
    scenario = scenario_of(text, cluster=f"{cluster}{bound and ', outbox_bytes: '}{bound}}}")

    run = simulate(scenario, 1)

    waited = [one.lo for _member, one in run.evidence.gauges if one.stream == OUTBOX_BYTES]
    assert least <= max(waited) <= most
    assert run.delivered == run.sent == 400
    assert judge_run(scenario, run).verdict is Verdict.HOLDS


def interrupted_behind_a_gap(tmp_path: Path) -> tuple[Scenario, RunRecord]:
    """Half of all frames are lost when somebody presses Ctrl-C, and messages wait behind a gap."""

    lossy = PAIR.replace("do: cut, from: n0, to: n1, for: 300ms", "do: loss, rate: 50%, for: 1s")
    scenario = scenario_of(lossy, guarantees="[G1, G2, G3, G4, G5]")
    run = play_it(scenario, tmp_path, Interrupted(after=0.7))
    assert judge(run.evidence, ["G5"]).verdict is Verdict.VIOLATED
    return scenario, run


def test_what_waits_behind_a_gap_at_an_interruption_is_no_violation(tmp_path: Path) -> None:
    """Its repair was under way. The same is so where the load is not over at the end."""
    scenario, run = interrupted_behind_a_gap(tmp_path)

    judgement = judge_run(scenario, run)
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.of("G5").verdict is Verdict.UNKNOWN

    run.is_cut_short = False
    assert not run.complete
    judgement = judge_run(scenario, run)
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.of("G5").verdict is Verdict.UNKNOWN


def test_of_a_run_that_broke_off_nothing_is_said_of_its_end(tmp_path: Path) -> None:
    scenario, run = interrupted_behind_a_gap(tmp_path)
    run.is_cut_short, run.broke_off = False, "the agent is gone"

    (finding,) = judge_run(scenario, run).findings

    assert finding.detail == "it broke off: the agent is gone"


@pytest.mark.parametrize("end", ["cut short", "unfinished", "broken off"])
def test_a_bound_that_was_exceeded_before_an_early_end_is_a_violation(
    tmp_path: Path, end: str
) -> None:
    scenario, run = interrupted_behind_a_gap(tmp_path)
    story = Story().a_clean_exchange().at(2.0).gauges(RECEIVE_MESSAGES, 9, 8, "n1", "n0")
    run.evidence = Evidence.from_blocks(story.quiet(3.0).ends(4.0).told(), xxh3_64_intdigest)
    run.is_cut_short, run.broke_off = end == "cut short", "gone" if end == "broken off" else ""

    assert judge_run(scenario, run).of("G5").verdict is Verdict.VIOLATED


def assert_broken_off(scenario: Scenario, run: RunRecord, why: str) -> None:
    """It proves nothing, says why, and keeps what members wrote until then."""
    judgement = judge_run(scenario, run)
    assert judgement.verdict is Verdict.UNKNOWN
    assert [finding.detail for finding in judgement.findings] == [f"it broke off: {why}"]
    assert {"rig", "n0-1"} <= set(run.traces)
    assert not run.complete


def test_a_member_that_ends_before_it_is_ready_ends_the_run(tmp_path: Path) -> None:
    class Dying(Noting):
        def start(self, name: str) -> None:
            super().start(name)
            if name == "n1":
                self.kill(name)

    backend = Dying()

    scenario = scenario_of(PAIR)

    run = play_it(scenario, tmp_path, backend)

    assert_broken_off(scenario, run, "n1 ended before it was ready; its log says why")
    assert backend.is_closed


def test_a_member_that_does_not_answer_a_command_ends_the_run(tmp_path: Path) -> None:
    class Deaf(Noting):
        def ask(self, name: str, method: str, target: str, body: object = None) -> Any:
            if target == "/forget":
                raise MemberError("n1 does not answer")
            return super().ask(name, method, target, body)

    scenario = scenario_of(
        PAIR.replace("do: cut, from: n0, to: n1, for: 300ms", "do: forget, member: n1, peer: n0")
    )

    assert_broken_off(scenario, play_it(scenario, tmp_path, Deaf()), "n1 does not answer")


def test_a_network_that_is_lost_in_the_middle_leaves_what_was_written(tmp_path: Path) -> None:
    class Gone(Noting):
        """What acts on the network dies, and so do the ways to ask for what there is."""

        def apply(self, state: NetworkState) -> None:
            if state.faults:
                raise BackendError("the agent is gone\nwith its log")
            super().apply(state)

    scenario, out = scenario_of(PAIR), tmp_path / "run"

    outcome = run_on(Gone(), scenario, 1, out=out)

    assert_broken_off(scenario, outcome.run, "the agent is gone with its log")
    assert {path.stem for path in (out / "trace").iterdir()} == {"rig", "n0-1", "n1-1"}
    said = json.loads((out / "verdict.json").read_text())
    assert (said["verdict"], said["complete"]) == ("unknown", False)


def test_a_run_that_breaks_off_before_a_member_stands_lasted_for_no_time(tmp_path: Path) -> None:
    """Real backends count from when the machine was started."""

    class Lapsed(Noting):
        def now(self) -> float:
            return super().now() + 3500.0

        def start(self, name: str) -> None:
            raise BackendError("the lease has lapsed")

    run = play_it(scenario_of(PAIR), tmp_path, Lapsed())

    assert (run.broke_off, run.seconds) == ("the lease has lapsed", 0.0)


def test_members_that_could_not_be_frozen_leave_no_traces_to_judge(tmp_path: Path) -> None:
    """They go on while their journals are fetched, so these end at different times."""

    class Unfrozen(Noting):
        has_collected = False

        def apply(self, state: NetworkState) -> None:
            if state.faults:
                raise BackendError("the API server is gone")
            super().apply(state)

        def freeze(self) -> None:
            raise BackendError("the API server is gone")

        def collect(self) -> Mapping[str, bytes]:
            self.has_collected = True
            return super().collect()

    backend = Unfrozen()
    run = play_it(scenario_of(PAIR), tmp_path, backend)

    assert run.broke_off == "the API server is gone"
    assert set(run.traces) == {"rig"}
    assert backend.has_collected, "to be read, and not judged"


def test_a_backend_that_cannot_be_had_takes_no_directory(tmp_path: Path) -> None:
    """The next try may have it; and an earlier run is refused before anything begins."""

    class Closed(Noting):
        def open(self, plan: ClusterPlan) -> None:
            raise BackendError("no namespaces")

    scenario = scenario_of(PAIR)
    with pytest.raises(BackendError, match="no namespaces"):
        run_on(Closed(), scenario, 1, out=tmp_path)
    run_on(SimBackend(), scenario, 1, out=tmp_path)
    before = (tmp_path / "verdict.json").read_text()

    with pytest.raises(TakenError):
        run_on(Closed(), scenario, 1, out=tmp_path)

    assert (tmp_path / "verdict.json").read_text() == before
