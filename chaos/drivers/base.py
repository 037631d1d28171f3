"""The interface of a driver: it brings the networks of sites into a `NetworkState`, for a lease.

`driver_of` says which driver carries out which fault. Drivers tell each other about packets by the
marks defined here. All drivers act where a packet comes in, after IP has put its fragments
together; only tc acts where a packet goes out. The order is that of docs/scenarios.md: cuts, then
rules in the order in which they began, then losses, then all other chances.

1. nft sets the mark ALIVE on packets from members that a fault strikes: from a map whose
   elements time out. Nothing else of nft, nfqueue or tc acts on a packet without a mark of ours,
   so all faults end with the lease, whichever process has died.
2. nft drops what it can decide alone. Any other packet gets a mark that asks nfqueue: DECIDE
   or CHANCES, below. If no process listens to the queue, the packet passes.
3. nft, where a packet goes out, marks packets to a slow link with a CLASS (from `classes` below,
   by the same kind of map), and tc keeps a queue for each class. A multicast that is slow on some
   links only leaves once and at full speed: nfqueue slows it down at the receivers on these links.

One driver serves all sites of an agent. The agent calls its verbs one after the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from stormcast.chaos import faults
from stormcast.chaos.faults import Names, NetworkFault
from stormcast.chaos.language.network_state import NetworkState
from stormcast.node.core.errors import NodeError

# -- Marks -----------------------------------------------------------------------------------------

ALIVE: Final = 0x5C000001
"""Set by nft where a packet comes in: a fault strikes its sender's packets, and the lease lasts."""
DECIDE: Final = 0x5C000002
"""A packet that a fault of packets, or a datagram that a rule, may select, for nfqueue to decide:
first faults of packets, then all rules, in their order (also those that nft could have decided),
then losses, models and all other chances."""
CHANCES: Final = 0x5C000003
"""No rule selects this packet, and no loss has struck it: models and all other chances are left."""
QUEUED_MASK: Final = 0xFFFFFFFE
"""A packet is for nfqueue when its mark under this mask is DECIDE."""
DONE: Final = 0x5C00000F
"""No driver acts on this packet (again): copies that a driver puts into the network have it."""
CLASS: Final = 0x5C010000
"""Plus a class number from 1: set by nft on packets that go out, for the queues of tc."""

INPUT_PRIORITY: Final = -300
"""The priority of the chain where packets come in: before iptables' mangle (-150) and filter (0),
either of which may hold the NFQUEUE rule."""
OUTPUT_PRIORITY: Final = -150

# -- Sites -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One network namespace with one member in it."""

    name: str
    """The name of the member that lives there, as in the state."""
    addresses: Names
    """The member's own addresses, IPv4 or IPv6."""
    device: str = "eth0"
    """The device by which its packets come in and go out."""
    netns: str | None = None
    """The path of the namespace, such as `/run/netns/x`; None: the agent's own namespace."""


class DriverError(NodeError):
    """A network could not be brought into its state. The text is one line, with the remedy."""


class RanOutError(DriverError):
    """Faults ended in the kernel before they were renewed, so for a while nothing acted."""


def acts(state: NetworkState) -> bool:
    """Whether a state differs from the network as it is by itself."""
    return bool(state.faults) or state.base != faults.Link()


Run = Callable[[Sequence[str], str], Awaitable[str]]
"""Runs a program (arguments, standard input) and returns its output; DriverError if it fails.
An example is `stormcast.chaos.drivers.running.run_command`."""


def inside(site: Site, argv: Sequence[str]) -> tuple[str, ...]:
    """Return the words that run a program in the namespace of a site."""
    return ("nsenter", f"--net={site.netns}", "--", *argv) if site.netns else tuple(argv)


# -- Drivers ---------------------------------------------------------------------------------------

Bites = Mapping[str, Mapping[tuple[str, str], int]]
"""Per fault id, per sender and receiver: packets on which the fault had an effect."""


class Handle(Protocol):
    """A call that is scheduled for later."""

    def cancel(self) -> None:
        """Cancel the call."""


class Loop(Protocol):
    """The part of an asyncio loop that a driver needs to act between calls of its verbs."""

    def time(self) -> float:
        """Return the seconds of the monotonic clock."""

    def add_reader(self, fd: int, callback: Callable[..., object], /, *args: Any) -> None:  # noqa: ANN401 as asyncio has it
        """Call `callback` whenever there is something to read."""

    def remove_reader(self, fd: int, /) -> bool:
        """Undo `add_reader`; to be called before the file is closed."""

    def call_at(self, when: float, callback: Callable[..., object], /, *args: Any) -> Handle:  # noqa: ANN401 as asyncio has it
        """Call `callback` once, at a time of `time()`."""


