"""The whole stack under any traffic and finite faults (P-11, P-21, P-33 to P-35)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from stormcast.node.core.model import DONT_LOOPBACK, NO_FC, OOB
from stormcast.node.core.wire import DATA, GROUP, MFC, UFC
from tests.helpers.group import ALWAYS, GroupWorld
from tests.helpers.world import TIMINGS

FEWER = settings(max_examples=max(1, settings.default.max_examples * 2 // 5))
FEW = settings(max_examples=max(1, settings.default.max_examples // 5))

CREDITS = 3000
PIECE = 300

stacks = st.sampled_from(["udp", "mcast", "tcp"])
timings = st.sampled_from(TIMINGS)
# Around what one piece holds, around what the credits allow, and beyond both.
sizes = st.sampled_from([0, 1, 40, PIECE - 1, PIECE, PIECE + 1, 1000, CREDITS, 2 * CREDITS + 7])


@dataclass(frozen=True)
class Message:
    """One message, to whom (empty: all), and the pause after it."""

    source: str
    dest: str
    size: int
    flags: int
    pause: float

    def payload(self, number: int) -> bytes:
        return (b"%05d" % number + bytes(self.size))[: max(self.size, 5)]


def messages(names: str, *flags: int) -> st.SearchStrategy[list[Message]]:
    one = st.builds(
        Message,
        source=st.sampled_from(names),
        dest=st.sampled_from(["", *names]),
        size=sizes,
        flags=st.sampled_from(flags),
        pause=st.sampled_from([0.0, 0.0, 0.002, 0.3]),
    )
    return st.lists(one, min_size=1, max_size=12)


class Traffic:
    """A group with little credit, and what each pair of members is owed, unicast and multicast."""

    def __init__(self, names: str, stack: str, timing: str) -> None:
        protocols: dict[str, dict[str, object]] = {
            "UFC": {"max_credits": CREDITS},
            "FRAG": {"frag_size": PIECE},
        }
        if stack != "mcast":
            protocols["MFC"] = {"max_credits": CREDITS}
        self.names = names
        self.world = GroupWorld(names, stack, timing, protocols=protocols)
        self.world.deliver()
        self.owed: dict[tuple[str, str, bool], list[tuple[bytes, int]]] = {}
        self.number = 0

    def say(self, said: Sequence[Message]) -> None:
        for message in said:
            self.number += 1
            payload = message.payload(self.number)
            member = self.world[message.source]
            dest = self.world.short(message.dest) if message.dest else GROUP
            assert member.stack.try_send(dest, payload, message.flags)
            member.turn()
            for name in message.dest or self.names:
                if name != message.source or not message.flags & DONT_LOOPBACK:
                    key = (message.source, name, not message.dest)
                    self.owed.setdefault(key, []).append((payload, message.flags))
            self.world.advance(message.pause)
            self.assert_credits_within_bounds()

    def assert_credits_within_bounds(self) -> None:
        """P-33: never below nothing, never above what there is."""
        for name in self.names:
            group = self.world[name].stack.group
            assert group is not None
            for protocol, dests in ((MFC, [GROUP]), (UFC, map(self.world.short, self.names))):
                flow = group.flow.get(protocol)
                for dest in dests if flow is not None else ():
                    assert 0 <= flow.room(dest) <= CREDITS

    def end(self) -> None:
        self.world.advance(3.0)
        self.world.heal()
        for name in self.names:
            self.world[name].consume(consuming=True)
        self.world.settle()

    def got(self, source: str, name: str, *, is_multicast: bool) -> list[bytes]:
        short = self.world.short(source)
        return [
            bytes(payload)
            for delivery in self.world[name].deliveries
            if delivery.source == short and delivery.is_multicast == is_multicast
            for payload in delivery
        ]

    def assert_all_delivered(self) -> None:
        for source in self.names:
            for name in self.names:
                for is_multicast in (False, True):
                    owed = self.owed.get((source, name, is_multicast), [])
                    got = self.got(source, name, is_multicast=is_multicast)
                    assert sorted(got) == sorted(payload for payload, _flags in owed)
                    ahead = {payload for payload, flags in owed if flags & OOB}
                    regular = [payload for payload, flags in owed if not flags & OOB]
                    assert [payload for payload in got if payload not in ahead] == regular

    def assert_idle(self) -> None:
        """Nothing waits, nothing is kept, and nobody speaks any more."""
        for name in self.names:
            stack = self.world[name].stack
            assert self.world.unpurged(name) == 0
            assert stack.outbox.pending(GROUP) == 0
            assert all(
                stack.outbox.pending(self.world.short(peer)) == self.world[name].unacked(peer) == 0
                for peer in self.names
            )


@FEWER
@given(
    stack=stacks,
    timing=timings,
    said=messages("ABC", 0, 0, OOB, DONT_LOOPBACK, NO_FC),
    lost=st.lists(st.tuples(st.sampled_from("ABC"), st.integers(0, 40)), max_size=8),
    deaf=st.sampled_from(["", "", "B", "BC"]),
)
def test_every_message_of_every_size_arrives_whole_however_little_credit_there_is(
    stack: str, timing: str, said: list[Message], lost: list[tuple[str, int]], deaf: str
) -> None:
    """P-34, P-35, P-14: unicasts and multicasts, whole and in pieces, larger than the credits too;
    any frames are lost, credits among them, and some members do not listen for a while."""
    traffic = Traffic("ABC", stack, timing)
    for source, nth in lost:
        traffic.world.drop(source, after=nth)
    for name in deaf:
        traffic.world[name].consume(consuming=False)
    traffic.say(said)
    traffic.end()
    traffic.world.settle()
    traffic.assert_all_delivered()
    traffic.assert_idle()
    traffic.assert_credits_within_bounds()


@FEWER
@given(
    stack=stacks,
    timing=timings,
    said=messages("A", 0, OOB, DONT_LOOPBACK, OOB | DONT_LOOPBACK, NO_FC),
)
def test_what_a_member_sends_to_itself_is_what_it_gets(
    stack: str, timing: str, said: list[Message]
) -> None:
    """P-11: unicast and multicast, any flags; afterwards everything is as before."""
    traffic = Traffic("A", stack, timing)
    traffic.say(said)
    traffic.world.advance(1.0)
    traffic.assert_all_delivered()
    traffic.assert_idle()
    assert traffic.world.count(kind=DATA, dest="A") == 0


@FEW
@given(
    stack=stacks,
    timing=timings,
    dead=st.sets(st.integers(0, 3), min_size=1, max_size=3),
    pauses=st.lists(st.sampled_from([0.0, 0.05, 0.4, 1.5]), min_size=3, max_size=3),
    backlog=st.integers(0, 40),
)
def test_full_windows_and_spent_credits_hold_up_no_view(
    stack: str, timing: str, dead: set[int], pauses: list[float], backlog: int
) -> None:
    """P-21: any members of four die, in any order and distance, while everybody has more to say
    than windows and credits admit; the rest is soon in one view, and goes on."""
    name = "MCAST" if stack == "mcast" else "NAKACK2"
    protocols: dict[str, dict[str, object]] = {name: {"window_messages": 4}}
    world = GroupWorld("ABCD", stack, timing, joined=False, protocols=protocols)
    world.join(*"ABCD")
    world.advance_until(lambda: world.agrees("ABCD"), 60.0)
    ranks = world.view("A")
    doomed = [ranks[rank] for rank in sorted(dead)]
    for name in doomed:
        world.drop(name, DATA, times=ALWAYS)
    sent = [b"%d" % number for number in range(backlog)]
    for name in ranks:
        world.multicast(name, *sent)
    for name, pause in zip(doomed, pauses, strict=False):
        world[name].crash()
        world.advance(pause)
    left = "".join(rank for rank in ranks if rank not in doomed)
    world.advance_until(lambda: world.agrees(left), 90.0)
    world.advance(60.0)
    for name in left:
        assert world.everyone_got(name, sent, left)
