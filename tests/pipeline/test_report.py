"""The report: pure text out of kept numbers; nothing that a trace says can be markup."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, ClassVar
from xml.etree import ElementTree as ET

import pytest

from stormcast import suite
from stormcast.chaos.campaigns.live import KINDS, MULTICASTS, live_runs
from stormcast.chaos.language.scenario import dump
from stormcast.pipeline.measured import (
    SCHEMA,
    BadMetrics,
    Breach,
    FaultWindow,
    Flow,
    Grid,
    LatencyBin,
    Life,
    Mark,
    Metrics,
    Pair,
    PairTime,
    Phase,
    ResyncTimes,
    Sequence,
    Track,
    View,
    ViewSpan,
    natural,
    read_metrics,
)
from stormcast.pipeline.questions import CannotError
from stormcast.pipeline.report import quantities, scales
from stormcast.pipeline.report.cli import report
from stormcast.pipeline.report.markup import Markup, plain, tag
from stormcast.pipeline.report.page import as_json
from stormcast.pipeline.report.run_files import read_run
from stormcast.pipeline.report.writing import write, write_batch, write_report

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&\x00\u202e"
SECTIONS = ("evidence", "guarantees", "faults", "throughput", "heard", "latency", "repairs",
            "views", "sequences", "pairs", "run")  # fmt: skip  # a list of words
PHASE = Phase(seconds=10.0, sent=100, delivered=200, resent=10, requested=5, acks=20)


def some_metrics(name: str = "n") -> Metrics:
    """Two members, one partition, everything there is to show."""
    zero, one = f"{name}0", f"{name}1"
    resync = ResyncTimes(
        pairs=2,
        first_median=0.1,
        first_slowest=PairTime(sender=zero, receiver=one, seconds=0.25),
        repaired_messages=7,
        repaired_slowest=PairTime(sender=one, receiver=zero, seconds=1.5),
        one_view=2.0,
    )
    return Metrics(
        schema=SCHEMA,
        run="some",
        seconds=60.0,
        events=1234,
        quiet=30.0,
        grid=Grid(width=1.0, count=40),
        sequence_grid=Grid(width=0.5, count=80),
        lives=(
            Life(label=f"{zero}-1", name=zero, start=0.0, end=None),
            Life(label=f"{one}-1", name=one, start=0.0, end=25.0),
        ),
        whole=PHASE,
        faults=(
            FaultWindow(id="f1", do=f"partition{name[1:]}", start=10.0, end=20.0,
                        is_over_at_once=False, member=None, bites=42, before=PHASE, during=PHASE,
                        after=PHASE, resync=resync),
            FaultWindow(id="f2", do="crash", start=25.0, end=None, is_over_at_once=True,
                        member=one, bites=1, before=PHASE, after=PHASE),
        ),
        sent=(Flow(sender=zero, receiver="", messages=(5,) * 40),),
        heard=(
            Flow(sender=zero, receiver=one, messages=(5,) * 20 + (0,) * 20),
            Flow(sender=one, receiver=zero, messages=(3,) * 40),
        ),
        resent=(0,) * 10 + (4,) * 10 + (0,) * 20,
        requested=(0,) * 12 + (2,) * 8 + (0,) * 20,
        latency=(LatencyBin(bin=3, messages=9, p50=0.002, p90=0.01, p99=0.1, most=0.5),),
        latency_whole=LatencyBin(bin=0, messages=9, p50=0.002, p90=0.01, p99=0.1, most=0.5),
        untimed=0,
        views=(
            View(number=1, creator=zero, members=(zero, one)),
            View(number=2, creator=None, members=(zero,)),
        ),
        view_spans=(
            ViewSpan(name=zero, label=f"{zero}-1", start=1.0, view=0, is_merge=False),
            ViewSpan(name=one, label=f"{one}-1", start=1.0, view=0, is_merge=False),
            ViewSpan(name=zero, label=f"{zero}-1", start=15.0, view=1, is_merge=True),
        ),
        pairs=(Pair(sender=zero, receiver=one, protocol="UNICAST3", delivered=100, resent=9),),
        sequences=(
            Sequence(
                sender=zero,
                receiver=one,
                protocol="UNICAST3",
                tracks=tuple(
                    Track(kind=kind, conn=1, marks=(Mark(bin=1, lo=1, hi=9), Mark(bin=9, lo=10,
                                                                                 hi=20)))
                    for kind in ("sent", "delivered", "acked", "requested", "retransmitted")
                ),
            ),
        ),
    )  # fmt: skip  # a list of words


def a_verdict(verdict: str = "holds", **more: object) -> dict[str, Any]:
    witness = ["n0#52 t=3.000 sent to n1 conn 0 seqnos 25..25"] if verdict == "violated" else []
    detail = "seqno 25 was sent and never delivered" if witness else "no violation found"
    return {
        "scenario": "some-scenario",
        "verdict": verdict,
        "guarantees": {"G1": verdict, "G3": "holds"},
        "findings": [
            {"guarantee": "G3", "verdict": "holds", "detail": "no violation found", "witness": []},
            {"guarantee": "G1", "verdict": verdict, "detail": detail, "witness": witness},
        ],
        "seed": 7,
        "messages": 100,
        "delivered": 200,
        "faults": {"f1": 42, "f2": 1},
        **more,
    }


def a_run(
    directory: Path,
    verdict: dict[str, Any] | None = None,
    metrics: Metrics | None = None,
    scenario: str = "cluster: {members: 2, stack: udp}\nabout: Two members.\n",
) -> Path:
    """A run directory, as `stormcast run` and `stormcast verify` leave it."""
    (directory / "verify").mkdir(parents=True)
    (directory / "verdict.json").write_text(json.dumps(verdict or a_verdict()))
    (directory / "scenario.yaml").write_text(scenario)
    (directory / "versions.json").write_text('{"stormcast": "0.1.0"}')
    if metrics is not None:
        metrics.write(directory / "verify/metrics.json")
    return directory


class Page(HTMLParser):
    """A page that is parsed as a browser would; what is not closed in its order fails."""

    VOID: ClassVar = {"meta", "br", "hr", "link"}

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def rendered(run: Path) -> str:
    return write_report(run).read_text()


def drawings(page: str) -> list[str]:
    return [f"<svg{part.partition('</svg>')[0]}</svg>" for part in page.split("<svg")[1:]]


def test_every_section_is_there_and_the_verdict_is_first(tmp_path: Path) -> None:
    page = Page(rendered(a_run(tmp_path / "run", metrics=some_metrics())))

    ids = [attributes["id"] for name, attributes in page.tags if name == "section"]
    assert tuple(ids) == SECTIONS
    headings = [name for name, _attributes in page.tags if name in ("h1", "h2")]
    assert headings[0] == "h1"
    assert headings.count("h1") == 1
    assert page.text.index("Holds") < page.text.index("Evidence")


def test_a_violation_is_told_with_its_witness_before_what_holds(tmp_path: Path) -> None:
    verdict = a_verdict("violated")
    page = Page(rendered(a_run(tmp_path / "run", verdict, some_metrics())))

    assert "G1 (no loss) was broken: seqno 25 was sent and never delivered." in page.text
    assert "n0#52 t=3.000 sent to n1 conn 0 seqnos 25..25" in page.text
    assert page.text.index("No loss") < page.text.index("In order")


def test_an_unknown_run_never_looks_like_one_that_holds(tmp_path: Path) -> None:
    verdict = a_verdict("unknown", faults={"f1": 0})
    page = Page(rendered(a_run(tmp_path / "run", verdict)))

    [top] = [at for name, at in page.tags if name == "header" and at.get("class")]
    assert top["class"] == "verdict unknown"
    assert "This run proves nothing" in page.text
    assert "A fault did nothing" in page.text


def test_a_verdict_that_nobody_knows_is_unknown(tmp_path: Path) -> None:
    page = Page(rendered(a_run(tmp_path / "run", a_verdict("splendid"))))

    assert "verdict unknown" in [at.get("class") for name, at in page.tags if name == "header"]


def test_two_judges_that_disagree_are_told_of(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", a_verdict("holds"), some_metrics())
    (run / "verify/verdict.json").write_text(json.dumps(a_verdict("violated")))

    page = Page(rendered(run))

    assert "differ on G1" in page.text
    assert "Violated" in page.text


def test_two_judges_that_agree_are_evidence(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", a_verdict("holds"), some_metrics())
    verdict = a_verdict("holds")
    verdict["findings"][0]["by"] = "oracles"
    (run / "verify/verdict.json").write_text(json.dumps(verdict))

    text = Page(rendered(run)).text

    assert "Two judges agree" in text
    # What Spark only repeats is not claimed for it.
    assert "judged 1 of 2 guarantees itself" in text


def test_without_metrics_the_verdict_is_shown_and_the_way_to_them(tmp_path: Path) -> None:
    page = Page(rendered(a_run(tmp_path / "run")))

    assert "Run stormcast verify on this directory" in page.text
    assert not any(attributes.get("class") == "chart wide" for _name, attributes in page.tags)


def test_whom_faults_struck_is_shown_by_pair_whoever_judged(tmp_path: Path) -> None:
    """The run alone has counted it, and Spark's verdict says nothing of it."""
    struck = {"f1": {"n0 n1": 40, "n1 n0": 2}, "f2": {}, HOSTILE: {f"{HOSTILE} n1": 9}}
    run = a_run(tmp_path / "run", a_verdict(faults_by_pair=struck), some_metrics())
    (run / "verify/verdict.json").write_text(json.dumps(a_verdict()))

    page = Page(rendered(run))

    assert "f1, 42 times" in page.text
    assert "n0 → n1: f1 struck 40 times" in page.text
    assert "f2, " not in page.text
    assert not any(name == "img" for name, _attributes in page.tags)


