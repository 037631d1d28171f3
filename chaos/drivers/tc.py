"""tc: slow links. Where packets go out, those to a slow link wait in a class of their own.

nft marks them, for as long as the lease lasts, with CLASS and a number; a filter chooses the class
by that mark, and packets without it pass unhindered. So the queues need no lease of their own:
without marks they are empty.

A class is htb, for the rate. In it is a tbf, which limits nothing: it splits a large write, which
the device would otherwise split at the very end (GSO), into packets of the network. A write that is
larger than the queue would never pass, however often it is repeated. Then comes a queue of limited
size; where the kernel has netem, netem delays packets before they come to the queue.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from stormcast.chaos.drivers.base import (
    CLASS,
    MULTICAST,
    TC,
    Bites,
    DriverError,
    Run,
    Site,
    SlowLink,
    classes,
    inside,
)
from stormcast.chaos.drivers.netlink import is_there
from stormcast.chaos.drivers.running import at_once
from stormcast.chaos.faults.outcome import QUEUE_SECONDS
from stormcast.chaos.language.network_state import NetworkState

HANDLE: Final = 0x5C
"""The handle of our qdisc, by which we recognize it."""
_LATE: Final = 0x100
"""Plus the number of a class: the handle of its netem."""
_CUT: Final = 0x4000
"""Plus the number of a class: the handle of its tbf."""
_NO_LIMIT: Final = "1tbit"
"""The rate of tbf: so high that no packet ever waits for it."""
MIN_QUEUE: Final = 4096
"""The least bytes of a queue, which also has room for two packets at least: with less, nothing
would ever pass a very narrow link."""
ETHERNET_PACKET: Final = 1518
_LINK_HEADERS: Final = 18
"""Bytes of the headers of Ethernet, with a VLAN."""
PLAIN_QDISCS: Final = frozenset(("noqueue", "pfifo_fast", "fq_codel", "fq", "mq", "pfifo"))
"""Qdiscs that a device has by default: they come back when ours is removed."""
LATE_PACKETS: Final = 16384
"""The most packets that netem holds, as many as nfqueue does. It drops further ones, which no fault
asks for: then the run is over."""
LINE_RATE: Final = 4_000_000_000
"""Bytes per second of a class that only delays: htb requires a rate, and its oldest form takes at
most 32 bits of it."""
DRAIN_SECONDS: Final = 1.0
"""Seconds that queues may take to run empty before they are removed with their packets."""
DRAIN_POLL: Final = 0.02
_QUANTUM: Final = 1514
"""Without effect, as classes share nothing; but without it, the kernel's log complains."""

# Classic BPF, because every kernel has it: on some kernels, other matches on marks always match.
_LOAD_MARK: Final = (0x20, 0, 0, 0xFFFFF000 + 20)  # SKF_AD_OFF + SKF_AD_MARK
_MARK_BITS: Final = 0xFFFF0000


def _program() -> Sequence[tuple[int, int, int, int]]:
    """Return the program that finds a packet's class: our handle with the number in its mark."""
    return (
        _LOAD_MARK,
        (0x07, 0, 0, 0),  # X = A
        (0x54, 0, 0, _MARK_BITS),  # A &= …
        (0x15, 0, 4, CLASS),  # no mark of ours: to the last
        (0x87, 0, 0, 0),  # A = X
        (0x54, 0, 0, ~_MARK_BITS & 0xFFFFFFFF),
        (0x44, 0, 0, HANDLE << 16),  # A |= …
        (0x16, 0, 0, 0),  # the class is A
        (0x06, 0, 0, 0),  # no class
    )


def root_lines(device: str) -> list[str]:
    """Return the commands that add our qdisc and its filter, in place of the device's default."""
    program = _program()
    words = ",".join([str(len(program)), *(" ".join(map(str, step)) for step in program)])
    root = f"{HANDLE:x}:"
    return [
        f"qdisc add dev {device} root handle {root} htb default 0",
        f'filter add dev {device} parent {root} protocol all prio 1 bpf bytecode "{words}"',
    ]


