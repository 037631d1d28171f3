"""Which frames can change a view without keys: each of those can, and no other does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec
from stormcast.node.core.digest import Digest
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.packing import Writer
from stormcast.node.protocols.gms import messages
from tests.fuzz.datagrams import datagrams
from tests.fuzz.facts import Facts
from tests.fuzz.frames import FrameMaker
from tests.fuzz.groups import routes
from tests.fuzz.powers import PAUSE_FRAMES, VIEW_FRAMES, Power, power_of
from tests.fuzz.report import pair_name
from tests.helpers.group import GroupWorld, formed, numbered
from tests.helpers.world import CLUSTER

HASTY = {"MERGE3": {"min_interval": 0.5, "max_interval": 1.0, "check_interval": 3.0}}
NAMES = "ABC"


def facts_of(world: GroupWorld) -> Facts:
    """What a stranger knows of a world's group."""
    view = world["A"].stack.view
    assert view is not None
    alone, group = routes("udp")
    return Facts(
        cluster=hash64(CLUSTER.encode()) & 0xFFFFFFFF,
        members=view.members,
        view=view.id.number,
        monitors=(0, 0, 0),
        alone=alone,
        group=group,
    )


class Stranger:
    """X, who is in no view, and writes frames in anybody's name; each is noted with its power."""

    def __init__(self, world: GroupWorld) -> None:
        self.world = world
        self.address = Address(world.identity("X"), "X")
        self.other = Address(world.identity("Y"), "Y")
        self.facts = facts_of(world)
        self.said: dict[tuple[int, int], Power] = {}

    def member(self, name: str) -> Address:
        return self.world[name].address

    def view(self, names: str, *more: Address, step: int = 1) -> View:
        held = self.facts
        members = (*(self.member(name) for name in names), *more)
        return View(ViewId(held.view + step, members[0]), members)

    def says(
        self,
        source: Address,
        kind: int,
        protocol: int,
        body: bytes,
        to: str,
        lo: int = 1,
        mark: int = 0,
    ) -> None:
        codec = Codec(self.facts.cluster, source.short, hash64)
        dest = self.world.short(to)
        frame = codec.pack_control(kind, protocol, dest, 0, lo, mark=mark, body=body)
        self.said[protocol, kind] = power_of(frame, self.facts)
        self.world[to].receive(frame)


def _view(x: Stranger) -> None:
    body = messages.pack_view(x.view("AB"))
    x.says(x.member("C"), wire.VIEW, wire.GMS, body, "B")


def _view_of_a_merge(x: Stranger) -> None:
    """X hears what is sent to its address, and so has a cookie to show."""
    merge = messages.MergeId(x.address, 1)
    asked = messages.pack_merge_id(merge)
    x.says(x.address, wire.MERGE_REQ, wire.GMS, asked, "B")
    cookie = next(sent.head.mark for sent in reversed(x.world.wire) if sent.kind == wire.COOKIE)
    x.says(x.address, wire.MERGE_REQ, wire.GMS, asked, "B", mark=cookie)
    view = x.view("B", x.address)
    digest = Digest({member.short: (0, 0) for member in view.members})
    body = messages.pack_merge_view(view, messages.MergePart(merge, digest, frozenset()))
    x.says(x.address, wire.VIEW, wire.GMS, body, "B")


def _join_answer(x: Stranger) -> None:
    view = x.view("AB")
    digest = Digest({member.short: (0, 0) for member in view.members})
    x.says(x.member("A"), wire.JOIN_RSP, wire.GMS, messages.pack_join_answer(view, digest), "B")


def _leave(x: Stranger) -> None:
    body = messages.pack_address(x.member("C"))
    x.says(x.member("C"), wire.LEAVE_REQ, wire.GMS, body, "A")


def _suspicion(x: Stranger) -> None:
    """C is held up for as long as it would have to answer, and not for longer."""
    for other in "AB":
        x.world.cut("C", other)
    body = Writer().addresses([x.member("C")]).bytes()
    x.says(x.member("B"), wire.SUSPECT, wire.FD_SOCK2, body, "A")
    x.world.advance(4.0)
    x.world.heal()


