"""Where members are: as they say, as they are heard, and within a bound."""

from __future__ import annotations

from stormcast.node.core.contacts import MAX_PROVED
from stormcast.node.core.model import Address
from stormcast.node.stack.receiving import NOT_TAKEN
from stormcast.node.transports.interfaces import Interface, SocketAddress
from stormcast.node.transports.peer_places import (
    MAX_HEARD,
    MAX_LEARNED,
    MAX_NAMED,
    HeardPlaces,
    Places,
)

LO = Interface("lo", 1, "127.0.0.1", "loopback")
OWN = Address(1, "own", "127.0.0.1[1]")


def member(number: int) -> Address:
    return Address(number, f"n{number}", f"127.0.0.1[{number}]")


def at(number: int) -> SocketAddress:
    return "127.0.0.1", number


def places(*kept: Address) -> Places:
    return Places(LO, OWN, {one.short for one in kept})


def test_an_address_is_taken_at_its_word_unless_it_leads_nowhere_or_here() -> None:
    known = places()
    assert known.locate(member(7))
    assert not known.locate(Address(8, "x", "name[80]"))
    assert not known.locate(Address(9, "x", "::1[80]"))
    assert not known.locate(OWN)
    assert known.at == {member(7).short: at(7)}


def test_a_full_table_forgets_all_but_those_that_are_kept() -> None:
    known = places(member(2))
    for number in range(2, MAX_LEARNED + 2):
        known.locate(member(number))
    assert len(known.at) == MAX_LEARNED
    known.locate(member(3))
    assert len(known.at) == MAX_LEARNED
    known.locate(member(9999))
    assert known.at == {member(2).short: at(2), member(9999).short: at(9999)}


def test_everyone_is_who_is_listed_and_who_was_in_a_view_but_not_this_member() -> None:
    known = places()
    known.locate(member(5))
    known.on_view([OWN, member(2), member(3)])
    known.on_view([OWN, member(3)])
    assert list(known.of_everyone([at(9), at(3)])) == [at(9), at(3), at(2)]


def test_members_of_past_views_are_asked_within_a_bound_the_latest_of_all() -> None:
    known = places()
    for number in range(2, MAX_NAMED + 12):
        known.on_view([member(number)])
    asked = list(known.of_everyone([]))
    assert len(asked) == MAX_NAMED
    assert asked[-1] == at(MAX_NAMED + 11)


def test_who_is_heard_is_there_until_an_address_says_where() -> None:
    heard = HeardPlaces(LO, OWN)
    short = member(2).short
    heard.learn(short, at(50))
    assert heard.places.at[short] == at(50)
    heard.locate(member(2))
    heard.learn(short, at(60))
    assert heard.places.at[short] == at(2)


def test_nobody_moves_a_member_by_frames_or_by_word_also_when_it_has_left_the_view() -> None:
    """Two forged heartbeats did: after a partition, a group looked for a member where a stranger
    was, and what the member itself sent did not change that."""
    heard = HeardPlaces(LO, OWN)
    short = member(2).short
    heard.on_view([OWN, member(2)])
    heard.on_view([OWN])
    for _again in range(2):
        heard.learn(short, at(66))
        assert heard.locate(Address(2, "n2", "127.0.0.1[66]"))
        assert heard.places.at[short] == at(2)
        heard.on_view([OWN, member(3)])
    assert list(heard.places.of_everyone([])) == [at(2), at(3)]


def test_who_was_in_no_view_is_where_it_was_heard_last() -> None:
    heard = HeardPlaces(LO, OWN)
    short = member(2).short
    for source in (50, 66, 50):
        heard.learn(short, at(source))
        assert heard.places.at[short] == at(source)


def test_nobody_is_where_frames_for_others_came_from() -> None:
    heard = HeardPlaces(LO, OWN)
    heard.learn(NOT_TAKEN, at(66))
    assert heard.places.at == {}


