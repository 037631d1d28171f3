"""The control endpoint: what is asked is answered, what has no business here is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import h11
import pytest

from stormcast.node.control.answers import (
    Answer,
    RefusedError,
    Table,
    as_json,
    parse_body,
    parse_mapping,
)
from stormcast.node.control.connections import Limits
from stormcast.node.control.http_connection import EVENTS_AT_ONCE, MAX_HEADER
from stormcast.node.control.server import MAX_BODY, Control
from stormcast.node.control.settings import ControlSettings
from stormcast.node.core.errors import ConfigError
from tests.helpers.http import HOST, Reply, Wire, exchange, replies, request, writer_to

TOKEN = "0123456789abcdef"  # noqa: S105 of a test


def fail(_body: bytes) -> Answer:
    raise ZeroDivisionError("a bug")


def refuse(_body: bytes) -> Answer:
    raise ConfigError("NAKACK2.xmit_interval is 'x': write a duration such as 500ms")


TABLE: Table = {
    "/livez": {"GET": lambda _: as_json({"live": True})},
    "/echo": {"POST": lambda body: as_json({"said": parse_body(body)})},
    "/many": {"GET": lambda _: as_json(1), "POST": lambda _: as_json(2)},
    "/refuse": {"POST": refuse},
    "/fail": {"GET": fail},
}


def converse(
    sent: bytes,
    *,
    token: str = "",
    hosts: frozenset[str] = frozenset((HOST, "localhost:9000")),
    control: Control | None = None,
    on_failure: Callable[[Exception], None] | None = None,
) -> tuple[list[Reply], Wire]:
    """Everything that a connection sends, then its end; what comes back."""

    served = control or Control(
        ControlSettings(host="127.0.0.1", port=9000, token=token), TABLE, on_failure
    )
    served.hosts = hosts
    wire = asyncio.run(exchange(served, sent))
    assert wire.is_closed
    return replies(wire.data), wire


def one(*args: Any, **rest: Any) -> Reply:
    """The one answer to one request."""
    options = {key: rest.pop(key) for key in ("token", "hosts", "on_failure") if key in rest}
    found, _wire = converse(request(*args, **rest), **options)
    (reply,) = found
    return reply


# -- Answers ---------------------------------------------------------------------------------------


def test_a_question_is_answered() -> None:
    reply = one("GET /livez")
    assert reply.status == 200
    assert json.loads(reply.body) == {"live": True}
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["cache-control"] == "no-store"


def test_a_body_arrives_whole_or_in_chunks() -> None:
    assert json.loads(one("POST /echo", body=b'{"a": 1}').body) == {"said": {"a": 1}}
    chunked = (
        request("POST /echo", "Transfer-Encoding: chunked")
        + b"2\r\n[1\r\n2\r\n,2\r\n1\r\n]\r\n0\r\n\r\n"
    )
    (reply,), _ = converse(chunked)
    assert json.loads(reply.body) == {"said": [1, 2]}


def test_a_query_is_not_looked_at() -> None:
    assert one("GET /livez?verbose=1").status == 200


def test_one_connection_carries_many_requests_also_at_once() -> None:
    found, _ = converse(request("GET /livez") + request("POST /echo", body=b"5") * 3)
    assert [reply.status for reply in found] == [200] * 4


def test_a_client_that_wants_to_close_is_closed() -> None:
    found, _ = converse(request("GET /livez", "Connection: close") + request("GET /livez"))
    assert len(found) == 1


def test_a_client_that_waits_to_be_told_to_go_on_is_told() -> None:
    found, wire = converse(request("POST /echo", "Expect: 100-continue", body=b"7"))
    assert wire.data.startswith(b"HTTP/1.1 100 ")
    assert [reply.status for reply in found] == [100, 200]


def test_an_answer_that_takes_time_or_comes_in_parts_is_whole() -> None:
    async def later(_body: bytes) -> Answer:
        await asyncio.sleep(0)
        return Answer(b"", content_type="text/plain", parts=iter([b"ab", b"", b"cd"]))

    table: Table = {"/long": {"GET": later}}
    control = Control(ControlSettings(path="x.sock"), table)
    control.hosts = frozenset()
    wire = asyncio.run(exchange(control, request("GET /long") * 2))
    body = b"2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n"
    assert [part[: len(body)] for part in wire.data.split(b"\r\n\r\n", 1)[1:]] == [body]
    assert wire.data.count(b"HTTP/1.1 200") == 2
    assert wire.data.endswith(b"\r\n\r\n" + body)


def test_what_is_below_a_path_is_passed_on_as_it_is() -> None:
    async def echo(method: str, target: str, body: bytes) -> Answer:
        return as_json([method, target, body.decode()])

    control = Control(ControlSettings(path="x.sock", token=TOKEN), {}, passes={"/member/": echo})
    sent = request("PUT /member/a/b?c=d", f"X-Stormcast-Token: {TOKEN}", body=b"xyz")
    (reply,), _ = converse(sent, control=control, hosts=frozenset())
    assert json.loads(reply.body) == ["PUT", "/member/a/b?c=d", "xyz"]
    (reply,), _ = converse(request("GET /member/livez"), control=control, hosts=frozenset())
    assert reply.status == 401


# -- Refusals --------------------------------------------------------------------------------------


def test_unknown_paths_and_methods_are_refused_with_what_there_is() -> None:
    reply = one("GET /nowhere")
    assert (reply.status, "/livez" in reply.error) == (404, True)
    reply = one("DELETE /many")
    assert (reply.status, reply.headers["allow"]) == (405, "GET, POST")
    assert one("GET /echo").status == 405
    assert one("GET //livez").status == 404
    assert one("GET http://127.0.0.1:9000/livez").status == 404


@pytest.mark.parametrize(
    ("body", "remedy"),
    [
        (b'["\\ud800"]', "half a character"),
        (b'{"\\udfff": 1}', "half a character"),
        (b'{"a": NaN}', "NaN"),
        (b"[1e999]", "too large"),
        (b"[" * 33 + b"]" * 33, "deeper than 32"),
        (b"[" * 5000 + b"]" * 5000, "deeper than 32|recursion"),
    ],
)
def test_a_body_that_nobody_could_write_again_is_refused(body: bytes, remedy: str) -> None:
    """Names become metrics and lines of logs: what they cannot carry must not get that far."""
    with pytest.raises(RefusedError, match=remedy) as caught:
        parse_body(body)
    assert caught.value.status == 400


def test_a_body_that_is_nested_and_in_any_language_is_taken() -> None:
    assert parse_body(b"[" * 31 + b"1" + b"]" * 31)
    assert parse_body('["ü", "\\ud83d\\ude00"]'.encode()) == ["ü", "😀"]


def test_a_refused_request_does_not_end_the_connection() -> None:
    found, _ = converse(request("GET /nowhere") + request("GET /livez"))
    assert [reply.status for reply in found] == [404, 200]


def test_a_head_is_refused_without_a_body() -> None:
    found, wire = converse(request("HEAD /livez"))
    assert [reply.status for reply in found] == [405]
    assert wire.data.endswith(b"\r\n\r\n")


def test_what_a_handler_refuses_is_a_bad_request_that_says_why() -> None:
    reply = one("POST /refuse")
    assert (reply.status, "write a duration" in reply.error) == (400, True)
    assert one("POST /echo", body=b"{").status == 400
    assert one("POST /echo", body=b"[" * 30_000).status == 400
    assert one("POST /echo", body=b"\xff").status == 400


def test_a_bug_behind_an_endpoint_is_told_and_ends_nothing() -> None:
    told: list[Exception] = []
    found, _ = converse(request("GET /fail") + request("GET /livez"), on_failure=told.append)
    assert [reply.status for reply in found] == [500, 200]
    assert isinstance(told[0], ZeroDivisionError)


def test_a_body_may_be_so_large() -> None:
    fits = b'"' + b"x" * (MAX_BODY - 2) + b'"'
    assert one("POST /echo", body=fits).status == 200
    reply = one("POST /echo", body=fits + b" ")
    assert (reply.status, reply.headers["connection"]) == (413, "close")
    announced = request("POST /echo", "Content-Length: 99999999999")
    (reply,), _ = converse(announced)
    assert reply.status == 413, "before it is sent"
    chunk = b"%x\r\n" % 4096 + b"x" * 4096 + b"\r\n"
    (reply,), _ = converse(request("POST /echo", "Transfer-Encoding: chunked") + chunk * 17)
    assert reply.status == 413


def test_an_endpoint_of_another_kind_takes_other_sizes() -> None:
    control = Control(ControlSettings(path="x.sock"), TABLE, max_body=10)
    (reply,), _ = converse(request("POST /echo", body=b'"12345678"'), control=control)
    assert reply.status == 200
    (reply,), _ = converse(request("POST /echo", body=b'"123456789"'), control=control)
    assert (reply.status, "10 bytes" in reply.error) == (413, True)


def test_headers_may_be_so_large() -> None:
    assert one("GET /livez", "X: " + "x" * (MAX_HEADER - 200)).status == 200
    # However it arrives: whole at once, in pieces, or still incomplete.
    assert one("GET /livez", "X: " + "x" * (MAX_HEADER + 200)).status == 431
    assert one("GET /livez", *["X: y"] * (MAX_HEADER // 4)).status == 431
    endless = f"GET /livez HTTP/1.1\r\nHost: {HOST}\r\nX: ".encode() + b"x" * (3 * MAX_HEADER)
    (reply,), _ = converse(endless)
    assert reply.status == 431


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        b"GET\r\n\r\n",
        b"GET /livez HTTP/9.9\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: x\r\n  folded\x00: y\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_no_http_gets_one_refusal_and_the_end(sent: bytes) -> None:
    found, _ = converse(sent, hosts=frozenset())
    assert len(found) == 1
    assert 400 <= found[0].status < 600
    assert found[0].headers["connection"] == "close"


def test_a_connection_that_says_nothing_or_half_of_something_is_closed() -> None:
    assert converse(b"")[0] == []
    found, _ = converse(b"GET /livez HT")
    assert [reply.status for reply in found] == [400]
    found, _ = converse(request("POST /echo", "Content-Length: 10") + b"12345")
    assert [reply.status for reply in found] == [400]


# -- Browsers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        "Origin: http://127.0.0.1:9000",
        "Origin: null",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
        "oRIGIN: https://example.org",
    ],
)
def test_a_page_in_a_browser_may_not_ask(header: str) -> None:
    assert one("POST /echo", header, body=b"1").status == 403
    assert one("GET /livez", header).status == 403


def test_a_person_with_a_browser_may() -> None:
    assert one("GET /livez", "Sec-Fetch-Site: none").status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example:9000", "127.0.0.1", "127.0.0.1:9001", "localhost", "127.0.0.1:9000.x", ""],
)
def test_a_name_that_is_not_bound_is_refused(host: str) -> None:
    """Else a page could have its own name resolved to loopback, and be of one origin with us."""
    assert one("GET /livez", host=host).status == 403


def test_the_names_of_loopback_are_served() -> None:
    assert one("GET /livez", host="localhost:9000").status == 200
    assert one("GET /livez", host="LOCALHOST:9000").status == 200


def test_without_a_host_nothing_is_served_on_loopback() -> None:
    (reply,), _ = converse(b"GET /livez HTTP/1.0\r\n\r\n")
    assert reply.status == 403


# -- The token -------------------------------------------------------------------------------------


def test_with_a_token_every_question_needs_it() -> None:
    assert one("GET /many", token=TOKEN).status == 401
    assert one("GET /many", f"Authorization: Bearer {TOKEN}", token=TOKEN).status == 200
    assert one("GET /many", f"X-Stormcast-Token: {TOKEN}", token=TOKEN).status == 200


def test_whether_it_lives_is_told_to_anybody() -> None:
    """Those who ask that have no place for a token, and learn nothing else."""
    assert one("GET /livez", token=TOKEN).status == 200
    assert one("GET /livez/../many", token=TOKEN).status == 401
    assert one("GET /livezz", token=TOKEN).status == 401


@pytest.mark.parametrize(
    "headers",
    [
        ["Authorization: Bearer 0123456789abcdeX"],
        ["Authorization: Bearer 0123456789abcde"],
        ["Authorization: Bearer"],
        ["Authorization: Basic 0123456789abcdef"],
        ["Authorization: bearer 0123456789abcdef"],
        ["Authorization: Bearer \xe9"],
        [f"Authorization: Bearer {TOKEN}", f"Authorization: Bearer {TOKEN}"],
        [f"X-Stormcast-Token: Bearer {TOKEN}"],
        [f"X-Stormcast-Token: {TOKEN}", f"X-Stormcast-Token: {TOKEN}"],
        ["X-Stormcast-Token: "],
    ],
)
def test_a_wrong_token_is_refused_whatever_it_is_for(headers: list[str]) -> None:
    for line in ("GET /many", "GET /nowhere", "POST /fail"):
        sent = request(line, *headers).decode().encode("latin-1")
        (reply,), _ = converse(sent, token=TOKEN)
        assert reply.status == 401
        assert reply.headers["www-authenticate"] == "Bearer"
        assert TOKEN not in reply.body.decode()


def turns_of(sent: bytes, token: str) -> tuple[list[Reply], int]:
    """What comes back, and how often the event loop did other work meanwhile."""

    async def run() -> tuple[Wire, int]:
        control = Control(ControlSettings(host="127.0.0.1", port=9000, token=token), TABLE)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        other = asyncio.ensure_future(count())
        wire = await exchange(control, sent)
        other.cancel()
        return wire, turns

    wire, turns = asyncio.run(run())
    return replies(wire.data), turns


def chunks(count: int) -> bytes:
    """A body of as many chunks, each of a byte."""
    return b"1\r\n1\r\n" * count + b"0\r\n\r\n"


@pytest.mark.parametrize(
    ("line", "status", "token"),
    [
        ("POST /echo", 401, TOKEN),
        ("POST /nowhere", 404, ""),
        ("DELETE /many", 405, ""),
        ("GET /livez", 413, ""),
        ("GET /livez", 413, TOKEN),
    ],
)
def test_whoever_may_not_ask_has_no_body_read(
    line: str, status: int, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body of small chunks took a second of the processor for a megabyte. Paths that want no
    token take no body."""
    sent = request(line, "Transfer-Encoding: chunked") + chunks(20_000)
    taken = []
    monkeypatch.setattr(
        "h11.Connection.next_event",
        lambda http, old=h11.Connection.next_event: taken.append(old(http)) or taken[-1],
    )
    (reply,), _turns = turns_of(sent, token)
    assert (reply.status, reply.headers["connection"]) == (status, "close")
    assert sum(isinstance(event, h11.Data) for event in taken) <= 1
    assert one(line, body=b"1", token=token).status == status


