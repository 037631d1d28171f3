"""Rules for stacks that work: which protocols need or exclude each other, and their order.

A stack that cannot work is refused before anything starts, with the reason and the remedy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from stormcast.node.core.errors import ConfigError, require, suggestion
from stormcast.node.protocols.testing import TEST_PROTOCOLS
from stormcast.node.settings.jgroups_names import protocol_here
from stormcast.node.settings.protocols import (
    CONFIGS,
    DISCOVERIES,
    RELIABLE_MULTICAST,
    RELIABLE_UNICAST,
)
from stormcast.node.settings.transports import STREAMS, TRANSPORTS, TransportConfig

Layers = Sequence[tuple[str, Any]]
"""Protocols, top to bottom, each with its settings."""

_RANKS: Final = (
    ("FRAG",),
    ("MFC", "UFC"),
    ("GMS",),
    ("STABLE",),
    (*RELIABLE_UNICAST, *RELIABLE_MULTICAST),
    ("VERIFY_SUSPECT2",),
    ("FD_ALL3", "FD_SOCK2"),
    ("MERGE3",),
    tuple(DISCOVERIES),
    tuple(TRANSPORTS),
)
_RANK: Final = {name: rank for rank, names in enumerate(_RANKS) for name in names}
_ONLY_IN_GROUPS: Final = frozenset(
    {
        "FRAG",
        "MFC",
        "UFC",
        "STABLE",
        *RELIABLE_MULTICAST,
        "VERIFY_SUSPECT2",
        "FD_ALL3",
        "FD_SOCK2",
        "MERGE3",
        *DISCOVERIES,
    }
)
_NEEDS: Final[tuple[tuple[str, tuple[str, ...], str], ...]] = (
    ("GMS", tuple(RELIABLE_MULTICAST), "views and digests begin the windows of a multicast"),
    ("GMS", tuple(DISCOVERIES), "a joiner must find somebody to ask"),
    ("NAKACK2", ("STABLE",), "without it no multicast is ever purged"),
    ("FD_ALL3", ("VERIFY_SUSPECT2",), "a suspicion is a hint, and has to be verified"),
    ("FD_SOCK2", ("VERIFY_SUSPECT2",), "a suspicion is a hint, and has to be verified"),
)
_EXCLUDES: Final[tuple[tuple[str, str, str], ...]] = (
    ("MCAST", "STABLE", "MCAST learns from acks what can be purged"),
    ("MCAST", "MFC", "flow control is built into its fixed window"),
)


def check_known(name: str, where: str = "") -> None:
    """Refuse a name that no protocol has. Only then a similar name is looked for: that takes longer
    than all other checks of a stack."""
    if name not in CONFIGS and name not in TEST_PROTOCOLS:
        near = protocol_here(name) or suggestion(name, [*CONFIGS, *TEST_PROTOCOLS])
        raise ConfigError(f"{where}unknown protocol {name}{near}")


def check_order(names: Sequence[str], stack: str) -> None:
    """Refuse a list of protocols that cannot work, with what to do about it."""
    for name in names:
        check_known(name, f"stack {stack}: ")
    listed = [name for name in names if name not in TEST_PROTOCOLS]
    require(len(set(listed)) == len(listed), f"stack {stack}: a protocol is listed twice; keep one")
    _check_kinds(listed, names, stack)
    for name, others, why in _NEEDS:
        require(
            name not in listed or any(other in listed for other in others),
            f"stack {stack}: {name} needs {' or '.join(others)}, because {why}; add it",
        )
    for name, other, why in _EXCLUDES:
        require(
            name not in listed or other not in listed,
            f"stack {stack}: {other} has no place with {name}: {why}; remove {other}",
        )
    for upper, lower in pairwise(listed):
        require(
            _RANK[upper] <= _RANK[lower],
            f"stack {stack}: {upper} must stand below {lower}; stacks are listed top to bottom",
        )


def _check_kinds(listed: Sequence[str], names: Sequence[str], stack: str) -> None:
    """Require one transport, which is last, one unicast, at most one multicast and one discovery,
    and GMS if any protocol needs a group."""
    transports = [name for name in listed if name in TRANSPORTS]
    require(
        len(transports) == 1,
        f"stack {stack}: needs exactly one transport ({', '.join(sorted(TRANSPORTS))})",
    )
    require(
        names[-1] in TRANSPORTS,
        f"stack {stack}: {transports[0]} must come last: a transport is the bottom",
    )
    for kind, choices, least in (
        ("reliable unicast protocols", tuple(RELIABLE_UNICAST), 1),
        ("reliable multicast protocols", tuple(RELIABLE_MULTICAST), 0),
        ("discovery protocols", tuple(DISCOVERIES), 0),
    ):
        number = sum(1 for name in listed if name in choices)
        require(
            least <= number <= 1,
            f"stack {stack}: has {number} {kind}; "
            f"list {'exactly' if least else 'at most'} one of {', '.join(choices)}",
        )
    if "GMS" not in listed:
        for name in listed:
            require(
                name not in _ONLY_IN_GROUPS,
                f"stack {stack}: {name} needs a group, and there is no GMS; "
                f"add GMS or remove {name}",
            )
    require(
        "PING" not in listed or transports[0] not in STREAMS,
        f"stack {stack}: PING multicasts, and {transports[0]} cannot; use STATIC or DNS_PING",
    )


def check_values(layers: Layers, stack: str, *, museum: bool, max_frame: int) -> None:
    """Refuse settings that contradict each other across protocols."""
    configs = dict(layers)
    transport = next(name for name in configs if name in TRANSPORTS)
    if frag := configs.get("FRAG"):
        require(
            frag.frag_size < max_frame + 1,
            f"stack {stack}: FRAG.frag_size is {frag.frag_size}, above the {max_frame} bytes "
            "of a frame; lower it",
        )
        for flow in ("MFC", "UFC"):
            if credit := configs.get(flow):
                require(
                    frag.frag_size < credit.min_credits,
                    f"stack {stack}: FRAG.frag_size is {frag.frag_size}, not below the least "
                    f"credits of {flow} "
                    f"({credit.min_credits}): a fragment would wait for "
                    f"ever; lower it or raise {flow}.max_credits",
                )
    _check_discovery(configs, configs[transport], transport, stack)
    if not museum:
        _check_last_messages(configs, stack)
    if mcast := configs.get("MCAST"):
        check_slow_members(configs, stack, mcast.slow_member_timeout)
    multicast = configs.get("NAKACK2")
    if multicast is not None and not multicast.retransmits and not museum:
        check_lossless(layers, stack)


def _check_last_messages(configs: Mapping[str, Any], stack: str) -> None:
    """Refuse settings with which nobody would find out that a last multicast was lost."""
    if "NAKACK2" in configs and (stable := configs.get("STABLE")):
        require(
            stable.desired_avg_gossip > 0,
            f"stack {stack}: STABLE.desired_avg_gossip is 0, so a lost last multicast is never "
            "found, and a full window never emptied, once nobody sends; write a duration",
        )
    if mcast := configs.get("MCAST"):
        require(
            mcast.resend_last_seqno,
            f"stack {stack}: MCAST.resend_last_seqno is false, so a lost last multicast is never "
            "found; remove it",
        )


def check_slow_members(names: Collection[str], stack: str, timeout: float) -> None:
    """Refuse that members are suspected for holding up a window, where nobody would ask them."""
    require(
        timeout <= 0 or "VERIFY_SUSPECT2" in names,
        f"stack {stack}: MCAST.slow_member_timeout is {timeout:g} and needs VERIFY_SUSPECT2, "
        "because a suspicion is a hint, and has to be verified; add it",
    )


def _check_discovery(
    configs: Mapping[str, Any], config: TransportConfig, transport: str, stack: str
) -> None:
    """Refuse settings with which discovery could find nobody."""
    require(
        "PING" not in configs or getattr(config, "ip_mcast", "") != "never",
        f"stack {stack}: PING asks by multicast, and {transport}.ip_mcast is never; "
        "use STATIC or DNS_PING, or allow it",
    )
    if dns := configs.get("DNS_PING"):
        require(
            bool(dns.dns_query),
            f"stack {stack}: DNS_PING.dns_query is empty; "
            "set it to the name whose records are the members",
        )
        require(
            dns.record_type == "SRV" or dns.port > 0 or config.bind_port > 0,
            f"stack {stack}: DNS_PING.port is 0, and so is {transport}.bind_port: "
            f"{dns.record_type if dns.record_type != 'auto' else 'A and AAAA'} records name no "
            "port; set either, or use SRV records",
        )


def check_lossless(layers: Layers, stack: str) -> None:
    """Refuse a stack without retransmission that may drop frames between socket and NAKACK2."""
    transport, config = layers[-1]
    what = f"stack {stack}: NAKACK2.xmit_interval is 0, so nothing is retransmitted"
    require(
        transport in STREAMS,
        f"{what}, but {transport} loses messages; use TCP or TCP_NIO2, or a positive xmit_interval",
    )
    require(
        not config.drop_when_full,
        f"{what}, but {transport}.drop_when_full is true; set it to false",
    )
    require(
        not config.receive_queue,
        f"{what}, but {transport}.receive_queue is {config.receive_queue} and drops what comes "
        "beyond; set it to 0",
    )
    expires = getattr(config, "conn_expire_time", 0.0)
    require(
        not expires,
        f"{what}, but {transport}.conn_expire_time is {expires:g} and may close a connection in "
        "use; set it to 0",
    )
    require(
        not getattr(config, "max_send_buffers", 0),
        f"{what}, but {transport}.max_send_buffers drops what comes beyond; set it to 0",
    )
    losing = losing_below("NAKACK2", layers)
    require(
        not losing,
        f"{what}, but {', '.join(losing)} below NAKACK2 loses messages on purpose; remove it, have "
        "it match other protocols only, or give NAKACK2 a positive xmit_interval",
    )


def losing_below(protocol: str, layers: Layers) -> list[str]:
    """List the test protocols that lose frames which a protocol above them sends or should get."""
    names = [name for name, _config in layers]
    below = layers[names.index(protocol) :] if protocol in names else ()
    return [
        name
        for name, config in below
        if name in TEST_PROTOCOLS
        and TEST_PROTOCOLS[name].loses
        and (not config.match.protocols or protocol in config.match.protocols)
    ]


def check_retransmission(layers: Layers, stack: str, interval: float, *, museum: bool) -> None:
    """Refuse an `interval` that `xmit_interval` must not get while the stack runs."""
    if interval <= 0 and not museum:
        check_lossless(layers, stack)
