"""The nfqueue driver with a queue, a clock and a network that are played."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeVar

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.chaos.backends.sim.network import Network as SimNetwork
from stormcast.chaos.drivers import packets
from stormcast.chaos.drivers.base import CHANCES, DECIDE, DriverError, Site
from stormcast.chaos.drivers.nfqueue import NfqueueDriver
from stormcast.chaos.drivers.packets import layers
from stormcast.chaos.faults import (
    Bandwidth,
    Corrupt,
    Cut,
    Delay,
    Duplicate,
    GilbertElliott,
    Link,
    Loss,
    NetworkFault,
    NthLoss,
    Reorder,
    Rule,
)
from stormcast.chaos.faults.fate import jhash_fate
from stormcast.chaos.faults.paths import PathMaker
from stormcast.chaos.language.network_state import PACKETS, NetworkState
from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, pack_body
from stormcast.node.core.match import Match

NAMES = ("n0", "n1", "n2")
ADDRESSES = {name: f"198.18.0.{index + 2}" for index, name in enumerate(NAMES)}
GROUP = "239.8.8.8"
LEASE = 3.0
NEVER = 1e9
Made = TypeVar("Made")


class Clock:
    """A loop: time passes when it is told to, and readers are called when something is there."""

    def __init__(self) -> None:
        self.now = 100.0
        self._calls: list[tuple[float, int, Callable[[], object], list[bool]]] = []
        self._order = count()
        self.readers: dict[int, Callable[[], object]] = {}

    def time(self) -> float:
        return self.now

    def add_reader(self, fd: int, callback: Callable[..., object], *args: object) -> None:
        self.readers[fd] = lambda: callback(*args)

    def remove_reader(self, fd: int) -> bool:
        return self.readers.pop(fd, None) is not None

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> Cancelled:
        alive = [True]
        heappush(self._calls, (when, next(self._order), lambda: callback(*args), alive))
        return Cancelled(alive)

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while self._calls and self._calls[0][0] <= until:
            when, _order, call, alive = heappop(self._calls)
            self.now = max(self.now, when)
            if alive[0]:
                call()
        self.now = until


class Cancelled:
    def __init__(self, alive: list[bool]) -> None:
        self._alive = alive

    def cancel(self) -> None:
        self._alive[0] = False


class Queue:
    """The kernel's part: packets wait in it, and what is said of each is noted with the time."""

    numbers = count(10)

    def __init__(self, clock: Clock) -> None:
        self.fd = next(self.numbers)
        self.clock = clock
        self.waiting: list[tuple[int, int, bytes]] = []
        self.undecided: dict[int, bytes] = {}
        self.said: list[tuple[float, str, int, bytes]] = []
        self._verdicts: list[tuple[str, int, bytes]] = []
        self._ids = count(1)
        self.is_open = True
        self.refused: Counter[str] = Counter()

    def fileno(self) -> int:
        return self.fd

    def receive(self, take: Callable[[int, int, memoryview], None], limit: int) -> int:
        taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
        for packet, mark, data in taken:
            take(packet, mark, memoryview(data))
        return len(taken)

    def accept(self, packet: int, payload: bytes = b"") -> None:
        self._verdicts.append(("accept", packet, payload))

    def drop(self, packet: int) -> None:
        self._verdicts.append(("drop", packet, b""))

    def accept_up_to(self, packet: int) -> None:
        for each in [each for each in self.undecided if each <= packet]:
            self._verdicts.append(("accept", each, b""))

    def flush(self) -> None:
        for verdict, packet, payload in self._verdicts:
            came = self.undecided.pop(packet, None)
            if came is not None:
                self.said.append((self.clock.now, verdict, packet, payload or came))
        self._verdicts.clear()

    def close(self) -> None:
        self.flush()
        self.is_open = False

    def miss(self) -> None:
        """A packet finds no room for its message, and passes."""
        next(self._ids)

    def come(self, mark: int, data: bytes) -> int:
        packet = next(self._ids)
        self.undecided[packet] = data
        self.waiting.append((packet, mark, data))
        return packet


