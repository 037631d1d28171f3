"""Makes verdicts from tables: one for each guarantee; that of the run is the worst of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from pyspark.sql import DataFrame, SparkSession

from stormcast.pipeline.checks import c1_budget, g8_back_in_time
from stormcast.pipeline.figures import count_figures
from stormcast.pipeline.found_violations import FoundViolations
from stormcast.pipeline.guarantees import BUDGET, CHECKS, IN_TIME
from stormcast.pipeline.halves import Runs, check_spark, in_halves
from stormcast.pipeline.judgement import Figures, Judgement
from stormcast.pipeline.judging import CheckResults, asked_of, judgement_of
from stormcast.pipeline.measured import Breach
from stormcast.pipeline.questions import Question
from stormcast.pipeline.side_by_side import side_by_side
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.violations import Check, union

Progress = Callable[[str], None]
T = TypeVar("T")

LONGEST: Final = ("G1", "C1", IN_TIME, "L1")
"""The checks that take the longest begin first, so that none is left alone at the end."""


def _place(guarantee: str) -> int:
    return LONGEST.index(guarantee) if guarantee in LONGEST else len(LONGEST)


class Verifier:
    """Judges some runs together: every check is one job over all of them."""

    def __init__(self, tables: Tables, questions: Sequence[Question], progress: Progress) -> None:
        self._tables = tables
        self._questions = questions
        self._progress = progress
        self._sound: Runs = ()
        self._parts: dict[Runs, Tables] = {}
        """The tables of some of the runs, where something crashed for all of them."""
        self._found = FoundViolations(tables, ())

    def judge(self, defects: Mapping[str, Sequence[str]]) -> list[Judgement]:
        """Return a judgement for each question, in their order."""
        every = tuple(each.run for each in self._questions)
        counted, uncounted = self._in_halves(
            "counting", every, lambda _some, tables: count_figures(tables)
        )
        figures = {run: each for some in counted for run, each in some.items()}
        # What cannot be counted proves nothing either.
        odd = {run: [f"it cannot be counted: {why}"] for run, why in uncounted.items()}
        defects = {**odd, **defects}
        # A defective trace could make a check crash, and each check is for all runs at once.
        self._tables = self._tables.without(defects)
        self._sound = tuple(run for run in every if run not in defects)
        results = self._check_all()
        return [
            judgement_of(
                question,
                results,
                figures.get(question.run, Figures(bites={})),
                defects.get(question.run, ()),
            )
            for question in self._questions
        ]

    @property
    def _spark(self) -> SparkSession:
        return self._tables.events.sparkSession

    @property
    def sound(self) -> Runs:
        """The runs without defects, once they are judged."""
        return self._sound

    @property
    def sound_events(self) -> DataFrame:
        """The events of the runs without defects, and maybe of runs that nobody asked for."""
        return self._tables.events

    def breaches(self, judgements: Sequence[Judgement]) -> dict[str, tuple[Breach, ...]]:
        """Return by run the first violations of each guarantee, for the marks in charts. A run for
        which that crashes has none."""
        by_run = {judgement.question.run: judgement for judgement in judgements}

        def of_some(runs: Runs, _tables: Tables) -> dict[str, tuple[Breach, ...]]:
            return self._found.breaches([by_run[run] for run in runs])

        found, _crashed = self._in_halves("marking violations", tuple(by_run), of_some)
        return {run: breaches for some in found for run, breaches in some.items()}

    def check_spark(self, error: Exception) -> None:
        """Raise SparkLost if Spark went away, which explains `error`."""
        check_spark(self._spark, error)

    def write_violations(self, judgement: Judgement, out: Path) -> None:
        """Write all violations of one run as Parquet, with members' labels, not their short ids."""
        self._found.write(judgement, out)

    # -- Checks ------------------------------------------------------------------------------

    def _checks(self) -> dict[str, Check]:
        asked = {name for question in self._questions for name in asked_of(question)}
        checks = {name: check for name, check in CHECKS.items() if name in asked}
        budgets = {each.run: each.budget for each in self._questions if each.budget is not None}
        if budgets:
            checks[BUDGET] = lambda tables: c1_budget.over_budget(tables, budgets, BUDGET)
        expected = {one.run: one.expected for one in self._questions if one.expected is not None}
        if expected:
            checks[IN_TIME] = lambda tables: g8_back_in_time.back_in_time(tables, expected)
        return checks

    def _check_all(self) -> CheckResults:
        """Do every check that is asked for, for all runs without defects. A run for which a check
        crashes is unknown."""
        checks = self._checks()
        works = {
            name: partial(self._violations, name, checks[name])
            for name in sorted(checks, key=_place)
        }
        found: list[DataFrame] = []
        crashed: dict[tuple[str, str], str] = {}
        for guarantee, (parts, failed) in side_by_side(self._spark, works).items():
            crashed |= {(guarantee, run): why for run, why in failed.items()}
            if parts:
                found.append(union(*parts))
        self._found = FoundViolations(self._tables, found)
        told, untold = self._in_halves("telling violations", self._sound, self._found.firsts)
        firsts = {key: first for some in told for key, first in some.items()}
        return CheckResults(firsts=firsts, crashed=crashed, untold=untold)

    def _violations(self, guarantee: str, check: Check) -> tuple[list[DataFrame], dict[str, str]]:
        """Return the violations of a guarantee, in one table or several, and by run why the check
        crashed."""
        self._progress(f"checking {guarantee}")
        return self._in_halves(
            f"checking {guarantee}", self._sound, lambda _some, tables: keep(check(tables))
        )

    def _in_halves(
        self, what: str, runs: Runs, work: Callable[[Runs, Tables], T]
    ) -> tuple[list[T], dict[str, str]]:
        """Do `work` for all these runs, whose tables are at hand, or for halves of them."""

        def tell(some: Runs) -> None:
            self._progress(f"{what} again, in {len(some)} runs one half after the other")

        def of_some(some: Runs) -> T:
            return work(some, self._tables if some == runs else self._part(some))

        return in_halves(self._spark, runs, of_some, tell)

    def _part(self, runs: Runs) -> Tables:
        if runs not in self._parts:
            self._parts[runs] = self._tables.only(runs)
        return self._parts[runs]
