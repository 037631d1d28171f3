"""The chart in a real cluster: members join across nodes, and faults die by themselves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event
from typing import Any

import pytest

from stormcast.chaos.faults import Partition
from stormcast.chaos.language.network_state import NetworkState
from stormcast.node.core.errors import NodeError
from tests.helpers.kube import AGENT_PORT, MEMBER_PORT, NAME, Cluster, until

pytestmark = [pytest.mark.k8s, pytest.mark.slow]

MEMBERS = (f"{NAME}-0", f"{NAME}-1", f"{NAME}-2")
SITES = ("n0", "n1", "n2")
"""What agents call them."""
LEASE = 3.0
SLACK = 2.0
"""Seconds beyond what is promised: a look through the API server takes some of them."""
NET_ADMIN_AND_RAW = 1 << 12 | 1 << 13
TRAFFIC = {"do": "multicast", "rate": "50/s", "size": "100B", "duration": "10min"}


def test_members_on_all_nodes_are_one_group(cluster: Cluster) -> None:
    pods = cluster.pods()
    assert tuple(pod.metadata.name for pod in pods) == MEMBERS

    nodes = {pod.spec.node_name for pod in pods}
    assert len(nodes) == min(3, len(cluster.core.list_node().items))
    until(cluster.is_one_group, 30, f"one group: {cluster.views()}")


def test_helm_test_says_so(cluster: Cluster) -> None:
    assert "Phase:          Succeeded" in cluster.helm("test", "demo")


def test_members_have_no_rights_and_agents_two(cluster: Cluster) -> None:
    """What the kernel says, not what was asked for."""
    for container, uid, capabilities in (("member", 10001, 0), ("agent", 0, NET_ADMIN_AND_RAW)):
        text = cluster.run_in(MEMBERS[0], container, "cat", "/proc/1/status")
        status = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        assert status["Uid"].split() == [str(uid)] * 4
        assert int(status["CapEff"], 16) == capabilities
        assert status["NoNewPrivs"] == "1"
        assert status["Seccomp"] == "2"
        assert "Read-only" in cluster.run_in(MEMBERS[0], container, "touch", "/opt/x")


def test_whoever_has_no_token_is_refused(cluster: Cluster) -> None:
    good = cluster.token
    cluster._token = "0123456789abcdef"  # noqa: S105 a wrong one
    try:
        for port, path in ((MEMBER_PORT, "/state"), (AGENT_PORT, "/bites")):
            with pytest.raises(AssertionError, match="the token is missing or wrong"):
                cluster.ask(MEMBERS[0], port, "GET", path)
    finally:
        cluster._token = good


def test_whoever_speaks_plain_http_is_told_so(cluster: Cluster) -> None:
    for port in (MEMBER_PORT, AGENT_PORT):
        with pytest.raises(AssertionError, match="this endpoint speaks TLS"):
            cluster.ask(MEMBERS[0], port, "GET", "/state", is_tls=False)


def test_a_certificate_that_was_removed_is_made_anew_and_served_without_a_restart(
    cluster: Cluster,
) -> None:
    """A kubelet brings a changed Secret within two minutes."""
    before = {pod.metadata.uid for pod in cluster.pods()}
    old = cluster.secret("tls")["tls.crt"]
    cluster.core.delete_namespaced_secret(f"{NAME}-tls", cluster.namespace)
    cluster.install({})
    new = cluster.secret("tls")["tls.crt"]

    assert new != old
    for port in (MEMBER_PORT, AGENT_PORT):
        until(lambda port=port: _served(cluster, port) == new.strip(), 180, "it is served")  # type: ignore[misc]
    assert {pod.metadata.uid for pod in cluster.pods()} == before
    assert cluster.restarts(MEMBERS[0], "member") == cluster.restarts(MEMBERS[0], "agent") == 0


def _served(cluster: Cluster, port: int) -> str:
    """The certificate of a port, as a client in the pod sees it."""
    asked = f"import ssl; print(ssl.get_server_certificate(('127.0.0.1', {port})))"
    return cluster.run_in(MEMBERS[0], "member", "python", "-c", asked).strip()


def test_an_upgrade_keeps_secrets_and_restarts_members_one_by_one(cluster: Cluster) -> None:
    token, certificate = cluster.token, cluster.secret("tls")
    before = {pod.metadata.uid for pod in cluster.pods()}
    cluster.install({"member": {"timing": "fast", "seed": 2}})

    assert cluster.token == token
    assert cluster.secret("tls") == certificate
    assert not before & {pod.metadata.uid for pod in cluster.pods()}
    until(cluster.is_one_group, 60, "one group after the upgrade")


@pytest.fixture
def talking(cluster: Cluster) -> Cluster:
    """Members that talk, and are so patient that views stay as they are while a fault lasts."""
    patient = {"FD_ALL3": {"timeout": "60s"}}
    cluster.install({"member": {"protocols": patient, "workload": [TRAFFIC]}})
    until(lambda: _hears(cluster, MEMBERS[1], MEMBERS[0], 0), 60, "they talk")
    until(lambda: _hears(cluster, MEMBERS[1], MEMBERS[2], 0), 60, "they talk")
    return cluster


def test_a_paused_member_goes_on_when_nobody_renews(cluster: Cluster) -> None:
    """Nothing restarts its container meanwhile: the keeper answers the probes."""
    pod = MEMBERS[2]
    cluster.ask(pod, MEMBER_PORT, "POST", "/pause", {"lease": LEASE})
    assert cluster.ask(pod, MEMBER_PORT, "GET", "/state")["paused"] is True

    until(
        lambda: not cluster.ask(pod, MEMBER_PORT, "GET", "/state")["paused"],
        LEASE + 1 + SLACK,
        "the pause ends",
    )
    assert cluster.state(pod)["state"] == "connected"
    assert cluster.restarts(pod, "member") == 0


def test_the_key_changes_by_three_upgrades_while_members_talk(cluster: Cluster) -> None:
    """No member restarts, none leaves a view, and nobody is refused for its key."""
    patient = {"FD_ALL3": {"timeout": "60s"}}
    values = {"member": {"protocols": patient, "workload": [TRAFFIC]}}
    cluster.install(values)
    until(lambda: _hears(cluster, MEMBERS[1], MEMBERS[0], 0), 60, "they talk")
    before, views = {pod.metadata.uid for pod in cluster.pods()}, cluster.views()
    (first,) = {tuple(cluster.state(pod)["keys"]) for pod in MEMBERS}
    assert len(first) == 1

    seen = [first]
    for step in ("add", "turn", "drop"):
        cluster.install(values | {"keys": {"change": step}})
        _have_secrets_looked_at(cluster, step)
        until(partial(_have_others, cluster, seen[-1]), 150, f"{step} at all members")
        seen += _keys(cluster)
        # What is done once is not done again.
        cluster.install(values | {"keys": {"change": step}})

    (second,) = set(seen[-1])
    assert seen[1:] == [(*first, second), (second, *first), (second,)]
    assert {pod.metadata.uid for pod in cluster.pods()} == before
    assert cluster.views() == views
    for pod in MEMBERS:
        heard = [cluster.received(pod, peer) for peer in MEMBERS]
        until(
            lambda pod=pod, heard=heard: all(
                _hears(cluster, pod, peer, before)
                for peer, before in zip(MEMBERS, heard, strict=True)
            ),
            30,
            f"{pod} hears all",
        )
        stats = cluster.state(pod)["stats"]
        assert not [name for name in stats if name.endswith((".key-unknown", ".not-sealed"))]


def _have_others(cluster: Cluster, keys: tuple[str, ...]) -> bool:
    """Whether all members have the same keys, and not these."""
    found = _keys(cluster)
    return len(found) == 1 and keys not in found


def _have_secrets_looked_at(cluster: Cluster, step: str) -> None:
    """A kubelet looks once a minute, and when a pod of its node changes."""
    for pod in MEMBERS:
        body = {"metadata": {"annotations": {"stormcast.test/step": step}}}
        cluster.core.patch_namespaced_pod(pod, cluster.namespace, body)


def _keys(cluster: Cluster) -> set[tuple[str, ...]]:
    return {tuple(cluster.state(pod)["keys"]) for pod in MEMBERS}


def _cut_off_the_first(cluster: Cluster) -> None:
    """Have all agents part the first member from the others, for a lease."""
    addresses = [(pod.status.pod_ip,) for pod in cluster.pods()]
    places = dict(zip(SITES, addresses, strict=True))
    parted = Partition(groups=(SITES[:1], SITES[1:]))
    state = NetworkState(members=SITES, places=places, faults={"f1": parted})
    for pod in MEMBERS:
        cluster.ask(pod, AGENT_PORT, "POST", "/apply", {"state": state.to_text(), "lease": LEASE})


def _renew(cluster: Cluster, *pods: str) -> None:
    for pod in pods:
        cluster.ask(pod, AGENT_PORT, "POST", "/renew", {"lease": LEASE})


def _hears(cluster: Cluster, pod: str, peer: str, before: int) -> bool:
    return cluster.received(pod, peer) > before


def _assert_deaf(cluster: Cluster) -> int:
    """The second member hears nothing of the first, and all of the third, for longer than a lease;
    returns what it has heard."""
    time.sleep(0.5)  # What was under way has arrived.
    before = cluster.received(MEMBERS[1], MEMBERS[0])
    others = cluster.received(MEMBERS[1], MEMBERS[2])
    end = time.monotonic() + LEASE + 1
    while time.monotonic() < end:
        _renew(cluster, *MEMBERS)
        time.sleep(0.3)
    assert cluster.received(MEMBERS[1], MEMBERS[0]) == before
    assert cluster.received(MEMBERS[1], MEMBERS[2]) > others
    return before


def test_the_network_heals_when_nobody_renews(talking: Cluster) -> None:
    """A controller that was killed in mid-fault."""
    cluster = talking
    _cut_off_the_first(cluster)
    before = _assert_deaf(cluster)
    bites: dict[str, Any] = cluster.ask(MEMBERS[1], AGENT_PORT, "GET", "/bites")

    took = until(
        lambda: _hears(cluster, MEMBERS[1], MEMBERS[0], before), LEASE + 1 + SLACK, "it heals"
    )

    print(f"healed {took:.1f} s after the last renewal, lease {LEASE:g} s")
    assert bites["f1"]["n0 n1"] > 0
    assert until(cluster.is_one_group, 30, "one group again") < 30


def test_the_network_heals_when_the_agent_is_killed_and_nobody_renews(talking: Cluster) -> None:
    """Nobody is left who could take the fault back at the second member: the kernel does."""
    cluster = talking
    pod = MEMBERS[1]
    _cut_off_the_first(cluster)
    before = _assert_deaf(cluster)
    restarts = cluster.restarts(pod, "agent")
    with _renewing(cluster):
        cluster.kill(cluster.pods()[1], "agent")

    took = until(lambda: _hears(cluster, pod, MEMBERS[0], before), LEASE + 1 + SLACK, "it heals")

    print(f"healed {took:.1f} s after the agent was killed, lease {LEASE:g} s")
    until(lambda: cluster.restarts(pod, "agent") > restarts, 60, "the agent is started again")
    until(lambda: _can_part(cluster, pod), 60, "the agent answers again")
    assert cluster.restarts(pod, "member") == 0
    assert until(cluster.is_one_group, 30, "one group again") < 30


def _can_part(cluster: Cluster, pod: str) -> bool:
    why_not: str | None = cluster.ask(pod, AGENT_PORT, "GET", "/features")["partition"]
    return why_not is None


@contextmanager
def _renewing(cluster: Cluster) -> Iterator[None]:
    """As a controller does that lives."""
    over = Event()

    def renew() -> None:
        while not over.wait(0.5):
            with suppress(AssertionError, NodeError):
                _renew(cluster, *MEMBERS)

    with ThreadPoolExecutor(1) as threads:
        threads.submit(renew)
        try:
            yield
        finally:
            over.set()
