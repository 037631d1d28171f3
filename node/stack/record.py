"""Records events about a member as a whole in the trace: settings and promises, what was offered
and handed over, what was refused, how full everything is."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Final

from stormcast.node import trace
from stormcast.node.core.gaps import MAX_REQUESTS_PER_LOOK
from stormcast.node.core.strangers import Pace
from stormcast.node.settings.description import describe

if TYPE_CHECKING:
    from stormcast.node.core.model import Address
    from stormcast.node.protocols.events import Install
    from stormcast.node.protocols.port import Port
    from stormcast.node.protocols.unicast import Unicast
    from stormcast.node.settings import StackSettings
    from stormcast.node.stack.group import Group
    from stormcast.node.stack.handover import HandOver
    from stormcast.node.stack.outbox import Outbox
    from stormcast.node.stack.pieces import Pieces

GAUGE_INTERVAL: Final = 0.25
"""Seconds between two records of how full things are; made in turns that happen anyway."""
MAX_DROPS: Final = 256
"""Records of what was refused, in a second: anybody can send frames that are refused, each in a
turn of its own. What comes beyond is recorded later, with a count."""
LEAST_QUEUE: Final = 2 * MAX_REQUESTS_PER_LOOK
"""Frames that a transport which drops what its queue has no room for has to queue: in a smaller
queue an ack may wait for many looks, each of which fills it with requests."""
_LATE_BY_SMALL_QUEUES: Final = ("quiet_within", "purge_within")
"""What nobody can promise with a smaller one."""
_AT_ONCE: Final = ("probe-", "fragment-")
"""Reasons that a checker reads, and that no stranger brings about: recorded in their turn."""

Bounds = dict[str, Any]
"""Numbers by name. Were they called floats, compiled code would make whole ones floats, too, and
traces would tell."""


class Record:
    """Writes these records, for one member."""

    def __init__(
        self,
        settings: StackSettings,
        port: Port,
        unicast: Unicast,
        group: Group | None,
        hand_over: HandOver,
        pieces: Pieces,
        outbox: Outbox,
    ) -> None:
        self.refused: dict[str, int] = {}
        """By reason, the number of drops and refusals so far."""
        self._pace = Pace(MAX_DROPS)
        self._unrecorded: dict[str, int] = {}
        """By reason, the number of those that are not in the trace yet."""
        self.gauge_at = 0.0
        """The time from which to record again how full things are."""
        self._settings = settings
        self._port = port
        self._unicast = unicast
        self._group = group
        self._hand_over = hand_over
        self._pieces = pieces
        self._outbox = outbox

    def start(self, address: Address, lateness: float, now: float) -> None:
        """Record the settings, and what a checker needs to know about promises."""
        self.gauge_at = now + GAUGE_INTERVAL
        settings = describe(self._settings, self.bounds(lateness))
        self._port.tracer.record(trace.START, now, text=trace.describe_start(address, settings))

    def view(self, event: Install, now: float) -> None:
        """Record a new view: a regular one, or that of a merge."""
        view = event.view
        self._port.tracer.record(
            trace.VIEW,
            now,
            stream=trace.REGULAR if event.mutual is None else trace.MERGE,
            peer=view.id.creator.short if self._group is not None else 0,
            view=view.id.number & 0xFFFFFFFF,
            lo=view.id.number,
            count=len(view.members),
            text=",".join(f"{member.short:08x}" for member in view.members),
        )

    def bounds(self, lateness: float = 0.0) -> dict[str, Bounds]:
        """Return what each protocol promises, by its name, if turns may be late by `lateness`."""
        promised = {self._settings.unicast: self._unicast.bounds()}
        if self._group is not None:
            promised |= self._group.bounds()
        transport = self._settings.transport_config
        has_small_queue = transport.drop_when_full and transport.queue_frames < LEAST_QUEUE
        late = _LATE_BY_SMALL_QUEUES if has_small_queue else ()
        return {
            protocol: {
                name: inf if name in late else _loosened(name, bound, lateness)
                for name, bound in bounds.items()
            }
            for protocol, bounds in promised.items()
        }

    def end_turn(self, now: float) -> None:
        """Record what was refused, and what was offered and handed over if that is due."""
        if self._port.drops:
            self._count_drops(now)
        if now >= self._outbox.flush_at or now >= self._hand_over.flush_at:
            self.flush(now)

    def _count_drops(self, now: float) -> None:
        drops, self._port.drops = self._port.drops, {}
        for reason, number in drops.items():
            if number:
                self.refused[reason] = self.refused.get(reason, 0) + number
                if reason.startswith(_AT_ONCE) or self._pace.admits(now):
                    count = number + self._unrecorded.pop(reason, 0)
                    self._port.tracer.record(trace.DROPPED, now, count=count, text=reason)
                else:
                    self._unrecorded[reason] = self._unrecorded.get(reason, 0) + number

    def _record_rest(self, now: float) -> None:
        """Record what was refused when there were too many records of that."""
        rest, self._unrecorded = self._unrecorded, {}
        for reason, number in rest.items():
            self._port.tracer.record(trace.DROPPED, now, count=number, text=reason)

    def flush(self, now: float) -> None:
        """Record what was refused, and what the application offered and was handed, as far as not
        recorded yet."""
        self._record_rest(now)
        self._hand_over.flush(now)
        self._outbox.flush(now)

    def gauge(self, now: float) -> None:
        """Record how full all stores are that protocols bound (G5)."""
        self._unicast.gauge(now)
        if self._group is not None:
            self._group.gauge(now)
        self._pieces.gauge(now)

    def gauge_all(self, now: float) -> None:
        """Record how full everything is, the outbox included, and set when to do so again."""
        self.gauge_at = now + GAUGE_INTERVAL
        self.gauge(now)
        self._outbox.gauge(now)


def _loosened(name: str, bound: Any, lateness: float) -> Any:  # noqa: ANN401 see Bounds
    """Return a bound for turns that may be late: what is due comes later, and two that follow each
    other are closer when the first was late."""
    if name.endswith("_within"):
        return bound + lateness
    if name.endswith(("_spacing", "_patience")):
        return max(bound / 2, bound - lateness) if lateness else bound
    return bound