class Injector:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.sent: list[tuple[float, bytes]] = []

    def send(self, packet: bytes) -> None:
        self.sent.append((self.clock.now, packet))

    def close(self) -> None:
        pass


class Rig:
    """A driver of some sites, and all that is around it."""

    def __init__(self, *names: str) -> None:
        self.clock = Clock()
        self.queues: dict[str, Queue] = {}
        self.injectors: dict[str, Injector] = {}
        self.ran: list[tuple[tuple[str, ...], str]] = []
        self.fails = ""
        self.together: asyncio.Barrier | None = None
        """Commands run when so many wait; None: at once."""
        sites = [Site(name=name, addresses=(ADDRESSES[name],)) for name in names or ("n1",)]
        self.driver = NfqueueDriver(
            sites,
            "sc1_2_3",
            self._run,
            self.clock,
            open_queue=self._open,
            open_injector=self._inject,
        )

    async def _run(self, argv: Sequence[str], stdin: str = "") -> str:
        if self.together is not None:
            async with asyncio.timeout(5.0):
                await self.together.wait()
        self.ran.append((tuple(argv), stdin))
        if self.fails and self.fails in argv[0]:
            raise DriverError(f"{argv[0]} fails")
        return ""

    def _open(self, site: Site) -> Queue:
        self.queues[site.name] = Queue(self.clock)
        return self.queues[site.name]

    def _inject(self, site: Site) -> Injector:
        self.injectors[site.name] = Injector(self.clock)
        return self.injectors[site.name]

    def apply(
        self, base: Link | None = None, *, netem: bool = False, **faults: NetworkFault
    ) -> None:
        do(self.driver.apply(state(base, netem=netem, **faults), LEASE))

    def come(
        self,
        data: bytes,
        *,
        source: str = "n0",
        dest: str = "n1",
        mark: int = CHANCES,
        to: str = "",
    ) -> int:
        """A datagram reaches the queue of a site, and the driver wakes up."""
        queue = self.queues[dest]
        packet = queue.come(mark, datagram(data, source, to or ADDRESSES[dest]))
        self.clock.readers[queue.fd]()
        return packet

    def said(self, dest: str = "n1") -> list[tuple[float, str, int]]:
        """Verdicts so far: how long after the beginning, which, on what."""
        return [
            (round(at - 100.0, 6), verdict, packet)
            for at, verdict, packet, _ in self.queues[dest].said
        ]

    @property
    def bites(self) -> Mapping[str, Mapping[tuple[str, str], int]]:
        return do(self.driver.bites())


def do(verb: Coroutine[Any, Any, Made]) -> Made:
    """Run a verb, which waits for nothing that is not there."""
    return asyncio.run(verb)


def state(base: Link | None = None, *, netem: bool = False, **faults: NetworkFault) -> NetworkState:
    return NetworkState(
        members=NAMES,
        places={name: (address,) for name, address in ADDRESSES.items()},
        base=base or Link(),
        faults=faults,
        seed=7,
        netem=netem,
    )


def frame(lo: int, *, kind: int = wire.DATA, conn: int = 1, source: int = 0xA) -> bytes:
    codec = Codec(0xC1, source, hash64)
    if kind != wire.DATA:
        return codec.pack_control(kind, wire.UNICAST3, 0xB, conn, lo)
    body = pack_body([b"hello"], hash64)
    return codec.pack_data(wire.UNICAST3, 0xB, conn, lo, body, 0, 0, 0, 0) + body.data


def datagram(payload: bytes, source: str, dest: str) -> bytes:
    head = bytes.fromhex("4500") + (28 + len(payload)).to_bytes(2, "big") + bytes(5) + b"\x11"
    ports = (7800).to_bytes(2, "big") * 2
    addresses = b"".join(bytes(map(int, one.split("."))) for one in (ADDRESSES[source], dest))
    udp = ports + (8 + len(payload)).to_bytes(2, "big") + bytes(2)
    return head + bytes(2) + addresses + udp + payload


ENDS = {"sources": ("n0",), "dests": ("n1",)}


