"""From evidence to a verdict: every guarantee asked for, judged on its own, merged to the worst."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import total_ordering
from typing import Protocol

from chaos.oracles.evidence import Evidence, Payloads


@total_ordering
class Verdict(Enum):
    """How a guarantee fared, from best to worst."""

    HOLDS = 0
    UNKNOWN = 1
    """The evidence proves neither: a check crashed, a trace is torn, a fault had no effect."""
    VIOLATED = 2

    def __lt__(self, other: Verdict) -> bool:
        return self.value < other.value

    def __str__(self) -> str:
        return self.name.lower()


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of them; nothing at all holds."""
    return max(verdicts, default=Verdict.HOLDS)


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one guarantee, and the few events that prove it."""

    guarantee: str
    verdict: Verdict
    detail: str
    witness: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """All findings of a run and their worst; `run` is the pseudo-guarantee that it proves anything."""

    verdict: Verdict
    findings: tuple[Finding, ...]

    def of(self, guarantee: str) -> Finding:
        """The finding on one guarantee."""
        return next(finding for finding in self.findings if finding.guarantee == guarantee)


class Budget(Protocol):
    """What control traffic a scenario allows; None is no limit."""

    @property
    def acks(self) -> float | None:
        """Acks per message sent."""

    @property
    def resends(self) -> float | None:
        """Resent messages per message sent."""

    @property
    def syncs(self) -> int | None:
        """SEND_FIRST_SEQNO in the whole run."""

    @property
    def requests(self) -> int | None:
        """Retransmission requests in the whole run."""


def judge(
    evidence: Evidence,
    guarantees: Iterable[str] = (),
    *,
    budget: Budget | None = None,
    payloads: Payloads | None = None,
    min_bites: int | None = None,
) -> Judgement:
    """Judge the guarantees asked for (all when none is named), and whether the run proves anything."""
    raise NotImplementedError
