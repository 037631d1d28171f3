"""The text of a report: the verdict and its evidence in plain words."""

from __future__ import annotations

from typing import Final, NamedTuple

from stormcast.findings import RUN, Finding
from stormcast.pipeline.findings import SPARK
from stormcast.pipeline.measured import FaultWindow
from stormcast.pipeline.report import quantities
from stormcast.pipeline.report.run_files import (
    HOLDS,
    UNSUPPORTED,
    VIOLATED,
    Kept,
    Return,
    VerdictFile,
)

GUARANTEES: Final = {
    "G1": ("No loss", "What was sent to a member that stays is delivered."),
    "G2": ("At most once", "Nothing is delivered twice."),
    "G3": ("In order", "Deliveries ascend, without a step back and without a skip."),
    "G4": ("Intact", "What is delivered was sent, with these bytes and flags."),
    "G5": ("Bounded memory", "No buffer exceeds its bound, nothing waits for ever behind a gap."),
    "G6": ("Nothing purged too early", "A sender forgets only what its receivers have."),
    "G7": ("Connections stay apart", "Nothing of an old connection reaches a newer one."),
    "G8": ("Back in time", "What was expected by a certain time had happened by then."),
    "A1": ("Agreement", "Members that stay together deliver the same multicasts."),
    "V1": ("One id, one list", "A view's id names one list of members, everywhere."),
    "V2": ("Own views", "A member is in its own views, and nobody is put out unheard."),
    "V3": ("Ids grow", "The ids of the views that a member installs only grow."),
    "V4": ("One view", "At the end all members that stay hold the same view."),
    "C1": (
        "Control traffic is bounded",
        "Acks, requests and repeats stay within what was promised.",
    ),
    "L1": (
        "Acked and resent in time",
        "What is delivered is acked, what is unacked is sent again.",
    ),
    "S1": ("Unread", "Nobody but members reads what is sent."),
    "T1": ("Total order", "All members deliver everything in one order."),
    "H1": ("Register", "There is an order in which each read finds what was written last."),
    "H2": ("Set", "What was added and acknowledged is there, and nothing else."),
    "H3": ("Queue", "Nothing is lost, delivered twice, or out of its producer's order."),
    "H4": ("Transactions on lists", "There is an order that explains every read."),
    "H5": ("Ready again", "A guest is ready in time after the last fault, and stays so."),
    RUN: ("The run itself", "Whether it can prove anything at all."),
}
"""By id of a guarantee: its title and promise in short; docs/guarantees.md has the exact text."""

WORDS: Final = {HOLDS: "Holds", VIOLATED: "Violated", UNSUPPORTED: "Unsupported"}
"""A verdict as a headline; any other is Unknown."""


class Proof(NamedTuple):
    """One piece of evidence for the verdict."""

    title: str
    text: str


def title(guarantee: str) -> str:
    """Return the title of a guarantee; the id if it is not known here."""
    return GUARANTEES.get(guarantee, (guarantee, ""))[0]


def lead(kept: Kept) -> str:
    """Return the verdict in one or two sentences."""
    verdict = kept.verdict
    if verdict.verdict == HOLDS:
        asked = quantities.counted(len(verdict.guarantees), "guarantee")
        return f"{asked} judged, none broken{_by_faults(kept)}."
    if verdict.verdict == UNSUPPORTED:
        return f"Nothing was started: {verdict.reason or 'the backend cannot do this scenario'}."
    bad = [finding for finding in verdict.findings_worst_first() if not finding.holds]
    if verdict.verdict == VIOLATED:
        broken = [name for name, value in verdict.guarantees.items() if value == VIOLATED]
        named = _listed([f"{name} ({title(name).lower()})" for name in broken])
        were = "were" if len(broken) > 1 else "was"
        return f"{named} {were} broken: {bad[0].detail}." if bad else f"{named} {were} broken."
    reasons = list(dict.fromkeys(finding.detail for finding in bad))
    return f"This run proves nothing, neither way: {reasons[0] if reasons else 'nobody says why'}."


def _by_faults(kept: Kept) -> str:
    """Return the part of a sentence about the faults that struck."""
    bites = kept.verdict.bites
    if not bites:
        return ", with no fault to disturb them"
    faults = quantities.counted(len(bites), "fault")
    times = quantities.counted(sum(bites.values()), "time")
    return f", while {faults} struck {times}"


def proofs(kept: Kept) -> list[Proof]:
    """Return the evidence for the verdict: faults, checks, judges, and the recovery."""
    found = [_of_faults(kept), _of_checks(kept), _of_judges(kept), _of_return(kept)]
    return [proof for proof in found if proof is not None]


def _of_faults(kept: Kept) -> Proof:
    bites = kept.verdict.bites
    if not bites:
        return Proof("Faults", "None was asked for: this run shows only undisturbed behaviour.")
    idle = [fault for fault, count in bites.items() if not count]
    if idle:
        return Proof(
            "A fault did nothing",
            f"{_listed(idle)} affected no frame and no member: to survive that proves nothing.",
        )
    what = {fault.id: fault.do for fault in kept.metrics.faults} if kept.metrics else {}
    shown = [
        f"{what.get(fault, '')} {fault} {quantities.count(count)}×".strip()
        for fault, count in list(bites.items())[:4]
    ]
    rest = len(bites) - len(shown)
    more = [f"{rest} more"] if rest > 0 else []
    return Proof("The faults struck", f"Frames or members affected: {_listed([*shown, *more])}.")


