"""What the checks after a kill must find: each fails on what it is there for."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.language.shipped import find_shipped
from stormcast.chaos.session.outcome import RunOutcome, write_run
from stormcast.chaos.session.runner import run_scenario
from stormcast.node import trace
from stormcast.node.trace import read_block_untrusted
from tests.kills import blocks, campaign, counting, judges
from tests.kills.found import Found
from tests.kills.plan import CELLS, FAULTS, STACKS, Kill, draw
from tests.kills.seen import Owner, alive_marks

SEEDS = range(3)


@cache
def sound() -> RunOutcome:
    """A run in which all is well: three members of a group, multicasts and unicasts."""
    kill = next(kill for kill in map(draw_first, range(100)) if kill.fault == "cut")
    return run_scenario(parse_scenario(kill.scenario()), 1)


def draw_first(number: int) -> Kill:
    return draw(1, number)


def traces() -> dict[str, bytes]:
    return dict(sound().run.traces)


def without(label: str, kind: int) -> dict[str, bytes]:
    """The traces, and from that of one member on the first block that says something of a kind
    everything cut off."""
    found = traces()
    kept = b""
    for raw in blocks.raw_blocks(found[label]):
        block, _end = read_block_untrusted(raw, 0, xxh3_64_intdigest)
        if any(event.kind == kind for event in block.events):
            break
        kept += raw
    return found | {label: kept}


# -- Which kills -----------------------------------------------------------------------------------


def test_a_kill_is_a_function_of_seed_and_number() -> None:
    assert [draw(7, number) for number in range(50)] == [draw(7, number) for number in range(50)]
    assert draw(7, 3) != draw(8, 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_hundred_meets_every_victim_in_every_phase_that_it_has(seed: int) -> None:
    first, second = (
        Counter((kill.victim, kill.phase) for kill in (draw(seed, n) for n in numbers))
        for numbers in (range(100), range(100, 200))
    )
    assert first == second
    assert set(first) == set(CELLS)


def test_their_scenarios_can_be_read() -> None:
    kills = [draw(1, number) for number in range(300)]
    assert {kill.fault for kill in kills} == set(FAULTS)
    assert {kill.stack for kill in kills} == set(STACKS)
    for kill in {(kill.fault, kill.stack): kill for kill in kills}.values():
        assert parse_scenario(kill.scenario()).cluster.stack == kill.stack


# -- Journals --------------------------------------------------------------------------------------


def test_blocks_that_are_gone_or_other_than_they_were_are_lost() -> None:
    before = {"n0-1": [b"one", b"two"]}
    whole = {label: blocks.raw_blocks(data) for label, data in traces().items()}
    assert blocks.lost_blocks(whole, traces()) == []
    (label, first), *_ = sorted(whole.items())
    less = traces() | {label: b"".join(first[:-1])}
    assert blocks.lost_blocks(whole, less) == [
        f"{label}: 1 of {len(first)} blocks on disk are lost"
    ]
    other = traces() | {label: b"".join([*first[:-1], first[-1][:-1] + b"\xff"])}
    assert blocks.lost_blocks(whole, other) == blocks.lost_blocks(whole, less)
    assert blocks.lost_blocks(before, {}) == ["n0-1: 2 of 2 blocks on disk are lost"]


def test_what_others_have_of_a_member_must_be_in_its_journal() -> None:
    assert blocks.unknown_to_their_makers(traces()) == []
    found = blocks.unknown_to_their_makers(without("n0-1", trace.SENT))
    assert any("are not in n0-1, which n1-1 delivered of it" in line for line in found)
    found = blocks.unknown_to_their_makers(without("n1-1", trace.DELIVERED))
    assert any("which n1-1 acked to n0-1, are not in n1-1" in line for line in found)


def test_a_block_that_is_not_sound_is_found() -> None:
    label, data = min(traces().items())
    (bad,) = blocks.unknown_to_their_makers({label: data[:100] + b"\xff" + data[101:]})
    assert bad.startswith("a block is not sound: ")


def test_journals_of_a_run_are_found_wherever_they_are(tmp_path: Path) -> None:
    label, data = min(traces().items())
    place = tmp_path / "logs" / "n0" / "journal" / label
    place.mkdir(parents=True)
    (place / "000000.trace").write_bytes(data + bytes(500))
    assert blocks.kept(tmp_path) == {label: data}
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace" / "rig.trace").write_bytes(data)
    assert blocks.kept(tmp_path) == {label: data, "rig": data}


# -- Verdicts --------------------------------------------------------------------------------------


def test_a_run_in_which_all_came_once_may_hold() -> None:
    assert counting.why_not_holds(traces()) == []


@pytest.mark.parametrize("label", ["n1-1", "n2-1"])
def test_a_run_in_which_something_did_not_come_may_not(label: str) -> None:
    lives = blocks.read_lives(traces())
    short = next(life.short for life in lives.values() if life.label == label)
    events = lives[short].events
    for number, event in enumerate(events):
        if event.kind == trace.DELIVERED and event.peer != short:
            del events[number]
            break
    assert any(f"are not in {label}" in line for line in counting.missing(lives, set()))


def test_a_run_in_which_something_came_twice_may_not() -> None:
    lives = blocks.read_lives(traces())
    life = next(iter(lives.values()))
    life.events += [event for event in life.events if event.kind == trace.DELIVERED][:1]
    assert any("2 times" in line for line in counting.missing(lives, set()))


def test_a_run_in_which_somebody_died_unordered_may_not() -> None:
    scenario = find_shipped("coordinator-killed").read()
    ended = run_scenario(scenario, 1).run.traces
    assert counting.deaths(ended) == [], "the rig ordered that"


def test_verdicts_are_held_against_the_files_beside_them(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_run(sound(), run)
    told = json.loads((run / "verdict.json").read_text())
    assert counting.wrong_verdicts(run, 0) == []
    assert counting.wrong_verdicts(run, None) == []
    assert counting.wrong_verdicts(run, 3) == ["exit 3, and the verdict is holds"]
    half = (run / "verdict.json").read_text()
    (run / "verdict.json").write_text(half[:200])
    (line,) = counting.wrong_verdicts(run, None)
    assert line.startswith("verdict.json is not whole: ")
    told |= {"verdict": "violated", "findings": [{"verdict": "violated", "detail": "lost"}]}
    (run / "verdict.json").write_text(json.dumps(told))
    assert counting.wrong_verdicts(run, 1) == ["violated: lost"]
    (run / "verdict.json").unlink()
    assert counting.wrong_verdicts(run, None) == []
    assert counting.wrong_verdicts(run, 3) == []
    assert counting.wrong_verdicts(run, 0) == ["exit 0, and there is no verdict"]


def test_a_verdict_of_other_traces_and_one_that_hides_a_loss_are_found(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_run(sound(), run)
    label = "n1-1"
    cut = without(label, trace.SENT)[label]
    (run / "trace" / f"{label}.trace").write_bytes(cut)
    assert "the verdict is not of the traces beside it" in counting.wrong_verdicts(run, 0)
    told = json.loads((run / "verdict.json").read_text())
    told["evidence_digest"] = counting._digest(run)
    (run / "verdict.json").write_text(json.dumps(told))
    found = counting.wrong_verdicts(run, 0)
    assert found
    assert all(line.startswith("holds, but ") and line.endswith(f"in {label}") for line in found)


def test_a_killed_judge_leaves_nothing_or_all(tmp_path: Path) -> None:
    (tmp_path / "verify").mkdir()
    assert judges._not_whole(tmp_path) == []
    (tmp_path / "verify" / "verdict.json").write_text('{"verdict": "hol')
    assert "is not whole" in judges._not_whole(tmp_path)[0]
    (tmp_path / "verify" / "verdict.json").write_text('{"verdict": "violated"}')
    assert judges._not_whole(tmp_path) == ["a killed judge said violated"]


# -- The machine -----------------------------------------------------------------------------------

SLEEP = (sys.executable, "-c", "import time; time.sleep(600)")
RULESET = """\
table inet sc41_7_1 {
    map alive4_0 {
        type ipv4_addr : mark
        flags timeout
        elements = { 198.18.0.2 timeout 3s expires 2s11ms : 0x5c000001,
            198.18.0.3 timeout 3s expires 2s11ms : 0x5c000001 }
    }

    map alive4_1 {
        type ipv4_addr : mark
        flags timeout
    }
    chain input {
        meta mark != 0x5c000001 accept
    }
}
"""


def test_marks_that_have_not_timed_out_act() -> None:
    assert len(alive_marks(RULESET)) == 2
    lapsed = "\n".join(line for line in RULESET.splitlines() if "expires" not in line)
    assert alive_marks(lapsed) == []


def test_what_a_run_left_is_seen(tmp_path: Path) -> None:
    """A process of its session, one that carries its name, a folder, and a socket."""
    with subprocess.Popen(SLEEP, start_new_session=True) as leader:
        owner = Owner.of(leader.pid, tmp_path)
        try:
            assert owner.left() == []
            name = f"{owner.prefix}1"
            marked = {**os.environ, "SC_RUN": name}
            with (
                subprocess.Popen(SLEEP, env=marked) as stray,
                tempfile.TemporaryDirectory(prefix=f"{name}-") as folder,
                socket.socket(socket.AF_UNIX) as listening,
            ):
                listening.bind(str(tmp_path / "a.sock"))
                listening.listen()
                found = owner.left()
                stray.kill()
            assert [line.split()[0] for line in found] == ["process", "socket", "folder"]
            assert str(stray.pid) in found[0]
            assert found[1:] == [f"socket {tmp_path / 'a.sock'}", f"folder {folder}"]
            assert owner.left() == [], "nobody listens, though the file is there"
        finally:
            leader.kill()


def test_a_table_has_each_kill_and_says_which_found_something(tmp_path: Path) -> None:
    made = campaign.Campaign(
        seed=1, folder=tmp_path, at_once=1, has_spark=False, say=lambda _text: None
    )
    well, bad = Found("rig", "running", blocks=3), Found("rig", "running", acted=True)
    bad.add("journals", ["lost"])
    made.done = [(draw(1, 0), well), (draw(1, 1), bad)]
    first, *_ = campaign.table(made).splitlines()
    assert first.split() == ["starting", "running", "healing", "collecting", "all"]
    assert "2 kills, seed 1: 1 found something, 3 blocks" in campaign.table(made)
    assert made.bad == [(str(draw(1, 1)), ["journals: lost"])]
