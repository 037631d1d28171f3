"""Traces that no member writes, one for each reason; both judges must call each run unknown."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from math import inf, nan
from typing import Any, Final

from xxhash import xxh3_64_intdigest as hash64

from stormcast.node import trace
from stormcast.node.trace import Event, pack_block, pack_text, read_blocks_untrusted
from tests.oracles.story import Story

Blocks = dict[str, bytes]
Change = Callable[[Event], Event]


def changed(blocks: Mapping[str, bytes], label: str, kind: int, change: Change) -> Blocks:
    """The same traces with every event of a kind changed in one of them."""
    again = b""
    for block in read_blocks_untrusted(blocks[label], hash64):
        events = [change(event) if event.kind == kind else event for event in block.events]
        texts = b"".join(map(pack_text, block.texts))
        again += pack_block(block.member, block.first, block.wall_ns, events, texts, hash64)
    return {**blocks, label: again}


def saying(blocks: Mapping[str, bytes], label: str, settings: str) -> Blocks:
    """The same traces, but one member says other settings when it starts."""
    again = b""
    for block in read_blocks_untrusted(blocks[label], hash64):
        name, identity, _settings = block.texts[0].split(" ", 2)
        texts = [f"{name} {identity} {settings}", *block.texts[1:]] if not again else block.texts
        heap = b"".join(map(pack_text, texts))
        again += pack_block(block.member, block.first, block.wall_ns, block.events, heap, hash64)
    return {**blocks, label: again}


def _damaged(at: int, data: bytes) -> Blocks:
    """A run of many blocks, whose n1 is killed; in the second block of n1 something is changed."""
    story = Story().a_clean_exchange()
    first = len(story.told()["n1"])
    for number in range(10):
        lo = 6 + 5 * number
        # Each telling ends a block.
        story.a_clean_exchange(lo, lo + 4, at=2.0 + number / 10).told()
    blocks = story.at(4.0).fault("crash", member="n1").bites(1).told()
    whole, start = blocks["n1"], first + at
    return {**blocks, "n1": whole[:start] + data + whole[start + len(data) :]}


def _with(**fields: Any) -> Change:
    return lambda event: event._replace(**fields)


def _settings(**bounds: Any) -> str:
    return json.dumps({"protocol": "UNICAST3", "bounds": bounds})


def _of_a_group() -> Blocks:
    return Story().a_group().a_clean_cast().told()


def _after_its_end() -> Blocks:
    return Story().a_clean_exchange().at(3.0).stops("n1").at(3.1).acks(5).told()


_CLEAN: Final = Story().a_clean_exchange().told()
_LATE: Final = "comes after the member's end"
_SETTINGS: Final = "does not say what it should"

DAMAGED: Final = {
    "more-events-than-there-are": _damaged(15, b"\x80"),
    "more-texts-than-there-are": _damaged(35, b"\x80"),
    "no-magic": _damaged(0, bytes(4)),
}
"""By name: traces in which one block is not whole, and whole ones follow."""

IMPOSSIBLE: Final[dict[str, tuple[Blocks, str]]] = {
    "time-that-is-none": (changed(_CLEAN, "n1", trace.DELIVERED, _with(time=nan)), "is at nan"),
    "time-without-end": (changed(_CLEAN, "n0", trace.SENT, _with(time=inf)), "is at inf"),
    "time-before-all": (changed(_CLEAN, "n0", trace.PURGED, _with(time=-inf)), "is at -inf"),
    "rig-out-of-time": (changed(_CLEAN, "rig", trace.PHASE, _with(time=nan)), "is at nan"),
    "seqno-that-overflows": (
        changed(_CLEAN, "n1", trace.DELIVERED, _with(hi=(1 << 63) - 1)),
        "has a number that is too large",
    ),
    "seqno-beyond-63-bits": (
        changed(_CLEAN, "n0", trace.SENT, _with(lo=1 << 63, hi=(1 << 63) + 4)),
        "has a number that is too large",
    ),
    "ack-beyond-all": (
        changed(_CLEAN, "n1", trace.ACKED, _with(lo=1 << 62)),
        "has a number that is too large",
    ),
    "range-that-ends-early": (
        changed(_CLEAN, "n0", trace.SENT, _with(lo=5, hi=1)),
        "ends before it begins",
    ),
    "after-its-end": (_after_its_end(), _LATE),
    "view-that-it-never-had": (
        changed(_of_a_group(), "n0", trace.SENT, _with(view=77)),
        "is of a view that the member never had",
    ),
    "settings-cut-off": (saying(_CLEAN, "n1", _settings(ack_within=1.0)[:-3]), _SETTINGS),
    "settings-of-another-shape": (saying(_CLEAN, "n1", '["UNICAST3"]'), _SETTINGS),
    "bounds-of-another-shape": (saying(_CLEAN, "n1", '{"bounds": [1, 2]}'), _SETTINGS),
    "bound-in-words": (saying(_CLEAN, "n1", _settings(ack_within="1.0")), _SETTINGS),
    "bound-that-is-none": (saying(_CLEAN, "n1", _settings(ack_within=nan)), _SETTINGS),
    "bound-below-zero": (saying(_CLEAN, "n1", _settings(ack_within=-1.0)), _SETTINGS),
    "bound-of-a-protocol-in-words": (
        saying(_CLEAN, "n1", '{"bounds": {}, "protocols": {"MFC": {"bounds": {"x": "y"}}}}'),
        _SETTINGS,
    ),
    "protocols-of-another-shape": (
        saying(_CLEAN, "n1", '{"bounds": {}, "protocols": {"MFC": 5}}'),
        _SETTINGS,
    ),
}
"""By name: the traces, and what a judge says of them."""
