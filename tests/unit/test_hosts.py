"""The hosts behind discovery: numbers, names and DNS, with a resolver that the test answers for."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from stormcast.node.core.errors import ConfigError
from stormcast.node.protocols.discovery import (
    Discovery,
    DnsPing,
    DnsPingConfig,
    Static,
    StaticConfig,
)
from stormcast.node.transports import hosts as hosts_module
from stormcast.node.transports.dns import DnsLookup
from stormcast.node.transports.hosts import LOOKUP_INTERVAL, HostBook

INET, INET6 = socket.AF_INET, socket.AF_INET6


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 10))

    return run


class System:
    """The system's resolver."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.known: dict[str, list[str]] = {}
        self.asked: list[str] = []
        self.gate: threading.Event | None = None
        monkeypatch.setattr(hosts_module.socket, "getaddrinfo", self._answer)

    def _answer(self, host: str, port: int, family: int, kind: int) -> list[Any]:
        self.asked.append(host)
        if self.gate is not None:
            self.gate.wait(5)
        host.encode("idna")
        if host not in self.known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [
            (family, kind, 17, "", (ip, port) if ":" not in ip else (ip, port, 0, 0))
            for ip in self.known[host]
        ]


@pytest.fixture(name="system")
def _system(monkeypatch: pytest.MonkeyPatch) -> System:
    return System(monkeypatch)


def static(hosts: str, port_range: int = 0) -> Discovery:
    return _with(Static, StaticConfig(initial_hosts=hosts, port_range=port_range))


def _with(kind: type[Discovery], config: Any) -> Discovery:
    """A discovery of which only its settings matter."""
    made = kind.__new__(kind)
    made.config = config
    return made


class Book:
    """A HostBook, and what it says."""

    def __init__(self, discovery: Discovery | None, family: socket.AddressFamily = INET) -> None:
        self.said: list[str] = []
        self.book = HostBook(discovery, family, 7800, self.said.append)

    async def at(self, now: float) -> list[Any]:
        """What is known at a time, when a look-up that began then is over."""
        self.book.hosts(now, asyncio.get_running_loop())
        task = self.book._task
        if task is not None:
            await task
        return list(self.book.hosts(-1e9, asyncio.get_running_loop()))


@on_a_loop
async def test_numbers_are_known_at_once_and_nobody_is_asked(system: System) -> None:
    book = Book(static("10.0.0.1[7800],10.0.0.2[7801]", 1))
    await book.book.open()
    assert await book.at(0.0) == [
        ("10.0.0.1", 7800),
        ("10.0.0.1", 7801),
        ("10.0.0.2", 7801),
        ("10.0.0.2", 7802),
    ]
    assert system.asked == []


@on_a_loop
async def test_a_stack_without_a_list_knows_nobody() -> None:
    assert await Book(None).at(0.0) == []


@on_a_loop
async def test_a_name_is_looked_up_again_while_it_is_in_use(system: System) -> None:
    """Its answer changes; the last one holds until the next."""
    system.known["seed.example"] = ["10.0.0.1"]
    book = Book(static("seed.example[7800]"))
    await book.book.open()
    assert await book.at(0.0) == [("10.0.0.1", 7800)]
    system.known["seed.example"] = ["10.0.0.2", "10.0.0.2", "10.0.0.3"]
    asked = len(system.asked)
    assert await book.at(LOOKUP_INTERVAL - 0.1) == [("10.0.0.1", 7800)]
    assert len(system.asked) == asked
    assert await book.at(LOOKUP_INTERVAL) == [("10.0.0.2", 7800), ("10.0.0.3", 7800)]


@pytest.mark.usefixtures("system")
@on_a_loop
async def test_a_name_that_nobody_knows_is_refused_at_the_start() -> None:
    book = Book(static("sead.example[7800]"))
    with pytest.raises(ConfigError) as refused:
        await book.book.open()
    assert str(refused.value) == (
        "initial_hosts: sead.example: name or service not known; "
        "correct the name, or write the address as a number"
    )


