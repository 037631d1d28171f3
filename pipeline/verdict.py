"""Makes verdicts from tables: one for each guarantee; that of the run is the worst of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from stormcast.findings import RUN, Finding, Verdict
from stormcast.pipeline.checks import (
    a1_agreement,
    c1_budget,
    c1_control_traffic,
    g1_no_loss,
    g2_once,
    g3_fifo,
    g4_intact,
    g5_bounded,
    g6_purge_safety,
    g7_connections,
    g8_back_in_time,
    l1_liveness,
    s1_unread,
    v_views,
)
from stormcast.pipeline.findings import SPARK, THE_RUN
from stormcast.pipeline.halves import Runs, check_spark, in_halves
from stormcast.pipeline.judgement import Death, Figures, Judgement, Probe
from stormcast.pipeline.measured import Breach
from stormcast.pipeline.questions import Question
from stormcast.pipeline.tables import Tables, arrivals
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.violations import Check, union
from stormcast.pipeline.witness import describe
from stormcast.pipeline.words import EPSILON

CHECKS: Final[dict[str, Check]] = {
    "G1": g1_no_loss.no_loss,
    "G2": g2_once.once,
    "G3": g3_fifo.fifo,
    "G4": g4_intact.intact,
    "G5": g5_bounded.bounded,
    "G6": g6_purge_safety.purge_safety,
    "G7": g7_connections.apart,
    "A1": a1_agreement.agreement,
    "V1": v_views.one_list,
    "V2": v_views.own_views,
    "V3": v_views.growing_ids,
    "V4": v_views.one_view,
    "C1": c1_control_traffic.control_traffic,
    "L1": l1_liveness.liveness,
    "S1": s1_unread.unread,
}
IN_TIME: Final = g8_back_in_time.GUARANTEE
"""Judged where it is known what the scenario expects."""
BUDGET: Final = "budget"
"""The internal name of violations of a scenario's budget, which are reported under C1."""
NEEDS_THE_END: Final = frozenset({"G1", "A1", "V4", "L1", "C1"})
"""Guarantees that can only be violated by a run that came to its end. So can G5 where it speaks of
the end: a receive window may then hold messages behind a gap whose repair is under way."""
ASKS_WHO_STAYS: Final = frozenset({"G1", "G8", "A1", "V4", "C1", "L1"})
"""Guarantees whose violations a death that nobody ordered may explain, if it came before."""
MOST_DEFECTS: Final = 5
"""The most defects that a finding names one by one."""

MARKED: Final = 40
"""The most violations of a guarantee that charts mark."""

Progress = Callable[[str], None]
T = TypeVar("T")


class _First(NamedTuple):
    """The earliest violation of a guarantee in a run."""

    detail: str
    witness: tuple[str, ...]
    number: int
    time: float
    """The time of the violation, on the clock of the run's traces."""


