"""`stormcast attack` on pods: what words mean, what a cluster is asked, and what is refused."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from stormcast.chaos.attack import pod_agents, registry
from stormcast.chaos.attack.finders import Finder
from stormcast.chaos.attack.on_pods import KilledPods, OnPods, striking_pods
from stormcast.chaos.attack.playing import Plan
from stormcast.chaos.attack.pod_agents import chosen_image
from stormcast.chaos.attack.pods import Pods
from stormcast.chaos.attack.targets import Target, TargetError
from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.docker.images import CHAOS_IMAGE
from stormcast.chaos.backends.kubernetes.api import AttachingServer
from stormcast.chaos.commands import attack
from stormcast.node.core.errors import NodeError
from tests.helpers.attacked_pods import FakePods, pod, status

FORBIDDEN = (
    'pods "web" is forbidden: User "me" cannot patch resource "pods/ephemeralcontainers" in API '
    'group "" in the namespace "shop"'
)
PODSECURITY = (
    'pods "web" is forbidden: violates PodSecurity "baseline:latest": non-default capabilities '
    '(container "stormcast-attack-1" must not include "NET_ADMIN")'
)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_agents, "POLL_SECONDS", 0.001)
    monkeypatch.delenv(CHAOS_IMAGE, raising=False)
    monkeypatch.delenv("STORMCAST_NAMESPACE", raising=False)


@pytest.fixture
def cluster() -> FakePods:
    return FakePods(
        pod(1, "web", app="web"),
        pod(2, "db-0", app="db", tier="back"),
        pod(3, "db-1", app="db"),
        pod(4, "other", namespace="blog", **{"app/name": "x", "app.kubernetes.io/name": "cms"}),
    )


@pytest.fixture
def finder(cluster: FakePods) -> Finder:
    return Finder(pods=Pods(cluster.opened))


def planned(finder: Finder, *line: str) -> Plan:
    words = [attack._SEPARATOR if word == "--" else word for word in line]
    return attack._plan(attack._parser().parse_args(words), finder)


def whats(found: list[Target]) -> list[str]:
    return [target.what for target in found]


# -- Words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("pod:web", ["pod shop/web"]),
        ("pod:shop/web", ["pod shop/web"]),
        ("pod:blog/other", ["pod blog/other"]),
        ("label:app=db", ["pod shop/db-0", "pod shop/db-1"]),
        ("label:app=db,tier=back", ["pod shop/db-0"]),
        ("label:shop/app=db,tier=back", ["pod shop/db-0"]),
        ("label:blog/app.kubernetes.io/name=cms", ["pod blog/other"]),
        ("label:blog/app/name=x", ["pod blog/other"]),
    ],
)
def test_a_word_names_a_pod_or_all_with_the_same_labels(
    finder: Finder, word: str, found: list[str]
) -> None:
    assert whats(finder.find(word)) == found


def test_the_prefix_of_a_labels_key_is_no_namespace(
    finder: Finder, cluster: FakePods, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORMCAST_NAMESPACE", "blog")
    assert whats(finder.find("label:app.kubernetes.io/name=cms")) == ["pod blog/other"]
    assert not cluster.changes


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("pod:wep", "there is no pod wep in namespace shop; did you mean web?"),
        ("pod:blog/web", "there is no pod web in namespace blog"),
        ("pod:", "it takes a name"),
        ("pod:a b", "small letters, digits, dashes, dots"),
        ("pod:../web", "a namespace has small letters"),
        ("label:app=nobody", "no pod in namespace shop has the labels app=nobody"),
        ("label:app", "write KEY=VALUE"),
        ("label:app in (a)", "write KEY=VALUE"),
        ("label:", "such as label:app=web"),
    ],
)
def test_what_names_no_pod_is_refused(finder: Finder, word: str, why: str) -> None:
    with pytest.raises(TargetError, match=why):
        finder.find(word)


def starting(one: dict[str, Any]) -> None:
    one["status"] = {
        "phase": "Pending",
        "containerStatuses": [
            {"name": "main", "image": "x:1", "state": {"waiting": {"reason": "ErrImagePull"}}}
        ],
    }


def leaving(one: dict[str, Any]) -> None:
    one["metadata"]["deletionTimestamp"] = "now"


def on_the_node(one: dict[str, Any]) -> None:
    one["spec"]["hostNetwork"] = True


def without_address(one: dict[str, Any]) -> None:
    one["status"]["podIPs"] = []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (starting, "container main: ErrImagePull, image x:1"),
        (leaving, "it is being deleted"),
        (on_the_node, "it is in the network of its node"),
        (without_address, "it has no address yet"),
    ],
)
def test_a_pod_that_cannot_be_attacked_is_refused_and_no_selector_finds_it(
    finder: Finder, cluster: FakePods, change: Callable[[dict[str, Any]], None], why: str
) -> None:
    change(cluster.pods["shop", "db-0"])
    with pytest.raises(TargetError, match=f"pod shop/db-0 cannot be attacked: {why}"):
        finder.find("pod:db-0")
    assert whats(finder.find("label:app=db")) == ["pod shop/db-1"]
    change(cluster.pods["shop", "db-1"])
    with pytest.raises(TargetError, match=f"none of 2 pods .*{why}"):
        finder.find("label:app=db")


def test_no_cluster_is_asked_for_a_name_without_a_kind() -> None:
    def nobody() -> tuple[AttachingServer, str]:
        pytest.fail("nobody spoke of a cluster")

    with pytest.raises(TargetError, match=r"nothing here has this name.*pod:…, label:…"):
        Finder(pods=Pods(nobody)).find("no-such-name-anywhere")


def test_one_side_alone_is_refused_with_the_choice(finder: Finder, cluster: FakePods) -> None:
    with pytest.raises(TargetError, match=r"pod:shop/web -- .*pod:shop/db-0, pod:shop/db-1"):
        planned(finder, "loss", "pod:web", "--rate", "5%")
    with pytest.raises(TargetError, match="name both sides"):
        planned(finder, "partition", "label:app=db")
    assert not cluster.changes


def test_pods_and_what_runs_here_are_not_attacked_together(finder: Finder, tmp_path: Path) -> None:
    space = tmp_path / "lab"
    space.touch()
    with pytest.raises(TargetError, match="start one for each"):
        planned(finder, "partition", "pod:web", "--", f"netns:{space}")


def test_a_pod_that_is_on_both_sides_is_refused(finder: Finder) -> None:
    with pytest.raises(TargetError, match="pod shop/db-0 is named twice"):
        planned(finder, "partition", "pod:db-0", "--", "label:app=db")


def test_a_pause_of_pods_is_refused_with_the_reason(finder: Finder) -> None:
    with pytest.raises(TargetError, match="pause: nothing in a pod can stop the first process"):
        planned(finder, "pause", "pod:web")


# -- What is done --------------------------------------------------------------------------------


def begun(finder: Finder, *line: str) -> OnPods:
    work = striking_pods(planned(finder, *line), finder.pods.cluster)
    assert isinstance(work, OnPods)
    work.begin()
    return work


PARTED = ("partition", "pod:web", "--", "label:app=db")


def test_each_pod_gets_an_agent_with_two_rights_and_no_secret(
    finder: Finder, cluster: FakePods
) -> None:
    work = begun(finder, *PARTED)
    try:
        added = [body["spec"]["ephemeralContainers"][0] for _method, _path, body in cluster.changes]
        assert {method for method, _path, _body in cluster.changes} == {"PATCH"}
        assert len(added) == 3
        for one in added:
            rights = one["securityContext"]
            assert rights["capabilities"] == {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"]}
            assert (rights["privileged"], rights["allowPrivilegeEscalation"]) == (False, False)
            assert (one["stdin"], one["stdinOnce"], "env" in one) == (True, True, False)
            assert one["image"] == chosen_image()
        assert len({one["name"] for one in added}) == 1, "one attack, one name"
    finally:
        work.end()


def test_all_agents_have_one_state_renew_it_and_are_told_to_end(
    finder: Finder, cluster: FakePods
) -> None:
    work = begun(finder, *PARTED)
    states = [yaml.safe_load(wire.agent.states[0]) for wire in cluster.wires.values()]
    assert len(states) == 3
    assert states[0] == states[1] == states[2]
    assert states[0]["places"]["db-1"] == ["198.18.5.3"]
    work.keep()
    assert [wire.agent.renewals for wire in cluster.wires.values()] == [0, 0, 0], "not due yet"
    work.agents._renewed = time.monotonic() - 1.0
    work.keep()
    assert [wire.agent.renewals for wire in cluster.wires.values()] == [1, 1, 1]
    assert work.lease_left == pytest.approx(3.0, abs=0.5)
    cluster.wires["web"].agent.bites = {"f1": {"db-0 web": 4}}
    cluster.wires["db-0"].agent.bites = {"f1": {"web db-0": 2}}
    work.end()
    assert work.bites() == {"f1": {("db-0", "web"): 4, ("web", "db-0"): 2}}
    assert [wire.agent.until for wire in cluster.wires.values()] == [0.0] * 3
    assert all(wire.closed for wire in cluster.wires.values())
    assert work.lease_left is None


def test_an_agent_that_is_gone_ends_the_attack_and_the_others_heal(
    finder: Finder, cluster: FakePods
) -> None:
    work = begun(finder, *PARTED)
    cluster.wires["db-0"].is_cut = True
    work.agents._renewed = time.monotonic() - 1.0
    with pytest.raises(NodeError, match="the agent of pod shop/db-0: POST /renew: the connection"):
        work.keep()
    work.end()
    assert [cluster.wires[name].agent.until for name in ("web", "db-1")] == [0.0, 0.0]
    assert all(wire.closed for wire in cluster.wires.values())


def test_one_that_cannot_be_told_to_end_is_said(finder: Finder, cluster: FakePods) -> None:
    work = begun(finder, *PARTED)
    cluster.wires["web"].cut_at = "/clear"
    with pytest.raises(BackendError, match=r"pod shop/web.*it heals by itself"):
        work.end()
    assert [cluster.wires[name].agent.until for name in ("db-0", "db-1")] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (
            {"waiting": {"reason": "ErrImagePull", "message": "not found"}},
            r"pod shop/\S+: its node cannot have the image .*ErrImagePull, image stormcast-chaos:"
            r".*not found; .*STORMCAST_CHAOS_IMAGE",
        ),
        (
            {"waiting": {"reason": "CreateContainerConfigError", "message": "non-root"}},
            "does not run: CreateContainerConfigError, non-root",
        ),
        (
            {"terminated": {"reason": "Error", "exitCode": 2, "message": "stormcast agent: no"}},
            "does not run: Error, stormcast agent: no, it ended with 2",
        ),
    ],
)
def test_an_agent_that_does_not_run_is_one_line_with_the_remedy(
    finder: Finder, cluster: FakePods, state: dict[str, Any], why: str
) -> None:
    cluster.then = state
    work = striking_pods(planned(finder, *PARTED), finder.pods.cluster)
    with pytest.raises(BackendError, match=why) as caught:
        work.begin()
    assert "\n" not in str(caught.value)
    work.end()


def test_an_agent_that_never_runs_has_a_bound(
    finder: Finder, cluster: FakePods, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_agents, "START_SECONDS", 0.05)
    cluster.then = {"waiting": {"reason": "ContainerCreating"}}
    work = striking_pods(planned(finder, *PARTED), finder.pods.cluster)
    with pytest.raises(BackendError, match="does not run yet"):
        work.begin()
    work.end()


def test_ctrl_c_before_agents_run_waits_for_none(finder: Finder, cluster: FakePods) -> None:
    cluster.then = {"waiting": {"reason": "ContainerCreating"}}
    work = striking_pods(planned(finder, *PARTED), finder.pods.cluster)
    with ThreadPoolExecutor(1) as threads:
        beginning = threads.submit(work.begin)
        while len(cluster.changes) < 3:
            time.sleep(0.001)
        work.end()
        with pytest.raises(BackendError, match="over before it began"):
            beginning.result(10.0)
    assert not cluster.wires


@pytest.mark.parametrize(
    ("method", "resource", "said", "why"),
    [
        (
            "PATCH",
            "ephemeralcontainers",
            FORBIDDEN,
            "you may not patch pods/ephemeralcontainers in namespace shop: .*docs/attack.md names",
        ),
        ("PATCH", "ephemeralcontainers", PODSECURITY, 'refuses .*violates PodSecurity "baseline'),
        (
            "GET",
            "attach",
            'pods "web" is forbidden: User "me" cannot get resource "pods/attach"',
            "you may not get and create pods/attach in namespace shop",
        ),
    ],
)
def test_what_the_cluster_forbids_is_said_with_the_right_or_in_its_own_words(
    finder: Finder, cluster: FakePods, method: str, resource: str, said: str, why: str
) -> None:
    cluster.refuses[method, resource] = status(403, said)
    work = striking_pods(planned(finder, *PARTED), finder.pods.cluster)
    with pytest.raises(BackendError, match=why):
        work.begin()
    work.end()


def test_who_may_not_even_look_is_told_which_right_is_missing(
    finder: Finder, cluster: FakePods
) -> None:
    cluster.refuses["GET", "pods"] = status(403, 'User "me" cannot get resource "pods"')
    with pytest.raises(BackendError, match="you may not get pods in namespace shop"):
        finder.find("pod:web")
    with pytest.raises(BackendError, match="you may not list pods in namespace shop"):
        finder.find("label:app=web")
    cluster.is_away = True
    with pytest.raises(BackendError, match="no cluster answers at https://fake: connection"):
        finder.find("pod:web")


def test_a_kill_deletes_the_pod_that_was_found_and_no_later_one(
    finder: Finder, cluster: FakePods
) -> None:
    work = striking_pods(planned(finder, "kill", "label:app=db"), finder.pods.cluster)
    assert isinstance(work, KilledPods)
    cluster.pods["shop", "db-1"]["metadata"]["uid"] = "another"
    work.begin()
    work.keep()
    work.end()
    assert work.bites() == {"f1": {("db-0", "db-0"): 1}, "f2": {("db-1", "db-1"): 0}}
    assert [(method, body["gracePeriodSeconds"]) for method, _path, body in cluster.changes] == [
        ("DELETE", 0),
        ("DELETE", 0),
    ]
    assert ("shop", "db-1") in cluster.pods


# -- The command ---------------------------------------------------------------------------------


@pytest.fixture
def command(
    cluster: FakePods, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., int]:
    """Runs the command on the fake cluster, as a user who is not root."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(attack, "Finder", lambda: Finder(pods=Pods(cluster.opened)))
    monkeypatch.setattr(attack, "what_is_missing", lambda: "only root may")
    monkeypatch.setattr(registry, "usual_place", lambda: tmp_path / "attacks")
    return lambda *line: attack.attack(line, lambda out: out / "report.html")


