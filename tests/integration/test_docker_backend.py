"""Runs in docker that go wrong: what they say, what is kept, and that nothing stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

import stormcast
from stormcast.chaos.backends.base import Backend, BackendError, ClusterPlan, MemberPlan
from stormcast.chaos.backends.by_name import DOCKER
from stormcast.chaos.backends.docker import DockerBackend
from stormcast.chaos.backends.docker.containers import PodNames
from stormcast.chaos.backends.docker.daemon import Daemon, open_daemon
from stormcast.chaos.backends.docker.images import NODE_IMAGE
from stormcast.chaos.backends.docker.leftovers import RUN, leftovers
from stormcast.chaos.backends.leftovers import clean
from stormcast.chaos.backends.run_id import RunId
from tests.helpers import containers
from tests.helpers.chart import ROOT as REPOSITORY

NAMES = ("n0", "n1")
PATIENCE = 30.0

_daemon_answers = pytest.fixture(scope="module", autouse=True)(containers.answering)
pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with closing(open_daemon()) as found:
        yield found


@pytest.fixture
def backend() -> Iterator[DockerBackend]:
    made = DockerBackend(containers.features())
    try:
        yield made
    finally:
        made.close()


def plan(folder: Path, *, sealed: bool = False) -> ClusterPlan:
    config = {"stack": "udp", "timing": "fast", "cluster": "containers"}
    members = tuple(MemberPlan(name=name, config=config) for name in NAMES)
    return ClusterPlan(run="containers", members=members, folder=folder, sealed=sealed)


def wait_for_group(backend: Backend) -> None:
    for name in NAMES:
        backend.start(name)

    def is_one() -> bool:
        try:
            views = [backend.ask(name, "GET", "/state")["view"] for name in NAMES]
        except BackendError:
            return False
        return all(view and len(view["members"]) == len(NAMES) for view in views)

    assert backend.wait(PATIENCE, is_one)


def names_of(daemon: Daemon, member: str, pid: int | None = None) -> PodNames:
    """The names of a member's containers, of the only run of a process: by default, of this one."""
    runs = {RunId.parse(one["Labels"][RUN]) for one in daemon.containers(RUN)}
    (run,) = (one for one in runs if one is not None and one.pid == (pid or os.getpid()))
    return PodNames(run, member)


def kill(daemon: Daemon, container: str) -> None:
    """End a container from outside, as the kernel does where memory is short."""
    pid = daemon.state(container)["Pid"]
    os.kill(pid, signal.SIGKILL)


def test_journals_and_logs_of_a_container_that_died_are_kept_and_its_end_is_known(
    backend: DockerBackend, daemon: Daemon, tmp_path: Path
) -> None:
    backend.open(plan(tmp_path))
    wait_for_group(backend)
    kill(daemon, names_of(daemon, "n1").keeper)
    with pytest.raises(
        BackendError, match=r"started anew in the middle of the run|keeper of n1 does not answer"
    ):
        backend.wait(PATIENCE)
    ends = [one for one in backend.exits() if one.name == "n1"]
    assert [(one.code, one.is_ordered) for one in ends] == [(-signal.SIGKILL, False)]
    backend.close()
    assert (tmp_path / "n1" / "n1-1.log").exists()
    assert list((tmp_path / "n1" / "journal").rglob("*"))


def test_a_run_ends_when_an_agent_has_died(
    backend: DockerBackend, daemon: Daemon, tmp_path: Path
) -> None:
    """Nobody knows then which faults act."""
    backend.open(plan(tmp_path))
    wait_for_group(backend)
    kill(daemon, names_of(daemon, "n0").agent)
    with pytest.raises(BackendError, match="keeper of n0"):
        backend.wait(PATIENCE)
    backend.close()
    assert list((tmp_path / "n0" / "journal").rglob("*")), "journals outlive it"


def test_members_speak_ipv6(tmp_path: Path) -> None:
    backend = DockerBackend(containers.features(), ipv6=True)
    with closing(backend):
        backend.open(plan(tmp_path))
        wait_for_group(backend)
        wheres = [backend.ask(name, "GET", "/state")["where"] for name in NAMES]
        assert all(where.startswith("fd00:5c:") for where in wheres), wheres


def test_keys_are_made_for_the_run_and_change_while_it_lasts(
    backend: DockerBackend, tmp_path: Path
) -> None:
    backend.open(plan(tmp_path, sealed=True))
    wait_for_group(backend)

    def keys() -> list[str]:
        return [backend.ask(name, "GET", "/state")["keys"] for name in NAMES]

    before = keys()
    assert all(before)
    backend.change_keys("add")
    backend.change_keys("turn")
    assert backend.wait(
        PATIENCE, lambda: all(one != old for one, old in zip(keys(), before, strict=True))
    )
    backend.close()
    assert not list(tmp_path.rglob("*.key"))


