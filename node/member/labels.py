"""What labelled loads have sent, also those that are over and forgotten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from stormcast.node.member.jobs import Job

MAX_LABELS: Final = 1024
"""Labels of loads that are over and counted; beyond that the oldest is forgotten."""

Counts = dict[str, Counter[str]]
"""Accepted messages by label and destination."""


class Labels:
    """The loads of one member by their labels."""

    def __init__(self) -> None:
        self.errors: dict[str, str] = {}
        """By label, the first error that ended a load, also of one that is forgotten."""
        self._sent: Counts = {}
        """What loads had sent that are forgotten."""

    def keep(self, jobs: Iterable[Job]) -> None:
        """Keep what these loads have sent: they are about to be forgotten."""
        _count(jobs, self._sent)
        for kept in (self._sent, self.errors):
            while len(kept) > MAX_LABELS:
                del kept[next(iter(kept))]

    def note_error(self, job: Job) -> None:
        """Keep the error that has ended a load, if it has a label."""
        if job.load.label:
            self.errors.setdefault(job.load.label, job.error)

    def sent(self, jobs: Iterable[Job]) -> Counts:
        """Return what all loads have sent: those that are forgotten, and these."""
        found = {label: sent.copy() for label, sent in self._sent.items()}
        _count(jobs, found)
        return found


def _count(jobs: Iterable[Job], counts: Counts) -> None:
    """Add what loads have sent to the counts, if they have a label."""
    for job in jobs:
        if job.load.label:
            sent = counts.setdefault(job.load.label, Counter())
            for sending in job.sendings.values():
                sent[sending.dest or "group"] += sending.accepted