# -- Delays ------------------------------------------------------------------------------------


def test_a_delayed_packet_passes_when_its_time_has_come() -> None:
    rig = Rig()
    rig.apply(f1=Delay(delay=0.05, **ENDS))
    packet = rig.come(frame(1))
    rig.clock.advance(0.0495)
    assert rig.said() == []
    rig.clock.advance(0.001)
    assert rig.said() == [(0.05, "accept", packet)]
    assert rig.bites == {"f1": {("n0", "n1"): 1}}


def test_packets_of_one_delay_keep_their_order() -> None:
    rig = Rig()
    rig.apply(f1=Delay(delay=0.05, **ENDS))
    packets = [rig.come(frame(lo)) for lo in range(1, 6)]
    rig.clock.advance(0.1)
    assert [packet for _at, _verdict, packet in rig.said()] == packets


def test_a_path_that_nothing_strikes_is_not_delayed() -> None:
    rig = Rig()
    rig.apply(f1=Delay(delay=0.05, **ENDS))
    packet = rig.come(frame(1), source="n2")
    assert rig.said() == [(0.0, "accept", packet)]


def test_what_waits_keeps_its_time_when_the_delay_ends() -> None:
    rig = Rig()
    rig.apply(f1=Delay(delay=0.05, **ENDS))
    first = rig.come(frame(1))
    rig.apply()
    second = rig.come(frame(2))
    assert rig.said() == [(0.0, "accept", second)]
    rig.clock.advance(0.1)
    assert rig.said()[-1] == (0.05, "accept", first)


def test_a_shorter_delay_overtakes_a_longer_one() -> None:
    rig = Rig()
    rig.apply(f1=Delay(delay=0.5, **ENDS))
    rig.come(frame(1))
    rig.apply(f2=Delay(delay=0.05, **ENDS))
    second = rig.come(frame(2))
    rig.clock.advance(0.06)
    assert rig.said() == [(0.05, "accept", second)]


def test_the_networks_own_delay_acts_on_all_and_is_no_fault() -> None:
    """Were it counted, a network that is to lose frames would seem to, and prove nothing."""
    rig = Rig()
    rig.apply(Link(delay=0.02))
    for source in ("n0", "n2"):
        rig.come(frame(1), source=source)
    rig.clock.advance(0.019)
    assert rig.said() == []
    rig.clock.advance(0.002)
    assert len(rig.said()) == 2
    assert rig.bites == {}


def test_the_default_delay_is_that_of_the_network_as_it_is() -> None:
    rig = Rig()
    rig.apply(Link())
    assert rig.queues == {}


# -- Narrow links ------------------------------------------------------------------------------

NARROW = Bandwidth(sources=("n0",), dests=("n1",), rate=1000.0)


def test_a_multicast_waits_for_a_narrow_link_where_it_comes_in() -> None:
    """Of 100 bytes at 1000 a second; what would wait for more than a quarter of one is dropped."""
    rig = Rig()
    rig.apply(f1=NARROW)
    sent = [rig.come(frame(lo)[:72], to=GROUP) for lo in range(1, 7)]
    other = rig.come(frame(7), source="n2", to=GROUP)
    unicast = rig.come(frame(8))
    rig.clock.advance(1.0)
    assert rig.said() == [
        *((0.0, "drop", packet) for packet in sent[3:]),
        (0.0, "accept", other),
        # These have waited where they were sent.
        (0.0, "accept", unicast),
        (0.1, "accept", sent[0]),
        (0.2, "accept", sent[1]),
        (0.3, "accept", sent[2]),
    ]
    assert rig.bites == {"f1": {("n0", "n1"): 6}}


def test_where_all_links_are_narrow_multicasts_wait_where_they_go_out() -> None:
    rig = Rig()
    rig.apply(f1=Bandwidth(sources=("n0",), dests=("n1", "n2"), rate=1000.0))
    assert rig.queues == {}


# -- Where the kernel delays by itself -------------------------------------------------------------


