"""The event loop in virtual time: hosts, arrivals, timers, and calls of the scenario."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any, Final

from stormcast.chaos.backends.sim.garbage import no_garbage_collection
from stormcast.chaos.faults.paths import Path
from stormcast.node.core.errors import NodeError
from stormcast.node.core.model import Delivery
from stormcast.node.core.wire import source_of
from stormcast.node.stack import Stack
from stormcast.node.trace.tracer import Tracer

ARRIVAL: Final = 0
WAKE: Final = 1
CALL: Final = 2
ARRIVALS: Final = 3

KEY_UNKNOWN: Final = "key-unknown"
"""The reason for which a stack refuses a frame that is sealed by a key it does not have."""
HELD_FRAMES: Final = 512
"""Frames that a paused host's socket buffer takes; more are lost, as on a real host."""


class Host:
    """One incarnation of a member: its stack, whether it runs, and what waits for it."""

    __slots__ = (
        "group",
        "held",
        "held_limit",
        "is_alive",
        "is_clogged",
        "is_grouped",
        "is_paused",
        "label",
        "mail",
        "name",
        "routes",
        "short",
        "stack",
        "tells_news",
        "tracer",
        "wake_at",
    )

    def __init__(self, name: str, stack: Stack, tracer: Tracer) -> None:
        self.name = name
        self.label = name
        """Name and incarnation, as in the names of traces."""
        self.stack = stack
        self.short = stack.address.short
        self.tracer = tracer
        self.is_alive = True
        self.is_paused = False
        self.is_clogged = False
        """Whether a stalled application blocks the receiving threads, too."""
        self.held: list[bytes] = []
        """Frames that arrived while the host was paused or clogged, as in a socket buffer."""
        self.held_limit = HELD_FRAMES
        self.mail: list[Callable[[], None]] = []
        """Calls for news that came while the host was paused, as an operating system keeps it."""
        self.wake_at = inf
        self.routes: dict[int, Path] = {}
        """The path to each short id; filled when a frame is sent there."""
        self.group: list[tuple[Path, int]] | None = None
        """Paths and short ids to which multicast datagrams go; None: to be looked up."""
        self.is_grouped = stack.settings.has_group
        """Whether the stack has a group."""
        self.tells_news = self.is_grouped
        """Whether turns may end with views and other news: in a group, and while it leaves."""


EVENTS_PER_INSTANT: Final = 200_000
"""More events than this at one moment of virtual time are a loop of timers, not traffic."""


class RunawayError(NodeError):
    """The stacks keep each other busy without time passing."""


Send = Callable[[Host, int, bytes], None]
Deliver = Callable[[Host, list[Delivery]], None]
AfterTurn = Callable[[Host], None]
"""Called when a turn ended with news of a group."""
Unopened = Callable[[Host, bytes], None]
"""Called with a frame that came over a connection, and that its receiver has no key to open."""