def test_a_dry_run_only_reads(
    command: Callable[..., int], cluster: FakePods, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*PARTED, "--dry-run") == 0
    said = capsys.readouterr().out
    assert "  db-1: pod shop/db-1, at 198.18.5.3\n" in said
    assert f"an ephemeral container of {chosen_image()}" in said
    assert command("kill", "pod:web", "--dry-run") == 0
    assert "web: pod shop/web would be deleted" in capsys.readouterr().out
    assert not cluster.changes


def test_an_attack_on_pods_is_listed_and_written_as_a_run(
    command: Callable[..., int],
    cluster: FakePods,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    entries: list[str] = []

    def look(work: OnPods, _seconds: float, tell: Callable[[], None], _clock: object) -> None:
        work.bites()
        cluster.wires["web"].agent.bites = {"f1": {"db-0 web": 4}}
        tell()
        assert command("list", "--json") == 0
        entries.append(capsys.readouterr().out)

    monkeypatch.setattr(attack, "act", look)
    assert command(*PARTED, "--for", "1s", "--out", "kept") == 0
    (told,) = json.loads(entries[0])
    assert (told["struck"], 0 < told["lease"] <= 3) == (4, True)
    assert "it struck 4 packets" in capsys.readouterr().out
    verdict = json.loads((tmp_path / "kept" / "verdict.json").read_text())
    assert (verdict["verdict"], verdict["faults"]) == ("unknown", {"f1": 4})
    assert not list((tmp_path / "attacks").iterdir())


def test_a_kill_by_the_command_counts_pods(
    command: Callable[..., int], cluster: FakePods, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("kill", "pod:web") == 0
    assert "it struck 1 pods" in capsys.readouterr().out
    assert ("shop", "web") not in cluster.pods


def test_an_error_of_the_cluster_is_one_line_and_leaves_nothing(
    command: Callable[..., int],
    cluster: FakePods,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster.refuses["PATCH", "ephemeralcontainers"] = status(403, FORBIDDEN)
    assert command(*PARTED, "--out", "kept") == 3
    said = capsys.readouterr().err
    assert said.startswith("stormcast attack: pod shop/")
    assert said.count("\n") == 1
    assert not (tmp_path / "kept").exists()
    assert not list((tmp_path / "attacks").iterdir())
