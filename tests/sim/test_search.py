"""The search: generated scenarios worth their time, judged the same on any number of cores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from stormcast.chaos import faults
from stormcast.chaos.campaigns.compare import compare
from stormcast.chaos.campaigns.generate import (
    CELLS,
    cell_of,
    generate,
    groups,
    is_group,
    least_of,
    unicast,
)
from stormcast.chaos.campaigns.generate.extras import EXTRAS
from stormcast.chaos.campaigns.generate.unicast import (
    LASTING,
    MIN_BITES,
    MIN_MESSAGES,
    TRAFFIC_SECONDS,
)
from stormcast.chaos.campaigns.rows import Plan, SearchDirectory, SeedResult, plan_of
from stormcast.chaos.campaigns.search import (
    Processes,
    Search,
    SearchError,
    SearchResult,
    empty_cells,
    run_part,
    run_seed,
)
from stormcast.chaos.language.cluster import GENERATIONS, TIMINGS
from stormcast.chaos.language.scenario import Scenario, dump, load_scenario, parse_scenario
from stormcast.chaos.language.timeline import WORDS, Step
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.session.simulation import simulate
from stormcast.node.protocols.unicast import Unicast

ALL_SEEDS = range(400)
SEEDS = [seed for seed in ALL_SEEDS if not is_group(seed)]
"""Those of unicast alone; tests/sim/test_search_groups.py is about the others."""


# -- What is generated -----------------------------------------------------------------------------


def test_the_scenario_of_a_seed_is_always_the_same() -> None:
    for seed in ALL_SEEDS:
        assert generate(seed) == generate(seed)
    assert generate(1) != generate(2)
    assert generate(1) != generate(1, attempt=1)
    assert generate(2) != generate(2, attempt=1)


def test_the_seeds_walk_both_grids_whole() -> None:
    """5 generations × 16 kinds and 5 stacks × 21: met by 240 seeds, whichever is the first."""
    for first in (0, 13, 1000):
        assert {cell_of(seed) for seed in range(first, first + 240)} == set(CELLS)
    assert len(CELLS) == 80 + 105


def test_a_seed_is_led_by_the_fault_of_its_cell() -> None:
    for seed in SEEDS:
        generation, leading = cell_of(seed)
        for attempt in range(3):
            scenario = generate(seed, attempt)
            assert scenario.cluster.unicast == generation
            assert leading in kinds_of(scenario.timeline)


def test_a_seed_that_met_too_little_twice_gets_two_leading_faults() -> None:
    for seed in range(240):
        _what, leading = cell_of(seed)
        words = [WORDS[type(step.action)] for step in generate(seed, 2).timeline]
        # In a group, a step among members that have yet to join is left out.
        assert words.count(leading) >= (1 if leading in {"forget", "install-view"} else 2)


def kinds_of(timeline: Iterable[Step]) -> set[str]:
    words = {
        faults.Forget: "forget",
        faults.Close: "close",
        faults.InstallView: "install-view",
        faults.SetAttribute: "set-attribute",
    }
    return {words.get(type(step.action), type(step.action).__name__.lower()) for step in timeline}


def test_a_generated_scenario_has_the_traffic_and_the_faults_that_are_promised() -> None:
    for seed in SEEDS:
        scenario = generate(seed)
        offered = sum(
            load.count * len(list(load.pairs()))
            for load in scenario.workload
            if load.sources != load.dests
        )
        assert offered >= MIN_MESSAGES
        assert len(scenario.timeline) >= MIN_BITES + 1
        if LATER.isdisjoint(extras_of(scenario)):
            assert all(load.end <= TRAFFIC_SECONDS + 0.1 for load in scenario.workload)
            assert all(0.0 <= step.at <= TRAFFIC_SECONDS for step in scenario.timeline)


def test_faults_that_last_have_an_end_and_others_have_none() -> None:
    for seed in SEEDS:
        for step in generate(seed).timeline:
            (kind,) = kinds_of([step])
            if kind in {"leave", "crash", "churn"}:
                continue
            assert (step.duration is not None) == (kind in LASTING)


def test_timelines_are_in_order_of_time() -> None:
    for seed in SEEDS:
        times = [step.at for step in generate(seed).timeline]
        assert all(one <= other for one, other in pairwise(times))


@pytest.mark.slow
def test_a_generated_scenario_can_be_kept_as_a_file() -> None:
    for seed in range(240):
        scenario = generate(seed)
        assert parse_scenario(dump(scenario)) == scenario


LATER = {"second wave", "late steps"}


def extras_of(scenario: Scenario) -> set[str]:
    """The names of the extras that a scenario has."""
    return {extra.name for extra in EXTRAS if f", with {extra.name}" in scenario.about}


def test_extras_are_drawn_by_dice_of_their_own() -> None:
    """What else a seed draws stays as it is, and each extra comes as often as it says."""
    fitting: Counter[str] = Counter()
    drawn: Counter[str] = Counter()
    for seed in range(3_000):
        plain = (groups.generate if is_group(seed) else unicast.generate)(seed, 0, *cell_of(seed))
        scenario = generate(seed)
        names = extras_of(scenario)
        fitting.update(extra.name for extra in EXTRAS if extra.fits(plain))
        drawn.update(names)
        if not names:
            assert scenario == plain
        kept = [step for step in scenario.timeline if step in plain.timeline]
        assert tuple(kept) == plain.timeline
        if "all flags" not in names:
            assert scenario.workload[: len(plain.workload)] == plain.workload
        is_longer = len(scenario.workload) > len(plain.workload)
        assert is_longer == (not LATER.isdisjoint(names))
    for extra in EXTRAS:
        share = drawn[extra.name] / fitting[extra.name]
        assert 0.5 * extra.share < share < 1.5 * extra.share, extra.name


def test_keys_come_with_all_steps_of_a_change_or_none() -> None:
    drawn: Counter[str] = Counter()
    for seed in ALL_SEEDS:
        scenario = generate(seed)
        steps = [step for step in scenario.timeline if isinstance(step.action, faults.ChangeKeys)]
        assert [step.action.step for step in steps] in ([], list(faults.KEY_STEPS))
        assert scenario.cluster.sealed or not steps
        drawn["sealed"] += scenario.cluster.sealed
        drawn["changes"] += bool(steps)
    assert 40 <= drawn["sealed"] <= 80
    assert 15 <= drawn["changes"] <= 45


def test_draws_reach_every_corner_of_the_settings() -> None:
    drawn: Counter[str] = Counter()
    for seed in range(2, 1202, 3):
        scenario = generate(seed)
        cluster = scenario.cluster
        drawn.update(name for name, _value in cluster.settings)
        drawn[f"batch {cluster.max_batch}"] += 1
        drawn[f"timing {cluster.timing}"] += 1
        drawn[f"members {len(cluster.members)}"] += 1
        drawn["first conn"] += cluster.unicast_first_conn is not None
        drawn["to self"] += any(load.sources == load.dests for load in scenario.workload)
        drawn["oob"] += any(load.oob_every for load in scenario.workload)
        drawn["alone"] += any(load.flags for load in scenario.workload)
        for step in scenario.timeline:
            action = step.action
            if isinstance(action, faults.SetAttribute):
                drawn[f"set {action.attribute}"] += 1
            if isinstance(action, faults.InstallView):
                drawn["view of one"] += len(action.members) == 1
                drawn["view of a few"] += len(action.at_members) > 1
            is_long = isinstance(action, faults.Stall) and (step.duration or 0.0) > 6.5
            drawn["stalled beyond the idle time"] += is_long
    expected = {
        "conn_close_timeout", "conn_expiry_timeout", "window_messages", "window_bytes",
        "max_xmit_req_size", "ack_threshold", "stable_interval", "first conn", "to self", "oob",
        "set conn_expiry_timeout", "set conn_close_timeout", "set max_retransmit_time",
        "set max_xmit_req_size", "view of one", "view of a few", "stalled beyond the idle time",
        "alone", "members 2", "members 3", "members 4",
        *(f"batch {size}" for size in (None, 1, 3, 20)), *(f"timing {name}" for name in TIMINGS),
    }  # fmt: skip  # a list of words
    assert {name for name, count in drawn.items() if count >= 10} >= expected


# -- What is found ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_seed_meets_what_it_promises_and_says_so() -> None:
    for seed in range(24):
        result = run_seed(seed)
        assert result.verdict is Verdict.HOLDS, f"stormcast search --from {seed} --seeds 1"
        least = least_of(seed)
        assert result.messages >= least.messages
        assert result.owed is not None
        assert result.owed >= least.owed
        assert result.events > 0
        assert cell_of(seed)[1] in result.faults
        assert set(result.faults) <= set(WORDS.values())
        assert result.broken == ()


def begun(seeds: range, out: Path) -> Plan:
    """A search that has run nothing yet."""
    plan = plan_of([seeds.start], len(seeds))
    with SearchDirectory(out).opened(plan):
        return plan


def searched(seeds: range, out: Path, workers: int = 1) -> tuple[SearchResult, list[int]]:
    """A search to its end, and how many seeds it told of each time."""
    told: list[int] = []
    plan = plan_of([seeds.start], len(seeds))
    with SearchDirectory(out).opened(plan) as directory:
        total = Search(plan, directory).run(
            Processes(workers), lambda total: told.append(total.seeds)
        )
    return total, told


@pytest.mark.slow
def test_one_core_and_two_find_the_same(tmp_path: Path) -> None:
    """Twenty-one seeds are two parts; the order in which they end does not show."""
    alone, told = searched(range(100, 121), tmp_path / "alone")
    together, _told = searched(range(100, 121), tmp_path / "together", workers=2)
    assert told == [20, 21, 21]
    assert alone.seeds == together.seeds == 21
    assert but_seconds(alone) == but_seconds(together)
    assert alone.cells == together.cells
    assert alone.violations == alone.unknown == []


def but_seconds(result: SearchResult) -> dict[str, Any]:
    return {**result.as_json(), "seconds": None}


class Deaf(Unicast):
    """A mutant that never repairs: whatever is lost last is lost for good."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._repairs._repair = lambda _entry, _now: None


