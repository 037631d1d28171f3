"""What others have on the machine while killed runs are cleaned away: all of it must stay."""

from __future__ import annotations

import os
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

from stormcast.chaos.backends.netns import Network, RunId, run_command
from stormcast.chaos.backends.netns.process import environment
from tests.kills import blocks, counting
from tests.kills.found import Found
from tests.kills.plan import STACKS
from tests.kills.rig import Run

SCENARIO = """\
name: beside
guarantees: [G1, G2, G3, G4]
cluster: {{members: 3, stack: {stack}, timing: fast}}
workload:
  - {{do: multicast, from: all, count: 240, rate: 40/s, size: 64B}}
timeline:
  - {{at: 300ms, do: cut, from: n0, to: n1, for: 700ms}}
limits: {{run: 60s, settle: 1s}}
"""


class Neighbour:
    """A run of this very process, which lives: namespaces with a table and a process in them, a
    temporary folder; and a namespace and a process that are of no run at all."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._network = Network(RunId.next(), ("n0",))
        self._space = f"others-{os.getpid()}"
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Neighbour:
        with ExitStack() as undo:
            self._make(undo)
            self._stack = undo.pop_all()
        return self

    def _make(self, undo: ExitStack) -> None:
        run = self._network.run
        undo.callback(self._network.remove)
        self._network.make()
        self._folder = undo.enter_context(tempfile.TemporaryDirectory(prefix=f"{run}-"))
        run_command(("ip", "netns", "add", self._space))
        undo.callback(run_command, ("ip", "netns", "del", self._space))
        self._network.execute("n0", ("nft", "add", "table", "inet", run.table))
        for words, mark in ((self._network.inside("n0", ("sleep", "86400")), run), ((), None)):
            process = subprocess.Popen(words or ("sleep", "86400"), env=environment({}, mark))
            self._processes.append(process)
            undo.callback(process.wait)
            undo.callback(process.kill)

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def missing(self) -> list[str]:
        """What of it is not there any more."""
        run = self._network.run
        spaces = {path.name for path in Path("/run/netns").iterdir()}
        wanted = {self._space, run.namespace("bridge"), run.namespace("n0")}
        lines = [f"namespace {name}" for name in sorted(wanted - spaces)]
        lines += [f"process {one.pid}" for one in self._processes if one.poll() is not None]
        if not Path(self._folder).is_dir():
            lines.append(f"folder {self._folder}")
        if not lines and run.table not in self._network.execute("n0", ("nft", "list", "tables")):
            lines.append(f"table {run.table}")
        return lines


class Beside:
    """A run that nobody is killed in, and that goes on while others are cleaned away."""

    def __init__(self, folder: Path, number: int) -> None:
        self.found = Found("nobody", "beside")
        stack = STACKS[number % len(STACKS)]
        self._run = Run(folder, SCENARIO.format(stack=stack), number)
        try:
            self._run.wait_for_words("t=")
        except BaseException:
            self._run.close()
            raise

    def finish(self) -> Found:
        """It ends as if nothing had been. On a slow machine its steps may come late."""
        run, found = self._run, self.found
        try:
            code = run.wait()
            found.verdict = counting.verdict_of(run.directory)
            found.add("beside", counting.wrong_verdicts(run.directory, code))
            traces = blocks.kept(run.directory)
            found.add("beside", counting.deaths(traces))
            found.add("beside", blocks.unknown_to_their_makers(traces))
            found.add("beside, ended, and left", run.owner.left())
        finally:
            run.close()
        return found
