"""What a member says of itself before it has begun, and what its endpoints are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stormcast.node.control.answers import RefusedError
from stormcast.node.core.model import Address, View
from stormcast.node.member.endpoints import endpoints
from stormcast.node.member.member import Member, tune_collector
from stormcast.node.member.settings import load_member
from tests.helpers.group import formed

PERSON = {"name": "n1", "identity": f"{7:032x}", "where": "127.0.0.1[7800]"}
DOCS = Path(__file__).parents[2] / "docs"


def member(**flags: str) -> Member:
    words = {f"--{name}": value for name, value in flags.items()}
    return Member(load_member({"--name": "n0", **words}, {}).settings, lambda _line: None)


def ask(asked: Member, method: str, path: str, body: object = None) -> tuple[int, Any]:
    answer = endpoints(asked)[path][method](json.dumps(body).encode() if body is not None else b"")
    return answer.status, json.loads(answer.body)


def test_a_member_that_is_not_bound_yet_has_a_state() -> None:
    status, state = ask(member(stack="tcp", cluster="demo"), "GET", "/state")
    assert status == 200
    assert (state["name"], state["state"], state["view"]) == ("n0", "new", None)
    assert (state["cluster"], state["stack"], state["timing"]) == ("demo", "tcp", "fast")
    assert "short" not in state
    assert state["workload"]["running"] is False


def test_whatever_a_member_says_is_one_line() -> None:
    said: list[str] = []
    Member(load_member({"--name": "n0"}, {}).settings, said.append).say("nobody at a\n\x1b[2Jb")
    assert said == ["n0: nobody at a\\n\\x1b[2Jb"]


def test_a_member_that_is_not_in_its_group_is_alive_and_not_ready() -> None:
    assert ask(member(), "GET", "/livez") == (200, {"live": True})
    assert ask(member(), "GET", "/readyz") == (503, {"ready": False, "state": "new"})


def test_a_member_that_is_not_bound_yet_can_be_scraped() -> None:
    text = endpoints(member())["/metrics"]["GET"](b"").body.decode()
    assert "stormcast_connected 0.0" in text
    assert 'member="n0"' in text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/attributes", {"xmit_interval": "1s"}),
        ("/workload", {"do": "multicast"}),
        ("/probes", {"DISCARD": {}}),
        ("/consume", {"consuming": False}),
        ("/peers", {"members": [PERSON]}),
        ("/view", {"number": 1, "members": [PERSON]}),
        ("/forget", {"peer": "n1"}),
        ("/close", {"peer": "n1"}),
        ("/gauge", None),
    ],
)
def test_what_needs_a_running_stack_is_refused_without_one(path: str, body: object) -> None:
    with pytest.raises(RefusedError) as caught:
        ask(member(), "POST", path, body)
    assert caught.value.status == 409


@pytest.mark.parametrize(
    ("path", "body", "remedy"),
    [
        ("/consume", {"consuming": "no"}, "true or false"),
        ("/consume", {}, "such as"),
        ("/attributes", ["x"], "such as"),
        ("/probes", None, "such as"),
        ("/workload", {"do": "multicas"}, "did you mean multicast?"),
        ("/peers", {"members": []}, "as a list"),
        ("/peers", {"members": [PERSON, PERSON]}, "listed twice"),
        ("/peers", {"members": [PERSON | {"identity": "0" * 32}]}, "is no member"),
        ("/peers", {"members": [PERSON | {"where": 7}]}, "is no member"),
        ("/peers", {"members": [PERSON | {"name": "ü" * 128}]}, "256 bytes of UTF-8: write 255"),
        ("/peers", {"members": [PERSON | {"name": "a\x1b[2J"}]}, "is not printable"),
        ("/view", {"number": 1, "members": [PERSON | {"where": "a\nb"}]}, "is not printable"),
        ("/view", {"number": 0, "members": [PERSON]}, "whole number"),
        ("/view", {"number": 1 << 62, "members": [PERSON]}, "whole number"),
        ("/view", {"number": 1, "members": [PERSON], "creator": "n1"}, "is no member"),
        ("/forget", {"peer": "n1", "half": "left"}, "both, sender, receiver"),
    ],
)
def test_a_body_that_cannot_be_meant_is_refused(path: str, body: object, remedy: str) -> None:
    with pytest.raises(Exception, match=remedy):
        ask(member(), "POST", path, body)


def test_a_view_without_the_member_itself_is_refused() -> None:
    installed: list[View] = []
    nobody = SimpleNamespace(send_connections=tuple, receive_connections=tuple)
    stack = SimpleNamespace(install_view=lambda view, _now: installed.append(view), unicast=nobody)
    runtime = SimpleNamespace(is_running=True, stack=stack, now=lambda: 1.0, wake=lambda: None)
    me = Address(8, "n0", PERSON["where"])
    there: Any = SimpleNamespace(name="n0", me=me, channel=SimpleNamespace(runtime=runtime))
    with pytest.raises(RefusedError, match=r"lacks n0 itself.*add it") as caught:
        ask(there, "POST", "/view", {"number": 1, "members": [PERSON]})
    assert caught.value.status == 400
    assert installed == []


def test_a_view_with_a_number_that_other_members_refuse_is_refused() -> None:
    """The stack knows how far ahead it would be."""
    nobody = SimpleNamespace(send_connections=tuple, receive_connections=tuple)
    stack = formed("A")["A"].stack
    known = SimpleNamespace(install_view=stack.install_view, unicast=nobody)
    runtime = SimpleNamespace(is_running=True, stack=known, now=lambda: 1.0, wake=lambda: None)
    me = stack.role.address
    there: Any = SimpleNamespace(name="n0", me=me, channel=SimpleNamespace(runtime=runtime))
    person = PERSON | {"identity": f"{me.identity:032x}", "name": me.name, "where": me.where}
    body = {"number": (1 << 32) + 2, "members": [person]}
    held = stack.view
    with pytest.raises(RefusedError, match=r"number of the view is 4294967298: write") as caught:
        ask(there, "POST", "/view", body)
    assert caught.value.status == 400
    assert stack.view == held
    ask(there, "POST", "/view", body | {"number": (1 << 32) + 1})
    assert stack.view is not None
    assert stack.view.id.number == (1 << 32) + 1


def test_stopping_what_does_not_run_stops_nothing() -> None:
    assert ask(member(), "POST", "/workload/stop") == (200, {"stopped": 0})


def test_the_docs_list_every_endpoint() -> None:
    text = (DOCS / "node.md").read_text()
    table = text.partition("<!-- endpoints -->")[2].partition("<!-- /endpoints -->")[0]
    told = set(re.findall(r"`(GET|POST) (/[a-z/]+)`", table))
    there = endpoints(member())
    assert told == {(method, path) for path, methods in there.items() for method in methods}


def test_the_collector_looks_rarely() -> None:
    import gc  # noqa: PLC0415 to be put back

    before = gc.get_threshold()
    try:
        tune_collector()
        assert gc.get_threshold()[0] >= 10_000
        assert gc.get_freeze_count() > 1000
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
