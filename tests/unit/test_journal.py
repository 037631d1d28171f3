"""The journal: what was written is there, and what is not there is said to be missing."""

from __future__ import annotations

import os
import tempfile
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node import trace
from stormcast.node.core.errors import ClosedError, ConfigError
from stormcast.node.trace import RECORD, pack_block, pack_text, read_blocks_untrusted
from stormcast.node.trace.files import Source
from stormcast.node.trace.journal import Journal, JournalConfig
from tests.helpers.journals import SEGMENT, Member, files, find, size_on_disk


def blocks_in(path: Path) -> list[trace.Block]:
    return list(read_blocks_untrusted(path.read_bytes(), hash64))


class FullDisk:
    """A place where no further segment can be made, until there is room."""

    def __init__(self, folder: Path, number: int) -> None:
        self._obstacle = folder / f"{number:06}.trace"
        self._obstacle.mkdir()

    def make_room(self) -> None:
        self._obstacle.rmdir()


# -- What is kept --------------------------------------------------------------------------------


def test_what_was_written_can_be_read_while_the_member_lives(tmp_path: Path) -> None:
    """Nothing is flushed or closed: so it is there, whatever becomes of the process."""
    member = Member(tmp_path)
    for events in range(1, 60):
        member.turn(events)
    assert len(files(member.folder)) > 10
    found = find(member.folder)
    assert found.numbers == list(range(member.events))
    assert (found.losses, found.notes) == ([], [])


def test_closing_cuts_the_last_segment_to_its_size(tmp_path: Path) -> None:
    member = Member(tmp_path, segment_bytes=1 << 20)
    member.turns(5)
    (path,) = member.folder.iterdir()
    before = path.read_bytes()
    assert len(before) > member.journal.written
    member.journal.close()
    assert path.read_bytes() == before[: member.journal.written]
    assert not before[member.journal.written :].strip(b"\0")
    member.journal.close()
    assert find(member.folder).numbers == list(range(6))


def test_a_block_lies_in_one_segment(tmp_path: Path) -> None:
    """So each segment can be read alone."""
    member = Member(tmp_path)
    for events in (1, 7, 13, 19) * 5:
        member.turn(events)
    assert sum(len(blocks_in(path)) for path in member.folder.iterdir()) == 21


def test_a_block_larger_than_a_segment_gets_one_of_its_own_size(tmp_path: Path) -> None:
    member = Member(tmp_path)
    member.turn(200)
    member.turn(1)
    sizes = [path.stat().st_size for path in sorted(member.folder.iterdir())]
    assert sizes[0] == sizes[2] == SEGMENT
    assert 200 * RECORD.size < sizes[1] < 201 * RECORD.size + 1024
    assert find(member.folder).numbers == list(range(202))


def test_the_first_block_may_be_the_large_one(tmp_path: Path) -> None:
    """It says how a member is set, which may be long; no segment stays empty for it."""
    journal = Journal(JournalConfig(directory=tmp_path, segment_bytes=SEGMENT), "n1-1", hash64)
    tracer = journal.tracer(1, 0)
    tracer.record(trace.START, 0.0, text="x" * 60_000)
    tracer.turn()
    assert files(journal.directory) == ["000000.trace"]
    (block,) = blocks_in(journal.directory / "000000.trace")
    assert block.text(block.events[0]) == "x" * 60_000


def test_counters_say_what_was_written(tmp_path: Path) -> None:
    member = Member(tmp_path)
    member.turns(100)
    figures = member.journal.stats()
    assert figures == {
        "bytes": member.journal.written,
        "blocks": 101,
        "events_lost": 0,
        "segments": len(files(member.folder)),
    }
    used = sum(block.size for block in Source("", member.folder).blocks())
    assert member.journal.written == used
    member.journal.close()
    assert member.journal.stats() == figures


def test_a_closed_journal_takes_nothing(tmp_path: Path) -> None:
    member = Member(tmp_path)
    member.journal.close()
    with pytest.raises(ClosedError, match="journal is closed"):
        member.turn()


def test_the_magic_of_a_block_is_written_last(tmp_path: Path) -> None:
    """A window that fails halfway, as a kill would: what is there is no block, and ends nothing."""
    member = Member(tmp_path)
    member.turn()
    window = HalfWritten(member.journal._map, writes=1)
    member.journal._map = window  # type: ignore[assignment]
    with pytest.raises(KilledError):
        member.turn()
    found = find(member.folder)
    assert found.numbers == [0, 1]
    (note,) = found.notes
    assert note.endswith("torn block; everything before it was read")


class KilledError(Exception):
    """The process ends here."""


class HalfWritten:
    """A window that takes so many writes and no more."""

    def __init__(self, window: object, writes: int) -> None:
        self._window = window
        self._writes = writes

    def __setitem__(self, where: slice, data: bytes) -> None:
        if not self._writes:
            raise KilledError
        self._writes -= 1
        self._window[where] = data  # type: ignore[index]


