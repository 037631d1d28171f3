"""Groups with keys: what an attacker without the key sends comes to nothing, and where it does not,
the round says so."""

from __future__ import annotations

import socket
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.chaos.backends.base import BackendError
from stormcast.node.core import wire
from stormcast.node.core.codec import Codec
from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import View, ViewId
from stormcast.node.keys.cluster_keys import ClusterKey
from stormcast.node.keys.seals import Seals
from stormcast.node.settings import load_settings
from stormcast.node.stack import Stack
from stormcast.node.trace.tracer import Tracer
from stormcast.node.transports.handshake import (
    ACCEPT,
    DIAL,
    KEYS,
    WATCH,
    Hello,
    pack_hello,
    pack_notice,
    unpack_hello_untrusted,
    whole_hello_untrusted,
)
from tests.fuzz import rounds, streams
from tests.fuzz.datagrams import datagrams, wrong_answer
from tests.fuzz.facts import Facts, counterparts, hellos_in
from tests.fuzz.frames import FrameMaker
from tests.fuzz.groups import NAMES
from tests.fuzz.powers import Power
from tests.fuzz.reading import BY_STACK, FORESEEN, IN_SEALS, foresee, greeted
from tests.fuzz.rounds import KEYED, PLAIN, Result, Round, judge
from tests.fuzz.streams import HELLO, StreamAttack, Talk, talks, wrong_words
from tests.fuzz.tallies import Tally
from tests.fuzz.test_frames import facts as open_facts

KEY = ClusterKey(bytes(range(32)))
ROUND = Round(target="udp", part=KEYED, seed=1, first=0, count=512)


def seals(known: Facts, short: int) -> Seals:
    return Seals((KEY,), known.cluster, short, Random(short).randbytes)


def facts(first: int = 0xA0) -> Facts:
    """A group with a key, of which two members were heard: frames to the first, to the group and to
    others, and the hellos of a connection."""
    known = open_facts(first)
    corpus, hellos = list[bytes](), list[bytes]()
    me = known.shorts[0]
    for member in known.members[1:]:
        sealer = seals(known, member.short)
        codec = Codec(known.cluster, member.short, hash64)
        for number in range(1, 9):
            dest = (me, wire.GROUP, known.shorts[1], known.shorts[2])[number % 4]
            frame = codec.pack_control(wire.HEARTBEAT, wire.FD_ALL3, dest, 0, number)
            ((_dest, head, body),) = sealer.seal([(dest, frame, b"")], codec)
            corpus.append(head + body)
        hello = Hello(known.cluster, 3, member, DIAL, bytes(16), bytes(16))
        hellos += [pack_hello(hello, sealer), pack_hello(hello._replace(role=WATCH), sealer)]
    return replace(known, corpus=tuple(corpus), hellos=tuple(hellos), is_keyed=True)


class Member:
    """The first member, with the key; it has heard what was recorded of others and meant for it."""

    def __init__(self, known: Facts) -> None:
        me = known.members[0]
        self.seals = seals(known, me.short)
        tracer = Tracer(me.short, 0, hash64, lambda _block: None)
        self.stack = Stack(
            me, "demo", load_settings("udp", "fast"), hash64, tracer, 0.0, dice=Random(1),
            seals=self.seals,
        )  # fmt: skip  # two lines
        self.stack.install_view(View(ViewId(known.view, me), known.members), 0.0)
        for frame in known.corpus:
            if int.from_bytes(frame[wire.span("dest")], "big") in (me.short, wire.GROUP):
                self.stack.receive(frame, 0.0)
        self.stack.end_turn(0.0)

    def refuses(self, datagram: bytes, now: float) -> Counter[str]:
        before = self.stack.record.refused.copy()
        self.stack.receive(datagram, now)
        self.stack.end_turn(now)
        return Counter(self.stack.record.refused) - Counter(before)


# -- Frames ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_member_with_a_key_counts_what_is_foreseen_and_nothing_changes() -> None:
    """Each datagram by itself, among them all that a group without keys believes."""
    known = facts()
    maker = FrameMaker(known, 3, is_defused=False)
    member = Member(known)
    reasons, powers = Counter[str](), Counter[Power]()
    replays: set[tuple[int, bytes]] = set()
    now = 0.0
    for chunk in range(0, 1500, 3):
        for datagram in datagrams(maker, chunk):
            counted = member.refuses(datagram.data, now)
            told = foresee(datagram.data, known.members[0].short, known, replays)
            assert told.certain <= counted <= told.certain + told.possible, datagram.frames
            if not told.possible and datagram.data:
                assert told.certain.total() == 1
            assert set(counted) <= set(FORESEEN)
            reasons += counted
            powers.update(frame.power for frame in datagram.frames)
            now += 0.001
    assert set(+reasons) == {*IN_SEALS, BY_STACK[0]}
    assert all(powers[power] > 10 for power in Power)
    assert [view.id.number for view in member.stack.take_news().views] == [known.view]
    assert not member.stack.take_deliveries()


