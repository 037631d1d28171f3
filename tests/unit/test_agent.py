"""The agent, with drivers that only note what they are told."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from stormcast.chaos import faults
from stormcast.chaos.agent.agent import Agent, LapsedError, merged
from stormcast.chaos.agent.client import (
    AgentClient,
    AgentError,
    LeaseLapsedError,
    over_unix,
    read_answer,
)
from stormcast.chaos.agent.device_addresses import located
from stormcast.chaos.agent.endpoints import endpoints
from stormcast.chaos.agent.settings import load_agent, read_agent
from stormcast.chaos.drivers.base import Bites, DriverError, RanOutError, Site
from stormcast.chaos.language.network_state import NetworkState
from stormcast.node.control.answers import Answer, RefusedError
from stormcast.node.control.client import MAX_ANSWER
from stormcast.node.control.settings import TOKEN_VARIABLE
from stormcast.node.core.errors import NodeError
from stormcast.weights import weigh
from tests.helpers.tokens import token_file

NAMES = ("n0", "n1")
CUT = faults.Cut(sources=("n0",), dests=("n1",))
STATE = NetworkState(members=NAMES, places={"n0": ("198.18.0.2",)}, faults={"f1": CUT})

TAKEN_BACK = ["nft end", "other end", "nft clear", "other clear"]
"""All faults have ended before anything is removed with which waiting packets would be lost."""


class Noting:
    """A driver that carries out nothing."""

    def __init__(
        self,
        name: str,
        notes: list[str],
        *,
        fails_at: str = "",
        error: type[Exception] = DriverError,
    ) -> None:
        self.name = name
        self.trials = 0
        """How often it was asked for its features."""
        self.slowness = 0.0
        """Seconds that it takes to count its bites."""
        self._notes = notes
        self._fails_at = fails_at
        self._error = error

    async def _note(self, what: str) -> None:
        # Whoever else wants something gets a turn in the middle of it.
        await asyncio.sleep(0)
        self._notes.append(f"{self.name} {what}")
        if what == self._fails_at:
            raise self._error(f"{self.name} cannot {what}")

    async def features(self) -> Mapping[str, str | None]:
        self.trials += 1
        return {self.name: None}

    async def apply(self, state: NetworkState, lease: float) -> None:
        await self._note("apply")

    async def renew(self, lease: float) -> None:
        await self._note("renew")

    async def end(self) -> None:
        await self._note("end")

    async def clear(self) -> None:
        await self._note("clear")

    async def release(self, fault: str | None) -> None:
        await self._note(f"release {fault}")

    async def bites(self) -> Bites:
        await asyncio.sleep(self.slowness)
        return {"f1": {("n0", "n1"): 2}}

    async def forget(self, acting: Collection[str]) -> None:
        await self._note(f"forget all but {' '.join(sorted(acting))}")


Story = Callable[[Agent, list[str]], Awaitable[None]]


def play(story: Story, *, fails_at: str = "", error: type[Exception] = DriverError) -> list[str]:
    """What the drivers of an agent were told; the one that fails stands behind the other."""
    notes: list[str] = []

    async def run() -> None:
        other = Noting("other", notes)
        nft = Noting("nft", notes, fails_at=fails_at, error=error)
        await story(Agent((other, nft)), notes)

    asyncio.run(run())
    return notes


async def lapse(agent: Agent) -> None:
    while agent.left is not None:  # noqa: ASYNC110 time itself is what is waited for
        await asyncio.sleep(0.01)
    # Whoever asks waits in line, behind what is being taken back.
    await agent.bites()


# -- Features --------------------------------------------------------------------------------------


def test_nothing_is_tried_while_a_state_acts() -> None:
    """Another run asks, before it is refused: a trial could end what acts."""

    async def story() -> None:
        nft = Noting("nft", [])
        agent = Agent((nft,))
        found = await agent.features()
        await agent.apply(STATE, 60.0)
        assert await agent.features() == found == {"nft": None}
        assert nft.trials == 1
        await agent.clear()
        await agent.features()
        assert nft.trials == 2, "the machine may have changed"

    asyncio.run(story())


# -- Leases ----------------------------------------------------------------------------------------


def test_a_state_is_taken_back_the_other_way_round() -> None:
    async def story(agent: Agent, _notes: list[str]) -> None:
        await agent.apply(STATE, 60.0)
        await agent.renew(60.0)
        await agent.clear()

    assert play(story) == [
        "other apply",
        "nft apply",
        "other renew",
        "nft renew",
        *TAKEN_BACK,
    ]


def test_a_lease_that_nobody_renews_is_cleared_once_and_cannot_be_renewed() -> None:
    async def story(agent: Agent, notes: list[str]) -> None:
        await agent.apply(STATE, 0.05)
        await lapse(agent)
        assert notes[2:] == TAKEN_BACK
        with pytest.raises(LapsedError):
            await agent.renew(60.0)
        await agent.apply(STATE, 60.0)
        await agent.renew(60.0)
        assert agent.lapses == 1
        assert agent.left is not None
        await agent.close()

    play(story)


@pytest.mark.slow
def test_a_lease_that_is_renewed_does_not_end() -> None:
    async def story(agent: Agent, _notes: list[str]) -> None:
        await agent.apply(STATE, 0.4)
        for _turn in range(8):
            await asyncio.sleep(0.1)
            await agent.renew(0.4)
        assert agent.lapses == 0
        await lapse(agent)
        assert agent.lapses == 1

    play(story)


@pytest.mark.parametrize("verb", ["renew", "apply"])
def test_faults_that_ended_before_their_lease_end_it(verb: str) -> None:
    """A driver notices that it was too slow: the network has been healed for a while."""

    async def story(agent: Agent, notes: list[str]) -> None:
        if verb == "renew":
            await agent.apply(STATE, 60.0)
        notes.clear()
        with pytest.raises(LapsedError, match=f"nft cannot {verb}; apply again"):
            await (agent.renew(60.0) if verb == "renew" else agent.apply(STATE, 60.0))
        assert (agent.lapses, agent.left) == (1, None)
        assert notes[-4:] == TAKEN_BACK
        with pytest.raises(LapsedError, match="the lease has lapsed"):
            await agent.renew(60.0)

    play(story, fails_at=verb, error=RanOutError)


@pytest.mark.parametrize("verb", ["renew", "apply", "clear"])
def test_a_verb_that_had_to_wait_until_the_lease_was_over_finds_it_lapsed(verb: str) -> None:
    """It has waited since before the alarm, so it has its turn before the alarm does."""

    async def story(agent: Agent, _notes: list[str]) -> None:
        verbs = {
            "renew": lambda: agent.renew(60.0),
            "apply": lambda: agent.apply(STATE, 60.0),
            "clear": agent.clear,
        }
        await agent.apply(STATE, 0.2)
        nft = agent.drivers[1]
        assert isinstance(nft, Noting)
        nft.slowness = 0.3
        counting = asyncio.create_task(agent.bites())
        await asyncio.sleep(0)
        with pytest.raises(LapsedError) if verb == "renew" else nullcontext():
            await verbs[verb]()
        await counting
        assert agent.lapses == 1
        await agent.close()

    play(story)


def test_where_nothing_acts_there_is_nothing_to_renew() -> None:
    async def story(agent: Agent, _notes: list[str]) -> None:
        await agent.renew(60.0)
        await agent.apply(STATE, 60.0)
        await agent.clear()
        await agent.renew(60.0)

    assert "nft renew" not in play(story)


def test_a_state_that_cannot_be_applied_whole_is_taken_back() -> None:
    async def story(agent: Agent, _notes: list[str]) -> None:
        with pytest.raises(DriverError, match="nft cannot apply"):
            await agent.apply(STATE, 60.0)
        assert agent.left is None

    assert play(story, fails_at="apply") == [
        "other apply",
        "nft apply",
        *TAKEN_BACK,
    ]


@pytest.mark.parametrize("verb", ["end", "clear"])
@pytest.mark.parametrize("error", [DriverError, OSError])
def test_what_one_driver_cannot_take_back_does_not_keep_others_from_it(
    error: type[Exception], verb: str
) -> None:
    """OSError: an agent that has no descriptor left starts no program."""

    async def story(agent: Agent, _notes: list[str]) -> None:
        await agent.apply(STATE, 0.05)
        await lapse(agent)
        assert agent.trouble == f"nft cannot {verb}"

    assert play(story, fails_at=verb, error=error)[2:] == TAKEN_BACK


def test_verbs_wait_in_line() -> None:
    async def story(agent: Agent, _notes: list[str]) -> None:
        await asyncio.gather(
            agent.apply(STATE, 60.0), agent.renew(60.0), agent.release("f1"), agent.clear()
        )

    assert play(story) == [
        "other apply",
        "nft apply",
        "other renew",
        "nft renew",
        "other release f1",
        "nft release f1",
        *TAKEN_BACK,
    ]


def test_a_fault_without_its_driver_is_refused_before_anything_is_done() -> None:
    delay = faults.Delay(sources=NAMES, dests=NAMES, delay=0.1)

    async def story(agent: Agent, _notes: list[str]) -> None:
        with pytest.raises(DriverError, match="f7 takes the driver nfqueue"):
            await agent.apply(NetworkState(members=NAMES, faults={"f7": delay}), 60.0)

    assert play(story) == []


def test_counts_of_several_add_up_by_fault_and_pair() -> None:
    one: Bites = {"f1": {("n0", "n1"): 2, ("n1", "n0"): 1}}
    other: Bites = {"f1": {("n0", "n1"): 3}, "f2": {("n0", "n1"): 0}}
    assert merged([one, other]) == {
        "f1": {("n0", "n1"): 5, ("n1", "n0"): 1},
        "f2": {("n0", "n1"): 0},
    }


# -- What it is asked ------------------------------------------------------------------------------


def ask(agent: Agent, method: str, path: str, body: object = None) -> Awaitable[Answer]:
    """One request, past the sockets."""
    data = b"" if body is None else json.dumps(body).encode()

    async def answered() -> Answer:
        answer = endpoints(agent)[path][method](data)
        return answer if isinstance(answer, Answer) else await answer

    return answered()


def test_what_a_client_asks_is_done_and_answered() -> None:
    async def story(agent: Agent, notes: list[str]) -> None:
        loop = asyncio.get_running_loop()

        def over_nothing(method: str, target: str, body: object) -> object:
            work = asyncio.run_coroutine_threadsafe(_answered(method, target, body), loop)
            return work.result(5.0)

        async def _answered(method: str, target: str, body: object) -> object:
            try:
                answer = await ask(agent, method, target, body)
            except RefusedError as error:
                answer = Answer(json.dumps({"error": str(error)}).encode(), error.status)
            return read_answer(target, answer.status, answer.body.decode())

        def script() -> None:
            client = AgentClient(over_nothing)
            assert client.is_alive()
            assert client.features() == {"other": None, "nft": None}
            client.apply(STATE, 60.0)
            client.renew(60.0)
            client.release(None)
            client.release("f1")
            assert client.bites() == {"f1": {("n0", "n1"): 4}}
            client.forget_bites()
            assert notes[-1] == "nft forget all but f1 network"
            name, weight = client.weight()
            assert (name, set(weight)) == (f"agent:{agent.id}", set(weigh(os.getpid())))
            client.clear()
            client.forget_bites()
            assert notes[-1] == "nft forget all but network"
            # Where nothing acted, nothing is amiss when its lease has lapsed.
            client.apply(replace(STATE, faults={}), 0.1)
            asyncio.run_coroutine_threadsafe(lapse(agent), loop).result(5.0)
            client.apply(STATE, 0.1)
            asyncio.run_coroutine_threadsafe(lapse(agent), loop).result(5.0)
            with pytest.raises(LeaseLapsedError):
                client.renew(60.0)
            # What acts now does not tell of what acted no more.
            for late in (lambda: client.apply(STATE, 60.0), client.clear):
                with pytest.raises(LeaseLapsedError, match="nobody renewed it in time"):
                    late()

        await asyncio.to_thread(script)

    notes = play(story)
    assert notes[4:8] == [
        "other release None",
        "nft release None",
        "other release f1",
        "nft release f1",
    ]


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/apply", {"state": STATE.to_text()}, 400, "lease is None"),
        ("/apply", {"state": STATE.to_text(), "lease": 0.001}, 400, "seconds, 0.1..3600"),
        ("/apply", {"state": 5, "lease": 3}, 400, '"state": TEXT'),
        ("/apply", {"state": "", "lease": 3, "more": 1}, 400, "a mapping of state, lease"),
        ("/renew", {"lease": "3s"}, 400, "lease is '3s'"),
        ("/release", {"fault": 5}, 400, '"fault": ID'),
        ("/release", {"fault": 'f1"\nadd'}, 400, '"fault": ID'),
        ("/clear", [1], 400, "a mapping of nothing"),
    ],
)
def test_a_request_that_cannot_be_meant_is_refused_with_the_remedy(
    path: str, body: object, status: int, says: str
) -> None:
    async def story(agent: Agent, _notes: list[str]) -> None:
        with pytest.raises(RefusedError, match=says) as refused:
            await ask(agent, "POST", path, body)
        assert refused.value.status == status

    assert play(story) == []


def test_a_state_that_is_none_is_refused_with_its_place() -> None:
    async def story(agent: Agent, _notes: list[str]) -> None:
        with pytest.raises(NodeError, match="state:1:1"):
            await ask(agent, "POST", "/apply", {"state": "members: [n0]", "lease": 3})

    assert play(story) == []


def test_an_id_that_would_be_more_than_a_word_is_refused_before_a_driver_hears_of_it() -> None:
    """A holder of the token must not reach the kernel's rules but by faults, which are leased."""

    async def story(agent: Agent, _notes: list[str]) -> None:
        crafted = replace(STATE, faults={'f1" drop\nadd table inet left': CUT})
        with pytest.raises(NodeError, match="a fault's id has small letters") as refused:
            await ask(agent, "POST", "/apply", {"state": crafted.to_text(), "lease": 3})
        assert str(refused.value).isprintable()

    assert play(story) == []


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {"f1": 3},
        {"f1": {"n0": 3}},
        {"f1": {"n0 n1": -3}},
        {"f1": {"n0 n1": True}},
        {"f1": {"n0 \x1b[2J": 3}},
        {"f1\n": {"n0 n1": 3}},
    ],
)
def test_bites_that_no_agent_counts_are_refused_in_one_line(answer: object) -> None:
    """Their ids and names would become labels of metrics."""
    with pytest.raises(AgentError, match="GET /bites has no bites") as refused:
        AgentClient(lambda *_asked: answer).bites()
    assert str(refused.value).isprintable()