@pytest.mark.slow
def test_a_violation_is_named_kept_and_replays(tmp_path: Path) -> None:
    """A mutant of UNICAST3, each fifth seed, loses messages soon; what shows it is a file."""
    seed, result = next(
        (seed, found)
        for seed in range(2, 200, 15)
        if (found := run_seed(seed, Deaf, tmp_path)).verdict is Verdict.VIOLATED
    )
    assert result.broken
    assert result.broken[0].startswith(("G1: ", "L1: "))
    assert "[" in result.broken[0]
    kept = tmp_path / f"seed-{seed}"
    assert (kept / "seed").read_text() == f"{seed}\n"
    again = simulate(load_scenario(kept / "scenario.yaml"), seed, make_unicast=Deaf)
    for label, data in again.traces.items():
        assert (kept / "trace" / f"{label}.trace").read_bytes() == data


def test_what_holds_is_not_kept(tmp_path: Path) -> None:
    assert run_seed(3, out=tmp_path).verdict is Verdict.HOLDS
    assert list(tmp_path.iterdir()) == []


def a_result(seed: int, verdict: Verdict = Verdict.HOLDS, **more: Any) -> SeedResult:
    given = {"events": 100, "messages": 1000, "faults": ("loss", "pause"), "broken": ("G1: x",)}
    return SeedResult(seed=seed, verdict=verdict, **(given | more))


