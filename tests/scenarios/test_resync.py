"""After a partition that only one side saw, connections find each other again, and soon (G8)."""

from __future__ import annotations

import pytest

from stormcast.chaos.plugin.live_cluster import Chaos, Clusters, LiveCluster
from tests.scenarios.stories import every_generation, every_stack

pytestmark = pytest.mark.slow


def resync_seconds(group: LiveCluster) -> float:
    """How long it took after the heal until all was well again."""
    resync = group.finish().run.resync
    assert resync is not None
    seconds = resync.seconds
    assert seconds is not None, "not everything was delivered after the heal"
    print(f"resync: {seconds * 1000:.0f} ms")
    return seconds


@every_generation
def test_a_receiver_that_dropped_its_sender_takes_it_back(
    cluster: Clusters, chaos: Chaos, unicast: str
) -> None:
    """n1 hears nothing from n0, drops it from its view, and hears it again. n0 never noticed: it
    goes on in the middle of a connection of which n1 knows nothing."""
    group = cluster(members=2, stack="unicast-only", unicast=unicast)
    group.unicast(source="n0", dest="n1", count=600, rate="50/s")
    group.wait_for(20, "n0", "n1")
    with chaos.cut("n0", "n1"):
        chaos.install_view("n1", ["n1"])
        group.wait(2)
        had = group.received("n1", "n0")
    chaos.install_view("all", ["n0", "n1"])
    group.wait_for(had + 50, "n0", "n1")
    assert resync_seconds(group) < 10


@every_stack
def test_a_group_in_which_one_was_not_heard_is_one_again(
    cluster: Clusters, chaos: Chaos, stack: str
) -> None:
    """n2 hears everyone and is heard by nobody, for long enough to be expelled."""
    group = cluster(members=3, stack=stack)
    group.multicast(count=1500, rate="50/s")
    group.wait(2)
    with chaos.cut("n2", ["n0", "n1"]):
        group.wait_for_view("n0", "n1")
    group.wait_for_view()
    assert resync_seconds(group) < 60
