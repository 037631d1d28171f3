"""What the words of `stormcast attack` mean: targets, directions, faults, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from stormcast.chaos import faults
from stormcast.chaos.attack import finders, targets
from stormcast.chaos.attack.finders import PROJECT, SERVICE, Finder
from stormcast.chaos.attack.kinds import KINDS, check_groups, faults_of, needs_neighbours
from stormcast.chaos.attack.registry import Entry, Registry, usual_place
from stormcast.chaos.attack.stopped import StopError, Stopped
from stormcast.chaos.attack.targets import Groups, Target, TargetError, read_groups, sites_of
from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.docker.daemon import Daemon
from stormcast.chaos.backends.run_id import RunId, start_of
from stormcast.chaos.commands import attack
from stormcast.chaos.language.network_state import NetworkState, parse_state
from stormcast.node.core.errors import ConfigError

# -- Words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "groups", "is_directed"),
    [
        ("a", (("a",),), False),
        ("a b c", (("a", "b", "c"),), False),
        ("a b -- c", (("a", "b"), ("c",)), False),
        ("a -- b -- c", (("a",), ("b",), ("c",)), False),
        ("a→b", (("a",), ("b",)), True),
        ("a->b", (("a",), ("b",)), True),
    ],
)
def test_groups_and_directions(line: str, groups: Any, *, is_directed: bool) -> None:
    assert read_groups(line.split()) == Groups(groups, is_directed)


@pytest.mark.parametrize(
    "line",
    ["", "--", "a --", "-- a", "a a", "a -- a", "a→", "→b", "a→b→c", "a→a", "a→b c", "c a→b"],
)
def test_what_no_groups_can_be_made_of(line: str) -> None:
    with pytest.raises(ConfigError):
        read_groups(line.split())


@pytest.mark.parametrize(
    ("kind", "line", "why"),
    [
        ("cut", "a b", "it has a direction"),
        ("cut", "a -- b", "it has a direction"),
        ("partition", "a→b", "it has no direction"),
        ("kill", "a -- b", "it takes targets alone"),
        ("pause", "a→b", "it takes targets alone"),
    ],
)
def test_directions_that_a_kind_has_no_meaning_for(kind: str, line: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        check_groups(kind, read_groups(line.split()))


def test_one_target_alone_is_attacked_on_its_ways_to_its_neighbours() -> None:
    assert needs_neighbours("delay", read_groups(["a"]))
    assert needs_neighbours("partition", read_groups(["a", "b"])), "from whom else?"
    for line in ("a b", "a -- b", "a→b"):
        assert not needs_neighbours("delay", read_groups(line.split()))
    assert not needs_neighbours("kill", read_groups(["a"]))


OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "delay": {"by": 0.1, "jitter": 0.0},
    "loss": {"rate": 0.1},
    "duplicate": {"rate": 0.1},
    "reorder": {"rate": 0.1, "by": 0.1},
    "corrupt": {"rate": 0.1},
    "bandwidth": {"rate": 1e4},
    "cut": {},
}
WAYS = {(a, b) for a in "abc" for b in "abc" if a != b}


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize(
    ("groups", "is_directed", "struck"),
    [
        ((("a",), ("b",)), True, {("a", "b")}),
        ((("a",), ("b",)), False, {("a", "b"), ("b", "a")}),
        ((("a", "b", "c"),), False, WAYS),
        ((("a", "b"), ("c",)), False, {("a", "c"), ("b", "c"), ("c", "a"), ("c", "b")}),
        ((("a",), ("b",), ("c",)), False, WAYS),
    ],
)
def test_each_fault_strikes_the_ways_that_were_named_and_no_others(
    kind: str, groups: Any, struck: set[tuple[str, str]], *, is_directed: bool
) -> None:
    found = faults_of(kind, groups, OPTIONS[kind], is_directed=is_directed)
    ways = [way for way in sorted(WAYS) for fault in found.values() if fault.strikes(*way)]
    assert sorted(ways) == sorted(struck), "each way once"


def test_a_partition_leaves_each_group_together() -> None:
    found = faults_of("partition", (("a", "b"), ("c",)), {}, is_directed=False)
    (fault,) = found.values()
    assert {way for way in WAYS if not fault.strikes(*way)} == {("a", "b"), ("b", "a")}


def test_an_agent_reads_every_attack() -> None:
    """Names and ids become words of the kernel's rules."""
    for kind, options in OPTIONS.items():
        made = faults_of(kind, (("web-1", "p41"), ("n0",)), options, is_directed=False)
        state = NetworkState(members=("web-1", "p41", "n0"), faults=made, dice="packets")
        assert parse_state(state.to_text()) == state
    assert set(OPTIONS) | {"partition", "kill", "pause"} == set(KINDS)


# -- Targets -------------------------------------------------------------------------------------


class FakeDaemon:
    """Containers in the words of a daemon; their networks are folders of the test."""

    def __init__(self, folder: Path, *containers: dict[str, Any]) -> None:
        self._folder = folder
        self._containers = list(containers)
        for one in containers:
            (folder / one["Id"]).touch()
        self.closed = 0

    def close(self) -> None:
        self.closed += 1

    def containers(self, _label: str = "") -> list[dict[str, Any]]:
        return self._containers

    def network_of(self, container: str) -> str:
        return str(self._folder / container)

    def processes(self, container: str) -> list[int]:
        return [int(container[-3:])]