def test_a_total_counts_what_it_is_given() -> None:
    total = SearchResult()
    for result in (a_result(5), a_result(1, Verdict.VIOLATED), a_result(20, Verdict.UNKNOWN)):
        total.add(result)
    assert total.as_json() == {
        "seeds": 3,
        "violations": 1,
        "unknown": 1,
        "events": 300,
        "seconds": 0.0,
        "resumed": 0,
        "violated_seeds": [{"seed": 1, "broken": ["G1: x"]}],
        "unknown_seeds": [20],
    }
    assert total.cells == {
        ("UNICAST", "loss"): 2,
        ("UNICAST", "pause"): 2,
        ("mcast", "loss"): 1,
        ("mcast", "pause"): 1,
    }


def test_what_fails_in_the_same_way_is_one_group_with_its_first_and_its_smallest_seed() -> None:
    total = SearchResult()
    for seed, verdict, words, events in (
        (9, Verdict.VIOLATED, "G1: lost", 50),
        (4, Verdict.VIOLATED, "G1: lost", 70),
        (6, Verdict.VIOLATED, "G1: lost", 50),
        (3, Verdict.VIOLATED, "G2: twice", 10),
        (1, Verdict.UNKNOWN, "G1: lost", 1),
        (2, Verdict.UNKNOWN, "G1: lost", 1),
        (0, Verdict.HOLDS, "", 1),
    ):
        total.add(a_result(seed, verdict, fingerprint=words, guarantee=words[:2], events=events))
    assert [group.as_json() for group in total.groups()] == [
        {"verdict": "violated", "guarantee": "G1", "fingerprint": "G1: lost",
         "seeds": 3, "first": 4, "smallest": 6},
        {"verdict": "violated", "guarantee": "G2", "fingerprint": "G2: twice",
         "seeds": 1, "first": 3, "smallest": 3},
        {"verdict": "unknown", "guarantee": "G1", "fingerprint": "G1: lost",
         "seeds": 2, "first": 1, "smallest": 1},
    ]  # fmt: skip  # a list of words


def test_cells_that_nobody_met_are_named() -> None:
    total = SearchResult()
    total.add(a_result(5))
    cells = [("UNICAST", "loss"), ("UNICAST", "cut"), ("udp", "loss")]
    assert empty_cells(total, cells) == [("UNICAST", "cut"), ("udp", "loss")]
    assert len(empty_cells(total)) == len(CELLS) - 2


def test_a_seed_that_crashes_is_a_finding_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(seed: int, **_rest: object) -> SeedResult:
        if seed in (3, 4):
            raise AssertionError(f"our own bug at {seed}")
        return a_result(seed)

    monkeypatch.setattr("stormcast.chaos.campaigns.search.run_seed", crash)
    total, _told = searched(range(6), tmp_path)
    assert total.seeds == 6
    (group,) = total.groups()
    assert (group.seeds, group.first, group.guarantee) == (2, 3, "crash")
    assert group.fingerprint.startswith("crash: AssertionError('our own bug at 0') [test_search.py")
    assert "our own bug at 3" in total.violations[0].broken[0]


