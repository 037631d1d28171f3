"""Two groups of real members that were never one: each member proves to each other where it is."""

from __future__ import annotations

import pytest

from stormcast.chaos.plugin.live_cluster import Chaos, Clusters
from tests.helpers.live import AS_SHIPPED, netns

pytestmark = [pytest.mark.root, pytest.mark.slow]
NAMES = ("n0", "n1", "n2", "n3")


@pytest.mark.parametrize("stack", ["udp", "tcp-no-retransmit"])
def test_they_are_one_soon_after_they_hear_each_other(
    stack: str, cluster: Clusters, chaos: Chaos
) -> None:
    here, there = NAMES[:2], NAMES[2:]
    group = cluster(
        NAMES, stack=stack, late=there, backend=netns(), protocols=AS_SHIPPED.get(stack, {})
    )
    group.wait_for_view(*here)
    with chaos.partition(here, there):
        for name in there:
            chaos.join(name)
        group.wait_for_view(*there, within=60.0)
    group.wait_for_view(*NAMES, within=20.0)
    group.multicast(50, NAMES, rate="100/s")
    group.wait_for_traffic(*NAMES)
    group.stop()
    group.finish()
