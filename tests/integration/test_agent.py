"""The agent as a process, on its own and in the hands of a rig."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chaos import faults
from chaos.agent.client import AgentClient, AgentError, over_tcp, over_unix
from chaos.backends.netns import Rig, RigError
from chaos.backends.netns.names import start_of
from chaos.backends.netns.process import environment, until
from chaos.language.features import FEATURES, OTHER_WAYS
from chaos.language.network_state import NetworkState
from node.control.settings import TOKEN_VARIABLE
from tests.integration.wire_pair import END, GROUP, Pair, drained, frames

pytestmark = [pytest.mark.root, pytest.mark.slow]

BOTH = ("n0", "n1")
CUT = faults.Cut(sources=("n0",), dests=("n1",))
NOTHING = NetworkState(members=BOTH)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(BOTH, tmp_path) as rig:
        yield rig


@pytest.fixture
def pair(rig: Rig) -> Iterator[Pair]:
    with Pair(network=rig.network) as pair:
        yield pair


def state(**acting: faults.NetworkFault) -> NetworkState:
    return NetworkState(members=BOTH, faults=acting)


# -- In the hands of a rig -------------------------------------------------------------------------


def test_a_rig_starts_its_agent_when_something_is_to_act_and_ends_it(rig: Rig) -> None:
    rig.heal()
    rig.sleep(0.1)
    assert rig.agent.pid is None
    fault = rig.partition(["n0"], ["n1"])
    agent = rig.agent.pid
    assert agent is not None
    assert rig.bit(fault) == 0
    rig.close()
    assert start_of(agent) is None
    assert rig.bit(fault) == 0


def test_an_agent_has_every_feature_that_acts_on_a_network(rig: Rig) -> None:
    found = rig.agent.probe()
    assert {found[feature] for feature in found if feature not in OTHER_WAYS} == {None}
    assert set(FEATURES) - set(found) == {
        "members", "pause", "rule-on-streams", "group", "no-group", "commands", "first-conn",
        "frames-of-streams",
    }  # fmt: skip


def test_all_drivers_act_on_one_state_in_their_order(rig: Rig, pair: Pair) -> None:
    """Heartbeats are dropped, acks are held; of the rest a third is lost, and what is left arrives
    later, in order. Released, the acks come, and with the state all of it ends."""
    sent = frames(seed=3, count=300)
    kinds = {number: [frame for frame in sent if frame[4] == number] for number in range(256)}
    beats, acks = kinds[20], kinds[2]
    rest = [frame for frame in sent if frame[4] not in (20, 2)]
    rig.apply(state(
        f1=faults.Rule(match=faults.Match(kinds=("HEARTBEAT",))),
        f2=faults.Rule(does="hold", match=faults.Match(kinds=("ACK",))),
        f3=faults.Loss(sources=BOTH, dests=BOTH, rate=0.33),
        f4=faults.Delay(sources=BOTH, dests=BOTH, delay=0.3),
    ))  # fmt: skip
    begun = time.monotonic()
    came = pair.pass_on(sent)
    assert time.monotonic() - begun >= 0.3
    assert came == [frame for frame in rest if frame in came]
    bites = {fault: pairs["n0", "n1"] for fault, pairs in rig.bites().items()}
    assert bites["f1"] == len(beats)
    assert bites["f2"] == len(acks)
    assert bites["f3"] == len(rest) - len(came) > 0
    rig.release("f2")
    assert pair.pass_on([]) == acks
    rig.apply(NOTHING)
    assert pair.pass_on(sent) == sent


def test_a_rig_that_waits_renews_and_one_that_does_not_is_told_so(tmp_path: Path) -> None:
    with Rig(BOTH, tmp_path, lease=1.0) as rig, Pair(network=rig.network) as pair:
        rig.partition(["n0"], ["n1"])
        rig.sleep(2.5)
        assert not pair.arrives("n0", patience=0.1)
        until_then = time.monotonic() + 2.5
        rig.wait_until(lambda: time.monotonic() > until_then, 10.0, "time passes")
        assert not pair.arrives("n0", patience=0.1)
        time.sleep(2.0)
        assert pair.arrives("n0")
        with pytest.raises(RigError, match="the lease has lapsed, and the network is healed"):
            rig.sleep(0.5)
        rig.heal()


def test_a_rig_whose_agent_was_killed_is_told_so(rig: Rig) -> None:
    rig.partition(["n0"], ["n1"])
    assert rig.agent.pid is not None
    os.kill(rig.agent.pid, signal.SIGKILL)
    with pytest.raises(RigError, match="the agent does not answer POST /renew"):
        rig.renew()


# -- On its own ------------------------------------------------------------------------------------


@contextmanager
def started(folder: Path, config: object, **env: str) -> Iterator[subprocess.Popen[str]]:
    path = folder / "agent.json"
    path.write_text(json.dumps(config))
    words = (sys.executable, "-m", "stormcast", "agent", "--config", str(path))
    with subprocess.Popen(  # noqa: S603 our own words
        words, cwd=folder, env=environment(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            # Whatever went wrong, nobody waits for it for ever.
            process.kill()


def config(rig: Rig, **changed: object) -> dict[str, object]:
    sites = [{"name": site.name, "netns": site.netns} for site in rig.network.sites()]
    return {"table": "sc_own", "control": "127.0.0.1:0", "sites": sites, **changed}


def test_an_agent_at_an_address_wants_its_token_and_leaves_nothing(
    rig: Rig, pair: Pair, tmp_path: Path
) -> None:
    with started(tmp_path, config(rig), **{TOKEN_VARIABLE: "sesame"}) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().rpartition(":")[2])
        with pytest.raises(AgentError, match="the token is missing or wrong"):
            AgentClient(over_tcp("127.0.0.1", port, "wrong")).apply(NOTHING, 3.0)
        client = AgentClient(over_tcp("127.0.0.1", port, "sesame"))
        cut = NetworkState(members=BOTH, places=rig.network.places(), faults={"f1": CUT})
        client.apply(cut, 60.0)
        assert not pair.arrives("n0", patience=0.1)
        process.terminate()
        assert process.wait(10.0) == 0
    assert pair.arrives("n0")
    assert rig.network.execute("n1", ("nft", "list", "tables")) == ""


def test_an_agent_that_is_told_no_addresses_doubles_multicasts_all_the_same(
    rig: Rig, pair: Pair, tmp_path: Path
) -> None:
    """A copy goes to the member's own address, so that must be known."""
    twice = faults.Duplicate(sources=BOTH, dests=BOTH, rate=1.0)
    whole = NetworkState(members=BOTH, places=rig.network.places(), faults={"f1": twice})
    with started(tmp_path, config(rig, control="unix:own.sock")) as process:
        until((tmp_path / "own.sock").exists, 10.0, lambda: "the agent listens")
        client = AgentClient(over_unix(tmp_path / "own.sock"))
        client.apply(whole, 60.0)
        sent = frames(seed=5, count=20)
        came = pair.pass_on(sent, dest=GROUP)

        def are_doubled() -> bool:
            came.extend(drained(pair.sockets["n1"]))
            return sorted(data for data in came if data != END) == sorted(sent * 2)

        until(are_doubled, 5.0, lambda: f"two of each come, not {len(came)} in all")
        process.terminate()
        assert process.wait(10.0) == 0


