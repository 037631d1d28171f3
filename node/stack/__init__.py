"""The stack of one member: lanes, protocols and frames, which all work in turns."""

from stormcast.node.stack.news import News
from stormcast.node.stack.stack import Stack

__all__ = ["News", "Stack"]
