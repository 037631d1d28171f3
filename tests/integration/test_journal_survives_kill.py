"""A journal outlives its process: killed at any moment, it holds what was reported as written."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from stormcast.node.core.errors import ConfigError
from tests.helpers.journals import LABEL, Member, find

ROOT = Path(__file__).parents[2]
PATIENCE = 20.0
"""Seconds after which a process that does not do its part has failed."""

WRITER = """
import os, random, sys
from pathlib import Path
from tests.helpers.journals import Member

folder, seed = Path(sys.argv[1]), int(sys.argv[2])
chance = random.Random(seed)
member = Member(folder, segment_bytes=chance.choice((4096, 20_000, 1 << 20)))
while True:
    member.now += 0.001
    member.turn(chance.randrange(1, 60), text="x" * chance.randrange(500))
    os.write(1, member.events.to_bytes(8, "little"))
"""
"""Reports after each turn how many events are written, as a member would send frames."""


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.01)


@contextmanager
def writer(folder: Path, seed: int) -> Iterator[Path]:
    """A member in a process of its own, which is killed in the end; where its reports are."""
    reports = folder.with_suffix(".reports")
    with reports.open("wb") as file:
        words = [sys.executable, "-c", WRITER, folder, str(seed)]
        process = subprocess.Popen(words, stdout=file, cwd=ROOT)
    try:
        until(lambda: reports.stat().st_size, "a first report")
        yield reports
    finally:
        process.kill()
        process.wait()


def last_report(reports: Path) -> int:
    """How many events the member said were written."""
    data = reports.read_bytes()
    end = len(data) // 8 * 8
    return int.from_bytes(data[end - 8 : end], "little")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_whatever_was_reported_as_written_is_read_after_a_kill(tmp_path: Path, seed: int) -> None:
    """Without a flush, at a random moment, in segments of several sizes."""
    with writer(tmp_path / "run", seed) as reports:
        time.sleep(random.Random(seed).uniform(0.0, 0.3))
    reported = last_report(reports)
    found = find(tmp_path / "run" / LABEL)
    assert reported > 1
    assert len(found.numbers) >= reported
    assert found.numbers == list(range(len(found.numbers)))
    assert found.losses == []
    # What a kill cut short is no block, and left something or nothing behind.
    assert all("torn block" in note for note in found.notes)


@pytest.mark.slow
def test_a_journal_is_followed_while_it_is_written(tmp_path: Path) -> None:
    """By another process, from the first event to the last; Ctrl-C ends it quietly."""
    printed = tmp_path / "printed"
    with writer(tmp_path / "run", seed=1) as reports:
        with printed.open("wb") as out:
            words = ["-m", "stormcast", "trace", "tail", "-f", "--lines", "0", tmp_path / "run"]
            tail = subprocess.Popen(
                [sys.executable, *words], stdout=out, stderr=subprocess.PIPE, cwd=ROOT
            )
        try:
            until(lambda: printed.stat().st_size > 1 << 20, "a megabyte of events")
        finally:
            tail.send_signal(signal.SIGINT)
            _, said = tail.communicate(timeout=PATIENCE)
    assert tail.returncode == 0
    assert said == b""
    numbers = [int(line.split(b"#")[1].split()[0]) for line in printed.read_bytes().splitlines()]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert numbers[-1] < last_report(reports) + 60


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB in memory."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "stormcast-test", place]
    subprocess.run(mount, check=True, timeout=PATIENCE)
    try:
        yield place
    finally:
        unmount = ["umount", "--lazy", place]
        subprocess.run(unmount, check=True, timeout=PATIENCE)


@pytest.mark.root
def test_a_member_outlives_a_full_disk_and_says_what_is_missing(small_disk: Path) -> None:
    """Others fill the disk, and make room again: no signal, no error, nothing lost in silence."""
    member = Member(small_disk, segment_bytes=64 << 10)
    member.turns(100, step=0.01)
    ballast = small_disk / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    while not member.journal.trouble:
        member.turns(1, step=0.01)
    assert member.journal.trouble == "no space left on device"
    member.turns(1000, step=0.01)
    lost_meanwhile = member.journal.events_lost
    assert lost_meanwhile >= 1000
    unclosed = find(member.folder)
    assert unclosed.losses == [(0, len(unclosed.numbers), 0, "no space left on device")]

    ballast.unlink()
    member.turns(500, step=0.01)
    assert member.journal.trouble == ""
    found = find(member.folder)
    missing = sorted(set(range(member.events)) - set(found.numbers))
    assert len(missing) == member.journal.events_lost
    assert lost_meanwhile <= len(missing) <= lost_meanwhile + 100
    assert found.losses[1:] == [(len(missing), missing[0], missing[-1], "no space left on device")]
    member.journal.close()


@pytest.mark.root
def test_a_disk_that_is_full_from_the_start_is_said_to_be(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(bytes(1 << 20))
    with pytest.raises(ConfigError, match="cannot be written \\(no space left on device\\)"):
        Member(small_disk)
