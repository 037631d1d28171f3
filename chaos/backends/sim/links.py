"""Connections, of which an operating system tells a process that they opened or ended.

A monitored connection is silent while it is up, and ends with the process at its other end. The
news of its end must travel: a cut network holds this news back until the network is healed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stormcast.chaos.backends.sim.engine import Engine, Host
    from stormcast.chaos.backends.sim.network import Network


class Notices:
    """News from one member's host to another's: delayed by the path, kept while it is cut."""

    def __init__(self, engine: Engine, network: Network) -> None:
        self._engine = engine
        self._network = network
        self._kept: list[tuple[str, str, Callable[[], None]]] = []

    def send(self, source: str, dest: str, action: Callable[[], None]) -> None:
        """Call `action` after the delay of the path; while the path is cut, `retry` does."""
        now = self._engine.now
        if source == dest:
            self._engine.call(now, action)
            return
        path = self._network.path(source, dest)
        if path.blocked_by:
            self._kept.append((source, dest, action))
        else:
            self._engine.call(now + path.delay, action)

    def retry(self) -> None:
        """Send all kept news again, because the network changed."""
        kept, self._kept = self._kept, []
        for source, dest, action in kept:
            self.send(source, dest, action)


class Links:
    """The monitored connections of a run."""

    def __init__(self, engine: Engine, network: Network, notices: Notices) -> None:
        self._engine = engine
        self._network = network
        self._notices = notices
        self._wanted: dict[tuple[int, int], int] = {}
        """By monitor and peer: the number of the latest request for the connection."""
        self._watchers: dict[int, dict[int, None]] = {}
        """By peer: the monitors whose connection to it is up."""
        self._requests = 0

    def change(self, host: Host, links: Iterable[tuple[int, bool]]) -> None:
        """Open or close connections of a host, as its stack asks: pairs (peer, is wanted)."""
        for peer, is_wanted in links:
            if is_wanted:
                self._open(host, peer)
            else:
                self._close(host.short, peer)

    def end_process(self, host: Host) -> None:
        """End the connections of a process that has ended, and send the news to its monitors."""
        for key in [key for key in self._wanted if key[0] == host.short]:
            self._close(*key)
        for monitor in self._watchers.pop(host.short, {}):
            del self._wanted[monitor, host.short]
            watcher = self._engine.hosts[monitor]
            down = partial(self._tell, watcher, host.short, is_up=False)
            self._notices.send(host.name, watcher.name, down)

    def _close(self, monitor: int, peer: int) -> None:
        self._wanted.pop((monitor, peer), None)
        self._watchers.get(peer, {}).pop(monitor, None)

    def _open(self, host: Host, peer: int) -> None:
        """Request a connection; a peer that is paused or cannot be reached gives no answer."""
        self._requests += 1
        self._wanted[host.short, peer] = self._requests
        target = self._engine.hosts.get(peer)
        if target is None or (target.is_alive and target.is_paused):
            return
        round_trip = 0.0
        if target.name != host.name:
            there = self._network.path(host.name, target.name)
            back = self._network.path(target.name, host.name)
            if there.blocked_by or back.blocked_by:
                return
            round_trip = there.delay + back.delay
        answer = partial(self._answer, host, target, self._requests)
        self._engine.call(self._engine.now + round_trip, answer)

    def _answer(self, host: Host, target: Host, request: int) -> None:
        key = host.short, target.short
        if self._wanted.get(key) != request:
            return
        if target.is_alive:
            self._watchers.setdefault(target.short, {})[host.short] = None
        else:
            del self._wanted[key]
        self._tell(host, target.short, is_up=target.is_alive)

    def _tell(self, host: Host, peer: int, *, is_up: bool) -> None:
        engine = self._engine
        engine.tell(host, lambda: host.stack.on_link(peer, is_up, engine.now))


class LostConnections:
    """Tells both ends of a connection of the transport that it is lost."""

    def __init__(self, engine: Engine, notices: Notices) -> None:
        self._engine = engine
        self._notices = notices

    def give_up(self, source: int, dest: int) -> None:
        """Tell both ends that the source's kernel gave their connection up: the peer as soon as the
        news can pass."""
        here, there = self._engine.hosts.get(source), self._engine.hosts.get(dest)
        if here is None or there is None:
            return
        self._tell(here, dest)
        self._notices.send(here.name, there.name, partial(self._tell, there, source))

    def end_process(self, host: Host, peers: Iterable[int]) -> None:
        """Tell the peers of a process that has ended, as soon as the news can pass."""
        for peer in peers:
            other = self._engine.hosts.get(peer)
            if other is not None and other.is_alive:
                self._notices.send(host.name, other.name, partial(self._tell, other, host.short))

    def _tell(self, host: Host, peer: int) -> None:
        engine = self._engine
        engine.tell(host, lambda: host.stack.on_connection_lost(peer, engine.now))
