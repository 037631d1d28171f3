"""STABLE: what is called stable was delivered by all, and all that was delivered becomes so."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormcast.node.core import wire
from stormcast.node.core.digest import Digest
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.packing import Writer
from stormcast.node.protocols.events import Stability
from stormcast.node.protocols.stable import Stable, StableConfig
from tests.helpers.layers import Layers, Member, address, view

TIMINGS = ("compatible", "fast")


class Group:
    """Members with a table instead of a multicast protocol: who has delivered what of whom."""

    def __init__(
        self,
        names: str,
        *,
        timing: str = "compatible",
        seed: int = 0,
        loss: float = 0.0,
        **settings: float,
    ) -> None:
        self.delivered = {name: dict.fromkeys(names, 0) for name in names}
        self.members = names
        self.world = Layers(
            names,
            (Stable, StableConfig(**settings)),  # type: ignore[arg-type]
            timing=timing,
            seed=seed,
            loss=loss,
            extra=self._source,
        )

    def _source(self, member: Member) -> tuple[Any]:
        mine = self.delivered[member.name]
        return (lambda: Digest({address(sender).short: (n, n) for sender, n in mine.items()}),)

    def install(self, number: int, names: str, at: str = "") -> None:
        self.members = names
        self.world.install(view(number, names), at)

    def deliver(self, sender: str, seqno: int, at: str = "", size: int = 0) -> None:
        """These members have delivered the sender's messages up to `seqno`."""
        for name in at or self.members:
            mine = self.delivered[name]
            new = seqno - mine[sender]
            mine[sender] = seqno
            self.world.do(
                name, lambda m, new=new: m.layer(Stable).on_multicast(new, size, self.world.now)
            )

    def hurry(self, name: str) -> None:
        self.world.do(name, lambda m: m.layer(Stable).hurry(self.world.now))

    def stable(self, name: str) -> dict[str, int]:
        """What this member has been told is stable."""
        told = self.world[name].events(Stability)
        return {chr(s): d for s, (d, _r) in told[-1].digest.seqnos.items()} if told else {}

    def frames(self, since: float = 0.0) -> int:
        return len(self.world.sent(wire.GOSSIP, since=since)) + len(
            self.world.sent(wire.STABILITY, since=since)
        )


def suspend(group: Group, names: Iterable[str], seconds: float) -> None:
    for name in names:
        group.world.do(name, lambda m: m.layer(Stable).suspend(seconds, group.world.now))


@pytest.mark.parametrize("timing", TIMINGS)
def test_what_all_have_delivered_becomes_stable_everywhere_and_then_it_is_quiet(
    timing: str,
) -> None:
    """P-03, P-16: within two average intervals and a few repeats; afterwards nothing is sent."""
    group = Group("ABC", timing=timing)
    group.install(1, "ABC")
    group.deliver("A", 10)
    group.deliver("B", 20)
    group.world.advance(42)
    for name in "ABC":
        assert group.stable(name) == {"A": 10, "B": 20, "C": 0}
    start = group.world.now
    group.world.advance(1000)
    assert group.frames(start) == 0


def test_an_idle_group_sends_nothing() -> None:
    group = Group("ABC")
    group.install(1, "ABC")
    group.world.advance(1000)
    assert group.frames() == 0


def test_stable_is_the_minimum_over_all_members() -> None:
    group = Group("ABC")
    group.install(1, "ABC")
    group.deliver("A", 10, at="AB")
    group.deliver("A", 7, at="C")
    group.world.advance(60)
    assert {group.stable(name)["A"] for name in "ABC"} == {7}
    group.deliver("A", 10, at="C")
    group.world.advance(60)
    assert {group.stable(name)["A"] for name in "ABC"} == {10}


def test_a_silent_member_holds_everything_back_until_a_view_without_it() -> None:
    group = Group("ABC")
    group.install(1, "ABC")
    group.deliver("A", 10)
    group.world.kill("C")
    group.world.advance(200)
    assert group.stable("A") == group.stable("B") == {}
    group.install(2, "AB")
    group.world.advance(60)
    assert group.stable("A") == group.stable("B") == {"A": 10, "B": 0}


