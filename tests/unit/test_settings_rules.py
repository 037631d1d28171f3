"""Stacks that cannot work are refused before anything starts, with the reason and the remedy."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.node import trace
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.model import Address
from stormcast.node.core.timing import Timing
from stormcast.node.protocols.discovery import DnsPingConfig
from stormcast.node.protocols.testing import TEST_PROTOCOLS, read_test_protocol
from stormcast.node.reading.config_shapes import shape_of
from stormcast.node.reading.items import PlainItem
from stormcast.node.settings import StackSettings, load_settings, read_layers
from stormcast.node.settings.protocols import CONFIGS
from stormcast.node.settings.rules import check_order
from stormcast.node.settings.transports import TRANSPORTS, Nio2Config, TcpConfig, TransportConfig
from stormcast.node.stack import Stack
from stormcast.node.trace import read_blocks_untrusted
from stormcast.node.trace.tracer import Tracer

UDP = (
    "FRAG", "MFC", "UFC", "GMS", "STABLE", "UNICAST3", "NAKACK2", "VERIFY_SUSPECT2", "FD_ALL3",
    "FD_SOCK2", "MERGE3", "PING", "UDP",
)  # fmt: skip  # a list of words
TCP = (*UDP[:-2], "STATIC", "TCP")
MCAST = tuple({"NAKACK2": "MCAST"}.get(name, name) for name in UDP if name not in ("MFC", "STABLE"))
NOTHING_LOST = "stack tcp-no-retransmit: NAKACK2.xmit_interval is 0, so nothing is retransmitted"
STACKS = sorted(
    path.name.removesuffix(".yaml") for path in files("stormcast.node").joinpath("stacks").iterdir()
)
TIMINGS = ("compatible", "fast")


@cache
def shipped(stack: str, timing: str) -> StackSettings:
    """Reading the files takes longer than what is tested."""
    return load_settings(stack, timing)


def without(*names: str, stack: tuple[str, ...] = UDP) -> list[str]:
    return [name for name in stack if name not in names]


def swapped(upper: str, lower: str, stack: tuple[str, ...] = UDP) -> list[str]:
    """A stack in which two protocols have changed places."""
    places = {upper: lower, lower: upper}
    return [places.get(name, name) for name in stack]


def refusal_of(names: list[str]) -> str:
    with pytest.raises(ConfigError) as refused:
        check_order(names, "s")
    return str(refused.value)


# -- What there is -------------------------------------------------------------------------------


def test_a_protocol_that_is_not_there_is_refused_with_the_nearest() -> None:
    assert refusal_of(["UNICAST33", "UDP"]) == (
        "stack s: unknown protocol UNICAST33; did you mean UNICAST3?"
    )
    assert refusal_of([*without(), "DISCRAD"]) == (
        "stack s: unknown protocol DISCRAD; did you mean DISCARD?"
    )


def test_a_protocol_that_is_like_no_other_is_answered_with_all_there_are() -> None:
    message = refusal_of(["X9", "UNICAST3", "UDP"])
    assert message.startswith("stack s: unknown protocol X9; known: ")
    assert message.partition("known: ")[2].split(", ") == [*CONFIGS, *TEST_PROTOCOLS]


def test_a_protocol_is_listed_once() -> None:
    assert refusal_of(["UNICAST3", "UNICAST3", "UDP"]) == (
        "stack s: a protocol is listed twice; keep one"
    )
    assert refusal_of(["GMS", *UDP]) == "stack s: a protocol is listed twice; keep one"


# -- One of each kind ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names", [[], ["UNICAST3"], ["UNICAST3", "TCP", "UDP"], without("UDP"), [*TCP, "UDP"]]
)
def test_a_stack_has_exactly_one_transport(names: list[str]) -> None:
    assert refusal_of(names) == "stack s: needs exactly one transport (TCP, TCP_NIO2, UDP)"


@pytest.mark.parametrize("names", [["UDP", "UNICAST3"], ["UNICAST3", "UDP", "DISCARD"]])
def test_the_transport_is_the_bottom(names: list[str]) -> None:
    assert refusal_of(names) == "stack s: UDP must come last: a transport is the bottom"


@pytest.mark.parametrize(("names", "number"), [(["UDP"], 0), (["UNICAST3", "UNICAST4", "UDP"], 2)])
def test_a_stack_has_exactly_one_reliable_unicast(names: list[str], number: int) -> None:
    assert refusal_of(names) == (
        f"stack s: has {number} reliable unicast protocols; "
        "list exactly one of UNICAST, UNICAST2, UNICAST3, UNICAST4"
    )


def test_a_stack_has_at_most_one_reliable_multicast() -> None:
    names = without()
    names.insert(names.index("NAKACK2"), "MCAST")
    assert refusal_of(names) == (
        "stack s: has 2 reliable multicast protocols; list at most one of NAKACK2, MCAST"
    )


def test_a_stack_has_at_most_one_discovery() -> None:
    names = without()
    names.insert(names.index("PING"), "STATIC")
    assert refusal_of(names) == (
        "stack s: has 2 discovery protocols; list at most one of STATIC, PING, DNS_PING"
    )


# -- What needs what -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["MFC", "STABLE", "NAKACK2", "MCAST", "VERIFY_SUSPECT2", "FD_ALL3", "FD_SOCK2", "MERGE3",
     "STATIC", "PING"],
)  # fmt: skip  # a list of words
def test_half_a_group_is_refused(name: str) -> None:
    """A setting that quietly does nothing is worse than one that is refused."""
    order = list(CONFIGS)
    names = sorted(["UNICAST3", "UDP", name], key=order.index)
    assert refusal_of(names) == (
        f"stack s: {name} needs a group, and there is no GMS; add GMS or remove {name}"
    )


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            without("NAKACK2", "MFC", "STABLE"),
            "GMS needs NAKACK2 or MCAST, because views and digests begin the windows of a "
            "multicast; add it",
        ),
        (
            without("PING"),
            "GMS needs STATIC or PING or DNS_PING, because a joiner must find somebody to ask; "
            "add it",
        ),
        (
            without("STABLE"),
            "NAKACK2 needs STABLE, because without it no multicast is ever purged; add it",
        ),
        (
            without("VERIFY_SUSPECT2", "FD_SOCK2"),
            "FD_ALL3 needs VERIFY_SUSPECT2, because a suspicion is a hint, and has to be "
            "verified; add it",
        ),
        (
            without("VERIFY_SUSPECT2", "FD_ALL3"),
            "FD_SOCK2 needs VERIFY_SUSPECT2, because a suspicion is a hint, and has to be "
            "verified; add it",
        ),
    ],
)
def test_what_a_protocol_leans_on_must_be_there(names: list[str], message: str) -> None:
    assert refusal_of(names) == f"stack s: {message}"


@pytest.mark.parametrize(
    ("other", "above", "why"),
    [
        ("STABLE", "UNICAST3", "MCAST learns from acks what can be purged"),
        ("MFC", "UFC", "flow control is built into its fixed window"),
    ],
)
def test_what_mcast_does_itself_has_no_place_beside_it(other: str, above: str, why: str) -> None:
    names = list(MCAST)
    names.insert(names.index(above), other)
    assert refusal_of(names) == (f"stack s: {other} has no place with MCAST: {why}; remove {other}")


@pytest.mark.parametrize("transport", ["TCP", "TCP_NIO2"])
def test_ping_needs_a_network_that_multicasts(transport: str) -> None:
    assert refusal_of([*without("UDP"), transport]) == (
        f"stack s: PING multicasts, and {transport} cannot; use STATIC or DNS_PING"
    )


# -- The order -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("upper", "lower"),
    [
        ("FRAG", "MFC"),
        ("UFC", "GMS"),
        ("GMS", "STABLE"),
        ("STABLE", "UNICAST3"),
        ("NAKACK2", "VERIFY_SUSPECT2"),
        ("VERIFY_SUSPECT2", "FD_ALL3"),
        ("FD_SOCK2", "MERGE3"),
        ("MERGE3", "PING"),
    ],
)
def test_protocols_stand_in_their_order(upper: str, lower: str) -> None:
    assert refusal_of(swapped(upper, lower)) == (
        f"stack s: {lower} must stand below {upper}; stacks are listed top to bottom"
    )


@pytest.mark.parametrize(
    ("one", "other"), [("MFC", "UFC"), ("UNICAST3", "NAKACK2"), ("FD_ALL3", "FD_SOCK2")]
)
def test_protocols_of_one_rank_may_stand_either_way(one: str, other: str) -> None:
    check_order(swapped(one, other), "s")


@pytest.mark.parametrize("name", TEST_PROTOCOLS)
def test_a_test_protocol_may_stand_anywhere_above_the_transport_and_more_than_once(
    name: str,
) -> None:
    for place in range(len(UDP)):
        check_order([*UDP[:place], name, *UDP[place:]], "s")
    check_order([name, *UDP[:-1], name, name, "UDP"], "s")


@pytest.mark.parametrize("names", [UDP, TCP, MCAST, ("UNICAST", "TCP"), without("FRAG", "MERGE3")])
def test_a_stack_that_can_work_is_not_refused(names: list[str]) -> None:
    check_order(names, "s")


# -- Values that contradict each other -----------------------------------------------------------


def test_a_fragment_fits_a_frame() -> None:
    """Holds at the limit, fails just past it."""
    limit = shipped("udp", "compatible").max_frame
    assert load_settings("udp", protocols={"FRAG": {"frag_size": limit}}).fragments is not None
    with pytest.raises(ConfigError) as refused:
        load_settings("udp", protocols={"FRAG": {"frag_size": limit + 1}})
    assert str(refused.value) == (
        f"stack udp: FRAG.frag_size is {limit + 1}, above the {limit} bytes of a frame; lower it"
    )


@pytest.mark.parametrize("flow", ["MFC", "UFC"])
def test_a_fragment_fits_the_least_credits(flow: str) -> None:
    """JGRP-590, JGRP-1659: a fragment that never gets enough credits waits for ever."""

    def settings(frag_size: int) -> StackSettings:
        credit = {"max_credits": 100_000, "min_threshold": 0.25}
        return load_settings("udp", protocols={"FRAG": {"frag_size": frag_size}, flow: credit})

    assert settings(24_999).of("FRAG").frag_size == 24_999
    with pytest.raises(ConfigError) as refused:
        settings(25_000)
    assert str(refused.value) == (
        "stack udp: FRAG.frag_size is 25000, not below the least "
        f"credits of {flow} (25000): a fragment would wait for ever; lower it or raise "
        f"{flow}.max_credits"
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"drop_when_full": True},
            "but TCP_NIO2.drop_when_full is true; set it to false",
        ),
        (
            {"receive_queue": 5},
            "but TCP_NIO2.receive_queue is 5 and drops what comes beyond; set it to 0",
        ),
        (
            {"max_send_buffers": 5},
            "but TCP_NIO2.max_send_buffers drops what comes beyond; set it to 0",
        ),
        (
            {"conn_expire_time": 0.5},
            "but TCP_NIO2.conn_expire_time is 0.5 and may close a connection in use; set it to 0",
        ),
    ],
)
def test_without_retransmission_nothing_below_may_drop(
    values: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        load_settings("tcp-no-retransmit", protocols={"TCP_NIO2": values})
    assert str(refused.value) == f"{NOTHING_LOST}, {message}"


@pytest.mark.parametrize("interval", [0, 0.0, -1.0])
def test_without_retransmission_a_network_that_loses_is_refused(interval: float) -> None:
    with pytest.raises(ConfigError) as refused:
        load_settings("udp", protocols={"NAKACK2": {"xmit_interval": interval}})
    assert str(refused.value) == (
        "stack udp: NAKACK2.xmit_interval is 0, so nothing is retransmitted, but UDP loses "
        "messages; use TCP or TCP_NIO2, or a positive xmit_interval"
    )


def test_with_retransmission_an_idle_connection_may_expire() -> None:
    assert load_settings("tcp", protocols={"TCP": {"conn_expire_time": "30s"}})


def test_ping_needs_a_transport_that_may_multicast() -> None:
    assert load_settings("udp", protocols={"UDP": {"ip_mcast": "auto"}})
    with pytest.raises(ConfigError) as refused:
        load_settings("udp", protocols={"UDP": {"ip_mcast": "never"}})
    assert str(refused.value) == (
        "stack udp: PING asks by multicast, and UDP.ip_mcast is never; use STATIC or DNS_PING, "
        "or allow it"
    )
    # Without a group nobody is looked for.
    assert load_settings("unicast-only", protocols={"UDP": {"ip_mcast": "never"}})


def by_dns(stack: str, bind_port: int, **values: Any) -> StackSettings:
    """A shipped stack that looks for others by DNS."""
    settings = shipped(stack, "compatible")
    transport, config = settings.layers[-1]
    bound = (transport, replace(config, bind_port=bind_port))
    layers = (*settings.layers[:-2], ("DNS_PING", DnsPingConfig(**values)), bound)
    return StackSettings(name="dns", layers=layers, timing=settings.timing)


@pytest.mark.parametrize("stack", ["udp", "tcp", "tcp-nio2", "mcast"])
def test_dns_ping_needs_a_name(stack: str) -> None:
    assert by_dns(stack, 7800, dns_query="members.example")
    with pytest.raises(ConfigError) as refused:
        by_dns(stack, 7800)
    assert str(refused.value) == (
        "stack dns: DNS_PING.dns_query is empty; set it to the name whose records are the members"
    )


@pytest.mark.parametrize(
    ("record_type", "records"), [("auto", "A and AAAA"), ("A", "A"), ("AAAA", "AAAA")]
)
def test_dns_ping_needs_a_port_from_somewhere(record_type: str, records: str) -> None:
    """Of its own, of what is bound, or of the records."""
    query = {"dns_query": "members.example", "record_type": record_type}
    assert by_dns("udp", 1, **query)
    assert by_dns("udp", 0, **query, port=1)
    assert by_dns("udp", 0, dns_query="members.example", record_type="SRV")
    with pytest.raises(ConfigError) as refused:
        by_dns("udp", 0, **query)
    assert str(refused.value) == (
        f"stack dns: DNS_PING.port is 0, and so is UDP.bind_port: {records} records name no port; "
        "set either, or use SRV records"
    )


def test_a_museum_may_lose_messages_on_purpose() -> None:
    settings = load_settings(
        "group-museum",
        protocols={"TCP_NIO2": {"drop_when_full": True, "receive_queue": 5, "max_send_buffers": 5}},
    )
    assert settings.is_museum
    assert settings.transport_config == Nio2Config(receive_queue=5, max_send_buffers=5)


LOSSLESS = ("GMS", "STABLE", "UNICAST3", "NAKACK2", "VERIFY_SUSPECT2", "FD_ALL3", "STATIC")


def without_retransmission(
    *test_protocols: str, below: str = "NAKACK2", museum: bool = False, **settings: object
) -> StackSettings:
    """Over connections that lose nothing, with test protocols right below one of its protocols."""
    listed = [(name, CONFIGS[name]()) for name in LOSSLESS]
    listed = [
        (name, replace(config, xmit_interval=0.0) if name == "NAKACK2" else config)
        for name, config in listed
    ]
    at = LOSSLESS.index(below) + 1
    placed = [(name, read_test_protocol(name, settings)) for name in test_protocols]
    layers = (*listed[:at], *placed, *listed[at:], ("TCP", TcpConfig(drop_when_full=False)))
    return StackSettings(
        name="mine", layers=layers, timing=Timing(name="fast", adaptive=True), is_museum=museum
    )


@pytest.mark.parametrize("below", ["NAKACK2", "VERIFY_SUSPECT2", "STATIC"])
@pytest.mark.parametrize("test_protocol", ["DISCARD", "DROP"])
def test_without_retransmission_nothing_below_may_lose_messages_on_purpose(
    test_protocol: str, below: str
) -> None:
    with pytest.raises(
        ConfigError, match=f"stack mine: .* but {test_protocol} below NAKACK2 loses"
    ):
        without_retransmission(test_protocol, below=below)
    assert without_retransmission(test_protocol, below=below, museum=True)
    assert without_retransmission(test_protocol, below="GMS"), (
        "above NAKACK2 nothing is repaired anyway"
    )
    other = without_retransmission(
        test_protocol, below=below, match={"protocol": ["FD_ALL3", "GMS"]}
    )
    assert other.test_protocols
    with pytest.raises(ConfigError, match=test_protocol):
        without_retransmission(
            test_protocol, below=below, match={"protocol": ["FD_ALL3", "NAKACK2"]}
        )


def test_of_two_with_one_name_each_is_looked_at() -> None:
    """A mapping of protocols by name would have the last one only."""
    settings = without_retransmission("DROP", match={"protocol": "GMS"})
    at = [name for name, _config in settings.layers].index("NAKACK2") + 1
    layers = list(settings.layers)
    layers.insert(at, ("DROP", read_test_protocol("DROP", {})))
    with pytest.raises(ConfigError, match="DROP below NAKACK2"):
        replace(settings, layers=tuple(layers))


def test_without_retransmission_late_and_disordered_messages_are_no_loss() -> None:
    test_protocols = ("DELAY", "DUPLICATE", "SHUFFLE", "REVERSE")
    assert [
        name for _at, name, _config in without_retransmission(*test_protocols).test_protocols
    ] == list(test_protocols)


def interval(stack: str, value: str) -> None:
    """Give NAKACK2 another interval."""
    shipped(stack, "compatible").with_attribute("NAKACK2.xmit_interval", value)


def test_retransmission_ends_at_run_time_only_where_it_may_at_the_start() -> None:
    """And it may begin anywhere."""
    for stack in STACKS:
        if shipped(stack, "compatible").multicast == "NAKACK2":
            interval(stack, "1s")
    interval("tcp-no-retransmit", "0s")
    interval("group-museum", "0s")
    for stack, reason in [
        ("udp", "but UDP loses messages"),
        ("tcp", "but TCP.drop_when_full is true"),
        ("tcp-nio2", "but TCP_NIO2.drop_when_full is true"),
    ]:
        with pytest.raises(ConfigError, match=rf"stack {stack}: .* nothing is .*, {reason}"):
            interval(stack, "0s")


@pytest.mark.parametrize(
    ("config", "name", "least"),
    [
        (TransportConfig, "queue_frames", 1),
        (TransportConfig, "receive_queue", 0),
        (Nio2Config, "queue_frames", 1),
        (Nio2Config, "receive_queue", 0),
        (Nio2Config, "max_send_buffers", 0),
    ],
)
def test_the_sizes_of_a_transport_hold_at_their_limits_and_fail_just_past_them(
    config: type[Any], name: str, least: int
) -> None:
    assert getattr(config(**{name: least}), name) == least
    with pytest.raises(ConfigError, match=f"{name} is {least - 1}: it must"):
        config(**{name: least - 1})


# -- The stacks that ship ------------------------------------------------------------------------


def test_the_stacks_that_ship_are_these() -> None:
    listed = {stack: [name for name, _values in read_layers(stack)] for stack in STACKS}
    no_retransmit = [*TCP[:-1], "TCP_NIO2"]
    assert listed == {
        "udp": [*UDP],
        "tcp": [*TCP],
        "tcp-nio2": no_retransmit,
        "tcp-no-retransmit": no_retransmit,
        "group-museum": no_retransmit,
        "mcast": ["UNICAST4" if name == "UNICAST3" else name for name in MCAST],
        "mcast-museum": ["UNICAST4" if name == "UNICAST3" else name for name in MCAST],
        "unicast-only": ["UNICAST3", "UDP"],
        "unicast-museum": ["UNICAST3", "UDP"],
    }


@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("stack", STACKS)
def test_every_stack_that_ships_loads_with_both_timings(stack: str, timing: str) -> None:
    settings = shipped(stack, timing)
    names = [name for name, _config in settings.layers]
    assert names == [name for name, _values in read_layers(stack)]
    assert all(type(config) is CONFIGS[name] for name, config in settings.layers)
    assert (settings.name, settings.timing.name) == (stack, timing)
    assert settings.timing.adaptive == (timing == "fast")
    assert settings.is_museum == stack.endswith("-museum")
    assert settings.has_group == (not stack.startswith("unicast-"))
    assert settings.transport in TRANSPORTS
    assert settings.unicast == ("UNICAST4" if stack.startswith("mcast") else "UNICAST3")


@pytest.mark.parametrize("timing", TIMINGS)
def test_a_stack_without_retransmission_stays_so_whatever_the_timing(timing: str) -> None:
    """The timing sets a pace for NAKACK2; where the stack says there is none, there is none."""
    for stack in ("tcp-no-retransmit", "group-museum"):
        config = shipped(stack, timing).multicast_config
        assert config is not None
        assert (config.xmit_interval, config.retransmits) == (0.0, False)
    for stack in ("udp", "tcp", "tcp-nio2", "mcast"):
        config = shipped(stack, timing).multicast_config
        assert config is not None
        assert config.xmit_interval == (0.5 if timing == "fast" else 1.0)


@pytest.mark.parametrize("stack", STACKS)
def test_the_compatible_timing_leaves_every_interval_as_the_stack_has_it(stack: str) -> None:
    for (name, config), (_name, values) in zip(
        shipped(stack, "compatible").layers, read_layers(stack), strict=True
    ):
        assert config == shape_of(CONFIGS[name]).read(PlainItem(values, name)), name


# -- What the trace keeps ------------------------------------------------------------------------


def start_of(settings: StackSettings) -> dict[str, Any]:
    """The settings in a member's START event."""
    blocks: list[bytes] = []
    tracer = Tracer(1, 0, xxh3_64_intdigest, blocks.append)
    Stack(Address(1, "a"), "test", settings, xxh3_64_intdigest, tracer, 0.0)
    tracer.seal()
    (block,) = read_blocks_untrusted(b"".join(blocks), xxh3_64_intdigest)
    start = block.events[0]
    assert start.kind == trace.START
    name, identity, text = block.text(start).split(" ", 2)
    assert (name, int(identity, 16)) == ("a", 1)
    told: dict[str, Any] = json.loads(text, parse_constant=pytest.fail)
    return told


