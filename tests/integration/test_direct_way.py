"""Keepers asked at the addresses of their pods: whoever is not who it should be gets nothing."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from threading import Thread

import pytest
from urllib3 import HTTPConnectionPool

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.kubernetes.api import Api
from stormcast.chaos.backends.kubernetes.direct import DirectWay
from stormcast.chaos.backends.netns.process import until
from stormcast.chaos.backends.pods.connections import CONNECTIONS
from stormcast.chaos.backends.pods.http_pool import (
    TooLongError,
    UnreachableError,
    read_bounded,
)
from stormcast.chaos.backends.pods.pod import Port, request_of
from stormcast.node.control.answers import Answer, Table, as_json, parse_body
from stormcast.node.core.errors import ConfigError
from tests.helpers.certificates import Files, Issuer
from tests.helpers.endpoint import Endpoint
from tests.helpers.pods import ShutDoor

TOKEN = "0123456789abcdef"  # noqa: S105 of a test
LARGE = 300_000
"""More than what is read at a time."""


async def never(_body: object) -> Answer:
    await asyncio.Event().wait()
    raise AssertionError


TABLE: Table = {
    "/state": {"GET": lambda _: as_json({"alive": True})},
    "/echo": {"POST": lambda body: as_json(parse_body(body))},
    "/large": {"GET": lambda _: Answer(b"x" * LARGE)},
    "/never": {"GET": never},
}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Issuer().write(tmp_path)


@pytest.fixture
def keeper(files: Files) -> Iterator[Endpoint]:
    with Endpoint(TABLE, token=TOKEN, tls=files.settings) as made:
        yield made


def port_of(keeper: Endpoint, *, pod: str = "demo-stormcast-0", is_tls: bool = True) -> Port:
    return Port(pod, keeper.port, "127.0.0.1", is_tls)


def test_an_answer_that_drips_is_not_waited_for_without_end() -> None:
    """A pod that was taken over sends a byte now and then, so that no read of it is too late."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        drips = Thread(target=drip, args=(server,), daemon=True)
        drips.start()
        pool = HTTPConnectionPool("127.0.0.1", server.getsockname()[1])
        answer = pool.request("GET", "/", timeout=1.0, retries=False, preload_content=False)
        began = time.monotonic()
        with pytest.raises(UnreachableError, match="comes too slowly"):
            read_bounded(answer, LARGE, 1.0)
        assert time.monotonic() - began < 3.0
        drips.join(5.0)
        assert not drips.is_alive(), "the connection was closed"


def drip(server: socket.socket) -> None:
    connection, _address = server.accept()
    with connection, suppress(OSError):
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
        for _byte in range(100):
            connection.sendall(b"x")
            time.sleep(0.1)


def test_a_way_that_is_closed_keeps_no_connection(keeper: Endpoint, files: Files) -> None:
    way = DirectWay(str(files.ca))
    api, port = Api(ShutDoor(), "x", way), port_of(keeper)
    assert api.send(port, request_of("GET", "/state", None, TOKEN)).is_ok
    assert keeper.control.connections.tasks()
    way.close()
    until(lambda: not keeper.control.connections.tasks(), 10.0, lambda: "it is kept")
    assert api.send(port, request_of("GET", "/state", None, TOKEN)).is_ok


def asking(ca: Path) -> Api:
    """No request takes the way through the API server: nobody is there."""
    return Api(ShutDoor(), "x", DirectWay(str(ca)))


def test_a_keeper_is_asked_at_its_address_and_wants_its_token(
    keeper: Endpoint, files: Files
) -> None:
    api, port = asking(files.ca), port_of(keeper)
    assert api.send(port, request_of("GET", "/state", None, TOKEN)).value() == {"alive": True}
    assert api.send(port, request_of("POST", "/echo", {"a": [1]}, TOKEN)).value() == {"a": [1]}
    assert api.send(port, request_of("GET", "/state", None, "wrong")).status == 401
    assert len(keeper.control.connections.tasks()) == 1, "the connection is kept"