def test_of_delays_only_those_with_dice_are_left() -> None:
    rig = Rig()
    rig.apply(
        Link(delay=0.5),
        netem=True,
        f1=Delay(delay=0.1, **ENDS),
        f2=Delay(delay=0.2, jitter=1e-9, **ENDS),
    )
    packet = rig.come(frame(1))
    rig.clock.advance(1.0)
    assert rig.said() == [(0.2, "accept", packet)]
    assert set(rig.bites) == {"f2"}


def test_a_network_with_jitter_is_late_by_its_dice_alone() -> None:
    rig = Rig()
    rig.apply(Link(delay=0.5, jitter=1e-9), netem=True)
    packet = rig.come(frame(1))
    rig.clock.advance(1.0)
    assert rig.said() == [(0.5, "accept", packet)]


def test_a_multicast_that_is_late_for_some_is_so_where_it_comes_in() -> None:
    rig = Rig()
    rig.apply(netem=True, f1=Delay(delay=0.1, **ENDS), f2=NARROW)
    sent = [rig.come(frame(lo)[:72], to=GROUP) for lo in (1, 2)]
    unicast = rig.come(frame(3))
    rig.clock.advance(1.0)
    assert rig.said() == [
        (0.0, "accept", unicast),
        (0.2, "accept", sent[0]),
        (0.3, "accept", sent[1]),
    ]
    assert rig.bites == {"f1": {("n0", "n1"): 2}, "f2": {("n0", "n1"): 2}}


def test_what_all_links_delay_equally_is_not_asked_for() -> None:
    rig = Rig()
    rig.apply(Link(delay=0.5), netem=True)
    rig.apply(netem=True, f1=Delay(sources=("n0",), dests=("n1", "n2"), delay=0.1))
    assert rig.queues == {}


# -- As in the simulator -----------------------------------------------------------------------

FAULTS: dict[str, NetworkFault] = {
    "f1": Delay(delay=0.01, jitter=0.02, **ENDS),
    "f2": Reorder(rate=0.3, by=0.05, **ENDS),
    "f3": Duplicate(rate=0.3, **ENDS),
    "f4": GilbertElliott(p_bad=0.1, p_good=0.3, loss_bad=0.8, loss_good=0.05, **ENDS),
    "f5": NthLoss(nth=7, burst=2, **ENDS),
    "f6": Corrupt(rate=0.2, **ENDS),
    "f7": Loss(rate=0.2, **ENDS),
    "f8": Corrupt(rate=0.3, **ENDS),
    "r1": Rule(match=Match(occurrence=(3, 20))),
    "r2": Rule(does="delay", delay=0.3, match=Match(seqno=(30, 60))),
    "r3": Rule(does="duplicate", copies=2, match=Match(connection=2)),
    "r4": Rule(does="corrupt", times=7),
    "r5": Rule(does="hold", match=Match(seqno=(200, 210))),
}
EVERYTHING = " ".join(FAULTS)
Fates = tuple[list[tuple[float, bytes]], Mapping[str, Mapping[tuple[str, str], int]]]
"""When what arrived, and how often each fault struck."""


def simulated(frames: list[bytes], base: Link, faults: dict[str, NetworkFault]) -> Fates:
    """What the simulator's network makes of frames that are sent at once, with the same dice."""
    arrived: list[tuple[float, bytes]] = []
    network = SimNetwork(jhash_fate, lambda at, _dest, data: arrived.append((at, data)))
    maker = PathMaker()
    maker.renew(7, faults)
    path = maker.path("n0", "n1", base, faults)
    network.set_path(path)
    for each in frames:
        network.send(path, 0xB, each, 0.0)
    network.release("r5", 1.0)
    return sorted(arrived, key=lambda one: (one[1], one[0])), network.decider.counted()


