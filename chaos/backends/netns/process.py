"""One incarnation of a member: a process, steered by signals.

The kernel kills it when the thread that started it ends, for whatever reason, and even while the
process is stopped: so no paused process outlives its owner.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.netns.names import OF_RUN
from stormcast.chaos.backends.run_id import RunId, start_of
from stormcast.chaos.records.exits import KILLED, TOLD_TO_LEAVE
from stormcast.weights import weigh

POLL_SECONDS: Final = 0.005
STOP_SECONDS: Final = 15.0
"""Seconds that a process may take to end once it was asked to, unless said otherwise."""
GONE_SECONDS: Final = 5.0
"""Seconds that a killed process may take to end: the kernel frees its memory first."""
LOG_LINES: Final = 15
SETTINGS: Final = "STORMCAST_"
"""The prefix of the environment variables that are settings of a member."""


class Process:
    """A process that was started, and its log."""

    def __init__(
        self, argv: Sequence[str], folder: Path, label: str, environment: Mapping[str, str]
    ) -> None:
        self.argv = tuple(argv)
        self.log = folder / f"{label}.log"
        """The file with its stdout and stderr."""
        self.is_paused = False
        self.told: signal.Signals | None = None
        """The signal by which its owner told it to end, while it still ran."""
        self.seen_alive = time.monotonic()
        """The time of the last look that found it running."""
        with self.log.open("ab") as log:
            self._popen = subprocess.Popen(  # noqa: S603 our own words, and no shell
                self.argv,
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is to reach only the rig, which then ends this process in good order.
                process_group=0,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def is_alive(self) -> bool:
        now = time.monotonic()
        if self._popen.poll() is not None:
            return False
        self.seen_alive = now
        return True

    @property
    def is_ended_by_order(self) -> bool:
        """Whether it ended as its owner told it to; a failure while it leaves is no order."""
        as_told = TOLD_TO_LEAVE if self.told == signal.SIGTERM else KILLED
        return self.told is not None and self.code in as_told

    @property
    def code(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None while it runs."""
        return self._popen.poll()

    def stop(self, timeout: float = STOP_SECONDS) -> int:
        """Resume it, ask it to end, and wait; returns its exit code."""
        self.resume()
        self.ask_to_end()
        return self.wait(timeout)

    def ask_to_end(self) -> None:
        """Send SIGTERM, without waiting; a paused process takes it when it is resumed."""
        self._tell(signal.SIGTERM)

    def wait(self, timeout: float = STOP_SECONDS) -> int:
        """Wait for its end; returns its exit code. BackendError if it does not end in time."""
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise BackendError(
                f"pid {self.pid} runs on after {timeout:g}s\n{self.tail()}"
            ) from None

    def kill(self) -> None:
        """End it at once, paused or not."""
        self._tell(signal.SIGKILL)
        self._popen.wait()
        self.is_paused = False

    def pause(self) -> None:
        """Stop the process, and wait until it has stopped."""
        if not self.is_alive:
            return
        self._signal(signal.SIGSTOP)
        self.is_paused = True
        # It may have been killed just now; then it keeps its entry in /proc until it is waited for.
        until(
            lambda: _state(self.pid) == "T" or not self.is_alive,
            5.0,
            lambda: f"pid {self.pid} is not stopped",
        )

    def resume(self) -> None:
        """Resume the process, if it is paused."""
        if self.is_paused:
            self._signal(signal.SIGCONT)
            self.is_paused = False

    def rss(self) -> int:
        """Return its resident memory, in bytes."""
        return int(weigh(self.pid)["memory"])

    def tail(self, lines: int = LOG_LINES) -> str:
        """Return the last lines of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def _tell(self, number: signal.Signals) -> None:
        if self.is_alive:
            self.told = number
            self._signal(number)

    def _signal(self, number: signal.Signals) -> None:
        # Popen knows whether the process was waited for: it never signals a pid used again.
        self._popen.send_signal(number)


def kill_for_sure(pid: int, started: int) -> None:
    """Kill a process that is no child of this one, if it is still the one that began at `started`,
    and wait until it has ended, for some seconds at most."""
    try:
        # A descriptor stays that of one process, whoever has its pid later.
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if start_of(pid) == started:
            signal.pidfd_send_signal(process, signal.SIGKILL)
            select.select([process], [], [], GONE_SECONDS)
    except ProcessLookupError:
        return
    finally:
        os.close(process)


def _state(pid: int) -> str | None:
    """Return the letter of a process's state; None if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 2]


def until(
    is_done: Callable[[], bool],
    timeout: float,
    explain: Callable[[], str],
    poll: float = POLL_SECONDS,
) -> None:
    """Wait until `is_done`; BackendError with the explanation after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not is_done():
        if time.monotonic() > deadline:
            raise BackendError(f"not within {timeout:g}s: {explain()}")
        time.sleep(poll)


def environment(extra: Mapping[str, str], run: RunId | None = None) -> dict[str, str]:
    """Return this process's environment for a child. Python finds this very tree, whichever is
    installed. Variables that are settings of a member go: only its configuration is to set it. The
    child of a run carries the name of the run."""
    tree = str(Path(__file__).parents[4])
    paths = [tree, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    ours = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}
    return {
        **ours,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONFAULTHANDLER": "1",
        "PYTHONUNBUFFERED": "1",
        **({} if run is None else {OF_RUN: str(run)}),
        **extra,
    }