def _merge(x: Stranger) -> None:
    """X says that it holds a view with Y, and answers for both, with numbers that it guesses. Both
    are where they say, so they have a cookie to give back."""
    view = View(ViewId(3, x.address), (x.address, x.other))
    for _again in range(200):
        began = len(x.world.wire)
        info = Writer().address(x.address).view_id(view.id).bytes()
        for name in NAMES:
            x.says(x.address, wire.INFO, wire.MERGE3, info, name)
            for number in range(1, 10):
                body = Writer().view(view).bytes()
                x.says(x.address, wire.VIEW_RSP, wire.MERGE3, body, name, number)
            for number in (1, 2, 3):
                merge = messages.MergeId(x.member(name), number)
                for who, kind in (
                    (x.address, wire.MERGE_RSP),
                    (x.other, wire.GET_DIGEST_RSP),
                ):
                    digest = Digest({who.short: (0, 0)})
                    answer = messages.MergeAnswer(merge, False, view, digest)
                    x.says(who, kind, wire.GMS, messages.pack_merge_answer(answer), name, number)
        x.world.advance(0.1)
        for sent in x.world.wire[began:]:
            for who in (x.address, x.other):
                if (sent.head.kind, sent.head.dest) == (wire.PROVE, who.short):
                    x.says(who, wire.PROOF, wire.GMS, b"", sent.source, mark=sent.head.mark)


HOW: dict[tuple[int, int], list[Callable[[Stranger], None]]] = {
    (wire.GMS, wire.VIEW): [_view, _view_of_a_merge],
    (wire.GMS, wire.JOIN_RSP): [_join_answer],
    (wire.GMS, wire.LEAVE_REQ): [_leave],
    (wire.GMS, wire.MERGE_RSP): [_merge],
    (wire.GMS, wire.GET_DIGEST_RSP): [_merge],
    (wire.MERGE3, wire.VIEW_RSP): [_merge],
    (wire.FD_SOCK2, wire.SUSPECT): [_suspicion],
}


def test_each_frame_that_is_said_to_change_a_view_is_tried() -> None:
    assert HOW.keys() == VIEW_FRAMES.keys()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pair", "how"), [(pair, how) for pair, several in HOW.items() for how in several]
)
def test_without_keys_these_frames_change_a_view(
    pair: tuple[int, int], how: Callable[[Stranger], None]
) -> None:
    """Each is told apart by `power_of`, and does what is said of it."""
    world = formed(NAMES, "udp", protocols=HASTY)
    before = {name: len(world.sizes(name)) for name in NAMES}
    stranger = Stranger(world)
    how(stranger)
    world.advance(1.0)
    assert any(len(world.sizes(name)) > before[name] for name in NAMES)
    assert stranger.said[pair] is Power.VIEW
    if how is _merge:
        named = {
            member.name for seen in world.seen.values() for view in seen for member in view.members
        }
        assert named >= {"X", "Y"}


@pytest.mark.slow
@pytest.mark.parametrize("timing", ["fast", "compatible"])
@pytest.mark.parametrize("seed", [1, 2])
def test_frames_without_power_change_no_view_and_no_message(seed: int, timing: str) -> None:
    """Among them well-formed ones in members' names. Meanwhile everybody talks, and everybody gets
    everything once, in order."""
    world = formed(NAMES, "udp", timing, protocols=HASTY)
    maker = FrameMaker(facts_of(world), seed, is_defused=True)
    before = {name: world.sizes(name) for name in NAMES}
    by_short = {world.short(name): name for name in NAMES}
    for chunk in range(900):
        to = by_short[maker.receiver(chunk).short]
        for datagram in datagrams(maker, chunk):
            world[to].receive(datagram.data)
        if chunk % 30 == 0:
            for name in NAMES:
                world.multicast(name, *numbered(chunk + 1, chunk + 3))
        world.advance(0.02)
    world.advance(5.0)
    assert {name: world.sizes(name) for name in NAMES} == before
    assert world.views_agree(NAMES)
    wanted = [one for chunk in range(0, 900, 30) for one in numbered(chunk + 1, chunk + 3)]
    for name in NAMES:
        for sender in NAMES:
            assert world.got(name, sender) == wanted, (name, sender)


def test_the_docs_list_the_frames_that_can_change_or_hold_up_a_view() -> None:
    text = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
    for pair, when in {**VIEW_FRAMES, **PAUSE_FRAMES}.items():
        assert f"| {pair_name(pair)} | {when} |" in text
