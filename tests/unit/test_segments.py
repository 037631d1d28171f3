"""The files of a journal, and what it says of events that they do not hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node import trace
from stormcast.node.trace import pack_block, pack_text, read_blocks_untrusted
from stormcast.node.trace.journal import JournalConfig
from stormcast.node.trace.segments import DROP_OLDEST, STOP, Segments, segment_name
from stormcast.node.trace.truncation import TO_BE_SAID, Front, front_of, pack_truncated
from tests.helpers.journals import files

SIZE = 4096
FRONT = Front(member=7, count=2, first=5, wall_ns=99, time=1.5)


def segments(folder: Path, count: int, when_full: str = DROP_OLDEST) -> Segments:
    """So many segments of ten events each, of four that there may be."""
    config = JournalConfig(
        directory=folder, segment_bytes=SIZE, limit_bytes=4 * SIZE, when_full=when_full
    )
    made = Segments(config, folder, hash64)
    made.head = pack_truncated(FRONT, 6, "", 0.0, hash64)
    for number in range(count):
        made.begin(10 * number, 0, SIZE).close()
    return made


def test_a_segment_that_cannot_begin_changes_nothing(tmp_path: Path) -> None:
    made = segments(tmp_path, 1)
    (tmp_path / segment_name(1)).touch()
    with pytest.raises(FileExistsError):
        made.begin(10, 0, SIZE)
    assert (made.begun, made.written) == (1, 0)
    made.extend(0, 10).close()
    made.end(100)
    assert made.written == (tmp_path / segment_name(0)).stat().st_size == 100


def test_the_oldest_make_way_but_for_the_head_and_the_last_one(tmp_path: Path) -> None:
    made = segments(tmp_path, 3)
    assert made.make_way(100)
    assert made.events_dropped == 0
    assert made.make_way(2 * SIZE)
    assert files(tmp_path) == [segment_name(0), segment_name(2)]
    assert made.events_dropped == 20 - front_of(made.head).next
    assert not made.make_way(4 * SIZE)
    made.end(0)


def test_nothing_makes_way_if_so_wanted(tmp_path: Path) -> None:
    made = segments(tmp_path, 3, STOP)
    assert not made.make_way(2 * SIZE)
    assert len(files(tmp_path)) == 3
    made.end(0)


def test_what_is_forgotten_is_not_counted(tmp_path: Path) -> None:
    made = segments(tmp_path, 3)
    assert [made.forget(upto) for upto in (9, 15, 15)] == [0, 1, 0]
    made.note_missing(3)
    assert made.events_dropped == 0
    made.end(0)


def test_a_front_is_what_a_block_says() -> None:
    records = [(trace.SENT, *[0] * 14, 0.5), (trace.SENT, *[0] * 14, 1.5)]
    block = pack_block(7, 5, 99, records, pack_text(""), hash64)
    assert front_of(block) == FRONT
    assert FRONT.next == 7


@pytest.mark.parametrize(
    ("next_number", "said"), [(8, (3, 5, 7)), (TO_BE_SAID, (0, 5, 0)), (1 << 40, None)]
)
def test_a_loss_says_which_events_are_missing(
    next_number: int, said: tuple[int, int, int] | None
) -> None:
    """Of a loss that 32 bits do not count, the first and the last."""
    data = pack_truncated(FRONT, next_number, "no room", 2.0, hash64)
    (block,) = read_blocks_untrusted(data, hash64)
    (event,) = block.events
    assert (event.count, event.lo, event.hi) == (said or ((1 << 32) - 1, 5, next_number - 1))
    assert (block.text(event), event.time) == ("no room", 2.0)
