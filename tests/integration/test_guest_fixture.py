"""The fixture `guest` as its users meet it."""

from __future__ import annotations

import json
import time

import pytest

from stormcast.chaos.plugin.guests import GuestMaker
from stormcast.chaos.plugin.live_cluster import Chaos
from tests.helpers.leaving_nothing import nothing_is_left

pytest_plugins = ("pytester",)
pytestmark = [pytest.mark.root, pytest.mark.slow]
_nothing_is_left = pytest.fixture(scope="module", autouse=True)(nothing_is_left)

SERVER = "{python} -m http.server --bind {address} 8000"
READY = {"tcp": 8000, "within": "60s"}
CONNECTS = "import socket, sys; socket.create_connection((sys.argv[1], 8000), 1)"


def test_a_guest_is_reached_but_for_a_partition(guest: GuestMaker, chaos: Chaos) -> None:
    server = guest(SERVER, ready=READY)
    app = guest()
    app.run("python3", "-c", CONNECTS, server.address)
    with chaos.partition([server], [app]) as parted:
        with pytest.raises(AssertionError):
            app.run("python3", "-c", CONNECTS, server.address)
        assert parted.bites > 0
    app.run("python3", "-c", CONNECTS, server.address)


def test_a_fault_outlasts_its_lease_while_the_test_does_something_else(
    guest: GuestMaker, chaos: Chaos
) -> None:
    server, app = guest(SERVER, ready=READY), guest()
    with chaos.cut(app, server):
        time.sleep(5)
        with pytest.raises(AssertionError):
            app.run("python3", "-c", CONNECTS, server.address)


def test_a_history_is_judged_by_the_faults_that_were_done(guest: GuestMaker, chaos: Chaos) -> None:
    server = guest(SERVER, ready=READY)
    lines = [note(guest, "invoke", "add", value=1)]
    with chaos.pause(server) as paused:
        lines.append(note(guest, "ok", "add"))
    assert paused.bites == 1
    lines += [note(guest, "invoke", "read"), note(guest, "ok", "read", value=[1])]
    assert str(guest.judge(lines, "set").verdict) == "holds"
    lines[-1] = lines[-1].replace("[1]", "[]")
    with pytest.raises(AssertionError, match=r"H2 violated: the set: lost 1"):
        guest.judge(lines, "set")


def note(guest: GuestMaker, kind: str, f: str, **more: object) -> str:
    at = time.monotonic() - guest.zero
    return json.dumps({"process": 0, "type": kind, "f": f, **more, "time": at})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("server = guest('exit 3')\n    while server.is_alive: pass", "g1 ended by itself with 3"),
        ("guest(); guest()\n    with chaos.cut('g1', 'g2'): pass", "fault f1 had no effect"),
        ("guest(image='redis')", "guests are commands in this version"),
    ],
)
def test_what_proves_nothing_fails(
    pytester: pytest.Pytester, pytestconfig: pytest.Config, body: str, said: str
) -> None:
    is_installed = pytestconfig.pluginmanager.has_plugin("stormcast")
    plugin = () if is_installed else ("-p", "stormcast.chaos.plugin.fixtures")
    pytester.makepyfile(test_it=f"def test_it(guest, chaos):\n    {body}\n")
    result = pytester.runpytest_subprocess(*plugin, "-p", "no:asyncio", "-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{said}*"])
