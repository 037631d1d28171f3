"""The tc driver on real packets: one link is narrow, for as long as the lease lasts."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from stormcast.chaos.drivers.base import DriverError, inside
from stormcast.chaos.drivers.nft import NftDriver
from stormcast.chaos.drivers.running import run_command
from stormcast.chaos.drivers.tc import TcDriver
from stormcast.chaos.faults import Bandwidth, Cut, NetworkFault
from stormcast.chaos.language.network_state import NetworkState
from tests.integration.wire_pair import GROUP, Pair, drained

pytestmark = [pytest.mark.root, pytest.mark.slow]

RATE = 50_000.0
DATAGRAM = bytes(958)
"""With all headers below IP, as the qdisc counts them, a thousand bytes."""
SECONDS = 1.5


@pytest.fixture(scope="module", params=[False, True], ids=["ipv4", "ipv6"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with Pair(ipv6=request.param) as pair:
        yield pair


def qdiscs(pair: Pair) -> list[str]:
    """What stands at the roots of the devices."""
    found = []
    for site in pair.network.sites():
        words = inside(site, ("tc", "-j", "qdisc", "show", "dev", site.device))
        said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        found += [qdisc["kind"] for qdisc in json.loads(said) if qdisc.get("root")]
    return found


async def received(pair: Pair, source: str, dest: str = "", seconds: float = SECONDS) -> int:
    """Datagrams that arrive while four times as many are sent as a narrow link takes."""
    other = pair.sockets["n1" if source == "n0" else "n0"]
    drained(other)
    count, loop = 0, asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        for _ in range(2):
            pair.say(source, DATAGRAM, dest)
        await asyncio.sleep(0.01)
        count += len(drained(other))
    return count


def test_a_link_is_narrow_one_way_for_unicasts_and_multicasts_until_nobody_renews(
    pair: Pair,
) -> None:
    async def script() -> None:
        network = pair.network
        narrow: dict[str, NetworkFault] = {
            "f1": Bandwidth(sources=("n0",), dests=("n1",), rate=RATE)
        }
        state = NetworkState(members=network.names, places=network.places(), faults=narrow)
        tc = TcDriver(network.sites(), network.run.table, run_command)
        nft = NftDriver(network.sites(), network.run.table, run_command)
        most = RATE / 1000 * (SECONDS + 0.25) * 1.2
        try:
            await tc.apply(state, 30.0)
            await nft.apply(state, 30.0)
            assert 20 < await received(pair, "n0") < most
            assert (await tc.bites())["f1"]["n0", "n1"] > 20
            assert await received(pair, "n1") > most
            if ":" not in pair.addresses["n0"]:
                assert await received(pair, "n0", GROUP) < most
            await nft.renew(0.2)
            await asyncio.sleep(0.5)
            assert await received(pair, "n0") > most
        finally:
            await nft.clear()
            await tc.clear()
        assert set(await tc.bites()) == {"f1"}

    before = qdiscs(pair)
    asyncio.run(script())
    assert qdiscs(pair) == before == ["noqueue", "noqueue"]


def test_what_is_cut_takes_nothing_of_a_narrow_link(pair: Pair) -> None:
    """In the simulator, too, a cut comes before a limit, which then has no effect."""

    async def script() -> None:
        network = pair.network
        narrow: dict[str, NetworkFault] = {
            "f1": Bandwidth(sources=("n0",), dests=("n1",), rate=RATE)
        }
        cut: dict[str, NetworkFault] = {"f2": Cut(sources=("n0",), dests=("n1",))}
        state = NetworkState(members=network.names, places=network.places(), faults=narrow | cut)
        tc = TcDriver(network.sites(), network.run.table, run_command)
        nft = NftDriver(network.sites(), network.run.table, run_command)
        try:
            await tc.apply(state, 30.0)
            await nft.apply(state, 30.0)
            assert await received(pair, "n0", seconds=0.5) == 0
            assert (await nft.bites())["f2"]["n0", "n1"] > 20
            assert not (await tc.bites()).get("f1")
            await nft.apply(replace(state, faults=narrow), 30.0)
            assert await received(pair, "n0", seconds=0.5) > 0
            assert (await tc.bites())["f1"]["n0", "n1"] > 0
        finally:
            await nft.clear()
            await tc.clear()

    asyncio.run(script())


def test_a_limit_that_has_ended_makes_nothing_wait_while_another_one_acts(pair: Pair) -> None:
    """It ends in the step in which the other one begins, long before the next renewal."""

    async def script() -> None:
        network = pair.network
        # To a member that is not there, so that the second limit is in nobody's way.
        names, places = (*network.names, "n2"), {"n2": ("198.18.0.9", "fd00:5c::9")}
        limits = {
            dest: Bandwidth(sources=("n0",), dests=(dest,), rate=RATE / 5) for dest in ("n1", "n2")
        }
        state = NetworkState(members=names, places=network.places() | places)
        tc = TcDriver(network.sites(), network.run.table, run_command)
        nft = NftDriver(network.sites(), network.run.table, run_command)
        try:
            for acting in ({"f1": limits["n1"]}, {"f2": limits["n2"]}):
                await tc.apply(replace(state, faults=acting), 30.0)
                await nft.apply(replace(state, faults=acting), 30.0)
                await received(pair, "n0", seconds=0.2)
            await asyncio.sleep(0.3)
            before = await tc.bites()
            assert before["f1"]["n0", "n1"] > 5
            assert await received(pair, "n0", seconds=0.5) > RATE / 1000 * 0.5
            assert (await tc.bites())["f1"] == before["f1"]
        finally:
            await nft.clear()
            await tc.clear()

    asyncio.run(script())


def test_the_driver_finds_that_this_machine_has_what_it_takes(pair: Pair) -> None:
    tc = TcDriver(pair.network.sites(), pair.network.run.table, run_command)
    assert asyncio.run(tc.features())["bandwidth"] is None
    assert qdiscs(pair) == ["noqueue", "noqueue"]


def test_a_kernel_without_the_filter_leaves_no_qdisc_on_a_device(pair: Pair) -> None:
    async def lacking(argv: Sequence[str], stdin: str) -> str:
        return await run_command(argv, stdin.replace("bpf bytecode", "no-such-filter"))

    async def script() -> None:
        network = pair.network
        tc = TcDriver(network.sites(), network.run.table, lacking)
        assert "no-such-filter" in str((await tc.features())["bandwidth"])
        limit = Bandwidth(sources=("n0",), dests=("n1",), rate=RATE)
        state = NetworkState(members=network.names, places=network.places(), faults={"f1": limit})
        with pytest.raises(DriverError):
            await tc.apply(state, 30.0)
        await tc.clear()

    asyncio.run(script())
    assert qdiscs(pair) == ["noqueue", "noqueue"]


def test_of_a_large_write_the_packets_pass_that_the_queue_has_room_for(pair: Pair) -> None:
    """As from a network; whole it would never pass, however often it is repeated."""

    async def script() -> int:
        network = pair.network
        narrow: dict[str, NetworkFault] = {
            "f1": Bandwidth(sources=("n0",), dests=("n1",), rate=10_000.0)
        }
        state = NetworkState(members=network.names, places=network.places(), faults=narrow)
        tc = TcDriver(network.sites(), network.run.table, run_command)
        nft = NftDriver(network.sites(), network.run.table, run_command)
        try:
            await tc.apply(state, 30.0)
            await nft.apply(state, 30.0)
            drained(pair.sockets["n1"])
            pair.say_in_one_write("n0", [DATAGRAM] * 12)
            await asyncio.sleep(1.0)
            return len(drained(pair.sockets["n1"]))
        finally:
            await nft.clear()
            await tc.clear()

    assert 3 <= asyncio.run(script()) <= 6