def test_nobody_without_the_token_is_told_to_go_on() -> None:
    waits = ("Expect: 100-continue", "Content-Length: 5")
    (reply,), _ = converse(request("POST /echo", *waits), token=TOKEN)
    assert (reply.status, reply.headers["connection"]) == (401, "close")
    found, _ = converse(
        request("POST /echo", "Expect: 100-continue", f"X-Stormcast-Token: {TOKEN}", body=b"12345"),
        token=TOKEN,
    )
    assert [reply.status for reply in found] == [100, 200]
    (reply,), _ = converse(request("GET /livez", *waits), token=TOKEN)
    assert reply.status == 413


def test_a_wrong_token_without_a_body_does_not_end_the_connection() -> None:
    right = f"X-Stormcast-Token: {TOKEN}"
    found, _ = converse(
        request("GET /many")
        + request("POST /many", "Content-Length: 0")
        + request("GET /many", right),
        token=TOKEN,
    )
    assert [reply.status for reply in found] == [401, 401, 200]


def test_a_body_in_many_pieces_does_not_hold_up_the_event_loop() -> None:
    right = f"X-Stormcast-Token: {TOKEN}"
    sent = request("POST /echo", "Transfer-Encoding: chunked", right) + chunks(4000)
    (reply,), turns = turns_of(sent, TOKEN)
    assert reply.status == 200
    assert turns >= 4000 // EVENTS_AT_ONCE


