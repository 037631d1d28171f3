"""Guests of images: the containers of this machine's docker, in the namespaces of a lab.

Docker lets a container join the network of another container, and of nothing else. So each guest
has a second container beside it, the *holder*, which enters the namespace that the lab has made and
waits there. What strikes that namespace strikes the guest, as if it were a command.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import stormcast
from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.docker.daemon import Daemon, open_daemon
from stormcast.chaos.backends.docker.images import CHAOS_IMAGE, own_image
from stormcast.chaos.backends.docker.leftovers import labels_of
from stormcast.chaos.backends.netns.network import NAMESPACES
from stormcast.chaos.backends.netns.process import until
from stormcast.chaos.backends.run_id import RunId

STOP_SECONDS: Final = 10.0
"""Seconds that a guest may take to end when it is stopped; then it is killed."""
END_SECONDS: Final = 30.0
"""Seconds that the daemon may take until it knows of an end."""
MOST_LOG_BYTES: Final = 64 << 20
_POLL: Final = 0.02
_ENTERED: Final = "/lab"
_HOLDS: Final = "import signal; signal.pause()"
_SIGNALLED: Final = 128
"""A code above it says by which signal a container's first process ended."""
_MOST_SIGNALS: Final = 64


class Containers:
    """Makes containers for the guests of a lab, and removes them."""

    def __init__(self, run: RunId) -> None:
        self._run = run
        self._daemon: Daemon | None = None
        self._made: list[str] = []
        """The names of all containers, of which later ones need earlier ones."""
        self._guests: list[GuestContainer] = []

    @property
    def daemon(self) -> Daemon:
        """The daemon of this machine; BackendError if there is none, or it is another machine's."""
        if self._daemon is None:
            host = os.environ.get("DOCKER_HOST", "")
            if host and not host.startswith(("unix://", "/")):
                raise BackendError(
                    f"DOCKER_HOST is {host}: guests of images live in networks of this machine; "
                    "start dockerd here, and unset DOCKER_HOST"
                )
            self._daemon = open_daemon()
        return self._daemon

    def make(
        self,
        name: str,
        image: str,
        words: Sequence[str],
        folder: Path,
        *,
        environment: Mapping[str, str],
        mounts: Mapping[Path, str],
    ) -> GuestContainer:
        """Make the container of a guest, which does not run yet. `words`: what it runs, in place of
        what the image says. `mounts`: what of this machine it may read, and where."""
        self._check(image)
        for path in mounts:
            if not path.exists():
                # Docker would make a folder there.
                raise BackendError(f"{name}: mounts: there is no {path}")
        run = self._run
        own = run.namespace(name)
        holder = self._make_holder(own)
        self._made.append(own)
        self.daemon.make_container(
            own,
            {
                "network_mode": f"container:{holder}",
                "binds": {
                    str(path.resolve()): {"bind": where, "mode": "ro"}
                    for path, where in mounts.items()
                },
                "log_config": {
                    "Type": "json-file",
                    "Config": {"max-size": str(MOST_LOG_BYTES), "max-file": "1"},
                },
            },
            image=image,
            labels=labels_of(run),
            environment=dict(environment),
            **({"command": list(words)} if words else {}),
        )
        guest = GuestContainer(self.daemon, name, own, folder)
        self._guests.append(guest)
        return guest

    def close(self) -> None:
        """Remove all containers."""
        if self._daemon is None:
            return
        while self._guests:
            self._guests.pop().forget()
        while self._made:
            self._daemon.remove_container(self._made[-1])
            self._made.pop()
        self._daemon.close()
        self._daemon = None

    def _check(self, image: str) -> None:
        holders = own_image(CHAOS_IMAGE, stormcast.__version__)
        if not self.daemon.has_image(image):
            raise BackendError(f"docker has no image {image}: docker pull {image}")
        if not self.daemon.has_image(holders):
            raise BackendError(
                f"docker has no image {holders}, which holds the networks of guests: make image, "
                f"or name another one in {CHAOS_IMAGE}"
            )

    def _make_holder(self, space: str) -> str:
        """Start what enters a namespace and waits there."""
        name = f"{space}-network"
        self._made.append(name)
        self.daemon.make_container(
            name,
            {
                "network_mode": "none",
                # By this alone it may enter a namespace; nothing else runs in it.
                "cap_drop": ["ALL"],
                "cap_add": ["SYS_ADMIN"],
                "security_opt": ["no-new-privileges"],
                "read_only": True,
                "binds": {str(NAMESPACES / space): {"bind": _ENTERED, "mode": "ro"}},
            },
            image=own_image(CHAOS_IMAGE, stormcast.__version__),
            labels=labels_of(self._run),
            user="0:0",
            entrypoint=["nsenter", f"--net={_ENTERED}"],
            command=["python", "-c", _HOLDS],
        )
        self.daemon.start(name)
        until(
            lambda: is_in(space, int(self.daemon.state(name)["Pid"])),
            END_SECONDS,
            lambda: f"{name} does not enter its network: {self.daemon.last_lines(name)}",
            _POLL,
        )
        return name


