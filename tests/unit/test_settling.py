"""When a run is over: nothing is on its way any more, or the run says that something was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.chaos.backends.sim.backend import SimBackend
from stormcast.chaos.faults import Link
from stormcast.chaos.language.scenario import Scenario, parse_scenario
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.session import session
from stormcast.chaos.session.judging import judge_run
from stormcast.chaos.session.record import RunRecord
from stormcast.chaos.session.session import play
from stormcast.chaos.session.settling import (
    STILL_SECONDS,
    Waits,
    again_seconds,
    still_seconds,
    vain_repairs,
)
from stormcast.chaos.session.simulation import simulate
from stormcast.node.trace import PHASE, read_blocks_untrusted

PAIR = """
name: pair
guarantees: [G1]
cluster: {members: 2, timing: fast}
workload:
  - {do: unicast, from: n0, to: n1, count: 100, rate: 50/s, size: 16B}
limits: {run: 60s, settle: 20s}
"""


class RealTime(SimBackend):
    """The simulator, of which a session thinks that its time is dear."""

    is_virtual = False


def scenario_of(network: Link, *, settle: float, run: float = 60.0) -> Scenario:
    scenario = parse_scenario(PAIR)
    limits = replace(scenario.limits, settle=settle, run=run)
    return replace(scenario, network=network, limits=limits)


def verdict_on(scenario: Scenario, backend: SimBackend, seed: int = 1) -> tuple[Verdict, RunRecord]:
    run = play(scenario, seed, backend, Path())
    return judge_run(scenario, run).verdict, run


NARROW = """
name: narrow
guarantees: [G1]
cluster: {members: 2}
network: {bandwidth: 1000B/s}
workload:
  - {do: unicast, from: n0, to: n1, count: 1, rate: 1/s, size: 60KB}
"""


@pytest.mark.parametrize("backend", [SimBackend, RealTime])
def test_a_frame_that_takes_a_minute_to_pass_is_not_said_to_be_lost(
    backend: type[SimBackend],
) -> None:
    """Nothing moves at either end for that minute."""
    verdict, run = verdict_on(parse_scenario(NARROW), backend())
    assert verdict is not Verdict.VIOLATED
    assert run.seconds > 60


@pytest.mark.parametrize("backend", [SimBackend, RealTime])
def test_a_run_without_time_to_settle_waits_for_what_is_under_way(
    backend: type[SimBackend],
) -> None:
    """Outboxes are empty half a second before the last message arrives."""
    verdict, run = verdict_on(scenario_of(Link(delay=0.5), settle=0.0), backend())

    assert run.delivered == 100
    assert verdict is Verdict.HOLDS


@pytest.mark.parametrize("seed", range(4))
def test_silence_in_a_network_that_loses_frames_is_not_the_end(seed: int) -> None:
    """Nothing came for as long as members wait before they repair: the repairs were lost, too."""
    scenario = scenario_of(Link(loss=0.6), settle=60.0)

    verdict, run = verdict_on(scenario, RealTime(), seed)

    assert run.delivered == 100
    assert verdict is Verdict.HOLDS


@pytest.mark.parametrize("backend", [SimBackend, RealTime])
def test_a_run_that_ends_while_messages_arrive_is_unknown(backend: type[SimBackend]) -> None:
    """The last of them would arrive twenty seconds later: no protocol lost them."""
    scenario = scenario_of(Link(delay=1.0, jitter=20.0), settle=0.0, run=2.5)

    verdict, run = verdict_on(scenario, backend())

    assert 0 < run.delivered < 100
    assert run.is_unsettled
    assert verdict is Verdict.UNKNOWN
    assert "raise limits.settle" in judge_run(scenario, run).findings[-1].detail


@pytest.mark.parametrize("backend", [SimBackend, RealTime])
def test_repairs_that_fail_many_times_in_a_row_are_waited_for(backend: type[SimBackend]) -> None:
    """Of sixteen repairs one works, and no settling is asked for: in some runs nothing comes for
    many times as long as a member waits before it repairs."""
    scenario = scenario_of(Link(loss=0.75), settle=0.0, run=600.0)

    runs = [verdict_on(scenario, backend(), seed) for seed in range(6)]

    assert [run.delivered for _verdict, run in runs] == [100] * len(runs)
    assert {verdict for verdict, _run in runs} == {Verdict.HOLDS}


def test_a_silence_in_which_messages_come_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run takes one repair that fails for the last one, and finds that it was not."""
    monkeypatch.setattr(session, "vain_repairs", lambda _network: 1)
    scenario = scenario_of(Link(loss=0.6), settle=0.0, run=600.0)

    runs = [verdict_on(scenario, SimBackend(), seed) for seed in range(6)]

    assert [run.delivered for _verdict, run in runs] == [100] * len(runs)
    assert {verdict for verdict, _run in runs} == {Verdict.HOLDS}
    assert max(silences(run) for _verdict, run in runs) > 1


