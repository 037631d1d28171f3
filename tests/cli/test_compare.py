"""`stormcast compare --notes`: what it prints and writes, and what it refuses at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from stormcast.chaos.campaigns.notes import answers as notes
from stormcast.chaos.campaigns.notes.claims import CLAIMS
from stormcast.chaos.campaigns.notes.page import BEGIN, END
from stormcast.chaos.commands import compare as command
from tests.helpers.shell import Shell


@pytest.fixture
def one_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them would take a minute."""
    monkeypatch.setattr(command, "CLAIMS", CLAIMS[:1])
    monkeypatch.setattr(notes, "CLAIMS", CLAIMS[:1])


@pytest.mark.slow
@pytest.mark.usefixtures("one_claim")
def test_answers_are_printed_and_written(shell: Shell, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before {BEGIN}{END} after")
    said = shell("compare", "--notes", "--seeds", 6, "--write", page, "--json")
    assert said.code == 0
    (answer,) = said.json
    assert (answer["note"], answer["answer"], answer["at_most"]) == ("UNICAST2", "holds", 0.1)
    assert answer["second"]["median"] < 0.1 * answer["first"]["median"]
    assert len(answer["first"]["values"]) == 6
    text = page.read_text()
    assert text.startswith(f"before {BEGIN}")
    assert text.endswith(f"{END} after")
    assert "6 seeds, 1 to 6" in text


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--seeds", 9), "--seeds and --write are of --notes, which is missing"),
        (("--write", "page.md"), "--seeds and --write are of --notes, which is missing"),
        (("--notes", "--seeds", 5), "5 seeds say little of others: 6 or more do"),
        (("--notes", "--write", "nowhere.md"), "nowhere.md: no such file or directory"),
        (("one",), "1 directories: name two, or none"),
        (("one", "two", "three"), "3 directories: name two, or none"),
        (("one", "two"), "one is no run and no soak"),
        (("one", "two", "--notes"), "--notes plays runs of its own: name no directories"),
        (("--notes", "--write", "bare.md"), "the page has no place for the answers: put <!--"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_played(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: tuple[object, ...],
    why: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bare.md").write_text("a page")
    monkeypatch.setattr(notes, "play", lambda _key: pytest.fail("it was played"))
    said = shell("compare", *words)
    assert (said.code, said.out) == (2, "")
    assert why in said.err