def test_features_are_known_words_and_their_reasons_are_lines() -> None:
    answer = {"loss": "no\n\x1b[2Jnft", "delay": None}
    found = AgentClient(lambda *_asked: answer).features()
    assert found == {"loss": "no \\x1b[2Jnft", "delay": None}
    for other in ([1], {"\x1b[2J": None}):
        with pytest.raises(AgentError, match="no mapping of features"):
            AgentClient(lambda *_asked, other=other: other).features()  # type: ignore[misc]


def test_a_refusal_is_shown_as_one_line() -> None:
    with pytest.raises(AgentError) as refused:
        read_answer("POST /apply", 503, '{"error": "no\\n\\u001b[2Jnft"}')
    assert str(refused.value) == "POST /apply: no \\x1b[2Jnft"


def test_an_answer_without_end_is_given_up(tmp_path: Path) -> None:
    """A bound on what is read: an agent that was replaced must not fill the asker's memory."""
    path = tmp_path / "agent.sock"
    sent = 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen()

        def pour() -> None:
            nonlocal sent
            with listening.accept()[0] as caller, suppress(OSError):
                caller.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while sent < 4 * MAX_ANSWER:
                    sent += caller.send(bytes(1 << 20))

        pouring = threading.Thread(target=pour)
        pouring.start()
        with pytest.raises(AgentError, match=f"the answer has more than {MAX_ANSWER} bytes"):
            AgentClient(over_unix(path)).features()
        pouring.join()
    assert sent < 2 * MAX_ANSWER


