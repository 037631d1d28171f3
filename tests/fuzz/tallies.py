"""What was sent, and what members must say of it, as counts that add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

MOST_FINDINGS: Final = 20


@dataclass(slots=True)
class Tally:
    """Counts of one range of frames."""

    sent: Counter[str] = field(default_factory=Counter)
    """Frames, datagrams, connections or requests, by what they are."""
    certain: dict[str, Counter[str]] = field(default_factory=dict)
    """By member: refusals that must be counted, by reason."""
    possible: dict[str, Counter[str]] = field(default_factory=dict)
    """By member: refusals that may be counted besides."""
    powers: Counter[str] = field(default_factory=Counter)
    """Frames by what they may do to a group without keys, and those with power by kind."""
    findings: list[tuple[int, str]] = field(default_factory=list)
    """Numbers of frames, and answers to them that must not be."""

    def foresee(
        self, name: str, certain: Mapping[str, int], possible: Mapping[str, int] | None = None
    ) -> None:
        """Count what one member must, and may, refuse."""
        self.certain.setdefault(name, Counter()).update(certain)
        self.possible.setdefault(name, Counter()).update(possible or {})

    def find(self, number: int, what: str) -> None:
        """Note something that must not be."""
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append((number, what))

    def add(self, other: Tally) -> None:
        """Add the counts of another range."""
        self.sent += other.sent
        self.powers += other.powers
        for name, counts in other.certain.items():
            self.foresee(name, counts, other.possible.get(name))
        self.findings += other.findings[: MOST_FINDINGS - len(self.findings)]

    def as_words(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        return {
            "sent": dict(self.sent),
            "certain": {name: dict(counts) for name, counts in self.certain.items()},
            "possible": {name: dict(counts) for name, counts in self.possible.items()},
            "powers": dict(self.powers),
            "findings": self.findings,
        }

    @classmethod
    def from_words(cls, words: Mapping[str, Any]) -> Self:
        """Read what `as_words` returned."""
        return cls(
            sent=Counter(words["sent"]),
            certain={name: Counter(counts) for name, counts in words["certain"].items()},
            possible={name: Counter(counts) for name, counts in words["possible"].items()},
            powers=Counter(words["powers"]),
            findings=[(int(number), str(text)) for number, text in words["findings"]],
        )