class Verifier:
    """Judges some runs together: every check is one job over all of them."""

    def __init__(self, tables: Tables, questions: Sequence[Question], progress: Progress) -> None:
        self._tables = tables
        self._questions = questions
        self._progress = progress
        self._crashed: dict[tuple[str, str], str] = {}
        """By guarantee and run: why its check crashed."""
        self._untold: dict[str, str] = {}
        """By run: why its violations cannot be told."""
        self._sound: Runs = ()
        self._parts: dict[Runs, Tables] = {}
        """The tables of some of the runs, where something crashed for all of them."""
        self._found: dict[str, DataFrame] = {}

    def judge(self, defects: Mapping[str, Sequence[str]]) -> list[Judgement]:
        """Return a judgement for each question, in their order."""
        every = tuple(each.run for each in self._questions)
        counted, uncounted = self._in_halves("counting", every, self._figures)
        figures = {run: each for some in counted for run, each in some.items()}
        # What cannot be counted proves nothing either.
        odd = {run: [f"it cannot be counted: {why}"] for run, why in uncounted.items()}
        defects = {**odd, **defects}
        # A defective trace could make a check crash, and each check is for all runs at once.
        self._tables = self._tables.without(defects)
        self._sound = tuple(run for run in every if run not in defects)
        for guarantee, check in self._checks().items():
            self._progress(f"checking {guarantee}")
            if found := self._violations(guarantee, check):
                self._found[guarantee] = union(*found)
        told, self._untold = self._in_halves("telling violations", self._sound, self._firsts)
        firsts = {key: first for some in told for key, first in some.items()}
        return [
            self._judge_one(question, defects.get(question.run, ()), firsts, figures)
            for question in self._questions
        ]

    @property
    def sound(self) -> Runs:
        """The runs without defects, once they are judged."""
        return self._sound

    @property
    def sound_events(self) -> DataFrame:
        """The events of the runs without defects, and maybe of runs that nobody asked for."""
        return self._tables.events

    @property
    def violations(self) -> DataFrame | None:
        """All violations of all runs; None if every check crashed."""
        return union(*self._found.values()) if self._found else None

    def breaches(self, judgements: Sequence[Judgement]) -> dict[str, tuple[Breach, ...]]:
        """Return by run the first violations of each guarantee, for the marks in charts. A run for
        which that crashes has none."""
        by_run = {judgement.question.run: judgement for judgement in judgements}

        def of_some(runs: Runs, _tables: Tables) -> dict[str, tuple[Breach, ...]]:
            return self._breaches([by_run[run] for run in runs])

        found, _crashed = self._in_halves("marking violations", tuple(by_run), of_some)
        return {run: breaches for some in found for run, breaches in some.items()}

    def _breaches(self, judgements: Sequence[Judgement]) -> dict[str, tuple[Breach, ...]]:
        found = self.violations
        judged = {each.question.run: each for each in judgements if each.violations}
        if found is None or not judged:
            return {}
        under = F.when(F.col("guarantee") == BUDGET, "C1").otherwise(F.col("guarantee"))
        order = Window.partitionBy("run", "under").orderBy("time", "member", "position")
        rows = (
            found.where(F.col("run").isin(*judged))
            .withColumn("under", under)
            .withColumn("place", F.row_number().over(order))
            .where(F.col("place") <= MARKED)
            .orderBy("time", "under")
            .collect()
        )
        return {
            run: tuple(
                Breach(
                    guarantee=row.under,
                    at=float(row.time - judgement.figures.begin),
                    detail=row.detail,
                )
                for row in rows
                if row.run == run and row.under in judgement.violations
            )
            for run, judgement in judged.items()
        }

    def check_spark(self, error: Exception) -> None:
        """Raise SparkLost if Spark went away, which explains `error`."""
        check_spark(self._tables.events.sparkSession, error)

    def write_violations(self, judgement: Judgement, out: Path) -> None:
        """Write all violations of one run as Parquet, with members' labels, not their short ids."""
        found, run = self.violations, judgement.question.run
        if found is None or not judgement.violations:
            return
        label = F.coalesce("label", F.lower(F.hex("short_id"))).alias("member")
        labels = self._tables.members.incarnations.select("run", "short_id", "label")
        told = found.where(F.col("run") == run).withColumnRenamed("member", "short_id")
        under = F.when(F.col("guarantee") == BUDGET, "C1").otherwise(F.col("guarantee"))
        (
            told.join(F.broadcast(labels), ["run", "short_id"], how="left")
            .select("run", under.alias("guarantee"), label, "position", "time", "detail", "witness")
            .orderBy("time")
            .coalesce(1)
            .write.mode("overwrite")
            .parquet(str(out))
        )

    # -- Checks ------------------------------------------------------------------------------

    def _checks(self) -> dict[str, Check]:
        asked = {name for question in self._questions for name in _asked(question)}
        checks = {name: check for name, check in CHECKS.items() if name in asked}
        budgets = {each.run: each.budget for each in self._questions if each.budget is not None}
        if budgets:
            checks[BUDGET] = lambda tables: c1_budget.over_budget(tables, budgets, BUDGET)
        expected = {one.run: one.expected for one in self._questions if one.expected is not None}
        if expected:
            checks[IN_TIME] = lambda tables: g8_back_in_time.back_in_time(tables, expected)
        return checks

    def _violations(self, guarantee: str, check: Check) -> list[DataFrame]:
        """Return the violations of a guarantee, in one table or several. A run for which the check
        crashes is unknown."""
        found, crashed = self._in_halves(
            f"checking {guarantee}", self._sound, lambda _some, tables: keep(check(tables))
        )
        self._crashed |= {(guarantee, run): why for run, why in crashed.items()}
        return found

    def _in_halves(
        self, what: str, runs: Runs, work: Callable[[Runs, Tables], T]
    ) -> tuple[list[T], dict[str, str]]:
        """Do `work` for all these runs, whose tables are at hand, or for halves of them."""

        def tell(some: Runs) -> None:
            self._progress(f"{what} again, in {len(some)} runs one half after the other")

        def of_some(some: Runs) -> T:
            return work(some, self._tables if some == runs else self._part(some))

        return in_halves(self._tables.events.sparkSession, runs, of_some, tell)

    def _part(self, runs: Runs) -> Tables:
        if runs not in self._parts:
            self._parts[runs] = self._tables.only(runs)
        return self._parts[runs]

    def _firsts(self, runs: Runs, tables: Tables) -> dict[tuple[str, str], _First]:
        """Return the earliest violation by run and guarantee, with its witness as text."""
        found = self.violations
        if found is None:
            return {}
        if tables is not self._tables:
            found = found.where(F.col("run").isin(*runs))
        order = F.struct("time", "member", "position", "detail", "witness")
        firsts = keep(
            found.groupBy("run", "guarantee").agg(
                F.min(order).alias("first"), F.count(F.lit(1)).alias("number")
            )
        )
        events = self._witnesses(firsts)
        return {
            (row.run, row.guarantee): _First(
                row.first.detail,
                tuple(
                    events[row.run, each.member, each.number]
                    for each in row.first.witness
                    if (row.run, each.member, each.number) in events
                ),
                row.number,
                row.first.time,
            )
            for row in firsts.collect()
        }

    def _witnesses(self, firsts: DataFrame) -> dict[tuple[str, int, int], str]:
        """Return the events that prove these violations, as text."""
        shown = firsts.select("run", F.explode("first.witness").alias("event")).select(
            "run", F.col("event.member").alias("short_id"), F.col("event.number").alias("number")
        )
        key = ["run", "short_id", "number"]
        rows = self._tables.events.join(
            F.broadcast(shown.dropDuplicates(key)), key, how="left_semi"
        ).collect()
        names = self._names()
        return {
            (row.run, row.short_id, row.number): describe(row, names.get(row.run, {}))
            for row in rows
        }

    def _names(self) -> dict[str, dict[int, str]]:
        names: dict[str, dict[int, str]] = {}
        for row in self._tables.members.incarnations.select("run", "short_id", "shown").collect():
            names.setdefault(row.run, {})[row.short_id] = row.shown
        return names

    @staticmethod
    def _figures(_runs: Runs, tables: Tables) -> dict[str, Figures]:
        # The host's clock did not begin with the run: so use the phases that the rig recorded.
        begin, end = (
            F.when((F.col("kind") == "phase") & (F.col("text") == word), F.col("time"))
            for word in ("begin", "end")
        )
        counted = (
            tables.events.groupBy("run")
            .agg(
                F.count(F.lit(1)).alias("events"),
                F.max(F.col("kind") == "sent").alias("has_sent"),
                F.coalesce(F.min(begin), F.min("time")).alias("begin"),
                F.coalesce(F.max(end), F.max("time")).alias("end"),
            )
            .join(arrivals.counted(tables), "run", how="left")
            .na.fill(0, ["messages", "delivered"])
        )
        bites: dict[str, dict[str, Probe]] = {}
        for row in tables.rig.probes.where(F.col("id").isNotNull()).collect():
            bites.setdefault(row.run, {})[row.id] = Probe(row.do, row.bit or 0)
        deaths: dict[str, list[Row]] = {}
        for row in tables.rig.deaths.orderBy("time", "number").collect():
            deaths.setdefault(row.run, []).append(row)
        return {
            row.run: _figures_of(row, bites.get(row.run, {}), deaths.get(row.run, ()))
            for row in counted.collect()
        }

    # -- One run -----------------------------------------------------------------------------

    def _judge_one(
        self,
        question: Question,
        defects: Sequence[str],
        firsts: Mapping[tuple[str, str], _First],
        figures: Mapping[str, Figures],
    ) -> Judgement:
        known = figures.get(question.run, Figures(bites={}))
        asked = _asked(question)
        judged = [name for name in asked if name in CHECKS]
        if question.expected is not None and (
            IN_TIME in asked or (question.run, IN_TIME) in firsts or question.expected.awaited
        ):
            judged.append(IN_TIME)
        if defects:
            detail = _listed(defects)
            findings = [Finding(name, Verdict.UNKNOWN, detail) for name in judged or [RUN]]
        else:
            findings = [self._finding(question, name, firsts, known.begin) for name in judged]
            findings += _doubts(question, known)
        findings = [
            *(Finding(RUN, Verdict.UNKNOWN, one.told, at=one.at) for one in known.deaths),
            *(_explained(finding, known.deaths) for finding in findings),
        ]
        if not question.is_complete:
            findings = [_unproven(one) if _needs_the_end(one, known) else one for one in findings]
        if question.is_interrupted:
            findings = [_unproven(one) if one.guarantee == IN_TIME else one for one in findings]
        findings += _own_findings(question, findings)
        findings += _unchecked(asked, findings)
        named = {finding.guarantee for finding in findings}
        counts = {
            name: firsts[question.run, name].number
            for name in judged
            if (question.run, name) in firsts
        }
        return Judgement(
            question=question,
            findings=tuple(one if one.by else replace(one, by=SPARK) for one in findings),
            figures=known,
            violations=counts,
            not_judged=tuple(name for name in asked if name not in named),
        )

    def _finding(
        self,
        question: Question,
        guarantee: str,
        firsts: Mapping[tuple[str, str], _First],
        begin: float,
    ) -> Finding:
        """Return the finding on a guarantee: its earliest violation, if there is one."""
        is_asked = guarantee in (question.guarantees or CHECKS) or guarantee == IN_TIME
        names = [guarantee] if is_asked else []
        if guarantee == "C1" and question.budget is not None:
            names.append(BUDGET)
        if question.run in self._untold:
            why = f"its violations cannot be told: {self._untold[question.run]}"
            return Finding(guarantee, Verdict.UNKNOWN, why)
        found = [firsts[question.run, name] for name in names if (question.run, name) in firsts]
        if found:
            first = found[0]
            return Finding(
                guarantee, Verdict.VIOLATED, first.detail, first.witness, at=first.time - begin
            )
        for name in names:
            if (name, question.run) in self._crashed:
                why = f"its check crashed: {self._crashed[name, question.run]}"
                return Finding(guarantee, Verdict.UNKNOWN, why)
        return Finding(guarantee, Verdict.HOLDS, "no violation found")


