"""The teams of a run: each is a few processes that do the same work, round by round."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from bench.driven import Answer, Driven, idle_figures
from bench.errors import BenchError
from bench.work import Work

Round = dict[str, Any]
"""The figures of one round."""

START_SECONDS: Final = 90.0
PREPARE_SECONDS: Final = 120.0
"""A pool of payloads takes a while to make."""
ANSWER_SECONDS: Final = 90.0
"""Time for an answer beyond a round's own: senders may be blocked, or a reply lost repeatedly."""
SETTLE_SECONDS: Final = 60.0
LOOK_AGAIN: Final = 0.05


class Team:
    """The processes of one program under measurement."""

    is_warmed_longer = False
    """Whether one round is not enough to warm up: a JVM compiles while it runs."""

    def __init__(self, name: str, work: Work, commands: list[list[str]]) -> None:
        self.name = name
        self.work = work
        self._commands = commands
        self.processes: list[Driven] = []
        self.idle: list[Answer] = []
        """Memory and threads per process, before anything was sent."""

    def start(self, inside: list[str], logs: Path) -> None:
        """Start the processes one after another, and wait until all are together."""
        for number, argv in enumerate(self._commands, 1):
            log = logs / f"{self.name}-{number}.log"
            driven = Driven(f"{self.name} {number}", [*inside, *argv], log)
            self.processes.append(driven)
            # One after another: the first makes the group, and the others find it.
            self._wait_for(driven, "joined")
        for driven in self.processes:
            self._wait_for(driven, "ready")
        self.idle = [idle_figures(driven.pid) for driven in self.processes]

    @staticmethod
    def _wait_for(driven: Driven, state: str) -> None:
        said = driven.answer(START_SECONDS)
        if state not in said:
            raise BenchError(f"{driven.name} said {said}, and should have said that it is {state}")

    def prepare(self) -> None:
        """Have the processes make their payloads, before any clock starts."""
        self._all(f"prepare {self.work.size}", PREPARE_SECONDS)

    def round(self, seconds: float) -> Round:
        """Run one round, wait until everything that was sent has arrived; return the figures."""
        figures = self._measure(seconds)
        figures["undelivered"] = self.settle()
        return figures

    def settle(self) -> int:
        """Wait until everything sent has arrived; return how much has not."""
        if self.work.is_latency:
            return 0
        deadline = time.monotonic() + SETTLE_SECONDS
        while missing := self._missing():
            if time.monotonic() > deadline:
                break
            time.sleep(LOOK_AGAIN)
        return missing

    def stop(self) -> None:
        """End the processes; safe to call twice."""
        processes, self.processes = self.processes, []
        for driven in processes:
            driven.freeze()
        for driven in processes:
            driven.kill()

    def _measure(self, seconds: float) -> Round:
        mode, processes = self.work.mode, self.processes
        if mode == "multicast":
            answers = self._all(f"multicast {seconds}", seconds + ANSWER_SECONDS)
            return throughput(answers, answers)
        receiver, sender = processes[0], processes[-1]
        if mode == "roundtrip":
            return sender.ask(f"roundtrip {seconds} n1", seconds + ANSWER_SECONDS)
        # The listener first: its clock must not begin after the first message.
        receiver.tell(f"listen {seconds}")
        sender.tell(f"unicast {seconds} n1")
        heard = receiver.answer(seconds + ANSWER_SECONDS)
        return throughput([sender.answer(seconds + ANSWER_SECONDS)], [heard])

    def _missing(self) -> int:
        totals = self._all("total", ANSWER_SECONDS)
        copies = len(self.processes) if self.work.mode == "multicast" else 1
        sent = sum(total["sent"] for total in totals)
        return copies * int(sent) - int(sum(total["delivered"] for total in totals))

    def _all(self, command: str, timeout: float) -> list[Answer]:
        """Send all a command, then wait for all answers: none is done before another begins."""
        for driven in self.processes:
            driven.tell(command)
        return [driven.answer(timeout) for driven in self.processes]


class JavaTeam(Team):
    """A program on a JVM, which compiles it while it runs."""

    is_warmed_longer = True


class AeronTeam(JavaTeam):
    """Sender and receiver in one process, whose driver spins unless it is told to rest."""

    def round(self, seconds: float) -> Round:
        figures = super().round(seconds)
        self._all("rest", ANSWER_SECONDS)
        return figures

    def _measure(self, seconds: float) -> Round:
        answers = self._all(f"unicast {seconds}", seconds + ANSWER_SECONDS)
        return throughput(answers, answers)


class RawTeam(Team):
    """Bare sockets: lost messages are not waited for."""

    def _measure(self, seconds: float) -> Round:
        if not self.work.is_latency:
            return super()._measure(seconds)
        echo, asker = self.processes[0], self.processes[-1]
        echo.tell(f"bounce {seconds}")
        figures = asker.ask(f"roundtrip {seconds} n1", seconds + ANSWER_SECONDS)
        echo.answer(ANSWER_SECONDS)
        return figures

    def settle(self) -> int:
        self._all("rest", ANSWER_SECONDS)
        return 0


def throughput(senders: list[Answer], receivers: list[Answer]) -> Round:
    """Return the figures of a round from what its members counted."""
    per_member = [answer["delivered"] / answer["seconds"] for answer in receivers]
    return {
        "rate": fmean(per_member),
        "per_member": [round(rate) for rate in per_member],
        "sent": sum(answer["sent"] for answer in senders),
        "seconds": round(max(answer["seconds"] for answer in receivers), 3),
    }
