"""Commands of the rig to a member: its peers, a view, a connection to lose, a gauge.

No application needs them. Scenarios do: by them the rig does to a real member what the simulator
does to a simulated one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from stormcast.node.control.answers import Answer, RefusedError, as_json, parse_mapping
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.packing import MAX_TEXT
from stormcast.node.protocols.gms.messages import MAX_NUMBER

if TYPE_CHECKING:
    from stormcast.node.member.asked import AskedMember, AskedRuntime

NOT_RUNNING: Final = 409
MAX_LISTED: Final = 4096
"""Members that one command may name."""
MOST: Final = (1 << 63) - 1
MAX_VIEW: Final = MAX_NUMBER - 1
HALVES: Final = ("both", "sender", "receiver")
_IDENTITY: Final = re.compile(r"[0-9a-f]{32}")
_PERSON: Final = '{"name": "n1", "identity": "32 hex digits", "where": "198.18.0.2[7800]"}'
_PEOPLE: Final = f'{{"members": [{_PERSON}]}}'


def running(member: AskedMember) -> AskedRuntime:
    """Return the runtime of a member; refuse the request if the member does not run."""
    runtime = member.channel.runtime
    if not runtime.is_running:
        raise RefusedError(NOT_RUNNING, f"the member is {member.channel.state}; ask again later")
    return runtime


def set_peers(member: AskedMember, body: object) -> Answer:
    """Name the other members, in a stack without a group."""
    peers = _people(parse_mapping(body, _PEOPLE), "members")
    running(member)
    member.set_peers(peers)
    return as_json({"peers": [peer.name for peer in peers]})


def install_view(member: AskedMember, body: object) -> Answer:
    """Install a view, as if a membership protocol had agreed on it."""
    values = parse_mapping(body, f'{{"number": 7, "creator": {_PERSON}, "members": [{_PERSON}]}}')
    members = _people(values, "members")
    number = values.get("number")
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number <= MAX_VIEW:
        raise RefusedError(400, f"number is {number!r}: write a whole number, 1..{MAX_VIEW}")
    creator = _person(values["creator"]) if "creator" in values else members[0]
    runtime = running(member)
    if member.me not in members:
        raise RefusedError(
            400,
            f"members lacks {member.name} itself, as GET /state shows it now, and a member is in "
            "each view that it installs; add it",
        )
    had = _connections(runtime)
    try:
        runtime.stack.install_view(View(ViewId(number, creator), members), runtime.now())
    except ConfigError as error:
        raise RefusedError(400, str(error)) from None
    runtime.wake()
    return as_json({"view": f"{creator}:{number}", "connections": len(had)})


def forget(member: AskedMember, body: object) -> Answer:
    """Lose a connection, or half of it, without telling the other side."""
    values = parse_mapping(body, '{"peer": "n1", "half": "both"}')
    half = values.get("half", "both")
    if half not in HALVES:
        raise RefusedError(400, f"half is {half!r}: write one of {', '.join(HALVES)}")
    runtime = running(member)
    peer = _peer(member, values)
    was_there = peer in _connections(runtime)
    stack, now = runtime.stack, runtime.now()
    stack.unicast.forget(peer, now, sender=half != "receiver", receiver=half != "sender")
    runtime.wake()
    return as_json({"connected": was_there})


def close(member: AskedMember, body: object) -> Answer:
    """Close a connection as the protocol does."""
    values = parse_mapping(body, '{"peer": "n1"}')
    runtime = running(member)
    peer = _peer(member, values)
    was_there = peer in _connections(runtime)
    runtime.stack.unicast.close(peer, runtime.now())
    runtime.wake()
    return as_json({"connected": was_there})


def forget_events(member: AskedMember, body: object) -> Answer:
    """Delete what somebody else has of the journal: whole segments below an event's number."""
    upto = parse_mapping(body, '{"upto": 100000}').get("upto")
    if not isinstance(upto, int) or isinstance(upto, bool) or not 0 <= upto <= MOST:
        raise RefusedError(400, f"upto is {upto!r}: write the number of an event, 0..{MOST}")
    journal = running(member).journal
    return as_json({"segments": journal.forget(upto) if journal is not None else 0})


def gauge(member: AskedMember) -> Answer:
    """Write to the journal now how full windows and queues are."""
    runtime = running(member)
    runtime.stack.record.gauge_all(runtime.now())
    # A turn's events are written at its end.
    runtime.wake()
    return as_json({"gauged": True})


# -- Who is meant --------------------------------------------------------------------------------


def _connections(runtime: AskedRuntime) -> frozenset[int]:
    """Return the short ids of all peers to which there is a connection, or half of one."""
    unicast = runtime.stack.unicast
    return frozenset((*unicast.send_connections(), *unicast.receive_connections()))


def _peer(member: AskedMember, values: Mapping[str, Any]) -> int:
    """Return the short id of the peer that a command names by its name or its identity."""
    peer = values.get("peer")
    if not isinstance(peer, str) or not peer:
        raise RefusedError(400, f"peer is {peer!r}: write a member's name, or its identity")
    if _IDENTITY.fullmatch(peer) and int(peer, 16):
        return Address(int(peer, 16), peer).short
    return member.channel.member(peer).short


def _people(values: Mapping[str, Any], key: str) -> tuple[Address, ...]:
    listed = values.get(key)
    if not isinstance(listed, list) or not 1 <= len(listed) <= MAX_LISTED:
        raise RefusedError(400, f"write {key} as a list of 1..{MAX_LISTED}, such as {_PEOPLE}")
    people = tuple(map(_person, listed))
    if len(set(people)) < len(people):
        raise RefusedError(400, f"{key}: somebody is listed twice; keep one")
    return people


def _person(value: object) -> Address:
    """Read an address as `GET /state` shows it."""
    found: dict[str, Any] = value if isinstance(value, dict) else {}
    name, identity, where = (found.get(key, "") for key in ("name", "identity", "where"))
    if (
        not (isinstance(name, str) and isinstance(identity, str) and isinstance(where, str))
        or not name
        or _IDENTITY.fullmatch(identity) is None
        or not int(identity, 16)
    ):
        raise RefusedError(400, f"{value!r} is no member: write {_PERSON}")
    for text in (name, where):
        if not text.isprintable():
            raise RefusedError(400, f"{text[:20]!r} is not printable: write a name as it is shown")
        # A frame would cut it, and then other members would know this one by another name.
        if len(text.encode()) > MAX_TEXT:
            raise RefusedError(
                400,
                f"{text[:20]}… has {len(text.encode())} bytes of UTF-8: write {MAX_TEXT} at most",
            )
    return Address(int(identity, 16), name, where)
