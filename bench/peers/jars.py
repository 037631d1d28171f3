"""Jars and compiled classes of the peers that bench measures (chaos/peers/jars.py has the rest)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench.errors import BenchError
from stormcast.chaos.peers import jars
from stormcast.chaos.peers.jars import Artifact, JarError, cache, missing

__all__ = ["HERE", "Artifact", "cache", "class_path", "missing"]

HERE: Final = Path(__file__).parent


def class_path(artifact: Artifact, source: str) -> str:
    """Return the class path of the jar and the compiled peer; fetch and compile what is missing."""
    try:
        return jars.class_path([artifact], [HERE / source])
    except JarError as error:
        raise BenchError(str(error)) from None
