"""What a command costs with all that it starts: `python -m bench.tree COMMAND…` runs it and prints
a line of JSON.

Spark's Java is a child of the Python that a user starts, and nobody waits for it there. This
process adopts what is left behind (Linux), so that the kernel adds its CPU time, too.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from bench.errors import BenchError

_ADOPT: Final = 36
"""PR_SET_CHILD_SUBREAPER of Linux."""


class Cost(NamedTuple):
    """Of a command and all that it starts."""

    code: int
    seconds: float
    cpu: float
    memory: int
    """The most resident memory of one process, in MiB."""


def cost_of(command: Sequence[str]) -> tuple[Cost, str]:
    """Run a command, and return what it cost, and what it printed on stdout."""
    words = [sys.executable, "-m", "bench.tree", *command]
    with subprocess.Popen(  # noqa: S603 an argv of our own making
        words, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        try:
            out, _none = running.communicate()
        except BaseException:
            # Who interrupts a bench ends all that it measures.
            os.killpg(running.pid, signal.SIGTERM)
            raise
    if running.returncode:
        raise BenchError(f"{' '.join(command)}: cannot be measured, see above")
    *printed, last = out.splitlines()
    return Cost(**json.loads(last)), "\n".join(printed)


def _main(command: Sequence[str]) -> int:
    if ctypes.CDLL(None, use_errno=True).prctl(_ADOPT, 1, 0, 0, 0):
        print(f"bench: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        return 1
    began = time.perf_counter()
    with subprocess.Popen(command) as running:  # noqa: S603 as above
        code = running.wait()
    seconds = time.perf_counter() - began
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cost = Cost(code, seconds, used.ru_utime + used.ru_stime, used.ru_maxrss >> 10)
    print(f"\n{json.dumps(cost._asdict())}")
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
