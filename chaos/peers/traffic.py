"""What members put on the wire, as the kernel counts it at their devices: the same for anybody's
members."""

from __future__ import annotations

import json
from dataclasses import dataclass

from stormcast.chaos.backends.netns.backend import NetnsBackend
from stormcast.chaos.backends.netns.commands import DEVICE
from stormcast.chaos.backends.netns.network import Network


@dataclass(frozen=True, slots=True)
class Traffic:
    """Packets and bytes that all members sent, headers of Ethernet included; a multicast counts
    once, and what the kernel was to cut into segments is one packet."""

    packets: int = 0
    bytes: int = 0


def traffic_of(network: Network) -> Traffic:
    """Return what the members of a network have sent since it was made."""
    packets = size = 0
    for name in network.names:
        shown = network.execute(name, ("ip", "-s", "-j", "link", "show", "dev", DEVICE))
        sent = json.loads(shown)[0]["stats64"]["tx"]
        packets += int(sent["packets"])
        size += int(sent["bytes"])
    return Traffic(packets, size)


class CountedBackend(NetnsBackend):
    """Members in namespaces, whose traffic is counted up to the end of the run."""

    traffic: Traffic = Traffic()

    def freeze(self) -> None:
        """Stop all members at one moment, and count what they sent."""
        super().freeze()
        self.traffic = traffic_of(self.opened.network)
