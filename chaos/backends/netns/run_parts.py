"""The parts of a run: made one after the other, and undone in reverse, however it ended."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stormcast.chaos.backends.base import BackendError, ClusterPlan
from stormcast.chaos.backends.netns.agent import AgentProcess
from stormcast.chaos.backends.netns.members import Argv, Members
from stormcast.chaos.backends.netns.network import Network
from stormcast.chaos.backends.netns.running import CommandError
from stormcast.chaos.backends.netns.watch import Watch
from stormcast.chaos.backends.run_id import RunId
from stormcast.node.keys.cluster_keys import write_new_key

KEYS: Final = "cluster.key"
"""The file with the keys of a run whose members seal what they send; it ends with the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The parts of a backend that exist from `open` on."""

    network: Network
    agent: AgentProcess
    members: Members
    watch: Watch


class RunParts:
    """Makes the parts of one run, and remembers what is left to be undone."""

    def __init__(self, argv: Argv, key_file: Path | None) -> None:
        self._argv = argv
        self._key_file = key_file
        self._network: Network | None = None
        """The namespaces that are left to be removed."""
        self._undo = ExitStack()

    def make(self, plan: ClusterPlan, wall_ns: int) -> Opened:
        """Make the namespaces and the folders of members; no member runs yet. BackendError where
        this machine refuses."""
        folder = plan.folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        network = self._network = Network(RunId.next(), plan.names)
        try:
            network.make()
        except CommandError as error:
            raise BackendError(f"this machine refuses: {error}") from None
        agent = AgentProcess(network.run, network.sites(), folder)
        self._undo.callback(agent.close)
        keys = self._keys_of(plan, folder)
        members = Members(network, plan.members, folder, self._argv, keys, wall_ns=wall_ns)
        self._undo.callback(members.kill_all)
        members.prepare()
        watch = Watch(network.run, folder)
        self._undo.callback(watch.close)
        return Opened(network=network, agent=agent, members=members, watch=watch)

    def _keys_of(self, plan: ClusterPlan, folder: Path) -> Path | None:
        """Return the file with the members' keys, made for the run if none was given. A given one
        is read where it is: a copy could outlive the run."""
        if not plan.sealed:
            return None
        if self._key_file is not None:
            return self._key_file.absolute()
        keys = folder / KEYS
        self._undo.callback(keys.unlink, missing_ok=True)
        write_new_key(keys)
        return keys

    def remove(self) -> None:
        """End everyone and remove the namespaces. Where Ctrl-C ended it, another call goes on."""
        try:
            self._undo.close()
        finally:
            if self._network is not None:
                self._network.remove()
                self._network = None
