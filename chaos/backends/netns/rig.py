"""A rig: members of one group on one network, what is done to them, and the record of it.

What the rig does is written as events of the run's trace, next to what the members write: so the
oracles that judge a simulation judge this too. `end` stops all members at one moment and kills
them: their journals are whole without their help, and nobody sees another one go.
"""

from __future__ import annotations

import atexit
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, Self

from xxhash import xxh3_64_intdigest

from chaos import faults
from chaos.backends.base import LEASE_SECONDS, BackendError
from chaos.backends.netns import control
from chaos.backends.netns.agent import AgentProcess
from chaos.backends.netns.commands import CONTROL, MemberSpec, bound_to_me, member_argv, where
from chaos.backends.netns.control import ControlError
from chaos.backends.netns.names import RunId
from chaos.backends.netns.network import Network
from chaos.backends.netns.process import STOP_SECONDS, Process, environment, until
from chaos.backends.netns.running import Run, run_command
from chaos.backends.netns.watch import Watch
from chaos.drivers.base import Bites
from chaos.language.network_state import NetworkState
from node import trace
from node.core.errors import NodeError
from node.trace import Tracer
from node.trace.files import read_traces

RIG: Final = 0
"""The short id under which the rig itself writes events."""
VIEW_POLL_SECONDS: Final = 0.05
KEEP_SECONDS: Final = 0.1
"""How often a rig that only waits looks whether it is time to renew."""

Argv = Callable[[str, MemberSpec], Sequence[str]]
"""A Python and how a member is to be, to the words that start it."""


class RigError(NodeError):
    """A member is not as the test says; the text has the last lines of its log."""


