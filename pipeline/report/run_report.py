"""The report of one run: verdict first, then the proofs, then what happened."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from stormcast.findings import RUN, Finding, Verdict
from stormcast.pipeline.findings import SPARK
from stormcast.pipeline.measured import Breach, Metrics
from stormcast.pipeline.report import heatmap, quantities, timelines, wording
from stormcast.pipeline.report.fault_section import fault_section, struck_section
from stormcast.pipeline.report.markup import Markup, join, tag
from stormcast.pipeline.report.operations import operations_section
from stormcast.pipeline.report.page import chip, figure, headline, page, section, tone, word
from stormcast.pipeline.report.plot import WIDTHS, Width
from stormcast.pipeline.report.run_files import UNSUPPORTED, Kept
from stormcast.pipeline.report.sequence import sequence_chart
from stormcast.pipeline.report.tooltips import tooltips

Chart = Callable[[Metrics, Width], Markup | None]
NOTHING_FOUND: Final = "no violation found"
"""The text of a finding that only says that its guarantee holds."""


def run_report(kept: Kept) -> str:
    """Return the page of one run."""
    metrics = _with_own_breaches(kept)
    parts = [_proofs(kept), _guarantees(kept)]
    if kept.clients is not None:
        parts.append(operations_section(kept.clients, kept.verdict.findings))
        parts += struck_section(kept)
    elif metrics is None:
        parts.append(
            section("What happened", None, tag("p", kept.no_metrics, class_="quiet"), id_="none")
        )
        parts += struck_section(kept)
    else:
        parts += [
            *fault_section(metrics),
            *struck_section(kept),
            *_timelines(metrics),
            *_pairs(metrics),
        ]
    parts.append(_facts(kept))
    title = f"{word(kept.verdict.verdict)}: {kept.verdict.scenario}"
    data = tooltips(metrics) if metrics is not None else None
    return page(title, _verdict(kept), join(*parts), data)


def _with_own_breaches(kept: Kept) -> Metrics | None:
    """Return the metrics, with the violations that only the run's own oracles found."""
    if kept.metrics is None:
        return None
    own = tuple(
        Breach(guarantee=finding.guarantee, at=finding.at, detail=finding.detail)
        for finding in kept.verdict.findings
        if finding.by != SPARK and finding.verdict is Verdict.VIOLATED and finding.at is not None
    )
    return replace(kept.metrics, breaches=(*kept.metrics.breaches, *own))


def _verdict(kept: Kept) -> Markup:
    verdict = kept.verdict
    names = [
        tag("strong", verdict.scenario),
        tag("span", kept.protocol),
    ]
    if verdict.backend:
        names.append(tag("span", f"on {verdict.backend}"))
    if verdict.seed is not None:
        names.append(tag("span", f"seed {verdict.seed}"))
    return headline(
        verdict.verdict,
        tag("p", *names, class_="names"),
        tag("p", kept.about, class_="about") if kept.about else None,
        lead=wording.lead(kept),
        below=_figures(kept),
    )


def _figures(kept: Kept) -> Markup | None:
    """Return the run in a few numbers."""
    verdict, metrics = kept.verdict, kept.metrics
    if verdict.verdict == UNSUPPORTED:
        return None
    told: list[tuple[str, str]] = []
    if metrics is not None:
        told.append(("members", quantities.count(len(metrics.names))))
    if kept.clients is not None:
        told.append(("operations", quantities.count(len(kept.clients.spans))))
    elif verdict.messages is not None:
        told.append(("messages sent", quantities.count(verdict.messages)))
    if kept.clients is None and verdict.delivered is not None:
        told.append(("deliveries", quantities.count(verdict.delivered)))
    if metrics is not None and metrics.latency_whole is not None:
        whole = metrics.latency_whole
        told.append(("median latency", quantities.duration(whole.p50)))
        told.append(("99th percentile", quantities.duration(whole.p99)))
    if metrics is not None and (amplification := metrics.whole.amplification) is not None:
        told.append(("transmissions per message", f"{amplification:.2f}"))
    seconds = verdict.seconds
    if seconds is None and metrics is not None:
        seconds = metrics.seconds
    if seconds is not None:
        clock = "virtual time" if verdict.backend == "sim" else "run time"
        told.append((clock, quantities.duration(seconds)))
    return tag("dl", *(_figure(name, value) for name, value in told), class_="figures")


def _figure(name: str, value: str) -> Markup:
    return tag("div", tag("dd", value), tag("dt", name))


