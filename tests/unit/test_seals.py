"""Seals: what was sealed opens once, what was touched or forged never, and no nonce comes twice."""

from __future__ import annotations

import os
from random import Random

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, pack_body
from stormcast.node.core.errors import BadFrame, RepeatedFrame
from stormcast.node.keys import replays, seals
from stormcast.node.keys.cluster_keys import ClusterKey
from stormcast.node.keys.replays import Replays
from stormcast.node.keys.seals import Seals

KEY = ClusterKey(bytes(range(32)))
NEXT = ClusterKey(bytes(range(1, 33)))
CLUSTER = 7
Frame = tuple[int, bytes, bytes]


class End:
    """One member's codec and seals."""

    def __init__(self, short: int, *keys: ClusterKey, cluster: int = CLUSTER) -> None:
        self.codec = Codec(cluster, short, xxh3_64_intdigest)
        self.seals = Seals(keys or (KEY,), cluster, short)

    def sealed(self, frame: Frame) -> bytes:
        ((_dest, head, body),) = self.seals.seal([frame], self.codec)
        return head + body

    def says(self, text: bytes, dest: int = 2) -> bytes:
        return self.sealed(data(self.codec, text, dest))

    def opened(self, datagram: bytes) -> tuple[wire.Head, bytes]:
        return self.seals.unpack_untrusted(self.codec, datagram)

    def refusal(self, datagram: bytes) -> str:
        with pytest.raises(BadFrame) as refused:
            self.opened(datagram)
        return refused.value.reason


def data(codec: Codec, text: bytes, dest: int = 2) -> Frame:
    body = pack_body([text], xxh3_64_intdigest)
    return dest, codec.pack_data(wire.UNICAST3, dest, 1, 5, body, 0, 3, 4, 9), body.data


def control(codec: Codec, body: bytes = b"") -> Frame:
    return 2, codec.pack_control(wire.GET_VIEW, wire.GMS, 2, 0, 8, body=body), b""


@pytest.mark.parametrize("size", [0, 1, 200, 60_000])
def test_a_frame_is_opened_as_it_was(size: int) -> None:
    a, b = End(1), End(2)
    dest, head, body = data(a.codec, b"x" * size)
    got, content = b.opened(a.sealed((dest, head, body)))
    plain, _body = a.codec.unpack_untrusted(head + body)
    assert got._replace(check=0) == plain._replace(check=0)
    assert content == body


@pytest.mark.parametrize("body", [b"", b"some"])
def test_so_is_a_control_frame(body: bytes) -> None:
    a, b = End(1), End(2)
    frame = control(a.codec, body)
    got, content = b.opened(a.sealed(frame))
    assert got._replace(check=0) == a.codec.unpack_untrusted(frame[1])[0]._replace(check=0)
    assert content == body


def test_rules_read_the_same_preamble() -> None:
    a = End(1)
    frame = data(a.codec, b"text")
    assert a.sealed(frame)[: wire.PREAMBLE_SIZE] == frame[1][: wire.PREAMBLE_SIZE]


def test_nothing_of_the_text_can_be_read() -> None:
    assert b"a secret text" not in End(1).says(b"a secret text")


def test_one_seal_serves_all_who_hear_a_frame() -> None:
    a, b, c = End(1), End(2), End(3)
    datagram = a.says(b"to all", wire.GROUP)
    assert b.opened(datagram) == c.opened(datagram)


def test_frames_stand_back_to_back() -> None:
    a, b = End(1), End(2)
    first, second = a.says(b"one"), a.says(b"another")
    whole = first + second
    head, _body = b.seals.unpack_untrusted(b.codec, whole, 0)
    at = wire.HEAD_SIZE + b.seals.overhead + head.size
    assert at == len(first)
    assert b.seals.unpack_untrusted(b.codec, whole, at)[1].endswith(b"another")


# -- What is refused -------------------------------------------------------------------------------


def with_check(damaged: bytearray) -> bytes:
    """The head's check fits again: an attacker can compute it, too."""
    check = xxh3_64_intdigest(bytes(damaged[: wire.CHECK_OFFSET])) & 0xFFFFFFFF
    damaged[wire.CHECK_OFFSET : wire.HEAD_SIZE] = check.to_bytes(4)
    return bytes(damaged)


@pytest.mark.parametrize("mends_check", [True, False])
def test_no_bit_can_be_changed(mends_check: bool) -> None:
    a, b = End(1), End(2)
    datagram = a.says(b"text")
    for at in range(len(datagram)):
        if mends_check and wire.CHECK_OFFSET <= at < wire.HEAD_SIZE:
            continue
        damaged = bytearray(datagram)
        damaged[at] ^= 1 << at % 8
        b.refusal(with_check(damaged) if mends_check else bytes(damaged))
    assert b.opened(datagram)[1].endswith(b"text")


