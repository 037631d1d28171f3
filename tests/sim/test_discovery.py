"""Discovery: what a search finds, when it ends, and who answers."""

from __future__ import annotations

import pytest

from stormcast.node.core import wire
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.packing import Writer
from stormcast.node.protocols.discovery import (
    Discovery,
    DiscoveryConfig,
    Ping,
    Static,
    StaticConfig,
)
from stormcast.node.protocols.events import Discovered, Found
from tests.helpers.layers import ALWAYS, Layers, address, view

TIMINGS = ("compatible", "fast")


def searching(names: str, *, timing: str = "compatible", **settings: object) -> Layers:
    config = DiscoveryConfig(**settings)  # type: ignore[arg-type]
    return Layers(names, (Ping, config), timing=timing)


def search(world: Layers, names: str, seconds: float = 2.0) -> None:
    for name in names:
        world.do(name, lambda member: member.layer(Discovery).discover(seconds, world.now))


def found(world: Layers, name: str) -> dict[str, Found]:
    """What the last search at `name` found, by name."""
    return {entry.address.name: entry for entry in world[name].events(Discovered)[-1].found}


def test_a_coordinator_that_answers_ends_the_search() -> None:
    world = searching("ABC")
    world.install(view(1, "A"))
    search(world, "C")
    world.advance(0.01)
    assert found(world, "C")["A"] == Found(address("A"), True, address("A"))
    assert not world["C"].layer(Discovery).is_searching


def test_without_the_early_end_a_search_takes_all_its_time_and_finds_everybody() -> None:
    world = searching("ABC", break_on_coord_rsp=False)
    world.install(view(1, "AB"))
    search(world, "C")
    world.advance(1.99)
    assert not world["C"].happened
    world.advance(0.02)
    assert found(world, "C") == {
        "A": Found(address("A"), True, address("A")),
        "B": Found(address("B"), True, address("A")),
    }


def test_nobody_there_is_an_answer_too() -> None:
    world = searching("A")
    search(world, "A")
    world.advance(10)
    assert world["A"].events(Discovered) == [Discovered(())]
    assert world["A"].moments(Discovered) == [2.0]


def test_two_that_search_find_each_other_by_one_request() -> None:
    """B's requests and answers are lost: it hears A's request, and that is enough for B."""
    world = searching("AB")
    world.drop(wire.GET_MBRS_RSP, times=ALWAYS)
    world.drop(wire.GET_MBRS_REQ, source="B", times=ALWAYS)
    search(world, "AB")
    world.advance(3)
    assert found(world, "B") == {"A": Found(address("A"), False, None)}
    assert found(world, "A") == {}


@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("kind", [wire.GET_MBRS_REQ, wire.GET_MBRS_RSP])
def test_a_lost_request_or_answer_is_repeated(kind: int, timing: str) -> None:
    world = searching("AB", timing=timing)
    world.install(view(1, "A"))
    world.drop(kind, times=2)
    search(world, "B")
    world.advance(1.9)
    assert "A" in found(world, "B")
    assert [frame.head.transmission for frame in world.sent(wire.GET_MBRS_REQ)] == [0, 1, 2]


def test_a_search_ends_once_and_leaves_nothing_behind() -> None:
    """G-34: ten searches, each answered by many."""
    world = searching("ABCD")
    world.install(view(1, "ABC"))
    for _ in range(10):
        search(world, "D", 1.0)
        world.advance(1.5)
    layer = world["D"].layer(Discovery)
    assert len(world["D"].events(Discovered)) == 10
    assert not layer.is_searching
    start = world.now
    world.advance(100)
    assert world.sent(wire.GET_MBRS_REQ, since=start) == []


def test_many_answers_of_one_member_count_once() -> None:
    """G-35: two requests are answered by A, which became coordinator in between."""
    world = searching("AB", break_on_coord_rsp=False)
    search(world, "B")
    world.advance(0.1)
    world.install(view(1, "A"))
    world.advance(3)
    assert world["B"].events(Discovered) == [Discovered((Found(address("A"), True, address("A")),))]


def test_an_answer_to_an_earlier_search_does_not_replace_a_newer_one() -> None:
    """A, once alone, said it coordinates; that answer comes last, and late."""
    world = searching("AB", break_on_coord_rsp=False)
    search(world, "B", 1.0)
    search(world, "B", 1.0)
    world.install(view(2, "XA"), at="A")
    stale = Writer().address(address("A")).u8(3).address(address("A")).bytes()
    world.advance(0.9)
    world.inject("A", "B", wire.DISCOVERY, wire.GET_MBRS_RSP, stale, lo=1)
    world.advance(1)
    assert found(world, "B")["A"].coordinator == address("X")


