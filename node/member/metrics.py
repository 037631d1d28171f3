"""Metrics for Prometheus: figures that a member counts anyway, read at each scrape.

The hot path does nothing for them. Counters end in `_total`, units are base units, and labels take
a bounded number of values: reasons and events that the code names, and peers only in small groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from stormcast.node.member.asked import Measured

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MAX_PEERS: Final = 32
"""A group with more members has no metrics per peer: each would cost a series at each member."""
COUNTER: Final = "counter"
GAUGE: Final = "gauge"
_INFO: Final = ("member", "short", "cluster", "stack", "timing", "version")


@dataclass(frozen=True, slots=True)
class Described:
    """One metric: its name, kind, meaning and labels."""

    name: str
    kind: str
    about: str
    labels: tuple[str, ...] = ()

    def family(self) -> CounterMetricFamily | GaugeMetricFamily:
        """Return the metric without samples, to add some to."""
        make = CounterMetricFamily if self.kind == COUNTER else GaugeMetricFamily
        return make(self.name, self.about, labels=self.labels)


INFO: Final = Described("stormcast_member_info", GAUGE, "Who this member is; always 1.", _INFO)
CONNECTED: Final = Described(
    "stormcast_connected", GAUGE, "1 while this member is in its group, or bound without one."
)
VIEW_NUMBER: Final = Described(
    "stormcast_view_number", GAUGE, "Number of the view that this member holds."
)
VIEW_MEMBERS: Final = Described("stormcast_view_members", GAUGE, "Members of that view.")
COORDINATES: Final = Described(
    "stormcast_view_coordinates", GAUGE, "1 while this member coordinates its group."
)
PEER: Final = Described(
    "stormcast_peer_received_messages_total",
    COUNTER,
    f"Messages delivered, by their sender; in groups of up to {MAX_PEERS} members.",
    ("peer",),
)
REFUSED: Final = Described(
    "stormcast_refused_total",
    COUNTER,
    "Frames or messages that were dropped or refused, by reason.",
    ("reason",),
)
ABANDONED: Final = Described(
    "stormcast_abandoned_messages_total",
    COUNTER,
    "Messages that were accepted for sending and then given up, by reason.",
    ("reason",),
)
EVENTS: Final = Described(
    "stormcast_transport_events_total",
    COUNTER,
    "Rarer things that happened to the transport, by name.",
    ("event",),
)
FIGURES: Final = Described(
    "stormcast_figure", GAUGE, "Figures that have no metric of their own yet, by name.", ("name",)
)

BY_STAT: Final[dict[str, Described]] = {
    "runtime.turns": Described(
        "stormcast_turns_total", COUNTER, "Turns that the member's stack has had."
    ),
    "transport.datagrams_sent": Described(
        "stormcast_transport_sent_datagrams_total", COUNTER, "Datagrams sent."
    ),
    "transport.bytes_sent": Described(
        "stormcast_transport_sent_bytes_total", COUNTER, "Bytes sent, without their headers."
    ),
    "transport.datagrams_received": Described(
        "stormcast_transport_received_datagrams_total", COUNTER, "Datagrams received."
    ),
    "transport.bytes_received": Described(
        "stormcast_transport_received_bytes_total",
        COUNTER,
        "Bytes received, without their headers.",
    ),
    "transport.kernel_drops": Described(
        "stormcast_transport_kernel_drops_total",
        COUNTER,
        "Datagrams that came while the kernel's buffer was full.",
    ),
    "transport.queued_frames": Described(
        "stormcast_transport_queued_frames", GAUGE, "Frames that wait to be sent."
    ),
    "transport.queued_bytes": Described(
        "stormcast_transport_queued_bytes", GAUGE, "Bytes that wait to be sent."
    ),
    "transport.multicast_reached": Described(
        "stormcast_transport_multicast_members",
        GAUGE,
        "Members that have said that multicasts reach them.",
    ),
    "transport.connections": Described(
        "stormcast_transport_connections", GAUGE, "Connections that stand."
    ),
    "transport.connections_dialled": Described(
        "stormcast_transport_dialled_connections", GAUGE, "Connections that are being made."
    ),
    "transport.connections_unknown": Described(
        "stormcast_transport_unknown_connections",
        GAUGE,
        "Connections whose other end has not yet said who it is.",
    ),
    "journal.bytes": Described("stormcast_journal_bytes_total", COUNTER, "Bytes written."),
    "journal.blocks": Described("stormcast_journal_blocks_total", COUNTER, "Blocks written."),
    "journal.events_lost": Described(
        "stormcast_journal_lost_events_total",
        COUNTER,
        "Events for which the journal had no room.",
    ),
    "journal.segments": Described("stormcast_journal_segments", GAUGE, "Segment files kept."),
    "workload.running": Described(
        "stormcast_workload_running", GAUGE, "1 while this member offers a load."
    ),
    "workload.accepted": Described(
        "stormcast_workload_sent_messages_total", COUNTER, "Messages that the outbox accepted."
    ),
    "workload.accepted_bytes": Described(
        "stormcast_workload_sent_bytes_total", COUNTER, "Their bytes."
    ),
    "workload.refused": Described(
        "stormcast_workload_refusals_total", COUNTER, "How often the outbox was full."
    ),
    "workload.received": Described(
        "stormcast_workload_received_messages_total", COUNTER, "Messages delivered."
    ),
    "workload.received_bytes": Described(
        "stormcast_workload_received_bytes_total", COUNTER, "Their bytes."
    ),
    "workload.verified": Described(
        "stormcast_workload_verified_messages_total",
        COUNTER,
        "Messages that were compared with what was sent.",
    ),
    "workload.mismatches": Described(
        "stormcast_workload_mismatches_total", COUNTER, "Those that were something else."
    ),
}
"""The metric of each figure of a member, by the figure's name."""
PREFIXES: Final = (
    ("stack.refused.", REFUSED),
    ("stack.abandoned.", ABANDONED),
    ("transport.", EVENTS),
    ("", FIGURES),
)
"""Metrics of all other figures, by the beginning of their names: the rest of a name is a label."""
ALL: Final = (
    INFO,
    CONNECTED,
    VIEW_NUMBER,
    VIEW_MEMBERS,
    COORDINATES,
    *BY_STAT.values(),
    PEER,
    REFUSED,
    ABANDONED,
    EVENTS,
    FIGURES,
)
"""Every metric, besides those of the process."""


