"""Traces as Parquet: one row per event, one file per member incarnation; the schema is a contract.

docs/trace-format.md describes it. Names and texts are written as they may be shown, so that whoever
reads the files need not think of that. Numbers that are unsigned in a record are signed here,
because Spark knows no others: 32 bits become 64, and 64 bits keep their bits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import Any, Final, NamedTuple

from stormcast.node.core.errors import NodeError
from stormcast.node.core.names import printable
from stormcast.node.core.wire import KINDS, PROTOCOLS
from stormcast.node.trace import (
    ACKED,
    AS_DELIVERED,
    CONN,
    CONN_STATES,
    CREDIT,
    CREDITS,
    DELIVERED,
    EVENT_NAMES,
    GAUGE,
    GAUGES,
    HANDED,
    JOINED,
    JOINING,
    MERGE,
    PARTIAL,
    REGULAR,
    REPAIR,
    REQUESTED,
    START,
    SUSPECT,
    SUSPICIONS,
    VERSION,
    VIEW,
    WHOLE,
    Block,
)
from stormcast.node.trace.files import Source

SCHEMA_VERSION: Final = 1
ROW_GROUP: Final = 1 << 16
"""Rows that are in memory at a time."""

STREAMS: Final[dict[int, Mapping[int, str]]] = {
    ACKED: {kind: name for kind, (name, _about) in KINDS.items()},
    CONN: CONN_STATES,
    CREDIT: CREDITS,
    DELIVERED: {WHOLE: "whole", PARTIAL: "partial"},
    HANDED: {AS_DELIVERED: "as delivered", JOINED: "joined"},
    GAUGE: GAUGES,
    REQUESTED: {REPAIR: "repair", JOINING: "joining"},
    SUSPECT: SUSPICIONS,
    VIEW: {REGULAR: "regular", MERGE: "merge"},
}
"""The words for `stream`, by kind of event."""


class Column(NamedTuple):
    """A column of the files, with its type in Arrow's words."""

    name: str
    type: str
    about: str


COLUMNS: Final = (
    Column("run", "string", "name of the run"),
    Column("member", "string", "label of the trace: one incarnation of a member, or `rig`"),
    Column("name", "string", "name of the member; the same for all its incarnations"),
    Column("incarnation", "string", "its 128-bit identity, 32 hexadecimal digits; null: the rig"),
    Column("short_id", "int64", "its short id; 0 is the rig"),
    Column("number", "int64", "number of the event, the order within a member"),
    Column("time", "double", "seconds of the member's own clock"),
    Column("wall_time", "timestamp[us, tz=UTC]", "the same by the wall clock at its start"),
    Column("kind", "string", "name of the event"),
    Column("protocol", "string", "name of the protocol; null: none"),
    Column("stream", "int32", "what it is about, by kind"),
    Column("stream_word", "string", "`stream` in a word; null where it is a number"),
    Column("peer", "int64", "short id of the other side; 0: none, or the group"),
    Column("peer_member", "string", "label of the other side; null: none, or it left no trace"),
    Column("conn", "int64", "connection id"),
    Column("epoch", "int64", "which life of a receive window"),
    Column("view", "int64", "low half of the number of the writer's view"),
    Column("count", "int64", "messages, seqnos, members or drops"),
    Column("lo", "int64", "first seqno of the range, or a single value"),
    Column("hi", "int64", "last seqno of the range, or a bound"),
    Column("bytes", "int64", "bytes of the body, lengths included"),
    Column("digest", "int64", "the 64 bits of the XXH3-64 of the body"),
    Column(
        "trim",
        "int64",
        "low half of the XXH3-64 of the part that was delivered, or of a message's number",
    ),
    Column("flags", "int32", "flags of the messages, as on the wire"),
    Column("text", "string", "null: none"),
    Column("version", "int32", "version of the trace; null: 1"),
)

_SIGN: Final = 1 << 63
_WRAP: Final = 1 << 64
_SPOKEN_PROTOCOLS: Final = {number: name for number, name in PROTOCOLS.items() if number}


class ExportError(NodeError):
    """Nothing could be exported; the text names the cause, and the remedy."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A file that was written."""

    path: Path
    rows: int


def export(
    sources: list[Source],
    out: Path,
    run: str,
    names: Mapping[int, str],
    notes: list[str],
    named: Callable[[str], str] = str,
) -> Iterator[Exported]:
    """Write one file per trace to a directory that is new or empty; yield each when written. Of a
    trace that is there twice, the first is written, and its notes name the other. `named` returns
    a note with other names of files, where these are copies."""
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise ExportError("Parquet needs pyarrow: pip install 'stormcast[trace]'") from None
    try:
        out.mkdir(parents=True, exist_ok=True)
        # Two runs in one directory would be read as one.
        if any(out.iterdir()):
            raise ExportError(f"{out} is not empty: name a new directory")
        by_label: dict[str, list[Source]] = {}
        for source in sources:
            by_label.setdefault(source.label, []).append(source)
        for source, *others in by_label.values():
            twice = [f"{other.path}: {other.label} is there twice" for other in others]
            yield _Writer(arrow, parquet, source, run, names).write(out, notes, twice, named)
    except OSError as error:
        raise ExportError(f"{out} cannot be written: {error.strerror or error}") from None


