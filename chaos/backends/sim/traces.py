"""The traces of all incarnations, in memory, within a limit for all of them together."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from xxhash import xxh3_64_intdigest

from stormcast.node.core.errors import NodeError
from stormcast.node.trace.tracer import Tracer

WALL_NS: Final = 1_600_000_000_000_000_000
"""The wall clock at virtual time zero: fixed, so that equal runs are equal to the byte."""
SEAL_AT: Final = 256
"""Events in a block of a trace. A simulated crash loses no events, so a block may span turns."""


class TraceLimitError(NodeError):
    """A run recorded more than its scenario allows."""


class Traces:
    """The blocks of each incarnation, by its label."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        """The most bytes of all blocks."""
        self._bytes = 0
        self._blocks: dict[str, list[bytes]] = {}

    def tracer(self, member: int, label: str) -> Tracer:
        """Make a tracer that keeps its blocks here; TraceLimitError when they are too large."""
        blocks = self._blocks[label] = []
        limit = self._limit

        def keep(block: bytes) -> None:
            self._bytes += len(block)
            if self._bytes > limit:
                raise TraceLimitError(f"the traces passed limits.trace ({limit} B): raise it")
            blocks.append(block)

        return Tracer(member, WALL_NS, xxh3_64_intdigest, keep, SEAL_AT)

    def joined(self) -> dict[str, bytes]:
        """Return all blocks of each incarnation, one after the other."""
        return {label: b"".join(blocks) for label, blocks in self._blocks.items()}

    def forget(self, living: Collection[str]) -> None:
        """Forget all blocks; of incarnations that do not live, also that they had any."""
        self._blocks = {label: one for label, one in self._blocks.items() if label in living}
        for blocks in self._blocks.values():
            blocks.clear()
        self._bytes = 0