def queued(frames: list[bytes], base: Link, faults: dict[str, NetworkFault]) -> Fates:
    rig = Rig()
    rig.apply(base, f0=Rule(match=Match(connection=9)), **faults)
    for each in frames:
        rig.come(each, mark=DECIDE)
    rig.clock.advance(1.0)
    do(rig.driver.release(None))
    rig.clock.advance(1.0)
    queue = rig.queues["n1"]
    assert not queue.undecided
    came = [(at, data) for at, verdict, _id, data in queue.said if verdict == "accept"]
    copies = rig.injectors["n1"].sent if "n1" in rig.injectors else []
    arrived = [(at - 100, data[28:]) for at, data in (*came, *copies)]
    return sorted(arrived, key=lambda one: (one[1], one[0])), rig.bites


@pytest.mark.parametrize(
    "names",
    [*FAULTS, "f1 f2 f3", "f6 f8", "f7 r1 r3", "f1 f2 f3 f4 f5 f6 f7 f8", EVERYTHING],
)
@pytest.mark.parametrize("base", [Link(delay=0.0), Link(
    delay=0.02, jitter=0.01, loss=0.1, duplicate=0.1, reorder=0.1, reorder_by=0.03, corrupt=0.1,
)], ids=["plain", "bad"])  # fmt: skip  # two links
def test_equal_frames_meet_equal_fates_here_and_in_the_simulator(names: str, base: Link) -> None:
    faults = {name: FAULTS[name] for name in names.split()}
    frames = [frame(lo, conn=1 + lo % 2) for lo in range(1, 301)]
    expected, struck = simulated(frames, base, faults)
    assert expected != [(base.delay, each) for each in sorted(frames)]
    arrived, bites = queued(frames, base, faults)
    assert [data for _at, data in arrived] == [data for _at, data in expected]
    assert [at for at, _data in arrived] == pytest.approx([at for at, _ in expected], abs=0.0003)
    assert bites == struck


# -- Copies ------------------------------------------------------------------------------------


def test_a_copy_of_a_multicast_goes_to_the_member_itself() -> None:
    rig = Rig()
    rig.apply(f1=Duplicate(rate=1.0, **ENDS))
    packet = rig.come(frame(1), to=GROUP)
    rig.clock.advance(0.1)
    assert rig.said() == [(0.0, "accept", packet)]
    [(_at, copy)] = rig.injectors["n1"].sent
    assert copy[16:20] == bytes(map(int, ADDRESSES["n1"].split(".")))
    assert copy[28:] == frame(1)


def test_a_rule_makes_as_many_copies_as_it_says() -> None:
    rig = Rig()
    rig.apply(f1=Rule(does="duplicate", copies=3, match=Match(occurrence=(2, 2))))
    for lo in (1, 2, 3):
        rig.come(frame(lo), mark=DECIDE)
    rig.clock.advance(0.1)
    assert [data[28:] for _at, data in rig.injectors["n1"].sent] == [frame(2)] * 3
    assert rig.bites == {"f1": {("n0", "n1"): 1}}


# -- Corruption --------------------------------------------------------------------------------


def test_a_corrupt_frame_differs_in_one_bit_and_its_datagram_is_sound() -> None:
    rig = Rig()
    rig.apply(f1=Rule(does="corrupt", times=1))
    for lo in (1, 2):
        rig.come(frame(lo), mark=DECIDE)
    changed, other = (data for _at, _verdict, _id, data in rig.queues["n1"].said)
    assert other[28:] == frame(2)
    flipped = int.from_bytes(changed[28:], "big") ^ int.from_bytes(frame(1), "big")
    assert flipped.bit_count() == 1
    assert layers().ipv4(changed)[layers().udp].len == len(changed) - 20


# -- Rules -------------------------------------------------------------------------------------


def test_packets_of_other_faults_pass_while_scapy_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    late = Delay(delay=0.002, **ENDS)
    rig.apply(f1=late)
    begun, passed = threading.Event(), threading.Event()

    def load() -> None:
        begun.set()
        assert passed.wait(2.0), "the loop stands still"

    async def script() -> None:
        monkeypatch.setattr(packets, "layers", load)
        corrupt = state(f1=late, f2=Corrupt(rate=0.01, **ENDS))
        applied = asyncio.ensure_future(rig.driver.apply(corrupt, LEASE))
        assert await asyncio.to_thread(begun.wait, 2.0)
        rig.come(frame(1))
        rig.clock.advance(0.002)
        assert rig.said() == [(0.002, "accept", 1)]
        passed.set()
        await applied

    asyncio.run(script())


