"""A soak: windows of a storm, one after the other, on one cluster that lives on."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from stormcast.chaos.backends.base import Backend, MemberError
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.rest import unrest
from stormcast.chaos.oracles.verdict import RUN, Finding, Judgement, Verdict, worst
from stormcast.chaos.session.costs import costs_in
from stormcast.chaos.session.judging import floor_findings, judge_run
from stormcast.chaos.session.record import RunRecord
from stormcast.chaos.session.session import Session, Tell
from stormcast.chaos.soak.chapters import RIG, Chapters
from stormcast.chaos.soak.drift import JUDGE
from stormcast.chaos.soak.storm import Storm, what_runs
from stormcast.node.core.errors import NodeError
from stormcast.weights import weigh

MOST_WINDOWS: Final = 5
"""A chapter that goes on for so many windows is unknown, and ends: it would grow for ever."""


@runtime_checkable
class Forgets(Protocol):
    """A backend that keeps traces itself, and need not keep what was collected."""

    def forget(self, gone: Collection[str]) -> None:
        """Forget what was collected: the traces of these incarnations, which are gone, what the
        backend itself keeps of others, and the bites of faults that have ended."""
        ...


@runtime_checkable
class Weighs(Protocol):
    """A backend that knows what members take of the machine."""

    def weights(self) -> Mapping[str, Mapping[str, float]]:
        """Return memory, descriptors, threads and cpu of each living incarnation, and the bytes of
        its journal, by its name; of agents by a name that begins with `agent:`."""
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
    """The reason why the chapter goes on; empty: it ends with this window."""
    lost: str
    """The reason why nothing more can be told of this cluster; empty: the soak goes on."""
    sent: int
    delivered: int
    """Messages of this window alone."""
    weights: Mapping[str, Mapping[str, float]]
    """The resources that each member, and this process, uses at the end of the window."""
    ended: float
    """The time of day when it had been played, and was to be judged."""

    def as_json(self) -> dict[str, Any]:
        """Return the line of this window in `windows.jsonl`."""
        bad = [one for one in self.judgement.findings if one.verdict is not Verdict.HOLDS]
        return {
            "window": self.number,
            "runs": what_runs(self.scenario.cluster),
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
            "weights": self.weights,
            "costs": self._costs(),
        }

    def _costs(self) -> dict[str, float | None]:
        """Return what the window cost its members: `stormcast compare` lays soaks side by side."""
        costs = costs_in(self.run.evidence, self.sent, self.run.zero)
        resync = None if self.run.resync is None else self.run.resync.seconds
        return {**costs._asdict(), "resync": resync}


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
        self._before = 0, 0
        """Messages sent and delivered in the chapter before this window; the prologue has some."""
        self._offered: dict[tuple[int, int], int] = {}
        """Messages offered in all windows so far, by short id of their sender and destination."""

    def open(self) -> None:
        """Start the cluster."""
        self._session.open()
        self._session.gather()

    def close(self) -> None:
        """End the cluster."""
        self._backend.close()

    def windows(self, first: int = 0, upto: int | None = None) -> Iterator[Window]:
        """Play windows, up to one or without end, until nothing more can be told of this
        cluster."""
        for number in count(first) if upto is None else range(first, upto):
            window = self._window(number)
            yield window
            if window.lost:
                return
            # Whoever takes the window has kept it now: until then its journals are all that is left
            # of it, whatever fails here.
            self.end(window)

    def end(self, window: Window) -> None:
        """End the chapter with a window, or have it go on in the next one."""
        run = window.run
        if window.unrest:
            self._before = run.sent, run.delivered
            return
        # What happened later, while this was judged, is of the next chapter.
        self._chapters.turn(run.evidence)
        # A prologue tells of windows; none of its batches counts as messages.
        self._before = 0, 0
        self._windows = 0
        self._forget(run.evidence)

    def _window(self, number: int) -> Window:
        scenario = self._storm.scenario(self._seed, number)
        run, ended = self._session.go_on(scenario, self._add), time.time()
        run.offered_before = self._offered
        self._offered = _offered_in(run.evidence)
        sent, delivered = run.sent - self._before[0], run.delivered - self._before[1]
        self._windows += 1
        judgement = _with_doubts(judge_run(scenario, run, min_bites=0), scenario, run, sent)
        # Of traces that are not whole nobody knows what is under way.
        why = "a trace is not whole" if run.evidence.defects else unrest(run.evidence)
        is_over = bool(run.evidence.defects) or judgement.verdict is not Verdict.HOLDS
        if why and not is_over and self._windows >= MOST_WINDOWS:
            detail = f"{why}, for {self._windows} windows: nothing can be told of what came before"
            judgement, is_over = _doubted(judgement, detail), True
        return Window(
            number=number,
            seed=self._seed,
            scenario=scenario,
            run=run,
            judgement=judgement,
            unrest=why,
            lost=why if is_over else "",
            sent=sent,
            delivered=delivered,
            weights=self._weights(),
            ended=ended,
        )

    def _weights(self) -> dict[str, Mapping[str, float]]:
        members: Mapping[str, Mapping[str, float]] = {}
        with suppress(NodeError):
            # Where a member cannot be asked for a moment, the verdict on the window stands.
            members = self._backend.weights() if isinstance(self._backend, Weighs) else {}
        try:
            return {**members, JUDGE: weigh(os.getpid())}
        except OSError:
            # No descriptor is left, for instance: the verdict on the window stands.
            return dict(members)

    def _add(self, traces: Mapping[str, bytes]) -> dict[str, bytes]:
        """Add what was written in a window to the chapter, and return its traces."""
        members = {label: data for label, data in traces.items() if label != RIG}
        self._chapters.add(members, traces[RIG])
        return self._chapters.traces()

    def _forget(self, evidence: Evidence) -> None:
        """Have members and backend forget what is in a chapter that has ended."""
        labels = {one.short: one.label for one in evidence.members.values()}
        for name, short in self._session.roster.shorts.items():
            if short in labels and self._session.roster.is_alive(name):
                upto = self._chapters.read[labels[short]]
                with suppress(MemberError):
                    self._session.roster.ask(name, "POST", "/journal/forget", {"upto": upto})
        if isinstance(self._backend, Forgets):
            self._backend.forget([one.label for one in evidence.members.values() if not one.lives])


def _offered_in(evidence: Evidence) -> dict[tuple[int, int], int]:
    """Return how many messages each member has offered to each destination in its life."""
    outgoing = evidence.application.outgoing.items()
    return {key: one.offered.hi for key, one in outgoing if one.offered is not None}


def _with_doubts(judgement: Judgement, scenario: Scenario, run: RunRecord, sent: int) -> Judgement:
    """Add what makes a window prove nothing: faults may have no effect in a storm, but loads must.
    The prologue has messages, too, so it is counted what was sent since."""
    if run.evidence.defects:
        return judgement
    if not sent:
        return _doubted(judgement, "nothing was sent")
    for doubt in floor_findings(scenario, run):
        judgement = _doubted(judgement, f"{doubt.detail}: {', '.join(doubt.witness)}")
    return judgement


def _doubted(judgement: Judgement, detail: str) -> Judgement:
    doubt = Finding(RUN, Verdict.UNKNOWN, detail)
    verdict = worst((judgement.verdict, Verdict.UNKNOWN))
    return Judgement(verdict, (*judgement.findings, doubt), judgement.owed)
