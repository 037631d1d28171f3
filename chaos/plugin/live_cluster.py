"""The objects behind the fixtures of the pytest plugin: clusters, and the faults of a test.

Words and quantities are those of scenario files (docs/scenarios.md): `rate="10%"`, `by="20ms"`.
`from` and `to`, which Python keeps for itself, are `source` and `dest`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, Self

import pytest

from stormcast.chaos.backends.base import Backend, BackendError, Unsupported
from stormcast.chaos.backends.by_name import SIM, make_backend
from stormcast.chaos.language.cluster import CLUSTER
from stormcast.chaos.language.scenario import Scenario, dump
from stormcast.chaos.language.shipped import open_scenario
from stormcast.chaos.language.stacks import settings_of
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.plugin.stepwise import OF_A_GROUP, OF_CONNECTIONS, Begun, StepwiseSession
from stormcast.chaos.plugin.words import plain, words_of
from stormcast.chaos.records.directory import give_back, make_fresh, take
from stormcast.chaos.session.judging import judge_run
from stormcast.chaos.session.outcome import TRACE, RunOutcome, write_run
from stormcast.chaos.session.runner import KERNEL_DICE, LOGS, run_on, run_scenario
from stormcast.chaos.session.settling import has_all
from stormcast.node.reading.items import PlainItem
from stormcast.node.reading.notations import Plain

PATIENCE: Final = 60.0
"""Seconds that a wait may take, unless a test says otherwise."""
_LONGEST_NAME: Final = 40


class VerdictError(AssertionError):
    """A guarantee does not hold, or the run proves nothing; the text has the witness."""


class LiveCluster:
    """A cluster that runs, and is judged in the end."""

    def __init__(self, session: StepwiseSession, clusters: Clusters, folder: Path) -> None:
        self.members = session.scenario.cluster.members
        self.session = session
        self.outcome: RunOutcome | None = None
        """Verdict and record, once it is finished."""
        self.folder = folder
        self._clusters = clusters

    # -- Traffic ---------------------------------------------------------------------------------

    def unicast(
        self,
        count: int = 100,
        source: str | Iterable[str] = "all",
        dest: str | Iterable[str] = "others",
        **words: str | int | Iterable[str],
    ) -> None:
        """Have members send to others, from now on: `rate`, `size`, `burst` and so on as in a
        workload."""
        self.session.load("unicast", words_of(words, count=count, source=source, dest=dest))

    def multicast(
        self,
        count: int = 100,
        source: str | Iterable[str] = "all",
        **words: str | int | Iterable[str],
    ) -> None:
        """Have members send to their group, from now on."""
        self.session.load("multicast", words_of(words, count=count, source=source))

    def stop(self) -> None:
        """Stop all loads, however much of them was sent."""
        self.session.traffic.stop()

    def received(self, dest: str, source: str) -> int:
        """Return how many messages of `source` the member `dest` was given since it started."""
        return self.session.received(dest, source)

    # -- Time ------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Seconds since the cluster was ready."""
        return self.session.now()

    def wait(self, seconds: float) -> None:
        """Let time pass: virtual in the simulator, real elsewhere."""
        self.session.wait(seconds)

    def wait_for(self, count: int, source: str, *dests: str, within: float = PATIENCE) -> None:
        """Wait until `count` messages of `source` have arrived at `dests`, or at all others."""
        chosen = dests or tuple(name for name in self.members if name != source)
        self.session.wait_for(
            lambda: all(self.received(dest, source) >= count for dest in chosen),
            f"{count} messages of {source} at {' '.join(chosen)}",
            within,
        )

    def wait_for_traffic(self, *names: str, more: int = 20, within: float = PATIENCE) -> None:
        """Wait until each of these members, or of all, has got `more` messages more than now from
        each of them that sends to it."""
        chosen = names or self.members
        before = self.session.exchanged(chosen)
        assert before, f"no load is between {' '.join(chosen)}: begin one, such as multicast()"

        def is_enough() -> bool:
            now = self.session.exchanged(chosen)
            return all(now[pair] - before[pair] >= more for pair in before)

        what = f"{more} messages more from each of {' '.join(chosen)} at each"
        self.session.wait_for(is_enough, what, within)

    def wait_until_delivered(self, within: float = PATIENCE) -> None:
        """Wait until all members have everything that was sent to them."""
        session = self.session
        session.wait_for(
            lambda: (
                session.is_sent()
                and has_all(session.roster.states(), has_group=session.roster.has_group)
            ),
            "everything delivered",
            within,
        )

    def wait_until_ready(self, within: float = PATIENCE) -> None:
        """Wait until every member that was started, or started anew, is ready."""
        joining = self.session.roster.joining
        self.session.wait_for(lambda: not joining, "everyone who was started is ready", within)

    def wait_for_view(self, *names: str, within: float = PATIENCE) -> None:
        """Wait until these members, or all, hold one view of just these."""
        wanted = names or self.members
        self.session.wait_for(
            lambda: self.session.roster.are_one(wanted), f"one view of {' '.join(wanted)}", within
        )

    def wait_until(self, is_done: Callable[[], bool], what: str, within: float = PATIENCE) -> None:
        """Wait for a condition of the test's own; `what` names it if it does not come."""
        self.session.wait_for(is_done, what, within)

    # -- What members say ------------------------------------------------------------------------

    def state(self, member: str) -> Mapping[str, Any]:
        """Return what a member says of itself: `GET /state` of docs/node.md."""
        return self.ask(member, "GET", "/state")  # type: ignore[no-any-return]

    def ask(self, member: str, method: str, target: str, body: object = None) -> Any:  # noqa: ANN401 whatever it says
        """Send one request to a member's control endpoint, and return the answer."""
        return self.session.roster.ask(member, method, target, body)

    def view(self, member: str) -> tuple[str, ...] | None:
        """The members of the view that a member holds, the coordinator first."""
        view = self.state(member)["view"]
        return None if view is None else tuple(one["name"] for one in view["members"])

    def coordinator(self) -> str:
        """Return the member that most members see as the coordinator."""
        found = self.session.roster.coordinator()
        assert found is not None, "nobody runs"
        return found

    # -- The verdict -----------------------------------------------------------------------------

    def finish(self, within: float = PATIENCE) -> RunOutcome:
        """Heal everything, wait until all has arrived and it has been quiet, end all members, and
        judge. VerdictError unless every guarantee holds."""
        __tracebackhide__ = True
        if self.outcome is None:
            session = self.session
            record = session.settle(within)
            session.backend.close()
            scenario = session.played()
            self.outcome = RunOutcome(
                scenario=scenario,
                seed=session.seed,
                judgement=judge_run(scenario, record),
                run=record,
                directory=self.folder,
                fate=fate_on(record.backend),
            )
            self._clusters.conclude(self.outcome)
        return self.outcome

    def abandon(self) -> None:
        """End the run as it is, without a verdict, and keep what was written."""
        if self.outcome is not None:
            return
        record = self.session.finish()
        traces = self.folder / TRACE
        traces.mkdir(parents=True, exist_ok=True)
        (self.folder / "scenario.yaml").write_text(dump(self.session.played()))
        (self.folder / "seed").write_text(f"{self.session.seed}\n")
        for label, blocks in record.traces.items():
            (traces / f"{label}.trace").write_bytes(blocks)