class Engine:
    """Runs hosts until a time, in an order that depends on the scenario and the seed alone."""

    def __init__(
        self, send: Send, deliver: Deliver, after_turn: AfterTurn = lambda _host: None
    ) -> None:
        self.now = 0.0
        self.events = 0
        """Frame arrivals and fired timers."""
        self.hosts: dict[int, Host] = {}
        self._heap: list[tuple[float, int, int, Any, Any]] = []
        self._order = 0
        self._send = send
        self._deliver = deliver
        self._after_turn = after_turn
        self.on_unopened: Unopened | None = None
        """None: there are no connections."""

    def arrive(self, at: float, dest: int, frame: bytes) -> None:
        """Have a frame arrive at the host `dest`; it is lost if there is no such host by then."""
        self._order += 1
        heappush(self._heap, (at, self._order, ARRIVAL, dest, frame))

    def arrive_at_each(self, at: float, dests: Sequence[int], frame: bytes) -> None:
        """Have a frame arrive at several hosts at one time, in this order."""
        self._order += 1
        heappush(self._heap, (at, self._order, ARRIVALS, dests, frame))

    def call(self, at: float, action: Callable[[], None]) -> None:
        """Have `action` called at a time."""
        self._order += 1
        heappush(self._heap, (at, self._order, CALL, None, action))

    def run(self, until: float) -> None:
        """Process all events before `until`: the caller's next verb precedes the events of then."""
        with no_garbage_collection():
            self._run(until)

    def _run(self, until: float) -> None:
        heap = self._heap
        hosts = self.hosts
        instant, at_instant = -1.0, 0
        while heap and heap[0][0] < until:
            time, _order, kind, target, what = heappop(heap)
            self.now = time
            if time == instant:
                at_instant += 1
                if at_instant > EVENTS_PER_INSTANT:
                    raise RunawayError(
                        f"{at_instant} events at t={time}: timers that are always due"
                    )
            else:
                instant, at_instant = time, 0
            if kind == ARRIVAL:
                host = hosts.get(target)
                if host is None or not host.is_alive:
                    continue
                if host.is_paused or host.is_clogged:
                    if len(host.held) < host.held_limit:
                        host.held.append(what)
                    continue
                self.events += 1
                if not host.stack.receive(what, time):
                    self._on_refused(host, what)
                self.end_turn(host)
            elif kind == WAKE:
                self._wake(target, time)
            elif kind == ARRIVALS:
                self._arrive_now(target, what, time)
            else:
                what()
        self.now = max(self.now, until)

    def _on_refused(self, host: Host, frame: bytes) -> None:
        """Have the connection ended on which a frame came that its receiver has no key to open."""
        if self.on_unopened is not None and host.stack.refusal == KEY_UNKNOWN:
            self.on_unopened(host, frame)

    def take_away(self, source: int, dest: int) -> None:
        """Have no frame of a sender arrive at `dest` that is under way, or waits there."""
        kept = [
            one
            for one in self._heap
            if one[2] != ARRIVAL or one[3] != dest or source_of(one[4]) != source
        ]
        heapify(kept)
        # The loop that runs holds this very list.
        self._heap[:] = kept
        host = self.hosts.get(dest)
        if host is not None:
            host.held = [frame for frame in host.held if source_of(frame) != source]

    def arrive_by_a_stranger(self, at: float, dest: int, frame: bytes) -> None:
        """Have a frame arrive that came by no connection of the member that it names."""
        self.call(at, lambda: self._arrive_now([dest], frame, at))

    def _arrive_now(self, dests: Sequence[int], frame: bytes, time: float) -> None:
        hosts = self.hosts
        for dest in dests:
            host = hosts.get(dest)
            if host is None or not host.is_alive:
                continue
            if host.is_paused or host.is_clogged:
                if len(host.held) < host.held_limit:
                    host.held.append(frame)
                continue
            self.events += 1
            host.stack.receive(frame, time)
            self.end_turn(host)

    def end_turn(self, host: Host) -> None:
        """End a host's turn: its frames leave, its deliveries reach the application, its timer is
        set."""
        now = self.now
        stack = host.stack
        frames = stack.end_turn(now)
        if frames:
            send = self._send
            for dest, head, body in frames:
                send(host, dest, head + body)
        deliveries = stack.take_deliveries()
        if deliveries:
            self._deliver(host, deliveries)
        if host.tells_news and stack.has_news():
            self._after_turn(host)
        deadline = stack.next_deadline()
        if deadline < host.wake_at:
            self._set_wake(host, deadline)

    def tell(self, host: Host, action: Callable[[], None]) -> None:
        """Call `action` for a host, as news from its operating system: now, or when it is resumed.
        Nothing happens if it has ended."""
        if not host.is_alive:
            return
        if host.is_paused:
            host.mail.append(action)
            return
        self.events += 1
        action()
        self.end_turn(host)

    def _set_wake(self, host: Host, at: float) -> None:
        # A deadline in the past is due now: time does not run backwards.
        at = max(at, self.now)
        host.wake_at = at
        self._order += 1
        heappush(self._heap, (at, self._order, WAKE, host, None))

    def _wake(self, host: Host, time: float) -> None:
        if host.wake_at != time or not host.is_alive:
            return
        host.wake_at = inf
        if host.is_paused:
            return
        deadline = host.stack.next_deadline()
        if deadline <= time:
            self.events += 1
            host.stack.tick(time)
            self.end_turn(host)
        elif deadline < inf:
            self._set_wake(host, deadline)

    def resume(self, host: Host) -> int:
        """Resume a paused host: it takes the frames in its socket buffer, news and overdue timers;
        returns how many there were."""
        host.is_paused = False
        mail, host.mail = host.mail, []
        for action in mail:
            action()
        taken = 0 if host.is_clogged else self._take_held(host)
        missed = host.stack.next_deadline() <= self.now
        if missed:
            host.stack.tick(self.now)
        self.end_turn(host)
        return taken + len(mail) + int(missed)

    def unclog(self, host: Host) -> int:
        """Unblock a clogged host's receiving threads; returns how many frames they then took."""
        host.is_clogged = False
        if host.is_paused:
            return 0
        taken = self._take_held(host)
        self.end_turn(host)
        return taken

    def _take_held(self, host: Host) -> int:
        taken = 0
        while host.held:
            held, host.held = host.held, []
            for at, frame in enumerate(held, 1):
                self.events += 1
                taken += 1
                if not host.stack.receive(frame, self.now):
                    # With its connection go those of its frames that wait behind this one.
                    host.held = held[at:]
                    self._on_refused(host, frame)
                    break
        return taken
