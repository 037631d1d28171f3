"""A member process: what it can be asked, and how it ends. On loopback, without rights."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.chaos.backends.base import MemberError
from stormcast.chaos.backends.netns.process import Process, environment
from stormcast.node.control.sockets import listen_unix
from stormcast.node.core.errors import ConfigError
from stormcast.node.member.metrics import BY_STAT, PREFIXES
from stormcast.node.trace import STOP, SUSPECT, Event, read_blocks_untrusted
from stormcast.node.trace.files import read_traces
from tests.helpers.processes import Members
from tests.helpers.tokens import token_file

TOKEN = "0123456789abcdef"  # noqa: S105 of a test
IDLE_BYTES = 45 << 20


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    with Members(tmp_path) as made:
        yield made


def events(members: Members, name: str) -> list[Event]:
    (blocks,) = read_traces(members.folder / name / "journal").values()
    return [
        event
        for block in read_blocks_untrusted(blocks, xxh3_64_intdigest)
        for event in block.events
    ]


# -- Ends ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_has_it_leave_and_nobody_suspects_it(
    members: Members, number: signal.Signals
) -> None:
    members.form("n0", "n1", "n2")
    os.kill(members.processes["n0"].pid, number)
    assert members.processes["n0"].wait(10.0) == 0
    members.wait_for_view("n1", "n2", timeout=2.0)
    for name in ("n0", "n1", "n2"):
        assert not [event for event in events(members, name) if event.kind == SUSPECT]
    assert events(members, "n0")[-1].kind == STOP
    assert not members.control("n0").exists()
    assert "n0: left" in members.processes["n0"].tail()


class Dying(Process):
    """Is killed by somebody else while it is being paused."""

    def _signal(self, number: signal.Signals) -> None:
        super()._signal(number)
        os.kill(self.pid, signal.SIGKILL)


def test_a_process_that_dies_while_it_is_paused_is_not_waited_for(tmp_path: Path) -> None:
    process = Dying(("sleep", "60"), tmp_path, "n0", environment({}))
    started = time.monotonic()
    process.pause()
    assert time.monotonic() - started < 3.0
    assert process.wait() == -signal.SIGKILL


def test_what_was_accepted_before_a_signal_arrives(members: Members) -> None:
    members.form("n0", "n1")
    load = {"do": "multicast", "closed": True, "size": "1KB", "duration": "60s"}
    members.ask("n0", "POST", "/workload", load)
    members.wait(lambda: members.state("n1")["workload"]["received"] > 5000, "traffic")
    assert members.processes["n0"].stop(15.0) == 0
    members.wait_for_view("n1")
    sent = sum(event.count for event in events(members, "n0") if event.name == "sent")
    workload = members.state("n1")["workload"]
    assert workload["received"] == sent
    assert workload["mismatches"] == 0


def test_killed_it_is_expelled_and_its_journal_is_whole(members: Members) -> None:
    members.form("n0", "n1")
    load = {"do": "multicast", "rate": "2000/s", "duration": "60s"}
    members.ask("n0", "POST", "/workload", load)
    members.wait(lambda: members.state("n1")["workload"]["received"] > 500, "traffic")
    members.processes["n0"].kill()
    members.wait_for_view("n1")
    received = members.state("n1")["workload"]["received"]
    sent = sum(event.count for event in events(members, "n0") if event.name == "sent")
    assert 500 < received <= sent, "what left the member is in its journal"
    assert [event for event in events(members, "n1") if event.kind == SUSPECT]


def test_a_second_signal_ends_it_at_once(members: Members) -> None:
    """The other member is stopped, so that leaving takes its time."""
    members.flags = ("--leave-timeout", "60s")
    members.form("n0", "n1")
    members.processes["n0"].pause()
    process = members.processes["n1"]
    os.kill(process.pid, signal.SIGTERM)
    members.wait(lambda: "leaving" in process.tail(), "it is leaving")
    assert process.is_alive
    os.kill(process.pid, signal.SIGTERM)
    started = time.monotonic()
    assert process.wait(5.0) == 128 + signal.SIGTERM
    assert time.monotonic() - started < 3.0
    assert "Traceback" not in process.tail(100)


def test_two_signals_at_once_end_it_at_once(members: Members) -> None:
    """Both come before it has begun to leave; the other member is stopped, so that this takes its
    time."""
    members.flags = (
        "--leave-timeout",
        "60s",
        "--set",
        "GMS.leave_timeout=30s",
        "--set",
        "FD_ALL3.timeout=60s",
    )
    members.form("n0", "n1")
    members.processes["n0"].pause()
    process = members.processes["n1"]
    process.pause()
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(process.pid, number)
    started = time.monotonic()
    process.resume()
    assert process.wait(5.0) in (128 + signal.SIGTERM, 128 + signal.SIGINT)
    assert time.monotonic() - started < 3.0
    assert "Traceback" not in process.tail(100)


def test_leaving_takes_no_longer_than_it_may(members: Members) -> None:
    members.flags = ("--leave-timeout", "500ms", "--timing", "compatible")
    members.form("n0", "n1")
    members.processes["n0"].pause()
    started = time.monotonic()
    code = members.processes["n1"].stop(10.0)
    assert time.monotonic() - started < 5.0
    assert code in (0, 4), "within the bound it may have made a group of its own and left that"


def test_one_that_waits_in_vain_for_acks_leaves_in_order_and_says_so(members: Members) -> None:
    """What the rig told it to do it did, so that a run takes it for no death."""
    members.flags = ("--leave-timeout", "500ms")
    members.form("n0", "n1")
    members.processes["n0"].pause()
    members.ask(
        "n1", "POST", "/workload", {"do": "unicast", "to": "n0", "count": 5, "rate": "1000/s"}
    )
    members.wait(lambda: members.state("n1")["workload"]["accepted"] == 5, "it sends")
    process = members.processes["n1"]
    assert process.stop(10.0) == 4
    assert process.is_ended_by_order
    assert STOP in [event.kind for event in events(members, "n1")]


def test_told_to_end_before_it_has_joined_it_ends(members: Members) -> None:
    """The one it asks is stopped, and so does not answer."""
    members.flags = ("--timing", "compatible")
    members.form("n0")
    members.processes["n0"].pause()
    process = members.start("n1", "--set", "GMS.join_timeout=30s")
    members.wait(lambda: "joining" in process.tail(), "it joins")
    assert process.stop(10.0) == 0


def test_it_leaves_by_itself_after_a_while_and_when_asked(members: Members) -> None:
    process = members.start("n0", "--run-for", "300ms")
    assert process.wait(10.0) == 0
    members.form("n1")
    assert members.ask("n1", "POST", "/leave") == {"leaving": True}
    assert members.processes["n1"].wait(10.0) == 0


# -- What it is ------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_an_idle_member_is_small_and_on_asyncio_has_one_thread(members: Members, loop: str) -> None:
    if loop == "uvloop":
        pytest.importorskip("uvloop", reason="uvloop is optional, and not installed")
    members.flags = ("--loop", loop)
    members.form("n0", "n1")
    assert members.ask("n0", "GET", "/metrics")
    for process in members.processes.values():
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert "\nThreads:\t1\n" in status
        assert process.rss() <= IDLE_BYTES
    assert members.processes["n1"].stop(10.0) == 0


def test_what_it_counts_has_metrics(members: Members) -> None:
    members.form("n0", "n1")
    members.ask("n0", "POST", "/workload", {"do": "multicast", "count": 10})
    members.wait(lambda: members.state("n1")["workload"]["received"] == 10, "10 messages")
    stats = members.state("n0")["stats"]
    known = tuple(prefix for prefix, _described in PREFIXES if prefix)
    assert [name for name in stats if name not in BY_STAT and not name.startswith(known)] == []
    text = members.ask("n1", "GET", "/metrics")
    assert 'stormcast_peer_received_messages_total{peer="n0"} 10.0' in text


def test_readiness_begins_with_the_first_view(members: Members) -> None:
    members.flags = ("--timing", "compatible")
    members.form("n0")
    assert members.ask("n0", "GET", "/readyz") == {"ready": True, "state": "connected"}
    members.processes["n0"].pause()
    members.start("n1", "--set", "GMS.join_timeout=30s")
    members.wait_for_control("n1")
    members.wait(lambda: members.state("n1")["state"] == "joining", "it joins")
    assert members.state("n1")["view"] is None
    with pytest.raises(MemberError, match="503"):
        members.ask("n1", "GET", "/readyz")
    assert members.ask("n1", "GET", "/livez") == {"live": True}
    with pytest.raises(MemberError, match="409"):
        members.ask("n1", "POST", "/workload", {"do": "multicast"})
    members.processes["n0"].resume()
    members.wait_for_view("n0", "n1", timeout=60.0)


# -- What it is told -------------------------------------------------------------------------------


def test_settings_test_protocols_and_consumption_change_while_it_runs(members: Members) -> None:
    members.form("n0", "n1")
    done = members.ask("n0", "POST", "/attributes", {"NAKACK2.xmit_interval": "250ms"})
    assert done == {"set": ["NAKACK2.xmit_interval"]}
    with pytest.raises(MemberError, match="write a duration"):
        members.ask("n0", "POST", "/attributes", {"NAKACK2.xmit_interval": "soon"})
    with pytest.raises(MemberError, match="no DISCARD in the stack"):
        members.ask("n0", "POST", "/attributes", {"DISCARD.up": 0.5})

    only_data = {"match": {"kind": "DATA", "protocol": "NAKACK2"}}
    (probe,) = members.ask("n1", "POST", "/probes", {"DISCARD": {"up": 0.5, **only_data}})
    assert (probe["name"], probe["above"]) == ("DISCARD", "UDP")
    members.ask("n0", "POST", "/workload", {"do": "multicast", "count": 500, "rate": "1000/s"})
    members.wait(lambda: members.state("n1")["workload"]["received"] == 500, "all, repaired")
    (probe,) = members.ask("n1", "GET", "/probes")
    assert probe["struck"] > 0
    assert members.ask("n1", "POST", "/probes", {"DISCARD": None}) == []

    members.ask("n1", "POST", "/consume", {"consuming": False})
    members.ask("n0", "POST", "/workload", {"do": "multicast", "count": 50, "closed": True})
    members.wait(lambda: not members.state("n0")["workload"]["running"], "sent")
    assert members.state("n1")["workload"]["received"] == 500
    members.ask("n1", "POST", "/consume", {"consuming": True})
    members.wait(lambda: members.state("n1")["workload"]["received"] == 550, "taken after all")


def test_a_workload_ends_when_told(members: Members) -> None:
    members.form("n0", "n1")
    loads = [
        {"do": "unicast", "rate": "100/s", "duration": "1h"},
        {"do": "multicast", "closed": True, "size": "1KB", "duration": "1h"},
    ]
    members.ask("n0", "POST", "/workload", loads)
    members.wait(lambda: members.state("n1")["workload"]["received"] > 1000, "traffic")
    assert members.ask("n0", "POST", "/workload/stop") == {"stopped": 2}
    accepted = members.state("n0")["workload"]["accepted"]
    members.wait(lambda: members.state("n1")["workload"]["received"] == accepted, "all of it")
    assert members.state("n1")["workload"]["mismatches"] == 0


# -- The control endpoint --------------------------------------------------------------------------


def test_the_socket_is_for_its_owner_only(members: Members) -> None:
    members.form("n0")
    assert members.control("n0").stat().st_mode & 0o777 == 0o600


def test_a_socket_that_a_dead_process_left_is_replaced_and_a_live_one_is_not(
    members: Members,
) -> None:
    members.form("n0")
    other = members.start("n0x", "--control", "unix:../n0/control.sock")
    assert other.wait(10.0) == 2
    assert "another process listens there" in other.tail()
    members.processes["n0"].kill()
    assert members.control("n0").exists()
    members.form("n0")


def test_what_is_no_socket_is_never_removed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    for path in (tmp_path / "file", tmp_path):
        with pytest.raises(ConfigError, match="no socket"):
            listen_unix(str(path))
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with pytest.raises(ConfigError, match="no socket"):
        listen_unix(str(tmp_path / "link"))
    assert (tmp_path / "file").read_text() == "precious"


def tcp_port(members: Members, name: str) -> int:
    """Where a member said that its endpoint is."""
    log = members.processes[name].log
    members.wait(lambda: "control endpoint on http" in log.read_text(), "it listens")
    line = next(line for line in log.read_text().splitlines() if "control endpoint on" in line)
    return int(line.rpartition(":")[2])


def talk(port: int, data: bytes, timeout: float = 15.0) -> bytes:
    """Send everything at once, then read to the end."""
    with socket.create_connection(("127.0.0.1", port), timeout) as client:
        with suppress(OSError):
            # It may be cut off in the middle; what was answered is still there to be read.
            client.sendall(data)
        answer = b""
        with suppress(ConnectionResetError):
            while part := client.recv(65536):
                answer += part
        return answer


def get(path: str, *headers: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def test_over_tcp_it_answers_to_its_own_name_and_to_the_token(members: Members) -> None:
    flags = ("--control-token-file", str(token_file(members.folder, TOKEN)))
    members.start("n0", "--control", "127.0.0.1:0", *flags)
    port = tcp_port(members, "n0")
    host, token = f"Host: 127.0.0.1:{port}", f"Authorization: Bearer {TOKEN}"
    assert talk(port, get("/livez", host, token)).startswith(b"HTTP/1.1 200 ")
    assert talk(port, get("/state", host)).startswith(b"HTTP/1.1 401 ")
    assert talk(port, get("/livez", "Host: evil.example", token)).startswith(b"HTTP/1.1 403 ")
    browser = get("/livez", host, token, "Origin: http://evil.example")
    assert talk(port, browser).startswith(b"HTTP/1.1 403 ")
    assert TOKEN not in members.processes["n0"].log.read_text()
    assert TOKEN.encode() not in Path(f"/proc/{members.processes['n0'].pid}/cmdline").read_bytes()


def test_hostile_http_harms_nobody(members: Members) -> None:
    """Noise, floods, half requests and idle connections; meanwhile the member is in its group."""
    members.start("n0", "--control", "127.0.0.1:0")
    port = tcp_port(members, "n0")
    host = f"Host: 127.0.0.1:{port}"
    fine = get("/livez", host)
    assert talk(port, fine).startswith(b"HTTP/1.1 200 ")
    rss = members.processes["n0"].rss()

    for data in (
        os.urandom(4096),
        b"\x16\x03\x01\x02\x00\x01\x00" * 1000,
        b"GET / HTTP/1.1\r\nX: " + b"x" * (4 << 20),
        b"POST /state HTTP/1.1\r\n"
        + host.encode()
        + b"\r\nContent-Length: 4000000\r\n\r\n"
        + b"y" * 4_000_000,
        b"POST /workload HTTP/1.1\r\n"
        + host.encode()
        + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"1000\r\n"
        + b"z" * 4096
        + b"\r\n" * 3000,
        b"GET /livez HTTP/1.1\r\n" * 100_000,
    ):
        answer = talk(port, data)
        assert not answer or answer.startswith(b"HTTP/1.1 4"), answer[:100]

    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
    try:
        # Idle connections make room for whoever asks.
        assert talk(port, fine).startswith(b"HTTP/1.1 200 ")
        # Those that say nothing are cut off.
        idle[-1].settimeout(10.0)
        assert idle[-1].recv(1000) == b""
    finally:
        for client in idle:
            client.close()
    members.wait(lambda: talk(port, fine).startswith(b"HTTP/1.1 200 "), "it answers again")
    assert members.processes["n0"].rss() < rss + (8 << 20)
    assert members.processes["n0"].stop(10.0) == 0
    assert "Traceback" not in members.processes["n0"].log.read_text()


@pytest.mark.slow
def test_a_request_that_dribbles_in_is_cut_off(members: Members) -> None:
    members.start("n0", "--control", "127.0.0.1:0")
    port = tcp_port(members, "n0")
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), 20.0) as client:
        client.sendall(b"GET /livez HTTP/1.1\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 408 ")
    assert 8.0 < time.monotonic() - started < 15.0