class _Writer:
    """Writes one trace."""

    def __init__(
        self,
        arrow: Any,  # noqa: ANN401 pyarrow has no types, and may not be there
        parquet: Any,  # noqa: ANN401 an extra's, see above
        source: Source,
        run: str,
        names: Mapping[int, str],
    ) -> None:
        self._arrow = arrow
        self._parquet = parquet
        self._source = source
        self._run = printable(run)
        self._names = {short: printable(name) for short, name in names.items()}
        self._label = self._name = printable(source.label)
        self._incarnation: str | None = None
        self._types = {
            "string": arrow.string(),
            "int32": arrow.int32(),
            "int64": arrow.int64(),
            "double": arrow.float64(),
            "timestamp[us, tz=UTC]": arrow.timestamp("us", tz="UTC"),
        }
        self._columns: dict[str, list[object]] = {column.name: [] for column in COLUMNS}

    def write(
        self, out: Path, notes: list[str], own_notes: list[str], named: Callable[[str], str]
    ) -> Exported:
        """Write the blocks as row groups; the file gets its name when it is whole. What is wrong is
        added to `notes`; `own_notes` are known before."""
        arrow, rows = self._arrow, 0
        schema = arrow.schema(
            [(column.name, self._types[column.type]) for column in COLUMNS],
            metadata={
                "stormcast.schema": "trace-events",
                "stormcast.schema_version": str(SCHEMA_VERSION),
                "stormcast.trace_version": str(VERSION),
            },
        )
        path = out / f"{self._source.label}.parquet"
        # Spark does not look at names that begin with a dot.
        part = out / f".{path.name}"
        with self._parquet.ParquetWriter(part, schema, compression="snappy") as writer:
            for block in self._source.blocks(own_notes):
                self._add(block)
                rows += len(block.events)
                if len(self._columns["number"]) >= ROW_GROUP:
                    self._flush(writer, schema)
            self._flush(writer, schema)
            own_notes = list(map(named, own_notes))
            writer.add_key_value_metadata({"stormcast.notes": json.dumps(own_notes)})
        part.rename(path)
        notes += own_notes
        return Exported(path, rows)

    def _flush(self, writer: Any, schema: Any) -> None:  # noqa: ANN401 an extra's, see above
        table = self._arrow.Table.from_pydict(self._columns, schema=schema)
        if len(table):
            writer.write_table(table, row_group_size=len(table))
        for column in self._columns.values():
            column.clear()

    def _add(self, block: Block) -> None:
        events = block.events
        if not events:
            return
        if events[0].kind == START:
            self._introduce(block.text(events[0]))
        (kinds, flags, protocols, streams, peers, conns, epochs, views, counts, los, his, sizes,
         digests, trims, texts, times) = zip(*events, strict=True)  # fmt: skip  # columns
        number = len(events)
        heap = [None, *map(printable, block.texts)]
        added: dict[str, Iterable[object]] = {
            "run": [self._run] * number,
            "member": [self._label] * number,
            "name": [self._name] * number,
            "incarnation": [self._incarnation] * number,
            "short_id": [block.member] * number,
            "number": range(block.first, block.first + number),
            "time": times,
            "wall_time": [_wall_us(block.wall_ns, time) for time in times],
            "kind": [EVENT_NAMES.get(kind, f"event-{kind}") for kind in kinds],
            "protocol": map(_SPOKEN_PROTOCOLS.get, protocols),
            "stream": streams,
            "stream_word": [
                STREAMS[kind].get(stream) if kind in STREAMS else None
                for kind, stream in zip(kinds, streams, strict=True)
            ],
            "peer": peers,
            "peer_member": [self._names.get(peer) if peer else None for peer in peers],
            "conn": conns,
            "epoch": epochs,
            "view": views,
            "count": counts,
            "lo": map(_signed, los),
            "hi": map(_signed, his),
            "bytes": map(_signed, sizes),
            "digest": map(_signed, digests),
            "trim": trims,
            "flags": flags,
            "text": [heap[text] for text in texts],
            "version": [block.version] * number,
        }
        for name, values in added.items():
            self._columns[name] += values

    def _introduce(self, text: str) -> None:
        """Take the member's name and identity from the text of its START event."""
        words = text.split(" ", 2)
        if len(words) > 1:
            self._name, self._incarnation = map(printable, words[:2])


def _wall_us(wall_ns: int, time: float) -> int | None:
    if not isfinite(time):
        return None
    microseconds = (wall_ns + int(time * 1e9)) // 1000
    return microseconds if -_SIGN <= microseconds < _SIGN else None


def _signed(value: int) -> int:
    return value if value < _SIGN else value - _WRAP
