"""Draws a group's settings: timing, windows, credits, fragments, queues, membership timeouts."""

from __future__ import annotations

from typing import Final

from stormcast.chaos import faults
from stormcast.chaos.campaigns.generate.groups.dice import ONLY_ON, STACKS, GroupDraw
from stormcast.chaos.campaigns.generate.groups.lifetimes import frame_life, short_lives
from stormcast.chaos.language.cluster import Cluster
from stormcast.chaos.language.protocol_settings import Settings

SHORTER: Final[dict[str, dict[str, object]]] = {
    "GMS": {
        "join_timeout": 0.5,
        "all_clients_retry_timeout": 0.1,
        "merge_timeout": 2.0,
        "view_ack_collection_timeout": 1.0,
    },
    "MERGE3": {"min_interval": 0.2, "max_interval": 1.0, "check_interval": 1.6},
    "FD_ALL3": {"timeout": 2.0, "interval": 0.25},
    "FD_SOCK2": {"suspect_msg_interval": 0.5},
    "VERIFY_SUSPECT2": {"timeout": 0.3, "num_msgs": 2},
    "STABLE": {"desired_avg_gossip": 2.0},
    "MFC": {"max_block_time": 0.5},
    "UFC": {"max_block_time": 0.5},
}
"""Intervals for `compatible` timing that are short enough for a run of half a minute."""


def cluster_of(draw: GroupDraw) -> Cluster:
    """Draw the cluster; loads and steps must be drawn before."""
    random = draw.random
    timing = random.choice(("fast", "fast", "fast", "compatible"))
    protocols: dict[str, dict[str, object]] = {}
    if timing == "compatible":
        protocols = {
            name: dict(values)
            for name, values in SHORTER.items()
            if draw.stack in ONLY_ON.get(name, STACKS)
        }
    _set_membership(draw, protocols.setdefault("GMS", {}))
    _set_flow(draw, protocols)
    if draw.switches and draw.stack != "tcp-no-retransmit":
        # Without retransmission the transport must not drop anything.
        protocols["TCP_NIO2" if draw.stack == "tcp-nio2" else "TCP"] = {"drop_when_full": False}
    if draw.multicast == "NAKACK2" and random.random() < 0.4:
        stable = protocols.setdefault("STABLE", {})
        stable["max_messages"] = random.choice((8, 30))
        stable["desired_avg_gossip"] = random.choice((0.5, 2.0, 5.0))
    for name, values in draw.protocols.items():
        protocols.setdefault(name, {}).update(values)
    _set_bounds(draw, protocols)
    _set_unicast(draw)
    return Cluster(
        members=draw.members,
        stack=draw.stack,
        timing=timing,
        settings=_flat(draw.settings),
        multicast_settings=_flat(_multicast_settings(draw, timing)),
        protocols=tuple((name, _flat(values)) for name, values in protocols.items() if values),
        max_batch=random.choice((None, None, None, 1, 3, 20)),
        unicast_first_conn=random.choice((None, None, None, 0xFFFFFFFE, 0xFFFFFFFF)),
        late=draw.late,
        joins=random.choice(("together", "together", "one-by-one")),
    )


def _flat(values: dict[str, object]) -> Settings:
    return tuple(sorted(values.items()))


def _set_membership(draw: GroupDraw, gms: dict[str, object]) -> None:
    random = draw.random
    if random.random() < 0.2:
        gms["view_ack_collection_timeout"] = random.choice((0.2, 2.0))
    if random.random() < 0.2:
        gms["merge_timeout"] = random.choice((0.5, 1.0))
    if random.random() < 0.1:
        gms["leave_timeout"] = 0.3


def _set_flow(draw: GroupDraw, protocols: dict[str, dict[str, object]]) -> None:
    """Draw fragment sizes, and credits: these are small only with fragments smaller still."""
    random = draw.random
    if "FRAG" in draw.protocols:
        return
    is_tight = random.random() < 0.35
    names = ["UFC"] if draw.multicast == "MCAST" else ["MFC", "UFC"]
    if is_tight or random.random() < 0.4:
        size = random.choice((400, 1500)) if is_tight else random.choice((1000, 8000))
        protocols["FRAG"] = {"frag_size": size}
        if is_tight:
            for name in names:
                credit = protocols.setdefault(name, {})
                credit["max_credits"] = random.choice((6, 20)) * size
                credit["min_threshold"] = random.choice((0.2, 0.5))


