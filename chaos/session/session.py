"""A session: one scenario, played over the verbs of a backend, and the record of it.

The session knows what happens at which time, and what it means; the backend knows how it is done.
The clock of a scenario starts when all members that are there from the beginning are ready.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

from xxhash import xxh3_64_intdigest

from stormcast.chaos import faults
from stormcast.chaos.backends.base import Backend, BackendError
from stormcast.chaos.language.network_state import NetworkState
from stormcast.chaos.language.scenario import Scenario
from stormcast.chaos.language.schedule import schedule
from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.records.rig_trace import RigTrace, wall_at_zero
from stormcast.chaos.session.agenda import EPSILON, Agenda
from stormcast.chaos.session.exits import Exits
from stormcast.chaos.session.nemesis import Nemesis
from stormcast.chaos.session.plans import cluster_plan
from stormcast.chaos.session.record import RunRecord
from stormcast.chaos.session.recording import Ending, Recorder, Whole
from stormcast.chaos.session.roster import POLL_SECONDS, Roster
from stormcast.chaos.session.settling import (
    Settling,
    Waits,
    landing_seconds,
    passing_seconds,
    travel_seconds,
    vain_repairs,
)
from stormcast.chaos.session.traffic import Traffic
from stormcast.node.core.errors import NodeError

Tell = Callable[[str], None]
"""Takes a few words about what is going on."""


def play(
    scenario: Scenario,
    seed: int,
    backend: Backend,
    folder: Path,
    *,
    run: str = "",
    tell: Tell | None = None,
) -> RunRecord:
    """Run a scenario to its end. Unsupported or BackendError before anything starts; later Ctrl-C,
    or an error of the backend, ends the run early, with the record up to then."""
    try:
        session = Session(scenario, seed, backend, folder, run=run, tell=tell)
        session.open()
        try:
            return session.run()
        except NodeError as error:
            return session.broken_off(error)
    finally:
        backend.close()


class Session:
    """One run: `open`, then `run`; or `open`, `gather`, `nemesis.do` step by step, and `finish`."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        backend: Backend,
        folder: Path,
        *,
        run: str = "",
        tell: Tell | None = None,
    ) -> None:
        self.backend = backend
        self._there = backend.features()
        self._seed = seed
        name = run or f"{scenario.name}-{seed}"
        self.plan = cluster_plan(scenario, seed, name, folder, self._there)
        has_group = "group" in self.plan.needs
        self.roster = Roster(backend, scenario.cluster.members, seed, has_group=has_group)
        self._exits = Exits(backend, self.roster)
        self._recorder = Recorder(backend, self.roster, self._exits)
        self._load_numbers = count(1)
        self._tell = tell or (lambda _text: None)
        self._zero = 0.0
        self._waits = Waits()
        self._take_up(scenario, is_patient=backend.is_virtual)

    def _take_up(self, scenario: Scenario, *, is_patient: bool) -> None:
        """Make everything that belongs to one scenario, and not to the cluster."""
        self.scenario = scenario
        self.rig = RigTrace()
        self.traffic = Traffic(scenario, self.roster, self.now, self._load_numbers)
        members = scenario.cluster.members
        state = NetworkState(
            members=members,
            base=scenario.network,
            seed=self._seed,
            netem=self._there["netem"] is None,
        )
        self.nemesis = Nemesis(
            self.backend,
            self.roster,
            self.traffic,
            self.rig,
            state,
            in_members=self.plan.rules_in_members,
        )
        self.steps = schedule(scenario, self._seed)
        # A base network that loses frames never heals: silence may be a repair that was lost.
        is_patient = is_patient or scenario.network.can_lose
        self._settling = Settling(self.roster, is_patient=is_patient)
        self._ending = Ending()
        self._agenda = Agenda(self.steps, scenario.workload, members)

    def now(self) -> float:
        """Seconds since the scenario began."""
        return self.backend.now() - self._zero

    # -- The beginning ---------------------------------------------------------------------------

    def open(self) -> None:
        """Have the backend make a place for each member, and take the zero of both clocks."""
        self._tell("making the network")
        self.backend.open(self.plan)
        self._zero = self.backend.now()
        # Virtual time has a wall clock of its own. Both clocks are read at one moment: time between
        # the two reads would be taken for a difference between the clocks of two hosts.
        wall = getattr(self.backend, "wall_ns", None)
        self._recorder.wall_ns = wall_at_zero(self._zero) if wall is None else int(wall)

    def gather(self) -> None:
        """Start all members that do not come later; the scenario begins when they are ready."""
        cluster = self.scenario.cluster
        early = [name for name in cluster.members if name not in cluster.late]
        self._tell(f"starting {len(early)} members")
        if cluster.joins == "one-by-one":
            self._prepare_network()
            self.roster.start_in_turn(early)
        else:
            self.roster.start_together(early, self._prepare_network)
        begun = Evidence.from_blocks(self.backend.collect(), xxh3_64_intdigest)
        self._waits = Waits.by_promises(begun, self.scenario, is_virtual=self.backend.is_virtual)
        self._zero = self.backend.now()
        self.rig.phase(self._zero, "begin")

    def _prepare_network(self) -> None:
        """Apply the network as it is without faults, if the scenario has any fault of it: what the
        backend starts for that is then there, and the first fault need not wait for it."""
        self.rig.network(self.backend.now(), self.scenario.network)
        is_plain = self.scenario.network == faults.Link()
        if not is_plain or any(isinstance(s.action, faults.NetworkFault) for s in self.steps):
            self.backend.apply(self.nemesis.state)

    # -- The run ---------------------------------------------------------------------------------

    def run(self) -> RunRecord:
        """Play the whole run, from the first start to the record."""
        try:
            self.gather()
            self._play()
            self._settle()
        except KeyboardInterrupt:
            self._tell("interrupted: healing, and keeping what there is")
            self._ending.is_cut_short = True
            with suppress(BackendError):
                # The agent that heals may have been interrupted, too: then its lease runs out.
                self.nemesis.heal_all()
        return self.finish()

    def _play(self) -> None:
        """Play the timeline and the loads, each at its time, and wait until the loads are over."""
        limit = self.scenario.limits.run
        while (at := self._agenda.next_at()) is not None:
            self._tell(f"t={self.now():.1f}s of {limit:g}s")
            self.wait_until(at)
            self._ending.late = max(self._ending.late, self.now() - at)
            due = self._agenda.take_steps(self.now())
            if due:
                self.nemesis.do_all(due)
            else:
                self.traffic.begin(self._agenda.take_load())
        while not self._is_over() and self.now() < limit:
            self._tell(f"t={self.now():.1f}s: waiting for the workload to end")
            self._pass(POLL_SECONDS)
        self._ending.complete = self._is_over()
        self._ending.load_errors = self.traffic.errors()
        if not self._ending.complete:
            self._ending.unsent = self.traffic.left()
            self.traffic.stop()

    def wait_until(self, at: float) -> None:
        """Let time pass until `at`; tell members that become ready what to send, and start those
        again that were to be back before they had left."""
        while (left := at - self.now()) > EPSILON:
            is_awaited = self.roster.joining or self.nemesis.awaited()
            self._pass(min(left, POLL_SECONDS) if is_awaited else left)
        self._look_after()

    def _pass(self, seconds: float) -> None:
        self.backend.wait(seconds)
        self._look_after()

    def _look_after(self) -> None:
        """Tell members that are ready by now their rules and what they are to send."""
        self._exits.look()
        self.traffic.expect({*self._agenda.still_to_come(), *self.nemesis.awaited()})
        self.nemesis.look_after(self.roster.welcome() if self.roster.joining else ())
        self.traffic.catch_up()

    def _is_over(self) -> bool:
        alive = {name for name in self.roster.joining if self.roster.is_alive(name)}
        return not alive and not self.nemesis.awaited() and self.traffic.is_over()

    # -- The end ---------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Wait until no more messages are to come, at most for the time that the scenario gives (or
        that its group needs to regroup, even after merges in vain), then for as long as silence
        must last."""
        limits = self.scenario.limits
        tries = vain_repairs(self.scenario.network)
        travel = travel_seconds(self.rig) + passing_seconds(self.scenario)
        still = self._waits.still + (tries - 1) * self._waits.again
        self._settling.still_for = still + travel
        self._settling.again_for, self._settling.tries = self._waits.again + travel, tries
        while True:
            is_at_rest = self._wait_for_rest(max(limits.settle, self._waits.regroup))
            quiet_at, quiet_since = self.backend.now(), self.now()
            quiet_for = self._waits.quiet + landing_seconds(self.rig, quiet_at, limits.run)
            self.rig.phase(quiet_at, "quiet")
            self._tell(f"t={self.now():.1f}s: quiet for {quiet_for:.1f}s")
            self._pass(quiet_for)
            if self._settling.is_settled(self.now()):
                return
            # A repair may fail several times, as if nothing more were to come, and then go on; and
            # so many heartbeats may be lost in a row that a group parts.
            is_moving = self._settling.is_moving(self.now())
            is_parted = self._settling.is_apart and self.scenario.network.can_lose
            if self.now() >= limits.run or not (is_moving or is_parted):
                # Where time was over before rest, the quiet phase may have been rest enough.
                has_moved = not is_at_rest and self._settling.since >= quiet_since
                self._ending.is_unsettled = is_moving or has_moved
                return

    def _wait_for_rest(self, longest: float) -> bool:
        """Wait until no more messages are to come; returns whether none came any more at the end of
        that time."""
        begun, limit = self.now(), self.scenario.limits.run
        while not self._settling.is_settled(self.now()):
            is_moving = self._settling.is_moving(self.now())
            held = self._waits.hold if self._settling.is_apart else 0.0
            is_late = self.now() - begun >= longest + held
            if is_late and (self.now() >= limit or not is_moving):
                return not is_moving
            self._tell(f"t={self.now():.1f}s: waiting until all have everything")
            # In the simulator a look costs more than time that passes, so it looks less and less
            # often; elsewhere a look costs little.
            rarely = min(1.0, (self.now() - begun) / 4) if self.backend.is_virtual else 0.0
            self._pass(max(POLL_SECONDS, rarely))
        return True

    def go_on(self, scenario: Scenario, whole: Whole) -> RunRecord:
        """Play another scenario with the cluster as it is, and leave it running. The record is of
        the traces that `whole` makes of those that the backend has."""
        # Members that were gone for a while never have all that was sent: no use to wait for it.
        self._take_up(scenario, is_patient=False)
        self._prepare_network()
        self._zero = self.backend.now()
        self.rig.phase(self._zero, "begin")
        self._play()
        self._settle()
        return self.finish(whole)

    def finish(self, whole: Whole | None = None) -> RunRecord:
        """Stop all members at one moment, and make the record of the run. With `whole` the run goes
        on, and the record is of what that makes of the traces."""
        self._ending.start = self._zero
        return self._recorder.record(self.nemesis, self._ending, whole)

    def broken_off(self, error: NodeError) -> RunRecord:
        """Make the record of a run that cannot go on: why, and, if all members could be frozen, the
        traces up to then."""
        return self._recorder.broken_off(self.rig, error)
