"""The cluster of a scenario: its members, and what every one of them runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from chaos.faults import RANDOM, Names
from chaos.shapes import SETTINGS, Codec, Key, Plain, Shape, one_of, whole, word
from chaos.yaml_nodes import Item

GENERATIONS: Final = ("UNICAST", "UNICAST2", "UNICAST3", "UNICAST3-SYNC", "UNICAST4")
TIMINGS: Final = ("compatible", "fast")
MAX_MEMBERS: Final = 256
"""Links grow with its square."""

_WORD: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}")
# Besides words that mean something here, those that some YAML reader takes for something else.
_RESERVED: Final = f"all|others|{RANDOM}|rig|on|off|yes|no|y|n|true|false|null"
_MEMBER: Final = re.compile(rf"(?!(?:{_RESERVED})$)[a-z][a-z0-9-]{{0,62}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Who takes part, and what every member runs."""

    members: Names
    stack: str = "unicast-only"
    unicast: str | None = None
    """One of GENERATIONS; None: the stack's own."""
    timing: str = "compatible"
    settings: tuple[tuple[str, object], ...] = ()
    """Of the unicast protocol; the stack checks the names."""
    historical: tuple[tuple[str, object], ...] = ()
    """Flaws of earlier designs, switched on."""
    max_batch: int | None = None
    unicast_first_conn: int | None = None
    """The connection id that a member begins with: near 2**32 - 1 it wraps."""


def _read_members(item: Item) -> Names:
    if not item.is_list():
        return tuple(f"n{number}" for number in range(item.whole(1, MAX_MEMBERS)))
    members: list[str] = []
    for part in item.items():
        name = part.word(
            _MEMBER, "a member's name is in small letters, digits and dashes, and no reserved word"
        )
        if name in members:
            raise part.refuse("another member has this name; choose another")
        members.append(name)
    if not 1 <= len(members) <= MAX_MEMBERS:
        raise item.refuse(f"it must name 1..{MAX_MEMBERS} members")
    return tuple(members)


def _write_members(members: Names) -> Plain:
    given = all(name == f"n{number}" for number, name in enumerate(members))
    return len(members) if given else list(members)


CLUSTER: Final = Shape(
    Cluster,
    {
        "members": Key("members", Codec(_read_members, _write_members)),
        "stack": Key(
            "stack", word(_WORD, "write the name of a stack, such as unicast-only"), "unicast-only"
        ),
        "unicast": Key("unicast", one_of(GENERATIONS, "unicast protocol"), None),
        "timing": Key("timing", one_of(TIMINGS, "timing"), "compatible"),
        "settings": Key("settings", SETTINGS, ()),
        "historical": Key("historical", SETTINGS, ()),
        "max_batch": Key("max_batch", whole(1, 65535), None),
        "unicast_first_conn": Key("unicast_first_conn", whole(1, (1 << 32) - 1), None),
    },
)
