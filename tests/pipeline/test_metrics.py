"""What is measured, on literal rows: two members, n0 and n1, unless said otherwise."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from stormcast.pipeline import metrics
from stormcast.pipeline.measure import measure, measure_runs
from stormcast.pipeline.measured import Metrics, read_metrics
from stormcast.pipeline.schema import EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

SHORT = {"n0-1": 10, "n1-1": 11, "n2-1": 12, "n1-2": 21}
RUN = "one"


class Story:
    """Events of a run, told one after the other."""

    def __init__(self, run: str = RUN) -> None:
        self.run = run
        self.rows: list[dict[str, Any]] = []
        self.numbers: dict[str, int] = {}

    def event(
        self, at: float, member: str, kind: str, peer: str | None = None, **rest: object
    ) -> None:
        number = self.numbers[member] = self.numbers.get(member, -1) + 1
        row: dict[str, Any] = dict.fromkeys((field.name for field in EVENTS), 0)
        row |= {"incarnation": None, "protocol": None, "stream_word": None, "text": None}
        row |= {
            "run": self.run,
            "member": member,
            "name": member.partition("-")[0],
            "short_id": SHORT.get(member, 0),
            "number": number,
            "time": at,
            "wall_time": datetime(2026, 1, 1, tzinfo=UTC),
            "kind": kind,
            "peer": SHORT.get(peer or "", 0),
            "peer_member": peer,
        }
        self.rows.append(row | rest)

    def sent(
        self, at: float, member: str, peer: str | None, lo: int, hi: int, **rest: object
    ) -> None:
        self.event(at, member, "sent", peer, **_batch(peer, lo, hi), **rest)

    def delivered(
        self, at: float, member: str, sender: str, lo: int, hi: int, **rest: object
    ) -> None:
        values = _batch(sender, lo, hi) | rest
        self.event(at, member, "delivered", sender, **values)

    def rig(self, at: float, kind: str, **text: object) -> None:
        self.event(at, "rig", kind, text=json.dumps(text))

    def fault(self, start: float, end: float | None, name: str = "f1", do: str = "cut") -> None:
        self.rig(start, "fault", id=name, do=do, phase="on")
        if end is not None:
            self.rig(end, "fault", id=name, do=do, phase="off")

    def phase(self, at: float, text: str) -> None:
        self.event(at, "rig", "phase", text=text)

    def frame(self, spark: SparkSession, *more: Story) -> DataFrame:
        rows = [row for story in (self, *more) for row in story.rows]
        return spark.createDataFrame(
            [tuple(row[field.name] for field in EVENTS) for row in rows], EVENTS
        )


TOLD: dict[str, Callable[[Story], None]] = {}
"""The stories of this file, which are measured together: Spark takes as long for one of them."""


def told(tell: Callable[[Story], None]) -> Callable[[Story], None]:
    """Have a story measured."""
    TOLD[tell.__name__] = tell
    return tell


def of(tell: Callable[[Story], None]) -> pytest.MarkDecorator:
    """The test is about this story, and gets its metrics as `found`."""
    return pytest.mark.parametrize("found", [tell.__name__], indirect=True, ids=[""])


@pytest.fixture(scope="module")
def measured(spark: SparkSession) -> dict[str, Metrics]:
    stories = [Story(name) for name in TOLD]
    for story in stories:
        TOLD[story.run](story)
    first, *rest = stories
    return measure_runs(first.frame(spark, *rest), list(TOLD))


@pytest.fixture
def found(request: pytest.FixtureRequest, measured: dict[str, Metrics]) -> Metrics:
    return measured[request.param]


def _batch(peer: str | None, lo: int, hi: int) -> dict[str, Any]:
    """A multicast where there is no peer; of one digest per batch."""
    return {
        "protocol": "UNICAST3" if peer else "NAKACK2",
        "conn": 1 if peer else 0,
        "lo": lo,
        "hi": hi,
        "count": hi - lo + 1,
        "digest": 1000 + lo,
    }


def _multicast(lo: int, hi: int) -> dict[str, Any]:
    return _batch(None, lo, hi)


def test_latency_is_from_the_sending_of_a_batch_to_each_delivery_of_a_part(
    spark: SparkSession,
) -> None:
    story = Story()
    story.sent(0.0, "n0-1", "n1-1", 1, 4)
    story.sent(1.0, "n0-1", "n1-1", 5, 6)
    story.delivered(0.5, "n1-1", "n0-1", 1, 2, digest=1001)
    story.delivered(2.5, "n1-1", "n0-1", 3, 4, digest=1001)
    story.delivered(3.0, "n1-1", "n0-1", 5, 6)

    found = metrics.deliveries(_since_zero(story, spark)).collect()

    assert sorted((row["at"], row["sent_at"], row["count"]) for row in found) == [
        (0.5, 0.0, 2),
        (2.5, 0.0, 2),
        (3.0, 1.0, 2),
    ]


@told
def _a_multicast_is_sent_once_and_timed_at_each_receiver(story: Story) -> None:
    story.sent(1.0, "n0-1", None, 1, 3)
    for member, at in (("n0-1", 1.0), ("n1-1", 1.25), ("n2-1", 1.5)):
        story.delivered(at, member, "n0-1", 1, 3, **_only(_multicast(1, 3)))


@of(_a_multicast_is_sent_once_and_timed_at_each_receiver)
def test_a_multicast_is_sent_once_and_timed_at_each_receiver(found: Metrics) -> None:
    assert found.latency_whole is not None
    # What one says to oneself travels nowhere.
    assert found.latency_whole.messages == 6
    assert (found.latency_whole.p50, found.latency_whole.most) == (0.25, 0.5)
    assert found.whole.sent == 3
    assert found.whole.delivered == 9
    assert found.untimed == 0


@told
def _what_nobody_sent_has_no_latency_and_is_counted(story: Story) -> None:
    story.sent(1.0, "n0-1", "n1-1", 1, 1)
    story.delivered(2.0, "n1-1", "n0-1", 1, 1, digest=7)
    story.delivered(2.0, "n1-1", "n0-1", 9, 10)


@of(_what_nobody_sent_has_no_latency_and_is_counted)
def test_what_nobody_sent_has_no_latency_and_is_counted(found: Metrics) -> None:
    assert found.latency == ()
    assert found.latency_whole is None
    assert found.untimed == 3


@told
def _a_delivery_before_its_sending_is_not_timed(story: Story) -> None:
    story.sent(2.0, "n0-1", "n1-1", 1, 5)
    story.delivered(1.0, "n1-1", "n0-1", 1, 5)


@of(_a_delivery_before_its_sending_is_not_timed)
def test_a_delivery_before_its_sending_is_not_timed(found: Metrics) -> None:
    assert found.untimed == 5


@told
def _each_phase_of_a_fault_has_its_own_rates_and_amplification(story: Story) -> None:
    """A fault from 10 to 14: 8 delivered before, 2 during, 4 after; 6 sent again during."""
    story.event(0.0, "n0-1", "start")
    story.sent(7.0, "n0-1", "n1-1", 1, 8)
    story.delivered(8.0, "n1-1", "n0-1", 1, 8)
    story.fault(10.0, 14.0)
    story.sent(11.0, "n0-1", "n1-1", 9, 14)
    story.delivered(11.0, "n1-1", "n0-1", 9, 10, digest=1009)
    story.event(12.0, "n0-1", "retransmitted", "n1-1", **_batch("n1-1", 9, 14))
    story.event(12.5, "n1-1", "requested", "n0-1", **_batch("n0-1", 11, 14))
    # At its very end it is over.
    story.delivered(14.0, "n1-1", "n0-1", 11, 14, digest=1009)
    story.event(14.5, "n1-1", "acked", "n0-1", protocol="UNICAST3", conn=1, lo=14)
    story.rig(30.0, "probe", id="f1", do="cut", bit=4)


@of(_each_phase_of_a_fault_has_its_own_rates_and_amplification)
def test_each_phase_of_a_fault_has_its_own_rates_and_amplification(found: Metrics) -> None:
    [fault] = found.faults

    assert (fault.start, fault.end, fault.bites) == (10.0, 14.0, 4)
    assert fault.before is not None
    assert fault.during is not None
    assert fault.after is not None
    assert [phase.rate for phase in (fault.before, fault.during, fault.after)] == [2.0, 0.5, 1.0]
    assert fault.during.amplification == 2.0
    assert (fault.during.requested, fault.after.requested) == (4, 0)
    assert fault.after.acks / fault.after.delivered == 0.25
    assert fault.before.amplification == 1.0


@told
def _a_pair_that_waited_is_back_when_all_that_waited_is_delivered(story: Story) -> None:
    """Healed at 10: the first arrives at 10.5, the last that waited at 12, a newer one at 13."""
    story.sent(5.0, "n0-1", "n1-1", 1, 2)
    story.sent(6.0, "n0-1", "n1-1", 3, 4)
    story.fault(4.0, 10.0)
    story.delivered(10.5, "n1-1", "n0-1", 1, 2)
    story.delivered(12.0, "n1-1", "n0-1", 3, 4)
    story.sent(12.9, "n0-1", "n1-1", 5, 5)
    story.delivered(13.0, "n1-1", "n0-1", 5, 5)


@of(_a_pair_that_waited_is_back_when_all_that_waited_is_delivered)
def test_a_pair_that_waited_is_back_when_all_that_waited_is_delivered(found: Metrics) -> None:
    resync = found.faults[0].resync

    assert resync is not None
    assert resync.first_slowest is not None
    assert resync.repaired_slowest is not None
    assert resync.first_slowest.seconds == 0.5
    assert resync.repaired_slowest.seconds == 2.0
    assert (resync.repaired_slowest.sender, resync.repaired_slowest.receiver) == ("n0", "n1")
    assert resync.repaired_messages == 4
    assert resync.pairs == 1


@told
def _a_pair_without_anything_to_say_is_timed_from_when_it_has(story: Story) -> None:
    """Healed at 10, and silent until 40: thirty seconds of silence are no slow return."""
    story.fault(4.0, 10.0)
    story.sent(40.0, "n0-1", "n1-1", 1, 1)
    story.delivered(40.25, "n1-1", "n0-1", 1, 1)


@of(_a_pair_without_anything_to_say_is_timed_from_when_it_has)
def test_a_pair_without_anything_to_say_is_timed_from_when_it_has(found: Metrics) -> None:
    resync = found.faults[0].resync

    assert resync is not None
    assert resync.first_slowest is not None
    assert resync.first_slowest.seconds == 0.25
    assert resync.repaired_slowest is None


@told
def _the_group_is_one_again_when_all_who_live_hold_one_view_of_just_them(story: Story) -> None:
    for member in ("n0-1", "n1-1"):
        story.event(0.0, member, "start")
        _view(story, 1.0, member, 1, "n0-1", "n1-1")
    story.fault(5.0, 10.0, do="partition")
    _view(story, 6.0, "n0-1", 2, "n0-1")
    _view(story, 7.0, "n1-1", 2, "n1-1")
    _view(story, 12.0, "n0-1", 3, "n0-1", "n1-1", merge=True)
    _view(story, 12.5, "n1-1", 3, "n0-1", "n1-1", merge=True)


@of(_the_group_is_one_again_when_all_who_live_hold_one_view_of_just_them)
def test_the_group_is_one_again_when_all_who_live_hold_one_view_of_just_them(
    found: Metrics,
) -> None:
    assert found.faults[0].resync is not None
    assert found.faults[0].resync.one_view == 2.5
    assert [view.members for view in found.views] == [
        ("n0", "n1"),
        ("n0",),
        ("n1",),
        ("n0", "n1"),
    ]
    assert [span.is_merge for span in found.view_spans].count(True) == 2


@told
def _a_group_that_never_parted_needs_no_time(story: Story) -> None:
    for member in ("n0-1", "n1-1"):
        story.event(0.0, member, "start")
        _view(story, 1.0, member, 1, "n0-1", "n1-1")
    story.fault(5.0, 10.0, do="loss")


@of(_a_group_that_never_parted_needs_no_time)
def test_a_group_that_never_parted_needs_no_time(found: Metrics) -> None:
    resync = found.faults[0].resync

    assert resync is not None
    assert resync.one_view == 0.0


@told
def _blocked_time_is_counted_once_per_lane_and_in_the_span_in_which_it_lies(story: Story) -> None:
    """Blocked from 8 to 12 and said so twice; the fault lasts from 10 to 14."""
    story.event(0.0, "n0-1", "start")
    story.fault(10.0, 14.0)
    story.event(8.0, "n0-1", "blocked", "n1-1", count=5)
    story.event(9.0, "n0-1", "blocked", "n1-1", count=6)
    story.event(12.0, "n0-1", "unblocked", "n1-1")
    story.event(20.0, "n0-1", "blocked", "n1-1", count=1)
    story.phase(21.0, "end")


@of(_blocked_time_is_counted_once_per_lane_and_in_the_span_in_which_it_lies)
def test_blocked_time_is_counted_once_per_lane_and_in_the_span_in_which_it_lies(
    found: Metrics,
) -> None:
    fault = found.faults[0]
    assert fault.before is not None
    assert fault.during is not None
    assert (fault.before.blocked_seconds, fault.during.blocked_seconds) == (2.0, 2.0)
    # The last one never ended: it lasts as long as the run.
    assert found.whole.blocked_seconds == pytest.approx(5.0)


@told
def _steps_of_one_fault_are_windows_of_their_own(story: Story) -> None:
    story.event(0.0, "n0-1", "start")
    for at in (5.0, 15.0):
        story.rig(at, "fault", id="f1", do="crash", phase="on", member=SHORT["n1-1"])
    story.sent(16.0, "n0-1", "n2-1", 1, 3)
    story.event(30.0, "n0-1", "gauge")


@of(_steps_of_one_fault_are_windows_of_their_own)
def test_steps_of_one_fault_are_windows_of_their_own(found: Metrics) -> None:
    first, second = found.faults

    assert first.is_over_at_once
    assert second.is_over_at_once
    assert first.after is not None
    assert second.after is not None
    assert (first.after.sent, second.after.sent) == (0, 3)


@told
def _a_member_that_comes_back_has_two_lives_and_one_row(story: Story) -> None:
    story.event(0.0, "n0-1", "start")
    story.event(0.0, "n1-1", "start")
    story.rig(3.0, "fault", id="f1", do="crash", phase="on", member=SHORT["n1-1"])
    # What comes back replaces it once more.
    story.rig(6.0, "fault", id="f2", do="restart", phase="on", member=SHORT["n1-1"])
    story.event(6.0, "n1-2", "start")
    story.sent(7.0, "n0-1", "n1-2", 1, 2)
    story.delivered(8.0, "n1-2", "n0-1", 1, 2)


@of(_a_member_that_comes_back_has_two_lives_and_one_row)
def test_a_member_that_comes_back_has_two_lives_and_one_row(found: Metrics) -> None:
    lives = [(life.label, life.start, life.end) for life in found.lives if life.name == "n1"]
    assert lives == [("n1-1", 0.0, 3.0), ("n1-2", 6.0, None)]
    [flow] = found.heard
    assert (flow.sender, flow.receiver, sum(flow.messages)) == ("n0", "n1", 2)


@told
def _a_sequence_chart_has_the_range_of_each_bin_however_many_events_there_are(story: Story) -> None:
    for number in range(400):
        at = number / 400
        story.sent(at, "n0-1", "n1-1", number + 1, number + 1)
        story.delivered(at + 0.001, "n1-1", "n0-1", number + 1, number + 1)


@of(_a_sequence_chart_has_the_range_of_each_bin_however_many_events_there_are)
def test_a_sequence_chart_has_the_range_of_each_bin_however_many_events_there_are(
    found: Metrics,
) -> None:
    [chart] = found.sequences

    tracks = {track.kind: track.marks for track in chart.tracks}
    assert set(tracks) == {"sent", "delivered"}
    assert len(tracks["sent"]) <= 240
    assert (tracks["sent"][0].lo, tracks["sent"][-1].hi) == (1, 400)
    assert all(
        later.lo == earlier.hi + 1
        for earlier, later in zip(tracks["sent"], tracks["sent"][1:], strict=False)
    )


def test_a_run_that_is_measured_with_others_is_measured_as_if_alone(
    spark: SparkSession, measured: dict[str, Metrics]
) -> None:
    name = _each_phase_of_a_fault_has_its_own_rates_and_amplification.__name__
    story = Story(name)
    TOLD[name](story)

    assert measure(story.frame(spark), name) == measured[name]


@told
def _clock_of_a_rig_that_says_nothing(story: Story) -> None:
    story.event(1000.0, "n0-1", "start")
    story.fault(1007.0, 1008.0)


@told
def _clock_of_a_rig_that_says_when(story: Story) -> None:
    _clock_of_a_rig_that_says_nothing(story)
    story.phase(1005.0, "begin")


def test_the_clock_of_a_run_starts_where_its_rig_says_or_with_its_first_event(
    measured: dict[str, Metrics],
) -> None:
    assert measured["_clock_of_a_rig_that_says_nothing"].faults[0].start == 7.0
    assert measured["_clock_of_a_rig_that_says_when"].faults[0].start == 2.0


@told
def _nothing(_story: Story) -> None:
    pass


@told
def _one_event(story: Story) -> None:
    story.event(3.0, "n0-1", "start")


def test_a_run_without_events_and_one_with_a_single_event_are_measured(
    measured: dict[str, Metrics],
) -> None:
    nothing, one = measured["_nothing"], measured["_one_event"]

    assert (nothing.events, nothing.seconds, nothing.names) == (0, 0.0, ())
    assert (one.events, one.seconds, one.names) == (1, 0.0, ("n0",))


def test_metrics_are_read_as_they_were_written(
    measured: dict[str, Metrics], tmp_path: Path
) -> None:
    for found in measured.values():
        found.write(tmp_path / "metrics.json")
        assert read_metrics(tmp_path / "metrics.json") == found


def _view(
    story: Story, at: float, member: str, number: int, *members: str, merge: bool = False
) -> None:
    text = ",".join(f"{SHORT[label]:08x}" for label in members)
    story.event(at, member, "view", members[0], lo=number, text=text, stream=int(merge))


def _only(batch: dict[str, Any]) -> dict[str, Any]:
    """What of a batch a delivery of it says otherwise than `delivered` would."""
    return {key: batch[key] for key in ("protocol", "conn")}


def _since_zero(story: Story, spark: SparkSession) -> DataFrame:
    runs = spark.createDataFrame(
        [(story.run, 0.0, 1.0, 1.0)],
        "run string, origin double, width double, fine_width double",
    )
    return metrics.since(story.frame(spark), runs)
