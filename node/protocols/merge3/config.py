"""The settings of MERGE3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from stormcast.node.core.errors import require

FEWEST: Final = 2
"""Members that have to be asked, at least: one of each of two groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge3Config:
    """Settings of MERGE3. Durations are seconds."""

    settable: ClassVar[frozenset[str]] = frozenset()

    min_interval: float = 1.0
    """Least time between two INFOs of a member."""

    max_interval: float = 10.0
    """An INFO follows the one before after half of this, and up to this more at random. Shorter
    heals partitions sooner, and costs each member's INFO to everyone."""

    check_interval: float = 0.0
    """Between two looks at what was heard. Above `max_interval`, so that each member's INFO falls
    in it; 0: 1.6 times that."""

    max_participants: int = 100
    """Members asked for their view in one check, a third of the view if that is more; 0 all. The
    rest merges next time."""

    def __post_init__(self) -> None:
        require(
            0 < self.min_interval < self.max_interval,
            f"merge3.min_interval is {self.min_interval:g}: it must be positive and less than "
            f"merge3.max_interval, {self.max_interval:g}",
        )
        require(
            self.check_interval == 0 or self.check_interval > self.max_interval,
            f"merge3.check_interval is {self.check_interval:g}: it must be more than "
            f"merge3.max_interval, {self.max_interval:g} (0: 1.6 times that)",
        )
        require(
            self.max_participants == 0 or self.max_participants >= FEWEST,
            f"merge3.max_participants is {self.max_participants}: "
            f"a merge takes {FEWEST} (0: no limit)",
        )

    @property
    def check_every(self) -> float:
        return self.check_interval or 1.6 * self.max_interval