def fate_on(backend: str) -> str:
    """Return the name of the fate function by which chance faults strike on a backend."""
    return "xxh3" if backend == SIM else KERNEL_DICE


def explained(outcome: RunOutcome, directions: Iterable[str]) -> str:
    """Return the text of a failure: what does not hold, its witness, and the directions."""
    lines = [f"{outcome.scenario.name}, seed {outcome.seed}: {outcome.verdict}"]
    for finding in outcome.judgement.findings:
        if finding.verdict is not Verdict.HOLDS:
            lines.append(f"{finding.guarantee} {finding.verdict}: {finding.detail}")
            lines += [f"    {line}" for line in finding.witness]
    return "\n".join([*lines, *directions])


class Guests(Protocol):
    """The guests of a test (guests.py)."""

    def are_in(self, words: Mapping[str, Any]) -> bool:
        """Whether an action names one."""

    def begin(self, action: str, words: Mapping[str, Plain]) -> Fault:
        """Begin an action."""


class Fault:
    """A fault that was begun; it ends at the end of its `with` block."""

    def __init__(self, cluster: LiveCluster, begun: Begun) -> None:
        self._cluster = cluster
        self._session = cluster.session
        self._begun: Begun = begun
        self._has_ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()

    def end(self) -> None:
        """End the fault: a paused or stalled member goes on, a killed or departed one is back.
        Faults of a cluster that is finished have ended with it."""
        if not self._has_ended and self._cluster.outcome is None:
            self._has_ended = True
            self._session.end(self._begun)

    def release(self) -> None:
        """Let go the frames that a `hold` rule has held so far; the rule goes on."""
        self._session.release(self._begun)

    @property
    def bites(self) -> int:
        """The number of times that the fault has bitten so far."""
        outcome = self._cluster.outcome
        if outcome is not None:
            return outcome.run.bites.get(self._begun.fault, 0)
        return self._session.nemesis.bites().get(self._begun.fault, 0)


