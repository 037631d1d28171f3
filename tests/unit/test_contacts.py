"""Contacts: nobody is sent more than came in its name, but for those that are known."""

from __future__ import annotations

from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec
from stormcast.node.core.contacts import (
    MAX_ACCOUNTS,
    MAX_KNOWN,
    MAX_PROVED,
    MAX_SAVED,
    Contacts,
)
from stormcast.node.core.model import Address

CODEC = Codec(1, 2, hash64)
X = Address(1000, "x")


def frame(kind: int, body: bytes = b"") -> bytes:
    return CODEC.pack_control(kind, wire.GMS, X.short, 0, 0, body=body)


def takes(contacts: Contacts, *, body: bytes = b"", kind: int = wire.LEAVE_RSP) -> bool:
    head = frame(kind, body)
    return contacts.takes(X.short, head[: wire.HEAD_SIZE], head[wire.HEAD_SIZE :])


def test_an_answer_as_large_as_its_question_leaves_and_a_larger_one_does_not() -> None:
    for size, leaves in ((10, True), (11, False)):
        contacts = Contacts()
        contacts.heard(X.short, wire.HEAD_SIZE + 10)
        assert contacts.may_send(X.short, wire.HEAD_SIZE + size) is leaves
        assert takes(contacts, body=b"x" * size) is leaves


def test_one_question_has_one_answer() -> None:
    contacts = Contacts()
    contacts.heard(X.short, 1000)
    assert [takes(contacts), takes(contacts)] == [True, False]


def test_what_came_earlier_counts_up_to_a_bound() -> None:
    contacts = Contacts()
    for _ in range(10 * MAX_SAVED):
        contacts.heard(X.short, 200_000)
    assert sum(takes(contacts) for _ in range(10 * MAX_SAVED)) == MAX_SAVED


def test_what_nobody_asked_for_is_not_counted() -> None:
    contacts = Contacts()
    assert not takes(contacts)
    assert all(takes(contacts, kind=kind) for kind in (wire.DATA, wire.JOIN_REQ, wire.LEAVE_REQ))


def test_members_past_members_and_those_that_proved_it_need_no_account() -> None:
    contacts = Contacts()
    trusted = contacts.trusted
    contacts.on_view([X])
    contacts.on_view([Address(2000, "y")])
    contacts.prove(Address(3000, "z"))
    assert {1000, 2000, 3000, wire.GROUP, -1} == trusted
    assert contacts.trusted is trusted


def test_everything_has_a_bound_and_the_oldest_goes_first() -> None:
    contacts = Contacts()
    for number in range(1, 3000):
        contacts.heard(100_000 + number, 100)
        contacts.prove(Address(200_000 + number, "p"))
        contacts.on_view([Address(300_000 + number, "m")])
    assert len(contacts) == MAX_ACCOUNTS + MAX_PROVED + MAX_KNOWN
    assert contacts.may_send(102_999, 100)
    assert not contacts.may_send(100_001, 1)
    assert {202_999, 302_999} <= contacts.trusted
    assert not {200_001, 300_001} & contacts.trusted


def test_all_members_of_a_view_are_known_however_many_they_are() -> None:
    contacts = Contacts()
    members = [Address(number, "m") for number in range(1, 2 * MAX_KNOWN)]
    contacts.on_view(members)
    for number in range(MAX_PROVED + 1):
        contacts.prove(Address(1_000_000 + number, "p"))
    assert {member.short for member in members} <= contacts.trusted
