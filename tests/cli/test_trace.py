"""`stormcast trace` on journals: also while they are written, and when they are not whole."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.node import trace
from stormcast.node.trace.export import COLUMNS, STREAMS
from stormcast.node.trace.files import journal_segments
from tests.helpers.journals import SEGMENT, SHORT, WALL_NS, Member
from tests.helpers.shell import Shell


@pytest.fixture
def run(shell: Shell) -> Path:
    """Two members that took turns for 2 s, in several segments each."""
    folder = shell.folder / "run"
    one, two = Member(folder, "n0-0000000a"), Member(folder, "n1-0000000b")
    for number in range(100):
        one.now = number / 50
        two.now = one.now + 0.01
        one.turn()
        two.turn(2)
    one.journal.close()
    return folder


@pytest.fixture
def shortened(shell: Shell) -> Path:
    """A member whose oldest segments were dropped."""
    folder = shell.folder / "short"
    member = Member(folder, limit_bytes=4 * SEGMENT)
    member.turns(500, step=0.01)
    return folder


def numbers(out: str) -> list[tuple[str, int]]:
    """Of the events that were printed: whose, and which."""
    heads = [line.split()[1] for line in out.splitlines()]
    return [(label, int(number)) for label, number in (head.split("#") for head in heads)]


# -- cat and stats ---------------------------------------------------------------------------------


def test_journals_are_merged_by_time(shell: Shell, run: Path) -> None:
    said = shell("trace", "cat", run)
    assert (said.code, said.err) == (0, "")
    times = [float(line.split()[0]) for line in said.out.splitlines()]
    assert times == sorted(times)
    assert len(times) == 101 + 201
    assert numbers(said.out)[2:8] == [
        ("n1-0000000b", 0),
        ("n1-0000000b", 1),
        ("n1-0000000b", 2),
        ("n0-0000000a", 2),
        ("n1-0000000b", 3),
        ("n1-0000000b", 4),
    ]


def test_a_journal_or_a_member_may_be_named(shell: Shell, run: Path) -> None:
    alone = shell("trace", "cat", run / "n1-0000000b", "--json")
    chosen = shell("trace", "cat", run, "--member", "n1-0000000b", "--json")
    assert alone.out == chosen.out
    events = [json.loads(line) for line in alone.out.splitlines()]
    assert [event["number"] for event in events] == list(range(201))


def test_figures_are_of_what_was_written_not_of_what_was_allocated(shell: Shell, run: Path) -> None:
    figures = shell("trace", "stats", run, "--json").json
    assert set(figures) == {"n0-0000000a", "n1-0000000b"}
    one = figures["n0-0000000a"]
    assert (one["blocks"], one["events"], one["events_lost"]) == (101, {"sent": 100, "start": 1}, 0)
    assert one["messages"] == {"sent": 100}
    assert one["bytes"] < sum(p.stat().st_size for p in journal_segments(run / "n0-0000000a"))


@pytest.mark.parametrize("what", ["cat", "stats", "export"])
def test_a_journal_that_is_not_whole_is_shown_and_said_to_be(
    shell: Shell, shortened: Path, what: str
) -> None:
    words = ("out",) if what == "export" else ()
    said = shell("trace", what, shortened, *words)
    assert said.code == 3
    assert said.out
    (line,) = said.err.splitlines()
    assert ": truncated: events 1.." in line
    assert line.endswith("were not kept: limit_bytes 16384, drop-oldest")


def test_what_was_lost_is_an_event_in_words(shell: Shell, shortened: Path) -> None:
    lines = shell("trace", "cat", shortened).out.splitlines()
    (line,) = [line for line in lines if "truncated" in line]
    lost = shell("trace", "stats", shortened, "--json").json["n1-5c0ffee5"]["events_lost"]
    assert line.endswith(f"truncated     1..{lost} limit_bytes 16384, drop-oldest")
    assert f"{lost} events lost" in shell("trace", "stats", shortened).out


# -- tail ------------------------------------------------------------------------------------------


def test_the_last_events_of_all_members(shell: Shell, run: Path) -> None:
    whole = shell("trace", "cat", run).out.splitlines()
    for count in (0, 1, 10, 150, 1000):
        said = shell("trace", "tail", run, "--lines", count)
        assert said.out.splitlines() == whole[len(whole) - min(count, len(whole)) :]
        assert (said.code, said.err) == (0, "")
    assert len(shell("trace", "tail", run).out.splitlines()) == 10
    (event,) = shell("trace", "tail", run, "--lines", "1", "--json").out.splitlines()
    assert json.loads(event)["number"] == 200


def test_lines_are_a_number(shell: Shell, run: Path) -> None:
    said = shell("trace", "tail", run, "--lines", "-1")
    assert said.code == 2
    assert "write a whole number from 0" in said.err


class Meanwhile:
    """What happens each time that nothing more is there to read; then Ctrl-C."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._steps = list(steps)

    def __call__(self, _seconds: float) -> None:
        if not self._steps:
            raise KeyboardInterrupt
        self._steps.pop(0)()


