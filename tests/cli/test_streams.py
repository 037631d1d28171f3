"""The command where stdout or stderr is closed, full, or read by nobody."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from stormcast.chaos.backends.netns.process import environment
from stormcast.cli import COMMANDS
from stormcast.exits import Exit
from tests.helpers.journals import Member

pytestmark = pytest.mark.slow

SCENARIO = """
name: two
about: Two members, and a message.
guarantees: [G1]
cluster: {members: 2, stack: unicast-only, timing: fast}
workload:
- {do: unicast, from: n0, to: n1, count: 1, size: 100B}
limits: {run: 5s}
"""
LOST = "stormcast: stdout cannot be written to: "


def stormcast(folder: Path, redirected: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The command as a shell starts it, with its streams redirected."""
    whole = [sys.executable, "-m", "stormcast", *words]
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {redirected}', "sh", *whole],
        cwd=folder, env=environment({}), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip  # one command


@pytest.mark.parametrize(
    ("redirected", "why"), [(">&-", "it is closed"), (">/dev/full", "no space left on device")]
)
@pytest.mark.parametrize("command", ["--version", "run", "plan", "node"])
def test_results_that_cannot_be_written_are_said_in_one_line(
    command: str, redirected: str, why: str, tmp_path: Path
) -> None:
    """No verdict: whoever asked has not been told. What a run leaves in its directory stays."""
    (tmp_path / "two.yaml").write_text(SCENARIO)
    words = {
        "run": ("run", "two.yaml", "--out", "out"),
        "plan": ("plan", "two.yaml"),
        "node": ("node", "--print-config"),
    }.get(command, (command,))
    done = stormcast(tmp_path, redirected, *words)
    assert (done.returncode, done.stderr) == (Exit.UNKNOWN, f"{LOST}{why}\n")
    assert (tmp_path / "out" / "verdict.json").exists() is (command == "run")


PIPE = 4096
"""The smallest pipe: half of what the command hands to the kernel at a time."""
PATIENCE = 60.0


def interrupted_while_writing(folder: Path, *words: str) -> tuple[int, str, str]:
    """Send SIGINT to the command while half of a write is in a pipe that nobody reads; return its
    exit code, and all that it wrote to stdout and stderr."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE)
    with subprocess.Popen(
        [sys.executable, "-m", "stormcast", *words],
        cwd=folder, env=environment({}), stdout=writing, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip  # one command
        os.close(writing)
        end = time.monotonic() + PATIENCE
        while _waiting_bytes(reading) < PIPE:
            assert time.monotonic() < end, "the pipe never filled"
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        with os.fdopen(reading, encoding="utf-8") as file:
            out = file.read()
        _, said = process.communicate(timeout=PATIENCE)
    return process.returncode, out, said


def _waiting_bytes(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_an_interrupt_in_the_middle_of_a_write_has_nothing_written_twice(tmp_path: Path) -> None:
    """A journal of several blocks and segments, of which all was to be printed."""
    member = Member(tmp_path / "run")
    for _ in range(20):
        member.now += 0.001
        member.turn(20)
    words = ("trace", "tail", "-f", "--lines", "400", str(tmp_path / "run"))
    code, out, said = interrupted_while_writing(tmp_path, *words)
    assert (code, said) == (0, "")
    lines = out.splitlines()
    numbers = [int(line.split("#")[1].split()[0]) for line in lines]
    assert len(out) > PIPE
    assert numbers == list(range(1, len(lines) + 1))


def test_every_sub_command_does_so(tmp_path: Path) -> None:
    script = f"""
import os, sys
from stormcast.cli import COMMANDS, main
full = os.open("/dev/full", os.O_WRONLY)
for name in COMMANDS:
    sys.stdout = sys.__stdout__
    os.dup2(full, 1)
    try:
        code = main([name, "--help"])
    except SystemExit as end:
        code = end.code
    if code != {int(Exit.UNKNOWN)}:
        print(name, code, file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path, env=environment({}), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip  # one command
    assert done.stderr.splitlines() == [f"{LOST}no space left on device"] * len(COMMANDS)


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    done = stormcast(tmp_path, "| true", "--version")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("redirected", ["2>&-", "2>/dev/full"])
def test_a_line_that_nobody_can_be_told_changes_no_exit_code(
    redirected: str, tmp_path: Path
) -> None:
    """1 would say that something was violated."""
    assert stormcast(tmp_path, redirected, "nosuch").returncode == Exit.USAGE
    (tmp_path / "two.yaml").write_text(SCENARIO)
    done = stormcast(tmp_path, redirected, "run", "two.yaml", "--out", "out")
    assert done.returncode == Exit.HOLDS
    assert done.stdout.startswith("two: holds")


def test_no_file_gets_the_number_of_a_stream_that_is_closed(tmp_path: Path) -> None:
    """What a child process prints would be written into it."""
    script = """
import os
from stormcast.streams import guard
guard()
held = os.open("file", os.O_CREAT | os.O_WRONLY)
os._exit(held)
"""
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", script],
        cwd=tmp_path, env=environment({}), timeout=60, check=False,
    )  # fmt: skip  # one command
    assert done.returncode > 2
