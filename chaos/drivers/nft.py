"""nft: cuts members off, drops packets that the kernel can select alone, and marks packets for the
other drivers.

Each site has one table of this run. A new state replaces all its rules in one transaction, so no
packet meets half of them; counters are objects of their own and keep their counts. The addresses
whose packets are struck are in maps whose elements time out. There are two maps of each kind,
renewed by turns, so that fresh elements are there before the old ones time out. A new state fills
both.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from math import inf
from typing import Any, Final

from stormcast.chaos.drivers.base import (
    ALIVE,
    CLASS,
    DONE,
    INPUT_PRIORITY,
    MULTICAST,
    NFT,
    OUTPUT_PRIORITY,
    Bites,
    DriverError,
    RanOutError,
    Run,
    Site,
    classes,
    inside,
)
from stormcast.chaos.drivers.netlink import is_there
from stormcast.chaos.drivers.running import at_once
from stormcast.chaos.drivers.selection import Statement, statements
from stormcast.chaos.faults import Cut, DropPackets, Loss, Names, PacketMatch, Partition, Rule
from stormcast.chaos.language.network_state import NetworkState
from stormcast.node.core.match import Match

Pair = tuple[str, str]
"""Fault and sender: a site has a counter for each such pair."""
_FAMILIES: Final = {4: ("ip", "ipv4_addr"), 6: ("ip6", "ipv6_addr")}
_ALL_MULTICASTS: Final = {4: ("240.0.0.0", "224.0.0.0"), 6: ("ff00::", "ff00::")}
"""By version of IP: a mask, and the bits under it that all multicast addresses share."""

MAX_COMMENT: Final = 127
"""Characters of a comment that nft takes."""
_NO_WORD: Final = re.compile(r"[^A-Za-z0-9._ -]")


# -- The file --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The content of the table of one site, made from a state."""

    chains: Mapping[str, Sequence[Statement]]
    """By sender: the statements for its packets."""
    marks: Mapping[str, int]
    """By destination address: the marks of packets that go out."""
    members: Names
    places: Mapping[str, Names]

    @property
    def is_empty(self) -> bool:
        """Whether no table is needed."""
        return not self.chains and not self.marks

    def pairs(self) -> Iterator[Pair]:
        """Yield the pairs of fault and sender that have counters."""
        for source, chain in self.chains.items():
            for statement in chain:
                if statement.fault is not None:
                    yield statement.fault, source

    def addresses(self, source: str) -> Names:
        """Return the addresses from which a member sends."""
        return self.places[source]


NO_RULES: Final = Plan(chains={}, marks={}, members=(), places={})


def plan(state: NetworkState, site: Site) -> Plan:
    """Plan the table of a site."""
    chains: dict[str, Sequence[Statement]] = {}
    if site.name in state.members:
        for source in state.members:
            if source != site.name and (chain := statements(state, site.name, source)):
                chains[source] = chain
    places = {name: _places(state, name) for name in chains}
    marks: dict[str, int] = {}
    for link in classes(state, site.name) if site.name in state.members else ():
        if _is_cut(state, site.name, link.dest):
            # A cut comes before a limit: what goes that way takes nothing of it, and is cut where
            # it comes in.
            continue
        if link.dest == MULTICAST:
            where = tuple(common for _mask, common in _ALL_MULTICASTS.values())
        else:
            where = _places(state, link.dest)
        marks |= dict.fromkeys(where, CLASS + link.number)
    return Plan(chains=chains, marks=marks, members=state.members, places=places)


def _is_cut(state: NetworkState, source: str, dest: str) -> bool:
    """Whether nothing passes to a member, or, for multicasts, to anybody."""
    cuts = [one for one in state.faults.values() if isinstance(one, Partition | Cut)]
    dests = [dest] if dest != MULTICAST else [name for name in state.members if name != source]
    return all(any(cut.strikes(source, dest) for cut in cuts) for dest in dests)


def _places(state: NetworkState, name: str) -> Names:
    places = state.places.get(name, ())
    if not places:
        raise DriverError(f"nobody said at which address {name} is; name it under `places`")
    return places