class Driver(Protocol):
    """One way of doing faults to packets. The agent makes each as `NftDriver(sites, table, run)`,
    `NfqueueDriver(sites, table, run, loop)`, `TcDriver(sites, table, run)`: `table` is the name of
    the run, after which a driver names all that it puts into a namespace."""

    name: str

    async def features(self) -> Mapping[str, str | None]:
        """Return the features (`stormcast.chaos.language.features.FEATURES`) of this driver: for
        each None, or one line with the reason and the remedy. Tries them, leaves nothing behind,
        and leaves alone what acts."""
        ...

    async def apply(self, state: NetworkState, lease: float) -> None:
        """Bring every site into `state` in one step, whatever it was, for `lease` seconds. Sites of
        members that the state does not name are left alone. DriverError if that fails; RanOutError
        if what acted before ended too early."""
        ...

    async def renew(self, lease: float) -> None:
        """Extend what was applied by another lease; RanOutError if it ended meanwhile."""
        ...

    async def end(self) -> None:
        """End all faults, and let go the packets that this driver keeps. What is installed stays
        until `clear`: with a table of nft, the kernel removes packets that wait for nfqueue."""
        ...

    async def clear(self) -> None:
        """Do `end` unless that is done, and remove all that the driver installed. May be called at
        any time, and twice. Also called when a lease has lapsed."""
        ...

    async def release(self, fault: str | None) -> None:
        """Release the packets that `hold` rules keep: of one fault, or of all (None)."""
        ...

    async def bites(self) -> Bites:
        """Return the bites since the driver was made, also of faults that have ended, unless those
        were forgotten."""
        ...

    async def forget(self, acting: Collection[str]) -> None:
        """Forget the bites of faults that are not among these."""
        ...


# -- Which driver carries out which fault ----------------------------------------------------------

NFT: Final = "nft"
NFQUEUE: Final = "nfqueue"
TC: Final = "tc"


def driver_of(fault: NetworkFault, *, netem: bool = False) -> str:
    """Return the driver that carries out a fault and counts its bites; `netem`: kernels have netem.

    For a packet marked DECIDE, nfqueue also does the rules and losses of nft: these come into play
    only if no earlier rule of nfqueue selects the packet, which nft cannot know.
    """
    match fault:
        case faults.Rule():
            return NFT if fault.is_told_by_the_preamble() else NFQUEUE
        case faults.Partition() | faults.Cut() | faults.Loss():
            return NFT
        case faults.PacketFault():
            is_told = isinstance(fault, faults.DropPackets) and fault.match.is_told_by_headers
            return NFT if is_told else NFQUEUE
        case faults.Bandwidth():
            return TC
        case faults.Delay():
            # netem has dice of its own, but a frame is to meet the same fate on every backend: so
            # netem only does delays without jitter.
            return TC if netem and not fault.jitter else NFQUEUE
        case faults.LossModel() | faults.Duplicate() | faults.Reorder() | faults.Corrupt():
            # The counters of nftables begin anew with every new set of rules, so nft cannot do a
            # loss that depends on how many frames have passed.
            return NFQUEUE
    raise DriverError(f"no driver does a {type(fault).__name__}")


def is_base_delayed_by(state: NetworkState, driver: str) -> bool:
    """Whether a driver adds the delay that the network is to have by itself, without faults.

    With the default delay no driver does: real networks have a delay of their own.
    """
    base = state.base
    wanted = TC if state.netem and not base.jitter else NFQUEUE
    return base.delay > faults.Link().delay and driver == wanted


# -- Slow links ------------------------------------------------------------------------------------

MULTICAST: Final = ""
"""In place of a receiver's name: multicasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLink:
    """The way from one member to another, or for its multicasts, with a limited rate, a delay, or
    both."""

    dest: str
    """The receiver, or MULTICAST: such a link exists only if all links of the member have the same
    delay, and all or none of them a rate."""
    number: int
    """The class number: its packets go out with the mark CLASS plus this."""
    rate: float | None = None
    """Bytes per second: the lowest rate of all faults."""
    narrowed_by: str = ""
    """The fault with that rate; `stormcast.chaos.faults.BASE` is the network's own."""
    delay: float = 0.0
    """Seconds: the sum of all faults whose delay tc does, and of the network's own."""
    delayed_by: tuple[str, ...] = ()
    """The faults that add to the delay."""


def classes(state: NetworkState, source: str) -> tuple[SlowLink, ...]:
    """Return the slow links of one member; most members have none."""
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
    # Of equal rates the first counts, as in stormcast.chaos.faults.paths.
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
    """Return the slow link to `dest`, if multicasts must be slowed down where they come in, else
    None. That is so if links differ: a multicast goes out only once, for all links."""
    links = classes(state, source)
    if any(link.dest == MULTICAST for link in links):
        return None
    return next((link for link in links if link.dest == dest), None)
