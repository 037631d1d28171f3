"""A digest of what a verdict was made from: the scenario, the seed, and all traces.

In a run directory `sha256sum scenario.yaml seed trace/*.trace | sha256sum` prints the same, with
names in the order of their bytes. The pipeline computes it by itself (pipeline/evidence.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Final

EVIDENCE: Final = "evidence_digest"
"""The key of the digest in verdict.json."""


def digest_of(files: Mapping[str, bytes]) -> str:
    """Return the digest of some files, given by their paths within the run directory."""
    lines = (f"{sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    return sha256("".join(lines).encode()).hexdigest()
