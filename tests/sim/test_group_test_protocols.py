"""Test protocols between the layers of a whole stack: what each loses, doubles or reorders.

Directly above the transport they are a bad network, which every layer repairs. Above the reliable
protocols they are a faulty neighbour: what they lose there nobody repairs. Either way the trace
says how often they struck.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from stormcast.node import trace
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.wire import HEARTBEAT
from tests.helpers.group import STACKS, GroupWorld, formed, numbered
from tests.helpers.world import TIMINGS

everywhere = pytest.mark.parametrize(
    ("stack", "timing"), [(stack, timing) for stack in STACKS for timing in TIMINGS]
)
Values = dict[str, object]
TestProtocol = dict[str, Values]


class Shelf:
    """A folder with the files that ship, to which stacks with test protocols are added."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for kind in ("stacks", "timings"):
            (folder / kind).mkdir()
            for entry in files("stormcast.node").joinpath(kind).iterdir():
                (folder / kind / entry.name).write_text(entry.read_text())

    def with_test_protocols(
        self, stack: str, *test_protocols: TestProtocol, above: str = "UDP"
    ) -> str:
        """The name of a stack that has these, too, right above one of its protocols."""
        content = yaml.safe_load((self.folder / "stacks" / f"{stack}.yaml").read_text())
        layers = content["protocols"]
        (place,) = (at for at, layer in enumerate(layers) if above in layer)
        content["protocols"] = [*layers[:place], *test_protocols, *layers[place:]]
        (self.folder / "stacks" / "probed.yaml").write_text(yaml.safe_dump(content))
        return "probed"


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    made = Shelf(tmp_path)
    monkeypatch.setattr("stormcast.node.settings.files.files", lambda _package: tmp_path)
    return made


def strikes(world: GroupWorld, test_protocol: str) -> int:
    """How often the traces of all members say that a test protocol struck."""
    return sum(
        event.count
        for member in world
        for event, text in member.told(trace.DROPPED)
        if text == f"probe-{test_protocol.lower()}"
    )


def multicasts(world: GroupWorld, name: str, sender: str) -> list[bytes]:
    return [
        bytes(payload)
        for delivery in world[name].deliveries
        if delivery.source == world.short(sender) and delivery.is_multicast
        for payload in delivery
    ]


def unicasts(world: GroupWorld, name: str, sender: str) -> list[bytes]:
    return [
        bytes(payload)
        for delivery in world[name].deliveries
        if delivery.source == world.short(sender) and not delivery.is_multicast
        for payload in delivery
    ]


# -- Above the transport --------------------------------------------------------------------------