def test_frames_to_a_group_with_keys_are_the_same_each_time() -> None:
    known = facts()
    whole = list(FrameMaker(known, 7, is_defused=False).frames(0, 400))
    again = FrameMaker(known, 7, is_defused=False)
    assert list(again.frames(123, 50)) == whole[123:173]


def test_a_genuine_frame_is_taken_once_by_whom_it_did_not_reach() -> None:
    known = facts()
    me = known.shorts[0]
    other = next(f for f in known.corpus if f[wire.span("dest")] == known.shorts[2].to_bytes(4))
    replays: set[tuple[int, bytes]] = set()
    first = foresee(other, me, known, replays)
    assert not first.certain
    assert first.possible == {"replayed": 1, "other-destination": 1}
    assert foresee(other, me, known, replays).certain == {"replayed": 1}
    assert foresee(other, known.shorts[2], known, replays).certain == {"replayed": 1}


def test_what_members_answer_to_datagrams_is_looked_at() -> None:
    known = facts()
    stack = Member(known).stack
    keys = stack.tell_keys()
    assert wrong_answer(keys, 3, 3.0) == ""
    assert "4 times in 3 s" in wrong_answer(keys, 4, 3.0)
    assert wrong_answer(keys[:-1], 1, 3.0).startswith(f"{len(keys) - 1} bytes")
    assert wrong_answer(known.corpus[0], 1, 3.0)
    codec = Codec(known.cluster, known.shorts[1], hash64)
    unsealed = codec.pack_control(wire.KEYS, wire.NONE, wire.GROUP, 0, 0, body=bytes(40))
    assert wrong_answer(unsealed, 1, 3.0)


def test_recorded_frames_become_genuine_ones_of_the_same_kind_and_place() -> None:
    old, new = facts(), facts(first=0xB0)
    found = counterparts(old.corpus, old, new)
    assert len(found) == len(old.corpus)
    assert set(found) <= new.genuine
    at = wire.span("kind").start
    assert [frame[at] for frame in found] == [frame[at] for frame in old.corpus]
    assert counterparts(old.corpus, old, replace(new, corpus=())) == ()


def test_facts_of_keys_are_kept_whole(tmp_path: Path) -> None:
    known = facts()
    known.save(tmp_path / "facts.json")
    assert Facts.load(tmp_path / "facts.json") == known
    assert known.keys == (KEY.id,)
    assert open_facts().keys == ()
    assert hellos_in(b"".join(known.hellos) + b"\0\0\0\7SCts") == list(known.hellos)


# -- Hellos ----------------------------------------------------------------------------------------


def refusal(stream: bytes, known: Facts) -> str:
    """Why a new member, which has heard nothing, refuses the hello of a stream."""
    try:
        body = whole_hello_untrusted(memoryview(stream))
        if body is not None:
            unpack_hello_untrusted(body, known.cluster, seals(known, 1))
    except BadFrame as bad:
        return bad.reason
    return ""


def test_hellos_are_refused_for_what_is_foreseen() -> None:
    known = facts()
    maker = FrameMaker(known, 5, is_defused=False)
    reasons = Counter[str]()
    for chunk in range(400):
        for talk in talks(maker, chunk):
            why = refusal(talk.whole, known)
            assert greeted(talk.whole, known) == why, talk.speaker
            reasons[why] += 1
    assert set(reasons) >= {
        "", "not-sealed", "key-unknown", "forged", "hello-cookie", "hello-version",
        "hello-length", "hello-short",
    }  # fmt: skip  # they would be a column


def test_connections_have_all_frames_of_their_chunk_and_hellos_alone() -> None:
    maker = FrameMaker(facts(), 4, is_defused=False)
    made = [talks(maker, chunk) for chunk in range(60)]
    for chunk, several in enumerate(made):
        assert [frame for talk in several for frame in talk.frames] == maker.chunk(chunk)
    assert any(talk.hello and not talk.frames for several in made for talk in several)
    assert {talk.end for several in made for talk in several} == {"shut", "wait", "reset", "idle"}


