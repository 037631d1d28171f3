"""A campaign: rounds against every target, kept as they end, and gone on with after a break.

A finding is made smaller by halving its range, each half against a fresh group.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from stormcast.node.core.errors import ConfigError, NodeError
from tests.fuzz.frames import CHUNK
from tests.fuzz.groups import BY_NAME, Target
from tests.fuzz.rounds import FORGED, KEYED, PLAIN, Result, Round, Tell, play

FORGED_SHARE: Final = 0.25
"""Of the frames for a target where some have power without keys."""
FORGED_ROUND: Final = 100_000
"""Frames of such a round at most: after some thousand the group is in pieces, and a fresh one has
more to lose."""
PLAN: Final = "fuzz.json"
ROWS: Final = "rounds.jsonl"
FACTS: Final = "facts.json"
MOST_FAILURES: Final = 3
"""Rounds in a row that this machine could not play."""

Play = Callable[[Target, Round, Path, Tell, Path | None], Result]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a campaign sends."""

    frames: int
    """In all; each target has its share, or all of them if it is the only one."""
    seed: int
    targets: tuple[str, ...]
    parts: tuple[str, ...] = (PLAIN, FORGED)
    round_frames: int = 1_000_000
    first: int = 0
    settings: tuple[str, ...] = ()

    def rounds(self) -> list[Round]:
        """Return all rounds, those of all targets in turn: a campaign that is broken off has met
        each of them."""
        lists = [list(self._of(BY_NAME[name])) for name in self.targets]
        ranked = [
            (at / len(rounds), number, one)
            for number, rounds in enumerate(lists)
            for at, one in enumerate(rounds)
        ]
        return [one for *_rank, one in sorted(ranked, key=lambda entry: entry[:2])]

    def _of(self, target: Target) -> Iterator[Round]:
        shares = sum(BY_NAME[name].share for name in self.targets)
        frames = self.frames * target.share / shares
        has_parts = target.has_powers or KEYED in self.parts
        parts = self.parts if has_parts else (PLAIN,)
        for part in parts:
            share = 1.0
            if len(parts) > 1:
                share = FORGED_SHARE if part == FORGED else 1 - FORGED_SHARE
            chunks = max(1, round(frames * share / CHUNK))
            most = min(self.round_frames, FORGED_ROUND) if part == FORGED else self.round_frames
            step = max(1, most // CHUNK)
            for at in range(0, chunks, step):
                yield Round(
                    target=target.name,
                    part=part,
                    seed=self.seed,
                    first=self.first + at * CHUNK,
                    count=min(step, chunks - at) * CHUNK,
                    settings=self.settings,
                )


class Campaign:
    """A plan, its directory, and the rounds that are done."""

    def __init__(self, plan: Plan, out: Path, tell: Tell, play_: Play = play) -> None:
        self.plan = plan
        self.out = out
        self._tell = tell
        self._play = play_
        out.mkdir(parents=True, exist_ok=True)
        path = out / PLAN
        words = json.loads(json.dumps(asdict(plan)))
        if path.exists():
            if json.loads(path.read_text()) != words:
                raise ConfigError(
                    f"--out {out}: another campaign is there, of other frames, targets or seed; "
                    "choose another directory, or say the same again to go on with it"
                )
        else:
            path.write_text(json.dumps(words, indent=1) + "\n")
        self.results = self._read()

    def _read(self) -> list[Result]:
        path = self.out / ROWS
        if not path.exists():
            return []
        text = path.read_text()
        if not text.endswith("\n"):
            # A process that was killed has not written this line to its end.
            text = text[: text.rfind("\n") + 1]
            path.write_text(text)
        rows: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
        return [Result.from_words(row) for row in rows]

    @property
    def left(self) -> list[Round]:
        """The rounds that are still to be played."""
        done = {result.round for result in self.results}
        return [one for one in self.plan.rounds() if one not in done]

    def run(self, facts: Path | None = None, trials: int = 0) -> None:
        """Play what is left; make findings smaller in so many `trials` each."""
        failures = 0
        left = self.left
        for number, one in enumerate(left):
            self._tell(f"round {number + 1} of {len(left)}: {one.key}")
            try:
                result = self._played(one, self.out / one.key, facts)
            except (NodeError, OSError) as error:
                failures += 1
                self._tell(f"{one.key} could not be played: {error}")
                if failures >= MOST_FAILURES:
                    raise
                continue
            failures = 0
            if result.findings:
                # Said before the range is made smaller, which takes longer than the round.
                for what in result.findings:
                    self._tell(f"{one.key}: {what}")
                kept = self.out / one.key / FACTS
                result.repeat = repeat_command(self._shrunk(result, trials), kept)
            self._keep(result)

    def _played(self, one: Round, folder: Path, facts: Path | None) -> Result:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        result = self._play(BY_NAME[one.target], one, folder, self._tell, facts)
        if not result.findings:
            shutil.rmtree(folder)
        return result

    def _keep(self, result: Result) -> None:
        self.results.append(result)
        with (self.out / ROWS).open("a") as rows:
            rows.write(json.dumps(result.as_words()) + "\n")

    def _shrunk(self, found: Result, trials: int) -> Round:
        """Return the smallest range that was seen to find the same."""
        folder = self.out / found.round.key
        facts = folder / FACTS
        kept = facts if facts.exists() else None

        def fails(one: Round) -> bool:
            trial = folder / f"{one.first}-{one.count}"
            try:
                result = self._played(one, trial, kept)
            except (NodeError, OSError):
                return False
            return fingerprint(result.findings) == fingerprint(found.findings)

        return halved(found.round, fails, trials)


def halved(one: Round, fails: Callable[[Round], bool], trials: int) -> Round:
    """Return a smaller range that fails, too: half of the last one, as long as one of its halves
    fails, in so many trials."""
    while trials > 0 and one.count > CHUNK:
        half = one.count // CHUNK // 2 * CHUNK
        halves = (
            replace(one, count=half),
            replace(one, first=one.first + half, count=one.count - half),
        )
        for part in halves:
            if trials <= 0:
                return one
            trials -= 1
            if fails(part):
                one = part
                break
        else:
            return one
    return one


def fingerprint(findings: Sequence[str]) -> str:
    """Return the first finding without its numbers: what two rounds have in common."""
    return re.sub(r"[0-9a-f.]*\d[0-9a-f.]*", "#", findings[0])[:100] if findings else ""


def repeat_command(one: Round, facts: Path) -> str:
    """Return the words that play a round again, with the frames that were recorded then."""
    part = "--keyed" if one.is_keyed else f"--part {one.part}"
    words = [
        f"python -m tests.fuzz --target {one.target} {part} --seed {one.seed}",
        f"--from {one.first} --frames {one.count}",
        *(f"--set {setting}" for setting in one.settings),
    ]
    if BY_NAME[one.target].by != "requests":
        words.append(f"--facts {facts}")
    return " ".join(words)
