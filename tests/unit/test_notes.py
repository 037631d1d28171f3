"""What the design notes claim: how figures become answers, and that the page has each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from stormcast.chaos.campaigns.notes.answers import HOLDS, OPEN, REFUTED, Answer, Sample, answers
from stormcast.chaos.campaigns.notes.claims import ACKS, CLAIMS, Claim
from stormcast.chaos.campaigns.notes.page import BEGIN, END, figure_of, written
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.session.samples import FEWEST
from stormcast.node.core.errors import ConfigError

PAGE = Path(__file__).parents[2] / "docs" / "findings.md"
SURE = Verdict.HOLDS


def claim(*, at_most: float | None = None, at_least: float | None = None) -> Claim:
    return Claim(
        note="A note",
        says="It costs less.",
        scenario="",
        clusters=("unicast: UNICAST", "unicast: UNICAST2"),
        figure=ACKS,
        at_most=at_most,
        at_least=at_least,
    )


def sample(*values: float, verdict: Verdict = SURE) -> Sample:
    return Sample(values=values, verdict=verdict)


FIRST = sample(100, 110, 120, 130, 140, 150)


@pytest.mark.parametrize(
    ("second", "bound", "says"),
    [
        (sample(1, 2, 3, 4, 5, 50), {"at_most": 0.5}, HOLDS),
        (sample(1, 2, 3, 4, 5, 51), {"at_most": 0.5}, OPEN),
        (sample(76, 80, 80, 80, 80, 80), {"at_most": 0.5}, REFUTED),
        (sample(75, 80, 80, 80, 80, 80), {"at_most": 0.5}, OPEN),
        (sample(300, 301, 302, 303, 304, 305), {"at_least": 2}, HOLDS),
        (sample(299, 301, 302, 303, 304, 305), {"at_least": 2}, OPEN),
        (sample(1, 1, 1, 1, 1, 199), {"at_least": 2}, REFUTED),
        (sample(0, 0, 0, 0, 0, 0), {"at_most": 0}, HOLDS),
        (sample(0, 0, 0, 0, 0, 1), {"at_most": 0}, OPEN),
        (sample(1, 1, 1, 1, 1, 1), {"at_most": 0}, REFUTED),
        (sample(1, 1, 1, 1, 1, 1, verdict=Verdict.UNKNOWN), {"at_most": 0.5}, OPEN),
        (sample(1, 1, 1, 1, 1, 1, verdict=Verdict.VIOLATED), {"at_most": 0.5}, OPEN),
    ],
)
def test_an_answer_needs_intervals_that_are_apart(
    second: Sample, bound: dict[str, float], says: str
) -> None:
    assert Answer(claim=claim(**bound), first=FIRST, second=second).says == says


@pytest.mark.parametrize(("count", "left_off"), [(6, 0), (8, 0), (9, 1), (15, 3), (20, 5)])
def test_the_interval_leaves_off_what_95_per_cent_allow(count: int, left_off: int) -> None:
    """As in tables of the sign test: 1 of 9 at either end, 3 of 15, 5 of 20."""
    values = [float(number) for number in range(count)]
    assert sample(*reversed(values)).interval == (left_off, count - 1 - left_off)


def test_a_page_keeps_what_it_says_besides() -> None:
    answer = Answer(claim=claim(at_most=0.5), first=FIRST, second=sample(*range(6)))
    page = written(f"before\n{BEGIN}\nolder\n{END}\nafter\n", [answer], range(3, 9))
    assert page.startswith(f"before\n{BEGIN}\n\n6 seeds, 3 to 8,")
    assert page.endswith(f"{END}\nafter\n")
    assert "older" not in page
    row = "| It costs less. | acks, per 1,000 messages | `UNICAST`: 125 (100 to 150) | "
    assert f"{row}`UNICAST2`: 2.5 (0 to 5) | **holds** (at most 0.5 ×) |" in page


@pytest.mark.parametrize("page", ["", BEGIN, END, f"{END} {BEGIN}"])
def test_a_page_without_a_place_is_refused(page: str) -> None:
    with pytest.raises(ConfigError, match="the page has no place for the answers"):
        written(page, [], range(6))


def test_a_figure_that_is_always_the_same_has_no_interval() -> None:
    assert figure_of(sample(*[1234.0] * 6)) == "1,234"
    assert figure_of(sample(*[0.75] * 6)) == "0.75"


def test_five_seeds_are_too_few() -> None:
    with pytest.raises(ConfigError, match="5 seeds say little of others: 6 or more do"):
        list(answers([0], range(5), 1, lambda _done, _all: None))


def test_the_page_answers_each_claim_in_order() -> None:
    text = PAGE.read_text()
    places = [text.index(f"| {one.says} |") for one in CLAIMS]
    assert places == sorted(places)
    assert text.count("| **") == len(CLAIMS)
    for one in CLAIMS:
        asks = (
            f"at most {one.at_most:g}" if one.at_most is not None else f"at least {one.at_least:g}"
        )
        row = next(line for line in text.splitlines() if one.says in line)
        assert f"({asks} ×)" in row


def test_every_claim_asks_one_thing_of_two_clusters() -> None:
    for one in CLAIMS:
        assert (one.at_most is None) != (one.at_least is None)
        first, second = (one.scenario_of(side).cluster for side in range(2))
        assert first != second


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CLAIMS)))
def test_the_page_says_what_is_measured(number: int) -> None:
    """With few seeds an interval is wider: what is answered then is what the page says."""
    (answer,) = answers([number], range(1, 1 + FEWEST), 1, lambda _done, _all: None)
    assert answer.verdict is Verdict.HOLDS
    row = next(line for line in PAGE.read_text().splitlines() if answer.claim.says in line)
    said = next(word for word in (HOLDS, REFUTED, OPEN) if f"**{word}**" in row)
    assert answer.says in (said, OPEN)
