"""The agent as a process, on its own and as a backend's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from stormcast.chaos import faults
from stormcast.chaos.agent.client import AgentClient, AgentError, Ask, over_unix, read_answer
from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.netns.agent import AgentProcess
from stormcast.chaos.backends.netns.backend import BY_ITSELF
from stormcast.chaos.backends.netns.network import Network
from stormcast.chaos.backends.netns.process import environment, until
from stormcast.chaos.backends.run_id import start_of
from stormcast.chaos.campaigns.live import NO_MACHINE_HAS
from stormcast.chaos.language.features import FEATURES, ONLY_SIMULATED, OTHER_WAYS
from stormcast.chaos.language.network_state import NetworkState
from stormcast.node.core.match import Match
from tests.helpers.tokens import token_file
from tests.integration.wire_pair import END, GROUP, Pair, drained, frames

pytestmark = [pytest.mark.root, pytest.mark.slow]

BOTH = ("n0", "n1")
CUT = faults.Cut(sources=("n0",), dests=("n1",))
NOTHING = NetworkState(members=BOTH)
TOKEN = "open-sesame-0123"  # noqa: S105 of a test


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Pair() as pair:
        yield pair


@pytest.fixture
def network(pair: Pair) -> Network:
    return pair.network


@pytest.fixture
def agent(network: Network, tmp_path: Path) -> Iterator[AgentProcess]:
    with closing(AgentProcess(network.run, network.sites(), tmp_path)) as agent:
        yield agent


def state(**acting: faults.NetworkFault) -> NetworkState:
    return NetworkState(members=BOTH, faults=acting)


# -- A backend's -----------------------------------------------------------------------------------


def test_scapy_is_loaded_before_a_fault_asks_for_it(
    agent: AgentProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    agent.apply(state(f1=CUT))
    log = tmp_path / "agent.log"
    until(lambda: "scapy.layers.inet6\n" in log.read_text(), 20.0, lambda: "no scapy")


def test_an_agent_is_started_when_something_is_to_act_and_ends_with_its_backend(
    agent: AgentProcess,
) -> None:
    agent.clear()
    agent.keep()
    assert agent.pid is None
    agent.apply(state(f1=CUT))
    pid = agent.pid
    assert pid is not None
    before = agent.bites()
    agent.close()
    assert start_of(pid) is None
    assert agent.bites() == before


def test_an_agent_has_every_feature_that_acts_on_a_network(agent: AgentProcess) -> None:
    found = agent.features()
    assert {found[feature] for feature in found if feature not in OTHER_WAYS} == {None}
    assert set(FEATURES) - set(found) == {
        "members",
        "pause",
        "rule-on-streams",
        "rule-over-members",
        "group",
        "no-group",
        "commands",
        "keys",
        "change-keys",
        *ONLY_SIMULATED,
        "first-conn",
        "frames-of-streams",
    }
    # What neither agents nor members have is what chaos-test takes for lacking on every machine.
    assert set(FEATURES) - set(found) - BY_ITSELF == NO_MACHINE_HAS


def test_all_drivers_act_on_one_state_in_their_order(agent: AgentProcess, pair: Pair) -> None:
    """Heartbeats are dropped, acks are held; of the rest a third is lost, and what is left arrives
    later, in order. Released, the acks come, and with the state all of it ends."""
    sent = frames(seed=3, count=300)
    kinds = {number: [frame for frame in sent if frame[4] == number] for number in range(256)}
    beats, acks = kinds[20], kinds[2]
    rest = [frame for frame in sent if frame[4] not in (20, 2)]
    agent.apply(
        state(
            f1=faults.Rule(match=Match(kinds=("HEARTBEAT",))),
            f2=faults.Rule(does="hold", match=Match(kinds=("ACK",))),
            f3=faults.Loss(sources=BOTH, dests=BOTH, rate=0.33),
            f4=faults.Delay(sources=BOTH, dests=BOTH, delay=0.3),
        )
    )
    begun = time.monotonic()
    came = pair.pass_on(sent)
    assert time.monotonic() - begun >= 0.3
    assert came == [frame for frame in rest if frame in came]
    bites = {fault: pairs["n0", "n1"] for fault, pairs in agent.bites().items()}
    assert bites["f1"] == len(beats)
    assert bites["f2"] == len(acks)
    assert bites["f3"] == len(rest) - len(came) > 0
    agent.release("f2")
    assert pair.pass_on([]) == acks
    agent.apply(NOTHING)
    assert pair.pass_on(sent) == sent


@pytest.mark.parametrize(
    "waits",
    [
        faults.Rule(does="hold", match=Match(sources=("n0",))),
        faults.Delay(sources=("n0",), dests=("n1",), delay=5.0, jitter=1.0),
    ],
    ids=["held", "late"],
)
def test_what_waits_when_everything_is_cleared_arrives(
    waits: faults.NetworkFault, agent: AgentProcess, pair: Pair
) -> None:
    sent = frames(seed=4, count=100)
    agent.apply(state(f1=waits))
    for frame in sent:
        pair.say("n0", frame)
    time.sleep(0.2)
    assert drained(pair.sockets["n1"]) == []
    agent.clear()
    assert drained(pair.sockets["n1"]) == sent


def test_whoever_keeps_a_lease_in_time_has_it_and_whoever_comes_late_is_told_so(
    pair: Pair, tmp_path: Path
) -> None:
    run, sites = pair.network.run, pair.network.sites()
    with closing(AgentProcess(run, sites, tmp_path, lease=1.0)) as agent:
        agent.apply(state(f1=CUT))
        for _look in range(25):
            time.sleep(0.1)
            agent.keep()
        assert not pair.arrives("n0", patience=0.1)
        time.sleep(2.0)
        assert pair.arrives("n0")
        with pytest.raises(BackendError, match="the lease has lapsed, and the network is healed"):
            agent.keep()
        # Nor does whoever asks for another state, without a renewal, believe that it went on.
        with pytest.raises(BackendError, match="nobody renewed it in time"):
            agent.apply(state())
        with pytest.raises(BackendError, match="nobody renewed it in time"):
            agent.clear()


def test_that_an_agent_was_killed_is_said(agent: AgentProcess) -> None:
    agent.apply(state(f1=CUT))
    assert agent.pid is not None
    os.kill(agent.pid, signal.SIGKILL)
    with pytest.raises(BackendError, match="the agent does not answer POST /renew"):
        agent.renew()


# -- On its own ------------------------------------------------------------------------------------


@contextmanager
def started(folder: Path, config: object) -> Iterator[subprocess.Popen[str]]:
    path = folder / "agent.json"
    path.write_text(json.dumps(config))
    words = (sys.executable, "-m", "stormcast", "agent", "--config", str(path))
    with subprocess.Popen(
        words,
        cwd=folder,
        env=environment({}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            # Whatever went wrong, nobody waits for it for ever.
            process.kill()


def config(network: Network, **changed: object) -> dict[str, object]:
    sites = [{"name": site.name, "netns": site.netns} for site in network.sites()]
    return {"table": "sc_own", "control": "127.0.0.1:0", "sites": sites, **changed}


def at_port(port: int, token: str) -> Ask:
    """The way to an agent at an address of this machine."""

    def ask(method: str, target: str, body: object) -> object:
        headers = {"Authorization": f"Bearer {token}"}
        with closing(HTTPConnection("127.0.0.1", port, timeout=5.0)) as connection:
            connection.request(method, target, json.dumps(body), headers)
            answer = connection.getresponse()
            return read_answer(f"{method} {target}", answer.status, answer.read().decode())

    return ask


def test_an_agent_at_an_address_wants_its_token_and_leaves_nothing(
    network: Network, pair: Pair, tmp_path: Path
) -> None:
    guarded = config(network, token_file=str(token_file(tmp_path, TOKEN)))
    with started(tmp_path, guarded) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().rpartition(":")[2])
        with pytest.raises(AgentError, match="the token is missing or wrong"):
            AgentClient(at_port(port, "wrong")).apply(NOTHING, 3.0)
        client = AgentClient(at_port(port, TOKEN))
        cut = NetworkState(members=BOTH, places=network.places(), faults={"f1": CUT})
        client.apply(cut, 60.0)
        assert not pair.arrives("n0", patience=0.1)
        process.terminate()
        assert process.wait(10.0) == 0
    assert pair.arrives("n0")
    assert network.execute("n1", ("nft", "list", "tables")) == ""


def test_an_agent_that_is_told_no_addresses_doubles_multicasts_all_the_same(
    network: Network, pair: Pair, tmp_path: Path
) -> None:
    """A copy goes to the member's own address, so that must be known."""
    twice = faults.Duplicate(sources=BOTH, dests=BOTH, rate=1.0)
    whole = NetworkState(members=BOTH, places=network.places(), faults={"f1": twice})
    with started(tmp_path, config(network, control="unix:own.sock")) as process:
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


def test_an_agent_removes_what_is_left_of_one_that_was_killed(
    network: Network, tmp_path: Path
) -> None:
    left = "add table inet sc_own\nadd table inet other\n"
    network.execute("n1", ("nft", "-f", "-"), left)
    control = {"control": "unix:own.sock"}
    with started(tmp_path, config(network, **control)) as process:
        until((tmp_path / "own.sock").exists, 10.0, lambda: "the agent listens")
        assert network.execute("n1", ("nft", "list", "tables")) == "table inet other\n"
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
    network: Network, tmp_path: Path, changed: dict[str, object], says: str
) -> None:
    with started(tmp_path, config(network, **changed)) as process:
        _out, said = process.communicate(timeout=20)
    assert process.returncode == 2
    assert said.count("\n") == 1
    assert said.startswith("stormcast agent: ")
    assert says in said
