"""`stormcast replay`: the same bytes again, or the first event that is another."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.session.runner import run_scenario
from stormcast.node.trace import HEADER
from tests.helpers.shell import Shell

LOSSY = """\
name: lossy
guarantees: [G1, G2, G3]
cluster: {members: 2}
workload:
  - {do: unicast, from: n0, to: n1, count: 200, rate: 400/s}
timeline:
  - {at: 100ms, do: loss, rate: 20%, for: 300ms}
"""
TOOTHLESS = LOSSY.replace("at: 100ms", "at: 20s")
FLAWED = LOSSY.replace(
    "members: 2",
    "members: 2, stack: unicast-museum, unicast: UNICAST2, max_batch: 1,\n"
    "  historical: {repair_ends: false}",
).replace("rate: 20%, for: 300ms", "rate: 100%")


@pytest.fixture
def kept(shell: Shell, tmp_path: Path) -> Path:
    """A run directory."""
    (tmp_path / "lossy.yaml").write_text(LOSSY)
    assert shell("run", "lossy.yaml", "--seed", 5, "--out", "kept").code == 0
    return Path("kept")


def change(path: Path, **values: object) -> None:
    """Change what a JSON file says."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def keep(text: str, *, fate: str = "xxh3", min_bites: int | None = None) -> Path:
    """A run directory, with how it was run on record."""
    out = Path("kept")
    run_scenario(parse_scenario(text), 5, out=out, fate=fate, min_bites=min_bites)
    change(out / "verdict.json", fate=fate, min_bites=min_bites)
    return out


# -- The same --------------------------------------------------------------------------------------


def test_a_run_replays_to_the_byte(shell: Shell, kept: Path) -> None:
    said = shell("replay", kept)
    assert (said.code, said.err) == (0, "")
    size = sum(path.stat().st_size for path in kept.glob("trace/*"))
    assert said.out == (
        "lossy: identical   seed 5\n"
        f"traces: 3 of 3 identical, {size} bytes\n"
        "verdict: holds, as recorded\n"
    )


def test_ctrl_c_in_a_replay_is_no_difference(
    shell: Shell, kept: Path, ctrl_c: Callable[[int], None]
) -> None:
    ctrl_c(1)
    assert shell("replay", kept) == (130, "", "")


def test_a_replay_leaves_the_run_as_it_was(shell: Shell, kept: Path) -> None:
    def content() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}

    before = content()
    shell("replay", kept)
    assert content() == before


def test_a_verdict_of_other_traces_is_not_taken_for_that_of_these(shell: Shell, kept: Path) -> None:
    """The traces repeat to the byte, and the verdict is as recorded; but it was made of others."""
    change(kept / "verdict.json", evidence_digest="0" * 64)
    said = shell("replay", kept)
    assert said.code == 1
    assert "traces: 3 of 3 identical" in said.out
    assert "verdict.json was made from other traces" in said.out
    assert shell("replay", kept, "--json").json["verdict_is_of_others"] is True


def test_a_verdict_of_an_older_version_names_no_traces(shell: Shell, kept: Path) -> None:
    verdict = json.loads((kept / "verdict.json").read_text())
    del verdict["evidence_digest"]
    (kept / "verdict.json").write_text(json.dumps(verdict))
    assert shell("replay", kept).code == 0


def test_with_json_a_replay_prints_one_object(shell: Shell, kept: Path) -> None:
    said = shell("replay", kept, "--json")
    assert (said.code, said.out.count("\n")) == (0, 1)
    assert said.json == {
        "scenario": "lossy",
        "run": "kept",
        "seed": 5,
        "fate": "xxh3",
        "result": "identical",
        "verdict": {"recorded": "holds", "now": "holds"},
        "traces": {"n0-1": "identical", "n1-1": "identical", "rig": "identical"},
        "first": None,
        "differs": {},
        "verdict_is_of_others": False,
        "versions": {},
    }


@pytest.mark.parametrize("text", [FLAWED, TOOTHLESS])
def test_a_run_that_did_not_hold_replays_too(shell: Shell, text: str) -> None:
    """Identical is no verdict on the run: a violation that comes again is a good replay."""
    assert shell("replay", keep(text)).code == 0


def test_the_dice_of_a_run_are_thrown_again(shell: Shell) -> None:
    out = keep(LOSSY, fate="jhash")
    assert shell("replay", out, "--json").json["fate"] == "jhash"
    assert shell("replay", out).code == 0
    change(out / "verdict.json", fate="xxh3")
    assert shell("replay", out).code == 1


