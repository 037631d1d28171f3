"""What a run has in its pods ends by itself unless it is renewed: a thread sees to that.

A thread, because a verb may take longer than a lease, and everything else must go on meanwhile. It
gives up when whoever runs the scenario has not been seen for long: then all ends by itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from stormcast.chaos.backends.base import LEASE_SECONDS, BackendError
from stormcast.chaos.backends.kubernetes.pods import LostError, MemberPod
from stormcast.node.core.errors import NodeError

EVERY_SECONDS: Final = LEASE_SECONDS / 3
LONGEST_SILENCE: Final = 180.0
"""Without a word of whoever runs the scenario: it hangs, and must not hold the pods for ever."""


class Leases:
    """Renews what one run has."""

    def __init__(self, run: str, pods: Sequence[MemberPod], threads: ThreadPoolExecutor) -> None:
        self.is_applied = False
        """Whether something may act on the network."""
        self.is_frozen = False
        """Whether members are stopped for good; then their pauses are long, and not renewed."""
        self._run = run
        self._pods = pods
        self._threads = threads
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="leases", daemon=True)
        self._failure: NodeError | None = None
        self._renewed = time.monotonic()
        """When everything was renewed for the last time."""
        self._seen = time.monotonic()

    def start(self) -> None:
        """Renew from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Renew no more."""
        self._over.set()
        self._thread.join()

    def check(self) -> None:
        """BackendError once something is lost; and a sign that whoever asks is there."""
        self._seen = time.monotonic()
        if self._failure is not None:
            raise BackendError(f"{self._failure}; run the scenario again")

    @contextmanager
    def applying(self) -> Iterator[None]:
        """While the network is made anew nobody renews it: what was there before is not the same
        any more, and the lease is counted from the start."""
        with self._lock:
            yield
            self.is_applied = True
            self._renewed = time.monotonic()

    def cleared(self) -> None:
        """Nothing is to act on the network any more, and agents may be told so: a renewal that is
        under way ends before. In its middle, a cleared agent looks like one started anew."""
        with self._lock:
            self.is_applied = False

    def frozen(self) -> None:
        """Members are about to be stopped for good: no renewal shortens that pause."""
        with self._lock:
            self.is_frozen = True

    def renew(self) -> None:
        """Renew everything now."""
        with self._lock:
            self._renew()

    def _work(self) -> None:
        while not self._over.wait(EVERY_SECONDS) and self._failure is None:
            if time.monotonic() - self._seen > LONGEST_SILENCE:
                return
            self.renew()

    def _renew(self) -> None:
        began = time.monotonic()
        errors = [error for error in self._threads.map(self._renew_one, self._pods) if error]
        lost = [error for error in errors if isinstance(error, LostError)]
        if lost:
            self._failure = lost[0]
        elif not errors:
            self._renewed = began
        elif began - self._renewed > LEASE_SECONDS:
            # For a moment nobody may answer; but what was not renewed in time has ended.
            self._failure = errors[0]

    def _renew_one(self, pod: MemberPod) -> NodeError | None:
        try:
            is_paused = pod.is_paused and not self.is_frozen
            pod.renew(self._run, LEASE_SECONDS, is_paused=is_paused, is_applied=self.is_applied)
        except NodeError as error:
            return error
        return None
