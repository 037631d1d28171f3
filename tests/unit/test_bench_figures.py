"""Rounds to medians, ratios and JSON."""

from __future__ import annotations

import json

import pytest

from bench import figures
from bench.errors import BenchError
from bench.machine import cpu_model
from bench.members_cli import parse_bytes, parse_delay, parse_share
from bench.percentiles import percentiles
from bench.teams import throughput
from bench.work import Work

LOAD = Work(mode="multicast")
TRIPS = Work(mode="roundtrip", members=2)


def rates(*values: float) -> list[figures.Round]:
    return [{"rate": value, "seconds": 1.0} for value in values]


def trips(p50: float | None, count: int, seconds: float = 5.0) -> figures.Round:
    return {"p50_us": p50, "p99_us": p50, "p99_9_us": p50, "count": count, "seconds": seconds}


def test_a_figure_is_the_median_of_its_rounds_and_a_ratio_is_ours_by_theirs() -> None:
    said = figures.report(LOAD, {"ours": rates(90, 300, 120), "jgroups": rates(40, 80, 60)})
    assert (said["ours"], said["peers"], said["ratio"]) == (120, {"jgroups": 60}, {"jgroups": 2.0})
    assert said["spread"] == {"ours": 1.75, "jgroups": 0.6667}
    assert said["rounds"]["jgroups"] == rates(40, 80, 60)


def test_a_peer_without_rounds_has_no_figure_and_no_ratio() -> None:
    said = figures.report(LOAD, {"ours": rates(5), "raw": []})
    assert (said["peers"], said["ratio"], said["spread"]["raw"]) == (
        {"raw": None},
        {"raw": None},
        None,
    )
    assert json.loads(json.dumps(said)) == said


def test_without_ours_there_are_no_ratios() -> None:
    said = figures.report(LOAD, {"raw": rates(5)})
    assert (said["ours"], said["ratio"]) == (None, {"raw": None})


def test_round_trips_are_counted_per_five_seconds_whatever_a_round_took() -> None:
    """Three rounds of one second with 10, 30 and 20 round trips; one of them without an answer."""
    rounds = [trips(100, 10, 1.0), trips(300, 30, 1.0), trips(200, 20, 1.0)]
    said = figures.report(TRIPS, {"ours": rounds})
    assert said["ours"] == 200
    assert said["details"]["ours"]["count_in_5_s"] == 100
    assert figures.headline(TRIPS, trips(None, 0)) is None


def test_a_round_in_which_nothing_came_back_leaves_no_figure() -> None:
    said = figures.report(
        TRIPS, {"ours": [trips(50, 9)], "jgroups": [trips(80, 9), trips(None, 0)]}
    )
    assert said["peers"] == {"jgroups": None}
    assert said["ratio"] == {"jgroups": None}


def test_a_median_of_nothing_has_no_spread() -> None:
    said = figures.report(LOAD, {"ours": rates(0, 0, 5), "raw": rates(0, 0, 0)})
    assert said["spread"] == {"ours": None, "raw": 0.0}
    json.dumps(said, allow_nan=False)


def test_the_rate_of_a_group_is_the_mean_over_its_members() -> None:
    answers = [
        {"seconds": 2.0, "sent": 10, "delivered": 20},
        {"seconds": 1.0, "sent": 30, "delivered": 40},
    ]
    assert throughput(answers, answers)["rate"] == 25
    assert throughput(answers, answers)["per_member"] == [10, 40]
    assert throughput(answers, answers)["sent"] == 40


def test_percentiles_are_in_microseconds() -> None:
    times = [number * 1e-6 for number in range(1, 1001)]
    assert percentiles(times) == {"p50_us": 501.0, "p99_us": 991.0, "p99_9_us": 1000.0}
    assert percentiles([]) == {"p50_us": None, "p99_us": None, "p99_9_us": None}


def test_loss_is_a_share_or_per_cent_delay_milliseconds_or_with_a_unit() -> None:
    assert (parse_share("0.05"), parse_share("5%")) == (0.05, 0.05)
    assert (parse_delay("20"), parse_delay("20ms"), parse_delay("1s")) == (0.02, 0.02, 1.0)
    assert (parse_bytes("1000"), parse_bytes("60KiB")) == (1000, 61440)
    with pytest.raises(BenchError, match="--loss many"):
        parse_share("many")


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"mode": "broadcast"}, "no mode broadcast"),
        ({"transport": "sctp"}, "no transport sctp"),
        ({"members": 1}, "--members"),
        ({"size": 0}, "--size"),
        ({"loss": 1.0}, "--loss"),
        ({"loss": 0.1, "transport": "tcp"}, "use --transport udp"),
        ({"delay": -1.0}, "--delay"),
    ],
)
def test_work_that_cannot_be_done_is_refused(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(BenchError, match=complaint):
        Work(**{"mode": "multicast", **values})  # type: ignore[arg-type]


def test_the_processor_is_named_as_the_kernel_names_it() -> None:
    assert cpu_model("processor\t: 0\nmodel name\t: Fast One: 3 GHz\n") == "Fast One: 3 GHz"
