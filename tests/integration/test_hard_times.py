"""What a machine does to its members: it stops them, fills their disks, moves their clocks."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.chaos.backends.netns.commands import MemberSpec, member_argv
from stormcast.chaos.backends.netns.members import Argv
from stormcast.chaos.backends.netns.process import environment
from stormcast.chaos.plugin.live_cluster import Chaos, Clusters, VerdictError
from stormcast.node.trace import OFFERED, TRUNCATED, read_blocks_untrusted
from stormcast.node.trace.files import find_sources
from tests.helpers.live import (
    AS_SHIPPED,
    ENDLESS,
    netns,
    process,
    short_of,
    stats,
    suspicions,
    talk,
)
from tests.kills import counting
from tests.kills.blocks import kept

pytestmark = [pytest.mark.root, pytest.mark.slow]

MIB = 1 << 20
STOPPED_SECONDS = 10.0
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
needs_faketime = pytest.mark.skipif(
    not FAKETIME.exists(), reason="there is no faketime: apt-get install faketime"
)


@pytest.mark.parametrize("stack", ["udp", pytest.param("tcp-nio2", marks=pytest.mark.long)])
def test_a_member_that_is_stopped_for_ten_seconds_is_expelled_and_merged_back(
    stack: str, cluster: Clusters, chaos: Chaos
) -> None:
    """For it, it is a jump of the monotonic clock: all its deadlines are past when it goes on."""
    group = cluster(3, stack=stack, backend=netns(), protocols=AS_SHIPPED.get(stack, {}))
    talk(group)
    group.wait_for_traffic()
    coordinator, stopped, other = group.view("n0") or ()
    before = group.state(stopped)["short"]
    with chaos.pause(stopped):
        begun = group.now
        group.wait_for_view(coordinator, other)
        group.wait_for_traffic(coordinator, other)
        group.wait(max(0.0, STOPPED_SECONDS - (group.now - begun)))
    group.wait_for_view()
    group.wait_for_traffic()
    assert group.state(stopped)["short"] == before
    group.stop()
    group.finish()


def test_a_full_disk_costs_the_journal_and_not_the_member(cluster: Clusters, chaos: Chaos) -> None:
    """The journal of one member shares 8 MiB with something that takes the rest of it and later
    goes. The member goes on as if nothing were; its journal says what is missing, and goes on when
    there is room again."""
    backend = netns()
    group = cluster(3, backend=backend, protocols=AS_SHIPPED["udp"], late=["n1"])
    disk = group.session.plan.folder / "n1" / "journal"
    disk.mkdir()
    backend.opened.network.small_disk(disk, 8 * MIB)
    chaos.join("n1")
    group.wait_for_view()
    group.multicast(ENDLESS, rate="2000/s", size="100B", burst=5)
    group.wait_for_traffic()
    ballast = disk / "ballast"
    fill(ballast)

    def lost() -> int:
        return int(stats(group, "n1")["journal.events_lost"])

    group.wait_until(lambda: lost() > 1000, "a full disk")
    assert group.state("n1")["journal_trouble"] == "no space left on device"
    group.wait_for_traffic(more=500)
    ballast.unlink()
    group.wait_until(lambda: not group.state("n1")["journal_trouble"], "room again")
    group.wait_for_traffic(more=500)
    assert stats(group, "n0")["journal.events_lost"] == 0
    missing = lost()
    group.stop()
    # What a journal lacks must not pass for what did not happen.
    with pytest.raises(VerdictError, match="unknown"):
        group.finish()
    assert group.outcome is not None
    blocks = [
        block
        for label, data in group.outcome.run.traces.items()
        if label.startswith("n1-")
        for block in read_blocks_untrusted(data, xxh3_64_intdigest)
    ]
    notices = [event for block in blocks for event in block.events if event.kind == TRUNCATED]
    assert notices
    assert sum(event.count for event in notices) == missing
    after = [block for block in blocks if block.first > notices[-1].hi]
    assert after, "it goes on"
    assert group.outcome.run.evidence.defects


def fill(path: Path) -> None:
    """Take all the room that there is."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


@needs_faketime
def test_jumps_of_the_wall_clock_are_nothing_to_a_group(cluster: Clusters, tmp_path: Path) -> None:
    """An hour ahead, a day back, and to 1980, at one member, while everyone talks."""
    clock = tmp_path / "clock"
    clock.write_text("+0")
    argv = faked(clock, "FAKETIME_DONT_FAKE_MONOTONIC=1")
    group = cluster(3, backend=netns(argv), protocols=AS_SHIPPED["udp"])
    view = group.state("n0")["view"]["id"]
    talk(group)
    for jump in ("+3600", "-86400", "@1980-01-01 00:00:00", "+0"):
        clock.write_text(jump)
        group.wait_for_traffic()
    group.wait_for_view()
    assert group.state("n0")["view"]["id"] == view
    jumper = short_of(group, "n1")
    group.stop()
    assert suspicions(group.finish().run.evidence, jumper) == []


