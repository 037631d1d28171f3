"""The plan of a scenario for a backend: the members, their settings, and the features needed."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any, Final

from stormcast.chaos import faults
from stormcast.chaos.backends.base import ClusterPlan, MemberPlan, Unsupported
from stormcast.chaos.backends.by_name import BACKENDS, DOCKER, KUBERNETES, SIM
from stormcast.chaos.faults.outcome import QUEUE_SECONDS
from stormcast.chaos.language.features import features_of
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.stacks import STREAM_TRANSPORTS, settings_of
from stormcast.node.settings import StackSettings, is_path

FRAME_BY_FRAME: Final = {"bundler": "no-bundler", "offload": "never"}
"""Settings of UDP with which every datagram is one frame: a fault of a datagram strikes one frame.
"""
_ON_FRAMES: Final = frozenset(
    {
        "loss",
        "loss-model",
        "delay",
        "duplicate",
        "reorder",
        "corrupt",
        "rule-drop",
        "rule",
    }
)
CANNOT: Final[dict[str, str]] = {
    "clock-skew": "all members share one clock, simulated or real",
}
"""Needs that no backend can meet, and why."""
PACKETS: Final = 2_500
"""Bytes of a message that always find room: a narrow link's queue takes two packets at least."""
_IN_MEMBER: Final = {"drop": "DROP", "delay": "DELAY", "duplicate": "DUPLICATE"}
"""The test protocol that does inside of a member what a rule does."""


def check_supported(scenario: Scenario, backend: str = SIM) -> None:
    """Raise Unsupported when a backend lacks what the scenario needs, before anything starts."""
    if backend not in BACKENDS:
        raise Unsupported(
            f"backend {backend!r} is not there yet; this version has: {', '.join(BACKENDS)}"
        )
    if backend in (DOCKER, KUBERNETES) and is_path(scenario.cluster.stack):
        raise Unsupported(
            f"{scenario.name} has the stack of {scenario.cluster.stack}, and pods do not have that "
            "file; use a stack that ships, with `protocols:`"
        )
    for need in scenario.needs:
        why = CANNOT.get(need) or _stack_lacks(scenario, need)
        if why:
            raise Unsupported(f"{scenario.name} needs {need}: {why}")


def _stack_lacks(scenario: Scenario, need: str) -> str | None:
    """Return why the scenario's own stack cannot meet a need; None: it can."""
    if need not in ("multicast", "stream"):
        return None
    settings, stack = settings_of(scenario), scenario.cluster.stack
    if need == "multicast" and settings.multicast is None:
        return f"stack {stack} has no multicast; choose one with a group, such as udp"
    if need == "stream" and settings.transport not in STREAM_TRANSPORTS:
        return f"stack {stack} runs on a datagram network; choose tcp or tcp-nio2"
    return None


def cluster_plan(
    scenario: Scenario, seed: int, run: str, folder: Path, features: Mapping[str, str | None]
) -> ClusterPlan:
    """Make the plan of a run for a backend with these features. Unsupported where a needed one is
    missing, or a rule cannot be done inside of members."""
    settings = settings_of(scenario)
    is_stream = settings.transport in STREAM_TRANSPORTS
    # On a real TCP connection nothing can take a frame out: rules act inside of members.
    is_inside = is_stream and features.get("frames-of-streams", "") is not None
    needs = features_of(scenario, in_members=is_inside, is_group=settings.has_group)
    if not is_stream and _largest_datagram(scenario, settings) > _room(scenario.network):
        needs |= {"large-datagrams"}
    if is_inside:
        _check_rules(scenario)
    if is_stream:
        _check_strangers(scenario)
    for need in sorted(needs):
        why = features.get(need, "this version does not have it")
        if why is not None:
            raise Unsupported(f"{scenario.name} needs {need}: {why}")
    config = _config(scenario, settings, seed, run)
    if not is_stream and needs & _ON_FRAMES:
        protocols = config["protocols"]
        protocols["UDP"] = {**FRAME_BY_FRAME, **protocols.get("UDP", {})}
    return ClusterPlan(
        run=run,
        members=tuple(MemberPlan(name=name, config=config) for name in scenario.cluster.members),
        folder=folder,
        seed=seed,
        needs=needs,
        rules_in_members=is_inside,
        sealed=scenario.cluster.sealed,
        first_conn=scenario.cluster.unicast_first_conn or 1,
        trace_bytes=scenario.limits.trace,
    )


