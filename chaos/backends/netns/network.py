"""The network of a rig: made, cut, healed, removed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from chaos.backends.netns import commands
from chaos.backends.netns.commands import Command
from chaos.backends.netns.names import BRIDGE, RunId, address4, address6, check_names
from chaos.backends.netns.running import CommandError, Run, run_command, what_is_missing
from chaos.faults import NetworkFault, Partition

Pair = tuple[str, str]
"""Sender and receiver, by name."""


class Network:
    """Namespaces on one bridge. `make` and `remove` may each be called again."""

    def __init__(self, run: RunId, names: Sequence[str], do: Run = run_command) -> None:
        self.run = run
        self.names = tuple(names)
        check_names(self.names)
        self.faults: dict[str, NetworkFault] = {}
        """What is wrong at the moment, by id."""
        self.bites: dict[str, int] = {}
        """Packets that each fault had so far kept from arriving, by id."""
        self._do = do
        self._disks: list[Path] = []
        self._cut: dict[str, frozenset[str]] = {name: frozenset() for name in self.names}
        """From whom each member hears nothing: what the rules of its namespace say now."""
        self._dropped: dict[Pair, int] = {}
        """What these rules had dropped when they were last asked."""

    def make(self) -> None:
        """Make it all, or nothing."""
        try:
            for command in commands.make_network(self.run, self.names):
                self._run(command)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Remove it all, with whatever still runs in it."""
        spaces = [self.run.namespace(name) for name in (BRIDGE, *self.names)]
        remove_spaces(spaces, self._do)
        while self._disks:
            self._run(commands.remove_disk(self._disks.pop()))

    def index(self, name: str) -> int:
        """The place of a member."""
        return self.names.index(name)

    def address(self, name: str, *, ipv6: bool = False) -> str:
        """Where a member is reached."""
        return (address6 if ipv6 else address4)(self.index(name))

    def inside(self, name: str, argv: Sequence[str]) -> tuple[str, ...]:
        """The words that run a program in the namespace of a member."""
        return commands.inside(self.run.namespace(name), argv)

    def execute(self, name: str, argv: Sequence[str], stdin: str = "") -> str:
        """Run a program to its end in the namespace of a member; returns what it printed."""
        return self._do(self.inside(name, argv), stdin)

    # -- Faults --------------------------------------------------------------------------------

    def begin(self, fault: str, what: NetworkFault) -> None:
        """Have a fault act, besides those that do."""
        assert fault not in self.faults, f"fault {fault} acts already"
        self.count()
        self.faults[fault] = what
        self.bites.setdefault(fault, 0)
        self._apply()

    def end(self, fault: str) -> None:
        """Have a fault act no more."""
        self.count()
        self.faults.pop(fault, None)
        self._apply()

    def heal(self) -> list[str]:
        """End all faults; returns their ids."""
        self.count()
        ended = list(self.faults)
        self.faults.clear()
        self._apply()
        return ended

    def set_mtu(self, size: int, names: Iterable[str] = ()) -> None:
        """Limit the links of some members, or of all.

        A bridge tells nobody that a packet was too large: with links of several sizes, larger
        packets to the smaller ones vanish.
        """
        for name in tuple(names) or self.names:
            for command in commands.set_mtu(self.run, name, self.index(name), size):
                self._run(command)

    def small_disk(self, folder: Path, size: int) -> None:
        """Give a folder a file system of its own, which is soon full."""
        self._run(commands.small_disk(self.run, folder, size))
        self._disks.append(folder)

    def blocked(self) -> dict[str, frozenset[str]]:
        """From whom each member is to hear nothing, by what all faults say together."""
        return {
            dest: frozenset(
                source
                for source in self.names
                if source != dest
                and any(fault.strikes(source, dest) for fault in self.faults.values())
            )
            for dest in self.names
        }

    def count(self) -> dict[Pair, int]:
        """What the present rules have dropped, per directed pair; what is new goes to the bites.

        Reading and replacing are two steps, so a few packets in between are dropped uncounted.
        """
        for dest, sources in self._cut.items():
            if not sources:
                continue
            answer = self._run(commands.count_cut(self.run, dest))
            for index, number in commands.read_counts(answer, len(self.names)).items():
                pair = self.names[index], dest
                fresh = number - self._dropped.get(pair, 0)
                self._dropped[pair] = number
                for fault, what in self.faults.items():
                    if what.strikes(*pair):
                        self.bites[fault] += fresh
        return dict(self._dropped)

    def _apply(self) -> None:
        """Make the rules of every namespace what the faults say."""
        for dest, sources in self.blocked().items():
            if sources != self._cut[dest]:
                places = sorted(map(self.index, sources))
                self._run(commands.cut(self.run, dest, places))
                self._cut[dest] = sources
                # New rules count from zero.
                for source in self.names:
                    self._dropped.pop((source, dest), None)

    def _run(self, command: Command) -> str:
        return self._do(command.argv, command.stdin)


def probe(do: Run = run_command) -> str | None:
    """Why this machine cannot do what a rig needs, found by trying it; None: it can."""
    if why := what_is_missing():
        return why
    network = Network(RunId.next(), ("n0", "n1"), do)
    try:
        network.make()
        network.begin("probe", Partition(groups=(("n0",), ("n1",))))
        network.count()
    except CommandError as error:
        return f"this machine refuses: {error}"
    finally:
        network.remove()
    return None


def remove_spaces(spaces: Iterable[str], do: Run = run_command) -> None:
    """Remove namespaces with whatever runs in them; those that are not there are no error."""
    known = set(namespaces(do))
    there = [space for space in spaces if space in known]
    for space in there:
        kill_all_in(space, do)
    if there:
        command = commands.remove_namespaces(there)
        do(command.argv, command.stdin)


def kill_all_in(space: str, do: Run = run_command) -> list[int]:
    """End every process in a namespace of ours, by its pid; returns their pids."""
    try:
        pids = [int(word) for word in do(("ip", "netns", "pids", space), "").split()]
    except CommandError:
        return []
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return pids


def namespaces(do: Run = run_command) -> list[str]:
    """All named namespaces of the machine."""
    spaces: list[Mapping[str, str]] = json.loads(do(("ip", "-j", "netns", "list"), "") or "[]")
    return [space["name"] for space in spaces]
