"""The load that a member puts on its group, and its check of what it receives. Loads are written as
in a scenario, so that every backend loads members the same way.

`Driver.tick` does what is due and says when it is wanted next; it reads no clock. Payloads follow
from the seed (node/payloads.py), so a receiver, or a checker of the journals, can make them again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, Protocol

from stormcast.machine import in_words
from stormcast.node.core.errors import ClosedError, NodeError, require
from stormcast.node.core.model import OOB, Address, Delivery, View
from stormcast.node.member.loads import MAX_LOADS, MOST, Load, write_load
from stormcast.node.payloads import PROVABLE_BYTES, PayloadStream, stream_of

TICK: Final = 0.001
"""Seconds between two bursts at least: a timer per message would cost more than the message."""
RETRY: Final = 0.01
"""Seconds after which an open load offers again what the outbox refused."""
CATCH_UP: Final = 1.0
"""Seconds' worth of messages that are offered late; beyond that, the schedule is moved back."""
CHUNK_BYTES: Final = 256 << 10
CHUNK_MESSAGES: Final = 256
"""The most that is offered to one destination before the member has a turn. Longer runs of fresh
payloads leave the processor's cache, and cost three times as much each."""
WAIT_FOR_VIEW: Final = 0.02
_BEFORE: Final = 1e-9
MAX_STREAMS: Final = 1024
MAX_LABELS: Final = 1024
"""Labels of loads that are over and counted; beyond that the oldest is forgotten."""
VERIFY: Final = ("all", "one", "none")
"""The messages of a batch that are checked."""


# -- Sending -------------------------------------------------------------------------------------


class Outbox(Protocol):
    """A channel, as far as the driver uses it."""

    @property
    def address(self) -> Address: ...

    @property
    def view(self) -> View | None: ...

    def try_send(self, dest: Address | int | None, payload: bytes, flags: int = 0) -> bool: ...


