"""Settings of the transports: at the limit, and just past it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from stormcast.node.core.errors import ConfigError
from stormcast.node.settings.transports import (
    TRANSPORTS,
    Nio2Config,
    TcpConfig,
    TransportConfig,
    UdpConfig,
)

LARGEST = 64 + (1 << 24)
PAIRS: list[tuple[type[TransportConfig], str, Any, Any, str]] = [
    (TransportConfig, "bind_port", 65535, 65536, "bind_port is 65536: it must be 0..65535"),
    (TransportConfig, "bind_port", 0, -1, "bind_port is -1: it must be 0..65535"),
    (TransportConfig, "external_port", 65535, 65536, "external_port is 65536"),
    (TransportConfig, "port_range", 0, -1, "port_range is -1: it must not be negative"),
    (TransportConfig, "queue_frames", 1, 0, "queue_frames is 0: it must be positive"),
    (TransportConfig, "queue_bytes", 1, 0, "queue_bytes is 0: it must be positive"),
    (TransportConfig, "receive_queue", 0, -1, "receive_queue is -1"),
    (TransportConfig, "send_buffer", 0, -1, "send_buffer is -1"),
    (TransportConfig, "send_buffer", 1 << 30, (1 << 30) + 1, "it must be 0..1073741824"),
    (TransportConfig, "receive_buffer", 1 << 30, (1 << 30) + 1, "it must be 0..1073741824"),
    (TransportConfig, "external_addr", "203.0.113.7", "host.example", "write the address as a"),
    (TransportConfig, "external_addr", "2a00::1", "2a00::1[7800]", "write the address as a"),
    (TransportConfig, "external_addr", "", "203.0.113", "others look up no names"),
    (TransportConfig, "bundler", "no-bundler", "none", "choose one of transfer-queue, no-bundler"),
    (UdpConfig, "ip_mcast", "never", "off", "choose one of auto, always, never"),
    (UdpConfig, "frames", "mtu", "small", "choose one of auto, large, mtu"),
    (UdpConfig, "offload", "never", "always", "choose one of auto, never"),
    (UdpConfig, "mcast_port", 1, 0, "mcast_port is 0: it must be 1..65535"),
    (UdpConfig, "mcast_port", 65535, 65536, "mcast_port is 65536"),
    (UdpConfig, "ip_ttl", 0, -1, "ip_ttl is -1: it must be 0..255"),
    (UdpConfig, "ip_ttl", 255, 256, "ip_ttl is 256"),
    (UdpConfig, "mcast_addr", "224.0.0.1", "223.255.255.255", "write a multicast address such as"),
    (UdpConfig, "mcast_addr", "239.255.255.255", "240.0.0.0", "write a multicast address"),
    (UdpConfig, "mcast_addr", "ff0e::1", "fe80::1", "write a multicast address"),
    (UdpConfig, "mcast_addr", "", "all-hosts.example", "write a multicast address"),
    (TcpConfig, "sock_conn_timeout", 0.001, 0, "sock_conn_timeout is 0: it must be positive"),
    (TcpConfig, "peer_addr_read_timeout", 0.001, 0, "peer_addr_read_timeout is 0"),
    (TcpConfig, "reconnect_interval", 1.0, 1.001, "must not be above reconnect_max_interval (1)"),
    (TcpConfig, "reconnect_interval", 0.001, 0, "reconnect_interval is 0"),
    (TcpConfig, "user_timeout", 32767, 32768, "user_timeout is 32768: it must not be above 32767"),
    (TcpConfig, "linger", -1, -2, "linger is -2: it must be -1..32767"),
    (TcpConfig, "linger", 32767, 32768, "linger is 32768"),
    (TcpConfig, "max_length", 65536, 65535, f"max_length is 65535: it must be 65536..{LARGEST}"),
    (TcpConfig, "max_length", LARGEST, LARGEST + 1, f"max_length is {LARGEST + 1}"),
    (TcpConfig, "conn_expire_time", 0.0, -0.1, "conn_expire_time is -0.1"),
    (Nio2Config, "max_send_buffers", 0, -1, "max_send_buffers is -1: it must not be negative"),
]


@pytest.mark.parametrize(
    ("kind", "name", "good", "bad", "said"), PAIRS, ids=lambda value: str(value)[:24]
)
def test_a_setting_holds_at_its_limit_and_is_refused_past_it(
    kind: type[TransportConfig],
    name: str,
    good: object,
    bad: object,
    said: str,
) -> None:
    kinds = [kind, *(one for one in TRANSPORTS.values() if issubclass(one, kind))]
    for one in kinds:
        assert getattr(one(**{name: good}), name) == good
        with pytest.raises(ConfigError, match=re.escape(said)) as refused:
            one(**{name: bad})
        # What it is called, and what it was set to.
        assert str(refused.value).startswith(f"{name} is {bad!r}" if isinstance(bad, str) else name)


def test_the_largest_frame_is_what_arrives_at_the_other_end() -> None:
    assert TransportConfig().largest_frame == LARGEST
    assert UdpConfig().largest_frame == 65507
    assert TcpConfig().largest_frame == 1 << 20
    assert Nio2Config(max_length=100_000).largest_frame == 100_000
