"""What of a run can be seen on the machine: by looking, and not by the code that removes it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from stormcast.chaos.backends.netns import Network, RunId
from stormcast.chaos.backends.netns.names import BRIDGE
from stormcast.chaos.backends.run_id import start_of
from tests.helpers.sessions import Seen, look_at, running
from tests.integration.wire_pair import Pair, frames
from tests.kills.plan import MEMBERS

FRAMES = 20
SHAPERS = ("htb", "tbf", "netem")


def root_links() -> frozenset[str]:
    """Return the links of this machine that look like those of a run."""
    ours = {"br0", "eth0", *(f"m{number}" for number in range(len(MEMBERS)))}
    return frozenset(path.name for path in _entries("/sys/class/net") if path.name in ours)


@dataclass(slots=True)
class Owner:
    """A process whose traces on the machine are looked for; it led a session of its own."""

    pid: int
    started: int
    folder: Path
    """Where its sockets are."""
    links: frozenset[str] = field(default_factory=root_links)

    @classmethod
    def of(cls, pid: int, folder: Path) -> Owner:
        started = start_of(pid)
        assert started is not None, f"{pid} runs"
        return cls(pid, started, folder)

    def itself(self) -> Seen | None:
        """The process; None once it has ended."""
        one = look_at(self.pid)
        return one if one is not None and one.started == self.started else None

    @property
    def prefix(self) -> str:
        """How the names of all that is its begin."""
        return f"sc{self.pid}-{self.started}-"

    def is_its(self, run: RunId) -> bool:
        return (run.pid, run.started) == (self.pid, self.started)

    # -- Processes -----------------------------------------------------------------------------

    def processes(self) -> list[Seen]:
        """All of its session, and all that carry its name, but not itself."""
        found = [one for one in running() if one.session == self.pid or self._is_marked(one)]
        return sorted((one for one in found if one.pid != self.pid), key=lambda one: one.pid)

    def _is_marked(self, one: Seen) -> bool:
        try:
            variables = Path(f"/proc/{one.pid}/environ").read_bytes()
        except OSError:
            return False
        return f"SC_RUN={self.prefix}".encode() in variables

    def agents(self) -> list[Seen]:
        """Its agents, the newest last."""
        return [one for one in self.processes() if "stormcast agent" in one.words]

    def member(self, name: str) -> Seen | None:
        """A member of its."""
        found = [
            one
            for one in self.processes()
            if "stormcast node" in one.words and f"--name {name} " in one.words
        ]
        return found[-1] if found else None

    # -- The network ---------------------------------------------------------------------------

    def spaces(self) -> list[str]:
        return sorted(path.name for path in _entries("/run/netns") if self._is_named(path.name))

    def acting(self) -> list[str]:
        """What of its faults acts, in all namespaces that are there: addresses that carry the mark
        by which rules know whom they are about."""
        return [
            f"{space}: {line}"
            for space in self.spaces()
            if not space.endswith(f"-{BRIDGE}")
            for line in alive_marks(_out("ip", "netns", "exec", space, "nft", "list", "ruleset"))
        ]

    def run(self) -> RunId | None:
        """The run whose namespaces are there."""
        found = {str(run): run for space in self.spaces() if (run := RunId.parse(space))}
        return max(found.values(), key=lambda run: run.number) if found else None

    def struck_frames(self) -> list[str]:
        """What becomes of frames that are sent now through the network that is left: a line for
        each way in which they are not all there, once, whole and in order, and for each queue
        that they were made to wait in."""
        run = self.run()
        if run is None or not all(_has_address(run.namespace(name)) for name in MEMBERS):
            return []  # It was killed before its network was made.
        lines = []
        with Pair(network=Network(run, MEMBERS[:2])) as pair:
            for source in MEMBERS[:2]:
                space = run.namespace(source)
                before, sent = _shaped(space), frames(run.number, FRAMES)
                came = pair.pass_on(sent, source)
                if came != sent:
                    lines.append(f"{len(came)} of {FRAMES} frames of {source} came as they were")
                if _shaped(space) != before:
                    lines.append(f"frames of {source} waited in a queue of a fault")
        return lines

    # -- Everything ----------------------------------------------------------------------------

    def left(self) -> list[str]:
        """A line for each thing of it that is there."""
        tables = _out("nft", "list", "tables").split()
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        return [
            *map(str, self.processes()),
            *(f"namespace {space}" for space in self.spaces()),
            *(f"table {word}" for word in tables if self._is_named(word.replace("_", "-"))),
            *(f"mount {line[1]}" for line in mounts if self._is_named(line[0])),
            *(f"socket {path}" for path in self.folder.rglob("*.sock") if listens(path)),
            *(
                f"folder {path}"
                for path in _entries(tempfile.gettempdir())
                if self._is_named(path.name)
            ),
            *(f"link {name}" for name in sorted(root_links() - self.links)),
        ]

    def _is_named(self, name: str) -> bool:
        return name.startswith(self.prefix)


def listens(path: Path) -> bool:
    """Whether somebody listens at a socket's file."""
    # The path of a socket has no more than 107 bytes, that of a descriptor has few.
    handle = os.open(path.parent, os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as end:
            end.settimeout(5.0)
            return end.connect_ex(f"/proc/self/fd/{handle}/{path.name}") == 0
    finally:
        os.close(handle)


def alive_marks(ruleset: str) -> list[str]:
    """Return the elements of the maps by which faults know whose packets they are about: each ends
    with its lease, and without one no rule of a fault matches."""
    lines, name = [], ""
    for line in ruleset.splitlines():
        words = line.split()
        if words[:1] == ["map"]:
            name = words[1]
        elif words[:1] == ["}"]:
            name = ""
        elif name.startswith("alive") and words and "timeout" in words and words[0] != "flags":
            lines.append(f"{name}: {' '.join(words)}")
    return lines


def _has_address(space: str) -> bool:
    return "198.18." in _out("ip", "-n", space, "-4", "addr", "show", "dev", "eth0")


def _shaped(space: str) -> int:
    """Return how many packets went through the queues of faults at a member."""
    found = json.loads(_out("tc", "-n", space, "-s", "-j", "qdisc", "show", "dev", "eth0") or "[]")
    return sum(one.get("packets", 0) for one in found if one.get("kind") in SHAPERS[1:])


def _entries(folder: str) -> list[Path]:
    try:
        return list(Path(folder).iterdir())
    except OSError:
        return []


def _out(*words: str) -> str:
    """Return what a command prints; nothing where it fails, or is not there: a namespace may go."""
    if shutil.which(words[0]) is None:
        return ""
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout if done.returncode == 0 else ""


def kill_now(one: Seen) -> bool:
    """Kill a process, if it still is the one that was found."""
    try:
        handle = os.pidfd_open(one.pid)
    except OSError:
        return False
    try:
        if start_of(one.pid) != one.started:
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True
