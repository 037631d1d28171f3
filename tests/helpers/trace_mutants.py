"""Recorded runs with one thing changed in their traces: what two judges must judge alike.

A run is played in the simulator, its blocks are read, and one event of one member is lost, doubled,
moved in time, exchanged with another or altered. The judges are not told what was done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from xxhash import xxh3_64_intdigest as hash64

from stormcast.chaos.campaigns.generate import generate
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.session.runner import run_scenario
from stormcast.node import trace
from stormcast.node.trace import Event, pack_block, pack_text, read_blocks_untrusted

Blocks = dict[str, bytes]
TOLD: Final = frozenset(
    {
        trace.SENT,
        trace.DELIVERED,
        trace.ACKED,
        trace.REQUESTED,
        trace.RETRANSMITTED,
        trace.PURGED,
        trace.BLOCKED,
        trace.UNBLOCKED,
        trace.VIEW,
        trace.CONN,
        trace.SYNC,
        trace.SKIPPED,
        trace.ALARM,
        trace.GAUGE,
        trace.FREEZE,
        trace.OFFERED,
        trace.HANDED,
        trace.ABANDONED,
        trace.CREDIT,
        trace.CUT,
    }
)
"""Kinds of events that a change may hit."""


@dataclass(frozen=True, slots=True)
class TraceMutant:
    """The traces of a run with one change."""

    name: str
    blocks: Blocks


class _Trace:
    """The events of one member, each with its text."""

    def __init__(self, blocks: bytes) -> None:
        read = list(read_blocks_untrusted(blocks, hash64))
        self.member, self.wall_ns = read[0].member, read[0].wall_ns
        self.events = [(event, block.text(event)) for block in read for event in block.events]

    def packed(self) -> bytes:
        """The events as one block, numbered anew."""
        texts, events = [], []
        for event, text in self.events:
            if text:
                texts.append(text)
            events.append(event._replace(text=len(texts) if text else 0))
        heap = b"".join(map(pack_text, texts))
        return pack_block(self.member, 0, self.wall_ns, events, heap, hash64)


Change = Callable[[_Trace, int, Random], str]


def _lose(told: _Trace, at: int, _random: Random) -> str:
    del told.events[at]
    return "lost"


def _double(told: _Trace, at: int, _random: Random) -> str:
    told.events.insert(at, told.events[at])
    return "doubled"


def _hurry(told: _Trace, at: int, random: Random) -> str:
    """Move it back in time, and what is recorded before it stays."""
    event, text = told.events[at]
    told.events[at] = (
        event._replace(time=max(0.0, event.time - random.choice((0.01, 0.5, 5.0)))),
        text,
    )
    return "earlier"


def _delay(told: _Trace, at: int, random: Random) -> str:
    event, text = told.events[at]
    told.events[at] = event._replace(time=event.time + random.choice((0.01, 0.5, 5.0))), text
    return "later"


def _exchange(told: _Trace, at: int, random: Random) -> str:
    """Exchange it with another of its kind: both keep their times."""
    event, _text = told.events[at]
    if event.kind == trace.SENT:
        return ""  # No member numbers backwards; what each judge makes of it is in docs/verify.md.
    alike = [n for n, (other, _) in enumerate(told.events) if other.kind == event.kind and n != at]
    if not alike:
        return ""
    to = random.choice(alike)
    (one, first), (other, second) = told.events[at], told.events[to]
    told.events[at] = other._replace(time=one.time), second
    told.events[to] = one._replace(time=other.time), first
    return "exchanged"


def _alter(told: _Trace, at: int, random: Random) -> str:
    """Alter one field."""
    event, text = told.events[at]
    field = random.choice(("lo", "hi", "both", "digest", "conn", "epoch", "flags", "peer", "bytes"))
    step = random.choice((-1, 1, 3))
    changed: Event
    if field == "both":
        changed = event._replace(lo=max(0, event.lo + step), hi=max(0, event.hi + step))
    elif field == "flags":
        changed = event._replace(flags=event.flags ^ random.choice((0x01, 0x08, 0x10)))
    elif field == "digest":
        changed = event._replace(digest=event.digest ^ 1)
    else:
        changed = event._replace(**{field: max(0, getattr(event, field) + step)})
    told.events[at] = changed, text
    return f"altered-{field}"


CHANGES: Final[tuple[Change, ...]] = (
    _lose, _lose, _double, _hurry, _delay, _exchange, _alter, _alter, _alter,
)  # fmt: skip  # how often each


def mutants(seed: int, number: int) -> Iterator[TraceMutant]:
    """Yield so many mutants of runs that are drawn from a seed, and some runs as they are."""
    random = Random(f"trace mutants {seed}")
    made = 0
    while made < number:
        scenario = _small(seed * 1_000_003 + random.randrange(1 << 20))
        blocks = dict(run_scenario(scenario, 1, min_bites=0).run.traces)
        for _ in range(min(6, number - made)):
            found = _mutant(blocks, random)
            if found is not None:
                what, changed = found
                made += 1
                yield TraceMutant(f"{made:03}-{scenario.name}-{what}", changed)


def _small(seed: int) -> Scenario:
    return generate(seed)


def _mutant(blocks: Blocks, random: Random) -> tuple[str, Blocks] | None:
    label = random.choice([one for one in sorted(blocks) if one != "rig" and blocks[one]])
    told = _Trace(blocks[label])
    places = [at for at, (event, _text) in enumerate(told.events) if event.kind in TOLD]
    if not places:
        return None
    # By kind first: of some kinds there are a hundred times as many as of others.
    kind = random.choice(sorted({told.events[at][0].kind for at in places}))
    at = random.choice([one for one in places if told.events[one][0].kind == kind])
    number = told.events[at][0].name
    done = random.choice(CHANGES)(told, at, random)
    if not done:
        return None
    return f"{done}-{number}-{label}", {**blocks, label: told.packed()}