def class_lines(
    device: str, link: SlowLink, *, packet: int = ETHERNET_PACKET, netem: bool = False
) -> list[str]:
    """Return the commands that make or change the class of a link; waiting packets keep waiting.

    `packet` is the size of the largest packet that the device carries.
    """
    name = f"{HANDLE:x}:{link.number:x}"
    rate = LINE_RATE if link.rate is None else link.rate
    bits = max(8, round(rate * 8))
    limit = max(MIN_QUEUE, 2 * packet, round(rate * QUEUE_SECONDS))
    cut = f"{_CUT + link.number:x}:"
    lines = [
        f"class replace dev {device} parent {HANDLE:x}: classid {name} "
        f"htb rate {bits}bit quantum {_QUANTUM}",
        # The queue of this limit is tbf's own, until netem takes its place.
        f"qdisc replace dev {device} parent {name} handle {cut} "
        f"tbf rate {_NO_LIMIT} burst {packet} limit {limit}",
    ]
    if netem:
        # Even without a delay: to add netem later would discard waiting packets.
        late = f"{_LATE + link.number:x}:"
        lines += [
            f"qdisc replace dev {device} parent {cut}1 handle {late} "
            f"netem delay {round(link.delay * 1e6)}us limit {LATE_PACKETS}",
            f"qdisc replace dev {device} parent {late}1 bfifo limit {limit}",
        ]
    return lines


