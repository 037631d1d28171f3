"""Member processes on loopback: started, asked over their control endpoints, ended by pid."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from stormcast.chaos.backends.base import MemberError
from stormcast.chaos.backends.netns.control import ask
from stormcast.chaos.backends.netns.process import Process, environment, until

CONTROL = "control.sock"


class Members:
    """A cluster of processes that ends with the test, whatever becomes of it."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self.flags = flags
        self.descriptors = 0
        """How many files a member may have open; 0: as many as this process."""
        self.processes: dict[str, Process] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self.processes.values():
            process.kill()

    def start(self, name: str, *flags: str, env: dict[str, str] | None = None) -> Process:
        """A member with a control socket and a journal in its own folder."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        words = (
            sys.executable,
            "-m",
            "stormcast",
            "node",
            "--name",
            name,
            "--bind-addr",
            "127.0.0.1",
            # Nobody else's members on this machine are of this cluster.
            "--cluster",
            self.folder.name,
            "--journal",
            "journal",
            "--control",
            f"unix:{CONTROL}",
            *self.flags,
            *flags,
        )
        if self.descriptors:
            words = ("sh", "-c", 'ulimit -n "$0" && exec "$@"', str(self.descriptors), *words)
        process = Process(words, folder, name, environment(env or {}))
        self.processes[name] = process
        return process

    def form(self, *names: str) -> None:
        """Start members and wait until they are one group."""
        for name in names:
            self.start(name)
        self.wait_for_view(*names)

    def control(self, name: str) -> Path:
        """Where a member's control socket is."""
        return self.folder / name / CONTROL

    def ask(self, name: str, method: str, path: str, body: object = None) -> Any:
        """One question to a member."""
        return ask(self.control(name), method, path, body)

    def state(self, name: str) -> dict[str, Any]:
        state: dict[str, Any] = self.ask(name, "GET", "/state")
        return state

    def view(self, name: str) -> list[str] | None:
        """The names of a member's view."""
        assert self.processes[name].is_alive, self.tails()
        view = self.state(name)["view"]
        return sorted(one["name"] for one in view["members"]) if view is not None else None

    def wait_for_view(self, *names: str, timeout: float = 20.0) -> None:
        """Wait until each of these sees just these."""
        for name in names:
            self.wait_for_control(name)
        self.wait(
            lambda: all(self.view(name) == sorted(names) for name in names),
            f"a view of {' '.join(names)}",
            timeout,
        )

    def wait_for_control(self, name: str) -> None:
        """Wait until a member answers."""

        def answers() -> bool:
            assert self.processes[name].is_alive, self.tails()
            with suppress(MemberError):
                return bool(self.ask(name, "GET", "/livez"))
            return False

        self.wait(answers, f"{name} listens")

    def wait(self, is_done: Any, what: str, timeout: float = 20.0) -> None:
        """Wait until something is so, and say what members said if it is not."""
        until(is_done, timeout, lambda: f"{what}\n{self.tails()}", poll=0.05)

    def tails(self) -> str:
        """The last lines of all logs."""
        return "\n".join(process.tail() for process in self.processes.values())
