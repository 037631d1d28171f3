"""Members of JGroups, judged by the traces that they write themselves: a run that holds, and flaws
of an application that must each be found."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.chaos.backends.base import ClusterPlan, MemberError, MemberPlan
from stormcast.chaos.backends.netns.backend import features_here
from stormcast.chaos.language.scenario import Scenario, parse_scenario
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.peers import jars
from stormcast.chaos.peers.jgroups_backend import JGroupsBackend
from stormcast.chaos.peers.jgroups_member import ARTIFACTS
from stormcast.chaos.session.outcome import RunOutcome
from stormcast.chaos.session.runner import run_on
from stormcast.node.trace import read_blocks_untrusted
from stormcast.node.trace.files import read_traces

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.root, pytest.mark.slow]
QUIET = """
name: quiet
about: Three members send, and nothing is done to them.
guarantees: [G1, G2, G3, G4, G8, A1, V1, V2, V3, V4]
cluster: {members: 3, stack: STACK, timing: fast}
workload:
  - {do: multicast, from: all, count: 60, rate: 60/s, size: 16B..2KiB, start: 500ms}
  - {do: unicast, from: all, to: others, count: 30, rate: 30/s, size: 100B, start: 500ms}
expect:
  - {by: 60s, delivered: all}
limits: {run: 70s, settle: 5s}
"""
CUT = (
    QUIET.replace("quiet", "cut")
    + """
timeline:
  - {at: 1s, do: loss, rate: 20%, for: 500ms}
  - {at: 1500ms, do: partition, groups: [[n0], [n1, n2]], for: 5s}
