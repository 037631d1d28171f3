"""What the command's exit codes mean."""

from enum import IntEnum


class Exit(IntEnum):
    """0 to 3 are answers; what has none ends as a shell reports a process that died of a signal."""

    HOLDS = 0
    VIOLATED = 1
    USAGE = 2
    UNKNOWN = 3
    """Or unsupported: nothing was started. Or the machine has run out of something."""
    INTERRUPTED = 130
    PIPE_CLOSED = 141
