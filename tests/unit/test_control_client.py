"""The client of control endpoints: an answer as it comes, and the sockets that it comes from."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from threading import Thread

import pytest

from stormcast.node.control import client
from stormcast.node.control.client import (
    HttpError,
    HttpExchange,
    LongAnswerError,
    NoAnswerError,
    Reply,
    ask,
    ask_from_loop,
)

HEAD = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n"
BODY = b'{"a": 1}'
MADE = Reply(201, "application/json", BODY)


def exchange() -> HttpExchange:
    return HttpExchange("GET", "/state", b"")


def test_a_request_is_written_whole() -> None:
    head, _, body = HttpExchange("POST", "/apply", b"{}").request.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /apply HTTP/1.1\r\n")
    assert b"Content-Length: 2" in head
    assert body == b"{}"


def test_a_request_that_is_no_http_is_not_written() -> None:
    with pytest.raises(HttpError):
        HttpExchange("GET", "/a b", b"")


def test_an_answer_may_come_byte_by_byte() -> None:
    asked = exchange()
    found = [asked.receive(bytes([byte])) for byte in HEAD + BODY]
    assert found == [None] * (len(HEAD) + len(BODY) - 1) + [MADE]


def test_an_answer_in_chunks_and_one_that_ends_with_its_connection_are_read() -> None:
    chunks = b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert exchange().receive(head + chunks) == Reply(200, "", b"abc")
    asked = exchange()
    assert asked.receive(b"HTTP/1.1 200 OK\r\n\r\nabc") is None
    assert asked.receive(b"") == Reply(200, "", b"abc")


def test_an_answer_that_is_cut_is_none() -> None:
    with pytest.raises(ConnectionResetError, match="without an answer"):
        exchange().receive(b"")
    asked = exchange()
    asked.receive(HEAD + BODY[:3])
    with pytest.raises(HttpError):
        asked.receive(b"")


def test_what_is_no_http_is_no_answer() -> None:
    with pytest.raises(HttpError):
        exchange().receive(b"hello\r\n\r\n")


def test_no_more_of_an_answer_is_held_than_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_ANSWER", len(BODY))
    assert exchange().receive(HEAD + BODY) == MADE
    monkeypatch.setattr(client, "MAX_ANSWER", len(BODY) - 1)
    with pytest.raises(LongAnswerError, match="more than 7 bytes"):
        exchange().receive(HEAD + BODY)


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        (MADE, {"a": 1}),
        (Reply(200, "text/plain", BODY), BODY.decode()),
        (Reply(200, "application/json", b"{"), "{"),
    ],
)
def test_an_answer_has_a_value(reply: Reply, value: object) -> None:
    assert reply.value() == value


def one_answer(path: Path, data: bytes, asked: list[bytes]) -> Thread:
    """Answer one request, at a path that no socket address has room for."""
    path.parent.mkdir()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with client._address(path) as address:
        listening.bind(address)
    listening.listen()

    def answer() -> None:
        with listening, listening.accept()[0] as caller:
            asked.append(caller.recv(1 << 16))
            caller.sendall(data)

    answering = Thread(target=answer)
    answering.start()
    return answering


@pytest.mark.parametrize("is_in_loop", [False, True])
def test_a_socket_is_asked_however_long_its_path_is(tmp_path: Path, *, is_in_loop: bool) -> None:
    path, asked = tmp_path / ("x" * 150) / "control.sock", list[bytes]()
    answering = one_answer(path, HEAD + BODY, asked)
    if is_in_loop:
        data = json.dumps([1]).encode()
        reply = asyncio.run(ask_from_loop(path, "POST", "/a", data))
    else:
        reply = ask(path, "POST", "/a", [1], 10.0)
    answering.join()
    assert reply == MADE
    assert asked[0].endswith(b"\r\n\r\n[1]")


def test_nobody_at_the_socket_is_named(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    with pytest.raises(NoAnswerError, match=f"GET /state on {path}: FileNotFoundError"):
        ask(path, "GET", "/state", None, 1.0)
    answering = one_answer(tmp_path / "b" / "control.sock", b"", [])
    with pytest.raises(NoAnswerError, match="closed without an answer"):
        ask(tmp_path / "b" / "control.sock", "GET", "/state", None, 10.0)
    answering.join()
