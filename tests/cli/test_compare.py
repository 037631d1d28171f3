"""`stormcast compare`, of two soaks and with `--notes`: what it prints and writes, and what it
refuses at once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stormcast.chaos.campaigns.notes import answers as notes
from stormcast.chaos.campaigns.notes.claims import CLAIMS
from stormcast.chaos.campaigns.notes.page import BEGIN, END
from stormcast.chaos.commands import compare as command
from stormcast.cli import main
from tests.helpers.shell import Shell
from tests.helpers.soaks import GENTLE, windows


@pytest.fixture(name="soaks", scope="module")
def _soaks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two small soaks of one storm, `udp` and `mcast`."""
    folder = tmp_path_factory.mktemp("soaks")
    storm = folder / "gentle.yaml"
    storm.write_text(GENTLE)
    for stack in ("udp", "mcast"):
        words = ("soak", "--storm", storm, "--stack", stack, "--for", "25s", "--out")
        assert main([*map(str, words), str(folder / stack)]) == 0
    return folder


@pytest.mark.slow
def test_the_page_of_two_soaks_has_what_the_table_has(
    shell: Shell, soaks: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    said = shell("compare", soaks / "udp", soaks / "mcast", "--page", page)
    assert (said.code, said.err) == (0, "")
    *rows, last = said.out.splitlines()
    assert last == f"page: {page}"
    text = page.read_text()
    assert len(rows) > 8
    for row in rows[2:]:
        name, first, second, *ratio = re.split(r" {2,}", row)
        (part,) = [one for one in text.split("<section") if f"<h2>{name}</h2>" in one]
        assert f">{first}</text>" in part
        assert f">{second}</text>" in part
        assert ratio == [] or f"<p>B / A: {ratio[0]}</p>" in part
    assert "they were not played alike" not in text
    assert f"<td>directory</td><td>{soaks}/udp</td><td>{soaks}/mcast</td>" in text
    count = len(windows(soaks / "udp"))
    assert text.count("<title>A, window ") == 2 * count, "a bar for each window, in each width"

    as_json = shell("compare", soaks / "udp", soaks / "mcast", "--page", page, "--json")
    assert (as_json.code, as_json.json["alike"]) == (0, True)


@pytest.mark.slow
def test_a_page_of_soaks_not_played_alike_has_the_warning_that_is_printed(
    shell: Shell, soaks: Path, storm: str
) -> None:
    shell("soak", "--storm", storm, "--seed", 2, "--for", "5s", "--out", "other")
    said = shell("compare", soaks / "udp", "other", "--page", "page.html")
    assert said.code == 0
    assert said.err.startswith("they were not played alike")
    assert said.err.strip() in Path("page.html").read_text()


@pytest.mark.slow
def test_a_page_that_cannot_be_written_is_one_line_and_no_table(shell: Shell, soaks: Path) -> None:
    said = shell("compare", soaks / "udp", soaks / "mcast", "--page", "/proc/page.html")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("stormcast: /proc/page.html: ")
    assert said.err.endswith("; name another, or mend it\n")
    assert said.err.count("\n") == 1


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
        (("--page", "x.html"), "--page is of two soaks or runs: name their two directories"),
        (("one", "--page", "x.html"), "--page is of two soaks or runs: name their two directories"),
        (("--notes", "--page", "x.html"), "--page is of two soaks or runs: name their two dir"),
        (("one", "two", "--notes", "--page", "x.html"), "name their two directories, no --notes"),
        (("one", "two", "--page", "x.jsonl"), "--page x.jsonl: name a file that ends in .html"),
        (("one", "two", "--page", "no/x.html"), "--page no/x.html: no is no directory: make it"),
        (("one", "two", "--page", "there.html"), "there.html is a directory: name a file in it"),
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
    Path("there.html").mkdir()
    monkeypatch.setattr(notes, "play", lambda _key: pytest.fail("it was played"))
    said = shell("compare", *words)
    assert (said.code, said.out) == (2, "")
    assert why in said.err
    assert said.err.count("\n") == 1
    assert not Path("x.html").exists()
