"""Divides a process's limit of file descriptors into shares, one for each use.

Whoever connects takes a descriptor. Without shares, connections to one port could take all of them,
and every other port, and the journal, would be dead.
"""

from __future__ import annotations

import resource
from typing import Final, NamedTuple

from stormcast.node.core.errors import require

LEAST: Final = 128
"""Descriptors without which a member is not started."""
FILES: Final = 48
"""Descriptors for all that is no connection: standard streams, the event loop, sockets that listen,
the journal, name servers; and connections that asyncio has accepted and nobody has counted yet."""
_CONTROL: Final = 32
_PROBES: Final = 16
_WATCHERS: Final = 1024
_STRANGERS: Final = 256
"""Bounds on the shares, where the limit is large: more than these are not needed."""
_LARGEST: Final = 1 << 20
"""Stands for no limit, and for a larger one."""


class Shares(NamedTuple):
    """Connections of each kind that one member may have. Several channels in one process have as
    many each: give such a process a limit that is larger accordingly."""

    control: int
    """To its control endpoint."""
    probes: int
    """To its listener for probes."""
    watchers: int
    """Connections from members that watch it (FD_SOCK2)."""
    unknown: int
    """Connections that its transport has accepted, and whose other end has not said who it is."""
    strangers: int
    """With peers that are in no view with it."""
    leaving: int
    """Retired, and not yet closed."""
    members: int
    """Left for members of its view, and for connections that are being made."""


def share(limit: int) -> Shares:
    """Divide a limit; ConfigError if it is too small."""
    require(
        limit >= LEAST,
        f"this process may have {limit} file descriptors open, and a member needs {LEAST}; raise "
        f"the limit (ulimit -n {LEAST}, or more)",
    )
    limit = min(limit, _LARGEST)
    control = min(_CONTROL, limit // 8)
    probes = min(_PROBES, limit // 16)
    rest = limit - FILES - control - probes
    watchers = min(_WATCHERS, rest // 4)
    transport = rest - watchers
    unknown = leaving = min(_STRANGERS, transport // 6)
    strangers = min(_STRANGERS, transport // 4)
    members = transport - unknown - leaving - strangers
    return Shares(control, probes, watchers, unknown, strangers, leaving, members)


def own_shares() -> Shares:
    """Divide the limit that this process has now."""
    limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return share(_LARGEST if limit == resource.RLIM_INFINITY else limit)