def is_in(space: str, pid: int) -> bool:
    """Whether a process lives, and its network is this namespace."""
    try:
        return pid > 0 and Path(f"/proc/{pid}/ns/net").samefile(NAMESPACES / space)
    except OSError:
        return False


class GuestContainer:
    """Starts, stops, kills and pauses a guest of an image: what `GuestProcesses` does for one of a
    command."""

    def __init__(self, daemon: Daemon, name: str, container: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self._daemon = daemon
        self._container = container
        self._pid = 0
        self._process: int | None = None
        """A descriptor of its first process, so that another one with its pid is none of it."""
        self._code: int | None = None
        self._is_paused = False
        self.incarnation = 0
        """How often it was started."""
        self.is_ordered = False
        """Whether it was told to end since it was started."""
        self.seen_alive = 0.0
        """The time of the last look that found it running."""

    @property
    def is_alive(self) -> bool:
        """Whether its first process runs: the others end with that one."""
        now = time.monotonic()
        if self._process is None:
            return False
        poll = select.poll()
        poll.register(self._process, select.POLLIN)
        if poll.poll(0):
            return False
        self.seen_alive = now
        return True

    @property
    def code(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None while it runs."""
        if self._code is None and self.incarnation and not self.is_alive:
            self._await_end()
            code = int(self._daemon.state(self._container)["ExitCode"])
            is_signal = _SIGNALLED < code <= _SIGNALLED + _MOST_SIGNALS
            self._code = _SIGNALLED - code if is_signal else code
        return self._code

    def start(self) -> None:
        """Start it: with the files that an earlier start has left."""
        assert not self.is_alive, f"{self.name} runs already"
        self.forget()
        self._daemon.start(self._container)
        self.incarnation += 1
        self.is_ordered = self._is_paused = False
        self._code = None
        self.seen_alive = time.monotonic()
        self._pid = int(self._daemon.state(self._container)["Pid"])
        with suppress(ProcessLookupError):
            # One that has ended already has no pid.
            self._process = os.pidfd_open(self._pid) if self._pid else None
        self._check_network()

    def inside(self, words: Sequence[str]) -> tuple[str, ...]:
        """Return the words that run a program of the image, in the container."""
        spaces = ("--mount", "--uts", "--ipc", "--net", "--pid")
        return ("nsenter", "--target", str(self._pid), *spaces, "env", *self._variables, *words)

    @cached_property
    def _variables(self) -> list[str]:
        """Those of its first process: they are asked for twice a second, and never change."""
        return self._daemon.environment(self._container)

    def tell(self, by: str) -> None:
        """Tell it to end, by a signal to its first process, without waiting."""
        self.resume()
        if self.is_alive:
            self.is_ordered = True
            self._daemon.kill(self._container, by)

    def stop(self, by: str, seconds: float = STOP_SECONDS) -> None:
        """Tell it to end, wait, and kill what is left of it; then its log is kept."""
        self.tell(by)
        try:
            until(lambda: not self.is_alive, seconds, lambda: f"{self.name} runs on", _POLL)
        except BackendError:
            self.kill()
        self.keep_log()

    def kill(self) -> int:
        """End all of its processes at once; return how many containers that were."""
        if not self.is_alive:
            return 0
        self.is_ordered = True
        self._daemon.kill(self._container)
        self._is_paused = False
        self._await_end()
        return 1

    def pause(self, _spared: Collection[int]) -> int:
        """Stop its processes; return how many there were. What asks it whether it is ready is none
        of them."""
        if self._is_paused or not self.is_alive:
            return 0
        found = len(self._daemon.processes(self._container))
        self._daemon.pause(self._container)
        self._is_paused = True
        return found

    def resume(self) -> None:
        """Have it go on."""
        if self._is_paused:
            self._is_paused = False
            self._daemon.unpause(self._container)

    def last_line(self) -> str:
        """Return the last line that it has printed."""
        return self._daemon.last_lines(self._container)

    def log(self) -> str:
        """Return what it has printed."""
        kept = BytesIO()
        self._daemon.write_log(self._container, kept, MOST_LOG_BYTES)
        return kept.getvalue().decode(errors="replace")

    def log_bytes(self) -> int:
        """Return the size of its log in its folder: docker bounds what it keeps itself."""
        return 0

    def keep_log(self) -> None:
        """Write what it has printed into its folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{self.name}.log").open("wb") as file:
            self._daemon.write_log(self._container, file, MOST_LOG_BYTES)

    def forget(self) -> None:
        """Let go of its first process."""
        if self._process is not None:
            os.close(self._process)
            self._process = None

    def _check_network(self) -> None:
        is_there = is_in(self._container, self._pid)
        # It may have ended before that look.
        if not is_there and self.is_alive:
            self.kill()
            raise BackendError(
                f"docker has started {self.name} in another network than that of its holder"
            )

    def _await_end(self) -> None:
        until(
            lambda: not self.is_alive and not self._state()["Running"],
            END_SECONDS,
            lambda: f"{self.name} does not end",
            _POLL,
        )

    def _state(self) -> Mapping[str, Any]:
        return self._daemon.state(self._container)