@pytest.mark.parametrize("is_monitor", [False, True])
def test_what_members_say_on_connections_is_looked_at(*, is_monitor: bool) -> None:
    """KEYS to one without the key, an answer to a genuine hello, and nothing else to anybody."""
    known = facts()
    attack = StreamAttack(FrameMaker(known, 1, is_defused=False), is_monitor=is_monitor)
    me = known.members[0]
    own = seals(known, me.short)
    keys = pack_notice(known.cluster, own)
    answer = pack_hello(Hello(known.cluster, 1, me, ACCEPT, bytes(16), bytes(16)), own)

    def said(hello: bytes, words: bytes) -> tuple[str, Tally]:
        tally = Tally()
        talk = Talk(hello, (), (), 1, "wait", "x")
        return attack._foresee_with_key(talk, me, words, tally), tally

    unsealed = pack_hello(Hello(known.cluster, 1, known.members[1]))
    wrong, tally = said(unsealed, b"" if is_monitor else keys)
    assert wrong == ""
    (counter,) = tally.certain["n0"]
    assert counter == (streams.UNKNOWN if is_monitor else f"{HELLO}not-sealed")
    if not is_monitor:
        assert said(unsealed, b"")[0] == "nobody said that there is a key"
    assert said(unsealed, answer)[0]
    genuine = known.hellos[0]
    assert is_monitor or said(genuine, answer)[0] == ""
    attack._replays.clear()
    wrong, tally = said(genuine, b"")
    assert wrong == ""
    assert not tally.certain["n0"]
    wrong, tally = said(genuine, b"")
    assert tally.certain["n0"] == {streams.UNKNOWN if is_monitor else f"{HELLO}replayed": 1}
    assert said(genuine, answer)[0]


def test_only_hellos_of_the_allowed_roles_are_no_finding() -> None:
    known = facts()
    own = seals(known, known.shorts[0])
    keys = pack_notice(known.cluster, own)
    assert wrong_words(b"", set()) == ""
    assert wrong_words(keys, {KEYS}) == ""
    assert wrong_words(keys, set())
    assert wrong_words(keys + b"\0", {KEYS})
    assert wrong_words(keys + keys, {KEYS})
    assert wrong_words(known.corpus[0], {KEYS, ACCEPT})


def test_a_connection_that_a_member_keeps_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PATIENCE", 0.05)
    attack = StreamAttack(FrameMaker(facts(), 1, is_defused=False), is_monitor=False)
    talk = Talk(b"", (), (), 1, "wait", "x")
    for keeps in (True, False):
        tally = Tally()
        mine, theirs = socket.socketpair()
        mine.settimeout(streams.PATIENCE)
        if not keeps:
            theirs.close()
        attack._end(mine, talk, tally, 7)
        theirs.close()
        kept = [(7, "the connection has not the key, and the member keeps it")]
        assert tally.findings == (kept if keeps else [])


# -- Rounds ----------------------------------------------------------------------------------------


def test_a_group_that_seals_nothing_is_not_taken_for_one_with_a_key(tmp_path: Path) -> None:
    """Otherwise each refusal and each power would be a finding."""
    known = replace(open_facts(), is_keyed=True)
    siege = cast("Any", SimpleNamespace(facts=lambda _s: known, folder=tmp_path, address="x"))
    with pytest.raises(BackendError, match="seal nothing"):
        rounds._order(siege, ROUND, None)
    known = facts()
    order = rounds._order(siege, ROUND, None)
    assert order["is_defused"] is False
    assert Facts.load(Path(order["facts"])) == known
    assert rounds._order(siege, replace(ROUND, part=PLAIN), None)["is_defused"] is True


class Group:
    """A group after a round, of which a test says who was heard."""

    def __init__(self, heard: set[str]) -> None:
        self.heard = heard
        self.group = self

    def processes(self) -> dict[str, Any]:
        return {}

    def state(self, name: str) -> dict[str, Any]:
        short = NAMES.index(name) + 1
        return {"short": f"{short:x}", "workload": {"received_from": sorted(self.heard)}}

    def stop(self) -> None:
        pass

    def finish(self) -> Any:
        return SimpleNamespace(verdict="holds")


MEMBERS = {f"{name}:{number:x}" for number, name in enumerate(NAMES, 1)}


@pytest.mark.parametrize(
    ("heard", "views", "finding"),
    [
        (MEMBERS, 0, ""),
        (MEMBERS, 2, "a view changed 2 times"),
        ({*MEMBERS, "x1:beef"}, 0, "n0 was given messages of ['x1:beef']"),
    ],
)
def test_with_keys_nothing_is_forgiven(heard: set[str], views: int, finding: str) -> None:
    result = Result(round=ROUND, views=views, powers={"view": 5})
    judge(cast("Any", Group(heard)), result)
    assert result.findings[:1] == ([finding] if finding else [])
    assert result.verdict == ("unknown" if views else "holds")
