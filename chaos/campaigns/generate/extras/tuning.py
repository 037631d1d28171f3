"""Settings that nothing else draws: another unicast in a group, small outboxes, rare settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Final

from stormcast.chaos.campaigns.generate.extras.changes import (
    never_repairs,
    with_multicast,
    with_protocol,
    with_unicast,
)
from stormcast.chaos.language.cluster import GENERATIONS
from stormcast.chaos.language.scenario import Scenario

OUTBOXES: Final = (300, 2_000, 20_000)
"""Bytes: some messages, or some dozens, or a burst."""

Setting = tuple[str, str, tuple[object, ...]]
"""Protocol, name and values of a setting. The protocol is `unicast` or `multicast` where several
have the setting."""
OF_ALL: Final[tuple[Setting, ...]] = (("unicast", "max_xmit_req_ranges", (1, 2)),)
OF_UNICAST: Final[tuple[Setting, ...]] = (("unicast", "xmit_interval", (0.1, 0.3, 3.0)),)
OF_UNICAST2: Final[tuple[Setting, ...]] = (
    ("unicast", "max_bytes", (500, 5_000)),
    ("unicast", "max_stable_msgs", (1, 2, 20)),
)
OF_GROUPS: Final[tuple[Setting, ...]] = (
    ("FD_ALL3", "msg_counts_as_heartbeat", (False,)),
    ("GMS", "max_join_attempts", (1, 3)),
    ("GMS", "repeat_interval", (0.1, 1.0)),
    ("GMS", "join_stability_timeout", (3.0, 10.0)),
    ("multicast", "max_xmit_req_ranges", (1, 2)),
    ("multicast", "join_sync_interval", (0.1, 2.0)),
)
OF_STABLE: Final[tuple[Setting, ...]] = (
    ("STABLE", "max_bytes", (2_000, 20_000)),
    ("STABLE", "repeat_interval", (0.1, 2.0)),
    ("multicast", "resend_last_seqno_max_times", (0, 3)),
)
QUEUES: Final = (4, 30)
"""Frames that wait at most."""
QUEUES_OF_GROUPS: Final = (30,)
"""A coordinator tells all others its view in one turn."""
DISCOVERY: Final = {"udp": "PING", "mcast": "PING"}
"""The discovery protocol of stacks that have another one than STATIC."""
TRANSPORT: Final = {"tcp": "TCP", "tcp-nio2": "TCP_NIO2", "tcp-no-retransmit": "TCP_NIO2"}
"""The transport of stacks that have another one than UDP."""
SLOWEST_REPAIR: Final = 7200.0
"""Seconds that a run may take: where four frames, or one gap, are repaired every three seconds, a
thousand lost messages take a quarter of an hour and more, and so does each turn of all that finds
such a queue full."""


def other_unicast(scenario: Scenario, random: Random) -> Scenario:
    """A group has any generation of unicast."""
    generation = random.choice(GENERATIONS)
    return replace(scenario, cluster=replace(scenario.cluster, unicast=generation))


def small_outbox(scenario: Scenario, random: Random) -> Scenario:
    """An outbox has room for a few messages: then the application is refused, and waits."""
    cluster = replace(scenario.cluster, outbox_bytes=random.choice(OUTBOXES))
    return replace(scenario, cluster=cluster)


def rare_settings(scenario: Scenario, random: Random) -> Scenario:
    """One to three settings have values that no other draw gives them."""
    there = list(_settings(scenario))
    limits = replace(scenario.limits, run=max(scenario.limits.run, SLOWEST_REPAIR))
    scenario = replace(scenario, limits=limits)
    for protocol, name, values in random.sample(there, min(len(there), random.randint(1, 3))):
        value = {name: random.choice(values)}
        if protocol == "unicast":
            scenario = with_unicast(scenario, **value)
        elif protocol == "multicast":
            scenario = with_multicast(scenario, **value)
        else:
            scenario = with_protocol(scenario, protocol, **value)
    return scenario


def _settings(scenario: Scenario) -> Iterator[Setting]:
    """Yield the settings that a scenario's stack has."""
    cluster = scenario.cluster
    yield from OF_ALL
    if cluster.unicast == "UNICAST2":
        yield from OF_UNICAST2
    if scenario.needs:
        yield from OF_GROUPS
        yield from OF_STABLE if cluster.stack != "mcast" else ()
        discovery = DISCOVERY.get(cluster.stack, "STATIC")
        yield discovery, "max_rank_to_reply", (1, 2)
        yield discovery, "break_on_coord_rsp", (False,)
    else:
        yield from OF_UNICAST
    if not never_repairs(scenario) and dict(cluster.settings).get("max_retransmit_time") != 0:
        # What a full queue drops must be repaired, and what is repeated for a dead member must end.
        transport = TRANSPORT.get(cluster.stack, "UDP")
        for name in ("queue_frames", "receive_queue"):
            yield transport, name, QUEUES_OF_GROUPS if scenario.needs else QUEUES