def container(number: int, name: str, network: str, **labels: str) -> dict[str, Any]:
    return {
        "Id": f"{number:06}",
        "Names": [f"/{name}"],
        "State": "running",
        "Labels": {key.replace("__", "."): value for key, value in labels.items()},
        "NetworkSettings": {"Networks": {network: {"NetworkID": network}}},
    }


def of_service(number: int, project: str, service: str) -> dict[str, Any]:
    made = container(number, f"{project}_{service}_{number}", project)
    made["Labels"] = {PROJECT: project, SERVICE: service}
    return made


@pytest.fixture
def finder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Finder:
    spaces = tmp_path / "spaces"
    spaces.mkdir()
    monkeypatch.setattr(finders, "NAMESPACES", spaces)
    monkeypatch.setattr(finders, "may_have_docker", lambda: True)
    for name in ("lab", "web", str(RunId.next().namespace("n0"))):
        (spaces / name).touch()
    run = RunId.parse(sorted(spaces.iterdir())[-2].name)
    if run is not None:
        (spaces / run.namespace("n1")).touch()
    daemon = FakeDaemon(
        tmp_path,
        container(1, "web", "front"),
        container(2, "db", "front"),
        container(3, "alone", "other"),
        of_service(4, "shop", "api"),
        of_service(5, "shop", "api"),
        of_service(6, "blog", "api"),
        of_service(7, "blog", "cache"),
    )
    return Finder(lambda: cast("Daemon", daemon))


def words(found: list[Target]) -> list[str]:
    return [target.word for target in found]


def test_names_are_looked_for_among_all_that_have_one(finder: Finder) -> None:
    assert [one.what for one in finder.find("db")] == ["container db"]
    assert [one.what for one in finder.find("lab")] == ["network namespace lab"]
    assert len(finder.find("shop/api")) == 2
    assert [one.what for one in finder.find("cache")] == ["container blog_cache_7 of service cache"]
    assert finder.find("container:000002") == finder.find("db")


def test_a_name_that_may_mean_several_things_is_refused_with_the_choice(finder: Finder) -> None:
    with pytest.raises(TargetError, match=r"container:web .container web., netns:web"):
        finder.find("web")
    with pytest.raises(TargetError, match="compose:blog/api, compose:shop/api"):
        finder.find("compose:api")
    assert words(finder.find("container:web")) == ["web"]
    assert words(finder.find("netns:web")) == ["web-2"], "states need a word for each"


def test_what_is_not_there_is_refused_and_what_is_close_is_named(finder: Finder) -> None:
    with pytest.raises(TargetError, match=r"did you mean .*alone"):
        finder.find("alnoe")
    with pytest.raises(TargetError, match="no such container that runs"):
        finder.find("container:nobody")
    with pytest.raises(TargetError, match="named by its number"):
        finder.find("pid:x")
    with pytest.raises(TargetError, match="it takes a name"):
        finder.find("container:")


def test_neighbours_are_the_other_containers_of_the_networks(finder: Finder) -> None:
    assert words(finder.near(finder.find("db"))) == ["web"]
    with pytest.raises(TargetError, match="name both sides"):
        finder.near(finder.find("alone"))


def test_without_a_daemon_a_container_is_no_mere_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Daemon:
        raise BackendError("no docker daemon answers: start it")

    monkeypatch.setattr(finders, "may_have_docker", lambda: True)
    for word in ("container:web", "compose:api"):
        with pytest.raises(BackendError, match="start it"):
            Finder(nobody).find(word)


def test_the_connections_to_a_daemon_end_with_the_search(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    daemon = FakeDaemon(tmp_path, container(1, "web", "front"))
    monkeypatch.setattr(finders, "may_have_docker", lambda: True)
    with closing(Finder(lambda: cast("Daemon", daemon))) as finder:
        finder.find("container:web")
        assert daemon.closed == 0
    assert daemon.closed == 1
    with closing(Finder(lambda: cast("Daemon", daemon))):
        pass
    assert daemon.closed == 1, "nobody had asked it"


def test_one_service_is_attacked_on_its_ways_to_others_however_many_containers_it_has(
    finder: Finder,
) -> None:
    parser = attack._parser().parse_args(["loss", "shop/api", "--rate", "5%"])
    with pytest.raises(TargetError, match="name both sides"):
        attack._plan(parser, finder)
    parser = attack._parser().parse_args(["loss", "db", "--rate", "5%"])
    plan = attack._plan(parser, finder)
    assert [words(list(group)) for group in plan.groups] == [["db"], ["web"]]


@pytest.mark.parametrize(
    "pid", [1, os.getpid(), os.getppid()], ids=["the first", "this one", "its parent"]
)
def test_nobody_aims_at_the_machine_or_at_this_command(finder: Finder, pid: int) -> None:
    with pytest.raises(TargetError, match="aim at another one"):
        finder.find(f"pid:{pid}")


def test_this_machines_own_network_is_no_target() -> None:
    own = Target(word="x", what="process 41", netns="/proc/self/ns/net")
    with pytest.raises(TargetError, match="this machine's own network"):
        sites_of([own], lambda _words, _stdin: "[]")


def test_two_targets_in_one_network_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "space").touch()
    both = [
        Target(word=word, what=f"container {word}", netns=str(tmp_path / "space"))
        for word in ("a", "b")
    ]
    told = [{"ifname": "lo"}, {"ifname": "eth0", "addr_info": [ADDRESS]}]
    monkeypatch.setattr(targets, "_FIRST", tmp_path)
    with pytest.raises(TargetError, match="container b and container a are in one network"):
        sites_of(both, lambda _words, _stdin: json.dumps(told))
    (site,) = sites_of(both[:1], lambda _words, _stdin: json.dumps(told))
    assert (site.device, site.addresses) == ("eth0", ("198.18.0.2",))
    with pytest.raises(TargetError, match="has no address"):
        sites_of(both[:1], lambda _words, _stdin: "[]")


