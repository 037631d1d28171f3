"""Shrinks a kept run that failed, until nothing smaller fails or the time is over."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from stormcast.chaos.campaigns.replay import USUAL_FATE, KeptRun, read_run
from stormcast.chaos.campaigns.shrink import shrink
from stormcast.chaos.campaigns.shrink.failure import Found, Size
from stormcast.chaos.campaigns.shrink.trials import OutOfTime, Trials
from stormcast.chaos.language.scenario import dump
from stormcast.whole import write_whole

MINIMAL: Final = "minimal.yaml"
"""The file with the shrunk scenario, in the run directory."""
ENDING: Final = "-minimal"
MOST_NAME: Final = 80
"""The most characters of a scenario's name."""
ENDS: Final = {
    "done": "nothing smaller fails",
    "budget": "the time is up: a larger --budget may find smaller ones",
    "interrupted": "interrupted: this is the smallest so far",
}
"""By key: why a search for a smaller scenario ended."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """A failed run, and the smallest scenario that was found to fail like it."""

    trials: Trials
    kept: KeptRun
    out: Path
    end: str
    """The reason why the search ended: a key of ENDS."""

    @property
    def command(self) -> str:
        """The command that runs the shrunk scenario."""
        dice = "" if self.kept.fate == USUAL_FATE else f" --fate {self.kept.fate}"
        return f"stormcast run {shlex.quote(str(self.out))} --seed {self.kept.seed}{dice}"

    @property
    def text(self) -> str:
        """The content of the scenario file."""
        trials = self.trials
        return regression(trials.best, trials.first.size, self.kept.seed, self.command)

    def as_json(self) -> dict[str, object]:
        """Return the object that `stormcast shrink --json` prints."""
        first, best, tally = self.trials.first, self.trials.best, self.trials.tally
        return {
            "scenario": first.scenario.name,
            "run": str(self.kept.directory),
            "seed": self.kept.seed,
            "fate": self.kept.fate,
            "guarantee": best.failure.guarantee,
            "detail": best.failure.detail,
            "witness": list(best.failure.witness),
            "before": first.size.as_json(),
            "after": best.size.as_json(),
            "end": self.end,
            "runs": tally.runs,
            "crashes": tally.crashes,
            "file": str(self.out),
            "replay": self.command,
        }

    def report(self) -> str:
        """Return the text that `stormcast shrink` prints."""
        first, best, tally = self.trials.first, self.trials.best, self.trials.tally
        lines = [
            self.text,
            f"before: {first.size}",
            f"after:  {best.size}",
            f"{best.failure.guarantee}: {best.failure.detail}",
            *(f"  witness: {line}" for line in best.failure.witness),
            f"{tally.runs} runs, {tally.kept} found smaller; {ENDS[self.end]}",
        ]
        if tally.crashes:
            lines.append(f"{len(tally.crashes)} runs broke off, the first: {tally.crashes[0]}")
        return "\n".join([*lines, f"written: {self.out}", f"again: {self.command}"])


def regression(found: Found, first: Size, seed: int, command: str) -> str:
    """Return the scenario file of a failure: it says what is violated, and how to run it."""
    failure = found.failure
    witness = f" Witness: {failure.witness[0]}" if failure.witness else ""
    about = f"Seed {seed} violates {failure.guarantee}: {failure.detail}.{witness}"
    name = found.scenario.name.removesuffix(ENDING)[: MOST_NAME - len(ENDING)].rstrip("-") + ENDING
    scenario = replace(found.scenario, name=name, about=about)
    head = (
        f"# Expected: violated, {failure.guarantee}, with seed {seed}.\n"
        f"#   {command}\n"
        f"# Before it was shrunk: {first}.\n"
    )
    return head + dump(scenario)


def shrink_until(trials: Trials) -> str:
    """Shrink; returns why the search ended, a key of ENDS. `trials` keeps the best so far."""
    try:
        shrink(trials)
    except OutOfTime:
        return "budget"
    except KeyboardInterrupt:
        return "interrupted"
    return "done"


def shrink_kept(budget: float, directory: Path) -> str | None:
    """Shrink a run that a search has kept, within `budget` seconds, to MINIMAL in its directory: a
    task of an engine. Returns why that failed, else None."""
    out = directory / MINIMAL
    over = time.monotonic() + budget
    kept_before = 0

    def write(trials: Trials, end: str) -> None:
        write_whole(out, Shrunk(trials, kept, out, end).text)

    def tell(trials: Trials) -> None:
        nonlocal kept_before
        if trials.tally.kept != kept_before:
            # A task that is killed leaves the smallest scenario so far.
            kept_before = trials.tally.kept
            write(trials, "interrupted")

    try:
        kept = read_run(directory)
        trials = Trials(
            kept.scenario(), None, kept.run_again, lambda: time.monotonic() > over, tell
        )
        end = shrink_until(trials)
        write(trials, end)
    except Exception as error:  # noqa: BLE001 whatever it is, others are shrunk all the same
        return f"{directory.name} is not shrunk: {error}"
    if end == "interrupted":
        raise KeyboardInterrupt
    return None
