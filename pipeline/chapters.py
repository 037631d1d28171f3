"""Chapters of a soak: the manifests that announce them, and the lines that say what became of them.

No Spark is needed for that.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from stormcast.findings import Verdict

MANIFESTS: Final = (
    "soak STRING, chapter LONG, first LONG, path STRING, digest STRING, verdict STRING, "
    "bytes LONG, ended DOUBLE, broken STRING"
)
"""The schema of manifests; `broken` has the text of one that is no such object."""
SUFFIX: Final = ".json"
HOLDS: Final = str(Verdict.HOLDS)
UNKNOWN: Final = str(Verdict.UNKNOWN)
VIOLATED: Final = str(Verdict.VIOLATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One chapter, as its manifest announces it."""

    chapter: int
    """The number of its last window."""
    first: int
    """That of its first window."""
    digest: str = ""
    """Of scenario, seed and traces."""
    own: str = ""
    """The verdict of the soak's own oracles."""
    ended: float | None = None
    """The time of day when its last window had been played."""
    odd: str = ""
    """The reason why nothing else in the manifest is believed; empty: there is none."""

    @property
    def name(self) -> str:
        return name_of(self.chapter)


def name_of(chapter: int) -> str:
    """Return the name of a chapter: of its directory, and of its run."""
    return f"{chapter:06}"


def manifest_of(content: Mapping[str, Any], file: str, soak: str) -> Manifest | None:
    """Return what a manifest says; None where the file is none by its name. Files may hold
    anything: no path in them is followed."""
    name = file.removesuffix(SUFFIX)
    if not (name.isascii() and name.isdecimal() and file.endswith(SUFFIX)):
        return None
    number = int(name)
    odd = _why_odd(content, number, soak)
    if odd:
        return Manifest(chapter=number, first=number, odd=f"its manifest {file} {odd}")
    return Manifest(
        chapter=number,
        first=content["first"],
        digest=content["digest"],
        own=content["verdict"],
        ended=float(content["ended"]),
    )


def _why_odd(content: Mapping[str, Any], number: int, soak: str) -> str:
    texts = ("soak", "path", "digest", "verdict")
    if not all(isinstance(content.get(key), str) for key in texts) or not all(
        isinstance(content.get(key), int | float) for key in ("chapter", "first", "ended")
    ):
        return "cannot be read"
    if content["soak"] != soak:
        return "is of another soak"
    if (content["chapter"], content["path"]) != (number, f"chapters/{name_of(number)}"):
        return "is of another chapter"
    if not 0 <= content["first"] <= number:
        return "says that the chapter begins after its end"
    return ""


def read_manifest(path: Path, soak: str) -> Manifest | None:
    """Read a manifest that the stream has passed over: an empty file, for instance."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        content = {}
    return manifest_of(content if isinstance(content, dict) else {}, path.name, soak)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChapterVerdict:
    """The verdict of Spark on one chapter: a line of `verdicts.jsonl`."""

    chapter: int
    first: int
    verdict: str
    own: str = ""
    agrees: bool = False
    """Whether both judges say the same, of each guarantee."""
    judged: bool = False
    """Whether Spark had its traces, and these were those that the oracles judged."""
    why: str = ""
    """The reason why it was not judged."""
    findings: tuple[Mapping[str, Any], ...] = ()
    """The findings that do not hold."""
    digest: str = ""
    ended: float | None = None
    at: float
    """The time of day of this verdict."""

    @property
    def is_through(self) -> bool:
        """Whether both judges say that it holds, so that nobody needs its traces any more."""
        return self.judged and self.agrees and self.verdict == HOLDS

    @property
    def windows(self) -> str:
        if self.first == self.chapter:
            return f"chapter {self.chapter}"
        return f"chapter {self.chapter} (windows {self.first} to {self.chapter})"

    def as_line(self) -> str:
        """Return the line of `verdicts.jsonl`."""
        return json.dumps({**asdict(self), "findings": list(self.findings)}) + "\n"

    def alarms(self) -> Iterator[dict[str, Any]]:
        """Yield the lines of `alarms.jsonl`: one for each violation."""
        violated = (one for one in self.findings if one.get("verdict") == VIOLATED)
        for nth, finding in enumerate(violated):
            about = {"chapter": self.chapter, "first": self.first, "nth": nth}
            yield {**about, **finding, "ended": self.ended, "told": self.at}


def read_verdict(line: str) -> ChapterVerdict:
    """Read a line of `verdicts.jsonl`; ValueError, KeyError or TypeError if it is none."""
    told = json.loads(line)
    return ChapterVerdict(**{**told, "findings": tuple(told["findings"])})


def not_judged(manifest: Manifest, why: str, at: float) -> ChapterVerdict:
    """Return that Spark has no verdict on a chapter, and why."""
    return ChapterVerdict(
        chapter=manifest.chapter,
        first=manifest.first,
        verdict=UNKNOWN,
        own=manifest.own,
        why=why,
        digest=manifest.digest,
        ended=manifest.ended,
        at=at,
    )


class Spans:
    """Whole numbers as spans, so that a row of many takes no more room than one."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        """The last number of each span; spans ascend, and no two of them touch."""

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number <= self._ends[at]

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, first: int, last: int) -> None:
        """Add the numbers from the first to the last."""
        begin = bisect_left(self._ends, first - 1)
        end = bisect_right(self._starts, last + 1)
        if begin < end:
            first = min(first, self._starts[begin])
            last = max(last, self._ends[end - 1])
        self._starts[begin:end] = [first]
        self._ends[begin:end] = [last]
