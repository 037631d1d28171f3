"""The fate of a frame: what it is decides, never when it came or what was asked before."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest as hash64

from stormcast.chaos.faults.fate import FATES, Fate, fate_key, jhash, jhash_fate, threshold, unit
from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, pack_body

CODEC = Codec(0xC1, 0xA, hash64)
BODY = pack_body([b"payload"], hash64)


def data(
    lo: int,
    *,
    transmission: int = 0,
    conn: int = 1,
    flags: int = 0,
    source: int = 0xA,
    dest: int = 0xB,
    stamp: int = 0,
    mark: int = 0,
) -> bytes:
    """The identity of a frame."""
    codec = Codec(0xC1, source, hash64)
    head = codec.pack_data(wire.UNICAST3, dest, conn, lo, BODY, flags, transmission, mark, stamp)
    return wire.identity(head + BODY.data)


# -- The kernel's hash -----------------------------------------------------------------------------

WORD = 1 << 32


def mixed(a: int, b: int, c: int, rounds: tuple[tuple[str, str, str, int], ...]) -> list[int]:
    """One of lookup3's two mixers, read off its published table of steps."""
    state = {"a": a, "b": b, "c": c}
    for change, by, add_to, bits in rounds:
        turned = (state[by] * (1 << bits)) % WORD + state[by] // (1 << (32 - bits))
        if add_to:
            # mix: x -= y; x ^= rot(y, k); y += z
            state[change] = ((state[change] - state[by]) % WORD) ^ turned
            state[by] = (state[by] + state[add_to]) % WORD
        else:
            # final: x ^= y; x -= rot(y, k)
            state[change] = ((state[change] ^ state[by]) - turned) % WORD
    return list(state.values())


MIX = (
    ("a", "c", "b", 4),
    ("b", "a", "c", 6),
    ("c", "b", "a", 8),
    ("a", "c", "b", 16),
    ("b", "a", "c", 19),
    ("c", "b", "a", 4),
)
FINAL = (
    ("c", "b", "", 14),
    ("a", "c", "", 11),
    ("b", "a", "", 25),
    ("c", "b", "", 16),
    ("a", "c", "", 4),
    ("b", "a", "", 14),
    ("c", "b", "", 24),
)


def lookup3(key: bytes, seed: int) -> int:
    """Bob Jenkins' lookup3 over whole words, begun as the Linux kernel begins its jhash."""
    words = [int.from_bytes(key[at : at + 4], "little") for at in range(0, len(key), 4)]
    a = b = c = (0xDEADBEEF + len(key) + seed) % WORD
    while len(words) > 3:
        x, y, z = words[:3]
        a, b, c = mixed((a + x) % WORD, (b + y) % WORD, (c + z) % WORD, MIX)
        words = words[3:]
    if words:
        x, y, z = [*words, 0, 0][:3]
        a, b, c = mixed((a + x) % WORD, (b + y) % WORD, (c + z) % WORD, FINAL)
    return c


def test_the_second_implementation_is_lookup3() -> None:
    """The vectors published with lookup3: hashlittle("", 0), and with two seeds of a text.

    hashlittle and jhash begin alike; the kernel reads 4-byte words where lookup3 reads bytes, so a
    text whose length is a multiple of four has the same value in both.
    """
    assert lookup3(b"", 0) == 0xDEADBEEF
    assert lookup3(b"", 0xDEADBEEF) == 0xBD5B7DDE
    text = b"Four score and seven years ago"
    assert len(text) == 30
    # hashlittle pads the last word with zero bytes and counts 30 bytes, so the seed takes the rest.
    assert lookup3(text + bytes(2), WORD - 2) == 0x17770551
    assert lookup3(text + bytes(2), WORD - 1) == 0xCD628161


@given(
    words=st.integers(0, 12), noise=st.randoms(use_true_random=False), seed=st.integers(0, WORD - 1)
)
def test_jhash_agrees_with_an_independent_lookup3(
    words: int, noise: random.Random, seed: int
) -> None:
    key = noise.randbytes(4 * words)
    assert jhash(key, seed) == lookup3(key, seed)


@pytest.mark.parametrize(
    ("key", "seed", "value"),
    [
        (b"", 0, 0xDEADBEEF),
        (b"", 1, 0xDEADBEF0),
        (bytes(4), 0, lookup3(bytes(4), 0)),
        (bytes(range(12)), 7, lookup3(bytes(range(12)), 7)),
        (bytes(range(16)), 7, lookup3(bytes(range(16)), 7)),
        (bytes(range(24)), 0xFFFFFFFF, lookup3(bytes(range(24)), 0xFFFFFFFF)),
    ],
)
def test_jhash_at_the_edges_of_its_blocks(key: bytes, seed: int, value: int) -> None:
    """Nothing at all, less than a block, exactly one, a word more, exactly two."""
    assert jhash(key, seed) == value


