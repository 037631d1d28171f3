"""The nfqueue driver on real packets: late, twice, out of order, damaged, held, and let go."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from stormcast.chaos.drivers.base import DECIDE, DriverError, Site, inside
from stormcast.chaos.drivers.netlink import RECEIVE_BUFFER
from stormcast.chaos.drivers.netlink import inside as within
from stormcast.chaos.drivers.nfqueue import FEATURES, MAX_WAITING, NfqueueDriver
from stormcast.chaos.drivers.nft import NftDriver
from stormcast.chaos.drivers.running import run_command
from stormcast.chaos.faults import (
    Corrupt,
    Delay,
    Duplicate,
    Link,
    NetworkFault,
    NthLoss,
    Reorder,
    Rule,
)
from stormcast.chaos.faults.fate import fate_key, jhash_fate, threshold
from stormcast.chaos.faults.outcome import GOLDEN, damaged
from stormcast.chaos.language.network_state import NetworkState
from stormcast.chaos.plugin.live_cluster import Chaos, Clusters
from stormcast.node.bound import bound_to_me
from stormcast.node.core.match import Match
from stormcast.node.core.wire import identity
from tests.helpers.live import AS_SHIPPED, netns, stats, talk
from tests.integration.wire_pair import GROUP, Pair, drained, frames

pytestmark = [pytest.mark.root, pytest.mark.slow]

SEED = 41
HAS_IPTABLES = which("iptables") is not None
"""Without it nftables hands packets to the queue, where the kernel has that."""
LEASE = 30.0
ENDS = {"sources": ("n0",), "dests": ("n1",)}
HELD = Rule(does="hold", match=Match(sources=("n0",), occurrence=(3, 5)))
HOLD_ALL = Rule(does="hold", match=Match(sources=("n0",)))
SILENCE = 0.3
"""Seconds after which no more is expected."""


@pytest.fixture(scope="module", params=[False, True], ids=["ipv4", "ipv6"])
def any_pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with Pair(ipv6=request.param) as pair:
        yield pair


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with Pair() as pair:
        yield pair


class Drivers:
    """nft marks, nfqueue acts: the two of them on one pair."""

    def __init__(self, pair: Pair, max_waiting: int = MAX_WAITING) -> None:
        network = pair.network
        self.pair = pair

        self.queue = NfqueueDriver(
            network.sites(),
            network.run.table,
            run_command,
            asyncio.get_running_loop(),
            max_waiting=max_waiting,
        )
        self.nft = NftDriver(network.sites(), network.run.table, run_command)

    async def apply(self, base: Link | None = None, **faults: NetworkFault) -> None:
        state = NetworkState(
            members=self.pair.network.names,
            places=self.pair.network.places(),
            base=base or Link(),
            faults=faults,
            seed=SEED,
        )
        await self.queue.apply(state, LEASE)
        await self.nft.apply(state, LEASE)

    async def bites(self, fault: str) -> int:
        bites: int = (await self.queue.bites())[fault]["n0", "n1"]
        return bites

    async def pass_on(self, datagrams: list[bytes], *, dest: str = "") -> list[tuple[float, bytes]]:
        """Send from n0, and wait until no more comes in at n1; returns what came, and how long
        after it, or the first of its like, was sent."""
        other, came = self.pair.sockets["n1"], list[tuple[float, bytes]]()
        drained(other)
        sent: dict[bytes, float] = {}
        loop = asyncio.get_running_loop()

        def take() -> None:
            came.extend((loop.time(), data) for data in drained(other))

        loop.add_reader(other, take)
        try:
            for data in datagrams:
                sent.setdefault(data, loop.time())
                self.pair.say("n0", data, dest)
                await asyncio.sleep(0.0005)
            seen = -1
            while len(came) > seen:
                seen = len(came)
                await asyncio.sleep(SILENCE)
        finally:
            loop.remove_reader(other)
        return [(at - sent.get(data, at), data) for at, data in came]


@asynccontextmanager
async def acting(pair: Pair, max_waiting: int) -> AsyncIterator[Drivers]:
    drivers = Drivers(pair, max_waiting)
    try:
        yield drivers
    finally:
        await drivers.nft.clear()
        await drivers.queue.clear()


def live(
    pair: Pair,
    script: Callable[[Drivers], Coroutine[Any, Any, None]],
    max_waiting: int = MAX_WAITING,
) -> None:
    """Run a script with drivers, which leave nothing behind."""

    async def run() -> None:
        async with acting(pair, max_waiting) as drivers:
            await script(drivers)

    asyncio.run(run())
    for site in pair.network.sites():
        for words in (("iptables-save",), ("ip6tables-save",), ("nft", "list", "tables")):
            if which(words[0]):
                assert pair.network.run.table not in do(site, *words)


def do(site: Site, *words: str) -> str:
    done = subprocess.run(inside(site, words), check=True, capture_output=True, text=True)
    return done.stdout


# -- What is done to datagrams -----------------------------------------------------------------


def test_a_delay_is_never_shorter_and_keeps_the_order(any_pair: Pair) -> None:
    async def script(drivers: Drivers) -> None:
        await drivers.apply(f1=Delay(delay=0.05, **ENDS))
        sent = frames(1, 60)
        came = await drivers.pass_on(sent)
        assert [data for _late, data in came] == sent
        # A packet may go a little before its time, so as not to wake up twice for two.
        assert min(late for late, _data in came) >= 0.0495
        assert await drivers.bites("f1") == 60

    live(any_pair, script)


def test_jitter_makes_each_frame_as_late_as_its_own_dice_say(pair: Pair) -> None:
    async def script(drivers: Drivers) -> None:
        await drivers.apply(f1=Delay(delay=0.0, jitter=0.2, **ENDS))
        sent = frames(2, 60)
        came = {data: late for late, data in await drivers.pass_on(sent)}
        key = fate_key(SEED, "f1/jitter", "n1")
        for data in sent:
            assert came[data] >= 0.2 * jhash_fate(identity(data), key) / 2**64 - 0.0005
        assert await drivers.bites("f1") == 120  # of the delay and of the jitter

    live(pair, script)


def test_some_frames_arrive_behind_others_and_none_is_lost(pair: Pair) -> None:
    async def script(drivers: Drivers) -> None:
        await drivers.apply(f1=Reorder(rate=0.2, by=0.1, **ENDS))
        sent = frames(3, 80)
        came = [data for _late, data in await drivers.pass_on(sent)]
        key = fate_key(SEED, "f1/reorder", "n1")
        held = [data for data in sent if jhash_fate(identity(data), key) < threshold(0.2)]
        assert sorted(came) == sorted(sent)
        assert came != sent
        assert [data for data in came if data not in held] == [
            data for data in sent if data not in held
        ]
        assert await drivers.bites("f1") == len(held) > 0

    live(pair, script)


@pytest.mark.parametrize("dest", ["", GROUP], ids=["unicast", "multicast"])
def test_chosen_frames_arrive_twice_whoever_they_were_sent_to(pair: Pair, dest: str) -> None:
    async def script(drivers: Drivers) -> None:
        await drivers.apply(f1=Duplicate(rate=0.3, **ENDS))
        sent = frames(4, 60)
        came = [data for _late, data in await drivers.pass_on(sent, dest=dest)]
        key = fate_key(SEED, "f1/duplicate", "n1")
        for data in sent:
            assert came.count(data) == 1 + (jhash_fate(identity(data), key) < threshold(0.3))
        assert await drivers.bites("f1") == len(came) - 60 > 0

    live(pair, script)


def test_a_copy_over_ipv6_arrives(any_pair: Pair) -> None:
    async def script(drivers: Drivers) -> None:
        await drivers.apply(f1=Duplicate(rate=1.0, **ENDS))
        assert len(await drivers.pass_on(frames(5, 10))) == 20

    live(any_pair, script)


def test_a_copy_of_a_datagram_that_came_in_fragments_arrives_whole(pair: Pair) -> None:
    async def script(drivers: Drivers) -> None:
        await drivers.apply(f1=Duplicate(rate=1.0, **ENDS))
        sent = [frames(6, 1)[0] + bytes(50_000)]
        assert [data for _late, data in await drivers.pass_on(sent)] == sent * 2

    live(pair, script)


def test_a_corrupt_frame_passes_the_kernel_with_one_bit_flipped(any_pair: Pair) -> None:
    async def script(drivers: Drivers) -> None:
        await drivers.apply(f1=Rule(does="corrupt", match=Match(occurrence=(2, 3))))
        sent = frames(7, 4)
        came = [data for _late, data in await drivers.pass_on(sent)]
        flipped = [damaged(sent[1], (GOLDEN,)), damaged(sent[2], (2 * GOLDEN,))]
        assert came == [sent[0], *flipped, sent[3]]

    live(any_pair, script)


def test_a_corrupt_share_is_chosen_by_the_frames_own_dice(pair: Pair) -> None:
    async def script(drivers: Drivers) -> None:
        await drivers.apply(f1=Corrupt(rate=0.3, **ENDS))
        sent = frames(8, 60)
        came = [data for _late, data in await drivers.pass_on(sent)]
        key = fate_key(SEED, "f1/corrupt", "n1")
        for before, after in zip(sent, came, strict=True):
            is_struck = jhash_fate(identity(before), key) < threshold(0.3)
            flips = (jhash_fate(identity(before), key + 1),) if is_struck else ()
            assert after == damaged(before, flips)

    live(pair, script)


def test_each_nth_frame_is_lost(pair: Pair) -> None:
    async def script(drivers: Drivers) -> None:
        await drivers.apply(f1=NthLoss(nth=5, burst=2, **ENDS))
        sent = frames(9, 20)
        came = [data for _late, data in await drivers.pass_on(sent)]
        lost = {4, 5, 9, 10, 14, 15, 19}
        assert came == [data for place, data in enumerate(sent) if place not in lost]
        assert await drivers.bites("f1") == len(lost)

    live(pair, script)


def test_a_hold_keeps_what_it_takes_until_it_is_released_or_ends(pair: Pair) -> None:
    async def script(drivers: Drivers) -> None:
        await drivers.apply(f1=HELD)
        sent = frames(10, 7)
        came = [data for _late, data in await drivers.pass_on(sent)]
        assert came == [*sent[:2], *sent[5:]]
        await drivers.queue.release(None)
        await asyncio.sleep(SILENCE)
        assert drained(drivers.pair.sockets["n1"]) == sent[2:5]

        await drivers.apply(f2=HELD)
        assert len(await drivers.pass_on(sent)) == 4
        await drivers.apply()
        await asyncio.sleep(SILENCE)
        assert drained(drivers.pair.sockets["n1"]) == sent[2:5]

    live(pair, script)


def test_a_hold_ends_with_its_lease(pair: Pair) -> None:
    async def script(drivers: Drivers) -> None:
        await drivers.apply(f1=HELD)
        sent = frames(11, 7)
        assert len(await drivers.pass_on(sent)) == 4
        await drivers.queue.renew(0.3)
        await asyncio.sleep(0.3 + SILENCE)
        assert drained(drivers.pair.sockets["n1"]) == sent[2:5]

    live(pair, script)


def test_the_networks_own_faults_act_in_both_directions(pair: Pair) -> None:
    async def script(drivers: Drivers) -> None:
        await drivers.apply(Link(delay=0.03, jitter=1e-6))
        assert min(late for late, _data in await drivers.pass_on(frames(12, 5))) >= 0.0295
        drivers.pair.say("n1", frames(13, 1)[0])
        await asyncio.sleep(0.2)
        bites = (await drivers.queue.bites())["network"]
        assert bites == {("n0", "n1"): 5, ("n1", "n0"): 1}

    live(pair, script)


# -- Streams -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        Delay(delay=0.02, jitter=0.02, sources=("n0", "n1"), dests=("n0", "n1")),
        Duplicate(rate=0.5, sources=("n0", "n1"), dests=("n0", "n1")),
        Reorder(rate=0.3, by=0.02, sources=("n0", "n1"), dests=("n0", "n1")),
        Corrupt(rate=0.05, sources=("n0", "n1"), dests=("n0", "n1")),
        NthLoss(nth=20, sources=("n0", "n1"), dests=("n0", "n1")),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_a_connection_carries_everything_in_order_whatever_happens_to_its_segments(
    pair: Pair, fault: NetworkFault
) -> None:
    async def script(drivers: Drivers) -> None:
        await drivers.apply(f1=fault)
        data = bytes(range(256)) * 800
        got = bytearray()
        done = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while piece := await reader.read(65536):
                got.extend(piece)
            writer.close()
            done.set()

        server = await asyncio.start_server(serve, sock=stream(pair, "n1", is_server=True))
        client = stream(pair, "n0", is_server=False)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(60):
            await loop.sock_connect(client, (pair.addresses["n1"], 7900))
            # Small pieces: many segments.
            for at in range(0, len(data), 4096):
                await loop.sock_sendall(client, data[at : at + 4096])
            client.close()
            await done.wait()
        server.close()
        await server.wait_closed()
        assert bytes(got) == data
        assert await drivers.bites("f1") > 0

    live(pair, script)


def stream(pair: Pair, name: str, *, is_server: bool) -> socket.socket:
    site = next(site for site in pair.network.sites() if site.name == name)

    def make() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((pair.addresses[name], 7900 if is_server else 0))
        made.setblocking(False)
        return made

    return within(Path(str(site.netns)), make)


# -- Members -----------------------------------------------------------------------------------


@pytest.mark.parametrize("stack", ["udp", "tcp"])
def test_members_refuse_what_is_corrupt_and_lose_nothing_by_it(
    stack: str, cluster: Clusters, chaos: Chaos
) -> None:
    """Datagrams fail the members' own checks; of streams the kernel repairs what it finds."""
    refused = {f"stack.refused.{why}" for why in ("digest", "head-check", "magic", "version")}
    group = cluster(2, stack=stack, backend=netns(), protocols=AS_SHIPPED.get(stack, {}))
    talk(group)
    group.wait_for_traffic()
    with chaos.corrupt("20%"):
        group.wait_for_traffic(more=60)
    group.stop()
    found = {name: sum(stats(group, name).get(why, 0) for why in refused) for name in group.members}
    (bites,) = group.finish().run.bites_by_pair.values()
    for (_source, dest), struck in bites.items():
        assert struck > 0
        # A batch may carry what the member takes for a frame of somebody else's.
        assert found[dest] == 0 if stack == "tcp" else struck / 2 < found[dest] <= struck
    assert len(bites) == 2


