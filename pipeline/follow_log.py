"""What a follower has found, in two files that only grow: a verdict per chapter, and an alarm per
violation, each once, whenever the follower is killed.

A verdict is written first. Alarms follow from it: those that a kill has left out are written when
the files are opened again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from stormcast.pipeline.chapters import UNKNOWN, ChapterVerdict, Spans, read_verdict
from stormcast.pipeline.questions import VerifyError
from stormcast.whole import append_lines, mend_lines

VERDICTS: Final = "verdicts.jsonl"
ALARMS: Final = "alarms.jsonl"

Alarm = dict[str, Any]


class FollowLog:
    """The verdicts and alarms on one soak."""

    def __init__(self, folder: Path) -> None:
        self._verdicts = folder / VERDICTS
        self._alarms = folder / ALARMS
        self._done = Spans()
        self.counts: Counter[str] = Counter()
        """How many chapters there are of each verdict."""

    def open(self, on_old: Callable[[ChapterVerdict], object]) -> list[Alarm]:
        """Read what is there, call `on_old` with each verdict, and write the alarms that are
        missing; returns those."""
        mend_lines(self._verdicts)
        mend_lines(self._alarms)
        told = {(one["chapter"], one["nth"]) for one in _lines(self._alarms, json.loads)}
        missing = []
        for verdict in _lines(self._verdicts, read_verdict):
            self._note(verdict)
            on_old(verdict)
            missing += [one for one in verdict.alarms() if (one["chapter"], one["nth"]) not in told]
        self._sound(missing)
        return missing

    def is_done(self, chapter: int) -> bool:
        """Whether the verdict on a chapter, or on one that this window is a part of, is written."""
        return chapter in self._done

    def add(self, verdict: ChapterVerdict) -> list[Alarm]:
        """Write the verdict on a chapter that has none yet, and its alarms; returns those."""
        assert not self.is_done(verdict.chapter), "a chapter has one verdict"
        append_lines(self._verdicts, verdict.as_line())
        self._note(verdict)
        alarms = list(verdict.alarms())
        self._sound(alarms)
        return alarms

    def _sound(self, alarms: list[Alarm]) -> None:
        if alarms:
            append_lines(self._alarms, "".join(json.dumps(one) + "\n" for one in alarms))

    def _note(self, verdict: ChapterVerdict) -> None:
        self._done.add(verdict.first, verdict.chapter)
        self.counts[verdict.verdict] += 1

    @property
    def worst(self) -> str:
        """The worst verdict; of no chapter nothing is known."""
        found = [one for one in ("violated", UNKNOWN, "holds") if self.counts[one]]
        return found[0] if found else UNKNOWN


def _lines(path: Path, read: Callable[[str], Any]) -> Iterator[Any]:
    if not path.is_file():
        return
    with path.open() as file:
        for number, line in enumerate(file, 1):
            try:
                yield read(line)
            except (ValueError, KeyError, TypeError) as error:
                raise VerifyError(
                    f"line {number} of {path} cannot be read ({error}): mend or remove that line"
                ) from None