class Rig:
    """Members as processes, each in a network namespace. Use it as a context manager."""

    def __init__(
        self,
        names: Sequence[str],
        folder: Path,
        *,
        ipv6: bool = False,
        lease: float = LEASE_SECONDS,
        argv: Argv = member_argv,
        do: Run = run_command,
        **settings: Any,  # noqa: ANN401 fields of MemberSpec
    ) -> None:
        self.names = tuple(names)
        self.folder = folder
        self.network = Network(RunId.next(), names, do)
        sites = self.network.sites()
        self.agent = AgentProcess(self.network.run.table, sites, folder, lease)
        """Started when something is to act on the network."""
        self.members: dict[str, Process] = {}
        """The newest incarnation of each that was started."""
        self._ipv6 = ipv6
        self._argv = argv
        self.settings = settings
        """Of all members, where `start` says nothing else: fields of MemberSpec."""
        self._started: dict[str, int] = {}
        self.shorts: dict[str, int] = {}
        """Short ids of the newest incarnations, as far as they were asked."""
        self._known: set[int] = set()
        """Short ids of all incarnations that were asked."""
        self._journals: set[Path] = set()
        self._holds: dict[tuple[str, str], str] = {}
        """Faults that hold a member, by what they do and its name."""
        self._faults: dict[str, str] = {}
        """What each fault is, by id."""
        self._acting: dict[str, faults.NetworkFault] = {}
        """What acts on the network, by id."""
        self._bites: dict[str, int] = {}
        """Packets on which each fault of the network had an effect when that was last asked."""
        self._events: list[tuple[float, int, str]] = []
        """What the trace of the rig is made of: time, kind, text."""
        self.watch: Watch | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        atexit.register(self.close)
        try:
            self.network.make()
            self.watch = Watch(self.folder)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """End all members at once and remove the network. Safe to call again."""
        try:
            if self.watch is not None:
                self.watch.close()
            for process in self.members.values():
                process.kill()
        finally:
            self.agent.close()
            self.network.remove()
            atexit.unregister(self.close)

    # -- Members -------------------------------------------------------------------------------

    def spec(self, name: str, **settings: Any) -> MemberSpec:  # noqa: ANN401 fields of MemberSpec
        """How a member is started, if nothing else is said."""
        address = self.network.address(name, ipv6=self._ipv6)
        spec = MemberSpec(name=name, address=address, folder=self.folder / name)
        return replace(spec, **{**self.settings, **settings})

    def hosts(self, port: int = 7800) -> tuple[str, ...]:
        """Where all members listen, for stacks that must be told."""
        return tuple(
            where(self.network.address(name, ipv6=self._ipv6), port) for name in self.names
        )

    def start(
        self,
        name: str,
        *,
        env: Mapping[str, str] | None = None,
        wrap: Sequence[str] = (),
        **settings: Any,  # noqa: ANN401 fields of MemberSpec
    ) -> Process:
        """Start a member as a new incarnation, with an environment or within a program of its own.

        It returns before the member is ready; `wait_for_view` waits.
        """
        assert not self.is_alive(name), f"{name} runs"
        spec = self.spec(name, **settings)
        spec.folder.mkdir(parents=True, exist_ok=True)
        (spec.folder / CONTROL).unlink(missing_ok=True)
        number = self._started[name] = self._started.get(name, 0) + 1
        self.shorts.pop(name, None)
        self._journals.add(spec.journal or spec.folder / "journal")
        words = self.network.inside(name, (*wrap, *self._argv(sys.executable, spec)))
        process = Process(
            bound_to_me(words), spec.folder, f"{name}-{number}", environment(env or {})
        )
        self.members[name] = process
        return process

    def start_all(self, names: Iterable[str] = (), timeout: float = 20.0) -> dict[str, Any]:
        """Start members together and wait for their view; returns it."""
        chosen = tuple(names) or self.names
        for name in chosen:
            self.start(name)
        return self.wait_for_view(chosen, timeout)

    def is_alive(self, name: str) -> bool:
        """Whether a member was started and has not ended."""
        return name in self.members and self.members[name].is_alive

    def living(self) -> tuple[str, ...]:
        """All who run."""
        return tuple(name for name in self.names if self.is_alive(name))

    def stop(self, name: str, timeout: float = STOP_SECONDS) -> int:
        """Ask a member to leave, and wait for its end; returns its exit code."""
        self._release(name)
        self._note("leave", name)
        return self.members[name].stop(timeout)

    def kill(self, name: str) -> None:
        """End a member as a power cut does, paused or not."""
        self._note("crash", name)
        self.members[name].kill()
        self._forget_holds(name)

    def restart(self, name: str, **settings: Any) -> Process:  # noqa: ANN401 as for start
        """Kill a member, if it runs, and start it anew."""
        self._note("restart", name)
        if name in self.members:
            self.members[name].kill()
            self._forget_holds(name)
        return self.start(name, **settings)

    def pause(self, name: str) -> None:
        """Have a member do nothing."""
        self._hold("pause", name, self.members[name].pause)

    def resume(self, name: str) -> None:
        """Have it go on."""
        self._let_go("pause", name, self.members[name].resume)

    def stall(self, name: str) -> None:
        """Have a member's application take no deliveries."""
        self._hold("stall", name, lambda: self.ask(name, "POST", "/consume", {"consuming": False}))

    def consume(self, name: str) -> None:
        """Have it take them again."""
        self._let_go("stall", name,
                     lambda: self.ask(name, "POST", "/consume", {"consuming": True}))  # fmt: skip

    # -- The network ---------------------------------------------------------------------------

    def partition(self, *groups: Sequence[str]) -> str:
        """Only members of one group hear each other; who is in none is alone. Returns its id."""
        return self.begin(faults.Partition(groups=tuple(map(tuple, groups))), "partition")

    def partition_one_way(self, source: str, dest: str) -> str:
        """`dest` hears nothing from `source`, but `source` hears `dest`. Returns its id."""
        return self.begin(faults.Cut(sources=(source,), dests=(dest,)), "cut")

    def begin(self, fault: faults.NetworkFault, do: str) -> str:
        """Have a fault act on the network; returns its id."""
        number = self._record(do, "on")
        self._acting[number] = fault
        self._bites[number] = 0
        self._act()
        return number

    def end_fault(self, fault: str) -> None:
        """Have a fault act no more."""
        self._acting.pop(fault, None)
        self._act()
        self._record_off(fault)

    def heal(self) -> None:
        """End whatever acts on the network."""
        ended, self._acting = self._acting, {}
        self._act()
        for fault in ended:
            self._record_off(fault)

    def bit(self, fault: str) -> int:
        """Packets on which a fault of the network had an effect so far."""
        self._count()
        return self._bites[fault]

    def apply(self, state: NetworkState) -> None:
        """Make the network what a state says; it is renewed while the rig waits. Where members
        are, the rig knows better."""
        with self._told():
            self.agent.apply(replace(state, places=self.network.places()))

    def renew(self) -> None:
        """Have what acts on the network go on for another lease."""
        with self._told():
            self.agent.renew()

    def clear(self) -> None:
        """Have nothing act on the network."""
        with self._told():
            self.agent.clear()

    def release(self, fault: str | None = None) -> None:
        """Let go what `hold` rules keep: of one fault, or of all."""
        with self._told():
            self.agent.release(fault)

    def bites(self) -> Bites:
        """What each fault of the network did, per sender and receiver."""
        with self._told():
            return self.agent.bites()

    def keep(self) -> None:
        """Renew what acts on the network, if it is time to: call it often while waiting."""
        with self._told():
            self.agent.keep()

    def _act(self) -> None:
        """Have just those faults act that are to."""
        if self._acting:
            self.apply(NetworkState(members=self.names, faults=self._acting))
        else:
            self.clear()

    def _count(self) -> None:
        bites = self.bites()
        for fault in self._bites:
            self._bites[fault] = sum(bites.get(fault, {}).values())

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What goes wrong at the agent is said with the last lines of its log."""
        try:
            yield
        except BackendError as error:
            raise RigError(str(error)) from None

    def set_mtu(self, size: int, *names: str) -> None:
        """Limit the links of some members, or of all."""
        self.network.set_mtu(size, names)

    # -- What members say ----------------------------------------------------------------------

    def ask(
        self,
        name: str,
        method: str,
        target: str,
        body: object = None,
        timeout: float = control.TIMEOUT_SECONDS,
    ) -> Any:  # noqa: ANN401 whatever the member says
        """One request to a member's control endpoint."""
        self.keep()
        try:
            return control.ask(self.spec(name).folder / CONTROL, method, target, body, timeout)
        except ControlError as error:
            raise RigError(f"{error}\n{self.tail(name)}") from None

    def state(self, name: str) -> dict[str, Any]:
        """How a member sees itself."""
        state: dict[str, Any] = self.ask(name, "GET", "/state")
        if "short" in state:
            self.shorts[name] = int(state["short"], 16)
            self._known.add(self.shorts[name])
        return state

    def stats(self, name: str) -> dict[str, Any]:
        """A member's counters."""
        stats: dict[str, Any] = self.state(name)["stats"]
        return stats

    def view(self, name: str) -> tuple[object, tuple[str, ...]] | None:
        """Id and members of the view that a member holds; None if it has none, or says nothing."""
        view = None
        with suppress(RigError):
            view = self.state(name).get("view")
        if view is None:
            return None
        return json.dumps(view["id"]), tuple(member["name"] for member in view["members"])

    def wait_for_view(self, names: Iterable[str], timeout: float = 20.0) -> dict[str, Any]:
        """Wait until all of these hold one view, of just these; returns it."""
        wanted = tuple(names)
        views: dict[str, tuple[object, tuple[str, ...]] | None] = {}

        def is_one() -> bool:
            # Here, because `view` takes whatever goes wrong for an answer that does not come.
            self.keep()
            for name in wanted:
                self._check_alive(name)
                views[name] = self.view(name)
            first = views[wanted[0]]
            return (
                first is not None
                and sorted(first[1]) == sorted(wanted)
                and all(view == first for view in views.values())
            )

        def explain() -> str:
            held = "\n".join(f"{name}: {views.get(name)}" for name in wanted)
            logs = "\n".join(f"-- {name}:\n{self.tail(name, 5)}" for name in wanted)
            return f"one view of {' '.join(wanted)}\n{held}\n{logs}"

        until(is_one, timeout, explain, VIEW_POLL_SECONDS)
        view: dict[str, Any] = self.state(wanted[0])["view"]
        return view

    def wait_until(
        self, is_done: Callable[[], bool], timeout: float, what: str, poll: float = 0.05
    ) -> None:
        """Wait for something that members are to bring about; their logs are in the failure."""

        def explain() -> str:
            logs = "\n".join(f"-- {name}:\n{self.tail(name, 5)}" for name in self.members)
            return f"{what}\n{logs}"

        def look() -> bool:
            self.keep()
            return is_done()

        until(look, timeout, explain, poll)

    def sleep(self, seconds: float) -> None:
        """Let a time pass in which nothing is done: that something does not happen takes time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.keep()
            time.sleep(min(left, KEEP_SECONDS))

    def start_load(self, name: str, load: Mapping[str, object]) -> None:
        """Have a member send; `load` is what its workload driver takes."""
        self.ask(name, "POST", "/workload", dict(load))

    def stop_load(self, name: str) -> None:
        """Have it offer nothing more."""
        self.ask(name, "POST", "/workload/stop", {})

    def tail(self, name: str, lines: int = 15) -> str:
        """The last lines of a member's log."""
        return self.members[name].tail(lines) if name in self.members else ""

    # -- The record ----------------------------------------------------------------------------

    def quiet(self) -> None:
        """Note that from now on nothing is done or offered any more."""
        self._add(trace.PHASE, "quiet")

    def end(self) -> None:
        """Stop all members at one moment, for ever."""
        self._count()
        for name in self.living():
            # Whom a later fault would concern; nobody can be asked any more.
            self._short_of(name)
        self._add(trace.PHASE, "end")
        for process in self.members.values():
            process.pause()
        for process in self.members.values():
            process.kill()
        self._note_standstills()
        for fault, do in self._faults.items():
            bit = self._bites.get(fault, 1)
            self._add(trace.PROBE, json.dumps({"id": fault, "do": do, "bit": bit}))

    def collect(self) -> dict[str, bytes]:
        """The traces of all incarnations so far, and of the rig."""
        blocks: list[bytes] = []
        wall_ns = max(0, time.time_ns() - time.monotonic_ns())
        tracer = Tracer(RIG, wall_ns, xxh3_64_intdigest, blocks.append)
        for at, kind, text in sorted(self._events, key=itemgetter(0)):
            tracer.record(kind, at, text=text)
        tracer.seal()
        traces = {"rig": b"".join(blocks)}
        for folder in sorted(self._journals):
            if folder.is_dir():
                traces.update(read_traces(folder))
        return traces

    def _hold(self, do: str, name: str, act: Callable[[], object]) -> None:
        assert (do, name) not in self._holds, f"{name} is held by a {do} already"
        self._holds[do, name] = self._note(do, name)
        act()

    def _let_go(self, do: str, name: str, act: Callable[[], object]) -> None:
        fault = self._holds.pop((do, name), None)
        act()
        if fault is not None:
            self._record_off(fault, self.shorts.get(name))

    def _release(self, name: str) -> None:
        """Let a member go that is to do something."""
        if ("pause", name) in self._holds:
            self.resume(name)

    def _forget_holds(self, name: str) -> None:
        for held in [held for held in self._holds if held[1] == name]:
            del self._holds[held]

    def _note(self, do: str, name: str) -> str:
        """Record what is about to be done to a member; returns the fault's id."""
        return self._record(do, "on", self._short_of(name))

    def _record(
        self, do: str, phase: str, member: int | None = None, at: float | None = None
    ) -> str:
        fault = f"f{len(self._faults)}"
        self._faults[fault] = do
        self._write({"id": fault, "do": do, "phase": phase}, member, at)
        return fault

    def _record_off(self, fault: str, member: int | None = None, at: float | None = None) -> None:
        self._write({"id": fault, "do": self._faults[fault], "phase": "off"}, member, at)

    def _write(self, text: dict[str, Any], member: int | None, at: float | None = None) -> None:
        if member is not None:
            text["member"] = member
        self._add(trace.FAULT, json.dumps(text), at)

    def _add(self, kind: int, text: str, at: float | None = None) -> None:
        self._events.append((time.monotonic() if at is None else at, kind, text))

    def _note_standstills(self) -> None:
        """The machine stood still, and so did everyone on it."""
        assert self.watch is not None
        for start, end in self.watch.spans():
            for short in self._known:
                fault = self._record("pause", "on", short, start)
                self._record_off(fault, short, end)

    def _short_of(self, name: str) -> int | None:
        """The short id of the newest incarnation; None if it never said."""
        if name not in self.shorts and self.is_alive(name):
            with suppress(RigError):
                self.state(name)
        return self.shorts.get(name)

    def _check_alive(self, name: str) -> None:
        process = self.members[name]
        if not process.is_alive:
            raise RigError(f"{name} has ended with {process.code}\n{process.tail()}")
