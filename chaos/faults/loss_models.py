"""Losses that have a memory: one model per fault and path, advanced by every frame that passes.

Whether a frame is lost depends on how many passed before it, and so on timing; plain losses do not
depend on it. Runs are deterministic all the same, because the order of frames on a path is.
"""

from __future__ import annotations

from typing import Protocol

from xxhash import xxh3_64_intdigest

from stormcast.chaos.faults import GilbertElliott, NthLoss
from stormcast.node.core.errors import NodeError


class LossModel(Protocol):
    """Says of each frame of a path, in order, whether it is lost."""

    fault: str

    def loses(self) -> bool:
        """Count one frame, and return whether it is lost."""


class GilbertElliottModel:
    """Two states, each with its own share of loss."""

    __slots__ = ("_action", "_frames", "_is_bad", "_key", "fault")

    def __init__(self, fault: str, key: int, action: GilbertElliott) -> None:
        self.fault = fault
        self._key = key
        self._action = action
        self._frames = 0
        self._is_bad = False

    def loses(self) -> bool:
        """Change state by chance, then lose by the share of the state."""
        self._frames += 1
        action = self._action
        drawn = xxh3_64_intdigest(self._frames.to_bytes(8, "big"), self._key)
        # Two independent draws from one hash: each half is uniform.
        turns, falls = (drawn >> 32) / (1 << 32), (drawn & 0xFFFFFFFF) / (1 << 32)
        if turns < (action.p_good if self._is_bad else action.p_bad):
            self._is_bad = not self._is_bad
        return falls < (action.loss_bad if self._is_bad else action.loss_good)


class NthLossModel:
    """Every n-th frame, and those that follow it within the burst."""

    __slots__ = ("_action", "_frames", "fault")

    def __init__(self, fault: str, action: NthLoss) -> None:
        self.fault = fault
        self._action = action
        self._frames = 0

    def loses(self) -> bool:
        """Count one frame; a burst of losses begins with each n-th."""
        self._frames += 1
        nth = self._action.nth
        return self._frames >= nth and self._frames % nth < self._action.burst


def make_model(fault: str, key: int, action: object) -> LossModel:
    """The model of a fault on one path."""
    if isinstance(action, GilbertElliott):
        return GilbertElliottModel(fault, key, action)
    if isinstance(action, NthLoss):
        return NthLossModel(fault, action)
    raise NodeError(f"{type(action).__name__} is no model of loss")