class Metrics:
    """The metrics of one member, in a registry of their own."""

    content_type = CONTENT_TYPE

    def __init__(self, subject: Measured) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Collector(lambda: families(subject)))
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """Return the answer to a scrape."""
        return generate_latest(self._registry)


class _Collector(Collector):
    """Collects the metrics that a function makes."""

    def __init__(self, make: Callable[[], Iterator[Metric]]) -> None:
        self._make = make

    def describe(self) -> list[Metric]:
        """Return nothing: registering must not ask a member that has not begun."""
        return []

    def collect(self) -> Iterator[Metric]:
        return self._make()


def families(subject: Measured) -> Iterator[Metric]:
    """Yield the metrics of a member, with their present values."""
    info = INFO.family()
    labels = {**subject.labels, "version": _version()}
    info.add_metric([labels[name] for name in _INFO], 1)
    yield info
    yield _single(CONNECTED, subject.is_connected)
    view, me = subject.view, subject.me
    if view is not None:
        yield _single(VIEW_NUMBER, view.id.number)
        yield _single(VIEW_MEMBERS, len(view.members))
        yield _single(COORDINATES, view.coordinator == me)
        if len(view.members) <= MAX_PEERS:
            peers = PEER.family()
            there = {member.name for member in view.members}
            for peer, number in subject.received_from().items():
                if peer in there:
                    peers.add_metric([peer], number)
            yield peers
    yield from _figures(subject.stats())


def _figures(stats: Mapping[str, int | float]) -> Iterator[Metric]:
    labelled = {described: described.family() for _prefix, described in PREFIXES}
    for name, value in stats.items():
        described = BY_STAT.get(name)
        if described is not None:
            yield _single(described, value)
            continue
        prefix, described = next(one for one in PREFIXES if name.startswith(one[0]))
        labelled[described].add_metric([name.removeprefix(prefix)], value)
    yield from (family for family in labelled.values() if family.samples)


def _single(described: Described, value: float) -> Metric:
    family = described.family()
    family.add_metric([], value)
    return family


def _version() -> str:
    try:
        return version("stormcast")
    except PackageNotFoundError:
        return "unknown"
