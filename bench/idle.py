"""The cost of a member that does nothing: memory, threads, and a share of a core."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bench.driven import idle_figures
from bench.errors import BenchError
from bench.namespace import Namespace
from bench.ours import protocols
from bench.owned import make_folder
from bench.peers import jgroups
from bench.teams import JavaTeam
from bench.work import Work

FORMING_SECONDS: Final = 3.0
LOOKING_SECONDS: Final = 5.0
RUN_FOR: Final = "60s"
"""Time after which a member ends by itself, whatever became of the bench."""

Figures = list[dict[str, Any]]


def measure(work: Work, peers: list[str]) -> dict[str, Figures]:
    """Measure each member, ours and those of the peers, one group after another."""
    found: dict[str, Figures] = {}
    with ExitStack() as stack:
        network = stack.enter_context(Namespace())
        folder = make_folder(stack)
        found["ours"] = _ours(work, network.words(), folder)
        for name in peers:
            team = JavaTeam(name, work, jgroups.commands(name, work))
            stack.callback(team.stop)
            team.start(network.words(), folder)
            found[name] = look([driven.pid for driven in team.processes])
            team.stop()
    return found


def _ours(work: Work, inside: list[str], folder: Path) -> Figures:
    """Measure members of ours, started as users start them, with a journal."""
    processes = []
    log = folder / "nodes.log"
    try:
        with log.open("wb") as out:
            for place in range(1, work.members + 1):
                argv = [*inside, *node_command(work, place, folder)]
                processes.append(subprocess.Popen(argv, stdout=out, stderr=out))  # noqa: S603 argv
        time.sleep(FORMING_SECONDS)
        if any(process.poll() is not None for process in processes):
            raise BenchError(f"a member ended:\n    {log.read_text(errors='replace')[-1000:]}")
        return look([process.pid for process in processes])
    finally:
        for process in processes:
            process.kill()
            process.wait()


def node_command(work: Work, place: int, folder: Path) -> list[str]:
    """Return the command `stormcast node` of a member of a group on loopback."""
    words = [sys.executable, "-m", "stormcast", "node", "--stack", work.transport]
    words += ["--timing", "fast", "--name", f"n{place}", "--cluster", "bench"]
    words += ["--journal", str(folder), "--run-for", RUN_FOR]
    for protocol, values in protocols(work, {}, place).items():
        for key, value in values.items():
            words += ["--set", f"{protocol}.{key}={value}"]
    return words


def look(pids: list[int]) -> Figures:
    """Return memory and threads of each process, and its share of a core for LOOKING_SECONDS."""
    before = [cpu_seconds(Path(f"/proc/{pid}/stat").read_text()) for pid in pids]
    time.sleep(LOOKING_SECONDS)
    after = [cpu_seconds(Path(f"/proc/{pid}/stat").read_text()) for pid in pids]
    return [
        {**idle_figures(pid), "cpu_percent": round((end - start) / LOOKING_SECONDS * 100, 1)}
        for pid, start, end in zip(pids, before, after, strict=True)
    ]


def cpu_seconds(stat: str) -> float:
    """Return the seconds of processor time of a process, from the text of /proc/PID/stat."""
    # After the name in brackets, which may hold anything: user and system time are 12th and 13th.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
