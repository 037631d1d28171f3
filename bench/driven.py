"""A process that gets commands as lines, and answers each with one JSON line.

Members of ours and of the peers are driven alike, so that their rounds can take turns within one
run while all of them stay warm. A driven process ends when its stdin does, so a bench that was
killed leaves none behind.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Final

from bench.errors import BenchError

Answer = dict[str, Any]

LAST_LINES: Final = 8
"""Lines of a dead process's log that are shown: enough for an exception and where it came from."""
GOODBYE_SECONDS: Final = 5.0


class Driven:
    """One process under measurement."""

    def __init__(self, name: str, argv: list[str], log: Path) -> None:
        self.name = name
        self._log = log
        self._pending = b""
        # A session of its own: Ctrl-C is for the bench, which ends its processes in order.
        with log.open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603 an argv of our own making
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        self._out = self._process.stdout.fileno()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, command: str) -> None:
        """Send a command; `answer` waits until it is done."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(command.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._died() from None

    def answer(self, timeout: float) -> Answer:
        """Return the next answer; BenchError if none comes, or if it reports an error."""
        deadline = time.monotonic() + timeout
        while b"\n" not in self._pending:
            if not self._selector.select(max(0.0, deadline - time.monotonic())):
                raise BenchError(f"{self.name} did not answer within {timeout:.0f} s{self._tail()}")
            read = os.read(self._out, 1 << 16)
            if not read:
                raise self._died()
            self._pending += read
        line, _, self._pending = self._pending.partition(b"\n")
        try:
            said = json.loads(line)
        except ValueError:
            raise BenchError(f"{self.name} answered {line[:200]!r}, which is not JSON") from None
        if not isinstance(said, dict):
            raise BenchError(f"{self.name} answered {said!r}: not an object")
        if "error" in said:
            raise BenchError(f"{self.name}: {said['error']}")
        return said

    def ask(self, command: str, timeout: float) -> Answer:
        """Send a command, and wait for the answer."""
        self.tell(command)
        return self.answer(timeout)

    def freeze(self) -> None:
        """Stop the process where it is: a frozen member does not see others being killed."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """End the process at once; safe to call twice."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._close()

    def end(self) -> None:
        """Let the process end by itself; kill it after GOODBYE_SECONDS."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(GOODBYE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self.kill()

    def _close(self) -> None:
        self._selector.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue  # Nobody reads any more what was still to be sent.

    def _died(self) -> BenchError:
        code = self._process.wait()
        return BenchError(f"{self.name} ended with exit code {code}{self._tail()}")

    def _tail(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return "".join(f"\n    {line}" for line in lines[-LAST_LINES:])


def idle_figures(pid: int) -> Answer:
    """Return memory and threads of a process, as the kernel counts them."""
    return parse_status(Path(f"/proc/{pid}/status").read_text())


def parse_status(text: str) -> Answer:
    """Return resident memory (MB) and threads from the text of /proc/PID/status."""
    values = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {
        "rss_mb": round(int(values["VmRSS"].split()[0]) * 1024 / 1e6, 1),
        "threads": int(values["Threads"]),
    }
