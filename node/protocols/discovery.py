"""Discovery: finds members, and which of them coordinates. STATIC asks a list of hosts, PING the
network, DNS_PING the addresses that a name stands for.

A search asks everybody, repeats that until a coordinator has answered or its time is over, and
reports what it found, once. Answers can be lost, stale or missing: a joiner must cope with that. A
leaving member is silent (JGRP-1336), and a leaving coordinator no longer says that it coordinates,
so that nobody joins a member that is about to leave.

The protocols differ in where addresses come from: from `listed`, which the transport calls when a
frame is for everyone; or from a name server, which the owner of the sockets asks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from stormcast.node.core import wire
from stormcast.node.core.errors import BadFrame, require
from stormcast.node.core.packing import Reader, Writer
from stormcast.node.core.wire import Head
from stormcast.node.protocols.events import Discovered, Found
from stormcast.node.protocols.layer import Layer, MemberContext
from stormcast.node.protocols.port import EVERYONE

MAX_FOUND: Final = 1024
"""Answers that one search keeps; the oldest is forgotten for another."""
QUESTION_BYTES: Final = 288
"""Bytes of a question's body, at least: as many as the longest answer of a member has. An answer
larger than its question could be sent to somebody who never asked."""
_HOST: Final = re.compile(r"([^\s,\[\]]+)\[(\d{1,5})\]")
_SERVER: Final = 1
_COORDINATED: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryConfig:
    """Settings that STATIC, PING and DNS_PING share. Durations are seconds."""

    settable: ClassVar[frozenset[str]] = frozenset()

    break_on_coord_rsp: bool = True
    """Whether a search ends with the first answer of a coordinator. False finds them all, and takes
    all its time."""

    repeat_interval: float = 0.5
    """Between two requests of one search, in `fast` at most. Requests and answers may be lost."""

    max_rank_to_reply: int = 0
    """Only the first so many members answer; 0 all. Spares a joiner of a large group the flood."""

    def __post_init__(self) -> None:
        require(
            self.repeat_interval > 0,
            f"discovery.repeat_interval is {self.repeat_interval:g}: it must be positive",
        )
        require(
            self.max_rank_to_reply >= 0,
            f"discovery.max_rank_to_reply is {self.max_rank_to_reply}: "
            "it must not be negative (0: all members reply)",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticConfig(DiscoveryConfig):
    """Settings of STATIC."""

    initial_hosts: str = ""
    """Addresses where members may be: `host[port],host[port]`. List all of them, or enough that any
    two groups have a listed, live member in common."""

    port_range: int = 1
    """The number of further ports that are asked after each listed one."""

    def __post_init__(self) -> None:
        # Without arguments, `super` does not find the class that slots made anew.
        DiscoveryConfig.__post_init__(self)
        require(
            self.port_range >= 0,
            f"static.port_range is {self.port_range}: it must not be negative",
        )
        for item in filter(None, map(str.strip, self.initial_hosts.split(","))):
            match = _HOST.fullmatch(item)
            require(
                match is not None and 0 < int(match[2]) < 1 << 16,
                f"static.initial_hosts has {item!r}: write host[port]",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DnsPingConfig(DiscoveryConfig):
    """Settings of DNS_PING."""

    dns_query: str = ""
    """The name whose records are the members: of a headless Service
    `stormcast.default.svc.cluster.local`, or `_stormcast._udp.…` of its named port for SRV."""

    record_type: str = "auto"
    """`A`, `AAAA` or `SRV`, which also says the port; `auto`: A, or AAAA where IPv6 is bound."""

    port: int = 0
    """The members' port, where records say none; 0: this member's `bind_port`."""

    dns_address: str = ""
    """The name server, `address` or `address[port]`; empty: the system's."""

    timeout: float = 2.0
    """Seconds that one look-up may take."""

    def __post_init__(self) -> None:
        DiscoveryConfig.__post_init__(self)
        require(
            self.record_type in ("auto", "A", "AAAA", "SRV"),
            f"dns_ping.record_type is {self.record_type!r}: choose auto, A, AAAA or SRV",
        )
        require(
            0 <= self.port < 1 << 16,
            f"dns_ping.port is {self.port}: it must be 0..{(1 << 16) - 1}",
        )
        require(self.timeout > 0, f"dns_ping.timeout is {self.timeout:g}: it must be positive")