def test_nothing_is_kept_of_who_forges() -> None:
    a, b = End(1), End(2)
    for number in range(100):
        forged = bytearray(a.says(b"text"))
        forged[wire.HEAD_SIZE + 4 : wire.HEAD_SIZE + 8] = number.to_bytes(4)
        assert b.refusal(bytes(forged)) == "forged"
    assert not b.seals._sealers
    assert not b.seals._gone


def test_a_forged_number_shuts_no_sealer_out() -> None:
    a, b = End(1), End(2)
    b.opened(a.says(b"first"))
    forged = bytearray(a.says(b"lost"))
    forged[32:40] = (1 << 60).to_bytes(8)
    assert b.refusal(with_check(forged)) == "forged"
    b.opened(a.says(b"second"))


def test_what_came_is_refused_when_it_comes_again() -> None:
    a, b = End(1), End(2)
    datagram = a.says(b"text")
    b.opened(datagram)
    assert b.refusal(datagram) == "replayed"


def test_another_cluster_with_the_same_key_is_not_heard() -> None:
    a, b = End(1, cluster=8), End(2)
    assert b.refusal(a.says(b"text")) == "cluster"
    foreign = bytearray(a.says(b"text"))
    foreign[8:12] = CLUSTER.to_bytes(4)
    assert b.refusal(with_check(foreign)) == "forged"


def test_who_has_another_key_is_told_apart() -> None:
    assert End(2).refusal(End(1, NEXT).says(b"text")) == "key-unknown"


def test_with_a_key_nothing_plain_is_heard() -> None:
    a, b = End(1), End(2)
    _dest, head, body = data(a.codec, b"text")
    assert b.refusal(head + body) == "not-sealed"


def test_without_a_key_nothing_sealed_is_heard() -> None:
    with pytest.raises(BadFrame) as refused:
        End(2).codec.unpack_untrusted(End(1).says(b"text"))
    assert refused.value.reason == "sealed"


@pytest.mark.parametrize("size", [0, 39, 1 << 31])
def test_a_size_that_no_seal_has(size: int) -> None:
    wrong = bytearray(End(1).says(b"text"))
    wrong[52:56] = size.to_bytes(4)
    assert End(2).refusal(with_check(wrong)) == "size"


def test_a_part_of_a_frame() -> None:
    whole = End(1).says(b"text")
    for size in range(len(whole)):
        assert End(2).refusal(whole[:size]) in {"short", "truncated"}


@given(st.binary(max_size=300), st.booleans(), st.data())
def test_bytes_of_anybody_are_refused_for_a_reason(
    noise: bytes, begins: bool, drawn: st.DataObject
) -> None:
    """Noise, and what was sealed after a few edits; as a frame, and as a text."""
    a, b = End(1), End(2)
    datagram = bytearray(a.says(b"text") if begins else b"")
    at = drawn.draw(st.integers(0, len(datagram)))
    datagram[at : at + drawn.draw(st.integers(0, 40))] = noise
    healthy = End(1).says(b"text")
    for parse in (b.opened, b.seals.open_text_untrusted):
        try:
            parse(bytes(datagram))
        except BadFrame:
            continue
        assert begins
        assert bytes(datagram[: len(healthy)]) != healthy
    assert len(b.seals._sealers) <= 1


# -- Replays ---------------------------------------------------------------------------------------


def test_a_long_walk_through_the_numbers_takes_each_once() -> None:
    """Mostly onward, with gaps, steps back into them, and now and then a leap beyond the depth."""
    dice = Random(7)
    window, taken, highest = Replays(), set[int](), 0
    for _step in range(20_000):
        step = dice.choice([1, 1, 1, dice.randrange(1, 40), -dice.randrange(replays.DEPTH + 10)])
        if dice.random() < 0.001:
            step = replays.DEPTH + dice.randrange(-3, 4)
        number = max(1, highest + step)
        is_new = number not in taken and number > highest - replays.DEPTH
        assert window.take(number) == is_new, number
        highest = max(highest, number)
        taken.add(number)


@given(st.lists(st.integers(1, 3 * replays.DEPTH), max_size=60))
def test_each_number_is_taken_once(numbers: list[int]) -> None:
    window = Replays()
    taken: set[int] = set()
    for number in numbers:
        is_old = number <= window.highest - replays.DEPTH
        assert window.take(number) == (number not in taken and not is_old)
        taken.add(number)