# -- The limit -----------------------------------------------------------------------------------


def test_at_the_limit_the_oldest_segments_go_and_that_is_said(tmp_path: Path) -> None:
    """Who the member is stays: the first block is kept, and the gap stands behind it."""
    limit = 5 * SEGMENT
    member = Member(tmp_path, limit_bytes=limit)
    for _ in range(400):
        member.turn(2)
        assert size_on_disk(member.folder) <= limit
    found = find(member.folder)
    lost = member.journal.events_lost
    assert lost > 400
    assert found.numbers == [0, *range(lost + 1, member.events)]
    why = f"limit_bytes {limit}, drop-oldest"
    assert found.losses == [(lost, 1, lost, why)]
    (note,) = found.notes
    assert note.endswith(f"truncated: events 1..{lost} were not kept: {why}")
    assert files(member.folder)[0] == "000000.trace"
    (start, *_) = blocks_in(member.folder / "000000.trace")
    assert start.text(start.events[0]).startswith("n1 ")


def test_what_somebody_else_has_is_deleted_and_is_no_loss(tmp_path: Path) -> None:
    """Whole segments, and never the last; who the member is stays."""
    member = Member(tmp_path)
    member.turns(300)
    before = len(files(member.folder))
    assert member.journal.forget(0) == 0
    deleted = member.journal.forget(150)
    assert 0 < deleted < before
    assert member.journal.forget(150) == 0
    found = find(member.folder)
    first = found.numbers[1]
    assert found.numbers == [0, *range(first, member.events)]
    assert 100 < first <= 150
    assert found.losses[0][3] == "forgotten, as somebody else has them"
    assert member.journal.events_lost == 0
    assert member.journal.forget(1 << 40) == before - deleted - 1
    member.turns(300)
    assert find(member.folder).numbers[-300:] == list(range(301, 601))
    assert member.journal.events_lost == 0


def test_most_of_the_limit_is_used(tmp_path: Path) -> None:
    member = Member(tmp_path, limit_bytes=10 * SEGMENT)
    member.turns(1000)
    assert size_on_disk(member.folder) > 8 * SEGMENT


def test_at_the_limit_nothing_more_is_written_if_so_wanted(tmp_path: Path) -> None:
    """Killed before it is closed, the journal says that there was more; closed, how much."""
    limit = 4 * SEGMENT
    member = Member(tmp_path, limit_bytes=limit, when_full="stop")
    while not member.journal.trouble:
        member.turn()
        member.now += 0.1
    kept = member.events - 1
    before = size_on_disk(member.folder)
    member.turns(500, step=10.0)
    assert size_on_disk(member.folder) == before <= limit
    assert member.journal.trouble == f"limit_bytes {limit}"
    assert member.journal.events_lost == member.events - kept

    found = find(member.folder)
    assert found.numbers == list(range(kept))
    assert found.losses == [(0, kept, 0, f"limit_bytes {limit}")]
    (note,) = found.notes
    assert note.endswith(f"truncated: events from {kept} on were not kept: limit_bytes {limit}")

    member.journal.close()
    found = find(member.folder)
    last = member.events - 1
    assert found.losses[1:] == [(last + 1 - kept, kept, last, f"limit_bytes {limit}")]
    (note,) = found.notes
    assert f"events {kept}..{last} were not kept" in note


def test_a_large_block_drops_as_many_segments_as_it_needs(tmp_path: Path) -> None:
    limit = 8 * SEGMENT
    member = Member(tmp_path, limit_bytes=limit)
    member.turns(1000)
    for _ in range(5):
        member.turn(200)
        assert size_on_disk(member.folder) <= limit
        member.turns(20)
        assert size_on_disk(member.folder) <= limit
    kept = range(member.events - 220, member.events)
    assert find(member.folder).numbers[-220:] == list(kept)


def test_a_journal_that_stopped_has_no_room_for_small_blocks_either(tmp_path: Path) -> None:
    """Else what is missing would be scattered over the rest of the run."""
    member = Member(tmp_path, limit_bytes=4 * SEGMENT, when_full="stop")
    member.turn(300)
    member.turns(20, step=10.0)
    found = find(member.folder)
    assert found.numbers == [0]
    assert [loss[:3] for loss in found.losses] == [(0, 1, 0)]


def test_a_block_beyond_the_limit_is_lost_and_the_next_ones_are_not(tmp_path: Path) -> None:
    member = Member(tmp_path, limit_bytes=4 * SEGMENT)
    member.turn(300)
    member.now = 1.0
    member.turn()
    found = find(member.folder)
    assert found.numbers == [0, 301]
    assert [loss[:3] for loss in found.losses] == [(0, 1, 0), (300, 1, 300)]
    assert member.journal.events_lost == 300


