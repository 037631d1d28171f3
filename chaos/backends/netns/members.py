"""Members as processes, each in its namespace, asked through its unix socket."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

from stormcast.chaos.backends.base import BackendError, MemberError, MemberPlan
from stormcast.chaos.backends.netns import control
from stormcast.chaos.backends.netns.commands import (
    CONFIG,
    CONTROL,
    JOURNAL,
    MemberSpec,
    member_argv,
    where,
)
from stormcast.chaos.backends.netns.network import Network
from stormcast.chaos.backends.netns.process import Process, environment
from stormcast.chaos.records.exits import MemberExit
from stormcast.node.bound import bound_to_me
from stormcast.node.keys.cluster_keys import change_keys
from stormcast.node.settings import list_layers
from stormcast.node.trace import WALL_VARIABLE
from stormcast.node.trace.files import read_traces
from stormcast.weights import bytes_in, weigh

STATIC: Final = "STATIC"

Argv = Callable[[str, MemberSpec], Sequence[str]]
"""Takes a Python interpreter and a member's spec; returns the words that start the member."""


class Members:
    """The members of a run, by name, each in its newest incarnation."""

    def __init__(
        self,
        network: Network,
        plans: Iterable[MemberPlan],
        folder: Path,
        argv: Argv = member_argv,
        keys: Path | None = None,
        *,
        wall_ns: int = 0,
    ) -> None:
        self.processes: dict[str, Process] = {}
        """The newest process of each member that was started, running or not."""
        self._network = network
        mine = {} if keys is None else {"key_file": str(keys)}
        self._configs = {plan.name: {**plan.config, **mine} for plan in plans}
        self._keys = keys
        self._folder = folder
        self._argv = argv
        self._told = {WALL_VARIABLE: str(wall_ns)} if wall_ns else {}
        """The environment variable with the wall clock, for all members; empty without one."""
        self._started: Counter[str] = Counter()
        self._running: list[tuple[str, int, Process]] = []
        """Name and number of each incarnation that had not ended at the last look."""
        self._exits: list[MemberExit] = []

    def prepare(self) -> None:
        """Make a folder for each member, with its configuration."""
        for name in self._configs:
            (self._folder / name).mkdir(parents=True, exist_ok=True)
            self._write_config(name)

    def _write_config(self, name: str) -> None:
        (self._folder / name / CONFIG).write_text(json.dumps(self._configs[name]))

    def set_test_protocols(
        self, name: str, test_protocols: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Have a member begin with these test protocols when it is started next."""
        self._process(name)
        self._configs[name] = {**self._configs[name], "test_protocols": test_protocols}
        self._write_config(name)

    def change_keys(self, step: str) -> None:
        """Change the file that all members read."""
        assert self._keys is not None, "a run without keys has no feature to change them"
        change_keys(self._keys, step)

    def start(self, name: str) -> None:
        """Start a new incarnation of a member; does not wait until it is ready."""
        if self.is_alive(name):
            raise BackendError(f"{name} runs already; restart it, or stop it before")
        spec = self._spec(name)
        (spec.folder / CONTROL).unlink(missing_ok=True)
        self._started[name] += 1
        words = self._network.inside(name, self._argv(sys.executable, spec))
        label = f"{name}-{self._started[name]}"
        mine = environment(self._told, self._network.run)
        process = Process(bound_to_me(words), spec.folder, label, mine)
        self.processes[name] = process
        self._running.append((name, self._started[name], process))

    def kill(self, name: str) -> None:
        """End a member at once, if it runs."""
        process = self._process(name)
        if process is not None:
            process.kill()

    def is_alive(self, name: str) -> bool:
        """Whether a member was started and has not ended."""
        process = self._process(name)
        return process is not None and process.is_alive

    def running(self, name: str) -> Process:
        """Return the process of a member; BackendError if it does not run."""
        process = self._process(name)
        if process is None or not process.is_alive:
            raise BackendError(f"{name} does not run")
        return process

    def ask(self, name: str, method: str, target: str, body: object = None) -> Any:  # noqa: ANN401 whatever the member says
        """Send one request to a member; MemberError, with the last lines of its log, when the
        member does not answer or refuses."""
        process = self._process(name)
        if process is None or not process.is_alive:
            raise MemberError(f"{name} does not answer {method} {target}: it does not run")
        try:
            return control.ask(self._folder / name / CONTROL, method, target, body)
        except MemberError as error:
            raise MemberError(f"{name}: {error}\n{process.tail()}") from None

    def freeze(self) -> None:
        """Pause all members, and then kill them: none of them sees another one end."""
        for process in self.processes.values():
            process.pause()
        self.kill_all()

    def kill_all(self) -> None:
        """Kill all members."""
        for process in self.processes.values():
            process.kill()

    def exits(self) -> list[MemberExit]:
        """Look which incarnations have ended; returns all ends so far."""
        for one in tuple(self._running):
            name, number, process = one
            if process.is_alive:
                continue
            self._running.remove(one)
            assert process.code is not None
            self._exits.append(
                MemberExit(
                    name=name,
                    incarnation=number,
                    at=process.seen_alive,
                    code=process.code,
                    is_ordered=process.is_ended_by_order,
                )
            )
        return self._exits

    def journals(self) -> dict[str, bytes]:
        """Return the traces of every incarnation so far, by its label."""
        folders = [self._folder / name / JOURNAL for name in sorted(self._configs)]
        return {
            label: blocks
            for folder in folders
            if folder.is_dir()
            for label, blocks in read_traces(folder).items()
        }

    def forget(self, gone: Collection[str]) -> None:
        """Delete the journals of incarnations that are gone, by their labels."""
        for name in self._configs:
            for label in gone:
                rmtree(self._folder / name / JOURNAL / label, ignore_errors=True)

    def weights(self) -> dict[str, dict[str, float]]:
        """Return what each living member takes of the machine, by name and pid."""
        found = {}
        for name, process in self.processes.items():
            with suppress(OSError):
                journal = bytes_in(self._folder / name / JOURNAL)
                found[f"{name}:{process.pid}"] = {**weigh(process.pid), "journal": journal}
        return found

    def _process(self, name: str) -> Process | None:
        if name not in self._configs:
            names = " ".join(self._configs)
            raise BackendError(f"no member is called {name}; there are {names}")
        return self.processes.get(name)

    def _spec(self, name: str) -> MemberSpec:
        return MemberSpec(
            name=name,
            address=self._network.address(name),
            folder=self._folder / name,
            initial_hosts=self._hosts() if _is_told(self._configs[name]) else (),
        )

    def _hosts(self) -> tuple[str, ...]:
        return tuple(where(self._network.address(name)) for name in self._configs)


def _is_told(config: Mapping[str, Any]) -> bool:
    """Whether a member's stack has the discovery STATIC, which needs `initial_hosts`."""
    layers = list_layers(
        config["stack"], config.get("unicast") or None, config.get("discovery") or None
    )
    return any(name == STATIC for name, _values in layers)