@given(st.permutations(range(1, 40)))
def test_in_whatever_order_they_come(numbers: list[int]) -> None:
    window = Replays()
    assert all(window.take(number) for number in numbers)
    assert not any(window.take(number) for number in numbers)


def test_what_was_recorded_is_new_for_a_newcomer_only_at_first() -> None:
    """Whatever it heard first of a sealer, the recorded one or the live one: what is older than
    that by more than two periods is refused. What the network only reordered is taken."""
    a, b = End(1), End(2)
    recorded = [a.says(b"%d" % number) for number in range(8)]
    live = a.says(b"live")
    b.seals.tick(0.0)
    b.opened(recorded[0])
    b.opened(live)
    b.opened(recorded[1])
    b.seals.tick(seals.LATE_SECONDS)
    b.opened(recorded[2])
    b.seals.tick(2 * seals.LATE_SECONDS - 0.1)
    b.opened(recorded[3])
    late = a.says(b"of this period")
    b.opened(a.says(b"newest"))
    b.seals.tick(2 * seals.LATE_SECONDS)
    assert {b.refusal(frame) for frame in recorded} == {"replayed"}
    b.opened(late)


def test_what_comes_too_late_is_no_repeat() -> None:
    """Nobody took it, so a connection must not lose it silently."""
    a, b = End(1), End(2)
    lost, heard = a.says(b"lost"), a.says(b"heard")
    b.seals.tick(0.0)
    b.opened(heard)
    for period in (1, 2):
        b.seals.tick(period * seals.LATE_SECONDS)
    for frame, is_repeat in ((lost, False), (heard, True)):
        with pytest.raises(BadFrame, match="replayed") as refused:
            b.opened(frame)
        assert isinstance(refused.value, RepeatedFrame) == is_repeat


def test_a_sealer_that_was_forgotten_begins_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seals, "MOST_SEALERS", 2)
    b = End(2)
    a = End(1)
    early, late = a.says(b"early"), a.says(b"late")
    b.opened(late)
    for short in (3, 4, 5):
        b.opened(End(short).says(b"text"))
    assert len(b.seals._sealers) == 2
    assert b.refusal(late) == "replayed"
    assert b.refusal(early) == "replayed"
    b.opened(a.says(b"new"))


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seals, "MOST_SEALERS", 3)
    monkeypatch.setattr(seals, "MOST_GONE", 5)
    b = End(2)
    for short in range(3, 40):
        b.opened(End(short).says(b"text"))
    assert len(b.seals._sealers) == 3
    assert len(b.seals._gone) == 5


def test_strangers_have_few_places_and_take_none_of_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """4,096 incarnations of the past, recorded and sent again, cost a member 32 MiB."""
    monkeypatch.setattr(seals, "MOST_STRANGERS", 5)
    b = End(2)
    member = End(3)
    b.seals.on_view({2, 3})
    early, late = member.says(b"early"), member.says(b"late")
    b.opened(late)
    past = [End(short) for short in range(10, 40)]
    recorded = [one.says(b"text") for one in past]
    for frame in recorded:
        b.opened(frame)
    assert len(b.seals._sealers) == 6
    assert b.opened(early)[1].endswith(b"early"), "a member's numbers are still told apart"
    assert {b.refusal(frame) for frame in [early, late, *recorded]} == {"replayed"}
    assert len(b.seals._sealers) == 6
    b.seals.on_view({2})
    for one in past[:3]:
        b.opened(one.says(b"more"))
    assert len(b.seals._sealers) == 5


def test_members_of_a_view_that_is_left_are_put_away_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(seals, "MOST_STRANGERS", 5)
    b = End(2)
    b.seals.on_view(range(2, 30))
    frames = [End(short).says(b"text") for short in range(3, 30)]
    for frame in frames:
        b.opened(frame)
    assert len(b.seals._sealers) == 27
    b.seals.on_view({2, 3})
    assert len(b.seals._sealers) == 6
    assert {b.refusal(frame) for frame in frames} == {"replayed"}


# -- Nonces ----------------------------------------------------------------------------------------


class Spy:
    """A cipher that notes the key and nonce of each seal."""

    def __init__(self, key: bytes, pairs: list[tuple[bytes, bytes]]) -> None:
        self._key = key
        self._pairs = pairs
        self._cipher = AESGCM(key)

    def encrypt(self, nonce: bytes, content: bytes, proved: bytes) -> bytes:
        self._pairs.append((self._key, nonce))
        return self._cipher.encrypt(nonce, content, proved)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, bytes]]:
    """The key and the nonce of each seal that was made."""
    pairs: list[tuple[bytes, bytes]] = []
    monkeypatch.setattr(seals, "AESGCM", lambda key: Spy(key, pairs))
    return pairs


