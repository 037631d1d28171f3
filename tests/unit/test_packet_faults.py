"""Faults of packets that scapy understands: who is taken, what becomes of it, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from scapy.layers.dns import DNS, DNSQR
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6

from stormcast.chaos.drivers import packets
from stormcast.chaos.drivers.base import NFQUEUE, NFT, DriverError, driver_of
from stormcast.chaos.drivers.packet_faults import PacketFaults, PacketOutcome, have_headers
from stormcast.chaos.drivers.selection import statements
from stormcast.chaos.faults import AlterPackets, DropPackets, Loss, NetworkFault, PacketMatch
from stormcast.chaos.faults.fate import jhash_fate
from stormcast.chaos.faults.outcome import Decider
from stormcast.chaos.faults.paths import Path
from stormcast.chaos.language import packet_layers
from stormcast.chaos.language.features import features_of
from stormcast.chaos.language.network_state import NetworkState, parse_state
from stormcast.chaos.language.scenario import dump, parse_scenario
from stormcast.node.core.errors import ConfigError

ENDS = ("a", "b")
QUESTION = bytes(
    IP(src="198.18.0.1", dst="198.18.0.2")
    / UDP(sport=5000, dport=53)
    / DNS(rd=1, qd=DNSQR(qname="a.test"))
)
SEGMENT = bytes(IP(src="198.18.0.1", dst="198.18.0.2") / TCP(sport=80, dport=9, flags="PA") / b"x")
ECHO = bytes(IP(src="198.18.0.1", dst="198.18.0.2") / ICMP() / b"12345678")
OVER6 = bytes(IPv6(src="fd00::1", dst="fd00::2") / UDP(sport=7, dport=53) / b"12345678")


def drop(**match: Any) -> DropPackets:
    return DropPackets(sources=("a",), dests=("b",), match=PacketMatch(**match))


def alter(does: str, match: dict[str, Any] | None = None, **words: Any) -> AlterPackets:
    met = PacketMatch(**(match or {"protocol": "udp"}))
    return AlterPackets(sources=("a",), dests=("b",), does=does, match=met, **words)


class Acting:
    """Faults that act, and the packets that are shown to them."""

    def __init__(self, **acting: NetworkFault) -> None:
        self.decider = Decider(jhash_fate)
        self.faults = PacketFaults(self.decider)
        self.faults.renew(acting)
        self.path = Path(0.5, ENDS)

    def strike(self, packet: bytes, now: float = 10.0) -> PacketOutcome | None:
        place = packets.locate(packet)
        assert place is not None
        return self.faults.strike(self.path, memoryview(packet), place, now)

    def taken(self, packet: bytes, number: int) -> list[bool]:
        return [self.strike(packet) is not None for _packet in range(number)]


@pytest.mark.parametrize(
    ("match", "meant"),
    [
        ({"protocol": "udp"}, {"question", "over6"}),
        ({"protocol": "tcp"}, {"segment"}),
        ({"protocol": "icmp"}, {"echo"}),
        ({"to_ports": (53, 53)}, {"question", "over6"}),
        ({"to_ports": (9, 53)}, {"question", "over6", "segment"}),
        ({"from_ports": (80, 90)}, {"segment"}),
        ({"from_ports": (7, 7), "to_ports": (53, 60)}, {"over6"}),
        ({"sizes": (0, len(SEGMENT))}, {"echo", "segment"}),
        ({"sizes": (len(QUESTION), len(QUESTION))}, {"question"}),
        ({}, {"question", "segment", "echo", "over6"}),
    ],
)
def test_headers_are_met_as_the_kernel_meets_them(match: dict[str, Any], meant: set[str]) -> None:
    known = {"question": QUESTION, "segment": SEGMENT, "echo": ECHO, "over6": OVER6}
    places = {name: packets.locate(packet) for name, packet in known.items()}
    met = {
        name
        for name, place in places.items()
        if place and have_headers(PacketMatch(**match), memoryview(known[name]), place)
    }
    assert met == meant


@pytest.mark.parametrize(
    ("layer", "fields", "is_met"),
    [
        ("DNS", (), True),
        ("TCP", (), False),
        ("", (("DNS.qr", 0),), True),
        ("", (("DNS.qr", 1),), False),
        ("DNS", (("DNS.qd.qname", "a.test."), ("UDP.sport", 5000)), True),
        ("DNS", (("DNS.qd.qname", "b.test."),), False),
        ("DNS", (("DNS.qd.qtype", "A"),), True),
        ("DNS", (("DNS.an.rdata", "198.18.0.1"),), False),
        ("DNS", (("TCP.flags", "S"),), False),
        ("IP", (("IP.src", "198.18.0.1"),), True),
    ],
)
def test_what_scapy_finds_is_met(layer: str, fields: tuple[Any, ...], is_met: bool) -> None:
    assert packet_layers.meets(QUESTION, layer, fields) is is_met


def test_flags_are_called_by_their_letters() -> None:
    assert packet_layers.meets(SEGMENT, "TCP", (("TCP.flags", "PA"),))
    assert packet_layers.meets(SEGMENT, "TCP", (("TCP.flags", 0x18),))
    assert not packet_layers.meets(SEGMENT, "TCP", (("TCP.flags", "S"),))


def test_only_each_nth_is_taken_and_only_so_many() -> None:
    assert Acting(f=drop(layer="DNS", nth=3)).taken(QUESTION, 6) == [False, False, True] * 2
    assert (
        Acting(f=alter("delay", delay=1.0, times=2)).taken(QUESTION, 4) == [True] * 2 + [False] * 2
    )


def test_what_does_not_meet_all_else_is_not_counted() -> None:
    acting = Acting(f=drop(layer="DNS", nth=2))
    assert [acting.strike(one) is not None for one in (QUESTION, SEGMENT, OVER6, QUESTION)] == [
        False, False, False, True
    ]  # fmt: skip


def test_counting_goes_on_while_a_fault_acts_and_begins_anew_with_it() -> None:
    fault = alter("corrupt", times=1)
    acting = Acting(f=fault)
    assert acting.strike(QUESTION)
    acting.faults.renew({"f": fault, "g": drop(protocol="tcp", layer="TCP")})
    assert acting.strike(QUESTION) is None
    acting.faults.renew({})
    acting.faults.renew({"f": fault})
    assert acting.strike(QUESTION)


def test_the_first_fault_that_takes_a_packet_decides_and_alone_bites() -> None:
    acting = Acting(f=drop(layer="DNS"), g=alter("delay", delay=1.0))
    struck = acting.strike(QUESTION)
    assert struck is not None
    assert struck.is_lost
    assert acting.decider.counted() == {"f": {ENDS: 1}}
    assert acting.strike(OVER6) == PacketOutcome("g", at=10.0 + 0.5 + 1.0)


def test_a_link_that_is_not_meant_is_left_alone() -> None:
    acting = Acting(f=drop(layer="DNS"))
    acting.path = Path(0.5, ("b", "a"))
    assert acting.strike(QUESTION) is None


def test_what_is_changed_is_whole_again() -> None:
    change = (("DNS.rcode", 3), ("IP.ttl", 9), ("DNS.an.ttl", 5))
    struck = Acting(f=alter("change", fields=change)).strike(QUESTION)
    assert struck is not None
    changed = IP(struck.payload)
    assert (changed[DNS].rcode, changed.ttl) == (3, 9)
    whole = IP(struck.payload)
    del whole.chksum, whole[UDP].chksum
    assert bytes(whole) == struck.payload, "checksums fit"
    assert struck.copies == ()


@pytest.mark.parametrize("does", ["change", "forge"])
@pytest.mark.parametrize("fields", [(("DNS.rcode", 0),), (("TCP.flags", "R"),)])
def test_what_has_these_values_or_no_such_field_is_not_struck(does: str, fields: Any) -> None:
    """Else a run would believe in a fault that had no effect."""
    acting = Acting(f=alter(does, fields=fields), g=alter("delay", delay=1.0))
    struck = acting.strike(QUESTION)
    assert struck is not None
    assert struck.fault == "g"
    assert acting.decider.counted() == {"g": {ENDS: 1}}


def test_a_packet_at_which_scapy_fails_passes_and_nobody_believes_the_faults_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    acting = Acting(f=drop(layer="DNS"))
    acting.faults.check()

    def fails(_packet: bytes) -> Any:
        raise ValueError("no such label")

    monkeypatch.setattr(packet_layers, "parsed", fails)
    assert acting.strike(QUESTION) is None
    with pytest.raises(DriverError, match="f: scapy fails at a packet to b: ValueError"):
        acting.faults.check()


def test_a_checksum_that_is_set_stays_wrong() -> None:
    struck = Acting(f=alter("change", fields=(("UDP.chksum", 1),))).strike(QUESTION)
    assert struck is not None
    assert IP(struck.payload)[UDP].chksum == 1


def test_a_forgery_arrives_with_the_packet_which_stays_as_it_is() -> None:
    struck = Acting(f=alter("forge", fields=(("DNS.rcode", 3),))).strike(QUESTION)
    assert struck is not None
    [(at, forged)] = struck.copies
    assert (at, struck.payload) == (struck.at, b"")
    assert IP(forged)[DNS].rcode == 3


def test_copies_follow_and_flipped_bits_differ_each_time() -> None:
    struck = Acting(f=alter("duplicate", copies=2)).strike(QUESTION)
    assert struck is not None
    assert [packet for _at, packet in struck.copies] == [QUESTION] * 2
    assert struck.at < struck.copies[0][0] < struck.copies[1][0]
    acting = Acting(f=alter("corrupt"))
    flipped = [one.payload for one in map(acting.strike, (QUESTION, QUESTION)) if one]
    assert len({QUESTION, *flipped}) == 3


def test_nfqueue_is_asked_only_where_headers_do_not_tell() -> None:
    assert driver_of(drop(protocol="udp", nth=2)) == NFT
    assert driver_of(drop(protocol="udp", layer="DNS")) == NFQUEUE
    assert driver_of(alter("delay", delay=1.0)) == NFQUEUE
    loss = Loss(sources=("a",), dests=("b",), rate=1.0)
    state = NetworkState(
        members=ENDS,
        faults={"f1": loss, "f2": drop(to_ports=(53, 53), layer="DNS", nth=3), "f3": drop(nth=2)},
    )
    found = statements(state, "b", "a")
    assert [one.fault for one in found] == ["f3", None, "f1"], "drops by headers come first"
    assert found[1].condition == "meta l4proto { tcp, udp } th dport 53", "it counts by itself"
    assert "mark set" in found[1].verdict
    assert (
        len(statements(NetworkState(members=ENDS, faults={"f": alter("corrupt")}), "b", "a")) == 1
    )


FILE = """\
name: chosen
guarantees: [G1]
cluster: {members: 2}
timeline:
  - {at: 1s, do: %s, from: n0, to: n1, match: {%s}, for: 1s%s}
