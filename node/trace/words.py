"""Trace events in words, and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from stormcast.node.core.model import flag_names
from stormcast.node.core.names import printable
from stormcast.node.core.wire import PROTOCOLS
from stormcast.node.trace import (
    CONN,
    CONN_STATES,
    CREDIT,
    CREDITS,
    GAUGE,
    GAUGES,
    NAMED,
    TRUNCATED,
    Block,
    Event,
)


class NamedEvent(NamedTuple):
    """An event with all that is needed to show it; sorts by time, then by member."""

    time: float
    member: str
    number: int
    event: Event
    text: str

    def line(self, names: Mapping[int, str]) -> str:
        """Return the event as a line for people, whatever its text and the names hold."""
        return printable(
            f"{self.time:12.6f} {self.member}#{self.number:<6} "
            f"{describe(self.event, self.text, names)}"
        )

    def as_json(self) -> str:
        """Return the event as a line of JSON."""
        return json.dumps(
            {
                "member": self.member,
                "number": self.number,
                "event": self.event.name,
                **self.event._asdict(),
                "text": self.text,
            }
        )


def tell(label: str, block: Block) -> Iterator[NamedEvent]:
    """Yield the events of a block."""
    for number, event in enumerate(block.events, block.first):
        yield NamedEvent(event.time, label, number, event, block.text(event))


def describe(event: Event, text: str, names: Mapping[int, str]) -> str:
    """Return one event in words; fields that are zero are left out."""
    words = [event.name.ljust(13)]
    if event.kind == TRUNCATED:
        words.append(f"{event.lo}..{event.hi}" if event.count else f"{event.lo}..")
        return " ".join([*words, text])
    if event.kind == CONN:
        words.append(CONN_STATES.get(event.stream, str(event.stream)))
    elif event.kind == GAUGE:
        words.append(f"{GAUGES.get(event.stream, event.stream)} {event.lo} of {event.hi}")
    elif event.kind == CREDIT:
        return " ".join([*words, _credit(event, names)])
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


def _credit(event: Event, names: Mapping[int, str]) -> str:
    """Return a CREDIT event in words."""
    said = CREDITS.get(event.stream, str(event.stream))
    done = "taken" if event.stream == NAMED else "sent"
    words = [
        f"{said} peer {names.get(event.peer, f'{event.peer:08x}')}",
        f"limit {event.hi}",
        f"{done} {event.bytes} B",
    ]
    if event.conn:
        words.append(f"conn {event.conn}")
    if event.lo:
        words.append(f"{event.lo}")
    if event.count:
        words.append(f"{event.count} messages unacked")
    return " ".join(words)


@dataclass(slots=True)
class Figures:
    """Counts of what one trace holds."""

    bytes: int = 0
    blocks: int = 0
    last: float = 0.0
    events_lost: int = 0
    """As its TRUNCATED events count them; `Numbering` notes gaps that no event explains."""
    events: Counter[str] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)
    protocols: set[str] = field(default_factory=set)

    def add(self, block: Block) -> None:
        """Count one block."""
        self.blocks += 1
        self.bytes += block.size
        for event in block.events:
            self.events[event.name] += 1
            self.last = max(self.last, event.time)
            if event.kind == TRUNCATED:
                self.events_lost += event.count
            else:
                self.messages[event.name] += event.count
            if event.protocol:
                self.protocols.add(PROTOCOLS.get(event.protocol, str(event.protocol)))

    def as_json(self) -> dict[str, object]:
        """Return what `stormcast trace stats --json` prints of one trace."""
        return {
            "bytes": self.bytes,
            "blocks": self.blocks,
            "events": dict(sorted(self.events.items())),
            "events_lost": self.events_lost,
            "messages": {name: number for name, number in sorted(self.messages.items()) if number},
            "protocols": sorted(self.protocols),
            "last_event_seconds": round(self.last, 6),
        }

    def report(self, label: str) -> Iterator[str]:
        """Yield the lines that `stormcast trace stats` prints of one trace."""
        yield printable(
            f"{label}: {self.bytes} bytes, {self.blocks} blocks, until t={self.last:.6f}s"
            + (f", {self.events_lost} events lost" if self.events_lost else "")
        )
        for name, number in sorted(self.events.items()):
            count = self.messages[name]
            yield f"  {name:14}{number:8}" + (f"{count:10} messages" if count else "")
