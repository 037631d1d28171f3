"""`stormcast verify`, which judges on Spark, and is killed while it does."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from stormcast.chaos.backends.netns.leftovers import clean
from stormcast.chaos.backends.netns.process import environment
from tests.kills.found import Found, Missed, until
from tests.kills.plan import STARTING, Kill
from tests.kills.seen import Owner, kill_now

SECONDS = 300.0
"""For what takes half a minute on a machine that has nothing else to do."""
GRACE = 30.0
"""Seconds in which Java ends after Python."""
LOCAL = ("--master", "local[1]")


class Judge:
    """The command on one run directory, in a session of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = folder / "verify.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                (sys.executable, "-m", "stormcast", "verify", str(folder / "run"), *LOCAL),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment({}),
                start_new_session=True,
            )
        self.owner = Owner.of(self.process.pid, folder)

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for one in self.owner.processes():
            kill_now(one)


@dataclass(slots=True)
class StruckJudge:
    """A judge that was killed, and the one that judged the same again."""

    judges: list[Judge]
    found: Found

    def check_clean(self) -> None:
        for judge in self.judges:
            self.found.add("after clean", judge.owner.left())

    def close(self) -> None:
        for judge in self.judges:
            judge.close()


def make_run(folder: Path) -> Path:
    """A run that holds, in the simulator."""
    words = ("run", "order-under-loss", "--out", str(folder))
    subprocess.run(
        (sys.executable, "-m", "stormcast", *words),
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=SECONDS,
        env=environment({}),
    )
    return folder


def begin(kill: Kill, folder: Path, found: Found, sound: Path) -> StruckJudge:
    """Judge a copy of a sound run, kill the judge, look, and judge again."""
    shutil.copytree(sound, folder / "run")
    own = (folder / "run" / "verdict.json").read_bytes()
    judge = Judge(folder)
    struck = StruckJudge([judge], found)
    try:
        if kill.phase != STARTING:
            until(
                lambda: "reading the traces" in judge.log() or judge.process.poll() is not None,
                SECONDS,
                "it reads",
            )
        time.sleep(kill.delay)
        found.killed = time.monotonic()
        victim = judge.owner.itself()
        if victim is None or not kill_now(victim):
            raise Missed("the judge had ended before")
        judge.process.wait()
        if kill.phase == STARTING:
            # A Java that has not started yet does not see that the judge is gone. Only what this
            # judge left is removed: at others of this batch nobody has looked yet.
            clean(is_left=judge.owner.is_its)
        until(lambda: not judge.owner.processes(), GRACE, f"Java ends: {judge.log()[-400:]}")
        found.add("verdict", _not_whole(folder / "run"))
        again = Judge(folder)
        struck.judges.append(again)
        code = again.process.wait(SECONDS)
        found.verdict = _said(folder / "run")
        if (code, found.verdict) != (0, "holds"):
            found.add("judged again", [f"exit {code}, {found.verdict}: {again.log()[-400:]!r}"])
        if (folder / "run" / "verdict.json").read_bytes() != own:
            found.add("verdict", ["the run's own verdict is another"])
    except BaseException:
        struck.close()
        raise
    return struck


def _said(run: Path) -> str:
    path = run / "verify" / "verdict.json"
    return str(json.loads(path.read_text())["verdict"]) if path.exists() else ""


def _not_whole(run: Path) -> list[str]:
    """A verdict that a killed judge left is whole, and of this run, which holds."""
    try:
        said = _said(run)
    except (ValueError, KeyError) as error:
        return [f"verify/verdict.json is not whole: {error!r}"]
    return [] if said in ("", "holds") else [f"a killed judge said {said}"]