def test_a_run_is_judged_again_as_it_was(shell: Shell) -> None:
    """A search asks no fault to bite: its runs hold where another would be unknown."""
    out = keep(TOOTHLESS, min_bites=0)
    assert "verdict: holds, as recorded" in shell("replay", out).out
    change(out / "verdict.json", min_bites=1)
    said = shell("replay", out)
    assert said.code == 1
    assert "traces: 3 of 3 identical" in said.out
    assert "verdict: holds, now unknown\n" in said.out


def test_a_scenario_that_never_was_a_file_replays(shell: Shell) -> None:
    """As a search and the chaos test keep them: written from what was run, not from a file."""
    scenario = replace(parse_scenario(LOSSY), text="")
    run_scenario(scenario, 3, out=Path("kept"))
    assert Path("kept/scenario.yaml").read_text() != LOSSY
    assert shell("replay", "kept").code == 0


# -- Another ---------------------------------------------------------------------------------------


def test_what_differs_first_is_shown_with_both_events(shell: Shell, kept: Path) -> None:
    """Another load: the sender's first messages are larger."""
    scenario = kept / "scenario.yaml"
    scenario.write_text(scenario.read_text().replace("count: 200", "count: 200, size: 120B"))
    said = shell("replay", kept)
    assert said.code == 1
    lines = said.out.splitlines()
    assert lines[0] == "lossy: different   seed 5"
    assert lines[1] == "first difference: n0-1#2"
    assert lines[2].startswith("  recorded  0.000000 sent          peer n1-1 conn 1 1..1")
    assert lines[3].startswith("  now       0.000000 sent          peer n1-1 conn 1 1..1")
    assert lines[4].startswith("  differs in  bytes ")
    assert "; n0-1 different, n1-1 different" in said.out


def test_with_json_a_difference_names_member_number_and_fields(shell: Shell, kept: Path) -> None:
    (kept / "seed").write_text("6\n")
    said = shell("replay", kept, "--json")
    assert said.code == 1
    assert said.json["result"] == "different"
    first = said.json["first"]
    assert (first["member"], first["number"]) == ("n0-1", 0)
    assert set(first["fields"]) == {"text"}
    assert first["fields"]["text"].keys() == {"recorded", "now"}


def test_the_earliest_difference_is_shown_whichever_trace_it_is_in(
    shell: Shell, kept: Path
) -> None:
    """More is lost: the first who sees less is the receiver, and the sender hears of it later."""
    scenario = kept / "scenario.yaml"
    scenario.write_text(scenario.read_text().replace("rate: 20%", "rate: 60%"))
    found = shell("replay", kept, "--json").json
    assert set(found["traces"].values()) == {"different"}
    assert found["first"]["member"] == "n1-1"
    assert 0.1 < found["first"]["time"] < 0.11


@pytest.mark.parametrize("side", ["recorded", "now"])
def test_a_trace_that_ends_early_is_no_equal_one(shell: Shell, kept: Path, side: str) -> None:
    """The recorded one lacks its last block; or it has one more."""
    path = kept / "trace" / "n1-1.trace"
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex(b"STRC")] if side == "recorded" else data + data[:200])
    said = shell("replay", kept)
    assert said.code == 1
    assert "first difference: n1-1#" in said.out
    if side == "recorded":
        assert "  recorded  nothing: it ends before this\n" in said.out
    else:
        assert "  recorded  no event: torn block\n  now       nothing: it ends" in said.out


def test_a_trace_that_is_only_there_once_is_named(shell: Shell, kept: Path) -> None:
    trace = kept / "trace"
    (trace / "n1-1.trace").rename(trace / "n9-1.trace")
    said = shell("replay", kept)
    assert said.code == 1
    assert "traces: 2 of 4 identical" in said.out
    assert "n1-1 new, n9-1 missing" in said.out


def test_equal_events_in_other_blocks_are_not_the_same_bytes(shell: Shell, kept: Path) -> None:
    """The wall clock stands in the head of a block, and in no event."""
    path = kept / "trace" / "rig.trace"
    data = bytearray(path.read_bytes())
    data[24] ^= 1
    check = xxh3_64_intdigest(bytes(data[: HEADER.size - 8] + data[HEADER.size :]))
    data[HEADER.size - 8 : HEADER.size] = check.to_bytes(8, "little")
    path.write_bytes(bytes(data))
    said = shell("replay", kept)
    assert said.code == 1
    assert "the same events in other bytes, from byte 24 on" in said.out


