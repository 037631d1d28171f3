"""The load that a member puts on its group, and its check of what it receives. Loads are written as
in a scenario, so that every backend loads members the same way.

`Driver.tick` does what is due and says when it is wanted next; it reads no clock. Payloads follow
from the seed (node/payloads.py), so a receiver, or a checker of the journals, can make them again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any, Final

from stormcast.node.core.errors import ClosedError, NodeError, require
from stormcast.node.core.model import Address, Delivery, View
from stormcast.node.member.jobs import Job, Sending
from stormcast.node.member.labels import Labels
from stormcast.node.member.loads import MAX_LOADS, Load
from stormcast.node.member.offers import MAX_STREAMS, Offers, Outbox
from stormcast.node.payloads import PROVABLE_BYTES, PayloadStream, stream_of
from stormcast.node.reading.notations import MOST

TICK: Final = 0.001
"""Seconds between two bursts at least: a timer per message would cost more than the message."""
RETRY: Final = 0.01
"""Seconds after which an open load offers again what the outbox refused."""
CHUNK_BYTES: Final = 256 << 10
CHUNK_MESSAGES: Final = 256
"""The most that is offered to one destination before the member has a turn. Longer runs of fresh
payloads leave the processor's cache, and cost three times as much each."""
WAIT_FOR_VIEW: Final = 0.02
_BEFORE: Final = 1e-9
VERIFY: Final = ("all", "one", "none")
"""The messages of a batch that are checked."""


# -- Sending -------------------------------------------------------------------------------------


class Driver:
    """All loads of one member."""

    def __init__(self, channel: Outbox, seed: int, clock: Callable[[], float]) -> None:
        self.jobs: list[Job] = []
        self.offers = Offers(channel, seed)
        self._channel = channel
        self._seed = seed
        self._clock = clock
        self._view: View | None = None
        self._peers: tuple[Address, ...] | None = None
        """The members that `set_peers` named, in a stack without a group; None: use the view."""
        self._labels = Labels()
        self._task: asyncio.Task[None] | None = None

    # -- Commands ------------------------------------------------------------------------------

    def add(self, loads: Iterable[Load]) -> None:
        """Begin the loads of which this member is a source; ignore the others."""
        now = self._clock()
        me = self._channel.address.name
        mine = [load for load in loads if not load.sources or me in load.sources]
        self._labels.keep(job for job in self.jobs if job.is_over)
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
            self.offers.has_own_memory = True
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
            self._labels.note_error(job)
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
        if self.offers.offer(load, sending, min(number, chunk)) < min(number, chunk):
            # The outbox is full. A load with a rate waits for room for several messages.
            return now + (TICK if load.closed else RETRY)
        return now if number > chunk else max(due, now + TICK)

    # -- Who is there --------------------------------------------------------------------------

    def _look_at_view(self, now: float) -> None:
        """Look up destinations by name in a new view; of two with one name, the one listed last."""
        view = self._channel.view
        if view is self._view or view is None or self._peers is not None:
            return
        self._view = view
        self._find_all({member.name: member.short for member in view.members}, now)

    def _find_all(self, there: Mapping[str, int], now: float) -> None:
        self.offers.forget_all_but(there.values())
        for job in self.jobs:
            if not job.is_over:
                job.find_dests(there, self._channel.address.name, now)

    # -- What became of it ---------------------------------------------------------------------

    def stats(self) -> dict[str, int | float]:
        """Return counters and gauges by name."""
        return {
            "workload.running": int(self.is_running),
            "workload.accepted": self.offers.accepted,
            "workload.accepted_bytes": self.offers.accepted_bytes,
            "workload.refused": self.offers.refused,
        }

    def state(self) -> dict[str, object]:
        """Return every load, and how many of its messages were accepted."""
        return {
            "running": self.is_running,
            "accepted": self.offers.accepted,
            "accepted_bytes": self.offers.accepted_bytes,
            "refused": self.offers.refused,
            "seed": self._seed,
            "loads": [job.state() for job in self.jobs],
            "streams": self.sent_to(),
            "labels": self.sent_by_label(),
            "errors": dict(self._labels.errors),
        }

    def sent_to(self) -> dict[str, int]:
        """Return the number of accepted messages by the short id of their destination, in hex."""
        return self.offers.sent_to()

    def sent_by_label(self) -> dict[str, Counter[str]]:
        """Return the number of accepted messages of labelled loads, by label and destination."""
        return self._labels.sent(self.jobs)


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
