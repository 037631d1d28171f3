"""Digests: for each sender, the highest seqno that a member has delivered, and the highest
received."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Digest:
    """Maps the short id of each member to a pair of seqnos (delivered, received)."""

    seqnos: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # A digest is a value: what happens to the caller's mapping afterwards must not change it.
        object.__setattr__(self, "seqnos", dict(self.seqnos))
        for delivered, received in self.seqnos.values():
            assert 0 <= delivered <= received, "delivered <= received"

    def __iter__(self) -> Iterator[int]:
        return iter(self.seqnos)

    def __getitem__(self, member: int) -> tuple[int, int]:
        return self.seqnos[member]

    def merged(self, other: Digest) -> Digest:
        """Return the element-wise maximum of both digests."""
        result = dict(self.seqnos)
        for member, (delivered, received) in other.seqnos.items():
            mine = result.get(member, (0, 0))
            result[member] = (max(mine[0], delivered), max(mine[1], received))
        return Digest(result)

    def restricted(self, members: frozenset[int]) -> Digest:
        """Only the entries of `members`."""
        return Digest({member: pair for member, pair in self.seqnos.items() if member in members})

    def is_beyond(self, other: Digest) -> bool:
        """Whether this digest says that something was delivered which `other` does not."""
        known, nothing = other.seqnos, (0, 0)
        return any(
            delivered > known.get(member, nothing)[0]
            for member, (delivered, _received) in self.seqnos.items()
        )

    def says_more(self, known: Digest) -> bool:
        """Whether this digest has any number above what is known."""
        nothing = (0, 0)
        return any(
            delivered > known.seqnos.get(member, nothing)[0]
            or received > known.seqnos.get(member, nothing)[1]
            for member, (delivered, received) in self.seqnos.items()
        )