# -- Going on --------------------------------------------------------------------------------------


class Runs:
    """Stands for the simulator: notes which seeds are run, and may fail at one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seeds: list[int] = []
        self.breaks_at: tuple[int, BaseException] | None = None
        monkeypatch.setattr("stormcast.chaos.campaigns.search.run_seed", self.run)

    def run(self, seed: int, **_rest: object) -> SeedResult:
        if self.breaks_at is not None and seed == self.breaks_at[0]:
            raise self.breaks_at[1]
        self.seeds.append(seed)
        return a_result(seed)


def test_a_search_goes_on_where_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a part: rows are written seed by seed, so none is run again."""
    runs = Runs(monkeypatch)
    runs.breaks_at = (27, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        searched(range(50), tmp_path)
    assert runs.seeds == list(range(27))

    runs.breaks_at = None
    total, _told = searched(range(50), tmp_path)
    assert runs.seeds == list(range(50))
    assert (total.seeds, total.resumed, total.events) == (50, 27, 5000)

    total, _told = searched(range(50), tmp_path)
    assert len(runs.seeds) == 50
    assert (total.seeds, total.resumed) == (50, 50)


def test_an_interrupted_search_has_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(monkeypatch)
    runs.breaks_at = (27, KeyboardInterrupt())
    plan = plan_of([0], 50)
    with SearchDirectory(tmp_path).opened(plan) as directory:
        search = Search(plan, directory)
        with pytest.raises(KeyboardInterrupt):
            search.run(Processes(1), lambda _total: None)
    assert search.total.seeds == 27


def test_a_part_that_is_run_twice_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hosts that ran the same part at once, neither of which saw a row of the other."""
    Runs(monkeypatch)
    begun(range(20), tmp_path)
    directory = SearchDirectory(tmp_path)
    for _ in range(2):
        with directory.writer(range(20)) as rows:
            rows.writelines(a_result(seed).as_line() + "\n" for seed in range(20))
    total, _told = searched(range(20), tmp_path)
    assert (total.seeds, total.events) == (20, 2000)


def test_seeds_that_left_no_row_are_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that says all is done, where rows of it are nowhere."""

    class Lazy:
        @staticmethod
        def run(_work: object, _items: object, _look: object) -> list[str]:
            return []

    monkeypatch.setattr("stormcast.chaos.campaigns.search.SEEN_SECONDS", 0.0)
    plan = plan_of([0], 30)
    with (
        SearchDirectory(tmp_path).opened(plan) as directory,
        pytest.raises(SearchError, match="30 seeds left no row"),
    ):
        Search(plan, directory).run(Lazy(), lambda _total: None)


def test_a_host_without_the_storage_or_with_another_version_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(monkeypatch)
    why = run_part(tmp_path, range(20))
    assert why is not None
    assert "search.json is not there: --out must be storage that all hosts share" in why

    plan = begun(range(20), tmp_path)
    monkeypatch.setattr(
        "stormcast.chaos.campaigns.search.versions", lambda: plan.versions | {"code": "another"}
    )
    why = run_part(tmp_path, range(20))
    assert why is not None
    assert f"has another version (code {plan.versions['code']}, here another)" in why
    assert runs.seeds == []
    with pytest.raises(SearchError, match="has another version"):
        searched(range(20), tmp_path)


# -- Comparing -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_generations_pay_what_the_design_notes_say() -> None:
    """On one storm: who acks each frame, who repeats everything, who keeps the sender's window."""
    rows = {row.unicast: row for row in compare(1, "compatible")}
    assert list(rows) == list(GENERATIONS)
    assert {row.verdict for row in rows.values()} == {"holds"}
    first, second, third = rows["UNICAST"], rows["UNICAST2"], rows["UNICAST3"]
    assert first.acks >= first.data_frames
    assert second.acks < third.acks < first.acks / 2
    assert third.resent < first.resent
    assert second.unacked_peak_bytes > third.unacked_peak_bytes
    for row in rows.values():
        assert row.messages == 4000
        assert row.resync_ms > 0
        assert row.repaired_ms > 0


@pytest.mark.slow
@pytest.mark.parametrize("timing", TIMINGS)
def test_a_storm_of_another_seed_is_compared_too(timing: str) -> None:
    for seed in (2, 3):
        rows = list(compare(seed, timing))
        assert {row.verdict for row in rows} == {"holds"}
        assert rows == list(compare(seed, timing))
        assert replace(rows[0], unicast="") != replace(rows[1], unicast="")