def test_the_first_rule_that_takes_a_frame_decides() -> None:
    rig = Rig()
    rig.apply(
        f1=Rule(does="delay", delay=0.1, match=Match(seqno=(2, 2), connection=1)),
        f2=Rule(does="drop", match=Match(seqno=(2, 3))),
        f3=Loss(rate=1.0, **ENDS),
    )
    ids = [rig.come(frame(lo), mark=DECIDE) for lo in (1, 2, 3)]
    rig.clock.advance(0.2)
    assert rig.said() == [(0.0, "drop", ids[0]), (0.0, "drop", ids[2]), (0.1, "accept", ids[1])]
    assert rig.bites == {
        "f1": {("n0", "n1"): 1},
        "f2": {("n0", "n1"): 1},
        "f3": {("n0", "n1"): 1},
    }


def test_a_packet_that_nft_has_thrown_for_is_not_thrown_for_again() -> None:
    rig = Rig()
    rig.apply(
        f1=Loss(rate=1.0, **ENDS),
        f2=Delay(delay=0.01, **ENDS),
        f3=Rule(does="hold", match=Match(kinds=("ACK",))),
    )
    packet = rig.come(frame(1), mark=CHANCES)
    rig.clock.advance(0.1)
    assert rig.said() == [(0.01, "accept", packet)]


def test_a_datagram_of_others_has_a_fate_where_dice_are_thrown_for_packets() -> None:
    foreign = bytes.fromhex("28a3") + bytes(60)
    half = Delay(delay=0.01, jitter=0.5, **ENDS)
    rig = Rig()
    rig.apply(f1=half)
    for _each in range(20):
        rig.come(foreign)
    rig.clock.advance(1.0)
    assert {at for at, _verdict, _packet in rig.said()} == {0.01}, "it has no fate of its own"
    rig = Rig()
    do(rig.driver.apply(replace(state(f1=half), dice=PACKETS), LEASE))
    for _each in range(20):
        rig.come(foreign)
    rig.clock.advance(1.0)
    assert len({at for at, _verdict, _packet in rig.said()}) > 15


def test_occurrences_are_counted_over_all_receivers_and_through_other_changes() -> None:
    rig = Rig("n1", "n2")
    rule = Rule(does="drop", match=Match(occurrence=(2, 2)))
    rig.apply(f1=rule)
    first = rig.come(frame(1), mark=DECIDE)
    rig.apply(f1=rule, f2=Delay(delay=0.0, **ENDS))
    second = rig.come(frame(1), dest="n2", mark=DECIDE)
    third = rig.come(frame(2), mark=DECIDE)
    assert rig.said() == [(0.0, "accept", first), (0.0, "accept", third)]
    assert rig.said("n2") == [(0.0, "drop", second)]
    assert rig.bites["f1"] == {("n0", "n2"): 1}


def test_a_rule_that_ended_begins_to_count_anew() -> None:
    rig = Rig()
    rule = Rule(does="drop", times=1)
    rig.apply(f1=rule)
    rig.come(frame(1), mark=DECIDE)
    rig.apply()
    rig.apply(f1=rule)
    rig.come(frame(2), mark=DECIDE)
    assert [verdict for _at, verdict, _id in rig.said()] == ["drop", "drop"]


def test_a_rule_tells_connections_by_the_order_in_which_their_data_came() -> None:
    rig = Rig()
    rig.apply(f1=Rule(does="drop", match=Match(connection=2)))
    for conn in (31, 44, 31, 44):
        rig.come(frame(1, conn=conn), mark=DECIDE)
    assert [verdict for _at, verdict, _id in rig.said()] == ["accept", "drop", "accept", "drop"]


# -- Hold --------------------------------------------------------------------------------------

HOLD = Rule(does="hold", match=Match(kinds=("ACK",)))


def held(rig: Rig) -> list[int]:
    return [rig.come(frame(lo, kind=wire.ACK), mark=DECIDE) for lo in (1, 2, 3)]