def test_a_silence_that_follows_when_time_is_over_is_rest_enough() -> None:
    """Some messages are given up, so all never arrive, and the last came just before the limit."""
    forgotten = """
timeline:
  - {at: 1s, do: cut, from: n0, to: n1, for: 500ms}
  - {at: 1200ms, do: forget, member: n0, peer: n1, half: sender}
limits: {run: 2200ms, settle: 0s}
"""
    text = PAIR.replace("limits: {run: 60s, settle: 20s}\n", forgotten.lstrip())
    _verdict, run = verdict_on(parse_scenario(text), SimBackend())

    assert run.delivered < 100
    assert run.complete
    assert not run.is_unsettled


FULL_OF_REPEATS = """
name: full-of-repeats
guarantees: [G1]
cluster:
  members: 3
  unicast: UNICAST
  settings: {xmit_interval: 300ms}
  protocols: {UDP: {queue_frames: 4}}
workload:
  - {do: unicast, from: n0, to: n1, count: 100, rate: 50/s, size: 16B}
  - {do: unicast, from: n0, to: n2, count: 100, rate: 50/s, size: 16B, flags: DONT_BUNDLE}
timeline:
  - {at: 500ms, do: install-view, member: n0, members: all}
  - {at: 1s, do: crash, member: n2}
  - {at: 1s, do: cut, from: n0, to: n1, for: 500ms}
  - {at: 1200ms, do: forget, member: n0, peer: n1, half: sender}
limits: {run: 1h, settle: 300s}
"""


@pytest.mark.parametrize("backend", [SimBackend, RealTime])
def test_repeats_for_the_dead_keep_no_run_from_its_end(backend: type[SimBackend]) -> None:
    """They overflow the queue for ever, as no view goes on without the dead; n1 waits for messages
    that were given up."""
    verdict, run = verdict_on(parse_scenario(FULL_OF_REPEATS), backend())

    assert run.delivered < 200
    assert run.seconds < 600
    assert run.complete
    assert verdict is Verdict.HOLDS


def silences(run: RunRecord) -> int:
    """How often the silence of a run began."""
    blocks = list(read_blocks_untrusted(run.traces["rig"], xxh3_64_intdigest))
    told = [(event.kind, block.text(event)) for block in blocks for event in block.events]
    return told.count((PHASE, "quiet"))


def test_silence_lasts_as_long_as_the_file_allows_where_time_is_dear() -> None:
    scenario = scenario_of(Link(), settle=1.0)
    _verdict, run = verdict_on(scenario, SimBackend())

    dear = Waits.by_promises(run.evidence, scenario, is_virtual=False)
    free = Waits.by_promises(run.evidence, scenario, is_virtual=True)

    assert dear.quiet <= 1.0 < free.quiet
    assert dear.still == free.still > 0.0


@pytest.mark.parametrize(
    ("network", "times"),
    [
        (Link(), 1),
        (Link(loss=0.01), 4),
        (Link(loss=0.25), 17),
        (Link(loss=0.1, corrupt=0.1), 13),
        (Link(loss=1.0), 1),
    ],
)
def test_how_many_repairs_in_a_row_may_fail_by_chance(network: Link, times: int) -> None:
    assert vain_repairs(network) == times


# -- How long members may take ---------------------------------------------------------------------


def evidence_of(cluster: str) -> Evidence:
    text = PAIR.replace("timing: fast", cluster)
    return simulate(parse_scenario(text), 1).evidence


def test_the_last_messages_are_acked_below_repeated_and_asked_for_one_after_the_other() -> None:
    """3 s to an ack, 6 s to a repeat, 6 s to a request: so long it took in seed 7156556879. A
    repair that fails is tried again after one of these steps, not after all of them."""
    slow = evidence_of("unicast: UNICAST4, timing: compatible, settings: {xmit_interval: 3s}")
    assert still_seconds(slow) == pytest.approx(15 * 1.1)
    assert again_seconds(slow) == pytest.approx(6 * 1.1)


def test_a_group_announces_its_last_messages_and_is_asked_for_them() -> None:
    slow = evidence_of("stack: udp, timing: compatible, multicast_settings: {xmit_interval: 3s}")
    assert still_seconds(slow) == pytest.approx((0.5 + 6 + 6) * 1.1)


def test_a_sender_that_is_hardly_ever_acked_is_not_waited_for_until_it_is() -> None:
    """UNICAST2 promises an ack within a minute: four runs of a search were `unknown` by that."""
    slow = evidence_of("unicast: UNICAST2, timing: compatible")
    assert still_seconds(slow) == pytest.approx((2 + 2 + 2) * 1.1)


def test_who_repairs_fast_is_not_waited_for_long() -> None:
    assert STILL_SECONDS <= still_seconds(evidence_of("timing: fast")) < 2.0
