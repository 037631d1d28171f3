"""The commands that make, change and remove the network of a run, and that start its members.

Pure functions from names to command lines, so that these can be tested without root.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from stormcast.chaos.backends.netns.names import (
    BRIDGE,
    PREFIX4,
    PREFIX6,
    address4,
    address6,
    link_address,
)
from stormcast.chaos.backends.run_id import RunId

DEVICE: Final = "eth0"
"""The name of a member's link in its own namespace; no other namespace sees it."""
ROOM: Final = 9000
"""The MTU of the bridge: the largest that a link may be set to."""


class Command(NamedTuple):
    """A program with its arguments, and its standard input."""

    argv: tuple[str, ...]
    stdin: str = ""


def port(index: int) -> str:
    """Return the name of the bridge's end of a member's link."""
    return f"m{index}"


def batch(lines: Iterable[str], namespace: str | None = None) -> Command:
    """Return one command that runs many `ip` commands, all in one namespace."""
    where = ("-n", namespace) if namespace else ()
    return Command(("ip", *where, "-batch", "-"), "".join(f"{line}\n" for line in lines))


def make_network(run: RunId, names: Sequence[str]) -> list[Command]:
    """Return the commands that make the namespaces, a bridge, and each member's link to it."""
    spaces = [run.namespace(name) for name in (BRIDGE, *names)]
    bridge = spaces[0]
    return [
        batch(f"netns add {space}" for space in spaces),
        batch(_bridge(run, names), bridge),
        *(batch(_link(index, len(names)), space) for index, space in enumerate(spaces[1:])),
    ]


def _bridge(run: RunId, names: Sequence[str]) -> list[str]:
    lines = [
        # Without snooping a multicast goes to every port: nothing has to be learned first, and
        # nothing that was learned can be out of date after a partition.
        f"link add br0 mtu {ROOM} type bridge mcast_snooping 0 stp_state 0 forward_delay 0",
        "link set br0 addrgenmode none",
    ]
    for index, name in enumerate(names):
        space = run.namespace(name)
        # The member's end is made in its own namespace: no name is used outside our namespaces.
        lines += [
            f"link add {port(index)} type veth peer name {DEVICE} netns {space}",
            f"link set {port(index)} addrgenmode none master br0 up",
        ]
    return [*lines, "link set br0 up"]


def _link(index: int, members: int) -> list[str]:
    # A kernel remembers no more than some thousand neighbours, of all namespaces together, and
    # drops packets to any other. Permanent entries do not count.
    neighbours = [
        f"neigh add {address} lladdr {link_address(other)} dev {DEVICE} nud permanent"
        for other in range(members)
        if other != index
        for address in (address4(other), address6(other))
    ]
    return [
        "link set lo up",
        # No link-local address: a bind to the interface must find the address that we give it.
        f"link set {DEVICE} addrgenmode none address {link_address(index)}",
        f"addr add {address4(index)}/{PREFIX4} dev {DEVICE}",
        # `nodad`: nobody else can have the address, and the check for that takes two seconds.
        f"addr add {address6(index)}/{PREFIX6} dev {DEVICE} nodad",
        f"link set {DEVICE} up",
        *neighbours,
    ]


def remove_namespaces(spaces: Iterable[str]) -> Command:
    """Return the command that removes namespaces, and goes on if one is gone already."""
    made = batch(f"netns del {space}" for space in spaces)
    return Command(("ip", "-force", *made.argv[1:]), made.stdin)


def set_mtu(run: RunId, name: str, index: int, size: int) -> list[Command]:
    """Return the commands that set the MTU of both ends of a member's link, so that neither end
    sends or takes larger packets."""
    return [
        batch([f"link set {DEVICE} mtu {size}"], run.namespace(name)),
        batch([f"link set {port(index)} mtu {size}"], run.namespace(BRIDGE)),
    ]


def inside(space: str, argv: Sequence[str]) -> tuple[str, ...]:
    """Return the words that run a program in a namespace; `ip` becomes it, so the pid stays."""
    return ("ip", "netns", "exec", space, *argv)


# -- Members -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec:
    """The settings with which one incarnation of a member is started."""

    name: str
    address: str
    folder: Path
    """The member's current directory, with its journal, log and control socket."""
    initial_hosts: tuple[str, ...] = ()
    """Addresses of all members; empty: the stack discovers them itself."""


CONTROL: Final = "control.sock"
"""Relative to the member's folder: the path of a unix socket may have no more than 107 bytes."""
CONFIG: Final = "member.yaml"
"""The file with a member's settings, in its folder."""
JOURNAL: Final = "journal"
"""The folder of a member's journals, in its own folder."""
PORT: Final = 7800


def where(address: str) -> str:
    """Return an address in the form of the setting `initial_hosts`."""
    return f"{address}[{PORT}]"


def member_argv(python: str, spec: MemberSpec) -> tuple[str, ...]:
    """Return the words that start a member whose settings are in the file `CONFIG`."""
    words = {
        "--config": CONFIG,
        "--name": spec.name,
        "--bind-addr": spec.address,
        "--port": str(PORT),
        "--journal": str(spec.folder / JOURNAL),
        "--control": f"unix:{CONTROL}",
    }
    if spec.initial_hosts:
        words["--initial-hosts"] = ",".join(spec.initial_hosts)
    return (python, "-m", "stormcast", "node", *(word for pair in words.items() for word in pair))


def small_disk(run: RunId, folder: Path, size: int) -> Command:
    """Return the command that mounts a small file system at a folder. Its source is the run's name,
    by which `leftovers` recognizes it."""
    return Command(("mount", "-t", "tmpfs", "-o", f"size={size}", str(run), str(folder)))


def remove_disk(folder: Path) -> Command:
    """Return the command that unmounts a folder of `small_disk`; open files stay readable."""
    return Command(("umount", "--lazy", str(folder)))
