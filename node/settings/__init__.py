"""The settings of a stack, read from files and given values, and checked."""

from stormcast.node.settings.files import is_path, read_layers
from stormcast.node.settings.loading import list_layers, load_settings
from stormcast.node.settings.protocols import DISCOVERIES, GENERATIONS
from stormcast.node.settings.stack_settings import StackSettings, is_of_test_protocol

__all__ = [
    "DISCOVERIES",
    "GENERATIONS",
    "StackSettings",
    "is_of_test_protocol",
    "is_path",
    "list_layers",
    "load_settings",
    "read_layers",
]
