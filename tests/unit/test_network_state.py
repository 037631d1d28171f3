"""The desired state of a network, as a value and as text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stormcast.chaos import faults
from stormcast.chaos.language.network_state import PACKETS, NetworkState, parse_state
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.match import Match

STATE = NetworkState(
    members=("n0", "n1", "n2"),
    places={"n0": ("198.18.0.2", "fd00:5c::2"), "n1": ("198.18.0.3",), "n2": ()},
    base=faults.Link(delay=0.02, loss=0.01),
    faults={
        "f1": faults.Partition(groups=(("n0", "n1"), ("n2",))),
        "f2": faults.Loss(sources=("n0",), dests=("n1", "n2"), rate=0.05),
        "first": faults.Rule(match=Match(kinds=("DATA",), seqno=(1, 1)), times=1),
    },
    seed=7,
    netem=True,
)


def test_a_state_reads_back_from_its_text() -> None:
    assert parse_state(STATE.to_text()) == STATE


def test_a_state_says_for_what_dice_are_thrown_where_that_is_not_for_frames() -> None:
    assert "dice" not in STATE.to_text()
    by_packets = replace(STATE, dice=PACKETS)
    assert parse_state(by_packets.to_text()) == by_packets


def test_what_strikes_a_member_is_listed_per_sender_in_the_order_of_the_faults() -> None:
    struck = [(fault, source) for fault, source, _what in STATE.struck("n2")]
    assert struck == [("f1", "n0"), ("f1", "n1"), ("f2", "n0"), ("first", "n0"), ("first", "n1")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("do: loss", "do: crash"),
        ("seed: 7", "seed: x"),
        ("members: ", "people: "),
        ("5%", "105%"),
        ("netem: true", "netem: yes"),
        ("netem: true", "netem: true\ndice: coins"),
        ("198.18.0.", "198.18.1000."),
        ("id: first", 'id: "first\\nadd table inet left"'),
        ("id: first", "id: 'a\" ; }'"),
        ("id: first", "id: network"),
        ("id: first", f"id: {'f' * 64}"),
        ("members: [n0,", 'members: ["n0\\e[2J",'),
        ("n2: []", '"n2 {": []'),
    ],
)
def test_a_text_that_is_no_state_is_refused(old: str, new: str) -> None:
    assert old in STATE.to_text()
    with pytest.raises(ConfigError) as refused:
        parse_state(STATE.to_text().replace(old, new))
    assert str(refused.value).isprintable()
