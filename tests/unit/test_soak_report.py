"""The page of a soak, from its files alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from stormcast.pipeline.report.run_files import NotARun
from stormcast.pipeline.report.soak_report import is_soak, read_soak, soak_report
from stormcast.pipeline.report.writing import write

MIB = 1 << 20


def line(number: int, verdict: str = "holds", **more: object) -> dict[str, Any]:
    weights = {
        "n0:7": {"memory": 30 * MIB, "descriptors": 20, "threads": 1, "cpu": 1.0},
        "judge": {"memory": 90 * MIB, "descriptors": 9, "threads": 1, "cpu": 9.0},
    }
    return {
        "window": number,
        "verdict": verdict,
        "findings": [],
        "unrest": "",
        "seconds": 65.0,
        "sent": 1000 + number,
        "delivered": 4000,
        "trace_bytes": 9,
        "faults": {f"w{number}-loss-1": 12, f"w{number}-cut-2": 3},
        "weights": weights,
        "took": 1.0,
        **more,
    }


def soak(folder: Path, *lines: dict[str, Any], **status: object) -> Path:
    (folder / "soak.json").write_text('{"seed": 7, "backend": "sim"}')
    (folder / "windows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    drift = {"of": "members", "figure": "memory", "per_hour": 5.5 * MIB, "at_least": 4.5 * MIB}
    told = {"drift": [{**drift, "samples": 30, "verdict": "grows"}], "is_over": True, **status}
    (folder / "status.json").write_text(json.dumps(told))
    return folder


LOST = {"guarantee": "G1", "verdict": "violated", "detail": "multicast 7 <b>was</b> lost"}


def test_a_page_says_how_many_hold_and_links_those_that_do_not(tmp_path: Path) -> None:
    bad = line(2, "violated", findings=[LOST], incident="incidents/000002", runs="mcast, fast")
    text = soak_report(read_soak(soak(tmp_path, line(0), line(1), bad, line(3, "unknown"))))
    assert "<title>window 1: holds</title>" in text
    assert "<title>window 2: violated (mcast, fast)</title>" in text
    assert "<td>2 (mcast, fast)</td>" in text

    assert "2 of 4 windows hold" in text
    assert text.count('href="incidents/000002/report.html"') >= 2
    assert "G1: multicast 7 &lt;b&gt;was&lt;/b&gt; lost" in text
    assert text.count('class="window violated"') == 2, "one in each width"
    assert text.count('class="window unknown"') == 2
    assert text.count('class="window holds"') == 4
    assert "+5.5 MiB" in text
    assert "<td>loss</td><td>4</td><td>48</td>" in text
    assert "still going" not in text


def test_a_soak_that_goes_on_or_was_killed_says_so(tmp_path: Path) -> None:
    path = soak(tmp_path, line(0), is_over=False)
    with (path / "windows.jsonl").open("a") as file:
        file.write('{"window": 1, "verd')

    text = soak_report(read_soak(path))

    assert "All 1 window" in text
    assert "still going, or killed" in text


def test_a_page_does_not_hold_where_the_soak_does_not(tmp_path: Path) -> None:
    path = soak(tmp_path, line(0), verdict="unknown")
    assert chip_of(soak_report(read_soak(path))) == "unknown"
    soak(tmp_path, line(0), verdict="holds")
    assert chip_of(soak_report(read_soak(path))) == "holds"
    soak(tmp_path, line(0, "violated"), verdict="unknown")
    assert chip_of(soak_report(read_soak(path))) == "violated"


def chip_of(text: str) -> str:
    """The verdict in the headline of a page."""
    found = re.search(r"<header.*?(holds|unknown|violated)", text, re.DOTALL | re.IGNORECASE)
    assert found is not None
    return found[1].lower()


def test_before_the_first_window_there_is_a_page_too(tmp_path: Path) -> None:
    assert "No window has ended yet." in soak_report(read_soak(soak(tmp_path)))


def test_files_of_something_else_are_refused(tmp_path: Path) -> None:
    assert not is_soak(tmp_path)
    path = soak(tmp_path, line(0), line(1))
    (path / "windows.jsonl").write_text('nonsense\n{"window": 0}\n')
    with pytest.raises(NotARun, match="is no soak"):
        read_soak(path)


def test_stormcast_report_writes_it(tmp_path: Path) -> None:
    assert write(soak(tmp_path, line(0))) == [tmp_path / "report.html"]
    assert "default-src" in (tmp_path / "report.html").read_text()


def followed(path: Path, *verdicts: dict[str, Any]) -> Path:
    """A soak of which Spark says this."""
    told = {"verdict": "holds", "own": "holds", "judged": True, "agrees": True, "why": ""}
    (path / "follow").mkdir()
    text = "".join(
        json.dumps({**told, "first": one["chapter"], "findings": [], **one}) + "\n"
        for one in verdicts
    )
    (path / "follow/verdicts.jsonl").write_text(text + '{"chapter": 9, "ver')
    return path


def test_a_page_shows_what_spark_says_of_each_chapter(tmp_path: Path) -> None:
    """Chapter 2 has the windows 1 and 2; of window 4 Spark has not said anything yet."""
    gone = {"chapter": 3, "verdict": "unknown", "judged": False, "agrees": False}
    path = followed(
        soak(tmp_path, *map(line, range(5))),
        {"chapter": 0},
        {"chapter": 2, "first": 1},
        {**gone, "why": "it was dropped: 1GiB waited"},
    )

    text = soak_report(read_soak(path))

    assert "All 5 windows" in text, "the oracles have judged them"
    assert text.count('class="spark holds"') == 2 * 3
    assert text.count('class="spark unknown"') == 2
    assert text.count('class="window holds"') == 2 * 5
    assert "<dt>judged by Spark</dt><dd>3</dd>" in text
    assert "Spark: it was dropped: 1GiB waited" in text
    assert "and below it Spark" in text


def test_a_page_of_a_soak_that_nobody_follows_says_nothing_of_spark(tmp_path: Path) -> None:
    assert "Spark" not in soak_report(read_soak(soak(tmp_path, line(0), line(1, "unknown"))))


def test_a_window_about_which_the_judges_disagree_is_unknown(tmp_path: Path) -> None:
    found = {"chapter": 1, "verdict": "violated", "agrees": False, "findings": [LOST]}
    path = followed(soak(tmp_path, line(0), line(1)), {"chapter": 0}, found)

    text = soak_report(read_soak(path))

    assert chip_of(text) == "unknown"
    assert "1 of 2 windows hold" in text
    assert text.count('class="window unknown"') == 2
    assert text.count('class="spark violated"') == 2
    assert "the judges disagree: holds by the oracles, violated by Spark: G1" in text
    assert 'href="chapters/000001/report.html"' in text


def test_what_the_oracles_found_stands_where_spark_has_no_verdict(tmp_path: Path) -> None:
    gone = {"chapter": 1, "verdict": "unknown", "own": "violated", "judged": False, "agrees": False}
    bad = line(1, "violated", findings=[LOST], incident="incidents/000001")
    path = followed(soak(tmp_path, line(0), bad), {**gone, "why": "it is gone"})

    text = soak_report(read_soak(path))

    assert chip_of(text) == "violated"
    assert "G1: multicast 7 &lt;b&gt;was&lt;/b&gt; lost; Spark: it is gone" in text
    assert 'href="incidents/000001/report.html"' in text
