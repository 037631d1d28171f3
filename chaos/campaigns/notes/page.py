"""The answers as a table in Markdown, in a page that says more."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from stormcast.chaos.campaigns.notes.answers import Answer, Sample
from stormcast.chaos.session.samples import in_words
from stormcast.node.core.errors import ConfigError

BEGIN: Final = "<!-- answers -->"
END: Final = "<!-- /answers -->"
_CLUSTER: Final = re.compile(r"(?:unicast|stack): ([\w-]+)")


def check_place(page: str) -> None:
    """Raise ConfigError if a page has no place for the answers."""
    if not 0 <= page.find(BEGIN) < page.find(END):
        raise ConfigError(f"the page has no place for the answers: put {BEGIN} and {END} there")


def written(page: str, answers: Sequence[Answer], seeds: Sequence[int]) -> str:
    """Return the page with these answers between its markers."""
    check_place(page)
    before, _, rest = page.partition(BEGIN)
    _old, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{_text(answers, seeds)}\n\n{END}{after}"


def _text(answers: Sequence[Answer], seeds: Sequence[int]) -> str:
    lines = [f"{len(seeds)} seeds, {seeds[0]} to {seeds[-1]}, all runs in the simulator."]
    for note, of_note in groupby(answers, key=lambda answer: answer.claim.note):
        lines += ["", f"## {note}", "", *_table(of_note)]
    return "\n".join(lines)


def _table(answers: Iterable[Answer]) -> list[str]:
    return [
        "| the claim | what was measured | compared with | measured | answer |",
        "|---|---|---|---|---|",
        *map(_row, answers),
    ]


def _row(answer: Answer) -> str:
    claim = answer.claim
    sides = [
        f"{_name(cluster)}: {figure_of(sample)}"
        for cluster, sample in zip(claim.clusters, (answer.first, answer.second), strict=True)
    ]
    asked = "at most" if claim.at_most is not None else "at least"
    bound = claim.at_most if claim.at_most is not None else claim.at_least
    says = f"**{answer.says}** ({asked} {bound:g} ×)"
    what = f"{claim.figure.name}, {claim.figure.unit}"
    return f"| {' | '.join((claim.says, what, *sides, says))} |"


def _name(cluster: str) -> str:
    found = _CLUSTER.search(cluster)
    assert found is not None, cluster
    return f"`{found[1]}`"


def figure_of(sample: Sample) -> str:
    """Return the median of a sample and its interval, as text."""
    low, high = sample.interval
    if low == high:
        return in_words(low)
    return f"{in_words(sample.median)} ({in_words(low)} to {in_words(high)})"
