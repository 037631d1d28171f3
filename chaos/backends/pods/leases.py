"""A thread that renews all that a run has in its pods: claims, pauses and network states.

A thread, because one verb may take longer than a lease, and the other leases must last meanwhile.
The thread ends when the session has not called for `LONGEST_SILENCE`: then all leases lapse, and
the session is told so if it calls again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import inf
from typing import Final

from stormcast.chaos.backends.base import LEASE_SECONDS, BackendError
from stormcast.chaos.backends.pods.member_pod import LostError, MemberPod
from stormcast.node.core.errors import NodeError

EVERY_SECONDS: Final = LEASE_SECONDS / 3
MOST_AT_ONCE: Final = 16
"""The most pods that are asked at once."""
LONGEST_SILENCE: Final = 180.0
"""Seconds without a call of the session after which it counts as hung, and must not keep the pods,
unless it fetches journals: each of its requests then has a bound of its own."""


class Leases:
    """Renews the leases of one run."""

    def __init__(self, run: str, pods: Sequence[MemberPod]) -> None:
        self.is_applied = False
        """Whether a network state was applied, and not cleared since."""
        self.is_frozen = False
        """Whether members are stopped for good."""
        self._pause_seconds = LEASE_SECONDS
        """Seconds from each renewal for which pauses last."""
        self._run = run
        self._pods = pods
        # Threads of its own: to fetch the journals of many pods may take all those of the session
        # for longer than a claim lasts.
        self._threads = ThreadPoolExecutor(max_workers=MOST_AT_ONCE, thread_name_prefix="leases")
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="leases", daemon=True)
        self._failure: NodeError | None = None
        self._renewed = time.monotonic()
        """The time of the last renewal that succeeded everywhere."""
        self._seen = time.monotonic()

    def start(self) -> None:
        """Start the thread that renews."""
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing, and wait for the thread's end."""
        self._over.set()
        self._thread.join()
        self._threads.shutdown()

    def check(self) -> None:
        """Raise BackendError if something was lost; also note that the session still calls."""
        self._seen = time.monotonic()
        if self._failure is not None:
            raise BackendError(f"{self._failure}; run the scenario again")

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Renew leases while journals are fetched, however long that takes; BackendError if
        something is lost meanwhile: another run may then have deleted some of them."""
        before, self._seen = self._failure, inf
        try:
            yield
        finally:
            self._seen = time.monotonic()
        if self.is_frozen and self._failure is None:
            # Tells of members that went on since the last renewal: their journals have more.
            self.renew()
        if self._failure is not before:
            self.check()

    @contextmanager
    def applying(self) -> Iterator[None]:
        """Hold renewals back while a state is applied: the old state is being replaced, and the
        lease of the new one begins afresh."""
        with self._lock:
            yield
            self.is_applied = True
            self._renewed = time.monotonic()

    def cleared(self) -> None:
        """Stop renewing the network state, before agents are cleared. Waits for a renewal under
        way: it would take a cleared agent for one that was started anew."""
        with self._lock:
            self.is_applied = False

    def frozen(self, seconds: float) -> None:
        """Renew pauses for `seconds` from now on. To be called before members are frozen for so
        long: a shorter renewal would shorten their pause."""
        with self._lock:
            self.is_frozen, self._pause_seconds = True, seconds

    def renew(self) -> None:
        """Renew everything now."""
        with self._lock:
            self._renew()

    def _work(self) -> None:
        try:
            while not self._over.wait(EVERY_SECONDS) and self._failure is None:
                if (silence := time.monotonic() - self._seen) > LONGEST_SILENCE:
                    self._failure = LostError(
                        f"the run made no call for {silence:.0f} s, and has lost its pods"
                    )
                    return
                self.renew()
        except Exception as error:  # noqa: BLE001 nobody may believe that leases are still renewed
            self._failure = LostError(f"leases are renewed no more, by a bug: {error!r}")

    def _renew(self) -> None:
        began = time.monotonic()
        errors = [error for error in self._threads.map(self._renew_one, self._pods) if error]
        lost = [error for error in errors if isinstance(error, LostError)]
        if lost:
            self._failure = lost[0]
        elif not errors:
            self._renewed = began
        elif began - self._renewed > LEASE_SECONDS:
            # Pods may fail to answer for a moment, but a lease not renewed in time has lapsed.
            self._failure = errors[0]

    def _renew_one(self, pod: MemberPod) -> NodeError | None:
        try:
            pause = self._pause_seconds if pod.is_paused else None
            pod.renew(self._run, LEASE_SECONDS, pause=pause, is_applied=self.is_applied)
        except NodeError as error:
            return error
        return None