def _proofs(kept: Kept) -> Markup:
    items = (
        tag("div", tag("dt", proof.title), tag("dd", proof.text)) for proof in wording.proofs(kept)
    )
    notes = (tag("p", note, class_="note") for note in (*kept.doubts, *kept.verdict.notes))
    return section(
        "Evidence",
        "What the verdict rests on. Where a proof is missing it is unknown, never passed.",
        tag("dl", *items, class_="proofs"),
        *notes,
        id_="evidence",
    )


# -- Guarantees ----------------------------------------------------------------------------------


def _guarantees(kept: Kept) -> Markup | None:
    by_guarantee: dict[str, list[Finding]] = {}
    for finding in kept.verdict.findings_worst_first():
        by_guarantee.setdefault(finding.guarantee, []).append(finding)
    if not by_guarantee:
        return None
    is_bad = any(not finding.holds for finding in kept.verdict.findings)
    about = (
        "Worst first. A violation names the few events that prove it."
        if is_bad
        else "Each was looked for by itself in the traces of all members."
    )
    rows = [_guarantee(guarantee, findings) for guarantee, findings in by_guarantee.items()]
    whole = tag("table", tag("tbody", *rows), class_="guarantees")
    return section("Guarantees", about, whole, id_="guarantees")


def _guarantee(guarantee: str, findings: Sequence[Finding]) -> Markup:
    """Return the row of a guarantee, with findings that say more than the verdict."""
    title, promise = wording.GUARANTEES.get(guarantee, (guarantee, ""))
    told = [finding for finding in findings if finding.witness or finding.detail != NOTHING_FOUND]
    return tag(
        "tr",
        tag("td", "" if guarantee == RUN else guarantee),
        tag(
            "td",
            tag("strong", title),
            " ",
            tag("span", promise, class_="quiet"),
            *(_finding(finding) for finding in told),
        ),
        tag("td", chip(str(findings[0].verdict))),
    )


def _finding(finding: Finding) -> Markup:
    witness = (
        tag("pre", "\n".join(finding.witness), class_=f"witness {tone(str(finding.verdict))}")
        if finding.witness
        else None
    )
    class_ = "detail" if finding.holds else f"detail bad {tone(str(finding.verdict))}"
    by = (
        tag("span", " (said by the run when it ended)", class_="quiet")
        if (finding.by != SPARK)
        else None
    )
    at = (
        tag("span", f" (at {quantities.moment(finding.at)})", class_="quiet")
        if (finding.at is not None)
        else None
    )
    return tag("div", tag("p", finding.detail, at, by, class_=class_), witness)


# -- What happened -------------------------------------------------------------------------------


def _timelines(metrics: Metrics) -> list[Markup | None]:
    shown = quantities.duration(metrics.grid.end)
    tail = metrics.seconds - metrics.grid.end
    rest = (
        f" The {quantities.duration(tail)} of silence after {shown} are not shown."
        if (tail > metrics.grid.width)
        else ""
    )
    blocked = metrics.whole.blocked_seconds
    waited = f" Senders were blocked for {quantities.duration(blocked)} in all." if blocked else ""
    untimed = (
        f" {quantities.counted(metrics.untimed, 'message')} could not be timed."
        if (metrics.untimed)
        else ""
    )
    return [
        _chart(
            "Throughput",
            f"In bins of {quantities.duration(metrics.grid.width)}. A multicast is sent once, and "
            f"delivered by every member. Faults are shaded.{_marked(metrics)}{rest}{waited}",
            timelines.throughput,
            metrics,
            "throughput",
        ),
        _chart(
            "Who heard whom",
            "One row per member: what it delivered, in the colour of who sent it. A colour that "
            "is gone is a member that is not heard.",
            timelines.heard,
            metrics,
            "heard",
        ),
        _chart(
            "Latency",
            f"From the moment a message was sent to each delivery of it, by others.{untimed}",
            timelines.latency if metrics.latency else _nothing,
            metrics,
            "latency",
        ),
        _chart(
            "Repairs",
            "Messages that were sent again, upwards, and seqnos that receivers asked for, "
            "downwards.",
            timelines.repairs,
            metrics,
            "repairs",
        ),
        _chart(
            "Views",
            "Which view each member held, in the colour of the member that made it. Two colours "
            "at one time are two groups.",
            timelines.views,
            metrics,
            "views",
        ),
    ]