@pytest.fixture
def follow(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[list[tuple[str, int]], str]]:
    """Follow a run from now on while this and that happens: the events, and what was said."""

    def following(run: Path, *steps: Callable[[], object]) -> tuple[list[tuple[str, int]], str]:
        monkeypatch.setattr("stormcast.node.trace.cli.sleep", Meanwhile(*steps))
        said = shell("trace", "tail", "--follow", "--lines", "0", run)
        assert said.code == 0
        return numbers(said.out), said.err

    return following


Follow = Callable[..., tuple[list[tuple[str, int]], str]]


def test_events_are_followed_as_they_are_written(shell: Shell, follow: Follow) -> None:
    """Through rotations; each once, and Ctrl-C ends it without a word."""
    member = Member(shell.folder / "run")
    member.turns(100)
    found, said = follow(
        shell.folder / "run",
        lambda: member.turn(3),
        lambda: None,
        lambda: member.turns(200),
        member.turn,
    )
    assert found == [("n1-5c0ffee5", number) for number in range(101, 305)]
    assert said == ""


def test_members_that_come_later_are_followed_from_their_start(
    shell: Shell, follow: Follow
) -> None:
    member = Member(shell.folder / "run", "n0-0000000a")

    def join() -> None:
        Member(shell.folder / "run", "n1-0000000b").turn()

    found, _ = follow(shell.folder / "run", join, member.turn)
    assert found == [("n1-0000000b", 0), ("n1-0000000b", 1), ("n0-0000000a", 1)]


def test_a_block_that_is_being_written_is_waited_for(shell: Shell, follow: Follow) -> None:
    member = Member(shell.folder / "run", segment_bytes=1 << 20)
    path = member.folder / "000000.trace"
    begin = member.journal.written
    member.turn()
    block = path.read_bytes()[begin : member.journal.written]

    def write(part: bytes) -> None:
        with path.open("r+b") as file:
            file.seek(begin)
            file.write(part)

    write(bytes(len(block)))
    half = bytes(4) + block[4:50] + bytes(len(block) - 50)
    seen_too_early = block[:60] + bytes(len(block) - 60)
    found, said = follow(
        shell.folder / "run",
        lambda: write(half),
        lambda: write(seen_too_early),
        lambda: write(block),
    )
    assert found == [("n1-5c0ffee5", 1)]
    assert said == ""
    found, said = follow(shell.folder / "run", member.turn)
    assert found == [("n1-5c0ffee5", 2)]


def test_a_block_that_never_becomes_whole_is_said_to_be_torn(shell: Shell, follow: Follow) -> None:
    member = Member(shell.folder / "run", segment_bytes=1 << 20)
    path, begin = member.folder / "000000.trace", member.journal.written
    with path.open("r+b") as file:
        file.seek(begin)
        file.write(b"STRC and nothing that follows")
    found, said = follow(shell.folder / "run", *[lambda: None] * 60)
    assert found == []
    assert said == (
        f"stormcast trace: {path}: torn at byte {begin}; everything before it was read\n"
    )


