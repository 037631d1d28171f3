"""An agent that is asked in lines, and its claim on the network that it is in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from secrets import token_hex
from typing import Any

import pytest

from stormcast.chaos.agent import network_claim
from stormcast.chaos.agent.agent import Agent
from stormcast.chaos.agent.client import AgentError, AgentRefusalError, LeaseLapsedError
from stormcast.chaos.agent.lines import MAX_LINE, LineClient, serve_lines
from stormcast.chaos.agent.network_claim import NetworkClaim
from stormcast.chaos.agent.settings import site_of_lines
from stormcast.chaos.drivers.base import DriverError, Site
from stormcast.chaos.faults import Partition
from stormcast.chaos.language.network_state import NetworkState
from stormcast.node.control.answers import RefusedError, Table, as_json
from stormcast.node.core.errors import ConfigError, NodeError


def served(table: Table, given: bytes, *, ends: bool = True) -> tuple[str, list[Any], list[str]]:
    """Why an agent stopped answering, its answers, and the bugs that were shown."""
    answers: list[Any] = []
    bugs: list[str] = []

    async def serve() -> str:
        lines = asyncio.StreamReader(limit=MAX_LINE)
        lines.feed_data(given)
        if ends:
            lines.feed_eof()
        return await serve_lines(
            table,
            lines,
            lambda line: answers.append(json.loads(line)),
            lambda error: bugs.append(str(error)),
            silence=0.05,
        )

    return asyncio.run(serve()), answers, bugs


def line(number: int, target: str, body: object = None, method: str = "POST") -> bytes:
    asked = {"number": number, "method": method, "target": target, "body": body}
    return json.dumps(asked).encode() + b"\n"


def refuse(_body: object) -> Any:
    raise RefusedError(409, "too late")


def fail(_body: object) -> Any:
    raise ZeroDivisionError("oh")


def refuse_plainly(_body: object) -> Any:
    raise NodeError("no such state")


async def slowly(body: object) -> Any:
    await asyncio.sleep(0)
    return as_json({"got": body})


TABLE: Table = {
    "/echo": {"POST": slowly, "GET": lambda _body: as_json("here")},
    "/refuse": {"POST": refuse},
    "/bad": {"POST": refuse_plainly},
    "/fail": {"POST": fail},
}


def test_each_line_has_its_answer_whatever_comes_of_it() -> None:
    given = (
        line(1, "/echo", {"a": 1})
        + line(2, "/echo", method="GET")
        + line(3, "/refuse")
        + line(4, "/bad")
        + line(5, "/fail")
        + line(6, "/nowhere")
        + b"{\n[1]\n"
        + line(7, "/echo")
    )
    why, answers, bugs = served(TABLE, given)
    assert [(one["number"], one["status"]) for one in answers] == [
        (1, 200), (2, 200), (3, 409), (4, 400), (5, 500), (6, 404), (None, 400), (None, 400),
        (7, 200),
    ]  # fmt: skip  # a row each
    assert answers[0]["value"] == {"got": {"a": 1}}
    assert answers[2]["value"] == {"error": "too late"}
    assert bugs == ["oh"]
    assert why == "whoever was attached is gone"


def test_an_agent_that_nobody_asks_any_more_ends() -> None:
    why, answers, _bugs = served(TABLE, line(1, "/echo"), ends=False)
    assert (why, len(answers)) == ("nobody asked anything for 0.05 s", 1)


def test_a_line_has_a_bound_and_half_a_line_is_none() -> None:
    why, answers, _bugs = served(TABLE, b"x" * (MAX_LINE + 1))
    assert (why, answers) == (f"a request has more than {MAX_LINE} bytes", [])
    why, answers, _bugs = served(TABLE, line(1, "/echo")[:-1])
    assert (why, answers) == ("whoever was attached is gone", [])


class Said:
    """A wire on which these answers come; `None`: none comes in time."""

    def __init__(self, *answers: Callable[[int], object] | None) -> None:
        self._answers = list(answers)
        self.sent: list[dict[str, Any]] = []

    def send(self, text: bytes) -> None:
        self.sent.append(json.loads(text))

    def receive(self, _seconds: float) -> bytes:
        answer = self._answers.pop(0)
        if answer is None:
            raise NodeError("no answer within 10 s")
        return json.dumps(answer(self.sent[-1]["number"])).encode()

    def close(self) -> None:
        pass


def answer(status: int, value: object, late: int = 0) -> Callable[[int], object]:
    return lambda number: {"number": number - late, "status": status, "value": value}


def test_an_answer_that_comes_late_is_not_that_of_the_next_request() -> None:
    wire = Said(None, answer(200, "old", late=1), answer(200, "new"))
    client = LineClient("the agent of pod a/b", wire)
    with pytest.raises(AgentError, match="the agent of pod a/b: GET /x: no answer within 10 s"):
        client.ask("GET", "/x", None)
    assert client.ask("GET", "/y", None) == "new"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (answer(409, {"error": "lapsed"}), LeaseLapsedError),
        (answer(503, {"error": "no nft"}), AgentRefusalError),
        (lambda _number: {"what": "ever"}, AgentError),
        (lambda _number: 7, AgentError),
    ],
)
def test_what_is_no_good_answer_is_an_error(
    said: Callable[[int], object], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        LineClient("it", Said(said)).ask("POST", "/renew", {})


@pytest.mark.parametrize(("table", "name"), [("a b", "n0"), ("", "n0"), ("t", ""), ("t", "a b")])
def test_words_that_no_rule_of_the_kernel_could_have_are_refused(table: str, name: str) -> None:
    with pytest.raises(ConfigError):
        site_of_lines(table, name)


# -- The claim -----------------------------------------------------------------------------------


class Idle:
    """A driver that does nothing, and fails where it is told to."""

    name = "nft"

    def __init__(self, *, fails: bool = False) -> None:
        self._fails = fails

    async def features(self) -> dict[str, str | None]:
        return {"partition": None}

    async def apply(self, _state: NetworkState, _lease: float) -> None:
        if self._fails:
            raise DriverError("no nft")

    async def renew(self, _lease: float) -> None: ...
    async def end(self) -> None: ...
    async def clear(self) -> None: ...
    async def release(self, _fault: str | None) -> None: ...

    async def bites(self) -> dict[str, dict[tuple[str, str], int]]:
        return {}

    async def forget(self, _acting: Collection[str]) -> None: ...


NOTHING = NetworkState(members=("n0", "n1"))
PARTED = replace(NOTHING, faults={"f1": Partition(groups=(("n0",), ("n1",)))})
SITES = (Site(name="n0", addresses=()), Site(name="n1", addresses=()))
"""Two names of one network, which is no conflict."""


def agents(number: int, **made: bool) -> Sequence[Agent]:
    name = f"stormcast-test-{token_hex(4)}"
    return [Agent((Idle(**made),), NetworkClaim(SITES, name)) for _ in range(number)]


def test_one_agent_at_a_time_acts_on_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_claim, "WAIT_SECONDS", 0.02)

    async def story() -> None:
        first, second = agents(2)
        await first.apply(PARTED, 60.0)
        await first.apply(PARTED, 60.0)
        for attempt in (second.apply(PARTED, 60.0), second.features()):
            with pytest.raises(DriverError, match="another agent acts on the network of n0"):
                await attempt
        await first.clear()
        assert await second.features() == {"partition": None}
        await second.apply(PARTED, 60.0)
        with pytest.raises(DriverError, match="another agent acts"):
            await first.apply(PARTED, 60.0)
        await second.close()

    asyncio.run(story())


def test_a_claim_ends_with_the_lease_and_with_a_state_that_failed() -> None:
    async def story() -> None:
        first, second = agents(2)
        await first.apply(PARTED, 0.02)
        await second.apply(PARTED, 60.0)
        assert first.lapses == 1
        await second.close()
        broken, other = agents(2, fails=True)
        for agent in (broken, other, broken):
            with pytest.raises(DriverError, match="no nft"):
                await agent.apply(PARTED, 60.0)

    asyncio.run(story())


def test_an_agent_without_a_fault_so_far_keeps_nobody_from_acting() -> None:
    async def story() -> None:
        run, attack = agents(2)
        await run.apply(NOTHING, 60.0)
        await attack.apply(PARTED, 60.0)
        await run.apply(NOTHING, 60.0)
        await run.close()
        await attack.close()

    asyncio.run(story())


def test_what_is_tried_while_faults_act_does_not_end_their_claim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(network_claim, "WAIT_SECONDS", 0.02)

    async def story() -> None:
        first, second = agents(2)
        await first.apply(PARTED, 60.0)
        await first.features()
        await first.apply(NOTHING, 60.0)
        with pytest.raises(DriverError, match="another agent acts"):
            await second.apply(PARTED, 60.0)
        await first.close()

    asyncio.run(story())
