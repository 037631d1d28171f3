"""A network namespace for one bench run: without other traffic, and with losses of its own.

Its name says which process owns it, and when that began, so that a namespace that a killed run left
behind is known from one that another run is using.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from bench.errors import BenchError
from bench.owned import is_orphan, own_name, start_of

Argv = list[str]
Run = Callable[[Argv], str]

TABLE: Final = "stormcast_bench"
DICE: Final = 100_000
"""Faces of the die that decides whether a datagram is lost."""
ALL_MULTICAST: Final = "224.0.0.0/4"


def setup_commands(name: str) -> list[Argv]:
    """Return the commands that make a namespace in which members can multicast on loopback."""
    return [
        ["ip", "netns", "add", name],
        ["ip", "-n", name, "link", "set", "lo", "up", "multicast", "on"],
        ["ip", "-n", name, "route", "replace", ALL_MULTICAST, "dev", "lo"],
    ]


def loss_commands(name: str, loss: float) -> list[Argv]:
    """Return the commands that drop a share of the datagrams that arrive on loopback.

    A hook on input sees a datagram after reassembly: whatever its size, it is lost as a whole.
    """
    inside = within(name)
    faces = round(loss * DICE)
    return [
        [*inside, "nft", "add", "table", "inet", TABLE],
        [*inside, "nft", "add", "chain", "inet", TABLE, "input",
         "{ type filter hook input priority 0 ; }"],
        [*inside, "nft", "add", "rule", "inet", TABLE, "input", "iifname", "lo",
         "meta", "l4proto", "udp", "numgen", "random", "mod", str(DICE), "<", str(faces),
         "counter", "drop"],
    ]  # fmt: skip  # one command


def delay_commands(name: str, delay: float) -> list[Argv]:
    """Return the commands that delay everything on loopback; they need a kernel with netem."""
    # The default queue of netem is a thousand packets: a full window would overrun it.
    words = ["netem", "delay", f"{delay * 1e3:.3f}ms", "limit", "100000"]
    return [["tc", "-n", name, "qdisc", "replace", "dev", "lo", "root", *words]]


def within(name: str | None) -> Argv:
    """Return the words that start a command inside a namespace; none without a namespace."""
    return ["ip", "netns", "exec", name] if name else []


def run(argv: Argv) -> str:
    """Run a command; return what it printed, or raise BenchError with its own words."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)  # noqa: S603 argv
    except FileNotFoundError:
        raise BenchError(f"no command {argv[0]}: install iproute2 and nftables") from None
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip()
        raise BenchError(f"{' '.join(argv)}: {said or f'exit code {done.returncode}'}")
    return done.stdout


class Namespace:
    """The network of one run: a namespace where this user may make one, else plain loopback."""

    def __init__(self, run: Run = run, *, is_root: bool | None = None) -> None:
        self._run = run
        self.is_root = os.geteuid() == 0 if is_root is None else is_root
        self.name: str | None = None

    def __enter__(self) -> Namespace:
        if not self.is_root:
            print("not root: plain loopback, and no loss", file=sys.stderr)
            return self
        remove_leftovers(self._run)
        name = own_name(os.getpid())
        self.name = name
        try:
            for argv in setup_commands(name):
                self._run(argv)
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Undo everything; safe to call twice."""
        name, self.name = self.name, None
        if name is not None:
            with suppress(BenchError):
                self._run(["ip", "netns", "delete", name])

    def lose(self, loss: float) -> None:
        """Drop a share of all datagrams from now on."""
        if not loss:
            return
        if self.name is None:
            raise BenchError("--loss needs root, for a network namespace of its own")
        for argv in loss_commands(self.name, loss):
            self._run(argv)

    def can_delay(self) -> bool:
        """Whether this kernel has netem."""
        if self.name is None:
            return False
        try:
            for argv in delay_commands(self.name, 0.0):
                self._run(argv)
        except BenchError:
            return False
        self._run(["tc", "-n", self.name, "qdisc", "del", "dev", "lo", "root"])
        return True

    def delay(self, delay: float) -> None:
        """Delay everything that arrives from now on."""
        assert self.name is not None, "can_delay said so"
        for argv in delay_commands(self.name, delay):
            self._run(argv)

    def words(self) -> Argv:
        """Return the words that start a command inside this namespace."""
        return within(self.name)


def leftovers(listing: str, start_of: Callable[[int], int | None] = start_of) -> list[str]:
    """Return those namespaces in the output of `ip netns list` that are ours, and without owner."""
    names = [line.split(" ")[0] for line in listing.splitlines() if line]
    return [name for name in names if is_orphan(name, start_of)]


def remove_leftovers(run: Run = run) -> Sequence[str]:
    """Remove the namespaces that killed runs left behind, with the processes in them; return their
    names."""
    gone = leftovers(run(["ip", "netns", "list"]))
    for name in gone:
        for pid in run(["ip", "netns", "pids", name]).split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        run(["ip", "netns", "delete", name])
    return gone
