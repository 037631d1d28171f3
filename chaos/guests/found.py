"""Guests that run already: targets of this machine, by the words of an attack. They are struck
where they are, and neither started nor ended."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from stormcast.chaos.attack.finders import Finder
from stormcast.chaos.attack.stopped import Stopped
from stormcast.chaos.attack.targets import Target, TargetError, sites_of
from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.netns.agent import AgentProcess
from stormcast.chaos.backends.netns.running import run_command
from stormcast.chaos.backends.run_id import RunId
from stormcast.chaos.drivers.base import Site
from stormcast.chaos.faults import Names
from stormcast.node.core.errors import NodeError


class OthersNetworks:
    """The networks of guests that run already. Their client has this machine's own network, on
    which no fault acts."""

    def __init__(self, targets: Mapping[str, str]) -> None:
        """`targets`: the word for each guest, by its name."""
        self.run = RunId.next()
        self.spaces: Names = ()
        """Namespaces that the lab has made: none."""
        self.found: dict[str, Target] = {}
        self.finder = Finder()
        self._words = targets

    def find(self) -> None:
        """Find all guests; BackendError if one is not there, or is several."""
        for name, word in self._words.items():
            try:
                targets = self.finder.find(word)
            except TargetError as error:
                raise BackendError(str(error)) from None
            if len(targets) > 1:
                ways = ", ".join(one.what for one in targets)
                raise BackendError(
                    f"{name}: {word} is more than one: {ways}; write one guest for each"
                )
            self.found[name] = targets[0]

    def targets(self) -> list[Target]:
        """Return the targets under the names of the guests."""
        return [
            replace(one, word=name, what=f"{name} ({one.what})", near=())
            for name, one in self.found.items()
        ]

    def remove(self) -> None:
        """Let go of them."""
        self.finder.close()

    def processes(self, _name: str) -> list[int]:
        """Return the processes that belong to a name because of their network: none, for the
        network of the client is that of all."""
        return []

    def kill_all(self, _name: str) -> list[int]:
        """Kill nobody, for the same reason."""
        return []


class FoundNetwork(OthersNetworks):
    """Networks on this machine, as a lab uses them."""

    def __init__(self, targets: Mapping[str, str]) -> None:
        super().__init__(targets)
        self._sites: dict[str, Site] = {}

    def make(self) -> None:
        """Find all guests; BackendError if one is not there, or cannot be told from another."""
        self.find()
        try:
            sites = sites_of(self.targets(), run_command)
        except TargetError as error:
            raise BackendError(str(error)) from None
        self._sites = {site.name: site for site in sites}

    def agent(self, folder: Path) -> AgentProcess:
        """Return what does faults to their networks."""
        return AgentProcess(self.run, list(self._sites.values()), folder)

    def guest(self, name: str, folder: Path) -> FoundGuest:
        """Return a guest as a lab uses it."""
        return FoundGuest(name, self.found[name], self.finder, folder)

    def address(self, name: str) -> str:
        """Return the address of a guest."""
        return first_of(self._sites[name].addresses)

    def inside(self, name: str, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the words that run a program in the network of a guest, or of the client."""
        site = self._sites.get(name)
        return tuple(argv) if site is None else ("nsenter", f"--net={site.netns}", *argv)


def first_of(addresses: Names) -> str:
    """Return the address that a command is told: of IPv4 if there is one."""
    return next((one for one in addresses if ":" not in one), addresses[0])


class OthersGuest:
    """What somebody else has started, and will end."""

    incarnation: Final = 1
    is_ordered: Final = False
    """Nobody tells it to end."""
    code: Final = None
    """Nobody but its parent learns its exit code."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.seen_alive = time.monotonic()

    def tell(self, _by: str) -> None:
        """Leave it running."""

    def kill(self) -> int:
        """Kill nobody: a scenario that would is refused."""
        return 0

    def last_line(self) -> str:
        """Return nothing: its log is its owner's."""
        return ""

    def log(self) -> str:
        """Return nothing, likewise."""
        return ""

    def log_bytes(self) -> int:
        """Return 0, likewise."""
        return 0


class FoundGuest(OthersGuest):
    """A guest that runs already on this machine, as a lab uses it."""

    def __init__(self, name: str, target: Target, finder: Finder, folder: Path) -> None:
        super().__init__(name, folder)
        self._target = target
        self._finder = finder
        self._stopped: Stopped | None = None
        self._first: int | None = None
        """A descriptor of its first process; None: it is a namespace, whoever is in it."""

    @property
    def is_alive(self) -> bool:
        """Whether its first process runs: one that is started again is another guest, in another
        network."""
        now = time.monotonic()
        if self._first is None:
            is_there = Path(self._target.netns).exists()
        else:
            poll = select.poll()
            poll.register(self._first, select.POLLIN)
            is_there = not poll.poll(0)
        if is_there:
            self.seen_alive = now
        return is_there

    def start(self) -> None:
        """Take it as it runs; BackendError if it has ended since it was found."""
        if self._target.is_space:
            return
        try:
            self._first = os.pidfd_open(min(self._target.pids))
        except (ProcessLookupError, ValueError):
            raise BackendError(f"{self.name}: {self._target.what} has ended") from None

    def inside(self, words: Sequence[str]) -> tuple[str, ...]:
        """Return the words that run a program in its network."""
        return ("nsenter", f"--net={self._target.netns}", *words)

    def stop(self, _by: str) -> None:
        """Leave it running, and let go of it."""
        self.resume()
        if self._first is not None:
            os.close(self._first)
            self._first = None

    def pause(self, spared: Collection[int]) -> int:
        """Stop its processes, but those of some groups; return how many there were. They go on with
        `resume`, and when this process ends, however it does."""
        self._stopped = Stopped()
        return self._stopped.stop(lambda: self._listed(spared))

    def resume(self) -> None:
        """Have it go on."""
        if self._stopped is not None:
            stopped, self._stopped = self._stopped, None
            stopped.resume()

    def _listed(self, spared: Collection[int]) -> list[int]:
        found = []
        with suppress(NodeError):
            for pid in self._finder.processes_now(self._target):
                with suppress(ProcessLookupError):
                    if os.getpgid(pid) not in spared:
                        found.append(pid)
        return found