def test_a_follower_that_is_too_slow_says_what_it_missed(shell: Shell, follow: Follow) -> None:
    member = Member(shell.folder / "run", limit_bytes=4 * SEGMENT)
    member.turns(20)
    found, said = follow(shell.folder / "run", lambda: member.turns(1000), member.turn)
    assert found[-1] == ("n1-5c0ffee5", 1021)
    missed = found[0][1] - 1
    assert missed > 100
    assert f"torn: events 21..{missed} are missing" in said


# -- export ----------------------------------------------------------------------------------------


def exported(path: Path) -> tuple[list[dict[str, Any]], Any]:
    """The rows of a Parquet file, and what the file says of itself."""
    parquet = pytest.importorskip("pyarrow.parquet")
    return parquet.read_table(path).to_pylist(), parquet.read_metadata(path)


def test_an_event_is_a_row(shell: Shell, run: Path) -> None:
    said = shell("trace", "export", run, "out", "--json")
    assert (said.code, said.err) == (0, "")
    assert said.json == {
        "n0-0000000a.parquet": {"rows": 101},
        "n1-0000000b.parquet": {"rows": 201},
    }
    rows, _ = exported(Path("out/n1-0000000b.parquet"))
    events = [
        json.loads(line)
        for line in shell("trace", "cat", run / "n1-0000000b", "--json").out.splitlines()
    ]
    for name in ("number", "time", "peer", "count", "lo", "hi", "bytes", "digest", "text"):
        assert [row[name] for row in rows] == [
            event[name] if event[name] != "" else None for event in events
        ], name
    start = rows[0]
    assert (start["run"], start["member"], start["name"]) == ("run", "n1-0000000b", "n1")
    assert (start["short_id"], start["incarnation"]) == (SHORT, f"{SHORT:032x}")
    assert start["wall_time"].timestamp() == WALL_NS / 1e9
    assert start["kind"] == "start"
    assert start["protocol"] is start["peer_member"] is start["stream_word"] is None


def test_streams_are_words_and_peers_are_names(shell: Shell) -> None:
    member = Member(shell.folder / "run")
    tracer = member._tracer
    for kind, stream in (
        (trace.CONN, trace.RECEIVER_OPEN),
        (trace.VIEW, trace.MERGE),
        (trace.ACKED, 5),
        (trace.RETRANSMITTED, 3),
        (trace.GAUGE, trace.OUTBOX_BYTES),
        (200, 9),
    ):
        tracer.record(kind, 1.5, protocol=3, stream=stream, peer=SHORT)
    tracer.turn()
    shell("trace", "export", "run", "out", "--run-name", "tuesday")
    rows, _ = exported(Path("out/n1-5c0ffee5.parquet"))
    assert [(row["kind"], row["stream"], row["stream_word"]) for row in rows[1:]] == [
        ("conn", 5, "receiver open"),
        ("view", 1, "merge"),
        ("acked", 5, "STABLE"),
        ("retransmitted", 3, None),
        ("gauge", 5, "outbox bytes"),
        ("event-200", 9, None),
    ]
    assert {row["run"] for row in rows} == {"tuesday"}
    assert {row["protocol"] for row in rows[1:]} == {"UNICAST3"}
    assert {row["peer_member"] for row in rows[1:]} == {"n1-5c0ffee5"}


def test_the_schema_is_the_documented_one_and_spark_can_read_it(shell: Shell, run: Path) -> None:
    """Nothing in it is unsigned, and time is in microseconds."""
    parquet = pytest.importorskip("pyarrow.parquet")
    shell("trace", "export", run, "out")
    schema = parquet.read_schema("out/n0-0000000a.parquet")
    assert [(field.name, str(field.type)) for field in schema] == [
        (column.name, column.type) for column in COLUMNS
    ]
    assert {column.type for column in COLUMNS} <= {
        "string",
        "int32",
        "int64",
        "double",
        "timestamp[us, tz=UTC]",
    }
    assert schema.metadata[b"stormcast.schema"] == b"trace-events"
    assert schema.metadata[b"stormcast.schema_version"] == b"1"
    assert set(STREAMS) <= set(trace.EVENT_NAMES)