def test_what_is_held_is_let_go_in_order_when_it_is_released_and_the_rule_stays() -> None:
    rig = Rig()
    rig.apply(f1=HOLD)
    packets = held(rig)
    rig.clock.advance(1.0)
    assert rig.said() == []
    do(rig.driver.release("f2"))
    assert rig.said() == []
    do(rig.driver.release("f1"))
    assert rig.said() == [(1.0, "accept", packet) for packet in packets]
    held(rig)
    assert len(rig.said()) == 3


def test_a_hold_that_ends_lets_go_what_it_held() -> None:
    rig = Rig()
    rig.apply(f1=HOLD)
    packets = held(rig)
    rig.apply()
    assert rig.said() == [(0.0, "accept", packet) for packet in packets]


def test_what_is_let_go_onto_a_path_that_is_cut_is_lost_there() -> None:
    rig = Rig()
    rig.apply(f1=HOLD)
    packets = held(rig)
    rig.apply(f2=Cut(**ENDS))
    assert rig.said() == [(0.0, "drop", packet) for packet in packets]
    assert rig.bites["f2"] == {("n0", "n1"): 3}


def test_what_is_let_go_is_as_late_as_its_path_is_by_now() -> None:
    rig = Rig()
    rig.apply(f1=HOLD)
    packets = held(rig)
    rig.apply(f2=Delay(delay=0.1, **ENDS))
    rig.clock.advance(0.2)
    assert rig.said() == [(0.1, "accept", packet) for packet in packets]


# -- The lease, and the end --------------------------------------------------------------------


def test_all_that_waits_is_let_go_when_nobody_renews_and_what_comes_later_passes() -> None:
    rig = Rig()
    rig.apply(f1=HOLD, f2=Delay(delay=60.0, **ENDS))
    packets = [*held(rig), rig.come(frame(9), mark=DECIDE)]
    rig.clock.advance(LEASE - 0.1)
    assert rig.said() == []
    rig.clock.advance(0.2)
    assert rig.said() == [(LEASE, "accept", packet) for packet in packets]
    later = rig.come(frame(1, kind=wire.ACK), mark=DECIDE)
    assert rig.said()[-1][1:] == ("accept", later)


def test_a_renewed_lease_goes_on() -> None:
    rig = Rig()
    rig.apply(f1=HOLD)
    held(rig)
    for _ in range(5):
        rig.clock.advance(LEASE - 0.1)
        do(rig.driver.renew(LEASE))
    assert rig.said() == []


def held_and_unread(rig: Rig) -> tuple[Queue, list[int]]:
    """Hold packets, and have one come that is not read yet; return the queue, and all of them."""
    rig.apply(f1=HOLD)
    packets = held(rig)
    queue = rig.queues["n1"]
    late = queue.come(DECIDE, datagram(frame(4, kind=wire.ACK), "n0", ADDRESSES["n1"]))
    return queue, [*packets, late]


def test_clearing_lets_go_removes_the_rule_and_can_be_done_again() -> None:
    rig = Rig()
    queue, packets = held_and_unread(rig)
    do(rig.driver.clear())
    do(rig.driver.clear())
    assert [packet for _at, _verdict, packet, _data in queue.said] == packets
    assert not queue.is_open
    assert rig.clock.readers == {}
    rig.clock.advance(NEVER)


def test_at_the_end_of_all_faults_what_was_not_read_yet_passes_too_and_the_queue_stays() -> None:
    rig = Rig()
    queue, packets = held_and_unread(rig)
    do(rig.driver.end())
    assert [packet for _at, _verdict, packet, _data in queue.said] == packets
    assert queue.is_open


def test_a_run_after_another_has_the_dice_of_the_first() -> None:
    rig = Rig()
    model = GilbertElliott(p_bad=0.2, p_good=0.4, **ENDS)
    runs: list[list[str]] = []
    for _run in range(2):
        rig.apply()
        rig.apply(f1=model)
        for lo in range(1, 60):
            rig.come(frame(lo))
        runs.append([verdict for _at, verdict, _packet in rig.said()])
        rig.apply()
        do(rig.driver.clear())
    assert runs[0] == runs[1]
    assert {"accept", "drop"} == set(runs[0])


