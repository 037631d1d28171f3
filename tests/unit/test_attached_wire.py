"""Lines over a connection that cuts them as it likes, and ends when it likes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from websocket import WebSocketConnectionClosedException

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.kubernetes import attached
from stormcast.chaos.backends.kubernetes.attached import AttachedWire

OUTPUT, ERRORS, STATUS = 1, 2, 3


class Connection:
    """Hands out these frames, one at each look: channel and bytes. Then it is silent, or ends."""

    def __init__(
        self, *frames: tuple[int, bytes], ends: bool = False, breaks: bool = False
    ) -> None:
        self._frames = list(frames)
        self._ends = ends
        self._breaks = breaks
        self._kept: dict[int, bytes] = {}
        self._is_open = True
        self.sock = SimpleNamespace(settimeout=lambda _seconds: None)
        self.sent: list[bytes] = []
        self.closed = 0

    def write_stdin(self, data: bytes) -> None:
        if self._breaks:
            raise BrokenPipeError("gone")
        self.sent.append(data)

    def update(self, timeout: float) -> None:
        if self._frames:
            channel, data = self._frames.pop(0)
            self._kept[channel] = self._kept.get(channel, b"") + data
        elif self._breaks:
            raise WebSocketConnectionClosedException("Connection to remote host was lost.")
        elif self._ends:
            self._is_open = False
        else:
            time.sleep(timeout)

    def read_channel(self, channel: int, timeout: float) -> bytes:
        del timeout
        return self._kept.pop(channel, b"")

    def is_open(self) -> bool:
        return self._is_open

    def close(self, timeout: float) -> None:
        del timeout
        self.closed += 1
        if self._breaks:
            raise WebSocketConnectionClosedException("socket is already closed.")


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Callable[..., AttachedWire]:
    def made(*frames: tuple[int, bytes], **how: bool) -> AttachedWire:
        connection = Connection(*frames, **how)
        monkeypatch.setattr(attached, "_connected", lambda _settings, _url: connection)
        return AttachedWire(None, "https://fake/attach")

    return made


def test_lines_come_whole_however_they_are_cut(wire: Callable[..., AttachedWire]) -> None:
    cut = wire(
        (OUTPUT, b'{"a'),
        (ERRORS, b"a warning\n"),
        (OUTPUT, b'": 1}\n{"b": 2}\n{"'),
        (OUTPUT, b"\n"),
    )
    assert [cut.receive(5.0) for _line in range(3)] == [b'{"a": 1}', b'{"b": 2}', b'{"']


def test_silence_has_a_bound(wire: Callable[..., AttachedWire]) -> None:
    with pytest.raises(BackendError, match=r"no answer within 0\.01 s"):
        wire((OUTPUT, b"half")).receive(0.01)


def test_an_answer_has_a_bound(
    wire: Callable[..., AttachedWire], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attached, "MAX_REPLY", 10)
    with pytest.raises(BackendError, match="more than 10 bytes"):
        wire((OUTPUT, b"x" * 11)).receive(1.0)


def test_an_end_is_said_with_what_the_program_and_the_kubelet_said(
    wire: Callable[..., AttachedWire],
) -> None:
    told = json.dumps({"status": "Failure"}).encode()
    ended = wire((ERRORS, b"stormcast agent: no nft\n"), (STATUS, told), ends=True)
    with pytest.raises(BackendError, match=r'has ended: stormcast agent: no nft .*"Failure"'):
        ended.receive(1.0)


def test_what_came_before_the_end_is_an_answer(wire: Callable[..., AttachedWire]) -> None:
    assert wire((OUTPUT, b"last\n"), ends=True).receive(1.0) == b"last"


def test_a_connection_that_breaks_is_one_line_and_may_be_closed(
    wire: Callable[..., AttachedWire],
) -> None:
    broken = wire(breaks=True)
    for attempt in (lambda: broken.send(b"x\n"), lambda: broken.receive(1.0)):
        with pytest.raises(BackendError, match="the connection with its container has ended"):
            attempt()
    broken.close()
    broken.close()


def test_a_way_that_nobody_opens_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Connection()

    def slowly(_settings: Any, _url: str) -> Connection:
        time.sleep(0.2)
        return late

    monkeypatch.setattr(attached, "_connected", slowly)
    monkeypatch.setattr(attached, "CONNECT_SECONDS", 0.02)
    with pytest.raises(BackendError, match=r"no way to the container within 0\.02 s"):
        AttachedWire(None, "https://fake/attach")
    until = time.monotonic() + 5.0
    while not late.closed and time.monotonic() < until:
        time.sleep(0.01)
    assert late.closed == 1, "a connection that comes too late is no leftover"


def test_a_server_that_is_not_there_is_one_line() -> None:
    settings = SimpleNamespace(
        auth_settings=dict, verify_ssl=True, ssl_ca_cert=None, assert_hostname=None, cert_file=None,
        key_file=None, tls_server_name=None, proxy=None, proxy_headers=None, no_proxy=None,
    )  # fmt: skip  # what the package reads
    with pytest.raises(BackendError, match="no way to the container"):
        AttachedWire(settings, "http://127.0.0.1:1/attach")
