"""A soak: windows of a storm, one after the other, on one cluster that lives on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from stormcast.chaos.backends.base import Backend
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.oracles.prologue import unrest
from stormcast.chaos.oracles.verdict import RUN, Finding, Judgement, Verdict
from stormcast.chaos.session.judging import judge_run
from stormcast.chaos.session.record import RunRecord
from stormcast.chaos.session.session import Session, Tell
from stormcast.chaos.soak.chapters import Chapters
from stormcast.chaos.soak.storm import Storm

MOST_WINDOWS: Final = 5
"""A chapter that goes on for so many windows is unknown, and ends: it would grow for ever."""


@runtime_checkable
class Forgets(Protocol):
    """A backend that need not keep what was collected."""

    def forget(self) -> None:
        """Forget what was collected: from now on only what follows is."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One window of a soak, judged."""

    number: int
    seed: int
    scenario: Scenario
    run: RunRecord
    """With the traces of its chapter, which may have begun with an earlier window."""
    judgement: Judgement
    unrest: str
    """Why the chapter goes on; empty: it ends with this window."""
    sent: int
    delivered: int
    """Messages of this window alone."""

    def as_json(self) -> dict[str, Any]:
        """Return the line of this window in `windows.jsonl`."""
        bad = [one for one in self.judgement.findings if one.verdict is not Verdict.HOLDS]
        return {
            "window": self.number,
            "verdict": str(self.judgement.verdict),
            "findings": [
                {"guarantee": one.guarantee, "verdict": str(one.verdict), "detail": one.detail}
                for one in bad
            ],
            "unrest": self.unrest,
            "seconds": round(self.run.seconds, 3),
            "sent": self.sent,
            "delivered": self.delivered,
            "trace_bytes": sum(map(len, self.run.traces.values())),
            "faults": self.run.bites,
        }


class Soak:
    """Plays and judges one window after the other. Call `open`, iterate `windows`, and `close`."""

    def __init__(
        self,
        storm: Storm,
        seed: int,
        backend: Backend,
        folder: Path,
        *,
        tell: Tell | None = None,
    ) -> None:
        self._storm = storm
        self._seed = seed
        self._backend = backend
        self._session = Session(storm.widest(), seed, backend, folder, tell=tell)
        self._chapters = Chapters()
        self._windows = 0
        """Windows of the chapter so far."""

    def open(self) -> None:
        """Start the cluster."""
        self._session.open()
        self._session.gather()

    def close(self) -> None:
        """End the cluster."""
        self._backend.close()

    def windows(self, first: int = 0) -> Iterator[Window]:
        """Play windows without end."""
        number = first
        while True:
            yield self._window(number)
            number += 1

    def _window(self, number: int) -> Window:
        scenario = self._storm.scenario(self._seed, number)
        run = self._session.go_on(scenario, self._add)
        sent, delivered = self._chapters.messages()
        judgement = judge_run(scenario, run, min_bites=0)
        self._windows += 1
        why = unrest(run.evidence) if judgement.verdict is Verdict.HOLDS else ""
        if why and self._windows >= MOST_WINDOWS:
            detail = f"{why}, for {self._windows} windows: nothing can be told of what came before"
            judgement = _doubted(judgement, detail)
            why = ""
        if not why:
            self._chapters.turn(run.evidence, self._backend.now())
            self._windows = 0
        return Window(
            number=number,
            seed=self._seed,
            scenario=scenario,
            run=run,
            judgement=judgement,
            unrest=why,
            sent=sent,
            delivered=delivered,
        )

    def _add(self, traces: Mapping[str, bytes]) -> dict[str, bytes]:
        """Add what was written in a window to the chapter, and return its traces."""
        if isinstance(self._backend, Forgets):
            self._chapters.add(traces)
            self._backend.forget()
        else:
            self._chapters.add_grown(traces)
        return self._chapters.traces()


def _doubted(judgement: Judgement, detail: str) -> Judgement:
    doubt = Finding(RUN, Verdict.UNKNOWN, detail)
    return Judgement(Verdict.UNKNOWN, (*judgement.findings, doubt), judgement.owed)
