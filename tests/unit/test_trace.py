"""The record of a run: what was sealed is read back, and nothing else is (docs/trace-format.md)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node import trace
from stormcast.node.core.codec import pack_body
from stormcast.node.core.errors import BadTrace
from stormcast.node.trace import HEADER, MAGIC, VERSION, Block, Event, read_blocks_untrusted
from stormcast.node.trace.tracer import Tracer

MEMBER = 0xABCD
WALL_NS = 1_700_000_000_000_000_000


class Journal:
    """A member's tracer and the file it writes."""

    def __init__(self, seal_at: int = 1) -> None:
        self.blocks: list[bytes] = []
        self.tracer = Tracer(MEMBER, WALL_NS, hash64, self.blocks.append, seal_at)

    def note(self, *texts: str) -> None:
        """One event per text, in one turn; an empty text is an event without one."""
        for at, text in enumerate(texts):
            self.tracer.record(trace.CONN, float(at), text=text)
        self.tracer.turn()

    @property
    def file(self) -> bytes:
        return b"".join(self.blocks)

    def read(self) -> list[Block]:
        return list(read_blocks_untrusted(self.file, hash64))


def texts_of(blocks: list[Block]) -> list[str]:
    return [block.text(event) for block in blocks for event in block.events]


def read_until_bad(data: bytes) -> tuple[list[Block], str]:
    """The blocks before the first bad one, and what is wrong with that."""
    blocks: list[Block] = []
    with pytest.raises(BadTrace) as bad:
        blocks.extend(read_blocks_untrusted(data, hash64))
    return blocks, bad.value.reason


def sample() -> Journal:
    """Three blocks, of two events, one without text, and three."""
    journal = Journal()
    journal.note("one", "two")
    journal.note("")
    journal.note("three", "", "four")
    return journal


# -- Writing -------------------------------------------------------------------------------------


def test_every_field_of_an_event_is_read_back() -> None:
    journal = Journal()
    journal.tracer.record(
        trace.SENT, 12.5, flags=1, protocol=2, stream=3, peer=4, conn=5, epoch=6, view=7, count=8,
        lo=9, hi=10, size=11, digest=12, text="why",
    )  # fmt: skip  # a record's columns
    journal.tracer.seal()
    (block,) = journal.read()
    assert (block.member, block.first, block.wall_ns) == (MEMBER, 0, WALL_NS)
    assert block.events == [Event(trace.SENT, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 1, 12.5)]
    assert block.text(block.events[0]) == "why"
    assert block.events[0].name == "sent"


def test_events_of_messages_are_read_back_with_every_field_they_have() -> None:
    """What a method does not name is 0; the count is that of the seqnos, or given."""
    journal = Journal()
    tracer = journal.tracer
    body = pack_body([b"one", b"two"], hash64)
    tracer.sent(
        1.0, protocol=3, peer=4, conn=5, view=6, flags=7, body=body, number=1 << 33 | 8, lo=9, hi=10
    )
    tracer.retransmitted(
        2.0,
        protocol=3,
        peer=4,
        conn=5,
        view=6,
        flags=7,
        transmission=8,
        lo=9,
        hi=10,
        size=11,
        digest=12,
    )
    tracer.delivered(
        3.0, protocol=3, peer=4, conn=5, epoch=6, view=7, flags=8, lo=9, hi=10, size=11,
        digest=12, stream=trace.PARTIAL, trim=13,
    )  # fmt: skip  # a record's columns
    tracer.offered(4.0, peer=3, lo=4, hi=5)
    tracer.handed(5.0, protocol=3, peer=4, conn=5, lo=6, hi=7)
    tracer.requested(
        6.0, protocol=3, peer=4, conn=5, epoch=6, view=7, stream=1, count=2, lo=8, hi=12
    )
    tracer.acked(7.0, protocol=3, kind=4, peer=5, conn=6, epoch=7, view=8, seqno=9)
    tracer.purged(8.0, protocol=3, peer=4, conn=5, view=6, lo=7, hi=9)
    tracer.turn()

    size, digest = len(body.data), body.digest
    assert journal.read()[0].events == [
        Event(trace.SENT, 7, 3, 0, 4, 5, 0, 6, 2, 9, 10, size, digest, 8, 0, 1.0),
        Event(trace.RETRANSMITTED, 7, 3, 8, 4, 5, 0, 6, 2, 9, 10, 11, 12, 0, 0, 2.0),
        Event(trace.DELIVERED, 8, 3, trace.PARTIAL, 4, 5, 6, 7, 2, 9, 10, 11, 12, 13, 0, 3.0),
        Event(trace.OFFERED, 0, 0, 0, 3, 0, 0, 0, 2, 4, 5, 0, 0, 0, 0, 4.0),
        Event(trace.HANDED, 0, 3, trace.AS_DELIVERED, 4, 5, 0, 0, 2, 6, 7, 0, 0, 0, 0, 5.0),
        Event(trace.REQUESTED, 0, 3, 1, 4, 5, 6, 7, 2, 8, 12, 0, 0, 0, 0, 6.0),
        Event(trace.ACKED, 0, 3, 4, 5, 6, 7, 8, 0, 9, 0, 0, 0, 0, 0, 7.0),
        Event(trace.PURGED, 0, 3, 0, 4, 5, 0, 6, 3, 7, 9, 0, 0, 0, 0, 8.0),
    ]