def test_repeats_for_a_silent_member_become_rare() -> None:
    """C is dead for ten minutes: at first each repeat interval, in the end each average interval.
    Measured over the last two minutes: no more than a handful per member."""
    group = Group("ABC")
    group.install(1, "ABC")
    group.world.kill("C")
    group.deliver("A", 10, at="AB")
    group.world.advance(480)
    start = group.world.now
    group.world.advance(120)
    assert 0 < group.frames(start) <= 40


@pytest.mark.parametrize(
    ("limit", "size"), [({"max_bytes": 1000}, 1000), ({"max_messages": 10}, 0)]
)
def test_traffic_brings_stability_without_waiting_for_the_timer(
    limit: dict[str, int], size: int
) -> None:
    """Bytes or messages beyond the limit at each member; one below it is not enough."""
    config: dict[str, Any] = {"max_bytes": 0, "max_messages": 0, "desired_avg_gossip": 0, **limit}
    group = Group("ABC", **config)
    group.install(1, "ABC")
    group.deliver("A", 9, size=size - 1 if size else 0)
    group.world.advance(5)
    assert group.frames() == 0
    group.deliver("A", 10, size=1)
    group.world.advance(0.1)
    assert [group.stable(name)["A"] for name in "ABC"] == [10, 10, 10]
    assert len(group.world.sent(wire.STABILITY)) == 1


@pytest.mark.parametrize(("timing", "within"), [("compatible", 0.3), ("fast", 0.05)])
def test_a_full_window_is_freed_in_a_few_round_trips(timing: str, within: float) -> None:
    """Only the blocked sender knows that it is in need; the coordinator asks the others."""
    for blocked in "ABC":
        group = Group("ABC", timing=timing)
        group.install(1, "ABC")
        group.deliver("B", 5)
        group.hurry(blocked)
        group.world.advance(within)
        assert group.stable(blocked) == {"A": 0, "B": 5, "C": 0}


@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("kind", [wire.GOSSIP, wire.STABILITY])
@pytest.mark.parametrize("lost", [1, 3])
def test_lost_votes_and_stabilities_are_made_good_within_repeats(
    kind: int, lost: int, timing: str
) -> None:
    group = Group("ABC", timing=timing, desired_avg_gossip=0, max_messages=10)
    group.install(1, "ABC")
    group.world.drop(kind, times=lost)
    group.deliver("A", 10)
    group.world.advance(6)
    assert [group.stable(name).get("A") for name in "ABC"] == [10, 10, 10]


def test_a_blocked_sender_is_not_forgotten_by_a_view() -> None:
    """The votes of the old view are void; the sender's window is still full."""
    group = Group("ABC", desired_avg_gossip=0)
    group.install(1, "ABC")
    group.world.kill("C")
    group.deliver("B", 5, at="AB")
    group.hurry("B")
    group.world.advance(3)
    assert group.stable("B") == {}
    group.install(2, "AB")
    group.world.advance(2)
    assert group.stable("B") == {"A": 0, "B": 5}


def test_more_than_the_running_vote_is_covered_when_a_window_fills_meanwhile() -> None:
    group = Group("AB", desired_avg_gossip=0, max_messages=5)
    group.install(1, "AB")
    group.world.cut("B", "A")
    group.deliver("B", 5)
    group.deliver("B", 7)
    group.hurry("B")
    group.world.heal()
    group.world.advance(3)
    assert group.stable("B")["B"] == 7


def test_a_window_that_fills_again_is_covered_as_well() -> None:
    """B blocks at 5 and again at 7; A delivers 6 and 7 only when 5 is stable."""
    group = Group("AB", desired_avg_gossip=0)
    group.install(1, "AB")
    group.deliver("B", 5)
    group.world.drop(wire.GOSSIP)
    group.hurry("B")
    group.deliver("B", 7, at="B")
    group.hurry("B")
    group.world.advance(1)
    assert group.stable("B")["B"] == 5
    group.deliver("B", 7, at="A")
    group.world.advance(1)
    assert group.stable("B")["B"] == 7


