"""The project's own images: those that the environment names, or those of this version."""

from __future__ import annotations

import os
from typing import Final

NODE_IMAGE: Final = "STORMCAST_NODE_IMAGE"
CHAOS_IMAGE: Final = "STORMCAST_CHAOS_IMAGE"
"""Variables with the images of members and of agents, in place of those of `make image`."""
_NAMES: Final = {NODE_IMAGE: "stormcast-node", CHAOS_IMAGE: "stormcast-chaos"}


def own_image(variable: str, version: str) -> str:
    """Return the image that a variable names, or that of a version."""
    return os.environ.get(variable) or f"{_NAMES[variable]}:{version}"
