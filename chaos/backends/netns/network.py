"""The network of a run: makes and removes it. The run's agent makes the faults in it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from stormcast.chaos.backends.netns import commands
from stormcast.chaos.backends.netns.commands import Command
from stormcast.chaos.backends.netns.names import BRIDGE, address4, address6, check_names
from stormcast.chaos.backends.netns.running import CommandError, Run, run_command, what_is_missing
from stormcast.chaos.backends.run_id import RunId
from stormcast.chaos.drivers.base import DriverError, Site
from stormcast.chaos.drivers.nft import NftDriver
from stormcast.chaos.faults import Names

NAMESPACES: Final = Path("/run/netns")
"""The folder in which `ip` keeps named namespaces."""


class Network:
    """Namespaces on one bridge. `remove` may be called twice, and `make` again after it, but not
    before: the second one would remove what the first has made."""

    def __init__(self, run: RunId, names: Sequence[str], do: Run = run_command) -> None:
        self.run = run
        self.names = tuple(names)
        check_names(self.names)
        self._do = do
        self._disks: list[Path] = []

    def make(self) -> None:
        """Make the whole network; after a failure nothing of it is left. If something of that name
        is there already, it stays, and CommandError says so."""
        there = set(self.spaces).intersection(namespaces(self._do))
        if there:
            raise CommandError(
                f"namespace {min(there)} is there already: remove the network, then make it again"
            )
        try:
            for command in commands.make_network(self.run, self.names):
                self._run(command)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Remove the whole network, and kill all processes in it; Ctrl-C comes through after it."""
        try:
            self._remove()
        except KeyboardInterrupt:
            # It has ended a command halfway.
            self._remove()
            raise

    def _remove(self) -> None:
        remove_spaces(self.spaces, self._do)
        while self._disks:
            if self._disks[-1].is_mount():
                self._run(commands.remove_disk(self._disks[-1]))
            self._disks.pop()

    @property
    def spaces(self) -> list[str]:
        """The names of all namespaces of the network."""
        return [self.run.namespace(name) for name in (BRIDGE, *self.names)]

    def index(self, name: str) -> int:
        """Return the index of a member."""
        return self.names.index(name)

    def address(self, name: str, *, ipv6: bool = False) -> str:
        """Return the address of a member."""
        return (address6 if ipv6 else address4)(self.index(name))

    def places(self) -> dict[str, Names]:
        """Return both addresses of each member."""
        return {name: (address4(index), address6(index)) for index, name in enumerate(self.names)}

    def sites(self) -> list[Site]:
        """Return each member's site, for an agent: its addresses, device and namespace."""
        return [
            Site(
                name=name,
                addresses=addresses,
                device=commands.DEVICE,
                netns=str(NAMESPACES / self.run.namespace(name)),
            )
            for name, addresses in self.places().items()
        ]

    def inside(self, name: str, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the words that run a program in the namespace of a member."""
        return commands.inside(self.run.namespace(name), argv)

    def processes(self, name: str) -> list[int]:
        """Return the processes in the namespace of a member; none where it is gone."""
        space = self.run.namespace(name)
        if not (NAMESPACES / space).exists():
            return []
        return [int(word) for word in self._do(("ip", "netns", "pids", space), "").split()]

    def kill_all(self, name: str) -> list[int]:
        """Kill every process in the namespace of a member; returns the pids."""
        return kill_all_in(self.run.namespace(name), self._do)

    def execute(self, name: str, argv: Sequence[str], stdin: str = "") -> str:
        """Run a program to its end in the namespace of a member; returns what it printed."""
        return self._do(self.inside(name, argv), stdin)

    def set_mtu(self, size: int, names: Iterable[str] = ()) -> None:
        """Set the MTU of the links of some members, or of all.

        A bridge does not report that a packet was too large: with links of several MTUs, larger
        packets to links with a smaller one vanish.
        """
        for name in tuple(names) or self.names:
            for command in commands.set_mtu(self.run, name, self.index(name), size):
                self._run(command)

    def small_disk(self, folder: Path, size: int) -> None:
        """Mount a file system of `size` bytes at a folder."""
        self._run(commands.small_disk(self.run, folder, size))
        self._disks.append(folder)

    def _run(self, command: Command) -> str:
        return self._do(command.argv, command.stdin)


def why_not(do: Run = run_command) -> str | None:
    """Return why this machine cannot make such a network, found by trying it; None if it can."""
    if why := what_is_missing():
        return why
    network = Network(RunId.next(), ("n0", "n1"), do)

    async def run(argv: Sequence[str], stdin: str) -> str:
        try:
            return do(argv, stdin)
        except CommandError as error:
            raise DriverError(str(error)) from None

    try:
        network.make()
        driver = NftDriver(network.sites(), network.run.table, run)
        reasons = [why for why in asyncio.run(driver.features()).values() if why]
    except CommandError as error:
        reasons = [str(error)]
    finally:
        network.remove()
    return f"this machine refuses: {reasons[0]}" if reasons else None


def remove_spaces(spaces: Iterable[str], do: Run = run_command) -> None:
    """Remove namespaces, and kill the processes in them; missing namespaces are skipped."""
    known = set(namespaces(do))
    there = [space for space in spaces if space in known]
    for space in there:
        kill_all_in(space, do)
    if there:
        command = commands.remove_namespaces(there)
        do(command.argv, command.stdin)


def kill_all_in(space: str, do: Run = run_command) -> list[int]:
    """Kill every process in a namespace of ours; returns the pids."""
    try:
        pids = [int(word) for word in do(("ip", "netns", "pids", space), "").split()]
    except CommandError:
        return []
    for pid in pids:
        with suppress(OSError):
            _kill_in(space, pid)
    return pids


def _kill_in(space: str, pid: int) -> None:
    """Kill a process if it is in this namespace: since it was listed, its pid may have become that
    of another one."""
    process = os.pidfd_open(pid)
    try:
        if Path(f"/proc/{pid}/ns/net").samefile(NAMESPACES / space):
            signal.pidfd_send_signal(process, signal.SIGKILL)
    finally:
        os.close(process)


def namespaces(do: Run = run_command) -> list[str]:
    """List all named namespaces of the machine."""
    spaces: list[Mapping[str, str]] = json.loads(do(("ip", "-j", "netns", "list"), "") or "[]")
    return [space["name"] for space in spaces]
