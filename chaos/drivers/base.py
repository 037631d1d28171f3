"""What a driver is: it makes the networks of some sites what a `NetworkState` says, for a lease.

Which driver does what is written here, once (`driver_of`), and so is what they say to each other:
marks on packets. Everything acts where a packet comes in, after IP has put its fragments together,
except what tc does, which acts where it goes out. The order is that of docs/scenarios.md: what is
cut off, then rules in the order in which they began, then losses, then all other chances.

1. nft sets the mark ALIVE on packets from members that something strikes: from a map whose
   elements time out. Nothing else of nft, nfqueue or tc acts on a packet without a mark of ours,
   so all of it ends with the lease, whoever has died.
2. nft drops what it can decide alone. What it cannot decide gets a mark that asks nfqueue: DECIDE
   or CHANCES, below. Where nobody listens to the queue, the packet passes.
3. nft, where a packet goes out, gives those to a slow link a CLASS (`classes` below says which,
   by the same kind of map), and tc keeps a queue for each. A multicast that is slow on some links,
   and on others not, leaves once and at full speed: nfqueue slows it down at those.

One driver serves all sites of an agent. Its verbs are never called while another one runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from stormcast.chaos import faults
from stormcast.chaos.faults import Names, NetworkFault
from stormcast.chaos.language.network_state import NetworkState
from stormcast.node.core.errors import NodeError

# -- Marks -----------------------------------------------------------------------------------------

ALIVE: Final = 0x5C000001
"""Set by nft where a packet comes in: something strikes its sender, and the lease lasts."""
DECIDE: Final = 0x5C000002
"""A datagram that a rule may take, for nfqueue to tell: all rules are still to be asked, in their
order (also those that nft could have decided), then come losses, models and all other chances."""
CHANCES: Final = 0x5C000003
"""No rule takes this packet, and no loss has struck it: models and all other chances are left."""
QUEUED_MASK: Final = 0xFFFFFFFE
"""A packet is for nfqueue when its mark under this mask is DECIDE."""
DONE: Final = 0x5C00000F
"""Nothing acts on this packet (again): whoever puts a copy into the network marks it so."""
CLASS: Final = 0x5C010000
"""Plus a class number from 1: what nft marks going out, and tc queues."""

INPUT_PRIORITY: Final = -300
"""Of the chain where packets come in: before iptables' mangle (-150) and filter (0), either of
which may hold the NFQUEUE rule."""
OUTPUT_PRIORITY: Final = -150

# -- Sites -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One network namespace with one member in it."""

    name: str
    """Of the member that lives there; the state speaks of it by this name."""
    addresses: Names
    """The member's own, IPv4 or IPv6."""
    device: str = "eth0"
    """Where its packets come in and go out."""
    netns: str | None = None
    """The path of the namespace, as `/run/netns/x`; None: the one that the agent itself is in."""


class DriverError(NodeError):
    """A network could not be made what it is to be: one line, with the remedy."""


Run = Callable[[Sequence[str], str], Awaitable[str]]
"""Runs a program with its words on a text and returns what it printed; DriverError if it fails.
`stormcast.chaos.drivers.running.run_command` is one."""


def inside(site: Site, argv: Sequence[str]) -> tuple[str, ...]:
    """The words that run a program in the namespace of a site."""
    return ("nsenter", f"--net={site.netns}", "--", *argv) if site.netns else tuple(argv)


# -- Drivers ---------------------------------------------------------------------------------------

Bites = Mapping[str, Mapping[tuple[str, str], int]]
"""Per fault id, per sender and receiver: packets on which it had an effect."""


class Handle(Protocol):
    """Something that is to be called later."""

    def cancel(self) -> None:
        """Do not call it."""


class Loop(Protocol):
    """What a driver needs that acts between calls. An asyncio loop is one."""

    def time(self) -> float:
        """Seconds of the monotonic clock."""

    def add_reader(self, fd: int, callback: Callable[..., object], /, *args: Any) -> None:  # noqa: ANN401 as asyncio has it
        """Call back whenever there is something to read."""

    def remove_reader(self, fd: int, /) -> bool:
        """Do so no more; before the file is closed."""

    def call_at(self, when: float, callback: Callable[..., object], /, *args: Any) -> Handle:  # noqa: ANN401 as asyncio has it
        """Call back once, at a time of `time()`."""


class Driver(Protocol):
    """One way of doing things to packets. The agent makes each as `NftDriver(sites, table, run)`,
    `NfqueueDriver(sites, table, run, loop)`, `TcDriver(sites, table, run)`: `table` is the word of
    this run, by which everything is named that a driver puts into a namespace."""

    name: str

    async def features(self) -> Mapping[str, str | None]:
        """Features of `stormcast.chaos.language.features.FEATURES` that this driver gives its
        sites: None, or why not and what to do, in one line. Found by trying, and leaves nothing
        behind."""
        ...

    async def apply(self, state: NetworkState, lease: float) -> None:
        """Make every site so, whatever it was, in one step, for so many seconds. Sites of members
        that the state does not name are left alone. DriverError when it cannot be done."""
        ...

    async def renew(self, lease: float) -> None:
        """Have what was applied go on for another lease."""
        ...

    async def clear(self) -> None:
        """Have nothing act, let go what is held, and remove what was put there. Safe at any time,
        and twice. Also called when a lease has lapsed."""
        ...

    async def release(self, fault: str | None) -> None:
        """Let go what `hold` rules keep: of one fault, or of all."""
        ...

    async def bites(self) -> Bites:
        """What was done since the driver was made, by faults that are over, too."""
        ...


