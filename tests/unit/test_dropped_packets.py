"""Drops of packets by their headers: what the kernel is told, and what is refused."""

from __future__ import annotations

import pytest

from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.drivers.selection import packets_met, statements
from stormcast.chaos.faults import Cut, DropPackets, Loss, PacketMatch
from stormcast.chaos.language.network_state import NetworkState, parse_state
from stormcast.chaos.language.scenario import dump, parse_scenario
from stormcast.chaos.session.runner import run_scenario
from stormcast.node.core.errors import ConfigError

MATCH = "{protocol: tcp, to_port: 6379, size: 100B..1500B, nth: 3}"
FILE = f"""\
name: drops
guarantees: [G1]
cluster: {{members: 2}}
timeline:
  - {{at: 1s, do: drop, from: n0, to: n1, match: {MATCH}, for: 1s}}
"""


def drop(**words: object) -> DropPackets:
    return DropPackets(sources=("a",), dests=("b",), match=PacketMatch(**words))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"protocol": "tcp"}, "meta l4proto tcp"),
        ({"to_ports": (80, 80)}, "meta l4proto { tcp, udp } th dport 80"),
        ({"protocol": "udp", "from_ports": (1, 9)}, "meta l4proto udp th sport 1-9"),
        ({"protocol": "icmp"}, "meta l4proto { icmp, ipv6-icmp }"),
        ({"sizes": (100, 1500), "nth": 3}, "meta length 100-1500 numgen inc mod 3 == 2"),
    ],
)
def test_each_condition_is_one_of_the_kernels(words: dict[str, object], told: str) -> None:
    assert packets_met(PacketMatch(**words)) == told  # type: ignore[arg-type]


def test_a_drop_comes_after_cuts_and_before_all_dice() -> None:
    loss = Loss(sources=("a",), dests=("b",), rate=1.0)
    state = NetworkState(members=("a", "b"), faults={"f1": loss, "f2": drop(nth=2)})
    assert [one.fault for one in statements(state, "b", "a")] == ["f2", "f1"]
    assert statements(state, "a", "b") == []
    cut = NetworkState(
        members=("a", "b"), faults={"f1": drop(nth=2), "f2": Cut(sources=("a",), dests=("b",))}
    )
    assert [one.fault for one in statements(cut, "b", "a")] == ["f2"]


def test_it_is_read_and_written_alike() -> None:
    scenario = parse_scenario(FILE)
    assert parse_scenario(dump(scenario)) == scenario
    state = NetworkState(members=("a", "b"), faults={"f1": drop(protocol="udp", sizes=(1, 9))})
    assert parse_state(state.to_text()) == state


@pytest.mark.parametrize(
    ("match", "said"),
    [
        ("{}", "it selects every packet; write a condition, or cut"),
        ("{protocol: icmp, to_port: 7}", "icmp has no ports"),
        ("{to_port: 70000}", "it must be 1..65535"),
        ("{to_port: 9..1}", "write the smaller first"),
        ("{protocol: sctp}", "no such protocol"),
        ("{nth: 1}", "it must be 2..1000000"),
    ],
)
def test_what_selects_nothing_sensible_is_refused(match: str, said: str) -> None:
    wrong = FILE.replace(MATCH, match)
    with pytest.raises(ConfigError) as error:
        parse_scenario(wrong, "bad.yaml")
    assert said in str(error.value)
    assert str(error.value).startswith("bad.yaml:5:")


def test_the_simulator_has_no_packets_and_says_so() -> None:
    with pytest.raises(Unsupported, match="the simulator has frames, and no packets"):
        run_scenario(parse_scenario(FILE), 1)
