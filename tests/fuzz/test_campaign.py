"""Campaigns send all that they are to, once, go on where they were, and make findings smaller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stormcast.chaos.backends.base import BackendError
from stormcast.exits import Exit
from stormcast.node.core.errors import ConfigError
from tests.fuzz import report
from tests.fuzz.campaign import Campaign, Plan, Play, fingerprint, halved, repeat_command
from tests.fuzz.frames import CHUNK
from tests.fuzz.groups import TARGETS, Target
from tests.fuzz.rounds import FORGED, KEYED, PLAIN, Result, Round, Tell
from tests.fuzz.tallies import Tally

PLAN = Plan(frames=100_000, seed=1, targets=tuple(t.name for t in TARGETS), round_frames=8000)


def quiet(_text: str) -> None:
    pass


def played(finds: Callable[[Round], list[str]] = lambda _round: []) -> tuple[Play, list[Round]]:
    """A way to play rounds that sends nothing, and the rounds that were played so."""
    seen: list[Round] = []

    def play(
        _target: Target, one: Round, _folder: Path, _tell: Tell, _facts: Path | None
    ) -> Result:
        seen.append(one)
        result = Result(round=one, verdict="holds", findings=finds(one))
        result.sent = {"frames": one.count}
        return result

    return play, seen


def test_all_frames_are_sent_once_to_every_target_in_its_share() -> None:
    rounds = PLAN.rounds()
    assert sum(one.count for one in rounds) == pytest.approx(PLAN.frames, rel=0.01)
    for target in TARGETS:
        mine = [one for one in rounds if one.target == target.name]
        assert {one.part for one in mine} == ({PLAIN, FORGED} if target.has_powers else {PLAIN})
        for part in (PLAIN, FORGED):
            ends = 0
            for one in [one for one in mine if one.part == part]:
                assert one.first == ends
                assert one.count % CHUNK == 0
                assert 0 < one.count <= PLAN.round_frames
                ends += one.count


def test_one_target_gets_all_frames() -> None:
    plan = Plan(frames=4000, seed=1, targets=("agent",), first=800)
    assert [(one.first, one.count) for one in plan.rounds()] == [(800, 4000)]


def test_with_keys_there_is_one_part_of_all_frames() -> None:
    plan = replace(PLAN, parts=(KEYED,))
    assert sum(one.count for one in plan.rounds()) == pytest.approx(PLAN.frames, rel=0.01)
    assert {(one.part, one.is_keyed) for one in plan.rounds()} == {(KEYED, True)}
    assert not any(one.is_keyed for one in PLAN.rounds())
    one = replace(plan.rounds()[0], settings=("GMS.x=1",))
    assert "--keyed --seed 1" in repeat_command(one, Path("f.json"))
    assert "--set GMS.x=1" in repeat_command(one, Path("f.json"))


def test_every_target_has_its_turn_early() -> None:
    rounds = PLAN.rounds()
    assert {one.target for one in rounds[: len(TARGETS)]} == {target.name for target in TARGETS}


def test_a_campaign_goes_on_where_it_was(tmp_path: Path) -> None:
    """It is broken off in the fourth round, of which nothing is kept, and a line is torn."""
    play, seen = played()

    def breaks(target: Target, one: Round, folder: Path, tell: Tell, facts: Path | None) -> Result:
        if len(seen) == 3:
            raise KeyboardInterrupt
        return play(target, one, folder, tell, facts)

    first = Campaign(PLAN, tmp_path, quiet, breaks)
    with pytest.raises(KeyboardInterrupt):
        first.run()
    with (tmp_path / "rounds.jsonl").open("a") as rows:
        rows.write('{"round": {"tar')
    again = Campaign(PLAN, tmp_path, quiet, play)
    assert [result.round for result in again.results] == seen[:3]
    assert report.exit_of(again.results, len(again.left)) is Exit.UNKNOWN
    again.run()
    assert seen == PLAN.rounds()
    assert report.exit_of(again.results, len(again.left)) is Exit.HOLDS
    third = Campaign(PLAN, tmp_path, quiet, play)
    assert [result.round for result in third.results] == PLAN.rounds()


def test_another_campaign_is_not_mixed_in(tmp_path: Path) -> None:
    Campaign(PLAN, tmp_path, quiet)
    with pytest.raises(ConfigError, match="choose another directory"):
        Campaign(replace(PLAN, seed=2), tmp_path, quiet)


def test_a_finding_is_made_smaller_and_can_be_repeated(tmp_path: Path) -> None:
    """Frame 5,000 is the one: what is left is its chunk."""
    plan = Plan(frames=8000, seed=3, targets=("udp",), parts=(PLAIN,))
    play, seen = played(
        lambda one: ["n0 ended with -11"] if one.first <= 5000 < one.first + one.count else []
    )
    campaign = Campaign(plan, tmp_path, quiet, play)
    campaign.run(trials=40)
    (result,) = campaign.results
    assert min(one.count for one in seen) == CHUNK
    assert report.exit_of(campaign.results, 0) is Exit.VIOLATED
    (line,) = report.findings(campaign.results)
    facts = tmp_path / "udp-plain-0" / "facts.json"
    assert line == f"udp: n0 ended with -11; repeat: {result.repeat}"
    assert result.repeat.endswith(f"--seed 3 --from 5000 --frames 8 --facts {facts}")


def test_another_finding_is_not_taken_for_the_same() -> None:
    assert fingerprint(["n0 ended with -11"]) == fingerprint(["n2 ended with -6", "more"])
    assert fingerprint(["n0 ended with -11"]) != fingerprint(["a view changed 3 times"])


@pytest.mark.parametrize("trials", [0, 1, 5])
def test_halving_takes_no_more_trials_than_it_may(trials: int) -> None:
    tried: list[Round] = []

    def fails(one: Round) -> bool:
        tried.append(one)
        return True

    whole = Round(target="udp", part=PLAIN, seed=1, first=0, count=1024 * CHUNK)
    assert halved(whole, fails, trials).count == whole.count >> trials
    assert len(tried) == trials


def test_rounds_that_this_machine_cannot_play_end_the_campaign(tmp_path: Path) -> None:
    def fails(*_words: object) -> Result:
        raise BackendError("no namespaces")

    campaign = Campaign(PLAN, tmp_path, quiet, fails)
    with pytest.raises(BackendError):
        campaign.run()
    assert report.exit_of(campaign.results, len(campaign.left)) is Exit.UNKNOWN


def test_results_and_counts_are_kept_whole() -> None:
    one = Round(target="udp", part=FORGED, seed=1, first=8, count=16, settings=("GMS.x=1",))
    result = Result(round=one, memory={"n0": (1, 2, 0.5, 0.25)}, findings=["x"])
    assert Result.from_words(result.as_words()) == result
    tally = Tally()
    tally.foresee("n0", {"short": 2}, {"magic": 1})
    tally.find(7, "no answer")
    whole = Tally()
    whole.add(tally)
    whole.add(Tally.from_words(tally.as_words()))
    assert whole.certain["n0"]["short"] == 4
    assert whole.possible["n0"]["magic"] == 2
    assert whole.findings == [(7, "no answer")] * 2


def test_the_report_names_what_can_change_a_view_and_counts_it_apart() -> None:
    one = Round(target="udp", part=FORGED, seed=1, first=0, count=8)
    result = Result(
        round=one, views=2, verdict="not asked for", sent={"frames": 8},
        powers={"view": 3, "view: LEAVE_REQ of GMS": 3, "pause": 1, "pause: MERGE_REQ of GMS": 1},
    )  # fmt: skip  # two lines
    text = "\n".join([report.table([result]), *report.powers([result])])
    assert "3 frames that can change a view" in text
    assert "views changed 2 times" in text
    assert "LEAVE_REQ of GMS 3: of a member" in text
    assert "MERGE_REQ of GMS 1: of anybody" in text
    result = replace(result, round=replace(one, part=KEYED), views=0)
    (line,) = report.powers([result])
    assert line.startswith("keyed: 3 frames that can change a view without keys")
    assert line.endswith("views changed 0 times")
    assert repeat_command(one, Path("f.json")).endswith(
        "--part forged --seed 1 --from 0 --frames 8 --facts f.json"
    )
