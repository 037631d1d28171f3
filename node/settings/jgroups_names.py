"""Names of protocols and settings that are others in JGroups, for users with its configurations.

Most names are the same. For the others an error says the name here, or why there is none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

PROTOCOLS: Final = {
    "NAKACK": "NAKACK2",
    "NAKACK3": "NAKACK2",
    "NAKACK4": "MCAST",
    "FRAG2": "FRAG",
    "FRAG3": "FRAG",
    "FRAG4": "FRAG",
    "TCPPING": "STATIC",
    "MPING": "PING",
    "VERIFY_SUSPECT": "VERIFY_SUSPECT2",
    "FD": "FD_ALL3",
    "FD_ALL": "FD_ALL3",
    "FD_ALL2": "FD_ALL3",
    "FD_SOCK": "FD_SOCK2",
    "MERGE2": "MERGE3",
    "MFC_NB": "MFC",
    "UFC_NB": "UFC",
    "TCP_NIO": "TCP_NIO2",
}
"""Protocols of JGroups that do not exist here, each with the one that does the same here."""

_WINDOW: Final = {
    "capacity": "window_messages",
    "max_msg_batch_size": "a batch is bounded by the stack's own max_batch",
    "max_batch_size": "a batch is bounded by the stack's own max_batch",
    "log_not_found_msgs": "the trace has what is refused and asked for",
    "log_discard_msgs": "the trace has what is refused and asked for",
}
_MULTICAST: Final = {
    **_WINDOW,
    "discard_delivered_msgs": "whoever may be asked keeps what is not stable",
    "max_rebroadcast_timeout": "a merge completes windows by itself; join_sync_interval spaces it",
}
_DISCOVERY: Final = {
    "num_discovery_runs": "questions are repeated every repeat_interval",
    "return_entire_cache": "answers name everybody in the view",
    "async_discovery": "no discovery waits",
    "max_members_in_discovery_request": "there is no such bound",
    "stagger_timeout": "max_rank_to_reply bounds who answers",
}
_TRANSPORT: Final = {
    "bundler_type": "bundler",
    "capacity": "queue_frames",
    "max_size": "a frame is closed after the stack's own max_frame",
    "max_buffer_size": "receive_queue",
    "loopback": "a member always gets its own messages at once",
}
_STREAM: Final = {
    **_TRANSPORT,
    "send_buf_size": "send_buffer",
    "recv_buf_size": "receive_buffer",
    "reaper_interval": "conn_expire_time alone closes idle connections",
    "use_send_queues": "queue_frames bounds the queue that there always is",
}

SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "UNICAST": _WINDOW,
    "UNICAST2": _WINDOW,
    "UNICAST3": _WINDOW,
    "UNICAST4": _WINDOW,
    "NAKACK2": _MULTICAST,
    "MCAST": _MULTICAST,
    "MFC": {"min_credits": "min_threshold, a share of max_credits"},
    "UFC": {"min_credits": "min_threshold, a share of max_credits"},
    "GMS": {
        "print_view_details": "the member says so in its log",
        "membership_change_policy": "there is one policy only: those who stay, then those who join",
        "use_delta_views": "views are always sent whole",
    },
    "MERGE3": {"max_participants_in_merge": "max_participants"},
    "STATIC": _DISCOVERY | {"send_cache_on_join": "views say where members are"},
    "PING": _DISCOVERY,
    "DNS_PING": _DISCOVERY
    | {"dns_record_type": "record_type", "probe_transport_ports": "port, or the transport's own"},
    "UDP": _TRANSPORT
    | {
        "ucast_send_buf_size": "send_buffer",
        "mcast_send_buf_size": "send_buffer",
        "ucast_recv_buf_size": "receive_buffer",
        "mcast_recv_buf_size": "receive_buffer",
    },
    "TCP": _STREAM,
    "TCP_NIO2": _STREAM,
}
"""By our protocol and the setting's name in JGroups: its name here, or what there is instead."""


def protocol_here(name: str) -> str:
    """Return `; it is X here` for a protocol of JGroups that has another name here; else ""."""
    plain = name.removeprefix("pbcast.").removeprefix("org.jgroups.protocols.")
    here = PROTOCOLS.get(plain) or (plain if plain != name else "")
    return f"; it is {here} here" if here else ""


def setting_here(protocol: str, name: str, known: Collection[str]) -> str:
    """Return a message about what to set in place of a setting of JGroups; "" if none is known."""
    here = SETTINGS.get(protocol, {}).get(name, "")
    if not here:
        return ""
    if here.partition(",")[0] in known:
        return f"{protocol}.{name} is called {here} here"
    return f"{protocol}.{name} is not set here: {here}"
