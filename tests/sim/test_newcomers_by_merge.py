"""A stranger that proved its own address brings others into the view, at a place that is not its
own: they are asked first, and until they answer nothing else is sent there."""

from __future__ import annotations

import pytest

from stormcast.chaos.backends.sim.engine import Host
from stormcast.node.core import wire
from stormcast.node.core.codec import Codec
from stormcast.node.core.digest import Digest
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.core.packing import Writer
from stormcast.node.protocols.events import Disagreement
from stormcast.node.protocols.gms.messages import (
    MergeAnswer,
    MergeId,
    MergePart,
    pack_merge_answer,
    pack_merge_id,
    pack_merge_view,
    unpack_merge_answer_untrusted,
    unpack_merge_id_untrusted,
)
from tests.helpers.group import GroupWorld, formed, numbered
from tests.helpers.world import CLUSTER, TIMINGS, hash64

STACKS = ("udp", "tcp-no-retransmit")
PACKET = 28
"""Bytes of the headers around a datagram."""
everywhere = pytest.mark.parametrize(
    ("stack", "timing"), [(stack, timing) for stack in STACKS for timing in TIMINGS]
)


class Attacked(GroupWorld):
    """A, B and C, and X, who counts what it sends and what comes to the victim's place."""

    def __init__(self, stack: str, timing: str, names: int) -> None:
        self.victims: frozenset[int] = frozenset()
        self.arrived = 0
        self.said = 0
        self.started = False
        super().__init__("ABC", stack, timing, joined=False)
        self.join("A")
        self.advance_until(lambda: self.views_agree("A"), 60.0)
        self.join("B", "C")
        self.advance_until(lambda: self.views_agree("ABC"), 90.0)
        self.start("X")
        self.x = Address(self.identity("X"), "X")
        self.started = True
        crowd = [Address((9 << 40) + 77_000 + n, "", "198.18.0.1[7800]") for n in range(names)]
        self.crowd = tuple(crowd)
        self.victims = frozenset(one.short for one in crowd)
        self.bodies: dict[tuple[int, str], bytes] = {}
        """By kind and sender, the last that X got."""

    def transmit(self, host: Host, dest: int, frame: bytes) -> None:
        reached = {dest} if dest > 0 else set(host.stack.destinations())
        self.arrived += len(reached & self.victims) * (len(frame) + PACKET)
        if self.started and dest == self.x.short:
            kind = wire.read_preamble(frame).kind
            self.bodies[kind, host.name] = frame[wire.HEAD_SIZE :]
        super().transmit(host, dest, frame)

    def say(
        self,
        source: Address,
        kind: int,
        to: str,
        lo: int,
        body: bytes,
        mark: int = 0,
        protocol: int = wire.GMS,
    ) -> None:
        """X says something in the name of whom it likes."""
        codec = Codec(hash64(CLUSTER.encode()) & 0xFFFFFFFF, source.short, hash64)
        frame = codec.pack_control(kind, protocol, self.short(to), 0, lo, mark=mark, body=body)
        self.said += len(frame) + PACKET
        self[to].receive(frame)

    def heard(self, kind: int, source: str) -> wire.Head:
        return next(
            one.head
            for one in reversed(self.wire)
            if (one.kind, one.source, one.dest) == (kind, source, "X")
        )

    def prove(self, to: str, kind: int, lo: int, body: bytes) -> None:
        """X asks, and asks again with the cookie that it got."""
        self.say(self.x, kind, to, lo, body)
        self.say(self.x, kind, to, lo, body, self.heard(wire.COOKIE, to).mark)

    def merged(self, digests: dict[int, tuple[int, int]], number: int) -> tuple[View, Digest]:
        held = self["A"].stack.view
        assert held is not None
        members = (*held.members, self.x, *self.crowd)
        entries = dict.fromkeys(sorted(member.short for member in members), (0, 0)) | digests
        return View(ViewId(number, self.x), members), Digest(dict(sorted(entries.items())))

    def lives_on(self) -> None:
        for name in "ABC":
            self.multicast(name, *numbered(1, 20))
        self.advance(60.0)
        assert self.arrived <= self.said, f"{self.arrived / self.said:.1f} times as much"
        assert self.views_agree("ABC")
        for name in "ABC":
            assert self.everyone_got(name, numbered(1, 20), "ABC")