def test_of_two_votes_the_newer_counts_whichever_comes_last() -> None:
    group = Group("AB", desired_avg_gossip=0)
    group.install(1, "AB")
    for number, seqno in ((10, 5), (9, 3)):
        digest = Digest({ord("A"): (seqno, seqno), ord("B"): (0, 0)})
        body = Writer().view_id(view(1, "AB").id).digest(digest).bytes()
        group.world.inject("B", "A", wire.STABLE_PROTOCOL, wire.GOSSIP, body, lo=1, conn=number)
    group.deliver("A", 5, at="A")
    group.hurry("A")
    assert group.stable("A")["A"] == 5


def test_votes_of_another_view_do_not_count() -> None:
    """B voted in A|1; in A|2 its old vote arrives, late: C's delivery must be waited for."""
    group = Group("ABC", desired_avg_gossip=0)
    group.install(1, "AB")
    group.deliver("A", 10, at="AB")
    group.install(2, "ABC")
    for old in (view(1, "AB"), view(2, "ABC", "B")):
        body = Writer().view_id(old.id).digest(group._source(group.world["B"])[0]()).bytes()
        group.world.inject(
            "B", "A", wire.STABLE_PROTOCOL, wire.GOSSIP, body, lo=old.id.number, conn=99
        )
    assert group.world["A"].refused == {"other-view": 2}
    group.hurry("A")
    group.world.advance(3)
    assert not any(group.stable("A").values())


def test_nothing_is_stable_while_suspended() -> None:
    """A joiner's digest is in use at the coordinator: G-7. Then everything catches up."""
    group = Group("ABC", max_messages=10)
    group.install(1, "ABC")
    suspend(group, "A", 30)
    group.deliver("B", 10)
    group.world.advance(29)
    assert all(group.stable(name) == {} for name in "ABC")
    group.world.do("A", lambda m: m.layer(Stable).resume(group.world.now))
    group.world.advance(25)
    assert [group.stable(name)["B"] for name in "ABC"] == [10, 10, 10]


def test_a_suspended_participant_neither_votes_nor_purges() -> None:
    """It has reported its digest for a merge; the coordinator does not know yet."""
    group = Group("ABC", desired_avg_gossip=0)
    group.install(1, "ABC")
    group.deliver("A", 5)
    group.hurry("B")
    suspend(group, "B", 30)
    group.hurry("B")
    group.hurry("C")
    group.world.advance(3)
    assert len(group.world.sent(wire.GOSSIP, "B")) == 1
    assert group.stable("C")["A"] == 5
    assert group.stable("B") == {}
    assert group.world["B"].refused["suspended"] >= 1


def test_a_suspension_nobody_ends_ends_by_itself() -> None:
    group = Group("AB", max_messages=10)
    group.install(1, "AB")
    suspend(group, "AB", 10)
    group.deliver("B", 10)
    group.world.advance(10.9)
    assert not any(group.stable("A").values())
    assert group.world["A"].layer(Stable).known.is_suspended
    group.world.advance(30)
    assert group.stable("A")["B"] == group.stable("B")["B"] == 10


def test_a_longer_suspension_is_not_cut_short_by_a_shorter_one() -> None:
    group = Group("AB")
    group.install(1, "AB")
    suspend(group, "A", 30)
    suspend(group, "A", 5)
    group.world.advance(32)
    assert group.world["A"].layer(Stable).known.is_suspended
    group.world.advance(2)
    assert not group.world["A"].layer(Stable).known.is_suspended


def test_a_digest_that_misses_a_member_is_no_vote() -> None:
    group = Group("AB", max_messages=5)
    group.install(1, "AB")
    del group.delivered["B"]["A"]
    group.delivered["B"]["B"] = 5
    group.hurry("B")
    assert group.frames() == 0


