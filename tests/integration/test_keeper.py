"""The keeper of a container's member: what it can be told, and that nothing outlasts it. On
loopback, without rights."""

from __future__ import annotations

import io
import os
import signal
import socket
import ssl
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.chaos.backends.base import MemberError
from stormcast.chaos.backends.netns.control import ask
from stormcast.chaos.backends.netns.process import Process, environment, until
from stormcast.node.control.trust import trusting
from stormcast.node.trace import STOP, read_blocks_untrusted
from stormcast.node.trace.files import read_traces
from tests.helpers.certificates import Issuer
from tests.helpers.tokens import token_file

pytestmark = pytest.mark.slow

TOKEN = "0123456789abcdef-keeper"  # noqa: S105 of a test
KEEPER_BYTES = 40 << 20


class Kept:
    """A keeper process, and its member."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "keeper.sock"
        self.process: Process | None = None
        self.config: dict[str, Any] = {
            "name": "n0",
            "cluster": folder.name,
            "stack": "tcp",
            "protocols": {"TCP": {"bind_addr": "127.0.0.1"}},
        }

    def run(self, *flags: str, env: dict[str, str] | None = None) -> Process:
        if not any(flag == "--listen" for flag in flags):
            flags = ("--listen", "unix:keeper.sock", *flags)
        words = (sys.executable, "-m", "stormcast", "keep", "--folder", "kept", *flags)
        self.process = Process(words, self.folder, "keeper", environment(env or {}))
        return self.process

    def open(self, *flags: str) -> None:
        """Run it, and wait until it answers."""
        self.run(*flags)

        def answers() -> bool:
            assert self.process is not None
            assert self.process.is_alive, self.log
            with suppress(MemberError):
                return bool(self.ask("GET", "/livez"))
            return False

        until(answers, 15.0, lambda: self.log, 0.05)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        return ask(self.socket, method, path, body, timeout=10.0)

    def start(self) -> int:
        """A member as configured, that is ready; returns its incarnation."""
        number: int = self.ask("POST", "/start", {"config": self.config})["incarnation"]
        self.wait_until_ready()
        return number

    def is_ready(self) -> bool:
        with suppress(MemberError):
            return bool(self.ask("GET", "/readyz"))
        return False

    def wait_until_ready(self) -> None:
        until(self.is_ready, 15.0, lambda: self.log, 0.05)

    def pid(self) -> int:
        """Of the member."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        (pid,) = children.split()
        return int(pid)

    @property
    def log(self) -> str:
        return self.process.tail(100) if self.process is not None else ""

    def journals(self) -> dict[str, bytes]:
        """The files of the tar, by name."""
        connection = socket.socket(socket.AF_UNIX)
        handle = os.open(self.folder, os.O_PATH)
        with connection:
            connection.settimeout(10)
            connection.connect(f"/proc/self/fd/{handle}/keeper.sock")
            os.close(handle)
            connection.sendall(b"GET /journals HTTP/1.0\r\nHost: x\r\n\r\n")
            data = b"".join(iter(lambda: connection.recv(65536), b""))
        with tarfile.open(fileobj=io.BytesIO(data.partition(b"\r\n\r\n")[2])) as tar:
            files = {one.name: tar.extractfile(one) for one in tar.getmembers()}
            return {name: file.read() for name, file in files.items() if file is not None}


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path)
    yield made
    if made.process is not None:
        made.process.kill()


