"""Other networks than the usual one: IPv6, and paths that take only small packets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from stormcast.chaos.backends.netns.commands import MemberSpec, member_argv, where
from stormcast.chaos.backends.netns.names import address4, address6
from stormcast.chaos.plugin.live_cluster import Chaos, Clusters, LiveCluster
from tests.helpers.live import AS_SHIPPED, ENDLESS, netns, talk

pytestmark = [pytest.mark.root, pytest.mark.slow]

OLD = ("n0", "n1")


def over_ipv6(python: str, spec: MemberSpec) -> tuple[str, ...]:
    """The words that start a member at the other address of its namespace."""
    places = {address4(index): address6(index) for index in range(3)}
    hosts = tuple(where(places[host.partition("[")[0]]) for host in spec.initial_hosts)
    return member_argv(python, replace(spec, address=places[spec.address], initial_hosts=hosts))


@pytest.mark.parametrize("stack", ["udp", "tcp-nio2"])
def test_a_group_lives_on_ipv6(stack: str, cluster: Clusters, chaos: Chaos) -> None:
    protocols = AS_SHIPPED.get(stack, {})
    group = cluster(3, stack=stack, backend=netns(over_ipv6), protocols=protocols)
    assert all(group.state(name)["where"].startswith("fd00:5c::") for name in group.members)
    talk(group)
    group.wait_for_traffic()
    with chaos.kill("n1"):
        group.wait_for_view("n0", "n2")
    group.wait_for_view()
    group.wait_for_traffic()
    group.stop()
    group.finish()


def burden(group: LiveCluster, sources: Sequence[str], dests: Sequence[str] | str) -> None:
    """Large messages to the group, and many at once to some."""
    group.multicast(ENDLESS, sources, rate="20/s", size="1KiB..100KiB")
    group.unicast(ENDLESS, sources, dests, rate="200/s", size="1400B", burst=50)


@pytest.mark.parametrize(
    ("stack", "protocols"),
    [
        ("udp", AS_SHIPPED["udp"]),
        pytest.param(
            "udp",
            {"UDP": {**AS_SHIPPED["udp"]["UDP"], "frames": "large"}},
            marks=pytest.mark.long,
        ),
        ("tcp", {}),
    ],
    ids=["udp-fitting-frames", "udp-large-datagrams", "tcp"],
)
def test_large_messages_cross_a_path_that_becomes_narrow(
    stack: str, protocols: dict[str, dict[str, object]], cluster: Clusters, chaos: Chaos
) -> None:
    """Members that found packets of 1500 bytes go on where only 1400 pass; a late one begins so."""
    backend = netns()
    group = cluster(3, stack=stack, protocols=protocols, late=["n2"], backend=backend)
    burden(group, OLD, "others")
    group.wait_for_traffic(*OLD)
    backend.opened.network.set_mtu(1400)
    group.wait_for_traffic(*OLD)
    chaos.join("n2")
    group.wait_for_view()
    burden(group, ["n2"], OLD)
    group.unicast(ENDLESS, OLD, "n2", rate="200/s", size="1400B", burst=50)
    group.wait_for_traffic()
    group.stop()
    group.finish()
