"""Puts a host's frames on the paths of the network: to each receiver of a frame one path."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stormcast.chaos.backends.sim.engine import Engine, Host
from stormcast.chaos.backends.sim.members import SimMember
from stormcast.chaos.backends.sim.network import Network
from stormcast.node.core import wire


class FrameSender:
    """Sends datagrams, and counts control frames."""

    def __init__(self, members: Mapping[str, SimMember]) -> None:
        self._members = members
        """The newest incarnation of each member."""
        self._control: dict[int, dict[bytes, int]] = {}
        """Sent frames of hosts with a group, by the sender's short id, then kind and protocol."""

    def connect(self, engine: Engine, network: Network) -> None:
        """Set the engine and network: after `__init__`, since both are made with this sender."""
        self._engine = engine
        self._network = network

    def send(self, host: Host, dest: int, frame: bytes) -> None:
        """Send a frame of a host to `dest`: a short id, or 0 or less for multicast."""
        if host.is_grouped:
            self._count_control(host, frame)
        path = host.routes.get(dest)
        if path is None:
            if dest <= 0:
                self._send_to_group(host, frame)
                return
            other = self._engine.hosts.get(dest)
            if other is None or other.name == host.name:
                return
            path = host.routes[dest] = self._network.path(host.name, other.name)
        self._network.send(path, dest, frame, self._engine.now)

    def _send_to_group(self, host: Host, frame: bytes) -> None:
        """Send a multicast datagram to the newest incarnation of every other member, each over its
        own path."""
        group = host.group
        if group is None:
            group = host.group = [
                (self._network.path(host.name, other.name), other.short)
                for other in self._newest()
                if other.is_alive and other.name != host.name
            ]
        engine = self._engine
        self._network.send_to_each(group, frame, engine.now, engine.arrive_at_each)

    def _newest(self) -> list[Host]:
        return [member.host for member in self._members.values()]

    def control_totals(self, of: Callable[[list[int]], int]) -> dict[str, int]:
        """Return control frames by protocol and kind: `of` joins the counts of all incarnations."""
        counts: dict[bytes, list[int]] = {}
        for sent in self._control.values():
            for key, number in sent.items():
                if key[0] != wire.DATA:
                    counts.setdefault(key, []).append(number)
        return {
            f"{wire.PROTOCOLS[key[1]]}/{wire.KINDS[key[0]][0]}": of(numbers)
            for key, numbers in sorted(counts.items())
        }

    def _count_control(self, host: Host, frame: bytes, sent: int = 1) -> None:
        counts = self._control.get(host.short)
        if counts is None:
            counts = self._control[host.short] = {}
        what = frame[wire.KIND_AND_PROTOCOL]
        counts[what] = counts.get(what, 0) + sent


class StreamSender(FrameSender):
    """Sends over connections."""

    def send(self, host: Host, dest: int, frame: bytes) -> None:
        """Send a frame to `dest`; a frame for a group goes to each member over its connection."""
        dests: tuple[int, ...] = (dest,)
        if dest == wire.GROUP:
            dests = host.stack.destinations()
        elif dest < 0:
            dests = tuple(other.short for other in self._newest() if other is not host)
        hosts, now = self._engine.hosts, self._engine.now
        network, name, routes = self._network, host.name, host.routes
        sent = 0
        for short in dests:
            other = hosts.get(short)
            # A connection to a process that has ended is refused, so no frame is sent.
            if other is not None and other.is_alive and other.name != name:
                path = routes.get(short)
                if path is None:
                    path = routes[short] = network.path(name, other.name)
                network.send(path, short, frame, now)
                sent += 1
        if sent and host.is_grouped:
            self._count_control(host, frame, sent)
