"""The axes of a chart over time."""

from __future__ import annotations

import re

from stormcast.pipeline.report.axes import PIXELS_PER_TICK, Axes
from stormcast.pipeline.report.scales import Linear

WIDE = 50.0 + 6 * PIXELS_PER_TICK


def places(text: str) -> list[str]:
    return re.findall(r'<text[^>]* x="([^"]*)"', text)


def test_ticks_of_time_stand_within_the_run() -> None:
    text = Axes(Linear(0.0, 60.0, 50.0, WIDE), 60.0, 100.0).time()
    found = [float(place) for place in places(text)]
    assert found[0] == 50.0
    assert found == sorted(found)
    assert found[-1] < WIDE, "the last one would stand half outside"
    assert f'x2="{WIDE:g}"' in text


def test_lines_end_where_the_run_does() -> None:
    axes = Axes(Linear(0.0, 2.0, 0.0, 200.0), 1.0, 100.0)
    assert 'x2="100"' in axes.time()
    assert 'x2="100"' in axes.hairline(10.0)


def test_values_have_a_hairline_each_but_for_0() -> None:
    text = Axes(Linear(0.0, 60.0, 50.0, WIDE), 60.0, 100.0).values(Linear(0.0, 30.0, 100.0, 0.0))
    assert text.count("<text") == text.count('class="hair"') + 1
    assert set(places(text)) == {"42"}