def table_file(table: str, wanted: Plan, counters: Mapping[Pair, str], lease: float) -> str:
    """Return the nft file that gives a table the wanted content, whatever it had before.

    An empty table stays until `clear`: with a table's chains, the kernel removes all packets that
    wait in a queue of the namespace, and those that were late when a fault ended would be lost.
    """
    lines = list(_declared(table, wanted, counters))
    # This removes rules; counters and elements stay.
    lines.append(f"flush table inet {table}")
    # Both maps: an element that stays in one would go on leading packets to a link whose fault has
    # ended.
    for turn in (0, 1):
        lines += _renewed(table, wanted, turn, lease)
    lines += _input(table, wanted)
    for source, chain in wanted.chains.items():
        for each in chain:
            lines.append(_rule(table, wanted, source, each, counters))
    if wanted.marks:
        lines += _output(table)
    return _text(lines)


def renewal_file(table: str, wanted: Plan, turn: int, lease: float) -> str:
    """Return the nft file that extends a table by another lease."""
    return _text(_renewed(table, wanted, turn, lease))


def removal_file(table: str) -> str:
    """Return the nft file that removes a table, if it exists."""
    # To delete a missing table is an error: so add it first.
    return _text((f"add table inet {table}", f"delete table inet {table}"))


def uncounted_file(table: str, counters: Iterable[str]) -> str:
    """Return the nft file that removes counters of a table which no rule uses."""
    return _text(f"delete counter inet {table} {name}" for name in counters)


def silence_file(table: str) -> str:
    """Return the nft file that removes all rules of a table, but keeps its counters."""
    return _text((f"add table inet {table}", f"flush table inet {table}"))


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _declared(table: str, wanted: Plan, counters: Mapping[Pair, str]) -> Iterator[str]:
    yield f"add table inet {table}"
    for version, (_word, kind) in _FAMILIES.items():
        for turn in (0, 1):
            for name in ("alive", "class"):
                what = f"{{ type {kind} : mark; flags timeout; }}"
                yield f"add map inet {table} {_map(name, version, turn)} {what}"
    for pair in dict.fromkeys(wanted.pairs()):
        yield f"add counter inet {table} {counters[pair]}"
    for name, hook, priority in (
        ("input", "input", INPUT_PRIORITY),
        ("output", "output", OUTPUT_PRIORITY),
    ):
        what = f"{{ type filter hook {hook} priority {priority}; policy accept; }}"
        yield f"add chain inet {table} {name} {what}"
    for source in wanted.chains:
        yield f"add chain inet {table} {_chain(wanted, source)}"


def _map(name: str, version: int, turn: int) -> str:
    return f"{name}{version}_{turn}"


def _chain(wanted: Plan, source: str) -> str:
    # By number: a member's name may be too long for the name of a chain.
    return f"from_{wanted.members.index(source)}"


def _renewed(table: str, wanted: Plan, turn: int, lease: float) -> Iterator[str]:
    timeout = f"{max(1, round(lease * 1000))}ms"
    alive = {place: ALIVE for source in wanted.chains for place in wanted.addresses(source)}
    for name, marks in (("alive", alive), ("class", wanted.marks)):
        for version in _FAMILIES:
            elements = ", ".join(
                f"{place} timeout {timeout} : {mark:#x}"
                for place, mark in marks.items()
                if ip_address(place).version == version
            )
            words = f"inet {table} {_map(name, version, turn)}"
            yield f"flush map {words}"
            if elements:
                yield f"add element {words} {{ {elements} }}"


def _input(table: str, wanted: Plan) -> Iterator[str]:
    if not wanted.chains:
        return
    chain = f"add rule inet {table} input"
    yield f"{chain} meta mark {DONE:#x} accept"
    for version, (word, _kind) in _FAMILIES.items():
        for turn in (0, 1):
            yield f"{chain} meta mark set {word} saddr map @{_map('alive', version, turn)}"
    yield f"{chain} meta mark != {ALIVE:#x} accept"
    for version, (word, _kind) in _FAMILIES.items():
        ways = ", ".join(
            f"{place} : goto {_chain(wanted, source)}"
            for source in wanted.chains
            for place in wanted.addresses(source)
            if ip_address(place).version == version
        )
        if ways:
            yield f"{chain} {word} saddr vmap {{ {ways} }}"


