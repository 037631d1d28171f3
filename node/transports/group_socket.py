"""The multicast group: its address, and the socket that hears it."""

from __future__ import annotations

import socket
import struct
from typing import Final

from stormcast.node.settings.transports import UdpConfig
from stormcast.node.transports import bpf
from stormcast.node.transports.binding import set_receive_buffer
from stormcast.node.transports.datagram_sockets import datagram_socket
from stormcast.node.transports.interfaces import Interface, SocketAddress

IP_MULTICAST_ALL: Final = 49
IPV6_MULTICAST_ALL: Final = 29
GROUPS: Final = {socket.AF_INET: "239.8.8.8", socket.AF_INET6: "ff0e::8:8:8"}


def group_name(config: UdpConfig, interface: Interface) -> str:
    """Return the group's address."""
    return config.mcast_addr or GROUPS[interface.family]


class GroupSocket:
    """Hears the group on the interface that is bound, and sets up the sender to multicast there."""

    def __init__(self, config: UdpConfig, interface: Interface, sender: socket.socket) -> None:
        """Join the group; OSError if that fails."""
        self._config = config
        self._interface = interface
        name = group_name(config, interface)
        scope = (0, interface.number) if interface.is_ipv6 else ()
        self.at: SocketAddress = (name, config.mcast_port, *scope)
        self.filters_own = False
        """Whether own multicasts are dropped in the kernel."""
        self.trouble = ""
        """The reason why nothing can be sent to the group, and the remedy; empty: it can."""
        self.socket = datagram_socket(interface)
        try:
            # Several members of one host share the port.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind(self.at)
            self._join(sender, socket.inet_pton(interface.family, name))
        except OSError:
            self.socket.close()
            raise
        set_receive_buffer(self.socket, config.receive_buffer)
        if interface.is_ipv6:
            self.trouble = self._refusal()

    def _refusal(self) -> str:
        """Return why the kernel has no way to the group. Of IPv6 it wants a route, and a loopback
        interface has none by itself; datagrams would vanish without a word."""
        device = self._interface.name
        with datagram_socket(self._interface) as probe:
            try:
                # Without it a way through any other interface would do.
                probe.setsockopt(
                    socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, self._interface.number
                )
                probe.connect(self.at)
            except OSError as error:
                why = (error.strerror or str(error)).lower()
                return (
                    f"multicast {self.at[0]}[{self.at[1]}] on {device}: {why}; add a route "
                    f"(ip -6 route add ff00::/8 dev {device} table local)"
                )
        return ""

    def _join(self, sends: socket.socket, group: bytes) -> None:
        hears, index, ttl = self.socket, self._interface.number, self._config.ip_ttl
        if self._interface.is_ipv6:
            level = socket.IPPROTO_IPV6
            hears.setsockopt(level, socket.IPV6_JOIN_GROUP, group + struct.pack("@I", index))
            hears.setsockopt(level, IPV6_MULTICAST_ALL, 0)
            sends.setsockopt(level, socket.IPV6_MULTICAST_IF, index)
            sends.setsockopt(level, socket.IPV6_MULTICAST_HOPS, ttl)
            sends.setsockopt(level, socket.IPV6_MULTICAST_LOOP, 1)
        else:
            level = socket.IPPROTO_IP
            request = group + socket.inet_aton(self._interface.address) + struct.pack("@I", index)
            hears.setsockopt(level, socket.IP_ADD_MEMBERSHIP, request)
            hears.setsockopt(level, IP_MULTICAST_ALL, 0)
            sends.setsockopt(level, socket.IP_MULTICAST_IF, request)
            sends.setsockopt(level, socket.IP_MULTICAST_TTL, ttl)
            sends.setsockopt(level, socket.IP_MULTICAST_LOOP, 1)

    def filter_own(self, short: int) -> None:
        """Have the kernel drop this member's own multicasts."""
        try:
            bpf.attach(self.socket, bpf.reject_source(short))
        except OSError:
            # Without a filter each own multicast is read, and thrown away then.
            return
        self.filters_own = True

    def describe(self) -> str:
        """Return a line about the group, and how it is used."""
        config, device = self._config, self._interface.name
        if self.trouble:
            return f"{self.trouble}; until then each frame for the group goes to every member"
        return (
            f"multicast {self.at[0]}[{self.at[1]}] on {device}, "
            f"ttl {config.ip_ttl}; own copies "
            + ("filtered in the kernel" if self.filters_own else "thrown away here")
            + ("" if config.ip_mcast == "always" else "; used once all members hear it")
        )
