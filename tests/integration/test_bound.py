"""Programs that do not outlive who started them, and what is found of those that do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from stormcast.chaos.backends.netns import RunId, clean
from stormcast.chaos.backends.netns.leftovers import leftovers
from stormcast.chaos.backends.netns.names import OF_RUN
from stormcast.chaos.backends.netns.process import environment, kill_for_sure, until
from stormcast.chaos.backends.run_id import start_of
from stormcast.pipeline.session import own_prefix

SECONDS = 20.0
"""For what takes milliseconds on a machine that has nothing else to do."""
# The child waits until it has been inherited, and only then becomes the program.
_DIES_FIRST = """
import os, sys, time
from stormcast.node.bound import bound_to_me
words = bound_to_me(("sh", "-c", "echo > ran; exec sleep 60"))
mine = os.getpid()
child = os.fork()
if child:
    print(child, flush=True)
    os._exit(0)
while os.getppid() == mine:
    time.sleep(0.001)
os.execvp(words[0], words)
"""
_LIVES = """
import subprocess, sys, time
from stormcast.node.bound import bound_to_me
words = bound_to_me(("sh", "-c", "echo > ran; exec sleep 60"))
print(subprocess.Popen(words, stdout=subprocess.DEVNULL).pid, flush=True)
time.sleep(60)
"""


def starts(script: str, folder: Path) -> tuple[subprocess.Popen[str], int]:
    """A process, and the pid of the program that it starts."""
    words = (sys.executable, "-c", script)
    process = subprocess.Popen(
        words, cwd=folder, env=environment({}), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def wait_for_end(pid: int) -> None:
    until(lambda: start_of(pid) is None, SECONDS, lambda: f"{pid} ends")


def test_a_program_whose_parent_was_gone_before_it_asked_to_die_with_it_does_not_begin(
    tmp_path: Path,
) -> None:
    process, pid = starts(_DIES_FIRST, tmp_path)
    started = start_of(pid)
    process.communicate()
    try:
        wait_for_end(pid)
    finally:
        if started is not None:
            kill_for_sure(pid, started)
    assert not (tmp_path / "ran").exists()


def test_a_program_runs_under_the_pid_that_its_parent_knows_and_dies_with_it(
    tmp_path: Path,
) -> None:
    process, pid = starts(_LIVES, tmp_path)
    until((tmp_path / "ran").exists, SECONDS, lambda: "it runs")
    until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", SECONDS, lambda: "sleeps")
    process.kill()
    process.communicate()
    wait_for_end(pid)


# -- What is left ----------------------------------------------------------------------------------


def no_spaces(_argv: Sequence[str], _stdin: str = "") -> str:
    """A machine without namespaces."""
    return ""


def gone() -> RunId:
    """A run of a process that is gone: another one has its pid."""
    mine = RunId.next()
    return RunId(mine.pid, mine.started - 1, mine.number)


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes of a run that is gone, of one that lives, and of none."""
    marks: tuple[dict[str, str], ...] = ({OF_RUN: str(gone())}, {OF_RUN: str(RunId.next())}, {})
    found = [subprocess.Popen(("/bin/sleep", "60"), env={**os.environ, **mark}) for mark in marks]
    for process in found:
        until(
            lambda pid=process.pid: Path(f"/proc/{pid}/comm").read_text() == "sleep\n",  # type: ignore[misc]
            SECONDS,
            lambda: "it sleeps",
        )
    try:
        yield found
    finally:
        for process in found:
            process.kill()
            process.wait()


def test_a_process_that_outlived_its_run_is_found_and_ended_and_no_other(
    sleepers: list[subprocess.Popen[bytes]],
) -> None:
    left, kept, stranger = sleepers

    found = leftovers(no_spaces, is_left=lambda run: not run.has_owner() and run.pid == os.getpid())
    assert [process.pid for process in found.processes] == [left.pid]
    assert found.names() == [f"process {left.pid} of {found.processes[0].run}"]

    assert clean(no_spaces, is_left=lambda run: run == found.processes[0].run) == found.names()
    assert left.wait(SECONDS) == -9
    assert kept.poll() is None
    assert stranger.poll() is None


def test_a_pid_that_has_become_that_of_another_process_is_not_killed(
    sleepers: list[subprocess.Popen[bytes]],
) -> None:
    other = sleepers[0]
    started = start_of(other.pid)
    assert started is not None
    kill_for_sure(other.pid, started - 1)
    assert other.poll() is None
    kill_for_sure(other.pid, started)
    assert other.wait(SECONDS) == -9


def test_temporary_folders_of_a_run_are_found_by_its_name_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run, lives = gone(), RunId.next()
    for name in (f"{run}-abc", f"{lives}-abc", "sc-mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "agent.log").write_text("said\n")
    (tmp_path / f"{run}-link").symlink_to(tmp_path / "sc-mine")

    assert clean(no_spaces, is_left=lambda other: other == run) == [str(tmp_path / f"{run}-abc")]

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [f"{lives}-abc", "sc-mine", f"{run}-link"]
    )
    assert (tmp_path / "sc-mine" / "agent.log").exists()


_JUDGES = """
import os, signal, sys, tempfile
from stormcast.pipeline.session import own_prefix
tempfile.tempdir = sys.argv[1]
with tempfile.TemporaryDirectory(prefix=own_prefix()):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_temporary_folder_of_a_judge_that_was_killed_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark keeps there what it sorts: it may be large."""
    killed = subprocess.Popen((sys.executable, "-c", _JUDGES, tmp_path), env=environment({}))
    assert killed.wait(SECONDS) == -9
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (left,) = map(str, tmp_path.iterdir())
    (tmp_path / f"{own_prefix()}of-one-that-lives").mkdir()
    assert clean(
        no_spaces, is_left=lambda run: run.pid in (killed.pid, os.getpid()) and not run.has_owner()
    ) == [left]
    assert [path.name for path in tmp_path.iterdir()] == [f"{own_prefix()}of-one-that-lives"]
