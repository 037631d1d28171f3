"""Faults of packets that scapy understands, on real ones: answers of a name server, and segments of
a connection. Whoever sends and receives them knows nothing of us."""

from __future__ import annotations

import time

import pytest

from stormcast.chaos.plugin.guests import GuestMaker, LiveGuest
from stormcast.chaos.plugin.live_cluster import Chaos
from tests.helpers.leaving_nothing import nothing_is_left

pytestmark = [pytest.mark.root, pytest.mark.slow]
_nothing_is_left = pytest.fixture(scope="module", autouse=True)(nothing_is_left)

SERVER = (
    "{python} -u -c '"
    + """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 53))
print("ready", flush=True)
while True:
    asked, peer = s.recvfrom(512)
    answer = bytes.fromhex("c00c0001000100000e100004c6120001")
    s.sendto(asked[:2] + bytes.fromhex("8180") + asked[4:6] + b"\\0\\1" + asked[8:] + answer, peer)
"""
    + "'"
)
ASKS = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(1.5)
name = b"".join(bytes([len(part)]) + part.encode() for part in sys.argv[2].split("."))
begin = time.monotonic()
head, tail = bytes.fromhex("123401000001000000000000"), bytes.fromhex("0000010001")
s.sendto(head + name + tail, (sys.argv[1], 53))
try:
    while True:
        answer, at = s.recv(512), time.monotonic() - begin
        print(answer[3] & 15, int.from_bytes(answer[-10:-6], "big"), round(at, 4))
        s.settimeout(0.7)
except TimeoutError:
    pass
"""


class Names:
    """A name server, and who asks it."""

    def __init__(self, server: LiveGuest, app: LiveGuest) -> None:
        self.server, self.app = server, app

    def ask(self, name: str) -> list[tuple[int, int, float]]:
        """Code, time to live, and seconds of each answer to a question."""
        lines = self.app.run("python3", "-c", ASKS, self.server.address, name).splitlines()
        return [(int(code), int(ttl), float(at)) for code, ttl, at in map(str.split, lines)]


@pytest.fixture
def names(guest: GuestMaker) -> Names:
    server = guest(SERVER)
    deadline = time.monotonic() + 30
    while "ready" not in server.log():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return Names(server, guest())


def test_answers_are_dropped_by_what_they_say(names: Names, chaos: Chaos) -> None:
    where = {"DNS.qr": 1, "DNS.qd.qname": "lost.test."}
    links = {"to": names.app, "from": names.server}
    with chaos.do("drop", match={"scapy": "DNS", "where": where}, **links) as lost:
        assert names.ask("lost.test") == []
        assert [code for code, _ttl, _at in names.ask("kept.test")] == [0]
        assert lost.bites == 1
    assert len(names.ask("lost.test")) == 1


def test_answers_are_changed_and_stay_whole(names: Names, chaos: Chaos) -> None:
    links = {"to": names.app, "from": names.server}
    change = {"DNS.rcode": "name-error", "DNS.an.ttl": 7}
    with chaos.do("packets", does="change", match={"scapy": "DNS"}, set=change, **links) as fault:
        [(code, ttl, _at)] = names.ask("a.test")
        assert (code, ttl) == (3, 7)
        assert fault.bites == 1
    assert [answer[:2] for answer in names.ask("a.test")] == [(0, 3600)]


def test_a_forged_answer_comes_before_the_true_one(names: Names, chaos: Chaos) -> None:
    match = {"protocol": "udp", "from_port": 53}
    links = {"to": names.app, "from": names.server}
    with chaos.do("packets", does="forge", match=match, set={"DNS.rcode": 2}, **links):
        assert [code for code, _ttl, _at in names.ask("a.test")] == [2, 0]


def test_chosen_packets_are_late_or_come_often(names: Names, chaos: Chaos) -> None:
    match = {"protocol": "udp", "to_port": 53, "size": "1B..200B"}
    links = {"from": names.app, "to": names.server}
    with chaos.do("packets", does="delay", delay="400ms", match=match, **links):
        [(_code, _ttl, at)] = names.ask("a.test")
        assert at >= 0.4
    with chaos.do("packets", does="duplicate", copies=2, times=1, match=match, **links) as twice:
        assert len(names.ask("a.test")) == 3
        assert len(names.ask("a.test")) == 1
        assert twice.bites == 1


CONNECTED = """
import socket, sys
s = socket.create_connection((sys.argv[1], 8000), 10)
s.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
try:
    print(len(s.recv(100)) > 0)
except ConnectionResetError:
    print("reset")
"""


def test_a_forged_segment_resets_a_connection(guest: GuestMaker, chaos: Chaos) -> None:
    server = guest(
        "{python} -m http.server --bind {address} 8000", ready={"tcp": 8000, "within": "60s"}
    )
    app = guest()
    assert app.run("python3", "-c", CONNECTED, server.address) == "True\n"
    # The server's answer, and not what opens the connection.
    match = {"protocol": "tcp", "from_port": 8000, "where": {"TCP.flags": "PA"}}
    links = {"to": app, "from": server}
    with chaos.do("packets", does="forge", match=match, set={"TCP.flags": "RA"}, **links) as fault:
        assert app.run("python3", "-c", CONNECTED, server.address) == "reset\n"
        assert fault.bites > 0


def test_a_name_that_scapy_has_not_is_refused(names: Names, chaos: Chaos) -> None:
    links = {"to": names.app, "from": names.server}
    with pytest.raises(Exception, match=r"scapy has no layer DSN; did you mean DNS\?"):
        chaos.do("drop", match={"scapy": "DSN"}, **links)
