"""Verdicts: merged to the worst, and `unknown` wherever a run proves nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from xxhash import xxh3_64_digest, xxh3_64_intdigest

from stormcast.chaos.oracles import verdict
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.history import Violation
from stormcast.chaos.oracles.verdict import CHECKS, RUN, Finding, Judgement, Verdict, judge, worst
from stormcast.node import trace
from tests.oracles.corpus import Budget
from tests.oracles.story import BYTES, Story


def evidence_of(story: Story) -> Evidence:
    return Evidence.from_blocks(story.told(), xxh3_64_intdigest)


def judged(story: Story, guarantees: Iterable[str] = tuple(CHECKS), **more: Any) -> Judgement:
    return judge(evidence_of(story), guarantees, **more)


def test_verdicts_are_ordered_and_named() -> None:
    assert Verdict.HOLDS < Verdict.UNKNOWN < Verdict.VIOLATED
    assert [str(each) for each in Verdict] == ["holds", "unknown", "violated"]


def test_the_worst_verdict_wins() -> None:
    assert worst([]) is Verdict.HOLDS
    assert worst([Verdict.HOLDS, Verdict.UNKNOWN]) is Verdict.UNKNOWN
    assert worst([Verdict.VIOLATED, Verdict.UNKNOWN, Verdict.HOLDS]) is Verdict.VIOLATED


def test_only_what_is_asked_for_is_judged() -> None:
    judgement = judged(Story().a_clean_exchange().at(2.0).sends(6), guarantees=["G3", "G2"])

    assert [finding.guarantee for finding in judgement.findings] == ["G3", "G2"]
    assert judgement.verdict is Verdict.HOLDS


def test_a_guarantee_without_a_check_is_unknown() -> None:
    judgement = judged(Story().a_clean_exchange(), guarantees=["G1", "T1"])

    assert judgement.of("T1").verdict is Verdict.UNKNOWN
    assert judgement.verdict is Verdict.UNKNOWN


def test_a_run_that_sent_nothing_proves_nothing() -> None:
    judgement = judged(Story().at(1.0).opens().listens())

    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.of(RUN) == Finding(RUN, Verdict.UNKNOWN, "nothing was sent")


@pytest.mark.parametrize(
    ("bit", "min_bites", "expected"),
    [
        (1, None, Verdict.HOLDS),
        (0, None, Verdict.UNKNOWN),
        (0, 0, Verdict.HOLDS),
        (3, 3, Verdict.HOLDS),
        (2, 3, Verdict.UNKNOWN),
    ],
)
def test_a_fault_must_have_bitten(bit: int, min_bites: int | None, expected: Verdict) -> None:
    story = Story().a_clean_exchange().at(5.0).fault("loss").bites(bit)

    assert judged(story, min_bites=min_bites).verdict is expected


def test_of_a_fault_it_must_be_known_how_often_it_bit() -> None:
    judgement = judged(Story().a_clean_exchange().at(5.0).fault("loss"))

    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.of(RUN).detail == "nothing says how often fault f1 (loss) had an effect"


def test_a_fault_of_the_past_and_a_standstill_need_no_count() -> None:
    """A chapter of a soak tells what stood before it; a machine that did not run is no step."""
    past = Story().at(0.1).fault("loss").begins(0.4).a_clean_exchange()
    still = Story().a_clean_exchange().at(5.0).fault("pause", member="n1", name="still-0")

    assert judged(past).verdict is judged(still).verdict is Verdict.HOLDS


def test_a_violation_counts_even_where_a_fault_did_not_bite() -> None:
    judgement = judged(Story().a_clean_exchange().at(2.0).sends(6).at(5.0).fault("loss").bites(0))

    assert judgement.verdict is Verdict.VIOLATED
    assert judgement.of(RUN).detail == "fault f1 (loss) did not bite: 0 times"


def test_a_crashed_check_is_unknown_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def crashing(_evidence: Evidence) -> Iterator[Violation]:
        raise KeyError("seqno")

    monkeypatch.setitem(verdict.CHECKS, "G2", crashing)
    judgement = judged(Story().a_clean_exchange())

    finding = Finding("G2", Verdict.UNKNOWN, "its check crashed: KeyError('seqno')")
    assert judgement.of("G2") == finding
    assert judgement.of("G1").verdict is Verdict.HOLDS
    assert judgement.verdict is Verdict.UNKNOWN


def test_the_first_violation_is_shown() -> None:
    story = Story().a_clean_exchange().at(4.0).opens(to="n2", conn=2).sends(1, to="n2", conn=2)
    story.at(3.0).sends(6).at(5.0).sends(7)

    assert judged(story).of("G1").witness == ("n0#6 t=3.000 sent to n1 conn 1 seqnos 6..6",)


def test_a_violation_is_at_a_time_of_the_run() -> None:
    """The clock of a real host began long before the run, which says when it began."""
    story = Story().at(3400.0)
    story.rig.record(trace.PHASE, 3400.0, text="begin")
    story.a_clean_exchange(at=3401.0).at(3402.0).sends(6)
    found = judged(story.quiet(3410.0).ends(3420.0))
    assert (found.of("G1").at, found.of("G2").at) == (pytest.approx(2.0), None)


def test_a_budget_is_judged_even_where_c1_is_not_asked_for() -> None:
    """But the members' own promises are not: the syncs are too close, and nobody asked."""
    story = Story(sync_spacing=2.0).a_clean_exchange().at(2.0).syncs().syncs()

    within = judged(story, guarantees=["G1"], budget=Budget(syncs=2))
    assert within.of("C1").verdict is Verdict.HOLDS
    beyond = judged(story, guarantees=["G1"], budget=Budget(syncs=1))
    assert beyond.of("C1").detail == "2 syncs for 5 messages (0.400 per message): the budget is 1"
    both = judged(story, guarantees=["C1"], budget=Budget(syncs=2))
    assert both.verdict is Verdict.VIOLATED


