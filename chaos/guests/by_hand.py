"""Guests without a timeline: their caller starts them, begins and ends faults, and has a history
judged. Time is the machine's, and passes in the caller: a thread keeps the faults up meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Final

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.netns.process import environment
from stormcast.chaos.faults import Names
from stormcast.chaos.guests.lab import ZERO, Lab
from stormcast.chaos.guests.nemesis import GuestNemesis
from stormcast.chaos.guests.scenario import Guest, GuestScenario, is_pod_word
from stormcast.chaos.guests.scenario_file import guest_actions, read_guest, why_not_of_others
from stormcast.chaos.histories.judging import judge
from stormcast.chaos.histories.reading import read_history_untrusted
from stormcast.chaos.language.schedule import TimedStep, schedule
from stormcast.chaos.language.timeline import LASTING, Step, read_action
from stormcast.chaos.oracles.verdict import RUN, Finding, Judgement, Verdict, worst
from stormcast.chaos.records.rig_trace import RigTrace
from stormcast.node.core.errors import require, suggestion
from stormcast.node.core.names import one_line
from stormcast.node.reading.items import PlainItem
from stormcast.node.reading.notations import Plain

MOST: Final = 8
"""Guests of one lab by hand: their networks are made together, before the first one starts."""
_MOMENT: Final = 1.0
"""The duration of a fault that is scheduled only to learn what ends it."""
_PACE_SECONDS: Final = 0.2


class HandledGuests:
    """A lab whose guests are added one by one. All but the renewals belongs to one thread."""

    def __init__(self, folder: Path, here: Path, seed: int, *, run_already: bool = False) -> None:
        """`run_already`: whether its guests are targets, which are neither started nor ended."""
        self.folder = folder
        self._here = here
        self._seed = seed
        self._run_already = run_already
        self._free = [f"g{number}" for number in range(1, MOST + 1)]
        self._specs: list[Guest] = []
        self._take(tuple(self._free))
        self._number = 0
        self._lock = threading.Lock()
        """Held by whoever speaks with the agent."""
        self._is_over = threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._broken = ""
        self.zero = time.monotonic()
        """The time from which histories count."""

    def _take(self, names: Names) -> None:
        """Have a lab of these names, which is not open yet."""
        targets = {one.name: one.target for one in self._specs if one.target is not None}
        self.lab = Lab(names, self.folder, self._here, self._seed, targets)
        self._nemesis = GuestNemesis(self.lab, RigTrace())

    def open(self) -> None:
        """Make the networks, and have the agent ready; of guests that run already, when the first
        fault begins."""
        if not self._run_already:
            self.lab.open()
            self._be_ready()

    def close(self) -> None:
        """End everyone, and remove the networks."""
        self._is_over.set()
        if self._keeper.is_alive():
            self._keeper.join()
        self.lab.close()

    def add(self, words: Mapping[str, Plain]) -> str:
        """Start a guest, or find one that runs already, and wait until it is ready; without words
        it is a network only. Return its name."""
        require(bool(self._free), f"a test has {MOST} guests at most; use fewer")
        require(
            self._run_already == ("target" in words),
            "guests of one test all run already (target), or none does: their networks are apart; "
            "write two tests, or start them all yourself",
        )
        name = self._free[0]
        if self._run_already:
            self._find(name, words)
        elif words:
            guest = read_guest(name, PlainItem(dict(words), "guest"), self.lab.names)
            self.lab.add(guest, {ZERO: repr(self.zero)})
            self._specs.append(guest)
        self._free.remove(name)
        return name

    def _find(self, name: str, words: Mapping[str, Plain]) -> None:
        """Have one more guest that runs already: in a new lab, as an agent knows its networks from
        its start."""
        require(not self._acts, "name all guests that run already before the first fault begins")
        names = (*(one.name for one in self._specs), name)
        guest = read_guest(name, PlainItem(dict(words), "guest"), names)
        kinds = {is_pod_word(one.target or "") for one in (*self._specs, guest)}
        require(len(kinds) == 1, "guests of one test are all pods, or none is; write two tests")
        self._specs.append(guest)
        self.lab.close()
        self._take(names)
        try:
            self.lab.open()
            for guest in self._specs:
                self.lab.add(guest)
        except BaseException:
            self._specs.pop()
            raise

    @property
    def _acts(self) -> bool:
        """Whether faults are kept up."""
        return self._keeper.ident is not None

    def _be_ready(self) -> None:
        """Have the agent ready, and faults kept up."""
        with self._lock:
            self.lab.apply({})
        self._keeper.start()

    def environment(self) -> dict[str, str]:
        """Return the environment of a program that is run among the guests."""
        return environment({ZERO: repr(self.zero)}, self.lab.network.run)

    # -- Faults ----------------------------------------------------------------------------------

    def begin(self, do: str, words: Mapping[str, Plain]) -> tuple[str, TimedStep | None]:
        """Do now what a timeline would say; return the fault's id, and the step that ends it."""
        known = guest_actions(self.lab.names, self.lab.names)
        require(do in known, f"do is {do!r}: nobody does that to guests{suggestion(do, known)}")
        action = read_action(PlainItem({"do": do, **words}, do), known[do], besides=["do"])
        self._number += 1
        lasts = isinstance(action, LASTING)
        step = Step(
            at=0.0, action=action, name=f"f{self._number}", duration=_MOMENT if lasts else None
        )
        named = {one.name: one for one in self._specs}
        scenario = GuestScenario(
            name="by-hand",
            guests=tuple(named.get(name, Guest(name=name, command="")) for name in self.lab.names),
            timeline=(step,),
        )
        if self._run_already:
            why = why_not_of_others(action, is_of_pods=scenario.is_of_pods)
            require(not why, f"{do}: {why}")
            if not self._acts:
                self._be_ready()
        self.lab.check_features(scenario.plan())
        first, *rest = schedule(scenario.plan(), self._seed)
        self._do(first)
        return first.fault, rest[0] if lasts else None

    def end(self, undo: TimedStep) -> None:
        """End a fault."""
        self._do(undo)

    def bites(self) -> dict[str, int]:
        """Return how often each fault has had an effect so far."""
        with self._lock:
            return self._nemesis.bites()

    def _do(self, step: TimedStep) -> None:
        self._check()
        with self._lock:
            self._nemesis.do_all([step])

    def _keep(self) -> None:
        while not self._is_over.wait(_PACE_SECONDS):
            try:
                with self._lock:
                    self.lab.agent.keep()
            except BackendError as error:
                self._broken = one_line(error)
                return

    def _check(self) -> None:
        if self._broken:
            raise BackendError(f"faults ended before their time: {self._broken}")

    # -- The verdict -----------------------------------------------------------------------------

    def judge(self, lines: bytes, model: str, settle: float) -> Judgement:
        """Judge a history by a model, and by the faults that were done; one that acts lasts until
        now."""
        self._check()
        history = read_history_untrusted(BytesIO(lines), "history")
        found = judge(history, model, self._nemesis.windows(self.zero, time.monotonic()), settle)
        return _judgement([*found, *self.doubts()])

    def doubts(self) -> list[Finding]:
        """Return why nothing that was seen proves anything: guests that died by themselves, and
        faults that had no effect."""
        texts = [
            self.lab.ended(guest)
            for guest in self.lab.guests.values()
            if not guest.is_alive and not guest.is_ordered
        ]
        texts += [f"fault {one} had no effect" for one, count in self.bites().items() if not count]
        if self._broken:
            texts.append(f"faults ended before their time: {self._broken}")
        return [Finding(RUN, Verdict.UNKNOWN, text) for text in texts]

    def finish(self) -> Judgement:
        """End all faults, and stop all guests; return what is to be said against the run."""
        if not self._broken:
            with self._lock:
                self._nemesis.heal_all()
        doubts = self.doubts()
        self.lab.stop(self._specs)
        return _judgement(doubts)


def _judgement(findings: Iterable[Finding]) -> Judgement:
    found = tuple(findings)
    return Judgement(worst(one.verdict for one in found), found)
