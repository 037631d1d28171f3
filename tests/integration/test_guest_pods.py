"""Guests that are pods, whose networks are namespaces of the test's own; no cluster."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stormcast.chaos.attack.finders import Finder
from stormcast.chaos.attack.pod_agents import PodAgents
from stormcast.chaos.attack.pods import Pods
from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.guests import found, found_pods
from stormcast.chaos.guests.playing import GuestOutcome, play_guests
from stormcast.chaos.guests.scenario_file import load_guests
from stormcast.chaos.oracles.verdict import Verdict
from tests.integration.test_pod_attacks import NAMES, RealAgents
from tests.integration.wire_pair import Pair

pytestmark = [pytest.mark.root, pytest.mark.slow]

READS = (
    "import time, sys, urllib.request as u\nwhile True:\n try: u.urlopen('http://'+sys.argv[1]+"
    "':8000/', timeout=1).read()\n except OSError: pass\n time.sleep(0.05)"
)
STEPS = """\
  - {at: 500ms, do: partition, groups: [[web], [reader]], for: 2s, name: parted}
  - {at: 3s, do: drop, from: reader, to: web, match: {to_port: 8000}, for: 1s, name: lost}
"""


class Town:
    """A web server and its reader, as pods that nobody of ours has started."""

    def __init__(self, pair: Pair, folder: Path, undo: ExitStack) -> None:
        self.folder = folder
        self.cluster = RealAgents(pair, folder, undo)
        for one in self.cluster.pods.values():
            one["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        (served,) = pair.network.places()["n0"][:1]
        for name, words in {
            "n0": ("-m", "http.server", "8000", "--bind", served),
            "n1": ("-c", READS, served),
        }.items():
            process = subprocess.Popen(
                pair.network.inside(name, (sys.executable, *words)),
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip  # one command
            undo.enter_context(process)
            undo.callback(process.kill)

    def play(
        self, timeline: str = STEPS, meanwhile: Callable[[], None] | None = None
    ) -> GuestOutcome:
        file = self.folder / "scenario.yaml"
        file.write_text(
            "name: pods\nguests:\n  web: {target: 'pod:n0', ready: {condition: Ready}}\n"
            f"  reader: {{target: 'pod:shop/n1'}}\ntimeline:\n{timeline}"
            "expect: {ready_within: 20s}\nlimits: {run: 60s}\n"
        )
        if meanwhile is not None:
            threading.Thread(target=meanwhile, daemon=True).start()
        return play_guests(load_guests(file), 1, self.folder / "run")

    def until_parted(self) -> None:
        """Wait until faults act."""
        until = time.monotonic() + 60.0
        while len(self.cluster.processes) < len(NAMES) and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(3.0)


@pytest.fixture
def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Town]:
    with Pair() as pair, ExitStack() as undo:
        made = Town(pair, tmp_path, undo)
        monkeypatch.setattr(found, "Finder", lambda: Finder(pods=Pods(made.cluster.opened)))
        yield made


def test_pods_are_struck_and_left_running(town: Town) -> None:
    outcome = town.play()
    assert outcome.judgement.verdict == Verdict.HOLDS, outcome.judgement.findings
    assert min(outcome.seen.bites.values()) > 0
    assert outcome.as_json()["backend"] == "kubernetes"
    assert [one.wait(30) for one in town.cluster.processes] == [0, 0], "the agents have ended"
    assert not [one for one in town.cluster.changes if one[0] == "DELETE"]


def test_one_that_is_replaced_is_a_doubt(town: Town) -> None:
    def replaced() -> None:
        town.until_parted()
        town.cluster.pods["shop", "n1"]["metadata"]["uid"] = "another"

    outcome = town.play("  - {at: 1s, do: loss, rate: 50%, for: 8s}\n", replaced)
    assert outcome.judgement.verdict == Verdict.UNKNOWN
    said = [one.detail for one in outcome.judgement.findings]
    assert "reader is not the pod any more that was found: it was deleted" in said


def test_one_whose_container_is_started_anew_is_a_doubt(town: Town) -> None:
    def crashes() -> None:
        town.until_parted()
        town.cluster.pods["shop", "n0"]["status"]["containerStatuses"][0]["restartCount"] = 1

    outcome = town.play("  - {at: 1s, do: loss, rate: 50%, for: 8s}\n", crashes)
    assert outcome.judgement.verdict == Verdict.UNKNOWN
    assert any("was started anew" in one.detail for one in outcome.judgement.findings)


def test_one_that_is_not_ready_again_is_a_violation(town: Town) -> None:
    def fails() -> None:
        town.until_parted()
        town.cluster.pods["shop", "n0"]["status"]["conditions"][0]["status"] = "False"

    outcome = town.play(meanwhile=fails)
    assert outcome.judgement.verdict == Verdict.VIOLATED
    assert any(one.guarantee == "H5" for one in outcome.judgement.findings)


def test_a_cluster_that_says_nothing_proves_nothing(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found_pods, "SILENCE_SECONDS", 2.0)

    def away() -> None:
        town.until_parted()
        town.cluster.is_away = True

    outcome = town.play("  - {at: 1s, do: loss, rate: 50%, for: 15s}\n", away)
    assert outcome.judgement.verdict == Verdict.UNKNOWN
    assert any(
        "the cluster has said nothing of pod" in one.detail for one in outcome.judgement.findings
    )


def test_agents_that_cannot_be_told_to_end_take_no_evidence_away(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = PodAgents.close

    def closed(agents: PodAgents) -> None:
        close(agents)
        raise BackendError("the agent of pod shop/n0: nobody answers")

    monkeypatch.setattr(PodAgents, "close", closed)
    outcome = town.play()
    assert outcome.judgement.verdict == Verdict.UNKNOWN
    said = " ".join(one.detail for one in outcome.judgement.findings)
    assert "the end of the faults was not confirmed: the agent of pod shop/n0" in said
    assert (town.folder / "run" / "verdict.json").exists()