def test_many_threads_ask_over_no_more_connections_than_a_keeper_takes(
    keeper: Endpoint, files: Files
) -> None:
    api, port = asking(files.ca), port_of(keeper)
    with ThreadPoolExecutor(16) as threads:
        asked = request_of("GET", "/state", None, TOKEN)
        replies = [threads.submit(api.send, port, asked) for _number in range(64)]
        assert all(reply.result(20.0).is_ok for reply in replies)
    assert keeper.control.connections.evicted == 0


def test_an_answer_has_its_bound(keeper: Endpoint, files: Files) -> None:
    api, port = asking(files.ca), port_of(keeper)
    assert len(api.send(port, request_of("GET", "/large", None, TOKEN, most=LARGE)).body) == LARGE
    with pytest.raises(TooLongError, match=f"more than {LARGE - 1} bytes"):
        api.send(port, request_of("GET", "/large", None, TOKEN, most=LARGE - 1))


def test_answers_that_are_too_long_or_too_late_take_no_connection_with_them(
    keeper: Endpoint, files: Files
) -> None:
    api, port = asking(files.ca), port_of(keeper)

    def ask() -> bool:
        for _ in range(CONNECTIONS + 1):
            with pytest.raises(TooLongError):
                api.send(port, request_of("GET", "/large", None, TOKEN, most=10))
            with pytest.raises(UnreachableError):
                api.send(port, request_of("GET", "/never", None, TOKEN, timeout=0.05))
        return api.send(port, request_of("GET", "/state", None, TOKEN)).is_ok

    # In a thread that nobody waits for, if it does wait for a connection for ever.
    threads = ThreadPoolExecutor(1)
    try:
        assert threads.submit(ask).result(20.0)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def refusal(api: Api, port: Port) -> str:
    with pytest.raises(BackendError) as caught:
        api.send(port, request_of("GET", "/state", None, TOKEN))
    said = str(caught.value)
    assert "\n" not in said
    return said


def test_whose_certificate_is_not_verified_gets_no_token(
    keeper: Endpoint, files: Files, tmp_path: Path
) -> None:
    """Of another issuer, for another release, or of the past."""
    other = Issuer().write(tmp_path / "other")
    assert refusal(asking(other.ca), port_of(keeper)).endswith(
        "its certificate is refused: unable to get local issuer certificate; --ca-file is to name "
        "its issuer"
    )
    named = refusal(asking(files.ca), port_of(keeper, pod="demo2-stormcast-0"))
    assert "certificate is not valid for 'demo2-stormcast'" in named
    old = Issuer().write(tmp_path / "old", lasts=-timedelta(seconds=1))
    with Endpoint(TABLE, token=TOKEN, tls=old.settings) as late:
        assert "certificate has expired" in refusal(asking(old.ca), port_of(late))
        assert late.control.requests == 0
    assert keeper.control.requests == 0


def test_a_keeper_without_tls_is_not_asked(keeper: Endpoint, files: Files) -> None:
    assert "speaks plain HTTP" in refusal(asking(files.ca), port_of(keeper, is_tls=False))
    with Endpoint(TABLE, token=TOKEN) as plain:
        with pytest.raises(UnreachableError, match=f"demo-stormcast-0 port {plain.port}: "):
            asking(files.ca).send(port_of(plain), request_of("GET", "/state", None, TOKEN))
        assert plain.control.requests == 0


def test_where_nobody_listens_it_is_said_in_one_line(files: Files) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = Port("demo-stormcast-0", bound.getsockname()[1], "127.0.0.1", is_tls=True)
        with pytest.raises(UnreachableError, match="Connection refused"):
            asking(files.ca).send(port, request_of("GET", "/state", None, TOKEN))


def test_a_file_without_an_issuer_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--ca-file .*nowhere: No such file"):
        DirectWay(str(tmp_path / "nowhere"))