"""
)


def why_not() -> str | None:
    """Why this machine has no JGroups for a test, which fetches nothing."""
    there = [artifact for artifact in ARTIFACTS if (jars.cache() / artifact.file).exists()]
    if len(there) < len(ARTIFACTS):
        return "jars were not fetched yet: stormcast compare-with jgroups --fetch"
    return jars.missing(*ARTIFACTS)


@pytest.fixture(autouse=True)
def _needs_jgroups() -> None:
    if (why := why_not()) is not None:
        pytest.skip(why)


@cache
def features() -> Mapping[str, str | None]:
    return features_here()


def played(text: str, out: Path, stack: str = "udp", **flaws: str) -> RunOutcome:
    scenario: Scenario = parse_scenario(text.replace("STACK", stack), "test")
    return run_on(JGroupsBackend(stack, features(), flaws), scenario, 7, out=out)


def broken(outcome: RunOutcome) -> set[str]:
    """The guarantees that are violated."""
    found = outcome.judgement.findings
    return {one.guarantee for one in found if one.verdict is Verdict.VIOLATED}


# -- Runs that hold ------------------------------------------------------------------------------


@pytest.mark.parametrize("stack", ["udp", "tcp"])
def test_all_that_members_sent_is_judged_and_holds(stack: str, tmp_path: Path) -> None:
    outcome = played(QUIET, tmp_path / "run", stack)
    assert broken(outcome) == set(), outcome.judgement.findings
    owed = outcome.judgement.owed
    # Nothing is passed over: each multicast is owed to three members, each unicast to one.
    assert owed is not None
    assert owed.as_json()["owed"] == 3 * 60 * 3 + 3 * 2 * 30
    assert outcome.run.sent == 3 * 60 + 3 * 2 * 30
    assert outcome.run.mismatches == []


def test_faults_strike_members_of_jgroups_and_windows_follow_the_views(tmp_path: Path) -> None:
    outcome = played(CUT, tmp_path / "run")
    assert all(outcome.run.bites.values()), outcome.run.bites
    assert len(outcome.run.bites) == 2
    views = {label: [seen.members for seen in views] for label, views in outcome.run.views.items()}
    assert all(len(each[-1]) == 3 for each in views.values()), views
    windows = list(outcome.run.evidence.groups.windows())
    assert {window.number for window in windows} >= {0, 1, 2}, "a view without a member ends one"
    assert all(window.opened is not None for window in windows if not window.is_own)


# -- What an application does wrong --------------------------------------------------------------


BREAKS: Mapping[str, set[str]] = {
    "drop": {"G1", "G3", "A1", "G8"},
    "twice": {"G2"},
    "swap": {"G3"},
    "alter": {"G4"},
    "view": {"V1"},
    "alone": {"V1", "V4", "G8"},
    "out": {"V2"},
    "again": {"V3"},
}


# A guarantee names its first violation, so no two of a run break the same one.
TRIED: Sequence[Mapping[str, str]] = (
    {"n0": "twice", "n1": "drop", "n2": "out"},
    {"n0": "swap", "n1": "view", "n2": "alter"},
    {"n1": "alone", "n2": "again"},
)


@pytest.mark.parametrize("flaws", TRIED, ids=lambda flaws: "-".join(flaws.values()))
def test_what_an_application_does_wrong_is_found_with_a_witness(
    flaws: Mapping[str, str], tmp_path: Path
) -> None:
    # What is dropped never comes: there is no need to wait for it longer.
    outcome = played(QUIET.replace("by: 60s", "by: 20s"), tmp_path / "run", **flaws)
    for member, flaw in flaws.items():
        assert broken(outcome) >= BREAKS[flaw], outcome.judgement.findings
        for guarantee in BREAKS[flaw]:
            said = [
                line
                for one in outcome.judgement.findings
                if one.guarantee == guarantee and one.verdict is Verdict.VIOLATED
                for line in (one.detail, *one.witness)
            ]
            assert any(member in line for line in said), (flaw, guarantee, said)


def test_each_flaw_is_tried() -> None:
    assert {flaw for flaws in TRIED for flaw in flaws.values()} == set(BREAKS)


# -- One member by itself ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JGroupsBackend]:
    if (why := why_not()) is not None:
        pytest.skip(why)
    with alone(tmp_path_factory.mktemp("asked")) as backend:
        yield backend


@contextmanager
def alone(folder: Path) -> Iterator[JGroupsBackend]:
    backend = JGroupsBackend("udp", features())
    config = {"cluster": "alone", "stack": "udp", "timing": "fast", "seed": 1, "protocols": {}}
    plan = ClusterPlan(run="alone", members=(MemberPlan(name="n0", config=config),), folder=folder)
    backend.open(plan)
    try:
        backend.start("n0")
        assert backend.wait(60.0, lambda: is_connected(backend))
        yield backend
    finally:
        backend.close()


def is_connected(backend: JGroupsBackend) -> bool:
    try:
        return bool(backend.ask("n0", "GET", "/state")["state"] == "connected")
    except MemberError:
        return False


@pytest.mark.parametrize(
    ("target", "body", "said"),
    [
        ("/forget", {"peer": "n1"}, "/forget: a member of JGroups has no such verb"),
        ("/workload", {"do": "multicast", "count": 1, "size": "8B"}, "write 16B or more"),
        ("/workload", {"do": "multicast", "flags": "NO_FC"}, "knows only OOB"),
        ("/workload", {"do": "multicast", "closed": True}, "sends by count and rate"),
        ("/workload", {"do": "unicast", "to": "others"}, "to: name the members"),
        ("/workload", {"do": "multicast", "rate": "fast"}, "write one such as 20/s"),
        ("/workload", [1], "Not a JSON Object"),
        ("/workload", {"do": "multicast", "rate": None}, "JsonNull"),
    ],
)
def test_what_it_cannot_do_it_refuses_with_one_line(
    target: str, body: Any, said: str, asked: JGroupsBackend
) -> None:
    with pytest.raises(MemberError, match=r"40[04]") as refused:
        asked.ask("n0", "POST", target, body)
    assert said in str(refused.value).splitlines()[0]
    assert asked.ask("n0", "GET", "/state")["workload"]["loads"] == []


def test_it_leaves_in_order_when_told_and_its_trace_ends_there(tmp_path: Path) -> None:
    with alone(tmp_path / "logs") as backend:
        backend.ask("n0", "POST", "/workload", {"do": "multicast", "count": 5, "rate": "50/s"})
        backend.wait(5.0, lambda: backend.ask("n0", "GET", "/state")["workload"]["received"] == 5)
        backend.stop("n0")
        assert backend.wait(20.0, lambda: not backend.is_alive("n0"))
        (end,) = backend.exits()
    assert (end.code, end.is_ordered) == (0, True)
    (blocks,) = read_traces(tmp_path / "logs" / "n0" / "journal").values()
    kinds = [
        event.name for block in read_blocks_untrusted(blocks, hash64) for event in block.events
    ]
    assert (kinds[0], kinds[-1]) == ("start", "stop")
    assert kinds.count("sent") == kinds.count("delivered") == kinds.count("handed") == 5


# -- The command ---------------------------------------------------------------------------------


def test_the_command_writes_a_page_and_ends_early_with_nothing_left(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n<!-- compared -->\n<!-- /compared -->\n")
    words = ["compare-with", "jgroups", "--only", "order-of-unicasts", "--out", str(tmp_path / "o")]
    begun = subprocess.Popen([sys.executable, "-m", "stormcast", *words], cwd=ROOT)
    try:
        begun.wait(timeout=8)
    except subprocess.TimeoutExpired:
        begun.send_signal(signal.SIGINT)
    assert begun.wait(timeout=60) == 130
    done = subprocess.run(
        [sys.executable, "-m", "stormcast", *words, "--write", str(page)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode in (0, 3), done.stderr
    assert page.read_text().count("| order-of-unicasts | ") == 2
    assert {path.name for path in (tmp_path / "o").iterdir()} == {
        f"order-of-unicasts-{stack}-{system}"
        for stack in ("udp", "tcp")
        for system in ("stormcast", "jgroups")
    }
