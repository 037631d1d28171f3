"""The netns backend itself, with a program in the place of members that counts whom it hears."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from stormcast.chaos.backends.base import MemberError
from stormcast.chaos.backends.netns import CommandError, MemberSpec, Network, RunId, clean
from stormcast.chaos.backends.netns.backend import NetnsBackend
from stormcast.chaos.backends.netns.leftovers import leftovers
from stormcast.chaos.backends.netns.names import address4, address6
from stormcast.chaos.backends.netns.network import namespaces
from stormcast.chaos.backends.netns.process import until
from stormcast.chaos.faults import Cut, Partition
from stormcast.chaos.plugin.live_cluster import Clusters
from tests.conformance.lab import NAMES, Kind, Lab
from tests.helpers.live import netns

pytestmark = pytest.mark.root

PROGRAM = Path(__file__).parent / "stand_in.py"
FRESH = 5
"""Datagrams of an open path after which a closed one would have let some through."""
SPLIT = Partition(groups=(("n0", "n1"), ("n2",)))


class Ground(Lab):
    """Three stand-ins: who hears whom."""

    def __init__(self, folder: Path, place: Callable[[int], str] = address4) -> None:
        self.addresses = dict(zip(NAMES, map(place, range(len(NAMES))), strict=True))
        super().__init__(Kind(make=lambda: netns(self.argv)), folder)
        self.kinds = ("unicasts", "multicasts") if place is address4 else ("unicasts",)

    @property
    def netns(self) -> NetnsBackend:
        assert isinstance(self.backend, NetnsBackend)
        return self.backend

    def argv(self, python: str, spec: MemberSpec) -> tuple[str, ...]:
        me = self.addresses[spec.name]
        peers = [address for address in self.addresses.values() if address != me]
        return (python, str(PROGRAM), me, *peers)

    def begin(self) -> None:
        """Start everyone."""
        self.open()
        for name in NAMES:
            self.backend.start(name)
        for name in NAMES:
            self.wait_until(lambda name=name: self.answers(name), f"{name} answers")  # type: ignore[misc]

    def answers(self, name: str) -> bool:
        try:
            self.state(name)
        except MemberError:
            return False
        return True

    def heard(self, *names: str) -> dict[tuple[str, str, str], int]:
        """Datagrams so far, by kind, sender and receiver."""
        heard = {}
        for dest in names:
            state = self.state(dest)
            for kind in self.kinds:
                for source in NAMES:
                    if source != dest:
                        heard[kind, source, dest] = state[kind].get(self.addresses[source], 0)
        return heard

    def open_paths(
        self, expected: set[tuple[str, str]], at: tuple[str, ...] = NAMES
    ) -> set[tuple[str, str]]:
        """On which directed paths datagrams arrive, once those expected are seen to be open.

        What was under way when a path closed has arrived by the second round.
        """
        for _round in range(2):
            before = self.heard(*at)

            def fresh(before: Mapping[Any, int] = before) -> dict[Any, int]:
                now = self.heard(*at)
                return {key: now[key] - count for key, count in before.items()}

            self.wait_until(
                lambda fresh=fresh: all(  # type: ignore[misc]
                    count >= FRESH for key, count in fresh().items() if key[1:] in expected
                ),
                f"paths {expected}",
            )
        return {key[1:] for key, count in fresh().items() if count}


def pairs(*groups: str) -> set[tuple[str, str]]:
    """All who hear each other; a group is written `n0 n1`."""
    members = [group.split() for group in groups]
    return {(one, other) for group in members for one in group for other in group if one != other}


EVERYONE = pairs("n0 n1 n2")


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    ground = Ground(tmp_path)
    try:
        ground.begin()
        yield ground
    finally:
        ground.backend.close()


def test_a_network_of_five_is_there_and_gone_again_within_a_second() -> None:
    network = Network(RunId.next(), [f"n{number}" for number in range(5)])
    begun = time.monotonic()
    try:
        network.make()
        assert time.monotonic() - begun < 1.0
        spaces = [space for space in namespaces() if space.startswith(f"{network.run}-")]
        assert len(spaces) == 6
    finally:
        network.remove()
    assert not [space for space in namespaces() if space.startswith(f"{network.run}-")]


def test_a_network_that_is_there_is_not_made_again_and_stays() -> None:
    """By whoever it is: the same object, or another one of that run."""
    network = Network(RunId.next(), ("n0", "n1"))
    try:
        network.make()
        before = [space for space in namespaces() if space.startswith(f"{network.run}-")]
        for again in (network, Network(network.run, ("n1", "n2"))):
            with pytest.raises(CommandError, match="there already: remove the network"):
                again.make()
        assert [space for space in namespaces() if space.startswith(f"{network.run}-")] == before
        addresses = network.execute("n0", ("ip", "-4", "addr", "show", "dev", "eth0"))
        assert network.address("n0") in addresses
        network.remove()
        network.make()
    finally:
        network.remove()
    assert not [space for space in namespaces() if space.startswith(f"{network.run}-")]


def test_everyone_hears_everyone_by_unicast_and_by_multicast(ground: Ground) -> None:
    assert ground.open_paths(EVERYONE) == EVERYONE


def test_ipv6_is_heard_cut_and_healed_too(tmp_path: Path) -> None:
    ground = Ground(tmp_path, address6)
    try:
        ground.begin()
        assert ground.open_paths(EVERYONE) == EVERYONE
        ground.apply(split=SPLIT)
        assert ground.open_paths(pairs("n0 n1")) == pairs("n0 n1")
        ground.apply()
        assert ground.open_paths(EVERYONE) == EVERYONE
    finally:
        ground.backend.close()


def test_nothing_outside_can_be_reached(ground: Ground) -> None:
    network = ground.netns.opened.network
    assert network.execute("n0", ("ip", "route", "show", "default")) == ""


def test_a_partition_cuts_both_ways_and_its_end_restores(ground: Ground) -> None:
    ground.apply(split=SPLIT)
    assert ground.open_paths(pairs("n0 n1")) == pairs("n0 n1")
    ground.apply()
    assert ground.open_paths(EVERYONE) == EVERYONE
    assert sum(ground.bites("split").values()) > 0


def test_cuts_of_one_way_leave_the_other_open_and_end_one_by_one(ground: Ground) -> None:
    first, second = (Cut(sources=(source,), dests=("n2",)) for source in ("n0", "n1"))
    ground.apply(first=first)
    expected = EVERYONE - {("n0", "n2")}
    assert ground.open_paths(expected) == expected
    ground.apply(first=first, second=second)
    expected = EVERYONE - {("n0", "n2"), ("n1", "n2")}
    assert ground.open_paths(expected) == expected
    ground.apply(second=second)
    expected = EVERYONE - {("n1", "n2")}
    assert ground.open_paths(expected) == expected


def test_swapping_partitions_lets_no_packet_through_that_both_forbid(ground: Ground) -> None:
    """n2 is cut off by every one of 20 partitions that follow each other without a heal."""
    apart = Partition(groups=(("n0",), ("n1",), ("n2",)))
    ground.apply(f0=SPLIT)
    left = pairs("n0 n1")
    # A busy machine may keep in its queues for long what came before.
    ground.wait_until(lambda: ground.open_paths(left) == left, "what was under way is there")
    before = ground.heard(*NAMES)
    for number in range(10):
        ground.apply(**{f"f{number}": SPLIT, "apart": apart})
        ground.apply(apart=apart)
        ground.apply(**{f"f{number + 1}": SPLIT, "apart": apart})
        ground.apply(**{f"f{number + 1}": SPLIT})
    ground.open_paths(left)
    after = ground.heard(*NAMES)
    assert {key[1:] for key in before if after[key] != before[key]} <= left


def test_a_paused_member_says_nothing_until_it_goes_on(ground: Ground) -> None:
    ground.open_paths(EVERYONE)
    ground.backend.pause("n1")
    assert ground.open_paths(pairs("n0 n2"), at=("n0", "n2")) == pairs("n0 n2")
    ground.backend.resume("n1")
    assert ground.open_paths(EVERYONE) == EVERYONE


def test_a_killed_member_comes_back_as_another_process(ground: Ground) -> None:
    process = ground.netns.opened.members.processes["n1"]
    before = ground.state("n1")["pid"]
    assert process.pid == before
    ground.backend.kill("n1")
    assert process.code == -signal.SIGKILL
    ground.backend.restart("n1")
    ground.wait_until(lambda: ground.answers("n1"), "it answers")
    assert ground.state("n1")["pid"] != before
    assert ground.open_paths(EVERYONE) == EVERYONE


def test_a_paused_member_that_is_stopped_ends_when_it_goes_on(ground: Ground) -> None:
    process = ground.netns.opened.members.processes["n0"]
    ground.backend.pause("n0")
    ground.backend.stop("n0")
    assert ground.backend.is_alive("n0")
    ground.backend.resume("n0")
    assert process.wait() == 0
    assert not ground.backend.is_alive("n0")


def test_a_smaller_mtu_is_known_to_who_sends(ground: Ground) -> None:
    assert ground.state("n0")["largest"] == 1500
    ground.netns.opened.network.set_mtu(1400)
    assert {ground.state(name)["largest"] for name in NAMES} == {1400}


def test_a_small_disk_is_soon_full_and_gone_with_its_network(tmp_path: Path) -> None:
    network = Network(RunId.next(), ("n0",))
    network.small_disk(tmp_path, 1 << 20)
    try:
        with pytest.raises(OSError, match="No space"):
            (tmp_path / "large").write_bytes(bytes(2 << 20))
    finally:
        network.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_machine_that_stood_still_is_noted_as_a_pause_of_everyone(cluster: Clusters) -> None:
    """The machine cannot be stopped here; but the process that watches it can."""
    backend = netns()
    group = cluster(2, backend=backend)
    watch = backend.opened.watch
    begun = time.monotonic()
    os.kill(watch.pid, signal.SIGSTOP)
    group.multicast(10)
    group.wait(0.5)
    os.kill(watch.pid, signal.SIGCONT)
    until(lambda: bool(watch.spans()), 5.0, lambda: "it is noted")
    ended = time.monotonic()
    steps = group.finish().run.evidence.rig.steps
    mine = [step for step in steps if begun - 0.1 < step.time < ended]
    assert [step.do for step in mine] == ["pause"] * 4
    assert [step.phase for step in mine] == ["on", "on", "off", "off"]
    assert {step.member for step in mine} == set(group.session.roster.names)
    times = [step.time for step in mine]
    assert begun - 0.1 < times[0] < begun + 0.1
    assert begun + 0.5 <= times[-1] <= ended


# -- When its process is killed ------------------------------------------------------------------

_DIES = """
import sys, time
from pathlib import Path
sys.path[:0] = {paths}
from tests.integration.test_netns_backend import Ground
ground = Ground(Path({folder!r}))
ground.begin()
ground.backend.pause("n1")
opened = ground.netns.opened
disk = Path({folder!r}) / "disk"
disk.mkdir()
opened.network.small_disk(disk, 1 << 20)
pids = [process.pid for process in opened.members.processes.values()]
print(opened.network.run, *pids, flush=True)
{rest}
"""


def doomed(tmp_path: Path, rest: str) -> tuple[subprocess.Popen[str], RunId, list[int]]:
    """Another process with a backend, one member of which is paused."""
    root = str(Path(__file__).parents[2])
    script = _DIES.format(paths=[root], folder=str(tmp_path / "theirs"), rest=rest)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    run, *pids = process.stdout.readline().split()
    parsed = RunId.parse(run)
    assert parsed is not None
    return process, parsed, [int(pid) for pid in pids]


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def all_of(run: RunId) -> Callable[[RunId], bool]:
    return lambda other: other == run


def test_members_die_with_a_process_that_is_killed_even_paused_and_the_rest_is_cleaned(
    tmp_path: Path,
) -> None:
    process, run, pids = doomed(tmp_path, "time.sleep(60)")
    assert len(pids) == 3
    process.kill()
    process.communicate()
    until(lambda: all(map(is_gone, pids)), 5.0, lambda: f"{pids} are gone")

    found = leftovers(is_left=all_of(run))
    assert len(found.spaces) == 4
    assert len(found.mounts) == 1
    assert not found.processes
    assert set(found.spaces) <= set(leftovers().spaces)
    assert clean(is_left=all_of(run)) == found.names()
    assert not leftovers(is_left=all_of(run)).names()


def test_what_lives_is_no_leftover(ground: Ground) -> None:
    run = ground.netns.opened.network.run
    assert not [name for name in leftovers().names() if str(run) in name]
    assert leftovers(is_left=all_of(run)).processes, "they would be found if it were dead"
    assert ground.open_paths(EVERYONE) == EVERYONE


@pytest.mark.parametrize(
    "rest",
    [
        "sys.exit(3)",
        "raise RuntimeError",
        "import os, signal; os.kill(os.getpid(), signal.SIGINT); time.sleep(60)",
    ],
)
def test_a_process_that_ends_in_any_other_way_leaves_nothing(tmp_path: Path, rest: str) -> None:
    process, run, pids = doomed(tmp_path, rest)
    process.communicate(timeout=20)
    assert all(map(is_gone, pids))
    assert not leftovers(is_left=all_of(run)).names()


_INTERRUPTED = """
import os, shutil
os.setpgid(0, 0)
tools = disk.parent / "tools"
tools.mkdir()
program = tools / "ip"
program.write_text(f'''#!/bin/sh
case "$*" in *-force*)
    if [ "$(ls {{tools}} | wc -l)" -le {times} ]; then
        mktemp -p {{tools}} > /dev/null
        kill -s INT -- -{{os.getpid()}}
        sleep 5
    fi
esac
exec {{shutil.which("ip")}} "$@"
''')
program.chmod(0o755)
os.environ["PATH"] = f"{{tools}}:{{os.environ['PATH']}}"
ground.backend.close()
"""


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_while_namespaces_are_removed_leaves_none(tmp_path: Path, times: int) -> None:
    """It reaches all processes of a terminal's foreground: the program that removes them, too."""
    process, run, pids = doomed(tmp_path, _INTERRUPTED.format(times=times))
    process.communicate(timeout=20)
    assert process.returncode == -signal.SIGINT
    assert len(list((tmp_path / "theirs" / "tools").iterdir())) == 1 + times
    assert all(map(is_gone, pids))
    assert not leftovers(is_left=all_of(run)).names()


def test_a_process_in_a_leftover_namespace_is_ended_with_it(tmp_path: Path) -> None:
    """One that the kernel did not kill, because it freed itself."""
    rest = (
        "import subprocess\n"
        "words = opened.network.inside('n0', ('setpriv', '--pdeathsig', 'clear', 'sleep', '60'))\n"
        "print(subprocess.Popen(words, stdout=subprocess.DEVNULL).pid, flush=True)\n"
        "time.sleep(60)"
    )
    process, run, _pids = doomed(tmp_path, rest)
    assert process.stdout is not None
    free = int(process.stdout.readline())
    until(lambda: Path(f"/proc/{free}/comm").read_text() == "sleep\n", 5.0, lambda: "it sleeps")
    process.kill()
    process.communicate()
    assert not is_gone(free)
    clean(is_left=all_of(run))
    # It was never ours to wait for; init, or whoever stands in for it, does.
    until(lambda: _is_dead(free), 5.0, lambda: f"{free} ends")
    assert not leftovers(is_left=all_of(run)).names()


def _is_dead(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return text[text.rindex(")") + 2] == "Z"