PIECE_COST: Final = 128
"""Bytes that a piece of an unfinished message counts besides its own (max_open_bytes)."""


def _set_bounds(draw: GroupDraw, protocols: dict[str, dict[str, object]]) -> None:
    """Draw bounds of unfinished messages that are little more than the largest message takes."""
    random = draw.random
    frag = protocols.get("FRAG")
    if frag is None:
        return
    size = frag["frag_size"]
    assert isinstance(size, int)
    if draw.has_least_bounds or random.random() < 0.2:
        largest = max(size, draw.largest())
        least = largest + -(-largest // size) * PIECE_COST
        frag["max_message_size"] = largest
        frag["max_open_bytes"] = least * random.choice((1, 1, 2))
    if random.random() < 0.2:
        frag.setdefault("max_open_messages", random.choice((1, 2, 8)))


DETECTION_SECONDS: Final = 4.0
"""Seconds until a silent member is out of the view, with the timeouts drawn here."""


def _set_unicast(draw: GroupDraw) -> None:
    """Draw settings of unicast: idle connections that end during the run, and small windows."""
    random = draw.random
    unicast = draw.settings
    is_forgotten = any(isinstance(step.action, faults.Forget) for step in draw.steps)
    if "conn_close_timeout" not in unicast and not is_forgotten and random.random() < 0.2:
        short_lives(draw, at_least=DETECTION_SECONDS)
    if random.random() < 0.15:
        window = random.choice((4, 30))
        unicast.update(window_messages=window, ack_threshold=max(1, window // 4))
    if random.random() < 0.1:
        unicast["max_cached_frames"] = random.choice((0, 3))


def _multicast_settings(draw: GroupDraw, timing: str) -> dict[str, object]:
    """Draw settings of the multicast protocol: small windows, small queues, all ways to repair."""
    random = draw.random
    never_repairs = draw.stack == "tcp-no-retransmit"
    settings: dict[str, object] = {}
    if draw.switches:
        # The alarm must not ring for messages that are merely late.
        settings["gap_alarm"] = max(3.0, round(frame_life(draw) + 1.0, 3))
    if timing == "compatible" and not never_repairs:
        settings["xmit_interval"] = random.choice((0.25, 0.5))
    if random.random() < 0.5:
        settings.update(_window(draw))
    for name, chance, values in RARE_SETTINGS:
        if random.random() < chance and not (name == "window_bytes" and draw.has_large):
            settings[name] = random.choice(values)
    if random.random() < 0.15 and not never_repairs:
        settings[random.choice(("use_mcast_xmit_req", "xmit_from_random_member"))] = True
    if draw.multicast == "NAKACK2" and random.random() < 0.2:
        settings["resend_last_seqno"] = False
    if draw.multicast == "MCAST" and random.random() < 0.2:
        settings["slow_member_timeout"] = random.choice((0.5, 2.0))
    settings.update(draw.windows)
    return settings


RARE_SETTINGS: Final[tuple[tuple[str, float, tuple[object, ...]], ...]] = (
    ("window_bytes", 0.15, (4096, 32768)),
    ("become_server_queue_size", 0.25, (1, 5)),
    ("max_unknown_messages", 0.2, (1, 5)),
    ("unknown_sender_timeout", 0.2, (1.0,)),
    ("use_mcast_xmit", 0.2, (True, False)),
)
"""Settings of both multicast protocols: name, share of scenarios that set it, values."""


def _window(draw: GroupDraw) -> dict[str, object]:
    """Draw a window that the traffic fills; for MCAST down to a single message."""
    random = draw.random
    # No window is larger than small requests can ask for within a run.
    requests: dict[str, object] = {}
    if random.random() < 0.5:
        requests["max_xmit_req_size"] = random.choice((1, 4, 64))
    if draw.multicast != "MCAST":
        return {
            "window_messages": 100 if draw.has_large else random.choice((8, 30, 100)),
            **requests,
        }
    window = 100 if draw.has_large else random.choice((1, 8, 30, 100))
    threshold = random.choice((0, max(1, window // 2), window - 1))
    return {"window_messages": window, "ack_threshold": threshold, **requests}
