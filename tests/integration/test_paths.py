"""Other networks than the usual one: IPv6, and paths that take only small packets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.members import (
    SHORT_QUIET,
    assert_holds,
    finish,
    group,
    load,
    wait_for_traffic,
)

pytestmark = [pytest.mark.root, pytest.mark.slow]

NAMES = ("n0", "n1", "n2")
LARGE: dict[str, object] = {"do": "multicast", "rate": "20/s", "size": "1KiB..100KiB",
                            "duration": "3600s"}  # fmt: skip
MANY: dict[str, object] = {"do": "unicast", "rate": "200/s", "size": "1400B", "burst": 50,
                           "duration": "3600s"}  # fmt: skip


@pytest.mark.parametrize("stack", ["udp", "tcp-nio2"])
def test_a_group_lives_on_ipv6(stack: str, tmp_path: Path) -> None:
    with group(tmp_path, stack, NAMES, ipv6=True) as rig:
        rig.start_all()
        assert all(rig.state(name)["where"].startswith("fd00:5c::") for name in NAMES)
        load(rig, NAMES)
        wait_for_traffic(rig, NAMES)
        rig.kill("n1")
        rig.wait_for_view(("n0", "n2"))
        rig.restart("n1")
        rig.wait_for_view(NAMES)
        wait_for_traffic(rig, ("n0", "n2"))
        evidence = finish(rig, SHORT_QUIET)
    assert_holds(evidence)


@pytest.mark.parametrize(
    ("stack", "protocols"),
    [
        ("udp", {}),
        ("udp", {"UDP": {"frames": "large"}}),
        ("tcp", {}),
    ],
    ids=["udp-fitting-frames", "udp-large-datagrams", "tcp"],
)
def test_large_messages_cross_a_path_that_becomes_narrow(
    stack: str, protocols: dict[str, dict[str, object]], tmp_path: Path
) -> None:
    """Members that found packets of 1500 bytes go on where only 1400 pass; a late one begins so."""
    with group(tmp_path, stack, NAMES, protocols=protocols) as rig:
        rig.start_all(("n0", "n1"))
        load(rig, ("n0", "n1"), LARGE, MANY)
        wait_for_traffic(rig, ("n0", "n1"))
        rig.set_mtu(1400)
        wait_for_traffic(rig, ("n0", "n1"))
        rig.start("n2")
        rig.wait_for_view(NAMES)
        load(rig, ("n2",), LARGE, MANY)
        wait_for_traffic(rig, NAMES)
        evidence = finish(rig, SHORT_QUIET)
    assert_holds(evidence)