def test_event_numbers_go_on_over_the_blocks() -> None:
    """The reader can tell that nothing between two blocks is missing."""
    blocks = sample().read()
    assert [(block.first, len(block.events)) for block in blocks] == [(0, 2), (2, 1), (3, 3)]


def test_a_turn_is_sealed_when_enough_has_come_together() -> None:
    """`seal_at` 3: two events wait, the third takes them along; `seal` does not wait."""
    journal = Journal(seal_at=3)
    journal.note("1")
    journal.note("2")
    assert journal.blocks == []
    journal.note("3")
    assert len(journal.blocks) == 1
    journal.note("4", "5")
    assert len(journal.blocks) == 1
    journal.tracer.seal()
    assert len(journal.blocks) == 2
    assert texts_of(journal.read()) == ["1", "2", "3", "4", "5"]


def test_a_turn_without_events_writes_nothing() -> None:
    journal = Journal()
    journal.tracer.turn()
    journal.tracer.seal()
    assert journal.blocks == []
    assert journal.read() == []


def test_a_block_reaches_the_sink_before_the_turn_is_over() -> None:
    """Its frames leave after it, so a killed sender never makes its receivers look like liars."""
    journal = Journal()
    journal.tracer.record(trace.SENT, 0.0)
    assert journal.blocks == []
    journal.tracer.turn()
    assert len(journal.blocks) == 1


# -- Texts ---------------------------------------------------------------------------------------


def test_texts_are_numbered_within_their_block() -> None:
    blocks = sample().read()
    assert texts_of(blocks) == ["one", "two", "", "three", "", "four"]
    assert [block.texts for block in blocks] == [["one", "two"], [], ["three", "four"]]


@given(st.lists(st.text(max_size=20)))
def test_any_text_is_read_back(texts: list[str]) -> None:
    journal = Journal()
    journal.note(*texts)
    assert texts_of(journal.read()) == texts


def test_a_text_is_cut_at_its_bound() -> None:
    """65535 bytes fit; a character that the cut goes through is replaced, and the rest is read."""
    journal = Journal()
    journal.note("x" * 65535, "y" * 65536, "é" * 40_000, "after")
    fits, cut, cut_within, after = texts_of(journal.read())
    assert (fits, cut) == ("x" * 65535, "y" * 65535)
    assert cut_within == "é" * 32767 + "\N{REPLACEMENT CHARACTER}"
    assert after == "after"


def test_a_text_that_is_no_unicode_does_not_stop_the_member() -> None:
    """A name from the command line may hold an escaped byte; the run goes on without it."""
    journal = Journal()
    journal.note("n\udcff0", "next")
    assert texts_of(journal.read()) == ["n?0", "next"]


# -- Reading what is torn or harmed --------------------------------------------------------------


def test_a_torn_file_gives_every_whole_block_and_then_says_so() -> None:
    """Cut at any byte, as kill -9 may leave it."""
    journal = sample()
    whole = journal.read()
    ends = [0]
    for block in journal.blocks:
        ends.append(ends[-1] + len(block))
    for size in range(len(journal.file)):
        kept = sum(end <= size for end in ends[1:])
        if size in ends:
            assert list(read_blocks_untrusted(journal.file[:size], hash64)) == whole[:kept]
            continue
        blocks, reason = read_until_bad(journal.file[:size])
        assert blocks == whole[:kept]
        assert reason in {"torn block header", "torn block"}


def test_only_the_last_block_can_be_torn() -> None:
    """A kill leaves nothing whole behind a block that is not: so that one was damaged."""
    journal = sample()
    first, second = (len(block) for block in journal.blocks[:2])
    count, texts, magic = 12, 32, 0
    for at, block in ((0, []), (first, journal.read()[:1])):
        for field, top in ((count, 0x80), (texts, 0x80), (magic, 0)):
            harmed = bytearray(journal.file)
            if top:
                harmed[at + field + 3] |= top
            else:
                harmed[at : at + 4] = bytes(4)
            assert read_until_bad(bytes(harmed)) == (block, "damaged: whole blocks follow")
            last = bytes(harmed[: at + (second if at else first)])
            assert read_until_bad(last) == (block, "torn block")
            # What is left of two blocks is no whole one.
            assert read_until_bad(last + journal.file[-30:]) == (block, "torn block")


def test_bytes_that_look_like_many_blocks_take_no_long_search() -> None:
    """A trace may come from a pod that was taken over: each of these would have all that follows
    hashed. It is damaged, whether or not one of them is whole."""
    size = 256 << 10
    hashed = 0

    def counted(data: bytes) -> int:
        nonlocal hashed
        hashed += len(data)
        return 0

    begun = HEADER.pack(MAGIC, VERSION, HEADER.size, 1, 1 << 30, 0, 0, 0, 0, 1)
    fake = bytearray(begun)
    for at in range(HEADER.size, size, HEADER.size):
        left = max(0, size - at - HEADER.size)
        fake += HEADER.pack(MAGIC, VERSION, HEADER.size, 1, 0, 0, 0, left, 0, 1)
    with pytest.raises(BadTrace, match="damaged: whole blocks follow"):
        list(read_blocks_untrusted(bytes(fake), counted))
    assert hashed < 100 * size


