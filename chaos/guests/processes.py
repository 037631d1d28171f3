"""The processes of one guest, in its network namespace: the one that was started, and whatever that
one has started itself."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.netns.network import Network
from stormcast.chaos.backends.netns.process import Process, environment, until
from stormcast.chaos.guests.found import FoundNetwork
from stormcast.chaos.guests.found_pods import FoundPods
from stormcast.node.bound import bound_to_me

LOOKS: Final = 5
"""A process that is stopped may have started another one just before."""
STOP_SECONDS: Final = 10.0
"""Seconds that a guest may take to end when it is stopped; then it is killed."""
_POLL: Final = 0.02
_TO_FILE: Final = 'exec sh -c "$1" >"$2"'


_MORE_THAN_ONE: Final = re.compile(
    r"""[;&|<>()`\n\\]|^\s*(?:\w+=|[!{.:]|(?:exec|exit|if|for|while|until|case|cd|eval|set|trap)\b)"""
)
"""What only a shell can do, or what is in place of it already."""


class GuestProcesses:
    """Starts, stops, kills and pauses a guest."""

    def __init__(
        self,
        network: Network | FoundNetwork | FoundPods,
        name: str,
        command: str,
        folder: Path,
        *,
        more: Mapping[str, str],
        output: Path | None = None,
    ) -> None:
        """`command`: a line for `sh`. `more`: variables of its environment. `output`: where its
        standard output goes, in place of its log."""
        self.name = name
        self.folder = folder
        self._network = network
        self._more = more
        told = in_place_of_shell(command)
        self._words: Sequence[str] = ("sh", "-c", told)
        if output is not None:
            self._words = ("sh", "-c", _TO_FILE, "sh", told, str(output.resolve()))
        self.incarnation = 0
        """How often it was started."""
        self._process: Process | None = None
        self._stopped: set[int] = set()
        self.is_ordered = False
        """Whether it was told to end since it was started."""

    @property
    def is_alive(self) -> bool:
        """Whether the shell that was started, or anything in its process group, still runs."""
        if self._process is None:
            return False
        if self._process.is_alive:
            return True
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return False
        return _is_group_alive(self._process.pid)

    @property
    def is_paused(self) -> bool:
        return bool(self._stopped)

    @property
    def code(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None while it runs."""
        return None if self._process is None else self._process.code

    @property
    def seen_alive(self) -> float:
        """The time of the last look that found it running."""
        return 0.0 if self._process is None else self._process.seen_alive

    def start(self) -> None:
        """Start it."""
        assert not self.is_alive, f"{self.name} runs already"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.incarnation += 1
        self.is_ordered = False
        self._stopped.clear()
        argv = bound_to_me(self._network.inside(self.name, self._words))
        variables = environment(self._more, self._network.run)
        self._process = Process(argv, self.folder, f"{self.name}-{self.incarnation}", variables)

    def inside(self, words: Sequence[str]) -> tuple[str, ...]:
        """Return the words that run a program where the guest runs."""
        return self._network.inside(self.name, words)

    def tell(self, by: str) -> None:
        """Tell it to end, by a signal to its process group, without waiting. A shell does not hand
        on what only itself is told."""
        self.resume()
        if self._process is not None and self.is_alive:
            self.is_ordered = True
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.Signals[by])

    def stop(self, by: str, seconds: float = STOP_SECONDS) -> None:
        """Tell it to end, wait, and kill what is left of it."""
        self.tell(by)
        with suppress(BackendError):
            until(lambda: not self.is_alive, seconds, lambda: f"{self.name} runs on", _POLL)
        self.kill()

    def kill(self) -> int:
        """End all of its processes at once; return how many there were."""
        self.is_ordered = self.is_ordered or self.is_alive
        # All that lives in its network: it may have started others, and they are the guest, too.
        killed = self._network.kill_all(self.name)
        if self._process is not None:
            if self.is_alive:
                # What is in no network of its own is known by its group.
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
        self._stopped.clear()
        return len(killed)

    def pause(self, spared: Collection[int]) -> int:
        """Stop its processes, but those of some groups; return how many there were."""
        for _look in range(LOOKS):
            new = [pid for pid in self._pids(spared) if pid not in self._stopped]
            if not new:
                break
            for pid in new:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            self._stopped.update(new)
        return len(self._stopped)

    def resume(self) -> None:
        """Have it go on."""
        listed = set(self._pids(())) if self._stopped else set()
        for pid in self._stopped & listed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._stopped.clear()

    def last_line(self) -> str:
        """Return the last line of its log."""
        lines = "" if self._process is None else self._process.tail(1)
        return lines.strip()

    def log(self) -> str:
        """Return what it has said."""
        paths = sorted(self.folder.glob(f"{self.name}-*.log"))
        return "".join(path.read_text(errors="replace") for path in paths)

    def log_bytes(self) -> int:
        """Return the size of its logs."""
        return sum(path.stat().st_size for path in self.folder.glob(f"{self.name}-*.log"))

    def _pids(self, spared: Collection[int]) -> list[int]:
        found = []
        for pid in self._network.processes(self.name):
            with suppress(ProcessLookupError):
                if os.getpgid(pid) not in spared:
                    found.append(pid)
        return found


def in_place_of_shell(command: str) -> str:
    """Return a line for `sh` by which a single program takes the place of the shell: its signals
    and its exit code are then its own."""
    is_single = _MORE_THAN_ONE.search(command) is None
    return f"exec {command}" if is_single else command


def _is_group_alive(group: int) -> bool:
    """Whether a process group has a process that has not ended: nobody may have waited for one."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            text = path.read_text()
            state, _parent, found = text[text.rindex(")") + 2 :].split()[:3]
            if int(found) == group and state not in "ZX":
                return True
    return False
