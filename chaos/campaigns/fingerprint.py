"""Fingerprints of failures: two failures are the same if their texts differ only in names and
numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable

from stormcast.chaos.oracles.verdict import Finding


def fingerprint(finding: Finding, names: Iterable[str]) -> str:
    """Return the text that all findings of one failure share; `names` are the members' names."""
    return f"{finding.guarantee}: {kind_of(words_of(finding), names)}"


def words_of(finding: Finding) -> str:
    """Return the text by which a failure is told from others."""
    # An expectation (G8) can fail for many reasons: its first witness says what was seen instead.
    if finding.guarantee == "G8" and finding.witness:
        return f"{finding.detail}: {finding.witness[0]}"
    return finding.detail


def kind_of(detail: str, names: Iterable[str]) -> str:
    """Return a detail with names and numbers, and lists of them, replaced by `N` and `0`: these
    differ from run to run."""
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    text = re.sub(rf"\b(?:{known})(?:-[0-9]+)?\b", "N", detail) if known else detail
    text = re.sub(r"[0-9]+(?:\.[0-9]+)*", "0", text)
    text = text.replace("0..0", "0")
    text = re.sub(r"\b([a-z]{3,})s\b", r"\1", text)
    return re.sub(r"\b([N0])(?:(?:, | and | )\1\b)+", r"\1", text)