# -- Who does what ---------------------------------------------------------------------------------

NFT: Final = "nft"
NFQUEUE: Final = "nfqueue"
TC: Final = "tc"


def driver_of(fault: NetworkFault, *, netem: bool = False) -> str:
    """Which driver carries out a fault, and counts what it does, where kernels have netem or not.

    nfqueue does also, for a packet marked DECIDE, the losses and rules of nft: first of all rules,
    that of nfqueue which may take the packet comes, and what follows depends on whether it does.
    """
    match fault:
        case faults.Rule():
            return NFT if fault.is_told_by_the_preamble() else NFQUEUE
        case faults.Partition() | faults.Cut() | faults.Loss():
            return NFT
        case faults.Bandwidth():
            return TC
        case faults.Delay():
            # netem has dice of its own, and a frame is to meet the same fate everywhere: so it
            # does what needs none.
            return TC if netem and not fault.jitter else NFQUEUE
        case faults.LossModel() | faults.Duplicate() | faults.Reorder() | faults.Corrupt():
            # The counters of nftables begin anew with every new set of rules, so a loss that
            # remembers how many frames passed is not for it.
            return NFQUEUE
    raise DriverError(f"no driver does a {type(fault).__name__}")


def is_base_delayed_by(state: NetworkState, driver: str) -> bool:
    """Whether a driver makes packets as late as the network itself is to have them.

    The default delay says that nothing is asked for: real networks have one of their own.
    """
    base = state.base
    wanted = TC if state.netem and not base.jitter else NFQUEUE
    return base.delay > faults.Link().delay and driver == wanted


# -- Slow links ------------------------------------------------------------------------------------

MULTICAST: Final = ""
"""In place of a name: whatever goes to all at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLink:
    """What one member sends to another, or to all at once, and is to pass slowly, late, or both."""

    dest: str
    """MULTICAST is what goes to all; only there where every single link is slow in one way."""
    number: int
    """Its packets go out with the mark CLASS plus this."""
    rate: float | None = None
    """Bytes per second: the narrowest of all faults."""
    narrowed_by: str = ""
    """Whose rate that is; `stormcast.chaos.faults.BASE` is the network's own."""
    delay: float = 0.0
    """Seconds: of all faults together that the kernel does, and of the network itself."""
    delayed_by: tuple[str, ...] = ()
    """The faults."""


def classes(state: NetworkState, source: str) -> tuple[SlowLink, ...]:
    """The slow links of one member: none for most."""
    acting = [
        (fault_id, fault)
        for fault_id, fault in state.faults.items()
        if driver_of(fault, netem=state.netem) == TC
    ]
    if not acting and state.base.bandwidth is None and not is_base_delayed_by(state, TC):
        return ()
    others = [name for name in state.members if name != source]
    links = [_link(state, acting, source, dest) for dest in others]
    found = [link for link in links if link.rate is not None or link.delay]
    ways = {(link.rate is None, link.delay) for link in found}
    if len(ways) == 1 and len(found) == len(others):
        least = min(found, key=lambda link: link.rate or 0.0)
        found.append(replace(least, dest=MULTICAST, number=1))
    return tuple(found)


def _link(
    state: NetworkState, acting: Sequence[tuple[str, NetworkFault]], source: str, dest: str
) -> SlowLink:
    limits: list[tuple[float, str]] = []
    delays: list[tuple[float, str]] = []
    own_delay = state.base.delay if is_base_delayed_by(state, TC) else 0.0
    for fault_id, fault in acting:
        if fault.strikes(source, dest):
            match fault:
                case faults.Bandwidth():
                    limits.append((fault.rate, fault_id))
                case faults.Delay():
                    delays.append((fault.delay, fault_id))
    if state.base.bandwidth is not None:
        limits.insert(0, (state.base.bandwidth, faults.BASE))
    # Of equal ones the first: as in stormcast.chaos.faults.paths.
    rate, narrowed_by = min(limits, key=lambda limit: limit[0], default=(None, ""))
    return SlowLink(
        dest=dest,
        number=2 + state.members.index(dest),
        rate=rate,
        narrowed_by=narrowed_by,
        delay=sum((delay for delay, _fault in delays), own_delay),
        delayed_by=tuple(fault for _delay, fault in delays),
    )


def slow_for_multicasts(state: NetworkState, source: str, dest: str) -> SlowLink | None:
    """The link, if what goes to all at once has to be slowed down where it comes in: where it goes
    out, it cannot be told from what goes to those whose links are not slow, or in another way."""
    links = classes(state, source)
    if any(link.dest == MULTICAST for link in links):
        return None
    return next((link for link in links if link.dest == dest), None)