def _largest_datagram(scenario: Scenario, settings: StackSettings) -> int:
    """Return the bytes of the largest message, or of the largest piece of one, that is sent."""
    frag = settings.fragments
    return scenario.largest if frag is None else min(scenario.largest, frag.frag_size)


def _room(network: faults.Link) -> float:
    """Return the bytes that find room in the queue of a network that is always narrow."""
    if network.bandwidth is None:
        return inf
    return max(PACKETS, network.bandwidth * QUEUE_SECONDS)


def _config(scenario: Scenario, settings: StackSettings, seed: int, run: str) -> dict[str, Any]:
    """Return a member's settings, in the words of docs/node.md; the backend adds its own."""
    cluster = scenario.cluster
    protocols = {name: dict(values) for name, values in cluster.protocols}
    for name, values in (
        (settings.unicast, cluster.settings),
        (settings.multicast or "", cluster.multicast_settings),
    ):
        if values:
            protocols[name] = {**protocols.get(name, {}), **dict(values)}
    config: dict[str, Any] = {
        "cluster": run,
        "stack": cluster.stack,
        "timing": cluster.timing,
        "seed": seed,
        "protocols": protocols,
    }
    if cluster.unicast:
        config["unicast"] = cluster.unicast
    if cluster.max_batch:
        config["max_batch"] = cluster.max_batch
    if cluster.outbox_bytes:
        config["outbox_bytes"] = cluster.outbox_bytes
    if cluster.historical:
        config["historical"] = dict(cluster.historical)
    return config


def _check_rules(scenario: Scenario) -> None:
    """Refuse rules that cannot be done inside of a member."""
    rules = [step.action for step in scenario.timeline if isinstance(step.action, faults.Rule)]
    for rule in rules:
        _check_rule_on_streams(scenario.name, rule)
    if len(rules) > 1:
        raise Unsupported(
            f"{scenario.name} has {len(rules)} rules on stack {scenario.cluster.stack}: over "
            "connections they are done inside the member, which takes one; keep one, or choose "
            "a stack on UDP"
        )


def _check_strangers(scenario: Scenario) -> None:
    """Refuse strangers that send, where members speak over connections."""
    for step in scenario.timeline:
        if isinstance(step.action, faults.Replay | faults.Forge):
            raise Unsupported(
                f"{scenario.name} has a stranger that sends, on stack {scenario.cluster.stack}: "
                "into a connection nobody can put a frame here; choose a stack on UDP, or listen"
            )


def _check_rule_on_streams(name: str, rule: faults.Rule) -> None:
    """Refuse a rule on a TCP stack that its test protocol in the receiving member cannot do."""
    why = ""
    if rule.does not in _IN_MEMBER:
        why = f"{rule.does} frames"
    elif rule.match.connection is not None:
        why = "choose frames by connection"
    elif rule.counts_over_members:
        why = "count frames (occurrence, times) of several members together"
    if why:
        raise Unsupported(
            f"{name}: over connections a rule is done inside the member, which cannot {why}; "
            "choose a stack on UDP"
        )


def as_test_protocol(rule: faults.Rule) -> dict[str, dict[str, Any]]:
    """Return a rule as the test protocol of a receiving member, for `POST /probes`."""
    match = rule.match
    wanted: dict[str, Any] = {"direction": "up"}
    if match.protocols:
        wanted["protocol"] = list(match.protocols)
    if match.kinds:
        wanted["kind"] = list(match.kinds)
    if match.sources:
        wanted["from"] = list(match.sources)
    if match.flags:
        wanted["flags"] = list(match.flags)
    for key in ("seqno", "transmission", "occurrence"):
        ends = getattr(match, key)
        if ends is not None:
            wanted[key] = list(ends)
    if rule.times is not None:
        wanted["times"] = rule.times
    settings: dict[str, Any] = {"match": wanted}
    if rule.does == "delay":
        settings["delay"] = f"{rule.delay}s"
    elif rule.does == "duplicate":
        settings["copies"] = rule.copies
    return {_IN_MEMBER[rule.does]: settings}