# -- A full disk ---------------------------------------------------------------------------------


def test_a_member_goes_on_without_room_and_says_later_what_is_missing(tmp_path: Path) -> None:
    member = Member(tmp_path)
    disk = FullDisk(member.folder, 1)
    while not member.journal.trouble:
        member.turn()
    assert member.journal.trouble == "file exists"
    first = member.events - 1
    member.turns(99, step=0.01)
    assert member.journal.events_lost == 100
    disk.make_room()
    member.turns(10, step=0.1)

    found = find(member.folder)
    last, count = first + 99, 100
    assert found.numbers == [*range(first), *range(last + 1, member.events)]
    why = "file exists"
    assert found.losses == [(0, first, 0, why), (count, first, last, why)]
    assert member.journal.events_lost == count
    assert member.journal.trouble == ""
    (note,) = found.notes
    assert f"truncated: events {first}..{last} were not kept" in note
    assert len(found.numbers) + count == member.events


def test_room_is_looked_for_once_a_second_of_the_members_clock(tmp_path: Path) -> None:
    member = Member(tmp_path)
    disk = FullDisk(member.folder, 1)
    while not member.journal.trouble:
        member.turn()
    disk.make_room()
    member.now = 0.999
    member.turn()
    assert member.journal.trouble
    member.now = 1.0
    member.turn()
    assert not member.journal.trouble


def test_a_member_killed_without_room_leaves_a_journal_that_says_so(tmp_path: Path) -> None:
    """Else it would look whole, and its last events as if they had never been."""
    member = Member(tmp_path)
    FullDisk(member.folder, 1)
    while not member.journal.trouble:
        member.turn()
    member.turns(5)
    (member.folder / "000001.trace").rmdir()
    first = member.events - 6
    found = find(member.folder)
    assert found.numbers == list(range(first))
    assert found.losses == [(0, first, 0, "file exists")]
    (note,) = found.notes
    assert f"truncated: events from {first} on were not kept: file exists" in note


def test_a_member_that_ends_without_room_says_how_much_is_missing(tmp_path: Path) -> None:
    member = Member(tmp_path)
    FullDisk(member.folder, 1)
    while not member.journal.trouble:
        member.turn()
    member.turns(5)
    member.journal.close()
    (member.folder / "000001.trace").rmdir()
    first, last = member.events - 6, member.events - 1
    assert find(member.folder).losses[1:] == [(6, first, last, "file exists")]


def test_trouble_may_come_again_and_again(tmp_path: Path) -> None:
    """Each time it is said, in the room that is kept for it; nothing is counted twice."""
    member = Member(tmp_path)
    for _ in range(20):
        disk = FullDisk(member.folder, member.journal.segments)
        while not member.journal.trouble:
            member.turn()
        member.turns(3)
        disk.make_room()
        member.now += 1.0
        member.turn()
    found = find(member.folder)
    missing = set(range(member.events)) - set(found.numbers)
    assert len(missing) == member.journal.events_lost == 20 * 4
    counted = [loss for loss in found.losses if loss[0]]
    assert missing == {number for _, lo, hi, _ in counted for number in range(lo, hi + 1)}
    assert all("truncated" in note for note in found.notes)


def test_what_was_lost_before_is_not_counted_again_when_it_is_dropped(tmp_path: Path) -> None:
    member = Member(tmp_path, limit_bytes=5 * SEGMENT)
    disk = FullDisk(member.folder, 1)
    while not member.journal.trouble:
        member.turn()
    disk.make_room()
    member.now = 1.0
    member.turns(1000)
    found = find(member.folder)
    assert len(found.losses) == 1
    assert member.events - len(found.numbers) == member.journal.events_lost


def test_a_directory_that_was_deleted_stops_nothing(tmp_path: Path) -> None:
    member = Member(tmp_path)
    for path in member.folder.iterdir():
        path.unlink()
    member.folder.rmdir()
    member.turns(100, step=0.1)
    assert "no such file" in member.journal.trouble
    member.folder.mkdir()
    member.turns(11, step=0.1)
    assert not member.journal.trouble
    assert find(member.folder).losses
    member.journal.close()


# -- Bad input -----------------------------------------------------------------------------------


def refusal(config: JournalConfig, label: str = "n1-1") -> str:
    with pytest.raises(ConfigError) as refused:
        Journal(config, label, hash64)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_place_that_cannot_be_written_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = refusal(JournalConfig(directory=tmp_path / "file"))
    assert f"{tmp_path / 'file' / 'n1-1'} cannot be written (not a directory)" in said
    assert "name a directory" in said


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_of_somebody_else_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "permission denied" in refusal(JournalConfig(directory=tmp_path))


