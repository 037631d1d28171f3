"""Hostile frames are the same each time, reach every reason, and are foreseen rightly."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec
from stormcast.node.core.model import Address, View, ViewId
from stormcast.node.settings import load_settings
from stormcast.node.stack import Stack
from stormcast.node.trace.tracer import Tracer
from stormcast.node.transports.bpf import reject_source
from tests.fuzz.datagrams import datagrams, is_filtered
from tests.fuzz.facts import Facts, framed, translated, whole_frames
from tests.fuzz.frames import CHUNK, FrameMaker
from tests.fuzz.groups import routes
from tests.fuzz.nouns import Nouns
from tests.fuzz.powers import Power, power_of
from tests.fuzz.reading import BY_STACK, FORESEEN, IN_HEADS, IN_SEALS, foresee
from tests.fuzz.streams import talks

CLUSTER = hash64(b"demo") & 0xFFFFFFFF


def facts(first: int = 0xA0, stack: str = "udp", *, is_keyed: bool = False) -> Facts:
    members = tuple(
        Address((n + 1 << 64) + first + n, f"n{n}", f"198.18.0.{2 + n}[7800]") for n in range(3)
    )
    alone, group = routes(stack)
    codec = Codec(CLUSTER, members[1].short, hash64)
    beat = codec.pack_control(wire.HEARTBEAT, wire.FD_ALL3, wire.GROUP, 0, 7)
    ack = codec.pack_control(wire.ACK, wire.UNICAST3, members[0].short, 1, 5, stamp=3)
    return Facts(
        cluster=CLUSTER, members=members, view=5, monitors=(7900,) * 3, alone=alone, group=group,
        multicast=("239.8.8.8", 7600), corpus=(beat, ack), is_keyed=is_keyed,
    )  # fmt: skip  # one group a line


def member(known: Facts, stack: str) -> Stack:
    """The first member, in its view."""
    me = known.members[0]
    tracer = Tracer(me.short, 0, hash64, lambda _block: None)
    made = Stack(me, "demo", load_settings(stack, "fast"), hash64, tracer, 0.0, dice=Random(1))
    made.install_view(View(ViewId(known.view, me), known.members), 0.0)
    return made


@pytest.mark.parametrize("is_defused", [True, False])
def test_a_frame_is_the_same_each_time_and_in_any_range(is_defused: bool) -> None:
    maker = FrameMaker(facts(), 7, is_defused=is_defused)
    again = FrameMaker(facts(), 7, is_defused=is_defused)
    whole = list(maker.frames(0, 400))
    assert [frame.number for frame in whole] == list(range(400))
    assert list(again.frames(123, 50)) == whole[123:173]
    other = FrameMaker(facts(), 8, is_defused=is_defused)
    assert list(other.frames(0, 400)) != whole


@pytest.mark.slow
def test_every_kind_of_every_protocol_comes_with_every_lie() -> None:
    known = facts()
    maker = FrameMaker(known, 1, is_defused=False)
    frames = list(maker.frames(0, 12_000))
    pairs = {(f.data[5], f.data[4]) for f in frames if len(f.data) >= wire.HEAD_SIZE}
    assert pairs >= set(Nouns(known, maker.others).pairs())
    assert {kind for _protocol, kind in pairs} >= set(wire.KINDS)
    words = {word for frame in frames for word in frame.recipe}
    assert words >= {
        "noise", "question", "recorded", "harmed", "harmed-body", "member", "stranger", "itself",
        "nobody", "digest", "check", "size", "cluster", "version", "magic", "cut", "more", "lo",
        "mark",
    }  # fmt: skip  # they would be a column
    assert {frame.power for frame in frames} == set(Power)


@pytest.mark.slow
def test_plain_frames_have_no_power_and_are_still_in_members_names() -> None:
    known = facts()
    frames = list(FrameMaker(known, 2, is_defused=True).frames(0, 8000))
    assert all(power_of(frame.data, known) is Power.NONE for frame in frames)
    heads = [f.data for f in frames if len(f.data) >= wire.HEAD_SIZE]
    shorts = [short.to_bytes(4, "big") for short in known.shorts]
    named = sum(data[wire.span("source")] in shorts for data in heads)
    assert named > len(frames) / 5


def test_a_group_with_keys_is_sent_what_has_power_without() -> None:
    """Half of it as it is, so that it is refused for its lack of a seal alone."""
    keyed = facts(is_keyed=True)
    frames = list(FrameMaker(keyed, 1, is_defused=False).frames(0, 800))
    assert {frame.power for frame in frames} == set(Power)
    for frame in frames:
        if frame.power is not Power.NONE:
            told = foresee(frame.data, keyed.shorts[0], keyed)
            assert told.certain == {"not-sealed": 1}


@pytest.mark.slow
@pytest.mark.parametrize("stack", ["udp", "mcast", "tcp-no-retransmit"])
@pytest.mark.parametrize("is_defused", [True, False], ids=["plain", "forged"])
def test_a_member_counts_what_is_foreseen_and_goes_on(stack: str, is_defused: bool) -> None:
    """Each datagram by itself: a refusal that follows from the bytes is counted, once and for this
    reason. Plain ones leave the view."""
    known = facts(stack=stack)
    maker = FrameMaker(known, 3, is_defused=is_defused)
    stack_ = member(known, stack)
    reasons, now = Counter[str](), 0.0
    for chunk in range(0, 1500, 3):
        for datagram in datagrams(maker, chunk):
            before = Counter(stack_.record.refused)
            stack_.receive(datagram.data, now)
            stack_.end_turn(now)
            stack_.tick(now)
            stack_.end_turn(now)
            stack_.take_deliveries()
            after = Counter(stack_.record.refused)
            counted = Counter({why: after[why] - before[why] for why in FORESEEN})
            told = foresee(datagram.data, known.members[0].short, known)
            assert told.certain <= counted <= told.certain + told.possible, datagram.frames
            reasons += counted
            now += 0.001
    assert set(+reasons) == {*IN_HEADS, *BY_STACK}
    assert set(FORESEEN) == {*IN_HEADS, *IN_SEALS, *BY_STACK}
    views = stack_.take_news().views
    if is_defused:
        assert [view.id.number for view in views] == [known.view]


def test_streams_end_with_the_first_frame_that_nobody_would_write() -> None:
    known = facts(stack="tcp")
    maker = FrameMaker(known, 4, is_defused=True)
    for chunk in range(60):
        me = maker.receiver(chunk).short
        played = talks(maker, chunk)
        assert [frame for talk in played for frame in talk.frames] == maker.chunk(chunk)
        assert not any(talk.speaker == "member" for talk in played)
        for talk in played:
            assert all(foresee(frame.data, me, known).sender for frame in talk.frames[:-1])


def test_datagrams_have_all_frames_of_their_chunk() -> None:
    maker = FrameMaker(facts(), 5, is_defused=True)
    made = [datagrams(maker, chunk) for chunk in range(100)]
    for chunk, several in enumerate(made):
        assert [f for datagram in several for f in datagram.frames] == maker.chunk(chunk)
    assert {len(d.frames) for several in made for d in several} > {1, 2, 3, CHUNK}
    assert any(d.is_multicast for several in made for d in several)


def test_the_kernels_filter_is_foreseen() -> None:
    """A program of BPF drops what it would have to read behind the end of a datagram."""
    short = 0xA0A0A0A1
    own = bytes(12) + short.to_bytes(4, "big")
    assert is_filtered(own, short)
    assert is_filtered(own[:15], short + 1)
    assert not is_filtered(own, short + 1)
    assert short.to_bytes(4, "little") in reject_source(short)


def test_facts_are_kept_whole(tmp_path: Path) -> None:
    known = facts()
    known.save(tmp_path / "facts.json")
    assert Facts.load(tmp_path / "facts.json") == known


def test_recorded_frames_become_those_of_other_members() -> None:
    """The same words, of whoever has the same place in the other group's view."""
    old, new = facts(), facts(first=0xB0)
    assert translated(old.corpus, old, new) == new.corpus


def test_frames_are_found_in_what_was_recorded() -> None:
    beat, ack = facts().corpus
    assert whole_frames(beat + ack + b"\x5c") == [beat, ack]
    assert framed(b"".join(len(f).to_bytes(4, "big") + f for f in (beat, ack)) + b"\0") == [
        beat,
        ack,
    ]
    assert framed(beat) == []