def test_a_flipped_bit_ends_the_believing() -> None:
    """Whole blocks before the harmed one are kept; nothing of it or after it is."""
    journal = sample()
    whole = journal.read()
    starts = [sum(map(len, journal.blocks[:at])) for at in range(len(journal.blocks))]
    for bit in range(8 * len(journal.file)):
        harmed = bytearray(journal.file)
        harmed[bit // 8] ^= 1 << bit % 8
        blocks, _reason = read_until_bad(bytes(harmed))
        assert blocks == whole[: sum(start <= bit // 8 for start in starts) - 1]


def test_a_foreign_file_is_refused_for_what_it_is() -> None:
    data = sample().file
    assert read_until_bad(b"PAR1" + data[4:]) == ([], "not a trace block")
    assert read_until_bad(data[:4] + b"\4\0" + data[6:]) == ([], "trace version 4")
    assert read_until_bad(data[:8]) == ([], "torn block header")
    assert list(read_blocks_untrusted(b"", hash64)) == []


@pytest.mark.parametrize("version", [1, 2])
def test_a_trace_of_an_older_version_is_read(version: int) -> None:
    """Its blocks are laid out alike, and say less."""
    body = trace.RECORD.pack(*Event(*[0] * 15, 1.0))
    front = trace.HEADER.pack(trace.MAGIC, version, trace.HEADER.size, 1, 1, 0, 0, 0, 0, 0)[:-8]
    data = front + hash64(front + body).to_bytes(8, "little") + body
    (block,) = read_blocks_untrusted(data, hash64)
    assert (block.version, len(block.events)) == (version, 1)
    (block,) = read_blocks_untrusted(checked([], b""), hash64)
    assert block.version == trace.VERSION


def checked(events: list[Event], heap: bytes) -> bytes:
    """A block of these events and this heap of texts, under a check that agrees."""
    body = b"".join(trace.RECORD.pack(*event) for event in events) + heap
    front = trace.HEADER.pack(
        trace.MAGIC, trace.VERSION, trace.HEADER.size, 1, len(events), 0, 0, len(heap), 0, 0
    )[:-8]
    return front + hash64(front + body).to_bytes(8, "little") + body


@pytest.mark.parametrize("heap", [b"\1", b"\1\0", b"\2\0x", b"\1\0x\xff", b"\xff\xff" + b"x" * 9])
def test_a_heap_of_texts_that_does_not_add_up_is_refused(heap: bytes) -> None:
    assert read_until_bad(checked([], heap)) == ([], "texts")


def test_an_event_that_names_no_text_of_its_block_is_refused() -> None:
    """Else looking at the text would fail long after reading."""
    names_one = Event(*[0] * 14, 1, 0.0)
    names_two = names_one._replace(text=2)
    (block,) = read_blocks_untrusted(checked([names_one], b"\1\0x"), hash64)
    assert block.text(block.events[0]) == "x"
    assert read_until_bad(checked([names_one, names_two], b"\1\0x")) == ([], "text number")
    assert read_until_bad(checked([names_one], b"")) == ([], "text number")


# -- The contract --------------------------------------------------------------------------------


def test_the_layout_is_pinned() -> None:
    """pipeline/schema.py and docs/trace-format.md say the same; a change is a new version."""
    assert (trace.MAGIC, trace.VERSION) == (b"STRC", 3)
    assert (trace.HEADER.format, trace.HEADER.size) == ("<4sHHIIQQIIQ", 48)
    assert (trace.RECORD.format, trace.RECORD.size) == ("<BBBBIIIIIQQQQIId", 72)
    assert Event._fields == (
        "kind", "flags", "protocol", "stream", "peer", "conn", "epoch", "view", "count", "lo",
        "hi", "bytes", "digest", "trim", "text", "time",
    )  # fmt: skip  # a record's columns


def test_kinds_of_events_are_pinned() -> None:
    """A number is never given a new meaning; new kinds come after the last."""
    names = [
        "start", "sent", "delivered", "acked", "requested", "retransmitted", "purged", "blocked",
        "unblocked", "view", "conn", "suspect", "dropped", "gauge", "sync", "skipped", "fault",
        "probe", "phase", "stop",
    ]  # fmt: skip  # a record's columns
    assert list(trace.EVENT_NAMES.items())[: len(names)] == list(enumerate(names, start=1))
    assert len(set(trace.EVENT_NAMES.values())) == len(trace.EVENT_NAMES)
    assert {name: getattr(trace, name.upper()) for name in names} == {
        name: number for number, name in enumerate(names, start=1)
    }


def test_an_event_of_a_later_version_has_a_name_all_the_same() -> None:
    assert Event(200, *[0] * 14, 0.0).name == "event-200"