@everywhere
@pytest.mark.parametrize("names", [5, 200])
def test_a_view_that_a_stranger_leads_brings_nobody_in_who_is_not_there(
    stack: str, timing: str, names: int
) -> None:
    """Before, each member sent all it multicast to each name: 14 times as many bytes with five of
    them, hundreds of times as many with hundreds."""
    world = Attacked(stack, timing, names)
    merge = MergeId(world.x, 1)
    digests = {}
    for name in "ABC":
        world.prove(name, wire.GET_DIGEST_REQ, 1, pack_merge_id(merge))
        answer = world.bodies[wire.GET_DIGEST_RSP, name]
        said = unpack_merge_answer_untrusted(world.short(name), answer)
        digests |= {short: said.digest[short] for short in said.digest}
    view, digest = world.merged(digests, 50)
    part = MergePart(merge, digest, frozenset())
    for _copy in range(3):
        for name in "ABC":
            world.say(world.x, wire.VIEW, name, 50, pack_merge_view(view, part))
        world.advance(0.3)
    world.lives_on()
    assert world.arrived > 0, "they are asked"


@everywhere
def test_answers_in_a_merge_bring_nobody_in_who_is_not_there(stack: str, timing: str) -> None:
    """A leads, and X says in all names how far they are."""
    world = Attacked(stack, timing, 40)
    held = world["A"].stack.view
    assert held is not None
    theirs = View(ViewId(20, world.x), (world.x, *world.crowd))
    for number in range(3):
        info = Writer().address(world.x).view_id(theirs.id).bytes()
        world.say(world.x, wire.INFO, "A", number, info, protocol=wire.MERGE3)
    group = world["A"].stack.group
    assert group is not None
    group.events.on_event(Disagreement({world["A"].address: held, world.x: theirs}, {}), world.now)
    world["A"].turn()
    merge = unpack_merge_id_untrusted(world.bodies[wire.MERGE_REQ, "A"])
    for one, kind in ((world.x, wire.MERGE_RSP), *((v, wire.GET_DIGEST_RSP) for v in world.crowd)):
        answer = MergeAnswer(merge, False, theirs, Digest({one.short: (0, 0)}))
        world.say(one, kind, "A", merge.number, pack_merge_answer(answer))
        if one is world.x:
            world.say(one, wire.PROOF, "A", 0, b"", world.heard(wire.PROVE, "A").mark)
    world.advance(2 * float(world.settings.of("GMS").merge_timeout) + 5.0)
    assert not any(set(world.crowd) & set(view.members) for view in world.seen["A"])
    world["X"].crash()
    world.advance_until(lambda: world.views_agree("ABC"), 120.0)
    world.lives_on()


@everywhere
def test_groups_that_never_were_one_merge_all_the_same(stack: str, timing: str) -> None:
    """Two and two: each of the other group gives its cookie back, and nobody asks again later."""
    world = formed("AB", stack, timing)
    world.partition("AB", "CD")
    world.start("C")
    world.start("D")
    world.join("C")
    world.advance_until(lambda: world.views_agree("C"), 60.0)
    world.join("D")
    world.advance_until(lambda: world.views_agree("CD"), 60.0)
    world.heal()
    world.advance_until(lambda: world.views_agree("ABCD"), 60.0)
    assert world.sent(kind=wire.PROOF)
    for name in "ABCD":
        world.multicast(name, *numbered(1, 20))
    world.settle()
    for name in "ABCD":
        assert world.everyone_got(name, numbered(1, 20), "ABCD")
    asked = len(world.sent(kind=wire.PROVE))
    world.partition("AB", "CD")
    world.advance_until(lambda: world.views_agree("AB") and world.views_agree("CD"), 90.0)
    world.heal()
    world.advance_until(lambda: world.views_agree("ABCD"), 90.0)
    assert len(world.sent(kind=wire.PROVE)) == asked
