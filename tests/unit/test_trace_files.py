"""Where traces lie, and what a reader says of those that are not whole."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.verdict import Verdict, judge
from stormcast.node import trace
from stormcast.node.core.errors import BadTrace
from stormcast.node.trace import read_blocks_untrusted
from stormcast.node.trace.files import (
    Source,
    find_sources,
    journal_segments,
    member_names,
    read_traces,
)
from stormcast.node.trace.journal import Journal, JournalConfig
from stormcast.node.trace.tracer import Tracer
from tests.helpers.journals import SEGMENT, SHORT, Member, find
from tests.oracles.story import Story


def labels(sources: Iterable[Source]) -> list[str]:
    return [source.label for source in sources]


def keep_story(folder: Path, blocks: dict[str, bytes]) -> None:
    """What members and rig of a story recorded: the members' in journals, the rig's in a file."""
    for label, data in blocks.items():
        if label == "rig":
            (folder / "rig.trace").write_bytes(data)
            continue
        config = JournalConfig(directory=folder, segment_bytes=SEGMENT)
        journal, at = Journal(config, label, hash64), 0
        for block in read_blocks_untrusted(data, hash64):
            journal.write(data[at : at + block.size])
            at += block.size
        journal.close()


def a_long_story() -> dict[str, bytes]:
    """An exchange of many blocks: it fills many segments."""
    story = Story().a_clean_exchange()
    for number in range(200):
        lo = 6 + 5 * number
        # Each telling ends a block.
        blocks = story.a_clean_exchange(lo, lo + 4, at=2.0 + number / 100).told()
    return dict(blocks)


def judged(traces: dict[str, bytes]) -> Verdict:
    return judge(Evidence.from_blocks(traces, hash64)).verdict


# -- Finding -------------------------------------------------------------------------------------


def test_a_run_of_the_simulator_has_trace_files(tmp_path: Path) -> None:
    (tmp_path / "trace").mkdir()
    for name in ("n1-1.trace", "n0-1.trace", "rig.trace", "notes.txt"):
        (tmp_path / "trace" / name).write_bytes(b"")
    assert labels(find_sources(tmp_path)) == ["n0-1", "n1-1", "rig"]
    assert labels(find_sources(tmp_path / "trace")) == ["n0-1", "n1-1", "rig"]
    assert labels(find_sources(tmp_path / "trace" / "n1-1.trace")) == ["n1-1"]


def test_a_run_of_real_members_has_journals(tmp_path: Path) -> None:
    """By the names of their directories, and the rig's trace beside them."""
    for label in ("n1-0000000b", "n0-0000000a"):
        Member(tmp_path, label).journal.close()
    (tmp_path / "rig.trace").write_bytes(b"")
    (tmp_path / "other").mkdir()
    assert labels(find_sources(tmp_path)) == ["n0-0000000a", "n1-0000000b", "rig"]
    assert labels(find_sources(tmp_path / "n0-0000000a")) == ["n0-0000000a"]
    assert find_sources(tmp_path / "other") == []
    assert find_sources(tmp_path / "nowhere") == []


def test_journals_may_lie_where_the_trace_files_of_a_run_do(tmp_path: Path) -> None:
    Member(tmp_path / "trace", "n0-0000000a").journal.close()
    (tmp_path / "trace" / "rig.trace").write_bytes(b"")
    assert labels(find_sources(tmp_path)) == ["n0-0000000a", "rig"]


def test_one_segment_may_be_named(tmp_path: Path) -> None:
    """Its events begin with any number, and nothing is said to be missing before."""
    member = Member(tmp_path)
    member.turns(100)
    (source,) = find_sources(member.folder / "000001.trace")
    notes: list[str] = []
    blocks = list(source.blocks(notes))
    assert source.label == "n1-5c0ffee5"
    assert blocks[0].first > 0
    assert notes == []


def test_segments_are_in_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("1000000.trace", "000002.trace", "000010.trace", "rig.trace", "x"):
        (tmp_path / name).write_bytes(b"")
    names = [path.name for path in journal_segments(tmp_path)]
    assert names == ["000002.trace", "000010.trace", "1000000.trace"]