@dataclass(slots=True)
class Sending:
    """One load to one destination, in progress."""

    dest: str | None
    """None: the group."""
    begin: float
    """When its schedule starts; moved back when more is late than CATCH_UP allows."""
    short: int = 0
    """The short id of `dest` in the view; 0: the group; -1: not there, and nothing is sent."""
    was_there: bool = True
    """False: `dest` is still to come, and is waited for."""
    accepted: int = 0
    put_off: float = 0.0
    """Seconds by which the schedule was moved back."""
    refused: int = 0
    """The number of times that the outbox was full."""
    ready: list[bytes] = field(default_factory=list)
    """Payloads that were made, and refused by the outbox."""
    ready_at: int = -1
    """The number of the first of them in its stream."""

    def owed(self, load: Load, now: float, left: int) -> tuple[int, float]:
        """Return how many messages are due, and when the next burst is. The n-th is due where the
        schedule puts it, however late the last tick was: so the rate is kept on average."""
        bursts = int((now - self.begin) * load.rate / load.burst) + 1
        owed = bursts * load.burst - self.accepted
        most = max(load.burst, int(load.rate * CATCH_UP))
        if owed > most:
            beyond = -(-(owed - most) // load.burst)
            self.begin += beyond * load.burst / load.rate
            self.put_off += beyond * load.burst / load.rate
            bursts -= beyond
            owed -= beyond * load.burst
        return min(owed, left), self.begin + bursts * load.burst / load.rate


@dataclass(slots=True)
class Job:
    """One load of this member."""

    load: Load
    start: float
    end: float
    sendings: dict[str | None, Sending] = field(default_factory=dict)
    is_new: bool = True
    """Whether its destinations were not looked up yet."""
    is_over: bool = False
    error: str = ""
    words: dict[str, object] = field(init=False)
    """The load as a mapping."""

    def __post_init__(self) -> None:
        self.words = write_load(self.load)

    def is_done(self, sending: Sending) -> bool:
        """Whether all messages for a destination were accepted."""
        count = self.load.count
        return count is not None and sending.accepted >= count

    def waits_for(self, sending: Sending) -> bool:
        """Whether a destination is to get more, now or when it is there again. Only who is named
        is waited for: of others nobody knows whether they come back."""
        if self.is_done(sending):
            return False
        return bool(self.load.dests) or sending.short >= 0 or not sending.was_there


class Driver:
    """All loads of one member."""

    def __init__(self, channel: Outbox, seed: int, clock: Callable[[], float]) -> None:
        self.jobs: list[Job] = []
        self._channel = channel
        self._seed = seed
        self._clock = clock
        self._view: View | None = None
        self._peers: tuple[Address, ...] | None = None
        """The members that `set_peers` named, in a stack without a group; None: use the view."""
        self._streams: dict[int, PayloadStream] = {}
        self._labels: dict[str, Counter[str]] = {}
        """By label and destination, the accepted messages of loads that are no longer in `jobs`."""
        self._errors: dict[str, str] = {}
        """By label, the first error that ended a load, also of one that is no longer in `jobs`."""
        self._task: asyncio.Task[None] | None = None
        self.accepted = 0
        """Messages that the outbox took."""
        self._bytes = 0
        self._refused = 0

    # -- Commands ------------------------------------------------------------------------------

    def add(self, loads: Iterable[Load]) -> None:
        """Begin the loads of which this member is a source; ignore the others."""
        now = self._clock()
        me = self._channel.address.name
        mine = [load for load in loads if not load.sources or me in load.sources]
        for job in self.jobs:
            if job.is_over:
                _count_labelled(job, self._labels)
        for kept in (self._labels, self._errors):
            while len(kept) > MAX_LABELS:
                del kept[next(iter(kept))]
        self.jobs = [job for job in self.jobs if not job.is_over][-MAX_LOADS:]
        require(
            len(self.jobs) + len(mine) <= MAX_LOADS,
            f"workload: {len(self.jobs)} loads are running; stop them before you start more",
        )
        for load in mine:
            start = now + load.start
            end = inf if load.duration is None else start + load.duration
            self.jobs.append(Job(load, start, end))
        # Have the view looked at again, for the destinations of the new loads.
        self._view = None
        if self._peers is not None:
            self.set_peers(self._peers)

    def set_peers(self, peers: tuple[Address, ...]) -> None:
        """Name all members, in place of a view; this member may be among them."""
        self._peers = peers
        self._find_all({peer.name: peer.short for peer in peers}, self._clock())

    def stop(self) -> int:
        """End all loads; return how many were running."""
        running = [job for job in self.jobs if not job.is_over]
        for job in running:
            job.is_over = True
        return len(running)

    @property
    def is_running(self) -> bool:
        """Whether any load is not over."""
        return not all(job.is_over for job in self.jobs)

    def start(self) -> None:
        """Run in the background, until every load is over."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self.run())
            self._task.add_done_callback(_tell_end)

    async def close(self) -> None:
        """Stop, and wait until nothing more is offered."""
        self.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def run(self, sleep: Callable[[float], Any] = asyncio.sleep) -> None:
        """Call `tick` whenever something is due, until every load is over."""
        while self.is_running:
            now = self._clock()
            wait = self.tick(now) - now
            # A load may be added, or the view change, before the next one here is due.
            await sleep(0 if wait <= 0 else min(max(wait, TICK), WAIT_FOR_VIEW))

    # -- The schedule --------------------------------------------------------------------------

    def tick(self, now: float) -> float:
        """Offer the messages that are due; return when more will be due, infinity for never."""
        due = inf
        self._look_at_view(now)
        for job in self.jobs:
            if job.is_over:
                continue
            if now < job.start:
                due = min(due, job.start)
            elif now >= job.end:
                # Messages that were due before the end are still offered, but none is retried.
                last = job.end - _BEFORE
                more = inf if job.load.closed else self._work(job, last)
                job.is_over |= more > last
                due = due if job.is_over else now
            else:
                due = min(due, self._work(job, now), job.end)
        return due

    def _work(self, job: Job, now: float) -> float:
        try:
            waits = [self._pump(job, sending, now) for sending in job.sendings.values()]
        except ClosedError:
            job.is_over = True
            return inf
        except NodeError as error:
            # A load that cannot work, such as one with messages too large for its stack.
            job.is_over, job.error = True, str(error)
            if job.load.label:
                self._errors.setdefault(job.load.label, job.error)
            return inf
        if job.sendings and job.load.count is not None:
            job.is_over = not any(job.waits_for(sending) for sending in job.sendings.values())
        return min(waits, default=inf)

    def _pump(self, job: Job, sending: Sending, now: float) -> float:
        """Offer one destination the messages that are due; return when more will be."""
        if sending.short < 0 or job.is_done(sending):
            return inf
        load = job.load
        left = MOST if load.count is None else load.count - sending.accepted
        number, due = left, inf
        if not load.closed:
            number, due = sending.owed(load, now, left)
        chunk = max(1, min(number, CHUNK_MESSAGES, CHUNK_BYTES // max(load.size[1], 1)))
        if self._offer(load, sending, min(number, chunk)) < min(number, chunk):
            # The outbox is full. A load with a rate waits for room for several messages.
            return now + (TICK if load.closed else RETRY)
        return now if number > chunk else max(due, now + TICK)

    def _offer(self, load: Load, sending: Sending, number: int) -> int:
        """Offer `number` messages; return how many the outbox took."""
        stream = self._stream(sending.short)
        dest = sending.short or None
        ready = sending.ready if sending.ready_at == stream.sent else []
        if len(ready) < number:
            try:
                ready += stream.batch(stream.sent + len(ready), number - len(ready), load.size)
            except MemoryError as error:
                if self._task is None:
                    # In the simulator: the memory is that of the whole run.
                    raise
                raise NodeError(f"a message of {load.size[1]} bytes: {in_words(error)}") from None
        bits, oob_every, try_send = load.bits, load.oob_every, self._channel.try_send
        done = 0
        try:
            for payload in ready[:number]:
                is_oob = oob_every and not (stream.sent + done + 1) % oob_every
                if not try_send(dest, payload, bits | OOB if is_oob else bits):
                    sending.refused += 1
                    self._refused += 1
                    break
                done += 1
        finally:
            # Also when one message was too large: those before it were accepted.
            stream.sent += done
            sending.accepted += done
            self.accepted += done
            self._bytes += sum(map(len, ready[:done]))
            sending.ready, sending.ready_at = ready[done:], stream.sent
        return done

    # -- Who is there --------------------------------------------------------------------------

    def _look_at_view(self, now: float) -> None:
        """Look up destinations by name in a new view; of two with one name, the one listed last."""
        view = self._channel.view
        if view is self._view or view is None or self._peers is not None:
            return
        self._view = view
        self._find_all({member.name: member.short for member in view.members}, now)

    def _find_all(self, there: Mapping[str, int], now: float) -> None:
        if len(self._streams) > MAX_STREAMS:
            alive = {0, *there.values()}
            self._streams = {one: sent for one, sent in self._streams.items() if one in alive}
        for job in self.jobs:
            if not job.is_over:
                self._find_dests(job, there, now)

    def _find_dests(self, job: Job, there: Mapping[str, int], now: float) -> None:
        load = job.load
        begin = job.start if job.is_new else max(now, job.start)
        job.is_new = False
        if load.do == "multicast":
            job.sendings.setdefault(None, Sending(None, begin))
            return
        me = self._channel.address.name
        for name in load.dests or there:
            if name == me and load.excludes_self:
                continue
            if name not in job.sendings:
                job.sendings[name] = Sending(name, begin, -1, was_there=False)
        for sending in job.sendings.values():
            if sending.dest is not None:
                sending.short = there.get(sending.dest, -1)
                sending.was_there |= sending.short >= 0

    def _stream(self, dest: int) -> PayloadStream:
        stream = self._streams.get(dest)
        if stream is None:
            me = self._channel.address
            stream = self._streams[dest] = stream_of(self._seed, me.name, me.short, dest)
        return stream

    # -- What became of it ---------------------------------------------------------------------

    def stats(self) -> dict[str, int | float]:
        """Return counters and gauges by name."""
        return {
            "workload.running": int(self.is_running),
            "workload.accepted": self.accepted,
            "workload.accepted_bytes": self._bytes,
            "workload.refused": self._refused,
        }

    def state(self) -> dict[str, object]:
        """Return every load, and how many of its messages were accepted."""
        return {
            "running": self.is_running,
            "accepted": self.accepted,
            "accepted_bytes": self._bytes,
            "refused": self._refused,
            "seed": self._seed,
            "loads": [
                {
                    "load": job.words,
                    "over": job.is_over,
                    "error": job.error,
                    "to": {
                        sending.dest or "group": {
                            "accepted": sending.accepted,
                            "refused": sending.refused,
                            "put_off": round(sending.put_off, 6),
                            "there": sending.short >= 0,
                        }
                        for sending in job.sendings.values()
                    },
                }
                for job in self.jobs
            ],
            "streams": self.sent_to(),
            "labels": self.sent_by_label(),
            "errors": dict(self._errors),
        }

    def sent_to(self) -> dict[str, int]:
        """Return the number of accepted messages by the short id of their destination, in hex."""
        return {f"{dest:x}": stream.sent for dest, stream in self._streams.items()}

    def sent_by_label(self) -> dict[str, Counter[str]]:
        """Return the number of accepted messages of labelled loads, by label and destination."""
        found = {label: sent.copy() for label, sent in self._labels.items()}
        for job in self.jobs:
            _count_labelled(job, found)
        return found


def _count_labelled(job: Job, counts: dict[str, Counter[str]]) -> None:
    """Add what a load has sent to the counts by label, if it has one."""
    if job.load.label:
        sent = counts.setdefault(job.load.label, Counter())
        for sending in job.sendings.values():
            sent[sending.dest or "group"] += sending.accepted


# -- Receiving -----------------------------------------------------------------------------------


class Receiver:
    """Counts the messages that a member receives, and checks that they are what was sent."""

    def __init__(self, seed: int, verify: str = "all") -> None:
        self.messages = 0
        self.bytes = 0
        self.verified = 0
        self.mismatches = 0
        self.from_source: dict[int, int] = {}
        self._seed = seed
        self._verify = verify
        self._names: dict[int, str] = {}
        self._streams: dict[tuple[int, int], PayloadStream] = {}

    def on_view(self, view: View) -> None:
        """Learn who the members are."""
        self.meet(view.members)

    def meet(self, members: tuple[Address, ...]) -> None:
        """Learn the names of members; if those are too many, forget others and their counts."""
        self._names |= {member.short: member.name for member in members}
        if len(self._names) > MAX_STREAMS:
            self._names = {member.short: member.name for member in members}
        if len(self.from_source) > MAX_STREAMS:
            there = self._names
            self.from_source = {one: n for one, n in self.from_source.items() if one in there}

    def on_batch(self, delivery: Delivery) -> None:
        """Count a batch, and check it."""
        source, number = delivery.source, len(delivery)
        self.messages += number
        self.bytes += delivery.size
        self.from_source[source] = self.from_source.get(source, 0) + number
        if self._verify != "none":
            self._check(delivery)

    def _check(self, delivery: Delivery) -> None:
        stream = self._stream(delivery.source, delivery.dest)
        if stream is None:
            # The sender was never in a view here: its name is unknown, and with it its stream.
            return
        messages = delivery.messages
        checked = messages if self._verify == "all" else messages[:1]
        self.mismatches += stream.strangers(checked)
        self.verified += sum(len(one) >= PROVABLE_BYTES for one in checked)

    def _stream(self, source: int, dest: int) -> PayloadStream | None:
        stream = self._streams.get((source, dest))
        if stream is None and source in self._names:
            if len(self._streams) >= MAX_STREAMS:
                self._streams.clear()
            stream = stream_of(self._seed, self._names[source], source, dest)
            self._streams[source, dest] = stream
        return stream

    def by_name(self) -> dict[str, int]:
        """Return the number of messages by their sender's name."""
        found: dict[str, int] = {}
        for source, number in self.from_source.items():
            name = self._names.get(source, f"{source:08x}")
            found[name] = found.get(name, 0) + number
        return found

    def stats(self) -> dict[str, int | float]:
        """Return counters by name."""
        return {
            "workload.received": self.messages,
            "workload.received_bytes": self.bytes,
            "workload.verified": self.verified,
            "workload.mismatches": self.mismatches,
        }

    def state(self) -> dict[str, object]:
        """Return the counters, and the number of messages by sender, as `name:short`."""
        return {
            "received": self.messages,
            "received_bytes": self.bytes,
            "verified": self.verified,
            "mismatches": self.mismatches,
            "received_from": {
                f"{self._names.get(source, '?')}:{source:x}": number
                for source, number in self.from_source.items()
            },
        }


def _tell_end(task: asyncio.Task[None]) -> None:
    """Report that a bug has ended the workload: its loads would seem to run for ever."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        told = {"message": "the workload has ended", "exception": error}
        task.get_loop().call_exception_handler(told)
