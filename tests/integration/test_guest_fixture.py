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
        ("guest(selector='app=redis')", "unknown key selector; known: command, image"),
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


HEARS = (
    "{python} -u -c '"
    + """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 9000))
print("ready", flush=True)
while True:
    print(len(s.recv(2000)), flush=True)
"""
    + "'"
)
SAYS = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(int(sys.argv[3])):
    s.sendto(bytes(int(sys.argv[2])), (sys.argv[1], 9000))
"""


def test_packets_are_dropped_by_port_size_and_number(guest: GuestMaker, chaos: Chaos) -> None:
    server = guest(HEARS, ready={"command": "grep -q ready g1-1.log", "within": "60s"})
    app = guest()

    def heard(size: int, number: int, wanted: int) -> int:
        before = server.log().split().count(str(size))
        app.run("python3", "-c", SAYS, server.address, str(size), str(number))
        until = time.monotonic() + 20
        while server.log().split().count(str(size)) - before < wanted and time.monotonic() < until:
            time.sleep(0.05)
        return server.log().split().count(str(size)) - before

    def drop(**match: object):  # type: ignore[no-untyped-def] # noqa: ANN202
        return chaos.do("drop", source=app, dest=server, match=match)

    with drop(protocol="udp", to_port=9000, nth=3) as third:
        assert heard(11, 30, 20) == 20
        assert third.bites == 10
    with drop(to_port="9000..9001", size="500B..2000B") as large:
        assert (heard(1000, 5, 0), heard(12, 5, 5)) == (0, 5)
        assert large.bites == 5
    with drop(to_port=9001, protocol="udp") as other:
        assert heard(13, 5, 5) == 5
        assert other.bites == 0
        app.run("python3", "-c", SAYS.replace("9000", "9001"), server.address, "1", "1")
        assert other.bites == 1
    assert heard(14, 5, 5) == 5
