"""`stormcast trace`: the traces of a run, as text and in figures."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from xxhash import xxh3_64_intdigest

from node.core.errors import BadTrace
from node.core.model import flag_names
from node.core.wire import PROTOCOLS
from node.trace import (
    CONN,
    CONN_STATES,
    GAUGE,
    GAUGES,
    START,
    Block,
    Event,
    read_blocks_untrusted,
)

USAGE = 2
UNKNOWN = 3


def trace(argv: list[str]) -> int:
    """`stormcast trace cat|stats RUN`."""
    parser = argparse.ArgumentParser(
        prog="stormcast trace", description="Read the traces of a run.", allow_abbrev=False
    )
    parser.add_argument(
        "what", choices=("cat", "stats"), help="cat: one line per event; stats: counts per member"
    )
    parser.add_argument("run", type=Path, help="a run directory, or one .trace file")
    parser.add_argument("--member", help="only this member (the name of its trace file)")
    parser.add_argument(
        "--json", action="store_true", help="one JSON object per event, or one for all stats"
    )
    args = parser.parse_args(argv)
    paths = trace_files(args.run)
    if args.member:
        paths = [path for path in paths if path.stem == args.member]
    if not paths:
        print(
            f"stormcast trace: no traces in {args.run}: give a run directory or a .trace file",
            file=sys.stderr,
        )
        return USAGE
    torn: list[str] = []
    (_cat if args.what == "cat" else _stats)(paths, torn, as_json=args.json)
    for note in torn:
        print(f"stormcast trace: {note}", file=sys.stderr)
    return UNKNOWN if torn else 0


def trace_files(run: Path) -> list[Path]:
    """The trace files of a run directory, or the one that was named."""
    if run.is_file():
        return [run]
    return sorted(run.glob("trace/*.trace")) or sorted(run.glob("*.trace"))


def _blocks(path: Path, torn: list[str]) -> Iterator[Block]:
    """The whole blocks of a file; where it is torn is noted, and ends it."""
    try:
        yield from read_blocks_untrusted(path.read_bytes(), xxh3_64_intdigest)
    except BadTrace as bad:
        torn.append(f"{path}: {bad.reason}; everything before it was read")


def member_names(paths: list[Path]) -> dict[int, str]:
    """Short ids to names, as the members' START events say them."""
    names = {0: "rig"}
    for path in paths:
        block = next(_blocks(path, []), None)
        if block is not None and block.events and block.events[0].kind == START:
            names[block.member] = path.stem
    return names


def _cat(paths: list[Path], torn: list[str], *, as_json: bool) -> None:
    names = member_names(paths)
    events = [
        (event.time, path.stem, block.first + number, event, block.text(event))
        for path in paths
        for block in _blocks(path, torn)
        for number, event in enumerate(block.events)
    ]
    events.sort(key=lambda one: one[:3])
    for _time, member, number, event, text in events:
        if as_json:
            print(
                json.dumps(
                    {
                        "member": member,
                        "number": number,
                        "event": event.name,
                        **event._asdict(),
                        "text": text,
                    }
                )
            )
        else:
            print(f"{event.time:12.6f} {member}#{number:<6} {describe(event, text, names)}")


def describe(event: Event, text: str, names: dict[int, str]) -> str:
    """One event in words; what is zero is left out."""
    words = [event.name.ljust(13)]
    if event.kind == CONN:
        words.append(CONN_STATES.get(event.stream, str(event.stream)))
    elif event.kind == GAUGE:
        words.append(f"{GAUGES.get(event.stream, event.stream)} {event.lo} of {event.hi}")
    if event.peer:
        words.append(f"peer {names.get(event.peer, f'{event.peer:08x}')}")
    if event.conn:
        words.append(f"conn {event.conn}")
    if event.epoch:
        words.append(f"epoch {event.epoch}")
    if event.kind != GAUGE and (event.lo or event.hi):
        words.append(f"{event.lo}..{event.hi}" if event.hi else f"{event.lo}")
    if event.count:
        words.append(f"{event.count} messages")
    if event.bytes:
        words.append(f"{event.bytes} B {event.digest:016x}")
    if event.flags:
        words.append(flag_names(event.flags))
    if text:
        words.append(text)
    return " ".join(words)


def _stats(paths: list[Path], torn: list[str], *, as_json: bool) -> None:
    totals = []
    for path in paths:
        figures = Figures(bytes=path.stat().st_size)
        for block in _blocks(path, torn):
            figures.add(block)
        totals.append((path, figures))
    if as_json:
        print(json.dumps({path.stem: figures.as_json() for path, figures in totals}))
        return
    for path, figures in totals:
        print(
            f"{path.stem}: {figures.bytes} bytes, {figures.blocks} blocks, "
            f"until t={figures.last:.6f}s"
        )
        for name, number in sorted(figures.events.items()):
            count = figures.messages[name]
            print(f"  {name:14}{number:8}" + (f"{count:10} messages" if count else ""))


@dataclass(slots=True)
class Figures:
    """What one trace holds."""

    bytes: int = 0
    blocks: int = 0
    last: float = 0.0
    events: Counter[str] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)
    protocols: set[str] = field(default_factory=set)

    def add(self, block: Block) -> None:
        self.blocks += 1
        for event in block.events:
            self.events[event.name] += 1
            self.messages[event.name] += event.count
            self.last = max(self.last, event.time)
            if event.protocol:
                self.protocols.add(PROTOCOLS.get(event.protocol, str(event.protocol)))

    def as_json(self) -> dict[str, object]:
        return {
            "bytes": self.bytes,
            "blocks": self.blocks,
            "events": dict(sorted(self.events.items())),
            "messages": {name: number for name, number in sorted(self.messages.items()) if number},
            "protocols": sorted(self.protocols),
            "last_event_seconds": round(self.last, 6),
        }
