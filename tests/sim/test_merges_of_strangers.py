"""Strangers that ask to merge again and again, and never do: the group goes on between them.

Whoever gives back a cookie may lead a merge: groups that were never one cannot know each other. The
pests here prove where they are, ask every member thirty times a second, each time for another
merge, and are never heard of again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec
from stormcast.node.core.model import Address
from stormcast.node.protocols.gms.holds import FREE, MAX_PLACES, SHARE, Holds
from stormcast.node.protocols.gms.messages import MergeId, pack_merge_id
from tests.helpers.group import GroupWorld, formed
from tests.helpers.world import CLUSTER, TIMINGS, hash64

PER_SECOND = 30
HASTE = 5 * PER_SECOND
"""So often that nobody slips in between two merges by chance."""
HEALED_WITHIN = {"compatible": 40.0, "fast": 5.0}
"""Seconds in which MERGE3 finds two groups and GMS merges them, without a pest."""
timings = pytest.mark.parametrize("timing", TIMINGS)


class Pest:
    """A process that is in no group, at a place of its own."""

    def __init__(self, world: GroupWorld, name: str, where: str = "") -> None:
        world.start(name)
        self._world = world
        self._address = Address(world.identity(name), name, where)
        self._codec = Codec(hash64(CLUSTER.encode()) & 0xFFFFFFFF, world.short(name), hash64)
        self._merges = 0
        self._cookies: dict[str, int] = {}
        self._read = 0

    def ask(self, members: str, kind: int = wire.MERGE_REQ) -> None:
        """Ask all of them for a merge that nobody has heard of."""
        self._read_cookies()
        self._merges += 1
        for name in members:
            self._say(name, kind)

    def cancel(self, members: str) -> None:
        """Call off the last merge."""
        for name in members:
            self._say(name, wire.CANCEL_MERGE)

    def _say(self, name: str, kind: int) -> None:
        member = self._world[name]
        merge = MergeId(self._address, self._merges)
        member.receive(
            self._codec.pack_control(
                kind,
                wire.GMS,
                member.short,
                0,
                self._merges,
                mark=self._cookies.get(name, 0),
                body=pack_merge_id(merge),
            )
        )

    def _read_cookies(self) -> None:
        sent = self._world.wire
        for one in sent[self._read :]:
            if one.dest == self._address.name and one.kind == wire.COOKIE:
                self._cookies[one.source] = one.head.mark
        self._read = len(sent)


def is_held(world: GroupWorld, name: str) -> bool:
    """Whether a member takes part in a merge."""
    group = world[name].stack.group
    assert group is not None
    return group.gms._merging.is_active


def pester(
    world: GroupWorld,
    pests: list[Pest],
    members: str,
    seconds: float,
    until: Callable[[], bool] = lambda: False,
    rate: int = PER_SECOND,
) -> float:
    """Have the pests ask all the time until something is so, or the time is over; returns how
    long that was."""
    began = world.now
    while world.now < began + seconds and not until():
        for pest in pests:
            pest.ask(members)
        world.advance(1 / rate)
    return world.now - began


def hold(world: GroupWorld) -> float:
    """Seconds that a member waits for the outcome of a merge."""
    return 2 * float(world.settings.of("GMS").merge_timeout)


@pytest.mark.slow
def test_who_comes_gets_in_between_the_merges_of_a_stranger() -> None:
    """It comes while the group is held up, and asks again every four seconds at most."""
    world = formed("AB")
    pest = Pest(world, "X")
    pester(world, [pest], "AB", 4 * hold(world))
    for name in "CD":
        pester(world, [pest], "AB", 60.0, partial(is_held, world, "A"), HASTE)
        world.start(name)
        world.join(name)
        members = f"AB{name}"
        took = pester(world, [pest], "AB", 90.0, partial(world.views_agree, members), HASTE)
        assert took < hold(world) + 5.0
        world.depart(name)


@pytest.mark.slow
@timings
def test_a_stranger_holds_up_a_group_for_a_quarter_of_the_time(timing: str) -> None:
    world = formed("AB", timing=timing)
    pest = Pest(world, "X")
    pester(world, [pest], "AB", 4 * hold(world))
    looks = []
    until = world.now + 8 * hold(world)
    while world.now < until:
        pester(world, [pest], "AB", 1 / PER_SECOND)
        looks.append(is_held(world, "A"))
    assert 0.2 < sum(looks) / len(looks) < 0.3
    assert world["A"].refused["merge-stranger"] > len(looks) / 2


@pytest.mark.slow
@timings
def test_who_calls_off_each_merge_at_once_is_refused_too(timing: str) -> None:
    """Each one stops what waits, and begins it again."""
    world = formed("AB", timing=timing)
    pest = Pest(world, "X")
    begun, until = 0, world.now + 4 * hold(world)
    while world.now < until:
        pest.ask("A")
        begun += is_held(world, "A")
        pest.cancel("A")
        assert not is_held(world, "A")
        world.advance(1 / PER_SECOND)
    assert 10 * FREE < begun < 15 * FREE + 4 * SHARE * 10


@pytest.mark.slow
@timings
def test_groups_that_were_one_merge_in_spite_of_a_stranger(timing: str) -> None:
    """Each member may be busy with it at another time: it gives way to merges of members."""
    world = formed("ABCD", timing=timing)
    world.partition("AB", "CD")
    world.advance_until(lambda: world.views_agree("AB") and world.views_agree("CD"), 120.0)
    pest = Pest(world, "X")
    pester(world, [pest], "ABCD", 4 * hold(world))
    world.join_again()
    took = pester(world, [pest], "ABCD", 240.0, lambda: world.views_agree("ABCD"))
    assert took < HEALED_WITHIN[timing]


@pytest.mark.slow
@timings
def test_groups_that_never_met_merge_between_the_merges_of_a_stranger(timing: str) -> None:
    world = GroupWorld("ABCD", timing=timing, joined=False)
    world.partition("AB", "CD")
    for name in "ABCD":
        world.join(name)
        world.advance(hold(world))
    world.advance_until(lambda: world.views_agree("AB") and world.views_agree("CD"), 120.0)
    pest = Pest(world, "X")
    pester(world, [pest], "ABCD", 4 * hold(world))
    world.join_again()
    took = pester(world, [pest], "ABCD", 600.0, lambda: world.views_agree("ABCD"))
    assert took < 6 * HEALED_WITHIN[timing]


@pytest.mark.slow
@timings
def test_many_strangers_leave_half_of_the_time_to_the_group(timing: str) -> None:
    """Each is at a place of its own, and has its own free tries."""
    world = formed("AB", timing=timing)
    pests = [Pest(world, name, f"198.18.1.{number}[7800]") for number, name in enumerate("VWX")]
    pester(world, pests, "AB", 8 * hold(world))
    world.start("C")
    world.join("C")
    took = pester(world, pests, "AB", 90.0, partial(world.views_agree, "ABC"))
    assert took < 1.5 * hold(world)


# -- What is owed ----------------------------------------------------------------------------------

X, Y = Address(1, "x", "10.0.0.1[7800]"), Address(2, "y", "10.0.0.1[7801]")
OTHER = Address(3, "z", "10.0.0.2[7800]")
LONGEST = 10.0


def lead(holds: Holds, leader: Address, begin: float, seconds: float = LONGEST) -> float:
    """A merge that comes to nothing; returns when it ended."""
    assert holds.admits(leader, begin)
    holds.begin(leader, begin)
    holds.end(begin + seconds)
    return begin + seconds


def test_a_few_merges_may_fail_and_what_is_owed_for_them_fades() -> None:
    """As long as it takes, one in four; the first ones are free."""
    holds = Holds(LONGEST)
    now = 0.0
    for _ in range(3):
        now = lead(holds, X, now)
    assert not holds.admits(X, now)
    owed = 3 * LONGEST - 2 * SHARE * LONGEST
    until = now + (owed - FREE * LONGEST) / SHARE
    assert not holds.admits(X, until - 0.01)
    assert holds.admits(X, until + 0.01)
    assert not holds.admits(X, lead(holds, X, until + 0.01))


def test_another_name_or_port_owes_what_its_host_does() -> None:
    holds = Holds(LONGEST)
    now = 0.0
    for leader in (X, Y, X):
        now = lead(holds, leader, now)
    assert not holds.admits(Y, now)
    assert holds.admits(OTHER, now)


def test_whoever_has_finished_its_merge_owes_nothing() -> None:
    holds = Holds(LONGEST)
    for _ in range(10):
        holds.begin(X, 0.0)
        assert not holds.gives_way(LONGEST)
        holds.finish()
        holds.end(LONGEST)
    assert holds.admits(X, LONGEST)


def test_only_who_owes_gives_way() -> None:
    holds = Holds(LONGEST)
    holds.begin(X, 0.0)
    assert not holds.gives_way(1.0)
    holds.end(1.0)
    assert not holds.gives_way(1.0), "nobody leads"
    holds.begin(X, 2.0)
    assert holds.gives_way(2.0)
    holds.end(2.0)
    holds.begin(X, 2.0 + 2 / SHARE)
    assert not holds.gives_way(2.0 + 2 / SHARE)


def test_no_more_places_are_remembered_than_there_is_room_for() -> None:
    """All strangers together are refused long before."""
    holds = Holds(LONGEST)
    for number in range(2 * MAX_PLACES):
        holds.begin(Address(number + 1, "x", f"10.1.{number >> 8}.{number & 255}[1]"), 0.0)
        holds.end(LONGEST)
    assert len(holds._places) == MAX_PLACES
    assert not holds.admits(OTHER, LONGEST)
