"""The simulator on the verbs of a backend: what a session makes of a scenario there is what the
simulator makes of it by itself."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from stormcast.chaos.backends.base import BackendError, ClusterPlan, MemberPlan, Unsupported
from stormcast.chaos.backends.sim.backend import SimBackend
from stormcast.chaos.campaigns.museum import EXHIBITS, Exhibit, exhibit_scenario
from stormcast.chaos.faults import Rule
from stormcast.chaos.language.network_state import NetworkState
from stormcast.chaos.language.scenario import Scenario, load_scenario
from stormcast.chaos.oracles.verdict import Judgement, Verdict
from stormcast.chaos.session.judging import judge_run
from stormcast.chaos.session.session import play
from stormcast.node.core.match import Match

LIBRARY = Path(str(files("stormcast.chaos").joinpath("scenarios")))
STORIES = (
    "churn",
    "connections-broken",
    "coordinator-killed-in-a-join",
    "crash-and-restart",
    "delayed-acks",
    "everyone-leaves-in-turn",
    "first-messages-of-all-lost",
    "flapping-link",
    "group-under-bursty-loss",
    "joins-on-both-sides",
    "large-messages-under-loss",
    "long-stall",
    "member-paused-and-expelled",
    "narrow-link",
    "receiver-forgets-sender",
    "slow-member",
    "storm",
)
HELD_ON_STREAMS = ("joiner-queue-drops-oldest", "joiner-queue-refuses-newest")
"""Outside of the simulator's own network nothing holds frames of a connection."""


def judged(scenario: Scenario, folder: Path) -> Judgement:
    return judge_run(scenario, play(scenario, 1, SimBackend(), folder))


def opened(
    folder: Path, needs: frozenset[str] = frozenset(), **configs: dict[str, str]
) -> SimBackend:
    """A cluster of those named, each with its own settings."""
    backend = SimBackend()
    members = tuple(MemberPlan(name=name, config=config) for name, config in configs.items())
    backend.open(ClusterPlan(run="test", members=members, folder=folder, needs=needs))
    return backend


@pytest.mark.slow
@pytest.mark.parametrize("name", STORIES)
def test_a_story_of_the_library_holds_step_by_step(name: str, tmp_path: Path) -> None:
    judgement = judged(load_scenario(LIBRARY / f"{name}.yaml"), tmp_path)
    assert judgement.verdict is Verdict.HOLDS, judgement.findings


@pytest.mark.slow
@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.name)
def test_a_flaw_of_the_museum_shows_step_by_step(exhibit: Exhibit, tmp_path: Path) -> None:
    """A session that overlooked something would have it hold."""
    flawed = exhibit_scenario(exhibit, exhibit.flawed)
    found = [one for one in judged(flawed, tmp_path).findings if one.guarantee == exhibit.guarantee]
    assert any(one.verdict is Verdict.VIOLATED for one in found), found
    fixed = judged(exhibit_scenario(exhibit, exhibit.fixed), tmp_path)
    assert fixed.verdict is Verdict.HOLDS, fixed.findings


@pytest.mark.slow
def test_equal_seeds_give_equal_runs_to_the_byte(tmp_path: Path) -> None:
    scenario = load_scenario(LIBRARY / "storm.yaml")
    one, same, other = (
        play(scenario, seed, SimBackend(), tmp_path / str(at)).traces
        for at, seed in enumerate((1, 1, 2))
    )
    assert one == same
    assert one != other


def test_each_member_has_its_own_settings(tmp_path: Path) -> None:
    backend = opened(tmp_path, n0={"timing": "fast"}, n1={"timing": "compatible"})
    backend.start("n0")
    backend.start("n1")
    timings = [backend.ask(name, "GET", "/state")["timing"] for name in ("n0", "n1")]
    assert timings == ["fast", "compatible"]


def test_settings_are_checked_as_a_members_are(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"n1: .*unknown key stak"):
        opened(tmp_path, n0={}, n1={"stak": "udp"})


def test_what_it_has_not_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="sim has no moonshine"):
        opened(tmp_path, frozenset({"moonshine"}), n0={})


def test_a_rule_may_choose_a_connection_if_it_was_said_before(tmp_path: Path) -> None:
    """The second connection of n0 to n1, and not the first."""
    config = {"stack": "unicast-only", "timing": "fast"}
    backend = opened(tmp_path, frozenset({"rule-drop"}), n0=config, n1=config)
    people = []
    for name in ("n0", "n1"):
        backend.start(name)
        people.append(backend.ask(name, "GET", "/state"))
    for name in ("n0", "n1"):
        backend.ask(name, "POST", "/peers", {"members": people})
    rule = Rule(match=Match(kinds=("DATA",), sources=("n0",), connection=2))
    backend.apply(NetworkState(members=("n0", "n1"), faults={"f1": rule}))

    def send() -> None:
        backend.ask("n0", "POST", "/workload", {"do": "unicast", "to": "n1", "count": 5})
        backend.wait(1.0)

    send()
    assert backend.ask("n1", "GET", "/workload")["received"] == 5
    assert backend.bites() == {}
    backend.ask("n0", "POST", "/forget", {"peer": "n1"})
    send()
    assert backend.ask("n1", "GET", "/workload")["received"] == 5
    assert backend.bites()["f1"]["n0", "n1"] > 0


def test_a_state_of_others_is_refused(tmp_path: Path) -> None:
    backend = opened(tmp_path, n0={}, n1={})
    with pytest.raises(BackendError, match="of n0 n1"):
        backend.apply(NetworkState(members=("n0", "n2")))


def test_without_a_cluster_there_is_nothing_to_do(tmp_path: Path) -> None:
    backend = SimBackend()
    with pytest.raises(BackendError, match="open it before"):
        backend.now()
    backend.open(ClusterPlan(run="test", members=(MemberPlan(name="n0"),), folder=tmp_path))
    with pytest.raises(BackendError, match="make another one"):
        backend.open(ClusterPlan(run="test", members=(MemberPlan(name="n0"),), folder=tmp_path))
    backend.close()
    with pytest.raises(BackendError, match="open it before"):
        backend.start("n0")


def test_a_paused_member_takes_new_keys_within_a_second_after_it_goes_on(tmp_path: Path) -> None:
    """Before, it takes what waits for it under the old ones."""
    backend = SimBackend()
    members = tuple(MemberPlan(name=name, config={"stack": "udp"}) for name in ("n0", "n1"))
    backend.open(ClusterPlan(run="test", members=members, folder=tmp_path, sealed=True))
    for name in ("n0", "n1"):
        backend.start(name)
    backend.wait(5.0)
    stack = backend._world.members["n1"].host.stack
    before = stack.keys
    backend.pause("n1")
    backend.change_keys("add")
    backend.wait(3.0)
    backend.resume("n1")
    assert stack.keys == before
    backend.wait(1.1)
    assert stack.keys == backend._world.members["n0"].host.stack.keys
    assert len(stack.keys) == 2
