"""`stormcast chaos-test`: runs on real packets, then Spark as a second judge, and one report.

This is glue: the rig knows nothing of Spark, and the pipeline nothing of runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from stormcast.chaos.commands import suite as command
from stormcast.chaos.commands.output import say
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.exits import Exit
from stormcast.pipeline import session
from stormcast.pipeline.questions import CannotError
from stormcast.pipeline.report.writing import write_batch, write_report
from stormcast.verify import verify_quietly

_MEANS: Final = {Exit.HOLDS: Verdict.HOLDS, Exit.VIOLATED: Verdict.VIOLATED}


def chaos_test(argv: list[str]) -> int:
    """Run `chaos-test`; verify and report its runs on real packets."""
    return command.chaos_test(argv, _judge_again)


def _judge_again(batch: Path, runs: Sequence[Path]) -> command.Again:
    """Judge all runs on Spark. Without Spark there is no second verdict: that of the oracles
    stands."""
    kept = [run for run in runs if (run / "trace").is_dir()]
    try:
        session.check_pyspark()
        session.check_java()
    except CannotError as error:
        for run in kept:
            write_report(run)
        return command.Again(Verdict.HOLDS, f"no second judge: {error}", write_batch(batch))
    if kept:
        say(f"Spark now judges the same runs ({len(kept)}) again: some minutes")
    verdict = _MEANS.get(verify_quietly(kept), Verdict.UNKNOWN) if kept else Verdict.UNKNOWN
    text = f"Spark, on the same {len(kept)} runs: {verdict}"
    return command.Again(verdict, text, write_batch(batch, str(verdict)))