def test_a_verdict_that_differs_is_shown_where_it_does(shell: Shell, kept: Path) -> None:
    verdict = json.loads((kept / "verdict.json").read_text())
    verdict["verdict"] = verdict["guarantees"]["G2"] = "violated"
    (kept / "verdict.json").write_text(json.dumps(verdict))
    said = shell("replay", kept)
    assert said.code == 1
    assert "traces: 3 of 3 identical" in said.out
    assert 'verdict: violated, now holds\n  guarantees: G2 "violated", now "holds"\n' in said.out


# -- Other versions --------------------------------------------------------------------------------


def test_with_other_versions_a_difference_proves_nothing(shell: Shell, kept: Path) -> None:
    change(kept / "versions.json", python="2.7.18")
    (kept / "seed").write_text("6\n")
    said = shell("replay", kept)
    assert said.code == 3
    assert said.out.startswith("lossy: unproven   seed 6\nfirst difference: n0-1#0\n")
    assert "\nversion of python: 2.7.18, now 3." in said.out
    found = shell("replay", kept, "--json").json
    assert found["result"] == "unproven"
    assert found["versions"]["python"]["recorded"] == "2.7.18"


def test_with_other_versions_the_same_bytes_are_the_same(shell: Shell, kept: Path) -> None:
    change(kept / "versions.json", python="2.7.18")
    said = shell("replay", kept)
    assert said.code == 0
    assert said.out.startswith("lossy: identical   seed 5\n")
    assert "version of python: 2.7.18" in said.out


def test_a_scenario_of_another_version_may_not_be_read_any_more(shell: Shell, kept: Path) -> None:
    path = kept / "scenario.yaml"
    path.write_text(path.read_text().replace("do: loss", "do: lose"))
    said = shell("replay", kept)
    assert (said.code, said.out) == (2, "")
    assert "the scenario of kept cannot be run: kept/scenario.yaml:7:21: do is 'lose'" in said.err
    change(kept / "versions.json", stormcast="0.0.1")
    said = shell("replay", kept)
    assert (said.code, said.out) == (3, "")
    assert "version of stormcast: 0.0.1, now " in said.err


# -- No run ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["replay", "shrink"])
@pytest.mark.parametrize("name", ["scenario.yaml", "seed", "versions.json", "verdict.json"])
def test_what_a_directory_lacks_is_named(shell: Shell, kept: Path, command: str, name: str) -> None:
    (kept / name).unlink()
    said = shell(command, kept)
    assert (said.code, said.out) == (2, "")
    assert said.err == (
        f"stormcast: kept is no run directory: it lacks {name}; "
        "stormcast run FILE --out DIRECTORY makes one\n"
    )


@pytest.mark.parametrize("command", ["replay", "shrink"])
def test_a_run_without_traces_is_none(shell: Shell, kept: Path, command: str) -> None:
    for path in kept.glob("trace/*"):
        path.unlink()
    said = shell(command, kept)
    assert said.code == 2
    assert "it lacks trace/*.trace;" in said.err
    said = shell(command, ".")
    assert "lacks scenario.yaml, seed, versions.json, verdict.json, trace/*.trace;" in said.err


@pytest.mark.parametrize("command", ["replay", "shrink"])
@pytest.mark.parametrize("place", ["nowhere", "lossy.yaml"])
def test_what_is_no_directory_is_no_run(shell: Shell, kept: Path, command: str, place: str) -> None:
    assert kept.is_dir()
    said = shell(command, place)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"stormcast: {place} is no directory: give one that a run left")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("seed", "five", "'five' is no seed"),
        ("seed", "", "'' is no seed"),
        ("verdict.json", "{", "verdict.json is damaged: "),
        ("verdict.json", "[]", "it is no JSON object with verdict and findings"),
        ("verdict.json", "{}", "it is no JSON object with verdict and findings"),
        ("versions.json", "3", "it is no JSON object\n"),
        ("verdict.json", '{"verdict": "holds", "findings": [], "fate": "coin"}', "no dice 'coin'"),
        ("verdict.json", '{"verdict": "", "findings": [], "min_bites": "x"}', "min_bites is 'x'"),
    ],
)
def test_a_damaged_record_is_refused_by_name(
    shell: Shell, kept: Path, name: str, content: str, words: str
) -> None:
    (kept / name).write_text(content)
    said = shell("replay", kept)
    assert (said.code, said.out) == (2, "")
    assert f"kept/{name}" in said.err
    assert words in said.err
    assert "Traceback" not in said.err