def test_connections_too_lead_to_where_a_view_said() -> None:
    known = places(member(2))
    known.on_view([OWN, member(2)])
    known.forget_all_but(())
    assert known.locate(Address(2, "n2", "127.0.0.1[66]"))
    assert known.at == {member(2).short: at(2)}


def test_what_strangers_say_of_themselves_is_refused_when_it_is_too_much() -> None:
    heard = HeardPlaces(LO, OWN)
    assert all(heard.locate(member(number)) for number in range(2, MAX_LEARNED + 2))
    assert not heard.locate(member(9999))
    assert heard.locate(member(2))
    # A view forgets them, and has room for its own members.
    heard.on_view([OWN, member(9999)])
    assert heard.places.at == {member(9999).short: at(9999)}
    assert heard.locate(member(9998))


def test_a_view_leaves_the_places_of_a_few_others_to_answer_to() -> None:
    heard = HeardPlaces(LO, OWN)
    heard.learn(member(2).short, at(50))
    heard.on_view([OWN, member(3)])
    assert heard.places.at == {member(2).short: at(50), member(3).short: at(3)}


def test_sources_are_remembered_within_a_bound() -> None:
    heard = HeardPlaces(LO, OWN)
    for number in range(2 * MAX_LEARNED):
        heard.learn(number + 10, at(number))
    assert len(heard.places.at) <= MAX_LEARNED


def test_who_proved_where_it_is_stays_there() -> None:
    """Neither a frame nor a word of somebody else moves it, nor does a view forget it."""
    heard = HeardPlaces(LO, OWN)
    short = member(2).short
    heard.learn(short, at(50))
    heard.places.trust(member(2))
    assert heard.places.at[short] == at(2)
    heard.learn(short, at(66))
    heard.locate(Address(2, "n2", "127.0.0.1[66]"))
    assert heard.places.at[short] == at(2)
    heard.places.forget_all_but(())
    heard.on_view([OWN, member(3)])
    heard.learn(short, at(66))
    assert heard.places.at[short] == at(2)
    for number in range(10, 10 + 2 * MAX_LEARNED):
        heard.learn(number, at(number))
    assert heard.places.at[short] == at(2)


def test_who_proved_no_place_is_not_sent_to_where_its_frames_came_from() -> None:
    """The frame with the cookie may be forged like any other."""
    heard = HeardPlaces(LO, OWN)
    nowhere = Address(2, "n2", "")
    heard.learn(nowhere.short, at(66))
    heard.places.trust(nowhere)
    heard.learn(nowhere.short, at(66))
    assert heard.places.at == {}


def test_those_that_proved_it_are_remembered_within_a_bound_and_are_not_asked() -> None:
    known = places()
    for number in range(2, MAX_PROVED + 12):
        known.trust(member(number))
    assert not known.is_fixed(member(11).short)
    assert known.is_fixed(member(12).short)
    assert list(known.of_everyone([])) == []


def test_who_is_heard_is_remembered_though_strangers_named_all_places_that_there_are() -> None:
    """Two that join at once are both answered; before, each made the member forget the other."""
    heard = HeardPlaces(LO, OWN)
    for number in range(2, MAX_LEARNED + 2):
        heard.locate(member(number))
    for number in range(50_000, 50_002):
        heard.learn(number, at(number))
    assert [heard.places.at[number] for number in (50_000, 50_001)] == [at(50_000), at(50_001)]
    for number in range(100_000, 100_000 + 2 * MAX_HEARD):
        heard.learn(number, at(7))
    assert len(heard.places.at) == MAX_LEARNED + MAX_HEARD
    assert 50_001 not in heard.places.at


def test_who_is_told_of_after_it_was_heard_stays_when_it_is_forgotten_as_heard() -> None:
    heard = HeardPlaces(LO, OWN)
    heard.learn(member(2).short, at(66))
    heard.locate(member(2))
    for number in range(100_000, 100_000 + MAX_HEARD):
        heard.learn(number, at(7))
    assert heard.places.at[member(2).short] == at(2)
