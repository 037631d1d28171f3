"""An attack written down as a run: a scenario of what was done, the rig's trace, and a verdict that
claims nothing about what became of anybody's messages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from stormcast.chaos.attack.kinds import KILL
from stormcast.chaos.attack.playing import Plan, do_word
from stormcast.chaos.drivers.base import Bites
from stormcast.chaos.language.cluster import Cluster
from stormcast.chaos.language.scenario import Limits, Scenario
from stormcast.chaos.language.schedule import TimedStep
from stormcast.chaos.language.timeline import Step
from stormcast.chaos.oracles.verdict import RUN, Finding, Judgement, Verdict
from stormcast.chaos.records.rig_trace import RigTrace
from stormcast.chaos.session.outcome import RunOutcome, write_run
from stormcast.chaos.session.recording import foreign_record

NOT_JUDGED: Final = "nobody recorded what became of messages, so no guarantee is judged"
NOTHING: Final = "it struck nothing"


class AttackRecord:
    """Notes what an attack did."""

    def __init__(self, plan: Plan, about: str) -> None:
        self._plan = plan
        self._about = about
        self._rig = RigTrace()
        self._began = self._ended = 0.0
        self.has_begun = False

    def begin(self, at: float) -> None:
        """Note that it acts from now on."""
        self._began, self.has_begun = at, True
        self._rig.phase(at, "begin")
        for fault, action in self._plan.actions().items():
            self._rig.begin(at, TimedStep(at=0.0, fault=fault, do=do_word(action), action=action))

    def end(self, at: float, struck: Mapping[str, int]) -> None:
        """Note that it is over, and how often each fault struck."""
        self._ended = at
        for fault in self._plan.actions():
            self._rig.end(at, fault)
        self._rig.phase(at, "quiet")
        self._rig.phase(at, "end")
        for fault in self._plan.actions():
            self._rig.probe(at, fault, struck.get(fault, 0))

    def write(self, directory: Path, bites: Bites) -> Verdict:
        """Write the run directory; return the verdict."""
        struck = {fault: sum(bites.get(fault, {}).values()) for fault in self._plan.actions()}
        record = foreign_record(
            self._rig,
            self._began,
            self._ended,
            "attack",
            struck,
            bites,
            complete=True,
            notes=(self._about,),
        )
        doubts = [NOT_JUDGED] if any(struck.values()) else [NOT_JUDGED, NOTHING]
        findings = tuple(Finding(RUN, Verdict.UNKNOWN, doubt) for doubt in doubts)
        judgement = Judgement(Verdict.UNKNOWN, findings)
        scenario = self._scenario(record.seconds)
        write_run(RunOutcome(scenario, self._plan.seed, judgement, record, directory), directory)
        return judgement.verdict

    def _scenario(self, seconds: float) -> Scenario:
        lasts = None if self._plan.kind == KILL else seconds
        steps = tuple(
            Step(at=0.0, action=action, duration=lasts) for action in self._plan.actions().values()
        )
        return Scenario(
            name=f"attack-{self._plan.kind}",
            about=self._about,
            guarantees=(),
            cluster=Cluster(members=self._plan.words),
            timeline=steps,
            limits=Limits(run=max(60.0, seconds + 1.0)),
        )