@on_a_loop
async def test_one_name_of_many_may_be_unknown_and_is_said_once(system: System) -> None:
    system.known["a.example"] = ["10.0.0.1"]
    book = Book(static("a.example[1],b.example[2]"))
    await book.book.open()
    for turn in range(4):
        assert await book.at(turn * LOOKUP_INTERVAL) == [("10.0.0.1", 1)]
    assert book.said == ["discovery: b.example: name or service not known"]
    system.known["b.example"] = ["10.0.0.2"]
    assert await book.at(9 * LOOKUP_INTERVAL) == [("10.0.0.1", 1), ("10.0.0.2", 2)]
    del system.known["b.example"]
    await book.at(10 * LOOKUP_INTERVAL)
    assert len(book.said) == 2


@on_a_loop
async def test_the_last_answer_holds_while_nobody_answers(system: System) -> None:
    system.known["a.example"] = ["10.0.0.1"]
    book = Book(static("a.example[1]"))
    await book.book.open()
    system.known.clear()
    assert await book.at(0.0) == [("10.0.0.1", 1)]


@on_a_loop
async def test_the_last_answer_holds_while_others_answer(system: System) -> None:
    """Whom an address was of is still there, for all that is known."""
    system.known |= {"a.example": ["10.0.0.1"], "b.example": ["10.0.0.2"]}
    book = Book(static("a.example[1],b.example[2]"))
    await book.book.open()
    del system.known["a.example"]
    system.known["b.example"] = ["10.0.0.3"]
    assert await book.at(0.0) == [("10.0.0.1", 1), ("10.0.0.3", 2)]


@pytest.mark.usefixtures("system")
@on_a_loop
async def test_text_that_cannot_be_a_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"initial_hosts: a\.\.b: not a name; correct the name"):
        await Book(static("a..b[1]")).book.open()


@on_a_loop
async def test_closing_does_not_wait_for_a_name_server(system: System) -> None:
    system.known["slow.example"] = ["10.0.0.1"]
    book = Book(static("slow.example[1]"))
    await book.book.open()
    system.gate = threading.Event()
    loop = asyncio.get_running_loop()
    book.book.hosts(0.0, loop)
    await asyncio.sleep(0)
    begun = loop.time()
    book.book.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert loop.time() - begun < 1.0
    # Nothing is looked up any more, either.
    asked = len(system.asked)
    book.book.hosts(1e6, loop)
    await asyncio.sleep(0)
    assert len(system.asked) == asked
    system.gate.set()


@pytest.mark.usefixtures("system")
@on_a_loop
async def test_addresses_of_the_other_family_are_left_out() -> None:
    """A socket of one family can do nothing with them; a list of nothing else is a mistake."""
    four = Book(static("10.0.0.1[1],fd00::1[1]"))
    await four.book.open()
    assert await four.at(0.0) == [("10.0.0.1", 1)]
    six = Book(static("10.0.0.1[1],fd00::1[1]"), INET6)
    await six.book.open()
    assert await six.at(0.0) == [("fd00::1", 1, 0, 0)]
    for hosts, family, said in (
        ("fd00::1[1],fd00::1[2]", INET, "initial_hosts has fd00::1, and an IPv4 address is bound"),
        ("10.0.0.1[1]", INET6, "initial_hosts has 10.0.0.1, and an IPv6 address is bound"),
    ):
        with pytest.raises(ConfigError, match=said):
            await Book(static(hosts), family).book.open()


# -- DNS -------------------------------------------------------------------------------------------


