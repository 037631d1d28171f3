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


def _in_view(members: str) -> Blocks:
    """A run in which n0 installs a view of these members."""
    s = Story().a_group("n0", "n1").at(1.0).casts(1, 5).at(1.1).takes(1, 5)
    return s.at(2.0).installs_in_words(2, members, who="n0").told()


def _handed(count: int) -> Blocks:
    """A run in which n1 is handed five messages, and says another number."""
    story = Story(both_ends=True).at(1.0).offers(1, 5).opens().sends(1, 5, number=1)
    told = story.at(1.1).listens().delivers(1, 5).is_given(1, 5).acks(5).at(1.2).purges(1, 5).told()
    return changed(told, "n1", trace.HANDED, _with(count=count))


def _a_leaver_without_trace() -> Blocks:
    """n2 is in the first view and leaves; nobody hears a message of it."""
    story = Story().a_group().at(1.0).casts(1, 5).at(1.1).takes(1, 5).takes(1, 5, "n2")
    story.at(2.9).stops("n2").at(3.0).unwatches("n0", "n2", epoch=3).unwatches("n1", "n2", epoch=3)
    blocks = story.installs(2, "n0", "n1").at(3.5).drops(1, 5).told()
    del blocks["n2"]
    return blocks


def with_rig(kind: int, text: str) -> Blocks:
    """A clean run of whose rig one event has this text."""
    story = Story().a_clean_exchange()
    story.rig.record(kind, 2.0, text=text)
    return story.told()


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
    "leaver-without-trace": (_a_leaver_without_trace(), "a2 was in a view and left no trace"),
    "batch-of-another-count": (
        changed(_CLEAN, "n0", trace.SENT, _with(hi=1 << 45)),
        "has another count than its range",
    ),
    "delivery-of-another-count": (
        changed(_CLEAN, "n1", trace.DELIVERED, _with(count=4)),
        "has another count than its range",
    ),
    "handed-of-another-count": (_handed(4), "has another count than its range"),
    "rig-twice": (_CLEAN | {"rig-2": _CLEAN["rig"]}, "the same member as rig"),
    "block-of-no-event": (
        _CLEAN | {"n9": pack_block(0x99, 0, 0, [], b"", hash64)},
        "n9: empty trace",
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
    "bound-too-large-for-seconds": (
        saying(_CLEAN, "n1", '{"bounds": {"ack_within": 1' + "0" * 400 + "}}"),
        _SETTINGS,
    ),
    "interval-too-large-for-seconds": (
        saying(_CLEAN, "n1", '{"protocols": {"MCAST": {"xmit_interval": 1' + "0" * 400 + "}}}"),
        _SETTINGS,
    ),
    "settings-nested-too-deep": (saying(_CLEAN, "n1", "[" * 9000), _SETTINGS),
    "flaws-in-a-list": (saying(_CLEAN, "n1", '{"historical": [["a", true]]}'), _SETTINGS),
    "flaws-in-a-word": (saying(_CLEAN, "n1", '{"historical": ""}'), _SETTINGS),
    "flaws-of-a-protocol-in-a-list": (
        saying(_CLEAN, "n1", '{"protocols": {"UNICAST3": {"historical": ["a"]}}}'),
        _SETTINGS,
    ),
    "copies-of-a-protocol-in-words": (
        saying(_CLEAN, "n1", '{"protocols": {"DUPLICATE": {"copies": "3"}}}'),
        _SETTINGS,
    ),
}
"""By name: the traces, and what a judge says of them."""

