"""What a follower prints: alarms and chapters that do not hold on stdout, the rest on stderr."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stormcast.pipeline.chapters import ChapterVerdict
from stormcast.pipeline.cli import say
from stormcast.pipeline.follow_log import Alarm
from stormcast.pipeline.questions import one_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Prints the lines of a follower."""

    shown: Callable[[str], str]
    """Returns a line as it may be shown: names and texts of traces may hold anything."""
    as_json: bool = False
    on_kept: Callable[[Path], object] = lambda _directory: None
    """Called with the directory of each chapter that stays as evidence."""

    def verdict(self, verdict: ChapterVerdict, alarms: Sequence[Alarm], directory: Path) -> None:
        """Tell what became of a chapter: nothing in words if it holds."""
        if self.as_json:
            print(verdict.as_line(), end="", flush=True)
        else:
            for alarm in alarms:
                self.alarm(alarm)
            for line in _in_words(verdict):
                print(self.shown(line), flush=True)
        if not verdict.is_through and directory.is_dir():
            self._kept(directory)

    def alarm(self, alarm: Alarm) -> None:
        """Tell a violation, with its witness, in one line."""
        if self.as_json:
            return
        by = "" if alarm.get("by") == "spark" else " (when it ran)"
        what = f"{alarm['guarantee']} violated{by}: {alarm['detail']}"
        line = "; ".join((f"chapter {alarm['chapter']}: {what}", *alarm.get("witness", ())))
        print(self.shown(line), flush=True)

    def _kept(self, directory: Path) -> None:
        say(self.shown(f"{directory} stays as evidence"))
        try:
            self.on_kept(directory)
        except Exception as error:  # noqa: BLE001 a report that fails must not take verdicts along
            say(self.shown(f"{directory} has no report: {one_line(error)}"))

    def summary(self, worst: str, counts: Mapping[str, int]) -> None:
        """Tell how it all went."""
        line = f"follow: {worst}   {sum(counts.values())} chapters: {self.in_words(counts)}"
        if self.as_json:
            say(line)
        else:
            print(line, flush=True)

    def in_words(self, counts: Mapping[str, int]) -> str:
        """Return how many chapters there are of each verdict."""
        words = {"holds": "hold", "violated": "violated", "unknown": "unknown"}
        return ", ".join(f"{counts.get(one, 0)} {word}" for one, word in words.items())


def _in_words(verdict: ChapterVerdict) -> list[str]:
    """Return lines on a chapter that is unknown, or about which the judges disagree."""
    lines = []
    if not verdict.judged:
        lines.append(f"{verdict.windows}: {verdict.verdict}: {verdict.why}")
    elif verdict.verdict == "unknown":
        details = [
            str(one.get("detail")) for one in verdict.findings if one["verdict"] != "violated"
        ]
        lines.append(f"{verdict.windows}: unknown: {'; '.join(dict.fromkeys(details))}")
    if verdict.judged and not verdict.agrees:
        said = f"{verdict.own} by the oracles, {verdict.verdict} by Spark"
        if verdict.own == verdict.verdict:
            said = f"other guarantees are {verdict.verdict} by the oracles than by Spark"
        lines.append(f"{verdict.windows}: the judges disagree: {said}")
    return lines