"""


@pytest.mark.parametrize(
    ("do", "match", "more", "said"),
    [
        ("drop", "scapy: DSN", "", "scapy has no layer DSN; did you mean DNS?"),
        ("drop", "where: {DNS.rr: 1}", "", "DNS has no field rr; known: length, id, qr"),
        ("drop", "where: {DNS: 1}", "", "write layer and field, such as DNS.qr"),
        ("drop", "where: {}", "", "it names no field"),
        ("drop", "", "", "it selects every packet"),
        ("packets", "scapy: DNS", ", does: drops", "there is no such deed"),
        ("packets", "scapy: DNS", ", does: delay", "delay belongs to"),
        ("packets", "scapy: DNS", ", does: corrupt, delay: 1s", "delay belongs to"),
        ("packets", "scapy: DNS", ", does: corrupt, copies: 2", "copies belong to"),
        ("packets", "scapy: DNS", ", does: change", "set belongs to"),
        ("packets", "scapy: DNS", ", does: delay, delay: 1s, set: {DNS.qr: 1}", "set belongs to"),
        ("packets", "scapy: DNS", ", does: change, set: {DNS.rcode: no-such}", "DNS.rcode cannot"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(
    do: str, match: str, more: str, said: str
) -> None:
    with pytest.raises(ConfigError) as error:
        parse_scenario(FILE % (do, match, more), "bad.yaml")
    assert said in str(error.value)
    assert str(error.value).startswith("bad.yaml:5:")
    assert "\n" not in str(error.value)


def test_it_is_read_and_written_alike_and_needs_its_feature() -> None:
    match = 'protocol: udp, scapy: DNS, where: {DNS.qr: 1, DNS.qd.qname: "a."}, nth: 2'
    scenario = parse_scenario(
        FILE % ("packets", match, ', does: forge, set: {DNS.rcode: 3, TCP.flags: "R"}, times: 4')
    )
    assert parse_scenario(dump(scenario)) == scenario
    assert "packet-contents" in features_of(scenario, in_members=False, is_group=False)
    acting = {"f1": scenario.timeline[0].action}
    state = NetworkState(members=("n0", "n1"), faults=acting)  # type: ignore[arg-type]
    assert parse_state(state.to_text()) == state


def test_an_agent_reads_a_state_without_asking_scapy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packets wait meanwhile."""
    state = NetworkState(members=ENDS, faults={"f": drop(layer="NoSuchLayer")}).to_text()

    def loads() -> None:
        raise AssertionError("it takes seconds")

    monkeypatch.setattr(packet_layers, "load", loads)
    assert parse_state(state).faults["f"] == drop(layer="NoSuchLayer")