class Zone:
    """A name server: records by name and type, or a failure."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records: dict[tuple[str, str], list[str]] = {}
        self.asked: list[tuple[str, str]] = []
        zone = self

        async def ask(_self: DnsLookup, name: str, kind: str, failures: list[str]) -> list[str]:
            zone.asked.append((name, kind))
            if (name, kind) not in zone.records:
                failures.append(f"{name} has no {kind} record (yet)")
                return []
            return zone.records[name, kind]

        monkeypatch.setattr(DnsLookup, "_ask", ask)


@pytest.fixture(name="zone")
def _zone(monkeypatch: pytest.MonkeyPatch) -> Zone:
    return Zone(monkeypatch)


def dns(**settings: Any) -> Discovery:
    config = DnsPingConfig(**{"dns_query": "svc.example", "dns_address": "127.0.0.1", **settings})
    return _with(DnsPing, config)


@on_a_loop
async def test_a_name_that_does_not_exist_yet_is_waited_for(zone: Zone) -> None:
    book = Book(dns())
    await book.book.open()
    assert book.said == ["discovery: svc.example has no A record (yet)"]
    assert await book.at(0.0) == []
    zone.records["svc.example", "A"] = ["10.0.0.1", "10.0.0.2"]
    assert await book.at(LOOKUP_INTERVAL) == [("10.0.0.1", 7800), ("10.0.0.2", 7800)]
    zone.records["svc.example", "A"] = []
    assert await book.at(2 * LOOKUP_INTERVAL) == []
    assert len(book.said) == 1


@pytest.mark.parametrize(
    ("record_type", "family", "asked"),
    [("auto", INET, "A"), ("auto", INET6, "AAAA"), ("A", INET, "A"), ("AAAA", INET6, "AAAA")],
)
@on_a_loop
async def test_the_record_follows_from_what_is_bound(
    record_type: str, family: socket.AddressFamily, asked: str, zone: Zone
) -> None:
    book = Book(dns(record_type=record_type, port=99), family)
    await book.book.open()
    assert zone.asked == [("svc.example", asked)]


@on_a_loop
async def test_services_name_hosts_and_ports(zone: Zone) -> None:
    """Of each host only addresses of the family that is bound."""
    zone.records["svc.example", "SRV"] = ["0 5 7801 a.example.", "0 5 0 b.example."]
    zone.records["a.example.", "A"] = ["10.0.0.1"]
    zone.records["a.example.", "AAAA"] = ["fd00::1"]
    zone.records["b.example.", "A"] = ["10.0.0.2"]
    book = Book(dns(record_type="SRV", port=99))
    await book.book.open()
    assert await book.at(0.0) == [("10.0.0.1", 7801), ("10.0.0.2", 99)]
    six = Book(dns(record_type="SRV"), INET6)
    await six.book.open()
    assert await six.at(0.0) == [("fd00::1", 7801, 0, 0)]


@on_a_loop
async def test_records_of_the_other_family_are_left_out_and_said(zone: Zone) -> None:
    zone.records["svc.example", "AAAA"] = ["fd00::1"]
    book = Book(dns(record_type="AAAA", port=99))
    await book.book.open()
    assert await book.at(0.0) == []
    assert book.said == [
        "discovery: all addresses found are of another family than the one that is bound"
    ]


@pytest.mark.parametrize(
    "address", ["ns.example", "127.0.0.1[x]", "127.0.0.1[65536]", "127.0.0.1[0]", "127.0.0.1[]"]
)
def test_a_name_server_is_a_number(address: str) -> None:
    with pytest.raises(ConfigError, match=r"dns_address is '.*': write a number, host or host"):
        Book(dns(dns_address=address))


@pytest.mark.parametrize(
    ("address", "server", "port"),
    [
        ("127.0.0.1", "127.0.0.1", 53),
        ("127.0.0.1[5353]", "127.0.0.1", 5353),
        ("::1", "::1", 53),
        ("::1[5353]", "::1", 5353),
    ],
)
def test_a_name_server_may_have_a_port(address: str, server: str, port: int) -> None:
    lookup = DnsLookup(DnsPingConfig(dns_query="x", dns_address=address), INET, 1)
    assert lookup._resolver.nameservers == [server]
    assert lookup._resolver.port == port
