"""A group of five real members over each transport: what befalls it in a day, in a minute."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.members import (
    NAMES,
    SHORT_QUIET,
    assert_holds,
    finish,
    group,
    label,
    load,
    short_of,
    suspicions,
    wait_for_traffic,
)

pytestmark = [pytest.mark.root, pytest.mark.slow]

LONG_TCP = pytest.param("tcp", marks=pytest.mark.long)
LONG_NIO2 = pytest.param("tcp-nio2", marks=pytest.mark.long)


@pytest.mark.parametrize("stack", ["udp", "tcp-no-retransmit", LONG_TCP, LONG_NIO2])
def test_five_members_survive_what_befalls_a_group(stack: str, tmp_path: Path) -> None:
    """They join and talk, a member is killed, the coordinator is killed, both come back, one
    leaves, the network is split and heals. All guarantees hold by the journals of all."""
    with group(tmp_path, stack) as rig:
        # Join, and traffic of every kind from everyone to everyone.
        view = rig.start_all()
        load(rig, NAMES)
        wait_for_traffic(rig, NAMES)

        # kill -9 of a member that coordinates nothing.
        coordinator = view["coordinator"]
        victim = next(name for name in NAMES if name != coordinator)
        rig.kill(victim)
        rest = tuple(name for name in NAMES if name != victim)
        view = rig.wait_for_view(rest)
        wait_for_traffic(rig, rest)

        # kill -9 of the coordinator: the next by rank takes over.
        assert view["coordinator"] == coordinator
        heir = next(member["name"] for member in view["members"] if member["name"] != coordinator)
        rig.kill(coordinator)
        rest = tuple(name for name in rest if name != coordinator)
        view = rig.wait_for_view(rest)
        assert view["coordinator"] == heir
        wait_for_traffic(rig, rest)

        # Both come back, as somebody new.
        for name in (victim, coordinator):
            rig.restart(name)
        rig.wait_for_view(NAMES)
        load(rig, (victim, coordinator))
        wait_for_traffic(rig, NAMES)

        # One says goodbye. Nobody needs to suspect it.
        leaver = next(name for name in rest if name != heir)
        gone = short_of(rig, leaver)
        assert rig.stop(leaver) == 0
        rest = tuple(name for name in NAMES if name != leaver)
        rig.wait_for_view(rest)
        wait_for_traffic(rig, rest)
        rig.restart(leaver)
        rig.wait_for_view(NAMES)
        load(rig, (leaver,))
        wait_for_traffic(rig, NAMES)

        # The network is split, and both parts go on; it heals, and they are one again.
        one, other = NAMES[:3], NAMES[3:]
        split = rig.partition(one, other)
        rig.wait_for_view(one)
        rig.wait_for_view(other)
        wait_for_traffic(rig, one)
        wait_for_traffic(rig, other)
        rig.heal()
        rig.wait_for_view(NAMES)
        wait_for_traffic(rig, NAMES)
        assert rig.bit(split) > 0

        labels = {label(rig, name) for name in NAMES}
        assert len(labels) == len(NAMES)
        evidence = finish(rig)

    assert len(evidence.members) == len(NAMES) + 3
    assert evidence.messages_sent > 2000, "with little traffic little is proved"
    assert suspicions(evidence, gone) == []
    assert_holds(evidence)


@pytest.mark.parametrize("stack", ["udp", LONG_NIO2])
def test_a_coordinator_that_hears_one_member_no_more_gets_it_back(
    stack: str, tmp_path: Path
) -> None:
    """One way is cut, the other open; whoever is put out for it comes back when it heals."""
    names = NAMES[:3]
    with group(tmp_path, stack, names) as rig:
        coordinator = rig.start_all()["coordinator"]
        load(rig, names)
        wait_for_traffic(rig, names)
        mute = next(name for name in names if name != coordinator)
        cut = rig.partition_one_way(mute, coordinator)
        rig.sleep(5.0)
        rig.heal()
        rig.wait_for_view(names)
        wait_for_traffic(rig, names)
        evidence = finish(rig, SHORT_QUIET)
    assert rig.bit(cut) > 0
    assert_holds(evidence)
