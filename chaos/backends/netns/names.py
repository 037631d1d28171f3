"""The names of what a run makes, by which leftovers of killed runs are found: its namespaces,
tables, mounts and temporary folders, and a variable in the environment of its processes.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from stormcast.chaos.language.cluster import MAX_MEMBERS

BRIDGE: Final = "bridge"
"""The bridge's name among the members' namespaces; no member can be called so."""
_FIRST4: Final = IPv4Address("198.18.0.2")
_FIRST6: Final = IPv6Address("fd00:5c::2")
OF_RUN: Final = "SC_RUN"
"""The variable that names the run in the environment of each process that a run starts."""
PREFIX4: Final = 15
PREFIX6: Final = 64

_MEMBER: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")


def check_names(names: tuple[str, ...]) -> None:
    """Refuse (AssertionError) names that members of one run cannot have."""
    assert 1 <= len(names) <= MAX_MEMBERS, f"{len(names)} members: 1..{MAX_MEMBERS} fit"
    assert len(set(names)) == len(names), f"two members have one name: {' '.join(names)}"
    for name in names:
        assert _MEMBER.fullmatch(name), f"{name!r}: small letters, digits and dashes"
        assert name != BRIDGE, f"{name!r} is the name of the bridge"


def address4(index: int) -> str:
    """Return the IPv4 address of the member at this index."""
    return str(_FIRST4 + index)


def address6(index: int) -> str:
    """Return the IPv6 address of the member at this index."""
    return str(_FIRST6 + index)


def link_address(index: int) -> str:
    """Return the link layer's address of the member at this index: a locally administered one."""
    return f"02:5c:00:00:{index >> 8:02x}:{index & 0xFF:02x}"
