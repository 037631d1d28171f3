"""Checks after a run, by the journals of the members, whether what was measured was right.

The members are ended all at once while they are together, so each of them owes the others
everything that was sent. A journal with fewer messages than its member has sent proves nothing.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from xxhash import xxh3_64_intdigest

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.history import RIG
from stormcast.chaos.oracles.verdict import Verdict, judge
from stormcast.node.trace import PHASE
from stormcast.node.trace.files import read_traces
from stormcast.node.trace.tracer import Tracer

GUARANTEES: Final = ("G1", "G2", "G3", "G4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What the journals prove."""

    holds: bool
    findings: dict[str, str]
    """By guarantee: holds, or what is wrong."""
    messages: int
    """Sent, as the journals count them; a large message counts by its fragments."""
    journal_bytes: int
    seconds: float

    def as_json(self) -> dict[str, Any]:
        return {
            "holds": self.holds,
            "findings": self.findings,
            "messages": self.messages,
            "journal_bytes": self.journal_bytes,
            "seconds": round(self.seconds, 2),
        }


def check_journals(folder: Path, sent: int, undelivered: int = 0) -> Checked:
    """Judge the journals below a folder; `sent` is what the members say they sent, `undelivered`
    what their applications never saw of it."""
    began = time.monotonic()
    was_collecting = gc.isenabled()
    # Millions of events are made and all are kept: looking for garbage among them takes longest.
    gc.disable()
    try:
        return _judge(read_traces(folder), sent, undelivered, began)
    finally:
        if was_collecting:
            gc.enable()


def _judge(traces: Mapping[str, bytes], sent: int, undelivered: int, began: float) -> Checked:
    evidence = Evidence.from_blocks({**traces, "rig": rig_trace(began)}, xxh3_64_intdigest)
    # Members were killed before `began`: their run ended with the last event of any of them.
    lasts = (member.events[-1].time for member in evidence.members.values())
    evidence.rig.end = max(lasts, default=evidence.rig.end)
    judgement = judge(evidence, GUARANTEES)
    findings = {
        finding.guarantee: str(finding.verdict)
        if finding.verdict is Verdict.HOLDS
        else f"{finding.verdict}: {finding.detail}"
        for finding in judgement.findings
    }
    messages = evidence.messages_sent
    if messages < sent:
        findings["journals"] = f"unknown: {messages} messages in them, and {sent} were sent"
    if undelivered:
        findings["applications"] = f"violated: {undelivered} deliveries never came"
    return Checked(
        holds=all(found == str(Verdict.HOLDS) for found in findings.values()),
        findings=findings,
        messages=messages,
        journal_bytes=sum(map(len, traces.values())),
        seconds=time.monotonic() - began,
    )


def rig_trace(now: float) -> bytes:
    """Return a rig's trace, as the oracles want one: without any fault, and with the run's end."""
    blocks: list[bytes] = []
    tracer = Tracer(RIG, 0, xxh3_64_intdigest, blocks.append)
    tracer.record(PHASE, now, text="end")
    tracer.seal()
    return b"".join(blocks)
