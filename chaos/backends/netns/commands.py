"""The commands that make, change and remove the network of a run, and that start its members.

Pure functions from names to words: what is run can be read and tested without root.
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
    RunId,
    address4,
    address6,
    link_address,
)

DEVICE: Final = "eth0"
"""What a member's link is called in its own namespace, where only it can see it."""
ROOM: Final = 9000
"""The MTU of the bridge: the largest that a link may be set to."""


class Command(NamedTuple):
    """A program with its words, and what it reads."""

    argv: tuple[str, ...]
    stdin: str = ""


def port(index: int) -> str:
    """The bridge's end of a member's link."""
    return f"m{index}"


def batch(lines: Iterable[str], namespace: str | None = None) -> Command:
    """Many `ip` commands in one process, all in one namespace."""
    where = ("-n", namespace) if namespace else ()
    return Command(("ip", *where, "-batch", "-"), "".join(f"{line}\n" for line in lines))


def make_network(run: RunId, names: Sequence[str]) -> list[Command]:
    """Namespaces, a bridge, and a link with addresses to each member."""
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
        # The far end is made where it belongs: no name is ever used outside our namespaces.
        lines += [
            f"link add {port(index)} type veth peer name {DEVICE} netns {space}",
            f"link set {port(index)} addrgenmode none master br0 up",
        ]
    return [*lines, "link set br0 up"]


def _link(index: int, members: int) -> list[str]:
    # A kernel remembers no more than some thousand neighbours, of all namespaces together, and
    # drops what goes to any other. Those that it was told of for ever do not count.
    neighbours = [
        f"neigh add {address} lladdr {link_address(other)} dev {DEVICE} nud permanent"
        for other in range(members)
        if other != index
        for address in (address4(other), address6(other))
    ]
    return [
        "link set lo up",
        # No link-local address: whoever binds to an interface finds the one that we gave it.
        f"link set {DEVICE} addrgenmode none address {link_address(index)}",
        f"addr add {address4(index)}/{PREFIX4} dev {DEVICE}",
        # Nobody else can have it: asking first would keep it from being used for two seconds.
        f"addr add {address6(index)}/{PREFIX6} dev {DEVICE} nodad",
        f"link set {DEVICE} up",
        *neighbours,
    ]


def remove_namespaces(spaces: Iterable[str]) -> Command:
    """Remove namespaces, and go on where one is gone already."""
    made = batch(f"netns del {space}" for space in spaces)
    return Command(("ip", "-force", *made.argv[1:]), made.stdin)


def set_mtu(run: RunId, name: str, index: int, size: int) -> list[Command]:
    """Both ends of a member's link: neither side sends, nor takes, anything larger."""
    return [
        batch([f"link set {DEVICE} mtu {size}"], run.namespace(name)),
        batch([f"link set {port(index)} mtu {size}"], run.namespace(BRIDGE)),
    ]


def inside(space: str, argv: Sequence[str]) -> tuple[str, ...]:
    """A program in a namespace. It takes the place of `ip`: same pid."""
    return ("ip", "netns", "exec", space, *argv)


def bound_to_me(argv: Sequence[str]) -> tuple[str, ...]:
    """A program that the kernel kills, even when it is stopped, as soon as we are gone."""
    return ("setpriv", "--pdeathsig", "KILL", *argv)


# -- Members -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec:
    """How one incarnation of a member is started."""

    name: str
    address: str
    folder: Path
    """Its journal, its log and its control socket are in there; it is its current directory."""
    initial_hosts: tuple[str, ...] = ()
    """Empty: the stack finds its members itself."""


CONTROL: Final = "control.sock"
"""Relative to the member's folder: the path of a unix socket may have no more than 107 bytes."""
CONFIG: Final = "member.yaml"
"""What a member is set to, in its folder."""
JOURNAL: Final = "journal"
"""In the member's folder."""
PORT: Final = 7800


def where(address: str) -> str:
    """An address as the setting `initial_hosts` has it."""
    return f"{address}[{PORT}]"


def member_argv(python: str, spec: MemberSpec) -> tuple[str, ...]:
    """The words that start a member whose settings are in a file of its folder."""
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
    """A file system of its own, which is soon full. Named so that it is known for ours."""
    return Command(("mount", "-t", "tmpfs", "-o", f"size={size}", str(run), str(folder)))


def remove_disk(folder: Path) -> Command:
    """Remove what `small_disk` made; whoever still reads it keeps it until then."""
    return Command(("umount", "--lazy", str(folder)))