def _output(table: str) -> Iterator[str]:
    for version, (word, _kind) in _FAMILIES.items():
        mask, _common = _ALL_MULTICASTS[version]
        for turn in (0, 1):
            marks = f"map @{_map('class', version, turn)}"
            for key in (f"{word} daddr", f"{word} daddr & {mask}"):
                yield f"add rule inet {table} output meta mark set {key} {marks}"


def _rule(
    table: str, wanted: Plan, source: str, each: Statement, counters: Mapping[Pair, str]
) -> str:
    words = [f"add rule inet {table} {_chain(wanted, source)}", each.condition]
    if each.fault is not None:
        words.append(f"counter name {counters[each.fault, source]}")
    words.append(each.verdict)
    if each.fault is not None:
        words.append(f'comment "{_comment(each.fault, source)}"')
    return " ".join(filter(None, words))


def _comment(fault: str, source: str) -> str:
    """Return the comment of a rule, for those who list the rules. In nft's language nothing can
    stand for a quote or a line break: with one, the rest of the text would be commands."""
    return _NO_WORD.sub("?", f"{fault} {source}")[:MAX_COMMENT]


def read_counters(text: str) -> dict[str, int]:
    """Read the packets of each counter from an answer to `nft -j list counters`."""
    found: dict[str, int] = {}
    for item in json.loads(text)["nftables"]:
        counter: dict[str, Any] | None = item.get("counter")
        if counter is not None:
            found[counter["name"]] = counter["packets"]
    return found


# -- The driver ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Table:
    """The current table of one site."""

    site: Site
    wanted: Plan | None = None
    """None: there is no table."""
    turn: int = 0
    lease: float = 0.0
    until: float = inf
    """The time until which the kernel keeps the elements at least."""
    counters: dict[Pair, str] = field(default_factory=dict)
    """The names of counters; a fault that comes again continues its counter."""
    named: int = 0
    """Counters of this table that were given a name so far."""
    counted: dict[Pair, int] = field(default_factory=dict)
    """The counts of tables that were removed."""