class Chaos:
    """The faults that a test may begin in its current cluster. Each begins at once."""

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters

    def do(self, action: str, **words: Any) -> Fault:  # noqa: ANN401 any quantity of a scenario
        """Begin any action that a timeline may have, in the words of scenario files."""
        guests = self._clusters.guests
        if guests is not None and (guests.are_in(words) or not self._clusters.has_any):
            return guests.begin(action, words_of(words))
        cluster = self._clusters.current
        try:
            return Fault(cluster, cluster.session.begin(action, words_of(words)))
        except Unsupported as error:
            pytest.skip(str(error))

    def partition(self, *groups: Iterable[str], shape: str = "") -> Fault:
        """Let only members of one group hear each other; or name a shape, such as `halves`."""
        return self.do("partition", groups=shape or [sorted(group) for group in groups])

    def cut(self, source: str | Iterable[str], dest: str | Iterable[str]) -> Fault:
        """Let nothing pass, in one direction."""
        return self.do("cut", source=source, dest=dest)

    def loss(self, rate: str, **links: str | Iterable[str]) -> Fault:
        """Lose a share of the frames."""
        return self.do("loss", rate=rate, **links)

    def delay(self, delay: str, jitter: str = "0s", **links: str | Iterable[str]) -> Fault:
        """Have frames arrive later."""
        return self.do("delay", delay=delay, jitter=jitter, **links)

    def duplicate(self, rate: str, **links: str | Iterable[str]) -> Fault:
        """Have a share of the frames arrive twice."""
        return self.do("duplicate", rate=rate, **links)

    def reorder(self, rate: str, by: str, **links: str | Iterable[str]) -> Fault:
        """Have a share of the frames arrive behind others that were sent after them."""
        return self.do("reorder", rate=rate, by=by, **links)

    def corrupt(self, rate: str, **links: str | Iterable[str]) -> Fault:
        """Have a share of the frames arrive with a bit flipped."""
        return self.do("corrupt", rate=rate, **links)

    def bandwidth(self, rate: str, **links: str | Iterable[str]) -> Fault:
        """Let no more than `rate` pass."""
        return self.do("bandwidth", rate=rate, **links)

    def rule(
        self,
        does: str = "drop",
        *,
        delay: str = "",
        copies: int = 1,
        times: int = 0,
        **match: Any,  # noqa: ANN401 any condition
    ) -> Fault:
        """Do something to chosen frames: `rule("drop", kind="DATA", seqno=1, source="n0")`."""
        words: dict[str, Any] = {"does": does, "match": words_of(match)}
        given = {"delay": delay, "copies": copies if copies > 1 else 0, "times": times}
        return self.do("rule", **words, **{key: value for key, value in given.items() if value})

    def kill(self, member: str) -> Fault:
        """Kill a member; the end of the fault starts it again."""
        return self.do("crash", member=member)

    def restart(self, member: str) -> Fault:
        """Start a new incarnation of a member, ending the one that may still run."""
        return self.do("restart", member=member)

    def leave(self, member: str) -> Fault:
        """Have a member leave by the protocol; the end of the fault has it join again."""
        return self.do("leave", member=member)

    def join(self, member: str) -> Fault:
        """Start a member, unless it runs."""
        return self.do("join", member=member)

    def pause(self, member: str) -> Fault:
        """Have a member do nothing."""
        return self.do("pause", member=member)

    def stall(self, member: str) -> Fault:
        """Have a member's application take no deliveries."""
        return self.do("stall", member=member)

    def forget(self, member: str, peer: str, half: str = "both") -> Fault:
        """Have a member drop its connection to another, or half of it, and tell nobody."""
        return self.do("forget", member=member, peer=peer, half=half)

    def install_view(self, member: str | Iterable[str], members: Iterable[str]) -> Fault:
        """Hand a view to some members, in place of what their group agrees on."""
        return self.do("install-view", member=member, members=members)


