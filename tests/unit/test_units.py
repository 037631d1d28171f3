"""Quantities: every unit, the bounds, and that what is written reads back exactly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormcast.node.reading.quantities import (
    BANDWIDTH,
    DURATION,
    RATE,
    RATIO,
    SHARE,
    SIZE,
    Quantity,
    UnitError,
)


@pytest.mark.parametrize(
    ("quantity", "text", "value"),
    [
        (DURATION, "0s", 0.0),
        (DURATION, "250us", 0.00025),
        (DURATION, "500ms", 0.5),
        (DURATION, "1.1ms", 0.0011),
        (DURATION, "5s", 5.0),
        (DURATION, "2min", 120.0),
        (DURATION, "1.5h", 5400.0),
        (SIZE, "100B", 100),
        (SIZE, "1KiB", 1024),
        (SIZE, "1.5KiB", 1536),
        (SIZE, "4MiB", 4 << 20),
        (SIZE, "1GiB", 1 << 30),
        (SIZE, "1KB", 1000),
        (SIZE, "2MB", 2_000_000),
        (RATE, "200/s", 200.0),
        (RATE, "30/min", 0.5),
        (SHARE, "5%", 0.05),
        (SHARE, "0.5%", 0.005),
        (BANDWIDTH, "8Mbit/s", 1_000_000.0),
        (BANDWIDTH, "1Gbit/s", 125_000_000.0),
        (BANDWIDTH, "64kbit/s", 8000.0),
        (BANDWIDTH, "8bit/s", 1.0),
        (BANDWIDTH, "1MiB/s", float(1 << 20)),
        (BANDWIDTH, "10KiB/s", 10240.0),
        (BANDWIDTH, "7B/s", 7.0),
    ],
)
def test_a_number_and_its_unit_are_read_exactly(
    quantity: Quantity, text: str, value: float
) -> None:
    assert quantity.parse(text) == value


@pytest.mark.parametrize(
    ("quantity", "text", "message"),
    [
        (
            DURATION,
            "5",
            "it has no unit; write a duration such as 500ms (units: s, ms, us, min, h)",
        ),
        (DURATION, "5sec", "it has the unknown unit 'sec'"),
        (DURATION, "5 s", "it has the unknown unit ' s'"),
        (DURATION, "5S", "it has the unknown unit 'S'"),
        (DURATION, "5s\n", "it has the unknown unit 's\\n'"),
        (DURATION, "1e3s", "it has the unknown unit 'e3s'"),
        (DURATION, "-1s", "write a duration such as 500ms"),
        (DURATION, ".5s", "write a duration such as 500ms"),
        (DURATION, "soon", "write a duration such as 500ms"),
        (DURATION, "", "write a duration such as 500ms"),
        (DURATION, "٣s", "write a duration such as 500ms"),
        (SIZE, "1kB", "it has the unknown unit 'kB'"),
        (SIZE, "0.5B", "it is not a whole number of bytes"),
        (RATE, "200", "it has no unit; write a rate such as 200/s"),
        (SHARE, "0.05", "it has no unit; write a share such as 5%"),
        (BANDWIDTH, "8Mbit", "it has the unknown unit 'Mbit'"),
        (BANDWIDTH, "8MB/s", "it has the unknown unit 'MB/s'"),
    ],
)
def test_anything_else_is_refused_with_what_to_write(
    quantity: Quantity, text: str, message: str
) -> None:
    with pytest.raises(UnitError) as caught:
        quantity.parse(text)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("quantity", "limit", "beyond"),
    [
        (DURATION, "1000h", "1000.001h"),
        (SIZE, "1024GiB", "1024.5GiB"),
        (RATE, "1000000000/s", "1000000001/s"),
        (SHARE, "100%", "100.1%"),
        (RATIO, "100000%", "100001%"),
        (BANDWIDTH, "8000Gbit/s", "8001Gbit/s"),
    ],
)
def test_each_kind_has_a_limit_that_holds_and_just_past_it_fails(
    quantity: Quantity, limit: str, beyond: str
) -> None:
    assert quantity.parse(limit) == float(quantity.most)
    with pytest.raises(UnitError, match="above the limit"):
        quantity.parse(beyond)


def test_a_number_of_a_million_digits_is_refused_before_it_is_computed() -> None:
    with pytest.raises(UnitError):
        DURATION.parse("9" * 1_000_000 + "s")


@pytest.mark.parametrize(
    ("quantity", "value", "text"),
    [
        (DURATION, 5.0, "5s"),
        (DURATION, 0.0005, "500us"),
        (DURATION, 0.5, "500ms"),
        (DURATION, 1.0 / 3.0, "0.3333333333333333s"),
        (DURATION, 120.0, "120s"),
        (DURATION, 0.001, "1ms"),
        (SIZE, 4 << 20, "4MiB"),
        (SIZE, 100, "100B"),
        (RATE, 200.0, "200/s"),
        (SHARE, 0.05, "5%"),
        (BANDWIDTH, 1_000_000.0, "8Mbit/s"),
    ],
)
def test_a_text_without_a_point_is_written_if_there_is_one_and_a_short_one(
    quantity: Quantity, value: float, text: str
) -> None:
    assert quantity.write(value) == text


@given(st.floats(0.0, 3_600_000.0).filter(lambda value: value == 0.0 or value > 1e-9))
def test_any_duration_reads_back_exactly(value: float) -> None:
    assert DURATION.parse(DURATION.write(value)) == value


@given(st.floats(1e-9, 1.0))
def test_any_share_reads_back_exactly(value: float) -> None:
    assert SHARE.parse(SHARE.write(value)) == value


@given(st.integers(0, 1 << 40))
def test_any_size_reads_back_exactly(value: int) -> None:
    assert SIZE.parse(SIZE.write(value)) == value


@given(st.floats(1e-6, 1e12))
def test_any_bandwidth_reads_back_exactly(value: float) -> None:
    assert BANDWIDTH.parse(BANDWIDTH.write(value)) == value


@given(st.floats(1e-6, 1e9))
def test_any_rate_reads_back_exactly(value: float) -> None:
    assert RATE.parse(RATE.write(value)) == value