_CLASS: Final = re.compile(
    rf"^class htb {HANDLE:x}:(?P<number>[0-9a-f]+) .*?"
    r"Sent \d+ bytes (?P<sent>\d+) pkt "
    r"\(dropped (?P<dropped>\d+), overlimits (?P<waited>\d+) ",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Count:
    """Packets of one class."""

    passed: int = 0
    waited: int = 0
    """Packets that had to wait for the rate, or found no room in the queue."""
    refused: int = 0
    """Packets for which the first queue had no room: that of netem, if the kernel has it."""

    def since(self, before: Count) -> Count:
        """Return the counts since an earlier moment."""
        return Count(
            self.passed - before.passed,
            self.waited - before.waited,
            self.refused - before.refused,
        )


def read_counts(text: str) -> dict[int, Count]:
    """Read the counts of each class from the output of `tc -s class show`.

    From text, because common versions of tc print no JSON for classes.
    """
    return {
        int(found["number"], 16): Count(
            int(found["sent"]) + int(found["dropped"]),
            int(found["dropped"]) + int(found["waited"]),
            int(found["dropped"]),
        )
        for found in _CLASS.finditer(text)
    }


def waiting(text: str) -> int:
    """Read the packets in the queues of a device from the output of `tc -s -j qdisc show`."""
    return sum(qdisc.get("qlen", 0) for qdisc in json.loads(text or "[]") if qdisc.get("root"))


def root_qdisc(text: str) -> str:
    """Read the kind of a device's root qdisc from the output of `tc -j qdisc show`; `ours` if it is
    ours."""
    for qdisc in json.loads(text or "[]"):
        if qdisc.get("root"):
            is_ours = qdisc["kind"] == "htb" and qdisc["handle"] == f"{HANDLE:x}:"
            return "ours" if is_ours else str(qdisc["kind"])
    return "noqueue"


@dataclass(slots=True)
class Shaped:
    """One site with slow links."""

    site: Site
    packet: int
    """The size of the largest packet that its device carries, with headers."""
    links: dict[int, SlowLink] = field(default_factory=dict)
    """By class number; ended links keep their class, but no packets come into it."""
    others: tuple[str, ...] = ()
    seen: dict[int, Count] = field(default_factory=dict)
    """By class number: the counts that were read last."""
    has_netem: bool = False
    missed: int = 0
    """Packets that netem dropped: what finds no room behind it is not counted here."""

    def to(self, link: SlowLink) -> list[SlowLink]:
        """Return the link itself, or, for MULTICAST, the links to all other members."""
        if link.dest != MULTICAST:
            return [link]
        return [each for each in self.links.values() if each.dest in self.others]


class TcDriver:
    """The driver for all sites of an agent."""

    name = TC

    def __init__(self, sites: Sequence[Site], run: str, do: Run) -> None:
        del run  # A device has one qdisc, with a number and no name.
        self._sites = tuple(sites)
        self._do = do
        self._shaped: dict[str, Shaped] = {}
        self._netem: str | None = "not tried while a link is slow; ask again when no fault acts"
        """The reason why there is no netem; None: there is."""
        self._counts: defaultdict[str, dict[tuple[str, str], int]] = defaultdict(dict)

    async def features(self) -> Mapping[str, str | None]:
        """Try htb, a filter by mark, and netem; returns the features."""
        site = self._sites[0]
        if site.name in self._shaped:
            # To try netem would remove our qdisc, and with it the faults that act.
            return {"bandwidth": None, "netem": self._netem}
        narrow = SlowLink(dest="", number=1, rate=1e6, delay=0.001)
        try:
            await self._make_root(site)
            try:
                await self._batch(site, class_lines(site.device, narrow))
                self._netem = await self._refusal(site, narrow)
            finally:
                await self._remove_root(site)
        except DriverError as error:
            why = f"{error} (what it takes is sch_htb, sch_tbf and cls_bpf: try modprobe)"
            return {"bandwidth": why, "netem": why}
        return {"bandwidth": None, "netem": self._netem}

    async def _refusal(self, site: Site, link: SlowLink) -> str | None:
        try:
            await self._batch(site, class_lines(site.device, link, netem=True))
        except DriverError as error:
            # tc's own message names no module.
            known = "qdisc kind is unknown" in str(error)
            why = "the kernel has no sch_netem: try modprobe sch_netem" if known else str(error)
            return f"{why}; without it nfqueue does all delaying"
        return None

    async def apply(self, state: NetworkState, lease: float) -> None:
        """Make a class for each slow link; nft sets the marks that lead to it."""
        await self._collect()
        _check(self._shaped.values())
        await at_once(
            self._shape(site, state) for site in self._sites if site.name in state.members
        )

    async def _shape(self, site: Site, state: NetworkState) -> None:
        links = classes(state, site.name)
        if site.name not in self._shaped:
            if not links:
                return
            shaped = Shaped(site, await self._largest_packet(site))
            await self._make_root(site)
            self._shaped[site.name] = shaped
        shaped = self._shaped[site.name]
        shaped.has_netem = state.netem
        changed = [link for link in links if shaped.links.get(link.number) != link]
        shaped.others = tuple(name for name in state.members if name != site.name)
        lines: list[str] = []
        for link in changed:
            lines += class_lines(site.device, link, packet=shaped.packet, netem=state.netem)
        await self._batch(site, lines)
        shaped.links |= {link.number: link for link in changed}

    async def renew(self, lease: float) -> None:
        """Do nothing: the marks, which nft sets, have the lease."""

    async def end(self) -> None:
        """Do nothing: without marks nothing new comes to the queues, and what is there leaves at
        its time."""

    async def clear(self) -> None:
        """Remove all queues, after they had `DRAIN_SECONDS` at most to run empty."""
        await self._collect()
        await self._drain()
        shaped = tuple(self._shaped.values())
        for each in shaped:
            del self._shaped[each.site.name]
            await self._remove_root(each.site)
        _check(shaped)

    async def release(self, fault: str | None) -> None:
        """Do nothing: no rule holds packets in these queues."""

    async def bites(self) -> Bites:
        """Return the bites: packets that were delayed, had to wait, or found no room."""
        await self._collect()
        _check(self._shaped.values())
        return {fault: dict(counts) for fault, counts in self._counts.items()}

    async def forget(self, acting: Collection[str]) -> None:
        """Forget the bites of faults that are not among these."""
        # What was not collected yet would come to be counted anew.
        await self._collect()
        for fault in self._counts.keys() - acting:
            del self._counts[fault]

    # -- Counting ----------------------------------------------------------------------------------

    async def _collect(self) -> None:
        await at_once(
            self._count(shaped) for shaped in self._shaped.values() if is_there(shaped.site.netns)
        )

    async def _count(self, shaped: Shaped) -> None:
        site = shaped.site
        text = await self._tc(site, "-s", "class", "show", "dev", site.device)
        for number, count in read_counts(text).items():
            fresh = count.since(shaped.seen.get(number, Count()))
            shaped.seen[number] = count
            shaped.missed += fresh.refused if shaped.has_netem else 0
            link = shaped.links.get(number)
            if link is None:
                continue
            for each in shaped.to(link):
                pair = site.name, each.dest
                # A multicast waits for the narrowest link, on behalf of all links.
                self._bite(link.narrowed_by, pair, fresh.waited)
                for fault in each.delayed_by:
                    self._bite(fault, pair, fresh.passed)

    def _bite(self, fault: str, pair: tuple[str, str], count: int) -> None:
        if fault and count:
            counts = self._counts[fault]
            counts[pair] = counts.get(pair, 0) + count

    # -- Commands ----------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Wait until no packets wait, `DRAIN_SECONDS` at most."""
        late = [link.delay for shaped in self._shaped.values() for link in shaped.links.values()]
        left = min(max(late, default=0.0) + QUEUE_SECONDS, DRAIN_SECONDS)
        while left > 0 and await self._is_any_waiting():
            await asyncio.sleep(DRAIN_POLL)
            left -= DRAIN_POLL

    async def _is_any_waiting(self) -> bool:
        for shaped in self._shaped.values():
            site = shaped.site
            if is_there(site.netns) and waiting(
                await self._tc(site, "-s", "-j", "qdisc", "show", "dev", site.device)
            ):
                return True
        return False

    async def _make_root(self, site: Site) -> None:
        """Add our qdisc and its filter; after a failure neither is left."""
        found = root_qdisc(await self._tc(site, "-j", "qdisc", "show", "dev", site.device))
        if found == "ours":
            # An agent that was killed has left it.
            await self._remove_root(site)
        elif found not in PLAIN_QDISCS:
            raise DriverError(
                f"{site.device} of {site.name} is shaped by a {found} that is not ours: remove it"
            )
        try:
            await self._batch(site, root_lines(site.device))
        except BaseException:
            # The filter is added after the qdisc: a kernel may have the one and not the other.
            with suppress(DriverError):
                await self._remove_root(site)
            raise

    async def _largest_packet(self, site: Site) -> int:
        said = await self._do(inside(site, ("ip", "-j", "link", "show", "dev", site.device)), "")
        return int(json.loads(said)[0]["mtu"]) + _LINK_HEADERS

    async def _remove_root(self, site: Site) -> None:
        if is_there(site.netns):
            handle = f"{HANDLE:x}:"
            await self._tc(site, "qdisc", "del", "dev", site.device, "root", "handle", handle)

    async def _batch(self, site: Site, lines: Sequence[str]) -> None:
        if lines:
            text = "".join(f"{line}\n" for line in lines)
            await self._do(inside(site, ("tc", "-batch", "-")), text)

    async def _tc(self, site: Site, *words: str) -> str:
        return await self._do(inside(site, ("tc", *words)), "")


def _check(shaped: Iterable[Shaped]) -> None:
    """DriverError if packets were lost that were only to be late."""
    for each in shaped:
        if each.missed:
            raise DriverError(
                f"{each.missed} packets of {each.site.name} were lost, because more came than can "
                "wait: delay fewer"
            )
