"""Delays by the kernel itself, where it has netem: the queues of tc, and the marks that lead there.

Many kernels have none; `make test-guest` runs this in a guest whose kernel has.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from statistics import median

import pytest

from stormcast.chaos.drivers import tc as tc_module
from stormcast.chaos.drivers.base import CLASS, DriverError, inside
from stormcast.chaos.drivers.nft import NftDriver
from stormcast.chaos.drivers.running import run_command
from stormcast.chaos.drivers.tc import TcDriver
from stormcast.chaos.faults import Bandwidth, Delay, NetworkFault
from stormcast.chaos.language.network_state import NetworkState
from tests.integration.wire_pair import GROUP, Pair, drained

pytestmark = [pytest.mark.root, pytest.mark.slow]

DELAY = 0.4
LATE = Delay(sources=("n0",), dests=("n1",), delay=DELAY)
NARROW = Bandwidth(sources=("n0",), dests=("n1",), rate=50_000.0)
UNMARKED = 0
TO_N1 = CLASS + 3
"""Of three members n0 n1 …, what n0 sends to n1; the first number is multicasts'."""
TO_ALL = CLASS + 1
SLACK = 0.35
"""Seconds by which a busy or an emulated machine may be late by itself."""


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with Pair() as pair:
        tc = TcDriver(pair.network.sites(), pair.network.run.table, run_command)
        found = asyncio.run(tc.features())
        if found["netem"] is not None:
            pytest.skip(str(found["netem"]))
        yield pair


@pytest.fixture
def tc(pair: Pair) -> Iterator[TcDriver]:
    driver = TcDriver(pair.network.sites(), pair.network.run.table, run_command)
    yield driver
    asyncio.run(driver.clear())
    assert roots(pair) == ["noqueue", "noqueue"]


def state(pair: Pair, **acting: NetworkFault) -> NetworkState:
    return NetworkState(
        members=pair.network.names, places=pair.network.places(), faults=acting, netem=True
    )


def roots(pair: Pair) -> list[str]:
    found = []
    for site in pair.network.sites():
        words = inside(site, ("tc", "-j", "qdisc", "show", "dev", site.device))
        said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        found += [qdisc["kind"] for qdisc in json.loads(said) if qdisc.get("root")]
    return found


def mark(pair: Pair, value: int) -> None:
    """What nft does to packets of n0."""
    pair.sockets["n0"].setsockopt(socket.SOL_SOCKET, socket.SO_MARK, value)


def travel(pair: Pair, source: str = "n0", dest: str = "", size: int = 100) -> float | None:
    """Seconds that a datagram takes to the other end; None: it is lost."""
    other = pair.sockets["n1" if source == "n0" else "n0"]
    drained(other)
    word = b"%d" % time.monotonic_ns()
    begun = time.monotonic()
    pair.say(source, word.ljust(size), dest)
    while time.monotonic() < begun + 5 * DELAY:
        if any(data.startswith(word) for data in drained(other)):
            return time.monotonic() - begun
        time.sleep(0.002)
    return None


def usual(pair: Pair, source: str = "n0", dest: str = "") -> float:
    took = [travel(pair, source, dest) for _ in range(3)]
    assert None not in took
    return median(each for each in took if each is not None)


def test_what_is_marked_is_late_and_nothing_else(pair: Pair, tc: TcDriver) -> None:
    asyncio.run(tc.apply(state(pair, f1=LATE), 30.0))
    for value, to, late in ((TO_N1, "", DELAY), (TO_ALL, GROUP, DELAY), (UNMARKED, "", 0.0)):
        mark(pair, value)
        assert late <= usual(pair, dest=to) < late + SLACK
    assert usual(pair, "n1") < SLACK
    # Three to one, three to all, and the kernel's own ones have no mark.
    assert asyncio.run(tc.bites()) == {"f1": {("n0", "n1"): 6}}


def test_delays_add_up_and_change_without_losing_what_waits(pair: Pair, tc: TcDriver) -> None:
    async def script() -> None:
        mark(pair, TO_N1)
        await tc.apply(state(pair, f1=LATE), 30.0)
        other = pair.sockets["n1"]
        drained(other)
        pair.say("n0", b"waits")
        await tc.apply(state(pair, f1=LATE, f2=LATE), 30.0)
        await asyncio.sleep(DELAY + SLACK)
        assert drained(other) == [b"waits"]
        assert 2 * DELAY <= usual(pair) < 2 * DELAY + SLACK
        await tc.apply(state(pair, f2=LATE), 30.0)
        assert DELAY <= usual(pair) < DELAY + SLACK
        bites = await tc.bites()
        assert bites["f1"]["n0", "n1"] == 1 + 3
        # What waited is counted when it goes, for all that act then.
        assert bites["f2"]["n0", "n1"] in (3 + 3, 1 + 3 + 3)

    asyncio.run(script())


