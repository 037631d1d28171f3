"""Runs that prove nothing, or not what they seem to, and what is asked of them."""

from __future__ import annotations

from typing import Any, Final

from xxhash import xxh3_64_intdigest as hash64

from stormcast.findings import Finding, Verdict
from stormcast.node import trace
from stormcast.node.trace import read_blocks_untrusted
from stormcast.pipeline.findings import THE_RUN
from tests.oracles.impossible import DAMAGED, IMPOSSIBLE
from tests.oracles.story import IDS, Story
from tests.oracles.test_deaths import WAITING

Blocks = dict[str, bytes]


def clean() -> Blocks:
    return Story().a_clean_exchange().told()


def truncated() -> Blocks:
    blocks = clean()
    event = (trace.TRUNCATED, *[0] * 7, 3, 6, 8, 0, 0, 0, 1, 2.0)
    numbered = sum(len(block.events) for block in read_blocks_untrusted(blocks["n1"], hash64))
    notice = trace.pack_block(IDS["n1"], numbered, 0, [event], trace.pack_text("disk full"), hash64)
    return blocks | {"n1": blocks["n1"] + notice}


def torn_where_it_was_killed() -> Blocks:
    story = Story().a_clean_exchange()
    seen = len(story.told()["n1"])
    story.at(2.0).sends(6).at(2.1).fault("crash", member="n1").delivers(6).bites(1)
    blocks = story.told()
    return blocks | {"n1": blocks["n1"][: seen + 30]}


def a_block_is_missing() -> Blocks:
    story = Story().a_clean_exchange()
    first = len(story.told()["n1"])
    story.at(2.0).acks(5)
    second = len(story.told()["n1"])
    story.at(3.0).acks(5)
    blocks = story.told()
    return blocks | {"n1": blocks["n1"][:first] + blocks["n1"][second:]}


def loss_by_death() -> Blocks:
    """What n0 sends to n1 never arrives, for n1 is dead."""
    return Story().a_clean_exchange().at(2.0).sends(6).at(2.5).exits("n1").told()


def loss_after_death() -> Blocks:
    """What n0 sends to n1 never arrives, and who died before was somebody else."""
    return Story().a_clean_exchange().at(1.8).exits("n2").at(2.0).sends(6).told()


def nonsense_of_an_exit() -> Blocks:
    story = Story().a_clean_exchange()
    story.rig.record(trace.EXIT, 2.0, text='{"name": "n1"}')
    return story.told()


def nonsense_of_the_rig() -> Blocks:
    story = Story().a_clean_exchange()
    story.rig.record(trace.FAULT, 2.0, text="{half a fau")
    return story.told()


def without(label: str) -> Blocks:
    blocks = clean()
    del blocks[label]
    return blocks


def a_loss() -> Blocks:
    return Story().a_clean_exchange().at(2.0).sends(6).told()


def behind_a_gap(*, most: int = 0) -> Blocks:
    """At the end n1 holds a message behind a gap; before that it held two, of `most` (0: of any
    number)."""
    story = Story().a_clean_exchange().at(3.0).gauges(trace.RECEIVE_MESSAGES, 2, most, "n1", "n0")
    story.at(20.1).gauges(trace.RECEIVE_MESSAGES, 1, 8, "n1", "n0")
    return story.quiet(15.0).ends(20.0).told()


def on_a_host_that_is_up_for_an_hour() -> Blocks:
    """Its clock began with the host, and the run 3,400 seconds later."""
    story = Story().at(3400.0)
    story.rig.record(trace.PHASE, 3400.0, text="begin")
    story.a_clean_exchange(at=3401.0).at(3402.0).sends(6)
    return story.quiet(3410.0).ends(3420.0).told()


