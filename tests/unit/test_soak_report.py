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
    bad = line(2, "violated", findings=[LOST], incident="incidents/000002")
    text = soak_report(read_soak(soak(tmp_path, line(0), line(1), bad, line(3, "unknown"))))

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
