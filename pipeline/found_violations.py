"""The violations that all checks found: the first of each guarantee with its witness, those that
charts mark, and all of them in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from stormcast.pipeline.guarantees import BUDGET
from stormcast.pipeline.halves import Runs
from stormcast.pipeline.judgement import Judgement
from stormcast.pipeline.judging import First
from stormcast.pipeline.measured import Breach
from stormcast.pipeline.tables import Tables
from stormcast.pipeline.tables.kept import keep
from stormcast.pipeline.violations import union
from stormcast.pipeline.witness import describe

MARKED: Final = 40
"""The most violations of a guarantee that charts mark."""


class FoundViolations:
    """All violations of all runs, and the tables that tell what they are about."""

    def __init__(self, tables: Tables, found: Sequence[DataFrame]) -> None:
        self._tables = tables
        self._found = found
        """The violations of each guarantee whose check did not crash for every run."""

    @property
    def _all(self) -> DataFrame | None:
        return union(*self._found) if self._found else None

    def firsts(self, runs: Runs, tables: Tables) -> dict[tuple[str, str], First]:
        """Return the earliest violation by run and guarantee, with its witness as text."""
        found = self._all
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
            (row.run, row.guarantee): First(
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

    def breaches(self, judgements: Sequence[Judgement]) -> dict[str, tuple[Breach, ...]]:
        """Return by run the first violations of each guarantee, for the marks in charts."""
        found = self._all
        judged = {each.question.run: each for each in judgements if each.violations}
        if found is None or not judged:
            return {}
        order = Window.partitionBy("run", "under").orderBy("time", "member", "position")
        rows = (
            found.where(F.col("run").isin(*judged))
            .withColumn("under", _reported_under())
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

    def write(self, judgement: Judgement, out: Path) -> None:
        """Write all violations of one run as Parquet, with members' labels, not their short ids."""
        found, run = self._all, judgement.question.run
        if found is None or not judgement.violations:
            return
        label = F.coalesce("label", F.lower(F.hex("short_id"))).alias("member")
        labels = self._tables.members.incarnations.select("run", "short_id", "label")
        guarantee = _reported_under().alias("guarantee")
        told = found.where(F.col("run") == run).withColumnRenamed("member", "short_id")
        (
            told.join(F.broadcast(labels), ["run", "short_id"], how="left")
            .select("run", guarantee, label, "position", "time", "detail", "witness")
            .orderBy("time")
            .coalesce(1)
            .write.mode("overwrite")
            .parquet(str(out))
        )


def _reported_under() -> Column:
    """Return the guarantee under which a violation is reported."""
    return F.when(F.col("guarantee") == BUDGET, "C1").otherwise(F.col("guarantee"))
