"""A member that is killed and comes back is somebody new: nobody mixes up the two (G2, G7)."""

from __future__ import annotations

import pytest

from stormcast.chaos.plugin.live_cluster import Chaos, Clusters
from tests.scenarios.stories import every_generation, every_stack

pytestmark = pytest.mark.slow


@every_generation
def test_old_traffic_does_not_reach_the_new_incarnation(
    cluster: Clusters, chaos: Chaos, unicast: str
) -> None:
    group = cluster(members=3, stack="unicast-only", unicast=unicast)
    before = group.state("n1")["identity"]
    group.unicast(count=300, rate="100/s")
    group.wait(1)
    with chaos.kill("n1"):
        group.wait(1)
    group.wait_until_ready()
    # What was sent to the old one is gone with it; this is for the new one.
    group.unicast(source=["n0", "n2"], dest="n1", count=50)
    group.wait_for(50, "n0", "n1")
    group.wait_for(50, "n2", "n1")
    assert group.state("n1")["identity"] != before
    group.finish()


@every_stack
def test_the_group_goes_on_without_its_coordinator_and_takes_it_back(
    cluster: Clusters, chaos: Chaos, stack: str
) -> None:
    group = cluster(members=3, stack=stack)
    group.multicast(count=500, rate="50/s")
    group.wait(1)
    first = group.coordinator()
    others = [name for name in group.members if name != first]
    with chaos.kill(first):
        group.wait_for_view(*others)
        assert group.coordinator() != first
    group.wait_for_view()
    assert group.coordinator() != first
    group.finish()
