"""Whatever is cut comes out as it was (P-35), and whatever arrives is bounded (G5)."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from stormcast.node.core.errors import BadFrame
from stormcast.node.core.model import Payload
from stormcast.node.protocols.frag import (
    HEADER,
    MEMBERS_EXPIRY,
    FragConfig,
    Fragmenter,
    Reassembler,
)

SEEDS = st.integers(0, 2**32 - 1)
Piece = tuple[int, bool, bool, int, bytes, Payload]


def config(frag_size: int) -> FragConfig:
    return FragConfig(frag_size=frag_size, max_message_size=5000, max_open_bytes=1 << 26)


@given(seed=SEEDS, frag_size=st.integers(1, 700))
def test_any_interleaving_of_senders_delivers_every_message_as_it_was(
    seed: int, frag_size: int
) -> None:
    """Regular pieces of one sender and kind keep their order; OOB ones come in any, some twice."""
    dice = Random(seed)
    settings = config(frag_size)
    queues: list[list[Piece]] = []
    sent: list[tuple[int, bool, bool, bytes]] = []
    oob: list[Piece] = []
    for source in range(1, 4):
        fragmenter = Fragmenter(settings, xxh3_64_intdigest)
        lines: dict[bool, list[Piece]] = {False: [], True: []}
        for _ in range(dice.randint(1, 8)):
            payload = dice.randbytes(dice.randint(frag_size + 1, 5000))
            is_group, is_oob = dice.random() < 0.5, dice.random() < 0.3
            sent.append((source, is_group, is_oob, payload))
            cut = fragmenter.cut(payload)
            pieces = [
                (source, is_group, is_oob, 100_000 * cut.id + index, cut.header(index), piece)
                for index, piece in enumerate(cut.pieces)
            ]
            (oob if is_oob else lines[is_group]).extend(pieces)
        queues += lines.values()
    dice.shuffle(oob)
    queues.append(oob)
    queues = [queue[::-1] for queue in queues if queue]
    reassembler = Reassembler(settings)
    got: list[tuple[int, bool, bool, bytes]] = []
    while queues:
        queue = dice.choice(queues)
        source, is_group, is_oob, seqno, header, piece = queue.pop()
        joined = reassembler.take(source, is_group, is_oob, 1, seqno, header, piece, 0, 0.0)
        if joined is not None:
            got.append((source, is_group, is_oob, joined.payload))
        queues = [queue for queue in queues if queue]
    assert sorted(got) == sorted(sent)
    for source in range(1, 4):
        for is_group in (False, True):
            key = (source, is_group, False)
            assert [m for m in got if m[:3] == key] == [m for m in sent if m[:3] == key]
    assert (reassembler.open_bytes, reassembler.open_messages()) == (0, 0)


@given(seed=SEEDS, loss=st.floats(0.01, 0.9))
def test_lost_pieces_cost_their_own_message_and_nothing_stays(seed: int, loss: float) -> None:
    """What is delivered is whole and in order; once its sender has left, nothing of it is kept."""
    dice = Random(seed)
    settings = config(50)
    fragmenter, reassembler = Fragmenter(settings, xxh3_64_intdigest), Reassembler(settings)
    reassembler.on_view([1, 2], 0.0)
    intact, got = [], []
    for _ in range(20):
        payload = dice.randbytes(dice.randint(51, 400))
        cut = fragmenter.cut(payload)
        kept = [index for index in range(len(cut.pieces)) if dice.random() >= loss]
        if len(kept) == len(cut.pieces):
            intact.append(payload)
        for index in kept:
            header, piece = cut.header(index), cut.pieces[index]
            try:
                joined = reassembler.take(1, True, False, 0, index + 1, header, piece, 0, 0.0)
            except BadFrame:
                continue
            if joined is not None:
                got.append(joined.payload)
    assert got == intact
    assert reassembler.open_messages() <= 1
    reassembler.on_view([2], 0.0)
    assert (reassembler.open_bytes, reassembler.open_messages()) == (0, 0)


SMALL = st.integers(0, 6)
PIECES = st.tuples(
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
    SMALL,
    SMALL,
    SMALL,
    st.integers(0, 40),
    st.integers(0, 20),
    SMALL,
    st.sampled_from([0.0, 0.1, 30.0, 61.0]),
)


@given(pieces=st.lists(PIECES, max_size=60))
def test_no_sequence_of_pieces_breaks_a_bound(
    pieces: list[tuple[int, bool, bool, int, int, int, int, int, int, float]],
) -> None:
    """Whatever headers say: bytes and messages stay within their bounds, a whole message has the
    size it announced, and only BadFrame is raised."""
    settings = FragConfig(
        frag_size=10, max_message_size=30, max_open_bytes=900, max_open_messages=2
    )
    reassembler = Reassembler(settings)
    reassembler.on_view([1, 2], 0.0)
    now = 0.0
    for source, is_group, is_oob, message, index, count, total, size, settled, later in pieces:
        now += later
        header = HEADER.pack(message, index, count, total)
        try:
            whole = reassembler.take(
                source, is_group, is_oob, message % 2, index + 1, header, bytes(size), settled, now
            )
        except BadFrame:
            continue
        finally:
            assert 0 <= reassembler.open_bytes <= reassembler.bound()
            assert reassembler.open_messages() <= 2 * 3 * (2 + 1)
        assert whole is None or len(whole.payload) == total
    reassembler.on_view([], now)
    reassembler.expire(now + 2 * MEMBERS_EXPIRY)
    assert (reassembler.open_bytes, reassembler.open_messages()) == (0, 0)
