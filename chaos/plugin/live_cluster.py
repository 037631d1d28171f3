"""What the fixtures of the pytest plugin are: clusters, and what is done to them.

Words and quantities are those of scenario files (docs/scenarios.md): `rate="10%"`, `by="20ms"`.
`from` and `to`, which Python keeps for itself, are `source` and `dest`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self

import pytest

from stormcast.chaos.backends.base import Backend, BackendError, Unsupported
from stormcast.chaos.backends.by_name import SIM, make_backend
from stormcast.chaos.language.cluster import CLUSTER
from stormcast.chaos.language.scenario import Scenario, dump
from stormcast.chaos.language.shapes import Plain, flow
from stormcast.chaos.language.shipped import open_scenario
from stormcast.chaos.language.stacks import settings_of
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.plugin.stepwise import OF_A_GROUP, OF_CONNECTIONS, Begun, StepwiseSession
from stormcast.chaos.records.directory import make_fresh
from stormcast.chaos.session.judging import judge_run
from stormcast.chaos.session.outcome import TRACE, RunOutcome, write_run
from stormcast.chaos.session.runner import KERNEL_DICE, LOGS, run_on, run_scenario
from stormcast.chaos.session.settling import has_all
from stormcast.node.reading.yaml_nodes import compose

PATIENCE: Final = 60.0
"""Seconds in which what must come has to, unless a test says otherwise."""
_LONGEST_NAME: Final = 40
_PYTHON_WORDS: Final = {"source": "from", "dest": "to"}


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
        self.session.load("unicast", _words(words, count=count, source=source, dest=dest))

    def multicast(
        self,
        count: int = 100,
        source: str | Iterable[str] = "all",
        **words: str | int | Iterable[str],
    ) -> None:
        """Have members send to their group, from now on."""
        self.session.load("multicast", _words(words, count=count, source=source))

    def stop(self) -> None:
        """Have nobody send any more: the loads are over, with however much was sent."""
        self.session.traffic.stop()

    def received(self, dest: str, source: str) -> int:
        """How many messages of another a member has been given since it started."""
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
        """Until so many messages of one have arrived, everywhere or at some."""
        chosen = dests or tuple(name for name in self.members if name != source)
        self.session.wait_for(
            lambda: all(self.received(dest, source) >= count for dest in chosen),
            f"{count} messages of {source} at {' '.join(chosen)}",
            within,
        )

    def wait_for_traffic(self, *names: str, more: int = 20, within: float = PATIENCE) -> None:
        """Until each of these, or of all, has got so many messages more than now from each of these
        that sends to it."""
        chosen = names or self.members
        before = self.session.exchanged(chosen)
        assert before, f"no load is between {' '.join(chosen)}: begin one, such as multicast()"

        def is_enough() -> bool:
            now = self.session.exchanged(chosen)
            return all(now[pair] - before[pair] >= more for pair in before)

        what = f"{more} messages more from each of {' '.join(chosen)} at each"
        self.session.wait_for(is_enough, what, within)

    def wait_until_delivered(self, within: float = PATIENCE) -> None:
        """Until all have everything that was sent to them."""
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
        """Until everyone who was started, or started anew, is there."""
        joining = self.session.roster.joining
        self.session.wait_for(lambda: not joining, "everyone who was started is ready", within)

    def wait_for_view(self, *names: str, within: float = PATIENCE) -> None:
        """Until these, or all, hold one view of just these."""
        wanted = names or self.members
        self.session.wait_for(
            lambda: self.session.roster.are_one(wanted), f"one view of {' '.join(wanted)}", within
        )

    def wait_until(self, is_done: Callable[[], bool], what: str, within: float = PATIENCE) -> None:
        """Until something of the test's own is so."""
        self.session.wait_for(is_done, what, within)

    # -- What members say ------------------------------------------------------------------------

    def state(self, member: str) -> Mapping[str, Any]:
        """How a member sees itself: `GET /state` of docs/node.md."""
        return self.ask(member, "GET", "/state")  # type: ignore[no-any-return]

    def ask(self, member: str, method: str, target: str, body: object = None) -> Any:  # noqa: ANN401 whatever it says
        """One request to a member's control endpoint."""
        return self.session.roster.ask(member, method, target, body)

    def view(self, member: str) -> tuple[str, ...] | None:
        """The members of the view that a member holds, the coordinator first."""
        view = self.state(member)["view"]
        return None if view is None else tuple(one["name"] for one in view["members"])

    def coordinator(self) -> str:
        """Whom most members hold for it."""
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
            self.outcome = RunOutcome(
                scenario=session.scenario,
                seed=session.seed,
                judgement=judge_run(session.scenario, record),
                run=record,
                directory=self.folder,
                fate=fate_on(record.backend),
            )
            self._clusters.conclude(self.outcome)
        return self.outcome

    def abandon(self) -> None:
        """End it as it is, keeping what was written."""
        if self.outcome is not None:
            return
        record = self.session.finish()
        traces = self.folder / TRACE
        traces.mkdir(parents=True, exist_ok=True)
        (self.folder / "scenario.yaml").write_text(dump(self.session.scenario))
        (self.folder / "seed").write_text(f"{self.session.seed}\n")
        for label, blocks in record.traces.items():
            (traces / f"{label}.trace").write_bytes(blocks)