def test_runs_side_by_side_have_networks_of_their_own(tmp_path: Path, daemon: Daemon) -> None:
    backends = [DockerBackend(containers.features()) for _number in range(3)]
    try:
        with ThreadPoolExecutor() as threads:
            list(
                threads.map(
                    lambda numbered: numbered[1].open(plan(tmp_path / str(numbered[0]))),
                    enumerate(backends),
                )
            )
        mine = [one for one in daemon.networks(RUN) if one["Name"].startswith(f"sc{os.getpid()}-")]
        subnets = [one["IPAM"]["Config"][0]["Subnet"] for one in mine]
        assert len(set(subnets)) == len(subnets) == 3
    finally:
        for one in backends:
            one.close()


HANGS = """
import sys, time
from pathlib import Path
from tests.helpers import containers
from tests.helpers.chart import ROOT as REPOSITORY
from tests.integration.test_docker_backend import plan, wait_for_group
from stormcast.chaos.backends.docker import DockerBackend

backend = DockerBackend({})
backend.open(plan(Path(sys.argv[1])))
wait_for_group(backend)
backend.pause("n0")
print("ready", flush=True)
time.sleep(1000)
"""


def test_what_a_killed_rig_leaves_does_nothing_and_clean_removes_it(
    daemon: Daemon, tmp_path: Path
) -> None:
    rig = subprocess.Popen(
        (sys.executable, "-c", HANGS, str(tmp_path)), stdout=subprocess.PIPE, text=True
    )
    assert rig.stdout is not None
    assert rig.stdout.readline() == "ready\n"
    assert not [one for one in leftovers(daemon).names() if str(rig.pid) in one], "it lives"
    rig.kill()
    rig.communicate()
    left = [one for one in leftovers(daemon).containers if f"sc{rig.pid}-" in one]
    assert len(left) == 2 * len(NAMES)
    keeper = names_of(daemon, "n0", rig.pid).keeper
    until = time.monotonic() + 2 * PATIENCE
    for said in ("nobody renewed the pause", "has not been heard of: its member is ended"):
        while said not in daemon.last_lines(keeper, 5) and time.monotonic() < until:
            time.sleep(0.2)
        assert said in daemon.last_lines(keeper, 5)
    removed = [one for one in clean(DOCKER) if f"sc{rig.pid}-" in one]
    assert {one.split()[0] for one in removed} == {"container", "docker"}
    assert not [one for one in leftovers(daemon).names() if f"sc{rig.pid}-" in one]


def test_an_image_that_is_missing_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(NODE_IMAGE, "stormcast-node:no-such")
    backend = DockerBackend(containers.features())
    with closing(backend), pytest.raises(BackendError, match=r"no image .*no-such: make image"):
        backend.open(plan(tmp_path))


def test_without_a_daemon_one_line_says_what_to_do(tmp_path: Path) -> None:
    said = subprocess.run(
        (sys.executable, "-m", "stormcast", "run", "order-of-unicasts", "--backend", "docker"),
        env=os.environ | {"DOCKER_HOST": f"unix://{tmp_path}/no.sock"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert said.returncode == 3
    (line,) = said.stderr.splitlines()
    assert "no docker daemon answers: start it" in line


def test_a_container_that_cannot_start_says_its_last_words(
    backend: DockerBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stormcast.chaos.backends.docker.containers.FOLDER", "/proc/nowhere")
    with pytest.raises(BackendError, match="has ended with 2: stormcast keep: --folder /proc"):
        backend.open(plan(tmp_path))


COMPOSE = (("docker", "compose"), ("docker-compose",))


def test_the_members_of_the_compose_file_form_a_group() -> None:
    known = [words for words in COMPOSE if _works(*words, "version")]
    if not known:
        pytest.skip("there is no docker compose: apt-get install docker-compose")
    image = os.environ.get(NODE_IMAGE, f"stormcast-node:{stormcast.__version__}")
    words = (*known[0], "--file", str(REPOSITORY / "docker" / "compose.yaml"))
    words = (*words, "--project-name", f"stormcast-test-{os.getpid()}")
    surroundings = os.environ | {"TAG": image.rpartition(":")[2]}

    def compose(*more: str) -> str:
        return subprocess.run(
            (*words, *more),
            env=surroundings,
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ).stdout

    try:
        compose("up", "--detach")
        until = time.monotonic() + PATIENCE
        while (said := compose("logs")).count("of 3:") < 3 and time.monotonic() < until:
            time.sleep(0.5)
        assert said.count("of 3:") >= 3
    finally:
        compose("down", "--volumes")


def _works(*words: str) -> bool:
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def test_doctor_and_its_remedy_know_docker() -> None:
    said = subprocess.run(
        (sys.executable, "-m", "stormcast", "doctor", "--json"),
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(said.stdout)["backends"]["docker"]
    assert found["partition"] is None
    assert found["keys"] is None
