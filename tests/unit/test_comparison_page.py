"""The page of two soaks or runs: its numbers are those of the table, and unknown stays unknown."""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import Any

import pytest

from stormcast.chaos.soak.beside import Line, Side, lines_of, page_of, read_side
from stormcast.pipeline.report.comparison import MOST, read_comparison
from stormcast.pipeline.report.comparison_page import comparison_page
from tests.helpers.soaks import a_soak, a_window, disputed

WIDE, NARROW = 0, 1


def page(first: Side, second: Side) -> str:
    """The page, by the way that the command takes: as JSON."""
    told = page_of(first, second, lines_of(first, second))
    return comparison_page(read_comparison(json.loads(json.dumps(told))))


def sides(tmp_path: Path, first: list[dict[str, Any]], second: list[dict[str, Any]]) -> list[Side]:
    return [
        read_side(a_soak(tmp_path / "one", "udp", first)),
        read_side(a_soak(tmp_path / "two", "mcast", second)),
    ]


def windows(count: int, acks: int = 10) -> list[dict[str, Any]]:
    return [a_window(number, acks * number) for number in range(count)]


def section(text: str, title: str) -> str:
    """The section with a title."""
    found = [part for part in text.split("<section") if f"<h2>{escape(title)}</h2>" in part]
    assert len(found) == 1, title
    return found[0]


def charts(text: str, title: str) -> list[str]:
    """The charts of a section: in each width that of medians, then in each that by window."""
    return re.findall(r"<svg[^>]*class=\"chart.*?</svg>", section(text, title), re.DOTALL)


def value_at(chart: str, axis: str, pixel: float) -> float:
    """The value at a place of an axis, by the first two numbers beside it."""
    kept = r'<text class="tick" x="([\d.]+)" y="([\d.]+)"[^>]*>([\d.,]+)</text>'
    ticks = [(float(x), float(y), float(n.replace(",", ""))) for x, y, n in re.findall(kept, chart)]
    line = 0 if axis == "x" else 1
    # Values at the left all have the same x, those below the same y.
    other = max({tick[1 - line] for tick in ticks}, key=[t[1 - line] for t in ticks].count)
    (low, high) = [(tick[line], tick[2]) for tick in ticks if tick[1 - line] == other][:2]
    shift = 4.0 if axis == "y" else 0.0
    part = (pixel + shift - low[0]) / (high[0] - low[0])
    return low[1] + part * (high[1] - low[1])


def test_all_that_the_table_says_is_on_the_page(tmp_path: Path) -> None:
    first, second = sides(tmp_path, windows(9), windows(9, acks=37))
    text = page(first, second)
    lines = lines_of(first, second)
    assert len(lines) > 5
    for line in lines:
        part = section(text, line.name)
        assert all(part.count(f">{cell}</text>") >= 2 for cell in line.cells[:2]), line.name
        assert (f"<p>B / A: {line.ratio:.2f}</p>" in part) is (line.ratio is not None)
    acks = next(line for line in lines if line.name == "acks per 1,000")
    assert acks.cells == ("40 (10 to 70)", "148 (37 to 259)", "3.70")


def test_both_sides_stand_on_one_axis(tmp_path: Path) -> None:
    text = page(*sides(tmp_path, windows(9), windows(9, acks=37)))
    chart = charts(text, "acks per 1,000")[WIDE]
    disc = re.search(r'<circle class="mark first-side" cx="([\d.]+)"', chart)
    square = re.search(r'<rect class="mark second-side" x="([\d.]+)" y="[\d.]+" width="9"', chart)
    assert disc is not None
    assert square is not None
    assert value_at(chart, "x", float(disc[1])) == pytest.approx(40, abs=0.5)
    assert value_at(chart, "x", float(square[1]) + 4.5) == pytest.approx(148, abs=0.5)
    whiskers = re.findall(r'class="whisker [\w-]+" d="M([\d.]+) [\d.]+H([\d.]+)M', chart)
    ends = [round(value_at(chart, "x", float(end))) for whisker in whiskers for end in whisker]
    assert ends == [10, 70, 37, 259]