NETWORKS: dict[str, tuple[TestProtocol, ...]] = {
    "loss": ({"DISCARD": {"up": 0.1, "down": 0.1}},),
    "copies": ({"DUPLICATE": {"copies": 2}},),
    "delay": ({"DELAY": {"delay": "5ms", "jitter": "20ms"}},),
    "shuffle": ({"SHUFFLE": {"max_size": 20, "max_time": "20ms"}},),
    "reverse": ({"REVERSE": {"max_size": 5, "max_time": "20ms"}},),
    "all": (
        {"DISCARD": {"up": 0.05}},
        {"DUPLICATE": {"match": {"kind": ["DATA"]}}},
        {"SHUFFLE": {"max_size": 10, "max_time": "10ms"}},
        {"DELAY": {"delay": "1ms", "jitter": "5ms"}},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
@everywhere
def test_a_probe_above_the_transport_is_a_bad_network_and_costs_nothing_but_time(
    shelf: Shelf, stack: str, timing: str, network: str
) -> None:
    """O-01, O-02: a group forms, everybody multicasts and sends, all arrives once and in order."""
    test_protocols = NETWORKS[network]
    world = formed("ABC", shelf.with_test_protocols(stack, *test_protocols), timing)
    for first in range(1, 100, 10):
        for name, other in zip("ABC", "BCA", strict=True):
            world.multicast(name, *numbered(first, first + 9))
            world[name].send(*numbered(first, first + 9), to=other)
        world.advance(0.01)
    world.advance(10.0)
    world.settle()
    for sender, other in zip("ABC", "BCA", strict=True):
        assert unicasts(world, other, sender) == numbered(1, 100)
        for name in "ABC":
            assert multicasts(world, name, sender) == numbered(1, 100)
    assert world.views_agree("ABC")
    for test_protocol in test_protocols:
        assert strikes(world, *test_protocol) > 0


@everywhere
def test_the_next_few_multicasts_of_each_member_are_lost_and_repaired(
    shelf: Shelf, stack: str, timing: str
) -> None:
    """DISCARD counts what goes to the group, be it discovery, heartbeats or messages."""
    test_protocol: TestProtocol = {"DISCARD": {"next_multicasts": 3, "match": {"kind": ["DATA"]}}}
    world = GroupWorld("ABC", shelf.with_test_protocols(stack, test_protocol), timing)
    for name in "ABC":
        world.multicast(name, *numbered(1, 3))
    world.deliver()
    assert multicasts(world, "B", "A") == []
    for name in "ABC":
        world.multicast(name, *numbered(4, 5))
    world.settle()
    for name in "ABC":
        assert [multicasts(world, name, sender) for sender in "ABC"] == [numbered(1, 5)] * 3
    assert strikes(world, "DISCARD") == 9


@everywhere
def test_who_is_ignored_by_one_is_heard_by_all_others(
    shelf: Shelf, stack: str, timing: str
) -> None:
    """DISCARD at every member takes nothing of C's: A and B do not learn what it says."""
    test_protocol: TestProtocol = {"DISCARD": {"ignored": ["C"]}}
    world = GroupWorld("ABC", shelf.with_test_protocols(stack, test_protocol), timing)
    world.multicast("C", b"heard by nobody else")
    world.multicast("A", b"heard by all")
    world.advance(5.0)
    assert [multicasts(world, name, "C") for name in "ABC"] == [[], [], [b"heard by nobody else"]]
    assert world.everyone_got("A", [b"heard by all"], "ABC")


@everywhere
def test_chosen_frames_are_lost_and_no_others(shelf: Shelf, stack: str, timing: str) -> None:
    """DROP: A's first copy of its second and third multicast; repeats pass."""
    test_protocol: TestProtocol = {
        "DROP": {
            "match": {
                "kind": ["DATA"],
                "from": ["A"],
                "seqno": [2, 3],
                "transmission": 0,
                "direction": "down",
            }
        }
    }
    world = GroupWorld("AB", shelf.with_test_protocols(stack, test_protocol), timing)
    for number in numbered(1, 5):
        world.multicast("A", number)
    world.deliver()
    assert multicasts(world, "B", "A") == numbered(1, 1)
    world.settle()
    assert multicasts(world, "B", "A") == numbered(1, 5)
    assert strikes(world, "DROP") == 2


@everywhere
def test_heartbeats_that_are_lost_below_the_detector_raise_suspicions_that_are_cleared(
    shelf: Shelf, stack: str, timing: str
) -> None:
    """DROP of one protocol's frames: who is asked answers, so nobody is excluded."""
    test_protocol: TestProtocol = {"DROP": {"match": {"kind": ["HEARTBEAT"], "direction": "up"}}}
    world = formed("AB", shelf.with_test_protocols(stack, test_protocol), timing)
    world.advance(3 * world.settings.of("FD_ALL3").timeout)
    assert world.sizes("A") == [1, 2]
    streams = {event.stream for event in world["A"].events(trace.SUSPECT)}
    assert {trace.SUSPECTED, trace.CLEARED} <= streams
    assert trace.CONFIRMED not in streams
    assert strikes(world, "DROP") == sum(
        len(sent.arrivals) for sent in world.sent(kind=HEARTBEAT) if sent.arrivals
    )


# -- Between protocols ----------------------------------------------------------------------------


@everywhere
def test_a_probe_sees_only_what_passes_its_place(shelf: Shelf, stack: str, timing: str) -> None:
    """A DROP of everything between unicast and multicast: unicast protocols are cut off, multicast
    and membership (which stands above, too) are told apart by where they stand."""
    reliable = "MCAST" if stack == "mcast" else "NAKACK2"
    test_protocol: TestProtocol = {"DROP": {}}
    world = GroupWorld(
        "AB", shelf.with_test_protocols(stack, test_protocol, above=reliable), timing
    )
    # The same protocols without the test protocol.
    plain = GroupWorld("AB", stack, timing)
    for each in (world, plain):
        each.multicast("A", *numbered(1, 5))
        each["A"].send(*numbered(1, 5), to="B")
        each.advance(5.0)
    assert multicasts(plain, "B", "A") == unicasts(plain, "B", "A") == numbered(1, 5)
    assert unicasts(world, "B", "A") == []
    # Its frames pass below; what it delivers has to pass the test protocol.
    assert multicasts(world, "B", "A") == []
    assert world.machine("B").inbound()[world.short("A")].window.delivered == 5


@everywhere
def test_what_is_lost_above_the_reliable_protocols_nobody_repairs(
    shelf: Shelf, stack: str, timing: str
) -> None:
    """DISCARD above all: half of the deliveries, whole batches, do not reach the application; the
    windows below are complete, and senders are free."""
    world = GroupWorld(
        "AB", shelf.with_test_protocols(stack, {"DISCARD": {"up": 0.5}}, above="FRAG"), timing
    )
    for number in numbered(1, 100):
        world.multicast("A", number)
        world["A"].send(number, to="B")
        world.advance(0.01)
    world.settle()
    world.advance(60.0)
    for got in (multicasts(world, "B", "A"), unicasts(world, "B", "A")):
        assert 20 < len(got) < 80
        assert got == sorted(got, key=int)
    assert world.machine("B").inbound()[world.short("A")].window.delivered == 100
    assert world["A"].unacked("B") == 0
    lost = 400 - len(world["A"].deliveries) - len(world["B"].deliveries)
    # A's own multicasts are deliveries, too.
    assert strikes(world, "DISCARD") == lost - 100


@everywhere
def test_deliveries_that_are_doubled_or_delayed_reach_the_application_so(
    shelf: Shelf, stack: str, timing: str
) -> None:
    """DUPLICATE and DELAY above all: a faulty neighbour breaks what the layers below had kept."""
    test_protocols: list[TestProtocol] = [
        {"DUPLICATE": {"copies": 1}},
        {"DELAY": {"delay": "1s", "keep_order": True}},
    ]
    world = GroupWorld(
        "AB", shelf.with_test_protocols(stack, *test_protocols, above="FRAG"), timing
    )
    world.multicast("A", b"1")
    world.multicast("A", b"2")
    world.advance(0.9)
    assert multicasts(world, "B", "A") == []
    world.advance(0.2)
    assert multicasts(world, "B", "A") == [b"1", b"1", b"2", b"2"]
    assert strikes(world, "DUPLICATE") == 4
    assert strikes(world, "DELAY") == 4


@everywhere
def test_the_same_stack_file_gives_the_same_traces(shelf: Shelf, stack: str, timing: str) -> None:
    """All chance of test protocols comes from the dice of their member."""
    probed = shelf.with_test_protocols(stack, *NETWORKS["all"])
    traces = []
    for _again in range(2):
        world = formed("AB", probed, timing)
        world.multicast("A", *numbered(1, 50))
        world.advance(5.0)
        traces.append([member.told(*range(256)) for member in world])
    assert traces[0] == traces[1]


def test_a_probe_below_the_transport_is_refused(shelf: Shelf) -> None:
    """Nothing passes there, so whoever wrote it meant another place."""
    content = yaml.safe_load((shelf.folder / "stacks" / "udp.yaml").read_text())
    content["protocols"].append({"DROP": {}})
    (shelf.folder / "stacks" / "probed.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match="UDP must come last"):
        GroupWorld("A", "probed")
