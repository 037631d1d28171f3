"""The directory of a soak: its storm, what became of each window, the evidence of incidents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from stormcast.chaos.oracles.verdict import RUN, Verdict
from stormcast.chaos.records.directory import make_fresh, take
from stormcast.chaos.session.outcome import RunOutcome, write_run
from stormcast.chaos.session.runner import LOGS
from stormcast.chaos.session.versions import versions
from stormcast.chaos.soak.player import Window
from stormcast.chaos.soak.storm import Storm
from stormcast.chaos.soak.storm_file import dump_storm, load_storm
from stormcast.node.core.errors import ConfigError
from stormcast.whole import mend_lines, write_whole

STORM: Final = "storm.yaml"
SOAK: Final = "soak.json"
WINDOWS: Final = "windows.jsonl"
STATUS: Final = "status.json"
INCIDENTS: Final = "incidents"
_OF_A_WINDOW: Final = frozenset({"window", "verdict", "seconds", "sent", "faults", "weights"})
"""Keys that the line of every window has."""


class NotASoakError(ConfigError):
    """A directory that no soak has left; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A soak, as its directory has it."""

    storm: Storm
    seed: int
    backend: str
    windows: tuple[dict[str, Any], ...]
    """The line of each window, in order."""
    played_by: tuple[tuple[int, dict[str, str]], ...]
    """The first window of each process that played it with versions of its own, and those."""

    def versions_of(self, number: int) -> dict[str, str]:
        """Return the versions with which a window was played; empty: nobody knows."""
        found = [versions for first, versions in self.played_by if first <= number]
        return found[-1] if found else {}


class SoakDirectory:
    """Writes the directory of a soak. After each window all of it is on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[dict[str, Any]] = []
        """The line of each window that was written."""

    @property
    def is_there(self) -> bool:
        """Whether a soak has begun here."""
        return (self.path / SOAK).is_file()

    def begin(self, storm: Storm, seed: int, backend: str) -> Kept:
        """Take the directory for a new soak; TakenError if it holds anything."""
        take(self.path)
        (self.path / STORM).write_text(dump_storm(storm))
        played_by = ((0, versions()),)
        kept = Kept(storm=storm, seed=seed, backend=backend, windows=(), played_by=played_by)
        self._write_soak(kept)
        return kept

    def go_on(self, kept: Kept) -> None:
        """Write the versions with which the windows that follow are played."""
        first = len(kept.windows)
        if kept.versions_of(first) != versions():
            played_by = (*kept.played_by, (first, versions()))
            self._write_soak(replace(kept, played_by=played_by))

    def _write_soak(self, kept: Kept) -> None:
        played_by = [{"first": first, "versions": said} for first, said in kept.played_by]
        told = {"seed": kept.seed, "backend": kept.backend, "played_by": played_by}
        self._write_json(SOAK, told)

    def read(self) -> Kept:
        """Read what an earlier process left; NotASoakError if it is no soak."""
        try:
            said = json.loads((self.path / SOAK).read_text())
            return Kept(
                storm=load_storm(self.path / STORM),
                seed=int(said["seed"]),
                backend=str(said["backend"]),
                windows=tuple(self._read_windows()),
                # Soaks of older versions do not say it.
                played_by=tuple(map(_read_versions, said.get("played_by", ()))),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise NotASoakError(
                f"{self.path} is no soak ({error}): name what stormcast soak has left"
            ) from None

    def _read_windows(self) -> Iterator[dict[str, Any]]:
        path = self.path / WINDOWS
        text = path.read_text() if path.is_file() else ""
        # A line without its end was cut short by a kill: `mend` removes just this one.
        whole, _newline, _rest = text.rpartition("\n")
        for number, line in enumerate(whole.splitlines(), 1):
            told = json.loads(line)
            if not isinstance(told, dict) or not told.keys() >= _OF_A_WINDOW:
                raise ValueError(f"line {number} of {WINDOWS} tells of no window")
            yield told

    def mend(self) -> None:
        """Remove the last line, if a kill cut it short: else the next one would be spoiled, too."""
        mend_lines(self.path / WINDOWS)

    def make_logs(self, number: int) -> Path:
        """Make a folder for what the members of a cluster leave, which begins with a window."""
        return make_fresh(self.path / LOGS, f"{number:06}")

    def add(self, window: Window, seconds: float) -> Path | None:
        """Write the line of a window, which took so many seconds of real time; return the run
        directory of an incident."""
        told = {**window.as_json(), "took": round(seconds, 3)}
        if window.judgement.verdict is Verdict.HOLDS:
            self._write_line(told)
            return None
        name = f"{window.number:06}"
        try:
            incident = make_fresh(self.path / INCIDENTS, name)
            told["incident"] = str(incident.relative_to(self.path))
        finally:
            # The line is first: where there is no room for the evidence, the verdict stands.
            self._write_line(told)
        # Whoever finds it without a verdict then knows that it was not judged.
        take(incident)
        outcome = RunOutcome(
            window.scenario, window.seed, window.judgement, window.run, incident, min_bites=0
        )
        write_run(outcome, incident)
        return incident

    def add_broken(self, number: int, why: str, seconds: float) -> None:
        """Write that a window broke off by an error of the rig: it proves nothing."""
        self._write_line(
            {
                "window": number,
                "verdict": str(Verdict.UNKNOWN),
                "findings": [{"guarantee": RUN, "verdict": "unknown", "detail": why}],
                "unrest": "",
                "seconds": 0.0,
                "sent": 0,
                "delivered": 0,
                "trace_bytes": 0,
                "faults": {},
                "weights": {},
                "took": round(seconds, 3),
            }
        )

    def _write_line(self, told: dict[str, Any]) -> None:
        # Each process of a soak is named by its first window: pids may come again.
        told["process"] = self.lines[0]["window"] if self.lines else told["window"]
        self.lines.append(told)
        with (self.path / WINDOWS).open("a") as file:
            file.write(json.dumps(told) + "\n")

    def say(self, status: dict[str, Any]) -> None:
        """Write how the soak is."""
        self._write_json(STATUS, status)

    def _write_json(self, name: str, value: object) -> None:
        write_whole(self.path / name, json.dumps(value, indent=2) + "\n")


def _read_versions(said: dict[str, Any]) -> tuple[int, dict[str, str]]:
    return int(said["first"]), {str(name): str(what) for name, what in said["versions"].items()}
