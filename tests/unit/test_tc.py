"""The tc driver: the words it says, and what it makes of the answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest

from stormcast.chaos.drivers.base import CLASS, DriverError, Site, SlowLink
from stormcast.chaos.drivers.tc import (
    DRAIN_SECONDS,
    HANDLE,
    Count,
    TcDriver,
    class_lines,
    read_counts,
    root_lines,
    root_qdisc,
    waiting,
)
from stormcast.chaos.faults import Bandwidth, Delay, Link, NetworkFault
from stormcast.chaos.language.network_state import NetworkState

NAMES = ("n0", "n1", "n2")
REMOVED = "tc qdisc del dev eth0 root handle 5c:"
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
        self.mtu = 1500
        self.lacks = ""
        """No qdisc or filter of this kind, or no MTU."""

    async def __call__(self, argv: Sequence[str], stdin: str) -> str:
        if "class" in argv:
            return self.counts
        if "ip" in argv:
            if self.lacks == "mtu":
                raise DriverError("ip: no such device")
            return json.dumps([{"ifname": "eth0", "mtu": self.mtu}])
        if "show" in argv:
            return json.dumps(self.roots)
        for line in stdin.splitlines() or [" ".join(argv)]:
            # As tc does: what came before the line that fails has been done.
            if self.lacks and self.lacks in line:
                raise DriverError("tc: Error: Specified qdisc kind is unknown.")
            self.told.append(line)
        return ""


def driver(machine: Machine, name: str = "n0") -> TcDriver:
    return TcDriver([Site(name=name, addresses=("198.18.0.2",))], "run", machine)


def state(*slow: NetworkFault, base: Link | None = None, netem: bool = False) -> NetworkState:
    return NetworkState(
        members=NAMES,
        base=base or Link(),
        faults={f"f{number}": fault for number, fault in enumerate(slow, 1)},
        netem=netem,
    )


def narrow(rate: float, *dests: str) -> Bandwidth:
    return Bandwidth(sources=("n0",), dests=dests or ("n1",), rate=rate)


def late(delay: float, *dests: str, jitter: float = 0.0) -> Delay:
    return Delay(sources=("n0",), dests=dests or ("n1",), delay=delay, jitter=jitter)


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
    link = SlowLink(dest="n1", number=11, rate=100_000)
    made, queue = class_lines("eth0", link)
    assert "classid 5c:b htb rate 800000bit" in made
    assert queue.endswith("parent 5c:b handle 400b: tbf rate 1tbit burst 1518 limit 25000")


def test_the_narrowest_link_still_has_room_for_a_packet() -> None:
    link = SlowLink(dest="n1", number=2, rate=0.1)
    assert "rate 8bit" in class_lines("eth0", link)[0]
    assert class_lines("eth0", link)[1].endswith("limit 4096")
    assert class_lines("eth0", link, packet=9018)[1].endswith("burst 9018 limit 18036")


def test_what_is_late_is_cut_into_packets_and_waits_in_netem_and_then_for_its_rate() -> None:
    link = SlowLink(dest="n1", number=3, rate=100_000, delay=0.0204)
    made, cut, delayed, queue = class_lines("eth0", link, netem=True)
    assert "classid 5c:3 htb rate 800000bit" in made
    assert "parent 5c:3 handle 4003: tbf" in cut
    assert delayed.endswith("parent 4003:1 handle 103: netem delay 20400us limit 16384")
    assert queue.endswith("parent 103:1 bfifo limit 25000")


def test_what_is_but_late_has_all_the_rate_that_there_is() -> None:
    made, *_others, queue = class_lines("eth0", SlowLink(dest="n1", number=3, delay=1), netem=True)
    assert "rate 32000000000bit" in made
    assert queue.endswith("limit 1000000000")


def test_the_packets_of_a_queue_are_those_of_its_device() -> None:
    machine = Machine()
    machine.mtu = 9000
    asyncio.run(driver(machine).apply(state(narrow(1e5)), 3.0))
    assert machine.told[-1].endswith("tbf rate 1tbit burst 9018 limit 25000")


def test_counts_are_read_of_our_classes_alone() -> None:
    text = showing(c2=(72, 45), cb=(0, 3)) + "class htb 1:2 root (dropped 9, overlimits 9 \n"
    assert read_counts(text) == {2: Count(140, 117, 72), 11: Count(68, 3, 0)}


def test_a_device_says_what_stands_at_its_root() -> None:
    assert root_qdisc("") == "noqueue"
    assert root_qdisc(json.dumps([{"kind": "bfifo", "handle": "8001:"}, OURS])) == "ours"
    assert root_qdisc(json.dumps([OURS | {"handle": "1:"}])) == "htb"


def test_all_that_waits_stands_at_the_root() -> None:
    queues = [OURS | {"qlen": 7}, {"kind": "netem", "handle": "103:", "qlen": 7}]
    assert waiting(json.dumps(queues)) == 7
    assert waiting("") == 0


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
    assert [
        line.split(" classid ")[1].split()[0]
        for line in asyncio.run(twice())
        if " classid " in line
    ] == ["5c:4", "5c:1"]


def test_without_netem_delays_are_not_its_business() -> None:
    machine = Machine()
    asyncio.run(driver(machine).apply(state(late(0.1)), 3.0))
    assert machine.told == []


def test_with_netem_those_are_that_take_no_dice() -> None:
    machine = Machine()
    wanted = state(late(0.1), late(0.02), late(0.3, jitter=0.1), narrow(1e5), netem=True)
    asyncio.run(driver(machine).apply(wanted, 3.0))
    assert [line for line in machine.told if "netem" in line] == [
        "qdisc replace dev eth0 parent 4003:1 handle 103: netem delay 120000us limit 16384"
    ]


def test_packets_are_counted_for_every_fault_that_makes_them_late() -> None:
    async def script() -> None:
        one = driver(machine)
        faults = late(0.1, "n1", "n2"), late(0.02), narrow(1e5), late(0.02, "n2")
        await one.apply(state(*faults, netem=True), 3.0)
        # Equally late, but not equally narrow: what goes to all at once has no class.
        machine.counts = showing(c3=(0, 2), c4=(0, 0), c1=(0, 0))
        assert await one.bites() == {
            "f1": {("n0", "n1"): 68, ("n0", "n2"): 68},
            "f2": {("n0", "n1"): 68},
            "f3": {("n0", "n1"): 2},
            "f4": {("n0", "n2"): 68},
        }

    machine = Machine()
    asyncio.run(script())
    assert not any("5c:1 " in line for line in machine.told)


def test_what_ended_faults_have_counted_is_forgotten() -> None:
    async def script() -> None:
        one = driver(machine)
        await one.apply(state(late(0.1), narrow(1e5), netem=True), 3.0)
        machine.counts = showing(c3=(0, 2))
        both = await one.bites()
        assert set(both) == {"f1", "f2"}
        await one.forget({"f2", "f9"})
        assert await one.bites() == {"f2": both["f2"]}

    machine = Machine()
    asyncio.run(script())


@pytest.mark.parametrize("verb", ["bites", "apply", "clear"])
def test_what_a_full_netem_loses_is_told(verb: str) -> None:
    async def script() -> None:
        one = driver(machine)
        await one.apply(state(late(0.1), netem=True), 3.0)
        machine.counts = showing(c3=(2, 0))
        asked = {"bites": one.bites, "clear": one.clear}.get(verb)
        with pytest.raises(DriverError, match="2 packets of n0 were lost"):
            await (asked() if asked else one.apply(state(netem=True), 3.0))
        if verb == "clear":
            assert machine.told[-1] == REMOVED
            await one.clear()

    machine = Machine()
    asyncio.run(script())


def test_what_finds_no_room_in_a_narrow_link_is_the_fault_s_own_doing() -> None:
    async def script() -> None:
        one = driver(machine)
        await one.apply(state(narrow(1e5)), 3.0)
        machine.counts = showing(c3=(2, 0))
        assert await one.bites() == {"f1": {("n0", "n1"): 2}}

    machine = Machine()
    asyncio.run(script())


def test_multicasts_are_late_for_the_faults_of_each_receiver() -> None:
    async def script() -> None:
        one = driver(machine)
        await one.apply(state(late(0.1, "n1"), late(0.1, "n2"), netem=True), 3.0)
        machine.counts = showing(c1=(0, 0))
        assert await one.bites() == {"f1": {("n0", "n1"): 68}, "f2": {("n0", "n2"): 68}}

    machine = Machine()
    asyncio.run(script())


def test_queues_run_empty_before_they_are_removed_but_not_for_ever() -> None:
    async def script() -> float:
        one = driver(machine)
        await one.apply(state(late(60.0), netem=True), 3.0)
        machine.roots = [OURS | {"qlen": 1}]
        before = asyncio.get_running_loop().time()
        await one.clear()
        return asyncio.get_running_loop().time() - before

    machine = Machine()
    assert asyncio.run(script()) > DRAIN_SECONDS / 2
    assert machine.told[-1] == "tc qdisc del dev eth0 root handle 5c:"


def test_a_kernel_may_have_queues_by_mark_and_no_netem() -> None:
    machine = Machine()
    machine.lacks = "netem"
    found = asyncio.run(driver(machine).features())
    assert found["bandwidth"] is None
    assert str(found["netem"]).startswith("the kernel has no sch_netem: try modprobe sch_netem;")
    assert machine.told[-1] == "tc qdisc del dev eth0 root handle 5c:"


def test_a_kernel_without_queues_by_mark_has_no_use_for_netem() -> None:
    machine = Machine()
    machine.lacks = "htb"
    found = asyncio.run(driver(machine).features())
    assert "cls_bpf" in str(found["bandwidth"])
    assert "cls_bpf" in str(found["netem"])


@pytest.mark.parametrize("lacks", ["bpf bytecode", "mtu"])
def test_a_device_that_cannot_be_shaped_is_left_without_a_qdisc_of_ours(lacks: str) -> None:
    machine = Machine()
    machine.lacks = lacks
    with pytest.raises(DriverError):
        asyncio.run(driver(machine).apply(state(narrow(1e5)), 3.0))
    roots = [line for line in machine.told if "root handle 5c:" in line]
    assert roots in ([], ["qdisc add dev eth0 root handle 5c: htb default 0", REMOVED])


@pytest.mark.parametrize("was_asked", [True, False])
def test_a_trial_leaves_links_alone_that_are_slow_now(*, was_asked: bool) -> None:
    async def script() -> None:
        one = driver(machine)
        if was_asked:
            await one.features()
        await one.apply(state(narrow(1e5)), 3.0)
        told = list(machine.told)
        found = await one.features()
        assert machine.told == told
        assert found["bandwidth"] is None
        assert (found["netem"] is None) is was_asked, "without a trial nobody knows"

    machine = Machine()
    asyncio.run(script())


def test_a_trial_without_a_filter_leaves_no_qdisc() -> None:
    machine = Machine()
    machine.lacks = "bpf bytecode"
    assert "cls_bpf" in str(asyncio.run(driver(machine).features())["bandwidth"])
    assert machine.told[-1] == REMOVED


def test_all_sites_are_shaped_at_once() -> None:
    """One after the other would take longer than what acted before lasts, where they are many."""

    async def script() -> None:
        everyone = asyncio.Barrier(len(NAMES))

        async def together(argv: Sequence[str], stdin: str) -> str:
            async with asyncio.timeout(5.0):
                await everyone.wait()
            return await machine(argv, stdin)

        sites = [Site(name=name, addresses=("198.18.0.2",)) for name in NAMES]
        limit = Bandwidth(sources=NAMES, dests=NAMES, rate=1e5)
        await TcDriver(sites, "run", together).apply(state(limit), 3.0)

    machine = Machine()
    asyncio.run(script())
    assert sum("qdisc add" in line for line in machine.told) == len(NAMES)


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
