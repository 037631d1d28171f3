"""A group of five real members over each transport: what befalls it in a day, in a minute."""

from __future__ import annotations

import pytest

from stormcast.chaos.plugin.live_cluster import Chaos, Clusters
from tests.helpers.live import AS_SHIPPED, netns, process, short_of, suspicions, talk

pytestmark = [pytest.mark.root, pytest.mark.slow]

LONG_TCP = pytest.param("tcp", marks=pytest.mark.long)
LONG_NIO2 = pytest.param("tcp-nio2", marks=pytest.mark.long)
LONG_NO_RETRANSMIT = pytest.param("tcp-no-retransmit", marks=pytest.mark.long)


@pytest.mark.parametrize("stack", ["udp", LONG_NO_RETRANSMIT, LONG_TCP, LONG_NIO2])
def test_five_members_survive_what_befalls_a_group(
    stack: str, cluster: Clusters, chaos: Chaos
) -> None:
    """They join and talk, a member is killed, the coordinator is killed, both come back, one
    leaves, the network is split and heals. All guarantees hold by the journals of all."""
    group = cluster(5, stack=stack, backend=netns(), protocols=AS_SHIPPED.get(stack, {}))

    # Join, and traffic of every kind from everyone to everyone.
    talk(group)
    group.wait_for_traffic()

    # kill -9 of a member that coordinates nothing.
    coordinator, victim, *rest = group.view("n0") or ()
    killed = chaos.kill(victim)
    group.wait_for_view(coordinator, *rest)
    group.wait_for_traffic(coordinator, *rest)

    # kill -9 of the coordinator: the next by rank takes over.
    first, heir, *_others = group.view(rest[0]) or ()
    assert first == coordinator
    with chaos.kill(coordinator):
        group.wait_for_view(*rest)
        assert (group.view(heir) or ())[0] == heir
        group.wait_for_traffic(*rest)

    # Both come back, as somebody new.
    killed.end()
    group.wait_for_view()
    group.wait_for_traffic()

    # One says goodbye. Nobody needs to suspect it.
    leaver = next(name for name in rest if name != heir)
    rest = [name for name in group.members if name != leaver]
    gone = short_of(group, leaver)
    with chaos.leave(leaver):
        assert process(group, leaver).wait() == 0
        group.wait_for_view(*rest)
        group.wait_for_traffic(*rest)
    group.wait_for_view()
    group.wait_for_traffic()

    # The network is split, and both parts go on; it heals, and they are one again.
    one, other = group.members[:3], group.members[3:]
    with chaos.partition(one, other) as split:
        for part in (one, other):
            group.wait_for_view(*part)
        for part in (one, other):
            group.wait_for_traffic(*part)
    group.wait_for_view()
    group.wait_for_traffic()
    assert split.bites > 0

    group.stop()
    evidence = group.finish().run.evidence
    assert len(evidence.members) == len(group.members) + 3
    assert evidence.messages_sent > 2000, "with little traffic little is proved"
    assert suspicions(evidence, gone) == []


@pytest.mark.parametrize("stack", ["udp", LONG_NIO2])
def test_a_coordinator_that_hears_one_member_no_more_gets_it_back(
    stack: str, cluster: Clusters, chaos: Chaos
) -> None:
    """One way is cut, the other open; whoever is put out for it comes back when it heals."""
    group = cluster(3, stack=stack, backend=netns(), protocols=AS_SHIPPED.get(stack, {}))
    talk(group)
    group.wait_for_traffic()
    coordinator, mute, _other = group.view("n0") or ()
    with chaos.cut(mute, coordinator) as cut:
        group.wait(5)
    group.wait_for_view()
    group.wait_for_traffic()
    group.stop()
    assert cut.bites > 0
    group.finish()