def _of_checks(kept: Kept) -> Proof | None:
    verdict = kept.verdict
    if verdict.verdict == UNSUPPORTED:
        return None
    held = [name for name, value in verdict.guarantees.items() if value == HOLDS]
    what = f"{len(held)} of {quantities.counted(len(verdict.guarantees), 'guarantee')} held"
    if kept.clients is not None:
        what += f", over {quantities.counted(len(kept.clients.spans), 'operation')}"
    elif verdict.messages is not None and verdict.delivered is not None:
        what += (
            f", over {quantities.counted(verdict.messages, 'message')} sent "
            f"and {quantities.counted(verdict.delivered, 'delivery', 'deliveries')}"
        )
    missing = verdict.not_judged
    more = f" Judged by nobody: {_listed(list(missing))}." if missing else ""
    return Proof("The guarantees", f"{what}.{more}")


def _of_judges(kept: Kept) -> Proof:
    metrics = kept.metrics
    read = ""
    if metrics is not None:
        read = (
            f" read {quantities.counted(metrics.events, 'event')} of "
            f"{quantities.counted(len(metrics.lives), 'member life', 'member lives')}"
        )
    if kept.clients is not None:
        return Proof("One judge", "The run judged its history; Spark judges members alone.")
    if not kept.is_verified:
        return Proof("One judge", "The oracles of the run judged it; Spark has not yet.")
    own = {finding.guarantee for finding in kept.verdict.findings if finding.by == SPARK} - {RUN}
    asked = quantities.counted(len(kept.verdict.guarantees), "guarantee")
    spark = f"Spark{read} and judged {len(own)} of {asked} itself"
    if not read:
        spark = f"Spark judged {len(own)} of {asked} itself"
    if kept.second is None:
        return Proof("One judge", f"{spark}, from what the members wrote.")
    apart = disagreements(kept.verdict, kept.second)
    if apart:
        return Proof(
            "Two judges that disagree",
            f"Spark and the oracles of the run differ on {_listed(apart)}: one of them is wrong.",
        )
    return Proof("Two judges agree", f"{spark}; the oracles of the run say the same.")


def disagreements(one: VerdictFile, other: VerdictFile) -> list[str]:
    """Return the guarantees on which two verdicts differ."""
    both = [name for name in one.guarantees if name in other.guarantees]
    return [name for name in both if one.guarantees[name] != other.guarantees[name]]


def _of_return(kept: Kept) -> Proof | None:
    metrics = kept.metrics
    if metrics is None:
        return _of_own_return(kept.by_the_run.return_to_health)
    times = [
        (fault.resync.one_view, fault)
        for fault in metrics.faults
        if fault.resync is not None and fault.resync.one_view
    ]
    if times:
        seconds, fault = max(times, key=lambda each: each[0] or 0.0)
        assert seconds is not None
        return Proof(
            "Back together",
            f"{quantities.duration(seconds)} after the end of {fault.do} {fault.id} all members "
            "held one view again.",
        )
    repaired = [
        (fault.resync.repaired_slowest.seconds, fault)
        for fault in metrics.faults
        if fault.resync is not None and fault.resync.repaired_slowest is not None
    ]
    if not repaired:
        return None
    seconds, fault = max(repaired, key=lambda each: each[0])
    return Proof(
        "Back in step",
        f"{quantities.duration(seconds)} after the end of {fault.do} {fault.id} the last message "
        "that had waited was delivered.",
    )


def _of_own_return(found: Return | None) -> Proof | None:
    if found is None:
        return None
    parts = []
    if found.first_delivery is not None:
        parts.append(f"first delivery after {quantities.duration(found.first_delivery)}")
    if found.one_view:
        parts.append(f"one view after {quantities.duration(found.one_view)}")
    return Proof(
        "Back in step",
        f"{quantities.duration(found.seconds)} after the last heal, at "
        f"{quantities.moment(found.after)}, all was well again"
        f"{': ' if parts else ''}{_listed(parts)}.",
    )


def window(fault: FaultWindow) -> str:
    """Return the text of when a fault acted."""
    if fault.is_over_at_once:
        return f"at {quantities.moment(fault.start)}"
    if fault.end is None:
        return f"from {quantities.moment(fault.start)}, never ended"
    return f"{quantities.moment(fault.start)} – {quantities.moment(fault.end)}"


def summary(finding: Finding | None) -> str:
    """Return a finding in one line."""
    if finding is None:
        return ""
    return f"{finding.guarantee}: {finding.detail}"


def _listed(words: list[str]) -> str:
    """Join words: a, b and c."""
    if len(words) < 2:  # noqa: PLR2004 nothing to join
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
