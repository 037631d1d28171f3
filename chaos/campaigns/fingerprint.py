"""Which failures are the same one: those in the same words, names and numbers apart."""

from __future__ import annotations

import re
from collections.abc import Iterable

from stormcast.chaos.oracles.verdict import Finding


def fingerprint(finding: Finding, names: Iterable[str]) -> str:
    """What all findings of one failure have in common; `names` are those of the members."""
    return f"{finding.guarantee}: {kind_of(words_of(finding), names)}"


def words_of(finding: Finding) -> str:
    """What tells one failure from another."""
    # That something did not happen in time has as many reasons as there are: its first witness says
    # what was there instead.
    if finding.guarantee == "G8" and finding.witness:
        return f"{finding.detail}: {finding.witness[0]}"
    return finding.detail


def kind_of(detail: str, names: Iterable[str]) -> str:
    """A detail without what is different from run to run: names, numbers, and how many of them."""
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    text = re.sub(rf"\b(?:{known})(?:-[0-9]+)?\b", "N", detail) if known else detail
    text = re.sub(r"[0-9]+(?:\.[0-9]+)*", "0", text)
    text = text.replace("0..0", "0")
    text = re.sub(r"\b([a-z]{3,})s\b", r"\1", text)
    return re.sub(r"\b([N0])(?:(?:, | and | )\1\b)+", r"\1", text)