ADDRESS = {"local": "198.18.0.2", "scope": "global"}

# -- Processes -----------------------------------------------------------------------------------


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen((sys.executable, "-c", "import time; time.sleep(60)"))
    yield process
    process.kill()
    process.wait()


def letter(pid: int) -> str:
    text = Path(f"/proc/{pid}/stat").read_text()
    return text[text.rindex(")") + 2]


def wait_for(pid: int, letters: str) -> None:
    until = time.monotonic() + 10
    while letter(pid) not in letters and time.monotonic() < until:
        time.sleep(0.01)
    assert letter(pid) in letters


def test_stopped_processes_go_on_at_the_end(sleeper: subprocess.Popen[bytes]) -> None:
    stopped = Stopped()
    assert stopped.stop(lambda: [sleeper.pid]) == 1
    wait_for(sleeper.pid, "T")
    stopped.check()
    stopped.resume()
    wait_for(sleeper.pid, "SR")


def test_stopped_processes_go_on_when_the_attack_is_killed(
    sleeper: subprocess.Popen[bytes],
) -> None:
    text = (
        "import time\n"
        "from stormcast.chaos.attack.stopped import Stopped\n"
        f"Stopped().stop(lambda: [{sleeper.pid}])\n"
        "time.sleep(60)\n"
    )
    attack = subprocess.Popen((sys.executable, "-c", text))
    wait_for(sleeper.pid, "T")
    attack.kill()
    attack.wait()
    wait_for(sleeper.pid, "SR")


def test_they_go_on_where_somebody_kills_what_was_to_resume_them(
    sleeper: subprocess.Popen[bytes],
) -> None:
    stopped = Stopped()
    stopped.stop(lambda: [sleeper.pid])
    wait_for(sleeper.pid, "T")
    stopped._resumer.kill()
    stopped._resumer.wait()
    with pytest.raises(StopError):
        stopped.check()
    stopped.resume()
    wait_for(sleeper.pid, "SR")


# -- Others see it -------------------------------------------------------------------------------


def entry(registry: Registry, **changed: Any) -> Entry:
    name, folder = registry.begin()
    started = start_of(os.getpid())
    assert started is not None
    made: dict[str, Any] = {
        "id": name, "pid": os.getpid(), "started": started, "what": "delay a", "since": 1.0,
        "until": None, "folder": str(folder), "struck": {"f1": 3},
    }  # fmt: skip  # one entry
    found = Entry(**(made | changed))
    registry.write(found)
    return found


def test_attacks_are_listed_while_their_process_lives(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    alive, dead = entry(registry), entry(registry, started=1)
    assert [one.id for one in registry.living()] == [alive.id]
    assert not Path(dead.folder).exists()
    assert registry.named(alive.id).bites() == (3, None)
    with pytest.raises(ConfigError, match=f"no attack x acts here; there is {alive.id}"):
        registry.named("x")


def test_the_lease_of_an_attack_elsewhere_is_what_its_command_wrote(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    acting = entry(registry, lease_until=time.time() + 3.0)
    lapsed = entry(registry, lease_until=time.time() - 3.0)
    struck, left = registry.named(acting.id).bites()
    assert struck == 3
    assert left == pytest.approx(3.0, abs=1.0)
    assert registry.named(lapsed.id).bites() == (3, 0.0)


def test_who_is_not_root_has_a_folder_of_attacks_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    assert usual_place() == Path("/run/user/1000/stormcast/attacks")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert usual_place().is_relative_to(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert usual_place() == Path("/run/stormcast/attacks")


def test_odd_files_among_attacks_do_no_harm(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    for number, text in enumerate(("", "[]", '{"id": 1}', "{")):
        (tmp_path / f"a{number}").mkdir()
        (tmp_path / f"a{number}" / "attack.json").write_text(text)
    assert not registry.living()


def test_faults_of_processes_are_not_faults_of_the_network() -> None:
    assert not issubclass(faults.Crash, faults.NetworkFault)
    assert KINDS["kill"].make is None