class Discovery(Layer):
    """Asks which members there are, and answers others that ask."""

    protocol = wire.DISCOVERY
    config_type: ClassVar[type[Any]] = DiscoveryConfig
    config: DiscoveryConfig

    def __init__(
        self,
        config: DiscoveryConfig,
        context: MemberContext,
    ) -> None:
        super().__init__(config, context)
        self._found: dict[int, tuple[int, Found]] = {}
        """By short id of a member: the number of the search that it answered, and its answer."""
        self._search = 0
        self._once = 0
        """The number of the last question outside of a search."""
        self._asked = 0
        self._is_stopped = False

    @property
    def is_searching(self) -> bool:
        return self.is_waiting("end")

    def listed(self) -> tuple[tuple[str, int], ...]:
        """Return hosts and ports that frames for everyone go to."""
        return ()

    # -- The verbs ----------------------------------------------------------------------------

    def discover(self, seconds: float, now: float) -> None:
        """Search, for so many seconds at most; the event `Discovered` says what was found."""
        if self._is_stopped:
            return
        self._search += 1
        self._asked = 0
        self._found = {}
        self.wake_at("end", now + seconds)
        self._ask(now)

    def ask_once(self, now: float) -> None:
        """Ask everybody once, outside of a search: by the answers a transport learns where members
        are."""
        if not self._is_stopped and not self.is_searching:
            self._search += 1
            self._once = self._search
            self._asked = 0
            self._ask_everyone()

    def receive(self, head: Head, body: bytes, now: float) -> None:
        if head.kind == wire.GET_MBRS_REQ:
            found = _unpack_untrusted(head, body)
            # Two members that search find each other by one request.
            if self.is_searching:
                self._note(self._search, found, now)
            self._answer(head)
        elif head.kind == wire.GET_MBRS_RSP:
            found = _unpack_untrusted(head, body)
            if not 0 < head.lo <= self._search:
                self._port.drop("unasked")
            elif self.is_searching:
                # An answer to an earlier search is late, but counts.
                self._note(head.lo, found, now)
            elif head.lo != self._once:
                self._port.drop("search-over")
        else:
            raise BadFrame("kind")

    def on_timer(self, what: str, now: float) -> None:
        if what == "ask":
            self._ask(now)
        else:
            self._finish()

    def stop(self, now: float) -> None:
        self._is_stopped = True
        self.cancel("ask")
        self.cancel("end")
        self._found = {}

    # -- Inside -------------------------------------------------------------------------------

    def _ask_everyone(self) -> None:
        self._port.control(
            EVERYONE,
            wire.GET_MBRS_REQ,
            self.protocol,
            self._search,
            body=self._describe().ljust(QUESTION_BYTES, b"\0"),
            transmission=self._asked,
        )

    def _ask(self, now: float) -> None:
        self._ask_everyone()
        wait = self.timing.repeat_wait(self.config.repeat_interval, self._asked)
        self._asked += 1
        self.wake_at("ask", now + wait)

    def _answer(self, head: Head) -> None:
        """Answer with what this member is. The numbers of the request tell repeats apart."""
        role = self.role
        if self._is_stopped or (role.is_leaving and not role.is_coordinator):
            return
        rank = role.members.index(role.address) if role.address in role.members else 0
        if 0 < self.config.max_rank_to_reply <= rank:
            return
        self._port.control(
            head.source,
            wire.GET_MBRS_RSP,
            self.protocol,
            head.lo,
            body=self._describe(),
            transmission=head.transmission,
        )

    def _describe(self) -> bytes:
        role = self.role
        is_known = role.view is not None and not role.is_leaving
        writer = Writer().address(role.address)
        writer.u8(_SERVER * role.is_server | _COORDINATED * is_known)
        if is_known:
            assert role.view is not None
            writer.address(role.view.coordinator)
        return writer.bytes()

    def _note(self, search: int, found: Found, now: float) -> None:
        short = found.address.short
        known = self._found.get(short)
        if known is None or known[0] <= search:
            self._found[short] = (search, found)
            if len(self._found) > MAX_FOUND:
                del self._found[next(iter(self._found))]
                self._port.drop("found-full")
            is_coordinator = found.is_server and found.coordinator == found.address
            if is_coordinator and self.config.break_on_coord_rsp:
                self._finish()

    def _finish(self) -> None:
        self.cancel("ask")
        self.cancel("end")
        found, self._found = self._found, {}
        self._port.events.append(Discovered(tuple(entry for _search, entry in found.values())))


class Static(Discovery):
    """Finds members by a list of hosts (JGroups: TCPPING)."""

    config_type = StaticConfig
    config: StaticConfig

    def listed(self) -> tuple[tuple[str, int], ...]:
        listed = []
        for host, port in _HOST.findall(self.config.initial_hosts):
            last = min(int(port) + self.config.port_range, (1 << 16) - 1)
            listed += [(host, number) for number in range(int(port), last + 1)]
        return tuple(dict.fromkeys(listed))


class Ping(Discovery):
    """Finds members by the network's multicast."""


class DnsPing(Discovery):
    """Finds members by the records of a name, which the owner of the sockets looks up."""

    config_type = DnsPingConfig
    config: DnsPingConfig


def _unpack_untrusted(head: Head, body: bytes) -> Found:
    """Unpack what a member says of itself."""
    reader = Reader(body)
    address = reader.address_untrusted()
    flags = reader.u8_untrusted()
    coordinator = reader.address_untrusted() if flags & _COORDINATED else None
    if head.kind == wire.GET_MBRS_REQ:
        reader.end_of_padded_untrusted()
    else:
        reader.end_untrusted()
    if flags & ~(_SERVER | _COORDINATED):
        raise BadFrame("flags")
    if address.short != head.source:
        raise BadFrame("identity")
    return Found(address, bool(flags & _SERVER), coordinator)