class Clusters:
    """The clusters of one test: one at a time."""

    def __init__(
        self, *, backend: str, seed: int, name: str, folder: Path, is_kept: bool, replay: str
    ) -> None:
        self.chaos = Chaos(self)
        self.guests: Guests | None = None
        """The guests of the test, if it has any; they are struck by the same `chaos`."""
        self.is_kept = is_kept
        self._backend = backend
        self._seed = seed
        self._name = name
        self._folder = folder
        self._replay = replay
        self._made: list[LiveCluster] = []
        self._backends: list[Backend] = []
        self._has_concluded_badly = False

    def __call__(
        self,
        members: int | Iterable[str] = 3,
        *,
        stack: str = "udp",
        timing: str = "fast",
        guarantees: Iterable[str] = (),
        backend: str | Backend = "",
        **words: Any,  # noqa: ANN401 any key of a scenario's cluster
    ) -> LiveCluster:
        """Start a cluster, with the keys of a scenario's `cluster`, and wait until it is ready. All
        guarantees that make sense for its stack are judged, or those that are named. It lives where
        the command says, or on a backend of the test's own choice."""
        self.finish_all()
        scenario = self._scenario(
            {"members": members, "stack": stack, "timing": timing, **words}, tuple(guarantees)
        )
        chosen, folder = self._make_backend(backend), self._next_folder()
        # Whoever finds it without a verdict then knows that it was not judged.
        take(folder)
        session = StepwiseSession(scenario, self._seed, chosen, folder / LOGS)
        try:
            session.open()
        except Unsupported as error:
            give_back(folder)
            pytest.skip(str(error))
        made = LiveCluster(session, self, folder)
        # Before it is ready: if it never is, its logs say why, and the report names its directory.
        self._made.append(made)
        session.gather()
        return made

    def play(self, path: str | Path) -> RunOutcome:
        """Run a scenario unchanged, given by its file or by the name of one that ships.
        VerdictError unless every guarantee holds."""
        __tracebackhide__ = True
        scenario, folder = open_scenario(path), self._next_folder()
        try:
            if self._backend == SIM:
                outcome = run_scenario(scenario, self._seed, out=folder)
            else:
                outcome = run_on(self._make_backend(), scenario, self._seed, out=folder)
        except Unsupported as error:
            pytest.skip(str(error))
        if outcome.run.is_cut_short:
            # The directory is written; Ctrl-C was meant for all tests.
            raise KeyboardInterrupt
        words = ("stormcast", "run", str(path), "--seed", str(self._seed))
        self.conclude(outcome, shlex.join((*words, "--backend", self._backend)))
        return outcome

    def conclude(self, outcome: RunOutcome, replay: str = "") -> None:
        """Write the directory of a run if it is to be kept; VerdictError unless it holds. `replay`
        is the command that repeats the run, if that is not the test's."""
        __tracebackhide__ = True
        holds, folder = outcome.verdict is Verdict.HOLDS, outcome.directory
        assert folder is not None
        is_written = (folder / "verdict.json").exists()
        if (self.is_kept or not holds) and not is_written:
            write_run(outcome, folder)
        if not holds:
            self._has_concluded_badly = True
            directions = self.directions(folder, replay or self._replay)
            raise VerdictError(explained(outcome, directions))

    @property
    def has_any(self) -> bool:
        """Whether a cluster was made."""
        return bool(self._made)

    @property
    def current(self) -> LiveCluster:
        """The cluster that was made last."""
        assert self._made, "there is no cluster yet: make one, such as cluster(members=3)"
        return self._made[-1]

    def finish_all(self) -> None:
        """End and judge every cluster of the test."""
        __tracebackhide__ = True
        for made in self._made:
            made.finish()

    def close(self) -> None:
        """End whatever still runs."""
        for backend in self._backends:
            backend.close()

    @staticmethod
    def directions(folder: Path, replay: str) -> list[str]:
        """Return the lines that say where a run is kept, and how to repeat it."""
        return [f"run:    {folder}", f"replay: {replay}"]

    def last_words(self) -> str:
        """Return, after a failure, the directions of the last run, which is ended; empty where the
        verdict has given them."""
        if self._has_concluded_badly or not self._made:
            return ""
        made = self._made[-1]
        try:
            made.abandon()
        except BackendError as error:
            return f"replay: {self._replay}\nnothing was kept: {error}"
        return "\n".join(self.directions(made.folder, self._replay))

    def _scenario(self, words: dict[str, Any], guarantees: tuple[str, ...]) -> Scenario:
        cluster = CLUSTER.read(PlainItem(plain(words), "cluster"))
        name = self._name[:_LONGEST_NAME].strip("-") or "cluster"
        scenario = Scenario(name=name, guarantees=guarantees, cluster=cluster)
        if guarantees:
            return scenario
        judged = OF_A_GROUP if settings_of(scenario).has_group else OF_CONNECTIONS
        return Scenario(name=name, guarantees=judged, cluster=cluster)

    def _next_folder(self) -> Path:
        return make_fresh(self._folder, "run")

    def _make_backend(self, chosen: str | Backend = "") -> Backend:
        backend = make_backend(chosen or self._backend) if isinstance(chosen, str) else chosen
        why = backend.features()["members"]
        if why is not None:
            # This backend was asked for by name: if all tests were skipped, all would look well.
            pytest.fail(f"there is no {backend.name} here: {why}", pytrace=False)
        self._backends.append(backend)
        return backend
