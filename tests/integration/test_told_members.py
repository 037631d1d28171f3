"""Members without a group, who are told of each other; and what a rig tells members besides. On
loopback, without rights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.chaos.backends.base import MemberError
from stormcast.node.trace import (
    CONN,
    GAUGE,
    SENDER_CLOSING,
    SENDER_OPEN,
    SENDER_REMOVED,
    VIEW,
    Event,
    read_blocks_untrusted,
)
from stormcast.node.trace.files import read_traces
from tests.helpers.processes import Members

pytestmark = pytest.mark.slow


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    with Members(tmp_path, "--stack", "unicast-only") as made:
        yield made


def start(members: Members, *names: str) -> None:
    """Members that are bound."""
    for name in names:
        members.start(name)
    for name in names:
        members.wait_for_control(name)
        members.wait(lambda name=name: members.state(name)["state"] == "connected", f"{name} bound")


def person(members: Members, name: str) -> dict[str, Any]:
    """A member as others are told of it."""
    state = members.state(name)
    return {key: state[key] for key in ("name", "identity", "where")}


def tell(members: Members, *names: str) -> None:
    """Tell each of these of all of these."""
    people = [person(members, name) for name in names]
    for name in names:
        members.ask(name, "POST", "/peers", {"members": people})


def received(members: Members, name: str) -> int:
    number: int = members.state(name)["workload"]["received"]
    return number


def events(members: Members, name: str, kind: int) -> list[Event]:
    (blocks,) = read_traces(members.folder / name / "journal").values()
    return [
        event
        for block in read_blocks_untrusted(blocks, xxh3_64_intdigest)
        for event in block.events
        if event.kind == kind
    ]


def test_members_that_were_told_of_each_other_send_by_name(members: Members) -> None:
    start(members, "n0", "n1", "n2")
    tell(members, "n0", "n1", "n2")
    load = {"do": "unicast", "to": "n1", "count": 200, "rate": "2000/s"}
    members.ask("n0", "POST", "/workload", load)
    members.wait(lambda: received(members, "n1") == 200, "200 messages")
    members.ask("n2", "POST", "/workload", load | {"to": "others"})
    members.wait(lambda: received(members, "n1") == 400, "200 more")
    members.wait(lambda: received(members, "n0") == 200, "200 messages")
    workload = members.state("n1")["workload"]
    assert (workload["verified"], workload["mismatches"]) == (400, 0)
    assert sorted(name.partition(":")[0] for name in workload["received_from"]) == ["n0", "n2"]
    with pytest.raises(MemberError, match="use unicast, or a stack with GMS"):
        members.ask("n0", "POST", "/workload", {"do": "multicast"})


def test_a_connection_is_forgotten_or_closed_when_a_rig_says_so(members: Members) -> None:
    start(members, "n0", "n1")
    tell(members, "n0", "n1")
    with pytest.raises(MemberError, match="no member named 'n7'"):
        members.ask("n0", "POST", "/forget", {"peer": "n7"})
    assert members.ask("n0", "POST", "/forget", {"peer": "n1"}) == {"connected": False}
    for count in (100, 200, 300):
        load = {"do": "unicast", "to": "n1", "count": 100, "closed": True}
        members.ask("n0", "POST", "/workload", load)
        members.wait(lambda count=count: received(members, "n1") == count, f"{count} messages")
        if count == 100:
            answer = members.ask("n0", "POST", "/forget", {"peer": "n1", "half": "sender"})
        else:
            peer = members.state("n1")["identity"]
            answer = members.ask("n0", "POST", "/close", {"peer": peer})
        assert answer == {"connected": True}
    became = [(event.stream, event.conn) for event in events(members, "n0", CONN)]
    # What is closing is taken up again where it is wanted.
    assert became[:4] == [
        (SENDER_OPEN, 1),
        (SENDER_REMOVED, 1),
        (SENDER_OPEN, 2),
        (SENDER_CLOSING, 2),
    ]


def test_a_view_is_handed_in_and_gauges_are_written_on_request(members: Members) -> None:
    start(members, "n0", "n1")
    people = [person(members, name) for name in ("n0", "n1")]
    body = {"number": 7, "creator": people[1], "members": people}
    assert members.ask("n0", "POST", "/view", body) == {"view": "n1:7", "connections": 0}
    view = members.state("n0")["view"]
    assert (view["number"], [one["name"] for one in view["members"]]) == (7, ["n0", "n1"])
    assert [event.lo for event in events(members, "n0", VIEW)] == [7]
    with pytest.raises(MemberError, match=r"lacks n0 itself.*add it"):
        members.ask("n0", "POST", "/view", {"number": 8, "members": people[1:]})
    tell(members, "n0", "n1")
    members.processes["n1"].kill()
    members.ask("n0", "POST", "/workload", {"do": "unicast", "to": "n1", "count": 5})
    members.wait(lambda: members.state("n0")["workload"]["accepted"] == 5, "5 messages")
    before = len(events(members, "n0", GAUGE))
    for _ in range(20):
        members.ask("n0", "POST", "/gauge", {})
    members.wait(lambda: len(events(members, "n0", GAUGE)) >= before + 20, "20 gauges")


def test_members_of_a_group_are_not_told_of_each_other(members: Members) -> None:
    members.start("n0", "--stack", "udp")
    members.wait_for_view("n0")
    with pytest.raises(MemberError, match="find each other"):
        members.ask("n0", "POST", "/peers", {"members": [person(members, "n0")]})