def test_a_link_is_late_and_narrow_at_once(pair: Pair, tc: TcDriver) -> None:
    async def script() -> None:
        mark(pair, TO_N1)
        await tc.apply(state(pair, f1=LATE, f2=NARROW), 30.0)
        other = pair.sockets["n1"]
        drained(other)
        begun = time.monotonic()
        for _ in range(60):
            pair.say("n0", bytes(958))
        came: list[bytes] = []
        first = None
        while time.monotonic() < begun + DELAY + 0.6:
            came += drained(other)
            first = first or (time.monotonic() if came else None)
            await asyncio.sleep(0.005)
        assert first is not None
        assert first - begun >= DELAY
        # A quarter of a second's worth of them finds room, of a thousand bytes each.
        assert 10 <= len(came) <= 25
        bites = await tc.bites()
        assert bites["f1"]["n0", "n1"] >= len(came)
        assert bites["f2"]["n0", "n1"] > 0

    asyncio.run(script())


def test_what_is_late_still_arrives_when_all_is_cleared(pair: Pair, tc: TcDriver) -> None:
    async def script() -> None:
        mark(pair, TO_N1)
        await tc.apply(state(pair, f1=LATE), 30.0)
        other = pair.sockets["n1"]
        drained(other)
        for number in range(100):
            pair.say("n0", b"%d" % number)
        await tc.clear()
        assert roots(pair) == ["noqueue", "noqueue"]
        await asyncio.sleep(SLACK)
        assert drained(other) == [b"%d" % number for number in range(100)]

    asyncio.run(script())


def test_a_lease_of_marks_ends_a_delay(pair: Pair, tc: TcDriver) -> None:
    nft = NftDriver(pair.network.sites(), pair.network.run.table, run_command)
    if why := asyncio.run(nft.features())["partition"]:
        pytest.skip(why)

    async def script() -> None:
        mark(pair, UNMARKED)
        late = state(pair, f1=LATE)
        try:
            await tc.apply(late, 1.0)
            await nft.apply(late, 1.0)
            assert DELAY <= (travel(pair) or 0.0) < DELAY + SLACK
            assert DELAY <= (travel(pair, dest=GROUP) or 0.0) < DELAY + SLACK
            assert (travel(pair, "n1") or 1.0) < SLACK
            await asyncio.sleep(1.5)
            assert usual(pair) < SLACK
        finally:
            await nft.clear()

    asyncio.run(script())


def test_a_large_write_is_late_and_its_packets_pass_that_the_queue_has_room_for(
    pair: Pair, tc: TcDriver
) -> None:
    very_narrow = Bandwidth(sources=("n0",), dests=("n1",), rate=10_000.0)
    asyncio.run(tc.apply(state(pair, f1=LATE, f2=very_narrow), 30.0))
    mark(pair, TO_N1)
    other = pair.sockets["n1"]
    drained(other)
    begun = time.monotonic()
    pair.say_in_one_write("n0", [bytes(958)] * 12)
    while time.monotonic() < begun + DELAY / 2:
        assert not drained(other)
        time.sleep(0.01)
    time.sleep(DELAY + SLACK + 0.5)
    assert 3 <= len(drained(other)) <= 6


@pytest.mark.parametrize("is_narrow", [False, True])
def test_only_what_netem_itself_drops_ends_a_run(
    pair: Pair, tc: TcDriver, monkeypatch: pytest.MonkeyPatch, *, is_narrow: bool
) -> None:
    """What a narrow link drops, it is to drop."""
    if not is_narrow:
        monkeypatch.setattr(tc_module, "LATE_PACKETS", 10)
    fault = Bandwidth(sources=("n0",), dests=("n1",), rate=3000.0) if is_narrow else LATE
    asyncio.run(tc.apply(state(pair, f1=fault), 3.0))
    mark(pair, TO_N1)
    for _ in range(40):
        pair.say("n0", bytes(1000))
    mark(pair, UNMARKED)
    time.sleep(3.0)
    if is_narrow:
        assert asyncio.run(tc.bites())["f1"]
    else:
        with pytest.raises(DriverError, match="30 packets of n0 were lost"):
            asyncio.run(tc.clear())
