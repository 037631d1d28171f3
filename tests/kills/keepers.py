"""Two keepers on loopback, each with a member; one of the keepers is killed."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import tarfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stormcast.chaos.backends.base import MemberError
from stormcast.chaos.backends.netns.control import ask
from stormcast.chaos.backends.netns.process import environment
from tests.kills import blocks
from tests.kills.found import Found, Missed, until
from tests.kills.plan import COLLECTING, HEALING, STARTING, Kill
from tests.kills.seen import Owner, kill_now

LEASE = 1.0
"""Of a pause."""
GRACE = 1.0
SECONDS = 120.0
"""For what takes one on a machine that has nothing else to do."""
ENDLESS = 10**7
ONE, OTHER = "one", "two"
"""The members; the keeper of the first is killed."""


class Keeper:
    """A keeper in a session of its own, and what it says."""

    def __init__(self, folder: Path, cluster: str) -> None:
        self.folder, self.socket = folder, folder / "keeper.sock"
        folder.mkdir(parents=True, exist_ok=True)
        self._config = {
            "name": folder.name,
            "cluster": cluster,
            "stack": "udp",
            "timing": "fast",
            "protocols": {"UDP": {"bind_addr": "127.0.0.1"}},
        }
        words = (sys.executable, "-m", "stormcast", "keep", "--folder", "kept")
        with (folder / "keeper.log").open("ab") as log:
            self.process = subprocess.Popen(
                (*words, "--listen", "unix:keeper.sock"),
                cwd=folder,
                env=environment({}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.owner = Owner.of(self.process.pid, folder)

    def ask(self, method: str, target: str, body: object = None) -> Any:
        return ask(self.socket, method, target, body, timeout=SECONDS)

    def wait_for(self, target: str) -> None:
        """Until a request is granted."""

        def is_granted() -> bool:
            if self.process.poll() is not None:
                raise AssertionError(f"a keeper ended: {self.log()}")
            with suppress(MemberError):
                self.ask("GET", target)
                return True
            return False

        until(is_granted, SECONDS, f"{target} of {self.folder.name}: {self.log()}")

    def start(self) -> None:
        self.ask("POST", "/start", {"config": self._config})

    def view(self) -> list[str]:
        """The names in its member's view."""
        view = self.ask("GET", "/member/state")["view"]
        return sorted(one["name"] for one in view["members"]) if view is not None else []

    def journals(self) -> dict[str, bytes]:
        """The blocks of all journals that it hands over, by label."""
        with tarfile.open(fileobj=io.BytesIO(self.tar())) as tar:
            found: dict[str, bytes] = {}
            for one in sorted(tar.getmembers(), key=lambda one: one.name):
                path, file = Path(one.name), tar.extractfile(one)
                if path.suffix == ".trace" and file is not None:
                    whole = b"".join(blocks.raw_blocks(file.read()))
                    found[path.parent.name] = found.get(path.parent.name, b"") + whole
        return found

    def tar(self) -> bytes:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(SECONDS)
            # The path of a socket has no more than 107 bytes.
            handle = os.open(self.folder, os.O_PATH)
            try:
                connection.connect(f"/proc/self/fd/{handle}/{self.socket.name}")
            finally:
                os.close(handle)
            connection.sendall(b"GET /journals HTTP/1.0\r\nHost: x\r\n\r\n")
            data = b"".join(iter(lambda: connection.recv(65536), b""))
        return data.partition(b"\r\n\r\n")[2]

    def log(self) -> str:
        return (self.folder / "keeper.log").read_text(errors="replace")[-800:]

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(SECONDS)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for one in self.owner.processes():
            kill_now(one)


@dataclass(slots=True)
class StruckKeeper:
    """Both keepers have ended."""

    keepers: list[Keeper]
    found: Found

    def check_clean(self) -> None:
        for keeper in self.keepers:
            self.found.add("after clean", keeper.owner.left())

    def close(self) -> None:
        for keeper in self.keepers:
            keeper.close()


def begin(kill: Kill, folder: Path, found: Found) -> StruckKeeper:
    """Start both, kill one, look, start it again in its folder, and end both."""
    cluster = f"kill-{os.getpid()}-{kill.seed}-{kill.number}-{found.misses}"
    struck = StruckKeeper([Keeper(folder / name, cluster) for name in (ONE, OTHER)], found)
    try:
        one, other = struck.keepers
        other.wait_for("/livez")
        other.start()
        other.wait_for("/readyz")
        strike(one, other, kill, found)
        one.process.wait()
        rest = found.killed + LEASE + GRACE - time.monotonic()
        time.sleep(max(0.0, rest))
        left = one.owner.processes()
        found.add("after the lease", [f"lives: {each}" for each in left])
        again = Keeper(one.folder, cluster)
        struck.keepers.append(again)
        again.wait_for("/livez")
        handed = again.journals()
        found.add("handed over", blocks.lost_blocks(found.before, handed))
        again.start()
        again.wait_for("/member/livez")
        for keeper in (other, again):
            if keeper.end() != 0:
                found.add("the end", [f"a keeper ended badly: {keeper.log()}"])
        traces = blocks.kept(folder)
        found.add("journals", blocks.lost_blocks(found.before, traces))
        found.add("journals", blocks.unknown_to_their_makers(traces))
        found.blocks = sum(map(len, found.before.values()))
        for keeper in struck.keepers:
            found.add("ended, and left", keeper.owner.left())
    except BaseException:
        struck.close()
        raise
    return struck


def strike(one: Keeper, other: Keeper, kill: Kill, found: Found) -> None:
    """Bring the first as far as the phase says, and kill it."""
    collecting = threading.Thread(target=_collect, args=(one,))
    if kill.phase != STARTING or kill.milestone != "begun":
        one.wait_for("/livez")
        one.start()
    if kill.phase != STARTING:
        one.wait_for("/readyz")
        until(
            lambda: one.view() == other.view() == sorted((ONE, OTHER)), SECONDS, "one view of both"
        )
        for keeper in (one, other):
            load = {"do": "multicast", "count": ENDLESS, "rate": "400/s", "size": "64B"}
            keeper.ask("POST", "/member/workload", load)
        until(lambda: len(blocks.snapshot(other.folder)) > 0, SECONDS, "a journal")
        time.sleep(0.2)
    if kill.phase == HEALING:
        one.ask("POST", "/pause", {"lease": LEASE})
    if kill.phase == COLLECTING:
        collecting.start()
    time.sleep(kill.delay)
    found.acted = any(each.state in "Tt" for each in one.owner.processes())
    found.before = blocks.snapshot(one.folder)
    found.killed = time.monotonic()
    victim = one.owner.itself()
    if victim is None or not kill_now(victim):
        raise Missed("the keeper had ended before")
    if kill.phase == COLLECTING:
        collecting.join(SECONDS)


def _collect(keeper: Keeper) -> None:
    with suppress(OSError):
        keeper.tar()