_FAULT: Final = {"id": "f1", "do": "duplicate", "phase": "on"}
_PROBE: Final = {"id": "f1", "do": "loss", "bit": 3}
_EXIT: Final = {"name": "n1", "ordered": True, "code": 0}
_HUGE: Final = 10**400
_ODD_FIELDS: Final[dict[str, tuple[int, dict[str, Any]]]] = {
    "fault-of-no-name": (trace.FAULT, _FAULT | {"id": None}),
    "fault-of-a-number": (trace.FAULT, _FAULT | {"id": 7}),
    "fault-that-does-a-number": (trace.FAULT, _FAULT | {"do": 7}),
    "fault-that-does-nothing": (trace.FAULT, _FAULT | {"do": None}),
    "phase-that-is-none": (trace.FAULT, _FAULT | {"phase": "half"}),
    "phase-that-is-missing": (trace.FAULT, _FAULT | {"phase": None}),
    "phase-in-a-list": (trace.FAULT, _FAULT | {"phase": ["on"]}),
    "member-that-is-none": (trace.FAULT, _FAULT | {"member": 1 << 32}),
    "member-below-zero": (trace.FAULT, _FAULT | {"member": -1}),
    "member-in-words": (trace.FAULT, _FAULT | {"member": "161"}),
    "member-in-parts": (trace.FAULT, _FAULT | {"member": 161.0}),
    "member-yes": (trace.FAULT, _FAULT | {"member": True}),
    "copies-too-many": (trace.FAULT, _FAULT | {"copies": 1_000_001}),
    "copies-that-overflow": (trace.FAULT, _FAULT | {"copies": (1 << 63) - 1}),
    "copies-below-zero": (trace.FAULT, _FAULT | {"copies": -1}),
    "copies-in-words": (trace.FAULT, _FAULT | {"copies": "3"}),
    "copies-in-parts": (trace.FAULT, _FAULT | {"copies": 1.5}),
    "copies-without-end": (trace.FAULT, _FAULT | {"copies": inf}),
    "copies-yes": (trace.FAULT, _FAULT | {"copies": True}),
    "late-for-ever": (trace.FAULT, _FAULT | {"late": inf}),
    "late-by-no-number": (trace.FAULT, _FAULT | {"late": nan}),
    "late-beyond-all": (trace.FAULT, _FAULT | {"late": _HUGE}),
    "late-before-it-began": (trace.FAULT, _FAULT | {"late": -1.0}),
    "late-in-words": (trace.FAULT, _FAULT | {"late": "1.0"}),
    "late-yes": (trace.FAULT, _FAULT | {"late": True}),
    "within-for-ever": (trace.FAULT, _FAULT | {"within": inf}),
    "within-less-than-nothing": (trace.FAULT, _FAULT | {"within": -0.5}),
    "within-in-words": (trace.FAULT, _FAULT | {"within": "1.0"}),
    "within-yes": (trace.FAULT, _FAULT | {"within": True}),
    "attribute-in-parts": (trace.FAULT, _FAULT | {"attribute": ["a", "b"]}),
    "attribute-in-figures": (trace.FAULT, _FAULT | {"attribute": 7}),
    "bites-of-no-name": (trace.PROBE, _PROBE | {"id": None}),
    "bites-of-a-number": (trace.PROBE, _PROBE | {"id": 7}),
    "bites-of-a-list": (trace.PROBE, _PROBE | {"do": ["loss"]}),
    "bites-in-words": (trace.PROBE, _PROBE | {"bit": "3"}),
    "bites-in-parts": (trace.PROBE, _PROBE | {"bit": 1.5}),
    "bites-below-zero": (trace.PROBE, _PROBE | {"bit": -1}),
    "bites-yes": (trace.PROBE, _PROBE | {"bit": True}),
    "bites-that-overflow": (trace.PROBE, _PROBE | {"bit": 1 << 63}),
    "bites-one-too-many": (trace.PROBE, _PROBE | {"bit": 1 << 62}),
    "no-bites": (trace.PROBE, _PROBE | {"bit": None}),
    "exit-of-nobody": (trace.EXIT, _EXIT | {"name": None}),
    "exit-of-a-number": (trace.EXIT, _EXIT | {"name": 7}),
    "exit-ordered-by-nobody": (trace.EXIT, _EXIT | {"ordered": None}),
    "exit-ordered-in-words": (trace.EXIT, _EXIT | {"ordered": "yes"}),
    "exit-ordered-in-figures": (trace.EXIT, _EXIT | {"ordered": 1}),
    "incarnation-zero": (trace.EXIT, _EXIT | {"incarnation": 0}),
    "incarnation-in-words": (trace.EXIT, _EXIT | {"incarnation": "2"}),
    "exit-of-a-member-that-is-none": (trace.EXIT, _EXIT | {"member": 1 << 32}),
    "signal-in-words": (trace.EXIT, _EXIT | {"signal": "KILL"}),
    "code-in-words": (trace.EXIT, _EXIT | {"code": "zero"}),
    "exit-for-a-number": (trace.EXIT, _EXIT | {"why": 137}),
    "death-of-nothing": (trace.EXIT, {"name": "n1", "ordered": False}),
    "death-of-null": (trace.EXIT, _EXIT | {"ordered": False, "signal": None, "code": None}),
}
ODD_RIGS: Final[dict[str, tuple[int, str]]] = {
    name: (kind, json.dumps(fields)) for name, (kind, fields) in _ODD_FIELDS.items()
} | {
    "no-text": (trace.FAULT, ""),
    "no-object": (trace.FAULT, "[1]"),
    "nested-too-deep": (trace.FAULT, "[" * 9000),
    "exit-that-is-no-object": (trace.EXIT, "[1]"),
    "bites-that-are-no-object": (trace.PROBE, "3"),
}
"""By name: a kind of event of the rig, and a text that no rig writes."""
_ODD_VIEWS: Final = {
    "empty": "000000a0,,000000a1",
    "blank": " 000000a0,000000a1",
    "signed": "+a0,000000a1",
    "prefixed": "0xa0,000000a1",
    "underlined": "a_0,000000a1",
    "long": "0000000a0,000000a1",
    "open": "000000a0,000000a1,",
    "two-lines": "000000a0,000000a1\n",
    "foreign": "\u0661a0,000000a1",
}

IMPOSSIBLE |= {f"rig-{name}": (with_rig(*odd), _SETTINGS) for name, odd in ODD_RIGS.items()}
IMPOSSIBLE |= {
    f"view-{name}": (_in_view(members), "is no list of members")
    for name, members in _ODD_VIEWS.items()
}
