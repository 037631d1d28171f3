"""Who must go before a newcomer fits: nobody while there is room, else first those of its own
address."""

from __future__ import annotations

import pytest

from stormcast.node.admission import Bounds, address_key, in_the_way

BOUNDS = Bounds(most=4, per_address=2)


@pytest.mark.parametrize(
    ("there", "newcomer", "in_its_way"),
    [
        ("", "a", ""),
        ("abc", "d", ""),
        ("abcd", "e", "abcd"),
        ("aab", "a", "aa"),
        ("aab", "b", ""),
        ("aabb", "a", "aa"),
        ("aabb", "c", "aabb"),
    ],
)
def test_there_is_room_for_all_and_for_each_address(
    there: str, newcomer: str, in_its_way: str
) -> None:
    others = [(f"{at}{n}", at) for n, at in enumerate(there)]
    found = in_the_way(others, newcomer, BOUNDS)
    assert "".join(one[0] for one in found) == in_its_way
    assert found == [one for one, _ in others if one in found], "in their order"


def test_who_has_no_address_is_not_counted_by_it() -> None:
    assert in_the_way([(n, "") for n in range(3)], "", BOUNDS) == []
    assert in_the_way([(n, "") for n in range(4)], "", BOUNDS) == [0, 1, 2, 3]


def test_addresses_are_hosts_of_ipv4_and_subnets_of_ipv6() -> None:
    assert address_key(("192.0.2.7", 5000)) == address_key(("192.0.2.7", 5001))
    assert address_key(("192.0.2.7", 5000)) != address_key(("192.0.2.8", 5000))
    assert address_key(("::ffff:192.0.2.7", 5000, 0, 0)) == address_key(("192.0.2.7", 1))
    assert address_key(("2001:db8::1", 1, 0, 0)) == address_key(("2001:db8::ffff:2", 1, 0, 0))
    assert address_key(("2001:db8::1", 1, 0, 0)) != address_key(("2001:db8:0:1::1", 1, 0, 0))
    assert address_key(("fe80::1%eth0", 1, 0, 2)) == address_key(("fe80::2", 1, 0, 2))


def test_a_unix_socket_has_no_address() -> None:
    assert address_key("") == address_key(None) == address_key(b"\0x") == ""
