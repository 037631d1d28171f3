"""What the nft driver would tell the kernel, read without telling it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from stormcast.chaos import faults
from stormcast.chaos.drivers.base import (
    ALIVE,
    CHANCES,
    CLASS,
    DECIDE,
    DONE,
    MULTICAST,
    QUEUED_MASK,
    DriverError,
    RanOutError,
    Site,
    classes,
    driver_of,
    inside,
    slow_for_multicasts,
)
from stormcast.chaos.drivers.nft import (
    MAX_COMMENT,
    NftDriver,
    Plan,
    plan,
    read_counters,
    renewal_file,
    table_file,
)
from stormcast.chaos.drivers.selection import IDENTITY, statements
from stormcast.chaos.faults import Link, NetworkFault, Rule
from stormcast.chaos.faults.fate import fate_key
from stormcast.chaos.language.network_state import PACKETS, NetworkState
from stormcast.node.core import wire
from stormcast.node.core.match import Match

NAMES = ("n0", "n1", "n2")
PLACES = {
    name: (f"198.18.0.{number}", f"fd00:5c::{number}") for number, name in enumerate(NAMES, 2)
}
CUT = faults.Cut(sources=("n0",), dests=("n1",))


def state(base: Link | None = None, **acting: NetworkFault) -> NetworkState:
    return NetworkState(members=NAMES, places=PLACES, base=base or Link(), faults=acting, seed=5)


def site(name: str = "n1") -> Site:
    return Site(name=name, addresses=PLACES[name], netns="/proc/self/ns/net")


def file(wanted: Plan, lease: float = 3.0) -> list[str]:
    counters = {pair: f"c{number}" for number, pair in enumerate(dict.fromkeys(wanted.pairs()))}
    return table_file("sc1", wanted, counters, lease).splitlines()


def written(source: str = "n0", dest: str = "n1", **acting: NetworkFault) -> list[tuple[str, str]]:
    """Conditions and verdicts for packets of one member at another."""
    return [(each.condition, each.verdict) for each in statements(state(**acting), dest, source)]


# -- Marks -----------------------------------------------------------------------------------------


def test_the_queue_takes_both_of_its_marks_and_no_other() -> None:
    taken = [
        mark
        for mark in (0, ALIVE, DECIDE, CHANCES, DONE, CLASS, CLASS + 1)
        if mark & QUEUED_MASK == DECIDE
    ]
    assert taken == [DECIDE, CHANCES]


# -- The preamble ----------------------------------------------------------------------------------


def test_the_key_of_the_dice_is_made_of_the_fields_that_make_a_frame_that_frame() -> None:
    """Kind to flags, source, connection and seqno: 32, 32 and 96 bits behind a UDP header."""
    offsets = [(int(at) - 64) // 8 for at in re.findall(r"@th,(\d+),", IDENTITY)]
    assert offsets == [wire.OFFSETS["kind"], wire.OFFSETS["source"], wire.OFFSETS["conn"]]
    assert [int(bits) for bits in re.findall(r",(\d+)(?: |$)", IDENTITY)] == [32, 32, 96]


def test_nothing_is_read_beyond_the_preamble_of_a_datagram() -> None:
    match = Match(
        protocols=("UNICAST3",), kinds=("DATA",), seqno=(5, 9), transmission=(0, 1), flags=("OOB",)
    )
    told = written(f1=Rule(match=match), f2=faults.Loss(sources=NAMES, dests=NAMES, rate=0.1))
    for condition, _verdict in told:
        for at, bits in re.findall(r"@th,(\d+),(\d+)", condition) if "udp" in condition else ():
            assert int(at) + int(bits) <= 64 + 8 * wire.PREAMBLE_SIZE


# -- What becomes of packets -----------------------------------------------------------------------


def test_who_is_cut_off_twice_is_counted_twice_and_dropped_once() -> None:
    whole = faults.Partition(groups=(("n0",), ("n1", "n2")))
    loss = faults.Loss(sources=NAMES, dests=NAMES, rate=0.5)
    chain = statements(state(f1=loss, f2=CUT, f3=whole), "n1", "n0")
    assert [(each.fault, each.verdict) for each in chain] == [("f2", ""), ("f3", "drop")]


def test_a_one_way_cut_does_nothing_the_other_way() -> None:
    assert written("n0", "n1", f1=CUT) == [("", "drop")]
    assert written("n1", "n0", f1=CUT) == []


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (0.5, f"mod {2**32 - 1} seed SEED <= {2**31 - 2}"),
        (0.25, f"mod {2**32 - 1} seed SEED <= {2**30 - 2}"),
        (1 - 2**-33, ""),
        (1.0, ""),
    ],
)
def test_a_share_is_a_bound_of_the_kernels_scaled_hash(rate: float, expected: str) -> None:
    """A hash of h comes out as h - 1, so h < T is h - 1 <= T - 2; and all is all."""
    seed = f"{fate_key(5, 'f1/loss', 'n1') & 0xFFFFFFFF:#x}"
    told = written(f1=faults.Loss(sources=NAMES, dests=NAMES, rate=rate))
    if expected:
        assert len(told) == 4, "datagrams; segments over IPv4, of them those that accept; and IPv6"
        assert all(cond.endswith(expected.replace("SEED", seed)) for cond, _verdict in told)
    else:
        assert told == [("meta l4proto { tcp, udp }", "drop")]


def test_a_loss_of_nothing_is_none() -> None:
    assert written(f1=faults.Loss(sources=NAMES, dests=NAMES, rate=0.0)) == []
    assert written(f1=faults.Loss(sources=NAMES, dests=NAMES, rate=2**-40)) == []


def test_packets_of_others_are_thrown_for_anew_each_time() -> None:
    acting = state(f1=faults.Loss(sources=NAMES, dests=NAMES, rate=0.5))
    frames = [each.condition for each in statements(acting, "n1", "n0")]
    found = statements(replace(acting, dice=PACKETS), "n1", "n0")
    conditions = [each.condition for each in found]
    assert conditions[0].startswith("meta l4proto udp numgen random mod ")
    assert conditions[0].rpartition("<= ")[2] == frames[0].rpartition("<= ")[2]
    assert conditions[1:] == frames[1:], "segments of TCP differ from their repeats anyway"
    assert {each.fault for each in found} == {"f1"}


def test_the_order_is_cuts_then_rules_by_age_then_losses_then_other_chances() -> None:
    acks, data = Match(kinds=("ACK",)), Match(kinds=("DATA",))
    chain = statements(
        state(
            Link(loss=0.1),
            f1=faults.Delay(sources=NAMES, dests=NAMES, delay=0.1),
            f2=faults.Loss(sources=NAMES, dests=NAMES, rate=0.2),
            f3=Rule(match=data),
            f4=Rule(does="hold", match=acks),
        ),
        "n1",
        "n0",
    )
    found = [(each.fault, each.verdict) for each in chain]
    decide, chances = (f"meta mark set {mark:#x} accept" for mark in (DECIDE, CHANCES))
    lost = [("network", "drop")] * 4 + [("f2", "drop")] * 4
    assert found == [("f3", "drop"), (None, decide), *lost, (None, chances)]


def test_a_rule_that_names_seqnos_hands_on_batches_that_may_reach_into_them() -> None:
    _inside, (condition, verdict) = written(f1=Rule(match=Match(seqno=(70_000, 70_001))))
    assert verdict == f"meta mark set {DECIDE:#x} accept"
    assert condition.endswith(
        f"@th,96,8 {wire.DATA:#x} @th,80,16 0x2-0xffff @th,256,64 {70_000 - 65_534:#x}-0x1116f"
    )


@pytest.mark.parametrize(
    "match", [Match(seqno=(0, 3)), Match(seqno=(5, 9), kinds=("ACK",))], ids=["from 0", "acks"]
)
def test_nothing_reaches_into_a_range_that_begins_with_all_or_is_not_of_data(match: Match) -> None:
    assert len(written(f1=Rule(match=match))) == 1


def test_where_connections_are_told_all_data_between_the_two_is_looked_at() -> None:
    """Also that of the other direction: an ack speaks of what it acks."""
    rule = Rule(match=Match(kinds=("ACK",), connection=2, sources=("n0",), dests=("n1",)))
    (told, verdict), (_ack, _verdict) = written("n0", "n1", f1=rule)
    assert f"@th,96,8 {wire.DATA:#x}" in told
    assert verdict == f"meta mark set {DECIDE:#x} accept"
    assert written("n1", "n0", f1=rule) == [(told, verdict)]
    assert written("n2", "n0", f1=rule) == []


def test_a_rule_acts_only_between_those_it_names() -> None:
    rule = Rule(match=Match(kinds=("ACK",), sources=("n2",), dests=("n1",)))
    assert [len(written(source, "n1", f1=rule)) for source in ("n0", "n2")] == [0, 1]


@pytest.mark.parametrize(
    "fault",
    [
        Rule(match=Match(occurrence=(1, 2))),
        Rule(match=Match(connection=1)),
        Rule(times=1),
        Rule(does="delay", delay=1.0),
        faults.NthLoss(sources=NAMES, dests=NAMES, nth=2),
        faults.GilbertElliott(sources=NAMES, dests=NAMES, p_bad=0.1, p_good=0.1),
    ],
)
def test_what_has_a_memory_or_does_more_than_drop_is_not_for_nft(fault: NetworkFault) -> None:
    assert driver_of(fault) == "nfqueue"


# -- The file --------------------------------------------------------------------------------------


def test_every_line_speaks_of_the_table_of_the_run_and_of_no_other() -> None:
    wanted = plan(state(f1=CUT, f2=faults.Bandwidth(sources=NAMES, dests=NAMES, rate=1e5)), site())
    assert all(re.search(r"^(add|flush) \w+ inet sc1( |$)", line) for line in file(wanted))


def test_nothing_in_a_name_ends_a_comment_or_a_line() -> None:
    """An id is checked where an agent takes it; here it could make tables that outlive a lease."""
    crafted = 'f1" drop\nadd table inet left\n#' + "x" * 200
    lines = file(plan(state(**{crafted: CUT}), site()))
    assert lines == [line for line in lines if re.match(r"(add|flush) \w+ inet sc1( |$)", line)]
    comment = lines[-1].partition("comment ")[2]
    assert comment.startswith('"f1? drop?add table inet left??xxx')
    assert comment.count('"') == 2
    assert len(comment) == MAX_COMMENT + 2


def test_only_members_are_struck_and_only_while_the_lease_lasts() -> None:
    lines = file(plan(state(f1=CUT), site()), lease=0.5)
    elements = [line for line in lines if line.startswith("add element")]
    assert sorted(elements) == [
        f"add element inet sc1 alive{version}_{turn} {{ {place} timeout 500ms : {ALIVE:#x} }}"
        for version, place in ((4, "198.18.0.2"), (6, "fd00:5c::2"))
        for turn in (0, 1)
    ]
    rules = [line.removeprefix("add rule inet sc1 input ") for line in lines if " input " in line]
    assert rules[1:] == [
        f"meta mark {DONE:#x} accept",
        "meta mark set ip saddr map @alive4_0",
        "meta mark set ip saddr map @alive4_1",
        "meta mark set ip6 saddr map @alive6_0",
        "meta mark set ip6 saddr map @alive6_1",
        f"meta mark != {ALIVE:#x} accept",
        "ip saddr vmap { 198.18.0.2 : goto from_0 }",
        "ip6 saddr vmap { fd00:5c::2 : goto from_0 }",
    ]
    assert lines[-1] == 'add rule inet sc1 from_0 counter name c0 drop comment "f1 n0"'


def test_a_new_state_leaves_no_element_of_the_state_before_in_either_map() -> None:
    narrow = faults.Bandwidth(sources=("n1",), dests=("n2",), rate=1e5)
    lines = file(plan(state(f1=narrow), site()))
    for version, place in ((4, "198.18.0.4"), (6, "fd00:5c::4")):
        for turn in (0, 1):
            at = lines.index(f"flush map inet sc1 class{version}_{turn}")
            words = f"add element inet sc1 class{version}_{turn} {{ {place} timeout 3000ms"
            assert lines[at + 1].startswith(words)


def test_a_renewal_touches_the_map_whose_turn_it_is_and_leaves_the_other_alone() -> None:
    text = renewal_file("sc1", plan(state(f1=CUT), site()), 1, 3.0)
    assert set(re.findall(r"inet sc1 (\w+)", text)) == {
        "alive4_1",
        "alive6_1",
        "class4_1",
        "class6_1",
    }
    assert not re.search(r"rule|delete|table", text)


def test_what_goes_to_a_narrow_link_gets_the_class_of_that_link() -> None:
    wanted = plan(state(f1=faults.Bandwidth(sources=("n1",), dests=("n2",), rate=1e5)), site())
    assert wanted.marks == {"198.18.0.4": CLASS + 4, "fd00:5c::4": CLASS + 4}
    lines = file(wanted)
    assert "add rule inet sc1 output meta mark set ip daddr map @class4_0" in lines
    assert not any(" input " in line for line in lines if line.startswith("add rule"))


def test_multicasts_are_narrow_where_every_link_is() -> None:
    narrow = faults.Bandwidth(sources=("n1",), dests=NAMES, rate=1e5)
    narrower = faults.Bandwidth(sources=("n1",), dests=("n2",), rate=5e4)
    found = classes(state(f1=narrow, f2=narrower), "n1")
    assert [(link.dest, link.number, link.rate, link.narrowed_by) for link in found] == [
        ("n0", 2, 1e5, "f1"),
        ("n2", 4, 5e4, "f2"),
        (MULTICAST, 1, 5e4, "f2"),
    ]
    assert plan(state(f1=narrow), site()).marks["224.0.0.0"] == CLASS + 1
    assert classes(state(f1=narrower), "n0") == ()


def test_what_is_cut_takes_nothing_of_a_narrow_link() -> None:
    """As in the simulator, where a cut comes before a limit. It is cut where it comes in."""
    narrow = faults.Bandwidth(sources=("n1",), dests=NAMES, rate=1e5)
    to_n2 = faults.Cut(sources=("n1",), dests=("n2",))
    assert plan(state(f1=narrow, f2=to_n2), site()).marks == {
        place: mark
        for place, mark in plan(state(f1=narrow), site()).marks.items()
        if mark != CLASS + 4
    }
    # The class stays: to remove it would discard packets that wait in it.
    assert classes(state(f1=narrow, f2=to_n2), "n1") == classes(state(f1=narrow), "n1")
    alone = faults.Partition(groups=(("n0", "n2"),))
    assert plan(state(f1=narrow, f2=alone), site()).marks == {}


def test_of_equal_limits_the_first_counts_and_the_networks_own_delay_is_no_fault() -> None:
    """As in the simulator, whatever the faults are called."""
    narrow = faults.Bandwidth(sources=("n1",), dests=("n2",), rate=1e5)
    for base, counts in ((None, "z"), (1e5, faults.BASE)):
        own = Link(bandwidth=base, delay=0.2)
        acting = replace(state(own, z=narrow, a=narrow), netem=True)
        link = next(one for one in classes(acting, "n1") if one.dest == "n2")
        assert (link.narrowed_by, link.delay, link.delayed_by) == (counts, 0.2, ())


def test_multicasts_are_late_where_they_go_out_if_they_are_equally_late_for_all() -> None:
    late = faults.Delay(sources=("n1",), dests=NAMES, delay=0.1)
    later = faults.Delay(sources=("n1",), dests=("n2",), delay=0.1)
    narrow = faults.Bandwidth(sources=("n1",), dests=("n2",), rate=1e5)
    with_netem = partial(replace, netem=True)
    assert classes(state(f1=late), "n1") == ()
    equal = classes(with_netem(state(f1=late)), "n1")
    assert [(link.dest, link.delay) for link in equal] == [("n0", 0.1), ("n2", 0.1), ("", 0.1)]
    for other in (later, narrow):
        uneven = with_netem(state(f1=late, f2=other))
        assert [link.dest for link in classes(uneven, "n1")] == ["n0", "n2"]
        assert slow_for_multicasts(uneven, "n1", "n0") == classes(uneven, "n1")[0]


def test_a_member_whose_place_nobody_named_is_an_error_with_the_remedy() -> None:
    nowhere = NetworkState(members=NAMES, faults={"f1": CUT})
    with pytest.raises(DriverError, match="name it under `places`"):
        plan(nowhere, site())


def test_a_site_whose_member_is_not_named_has_nothing_to_do() -> None:
    other = NetworkState(members=("a", "b"), faults={"f1": faults.Partition(groups=(("a",),))})
    assert plan(other, site()).is_empty


# -- The driver ------------------------------------------------------------------------------------


class Kernel:
    """Takes nft files, and knows which tables there are."""

    def __init__(self) -> None:
        self.files: list[tuple[str, str]] = []
        """Namespace and text."""
        self.packets: dict[str, int] = {}
        self.takes = 0.0
        """Seconds until it has taken a file."""

    async def __call__(self, argv: Sequence[str], stdin: str) -> str:
        if "list" in argv:
            counters: list[dict[str, Any]] = [
                {"counter": {"name": name, "packets": packets}}
                for name, packets in self.packets.items()
            ]
            return json.dumps({"nftables": [{"metainfo": {}}, *counters]})
        assert argv[-3:] == ("nft", "-f", "-")
        await asyncio.sleep(self.takes)
        self.files.append((argv[1], stdin))
        return ""


def test_each_site_is_told_in_its_own_namespace() -> None:
    assert inside(site("n2"), ("nft", "-f", "-")) == (
        "nsenter",
        "--net=/proc/self/ns/net",
        "--",
        "nft",
        "-f",
        "-",
    )
    assert inside(Site(name="a", addresses=()), ("nft",)) == ("nft",)


def test_counts_go_on_over_states_and_after_their_table_is_gone() -> None:
    async def story() -> None:
        kernel = Kernel()
        driver = NftDriver([site()], "sc1", kernel)
        await driver.apply(state(f1=CUT), 3.0)
        kernel.packets = {"c0": 3}
        assert await driver.bites() == {"f1": {("n0", "n1"): 3}}
        other = faults.Cut(sources=("n2",), dests=("n1",))
        await driver.apply(state(f1=CUT, f2=other), 3.0)
        kernel.packets = {"c0": 5, "c1": 1}
        await driver.clear()
        kernel.packets = {"c0": 2}
        await driver.apply(state(f1=CUT), 3.0)
        assert await driver.bites() == {"f1": {("n0", "n1"): 7}, "f2": {("n2", "n1"): 1}}

    asyncio.run(story())


def test_what_ended_faults_have_counted_is_forgotten_here_and_in_the_kernel() -> None:
    """A storm of days has thousands of faults, each with counters at every site."""

    async def story() -> None:
        kernel = Kernel()
        driver = NftDriver([site()], "sc1", kernel)
        await driver.forget({"f1"})
        assert kernel.files == [], "there is nothing to forget"
        other = faults.Cut(sources=("n2",), dests=("n1",))
        await driver.apply(state(f1=CUT, f2=other), 3.0)
        kernel.packets = {"c0": 3, "c1": 4}
        await driver.apply(state(f2=other), 3.0)
        await driver.forget({"f2"})
        assert kernel.files[-1][1] == "delete counter inet sc1 c0\n"
        kernel.packets = {"c1": 5}
        assert await driver.bites() == {"f2": {("n2", "n1"): 5}}
        # A fault of the same name counts anew, and takes no counter that another has.
        await driver.apply(state(f1=CUT, f2=other), 3.0)
        assert "add counter inet sc1 c2\n" in kernel.files[-1][1]
        kernel.packets |= {"c2": 1}
        assert await driver.bites() == {"f1": {("n0", "n1"): 1}, "f2": {("n2", "n1"): 5}}
        # With its table the counters are gone; what they had counted is forgotten all the same.
        await driver.clear()
        told = len(kernel.files)
        await driver.forget({"f1"})
        assert await driver.bites() == {"f1": {("n0", "n1"): 1}}
        assert len(kernel.files) == told

    asyncio.run(story())


@pytest.mark.parametrize("ends", [False, True])
def test_a_table_is_silenced_before_it_is_counted_and_removed(ends: bool) -> None:
    async def story() -> None:
        kernel = Kernel()
        driver = NftDriver([site()], "sc1", kernel)
        await driver.end()
        await driver.clear()
        assert kernel.files == [], "nothing was done, so nothing is undone"
        await driver.apply(state(f1=CUT), 3.0)
        if ends:
            await driver.end()
            assert len(kernel.files) == 2, "the chains stay until the table is removed"
        await driver.clear()
        await driver.clear()
        assert [text for _space, text in kernel.files[1:]] == [
            "add table inet sc1\nflush table inet sc1\n",
            "add table inet sc1\ndelete table inet sc1\n",
        ]

    asyncio.run(story())


@pytest.mark.parametrize("verb", ["renew", "next state", "no faults"])
def test_faults_that_ran_out_while_the_kernel_was_told_to_keep_them_are_an_error(verb: str) -> None:
    """Whoever asked was in time: nobody else would know of the gap."""

    async def story() -> None:
        kernel = Kernel()
        driver = NftDriver([site()], "sc1", kernel)
        verbs = {
            "renew": lambda: driver.renew(0.5),
            "next state": lambda: driver.apply(state(f2=CUT), 0.5),
            "no faults": lambda: driver.apply(state(), 0.5),
        }
        await driver.apply(state(f1=CUT), 0.5)
        kernel.takes = 0.6
        with pytest.raises(RanOutError, match="the faults of n1 ran out before they were renewed"):
            await verbs[verb]()
        await driver.clear()

    asyncio.run(story())


def test_faults_that_are_kept_in_time_or_were_removed_have_not_run_out() -> None:
    async def story() -> None:
        kernel = Kernel()
        driver = NftDriver([site()], "sc1", kernel)
        await driver.apply(state(f1=CUT), 5.0)
        await driver.renew(60.0)
        kernel.takes = 0.6
        await driver.apply(state(f1=CUT), 0.5)
        # Told to end, they may end.
        await driver.clear()
        await driver.apply(state(f1=CUT), 0.5)

    asyncio.run(story())


def test_what_cannot_be_meant_is_refused_before_any_site_is_touched() -> None:
    async def story() -> None:
        kernel = Kernel()
        driver = NftDriver([site("n0"), site("n1")], "sc1", kernel)
        nowhere = NetworkState(members=NAMES, faults={"f1": CUT})
        with pytest.raises(DriverError):
            await driver.apply(nowhere, 3.0)
        assert kernel.files == []

    asyncio.run(story())


def test_counters_are_read_from_what_nft_prints_as_json() -> None:
    text = '{"nftables": [{"metainfo": {}}, {"counter": {"name": "c0", "packets": 7, "bytes": 9}}]}'
    assert read_counters(text) == {"c0": 7}
