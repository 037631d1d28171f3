"""Members that are killed by nobody's order: a run says so first, and proves nothing."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.chaos.backends.netns.backend import NetnsBackend
from stormcast.chaos.commands.run import report
from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.oracles.verdict import RUN, Verdict
from stormcast.chaos.plugin.live_cluster import Clusters, VerdictError
from stormcast.chaos.session.outcome import RunOutcome
from stormcast.chaos.session.runner import run_on
from stormcast.node.trace import EXIT, read_blocks_untrusted
from tests.helpers.live import netns, process

pytestmark = [pytest.mark.root, pytest.mark.slow]

GROUP = """
name: killed
guarantees: [G1, G2, G3, G4, G5, G8, A1, V1, V2, V3, V4, C1, L1]
cluster: {members: 3, stack: udp, timing: fast}
workload:
  - {do: multicast, from: all, count: 120, rate: 40/s, size: 64B}
  - {do: unicast, from: all, to: others, count: 60, rate: 20/s, size: 64B}
expect:
  - {by: 20s, delivered: all}
limits: {run: 20s, settle: 5s}
"""


def killed(
    folder: Path, text: str, is_time: Callable[[str, float], bool], number: int = signal.SIGKILL
) -> RunOutcome:
    """Play a scenario, in which n1 is sent a signal from outside when it is time, by what the run
    says of itself and its clock."""
    backend = netns()
    struck: list[int] = []
    begun: list[float] = []

    def tell(said: str) -> None:
        if not begun and said.startswith("t="):
            begun.append(backend.now())
        if not struck and is_time(said, backend.now() - begun[0] if begun else -1.0):
            struck.append(backend.opened.members.processes["n1"].pid)
            os.kill(struck[0], number)

    outcome = run_on(backend, parse_scenario(text), 1, out=folder, tell=tell)
    assert struck, "nobody was killed"
    return outcome


def exits(outcome: RunOutcome) -> list[dict[str, object]]:
    return [
        json.loads(block.text(event))
        for block in read_blocks_untrusted(outcome.run.traces["rig"], xxh3_64_intdigest)
        for event in block.events
        if event.kind == EXIT
    ]


def violated(outcome: RunOutcome) -> list[str]:
    return [
        f"{one.guarantee}: {one.detail}"
        for one in outcome.judgement.findings
        if one.verdict is Verdict.VIOLATED
    ]


def is_waiting(said: str, _at: float) -> bool:
    return "waiting for the workload" in said


def is_quiet(said: str, _at: float) -> bool:
    return "quiet for" in said


@pytest.mark.parametrize("is_time", [is_waiting, is_quiet])
def test_a_member_that_was_killed_from_outside_makes_the_run_unknown_and_is_said_first(
    tmp_path: Path, is_time: Callable[[str, float], bool]
) -> None:
    """In the middle of traffic, or when the others have no time left to agree on a view."""
    outcome = killed(tmp_path / "run", GROUP, is_time)

    assert not violated(outcome)
    assert outcome.verdict is Verdict.UNKNOWN
    first = outcome.judgement.findings[0]
    assert (first.guarantee, first.verdict) == (RUN, Verdict.UNKNOWN)
    assert first.detail.startswith("n1 died at ")
    assert first.detail.endswith(" s of signal 9; nothing in the scenario did that")
    assert first.detail in report(outcome).splitlines()[1]
    (end,) = exits(outcome)
    assert end["name"] == "n1"
    assert (end["incarnation"], end["signal"], end["ordered"]) == (1, 9, False)
    assert end["member"] in outcome.run.evidence.members
    assert not outcome.run.evidence.members[int(str(end["member"]))].lives


def test_deaths_that_the_scenario_orders_are_on_record_and_no_doubt(tmp_path: Path) -> None:
    text = GROUP.replace(
        "expect:\n  - {by: 20s, delivered: all}",
        "timeline:\n  - {at: 500ms, do: crash, member: n1}\n  - {at: 1s, do: leave, member: n2}",
    )
    outcome = run_on(netns(), parse_scenario(text), 1, out=tmp_path / "run")

    assert outcome.verdict is Verdict.HOLDS, report(outcome)
    told = [
        (end["name"], end.get("signal", end.get("code")), end["ordered"]) for end in exits(outcome)
    ]
    assert told == [("n1", 9, True), ("n2", 0, True)]


def test_a_member_that_dies_before_all_are_ready_is_the_first_reason_of_the_broken_run(
    tmp_path: Path,
) -> None:
    """Its process is there as soon as the rig has told that it starts; it never answered."""
    backend = netns()
    start = backend.start

    def kill_at_once(name: str) -> None:
        start(name)
        if name == "n1":
            os.kill(backend.opened.members.processes[name].pid, signal.SIGTERM)

    backend.start = kill_at_once  # type: ignore[method-assign]
    outcome = run_on(backend, parse_scenario(GROUP), 1, out=tmp_path / "run")

    assert outcome.verdict is Verdict.UNKNOWN
    death, broke_off = outcome.judgement.findings
    assert "n1 died " in death.detail
    assert "of signal 15; nothing in the scenario did that" in death.detail
    assert "n1 ended before it was ready" in broke_off.detail


def test_a_test_with_the_fixtures_fails_with_the_death_as_its_first_reason(tmp_path: Path) -> None:
    clusters = Clusters(
        backend="netns", seed=1, name="killed", folder=tmp_path, is_kept=False, replay="pytest x"
    )
    try:
        group = clusters(3, backend=NetnsBackend())
        group.multicast(100, rate="50/s", size="16B")
        group.wait(0.5)
        os.kill(process(group, "n1").pid, signal.SIGKILL)
        group.wait(0.5)
        with pytest.raises(VerdictError) as failure:
            group.finish()
    finally:
        clusters.close()
    first = str(failure.value).splitlines()[1]
    assert first.startswith("run unknown: n1 died at ")
    assert "of signal 9; nothing in the scenario did that" in first
    assert group.outcome is not None
    assert not violated(group.outcome)