def test_a_late_answer_is_better_than_none() -> None:
    """The round trip is longer than a search: the second one takes the answers of the first."""
    world = searching("AB")
    world.delay = 1.5
    world.install(view(1, "A"))
    search(world, "B", 2.0)
    world.advance(2.0)
    search(world, "B", 2.0)
    world.advance(2.0)
    assert [bool(event.found) for event in world["B"].events(Discovered)] == [False, True]


def test_a_leaving_participant_is_silent_and_a_leaving_coordinator_does_not_coordinate() -> None:
    """JGRP-1336; a joiner must not turn to who is about to go."""
    world = searching("ABC")
    world.install(view(1, "AB"))
    for name in "AB":
        world[name].role.is_leaving = True
    search(world, "C")
    world.advance(3)
    assert found(world, "C") == {"A": Found(address("A"), True, None)}


def test_only_the_first_ranks_answer_if_that_is_set() -> None:
    world = searching("ABCD", max_rank_to_reply=2, break_on_coord_rsp=False)
    world.install(view(1, "ABC"))
    search(world, "D")
    world.advance(3)
    assert set(found(world, "D")) == {"A", "B"}


def test_who_was_stopped_neither_answers_nor_searches() -> None:
    world = searching("AB")
    world.install(view(1, "A"))
    world.do("A", lambda member: member.layer(Discovery).stop(world.now))
    search(world, "AB")
    world.advance(3)
    assert found(world, "B") == {}
    assert not world["A"].happened


def test_hostile_answers_are_counted_and_change_nothing() -> None:
    world = searching("AB")
    search(world, "B")
    good = Writer().address(address("A")).u8(1).bytes()
    for body, reason in (
        (good + b"x", "body-long"),
        (good[:-1], "body-short"),
        (Writer().address(address("C")).u8(1).bytes(), "identity"),
        (Writer().address(address("A")).u8(9).bytes(), "flags"),
        (bytes(18), "address"),
    ):
        world.inject("A", "B", wire.DISCOVERY, wire.GET_MBRS_RSP, body, lo=1)
        assert world["B"].refused.pop(reason) == 1
    world.inject("A", "B", wire.DISCOVERY, wire.GET_MBRS_RSP, good, lo=2)
    assert world["B"].refused == {"unasked": 1}
    world.advance(0.001 / 2)
    assert not world["B"].happened


def test_an_answer_after_the_end_of_its_search_is_counted() -> None:
    """A's answer ends the search; B's comes too late for it."""
    world = searching("ABC")
    world.install(view(1, "AB"))
    search(world, "C")
    world.advance(3)
    assert not world["C"].layer(Discovery).is_searching
    assert world["C"].refused == {"search-over": 1}


def test_answers_that_are_asked_for_outside_of_a_search_are_wanted() -> None:
    """They say where members are: the stack learns it from each frame."""
    world = searching("ABC")
    world.install(view(1, "AB"))
    world.do("C", lambda member: member.layer(Discovery).ask_once(world.now))
    world.advance(3)
    assert len(world.sent(wire.GET_MBRS_RSP, "A")) == 1
    assert world["C"].refused == {}


def test_an_answer_is_never_answered() -> None:
    world = searching("AB")
    world.inject(
        "A",
        "B",
        wire.DISCOVERY,
        wire.GET_MBRS_RSP,
        Writer().address(address("A")).u8(0).bytes(),
        lo=1,
    )
    world.advance(5)
    assert world.wire == []


def test_static_hosts_are_the_listed_ones_and_the_ports_after_them() -> None:
    config = StaticConfig(initial_hosts="n0[7800], n1[7900],n0[7801]", port_range=1)
    world = Layers("A", (Static, config))
    assert world["A"].layer(Static).listed() == (
        ("n0", 7800),
        ("n0", 7801),
        ("n1", 7900),
        ("n1", 7901),
        ("n0", 7802),
    )
    assert Layers("A", (Ping, DiscoveryConfig()))["A"].layer(Ping).listed() == ()


@pytest.mark.parametrize("hosts", ["n0", "n0[]", "n0[0]", "n0[65536]", "n0[7800] n1[7800]"])
def test_a_host_without_a_port_is_refused(hosts: str) -> None:
    with pytest.raises(ConfigError, match="initial_hosts"):
        StaticConfig(initial_hosts=hosts)
    assert StaticConfig(initial_hosts="n0[1],n1[65535]")


def test_settings_that_cannot_work_are_refused() -> None:
    for name in ("repeat_interval", "max_rank_to_reply"):
        with pytest.raises(ConfigError, match=name):
            StaticConfig(**{name: -1})  # type: ignore[arg-type]
