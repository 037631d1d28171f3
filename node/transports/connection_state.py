"""The states of a connection."""

from enum import Enum


class State(Enum):
    """The life of a connection."""

    CONNECTING = "connecting"
    GREETING = "greeting"
    OPEN = "open"
    RETIRING = "retiring"
    CLOSED = "closed"
