"""The loads of one member in progress: which destinations they have, and what these are owed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from stormcast.node.member.loads import Load, write_load

CATCH_UP: Final = 1.0
"""Seconds' worth of messages that are offered late; beyond that, the schedule is moved back."""


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
    words: Mapping[str, object] = field(init=False)
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

    def find_dests(self, there: Mapping[str, int], me: str, now: float) -> None:
        """Look up the destinations among the members that are there, by name."""
        load = self.load
        begin = self.start if self.is_new else max(now, self.start)
        self.is_new = False
        if load.do == "multicast":
            self.sendings.setdefault(None, Sending(None, begin))
            return
        for name in load.dests or there:
            if name == me and load.excludes_self:
                continue
            if name not in self.sendings:
                self.sendings[name] = Sending(name, begin, -1, was_there=False)
        for sending in self.sendings.values():
            if sending.dest is not None:
                sending.short = there.get(sending.dest, -1)
                sending.was_there |= sending.short >= 0

    def state(self) -> dict[str, object]:
        """Return the load, and how many of its messages were accepted."""
        return {
            "load": self.words,
            "over": self.is_over,
            "error": self.error,
            "to": {
                sending.dest or "group": {
                    "accepted": sending.accepted,
                    "refused": sending.refused,
                    "put_off": round(sending.put_off, 6),
                    "there": sending.short >= 0,
                }
                for sending in self.sendings.values()
            },
        }