def fate_on(backend: str) -> str:
    """The dice of chance faults on a backend."""
    return "xxh3" if backend == SIM else KERNEL_DICE


def explained(outcome: RunOutcome, directions: Iterable[str]) -> str:
    """What does not hold, what proves it, and how to have it again."""
    lines = [f"{outcome.scenario.name}, seed {outcome.seed}: {outcome.verdict}"]
    for finding in outcome.judgement.findings:
        if finding.verdict is not Verdict.HOLDS:
            lines.append(f"{finding.guarantee} {finding.verdict}: {finding.detail}")
            lines += [f"    {line}" for line in finding.witness]
    return "\n".join([*lines, *directions])


class Fault:
    """Something that was begun; at the end of a `with` block it ends."""

    def __init__(self, session: StepwiseSession, begun: Begun) -> None:
        self._session = session
        self._begun: Begun = begun
        self._has_ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()

    def end(self) -> None:
        """The fault is over; who was paused or stalled goes on, who was killed or left is back."""
        if not self._has_ended:
            self._has_ended = True
            self._session.end(self._begun)

    def release(self) -> None:
        """Let go what a rule that holds frames has held so far."""
        self._session.release(self._begun)

    @property
    def bites(self) -> int:
        """How often it has had an effect."""
        return self._session.nemesis.bites().get(self._begun.fault, 0)


class Chaos:
    """What is done to the cluster of a test: each of it begins at once."""

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters

    def do(self, action: str, **words: Any) -> Fault:  # noqa: ANN401 any quantity of a scenario
        """Anything that may stand in a timeline, in its words."""
        session = self._clusters.current.session
        try:
            return Fault(session, session.begin(action, _words(words)))
        except Unsupported as error:
            pytest.skip(str(error))

    def partition(self, *groups: Iterable[str], shape: str = "") -> Fault:
        """Only members of one group hear each other; or a shape, such as `halves`."""
        return self.do("partition", groups=shape or [sorted(group) for group in groups])

    def cut(self, source: str | Iterable[str], dest: str | Iterable[str]) -> Fault:
        """Nothing passes, in one direction."""
        return self.do("cut", source=source, dest=dest)

    def loss(self, rate: str, **links: str | Iterable[str]) -> Fault:
        """A share of the frames is lost."""
        return self.do("loss", rate=rate, **links)

    def delay(self, delay: str, jitter: str = "0s", **links: str | Iterable[str]) -> Fault:
        """Frames arrive later."""
        return self.do("delay", delay=delay, jitter=jitter, **links)

    def duplicate(self, rate: str, **links: str | Iterable[str]) -> Fault:
        """A share of the frames arrives twice."""
        return self.do("duplicate", rate=rate, **links)

    def reorder(self, rate: str, by: str, **links: str | Iterable[str]) -> Fault:
        """A share of the frames arrives behind others that were sent after them."""
        return self.do("reorder", rate=rate, by=by, **links)

    def corrupt(self, rate: str, **links: str | Iterable[str]) -> Fault:
        """A share of the frames arrives with a bit flipped."""
        return self.do("corrupt", rate=rate, **links)

    def bandwidth(self, rate: str, **links: str | Iterable[str]) -> Fault:
        """No more passes."""
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
        """Something is done to chosen frames: `rule("drop", kind="DATA", seqno=1, source="n0")`."""
        words: dict[str, Any] = {"does": does, "match": _words(match)}
        given = {"delay": delay, "copies": copies if copies > 1 else 0, "times": times}
        return self.do("rule", **words, **{key: value for key, value in given.items() if value})

    def kill(self, member: str) -> Fault:
        """A member is gone at once; its end is a restart."""
        return self.do("crash", member=member)

    def restart(self, member: str) -> Fault:
        """A new incarnation, ending the one that may still run."""
        return self.do("restart", member=member)

    def leave(self, member: str) -> Fault:
        """A member leaves as the protocol does; the fault's end has it join again."""
        return self.do("leave", member=member)

    def join(self, member: str) -> Fault:
        """A member starts, unless it runs."""
        return self.do("join", member=member)

    def pause(self, member: str) -> Fault:
        """A member does nothing."""
        return self.do("pause", member=member)

    def stall(self, member: str) -> Fault:
        """A member's application takes nothing."""
        return self.do("stall", member=member)

    def forget(self, member: str, peer: str, half: str = "both") -> Fault:
        """A member loses its connection to another, or half of it, and tells nobody."""
        return self.do("forget", member=member, peer=peer, half=half)

    def install_view(self, member: str | Iterable[str], members: Iterable[str]) -> Fault:
        """Some members are handed a view, in place of what their group agrees on."""
        return self.do("install-view", member=member, members=members)