def test_of_many_faults_those_that_struck_most_have_a_map(tmp_path: Path) -> None:
    struck = {f"f{number}": {"n0 n1": number} for number in range(1, 10)}
    page = Page(rendered(a_run(tmp_path / "run", a_verdict(faults_by_pair=struck))))

    assert "f4, 4 times" in page.text
    assert "f3, 3 times" not in page.text
    assert "and 3 faults that struck less" in page.text


def test_the_runs_own_time_until_all_was_well_is_evidence(tmp_path: Path) -> None:
    resync = {"after": 12.0, "seconds": 1.5, "first_delivery": 0.25, "one_view": None}
    alone = Page(rendered(a_run(tmp_path / "alone", a_verdict(resync=resync))))
    verified = Page(
        rendered(a_run(tmp_path / "verified", a_verdict(resync=resync), some_metrics()))
    )

    said = "1.5 s after the last heal, at 12 s, all was well again: first delivery after 250 ms."
    assert said in alone.text.replace("\u202f", " ")
    # What was measured pair by pair says it better.
    assert "after the last heal" not in verified.text


def test_metrics_of_another_version_are_not_shown(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", metrics=replace(some_metrics(), schema=99))

    assert "of another version" in Page(rendered(run)).text


def test_damaged_metrics_say_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    for text in ("{", '{"schema": 1}', '{"schema": 1, "run": 5}', "[]"):
        path.write_text(text)
        with pytest.raises(BadMetrics, match="run stormcast verify again"):
            read_metrics(path)


def test_nothing_that_a_trace_or_file_says_is_markup(tmp_path: Path) -> None:
    verdict = a_verdict(
        "violated",
        scenario=HOSTILE,
        backend=HOSTILE,
        fate=HOSTILE,
        notes=[HOSTILE],
        findings=[
            {"guarantee": HOSTILE, "verdict": HOSTILE, "detail": HOSTILE, "witness": [HOSTILE]}
        ],
        guarantees={HOSTILE: "violated"},
        faults={HOSTILE: 3},
    )
    scenario = json.dumps({"about": HOSTILE, "cluster": {"stack": HOSTILE, "timing": HOSTILE}})
    run = a_run(tmp_path / "run", verdict, some_metrics(f"n{HOSTILE}"), scenario)

    page = rendered(run)

    parsed = Page(page)
    assert not [name for name, _attributes in parsed.tags if name == "img"]
    assert not [key for _name, at in parsed.tags for key in at if key.startswith("on")]
    assert [name for name, _attributes in parsed.tags].count("script") == 2
    assert "\x00" not in page
    assert "\u202e" not in page


def test_every_drawing_is_well_formed(tmp_path: Path) -> None:
    page = rendered(a_run(tmp_path / "run", metrics=some_metrics(HOSTILE)))

    assert len(drawings(page)) > 15
    for drawing in drawings(page):
        for element in ET.fromstring(drawing).iter():  # noqa: S314 we wrote it
            numbers = [element.get(key) for key in ("x", "y", "width", "height", "x1", "y2")]
            assert all(float(value) > -10 for value in numbers if value is not None)
            assert "nan" not in (element.get("d") or "")


def test_a_page_fetches_nothing_and_says_so(tmp_path: Path) -> None:
    page = rendered(a_run(tmp_path / "run", metrics=some_metrics()))

    parsed = Page(page)
    [policy] = [at["content"] for name, at in parsed.tags if "http-equiv" in at]
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert not [at for _name, at in parsed.tags if at.get("src")]
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page


def test_the_same_run_gives_the_same_page(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", metrics=some_metrics())

    assert rendered(run) == rendered(run)


@pytest.mark.parametrize("events", [0, 1])
def test_a_run_of_nothing_or_one_event_has_a_page(tmp_path: Path, events: int) -> None:
    life = Life(label="n0-1", name="n0", start=0.0, end=None)
    empty = Metrics(
        schema=1, run="x", seconds=0.0, events=events, quiet=None, grid=Grid(width=0.001, count=1),
        sequence_grid=Grid(width=0.001, count=1), lives=(life,) * events, whole=Phase(seconds=0.0),
        faults=(), sent=(), heard=(), resent=(), requested=(), latency=(), latency_whole=None,
        untimed=0, views=(), view_spans=(), pairs=(), sequences=(),
    )  # fmt: skip  # a list of words

    page = rendered(a_run(tmp_path / "run", metrics=empty))

    Page(page)
    for drawing in drawings(page):
        ET.fromstring(drawing)  # noqa: S314 we wrote it


def test_the_page_of_many_runs_links_each_report_worst_first(tmp_path: Path) -> None:
    for name, verdict in (("a", "holds"), ("b #1", "violated"), ("c", "unknown")):
        a_run(tmp_path / name, a_verdict(verdict, scenario=f"scenario-{name[0]}"))

    *reports, index = write(tmp_path)

    assert len(reports) == 3
    page = Page(index.read_text())
    links = [at["href"] for name, at in page.tags if name == "a"]
    # First what did not hold, then the whole table, in the same order.
    assert links == [
        "b%20%231/report.html",
        "c/report.html",
        "b%20%231/report.html",
        "c/report.html",
        "a/report.html",
    ]
    assert "1 of 3 runs hold." in page.text
    assert "Violated" in page.text


def heading(page: Path) -> tuple[str, str]:
    """Return the verdict in the header of a page, and its title."""
    text = page.read_text()
    verdict = text.partition('<header class="verdict ')[2].partition('"')[0]
    return verdict, text.partition("<title>")[2].partition("<")[0].partition(": ")[2]


@pytest.mark.parametrize("mark", ["begun", "trace/n0-1.trace"])
def test_a_run_without_a_verdict_is_unknown_on_the_page_of_its_batch(
    tmp_path: Path, mark: str
) -> None:
    """It was killed before it was judged, or its test failed before."""
    a_run(tmp_path / "a")
    a_run(tmp_path / "b" / "run")
    (tmp_path / "b" / "run" / "verdict.json").unlink()
    (tmp_path / "b" / "run" / mark).parent.mkdir(exist_ok=True)
    (tmp_path / "b" / "run" / mark).write_text("")

    *reports, page = write(tmp_path)

    assert [heading(report)[0] for report in reports] == ["holds", "unknown"]
    assert heading(page) == ("unknown", "1 of 2 runs hold.")
    assert "it ended before it was judged" in page.read_text()


def test_directories_of_runs_and_of_soaks_are_no_runs_without_verdict(tmp_path: Path) -> None:
    a_run(tmp_path / "batch" / "a")
    (tmp_path / "soak").mkdir()
    (tmp_path / "soak" / "soak.json").write_text("{}")
    for name in ("batch", "batch/a", "soak"):
        (tmp_path / name / "begun").write_text("")

    assert heading(write(tmp_path)[-1]) == ("holds", "The only run holds.")


def test_the_latest_run_counts_once(tmp_path: Path) -> None:
    """The link `latest` beside runs leads to it, too; one that leads elsewhere counts."""
    for place in ("batch/a", "batch/deep/b", "elsewhere"):
        a_run(tmp_path / place)
    batch = tmp_path / "batch"
    (batch / "latest").symlink_to("a")
    (batch / "deep/latest").symlink_to("b")
    (batch / "c").symlink_to(tmp_path / "elsewhere")

    *reports, page = write(batch)

    assert [report.parent for report in reports] == [batch / "a", batch / "c", batch / "deep/b"]
    assert heading(page) == ("holds", "All 3 runs hold.")
    assert 'href="../elsewhere/report.html"' in page.read_text()


def test_a_run_that_was_not_judged_has_a_report_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "begun").write_text("")
    (tmp_path / "seed").write_text("7\n")
    (report,) = write(tmp_path)
    assert heading(report)[0] == "unknown"
    assert "seed 7" in Page(report.read_text()).text


def a_chaos_test(directory: Path, verdict: str, *without: dict[str, str]) -> Path:
    """What chaos-test leaves: a run that holds, and what it says of that and of others."""
    run = a_run(directory / "order-on-udp", a_verdict(backend="netns"))
    (directory / "begun").write_text("")
    rows = [{"scenario": "order", "protocol": "NAKACK2 on UDP", "verdict": "holds"}, *without]
    rows[0]["run"] = str(run)
    report = {"verdict": verdict, "runs": rows}
    (directory / "chaos-test.json").write_text(json.dumps(report))
    return directory


def test_runs_of_chaos_test_that_left_no_directory_are_on_its_page(tmp_path: Path) -> None:
    """They were not begun in time, or this machine cannot do them."""
    late = {
        "scenario": "order",
        "protocol": "NAKACK2 on TCP, no retransmission",
        "verdict": "unknown",
        "detail": "not begun within 540s",
        "run": "",
    }
    refused = late | {"protocol": "UNICAST", "verdict": "unsupported", "detail": "no queue"}
    batch = a_chaos_test(tmp_path / "batch", "unknown", late, refused)

    page = write(batch)[-1]

    assert heading(page) == ("unknown", "1 of 3 runs hold.")
    text = Page(page.read_text()).text
    assert "NAKACK2 on TCP, no retransmission fast unknown run: not begun within 540s" in text
    assert "UNICAST fast unsupported no queue" in text


def test_what_no_machine_can_run_leaves_the_verdict_on_the_page(tmp_path: Path) -> None:
    refused = {"scenario": "x", "protocol": "udp", "verdict": "unsupported", "run": ""}
    batch = a_chaos_test(tmp_path / "batch", "holds", refused)
    assert heading(write(batch)[-1]) == ("holds", "1 of 2 runs hold.")


@pytest.mark.parametrize("said", ['{"verdict": "unknown", "runs": []}', "{", "[]", None])
def test_what_chaos_test_says_of_all_its_runs_is_on_its_page(
    tmp_path: Path, said: str | None
) -> None:
    """Spark had gone away, the file is cut short, or it was killed before it wrote one."""
    batch = a_chaos_test(tmp_path / "batch", "holds")
    assert heading(write(batch)[-1]) == ("holds", "The only run holds.")

    if said is None:
        (batch / "chaos-test.json").unlink()
    else:
        (batch / "chaos-test.json").write_text(said)
    assert heading(write(batch)[-1]) == (
        "unknown",
        "The only run holds, but the verdict on the whole is unknown.",
    )


def test_without_a_second_judge_runs_that_were_not_judged_are_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking() -> None:
        raise CannotError("no Java")

    monkeypatch.setattr("stormcast.suite.session.check_java", lacking)
    batch = a_chaos_test(tmp_path / "batch", "holds")
    killed = batch / "killed"
    killed.mkdir()
    (killed / "begun").write_text("")

    again = suite._judge_again(batch, [batch / "order-on-udp", killed])

    assert (str(again.verdict), again.text) == ("holds", "no second judge: no Java")
    assert heading(again.report) == ("unknown", "1 of 2 runs hold.")


def test_a_second_judge_that_went_away_is_on_the_page(tmp_path: Path) -> None:
    batch = a_chaos_test(tmp_path / "batch", "holds")
    assert heading(write_batch(batch, "unknown"))[0] == "unknown"


def test_groups_and_members_on_their_own_have_tables_of_their_own(tmp_path: Path) -> None:
    a_run(tmp_path / "a")
    a_run(tmp_path / "b", scenario="cluster: {members: 2, unicast: UNICAST4}\n")

    page = Page(write(tmp_path)[-1].read_text())

    assert [at["id"] for name, at in page.tags if name == "section"] == ["alone", "groups"]
    assert "UNICAST4" in page.text
    assert "All 2 runs hold." in page.text


def test_every_protocol_of_chaos_test_has_a_name_of_its_own_in_the_overview(
    tmp_path: Path,
) -> None:
    """The one that its table has: two on TCP are told apart, and so is what TCP_NIO2 is under."""
    shown: dict[str, set[str]] = {}
    for run in live_runs():
        directory = a_run(tmp_path / run.directory, a_verdict())
        (directory / "scenario.yaml").write_text(dump(run.scenario))
        shown.setdefault(run.kind, set()).add(read_run(directory).protocol)
    for kind in KINDS:
        if kind.family == MULTICASTS:
            assert shown[kind.name] == {kind.name}
        else:
            assert {name.rpartition(" ")[2] for name in shown[kind.name]} == {kind.name}


def test_violations_are_marked_in_every_chart_over_time(tmp_path: Path) -> None:
    """Spark's own, and those that only the run has seen; in words, what each mark stands for."""
    lost = Breach(guarantee="G1", at=12.0, detail="seqno 5 was sent and never delivered")
    metrics = replace(some_metrics(), breaches=(lost, replace(lost, at=12.01)))
    grew = {
        "guarantee": "G5",
        "verdict": "violated",
        "detail": "a buffer grew",
        "witness": [],
        "by": "run",
        "at": 33.0,
    }
    run = a_run(tmp_path, a_verdict("violated", findings=[grew]), metrics=metrics)
    page = rendered(run)
    charts = [drawing for drawing in drawings(page) if "data-chart" in drawing]
    assert charts
    for drawing in charts:
        assert drawing.count('class="breach"') == 2
        assert "G1 at 12.0s: seqno 5 was sent" in drawing or "G1 at" in drawing
        assert "G5 at" in drawing
    assert "violation" in page

    sound = rendered(a_run(tmp_path / "sound", a_verdict(), metrics=some_metrics()))
    assert 'class="breach"' not in sound


def test_a_directory_without_runs_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report([str(tmp_path)]) == 2
    assert "name a run directory" in capsys.readouterr().err


def test_the_command_prints_where_the_report_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run(tmp_path / "run")

    assert report([str(run)]) == 0
    assert capsys.readouterr().out == f"{run / 'report.html'}\n"


def test_text_is_escaped_and_markup_is_not() -> None:
    assert tag("p", "a<b & c", Markup("<br/>")) == "<p>a&lt;b &amp; c<br/></p>"
    assert tag("p", title='"<') == '<p title="&quot;&lt;"></p>'
    assert tag("p", None, class_=None, data_x=1.50) == '<p data-x="1.5"></p>'


def test_json_cannot_end_the_script_that_it_stands_in() -> None:
    text = as_json({"x": "</script><!--"})

    assert "<" not in text
    assert json.loads(text) == {"x": "</script><!--"}


def test_what_cannot_be_shown_is_replaced() -> None:
    assert plain("a\x1b[31m\u202eb\ud800") == "a\ufffd[31m\ufffdb\ufffd"


@pytest.mark.parametrize(
    ("high", "wanted", "ticks"),
    [(1000, 3, [0, 500, 1000]), (7, 3, [0, 5]), (0.3, 3, [0, 0.1, 0.2, 0.3]), (1, 1, [0, 1])],
)
def test_ticks_are_round_numbers(high: float, wanted: int, ticks: list[float]) -> None:
    assert scales.ticks(high, wanted) == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("seconds", "last", "label"),
    [
        (50.5, 50.0, "50\u202fs"),
        (283.0, 240.0, "240\u202fs"),
        (3600.0, 3600.0, "60\u202fmin"),
        (86400.0, 86400.0, "24\u202fh"),
        (0.004, 0.004, "0.004\u202fs"),
    ],
)
def test_time_has_ticks_that_clocks_have(seconds: float, last: float, label: str) -> None:
    ticks = scales.time_ticks(seconds, 8)

    assert ticks[-1] == pytest.approx(last)
    assert len(ticks) <= 17
    assert scales.time_label(ticks[-1], seconds) == label


