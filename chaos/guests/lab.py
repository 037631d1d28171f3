"""The place of a run with guests: their networks, the agent that does the faults, and they
themselves. It is all gone when the lab is closed, or when its process ends."""

from __future__ import annotations

import atexit
import shlex
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Final

from stormcast.chaos.attack.pod_agents import PodAgents
from stormcast.chaos.backends.base import BackendError, Bites, Unsupported
from stormcast.chaos.backends.netns.agent import AgentProcess
from stormcast.chaos.backends.netns.network import Network
from stormcast.chaos.backends.netns.process import until
from stormcast.chaos.backends.netns.running import CommandError, what_is_missing
from stormcast.chaos.backends.run_id import RunId
from stormcast.chaos.faults import Names, NetworkFault
from stormcast.chaos.guests.containers import Containers, GuestContainer
from stormcast.chaos.guests.found import FoundGuest, FoundNetwork
from stormcast.chaos.guests.found_pods import ConditionProber, FoundPods, PodGuest
from stormcast.chaos.guests.guard import Guard
from stormcast.chaos.guests.probing import Prober
from stormcast.chaos.guests.processes import GuestProcesses
from stormcast.chaos.guests.scenario import (
    ADDRESS,
    CLIENT,
    FOLDER,
    PYTHON,
    Client,
    Guest,
    fill,
    is_pod_word,
    put,
)
from stormcast.chaos.language.features import features_of
from stormcast.chaos.language.network_state import PACKETS, NetworkState
from stormcast.chaos.language.scenario import Scenario
from stormcast.node.core.names import one_line

ZERO: Final = "STORMCAST_ZERO"
"""The variable with the time, on the monotonic clock, from which the times of a history count."""
MOST_LOG_BYTES: Final = 64 << 20
"""A guest that writes more into its log is ended."""
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_POLL: Final = 0.02
Started = GuestProcesses | GuestContainer | FoundGuest | PodGuest
"""A guest: a command, the container of an image, or what runs already, here or as a pod."""


class GuestError(BackendError):
    """A guest that does not start, or writes without end; the text says what to look at."""