UNKNOWN: Final[dict[str, tuple[Blocks, str]]] = {
    "truncated": (truncated(), "n1: truncated: disk full"),
    "torn": (clean() | {"n1": clean()["n1"][:-40]}, "torn block"),
    "a-block-is-missing": (a_block_is_missing(), "n1: events are missing"),
    "empty": (clean() | {"n1": b""}, "n1: empty trace"),
    "twice": (clean() | {"copy": clean()["n1"]}, "n1: the same member as copy"),
    "receiver-without-trace": (without("n1"), "a1 was heard and left no trace"),
    "sender-without-trace": (without("n0"), "a0 was heard and left no trace"),
    "no-end": (without("rig"), "the rig recorded no end of the run"),
    "nonsense": (nonsense_of_the_rig(), "rig: '{half a fau' does not say what it should"),
    "death": (
        loss_by_death(),
        "n1 died at 1.5 s of signal 9; nothing in the scenario did that",
    ),
    "death-of-which-a-part-is-null": (
        Story()
        .a_clean_exchange()
        .at(2.5)
        .exits("n1", signal=None, code=1, incarnation=None, why=None)
        .told(),
        "n1 died at 1.5 s of exit code 1; nothing in the scenario did that",
    ),
    "loss-after-death": (loss_after_death(), "nothing in the scenario did that: "),
    "nonsense-of-an-exit": (nonsense_of_an_exit(), "does not say what it should"),
    "nothing-sent": (Story().at(1.0).opens().listens().told(), "nothing was sent"),
    "no-bite": (
        Story().a_clean_exchange().at(5.0).fault("loss").bites(0).told(),
        "fault f1 (loss) did not bite: 0 times",
    ),
    "no-count-of-bites": (
        Story().a_clean_exchange().at(5.0).fault("loss").at(6.0).fault("loss", "off").told(),
        "nothing says how often fault f1 (loss) had an effect",
    ),
} | IMPOSSIBLE
UNKNOWN |= {
    f"waits-after-death-{name}": (
        waiting().at(5.0).exits("n2").told(),
        "n2 died at 4.5 s of signal 9; nothing in the scenario did that: ",
    )
    for name, waiting in WAITING.items()
}
UNKNOWN |= {f"damaged-{name}": (told, "damaged: whole blocks") for name, told in DAMAGED.items()}
OTHERS: Final[dict[str, Blocks]] = {
    "clean": clean(),
    "torn-where-it-was-killed": torn_where_it_was_killed(),
    "loss-before-death": Story().a_clean_exchange().at(2.0).sends(6).at(3.0).exits("n2").told(),
    "ordered": Story().a_clean_exchange().at(3.0).exits("n1", ordered=True, code=0).told(),
    "a-loss-and-no-bite": Story()
    .a_clean_exchange()
    .at(2.0)
    .sends(6)
    .at(5.0)
    .fault("loss")
    .bites(0)
    .told(),
    "no-count-of-a-fault-of-the-past": Story()
    .at(0.1)
    .fault("loss")
    .begins(0.4)
    .a_clean_exchange()
    .told(),
    "no-count-of-a-standstill": Story()
    .a_clean_exchange()
    .at(5.0)
    .fault("pause", member="n1", name="still-0")
    .told(),
    "cut-short": a_loss(),
    "behind-a-gap": behind_a_gap(),
    "behind-a-gap-when-it-was-cut-short": behind_a_gap(),
    "above-a-bound-before-it-was-cut-short": behind_a_gap(most=1),
    "on-a-host-that-is-up-for-an-hour": on_a_host_that_is_up_for_an_hour(),
    "found-when-it-ran": clean(),
    "asked-for-more": clean(),
    "few-bites": Story().a_clean_exchange().at(5.0).fault("loss").bites(2).told(),
}
QUESTIONS: Final[dict[str, dict[str, Any]]] = {
    "cut-short": {"is_complete": False},
    "behind-a-gap-when-it-was-cut-short": {"is_complete": False},
    "above-a-bound-before-it-was-cut-short": {"is_complete": False},
    "found-when-it-ran": {
        "own": (
            Finding("G8", Verdict.HOLDS, "one view at the end", by=THE_RUN),
            Finding("G4", Verdict.VIOLATED, "3 batches were not what was sent", by=THE_RUN),
        )
    },
    "asked-for-more": {"guarantees": ("G1", "G8", "T1")},
    "few-bites": {"min_bites": 3},
}
