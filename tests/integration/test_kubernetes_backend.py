"""The Kubernetes backend before an API server in memory: real keepers and members on loopback, in
pods that are none. What real pods add is shown in tests/kubernetes."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from stormcast.chaos.backends.base import (
    LEASE_SECONDS,
    BackendError,
    ClusterPlan,
    MemberError,
    MemberPlan,
)
from stormcast.chaos.backends.kubernetes import KubernetesBackend
from stormcast.chaos.backends.netns.process import until
from stormcast.chaos.backends.pods import backend as backend_module
from stormcast.chaos.backends.pods import keeper_client, leases
from stormcast.chaos.backends.pods.keeper_client import KeeperClient
from stormcast.chaos.backends.pods.member_pod import MemberPod
from stormcast.chaos.faults import Partition
from stormcast.chaos.language.network_state import NetworkState, parse_state
from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.records.directory import make_fresh
from stormcast.chaos.session.judging import judge_run
from stormcast.chaos.session.runner import run_on
from stormcast.chaos.session.session import play
from stormcast.node.trace.files import read_traces
from tests.helpers.certificates import Issuer
from tests.helpers.pods import FakeCluster, ShutDoor, address_of

pytestmark = pytest.mark.slow

NAMES = ("n0", "n1", "n2")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    with FakeCluster(tmp_path, 3) as made:
        yield made


def plan(folder: Path, names: tuple[str, ...] = NAMES, **config: Any) -> ClusterPlan:
    told = {"cluster": f"run-{folder.name}", "stack": "udp", "timing": "fast", **config}
    members = tuple(MemberPlan(name=name, config=told) for name in names)
    return ClusterPlan(run=f"run-{folder.name}", members=members, folder=folder / "run")


@pytest.fixture
def backend(cluster: FakeCluster) -> Iterator[KubernetesBackend]:
    made = KubernetesBackend(server=cluster)
    yield made
    made.close()


def wait_for_view(backend: KubernetesBackend, *names: str) -> None:
    def is_one() -> bool:
        for name in names:
            try:
                view = backend.ask(name, "GET", "/state")["view"]
            except MemberError:
                return False
            if view is None or len(view["members"]) != len(names):
                return False
        return True

    assert backend.wait(30.0, is_one), "one view"


def test_members_of_a_run_take_the_place_of_the_pods_own_and_go_again(
    cluster: FakeCluster, backend: KubernetesBackend, tmp_path: Path
) -> None:
    until(lambda: all(cluster.keeper(n)["alive"] for n in range(3)), 10.0, cluster.logs)
    backend.open(plan(tmp_path))
    assert not any(backend.is_alive(name) for name in NAMES)
    for name in NAMES:
        backend.start(name)
    wait_for_view(backend, *NAMES)
    assert backend.ask("n1", "GET", "/state")["where"] == f"{address_of(1)}[7800]"

    backend.kill("n2")
    assert not backend.is_alive("n2")
    with pytest.raises(MemberError, match="no member runs"):
        backend.ask("n2", "GET", "/state")
    backend.start("n2")
    wait_for_view(backend, *NAMES)
    backend.stop("n0")
    backend.wait(10.0, lambda: not backend.is_alive("n0"))
    wait_for_view(backend, "n1", "n2")
    backend.set_test_protocols(
        "n1", {"DROP": {"match": {"kind": "GET_MBRS_RSP", "from": "nobody"}}}
    )
    backend.restart("n1")
    wait_for_view(backend, "n1", "n2")
    assert [one["name"] for one in backend.ask("n1", "GET", "/probes")] == ["DROP"]

    backend.freeze()
    with pytest.raises(MemberError, match="paused"):
        backend.ask("n1", "GET", "/state")
    traces = backend.collect()
    assert sorted(label.rpartition("-")[0] for label in traces) == ["n0", "n1", "n1", "n2", "n2"]
    assert "n0: left" in (tmp_path / "run" / "n0" / "n0-1.log").read_text()
    backend.close()
    for number in range(3):
        until(lambda n=number: cluster.keeper(n)["alive"], 10.0, cluster.logs)  # type: ignore[misc]
        assert cluster.keeper(number)["default"]
        assert cluster.keeper(number)["run"] == ""


@pytest.mark.parametrize("way", ["direct", "api-server"])
def test_keepers_and_agents_with_tls_are_asked_either_way(way: str, tmp_path: Path) -> None:
    files = Issuer().write(tmp_path / "tls")
    ca_file = str(files.ca) if way == "direct" else ""
    with FakeCluster(tmp_path, 2, files=files) as cluster:
        backend = KubernetesBackend(server=cluster, ca_file=ca_file)
        try:
            names = NAMES[:2]
            if way == "direct":
                # No request may take the other way.
                cluster.refused = {"proxy": "nobody"}
            assert backend.features()["partition"] is None
            backend.open(plan(tmp_path, names))
            for name in names:
                backend.start(name)
            wait_for_view(backend, *names)
            backend.apply(NetworkState(members=names, faults={}))
            assert all(agent.states for agent in cluster.agents)
            backend.freeze()
            assert {label[:2] for label in backend.collect()} == set(names)
        finally:
            backend.close()


def test_a_pause_is_renewed_by_itself_and_ends_when_nobody_does(
    cluster: FakeCluster, backend: KubernetesBackend, tmp_path: Path
) -> None:
    backend.open(plan(tmp_path))
    backend.start("n0")
    wait_for_view(backend, "n0")
    backend.pause("n0")
    backend.wait(5.0)
    assert cluster.keeper(0)["paused"], "longer than a lease"
    backend.resume("n0")
    wait_for_view(backend, "n0")
    backend.pause("n0")
    # As if whoever pauses it were gone.
    cluster.refused = {"proxy": "nobody"}
    until(lambda: not cluster.keeper(0)["paused"], 6.0, cluster.logs)
    with pytest.raises(BackendError, match="you may not"):
        backend.wait(10.0)


@pytest.mark.parametrize("notices", ["renewal", "resume", "kill"])
def test_a_pause_that_ended_by_itself_ends_the_run(
    notices: str, cluster: FakeCluster, backend: KubernetesBackend, tmp_path: Path
) -> None:
    """No lease is renewed while an agent takes long to apply a state. The member went on, and who
    judges would believe that it did not."""
    backend.open(plan(tmp_path))
    backend.start("n0")
    backend.pause("n0")
    agent = cluster.agents[1]
    answer = agent.answer

    def slow(target: str, asked: Mapping[str, Any]) -> tuple[int, object]:
        if target == "/apply":
            until(lambda: not cluster.keeper(0)["paused"], 6.0, cluster.logs)
        return answer(target, asked)

    agent.answer = slow  # type: ignore[method-assign]
    backend.apply(NetworkState(members=NAMES))
    with pytest.raises(BackendError, match="n0 was paused, and went on"):
        {
            "renewal": lambda: backend.wait(5.0),
            "resume": lambda: backend.resume("n0"),
            "kill": lambda: backend.kill("n0"),
        }[notices]()


def test_the_network_is_made_in_all_pods_renewed_and_cleared(
    cluster: FakeCluster, backend: KubernetesBackend, tmp_path: Path
) -> None:
    cluster.agents[1].bites = {"f1": {"n0 n1": 100}}  # Of an earlier run.
    names = ("left", "mid", "right")
    backend.open(plan(tmp_path, names))
    fault = Partition(groups=(("left",), ("mid", "right")))
    backend.apply(NetworkState(members=names, faults={"f1": fault}))
    for number, agent in enumerate(cluster.agents):
        state = parse_state(agent.states[-1])
        assert state.members == NAMES, "agents go by the number of their pods"
        assert state.places[f"n{number}"] == (address_of(number),)
        assert state.faults["f1"] == Partition(groups=(("n0",), ("n1", "n2")))
    backend.wait(2.5)
    assert all(agent.renewals >= 2 for agent in cluster.agents)
    cluster.agents[1].bites = {"f1": {"n0 n1": 107}}
    assert backend.bites() == {"f1": {("left", "mid"): 7}}
    backend.clear()
    assert all(agent.until == 0.0 for agent in cluster.agents)


def test_an_agent_that_was_started_anew_ends_the_run(
    cluster: FakeCluster, backend: KubernetesBackend, tmp_path: Path
) -> None:
    """It knows nothing of what acted, and nothing acts any more: such a run proves nothing."""
    backend.open(plan(tmp_path))
    backend.apply(NetworkState(members=NAMES))
    cluster.agents[2].id = "another-agent"
    with pytest.raises(BackendError, match="network of n2 has healed: the agent was started anew"):
        backend.wait(10.0)


def test_an_agent_that_does_not_answer_is_an_error_and_no_missing_feature(
    cluster: FakeCluster, backend: KubernetesBackend
) -> None:
    """`unsupported` would say that the scenario cannot run here; a controller waits, or tells of an
    error."""
    cluster.agents[1].answer = lambda *_asked: (502, "no JSON")  # type: ignore[method-assign]
    with pytest.raises(BackendError, match="the agent of demo-stormcast-1"):
        backend.features()


@pytest.mark.parametrize("then", ["apply", "clear"])
def test_a_lease_that_lapsed_before_the_next_state_came_ends_the_run(
    then: str, cluster: FakeCluster, backend: KubernetesBackend, tmp_path: Path
) -> None:
    """The state after it has a lease of its own, which is renewed as if nothing had been."""
    backend.open(plan(tmp_path))
    fault = Partition(groups=(("n0",), ("n1", "n2")))
    backend.apply(NetworkState(members=NAMES, faults={"f1": fault}))
    cluster.agents[1].lapses += 1
    with pytest.raises(BackendError, match="what acted has ended: nobody renewed it in time"):
        backend.apply(NetworkState(members=NAMES)) if then == "apply" else backend.clear()


def test_faults_that_somebody_else_ended_end_the_run(
    cluster: FakeCluster, backend: KubernetesBackend, tmp_path: Path
) -> None:
    backend.open(plan(tmp_path))
    backend.apply(NetworkState(members=NAMES))
    cluster.agents[1].answer("/clear", {})
    with pytest.raises(BackendError, match="ended by somebody else"):
        backend.wait(10.0)


def test_what_is_cleared_in_the_middle_of_a_renewal_is_no_agent_started_anew(
    cluster: FakeCluster, backend: KubernetesBackend, tmp_path: Path
) -> None:
    """A renewal is two requests to an agent. The network may be cleared between them, and then the
    agent has no lease: the run goes on, and nobody is blamed."""
    backend.open(plan(tmp_path))
    backend.apply(NetworkState(members=NAMES))
    agent = cluster.agents[1]
    in_the_middle, answer = threading.Event(), agent.answer

    def slow(target: str, asked: Mapping[str, Any]) -> tuple[int, object]:
        answered = answer(target, asked)
        if target == "/renew":
            in_the_middle.set()
            time.sleep(0.5)
        return answered

    agent.answer = slow  # type: ignore[method-assign]
    assert in_the_middle.wait(5.0)
    backend.clear()
    assert all(one.until == 0.0 for one in cluster.agents)
    backend.wait(2.0)


def test_members_that_are_frozen_in_the_middle_of_a_renewal_stay_so(
    cluster: FakeCluster,
    backend: KubernetesBackend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are frozen so that what they wrote can be brought here, and that may take longer than
    the lease of a pause."""
    backend.open(plan(tmp_path))
    backend.start("n0")
    backend.pause("n0")
    in_the_middle, ask = threading.Event(), KeeperClient.ask

    def slow(keeper: KeeperClient, method: str, target: str, *rest: Any) -> Any:
        if target == "/renew":
            in_the_middle.set()
            time.sleep(0.5)
        return ask(keeper, method, target, *rest)

    monkeypatch.setattr(KeeperClient, "ask", slow)
    assert in_the_middle.wait(5.0)
    backend.freeze()
    time.sleep(LEASE_SECONDS + 1.0)
    assert cluster.keeper(0)["paused"]


