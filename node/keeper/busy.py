"""The error of a command that cannot be done now."""

from stormcast.node.core.errors import NodeError


class BusyError(NodeError):
    """A command cannot be done now: a member runs, or none does, or another run has the keeper."""
