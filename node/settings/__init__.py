"""Settings of a stack: from files and values to what a member is made from."""

from stormcast.node.settings.files import is_path, read_layers
from stormcast.node.settings.loading import list_layers, load_settings
from stormcast.node.settings.protocols import DISCOVERIES, GENERATIONS
from stormcast.node.settings.stack_settings import StackSettings

__all__ = [
    "DISCOVERIES",
    "GENERATIONS",
    "StackSettings",
    "is_path",
    "list_layers",
    "load_settings",
    "read_layers",
]
