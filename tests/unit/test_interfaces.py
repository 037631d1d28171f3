"""Which address is bound: match rules, each with an interface that it takes and one that it does
not."""

from __future__ import annotations

import socket

import pytest

from stormcast.node.core.errors import ConfigError
from stormcast.node.transports.interfaces import Interface, choose, interfaces
from stormcast.node.transports.peer_places import numeric, parse_where


def there(*entries: str) -> list[Interface]:
    """`name address`, in the system's order."""
    return [
        Interface(entry.split()[0], number, entry.split()[1], "")
        for number, entry in enumerate(entries, 1)
    ]


HOST = there(
    "lo 127.0.0.1",
    "lo ::1",
    "eth0 10.1.2.3",
    "eth0 fe80::1",
    "eth0 2a01:4f8::1",
    "eth1 fd00::7",
    "eth2 8.8.4.4",
)


@pytest.mark.parametrize(
    ("rule", "address"),
    [
        ("auto", "10.1.2.3"),
        ("loopback", "127.0.0.1"),
        ("site_local", "10.1.2.3"),
        ("link_local", "fe80::1"),
        ("global", "8.8.4.4"),
        ("eth0", "10.1.2.3"),
        ("eth1", "fd00::7"),
        ("fd00::7", "fd00::7"),
        ("FD00:0::7", "fd00::7"),
        ("fe80::1%eth0", "fe80::1"),
        ("match-interface:eth[12]", "8.8.4.4"),
        ("127.9.8.7", "127.9.8.7"),
        ("match-address:10\\..*", "10.1.2.3"),
        ("eth7, match-address:fd.*", "fd00::7"),
        (" , eth7,loopback", "127.0.0.1"),
    ],
)
def test_the_first_rule_that_fits_chooses_ipv4_first(rule: str, address: str) -> None:
    chosen = choose(rule, HOST)
    assert chosen.address == address
    assert chosen.rule in map(str.strip, (rule if rule != "auto" else "site_local").split(","))


@pytest.mark.parametrize(
    "rule",
    ["eth", "eth77", "match-interface:eth", "match-address:10", "10.1.2.4", "", ",", "127.0.0.256"],
)
def test_a_rule_that_fits_nothing_is_refused_with_what_there_is(rule: str) -> None:
    with pytest.raises(ConfigError) as refused:
        choose(rule, HOST)
    said = str(refused.value)
    assert said.startswith(f"bind_addr is {rule!r}: no interface of this host fits; there is lo ")
    assert "eth0 10.1.2.3" in said


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"bind_addr is 'match-interface:\[': not a pattern: "):
        choose("match-interface:[", HOST)


def test_a_host_without_addresses_says_so() -> None:
    with pytest.raises(ConfigError, match="there is none"):
        choose("auto", [])


# Boundaries in pairs: the last address that a rule takes, and the first that it does not.
PAIRS = [
    ("site_local", "10.255.255.255", "11.0.0.0"),
    ("site_local", "172.16.0.0", "172.15.255.255"),
    ("site_local", "172.31.255.255", "172.32.0.0"),
    ("site_local", "192.168.255.255", "192.169.0.0"),
    ("site_local", "198.18.0.0", "198.17.255.255"),
    # The space that networks of pods are often made of.
    ("site_local", "100.64.0.0", "100.63.255.255"),
    ("site_local", "100.127.255.255", "100.128.0.0"),
    ("site_local", "fc00::", "2a00::"),
    ("site_local", "fdff:ffff::1", "fe80::1"),
    ("loopback", "127.255.255.255", "128.0.0.0"),
    ("loopback", "::1", "2a00::1"),
    ("link_local", "169.254.0.0", "169.253.255.255"),
    ("link_local", "169.254.255.255", "169.255.0.0"),
    ("link_local", "febf::1", "fc00::1"),
    ("global", "9.255.255.255", "10.0.0.0"),
    ("global", "128.0.0.0", "127.255.255.255"),
    ("global", "2a00::1", "fd00::1"),
]


