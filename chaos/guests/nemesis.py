"""Does to guests what the steps of a timeline say, and notes when each fault acted."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from stormcast.chaos import faults
from stormcast.chaos.faults import NetworkFault
from stormcast.chaos.guests.lab import Lab
from stormcast.chaos.histories.judging import FaultWindow
from stormcast.chaos.language.schedule import End, TimedStep
from stormcast.chaos.records.rig_trace import RigTrace

AFTERMATH_SECONDS: Final = 1.0
"""A guest that is killed and not started again is a fault for so long: nobody ends it."""


class GuestNemesis:
    """Carries out steps. Times are those of the machine's monotonic clock."""

    def __init__(self, lab: Lab, rig: RigTrace) -> None:
        self._lab = lab
        self._rig = rig
        self._active: dict[str, NetworkFault] = {}
        self._since: dict[str, float] = {}
        """When each fault that acts began."""
        self._down: dict[str, str] = {}
        """The fault that has killed each guest that is down."""
        self._paused: dict[str, str] = {}
        self._done: dict[str, int] = {}
        """How often each fault of processes had an effect."""
        self._windows: list[tuple[str, float, float]] = []

    def do_all(self, steps: Iterable[TimedStep]) -> None:
        """Do steps that are due; their changes of the network are applied in one go."""
        begun: list[TimedStep] = []
        over: list[str] = []
        for step in steps:
            action = step.action
            if isinstance(action, NetworkFault):
                if step.fault in over:
                    # It comes and goes, and steps are late: its end is not to be skipped.
                    self._apply(begun, over)
                    begun, over = [], []
                self._active[step.fault] = action
                begun.append(step)
            elif isinstance(action, End):
                over += self._drop(action.fault)
            elif isinstance(action, faults.Heal):
                over += self._drop(action.name)
            else:
                self._do(step)
        if begun or over:
            self._apply(begun, over)

    def heal_all(self) -> None:
        """End everything that still acts, also where a run ended early."""
        over = self._drop(None)
        if over:
            self._apply([], over)
        for name in tuple(self._paused):
            self._resume(name)
        for fault in self._down.values():
            since = self._since.pop(fault, None)
            if since is not None:
                self._windows.append((fault, since, since + AFTERMATH_SECONDS))

    def stayed_down(self) -> frozenset[str]:
        """Return the guests that were killed and not started again."""
        return frozenset(self._down)

    def bites(self) -> dict[str, int]:
        """Return how often each fault that was begun had an effect."""
        found = dict.fromkeys(self._rig.kinds, 0) | self._done
        for fault, pairs in self._lab.bites().items():
            if fault in found:
                found[fault] = sum(pairs.values())
        return found

    def windows(self, zero: float, now: float) -> list[FaultWindow]:
        """Return the time of each fault, counted from `zero`: one that nothing has ended, as where
        a run broke off, lasts until `now`."""
        lasting = [(fault, since, now) for fault, since in self._since.items()]
        return [
            FaultWindow(max(0.0, start - zero), max(0.0, end - zero), fault)
            for fault, start, end in (*self._windows, *lasting)
        ]

    # -- Of networks -----------------------------------------------------------------------------

    def _drop(self, name: str | None) -> list[str]:
        """Take one fault, or all, out of those that act; return which."""
        named = list(self._active) if name is None else [name]
        return [fault for fault in named if self._active.pop(fault, None) is not None]

    def _apply(self, begun: Iterable[TimedStep], over: Iterable[str]) -> None:
        # A fault that begins acts from somewhere within this call on, and one that ends, until
        # somewhere within it: the window has all of that.
        for step in begun:
            self._since[step.fault] = time.monotonic()
            self._rig.begin(self._since[step.fault], step)
        self._lab.apply(self._active)
        for fault in over:
            self._end(fault)

    def _end(self, fault: str) -> None:
        now = time.monotonic()
        self._rig.end(now, fault)
        self._windows.append((fault, self._since.pop(fault, now), now))

    # -- Of processes ----------------------------------------------------------------------------

    def _do(self, step: TimedStep) -> None:
        action = step.action
        assert isinstance(action, faults.Crash | faults.Restart | faults.Pause | faults.Resume)
        name = action.member
        if isinstance(action, faults.Resume):
            self._resume(name)
            return
        self._rig.kinds.setdefault(step.fault, step.do)
        if name not in self._lab.guests:
            # Nobody was left for a random choice: the fault is one that did not strike.
            return
        if isinstance(action, faults.Crash):
            self._crash(step, name)
        elif isinstance(action, faults.Restart):
            self._restart(step, name)
        else:
            self._pause(step, name)

    def _crash(self, step: TimedStep, name: str) -> None:
        guest = self._lab.guests[name]
        if not guest.is_alive:
            return
        self._since[step.fault] = time.monotonic()
        self._rig.begin(self._since[step.fault], step)
        self._forget_pause(name)
        guest.kill()
        self._down[name] = step.fault
        self._done[step.fault] = self._done.get(step.fault, 0) + 1

    def _restart(self, step: TimedStep, name: str) -> None:
        guest = self._lab.guests[name]
        now = time.monotonic()
        fault = self._down.pop(name, None)
        is_undo = fault == step.fault
        if fault is None:
            # It runs: this is a fault of its own. If it has died by itself, it is started all the
            # same.
            self._since[step.fault] = now
            self._rig.begin(now, step)
            self._forget_pause(name)
            guest.kill()
            fault = step.fault
        guest.start()
        if not is_undo:
            self._done[step.fault] = self._done.get(step.fault, 0) + 1
        if step.fault != fault:
            self._rig.begin(now, step)
            self._rig.end(time.monotonic(), step.fault)
        self._end(fault)

    def _pause(self, step: TimedStep, name: str) -> None:
        guest = self._lab.guests[name]
        if not guest.is_alive:
            return
        self._forget_pause(name)
        self._since[step.fault] = time.monotonic()
        self._rig.begin(self._since[step.fault], step)
        if self._lab.pause(name):
            self._done[step.fault] = self._done.get(step.fault, 0) + 1
        self._paused[name] = step.fault

    def _resume(self, name: str) -> None:
        fault = self._paused.pop(name, None)
        if fault is not None:
            self._lab.guests[name].resume()
            self._end(fault)

    def _forget_pause(self, name: str) -> None:
        """End a pause that another fault of the same guest takes over."""
        fault = self._paused.pop(name, None)
        if fault is not None:
            self._end(fault)
