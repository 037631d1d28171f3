"""A configuration of JGroups is not taken as it is; but each error says what a name is here."""

from __future__ import annotations

from dataclasses import fields

import pytest

from stormcast.node.core.errors import ConfigError
from stormcast.node.member.settings import load_member
from stormcast.node.reading.config_shapes import shape_of
from stormcast.node.reading.items import PlainItem
from stormcast.node.settings import load_settings
from stormcast.node.settings.jgroups_names import PROTOCOLS, SETTINGS, setting_here
from stormcast.node.settings.protocols import CONFIGS
from stormcast.node.settings.rules import check_order


def names(protocol: str) -> set[str]:
    return {field.name for field in fields(CONFIGS[protocol])}


def test_every_protocol_of_the_table_is_one_here_and_goes_by_no_name_of_ours() -> None:
    assert set(PROTOCOLS.values()) <= set(CONFIGS)
    assert not set(PROTOCOLS) & set(CONFIGS)
    assert set(SETTINGS) <= set(CONFIGS)


@pytest.mark.parametrize(
    ("protocol", "name"), [(protocol, name) for protocol in SETTINGS for name in SETTINGS[protocol]]
)
def test_every_setting_of_the_table_is_refused_with_what_to_set_instead(
    protocol: str, name: str
) -> None:
    """What is said to be called something here is a setting that there is."""
    assert name not in names(protocol)
    with pytest.raises(ConfigError) as refused:
        shape_of(CONFIGS[protocol], setting_here).read(PlainItem({name: 1}, protocol))
    told = SETTINGS[protocol][name]
    if " " in told.partition(",")[0]:
        assert str(refused.value) == f"{protocol}.{name} is not set here: {told}"
    else:
        assert told.partition(",")[0] in names(protocol)
        assert str(refused.value) == f"{protocol}.{name} is called {told} here"


@pytest.mark.parametrize(
    ("stack", "unicast", "setting", "message"),
    [
        (
            "unicast-only",
            "UNICAST4",
            ("UNICAST4", "capacity"),
            "UNICAST4.capacity is called window_messages here",
        ),
        ("mcast", None, ("MCAST", "capacity"), "MCAST.capacity is called window_messages here"),
        ("udp", None, ("MERGE3", "max_participants_in_merge"), "called max_participants here"),
        ("udp", None, ("UDP", "bundler_type"), "UDP.bundler_type is called bundler here"),
        ("udp", None, ("FRAG2", "frag_size"), "stack udp has no protocol FRAG2; it is FRAG here"),
    ],
)
def test_what_is_set_by_its_name_in_jgroups_is_answered_with_the_one_here(
    stack: str, unicast: str | None, setting: tuple[str, str], message: str
) -> None:
    protocol, name = setting
    with pytest.raises(ConfigError, match=message):
        load_settings(stack, unicast=unicast, protocols={protocol: {name: 1}})


def test_protocols_of_jgroups_in_a_list_are_named_as_they_are_here() -> None:
    for listed, here in (("NAKACK4", "MCAST"), ("TCPPING", "STATIC"), ("pbcast.GMS", "GMS")):
        with pytest.raises(ConfigError, match=f"unknown protocol {listed}; it is {here} here"):
            check_order(["UNICAST3", listed, "UDP"], "mine")


@pytest.mark.parametrize("number", ["500", "0.5", "1"])
def test_a_duration_as_text_has_a_unit_because_its_number_means_another_one_in_jgroups(
    number: str,
) -> None:
    for flags, environ in (
        ({"--set": [f"NAKACK2.xmit_interval={number}"]}, {}),
        ({}, {"STORMCAST_SET_NAKACK2__XMIT_INTERVAL": number}),
    ):
        with pytest.raises(ConfigError, match=f"write its unit, as {number}ms or {number}s"):
            load_member(flags, environ)


def test_nothing_has_no_unit_and_a_share_neither() -> None:
    flags: dict[str, str | list[str] | None] = {
        "--set": ["UNICAST3.conn_expiry_timeout=0", "MFC.min_threshold=0.5"]
    }
    stack = load_member(flags, {}).settings.stack
    assert stack.of("UNICAST3").conn_expiry_timeout == 0
    assert stack.of("MFC").min_threshold == 0.5
