"""A wire to a container over a websocket of a server that this test speaks for, byte by byte."""

from __future__ import annotations

import base64
import hashlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from stormcast.chaos.agent.lines import LineClient
from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.kubernetes.any_pods import AnyPods
from stormcast.chaos.backends.kubernetes.api import open_api
from tests.helpers.attacked_pods import status

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BINARY: Final = 2
_CLOSE: Final = 8
TOLD: Final = """\
current-context: x
contexts: [{name: x, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:%d"}}]
users: [{name: u, user: {token: a-token}}]
"""


class Server:
    """Takes one connection. It refuses it, or answers each line of channel 0 on channel 1."""

    def __init__(self, refusal: bytes = b"") -> None:
        self.head = b""
        self.lines: list[bytes] = []
        self.is_over = threading.Event()
        self._refusal = refusal
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listening.close()
        self._thread.join(5.0)

    def _work(self) -> None:
        client, _address = self._listening.accept()
        with client, client.makefile("rb") as reader:
            while (line := reader.readline()) != b"\r\n":
                self.head += line
            if self._refusal:
                size = len(self._refusal)
                head = f"HTTP/1.1 403 Forbidden\r\nContent-Length: {size}\r\n\r\n"
                client.sendall(head.encode() + self._refusal)
                return
            client.sendall(self._accepted())
            while True:
                kind, data = self._frame(reader.read)
                if kind == _CLOSE:
                    break
                channel, line = data[0], data[1:]
                assert (kind, channel) == (_BINARY, 0)
                self.lines.append(line)
                number = len(self.lines)
                said = b'{"number": %d, "status": 200, "value": "heard"}\n' % number
                # An answer in two pieces, with something of the other channel between.
                for part in (b"\1" + said[:7], b"\2a warning\n", b"\1" + said[7:]):
                    client.sendall(bytes((0x80 | _BINARY, len(part))) + part)
        self.is_over.set()

    def _accepted(self) -> bytes:
        key = next(
            line.split(b":")[1].strip()
            for line in self.head.splitlines()
            if line.lower().startswith(b"sec-websocket-key")
        )
        proof = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
        return (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Protocol: v5.channel.k8s.io\r\nSec-WebSocket-Accept: " + proof
        ) + b"\r\n\r\n"

    @staticmethod
    def _frame(read: object) -> tuple[int, bytes]:
        assert callable(read)
        head = read(2)
        if len(head) < 2:
            return _CLOSE, b""
        size = head[1] & 0x7F
        if size == 126:
            (size,) = struct.unpack(">H", read(2))
        mask, data = read(4), read(size)
        return head[0] & 0x0F, bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))


@pytest.fixture
def server() -> Iterator[Server]:
    with closing(Server()) as made:
        yield made


def pods(server: Server, folder: Path) -> AnyPods:
    file = folder / "config"
    file.write_text(TOLD % server.port)
    return AnyPods(open_api(str(file))[0])


def test_lines_go_to_the_input_of_a_container_and_come_from_its_output(
    server: Server, tmp_path: Path
) -> None:
    wire = pods(server, tmp_path).attach("shop", "web-0", "agent-1")
    client = LineClient("the agent", wire)
    assert [client.ask("POST", "/renew", {"lease": 3.0, "pad": "x" * 300}) for _ in "ab"] == [
        "heard",
        "heard",
    ]
    wire.close()
    assert server.is_over.wait(5.0)
    assert all(line.endswith(b"\n") and b"/renew" in line for line in server.lines)
    asked = server.head.splitlines()[0].decode()
    assert asked.startswith("GET /api/v1/namespaces/shop/pods/web-0/attach?container=agent-1&")
    assert "stdin=true&stdout=true&stderr=true" in asked
    assert b"authorization: Bearer a-token" in server.head


def test_a_refusal_is_said_with_the_right_that_is_missing(tmp_path: Path) -> None:
    said = status(403, 'pods "web-0" is forbidden: User "me" cannot get resource "pods/attach"')
    with (
        closing(Server(said.body)) as server,
        pytest.raises(
            BackendError,
            match=r"you may not get and create pods/attach in namespace shop: .*cannot",
        ),
    ):
        pods(server, tmp_path).attach("shop", "web-0", "agent-1")
