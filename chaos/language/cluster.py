"""The cluster of a scenario: its members, and what every one of them runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from stormcast.chaos.faults import RANDOM, ROLES, Names
from stormcast.chaos.language.protocol_settings import (
    FLAWS,
    OF_MULTICAST,
    OF_UNICAST,
    Settings,
    settings_of,
)
from stormcast.node.core.errors import suggestion
from stormcast.node.reading.items import Item
from stormcast.node.reading.notations import TRUTH, Notation, Plain, one_of, quantity, whole, word
from stormcast.node.reading.quantities import SIZE
from stormcast.node.reading.shapes import Key, Shape

GENERATIONS: Final = ("UNICAST", "UNICAST2", "UNICAST3", "UNICAST3-SYNC", "UNICAST4")
TIMINGS: Final = ("compatible", "fast")
JOINS: Final = ("together", "one-by-one")
MAX_MEMBERS: Final = 256
"""A limit, because the number of links grows with the square of the members."""

_PROTOCOL: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_STACK: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}|[^\x00-\x1f\x7f]{1,1000}\.ya?ml")
_WORD: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}")
# Besides words that mean something here, those that some YAML reader takes for something else.
_RESERVED: Final = "|".join(
    ("all", "others", RANDOM, *ROLES, "rig", "on", "off", "yes", "no", "y", "n", "true", "false",
     "null")
)  # fmt: skip  # a list of words
_MEMBER: Final = re.compile(rf"(?!(?:{_RESERVED})$)[a-z][a-z0-9-]{{0,62}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The members, and what every one of them runs."""

    members: Names
    stack: str = "unicast-only"
    unicast: str | None = None
    """One of GENERATIONS; None: the stack's own."""
    timing: str = "compatible"
    settings: Settings = ()
    """Of the unicast protocol; the stack checks the names."""
    historical: Settings = ()
    """Flaws of earlier designs, switched on."""
    max_batch: int | None = None
    outbox_bytes: int | None = None
    """Bytes that a member accepts for one destination and has not numbered yet."""
    unicast_first_conn: int | None = None
    """The connection id, and the timestamp of acks, that a member begins with: near 2**32 - 1 they
    wrap."""
    multicast_settings: Settings = ()
    """Of the stack's multicast protocol."""
    protocols: tuple[tuple[str, Settings], ...] = ()
    """Settings of protocols, by their names; the stack checks both."""
    late: Names = ()
    """Members that start when a step has them join."""
    sealed: bool = False
    """Whether members have a key, and seal what they send."""
    joins: str = "together"
    """Whether the others start at once, or each when the one before it is in."""


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


def _read_late(item: Item) -> Names:
    """Read names; `_check_late` compares them with the members, once both are known."""
    pattern = "write the names of members, such as [n5]"
    late = [part.word(_MEMBER, pattern) for part in item.items_or_self()]
    for name in late:
        if late.count(name) > 1:
            raise item.refuse(f"{name} is listed twice; keep one")
    return tuple(late)


def _write_late(late: Names) -> Plain:
    return late[0] if len(late) == 1 else list(late)


def _read_protocols(item: Item) -> tuple[tuple[str, Settings], ...]:
    remedy = "write the name of a protocol, such as GMS"
    return tuple(
        (key.word(_PROTOCOL, remedy), settings_of([key.name]).read(value))
        for key, value in item.pairs()
    )


def _write_protocols(protocols: tuple[tuple[str, Settings], ...]) -> Plain:
    return {name: settings_of([name]).write(settings) for name, settings in protocols}


def _check_late(item: Item, cluster: Cluster) -> None:
    for name in cluster.late:
        if name not in cluster.members:
            known = suggestion(name, cluster.members)
            raise item.peek("late").error(f"late: {name!r} is no member{known}")
    if len(cluster.late) == len(cluster.members):
        raise item.peek("late").refuse("nobody is there to be joined; leave one out")


CLUSTER: Final = Shape(
    Cluster,
    {
        "members": Key("members", Notation(_read_members, _write_members)),
        "stack": Key(
            "stack",
            word(_STACK, "write the name of a stack, such as unicast-only, or a path to a .yaml"),
            "unicast-only",
        ),
        "unicast": Key("unicast", one_of(GENERATIONS, "unicast protocol"), None),
        "timing": Key("timing", one_of(TIMINGS, "timing"), "compatible"),
        "settings": Key("settings", OF_UNICAST, ()),
        "historical": Key("historical", FLAWS, ()),
        "max_batch": Key("max_batch", whole(1, 65535), None),
        "outbox_bytes": Key("outbox_bytes", quantity(SIZE, above_zero=True), None),
        "unicast_first_conn": Key("unicast_first_conn", whole(1, (1 << 32) - 1), None),
        "multicast_settings": Key("multicast_settings", OF_MULTICAST, ()),
        "protocols": Key("protocols", Notation(_read_protocols, _write_protocols), ()),
        "late": Key("late", Notation(_read_late, _write_late), ()),
        "sealed": Key("sealed", TRUTH, False),
        "joins": Key("joins", one_of(JOINS, "way to join"), "together"),
    },
    _check_late,
)
