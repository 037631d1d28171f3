"""Asks a guest again and again whether it is ready, without waiting for the answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from stormcast.chaos.backends.netns.network import Network
from stormcast.chaos.backends.netns.process import environment
from stormcast.chaos.guests.found import FoundNetwork
from stormcast.chaos.guests.found_pods import FoundPods
from stormcast.chaos.guests.scenario import Ready, fill
from stormcast.node.bound import bound_to_me

Inside = Callable[[Sequence[str]], Sequence[str]]
"""Returns the words that run a program somewhere."""
EVERY_SECONDS: Final = 0.5
ANSWER_SECONDS: Final = 5.0
"""Who has not answered by then is not ready. On a busy machine a program takes a second to start.
"""
_CONNECTS: Final = (
    "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 4).close()"
)


class Prober:
    """Asks in the guest's own network, so that no fault of the network is between them."""

    def __init__(
        self,
        network: Network | FoundNetwork | FoundPods,
        name: str,
        ready: Ready,
        places: Mapping[str, str],
        folder: Path,
        within: Inside,
    ) -> None:
        """`within`: where a command of the guest's author runs."""
        self._network = network
        self._folder = folder
        self._inside: Inside
        if ready.command is not None:
            self._inside = within
            self._words: tuple[str, ...] = ("sh", "-c", fill(ready.command, places))
        else:
            self._inside = partial(network.inside, name)
            assert ready.tcp is not None, "conditions are asked for elsewhere"
            where = (places["address"], str(ready.tcp))
            # Without the packages of the installation it starts in a moment.
            self._words = (sys.executable, "-I", "-S", "-c", _CONNECTS, *where)
        self._asking: subprocess.Popen[bytes] | None = None
        self._asked = -EVERY_SECONDS
        self.samples: list[tuple[float, bool]] = []
        """Times of answers, on the machine's clock. A yes has the time at which it came, a no that
        at which it was asked: neither says more than is known."""

    @property
    def group(self) -> int | None:
        """The process group of what asks now."""
        return None if self._asking is None else self._asking.pid

    def look(self) -> None:
        """Take an answer that has come, and ask again if it is time to."""
        now = time.monotonic()
        if self._asking is not None:
            code = self._asking.poll()
            if code is None and now - self._asked < ANSWER_SECONDS:
                return
            self.forget()
            is_ready = code == 0
            self.samples.append((now if is_ready else self._asked, is_ready))
        if now - self._asked >= EVERY_SECONDS:
            self._asked = now
            self._asking = subprocess.Popen(  # noqa: S603 the words of the scenario's author
                bound_to_me(self._inside(self._words)),
                cwd=self._folder,
                env=environment({}, self._network.run),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # So that all that it started ends with it.
                process_group=0,
            )

    def forget(self) -> None:
        """End what asks now."""
        if self._asking is None:
            return
        if self._asking.poll() is None:
            # Not where it has ended: its group may be that of another process by now.
            with suppress(ProcessLookupError):
                os.killpg(self._asking.pid, signal.SIGKILL)
            self._asking.wait()
        self._asking = None

    def is_ready_since(self, at: float) -> bool:
        """Whether the last answer says so, and was given after a time."""
        return bool(self.samples) and self.samples[-1][1] and self.samples[-1][0] >= at