def test_the_kernels_dice_roll_over_the_identity_of_a_frame() -> None:
    known = data(7)
    assert len(known) == wire.IDENTITY_SIZE == 20
    assert jhash_fate(known, 99) == lookup3(known, 99) << 32
    assert jhash_fate(known, (5 << 32) + 99) == jhash_fate(known, 99)


# -- What decides ----------------------------------------------------------------------------------


@pytest.fixture(params=sorted(FATES))
def fate(request: pytest.FixtureRequest) -> Fate:
    return FATES[request.param]


CHANGES: dict[str, Callable[[], bytes]] = {
    "seqno": lambda: data(8),
    "transmission": lambda: data(7, transmission=1),
    "connection": lambda: data(7, conn=2),
    "source": lambda: data(7, source=0xE),
    "flags": lambda: data(7, flags=1),
    "kind": lambda: wire.identity(CODEC.pack_control(wire.ACK, wire.UNICAST3, 0xB, 1, 7)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_another_frame_meets_another_fate(fate: Fate, what: str) -> None:
    assert fate(CHANGES[what](), 1) != fate(data(7), 1)


def test_what_is_not_the_frames_identity_does_not_change_its_fate(fate: Fate) -> None:
    """A timestamp or a mark tells when the frame was made; the receiver is part of the key."""
    assert fate(data(7, stamp=5, mark=6), 1) == fate(data(7), 1) == fate(data(7, dest=0xD), 1)
    assert fate_key(1, "f1/loss", "n0") != fate_key(1, "f1/loss", "n1")


def test_the_same_frame_meets_the_same_fate_whatever_was_drawn_before(fate: Fate) -> None:
    """Fates asked for in another order, or with others in between, are what they were."""
    frames = [data(lo) for lo in range(1, 200)]
    forward = {lo: fate(frame, 5) for lo, frame in enumerate(frames)}
    shuffled = list(enumerate(frames))
    random.Random(3).shuffle(shuffled)
    again = {}
    for lo, frame in shuffled:
        fate(data(10_000 + lo), 5)
        again[lo] = fate(frame, 5)
    assert again == forward


def test_seeds_rules_and_receivers_roll_dice_of_their_own() -> None:
    keys = {
        fate_key(seed, rule, receiver)
        for seed in range(20)
        for rule in ("f1/loss", "f2/loss", "f1/duplicate")
        for receiver in ("n0", "n1", "n2")
    }
    assert len(keys) == 180


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5, 0.9, 1.0])
def test_shares_come_out_close_to_the_asked_rate(fate: Fate, share: float) -> None:
    """Over 10^4 frames: within four standard deviations, and exactly at 0 and 1."""
    count = 10_000
    key, below = fate_key(7, "f1/loss", "n1"), threshold(share)
    struck = sum(fate(data(lo), key) < below for lo in range(1, count + 1))
    deviation = (count * share * (1 - share)) ** 0.5
    assert abs(struck - count * share) <= 4 * deviation


def test_repeats_of_one_frame_are_struck_at_the_rate_too(fate: Fate) -> None:
    """A frame that was lost is not doomed: its repeats are frames of their own."""
    key, below = fate_key(7, "f1/loss", "n1"), threshold(0.5)
    struck = [
        sum(fate(data(lo, transmission=number), key) < below for number in range(100))
        for lo in range(1, 101)
    ]
    assert abs(sum(struck) - 5000) < 200
    assert min(struck) > 25
    assert max(struck) < 75


def test_two_rules_at_one_receiver_strike_independently(fate: Fate) -> None:
    one, other = fate_key(7, "f1/loss", "n1"), fate_key(7, "f2/loss", "n1")
    below = threshold(0.5)
    both = sum(
        fate(frame, one) < below and fate(frame, other) < below
        for frame in (data(lo) for lo in range(1, 4001))
    )
    assert abs(both - 1000) < 120


def test_a_fate_as_a_number_lies_in_the_unit_interval(fate: Fate) -> None:
    numbers = [unit(fate(data(lo), 3)) for lo in range(1, 5001)]
    assert 0.0 <= min(numbers) < 0.01
    assert 0.99 < max(numbers) < 1.0
    assert abs(sum(numbers) / len(numbers) - 0.5) < 0.02
    assert unit(0) == 0.0
    assert unit((1 << 64) - 1) < 1.0
