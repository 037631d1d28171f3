"""The thread that renews leases in pods: the session is told whenever it does so no more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from stormcast.chaos.backends.base import LEASE_SECONDS, BackendError
from stormcast.chaos.backends.pods import leases
from stormcast.chaos.backends.pods.leases import Leases
from stormcast.chaos.backends.pods.member_pod import LostError, MemberPod


class Pod:
    """One that is renewed as a function says."""

    is_paused = False

    def __init__(self, renew: Callable[[], None]) -> None:
        self._renew = renew
        self.pauses: list[float | None] = []
        """The seconds of each renewal of its pause."""

    def renew(self, *_args: object, pause: float | None, **_more: object) -> None:
        self.pauses.append(pause)
        self._renew()


@contextmanager
def renewing(renew: Callable[[], None]) -> Iterator[Leases]:
    made = Leases("run-1", [cast(MemberPod, Pod(renew))])
    made.start()
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "EVERY_SECONDS", 0.01)


def ended(made: Any) -> Leases:
    made._thread.join(5.0)
    assert not made._thread.is_alive()
    return cast(Leases, made)


def test_a_session_that_was_silent_for_too_long_is_told_that_it_has_lost_its_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after a look into a debugger."""
    monkeypatch.setattr(leases, "LONGEST_SILENCE", 0.1)
    with renewing(lambda: None) as made, pytest.raises(BackendError, match="made no call for"):
        ended(made).check()


def test_a_session_that_fetches_journals_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LONGEST_SILENCE", 0.1)
    with renewing(lambda: None) as made:
        with made.collecting():
            time.sleep(0.3)
        made.check()


def test_what_is_lost_while_journals_are_fetched_is_told_once_they_are_there() -> None:
    """They are of no use: whoever has the pod now may have deleted some."""

    def lose() -> None:
        if is_lost.is_set():
            raise LostError("n0 has another run")

    is_lost = threading.Event()
    with renewing(lose) as made:
        collecting = made.collecting()
        collecting.__enter__()
        is_lost.set()
        ended(made)
        with pytest.raises(BackendError, match="n0 has another run"):
            collecting.__exit__(None, None, None)
        with made.collecting():
            pass  # What was lost before was told before.


def test_frozen_members_stay_so_however_long_their_journals_take() -> None:
    pod = Pod(lambda: None)
    made = Leases("run-1", [cast(MemberPod, pod)])
    made.renew()
    pod.is_paused = True
    made.renew()
    made.frozen(300.0)
    made.renew()
    assert pod.pauses == [None, LEASE_SECONDS, 300.0]


def test_a_session_is_told_that_nothing_is_renewed_when_the_thread_fails() -> None:
    def fail() -> None:
        raise TypeError("string indices must be integers")

    with renewing(fail) as made, pytest.raises(BackendError, match="string indices"):
        ended(made).check()