# -- Whoever dies ------------------------------------------------------------------------------

LISTENER = """
import asyncio, sys
from stormcast.chaos.drivers.base import Site
from stormcast.chaos.drivers.nfqueue import NfqueueDriver, open_queue
from stormcast.chaos.drivers.nft import NftDriver
from stormcast.chaos.drivers.running import run_command
from stormcast.chaos.language.network_state import parse_state

async def main():
    netns, address, table, state = sys.argv[1:]
    sites = [Site(name="n1", addresses=(address,), netns=netns)]
    state = parse_state(state)
    await NfqueueDriver(sites, table, run_command, asyncio.get_running_loop()).apply(state, 60.0)
    await NftDriver(sites, table, run_command).apply(state, 60.0)
    print("acts", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_where_the_listener_was_killed_packets_pass_though_they_are_marked(pair: Pair) -> None:
    """Long before the lease ends: by the bypass alone."""
    network = pair.network
    site = next(site for site in network.sites() if site.name == "n1")
    state = NetworkState(
        members=network.names,
        places=network.places(),
        faults={"f1": Rule(does="hold", match=Match(sources=("n0",)))},
    )
    words = (
        sys.executable,
        "-c",
        LISTENER,
        str(site.netns),
        pair.addresses["n1"],
        network.run.table,
        state.to_text(),
    )
    process = subprocess.Popen(
        bound_to_me(words), stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "acts\n"
        held, later = frames(13, 1), frames(14, 5)
        pair.say("n0", held[0])
        time.sleep(0.2)
        assert drained(pair.sockets["n1"]) == []

        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        # What it held is gone with it; what comes now passes.
        assert pair.pass_on(later) == later
        assert f"{DECIDE:#x}" in do(site, "nft", "list", "ruleset")
    finally:
        process.kill()
        process.wait()

    async def tidy(drivers: Drivers) -> None:
        """A new agent of the same run takes over what the killed one left."""
        await drivers.apply(f1=HELD)
        if HAS_IPTABLES:
            assert do(site, "iptables-save", "-t", "mangle").count("-A INPUT") == 1
        else:
            assert do(site, "nft", "list", "ruleset").count("queue flags bypass") == 1

    live(pair, tidy)


def test_what_waits_when_the_last_fault_ends_arrives(pair: Pair) -> None:
    async def script(drivers: Drivers) -> None:
        await drivers.apply(f1=Delay(delay=0.5, **ENDS))
        sent = frames(18, 20)
        for data in sent:
            drivers.pair.say("n0", data)
        await asyncio.sleep(0.1)
        await drivers.apply()
        await asyncio.sleep(0.5 + SILENCE)
        assert drained(drivers.pair.sockets["n1"]) == sent

    live(pair, script)


def test_what_finds_no_room_in_a_queue_passes_and_the_rest_waits(pair: Pair) -> None:
    async def script(drivers: Drivers) -> None:
        await drivers.apply(f1=HOLD_ALL)
        sent = frames(16, 5)
        came = [data for _late, data in await drivers.pass_on(sent)]
        assert came == sent[2:]
        await drivers.queue.release("f1")
        await asyncio.sleep(SILENCE)
        assert drained(drivers.pair.sockets["n1"]) == sent[:2]
        for verb in (drivers.queue.renew(LEASE), drivers.queue.clear()):
            with pytest.raises(DriverError, match="3 packets to n1 passed without the faults"):
                await verb

    live(pair, script, max_waiting=2)


def test_a_driver_that_is_not_heard_for_too_long_tells_that_packets_passed(pair: Pair) -> None:
    """No event loop runs meanwhile, so nobody reads the messages of the kernel."""

    async def script(drivers: Drivers) -> None:
        await drivers.apply(f1=HOLD_ALL)
        head, body = frames(17, 1)[0], bytes(1300)
        count = 2 * RECEIVE_BUFFER // len(body)
        for _ in range(count):
            drivers.pair.say("n0", head + body)
        await drivers.pass_on([head])
        with pytest.raises(DriverError, match="packets to n1 passed without the faults"):
            await drivers.queue.clear()

    live(pair, script)


@pytest.mark.skipif(not HAS_IPTABLES, reason="there is no iptables: nothing of others to keep")
def test_rules_of_others_stay_as_they_are(pair: Pair) -> None:
    site = next(site for site in pair.network.sites() if site.name == "n1")
    do(site, "iptables", "-t", "mangle", "-A", "INPUT", "-p", "icmp", "-j", "ACCEPT")
    before = do(site, "iptables", "-t", "mangle", "-S")

    async def script(drivers: Drivers) -> None:
        await drivers.apply(f1=HELD)
        assert set(before.splitlines()) < set(
            do(site, "iptables", "-t", "mangle", "-S").splitlines()
        )

    try:
        live(pair, script)
        assert do(site, "iptables", "-t", "mangle", "-S") == before
    finally:
        do(site, "iptables", "-t", "mangle", "-D", "INPUT", "-p", "icmp", "-j", "ACCEPT")


def test_a_queue_that_another_program_serves_is_named(pair: Pair) -> None:
    async def script(drivers: Drivers) -> None:
        await drivers.apply(f1=HELD)
        other = Drivers(pair)
        with pytest.raises(DriverError, match="another program serves this queue"):
            await other.apply(f1=HELD)
        await other.queue.clear()

    live(pair, script)


def test_the_driver_finds_that_this_machine_can_do_all_of_it(pair: Pair) -> None:
    async def script(drivers: Drivers) -> None:
        found = await drivers.queue.features()
        assert set(found) == {*FEATURES, "packet-contents"}
        assert set(found.values()) == {None}

    live(pair, script)