def test_a_machine_that_refuses_is_not_taken_for_a_wrong_request() -> None:
    async def story(agent: Agent, _notes: list[str]) -> None:
        with pytest.raises(RefusedError) as refused:
            await ask(agent, "POST", "/apply", {"state": STATE.to_text(), "lease": 3})
        assert refused.value.status == 503

    play(story, fails_at="apply")


def test_an_answer_that_is_none_is_an_error_of_the_agent() -> None:
    with pytest.raises(AgentError, match="is no JSON: '<html>'"):
        read_answer("GET /bites", 502, "<html>")


# -- Settings --------------------------------------------------------------------------------------

TOKEN = "0123456789abcdef"  # noqa: S105 of these tests
CONFIG = """
table: sc1_2_3
control: unix:agent.sock
sites:
- {name: n0, addresses: [198.18.0.2, "fd00:5c::2"], device: eth0, netns: /proc/self/ns/net}
- {name: n1}
"""


def test_an_agent_is_told_its_sites_in_a_file() -> None:
    settings = read_agent(CONFIG, "agent.yaml", {})
    assert settings.table == "sc1_2_3"
    assert settings.control.path == "agent.sock"
    assert settings.probes is None
    first, second = settings.sites
    assert first.addresses == ("198.18.0.2", "fd00:5c::2")
    assert (second.device, second.netns) == ("eth0", None)


