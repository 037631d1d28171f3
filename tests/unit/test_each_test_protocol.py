"""Test protocols do what their settings say to what they are meant for, and nothing to the rest."""

from __future__ import annotations

from math import inf
from random import Random

import pytest
from xxhash import xxh3_64_intdigest as hash64

from stormcast.node.core import wire
from stormcast.node.core.codec import Codec, pack_body
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.model import FIRST, OOB
from stormcast.node.core.wire import Head
from stormcast.node.protocols.testing import (
    TEST_PROTOCOLS,
    Item,
    TestProtocol,
    read_test_protocol,
)
from stormcast.node.reading.items import PlainItem
from stormcast.node.reading.matches import MATCH

A, B, C = 0xA, 0xB, 0xC
NAMES = {A: "a", B: "b", C: "c"}


def frame(
    lo: int = 1,
    count: int = 1,
    *,
    kind: int = wire.DATA,
    source: int = A,
    dest: int = B,
    peer: int | None = None,
    protocol: int = wire.UNICAST3,
    flags: int = 0,
    transmission: int = 0,
) -> Item:
    """A frame on its way; its data is its first seqno."""
    codec = Codec(0xC1, source, hash64)
    if kind == wire.DATA:
        body = pack_body([b"x"] * count, hash64)
        packed = codec.pack_data(protocol, dest, 1, lo, body, flags, transmission, 0, 0)
    else:
        packed = codec.pack_control(kind, protocol, dest, 1, lo, transmission=transmission)
    return Item(dest if peer is None else peer, Head._make(wire.HEAD_STRUCT.unpack(packed)), lo)


def numbered(count: int) -> list[Item]:
    return [frame(lo) for lo in range(1, count + 1)]


def made(name: str, *, seed: int = 1, **values: object) -> TestProtocol:
    return TEST_PROTOCOLS[name](
        read_test_protocol(name, values), Random(seed), lambda short: NAMES.get(short, "?")
    )


def seqnos(items: list[Item]) -> list[int]:
    return [item.data for item in items]


# -- Matching --------------------------------------------------------------------------------------


def struck(items: list[Item], way: str = "down", **match: object) -> list[int]:
    """The places, from 1, of the items that a DROP with this match takes."""
    drop = made("DROP", match=match)
    hand = drop.down if way == "down" else drop.up
    return [place for place, item in enumerate(items, 1) if not hand([item], 0.0)]


def test_without_conditions_everything_is_meant() -> None:
    assert struck([frame(), frame(kind=wire.ACK), frame(dest=wire.GROUP)]) == [1, 2, 3]


def test_protocols_and_kinds_are_named() -> None:
    items = [frame(), frame(kind=wire.ACK), frame(kind=wire.ACK, protocol=wire.NAKACK2)]
    assert struck(items, kind="ACK") == [2, 3]
    assert struck(items, protocol=["NAKACK2", "GMS"]) == [3]
    assert struck(items, kind=["ACK", "DATA"], protocol="UNICAST3") == [1, 2]


def test_members_are_named_or_given_by_their_short_id() -> None:
    items = [frame(source=A), frame(source=B), frame(source=C)]
    assert struck(items, "up", **{"from": "b"}) == [2]
    assert struck(items, "up", **{"from": ["a", "0000000c"]}) == [1, 3]


def test_on_the_way_down_the_dest_is_where_the_frame_goes() -> None:
    """A multicast that goes out over connections is meant by each member, not as the group."""
    items = [frame(dest=B), frame(dest=wire.GROUP), frame(dest=wire.GROUP, peer=C)]
    assert struck(items, to="b") == [1]
    assert struck(items, to="group") == [2]
    assert struck(items, to=["c", "group"]) == [2, 3]
    assert struck(items, "up", to="group") == [2, 3]


def test_what_goes_to_everyone_goes_to_the_group() -> None:
    assert struck([frame(dest=wire.GROUP, peer=-1)], to="group") == [1]


def test_a_batch_is_meant_if_any_of_its_seqnos_is() -> None:
    outside = [frame(1, 9), frame(21, 5)]
    inside = [frame(1, 10), frame(20, 5), frame(1, 40)]
    assert struck([*outside, *inside], seqno=[10, 20]) == [3, 4, 5]


def test_of_a_control_frame_the_seqno_is_the_one_it_carries() -> None:
    acks = [frame(lo, kind=wire.ACK) for lo in (9, 10, 20, 21)]
    assert struck(acks, seqno=[10, 20]) == [2, 3]
    assert struck(acks, seqno=21) == [4]


def test_all_of_the_flags_must_be_set() -> None:
    items = [frame(), frame(flags=OOB), frame(flags=FIRST), frame(flags=OOB | FIRST)]
    assert struck(items, flags="OOB") == [2, 4]
    assert struck(items, flags=["OOB", "FIRST"]) == [4]


def test_transmissions_are_told_apart() -> None:
    items = [frame(transmission=number) for number in range(4)]
    assert struck(items, transmission=0) == [1]
    assert struck(items, transmission=[1, 2]) == [2, 3]


