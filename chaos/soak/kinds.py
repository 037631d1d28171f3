"""The kinds of fault that a storm draws: for each a function of dice and of what members run."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Final, NamedTuple

from stormcast.chaos import faults
from stormcast.chaos.faults import Action, Names
from stormcast.chaos.language.cluster import Cluster
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.stacks import STREAM_TRANSPORTS, settings_of
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.match import Match
from stormcast.node.core.wire import PROTOCOL_BY_NAME
from stormcast.node.settings import StackSettings

CONTROL: Final = (
    "ACK",
    "BASELINE",
    "BASELINE_REQ",
    "CLOSE",
    "HIGHEST_SEQNO",
    "RESET_TO",
    "SFS",
    "STABLE",
    "XMIT_REQ",
)
"""Control frames of protocols that send data, too."""
OFTEN: Final = ("GMS", "NAKACK2", "MCAST", "UNICAST", "UNICAST2", "UNICAST3", "UNICAST4")
"""Protocols that a rule is aimed at more often than at others."""
SWITCHED: Final[tuple[tuple[str, tuple[object, ...]], ...]] = (
    ("xmit_interval", (0.1, 1.0)),
    ("ack_threshold", (1, 2)),
    ("conn_expiry_timeout", (1.5, 60.0)),
    ("max_retransmit_time", (4.0, 60.0)),
    ("sync_min_interval", (0.1, 1.0)),
    ("max_xmit_req_size", (1, 64)),
    ("NAKACK2.xmit_interval", (0.0, 0.1, 1.0)),
    ("NAKACK2.max_xmit_req_size", (1, 64)),
    ("MCAST.xmit_interval", (0.1, 1.0)),
    ("MCAST.max_xmit_req_size", (1, 64)),
    ("MCAST.slow_member_timeout", (0.0, 2.0)),
    ("MCAST.ack_threshold", (1, 0)),
)
"""Settings that may change at any moment, and values; each stack takes some of them."""

Draw = Callable[[Random, Cluster], Action]


def _some(dice: Random, names: Names) -> tuple[Names, Names]:
    """Draw the ends of a fault on links: of all, or of one direction between two."""
    if dice.random() < 0.5:
        return names, names
    one, other = dice.sample(names, 2)
    return (one,), (other,)


def _whom(dice: Random, names: Names) -> str:
    """Draw a member, or a role."""
    return dice.choice((*names, *faults.ROLES))


# -- Links -----------------------------------------------------------------------------------------


def _partition(dice: Random, cluster: Cluster) -> Action:
    return faults.Partition(shape=dice.choice(faults.SHAPES))


def _cut(dice: Random, cluster: Cluster) -> Action:
    one, other = dice.sample(cluster.members, 2)
    return faults.Cut(sources=(one,), dests=(other,))


def _loss(dice: Random, cluster: Cluster) -> Action:
    sources, dests = _some(dice, cluster.members)
    return faults.Loss(sources=sources, dests=dests, rate=round(dice.uniform(0.01, 0.4), 3))


def _gilbert_elliott(dice: Random, cluster: Cluster) -> Action:
    sources, dests = _some(dice, cluster.members)
    return faults.GilbertElliott(
        sources=sources,
        dests=dests,
        p_bad=round(dice.uniform(0.01, 0.1), 3),
        p_good=round(dice.uniform(0.05, 0.5), 3),
        loss_bad=round(dice.uniform(0.3, 1.0), 3),
    )


def _nth_loss(dice: Random, cluster: Cluster) -> Action:
    sources, dests = _some(dice, cluster.members)
    return faults.NthLoss(sources=sources, dests=dests, nth=dice.choice((3, 5, 10)))


def _delay(dice: Random, cluster: Cluster) -> Action:
    sources, dests = _some(dice, cluster.members)
    delay = round(dice.uniform(0.01, 0.3), 3)
    return faults.Delay(sources=sources, dests=dests, delay=delay, jitter=round(delay / 3, 3))


def _duplicate(dice: Random, cluster: Cluster) -> Action:
    sources, dests = _some(dice, cluster.members)
    return faults.Duplicate(sources=sources, dests=dests, rate=round(dice.uniform(0.05, 0.6), 3))


def _reorder(dice: Random, cluster: Cluster) -> Action:
    sources, dests = _some(dice, cluster.members)
    by = round(dice.uniform(0.005, 0.2), 3)
    return faults.Reorder(
        sources=sources, dests=dests, rate=round(dice.uniform(0.05, 0.5), 3), by=by
    )


def _corrupt(dice: Random, cluster: Cluster) -> Action:
    sources, dests = _some(dice, cluster.members)
    return faults.Corrupt(sources=sources, dests=dests, rate=round(dice.uniform(0.01, 0.2), 3))


def _bandwidth(dice: Random, cluster: Cluster) -> Action:
    """Draw a limit that most storms exceed. Connections, which drop nothing, get a wider one, so
    that what they queue passes in time."""
    sources, dests = _some(dice, cluster.members)
    least, most = (200_000, 800_000) if is_stream(cluster) else (30_000, 300_000)
    return faults.Bandwidth(sources=sources, dests=dests, rate=float(dice.randint(least, most)))


def _rule(dice: Random, cluster: Cluster) -> Action:
    """Draw a rule on all frames of one protocol, from one member or to one; no data is dropped, as
    where multicasts are not retransmitted nothing would repair it."""
    settings = _settings_of(cluster)
    there = [name for name, _config in settings.layers if name in PROTOCOL_BY_NAME]
    (protocol,) = dice.choices(there, [3 if name in OFTEN else 1 for name in there])
    # Members that rule the frames of their connections themselves hold none.
    does = [*(() if is_stream(cluster) else ("hold",)), "delay", "duplicate", "drop"]
    one, deed = (dice.choice(cluster.members),), dice.choice(does)
    sends_data = protocol in (settings.unicast, settings.multicast)
    is_from = dice.random() < 0.5
    match = Match(
        protocols=(protocol,),
        kinds=CONTROL if deed == "drop" and sends_data else (),
        sources=one if is_from else (),
        dests=() if is_from else one,
    )
    delay = round(dice.uniform(0.02, 1.0), 3) if deed == "delay" else 0.0
    return faults.Rule(does=deed, match=match, delay=delay)


# -- Members and connections -----------------------------------------------------------------------


def _crash(dice: Random, cluster: Cluster) -> Action:
    return faults.Crash(member=_whom(dice, cluster.members))


def _restart(dice: Random, cluster: Cluster) -> Action:
    return faults.Restart(member=_whom(dice, cluster.members))


def _leave(dice: Random, cluster: Cluster) -> Action:
    return faults.Leave(member=dice.choice(cluster.members))


def _pause(dice: Random, cluster: Cluster) -> Action:
    return faults.Pause(member=_whom(dice, cluster.members))


def _stall(dice: Random, cluster: Cluster) -> Action:
    return faults.Stall(member=dice.choice(cluster.members))


def _forget(dice: Random, cluster: Cluster) -> Action:
    one, other = dice.sample(cluster.members, 2)
    half = dice.choice(("sender", "receiver", "both"))
    return faults.Forget(member=one, peer=other, half=half)


def _close(dice: Random, cluster: Cluster) -> Action:
    one, other = dice.sample(cluster.members, 2)
    return faults.Close(member=one, peer=other)


def _set_attribute(dice: Random, cluster: Cluster) -> Action:
    switch = dice.choice(switches(cluster))
    return faults.SetAttribute(
        member=dice.choice(cluster.members), attribute=switch.attribute, value=switch.value
    )


KINDS: Final[dict[str, Draw]] = {
    "partition": _partition,
    "cut": _cut,
    "loss": _loss,
    "gilbert-elliott": _gilbert_elliott,
    "nth-loss": _nth_loss,
    "delay": _delay,
    "duplicate": _duplicate,
    "reorder": _reorder,
    "corrupt": _corrupt,
    "bandwidth": _bandwidth,
    "rule": _rule,
    "crash": _crash,
    "restart": _restart,
    "leave": _leave,
    "pause": _pause,
    "stall": _stall,
    "forget": _forget,
    "close": _close,
    "set-attribute": _set_attribute,
}
"""The faults that a storm may draw."""
TAKES_OUT: Final = frozenset({"crash", "restart", "leave", "pause"})
"""Kinds that take a member out of its group."""
SUDDEN: Final = (faults.Restart, faults.Forget, faults.Close, faults.SetAttribute)
"""What is done at one moment, and has no end by itself."""


# -- What members run ------------------------------------------------------------------------------


class Switch(NamedTuple):
    """A value that a setting may be given, and the one that it has."""

    attribute: str
    value: object
    usual: object


@lru_cache(maxsize=64)
def switches(cluster: Cluster) -> tuple[Switch, ...]:
    """Return the settings that a cluster's members take while they run, with other values than they
    have."""
    settings = _settings_of(cluster)
    found = []
    for attribute, values in SWITCHED:
        protocol, _dot, name = attribute.rpartition(".")
        for value in values:
            try:
                settings.with_attribute(attribute, value)
            except ConfigError:
                continue
            usual = getattr(settings.of(protocol or settings.unicast), name)
            if value != usual:
                found.append(Switch(attribute, value, usual))
    return tuple(found)


def usual_value(action: faults.SetAttribute, cluster: Cluster) -> object:
    """Return what a setting has before it is changed."""
    return next(one.usual for one in switches(cluster) if one.attribute == action.attribute)


@lru_cache(maxsize=64)
def _settings_of(cluster: Cluster) -> StackSettings:
    return settings_of(Scenario(name="storm", cluster=cluster))


def is_stream(cluster: Cluster) -> bool:
    """Whether members speak over connections."""
    return _settings_of(cluster).transport in STREAM_TRANSPORTS


def unicast_of(cluster: Cluster) -> str:
    """Return the protocol by which two members speak to each other."""
    return _settings_of(cluster).unicast
