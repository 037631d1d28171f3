"""What a machine does to its members: it stops them, fills their disks, moves their clocks."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from node.trace import TRUNCATED, read_blocks_untrusted
from tests.integration.members import (
    NAMES,
    SHORT_QUIET,
    assert_holds,
    finish,
    group,
    load,
    settle,
    short_of,
    suspicions,
    wait_for_traffic,
)

pytestmark = [pytest.mark.root, pytest.mark.slow]

THREE = NAMES[:3]
MIB = 1 << 20
STOPPED_SECONDS = 10.0
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
needs_faketime = pytest.mark.skipif(
    not FAKETIME.exists(), reason="there is no faketime: apt-get install faketime"
)
BUSY: dict[str, object] = {"do": "multicast", "rate": "2000/s", "size": "100B", "burst": 5,
                           "duration": "3600s"}  # fmt: skip


@pytest.mark.parametrize("stack", ["udp", pytest.param("tcp-nio2", marks=pytest.mark.long)])
def test_a_member_that_is_stopped_for_ten_seconds_is_expelled_and_merged_back(
    stack: str, tmp_path: Path
) -> None:
    """For it, it is a jump of the monotonic clock: all its deadlines are past when it goes on."""
    with group(tmp_path, stack, THREE) as rig:
        view = rig.start_all()
        load(rig, THREE)
        wait_for_traffic(rig, THREE)
        stopped = next(name for name in THREE if name != view["coordinator"])
        others = tuple(name for name in THREE if name != stopped)
        before = short_of(rig, stopped)

        begun = time.monotonic()
        rig.pause(stopped)
        rig.wait_for_view(others)
        wait_for_traffic(rig, others)
        rig.sleep(max(0.0, STOPPED_SECONDS - (time.monotonic() - begun)))
        rig.resume(stopped)

        rig.wait_for_view(THREE)
        wait_for_traffic(rig, THREE)
        assert short_of(rig, stopped) == before
        evidence = finish(rig, SHORT_QUIET)
    assert_holds(evidence)


def test_a_full_disk_costs_the_journal_and_not_the_member(tmp_path: Path) -> None:
    """The journal of one member shares 8 MiB with something that takes the rest of it and later
    goes. The member goes on as if nothing were; its journal says what is missing, and goes on when
    there is room again."""
    with group(tmp_path, "udp", THREE) as rig:
        disk = rig.spec("n1").folder / "journal"
        disk.mkdir(parents=True)
        rig.network.small_disk(disk, 8 * MIB)
        rig.start_all()
        load(rig, THREE, BUSY)
        wait_for_traffic(rig, THREE)
        ballast = disk / "ballast"
        fill(ballast)

        def lost() -> int:
            number: int = rig.stats("n1")["journal.events_lost"]
            return number

        rig.wait_until(lambda: lost() > 1000, 60.0, "a full disk", 0.2)
        assert rig.state("n1")["journal_trouble"] == "no space left on device"
        wait_for_traffic(rig, THREE, 500)
        ballast.unlink()
        rig.wait_until(lambda: not rig.state("n1")["journal_trouble"], 20.0, "room again")
        wait_for_traffic(rig, THREE, 500)
        assert rig.stats("n0")["journal.events_lost"] == 0
        missing = lost()
        evidence = finish(rig, 1.0)
        blocks = [
            block
            for label, data in rig.collect().items()
            if label.startswith("n1-")
            for block in read_blocks_untrusted(data, xxh3_64_intdigest)
        ]
    notices = [event for block in blocks for event in block.events if event.kind == TRUNCATED]
    assert notices
    assert sum(event.count for event in notices) == missing
    after = [block for block in blocks if block.first > notices[-1].hi]
    assert after, "it goes on"
    assert evidence.defects, "what a journal lacks must not pass for what did not happen"


def fill(path: Path) -> None:
    """Take all the room that there is."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


@needs_faketime
def test_jumps_of_the_wall_clock_are_nothing_to_a_group(tmp_path: Path) -> None:
    """An hour ahead, a day back, and to 1980, at one member, while everyone talks."""
    clock = tmp_path / "clock"
    clock.write_text("+0")
    faked = {**faketime(clock), "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    with group(tmp_path, "udp", THREE) as rig:
        for name in THREE:
            rig.start(name, env=faked if name == "n1" else None)
        rig.wait_for_view(THREE)
        load(rig, THREE)
        jumper = short_of(rig, "n1")
        for jump in ("+3600", "-86400", "@1980-01-01 00:00:00", "+0"):
            clock.write_text(jump)
            wait_for_traffic(rig, THREE)
        assert rig.wait_for_view(THREE)["id"] == rig.state("n0")["view"]["id"]
        evidence = finish(rig, SHORT_QUIET)
    assert suspicions(evidence, jumper) == []
    assert_holds(evidence)


@needs_faketime
def test_a_member_whose_monotonic_clock_jumps_comes_back(tmp_path: Path) -> None:
    """Ten minutes ahead at once, as after a sleep of the machine that the clock counts. All who
    are silent are overdue then; after a while all are together, and nobody got anything wrong.

    Its journal is in a time of its own, so only what members say is judged."""
    clock = tmp_path / "clock"
    clock.write_text("+0")
    with group(tmp_path, "udp", THREE) as rig:
        for name in THREE:
            rig.start(name, env=faketime(clock) if name == "n1" else None)
        rig.wait_for_view(THREE)
        load(rig, THREE)
        wait_for_traffic(rig, THREE)
        clock.write_text("+600")
        rig.sleep(1.0)
        rig.wait_for_view(THREE)
        wait_for_traffic(rig, THREE)
        settle(rig)
        for name in THREE:
            assert rig.state(name)["workload"]["mismatches"] == 0
            assert rig.stop(name) == 0


def faketime(clock: Path) -> dict[str, str]:
    """The environment in which a file says what time it is."""
    return {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
    }