def test_probes_of_an_agent_may_be_reached_by_anybody_and_take_no_token(tmp_path: Path) -> None:
    text = f"probes: 0.0.0.0:7812\ntoken_file: {token_file(tmp_path, TOKEN)}\n{CONFIG}"
    settings = read_agent(text, "agent.yaml", {})
    assert settings.probes is not None
    assert (settings.probes.port, settings.probes.token) == (7812, "")
    assert settings.control.token


def test_the_only_site_may_be_named_by_who_starts_the_agent(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("{table: sc, control: 'unix:a', sites: [{name: anybody}]}")
    assert load_agent(str(path), {}, "member-2").sites[0].name == "member-2"


def test_an_agent_that_was_not_told_finds_the_addresses_of_its_site() -> None:
    """Those that others reach; not that of the link alone."""
    answer = [
        {
            "ifname": "eth0",
            "addr_info": [
                {"family": "inet", "local": "10.244.1.7", "scope": "global"},
                {"family": "inet6", "local": "fd00:5c::7", "scope": "global"},
                {"family": "inet6", "local": "fe80::1", "scope": "link"},
            ],
        }
    ]

    async def story() -> None:
        ran: list[Sequence[str]] = []

        async def run(argv: Sequence[str], _stdin: str) -> str:
            ran.append(argv)
            return json.dumps(answer)

        site = Site(name="n0", addresses=(), device="eth0")
        assert (await located(site, run)).addresses == ("10.244.1.7", "fd00:5c::7")
        assert ran == [("ip", "-j", "addr", "show", "dev", "eth0")]
        told = Site(name="n0", addresses=("10.244.1.9",))
        assert await located(told, run) is told
        answer.clear()
        with pytest.raises(DriverError, match="eth0 of n0 has no address"):
            await located(site, run)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("table: sc1_2_3", "table: SC-1", "small letters, digits and underscores"),
        ("control: unix:agent.sock", "control: 0.0.0.0:7900", "so it needs a token"),
        ("table:", "probes: x\ntable:", "probes is 'x': write HOST:PORT"),
        ("name: n1", "name: n0", "two sites have one name"),
        ("/proc/self/ns/net", "/run/netns/nowhere", "there is no network namespace"),
        ("device: eth0", "device: a b", "write the name of a network device"),
        ("sites:", "sight:", "unknown key"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_the_remedy(
    before: str, after: str, says: str
) -> None:
    with pytest.raises(NodeError, match=says):
        read_agent(CONFIG.replace(before, after), "agent.yaml", {})


OPEN = CONFIG.replace("unix:agent.sock", "0.0.0.0:7900") + "tls: none\n"


@pytest.mark.parametrize("token", ["x", "fifteen-letters", "with spaces in it, really"])
def test_a_token_that_could_be_guessed_is_refused_and_the_refusal_says_how_to_make_one(
    token: str, tmp_path: Path
) -> None:
    """The rule of members and keepers."""
    text = f"{OPEN}token_file: {token_file(tmp_path, token)}\n"
    with pytest.raises(NodeError, match="`openssl rand -hex 16` makes") as refused:
        read_agent(text, "agent.yaml", {})
    assert repr(token) not in str(refused.value)


def test_a_token_comes_from_a_file_of_its_owner_and_from_nowhere_else(tmp_path: Path) -> None:
    file = token_file(tmp_path, TOKEN)
    text = f"{OPEN}token_file: {file}\n"
    assert read_agent(text, "agent.yaml", {}).control.token == TOKEN
    for config in (text, OPEN):
        with pytest.raises(NodeError, match="a token comes from a file; unset the var") as refused:
            read_agent(config, "agent.yaml", {TOKEN_VARIABLE: "fedcba9876543210"})
        assert "fedcba9876543210" not in str(refused.value)
    with pytest.raises(NodeError, match=r"agent\.yaml:8:13: token_file /nowhere: No such file"):
        read_agent(f"{OPEN}token_file: /nowhere\n", "agent.yaml", {})
    file.chmod(0o644)
    with pytest.raises(NodeError, match=f"token_file {file}: others can read .* chmod 600 {file}"):
        read_agent(text, "agent.yaml", {})


def test_where_others_reach_an_agent_it_needs_a_certificate(tmp_path: Path) -> None:
    token = f"token_file: {token_file(tmp_path, TOKEN)}\n"
    bare = OPEN.replace("tls: none\n", "")
    with pytest.raises(NodeError, match="it needs TLS; set certificate_file and private_key_file"):
        read_agent(bare + token, "agent.yaml", {})
    sealed = f"{bare}{token}certificate_file: c\nprivate_key_file: k\n"
    assert read_agent(sealed, "agent.yaml", {}).control.tls.is_on
    with pytest.raises(NodeError, match="tls is 'some': choose one of required, none"):
        read_agent(OPEN.replace("tls: none", "tls: some") + token, "agent.yaml", {})


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(NodeError, match="--config /nowhere: No such file or directory"):
        load_agent("/nowhere", {})


# -- What is said about it -------------------------------------------------------------------------

API_FILE = Path(__file__).parents[2] / "docs" / "agent-api.yaml"


def described() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(API_FILE.read_text())
    return found


def resolved(value: dict[str, Any]) -> dict[str, Any]:
    """What a reference in the description leads to."""
    while "$ref" in value:
        found: Any = described()
        for word in value["$ref"].removeprefix("#/").split("/"):
            found = found[word]
        value = found
    return value


def schema_of(part: dict[str, Any]) -> dict[str, Any]:
    return resolved(resolved(part)["content"]["application/json"]["schema"])


def test_every_endpoint_is_described_and_no_other() -> None:
    async def story(agent: Agent, _notes: list[str]) -> None:
        there = {path: {word.lower() for word in ways} for path, ways in endpoints(agent).items()}
        assert there == {path: set(ways) for path, ways in described()["paths"].items()}

    play(story)


def test_answers_have_the_keys_that_are_described() -> None:
    async def story(agent: Agent, _notes: list[str]) -> None:
        paths = described()["paths"]
        apply = paths["/apply"]["post"]["requestBody"]["content"]["application/json"]["example"]
        bodies = {
            "/apply": apply,
            "/renew": {"lease": 3.0},
            "/clear": {},
            "/release": {"fault": None},
        }
        for path, ways in paths.items():
            for method, way in ways.items():
                answer = await ask(agent, method.upper(), path, bodies.get(path))
                told = json.loads(answer.body)
                wanted = schema_of(way["responses"]["200"])
                assert set(wanted.get("required", ())) <= set(told), path
                if "properties" in wanted:
                    assert set(told) <= set(wanted["properties"]), path

    assert "nft apply" in play(story)


def test_requests_take_the_keys_that_are_described_and_no_others() -> None:
    async def story(agent: Agent, _notes: list[str]) -> None:
        for path, ways in described()["paths"].items():
            for method in ways:
                if method == "post":
                    with pytest.raises(RefusedError, match="write a mapping of"):
                        await ask(agent, "POST", path, {"x": 1})

    play(story)
