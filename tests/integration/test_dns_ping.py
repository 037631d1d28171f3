"""DNS_PING against a real name server: members find each other by records, which change while they
run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from stormcast.node.channel import Channel, ChannelConfig
from stormcast.node.core.errors import ConfigError
from stormcast.node.protocols.discovery import DnsPingConfig
from stormcast.node.settings import StackSettings, load_settings
from stormcast.node.transports.dns import DnsLookup
from tests.helpers.station import on_a_loop, until

DNSMASQ = shutil.which("dnsmasq") or shutil.which("dnsmasq", path="/usr/sbin")
needs_server = pytest.mark.skipif(not DNSMASQ, reason="dnsmasq is missing: apt-get install dnsmasq")
NAME = "stormcast.test"
SERVICE = f"_stormcast._tcp.{NAME}"


class Server:
    """dnsmasq on a port of its own: addresses from a file that it reads again when told to."""

    def __init__(self, folder: Path) -> None:
        self._hosts = folder / "hosts"
        self._hosts.write_text("")
        self._log = folder / "log"
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def at(self) -> str:
        return f"127.0.0.1[{self.port}]"

    async def start(self, *more: str) -> None:
        """Until it answers. If somebody else took its port in the meantime, it gets another."""
        for _ in range(5):
            self._run(more)
            if await self._answers_or_ends():
                return
            self.port = _free_port()
        pytest.fail(f"dnsmasq does not answer: {self._log.read_text()}")

    def _run(self, more: tuple[str, ...]) -> None:
        assert DNSMASQ
        self.stop()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    DNSMASQ,
                    "--keep-in-foreground",
                    "--conf-file=/dev/null",
                    "--no-resolv",
                    "--no-hosts",
                    "--no-daemon",
                    f"--port={self.port}",
                    "--listen-address=127.0.0.1",
                    "--bind-interfaces",
                    "--local=/test/",
                    "--user=root",
                    "--pid-file=",
                    f"--addn-hosts={self._hosts}",
                    *more,
                ],
                stdout=log,
                stderr=log,
            )

    async def _answers_or_ends(self) -> bool:
        lookup = DnsLookup(
            DnsPingConfig(dns_query="version.bind.test", dns_address=self.at, timeout=0.2),
            socket.AF_INET,
            1,
        )
        for _ in range(20):
            _found, failure = await lookup.look_up()
            if self._process is None or self._process.poll() is not None:
                return False
            if "no answer" not in failure and "refused" not in failure.lower():
                return True
        return False

    def set(self, *addresses: str) -> None:
        """From now on the name has these."""
        self._hosts.write_text("".join(f"{address} {NAME}\n" for address in addresses))
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGHUP)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(5)
            self._process = None


def _free_port() -> int:
    """One that is free for streams and for datagrams: a name server takes both."""
    while True:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_STREAM) as streams,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        ):
            streams.bind(("127.0.0.1", 0))
            port: int = streams.getsockname()[1]
            with contextlib.suppress(OSError):
                datagrams.bind(("127.0.0.1", port))
                return port


@pytest.fixture(name="server")
def _server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    try:
        yield server
    finally:
        server.stop()


def made(stack: str, host: str, port: int, dns: dict[str, object]) -> StackSettings:
    """The settings of one member: a shipped stack, with DNS_PING in place of its discovery."""
    settings = load_settings(stack, "fast")
    transport, config = settings.layers[-1]
    more = {"ip_mcast": "never"} if transport == "UDP" else {}
    bound = type(config)(bind_addr=host, bind_port=port, port_range=0, **more)
    query = {"dns_query": NAME, "timeout": 0.5, **dns}
    layers = (*settings.layers[:-2], ("DNS_PING", DnsPingConfig(**query)), (transport, bound))  # type: ignore[arg-type]
    return StackSettings(name="by-dns", layers=layers, timing=settings.timing)


@asynccontextmanager
async def members(*settings: StackSettings) -> AsyncIterator[tuple[list[Channel], list[str]]]:
    said: list[str] = []
    channels = [
        Channel(
            ChannelConfig(settings=one, cluster="dns", name=f"n{number}", on_notice=said.append)
        )
        for number, one in enumerate(settings)
    ]
    try:
        await asyncio.gather(*(channel.connect() for channel in channels))
        yield channels, said
    finally:
        for channel in channels:
            await channel.close()


def sizes(channels: list[Channel]) -> list[int]:
    return [len(one.view.members) if one.view is not None else 0 for one in channels]


@needs_server
@pytest.mark.parametrize("stack", ["udp", "tcp", "tcp-nio2"])
@on_a_loop
async def test_members_find_each_other_by_a_records(stack: str, server: Server) -> None:
    """Each has an address of its own, as pods have, and all have the same port."""
    hosts = [f"127.0.9.{number}" for number in (1, 2, 3)]
    server.set(*hosts)
    await server.start()
    port = _free_port()
    settings = [made(stack, host, port, {"dns_address": server.at}) for host in hosts]
    async with members(*settings) as (channels, said):
        await until(lambda: sizes(channels) == [3, 3, 3], "a view of all", 15)
        got: list[bytes] = []
        channels[2].on_message = lambda payload, _sender: got.append(bytes(payload))
        for one in channels:
            await one.send(None, one.name.encode())
        await until(lambda: sorted(got) == [b"n0", b"n1", b"n2"])
        assert said == []


@needs_server
@on_a_loop
async def test_members_find_each_other_by_aaaa_records(server: Server) -> None:
    """The port is of its own setting; this host has one IPv6 loopback address, so the second member
    is found, and finds, at the port that the setting says."""
    server.set("::1")
    await server.start()
    first, second = _free_port(), _free_port()
    dns = {"dns_address": server.at, "port": first}
    settings = [made("tcp", "::1", port, dns) for port in (first, second)]
    async with members(*settings) as (channels, _said):
        await until(lambda: sizes(channels) == [2, 2], "a view of both", 15)


@needs_server
@on_a_loop
async def test_members_find_each_other_by_srv_records(server: Server) -> None:
    """Which name ports, too: so members may share an address."""
    ports = [_free_port() for _ in range(3)]
    server.set("127.0.0.1")
    await server.start(*(f"--srv-host={SERVICE},{NAME},{port}" for port in ports))
    dns: dict[str, object] = {"dns_address": server.at, "record_type": "SRV", "dns_query": SERVICE}
    settings = [made("udp", "127.0.0.1", port, dns) for port in ports]
    async with members(*settings) as (channels, _said):
        await until(lambda: sizes(channels) == [3, 3, 3], "a view of all", 15)


@needs_server
@on_a_loop
async def test_a_name_that_does_not_exist_yet_is_waited_for_and_records_may_change(
    server: Server,
) -> None:
    """Both members start alone. When the name appears, they merge; a third one is found when the
    records change."""
    await server.start()
    port = _free_port()
    hosts = [f"127.0.9.{number}" for number in (1, 2, 3)]
    settings = [made("tcp", host, port, {"dns_address": server.at}) for host in hosts]
    async with members(*settings[:2]) as (channels, said):
        assert sizes(channels) == [1, 1]
        assert said == [f"discovery: {NAME} has no A record (yet)"] * 2
        server.set(*hosts[:2])
        await until(lambda: sizes(channels) == [2, 2], "a merge", 20)
        server.set(*hosts)
        async with members(settings[2]) as (third, _said):
            await until(lambda: sizes(channels + third) == [3, 3, 3], "a view of all", 20)


@needs_server
@on_a_loop
async def test_a_server_that_goes_away_costs_nothing_that_was_known(server: Server) -> None:
    """Each says so once, however often it asks; the last answer holds."""
    hosts = ["127.0.9.1", "127.0.9.2"]
    server.set(*hosts)
    await server.start()
    port = _free_port()
    settings = [made("tcp", host, port, {"dns_address": server.at}) for host in hosts]
    async with members(*settings) as (channels, said):
        await until(lambda: sizes(channels) == [2, 2], "a view of both", 15)
        server.stop()
        book = channels[0].runtime._hosts
        for turn in range(1, 4):
            book.hosts(1e6 * turn, asyncio.get_running_loop())
            assert book._task is not None
            await book._task
        assert len(said) == 1
        assert list(book.hosts(0.0, asyncio.get_running_loop())) == [(host, port) for host in hosts]


@on_a_loop
async def test_a_server_that_does_not_answer_delays_the_start_by_its_timeout_and_is_said_once() -> (
    None
):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mute:
        mute.bind(("127.0.0.1", 0))
        at = f"127.0.0.1[{mute.getsockname()[1]}]"
        loop = asyncio.get_running_loop()
        begun = loop.time()
        dns: dict[str, object] = {"dns_address": at, "timeout": 0.3}
        async with members(made("tcp", "127.0.9.1", _free_port(), dns)) as (channels, said):
            assert 0.25 < loop.time() - begun < 3.0
            assert said == [f"discovery: {NAME} A: no answer within 0.3 s"]
            book = channels[0].runtime._hosts
            for turn in range(1, 4):
                book.hosts(1e6 * turn, loop)
                with contextlib.suppress(TypeError):
                    await book._task  # type: ignore[misc]
            assert len(said) == 1
            begun = loop.time()
        assert loop.time() - begun < 3.0


@on_a_loop
async def test_a_member_that_is_closed_does_not_wait_for_the_server() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mute:
        mute.bind(("127.0.0.1", 0))
        dns: dict[str, object] = {
            "dns_address": f"127.0.0.1[{mute.getsockname()[1]}]",
            "timeout": 20.0,
        }
        channel = Channel(ChannelConfig(settings=made("tcp", "127.0.9.1", _free_port(), dns)))
        begun = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(channel.connect(), 0.1)
        assert asyncio.get_running_loop().time() - begun < 2.0
        assert channel.state == "closed"


def test_records_without_a_port_need_one_from_the_settings() -> None:
    with pytest.raises(ConfigError, match=r"DNS_PING\.port is 0, and so is UDP\.bind_port"):
        made("udp", "127.0.0.1", 0, {})
    assert made("udp", "127.0.0.1", 0, {"record_type": "SRV"})
    assert made("udp", "127.0.0.1", 0, {"port": 7800})
    assert made("udp", "127.0.0.1", 7800, {})


def test_a_name_must_be_given() -> None:
    with pytest.raises(ConfigError, match=r"DNS_PING\.dns_query is empty; set it to the name"):
        made("udp", "127.0.0.1", 7800, {"dns_query": ""})