def state_of(pid: int) -> str:
    """The letter of a process's state; empty when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return text[text.rindex(")") + 2]


def test_probes_are_answered_on_a_listener_of_their_own(kept: Kept) -> None:
    kept.open("--probes", "unix:probes.sock")
    probes = kept.folder / "probes.sock"
    until(probes.exists, 5.0, lambda: kept.log, 0.05)
    assert ask(probes, "GET", "/livez", None, timeout=10.0) == {"live": True}
    with pytest.raises(MemberError, match="no /state; there is /livez, /readyz"):
        ask(probes, "GET", "/state", None, timeout=10.0)


def test_members_are_started_asked_stopped_and_killed(kept: Kept) -> None:
    kept.open()
    assert kept.ask("GET", "/state")["incarnation"] == 0
    with pytest.raises(MemberError, match="409"):
        kept.ask("POST", "/stop", {})
    with pytest.raises(MemberError, match="503"):
        kept.ask("GET", "/readyz")
    first = kept.start()
    state = kept.ask("GET", "/member/state")
    assert (state["name"], state["state"]) == ("n0", "connected")
    with pytest.raises(MemberError, match="a member runs already"):
        kept.ask("POST", "/start", {"config": kept.config})
    with pytest.raises(MemberError, match="404"):
        kept.ask("GET", "/member/nowhere")

    kept.ask("POST", "/stop", {})
    kept.ask("POST", "/stop", {})
    until(lambda: not kept.ask("GET", "/state")["alive"], 10.0, lambda: kept.log, 0.05)
    ended = kept.ask("GET", "/state")
    assert (ended["code"], ended["incarnation"]) == (0, first)
    assert "n0: left" in ended["log"]

    second = kept.start()
    assert second == first + 1
    pid = kept.pid()
    assert kept.ask("POST", "/kill", {})["code"] == -signal.SIGKILL
    assert state_of(pid) == "", "it was reaped"
    with pytest.raises(MemberError, match="no member runs"):
        kept.ask("GET", "/member/state")


def test_journals_and_logs_of_all_incarnations_come_as_a_tar(kept: Kept, tmp_path: Path) -> None:
    kept.open()
    for _ in range(2):
        kept.start()
        kept.ask("POST", "/member/workload", {"do": "multicast", "count": 50, "closed": True})
        kept.ask("POST", "/stop", {})
        until(lambda: not kept.ask("GET", "/state")["alive"], 10.0, lambda: kept.log, 0.05)
    files = kept.journals()
    assert b"n0: left" in files["000001/member.log"]
    for name, data in files.items():
        (tmp_path / "got" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "got" / name).write_bytes(data)
    for number in (1, 2):
        (trace,) = read_traces(tmp_path / "got" / f"{number:06}" / "journal").values()
        blocks = list(read_blocks_untrusted(trace, xxh3_64_intdigest))
        assert blocks[-1].events[-1].kind == STOP
    assert kept.ask("DELETE", "/journals") == {"deleted": 2}
    assert kept.journals() == {}
    assert kept.start() == 3, "numbers are never used again"
    assert kept.ask("DELETE", "/journals") == {"deleted": 0}, "it is in use"


def test_a_pause_ends_with_its_lease_or_when_told(kept: Kept) -> None:
    kept.open()
    kept.start()
    pid = kept.pid()
    kept.ask("POST", "/pause", {"lease": 1.0})
    # A process that waits for a processor stops when it gets one.
    until(lambda: state_of(pid) == "T", 5.0, lambda: kept.log, 0.02)
    assert kept.ask("GET", "/state")["paused"] is True
    with pytest.raises(MemberError, match="503"):
        kept.ask("GET", "/readyz")
    with pytest.raises(MemberError, match="is paused"):
        kept.ask("GET", "/member/state")
    began = time.monotonic()
    while time.monotonic() < began + 2.0:
        kept.ask("POST", "/renew", {"lease": 1.0})
        assert state_of(pid) == "T"
        time.sleep(0.2)
    renewed = time.monotonic()
    until(lambda: state_of(pid) != "T", 5.0, lambda: kept.log, 0.02)
    assert time.monotonic() - renewed >= 0.5, "not before its lease is over"
    assert kept.ask("POST", "/renew", {"lease": 1.0}) == {"paused": False, "lapses": 1}
    kept.wait_until_ready()

    kept.ask("POST", "/pause", {"lease": 60})
    until(lambda: state_of(pid) == "T", 5.0, lambda: kept.log, 0.02)
    assert kept.ask("POST", "/resume", {}) == {"paused": False, "lapses": 1}
    kept.wait_until_ready()
    kept.ask("POST", "/pause", {"lease": 60})
    kept.ask("POST", "/kill", {})
    assert state_of(pid) == ""
    with pytest.raises(MemberError, match="write seconds"):
        kept.ask("POST", "/pause", {"lease": 1e9})


def test_a_pause_of_one_incarnation_strikes_no_other_one(kept: Kept) -> None:
    """A run freezes the members that it has started, and not those of a keeper started anew."""
    kept.open()
    kept.start()
    for other, said in ((2, "incarnation 2 has ended"), ("1", "write a number")):
        with pytest.raises(MemberError, match=said):
            kept.ask("POST", "/pause", {"lease": 60, "incarnation": other})
    assert kept.ask("GET", "/state")["paused"] is False
    for is_fresh in (True, False):
        said = kept.ask("POST", "/pause", {"lease": 60, "incarnation": 1})
        assert said == {"paused": True, "lapses": 0, "fresh": is_fresh}


def test_a_paused_member_that_is_told_to_leave_does_so_when_it_goes_on(kept: Kept) -> None:
    kept.open()
    kept.start()
    pid = kept.pid()
    kept.ask("POST", "/pause", {"lease": 60})
    until(lambda: state_of(pid) == "T", 5.0, lambda: kept.log, 0.02)
    kept.ask("POST", "/stop", {})
    time.sleep(0.2)
    assert state_of(pid) == "T"
    assert kept.ask("GET", "/state")["paused"] is True
    kept.ask("POST", "/resume", {})
    until(lambda: not kept.ask("GET", "/state")["alive"], 15.0, lambda: kept.log, 0.05)
    assert kept.ask("GET", "/state")["code"] == 0
    assert "n0: left" in kept.log


def test_a_killed_keeper_leaves_no_member_paused_or_not(kept: Kept) -> None:
    kept.open()
    kept.start()
    pid = kept.pid()
    kept.ask("POST", "/pause", {"lease": 60})
    assert kept.process is not None
    kept.process.kill()
    until(lambda: state_of(pid) in ("", "Z"), 5.0, lambda: f"{pid} lives", 0.02)


def test_told_to_end_it_lets_its_member_leave_even_a_paused_one(kept: Kept) -> None:
    kept.open()
    kept.start()
    kept.ask("POST", "/pause", {"lease": 60})
    assert kept.process is not None
    assert kept.process.stop(15.0) == 0
    assert "n0: left" in kept.log


def test_a_member_that_does_not_leave_is_killed_in_the_end(kept: Kept) -> None:
    kept.open("--grace", "500ms")
    kept.start()
    pid = kept.pid()
    os.kill(pid, signal.SIGSTOP)
    assert kept.process is not None
    assert kept.process.stop(10.0) == 0
    assert state_of(pid) == ""
    assert "it is killed" in kept.log


def test_the_default_member_starts_with_the_keeper_and_its_failure_ends_it(kept: Kept) -> None:
    (kept.folder / "member.yaml").write_text(
        f"cluster: {kept.folder.name}\nstack: tcp\nprotocols: {{TCP: {{bind_addr: 127.0.0.1}}}}\n"
    )
    process = kept.run("--config", "member.yaml", "--start", env={"STORMCAST_NAME": "default"})
    until(lambda: kept.socket.exists() and kept.is_ready(), 15.0, lambda: kept.log, 0.05)
    assert kept.ask("GET", "/member/state")["name"] == "default"
    kept.ask("POST", "/kill", {})
    assert process.is_alive, "it was told so"
    # What a run hands over is the whole truth, whatever the environment says.
    kept.start()
    assert kept.ask("GET", "/member/state")["name"] == "n0"
    os.kill(kept.pid(), signal.SIGKILL)
    until(lambda: not kept.ask("GET", "/state")["alive"], 10.0, lambda: kept.log, 0.05)
    assert process.is_alive, "the crash of a run's member is the run's business"
    kept.ask("POST", "/start")
    kept.wait_until_ready()
    os.kill(kept.pid(), signal.SIGKILL)
    assert process.wait(10.0) == 128 + signal.SIGKILL


def test_a_run_has_the_keeper_to_itself_until_it_gives_it_back_or_is_gone(kept: Kept) -> None:
    (kept.folder / "member.yaml").write_text(
        f"cluster: {kept.folder.name}\nstack: tcp\nprotocols: {{TCP: {{bind_addr: 127.0.0.1}}}}\n"
    )
    kept.open("--config", "member.yaml", "--start")
    kept.wait_until_ready()
    assert kept.ask("POST", "/claim", {"run": "one", "lease": 60}) == {"fresh": True}
    assert kept.ask("POST", "/claim", {"run": "one", "lease": 60}) == {"fresh": False}
    with pytest.raises(MemberError, match=r"409.*run one has this member"):
        kept.ask("POST", "/claim", {"run": "two"})
    kept.ask("POST", "/kill", {})
    number = kept.start()
    kept.ask("POST", "/give-back", {"run": "two"})
    assert kept.ask("GET", "/state")["incarnation"] == number, "it is not run two's to give"
    kept.ask("POST", "/give-back", {"run": "one"})
    assert kept.ask("GET", "/state")["default"] is True
    kept.wait_until_ready()

    kept.ask("POST", "/claim", {"run": "two", "lease": 0.5})
    kept.ask("POST", "/kill", {})
    kept.start()
    until(lambda: kept.ask("GET", "/state")["default"], 5.0, lambda: kept.log, 0.05)
    kept.wait_until_ready()
    assert "run two has not been heard of" in kept.log
    kept.ask("POST", "/claim", {"run": "three"})


def test_a_default_member_that_cannot_start_says_why_and_ends_the_keeper(kept: Kept) -> None:
    (kept.folder / "member.yaml").write_text("stack: tpc\n")
    assert kept.run("--config", "member.yaml", "--start").wait(15.0) == 2
    assert "did you mean tcp?" in kept.log


@pytest.mark.parametrize(
    ("flags", "remedy"),
    [
        (("--listen", "0.0.0.0:0"), "needs a token"),
        (("--config", "missing.yaml"), "there is no such file"),
        (("--folder", "/proc/x"), "name one that can be written to"),
        (("--grace", "5"), "unit"),
        (("--strt",), "--help"),
    ],
)
def test_what_cannot_work_is_one_line(kept: Kept, flags: tuple[str, ...], remedy: str) -> None:
    assert kept.run(*flags).wait(15.0) == 2
    (line,) = kept.log.splitlines()
    assert remedy in line


def listening_at(kept: Kept) -> str:
    until(lambda: "listens on" in kept.log, 15.0, lambda: kept.log, 0.05)
    return kept.log.partition("listens on ")[2].split()[0]


def status_of(url: str, token: str = "", context: ssl.SSLContext | None = None) -> int:
    request = urllib.request.Request(url, headers={"X-Stormcast-Token": token})  # noqa: S310 http, of this test
    try:
        with urllib.request.urlopen(request, timeout=5, context=context) as answer:  # noqa: S310 http, of this test
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_over_tcp_it_wants_its_token_and_is_small(kept: Kept) -> None:
    token = str(token_file(kept.folder, TOKEN))
    process = kept.run("--listen", "127.0.0.1:0", "--token-file", token)
    url = listening_at(kept)

    def get(path: str, token: str = "") -> int:
        return status_of(url + path, token)

    assert get("/livez") == 200
    assert get("/state") == get("/journals") == get("/member/livez") == 401
    assert get("/state", TOKEN) == 200
    assert get("/member/livez", TOKEN) == 409
    assert process.rss() <= KEEPER_BYTES


def test_over_tls_its_probes_stay_plain_and_a_bad_certificate_is_one_line(kept: Kept) -> None:
    files = Issuer().write(kept.folder)
    given = ("--certificate-file", str(files.certificate), "--private-key-file", str(files.key))
    listen = ("--listen", "127.0.0.1:0", "--token-file", str(token_file(kept.folder, TOKEN)))
    process = kept.run(*listen, *given, "--probes", "127.0.0.1:0")
    url = listening_at(kept)
    until(lambda: kept.log.count("listens on") == 2, 15.0, lambda: kept.log, 0.05)
    probes = kept.log.rpartition("listens on ")[2].split()[0]
    assert (url[:8], probes[:7]) == ("https://", "http://")

    trusted = trusting(str(files.ca))
    assert status_of(f"{url}/state", TOKEN, trusted) == 200
    assert status_of(f"{url}/state", "", trusted) == 401
    assert status_of(f"{probes}/livez") == 200
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        status_of(f"{url}/state", TOKEN, ssl.create_default_context())
    assert status_of(f"{url}/state".replace("https", "http")) == 400
    process.kill()

    files.key.chmod(0o644)
    assert kept.run(*listen, *given).wait(15.0) == 2
    line = kept.log.splitlines()[-1]
    assert f"--private-key-file {files.key}: others can read or change it" in line
    assert kept.run(*listen, *given[:2]).wait(15.0) == 2
    assert "--certificate-file and --private-key-file go together" in kept.log
