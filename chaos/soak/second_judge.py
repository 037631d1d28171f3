"""What a second judge has said of a soak's chapters, as `stormcast verify --follow` writes it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from stormcast.chaos.oracles.verdict import Verdict

VERDICTS: Final = "follow/verdicts.jsonl"
TOLD: Final = 20
"""The most chapters that are named."""


def with_second_judge(status: Mapping[str, Any], second: SecondJudge) -> dict[str, Any]:
    """Return what `status.json` says, with what the second judge says; it is not worse for chapters
    of which that has no verdict. Where the two disagree, nobody knows which of them is wrong."""
    said = second.as_json()
    if said is None:
        return dict(status)
    is_worse = second.disagrees and status.get("verdict") == str(Verdict.HOLDS)
    return {
        **status,
        **({"verdict": str(Verdict.UNKNOWN)} if is_worse else {}),
        "spark": said,
    }


def disputed_windows(soak: Path) -> frozenset[int]:
    """Return the windows of all chapters on which the judges disagree: each of them is unknown."""
    path = soak / VERDICTS
    # A line without its end is still being written, or will be removed.
    whole, _newline, _rest = path.read_text().rpartition("\n") if path.is_file() else ("", "", "")
    disputed = filter(_is_disputed, map(json.loads, whole.splitlines()))
    return frozenset(
        window for one in disputed for window in range(int(one["first"]), int(one["chapter"]) + 1)
    )


def _is_disputed(told: Mapping[str, Any]) -> bool:
    return bool(told["judged"]) and not told["agrees"]


class SecondJudge:
    """Reads the verdicts of the follower, each once, while it writes them."""

    def __init__(self, soak: Path) -> None:
        self._path = soak / VERDICTS
        self._forget()

    def _forget(self) -> None:
        self._read = 0
        self._verdicts: Counter[str] = Counter()
        self._disputed: list[int] = []
        self._disagreements = 0

    @property
    def disagrees(self) -> bool:
        """Whether the judges disagree about a chapter: one of them is wrong."""
        return self._disagreements > 0

    def as_json(self) -> dict[str, Any] | None:
        """Return what `status.json` says of it; None: nobody follows."""
        self._look()
        if not self._verdicts:
            return None
        return {
            "chapters": sum(self._verdicts.values()),
            "verdicts": dict(self._verdicts),
            "disagreements": self._disagreements,
            "disputed": list(self._disputed),
        }

    def _look(self) -> None:
        if not self._path.is_file():
            return
        if self._path.stat().st_size < self._read:
            # Somebody has removed it, and follows anew.
            self._forget()
        with self._path.open("rb") as file:
            file.seek(self._read)
            # A line without its end is still being written, or will be removed.
            whole, newline, _rest = file.read().rpartition(b"\n")
        self._read += len(whole) + len(newline)
        for line in whole.splitlines():
            self._take(json.loads(line))

    def _take(self, told: dict[str, Any]) -> None:
        is_disputed = _is_disputed(told)
        self._verdicts["unknown" if is_disputed else str(told["verdict"])] += 1
        if is_disputed:
            self._disagreements += 1
            if len(self._disputed) < TOLD:
                self._disputed.append(int(told["chapter"]))
