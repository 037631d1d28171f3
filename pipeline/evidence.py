"""A digest of scenario, seed and traces, which tells whether a verdict was made from these files.

In a run directory, `sha256sum scenario.yaml seed trace/*.trace | sha256sum` prints it, with names
in the order of their bytes.
"""

from __future__ import annotations

from enum import Enum
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Final

KEY: Final = "evidence_digest"
"""The key of the digest in verdict.json."""
_NAMED: Final = ("scenario.yaml", "seed")
_TRACES: Final = ("*.trace", "*/*.trace", "*/*/*.trace")
"""Trace files lie in the run directory or in `trace/`; a journal is a directory of segments."""


class Belief(Enum):
    """Whether a verdict is about a run directory."""

    SAME = "same"
    OTHERS = "others"
    """The verdict was made from other traces, or another scenario or seed."""
    UNSAID = "unsaid"
    """The verdict has no digest, like those of older versions."""


def digest_of(directory: Path) -> str:
    """Return the digest of the files that are in a run directory now."""
    paths = [directory / name for name in _NAMED if (directory / name).is_file()]
    paths += [path for pattern in _TRACES for path in directory.glob(pattern) if path.is_file()]
    lines = []
    for name in sorted(path.relative_to(directory).as_posix() for path in paths):
        with (directory / name).open("rb") as file:
            lines.append(f"{file_digest(file, 'sha256').hexdigest()}  {name}\n")
    return sha256("".join(lines).encode()).hexdigest()


def belief_in(said: object, digest: str) -> Belief:
    """Compare the digest in a verdict (`said`) with that of the run directory."""
    if said is None:
        return Belief.UNSAID
    return Belief.SAME if said == digest else Belief.OTHERS
