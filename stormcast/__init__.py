"""Reliable group messaging, a rig that attacks it, and verdicts with evidence.

What a program needs to be a member of a group is here: `from stormcast import Channel`. It is
imported when it is asked for, so that `import stormcast` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from stormcast.node.channel import Channel, ChannelConfig, LeaveTimeoutError, Publication
    from stormcast.node.core.errors import ClosedError, ConfigError, NodeError
    from stormcast.node.core.model import (
        DONT_BUNDLE,
        DONT_LOOPBACK,
        NO_FC,
        NO_RELIABILITY,
        OOB,
        Address,
        Delivery,
        Payload,
        View,
        ViewId,
    )
    from stormcast.node.protocols.port import Abandoned
    from stormcast.node.settings import StackSettings, load_settings
    from stormcast.node.trace.journal import JournalConfig
    from stormcast.node.transports.binding import BindError

__all__ = [
    "DONT_BUNDLE",
    "DONT_LOOPBACK",
    "NO_FC",
    "NO_RELIABILITY",
    "OOB",
    "Abandoned",
    "Address",
    "BindError",
    "Channel",
    "ChannelConfig",
    "ClosedError",
    "ConfigError",
    "Delivery",
    "JournalConfig",
    "LeaveTimeoutError",
    "NodeError",
    "Payload",
    "Publication",
    "StackSettings",
    "View",
    "ViewId",
    "__version__",
    "load_settings",
]

_ROOMS = {
    "channel": ("Channel", "ChannelConfig", "LeaveTimeoutError", "Publication"),
    "core.errors": ("ClosedError", "ConfigError", "NodeError"),
    "core.model": (
        "DONT_BUNDLE",
        "DONT_LOOPBACK",
        "NO_FC",
        "NO_RELIABILITY",
        "OOB",
        "Address",
        "Delivery",
        "Payload",
        "View",
        "ViewId",
    ),
    "protocols.port": ("Abandoned",),
    "settings": ("StackSettings", "load_settings"),
    "trace.journal": ("JournalConfig",),
    "transports.binding": ("BindError",),
}
"""By module of `stormcast.node`, the names that are imported from it."""
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:  # noqa: ANN401 whatever has that name
    if name == "__version__":
        value = _version()
    elif name in _ROOM_OF:
        value = getattr(import_module(f"stormcast.node.{_ROOM_OF[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 15 ms

    try:
        return version("stormcast")
    except PackageNotFoundError:
        return "0+not-installed"