def test_values_by_window_are_those_of_each_window_and_a_gap_where_there_is_none(
    tmp_path: Path,
) -> None:
    """Window 2 of A broke off, and B has no window after the third."""
    first = [a_window(number, 100 + number) for number in range(5)]
    del first[2]["costs"]
    text = page(*sides(tmp_path, first, windows(4, acks=50)))
    chart = charts(text, "acks per 1,000")[2 + WIDE]
    lines = re.findall(r'class="line [\w-]+" d="([^"]+)"', chart)
    assert [re.sub(r"[\d. ]+", "", line) for line in lines] == ["MLML", "MLLL"]
    dots = [re.findall(r"M[\d.]+ ([\d.]+)h0", found) for found in re.findall(r'd="([^"]+)"', chart)]
    values = [[round(value_at(chart, "y", float(y))) for y in found] for found in dots if found]
    assert values == [[100, 101, 103, 104], [0, 50, 100, 150]]


@pytest.mark.parametrize("word", ["unknown", "passed", "HOLDS"])
def test_a_window_that_is_not_known_to_hold_is_shown_as_unknown(tmp_path: Path, word: str) -> None:
    bad = [a_window(number, 1, word if number == 1 else "holds") for number in range(3)]
    text = page(*sides(tmp_path, windows(3), bad))
    strips = charts(text, "Verdicts")
    assert len(strips) == 2
    for chart in strips:
        (bar,) = re.findall(r'<rect class="window (\w+)"[^>]*><title>B, window 1: (\w+)<', chart)
        assert bar == ("unknown", word)
        assert chart.count('class="window holds"') == 5 + 1, "five windows, and the key"
    assert "<td>1</td>" in section(text, "Verdicts")
    assert re.search(r'<header class="verdict.*?chip unknown.*?</header>', text, re.DOTALL)
    assert "<td>as a whole</td>" in section(text, "What was compared")
    assert f"1 {word}</span>" in section(text, "What was compared")


def test_a_disputed_window_is_shown_as_unknown(tmp_path: Path) -> None:
    first, _ = sides(tmp_path, windows(3), windows(3))
    disputed(tmp_path / "two", 1, 1)
    text = page(first, read_side(tmp_path / "two"))
    assert "B, window 1: unknown" in text
    assert "B, window 2: holds" in text


def test_a_worse_verdict_is_a_higher_bar_and_no_window_no_bar(tmp_path: Path) -> None:
    """Colour alone does not tell verdicts apart."""
    said = ("holds", "unknown", "violated")
    first = [a_window(number, 1, verdict) for number, verdict in enumerate(said)]
    text = page(*sides(tmp_path, first, windows(1)))
    chart = charts(text, "Verdicts")[NARROW]
    kept = r'height="([\d.]+)"[^>]*><title>([AB]), window (\d): (\w+)<'
    bars = {(side, int(n)): float(height) for height, side, n, _ in re.findall(kept, chart)}
    assert bars["A", 0] < bars["A", 1] < bars["A", 2]
    assert [window for side, window in bars if side == "B"] == [0]


