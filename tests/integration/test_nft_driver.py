"""The nft driver on real packets: the kernel does to them what Python says it does."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest

from stormcast.chaos import faults
from stormcast.chaos.drivers.base import CHANCES, DECIDE, NFT, RanOutError, driver_of, inside
from stormcast.chaos.drivers.netlink import inside as within
from stormcast.chaos.drivers.nft import NftDriver
from stormcast.chaos.drivers.running import run_command
from stormcast.chaos.faults import Link, NetworkFault, Rule
from stormcast.chaos.faults.fate import fate_key, jhash_fate, threshold
from stormcast.chaos.language.network_state import NetworkState
from stormcast.node.bound import bound_to_me
from stormcast.node.core import wire
from stormcast.node.core.match import Match, Matcher
from tests.integration.wire_pair import GROUP, Pair, frames

pytestmark = pytest.mark.root

BOTH = ("n0", "n1")
LEASE = 30.0
SEED = 41
Made = TypeVar("Made")


def do(work: Coroutine[Any, Any, Made]) -> Made:
    return asyncio.run(work)


@pytest.fixture(scope="module", params=[False, True], ids=["ipv4", "ipv6"])
def any_pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with Pair(ipv6=request.param) as pair:
        yield pair


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with Pair() as pair:
        yield pair


def driver(pair: Pair) -> NftDriver:
    return NftDriver(pair.network.sites(), pair.network.run.table, run_command)


def state(pair: Pair, base: Link | None = None, **acting: NetworkFault) -> NetworkState:
    return NetworkState(
        members=BOTH,
        places=pair.network.places(),
        base=base or Link(),
        faults=acting,
        seed=SEED,
    )


def ruleset(pair: Pair, name: str) -> str:
    """All rules of a namespace."""
    site = next(site for site in pair.network.sites() if site.name == name)
    return do(run_command(inside(site, ("nft", "list", "ruleset"))))


def loss(rate: float) -> faults.Loss:
    return faults.Loss(sources=("n0",), dests=("n1",), rate=rate)


def is_lost(frame: bytes, fault: str, rate: float) -> bool:
    return jhash_fate(wire.identity(frame), fate_key(SEED, f"{fault}/loss", "n1")) < threshold(rate)


# -- Fates -----------------------------------------------------------------------------------------


def test_kernel_and_python_agree_on_the_fate_of_every_frame(any_pair: Pair) -> None:
    """Two losses and one of the network's own, and four thousand frames: the very same are lost,
    and each is counted for what struck it first."""
    sent = frames(seed=7, count=4000)
    rates = {"network": 0.02, "f1": 0.1, "f2": 0.3}
    wanted = state(
        any_pair, Link(loss=rates["network"]), f1=loss(rates["f1"]), f2=loss(rates["f2"])
    )
    nft = driver(any_pair)
    do(nft.apply(wanted, LEASE))
    try:
        came = any_pair.pass_on(sent)
        bites = do(nft.bites())
    finally:
        do(nft.clear())

    struck = [
        next((fault for fault, rate in rates.items() if is_lost(frame, fault, rate)), None)
        for frame in sent
    ]
    assert sorted(came) == sorted(
        frame for frame, by in zip(sent, struck, strict=True) if by is None
    )
    assert {fault: bites[fault]["n0", "n1"] for fault in rates} == {
        fault: struck.count(fault) for fault in rates
    }
    assert min(struck.count(fault) for fault in rates) > 50


def test_multicasts_meet_the_same_fate_as_unicasts(pair: Pair) -> None:
    sent = frames(seed=8, count=1000)
    nft = driver(pair)
    do(nft.apply(state(pair, f1=loss(0.2)), LEASE))
    try:
        assert sorted(pair.pass_on(sent, dest=GROUP)) == sorted(pair.pass_on(sent))
        assert do(nft.bites())["f1"]["n0", "n1"] == 2 * sum(is_lost(f, "f1", 0.2) for f in sent)
    finally:
        do(nft.clear())


def test_a_large_datagram_is_one_decision(pair: Pair) -> None:
    """Forty fragments each: with one decision per fragment hardly one datagram would come."""
    sent = [frame + bytes(58_000) for frame in frames(seed=9, count=60)]
    nft = driver(pair)
    do(nft.apply(state(pair, f1=loss(0.3)), LEASE))
    try:
        came = [data[:64] for data in pair.pass_on(sent)]
    finally:
        do(nft.clear())
    assert came == [data[:64] for data in sent if not is_lost(data, "f1", 0.3)]


def test_a_loss_of_everything_loses_everything_and_the_other_way_is_open(pair: Pair) -> None:
    nft = driver(pair)
    do(nft.apply(state(pair, f1=loss(1.0)), LEASE))
    try:
        assert not pair.arrives("n0", patience=0.2)
        assert pair.arrives("n1")
        assert do(nft.bites()) == {"f1": {("n0", "n1"): 5}}
    finally:
        do(nft.clear())


@pytest.mark.slow
def test_a_connection_under_loss_is_late_but_whole(any_pair: Pair) -> None:
    """What the kernel sends again meets another fate, so nothing is lost for ever."""
    sites = {site.name: Path(str(site.netns)) for site in any_pair.network.sites()}
    family = socket.AF_INET6 if ":" in any_pair.addresses["n1"] else socket.AF_INET
    nft = driver(any_pair)
    content = bytes(range(256)) * 1200
    everywhere = faults.Loss(sources=BOTH, dests=BOTH, rate=0.15)
    with within(sites["n1"], lambda: socket.socket(family, socket.SOCK_STREAM)) as listening:
        listening.bind(("", 7900))
        listening.listen()
        do(nft.apply(state(any_pair, f1=everywhere), 120.0))
        try:
            # A dozen large segments may all be lucky, but not those of many connections.
            for _connection in range(8):
                with within(
                    sites["n0"], lambda: socket.socket(family, socket.SOCK_STREAM)
                ) as client:
                    client.settimeout(60.0)
                    client.connect((any_pair.addresses["n1"], 7900))
                    server, _peer = listening.accept()
                    with server:
                        client.setblocking(False)
                        server.settimeout(60.0)
                        assert _passed(client, server, content) == content
                bites = do(nft.bites())["f1"]
                if bites.get(("n0", "n1")):
                    break
        finally:
            do(nft.clear())
    assert bites["n0", "n1"] > 0


@pytest.mark.slow
def test_who_accepts_a_connection_is_heard_at_another_try(any_pair: Pair) -> None:
    """Every kernel numbers those packets in its own way, and some do not."""
    sites = {site.name: Path(str(site.netns)) for site in any_pair.network.sites()}
    family = socket.AF_INET6 if ":" in any_pair.addresses["n1"] else socket.AF_INET
    nft = driver(any_pair)
    answers = faults.Loss(sources=("n1",), dests=("n0",), rate=0.3)

    def connecting() -> socket.socket:
        client = within(sites["n0"], lambda: socket.socket(family, socket.SOCK_STREAM))
        client.setblocking(False)
        client.connect_ex((any_pair.addresses["n1"], 7901))
        return client

    with ExitStack() as ends:
        listening = ends.enter_context(
            within(sites["n1"], lambda: socket.socket(family, socket.SOCK_STREAM))
        )
        listening.bind(("", 7901))
        listening.listen(128)
        do(nft.apply(state(any_pair, f1=answers), 120.0))
        try:
            # All answers of a dozen connections may be lucky, but not those of many dozens.
            for _dozen in range(8):
                clients = [ends.enter_context(connecting()) for _ in range(12)]
                waiting, until = set(clients), time.monotonic() + 60.0
                while waiting and time.monotonic() < until:
                    _, ready, _ = select.select([], list(waiting), [], 1.0)
                    assert all(
                        not one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) for one in ready
                    )
                    waiting -= set(ready)
                bites = do(nft.bites())["f1"]
                if waiting or bites.get(("n1", "n0")):
                    break
        finally:
            do(nft.clear())
    assert not waiting
    assert bites["n1", "n0"] > 0


def _passed(client: socket.socket, server: socket.socket, content: bytes) -> bytes:
    left, got = memoryview(content), b""
    while len(got) < len(content):
        if left:
            try:
                left = left[client.send(left) :]
            except BlockingIOError:
                got += server.recv(65536)
        else:
            got += server.recv(65536)
    return got


# -- Rules -----------------------------------------------------------------------------------------

RULES = {
    "kind": Match(kinds=("ACK", "HEARTBEAT")),
    "protocol": Match(protocols=("NAKACK2",), kinds=("DATA",)),
    "first transmissions": Match(transmission=(0, 0)),
    "repeats": Match(kinds=("DATA",), transmission=(1, 255)),
    "one seqno": Match(seqno=(5, 5)),
    "seqnos of control frames": Match(kinds=("ACK",), seqno=(3, 20)),
    "from zero": Match(seqno=(0, 4)),
    "flags": Match(flags=("OOB", "FIRST")),
    "everything at once": Match(
        protocols=("UNICAST3", "MCAST"),
        kinds=("DATA",),
        seqno=(10, 30),
        transmission=(0, 1),
        flags=("OOB",),
    ),
}


def takes(rule: Rule, frame: bytes) -> bool:
    """What the simulator says."""
    return Matcher(rule.match).takes(wire.read_preamble(frame))


@pytest.mark.parametrize("match", RULES.values(), ids=RULES)
def test_a_rule_drops_the_frames_that_the_simulator_would_drop(pair: Pair, match: Match) -> None:
    """A batch that only reaches into the range of seqnos is not dropped but marked, for nfqueue to
    tell; nobody listens here, so it passes."""
    rule = Rule(match=match)
    assert driver_of(rule) == NFT
    sent = frames(seed=10, count=800)
    nft = driver(pair)
    do(nft.apply(state(pair, f1=rule), LEASE))
    try:
        came = pair.pass_on(sent)
        bites = do(nft.bites())["f1"]
    finally:
        do(nft.clear())

    def begins_inside(frame: bytes) -> bool:
        lo = wire.HEAD_STRUCT.unpack(frame)[wire.Head._fields.index("lo")]
        return match.seqno is None or match.seqno[0] <= lo <= match.seqno[1]

    taken = [frame for frame in sent if takes(rule, frame)]
    dropped = [frame for frame in taken if begins_inside(frame)]
    assert sorted(came) == sorted(set(sent) - set(dropped))
    assert bites["n0", "n1"] == len(dropped) > 0


QUEUED: dict[str, tuple[NetworkFault, int, Match]] = {
    "a rule that does not drop": (
        Rule(does="hold", match=Match(kinds=("ACK",))),
        DECIDE,
        Match(kinds=("ACK",)),
    ),
    "a rule that counts": (
        Rule(match=Match(kinds=("ACK",), occurrence=(2, 2))),
        DECIDE,
        Match(kinds=("ACK",)),
    ),
    "a rule that ends": (Rule(match=Match(flags=("OOB",)), times=3), DECIDE, Match(flags=("OOB",))),
    "all data, where connections are told": (
        Rule(match=Match(kinds=("DATA",), connection=2)),
        DECIDE,
        Match(kinds=("DATA",)),
    ),
    "a delay": (faults.Delay(sources=BOTH, dests=BOTH, delay=0.1), CHANCES, Match()),
    "a loss with a memory": (faults.NthLoss(sources=BOTH, dests=BOTH, nth=3), CHANCES, Match()),
}


@pytest.mark.parametrize(("fault", "mark", "match"), QUEUED.values(), ids=QUEUED)
def test_what_nfqueue_is_to_decide_is_marked_and_passes_where_nobody_listens(
    pair: Pair, fault: NetworkFault, mark: int, match: Match
) -> None:
    site = pair.network.sites()[1]
    nft, sent = driver(pair), frames(seed=11, count=300)
    counting = (
        "table inet looker {\n chain input {\n  type filter hook input priority -100;\n"
        f"  meta mark {mark:#x} counter\n }}\n}}\n"
    )
    do(nft.apply(state(pair, f1=fault), LEASE))
    do(run_command(inside(site, ("nft", "-f", "-")), counting))
    try:
        assert sorted(pair.pass_on(sent)) == sorted(sent)
        listed = do(run_command(inside(site, ("nft", "-j", "list", "table", "inet", "looker"))))
    finally:
        do(run_command(inside(site, ("nft", "delete", "table", "inet", "looker"))))
        do(nft.clear())
    [counter] = [
        part["counter"]["packets"]
        for item in json.loads(listed)["nftables"]
        for part in item.get("rule", {}).get("expr", ())
        if "counter" in part
    ]
    # The END has a chance, too, but no preamble.
    expected = sum(takes(Rule(match=match), frame) for frame in sent) + (mark == CHANCES)
    assert counter == expected > 0


def test_a_cut_off_member_is_not_heard_and_each_fault_is_counted(pair: Pair) -> None:
    nft = driver(pair)
    cut = faults.Cut(sources=("n0",), dests=("n1",))
    do(nft.apply(state(pair, f1=cut, f2=loss(0.5), f3=cut), LEASE))
    try:
        assert not pair.arrives("n0", patience=0.2)
        assert pair.arrives("n1")
        assert do(nft.bites()) == {"f1": {("n0", "n1"): 5}, "f3": {("n0", "n1"): 5}}
    finally:
        do(nft.clear())


# -- Swaps -----------------------------------------------------------------------------------------

_FLOOD = """
import socket, sys
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    out.sendto(b"flood", (sys.argv[1], 7800))
"""


@pytest.mark.slow
def test_a_swap_under_load_lets_nothing_through_that_both_states_forbid(pair: Pair) -> None:
    """Two states by turns, a hundred times, each renewed at once: n1 hears nothing, and not one
    datagram is missing in the counts."""
    nft = driver(pair)
    cut = faults.Cut(sources=("n0",), dests=("n1",))
    apart = faults.Partition(groups=(("n0",), ("n1",)))
    do(nft.apply(state(pair, f1=cut), LEASE))
    assert not pair.arrives("n0", patience=0.1)
    words = pair.network.inside("n0", (sys.executable, "-c", _FLOOD, pair.addresses["n1"]))
    flood = subprocess.Popen(bound_to_me(words))
    try:
        for _turn in range(50):
            do(nft.apply(state(pair, f2=apart), LEASE))
            do(nft.renew(LEASE))
            do(nft.apply(state(pair, f1=cut, f3=loss(0.1)), LEASE))
            do(nft.renew(LEASE))
        flood.kill()
        flood.wait()
        first = do(nft.bites())
        assert not pair.arrives("n0", patience=0.1)
        second = do(nft.bites())
    finally:
        flood.kill()
        flood.wait()
        do(nft.clear())
    assert first["f1"]["n0", "n1"] > 1000
    assert first["f2"]["n0", "n1"] > 1000
    assert second["f1"]["n0", "n1"] == first["f1"]["n0", "n1"] + 5
    assert second["f2"] == first["f2"], "the other state is over, and its count is kept"
    assert do(nft.bites()) == second, "what is cleared is still known"


def test_rules_of_others_stay_as_they_are(pair: Pair) -> None:
    site = pair.network.sites()[1]
    theirs = (
        "table inet theirs {\n set known { type ipv4_addr; elements = { 192.0.2.7 }; }\n"
        " chain input { type filter hook input priority 0; ip saddr @known counter drop; }\n}\n"
        "table ip filter {\n chain INPUT { type filter hook input priority 0; }\n}\n"
    )
    do(run_command(inside(site, ("nft", "-f", "-")), theirs))
    before = ruleset(pair, "n1")
    nft = driver(pair)
    try:
        assert set(do(nft.features()).values()) == {None}
        assert ruleset(pair, "n1") == before
        do(nft.apply(state(pair, f1=loss(1.0)), LEASE))
        assert before.strip() in ruleset(pair, "n1")
        do(nft.renew(LEASE))
        do(nft.sweep())
        assert ruleset(pair, "n1") == before
        do(nft.clear())
        assert ruleset(pair, "n1") == before
    finally:
        do(run_command(inside(site, ("nft", "-f", "-")), "flush ruleset\n"))


def test_a_state_without_faults_leaves_no_rule_and_makes_no_table(pair: Pair) -> None:
    nft = driver(pair)
    do(nft.apply(state(pair, f1=loss(0.5)), LEASE))
    do(nft.apply(state(pair), LEASE))
    do(nft.renew(LEASE))
    assert ruleset(pair, "n0") == ""
    assert not any(word in ruleset(pair, "n1") for word in ("meta mark", "elements", "drop"))
    do(nft.clear())
    assert ruleset(pair, "n1") == ""


def test_a_lease_that_nobody_renews_ends_in_the_kernel_and_one_that_is_renewed_does_not(
    pair: Pair,
) -> None:
    """No process is there between the calls: the kernel alone keeps the time."""
    nft = driver(pair)
    try:
        do(nft.apply(state(pair, f1=loss(1.0)), 0.6))
        for _turn in range(6):
            time.sleep(0.2)
            do(nft.renew(0.6))
            assert not pair.arrives("n0", patience=0.05)
        ended = time.monotonic() + 0.6
        time.sleep(max(0.0, ended + 1.0 - time.monotonic()))
        assert pair.arrives("n0")
    finally:
        do(nft.clear())


def test_a_renewal_that_reaches_the_kernel_too_late_is_an_error(pair: Pair) -> None:
    """It was asked for in time."""
    before: list[float] = [0.0, 1.5]
    """Seconds before the first commands are run."""
    passed: list[bool] = []

    async def late(argv: Sequence[str], stdin: str) -> str:
        if before and (seconds := before.pop(0)):
            await asyncio.sleep(seconds)
            passed.append(pair.arrives("n0"))
        return await run_command(argv, stdin)

    nft = NftDriver(pair.network.sites()[1:], pair.network.run.table, late)
    try:
        do(nft.apply(state(pair, f1=loss(1.0)), 1.0))
        with pytest.raises(RanOutError):
            do(nft.renew(1.0))
        assert passed == [True]
    finally:
        do(nft.clear())


def test_a_shorter_lease_is_not_outlived_by_a_longer_one_before(pair: Pair) -> None:
    nft = driver(pair)
    try:
        do(nft.apply(state(pair, f1=loss(1.0)), 60.0))
        do(nft.renew(60.0))
        do(nft.apply(state(pair, f1=loss(1.0)), 0.3))
        time.sleep(1.3)
        assert pair.arrives("n0")
    finally:
        do(nft.clear())