@pytest.mark.parametrize(("rule", "inside", "outside"), PAIRS)
def test_a_kind_of_address_ends_where_it_ends(rule: str, inside: str, outside: str) -> None:
    assert choose(rule, there(f"eth0 {inside}")).address == inside
    with pytest.raises(ConfigError):
        choose(rule, there(f"eth0 {outside}"))


def test_auto_never_binds_a_public_address() -> None:
    assert choose("auto", there("eth0 8.8.8.8", "lo 127.0.0.1")).address == "127.0.0.1"
    with pytest.raises(ConfigError):
        choose("auto", there("eth0 8.8.8.8", "eth0 2a00::1"))


def test_what_is_bound_carries_the_scope_of_a_link_local_address_only() -> None:
    assert Interface("eth0", 5, "fe80::1", "").host == ("fe80::1", 0, 0, 5)
    assert Interface("eth0", 5, "fd00::1", "").host == ("fd00::1", 0, 0, 0)
    assert Interface("eth0", 5, "10.0.0.1", "").host == ("10.0.0.1", 0)


def test_a_socket_reaches_places_of_its_own_family() -> None:
    """A link-local place that somebody else names lies behind the interface that is bound."""
    four, six = Interface("eth0", 5, "10.0.0.1", ""), Interface("eth0", 5, "fe80::1", "")
    assert four.reach(("10.0.0.2", 9)) == ("10.0.0.2", 9)
    assert four.reach(("fd00::2", 9, 0, 0)) is None
    assert six.reach(("10.0.0.2", 9)) is None
    assert six.reach(("fe80::2", 9, 0, 0)) == ("fe80::2", 9, 0, 5)
    assert six.reach(("fe80::2", 9, 0, 3)) == ("fe80::2", 9, 0, 3)
    assert six.reach(("fd00::2", 9, 0, 0)) == ("fd00::2", 9, 0, 0)


def test_this_host_has_a_loopback_and_its_mtu_is_known() -> None:
    lo = next(one for one in interfaces() if one.address == "127.0.0.1")
    assert lo.mtu() >= 1500
    assert Interface("no-such-one", 99, "10.0.0.1", "").mtu() == 1500


# -- Places as members write them ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "place"),
    [
        ("198.18.0.2[7800]", ("198.18.0.2", 7800)),
        ("198.18.0.2[1]", ("198.18.0.2", 1)),
        ("198.18.0.2[65535]", ("198.18.0.2", 65535)),
        ("fd00::2[7800]", ("fd00::2", 7800, 0, 0)),
        ("FD00:0:0::2[7800]", ("fd00::2", 7800, 0, 0)),
        ("fe80::2%7[7800]", ("fe80::2", 7800, 0, 7)),
        ("fe80::2%4294967295[7800]", ("fe80::2", 7800, 0, 4294967295)),
    ],
)
def test_a_place_is_what_a_socket_wants(where: str, place: object) -> None:
    assert parse_where(where) == place


@pytest.mark.parametrize(
    "where",
    [
        "", "[", "]", "[]", "198.18.0.2", "198.18.0.2[]", "198.18.0.2[0]", "198.18.0.2[65536]",
        "198.18.0.2[-1]", "198.18.0.2[+1]", "198.18.0.2[1_0]", "198.18.0.2[ 1]", "198.18.0.2[²]",
        "198.18.0.2[٣]", "name.example[7800]", "198.18.0[7800]", "198.18.0.2\x00[7800]",
        "\x00[7800]", "198.18.0.2[7800][7801]", "\ud7ff[1]", "1" * 255,
    ],
)  # fmt: skip  # a list of words
def test_what_is_no_place_is_none_and_nothing_else(where: str) -> None:
    assert parse_where(where) is None


@pytest.mark.parametrize("scope", ["\x00", "no-such", "²", "4294967296", "9" * 200])
def test_a_scope_that_is_none_is_left_out(scope: str) -> None:
    assert numeric(f"fe80::1%{scope}", 9) == ("fe80::1", 9, 0, 0)


def test_a_scope_by_name_is_its_number() -> None:
    assert numeric("fe80::1%lo", 9) == ("fe80::1", 9, 0, socket.if_nametoindex("lo"))