def _asked(question: Question) -> list[str]:
    asked = list(question.guarantees if question.guarantees is not None else CHECKS)
    if question.budget is not None and "C1" not in asked:
        asked.append("C1")
    return asked


def _listed(defects: Sequence[str]) -> str:
    more = len(defects) - MOST_DEFECTS
    shown = "; ".join(defects[:MOST_DEFECTS])
    return f"{shown}; and {more} more" if more > 0 else shown


def _figures_of(row: Row, bites: Mapping[str, Probe], deaths: Sequence[Row]) -> Figures:
    begin = row.begin or 0.0
    return Figures(
        deaths=tuple(_death(each, each.time - begin) for each in deaths),
        messages=row.messages,
        delivered=row.delivered,
        has_sent=row.has_sent,
        events=row.events,
        begin=row.begin or 0.0,
        seconds=(row.end or 0.0) - (row.begin or 0.0),
        bites=bites,
    )


def _death(row: Row, at: float) -> Death:
    when = f"at {at:.1f} s" if at >= 0 else "as the scenario began, or before,"
    return Death(at, f"{row.who} died {when} of {row.how}; nothing in the scenario did that")


def _explained(finding: Finding, deaths: Sequence[Death]) -> Finding:
    """Weaken a violation to unknown that a death before it may have caused."""
    if finding.verdict is Verdict.VIOLATED and finding.guarantee in ASKS_WHO_STAYS:
        for death in deaths:
            if finding.at is None or finding.at >= death.at - EPSILON:
                detail = f"{death.told}: {finding.detail}"
                return replace(finding, verdict=Verdict.UNKNOWN, detail=detail)
    return finding