def test_nothing_is_judged_of_a_member_that_went_on_while_journals_were_fetched(
    backend: KubernetesBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that renews has no turn, as when this machine was suspended."""
    monkeypatch.setattr(backend_module, "FREEZE_SECONDS", 0.5)
    monkeypatch.setattr(leases, "EVERY_SECONDS", 600.0)
    collect = MemberPod.collect

    def slow(pod: MemberPod, folder: Path) -> dict[str, bytes]:
        found = collect(pod, folder)
        time.sleep(1.0)
        return found

    monkeypatch.setattr(MemberPod, "collect", slow)
    backend.open(plan(tmp_path))
    backend.start("n0")
    wait_for_view(backend, "n0")
    backend.freeze()
    with pytest.raises(BackendError, match="n0 was paused, and went on"):
        backend.collect()


def test_leases_are_renewed_while_each_thread_of_a_run_fetches_journals(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with as many members as there are threads. That may take longer than a claim lasts."""
    monkeypatch.setattr(backend_module, "MOST_AT_ONCE", len(NAMES))
    fetched = threading.Event()
    monkeypatch.setattr(MemberPod, "collect", lambda *_asked: {} if fetched.wait(30.0) else None)
    backend = KubernetesBackend(server=cluster)
    try:
        backend.open(plan(tmp_path))
        backend.apply(NetworkState(members=NAMES))
        collecting = threading.Thread(target=backend.collect)
        collecting.start()
        before = [agent.renewals for agent in cluster.agents]
        until(
            lambda: all(
                agent.renewals > was + 1 for agent, was in zip(cluster.agents, before, strict=True)
            ),
            15.0,
            cluster.logs,
        )
        fetched.set()
        collecting.join()
    finally:
        fetched.set()
        backend.close()


def test_a_keeper_that_was_started_anew_ends_the_run(
    cluster: FakeCluster, backend: KubernetesBackend, tmp_path: Path
) -> None:
    backend.open(plan(tmp_path))
    backend.start("n0")
    os.kill(cluster.keepers[0].pid, signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(BackendError, match="keeper of n0 does not answer"):
        backend.wait(30.0)
    assert time.monotonic() - began < 15.0


def test_two_runs_at_once_do_not_disturb_each_other(
    cluster: FakeCluster, backend: KubernetesBackend, tmp_path: Path
) -> None:
    backend.open(plan(tmp_path))
    backend.start("n0")
    other = KubernetesBackend(server=cluster)
    with pytest.raises(BackendError, match="has this member; wait for its end"):
        other.open(plan(tmp_path))
    other.close()
    assert backend.is_alive("n0")


def test_a_run_that_is_refused_leaves_the_faults_of_the_other_one_alone(
    cluster: FakeCluster, backend: KubernetesBackend, tmp_path: Path
) -> None:
    """It has nothing to give back. Agents know no runs, and clear for anybody."""
    backend.open(plan(tmp_path))
    backend.apply(NetworkState(members=NAMES))
    other = KubernetesBackend(server=cluster)
    with pytest.raises(BackendError, match="has this member"):
        other.open(plan(tmp_path))
    other.close()
    assert all(agent.until > 0.0 for agent in cluster.agents)
    backend.wait(LEASE_SECONDS / 2)


def test_without_a_group_a_scenario_runs_on_it_and_holds(
    backend: KubernetesBackend, tmp_path: Path
) -> None:
    text = """\
name: in-pods
guarantees: [G1, G2, G3, G4]
cluster: {members: 3}
workload:
  - {do: unicast, count: 100, rate: 100/s}
timeline:
  - {at: 300ms, do: pause, member: n1, for: 500ms}
"""
    scenario = parse_scenario(text)
    record = play(scenario, 1, backend, tmp_path / "run")
    judgement = judge_run(scenario, record)
    assert judgement.verdict is Verdict.HOLDS, judgement.findings
    assert record.delivered == 600


IN_PODS = """\
name: in-pods
guarantees: [G1, G2, G3, G4]
cluster: {members: 3}
workload:
  - {do: unicast, count: 100, rate: 50/s}
"""


WHEN = r"(at [\d.]+ s|as the scenario began, or before,)"
"""It is killed as soon as the scenario begins, and was last seen alive before."""


def test_a_member_that_was_killed_in_its_pod_is_told_with_its_signal(
    cluster: FakeCluster, backend: KubernetesBackend, tmp_path: Path
) -> None:
    def kill(said: str) -> None:
        pids = re.findall(r"incarnation \d+ is pid (\d+)", cluster.keepers[1].tail(1000))
        if "waiting for the workload" in said and not killed:
            killed.append(int(pids[-1]))
            os.kill(killed[0], signal.SIGKILL)

    killed: list[int] = []
    scenario = parse_scenario(IN_PODS)
    record = play(scenario, 1, backend, tmp_path / "run", tell=kill)
    judgement = judge_run(scenario, record)

    assert judgement.verdict is Verdict.UNKNOWN, judgement.findings
    assert re.fullmatch(
        rf"n1 died {WHEN} of signal 9; nothing in the scenario did that",
        judgement.findings[0].detail,
    )
    (death,) = record.evidence.rig.deaths
    assert death.member in record.evidence.members


def test_a_container_that_was_started_again_is_told_with_the_reason_of_the_cluster(
    cluster: FakeCluster,
    backend: KubernetesBackend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The keeper is gone with its member, so the run breaks off; the API server knows why."""
    monkeypatch.setattr(keeper_client, "BACK_SECONDS", 0.0)

    def kill(said: str) -> None:
        if "waiting for the workload" in said and 1 not in cluster.troubles:
            ended = {"exitCode": 137, "reason": "OOMKilled"}
            cluster.troubles[1] = {
                "phase": "Running",
                "podIP": address_of(1),
                "containerStatuses": [
                    {
                        "name": "member",
                        "restartCount": 1,
                        "state": {"running": {}},
                        "lastState": {"terminated": ended},
                    }
                ],
            }
            os.kill(cluster.keepers[1].pid, signal.SIGKILL)

    scenario = parse_scenario(IN_PODS)
    record = play(scenario, 1, backend, tmp_path / "run", tell=kill)
    judgement = judge_run(scenario, record)

    assert judgement.verdict is Verdict.UNKNOWN
    death, broke_off = (one.detail for one in judgement.findings)
    assert re.fullmatch(
        rf"n1 died {WHEN} of signal 9 \(OOMKilled\); nothing in the scenario did that", death
    )
    assert broke_off.startswith("it broke off: ")


def kill_second_keeper(cluster: FakeCluster, killed: threading.Event) -> Callable[[str], None]:
    """Kill it with its member while the scenario runs."""

    def tell(said: str) -> None:
        if "waiting for the workload" in said and not killed.is_set():
            time.sleep(1.0)  # Members have work to do, and write.
            os.kill(cluster.keepers[1].pid, signal.SIGKILL)
            killed.set()

    return tell


def test_what_a_member_wrote_outlives_its_container(
    cluster: FakeCluster, backend: KubernetesBackend, tmp_path: Path
) -> None:
    """The kubelet starts the keeper again, some time after the run has noticed that it is gone."""
    killed = threading.Event()

    def start_again() -> None:
        assert killed.wait(60.0)
        time.sleep(LEASE_SECONDS + 4.0)
        cluster.start_keeper_again(1)

    kubelet = threading.Thread(target=start_again)
    kubelet.start()
    tell = kill_second_keeper(cluster, killed)
    record = play(parse_scenario(IN_PODS), 1, backend, tmp_path / "run", tell=tell)
    kubelet.join()

    assert record.broke_off
    assert {label.partition("-")[0] for label in record.traces} == {"n0", "n1", "n2", "rig"}
    assert (tmp_path / "run" / "n1" / "n1-1.log").exists()


def test_a_pod_that_is_gone_takes_nobody_elses_journals_along(
    cluster: FakeCluster,
    backend: KubernetesBackend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is judged by a part of the traces, but it is there to be read."""
    monkeypatch.setattr(keeper_client, "BACK_SECONDS", 0.0)
    tell = kill_second_keeper(cluster, threading.Event())
    run_on(backend, parse_scenario(IN_PODS), 1, out=make_fresh(tmp_path, "run"), tell=tell)

    left = {
        name: sum(
            len(blocks)
            for journal in tmp_path.glob(f"run/logs/{name}/journal/*/journal")
            for blocks in read_traces(journal).values()
        )
        for name in NAMES
    }
    assert 0 < left["n1"] < min(left["n0"], left["n2"]), "of n1 is what came as the run began"


# -- What cannot work ----------------------------------------------------------------------------


def test_no_cluster_no_release_and_no_right_are_one_line_each(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    def refused(backend: KubernetesBackend, names: tuple[str, ...] = NAMES) -> str:
        with pytest.raises(BackendError) as caught:
            backend.open(plan(tmp_path, names))
        text = str(caught.value)
        assert "\n" not in text
        return text

    assert "KUBECONFIG" in refused(KubernetesBackend(server=ShutDoor()))
    missing = KubernetesBackend(server=cluster, release="prod")
    assert "there is demo" in refused(missing)
    five = ("n0", "n1", "n2", "n3", "n4")
    assert "--set replicas=5" in refused(KubernetesBackend(server=cluster), five)
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    cluster.troubles[1] = {
        "phase": "Pending",
        "containerStatuses": [{"name": "member", "image": "x:1", "state": waiting}],
    }
    text = refused(KubernetesBackend(server=cluster))
    assert "demo-stormcast-1" in text
    assert "ImagePullBackOff, image x:1, no such image" in text
    crashed = {
        "waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"},
    }
    before = {"terminated": {"exitCode": 2, "reason": "Error", "message": "no stack tpc"}}
    cluster.troubles[1]["containerStatuses"][0] |= {"state": crashed, "lastState": before}
    text = refused(KubernetesBackend(server=cluster))
    assert "CrashLoopBackOff" in text
    assert "no stack tpc" in text
    cluster.troubles.clear()
    for resource, words in (
        ("pods", "list pods"),
        ("secrets", "get secrets"),
        ("proxy", "create pods/proxy"),
    ):
        cluster.refused = {resource: 'User "eve" cannot'}
        text = refused(KubernetesBackend(server=cluster))
        assert f"you may not {words} in namespace default" in text
        assert "eve" in text