def test_occurrences_count_what_meets_all_other_conditions() -> None:
    items = [frame(), frame(kind=wire.ACK)] * 4
    assert struck(items, kind="ACK", occurrence=[2, 3]) == [4, 6]
    assert struck(items, kind="ACK", occurrence=4) == [8]


def test_a_match_ends_after_so_many_times() -> None:
    items = [frame(), frame(kind=wire.ACK)] * 4
    assert struck(items, kind="ACK", times=2) == [2, 4]
    assert struck(items, kind="ACK", occurrence=[2, 9], times=1) == [4]


@pytest.mark.parametrize(("direction", "down", "up"), [("up", 0, 1), ("down", 1, 0)])
def test_a_direction_leaves_the_other_one_alone(direction: str, down: int, up: int) -> None:
    assert len(struck([frame()], "down", direction=direction)) == down
    assert len(struck([frame()], "up", direction=direction)) == up


@pytest.mark.parametrize(
    ("match", "message"),
    [
        ({"kinds": "ACK"}, "unknown key kinds"),
        ({"kind": "ACKS"}, "kind is 'ACKS': there is no such kind of frame"),
        ({"protocol": "TCP"}, "protocol is 'TCP': there is no such protocol"),
        ({"flags": "OBB"}, "flags is 'OBB': there is no such flag"),
        ({"from": 3}, "from is 3: write a name"),
        ({"direction": "left"}, "direction is 'left'"),
        ({"seqno": [5, 4]}, "seqno is"),
        ({"seqno": [1, 2, 3]}, "seqno is"),
        ({"seqno": "all"}, "seqno is 'all'"),
        ({"occurrence": True}, "occurrence is True"),
        ({"times": 0}, "times is 0"),
    ],
)
def test_a_match_that_cannot_be_meant_is_refused(match: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MATCH.read(PlainItem(match, "match"))


# -- Every test protocol -------------------------------------------------------------------------

EACH = {
    "DISCARD": {"up": 0.5, "down": 0.5},
    "DROP": {},
    "DELAY": {"delay": "100ms", "jitter": "1s"},
    "DUPLICATE": {"copies": 2},
    "SHUFFLE": {"max_size": 4},
    "REVERSE": {"max_size": 4},
}
EVERY = pytest.mark.parametrize("name", sorted(TEST_PROTOCOLS))


@EVERY
def test_what_is_not_meant_passes_untouched(name: str) -> None:
    tried = made(name, **EACH[name], match={"kind": "ACK"})
    items = numbered(20)
    assert tried.down(items, 0.0) == items
    assert tried.up(items, 0.0) == items
    assert tried.count == 0
    assert tried.next_deadline() == inf


@EVERY
def test_the_same_dice_strike_the_same_items(name: str) -> None:
    def run(seed: int) -> list[list[int]]:
        tried = made(name, seed=seed, **EACH[name])
        out = [seqnos(tried.down(numbered(30), 0.0)), seqnos(tried.up(numbered(30), 0.5))]
        return out + [seqnos(items) for items in tried.release(inf)]

    assert run(1) == run(1)
    if name in ("DISCARD", "DELAY", "SHUFFLE"):
        assert run(1) != run(2)


@EVERY
def test_nothing_is_invented_and_only_losers_lose(name: str) -> None:
    tried = made(name, **EACH[name])
    out = tried.down(numbered(30), 0.0) + tried.release(inf)[0]
    assert set(seqnos(out)) <= set(range(1, 31))
    if name not in ("DISCARD", "DROP"):
        assert set(seqnos(out)) == set(range(1, 31))
    assert tried.next_deadline() == inf
    assert tried.release(inf) == ([], [])


@EVERY
def test_every_strike_is_counted(name: str) -> None:
    tried = made(name, **EACH[name], match={"kind": "DATA", "times": 10})
    tried.up(numbered(30), 0.0)
    if name == "DISCARD":
        assert 0 < tried.count < 10
    else:
        assert tried.count == 10


@EVERY
def test_a_delivery_passes_as_a_frame_does(name: str) -> None:
    """What an item carries is opaque: it comes out as the very same object."""
    carried = object()
    tried = made(name, **EACH[name])
    item = frame()._replace(data=carried)
    out = tried.up([item] * 4, 0.0) + tried.release(inf)[1]
    assert all(each.data is carried for each in out)


# -- One by one ------------------------------------------------------------------------------------


def test_discard_loses_its_share_in_each_direction() -> None:
    tried = made("DISCARD", up=0.3, down=0.0)
    assert len(tried.down(numbered(1000), 0.0)) == 1000
    assert 650 < len(tried.up(numbered(1000), 0.0)) < 750


def test_discard_of_everything_leaves_nothing() -> None:
    tried = made("DISCARD", up=1, down=1)
    assert tried.up(numbered(100), 0.0) == tried.down(numbered(100), 0.0) == []


def test_discard_loses_the_next_few_of_each_kind() -> None:
    """Also those that a test asks for later."""
    tried = made("DISCARD", next_unicasts=2, next_multicasts=1)
    single, group = numbered(3), [frame(lo, dest=wire.GROUP) for lo in (11, 12)]
    assert seqnos(tried.down([single[0], group[0], *single[1:], group[1]], 0.0)) == [3, 12]
    assert seqnos(tried.up(single, 0.0)) == [1, 2, 3]
    tried.next_unicasts = 1  # type: ignore[attr-defined]
    assert seqnos(tried.down(single, 0.0)) == [2, 3]


def test_discard_ignores_a_member_in_one_direction() -> None:
    tried = made("DISCARD", ignored=["c"])
    both = [frame(1, source=B, dest=A), frame(2, source=C, dest=A)]
    assert seqnos(tried.up(both, 0.0)) == [1]
    assert seqnos(tried.down([frame(3, dest=C)], 0.0)) == [3]


def test_duplicate_passes_copies_right_behind_the_original() -> None:
    tried = made("DUPLICATE", copies=2, match={"seqno": 2})
    assert seqnos(tried.down(numbered(3), 0.0)) == [1, 2, 2, 2, 3]


def test_delay_holds_each_item_back_for_as_long_as_it_says() -> None:
    tried = made("DELAY", delay="100ms")
    assert tried.down([frame(1)], 0.0) == []
    assert tried.up([frame(2)], 0.05) == []
    assert tried.next_deadline() == pytest.approx(0.1)
    assert tried.release(0.099) == ([], [])
    down, up = tried.release(0.1)
    assert (seqnos(down), seqnos(up)) == ([1], [])
    down, up = tried.release(0.16)
    assert (seqnos(down), seqnos(up)) == ([], [2])


def test_delay_with_jitter_reorders_unless_it_keeps_order() -> None:
    loose = made("DELAY", delay=0.1, jitter=1.0)
    strict = made("DELAY", delay=0.1, jitter=1.0, keep_order=True)
    for tried in (loose, strict):
        assert tried.up(numbered(50), 0.0) == []
        assert tried.release(0.09) == ([], [])
    assert seqnos(loose.release(1.1)[1]) != list(range(1, 51))
    assert seqnos(strict.release(1.1)[1]) == list(range(1, 51))


def test_items_due_together_keep_their_order() -> None:
    tried = made("DELAY", delay=0.1)
    tried.down(numbered(50), 0.0)
    assert seqnos(tried.release(0.1)[0]) == list(range(1, 51))


def test_reverse_holds_so_many_and_passes_the_last_one_first() -> None:
    tried = made("REVERSE", max_size=3)
    assert seqnos(tried.up(numbered(2), 0.0)) == []
    assert seqnos(tried.up([frame(3), frame(4)], 0.0)) == [3, 2, 1]
    assert seqnos(tried.release(1.5)[1]) == [4]


def test_shuffle_by_size_passes_each_item_once() -> None:
    """The original passed the newest one n times, and lost the others."""
    tried = made("SHUFFLE", max_size=10)
    out = seqnos(tried.up(numbered(10), 0.0))
    assert sorted(out) == list(range(1, 11))
    assert out != list(range(1, 11))


@pytest.mark.parametrize("name", ["SHUFFLE", "REVERSE"])
def test_what_is_collected_is_passed_on_in_time_however_little_it_is(name: str) -> None:
    """The time counts from the first item, and for each direction on its own."""
    tried = made(name, max_size=10, max_time="1s")
    tried.down([frame(1)], 0.0)
    tried.down([frame(2)], 0.9)
    tried.up([frame(3)], 0.5)
    assert tried.next_deadline() == 1.0
    assert tried.release(0.99) == ([], [])
    down, up = tried.release(1.0)
    assert (sorted(seqnos(down)), seqnos(up)) == ([1, 2], [])
    assert tried.next_deadline() == 1.5
    assert seqnos(tried.release(1.5)[1]) == [3]
    assert tried.next_deadline() == inf


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("LOSE", {}, "unknown test protocol LOSE"),
        ("DROP", {"rate": 1}, "unknown setting rate"),
        ("DROP", {"match": "ACK"}, "write a mapping of keys to values"),
        ("DISCARD", {"up": 1.1}, "discard.up is 1.1"),
        ("DISCARD", {"down": -0.1}, "discard.down is -0.1"),
        ("DISCARD", {"up": float("nan")}, "write a share"),
        ("DISCARD", {"next_unicasts": -1}, "next_unicasts is -1"),
        ("DISCARD", {"next_unicasts": 1.5}, "write a whole number"),
        ("DUPLICATE", {"copies": 0}, "copies is 0"),
        ("DUPLICATE", {"copies": 17}, "copies is 17"),
        ("DELAY", {"delay": 0}, "nothing would be delayed"),
        ("DELAY", {"delay": "100"}, "write a duration"),
        ("DELAY", {"delay": -1}, "delay.delay is -1"),
        ("DELAY", {"keep_order": "no"}, "write true or false"),
        ("SHUFFLE", {"max_size": 0}, "max_size is 0"),
        ("REVERSE", {"max_time": 0}, "max_time is 0"),
    ],
)
def test_settings_that_cannot_work_are_refused(
    name: str, values: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read_test_protocol(name, values)
