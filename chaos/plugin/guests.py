"""The objects behind the fixture `guest`: programs of others in network namespaces of the test."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pytest

from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.guests.by_hand import HandledGuests
from stormcast.chaos.language.schedule import TimedStep
from stormcast.chaos.oracles.verdict import Judgement, Verdict
from stormcast.chaos.plugin.live_cluster import Fault, VerdictError
from stormcast.node.bound import bound_to_me
from stormcast.node.core.errors import require
from stormcast.node.reading.notations import Plain

RUN_SECONDS: Final = 60.0
"""Seconds that a program may take in a guest's network, unless a test says otherwise."""


class LiveGuest(str):
    """A guest that runs: its name, by which faults call it, and more."""

    __slots__ = ("_handled", "address")

    address: str
    _handled: HandledGuests

    @classmethod
    def of(cls, name: str, handled: HandledGuests) -> LiveGuest:
        """Make the object of a guest that was started."""
        made = cls(name)
        made._handled, made.address = handled, handled.lab.network.address(name)
        return made

    def run(self, *words: str, within: float = RUN_SECONDS) -> str:
        """Run a program to its end in this guest's network; return its output. It has the variable
        STORMCAST_ZERO, from which a history counts."""
        network = self._handled.lab.network
        done = subprocess.run(  # noqa: S603 the words of the test
            bound_to_me(network.inside(self, words)),
            capture_output=True,
            text=True,
            timeout=within,
            check=False,
            stdin=subprocess.DEVNULL,
            env=self._handled.environment(),
        )
        assert done.returncode == 0, f"{' '.join(words)}: exit {done.returncode}: {done.stderr}"
        return done.stdout

    def log(self) -> str:
        """Return what the guest has said so far."""
        return self._handled.lab.guests[self].log()

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._handled.lab.guests[self].is_alive


class GuestFault(Fault):
    """A fault of guests; it ends at the end of its `with` block."""

    def __init__(self, handled: HandledGuests, fault: str, undo: TimedStep | None) -> None:
        self._handled = handled
        self._id = fault
        self._undo = undo

    def end(self) -> None:
        """End the fault: a paused guest goes on, a killed one is started again."""
        if self._undo is not None:
            undo, self._undo = self._undo, None
            self._handled.end(undo)

    @property
    def bites(self) -> int:
        """The number of times that the fault has had an effect so far."""
        return self._handled.bites().get(self._id, 0)


class GuestMaker:
    """The fixture: `guest(command="…", ready={"tcp": 6379})` starts one and waits for it."""

    def __init__(self, folder: Path, here: Path, seed: int) -> None:
        self._folder = folder
        self._here = here
        self._seed = seed
        self._handled: HandledGuests | None = None
        self._is_finished = False

    def __call__(
        self,
        command: str = "",
        *,
        ready: Mapping[str, Plain] | None = None,
        stop: str = "SIGTERM",
        **others: Plain,
    ) -> LiveGuest:
        """Start a guest, with the keys of a scenario's `guests`, and return it when it is ready.
        Without a command it is a network, for programs that the test runs there; with a `target` it
        is what runs already."""
        words: dict[str, Plain] = {**others}
        if command:
            words["command"] = command
        if words and "target" not in words:
            words["stop"] = stop
        if ready is not None:
            words["ready"] = ready
        handled = self._opened(run_already="target" in words)
        return LiveGuest.of(handled.add(words), handled)

    def judge(
        self,
        history: str | bytes | Path | Iterable[str],
        model: str,
        settle: float = 0.0,
    ) -> Judgement:
        """Judge a history (docs/histories.md) by a model and the faults that are over. VerdictError
        unless it holds."""
        __tracebackhide__ = True
        judgement = self._opened().judge(_bytes_of(history), model, settle)
        self._check(judgement)
        return judgement

    @property
    def zero(self) -> float:
        """The time, on the monotonic clock, from which histories count."""
        return self._opened().zero

    def finish(self) -> None:
        """End everything. VerdictError where a guest died by itself, or a fault had no effect."""
        __tracebackhide__ = True
        if self._handled is not None and not self._is_finished:
            self._is_finished = True
            self._check(self._handled.finish())

    def close(self) -> None:
        """End whatever still runs."""
        if self._handled is not None:
            self._handled.close()

    # -- For `chaos` -----------------------------------------------------------------------------

    def are_in(self, words: object) -> bool:
        """Whether an action names a guest."""
        if isinstance(words, Mapping):
            return any(map(self.are_in, words.values()))
        if isinstance(words, list | tuple | set | frozenset):
            return any(map(self.are_in, words))
        return isinstance(words, LiveGuest)

    def begin(self, action: str, words: Mapping[str, Plain]) -> Fault:
        """Begin an action on guests."""
        handled = self._opened()
        try:
            fault, undo = handled.begin(action, words)
        except Unsupported as error:
            pytest.skip(str(error))
        return GuestFault(handled, fault, undo)

    def _opened(self, *, run_already: bool = False) -> HandledGuests:
        require(not self._is_finished, "the guests of this test have ended; start them before")
        if self._handled is None:
            logs = self._folder / "logs"
            made = HandledGuests(logs, self._here, self._seed, run_already=run_already)
            self._handled = made
            try:
                made.open()
            except Unsupported as error:
                pytest.skip(str(error))
        return self._handled

    def _check(self, judgement: Judgement) -> None:
        __tracebackhide__ = True
        if judgement.verdict is Verdict.HOLDS:
            return
        lines = [f"guests, seed {self._seed}: {judgement.verdict}"]
        for finding in judgement.findings:
            if finding.verdict is not Verdict.HOLDS:
                lines.append(f"{finding.guarantee} {finding.verdict}: {finding.detail}")
                lines += [f"    {line}" for line in finding.witness]
        lines.append(f"logs: {self._folder / 'logs'}")
        raise VerdictError("\n".join(lines))


def _bytes_of(history: str | bytes | Path | Iterable[str]) -> bytes:
    if isinstance(history, Path):
        return history.read_bytes()
    if isinstance(history, bytes):
        return history
    if isinstance(history, str):
        return history.encode()
    return "".join(f"{line.rstrip()}\n" for line in history).encode()