def _doubts(question: Question, figures: Figures) -> list[Finding]:
    """Return findings because of which even a run without violations proves nothing."""
    found = []
    if not figures.has_sent:
        found.append(Finding(RUN, Verdict.UNKNOWN, "nothing was sent"))
    for fault, one in figures.bites.items():
        if one.bites < question.min_bites:
            detail = f"fault {fault} ({one.kind}) did not bite: {one.bites} times"
            found.append(Finding(RUN, Verdict.UNKNOWN, detail))
    return found


def _unchecked(asked: Sequence[str], findings: Sequence[Finding]) -> list[Finding]:
    """Return findings about guarantees that were asked for and that nobody has a check for."""
    named = {finding.guarantee for finding in findings}
    return [
        Finding(name, Verdict.UNKNOWN, "no check for it")
        for name in asked
        if name not in CHECKS and name != IN_TIME and name not in named
    ]


def _needs_the_end(finding: Finding, figures: Figures) -> bool:
    """Whether a violation may be one only because the run has no proper end."""
    if finding.guarantee == g5_bounded.GUARANTEE:
        return finding.at is not None and finding.at >= figures.seconds
    return finding.guarantee in NEEDS_THE_END


def _unproven(finding: Finding) -> Finding:
    """Weaken a violation to unknown: what did not happen any more might have mended it."""
    if finding.verdict is Verdict.VIOLATED:
        return replace(finding, verdict=Verdict.UNKNOWN)
    return finding


def _own_findings(question: Question, findings: Sequence[Finding]) -> list[Finding]:
    """Return findings of the run's oracles that Spark cannot make, and findings about
    disagreements.

    A disagreement makes the run at least unknown, because one of the two judges is wrong.
    """
    judged = {*CHECKS, *([IN_TIME] if question.expected is not None else ())}
    by_guarantee = {finding.guarantee: finding.verdict for finding in findings}
    said = {finding.detail for finding in findings}
    own = []
    for one in question.own:
        if one.guarantee == RUN or one.guarantee not in judged:
            if one.guarantee != RUN or one.detail not in said:
                own.append(one)
        elif one.verdict > by_guarantee.get(one.guarantee, Verdict.HOLDS):
            detail = f"{one.guarantee} was {one.verdict} when it ran, and Spark says otherwise"
            detail = f"{detail}: {one.detail}"
            own.append(Finding(RUN, Verdict.UNKNOWN, detail, one.witness, by=THE_RUN))
    return own