class Clusters:
    """The clusters of one test: one at a time."""

    def __init__(
        self, *, backend: str, seed: int, name: str, folder: Path, is_kept: bool, replay: str
    ) -> None:
        self.chaos = Chaos(self)
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
        """Start a cluster, with the keys of a scenario's `cluster`, and wait until it is one. All
        guarantees that make sense for its stack are judged, or those that are named. It lives where
        the command says, or on a backend of the test's own choice."""
        self.finish_all()
        scenario = self._scenario(
            {"members": members, "stack": stack, "timing": timing, **words}, tuple(guarantees)
        )
        chosen, folder = self._make_backend(backend), self._next_folder()
        session = StepwiseSession(scenario, self._seed, chosen, folder / LOGS)
        try:
            session.open()
        except Unsupported as error:
            pytest.skip(str(error))
        session.gather()
        made = LiveCluster(session, self, folder)
        self._made.append(made)
        return made

    def play(self, path: str | Path) -> RunOutcome:
        """Run a scenario as it stands, by its file, or by the name of one that ships.
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
        words = ("stormcast", "run", str(path), "--seed", str(self._seed))
        self._replay = shlex.join((*words, "--backend", self._backend))
        self.conclude(outcome)
        return outcome

    def conclude(self, outcome: RunOutcome) -> None:
        """Keep what is to be kept of a run that is over; VerdictError unless it holds."""
        __tracebackhide__ = True
        holds, folder = outcome.verdict is Verdict.HOLDS, outcome.directory
        assert folder is not None
        is_written = (folder / "verdict.json").exists()
        if (self.is_kept or not holds) and not is_written:
            write_run(outcome, folder)
        if not holds:
            self._has_concluded_badly = True
            raise VerdictError(explained(outcome, self.directions(folder)))

    @property
    def current(self) -> LiveCluster:
        """The one that was made last."""
        assert self._made, "there is no cluster yet: make one, such as cluster(members=3)"
        return self._made[-1]

    def finish_all(self) -> None:
        """Have every one of them judged."""
        __tracebackhide__ = True
        for made in self._made:
            made.finish()

    def close(self) -> None:
        """End whatever still runs."""
        for backend in self._backends:
            backend.close()

    def directions(self, folder: Path) -> list[str]:
        """Where a run is to be found, and how to have it again."""
        return [f"run:    {folder}", f"replay: {self._replay}"]

    def last_words(self) -> str:
        """After a failure: end what runs, and say how to have it again, unless that was said."""
        if self._has_concluded_badly or not self._made:
            return ""
        made = self._made[-1]
        try:
            made.abandon()
        except BackendError as error:
            return f"replay: {self._replay}\nnothing was kept: {error}"
        return "\n".join(self.directions(made.folder))

    def _scenario(self, words: dict[str, Any], guarantees: tuple[str, ...]) -> Scenario:
        cluster = CLUSTER.read(compose(flow(_plain(words)), "cluster", "scenario"))
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
            # Somebody asked for it by name: to skip everything would look as if all were well.
            pytest.fail(f"there is no {backend.name} here: {why}", pytrace=False)
        self._backends.append(backend)
        return backend


def _words(words: Mapping[str, Any], **more: Any) -> dict[str, Plain]:  # noqa: ANN401 any quantity
    """Arguments as a scenario has them."""
    named = {_PYTHON_WORDS.get(key, key): value for key, value in {**more, **words}.items()}
    return {key: _plain(value) for key, value in named.items()}


def _plain(value: Any) -> Plain:  # noqa: ANN401 what YAML has
    """Sets and tuples as lists, in an order that does not change."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return [_plain(one) for one in sorted(value)]
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(one) for one in value]
    assert isinstance(value, str | int), f"{value!r}: write a quantity with its unit, as a text"
    return value