@pytest.mark.parametrize(
    ("stack", "name", "settings", "what"),
    [
        ("udp", "STABLE", {"desired_avg_gossip": 0}, "STABLE.desired_avg_gossip is 0, so a lost"),
        ("mcast", "MCAST", {"resend_last_seqno": False}, "MCAST.resend_last_seqno is false, so"),
        ("udp", "NAKACK2", {"max_xmit_req_ranges": 4097}, "4097: a frame carries 4096"),
        ("udp", "UNICAST3", {"max_xmit_req_ranges": 4097}, "4097: a frame carries 4096"),
        ("udp", "MERGE3", {"max_participants": 1}, "max_participants is 1: a merge takes 2"),
    ],
)
def test_settings_with_which_something_stays_lost_or_apart_are_refused(
    stack: str, name: str, settings: dict[str, object], what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        load_settings(stack, protocols={name: settings})


def test_members_are_suspected_only_where_somebody_asks_them(tmp_path: Path) -> None:
    """At the start, and when the limit is set while the stack runs."""
    unasked = tmp_path / "unasked.yaml"
    unasked.write_text("about: x\nprotocols: [GMS, UNICAST4, MCAST, STATIC, UDP]\n")
    refusal = "slow_member_timeout is 5 and needs VERIFY_SUSPECT2"
    with pytest.raises(ConfigError, match=refusal):
        load_settings(str(unasked), protocols={"MCAST": {"slow_member_timeout": 5.0}})
    settings = load_settings(str(unasked))
    stack = Stack(Address(1, "a"), "test", settings, xxh3_64_intdigest, quiet_tracer(), 0.0)
    with pytest.raises(ConfigError, match=refusal):
        stack.set_attribute("MCAST.slow_member_timeout", 5.0, 0.0)


def quiet_tracer() -> Tracer:
    return Tracer(1, 0, xxh3_64_intdigest, lambda _block: None)


@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("stack", STACKS)
def test_a_trace_tells_every_setting_of_every_protocol_and_what_it_promises(
    stack: str, timing: str
) -> None:
    """In strict JSON, which any reader can read."""
    settings = shipped(stack, timing)
    told = start_of(settings)
    assert (told["stack"], told["timing"], told["protocol"]) == (stack, timing, settings.unicast)
    unicast = {key: told[key] for key in told.keys() - {"stack", "timing", "protocol", "protocols"}}
    protocols = {**told["protocols"], settings.unicast: unicast}
    assert protocols.keys() == {name for name, _config in settings.layers}
    for name, config in settings.layers:
        bounds = protocols[name].pop("bounds")
        assert all(bound is None or bound >= 0 for bound in bounds.values()), name
        assert protocols[name].keys() == {field.name for field in fields(config)}, name
    assert unicast["xmit_interval"] == settings.unicast_config.xmit_interval
    if settings.multicast_config is not None:
        mine = protocols[settings.multicast]
        assert mine["xmit_interval"] == settings.multicast_config.xmit_interval
        assert mine["window_messages"] == settings.multicast_config.window_messages


def test_what_is_not_promised_is_null_in_a_trace() -> None:
    """JSON has no infinity."""
    told = start_of(load_settings("udp", protocols={"UNICAST3": {"max_retransmit_time": 0}}))
    assert told["bounds"]["age_within"] is None
