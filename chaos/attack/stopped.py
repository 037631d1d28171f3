"""Processes that an attack ends or stops. Stopped ones go on when the attack is over, however it
ends: a process of its own waits for that, and then resumes them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from stormcast.chaos.backends.run_id import start_of
from stormcast.node.core.errors import NodeError

LOOKS: Final = 5
"""A process that is stopped may have started another one just before."""
END_SECONDS: Final = 10.0
_RESUMES: Final = """
import json, os, signal, sys
known = {}
for line in sys.stdin:
    for pid in json.loads(line):
        try:
            known.setdefault(pid, os.pidfd_open(pid))
        except OSError:
            pass
    print("ready", flush=True)
for process in known.values():
    try:
        signal.pidfd_send_signal(process, signal.SIGCONT)
    except OSError:
        pass
"""
"""Takes lists of processes on its input, which ends with whoever writes there; then resumes them
all. A descriptor stays that of one process, whoever has its pid later."""


class StopError(NodeError):
    """Processes could not be stopped, or go on too early."""


class Stopped:
    """Processes that were stopped, until `resume`, or until this process ends."""

    def __init__(self) -> None:
        self._resumer = subprocess.Popen(  # noqa: S603 our own words, and no shell
            (sys.executable, "-c", _RESUMES),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Ctrl-C is to reach only the attack, whose end is what this one waits for.
            process_group=0,
        )
        self._known: set[int] = set()

    def stop(self, listed: Callable[[], Iterable[int]]) -> int:
        """Stop the processes that `listed` returns, and those that they have started meanwhile;
        return how many those are."""
        before = len(self._known)
        for _look in range(LOOKS):
            new = sorted(set(listed()) - self._known)
            if not new:
                break
            # Before any of them is stopped: from then on there is somebody who resumes it.
            self._tell(new)
            for pid in new:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            self._known.update(new)
        return len(self._known) - before

    def check(self) -> None:
        """Raise StopError where the processes may go on already."""
        if self._resumer.poll() is not None:
            raise StopError("somebody ended the process that resumes the stopped ones")

    def resume(self) -> None:
        """Have all processes go on."""
        assert self._resumer.stdin is not None
        assert self._resumer.stdout is not None
        with suppress(OSError):
            self._resumer.stdin.close()
        try:
            self._resumer.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._resumer.kill()
            self._resumer.wait()
        self._resumer.stdout.close()
        if self._resumer.returncode:
            # It was killed: nobody else does it.
            for pid in self._known:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def _tell(self, pids: Sequence[int]) -> None:
        assert self._resumer.stdin is not None
        assert self._resumer.stdout is not None
        try:
            self._resumer.stdin.write(f"{json.dumps(pids)}\n")
            self._resumer.stdin.flush()
            said = self._resumer.stdout.readline()
        except OSError:
            said = ""
        if said != "ready\n":
            raise StopError("the process that resumes stopped ones has ended: nothing was stopped")


def end(pids: Iterable[int]) -> int:
    """Kill processes; return how many there were."""
    number = 0
    for pid in pids:
        if start_of(pid) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                number += 1
    return number
