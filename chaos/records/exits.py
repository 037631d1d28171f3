"""The ends of members' processes, as a backend notices them."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Final

from stormcast.exits import Exit

TOLD_TO_LEAVE: Final = (Exit.HOLDS, Exit.UNANSWERED, -signal.SIGTERM)
"""The exit codes of a member that did so. One whose group does not answer in time leaves all the
same, as it does in the simulator."""
KILLED: Final = (-signal.SIGKILL,)
"""The exit codes of a member that was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberExit:
    """The end of the process of one incarnation."""

    name: str
    incarnation: int
    """Counted from 1 for each name."""
    at: float
    """The time, by the backend's clock, at which it was last seen alive: not later than its end."""
    code: int
    """Its exit code, or minus the signal that ended it."""
    is_ordered: bool
    """Whether the rig ended it, or told it to end and it did so."""
    why: str = ""
    """Whatever else is known of the cause, in a word; empty: nothing."""