def test_traces_without_evidence_leave_every_guarantee_unknown() -> None:
    judgement = judge(Evidence.from_blocks({}, xxh3_64_intdigest))

    assert judgement.verdict is Verdict.UNKNOWN
    assert {finding.verdict for finding in judgement.findings} == {Verdict.UNKNOWN}
    assert [finding.guarantee for finding in judgement.findings] == list(CHECKS)


# -- Bytes of parts, where the payloads can be made again ------------------------------------------


def payload(sender: str, receiver: str, number: int) -> bytes:
    return xxh3_64_digest(f"{sender}/{receiver}/{number}".encode()).ljust(BYTES, b".")


def payloads(sender: str, receiver: str, lo: int, hi: int) -> bytes:
    return b"".join(payload(sender, receiver, number) for number in range(lo, hi + 1))


def a_part_of_the_second_connection(*, trim: int) -> Story:
    """Messages 7 and 8 are seqnos 2 and 3 of the second connection: five and one came before."""
    story = Story().a_clean_exchange().at(2.0).shouts("x").removes(why="forgot")
    story.at(3.0).opens(conn=2).sends(1, 4, conn=2).at(3.1).listens(conn=2, epoch=2)
    story.delivers(1, conn=2, epoch=2, part_of=(1, 4), trim=low(payload("n0", "n1", 6)))
    story.delivers(2, 3, conn=2, epoch=2, part_of=(1, 4), trim=trim)
    return story.delivers(4, conn=2, epoch=2, part_of=(1, 4), trim=low(payload("n0", "n1", 9)))


def low(data: bytes) -> int:
    return xxh3_64_intdigest(data) & 0xFFFFFFFF


def test_a_part_has_the_bytes_of_its_messages() -> None:
    story = a_part_of_the_second_connection(trim=low(payloads("n0", "n1", 7, 8)))

    assert judged(story, payloads=payloads).verdict is Verdict.HOLDS


def test_a_part_with_the_bytes_of_its_neighbours_is_not_intact() -> None:
    story = a_part_of_the_second_connection(trim=low(payloads("n0", "n1", 6, 7)))

    assert judged(story).verdict is Verdict.HOLDS
    finding = judged(story, payloads=payloads).of("G4")
    assert finding.verdict is Verdict.VIOLATED
    assert finding.witness == (
        "n0#7 t=3.000 sent to n1 conn 2 seqnos 1..4",
        "n1#6 t=3.100 delivered from n0 conn 2 seqnos 2..3 (a part)",
    )
