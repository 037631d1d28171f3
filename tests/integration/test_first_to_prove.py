"""Two groups of one on loopback, and a stranger who proves the address of the other one first."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from xxhash import xxh3_64_intdigest

from stormcast.node.channel import Channel, ChannelConfig
from stormcast.node.core import wire
from stormcast.node.core.codec import Codec
from stormcast.node.core.model import Address
from stormcast.node.core.packing import Writer
from stormcast.node.settings import load_settings
from tests.helpers.station import on_a_loop, until

ROOT = Path(__file__).parents[2]
CLUSTER = "first-to-prove"
NOBODY = "127.0.0.1[9]"
LOW, HIGH = 1 << 120, 3 << 120
"""Identities: the lower one leads the merge."""
TWIN = 1 << 100


def udp_socket() -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.bind(("127.0.0.1", 0))
    return opened


def free_port() -> int:
    with udp_socket() as probe:
        port: int = probe.getsockname()[1]
        return port


class Fellow:
    """A member that finds others by a list alone."""

    def __init__(self, folder: Path, name: str, hosts: str) -> None:
        stack = yaml.safe_load((ROOT / "node/stacks/udp.yaml").read_text())
        stack["protocols"] = [
            {"STATIC": {}} if "PING" in one else one for one in stack["protocols"]
        ]
        path = folder / "stack.yaml"
        path.write_text(yaml.safe_dump(stack))
        self.port = free_port()
        protocols: dict[str, dict[str, Any]] = {
            "UDP": {"bind_addr": "127.0.0.1", "bind_port": self.port, "ip_mcast": "never"},
            "STATIC": {"initial_hosts": hosts, "port_range": 0},
            "GMS": {"join_timeout": "200ms", "max_join_attempts": 1},
        }
        settings = load_settings(str(path), "fast", protocols=protocols)
        self.channel = Channel(ChannelConfig(settings=settings, cluster=CLUSTER, name=name))


async def proves_to(member: Channel, port: int, identity: int) -> None:
    """A stranger proves that this identity is where it is itself, and is told the view."""
    loop = asyncio.get_running_loop()
    with udp_socket() as mouth:
        mouth.setblocking(False)
        me = Address(identity, "x", f"127.0.0.1[{mouth.getsockname()[1]}]")
        codec = Codec(xxh3_64_intdigest(CLUSTER.encode()) & 0xFFFFFFFF, me.short, xxh3_64_intdigest)
        cookie, kinds = 0, []
        for _question in range(2):
            dest, body = member.address.short, Writer().address(me).bytes()
            asked = codec.pack_control(
                wire.VIEW_REQ, wire.MERGE3, dest, 0, 1, mark=cookie, body=body
            )
            await loop.sock_sendto(mouth, asked, ("127.0.0.1", port))
            answer = await asyncio.wait_for(loop.sock_recv(mouth, 4096), 5.0)
            head = wire.Head._make(wire.HEAD_STRUCT.unpack_from(answer))
            kinds.append(head.kind)
            cookie = head.mark
    assert kinds == [wire.COOKIE, wire.VIEW_RSP]


@pytest.mark.slow
@pytest.mark.parametrize("identity", [HIGH | 5, HIGH | TWIN | 5], ids=["same", "twin"])
@on_a_loop
async def test_two_groups_merge_though_a_stranger_was_the_first_to_prove_a_short_id(
    identity: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two frames kept them apart for good. The stranger may have the very identity of the other
    one, which everybody hears."""
    drawn = iter([HIGH | 5, LOW | 7])
    monkeypatch.setattr("stormcast.node.runtime.randbits", lambda _bits: next(drawn))
    a = Fellow(tmp_path, "a", NOBODY)
    b = Fellow(tmp_path, "b", f"127.0.0.1[{a.port}]")
    async with b.channel:
        await until(lambda: b.channel.view is not None, "a view")
        async with a.channel:
            await until(lambda: a.channel.view is not None, "a view")
            began = time.monotonic()
            await proves_to(a.channel, a.port, identity)
            for one in (a, b):
                await until(lambda one=one: len(one.channel.view.members) == 2, "one group", 20.0)
            print(f"merged after {time.monotonic() - began:.2f} s")