def test_an_axis_of_orders_of_magnitude_contains_its_values() -> None:
    for low, high in ((0.002, 0.002), (0.001, 9.0), (1e-6, 1e-6), (0.5, 100.0)):
        bottom, top = scales.decades(low, high)
        assert bottom < low
        assert top >= high
        assert len(list(scales.decade_ticks(bottom, top))) >= 2


def test_a_scale_keeps_what_is_outside_at_its_ends() -> None:
    scale = scales.Linear(0.0, 10.0, 100.0, 200.0)

    assert [scale(value) for value in (-5.0, 0.0, 5.0, 10.0, 99.0)] == [100, 100, 150, 200, 200]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (12.34, "12.3"), (1234.5, "1,230"), (0.0123456, "0.0123"), (99.96, "100")],
)
def test_a_number_has_three_digits_that_say_something(value: float, text: str) -> None:
    assert quantities.significant(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.0021, "2.1 ms"),
        (16.047, "16 s"),
        (0.99999, "1 s"),
        (283.1, "4 min 43 s"),
        (3600.0, "1 h"),
        (1e-9, "< 1 µs"),
    ],
)
def test_a_duration_has_a_unit_that_fits(seconds: float, text: str) -> None:
    assert quantities.duration(seconds).replace("\u202f", " ") == text


def test_members_are_sorted_by_their_numbers() -> None:
    assert sorted(["n10", "n2", "m1", "n"], key=natural) == ["m1", "n", "n2", "n10"]


@pytest.mark.slow
def test_a_browser_shows_the_page_without_an_error(tmp_path: Path) -> None:
    """The script has run when the tooltip's element has been found and listened for."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    page = write_report(a_run(tmp_path / "run", metrics=some_metrics(HOSTILE)))
    shown = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
         f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--v=0",
         "--virtual-time-budget=2000", "--dump-dom", page.resolve().as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip  # a list of words

    assert "CONSOLE" not in shown.stderr
    assert 'class="ready"' in shown.stdout
    assert "<h1>" in shown.stdout
