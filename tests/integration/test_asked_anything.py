"""Whatever an endpoint is asked in well-formed JSON, the answer never is that it has failed.

What a caller gets wrong is his to hear (4xx), and what runs behind the endpoint goes on.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from stormcast.chaos import faults
from stormcast.chaos.agent.agent import Agent
from stormcast.chaos.agent.endpoints import endpoints as agent_endpoints
from stormcast.chaos.drivers.base import Bites
from stormcast.chaos.language.network_state import NetworkState
from stormcast.node.control.answers import Table
from stormcast.node.control.server import Control
from stormcast.node.control.settings import ControlSettings
from stormcast.node.keeper.endpoints import endpoints as keeper_endpoints
from stormcast.node.keeper.keeper import Keeper, KeeperSettings
from stormcast.node.member.endpoints import endpoints as member_endpoints
from stormcast.node.member.member import Member
from stormcast.node.member.settings import load_member
from tests.helpers.http import Reply, exchange, replies, request

FEWER = settings(
    max_examples=max(1, settings.default.max_examples // 5),
    # The request that fails is named; making what stands before it smaller takes minutes.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
AT_ONCE = 12
"""Requests to one member at least: each may prepare the ground for the next."""

OTHER = {"name": "n1", "identity": f"{7:032x}", "where": "127.0.0.1[7800]"}
ME = "the member itself"
"""Stands for its address, which is another one in each example."""
CUT = faults.Cut(sources=("n0",), dests=("n1",))
STATE = NetworkState(members=("n0", "n1"), places={"n0": ("198.18.0.2",)}, faults={"f1": CUT})

MATCH = {
    "protocol": "NAKACK2",
    "kind": ["DATA"],
    "flags": "OOB",
    "from": "n1",
    "to": ["n0", "group"],
    "seqno": [3, 5],
    "transmission": 0,
    "direction": "up",
    "occurrence": [1, 2],
    "times": 2,
}
MEMBER: Mapping[str, list[Any]] = {
    "/attributes": [{"xmit_interval": "1s"}, {"NAKACK2.xmit_interval": 0.5}, {"DISCARD.up": 0.1}],
    "/workload": [
        [{"do": "multicast", "rate": "10/s", "count": 3, "burst": 2}],
        {
            "do": "unicast",
            "from": "n0",
            "to": ["n1"],
            "closed": True,
            "duration": "1s",
            "size": "10B..2KiB",
            "flags": ["OOB"],
            "oob_every": 2,
            "start": "1s",
        },
    ],
    "/workload/stop": [None],
    "/probes": [
        {"DISCARD": {"up": 0.1, "next_unicasts": 1, "ignored": ["n1"], "above": "UDP"}},
        {"DROP": {"match": MATCH}},
        {"DELAY": {"delay": "1ms", "jitter": "1ms", "keep_order": True}, "DISCARD": None},
        {"DUPLICATE": {"copies": 1}, "SHUFFLE": {"max_size": 2, "max_time": "1ms"}},
    ],
    "/consume": [{"consuming": True}],
    "/peers": [{"members": [OTHER, ME]}],
    "/view": [
        {"number": 7, "creator": OTHER, "members": [OTHER, ME]},
        {"number": 8, "members": [OTHER]},
    ],
    "/forget": [{"peer": "n1", "half": "both"}, {"peer": OTHER["identity"]}],
    "/close": [{"peer": "n1"}, {"peer": "n0"}],
    "/journal/forget": [{"upto": 0}, {"upto": 1000}],
    "/gauge": [None],
}
"""What may rightly be asked. /leave is not among it: it is granted to everybody."""
KEEPER: Mapping[str, list[Any]] = {
    "/claim": [{"run": "order-7", "lease": 30.0}],
    "/give-back": [{"run": "order-7"}],
    "/stop": [None],
    "/kill": [None],
    "/pause": [{"lease": 3.0}],
    "/renew": [{"lease": 3.0}],
    "/resume": [None],
    "/journals/forget": [{"incarnations": [1]}, {"incarnations": []}],
}
"""What starts nothing."""
AGENT: Mapping[str, list[Any]] = {
    "/apply": [{"state": STATE.to_text(), "lease": 3.0}, {"state": "members: [n0]", "lease": 1}],
    "/renew": [{"lease": 3.0}],
    "/clear": [{}],
    "/release": [{"fault": "f1"}, {"fault": None}],
}

ODD = st.sampled_from(
    [None, True, False, 0, -1, 1, 1 << 32, 1 << 63, 1 << 64, 10**400, 1e308, -0.5, "", "x", "n0",
     "n1", "n9", "-1s", "1s", "999999999999999h", "999999999999999GiB", "0/s", "\x00", "a\nb",
     "x" * 300, "ü" * 200, [], {}, [[]], [{}], {"": None}, "f" * 32, "0" * 32, "group", "UDP",
     "NAKACK2", "DISCARD", float("nan"), float("inf"), "\ud800"]
).map(copy.deepcopy)  # fmt: skip  # a list of odd values


@st.composite
def altered(draw: st.DrawFn, value: Any) -> Any:
    """The same, with something of it missing, added or replaced."""
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(0, 2))):
        value = _altered(draw, value)
    return value


def _altered(draw: st.DrawFn, value: Any) -> Any:
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 5)) == 0:
        return draw(ODD)
    keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
    at = draw(st.sampled_from(keys))
    match draw(st.sampled_from(("inside", "inside", "inside", "missing", "more"))):
        case "inside":
            value[at] = _altered(draw, value[at])
        case "missing":
            del value[at]
        case _ if isinstance(value, dict):
            value[draw(st.sampled_from(("x", "", "DROP", "UDP", "above", "name")))] = draw(ODD)
        case _:
            value.append(value[at])
    return value


def asked(of: Mapping[str, list[Any]]) -> st.SearchStrategy[list[tuple[str, Any]]]:
    """Requests: a path, and a body."""
    path = st.sampled_from(list(of))
    one = path.flatmap(lambda path: st.tuples(st.just(path), st.sampled_from(of[path])))
    body = one.flatmap(lambda one: st.tuples(st.just(one[0]), altered(one[1])))
    return st.lists(body, min_size=AT_ONCE, max_size=2 * AT_ONCE)


async def answer(table: Table, line: str, body: bytes = b"") -> Reply:
    control = Control(ControlSettings(path="x.sock"), table)
    (reply,) = replies((await exchange(control, request(line, body=body))).data)
    return reply


def written(body: Any, me: Mapping[str, str]) -> bytes:
    return json.dumps(body).replace(json.dumps(ME), json.dumps(me)).encode()


async def ask_all(table: Table, requests: list[tuple[str, Any]], me: Mapping[str, str]) -> None:
    """Ask one after the other, with a turn of the loop in between."""
    for path, body in requests:
        sent = b"" if body is None else written(body, me)
        reply = await answer(table, f"POST {path}", sent)
        assert reply.status < 500, f"{path} {sent!r}: {reply.error}"
        assert reply.status < 400 or len(reply.error) > 10
        for _ in range(3):
            await asyncio.sleep(0)
        for getting in (path for path, methods in table.items() if "GET" in methods):
            reply = await answer(table, f"GET {getting}")
            assert reply.status == 200, f"{getting} after {path} {sent!r}: {reply.body!r}"


def run(story: Callable[[], Awaitable[None]]) -> None:
    """In a loop of its own, in which nothing may fail where nobody waits for it."""
    failures: list[dict[str, Any]] = []

    async def watched() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: failures.append(context))
        await story()

    asyncio.run(watched())
    assert not failures


def started(stack: str, *flags: str, say: Callable[[str], None] = lambda _line: None) -> Member:
    words = {
        "--name": "n0",
        "--stack": stack,
        "--bind-addr": "127.0.0.1",
        "--port": "0",
        "--cluster": f"asked-{os.getpid()}",
        "--set": list(flags),
    }
    return Member(load_member(words, {}).settings, say)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stack", "flags"),
    [
        ("unicast-only", ()),
        ("udp", ("GMS.join_timeout=10ms", "GMS.max_join_attempts=1")),
        ("mcast", ("GMS.join_timeout=10ms", "GMS.max_join_attempts=1")),
    ],
)
@FEWER
@given(requests=asked(MEMBER))
def test_a_member(stack: str, flags: tuple[str, ...], requests: list[tuple[str, Any]]) -> None:
    """A member that runs; afterwards it still takes its turns, and ends."""

    async def story() -> None:
        member = started(stack, *flags)
        channel = member.channel
        await channel.connect()
        try:
            assert member.me is not None
            me = {"name": "n0", "identity": f"{member.me.identity:032x}", "where": member.me.where}
            await ask_all(member_endpoints(member), requests, me)
            turns = channel.runtime.turns.number
            channel.runtime.wake()
            await asyncio.sleep(0.002)
            assert channel.runtime.turns.number > turns
        finally:
            await member.driver.close()
            await channel.close()

    run(story)


@pytest.mark.slow
def test_a_member_says_that_nobody_repairs_what_a_test_protocol_loses() -> None:
    said: list[str] = []

    async def story() -> None:
        member = started("tcp-no-retransmit", "GMS.join_timeout=10ms", say=said.append)
        await member.channel.connect()
        try:
            table = member_endpoints(member)
            for probe, is_said in (({"DELAY": {}}, False), ({"DISCARD": {"up": 0.1}}, True)):
                said.clear()
                assert (
                    await answer(table, "POST /probes", json.dumps(probe).encode())
                ).status == 200
                assert any("DISCARD stands below NAKACK2" in line for line in said) is is_said
            said.clear()
            assert (await answer(table, "POST /probes", b'{"DISCARD": null}')).status == 200
            assert said == ["n0: test protocols: DELAY"]
        finally:
            await member.channel.close()

    run(story)


@FEWER
@given(requests=asked(KEEPER))
def test_a_keeper(
    tmp_path_factory: pytest.TempPathFactory, requests: list[tuple[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("keeper")

    async def story() -> None:
        control = ControlSettings(path="x.sock")
        keeper = Keeper(KeeperSettings(control=control, folder=folder), {}, lambda _line: None)
        table = {
            path: methods
            for path, methods in keeper_endpoints(keeper).items()
            # They answer of a member, which there is none of, and no JSON.
            if path not in ("/readyz", "/weight", "/journals")
        }
        await ask_all(table, requests, OTHER)

    run(story)


class Idle:
    """A driver to which everything is possible, and nothing is done."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def features(self) -> Mapping[str, str | None]:
        return {self.name: None}

    async def apply(self, state: NetworkState, lease: float) -> None:
        assert state.to_text()

    async def renew(self, lease: float) -> None: ...

    async def end(self) -> None: ...

    async def clear(self) -> None: ...

    async def release(self, fault: str | None) -> None: ...

    async def bites(self) -> Bites:
        return {}

    async def forget(self, acting: Collection[str]) -> None: ...


@FEWER
@given(requests=asked(AGENT))
def test_an_agent(requests: list[tuple[str, Any]]) -> None:
    async def story() -> None:
        agent = Agent((Idle("nft"), Idle("nfqueue"), Idle("tc")))
        await ask_all(agent_endpoints(agent), requests, OTHER)
        await agent.close()

    run(story)


def test_every_endpoint_that_takes_a_body_is_asked(tmp_path: Path) -> None:
    """An endpoint that is added, and is not asked here, is missed."""

    async def story() -> None:
        agent = Agent(())
        settings = KeeperSettings(control=ControlSettings(path="x.sock"), folder=tmp_path)
        keeper = Keeper(settings, {}, lambda _line: None)
        for table, known, apart in (
            (member_endpoints(started("udp")), MEMBER, {"/leave"}),
            (keeper_endpoints(keeper), KEEPER, {"/start"}),
            (agent_endpoints(agent), AGENT, set()),
        ):
            there = {path for path, methods in table.items() if "POST" in methods}
            assert there == set(known) | apart

    run(story)