def _marked(metrics: Metrics) -> str:
    """Return the explanation of the violations' marks, if there are any."""
    return " A red line with a point is a violation." if metrics.breaches else ""


def _nothing(_metrics: Metrics, _width: Width) -> None:
    """Stand in for a chart without data."""


def _chart(title: str, about: str, chart: Chart, metrics: Metrics, name: str) -> Markup | None:
    drawn = [chart(metrics, width) for width in WIDTHS]
    return section(title, about, figure(*drawn), id_=name) if any(drawn) else None


def _pairs(metrics: Metrics) -> list[Markup]:
    parts = []
    if metrics.sequences:
        parts.append(
            section(
                "Sequences",
                "Seqnos over time, of the pairs with most to tell. The pale line is what was sent; "
                "where the blue one leaves it, messages waited.",
                *(_sequence(metrics, number) for number in range(len(metrics.sequences))),
                id_="sequences",
            )
        )
    if any(pair.sender != pair.receiver for pair in metrics.pairs):
        repaired = heatmap.repaired_map(metrics)
        parts.append(
            section(
                "Pairs",
                "Every directed pair of members: senders down, receivers across.",
                tag(
                    "div",
                    figure(heatmap.delivered_map(metrics), caption="Messages delivered"),
                    figure(repaired, caption="Share said again") if repaired else None,
                    None if repaired else tag("p", "Nothing had to be said again.", class_="quiet"),
                    class_="maps",
                ),
                id_="pairs",
            )
        )
    return parts


def _sequence(metrics: Metrics, number: int) -> Markup:
    sequence = metrics.sequences[number]
    pair = next(
        pair
        for pair in metrics.pairs
        if (pair.sender, pair.receiver, pair.protocol)
        == (sequence.sender, sequence.receiver, sequence.protocol)
    )
    repaired = f", {quantities.count(pair.repaired)} said again" if pair.repaired else ""
    meta = f"{sequence.protocol} · {quantities.count(pair.delivered)} delivered{repaired}"
    drawn = figure(*(sequence_chart(metrics, sequence, width) for width in WIDTHS))
    return tag(
        "details",
        tag(
            "summary", f"{sequence.sender} → {sequence.receiver}", tag("span", meta, class_="meta")
        ),
        drawn,
        name="sequence",
        open="open" if not number else None,
    )


# -- Facts ---------------------------------------------------------------------------------------


def _facts(kept: Kept) -> Markup:
    verdict = kept.verdict
    where = f"{kept.stored}; below, a copy in {kept.directory}"
    facts: list[tuple[str, Markup | str]] = [
        ("scenario", verdict.scenario),
        ("stack", kept.protocol + ("" if kept.clients else f", {kept.timing} clock")),
        ("backend", verdict.backend or "–"),
        ("seed", "–" if verdict.seed is None else str(verdict.seed)),
        ("dice", verdict.fate),
        *((name, value) for name, value in kept.versions.items()),
        *([("lies at", where)] if kept.stored else []),
        ("run again", tag("code", again(kept))),
        ("events", tag("code", f"stormcast trace cat {shlex.quote(kept.directory)}")),
    ]
    rows = (part for name, value in facts for part in (tag("dt", name), tag("dd", value)))
    file = (
        tag(
            "details",
            tag("summary", "scenario.yaml"),
            tag("pre", tag("code", kept.scenario), class_="file"),
            class_="print",
        )
        if kept.scenario
        else None
    )
    return section(
        "The run",
        "Everything follows from the scenario and the seed."
        if verdict.backend == "sim"
        else "The same faults follow from the scenario and the seed; real time does the rest.",
        tag("dl", *rows, class_="facts"),
        file,
        id_="run",
    )


def again(kept: Kept) -> str:
    """Return the command that runs it again."""
    directory = shlex.quote(kept.directory)
    if kept.verdict.backend == "sim":
        return f"stormcast replay {directory}"
    if kept.clients is not None:
        # The kept file is not beside the files that its commands may name.
        file = shlex.quote(kept.clients.file or f"{kept.directory}/scenario.yaml")
        return f"stormcast run {file} --seed {kept.verdict.seed}"
    dice = "" if kept.verdict.fate == "xxh3" else f" --fate {shlex.quote(kept.verdict.fate)}"
    backend = kept.verdict.backend and f" --backend {shlex.quote(kept.verdict.backend)}"
    return f"stormcast run {directory}/scenario.yaml{backend} --seed {kept.verdict.seed}{dice}"