def test_names_from_files_are_text(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    first, second = (
        a_soak(tmp_path / name, "udp", [a_window(0, 1, evil)]) for name in ("<script>", "b")
    )
    for soak in (first, second):
        told = json.loads((soak / "soak.json").read_text())
        told["backend"] = f"{evil}{soak.name}"
        told["played_by"][0]["versions"][evil] = evil
        (soak / "soak.json").write_text(json.dumps(told))
    text = page(read_side(first), read_side(second))
    assert "<script" not in text
    assert text.count("&lt;script&gt;alert(1)") > 5
    assert "default-src &#x27;none&#x27;" in text
    assert not re.findall(r"(?:href|src)=|url\(", text), "it loads nothing"


def test_a_figure_of_one_side_is_not_drawn_and_the_page_says_so(tmp_path: Path) -> None:
    memory = "memory of the largest member, MiB"
    light = windows(3)
    for window in light:
        del window["weights"]["n0-1"]
    text = page(*sides(tmp_path, windows(3), light))
    assert f"<h2>{memory}</h2>" not in text
    told = section(text, "Not drawn")
    assert f"<td>{memory}</td><td>8</td><td>has none</td>" in told
    resync = "seconds until all is well after the last heal"
    assert f"<td>{resync}</td><td>has none</td><td>has none</td>" in told


def test_a_side_of_few_windows_has_no_whisker(tmp_path: Path) -> None:
    text = page(*sides(tmp_path, windows(9), windows(5)))
    assert "B has too few for one" in section(text, "acks per 1,000")
    assert re.findall(r"whisker ([\w-]+)", charts(text, "acks per 1,000")[WIDE]) == ["first-side"]


def test_sides_that_were_not_played_alike_carry_the_warning_of_the_command(tmp_path: Path) -> None:
    first = read_side(a_soak(tmp_path / "one", "udp", windows(1)))
    alike = read_side(a_soak(tmp_path / "two", "mcast", windows(1)))
    other = read_side(a_soak(tmp_path / "three", "udp", windows(1), seed=4))
    said = "they were not played alike: seed, members, loads, faults or network differ"
    assert said not in page(first, alike)
    assert said in page(first, other)
    told = section(page(first, alike), "What was compared")
    assert '<td>seed</td><td colspan="2" class="both">3</td>' in told
    assert "<td>stack</td><td>udp</td><td>mcast</td>" in told


def test_two_runs_have_one_value_each_and_no_windows() -> None:
    runs = [
        Side(
            path=Path(name),
            played="1",
            parts=({"verdict": verdict, "sent": 100, "costs": costs(frames), "weights": {}},),
            whole=verdict,
            facts={"seed": "1"},
            is_soak=False,
        )
        for name, verdict, frames in (("a", "holds", 50), ("b", "unknown", 75))
    ]
    text = page(*runs)
    assert "<h2>Verdicts</h2>" not in text
    assert len(charts(text, "frames per 1,000 messages")) == 2, "one in each width"
    assert "<p>B / A: 1.50</p>" in text
    assert "whisker " not in text.partition("</style>")[2]
    assert "1 unknown</span>" in text


def costs(frames: int) -> dict[str, float | None]:
    names = ("acks", "requests", "resent", "syncs", "unacked", "unacked_bytes")
    return {**dict.fromkeys(names, 0), "frames": frames, "resync": None}


def test_of_many_bad_windows_the_worst_are_listed_first(tmp_path: Path) -> None:
    bad = [a_window(number, 1, "unknown") for number in range(60)]
    bad[57]["verdict"] = "violated"
    told = section(page(*sides(tmp_path, windows(60), bad)), "Verdicts")
    assert re.findall(r"<td>(\d+)</td>", told) == ["57", *map(str, range(49))]
    assert "and 10 more" in told


@pytest.mark.slow
def test_many_windows_share_places_and_the_worst_of_them_is_shown(tmp_path: Path) -> None:
    """Three windows share a place; of 700 one is violated, and one beside it unknown."""
    many = windows(700)
    many[301]["verdict"], many[302]["verdict"] = "unknown", "violated"
    text = page(*sides(tmp_path, many, windows(700)))
    chart = charts(text, "Verdicts")[WIDE]
    assert "A, windows 300 to 302, at worst: violated" in chart
    assert "B, windows 699 to 699" not in chart
    assert "B, window 699: holds" in chart
    assert chart.count("<title>A, ") == 234 <= MOST
    by_window = charts(text, "acks per 1,000")[2 + WIDE]
    dots = re.findall(r'class="dots first-side small" d="([^"]+)"', by_window)
    assert dots[0].count("M") == 234
    assert len(text) < 700_000


def test_a_line_says_as_much_as_the_table() -> None:
    line = Line(name="acks", by_part=((None, 1.0, 3.0), (None,)))
    assert line.values == ((1.0, 3.0), ())
    assert line.cells == ("2", "-", "")