def test_a_listing_that_missed_a_segment_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member went on to 3 and 4 while its directory was listed: 3 came too late, 4 did not."""
    names = ["000001.trace", "000002.trace", "000003.trace", "000004.trace", "000005.trace"]
    listings = iter([names[:2] + names[3:4], names])

    def iterdir(directory: Path) -> list[Path]:
        return [directory / name for name in next(listings)]

    monkeypatch.setattr(Path, "iterdir", iterdir)
    assert [path.name for path in journal_segments(tmp_path)] == names[:4]


def test_members_are_named_by_what_they_said_first(tmp_path: Path) -> None:
    """Also when that is all that is left of their beginning."""
    member = Member(tmp_path, limit_bytes=4 * SEGMENT)
    member.turns(1000)
    assert member_names(find_sources(tmp_path)) == {0: "rig", SHORT: "n1-5c0ffee5"}


# -- Reading -------------------------------------------------------------------------------------


def test_a_journal_is_read_segment_by_segment(tmp_path: Path) -> None:
    """So its length costs no memory: what goes while it is read was not read ahead."""
    member = Member(tmp_path)
    member.turns(200)
    notes: list[str] = []
    blocks = Source("n1", member.folder).blocks(notes)
    first = next(blocks)
    *_, last = journal_segments(member.folder)
    gone = sum(len(block.events) for block in Source("", last).blocks())
    last.unlink()
    assert first.first == 0
    assert sum(len(block.events) for block in blocks) == member.events - gone - 1


def test_events_that_are_missing_without_a_word_are_noted(tmp_path: Path) -> None:
    """What comes after them is shown all the same."""
    member = Member(tmp_path)
    member.turns(100)
    (member.folder / "000001.trace").unlink()
    found = find(member.folder)
    (note,) = found.notes
    missing = sorted(set(range(101)) - set(found.numbers))
    assert missing
    assert note == (
        f"{member.folder / '000002.trace'}: torn: events {missing[0]}..{missing[-1]} are missing"
    )


def test_events_that_come_again_are_noted(tmp_path: Path) -> None:
    member = Member(tmp_path)
    member.turns(100)
    second = (member.folder / "000001.trace").read_bytes()
    (member.folder / "000002.trace").write_bytes(second)
    (again, gap) = find(member.folder).notes
    first = next(read_blocks_untrusted(second, hash64)).first
    assert again.endswith(f"torn: events {first}.. come again")
    assert "are missing" in gap


def test_what_a_tear_leaves_of_a_journal_is_everything_before_it(tmp_path: Path) -> None:
    member = Member(tmp_path)
    member.turns(100)
    path = journal_segments(member.folder)[-1]
    path.write_bytes(path.read_bytes()[:1150])
    found = find(member.folder)
    assert found.numbers == list(range(len(found.numbers)))
    assert found.notes == [f"{path}: torn block; everything before it was read"]


@pytest.mark.parametrize("size", [20, 1150])
def test_a_segment_that_is_not_the_last_is_never_torn(tmp_path: Path, size: int) -> None:
    """A member goes on to the next one only after a whole block: so it was damaged."""
    member = Member(tmp_path)
    member.turns(100)
    first, second, *_rest = journal_segments(member.folder)
    second.write_bytes(second.read_bytes()[:size])
    found = find(member.folder)
    assert found.numbers == list(range(len(found.numbers)))
    why = f"{second}: damaged: segments follow; everything before it was read"
    assert found.notes == [why]
    data = bytearray(first.read_bytes())
    data[12 + 3] |= 0x80
    first.write_bytes(data)
    why = f"{first}: damaged: whole blocks follow; everything before it was read"
    assert find(member.folder).notes == [why]


@pytest.mark.parametrize("zeros", [1, 3, 4, 47, 48, 1000, 70_000])
def test_zeros_behind_the_last_block_are_the_end(zeros: int) -> None:
    """A file that was allocated ahead, and cut anywhere."""
    blocks: list[bytes] = []
    tracer = Tracer(1, 0, hash64, blocks.append)
    tracer.record(trace.STOP, 0.0)
    tracer.seal()
    (data,) = blocks
    assert len(list(read_blocks_untrusted(data + bytes(zeros), hash64))) == 1
    with pytest.raises(BadTrace, match="torn block"):
        list(read_blocks_untrusted(data + bytes(zeros + 3) + b"x", hash64))


# -- Judging -------------------------------------------------------------------------------------


def test_what_the_oracles_are_given_is_what_the_members_wrote(tmp_path: Path) -> None:
    """Segments back to back, and nothing of what was allocated ahead."""
    blocks = a_long_story()
    keep_story(tmp_path, blocks)
    assert len(journal_segments(tmp_path / "n0")) > 2
    assert read_traces(tmp_path) == blocks
    assert judged(blocks) is judged(read_traces(tmp_path)) is Verdict.HOLDS


def test_a_journal_that_nobody_closed_is_judged_as_well(tmp_path: Path) -> None:
    member = Member(tmp_path)
    member.turns(100)
    (data,) = read_traces(tmp_path).values()
    assert len(data) == member.journal.written
    assert sum(len(block.events) for block in read_blocks_untrusted(data, hash64)) == 101


def test_a_journal_without_its_oldest_events_proves_nothing(tmp_path: Path) -> None:
    """A run that broke no promise, of which a part was dropped: unknown, never holds."""
    blocks = a_long_story()
    data, at = blocks["n1"], 0
    config = JournalConfig(directory=tmp_path, segment_bytes=SEGMENT, limit_bytes=4 * SEGMENT)
    journal = Journal(config, "n1", hash64)
    for block in read_blocks_untrusted(data, hash64):
        journal.write(data[at : at + block.size])
        at += block.size
    journal.close()
    assert journal.events_lost
    evidence = Evidence.from_blocks(blocks | read_traces(tmp_path), hash64)
    (defect,) = evidence.defects
    assert defect.startswith("n1: events 6..")
    assert defect.endswith("were not kept: limit_bytes 16384, drop-oldest")
    assert judge(evidence).verdict is Verdict.UNKNOWN


def test_a_segment_that_is_missing_proves_nothing(tmp_path: Path) -> None:
    blocks = a_long_story()
    keep_story(tmp_path, blocks)
    (tmp_path / "n1" / "000001.trace").unlink()
    assert judged(read_traces(tmp_path)) is Verdict.UNKNOWN


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_trace_that_is_there_twice_proves_nothing(tmp_path: Path, *, is_closed: bool) -> None:
    """A journal beside the trace that was made of it: one of them may be damaged."""
    keep_story(tmp_path, a_long_story())
    assert judged(read_traces(tmp_path)) is Verdict.HOLDS
    whole = read_traces(tmp_path)["n1"]
    (tmp_path / "n1.trace").write_bytes(whole if is_closed else whole + bytes(4096))
    assert judged(read_traces(tmp_path)) is Verdict.UNKNOWN
