"""What Spark has said of the chapters of a soak while it went on (`stormcast verify --follow`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stormcast.pipeline.report.run_files import UNKNOWN

VERDICTS: Final = "follow/verdicts.jsonl"


@dataclass(frozen=True, slots=True)
class SecondVerdict:
    """Spark's verdict on the chapter that a window belongs to."""

    line: Mapping[str, Any]

    @property
    def verdict(self) -> str:
        return str(self.line["verdict"])

    @property
    def is_disputed(self) -> bool:
        """Whether the judges disagree, so that one of them is wrong."""
        return bool(self.line["judged"]) and not self.line["agrees"]

    @property
    def chapter(self) -> str:
        """The directory of the chapter, which is there as long as it does not hold."""
        return f"chapters/{int(self.line['chapter']):06}"

    def in_words(self) -> str:
        """Say what Spark found, or why it found nothing."""
        if not self.line["judged"]:
            return f"Spark: {self.line['why']}"
        found = (f"{one['guarantee']}: {one['detail']}" for one in self.line["findings"][:2])
        what = "; ".join(found) or "no violation found"
        if not self.is_disputed:
            return f"Spark: {what}"
        return (
            f"the judges disagree: {self.line['own']} by the oracles, {self.verdict} by Spark: "
            f"{what}"
        )


def second_verdicts(soak: Path) -> dict[int, SecondVerdict]:
    """Return by window what Spark has said; empty: nobody follows."""
    return {
        window: verdict
        for verdict in _read(soak / VERDICTS)
        for window in range(int(verdict.line["first"]), int(verdict.line["chapter"]) + 1)
    }


def _read(path: Path) -> Iterator[SecondVerdict]:
    if not path.is_file():
        return
    # A line without its end is being written now.
    whole, _newline, _rest = path.read_text().rpartition("\n")
    for line in whole.splitlines():
        yield SecondVerdict(json.loads(line))


def worse(own: str, second: SecondVerdict | None) -> str:
    """Return the verdict on a window of which the oracles say `own`."""
    return UNKNOWN if second is not None and second.is_disputed else own