class Lab:
    """Guests and their client, each in a network of its own. All of it belongs to the thread that
    made it."""

    def __init__(
        self,
        names: Names,
        folder: Path,
        here: Path,
        seed: int,
        targets: Mapping[str, str] = NOTHING,
    ) -> None:
        """`folder`: where logs are kept. `here`: what commands have as `{folder}`. `targets`: the
        words of those who run already, by name."""
        self.names = names
        self.network = _network(names, targets)
        self.guests: dict[str, Started] = {}
        self.probers: dict[str, Prober | ConditionProber] = {}
        self.client: GuestProcesses | None = None
        self._folder = folder.resolve()
        self._here = here
        self._seed = seed
        self._agent: AgentProcess | PodAgents | None = None
        self._containers = Containers(self.network.run)
        self._undo = ExitStack()

    # -- The beginning and the end ---------------------------------------------------------------

    def open(self) -> None:
        """Make the networks; nobody runs yet."""
        if not isinstance(self.network, FoundPods) and (why := what_is_missing()):
            raise Unsupported(f"guests live in network namespaces: {why}")
        atexit.register(self.close)
        self._undo.callback(self.network.remove)
        try:
            self.network.make()
        except CommandError as error:
            raise BackendError(f"this machine refuses: {error}") from None
        if self.network.spaces:
            self._undo.callback(Guard(self.network.spaces).close)
        self._undo.callback(self._containers.close)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._agent = (
            AgentProcess(self.network.run, self.network.sites(), self._folder)
            if isinstance(self.network, Network)
            else self.network.agent(self._folder)
        )
        self._undo.callback(self._agent.close)

    def close(self) -> None:
        """End everyone, and remove the networks. Where Ctrl-C ended it, another call goes on."""
        try:
            self._undo.close()
        finally:
            self.network.remove()
            for path in self._folder.glob("*.sock"):
                path.unlink(missing_ok=True)
        atexit.unregister(self.close)

    def check_features(self, scenario: Scenario) -> None:
        """Refuse (Unsupported) faults that this machine cannot do."""
        found = self.agent.features()
        needs = features_of(scenario, in_members=False, is_group=False)
        for need in sorted(needs - {"members", "no-group", "pause"}):
            if why := found.get(need, "no driver of this version does it"):
                raise Unsupported(f"{scenario.name} needs {need}: {why}")

    @property
    def agent(self) -> AgentProcess | PodAgents:
        """The agent, or the agents in pods, that does faults of the network."""
        assert self._agent is not None, "the lab is open"
        return self._agent

    # -- Guests ----------------------------------------------------------------------------------

    def places(self, name: str) -> dict[str, str]:
        """Return what the words in braces of somebody's command stand for."""
        addresses = {other: self.network.address(other) for other in self.names}
        return {
            **addresses,
            **({ADDRESS: addresses[name]} if name in addresses else {}),
            FOLDER: str(self._here),
            PYTHON: sys.executable,
        }

    def add(self, guest: Guest, more: Mapping[str, str] = NOTHING) -> None:
        """Start a guest, with more variables in its environment, and wait until it is ready;
        GuestError if that is not so in time."""
        places = self.places(guest.name)
        folder = self._folder / guest.name
        made = self._make(guest, places, folder, more)
        self.guests[guest.name] = made
        made.start()
        if guest.ready is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        prober: Prober | ConditionProber
        if isinstance(self.network, FoundPods) and guest.ready.condition is not None:
            prober = ConditionProber(self.network.watch, guest.name, guest.ready.condition)
        else:
            prober = Prober(self.network, guest.name, guest.ready, places, folder, made.inside)
        self._undo.callback(prober.forget)

        def is_ready() -> bool:
            if not made.is_alive:
                raise GuestError(self.ended(made))
            prober.look()
            return prober.is_ready_since(0.0)

        within = guest.ready.within
        try:
            until(is_ready, within, lambda: "", _POLL)
        except GuestError:
            raise
        except BackendError:
            said = made.last_line()
            raise GuestError(
                f"guest {guest.name} is not ready within {within:g}s; its last line: "
                f"{one_line(said) or 'nothing'}; correct ready, or give it more time (within)"
            ) from None
        self.probers[guest.name] = prober

    def _make(
        self, guest: Guest, places: Mapping[str, str], folder: Path, more: Mapping[str, str]
    ) -> Started:
        if not isinstance(self.network, Network):
            return self.network.guest(guest.name, folder)
        variables = {name: put(text, places) for name, text in guest.environment.items()}
        if guest.image is None:
            command = fill(guest.command, places)
            return GuestProcesses(
                self.network, guest.name, command, folder, more={**variables, **more}
            )
        return self._containers.make(
            guest.name,
            guest.image,
            shlex.split(fill(guest.command, places)),
            folder,
            environment={**variables, **more},
            mounts={self._here / path: where for path, where in guest.mounts.items()},
        )

    def start_client(self, client: Client, history: Path, zero: float) -> None:
        """Start the client, whose output is the history."""
        command = fill(client.command, self.places(CLIENT))
        folder = self._folder / CLIENT
        more = {ZERO: repr(zero)}
        self.client = GuestProcesses(
            self.network, CLIENT, command, folder, output=history, more=more
        )
        self.client.start()

    def stop(self, guests: Iterable[Guest]) -> None:
        """End all guests, the last one first, each by its own signal."""
        for guest in reversed(tuple(guests)):
            if guest.name in self.guests:
                self.guests[guest.name].stop(guest.stop)

    def ended(self, guest: Started) -> str:
        """Return a line about a guest that has ended."""
        if isinstance(guest, PodGuest):
            return f"{guest.name} is not the pod any more that was found: {guest.why_ended()}"
        if isinstance(guest, FoundGuest):
            return f"{guest.name} ended by itself; its log is where its owner keeps it"
        code = guest.code
        how = f"with {code}" if code is None or code >= 0 else f"by signal {-code}"
        why = ": run it in the foreground" if code == 0 else ""
        said = one_line(guest.last_line()) or "nothing"
        return f"{guest.name} ended by itself {how}{why}; its last line: {said}"

    # -- Faults ----------------------------------------------------------------------------------

    def apply(self, active: Mapping[str, NetworkFault]) -> None:
        """Make the networks as these faults say, and as they are by themselves otherwise."""
        self.agent.apply(
            NetworkState(members=self.names, faults=active, seed=self._seed, dice=PACKETS)
        )

    def bites(self) -> Bites:
        """Return how often each fault of the network has struck."""
        # Where the lab did not open nobody did any.
        return {} if self._agent is None else self._agent.bites()

    def pause(self, name: str) -> int:
        """Stop a guest; what asks it whether it is ready goes on."""
        prober = self.probers.get(name)
        return self.guests[name].pause(() if prober is None else (prober.group or 0,))

    def look_after(self) -> None:
        """Keep faults up, and ask guests whether they are ready: to be called often."""
        self.agent.keep()
        for prober in self.probers.values():
            prober.look()
        for guest in self.everyone():
            # Also so that it is known when it was seen last.
            if guest.is_alive and guest.log_bytes() > MOST_LOG_BYTES:
                guest.kill()
                raise GuestError(
                    f"{guest.name} has written {MOST_LOG_BYTES >> 20} MiB into its log and was "
                    "ended; have it say less"
                )

    def everyone(self) -> tuple[Started, ...]:
        """Return all guests, and the client, as far as they were started."""
        return (*self.guests.values(), *((self.client,) if self.client else ()))


def _network(names: Names, targets: Mapping[str, str]) -> Network | FoundNetwork | FoundPods:
    """Return the networks of some guests: made for them, or those in which they run already."""
    if not targets:
        return Network(RunId.next(), names)
    of_pods = [word for word in targets.values() if is_pod_word(word)]
    return FoundPods(targets) if of_pods else FoundNetwork(targets)
