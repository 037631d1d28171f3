"""The exit codes of the command."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """0 to 4 are results; 130 and 141 are ends by SIGINT and SIGPIPE, as a shell reports them."""

    HOLDS = 0
    VIOLATED = 1
    USAGE = 2
    UNKNOWN = 3
    """Or unsupported: nothing was started. Or the machine has run out of something."""
    UNANSWERED = 4
    """A member left in good order, and had no answer of its group within `leave_timeout`."""
    INTERRUPTED = 130
    PIPE_CLOSED = 141

    @classmethod
    def of(cls, verdict: object) -> Exit:
        """Return the exit code of a verdict, or of its name; a run without one is unknown."""
        return {"holds": cls.HOLDS, "violated": cls.VIOLATED}.get(str(verdict), cls.UNKNOWN)
