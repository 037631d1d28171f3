"""Soaks whose chapters are told by hand, as `stormcast soak --keep-chapters` leaves them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stormcast.chaos.oracles.verdict import Judgement
from stormcast.pipeline.evidence import digest_of
from tests.pipeline.batch import write_run

SOAK = "5eed"


class MadeSoak:
    """The directory of a soak."""

    def __init__(self, path: Path, *, first: int = 0, soak: str = SOAK) -> None:
        self.path = path
        self.chapters = path / "chapters"
        self.follow = path / "follow"
        self._soak = soak
        (self.chapters / "announced").mkdir(parents=True)
        (path / "soak.json").write_text('{"seed": 1, "backend": "sim"}')
        about = {"soak": soak, "first": first, "bound": 1 << 30}
        (self.chapters / "about.json").write_text(json.dumps(about))

    def directory(self, chapter: int) -> Path:
        return self.chapters / f"{chapter:06}"

    def manifest(self, chapter: int) -> Path:
        return self.chapters / f"announced/{chapter:06}.json"

    def add(
        self,
        chapter: int,
        blocks: Mapping[str, bytes],
        verdict: str = "holds",
        findings: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Write a chapter and its window, and announce nothing."""
        directory = write_run(blocks, self.directory(chapter))
        (directory / "seed").write_text("1\n")
        said = {
            "verdict": verdict,
            "findings": list(findings),
            "min_bites": 0,
            "complete": True,
            "interrupted": False,
            "evidence_digest": digest_of(directory),
        }
        (directory / "verdict.json").write_text(json.dumps(said))
        self.play(chapter, verdict)

    def add_judged(self, chapter: int, blocks: Mapping[str, bytes], judgement: Judgement) -> None:
        """As `add`, with what the oracles found."""
        findings = [one.as_json() for one in judgement.findings]
        self.add(chapter, blocks, str(judgement.verdict), findings)

    def play(self, window: int, verdict: str = "holds", trace_bytes: int = 9) -> None:
        """Write the line of a window."""
        line = {
            "window": window,
            "verdict": verdict,
            "findings": [],
            "seconds": 60.0,
            "sent": 1,
            "delivered": 1,
            "faults": {},
            "weights": {},
            "trace_bytes": trace_bytes,
        }
        with (self.path / "windows.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def announce(self, *chapters: int, **more: object) -> None:
        """Announce chapters that are written."""
        for chapter in chapters:
            directory = self.directory(chapter)
            manifest = {
                "soak": self._soak,
                "chapter": chapter,
                "first": chapter,
                "path": f"chapters/{chapter:06}",
                "digest": digest_of(directory),
                "verdict": json.loads((directory / "verdict.json").read_text())["verdict"],
                "bytes": 9,
                "ended": 1000.0 + chapter,
                **more,
            }
            part = self.chapters / f"announced/.{chapter:06}.json.part"
            part.write_text(json.dumps(manifest) + "\n")
            part.replace(self.manifest(chapter))

    def drop(self, chapter: int, why: str = "1GiB waited") -> None:
        """Write that a chapter was dropped."""
        with (self.chapters / "dropped.jsonl").open("a") as file:
            line = {"chapter": chapter, "first": chapter, "bytes": 9, "why": why}
            file.write(json.dumps(line) + "\n")

    def end(self, **more: object) -> None:
        """Say that the soak is over."""
        told = {"verdict": "holds", "is_over": True, **more}
        (self.path / "status.json").write_text(json.dumps(told))

    def verdicts(self) -> list[dict[str, Any]]:
        """Return the lines of the follower on chapters."""
        return lines(self.follow / "verdicts.jsonl")

    def alarms(self) -> list[dict[str, Any]]:
        """Return the alarms that it has told."""
        return lines(self.follow / "alarms.jsonl")


def lines(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
