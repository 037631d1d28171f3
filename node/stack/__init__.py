"""The stack of one member: lanes, protocols, frames, and the turn that binds them."""

from stormcast.node.stack.stack import News, Stack

__all__ = ["News", "Stack"]