@needs_faketime
def test_a_member_whose_monotonic_clock_jumps_comes_back(
    cluster: Clusters, chaos: Chaos, tmp_path: Path
) -> None:
    """Ten minutes ahead at once, as after a sleep of the machine that the clock counts. All who
    are silent are overdue then; after a while all are together, and nobody got anything wrong.

    Its journal is in a time of its own, so only what members say is judged."""
    clock = tmp_path / "clock"
    clock.write_text("+0")
    group = cluster(3, backend=netns(faked(clock)), protocols=AS_SHIPPED["udp"])
    talk(group)
    group.wait_for_traffic()
    clock.write_text("+600")
    group.wait(1)
    group.wait_for_view()
    group.wait_for_traffic()
    group.stop()
    group.wait(2)
    for name in group.members:
        assert group.state(name)["workload"]["mismatches"] == 0
        chaos.leave(name)
        assert process(group, name).wait() == 0
    with suppress(VerdictError):
        group.finish()


def faked(clock: Path, *more: str) -> Argv:
    """The words that start members, of whom n1 is told by a file what time it is."""
    variables = (
        f"LD_PRELOAD={FAKETIME}",
        f"FAKETIME_TIMESTAMP_FILE={clock}",
        "FAKETIME_NO_CACHE=1",
        *more,
    )

    def argv(python: str, spec: MemberSpec) -> tuple[str, ...]:
        words = member_argv(python, spec)
        return ("env", *variables, *words) if spec.name == "n1" else words

    return argv


TALK = """
name: live
guarantees: [G1, G2, G3, G4]
cluster: {members: 3, stack: udp, timing: fast}
workload:
  - {do: multicast, from: all, count: 80, rate: 40/s, size: 64B}
timeline:
  - {at: 300ms, do: cut, from: n0, to: n1, for: 700ms}
limits: {run: 30s, settle: 1s}
"""
_CLOCK = """
import sys, time
from pathlib import Path

clock, real = Path(sys.argv[1]), time.time_ns
time.time_ns = lambda: real() + int(float(clock.read_text()) * 1e9)
time.time = lambda: time.time_ns() / 1e9
from stormcast.cli import main

sys.exit(main(sys.argv[2:]))
"""
"""The command with a wall clock that a file moves; what it starts has the one of the machine."""


@pytest.mark.root
@pytest.mark.parametrize("jump", ["3600", "-86400"])
def test_a_wall_clock_that_is_set_while_a_rig_starts_moves_nothing(
    tmp_path: Path, jump: str
) -> None:
    """After the rig looked, and before its members do: to who reads traces another zero of the
    clock would be another machine, whose times have to be moved."""
    clock = tmp_path / "clock"
    clock.write_text(jump)
    check_the_run(tmp_path, begun(tmp_path, clock))


@pytest.mark.root
@pytest.mark.parametrize("jump", ["3600", "-86400"])
def test_a_wall_clock_that_is_set_while_a_rig_plays_moves_nothing(
    tmp_path: Path, jump: str
) -> None:
    """While its fault acts, which its agent ends when a lease is over."""
    clock = tmp_path / "clock"
    clock.write_text("0")
    rig = begun(tmp_path, clock)
    while rig.poll() is None and not has_sent(tmp_path / "run"):
        time.sleep(0.01)
    assert rig.poll() is None, "it is over before it was met"
    clock.write_text(jump)
    check_the_run(tmp_path, rig)


def begun(folder: Path, clock: Path) -> subprocess.Popen[str]:
    """Start a rig whose wall clock a file moves."""
    (folder / "live.yaml").write_text(TALK)
    words = ("run", "live.yaml", "--backend", "netns", "--out", "run", "--json")
    return subprocess.Popen(
        (sys.executable, "-c", _CLOCK, str(clock), *words),
        cwd=folder, env=environment({}), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip  # one command


def has_sent(run: Path) -> bool:
    """Whether a member of this run has begun to send."""
    return any(
        event.kind == OFFERED
        for data in kept(run).values()
        for block in read_blocks_untrusted(data, xxh3_64_intdigest)
        for event in block.events
    )


def check_the_run(folder: Path, rig: subprocess.Popen[str]) -> None:
    stdout, stderr = rig.communicate(timeout=180)
    assert rig.returncode in (0, 3), stderr
    assert "Traceback" not in stderr
    walls = {
        block.wall_ns
        for source in find_sources(folder / "run")
        for block in read_blocks_untrusted(source.read(), xxh3_64_intdigest)
    }
    assert len(walls) == 1
    told = json.loads(stdout)
    assert told["virtual_seconds"] < 600.0
    assert told["resync"]["one_view"] < 600.0
    assert counting.wrong_verdicts(folder / "run", rig.returncode) == []