def test_all_64_bits_of_a_number_survive(shell: Shell) -> None:
    """As a signed number with the same bits: equal digests stay equal."""
    member = Member(shell.folder / "run")
    digests = [0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
    for digest in digests:
        member._tracer.record(trace.DELIVERED, 1.0, size=1, digest=digest)
    member._tracer.turn()
    shell("trace", "export", "run", "out")
    rows, _ = exported(Path("out/n1-5c0ffee5.parquet"))
    assert [row["digest"] % (1 << 64) for row in rows[1:]] == digests


def test_a_long_journal_is_written_in_groups_of_rows(
    shell: Shell, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stormcast.node.trace.export.ROW_GROUP", 20)
    shell("trace", "export", run, "out")
    rows, metadata = exported(Path("out/n1-0000000b.parquet"))
    groups = [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]
    assert len(groups) == 10
    assert max(groups) <= 21
    assert [row["number"] for row in rows] == list(range(201))


def test_an_exported_file_says_what_its_journal_lacks(
    shell: Shell, run: Path, shortened: Path
) -> None:
    shell("trace", "export", run, "whole")
    shell("trace", "export", shortened, "part")
    _, metadata = exported(Path("whole/n0-0000000a.parquet"))
    assert json.loads(metadata.metadata[b"stormcast.notes"]) == []
    rows, metadata = exported(Path("part/n1-5c0ffee5.parquet"))
    (note,) = json.loads(metadata.metadata[b"stormcast.notes"])
    assert "truncated: events 1.." in note
    (lost,) = [row for row in rows if row["kind"] == "truncated"]
    assert (lost["number"], lost["lo"], lost["hi"]) == (1, 1, lost["count"])
    assert rows[2]["number"] == lost["hi"] + 1


def test_two_exports_are_never_mixed(shell: Shell, run: Path) -> None:
    assert shell("trace", "export", run, "out").code == 0
    said = shell("trace", "export", run, "out")
    assert (said.code, said.out) == (3, "")
    assert said.err == "stormcast trace: out is not empty: name a new directory\n"


def test_a_place_that_cannot_be_written_is_said(shell: Shell, run: Path) -> None:
    shell.write("", "file")
    said = shell("trace", "export", run, "file/out")
    assert (said.code, said.out) == (3, "")
    assert said.err == "stormcast trace: file/out cannot be written: Not a directory\n"


def test_without_pyarrow_the_remedy_is_said(
    shell: Shell, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All else works."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    said = shell("trace", "export", run, "out")
    assert (said.code, said.out) == (3, "")
    assert said.err == ("stormcast trace: Parquet needs pyarrow: pip install 'stormcast[trace]'\n")
    assert not Path("out").exists()
    assert shell("trace", "stats", run).code == 0


# -- Names and texts of others ---------------------------------------------------------------------


def test_nothing_in_a_trace_reaches_the_terminal_but_text(shell: Shell) -> None:
    """A trace comes from a pod, or from whoever sent it: its name and its texts are shown escaped,
    and an event stays one line."""
    folder = shell.folder / "foreign"
    folder.mkdir()
    text = trace.pack_text("n0\x1b[2J\n9.0 rig#0 stop")
    event = (trace.FAULT, *[0] * 13, 1, 0.5)
    block = trace.pack_block(7, 0, WALL_NS, [event], text, xxh3_64_intdigest)
    (folder / "n0\x1b[2J.trace").write_bytes(block + b"torn")
    for what in ("cat", "stats", "tail"):
        said = shell("trace", what, folder)
        assert "\x1b" not in said.out + said.err, what
        assert r"n0\x1b[2J" in said.out, what
        assert len(said.err.splitlines()) == (0 if what == "tail" else 1), said.err
        if what != "stats":
            assert len(said.out.splitlines()) == 1, said.out