def test_a_journal_never_goes_where_something_is(tmp_path: Path) -> None:
    Member(tmp_path).journal.close()
    assert "holds something already" in refusal(JournalConfig(directory=tmp_path), "n1-5c0ffee5")


@pytest.mark.parametrize("label", ["", "a/b", ".", "..", ".hidden"])
def test_a_label_is_the_name_of_a_directory(tmp_path: Path, label: str) -> None:
    assert "cannot name a journal" in refusal(JournalConfig(directory=tmp_path), label)
    assert list(tmp_path.iterdir()) == []


def test_settings_are_checked(tmp_path: Path) -> None:
    JournalConfig(directory=tmp_path, segment_bytes=4096, limit_bytes=4 * 4096)
    with pytest.raises(ConfigError, match="segment_bytes is 4095: write at least 4096"):
        JournalConfig(directory=tmp_path, segment_bytes=4095)
    with pytest.raises(ConfigError, match="limit_bytes is 16383: write at least 16384"):
        JournalConfig(directory=tmp_path, segment_bytes=4096, limit_bytes=4 * 4096 - 1)
    with pytest.raises(ConfigError, match="when_full is 'wait': write drop-oldest or stop"):
        JournalConfig(directory=tmp_path, when_full="wait")


# -- Any blocks, any segments, any cut -----------------------------------------------------------


def make_blocks(shapes: list[tuple[int, int]]) -> list[bytes]:
    """A block for each pair of a number of events and the length of a text."""
    blocks, first = [], 0
    for events, text in shapes:
        records = [(trace.SENT, *[0] * 8, first + at, *[255] * 5, 1.0) for at in range(events)]
        records = [(*record[:14], 0, 1.0) for record in records]
        blocks.append(pack_block(1, first, 0, records, pack_text("x" * text), hash64))
        first += events
    return blocks


class Cut:
    """How a kill may leave the bytes from some byte on."""

    GONE = "gone"  # A file that was copied, or cut by its disk.
    ZERO = "zero"  # Never written.
    NO_MAGIC = "no magic"  # The block is written, up to the magic that would make it one.


@given(
    shapes=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 300)), min_size=1, max_size=40),
    segment_bytes=st.integers(4096, 20_000),
    cut=st.floats(0, 1),
    how=st.sampled_from([Cut.GONE, Cut.ZERO, Cut.NO_MAGIC]),
)
def test_a_reader_gets_exactly_the_whole_blocks(
    shapes: list[tuple[int, int]], segment_bytes: int, cut: float, how: str
) -> None:
    blocks = make_blocks(shapes)
    ends = list(accumulate(map(len, blocks)))
    at = round(cut * ends[-1])
    whole = sum(end <= at for end in ends)
    with tempfile.TemporaryDirectory() as folder:
        config = JournalConfig(directory=Path(folder), segment_bytes=segment_bytes)
        journal = Journal(config, "n1-1", hash64)
        for block in blocks:
            journal.write(block)
        cut_at(journal.directory, blocks, at, how)
        notes: list[str] = []
        found = list(Source("n1-1", journal.directory).blocks(notes))
        judged = Source("n1-1", journal.directory).read()
        journal.close()

    is_torn = at not in [0, *ends] and (how != Cut.NO_MAGIC or at - [0, *ends][whole] > 4)
    assert [block.first for block in found] == [
        sum(events for events, _ in shapes[:number]) for number in range(whole)
    ]
    assert bool(notes) == is_torn
    # What the oracles are given is the same, and torn where this is.
    assert judged.startswith(b"".join(blocks[:whole]))
    assert (len(judged) > (ends[whole - 1] if whole else 0)) == is_torn


def cut_at(folder: Path, blocks: list[bytes], at: int, how: str) -> None:
    """Leave of a journal only what was written up to a byte, counted over all blocks."""
    paths = sorted(folder.iterdir())
    start = 0
    for path in paths:
        data = path.read_bytes()
        used = 0
        while data.startswith(trace.MAGIC, used):
            used += len(next(block for block in blocks if data.startswith(block, used)))
        if start + used > at:
            keep = max(0, at - start)
            left = bytearray(data[:keep])
            if how != Cut.GONE:
                left += bytes(len(data) - keep)
            if how == Cut.NO_MAGIC:
                begun = begin_of_block(data, keep)
                left[begun : begun + 4] = bytes(4)
            path.write_bytes(left)
        start += used
    # Segments after the one that is cut were never begun.
    for path in paths[1:]:
        if not path.read_bytes().strip(b"\0"):
            path.unlink()


def begin_of_block(data: bytes, at: int) -> int:
    """Where the block begins in which a byte is."""
    begin = 0
    for block in read_blocks_untrusted(data, hash64):
        if begin + block.size > at:
            break
        begin += block.size
    return begin
