"""Settings of GMS."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from stormcast.node.core.errors import require


@dataclass(frozen=True, slots=True, kw_only=True)
class GmsConfig:
    """Settings of GMS: the patience of membership. Durations are seconds."""

    settable: ClassVar[frozenset[str]] = frozenset()
    """Settings that may change while the stack runs."""

    join_timeout: float = 2.0
    """Time for which a joiner looks for others, and then waits for one coordinator's answer. Longer
    makes fewer groups of one when many members start together; a member that starts alone takes
    longer."""

    max_join_attempts: int = 10
    """Rounds of looking and asking before a joiner founds a group of its own; 0 never gives up.
    A founder is merged later, so giving up costs time but no member."""

    all_clients_retry_timeout: float = 0.1
    """Pause of a joiner that found only other joiners, one of which is about to found the group."""

    leave_timeout: float = 1.0
    """Time for which a leaver waits to be let go; then it goes all the same."""

    merge_timeout: float = 5.0
    """Time for which a merge leader waits for answers. A member that answered waits twice as long
    for the outcome. Longer delays joins, which wait meanwhile; shorter leaves slow members out."""

    view_ack_collection_timeout: float = 2.0
    """Time for which a new view delays the next one while some member has not acked it."""

    repeat_interval: float = 0.5
    """Time between two repeats of what was not answered; in `fast` timing the longest one."""

    join_stability_timeout: float = 30.0
    """The longest time for which a digest given to a joiner keeps messages from being purged."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "max_join_attempts":
                require(value >= 0, f"gms.max_join_attempts is {value}: use 0 for no limit")
            else:
                require(value > 0, f"gms.{field.name} is {value}: it must be positive")