def test_hostile_frames_are_counted_and_change_nothing() -> None:
    group = Group("ABC", desired_avg_gossip=0)
    group.install(1, "ABC")
    group.deliver("A", 5)
    held = view(1, "ABC")

    def frame(dest: str, source: str, kind: int, seqnos: dict[str, int], lo: int = 1) -> None:
        digest = Digest({ord(name): (n, n) for name, n in seqnos.items()})
        body = Writer().view_id(held.id).digest(digest).bytes()
        group.world.inject(source, dest, wire.STABLE_PROTOCOL, kind, body, lo=lo, conn=7)

    everyone = {"A": 5, "B": 5, "C": 5}
    frame("A", "X", wire.GOSSIP, everyone)
    frame("A", "B", wire.GOSSIP, everyone, lo=2)
    frame("A", "B", wire.GOSSIP, {"A": 5})
    frame("A", "B", wire.GOSSIP, everyone | {"X": 5})
    frame("A", "B", wire.STABILITY, everyone)
    assert group.world["A"].refused == {
        "stranger": 1,
        "view": 1,
        "digest-members": 2,
        "not-from-coordinator": 1,
    }
    frame("B", "C", wire.GOSSIP, everyone)
    frame("B", "A", wire.STABILITY, {"X": 0})
    # B has not voted: nothing can be stable yet.
    frame("B", "A", wire.STABILITY, {"A": 1})
    assert group.world["B"].refused == {
        "not-coordinator": 1,
        "digest-members": 1,
        "stability-beyond-vote": 1,
    }
    assert not any(member.happened for member in group.world.members.values())


def test_settings_that_cannot_work_are_refused() -> None:
    for name in ("desired_avg_gossip", "max_bytes", "max_messages", "repeat_interval"):
        with pytest.raises(ConfigError, match=name):
            StableConfig(**{name: -1})  # type: ignore[arg-type]
    assert StableConfig(desired_avg_gossip=0, max_bytes=0, max_messages=0)


@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.slow
@given(seed=st.integers(0, 2**32 - 1), loss=st.floats(0.0, 0.5))
def test_what_is_stable_was_delivered_by_every_member_of_the_view(
    timing: str, seed: int, loss: float
) -> None:
    """P-16: random deliveries, losses, delays, views that reach members at different times."""
    dice = Random(seed)
    names = "ABCDE"
    group = Group(names, timing=timing, seed=seed, loss=loss, max_messages=dice.randint(2, 30))
    held: dict[str, str] = {}
    number = 1
    group.install(number, names)
    views = {1: names}
    held = dict.fromkeys(names, 1)  # type: ignore[arg-type]
    seen = dict.fromkeys(names, 0)

    def check() -> None:
        for name in names:
            happened = group.world[name].happened
            for _at, event in happened[seen[name] :]:
                assert isinstance(event, Stability)
                for sender, (stable, _received) in event.digest.seqnos.items():
                    for other in views[held[name]]:  # type: ignore[index]
                        assert group.delivered[other].get(chr(sender), 0) >= stable
            seen[name] = len(happened)

    for _ in range(60):
        group.world.delay = dice.choice((0.001, 0.05, 0.4))
        name, sender = dice.choice(names), dice.choice(names)
        highest = max(table[sender] for table in group.delivered.values())
        mine = group.delivered[name][sender]
        top = highest + dice.randint(0, 5) if name == sender else highest
        group.deliver(sender, dice.randint(mine, max(mine, top)), at=name)
        check()
        group.world.advance(dice.choice((0.0, 0.01, 0.3, 2.0)))
        check()
        if dice.random() < 0.1:
            number += 1
            views[number] = "".join(n for n in names if n == "A" or dice.random() < 0.8)
        behind = [n for n in views[number] if held[n] != number]  # type: ignore[comparison-overlap]
        if behind and dice.random() < 0.5:
            late = dice.choice(behind)
            held[late] = number  # type: ignore[assignment]
            group.world.install(view(number, views[number]), at=late)

    number += 1
    views[number] = names
    held = dict.fromkeys(names, number)  # type: ignore[arg-type]
    group.world.heal()
    group.world.delay = 0.001
    for sender in names:
        highest = max(table[sender] for table in group.delivered.values())
        for name in names:
            group.delivered[name][sender] = highest
    group.install(number, names)
    group.world.advance(50)
    check()
    goal = dict(group.delivered["A"])
    if any(goal.values()):
        assert all(group.stable(name) == goal for name in names)
    start = group.world.now
    group.world.advance(200)
    assert group.frames(start) == 0
