"""The claims: what each design note says its protocol does better, or worse, than another one.

A claim is a question to two runs of one scenario: does the second one pay at most, or at least, so
many times what the first one pays?
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from stormcast.chaos.language.scenario import Scenario, parse_scenario
from stormcast.chaos.session.costs import costs_of, last_arrival_seconds, resync_seconds
from stormcast.chaos.session.record import RunRecord

Measure = Callable[[RunRecord], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What is measured."""

    name: str
    unit: str
    of: Measure


def _per_thousand(count: Callable[[RunRecord], int]) -> Measure:
    return lambda run: 1000 * count(run) / run.sent


def _control(run: RunRecord, kind: str) -> int:
    """Return how many control frames of a kind, or of a protocol, were sent."""
    return sum(count for name, count in run.control.items() if name.startswith(kind))


ACKS: Final = Figure(
    name="acks", unit="per 1,000 messages", of=_per_thousand(lambda run: costs_of(run).acks)
)
GROUP_ACKS: Final = Figure(
    name="acks and votes",
    unit="per 1,000 messages",
    of=_per_thousand(lambda run: _control(run, "MCAST/ACK") + _control(run, "STABLE/")),
)
MORE_FRAMES: Final = Figure(
    name="frames of NAKACK2 besides the first of each batch",
    unit="per 1,000 messages",
    of=_per_thousand(lambda run: costs_of(run).resent_frames + _control(run, "NAKACK2/")),
)
RESENT: Final = Figure(
    name="messages sent again",
    unit="per 1,000 messages",
    of=_per_thousand(lambda run: costs_of(run).resent),
)
SYNCS: Final = Figure(
    name="SEND_FIRST_SEQNO", unit="frames", of=lambda run: float(costs_of(run).syncs)
)
KEPT: Final = Figure(
    name="messages that the sender keeps",
    unit="at most",
    of=lambda run: float(costs_of(run).unacked),
)
RESYNC: Final = Figure(
    name="time without the stream", unit="ms", of=lambda run: 1000 * resync_seconds(run)
)
LAST: Final = Figure(
    name="time until the last message is there",
    unit="ms",
    of=lambda run: 1000 * last_arrival_seconds(run),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim of a note."""

    note: str
    says: str
    """The claim, in our words."""
    scenario: str
    """A scenario in YAML, with {cluster} where its two clusters differ."""
    clusters: tuple[str, str]
    """Settings of the cluster: of what is compared with, and of what the claim is about."""
    figure: Figure
    at_most: float | None = None
    """The claim holds where the second figure is at most so many times the first."""
    at_least: float | None = None
    """The claim holds where it is at least so many times the first."""

    def scenario_of(self, side: int) -> Scenario:
        """Return the scenario, with the first or the second cluster."""
        return parse_scenario(self.scenario.format(cluster=self.clusters[side]))


_QUIET: Final = """
name: quiet
about: Nothing is lost.
guarantees: [G1, G2, G3, G4]
cluster: {{members: 2, max_batch: 10, {cluster}}}
network: {{delay: 5ms}}
workload:
  - {{do: unicast, from: n0, to: n1, count: 4000, rate: 400/s, size: 200B, burst: 10}}
expect:
  - {{by: 30s, delivered: all}}
"""
_ACKS_LOST: Final = """
name: acks-lost
about: Nothing that the receiver reports arrives for two seconds.
guarantees: [G1, G2, G3, G4]
cluster: {{members: 2, max_batch: 10, {cluster}}}
network: {{delay: 5ms}}
workload:
  - {{do: unicast, from: n0, to: n1, count: 2000, rate: 400/s, size: 200B, burst: 10}}
timeline:
  - {{at: 1s, do: rule, does: drop, match: {{kind: [ACK, STABLE], from: n1, to: n0}}, for: 4s}}
expect:
  - {{by: 60s, delivered: all}}
"""
_LAST_LOST: Final = """
name: last-lost
about: The first transmission of the last message is lost, and silence follows.
guarantees: [G1, G2, G3, G4]
cluster: {{members: 2, max_batch: 1, {cluster}}}
network: {{delay: 5ms, loss: 1%}}
workload:
  - {{do: unicast, from: n0, to: n1, count: 200, rate: 100/s, size: 64B}}
timeline:
  - at: 0s
    do: rule
    does: drop
    match: {{kind: DATA, from: n0, to: n1, seqno: 200, transmission: 0}}
    for: 4s
expect:
  - {{by: 60s, delivered: all}}
"""
_WINDOW_LOST: Final = """
name: window-lost
about: The receiver loses its window in mid-stream; the way there and back takes three seconds.
guarantees: [G1, G2, G3, G4]
cluster: {{members: 2, max_batch: 10, {cluster}}}
network: {{delay: {delay}}}
workload:
  - {{do: unicast, from: n0, to: n1, count: 4000, rate: 200/s, size: 64B, burst: 10}}
timeline:
  - {{at: 9s, do: loss, from: n0, to: n1, rate: 2%, for: 8s}}
  - {{at: 10s, do: forget, member: n1, peer: n0, half: receiver}}
expect:
  - {{by: 90s, delivered: all}}
limits: {{run: 120s}}
"""
_GROUP_LOSSES: Final = """
name: group-losses
about: Five multicast over connections that transmit one frame in twenty again, for six seconds.
guarantees: [G1, G2, G3, G4, A1]
cluster: {{members: 5, timing: fast, {cluster}}}
network: {{delay: 5ms}}
workload:
  - {{do: multicast, from: all, count: 2000, rate: 200/s, size: 500B, burst: 5}}
timeline:
  - {{at: 1s, do: loss, rate: 5%, for: 6s}}
expect:
  - {{by: 100s, delivered: all}}
limits: {{run: 150s}}
"""
_GROUP_SLOW: Final = """
name: group-slow
about: One of four takes nothing for three seconds, while the others multicast.
guarantees: [G1, G2, G3, G4, A1]
cluster: {{members: 4, timing: compatible, {cluster}}}
network: {{delay: 5ms, loss: 1%}}
workload:
  - {{do: multicast, from: n0, count: 8000, rate: 1000/s, size: 200B, burst: 10}}
timeline:
  - {{at: 2s, do: stall, member: n2, for: 3s}}
expect:
  - {{by: 90s, delivered: all}}
limits: {{run: 120s}}
"""


def _unicast(generation: str) -> str:
    return f"timing: compatible, unicast: {generation}"


CLAIMS: Final = (
    Claim(
        note="UNICAST2",
        says="UNICAST2 hardly acks: a tenth of the acks of UNICAST, or fewer.",
        scenario=_QUIET,
        clusters=(_unicast("UNICAST"), _unicast("UNICAST2")),
        figure=ACKS,
        at_most=0.1,
    ),
    Claim(
        note="UNICAST2",
        says="The price is memory: the sender of UNICAST2 keeps messages for longer than UNICAST.",
        scenario=_QUIET,
        clusters=(_unicast("UNICAST"), _unicast("UNICAST2")),
        figure=KEPT,
        at_least=1.5,
    ),
    Claim(
        note="UNICAST3",
        says="Delayed acks are fewer: half of those of UNICAST, or less.",
        scenario=_QUIET,
        clusters=(_unicast("UNICAST"), _unicast("UNICAST3")),
        figure=ACKS,
        at_most=0.5,
    ),
    Claim(
        note="UNICAST3",
        says="The sender needs less memory than that of UNICAST2, as it is acked sooner.",
        scenario=_QUIET,
        clusters=(_unicast("UNICAST2"), _unicast("UNICAST3")),
        figure=KEPT,
        at_most=0.75,
    ),
    Claim(
        note="UNICAST3",
        says="Where acks are lost, less is sent again that had arrived.",
        scenario=_ACKS_LOST,
        clusters=(_unicast("UNICAST"), _unicast("UNICAST3")),
        figure=RESENT,
        at_most=0.5,
    ),
    Claim(
        note="UNICAST3",
        says="A last message that is lost is found missing as soon as UNICAST finds it.",
        scenario=_LAST_LOST,
        clusters=(_unicast("UNICAST"), _unicast("UNICAST3")),
        figure=LAST,
        at_most=1.5,
    ),
    Claim(
        note="UNICAST3 sync",
        says="A receiver without a window asks half as often, or less, by SEND_FIRST_SEQNO.",
        scenario=_WINDOW_LOST.replace("{delay}", "1500ms"),
        clusters=(_unicast("UNICAST3"), _unicast("UNICAST3-SYNC")),
        figure=SYNCS,
        at_most=0.5,
    ),
    Claim(
        note="UNICAST3 sync",
        says="It is in step again sooner, as it asks at once.",
        scenario=_WINDOW_LOST.replace("{delay}", "5ms"),
        clusters=(_unicast("UNICAST3"), _unicast("UNICAST3-SYNC")),
        figure=RESYNC,
        at_most=0.5,
    ),
    Claim(
        note="NAKACK2 without retransmission",
        says="Over connections fewer packets are sent, besides the first transmission of each "
        "message.",
        scenario=_GROUP_LOSSES,
        clusters=("stack: tcp", "stack: tcp-no-retransmit"),
        figure=MORE_FRAMES,
        at_most=1.0,
    ),
    Claim(
        note="NAKACK2 without retransmission",
        says="There are no storms of retransmission, as nothing is sent again.",
        scenario=_GROUP_LOSSES,
        clusters=("stack: tcp", "stack: tcp-no-retransmit"),
        figure=RESENT,
        at_most=0.0,
    ),
    Claim(
        note="MCAST",
        says="A window of fixed size bounds the sender's memory without flow control above it: it "
        "keeps no more than NAKACK2 with MFC.",
        scenario=_GROUP_SLOW,
        clusters=("stack: udp", "stack: mcast"),
        figure=KEPT,
        at_most=1.0,
    ),
    Claim(
        note="MCAST",
        says="The price are acks: more of them than NAKACK2 has votes of stability.",
        scenario=_GROUP_SLOW,
        clusters=("stack: udp", "stack: mcast"),
        figure=GROUP_ACKS,
        at_least=1.0,
    ),
)