def test_no_nonce_comes_twice(
    used: list[tuple[bytes, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over restarts of one member, numbers that end, changes of keys and texts."""
    monkeypatch.setattr(seals, "MOST_NUMBERS", 10)
    for _restart in range(5):
        a = End(1)
        for number in range(35):
            a.says(b"same text")
            a.seals.seal_text(b"same text")
            if number % 9 == 8:
                a.seals.set_keys((NEXT, KEY) if number % 2 else (KEY, NEXT))
    assert len(used) == 5 * 35 * 2
    assert len(set(used)) == len(used)


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_a_process_that_was_forked_seals_by_a_key_of_its_own() -> None:
    """Both go on with the same numbers. Under one key whoever hears both reads the difference of
    two texts, and can forge."""
    a, b, mark = End(1), End(2), slice(wire.HEAD_SIZE, wire.HEAD_SIZE + wire.SEAL_STRUCT.size)
    first = a.says(b"before")
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, a.says(b"of the child"))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        theirs = pipe.read()
    os.waitpid(child, 0)
    ours = a.says(b"of the parent")
    assert first[mark] == ours[mark] != theirs[mark]
    for text, frame in ((b"before", first), (b"of the parent", ours), (b"of the child", theirs)):
        assert b.opened(frame)[1].endswith(text)


def test_peers_follow_when_numbers_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seals, "MOST_NUMBERS", 10)
    a, b = End(1), End(2)
    for number in range(35):
        assert b.opened(a.says(b"%d" % number))[1].endswith(b"%d" % number)


# -- Change of keys --------------------------------------------------------------------------------


def test_keys_change_in_three_steps_and_all_are_heard_all_the_time() -> None:
    ends = [End(short) for short in range(1, 4)]
    for step in ((KEY, NEXT), (NEXT, KEY), (NEXT,)):
        for turned in ends:
            turned.seals.set_keys(step)
            for one in ends:
                for other in ends:
                    if one is not other:
                        other.opened(one.says(b"text"))
    assert ends[0].refusal(End(9, KEY).says(b"text")) == "key-unknown"


def test_of_who_sealed_with_a_key_that_is_dropped_one_number_is_kept() -> None:
    b = End(2, KEY, NEXT)
    b.opened(End(1, KEY).says(b"text"))
    b.opened(End(3, NEXT).says(b"text"))
    b.seals.set_keys((NEXT,))
    assert len(b.seals._sealers) == len(b.seals._gone) == 1


def test_a_key_that_comes_back_opens_nothing_that_was_heard_before() -> None:
    a, b = End(1, KEY), End(2, KEY, NEXT)
    early, late = a.says(b"early"), a.says(b"late")
    b.opened(late)
    b.seals.set_keys((NEXT,))
    assert b.refusal(late) == "key-unknown"
    b.seals.set_keys((NEXT, KEY))
    assert [b.refusal(early), b.refusal(late)] == ["replayed", "replayed"]
    b.opened(a.says(b"new"))


def test_what_is_kept_of_keys_that_were_dropped_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seals, "MOST_GONE", 5)
    b = End(2)
    for short in range(3, 40):
        b.opened(End(short).says(b"text"))
    b.seals.set_keys((NEXT,))
    assert (len(b.seals._sealers), len(b.seals._gone)) == (0, 5)


# -- Texts -----------------------------------------------------------------------------------------


def test_a_text_stays_readable_and_cannot_be_changed() -> None:
    a, b = End(1), End(2)
    sealed = a.seals.seal_text(b"hello")
    assert sealed.startswith(b"hello")
    for at in range(len(sealed)):
        damaged = bytearray(sealed)
        damaged[at] ^= 4
        with pytest.raises(BadFrame):
            b.seals.open_text_untrusted(bytes(damaged))
    assert b.seals.open_text_untrusted(sealed) == b"hello"
    with pytest.raises(BadFrame, match="replayed"):
        b.seals.open_text_untrusted(sealed)


@pytest.mark.parametrize("text", [b"", b"x", b"x" * 47])
def test_a_text_without_a_seal(text: bytes) -> None:
    with pytest.raises(BadFrame):
        End(2).seals.open_text_untrusted(text)


def test_the_seal_of_a_text_opens_no_frame() -> None:
    """Nor can a frame be made of one: what is authenticated of it begins otherwise."""
    a, b = End(1), End(2)
    frame = a.says(b"text")
    text = a.seals.seal_text(frame[: wire.HEAD_SIZE])
    assert b.refusal(text) in {"forged", "truncated", "size"}
