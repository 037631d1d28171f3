"""The tc driver: the words it says, and what it makes of the answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest

from chaos.drivers.base import CLASS, DriverError, NarrowLink, Site
from chaos.drivers.tc import HANDLE, TcDriver, class_lines, read_counts, root_lines, root_qdisc
from chaos.faults import Bandwidth, Link
from chaos.network_state import NetworkState

NAMES = ("n0", "n1", "n2")
OURS = {"kind": "htb", "handle": "5c:", "root": True}


def showing(**counts: tuple[int, int]) -> str:
    """What `tc -s class show` says: dropped and overlimits, by class."""
    return "".join(
        f"class htb 5c:{name[1:]} root leaf 8001: prio 0 rate 800Kbit ceil 800Kbit burst 1600b \n"
        f" Sent 68000 bytes 68 pkt (dropped {dropped}, overlimits {waited} requeues 0) \n"
        " backlog 0b 0p requeues 0\n lended: 68 borrowed: 0 giants: 0\n\n"
        for name, (dropped, waited) in counts.items()
    )


class Machine:
    """Has a device, and notes what is done to it."""

    def __init__(self, *roots: dict[str, object]) -> None:
        self.roots = list(roots) or [{"kind": "noqueue", "handle": "0:", "root": True}]
        self.told: list[str] = []
        self.counts = ""

    async def __call__(self, argv: Sequence[str], stdin: str) -> str:
        if "class" in argv:
            return self.counts
        if "show" in argv:
            return json.dumps(self.roots)
        self.told += stdin.splitlines() or [" ".join(argv)]
        return ""


def driver(machine: Machine, name: str = "n0") -> TcDriver:
    return TcDriver([Site(name=name, addresses=("198.18.0.2",))], "run", machine)


def state(*narrow: Bandwidth, base: Link | None = None) -> NetworkState:
    return NetworkState(
        members=NAMES,
        base=base or Link(),
        faults={f"f{number}": fault for number, fault in enumerate(narrow, 1)},
    )


def narrow(rate: float, *dests: str) -> Bandwidth:
    return Bandwidth(sources=("n0",), dests=dests or ("n1",), rate=rate)


def classify(mark: int) -> int:
    """Run the filter's program as the kernel does."""
    words = root_lines("eth0")[1].split('"')[1].split(",")
    steps = [tuple(map(int, word.split())) for word in words[1:]]
    assert len(steps) == int(words[0])
    a = x = at = 0
    while True:
        code, if_true, if_false, k = steps[at]
        at += 1
        match code:
            case 0x20:
                assert k == 0xFFFFF000 + 20
                a = mark
            case 0x07:
                x = a
            case 0x87:
                a = x
            case 0x54:
                a &= k
            case 0x44:
                a |= k
            case 0x15:
                at += if_true if a == k else if_false
            case 0x16:
                return a
            case 0x06:
                return k
            case _:
                raise AssertionError(f"no such instruction {code:#x}")


@pytest.mark.parametrize("number", [1, 2, 257, 0xFFFF])
def test_a_mark_of_a_class_leads_to_it(number: int) -> None:
    assert classify(CLASS + number) == HANDLE << 16 | number


@pytest.mark.parametrize("mark", [0, 2, CLASS - 1, 0x5C00000F, CLASS + 0x10000, 0xFFFFFFFF])
def test_no_other_mark_leads_anywhere(mark: int) -> None:
    assert classify(mark) == 0


def test_a_class_has_the_rate_in_bits_and_a_quarter_of_a_second_of_room() -> None:
    link = NarrowLink(dest="n1", number=11, rate=100_000, fault="f1")
    made, queue = class_lines("eth0", link)
    assert "classid 5c:b htb rate 800000bit" in made
    assert queue.endswith("parent 5c:b bfifo limit 25000")


def test_the_narrowest_link_still_has_room_for_a_packet() -> None:
    link = NarrowLink(dest="n1", number=2, rate=0.1, fault="f1")
    assert "rate 8bit" in class_lines("eth0", link)[0]
    assert class_lines("eth0", link)[1].endswith("limit 4096")


def test_counts_are_read_of_our_classes_alone() -> None:
    text = showing(c2=(72, 45), cb=(0, 3)) + "class htb 1:2 root (dropped 9, overlimits 9 \n"
    assert read_counts(text) == {2: 117, 11: 3}


def test_a_device_says_what_stands_at_its_root() -> None:
    assert root_qdisc("") == "noqueue"
    assert root_qdisc(json.dumps([{"kind": "bfifo", "handle": "8001:"}, OURS])) == "ours"
    assert root_qdisc(json.dumps([OURS | {"handle": "1:"}])) == "htb"


def test_a_device_is_left_alone_while_nothing_is_narrow() -> None:
    machine = Machine()
    asyncio.run(driver(machine).apply(state(), 3.0))
    asyncio.run(driver(machine, "n2").apply(state(narrow(1e5)), 3.0))
    assert machine.told == []


def test_a_qdisc_of_others_is_not_touched() -> None:
    machine = Machine(OURS | {"handle": "1:"})
    with pytest.raises(DriverError, match="eth0 of n0 is shaped by a htb that is not ours"):
        asyncio.run(driver(machine).apply(state(narrow(1e5)), 3.0))
    assert machine.told == []


def test_what_a_killed_run_left_is_replaced() -> None:
    machine = Machine(OURS)
    asyncio.run(driver(machine).apply(state(narrow(1e5)), 3.0))
    assert machine.told[0] == "tc qdisc del dev eth0 root handle 5c:"
    assert machine.told[1].startswith("qdisc add dev eth0 root handle 5c: htb")


def test_only_what_changed_is_made_anew() -> None:
    async def twice() -> list[str]:
        one = driver(machine)
        await one.apply(state(narrow(1e5)), 3.0)
        machine.told.clear()
        await one.apply(state(narrow(1e5), narrow(2e5, "n2")), 3.0)
        return machine.told

    machine = Machine()
    assert [line.split(" classid ")[1].split()[0] for line in asyncio.run(twice())
            if " classid " in line] == ["5c:4", "5c:1"]  # fmt: skip


def test_what_waited_is_counted_for_the_fault_and_pair_of_its_class() -> None:
    async def script() -> None:
        one = driver(machine)
        await one.apply(state(narrow(1e5)), 3.0)
        machine.counts = showing(c3=(2, 3))
        await one.apply(state(base=Link(bandwidth=1e6)), 3.0)
        machine.counts = showing(c3=(2, 10), c4=(0, 1), c1=(4, 0))
        assert await one.bites() == {
            "f1": {("n0", "n1"): 5},
            # Of what goes to all at once, everyone would have had his share.
            "network": {("n0", "n1"): 11, ("n0", "n2"): 5},
        }
        await one.clear()
        await one.clear()
        assert machine.told[-1] == "tc qdisc del dev eth0 root handle 5c:"
        assert (await one.bites())["f1"] == {("n0", "n1"): 5}

    machine = Machine()
    asyncio.run(script())