class NftDriver:
    """Owns one table in the namespace of every site."""

    name = NFT

    def __init__(self, sites: Sequence[Site], table: str, run: Run) -> None:
        self.table = table
        self._run = run
        self._tables = [_Table(site) for site in sites]

    async def features(self) -> Mapping[str, str | None]:
        """Try each feature at the first site, in a table that is removed at once."""
        if not self._tables:
            return {}
        site = self._tables[0].site
        names = (site.name, "probe")
        # Addresses that are reserved for documentation.
        places = {site.name: ("192.0.2.1",), "probe": ("192.0.2.2", "2001:db8::2")}
        match = Match(protocols=("UNICAST3",), seqno=(2, 5), flags=("FIRST",))
        tried = {
            "partition": Partition(groups=tuple((name,) for name in names)),
            "loss": Loss(sources=names, dests=names, rate=0.5),
            "rule-drop": Rule(match=match),
            "packets": DropPackets(
                sources=names,
                dests=names,
                match=PacketMatch(to_ports=(80, 90), sizes=(40, 1500), nth=3),
            ),
        }
        found: dict[str, str | None] = {}
        for feature, fault in tried.items():
            state = NetworkState(members=names, places=places, faults={"probe": fault})
            found[feature] = await self._try(site, plan(state, site))
        return found

    async def _try(self, site: Site, wanted: Plan) -> str | None:
        table = f"{self.table}_probe"
        counters = {pair: f"c{number}" for number, pair in enumerate(wanted.pairs())}
        text = table_file(table, wanted, counters, 1.0) + removal_file(table)
        try:
            await self._nft(site, text)
        except DriverError as error:
            return str(error)
        return None

    async def apply(self, state: NetworkState, lease: float) -> None:
        """Replace the rules of every site that the state names."""
        # Make all plans first, as a plan may be refused.
        plans = [plan(state, table.site) for table in self._tables]
        known = [
            (table, wanted)
            for table, wanted in zip(self._tables, plans, strict=True)
            if table.site.name in state.members
        ]
        await at_once(self._apply(table, wanted, lease) for table, wanted in known)

    async def _apply(self, table: _Table, wanted: Plan, lease: float) -> None:
        if wanted.is_empty and table.wanted is None:
            return
        for pair in wanted.pairs():
            if pair not in table.counters:
                table.counters[pair] = f"c{table.named}"
                table.named += 1
        text = table_file(self.table, wanted, table.counters, lease)
        await self._give(table, wanted, text, lease)

    async def renew(self, lease: float) -> None:
        """Add fresh elements to the maps whose turn it is."""
        await at_once(self._renew(table, lease) for table in self._tables)

    async def _renew(self, table: _Table, lease: float) -> None:
        if table.wanted is not None and not table.wanted.is_empty:
            text = renewal_file(self.table, table.wanted, 1 - table.turn, lease)
            if lease < table.lease:
                # The elements of the longer lease before must not outlive this one.
                text += renewal_file(self.table, table.wanted, table.turn, lease)
            await self._give(table, table.wanted, text, lease)

    async def _give(self, table: _Table, wanted: Plan, text: str, lease: float) -> None:
        until, begun = table.until, time.monotonic()
        await self._nft(table.site, text)
        table.wanted, table.turn, table.lease = wanted, 1 - table.turn, lease
        table.until = inf if wanted.is_empty else begun + lease
        _check_in_time(table.site, until)

    async def end(self) -> None:
        """Remove the rules of all tables, so that no packet is dropped or marked any more."""
        await at_once(map(self._silence, self._tables))

    async def clear(self) -> None:
        """Remove all tables."""
        await at_once(map(self._remove, self._tables))

    async def sweep(self) -> None:
        """Remove the tables that a killed agent of the same name left behind."""
        await at_once(self._nft(table.site, removal_file(self.table)) for table in self._tables)

    async def _silence(self, table: _Table) -> None:
        if table.wanted is None or table.wanted.is_empty:
            return
        if is_there(table.site.netns):
            await self._nft(table.site, silence_file(self.table))
        table.wanted, table.until = NO_RULES, inf

    async def _remove(self, table: _Table) -> None:
        if table.wanted is None:
            return
        # Without its namespace, a table is gone, too.
        if is_there(table.site.netns):
            # Remove the rules, read the counters, then remove the table: every drop is counted.
            await self._silence(table)
            for pair, packets in (await self._counted(table)).items():
                table.counted[pair] = table.counted.get(pair, 0) + packets
            await self._nft(table.site, removal_file(self.table))
        table.wanted, table.turn, table.lease, table.until = None, 0, 0.0, inf
        table.counters.clear()
        table.named = 0

    async def release(self, fault: str | None) -> None:
        """Do nothing: this driver holds no packets."""

    async def bites(self) -> Bites:
        """Return the bites of all counters, also of tables that were removed."""
        found: dict[str, dict[tuple[str, str], int]] = {}
        for table in self._tables:
            now = await self._counted(table) if table.wanted is not None else {}
            for fault, source in {**table.counted, **now}:
                number = table.counted.get((fault, source), 0) + now.get((fault, source), 0)
                found.setdefault(fault, {})[source, table.site.name] = number
        return found

    async def forget(self, acting: Collection[str]) -> None:
        """Forget the bites of faults that are not among these, and remove their counters."""
        await at_once(self._forget(table, acting) for table in self._tables)

    async def _forget(self, table: _Table, acting: Collection[str]) -> None:
        over = {pair: name for pair, name in table.counters.items() if pair[0] not in acting}
        if over and is_there(table.site.netns):
            # No rule uses them: all rules are of the present faults.
            await self._nft(table.site, uncounted_file(self.table, over.values()))
        for pair in over:
            del table.counters[pair]
        kept = {pair: count for pair, count in table.counted.items() if pair[0] in acting}
        table.counted = kept

    async def _counted(self, table: _Table) -> dict[Pair, int]:
        words = ("nft", "-j", "list", "counters", "table", "inet", self.table)
        packets = read_counters(await self._run(inside(table.site, words), ""))
        return {pair: packets[name] for pair, name in table.counters.items() if name in packets}

    async def _nft(self, site: Site, text: str) -> None:
        await self._run(inside(site, ("nft", "-f", "-")), text)


def _check_in_time(site: Site, until: float) -> None:
    """RanOutError if the elements of the state before may have timed out by now."""
    if time.monotonic() > until:
        raise RanOutError(f"the faults of {site.name} ran out before they were renewed")