def test_an_agent_removes_what_is_left_of_one_that_was_killed(rig: Rig, tmp_path: Path) -> None:
    left = "add table inet sc_own\nadd table inet other\n"
    rig.network.execute("n1", ("nft", "-f", "-"), left)
    control = {"control": "unix:own.sock"}
    with started(tmp_path, config(rig, **control)) as process:
        until((tmp_path / "own.sock").exists, 10.0, lambda: "the agent listens")
        assert rig.network.execute("n1", ("nft", "list", "tables")) == "table inet other\n"
        process.terminate()
        assert process.wait(10.0) == 0


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"sites": [{"name": "n0", "netns": "/run/netns/nobodys"}]}, "no network namespace"),
        ({"control": "0.0.0.0:7900"}, "it needs a token"),
        ({"speed": 9}, "unknown key 'speed'"),
    ],
    ids=["namespace", "token", "key"],
)
def test_an_agent_that_cannot_work_says_why_in_one_line(
    rig: Rig, tmp_path: Path, changed: dict[str, object], says: str
) -> None:
    with started(tmp_path, config(rig, **changed)) as process:
        _out, said = process.communicate(timeout=20)
    assert process.returncode == 2
    assert said.count("\n") == 1
    assert said.startswith("stormcast agent: ")
    assert says in said
