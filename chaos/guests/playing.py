"""Plays a scenario with guests: starts them and their client, does the steps of the timeline, tells
the client to come to its end when all is over, and writes the run directory."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from stormcast.chaos.backends.base import BackendError, Bites
from stormcast.chaos.backends.signals import sigterm_interrupts
from stormcast.chaos.guests.judging import Seen, judge_guests
from stormcast.chaos.guests.lab import Lab, Started
from stormcast.chaos.guests.nemesis import GuestNemesis
from stormcast.chaos.guests.scenario import CLIENT, GuestScenario
from stormcast.chaos.histories.reading import MOST_BYTES, read_history_untrusted
from stormcast.chaos.language.schedule import TimedStep, schedule
from stormcast.chaos.oracles.verdict import Judgement
from stormcast.chaos.records.directory import taken
from stormcast.chaos.records.exits import MemberExit
from stormcast.chaos.records.rig_trace import RigTrace
from stormcast.chaos.session.outcome import RunOutcome, write_evidence
from stormcast.chaos.session.record import RunRecord
from stormcast.chaos.session.recording import foreign_record
from stormcast.chaos.session.runner import KERNEL_DICE, LOGS
from stormcast.node.core.names import one_line
from stormcast.whole import write_whole

HISTORY: Final = "history.jsonl"
POLL_SECONDS: Final = 0.02
FIRST_LINE_SECONDS: Final = 30.0
"""Seconds that a client may take to print its first line, until the timeline begins without it."""
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class GuestOutcome:
    """A run with guests, and its verdict."""

    scenario: GuestScenario
    run: RunOutcome
    seen: Seen
    history_digest: str | None
    """Of the bytes of the history; None without a client."""
    is_cut_short: bool

    @property
    def judgement(self) -> Judgement:
        return self.run.judgement

    def as_json(self) -> dict[str, Any]:
        """Return the object of verdict.json, and of `stormcast run --json`."""
        history = self.seen.history
        return self.run.as_json() | {
            "file": self.scenario.path,
            "folder": str(self.scenario.folder),
            "guests": [guest.name for guest in self.scenario.guests],
            "model": self.scenario.client.model if self.scenario.client else None,
            "operations": len(history.operations) if history else 0,
            "history_digest": self.history_digest,
            "windows": [
                {"fault": one.name, "start": round(one.start, 6), "end": round(one.end, 6)}
                for one in self.seen.windows
            ],
        }


def play_guests(
    scenario: GuestScenario, seed: int, out: Path, tell: Tell | None = None
) -> GuestOutcome:
    """Play a scenario and judge it; the run directory is written to `out`.

    BackendError where guests do not start: nothing is left then. What goes wrong later ends the
    run, which proves nothing."""
    with taken(out), sigterm_interrupts():
        player = _Player(scenario, seed, out, tell or (lambda _text: None))
        player.play()
        outcome = player.outcome()
        write_evidence(outcome.run.scenario, seed, outcome.run.run, out)
        write_whole(out / "verdict.json", json.dumps(outcome.as_json(), indent=2) + "\n")
    return outcome


class _Player:
    """Plays one run."""

    def __init__(self, scenario: GuestScenario, seed: int, out: Path, tell: Tell) -> None:
        self._scenario = scenario
        self._seed = seed
        self._out = out
        self._tell = tell
        self._plan = scenario.plan()
        self._steps: deque[TimedStep] = deque(schedule(self._plan, seed))
        self._rig = RigTrace()
        self._lab = Lab(scenario.names, out / LOGS, scenario.folder, seed, scenario.targets)
        self._nemesis = GuestNemesis(self._lab, self._rig)
        self._seen = Seen()
        self._zero = self._ended = 0.0
        self._began = 0.0
        """When the timeline began, from the beginning of the run."""
        self._late = 0.0
        self._is_cut_short = False
        self._struck: Bites = {}
        """The bites of faults of the network, per sender and receiver."""
        self._noted: set[tuple[str, int]] = set()
        """Guests whose end by themselves was noted, and which start of each it was."""

    # -- The run ---------------------------------------------------------------------------------

    def play(self) -> None:
        """Play to the end; then everything is ended and removed."""
        try:
            self._lab.open()
            self._lab.check_features(self._plan)
            for guest in self._scenario.guests:
                self._tell(f"{guest.name} is started")
                self._lab.add(guest)
            self._begin()
            try:
                self._run()
            except BackendError as error:
                self._seen.doubts.append(f"the run broke off: {one_line(error)}")
            except KeyboardInterrupt:
                self._is_cut_short = True
                self._seen.doubts.append("the run was interrupted")
            self._end()
        finally:
            self._close()

    def _close(self) -> None:
        """Remove everything. An agent that cannot be told to end, as where its cluster does not
        answer, ends by its lease: that takes nothing from what was seen but certainty."""
        try:
            self._lab.close()
        except BackendError as error:
            self._seen.doubts.append(f"the end of the faults was not confirmed: {one_line(error)}")

    def _begin(self) -> None:
        # No fault acts yet; but the agent is there, and steps are not late because of it.
        self._lab.apply({})
        self._zero = time.monotonic()
        self._rig.phase(self._zero, "begin")
        if self._scenario.client is not None:
            history = self._out / HISTORY
            history.touch()
            self._lab.start_client(self._scenario.client, history, self._zero)

    def _run(self) -> None:
        client = self._lab.client
        if client is not None:
            # A program takes a while to start: the first fault is to find it at work.
            history = self._out / HISTORY
            self._wait_until(
                lambda: history.stat().st_size > 0 or not client.is_alive, FIRST_LINE_SECONDS
            )
        self._began = self._now()
        while self._steps:
            self._look_after()
            now = self._now() - self._began
            due = []
            while self._steps and self._steps[0].at <= now:
                due.append(self._steps.popleft())
                self._late = max(self._late, now - due[-1].at)
            if due:
                self._tell(
                    f"{now:.0f}s: {', '.join(f'{one.do} {one.fault}'.strip() for one in due)}"
                )
                self._nemesis.do_all(due)
            elif self._steps:
                time.sleep(min(POLL_SECONDS, max(0.0, self._steps[0].at - now)))
        self._tell("faults are over; guests come to rest")
        healed = time.monotonic()
        self._wait_until(lambda: self._are_ready_since(healed), self._due())
        self._finish_client()

    def _due(self) -> float:
        """Return until when guests may take to be ready again, from the beginning of the run."""
        limit = self._began + self._scenario.limits.run
        if self._scenario.expect is None:
            return limit
        # A little longer, so that somebody was asked when the time was over.
        return min(limit, self._now() + self._scenario.expect.ready_within + 2.0)

    def _finish_client(self) -> None:
        client, spec = self._lab.client, self._scenario.client
        if client is None or spec is None:
            return
        if client.is_alive:
            self._tell("the client is told to come to its end")
            client.tell(spec.stop)
        limit = self._scenario.limits.finish
        if not self._wait_until(lambda: not client.is_alive, self._now() + limit):
            client.kill()
            self._seen.doubts.append(
                f"the client did not end within {limit:g}s of {spec.stop}, and was killed: have it "
                "read last, and exit; or raise limits.finish"
            )
        elif client.code:
            # By whatever: what it had still to read may be missing.
            self._seen.doubts.append(
                f"the client ended with {client.code} in place of 0: "
                f"{one_line(client.last_line()) or 'its log is empty'}"
            )

    def _wait_until(self, is_done: Callable[[], bool], until: float) -> bool:
        """Wait, while everything is looked after; return whether it came to pass."""
        while not is_done():
            if self._now() > until:
                return False
            self._look_after()
            time.sleep(POLL_SECONDS)
        return True

    def _are_ready_since(self, at: float) -> bool:
        down = self._nemesis.stayed_down()
        return all(
            prober.is_ready_since(at)
            for name, prober in self._lab.probers.items()
            if name not in down
        )

    def _look_after(self) -> None:
        self._lab.look_after()
        for guest in self._lab.everyone():
            if not guest.is_alive:
                self._note_end(guest)
        history = self._out / HISTORY
        client = self._lab.client
        if client is not None and client.is_alive and history.stat().st_size > MOST_BYTES:
            client.kill()
            self._seen.doubts.append(
                f"the client wrote more than {MOST_BYTES >> 20} MiB and was ended: run it for a "
                "shorter time"
            )

    def _note_end(self, guest: Started) -> None:
        """Note the end of a guest, once; one that nobody ordered is a doubt."""
        if (guest.name, guest.incarnation) in self._noted:
            return
        self._noted.add((guest.name, guest.incarnation))
        code = guest.code
        if code is not None:
            self._rig.exit(
                MemberExit(
                    name=guest.name,
                    incarnation=guest.incarnation,
                    at=guest.seen_alive,
                    code=code,
                    is_ordered=guest.is_ordered,
                ),
                None,
            )
        # A client may end when it likes, if it says that all is well.
        if not guest.is_ordered and not (guest.name == CLIENT and code == 0):
            self._seen.doubts.append(self._lab.ended(guest))
            self._seen.ended.add(guest.name)

    def _end(self) -> None:
        """End everything in good order, and note what is known by then."""
        if self._lab.client is not None and self._lab.client.is_alive:
            # The run was cut short: nothing is to be in the history that comes after its end.
            self._lab.client.kill()
        try:
            self._nemesis.heal_all()
            self._seen.bites = self._nemesis.bites()
            self._struck = self._lab.bites()
        except BackendError as error:
            self._seen.doubts.append(f"the run broke off: {one_line(error)}")
            self._seen.bites = dict.fromkeys(self._rig.kinds, 0)
        self._ended = time.monotonic()
        self._rig.phase(self._ended, "quiet")
        self._rig.phase(self._ended, "end")
        for fault, number in self._seen.bites.items():
            self._rig.probe(self._ended, fault, number)
        for prober in self._lab.probers.values():
            prober.forget()
        self._lab.stop(self._scenario.guests)

    def _now(self) -> float:
        return time.monotonic() - self._zero

    # -- The outcome -----------------------------------------------------------------------------

    def outcome(self) -> GuestOutcome:
        """Return the run with its verdict."""
        seen, digest = self._seen, None
        seen.seconds = self._ended - self._zero
        seen.windows = self._nemesis.windows(self._zero, self._ended)
        seen.stayed_down = self._nemesis.stayed_down()
        seen.samples = {
            name: [(at - self._zero, is_ready) for at, is_ready in prober.samples]
            for name, prober in self._lab.probers.items()
        }
        if self._steps:
            seen.doubts.append(f"{len(self._steps)} steps of the timeline were not done")
        history = self._out / HISTORY
        if self._scenario.client is not None:
            with history.open("rb") as lines:
                seen.history = read_history_untrusted(lines, HISTORY)
            with history.open("rb") as lines:
                digest = sha256(lines.read(MOST_BYTES + 1)).hexdigest()
        judgement = judge_guests(self._scenario, seen)
        run = RunOutcome(self._plan, self._seed, judgement, self._record(), self._out, KERNEL_DICE)
        return GuestOutcome(self._scenario, run, seen, digest, self._is_cut_short)

    def _record(self) -> RunRecord:
        return foreign_record(
            self._rig,
            self._zero,
            self._ended,
            self._scenario.backend,
            self._seen.bites,
            self._struck,
            complete=not self._steps,
            is_cut_short=self._is_cut_short,
            late=self._late,
        )