MISSED = "1 packets to n1 passed without the faults that were to strike them"


def test_a_packet_too_many_passes_and_whoever_asks_is_told() -> None:
    rig = Rig()
    rig.driver.max_waiting = 3
    rig.apply(f1=HOLD)
    held(rig)
    do(rig.driver.renew(LEASE))
    last = rig.come(frame(9), mark=DECIDE)
    assert rig.said() == [(0.0, "accept", last)]
    for verb in (rig.driver.renew(LEASE), rig.driver.bites(), rig.driver.apply(state(), LEASE)):
        with pytest.raises(DriverError, match=MISSED):
            do(verb)


def test_a_packet_for_whose_message_the_kernel_had_no_room_is_missed() -> None:
    rig = Rig()
    rig.apply(f1=HOLD)
    rig.come(frame(1), mark=DECIDE)
    rig.queues["n1"].miss()
    do(rig.driver.renew(LEASE))
    rig.come(frame(3), mark=DECIDE)
    with pytest.raises(DriverError, match=MISSED):
        do(rig.driver.renew(LEASE))


def test_packets_that_the_kernel_has_thrown_away_are_told_of_while_faults_act() -> None:
    rig = Rig()
    rig.apply(f1=HOLD)
    rig.queues["n1"].refused["ENOENT"] += 2
    with pytest.raises(DriverError, match="2 packets to n1 that waited are gone"):
        do(rig.driver.renew(LEASE))
    do(rig.driver.clear())


def test_clearing_tells_of_a_missed_packet_once_and_clears_all_the_same() -> None:
    rig = Rig()
    rig.driver.max_waiting = 3
    rig.apply(f1=HOLD)
    held(rig)
    rig.come(frame(9), mark=DECIDE)
    with pytest.raises(DriverError, match=MISSED):
        do(rig.driver.clear())
    assert not rig.queues["n1"].is_open
    do(rig.driver.clear())
    rig.apply(f1=HOLD)
    do(rig.driver.renew(LEASE))


def test_counts_outlive_the_faults_and_the_queues() -> None:
    rig = Rig()
    rig.apply(f1=HOLD)
    held(rig)
    do(rig.driver.clear())
    assert rig.bites == {"f1": {("n0", "n1"): 3}}


def test_a_site_of_a_member_that_the_state_does_not_name_is_left_alone() -> None:
    rig = Rig("n1")
    stranger = NetworkState(members=("a", "b"), places={}, base=Link(delay=0.1))
    do(rig.driver.apply(stranger, LEASE))
    assert rig.queues == {}


def test_a_state_that_needs_no_queue_opens_none() -> None:
    rig = Rig()
    rig.apply(f1=Loss(rate=0.5, **ENDS), f2=Cut(**ENDS))
    assert (rig.queues, rig.ran) == ({}, [])


def test_the_rules_of_all_sites_are_installed_at_once() -> None:
    """One after the other would take longer than what acted before lasts, where they are many."""

    async def script(rig: Rig) -> None:
        rig.together = asyncio.Barrier(2)
        wanted = state(f1=Delay(sources=NAMES, dests=NAMES, delay=0.05))
        await rig.driver.apply(wanted, LEASE)

    rig = Rig("n1", "n2")
    asyncio.run(script(rig))
    assert len(rig.queues) == 2


def test_packets_wait_until_their_burst_is_read_and_no_longer() -> None:
    """More than one burst: the loop calls again, as the queue is still readable."""
    rig = Rig()
    rig.apply(f1=Delay(delay=0.01, **ENDS))
    queue = rig.queues["n1"]
    for lo in range(1, 301):
        queue.come(CHANCES, datagram(frame(lo), "n0", ADDRESSES["n1"]))
    while queue.waiting:
        rig.clock.readers[queue.fd]()
    rig.clock.advance(0.02)
    assert len(rig.said()) == 300
