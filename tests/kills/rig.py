"""A `stormcast run` on namespaces that somebody is killed in."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stormcast.chaos.backends.base import LEASE_SECONDS
from stormcast.chaos.backends.netns.process import environment
from tests.helpers.sessions import Seen
from tests.kills import blocks, counting
from tests.kills.found import POLL_SECONDS, Found, Missed, until
from tests.kills.plan import (
    AGENT,
    COLLECTING,
    HEALED,
    HEALING,
    JUDGE,
    MEMBER,
    MEMBERS,
    RIG,
    RUNNING,
    STARTING,
    Kill,
)
from tests.kills.seen import Owner, kill_now

GRACE = 1.0
"""Seconds after a lease by which nothing acts any more."""
END_SECONDS = 180.0
"""For what takes ten on a machine that has nothing else to do."""
_AT = re.compile(r"t=(\d+\.\d+)s")


class Run:
    """The command in a session of its own, with a terminal to tell how far it is."""

    def __init__(self, folder: Path, scenario: str, seed: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.directory = folder, folder / "run"
        (folder / "scenario.yaml").write_text(scenario)
        words = ("run", str(folder / "scenario.yaml"), "--backend", "netns", "--seed", str(seed))
        self._terminal, slave = os.openpty()
        os.set_blocking(self._terminal, False)
        with (folder / "stdout").open("wb") as out:
            self.process = subprocess.Popen(
                (sys.executable, "-m", "stormcast", *words, "--out", str(self.directory)),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=slave,
                env=environment({}),
                start_new_session=True,
            )
        os.close(slave)
        self.owner = Owner.of(self.process.pid, folder)
        self._zero: float | None = None
        self._text = ""

    # -- How far it is -------------------------------------------------------------------------

    def told(self) -> str:
        """All that it has written to its terminal so far."""
        with suppress(OSError):
            while data := os.read(self._terminal, 65536):
                self._text += data.decode(errors="replace")
        if self._zero is None and (found := _AT.search(self._text)):
            self._zero = time.monotonic() - float(found[1])
        return self._text

    def wait_for(self, is_so: Callable[[], bool], what: str, poll: float = POLL_SECONDS) -> None:
        """Missed if the run ends before."""

        def look() -> bool:
            self.told()
            if is_so():
                return True
            if self.process.poll() is not None:
                raise Missed(f"the run ended before {what}: {self.told()[-400:]!r}")
            return False

        until(look, END_SECONDS, what, poll)

    def wait_for_words(self, words: str) -> None:
        self.wait_for(lambda: words in self._text, f"it told {words!r}")

    def wait_for_phase(self, kill: Kill) -> None:
        """Until the phase of a kill has begun."""
        if kill.phase == STARTING:
            milestones = {"network": "making the network", "members": "starting"}
            if kill.milestone in milestones:
                self.wait_for_words(milestones[kill.milestone])
        elif kill.phase in (RUNNING, HEALING):
            self.wait_for(lambda: self._zero is not None, "its scenario began")
            assert self._zero is not None
            moment = self._zero + (HEALED if kill.phase == HEALING else 0.0)
            self.wait_for(lambda: time.monotonic() >= moment, "its fault ended")
        else:
            if kill.victim == RIG:
                members = [self.owner.member(name) for name in MEMBERS]
                self.wait_for(
                    lambda: all(one is None or one.state_now() in "Tt" for one in members),
                    "its members were frozen",
                )
            if kill.victim == JUDGE:
                self.wait_for(lambda: not self.owner.spaces(), "its network was removed")

    # -- The end -------------------------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        """Let a time pass, and hear what it tells meanwhile."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.told()
            time.sleep(POLL_SECONDS)

    def wait(self) -> int:
        """Its exit code."""

        def is_over() -> bool:
            self.told()
            return self.process.poll() is not None

        until(is_over, END_SECONDS, "the run ends")
        assert self.process.returncode is not None
        return self.process.returncode

    def close(self) -> None:
        """End what still lives of it."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for one in self.owner.processes():
            kill_now(one)
        with suppress(OSError):
            os.close(self._terminal)
        self._terminal = -1


def victim_of(run: Run, kill: Kill) -> Seen | None:
    """The process that is to be killed; None: it is not there yet."""
    if kill.victim == AGENT:
        agents = run.owner.agents()
        return agents[-1] if agents else None
    if kill.victim == MEMBER:
        return run.owner.member(kill.member)
    return run.owner.itself()


def strike(run: Run, kill: Kill, found: Found) -> None:
    """Wait for the moment of a kill, and kill; Missed if there is nobody any more."""
    if kill.phase == COLLECTING:
        # Journals become traces in this phase, so what is there now must be in one of the two.
        run.wait_for_words("quiet for")
        found.before = blocks.snapshot(run.directory)
    run.wait_for_phase(kill)
    if kill.victim in (AGENT, MEMBER):
        # To look through all processes takes some milliseconds.
        run.wait_for(
            lambda: victim_of(run, kill) is not None, f"its {kill.victim} was there", poll=0.05
        )
    begun = time.monotonic()
    run.wait_for(lambda: time.monotonic() >= begun + kill.delay, "the moment came")
    victim = victim_of(run, kill)
    if victim is None:
        raise Missed(f"the {kill.victim} had ended before")
    if kill.victim in (RIG, AGENT) and kill.phase == RUNNING:
        found.acted = bool(run.owner.acting())
    found.before |= blocks.snapshot(run.directory)
    found.killed = time.monotonic()
    if not kill_now(victim):
        raise Missed(f"the {kill.victim} had ended before")


@dataclass(slots=True)
class Struck:
    """A run in which somebody was killed, or one that ended before; nobody has cleaned yet."""

    run: Run
    found: Found

    def check_clean(self) -> None:
        """After `clean`."""
        self.found.add("after clean", self.run.owner.left())

    def close(self) -> None:
        self.run.close()


def begin(kill: Kill, folder: Path, found: Found) -> Struck:
    """Start a run, kill, and look, until nothing is left to be seen but what `clean` removes."""
    run = Run(folder, kill.scenario(), kill.number)
    try:
        strike(run, kill, found)
        is_killed = kill.victim in (RIG, JUDGE)
        if is_killed:
            run.process.wait()
        run.pass_time(found.killed + LEASE_SECONDS + GRACE - time.monotonic())
        check_quiet(run, found, is_killed=is_killed)
        code = None if is_killed else run.wait()
        if not is_killed:
            found.add("the run ended, and left", run.owner.left())
        if "Traceback" in run.told():
            found.add("the run", [f"wrote a traceback: {run.told()[-600:]!r}"])
        check_kept(run, found, code)
    except BaseException:
        run.close()
        raise
    return Struck(run, found)


def check_kept(run: Run, found: Found, code: int | None) -> None:
    """What is on disk: every block of before, what others had of it, and a verdict that is true."""
    traces = blocks.kept(run.directory)
    found.add("journals", blocks.lost_blocks(found.before, traces))
    found.add("journals", blocks.unknown_to_their_makers(traces))
    found.blocks = sum(map(len, found.before.values()))
    found.verdict = counting.verdict_of(run.directory)
    found.add("verdict", counting.wrong_verdicts(run.directory, code))


def check_quiet(run: Run, found: Found, *, is_killed: bool) -> None:
    """A lease and a second after the kill."""
    owner = run.owner
    if is_killed or found.victim == AGENT:
        found.add("after the lease", [f"acts: {line}" for line in owner.acting()])
    if is_killed:
        found.add("after the lease", [f"lives: {one}" for one in owner.processes()])
        found.add("after the lease", owner.struck_frames())