def test_many_requests_at_once_do_not_hold_up_the_event_loop() -> None:
    found, turns = turns_of(request("GET /many") * 500, TOKEN)
    assert [reply.status for reply in found] == [401] * 500
    assert turns >= 499


# -- Bounds ----------------------------------------------------------------------------------------


def test_so_many_connections_are_kept_and_one_more_takes_the_place_of_the_oldest() -> None:
    async def run() -> None:
        control = Control(ControlSettings(path="x.sock"), TABLE, limits=Limits(connections=3))
        waiting = []
        wires = []
        for _ in range(4):
            reader, wire = asyncio.StreamReader(), Wire()
            wires.append(wire)
            waiting.append(asyncio.ensure_future(control.serve(reader, writer_to(reader, wire))))
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [wire.is_aborted for wire in wires] == [True, False, False, False]
        assert [task.done() for task in waiting] == [True, False, False, False]
        assert control.connections.evicted == 1
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(run())


def test_who_is_being_answered_keeps_its_place_and_one_more_is_turned_away() -> None:
    async def run() -> list[Reply]:
        go_on = asyncio.Event()

        async def slow(_body: object) -> Answer:
            await go_on.wait()
            return as_json(1)

        table: Table = {"/slow": {"GET": slow}}
        control = Control(ControlSettings(path="x.sock"), table, limits=Limits(connections=2))
        asking = [asyncio.ensure_future(exchange(control, request("GET /slow"))) for _ in range(2)]
        while control.requests < 2:  # noqa: ASYNC110 nothing tells when they have been read
            await asyncio.sleep(0)
        refused = await exchange(control, request("GET /slow"))
        assert control.refused == 1
        go_on.set()
        return [
            reply
            for wire in (refused, *await asyncio.gather(*asking))
            for reply in replies(wire.data)
        ]

    assert [reply.status for reply in asyncio.run(run())] == [503, 200, 200]


def test_a_mapping_is_asked_for_with_an_example() -> None:
    assert parse_mapping(b'{"a": 1}', "x") == {"a": 1}
    for body in (b"", b"[]", b"{}", b"5"):
        with pytest.raises(RefusedError, match="such as x"):
            parse_mapping(body, "x")
