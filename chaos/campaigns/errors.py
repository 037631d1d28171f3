"""Words for what ends a run, or many, and says nothing about the members."""

from __future__ import annotations

from concurrent.futures.process import BrokenProcessPool
from typing import Final

from stormcast.machine import in_words, is_exhausted
from stormcast.node.core.errors import NodeError

KILLED: Final = "a process of the runs was killed, or out of memory; fewer --workers need less"


def error_in_words(error: Exception) -> str:
    """Return an error of the machine, of the rig, or a bug, as a sentence."""
    if isinstance(error, BrokenProcessPool):
        return KILLED
    if isinstance(error, OSError) or is_exhausted(error):
        return in_words(error)
    return str(error) if isinstance(error, NodeError) else f"a bug: {error!r}"
