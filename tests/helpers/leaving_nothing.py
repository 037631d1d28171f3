"""What a session of tests with real members owes to its machine."""

from __future__ import annotations

from collections.abc import Iterator

from stormcast.chaos.backends.netns.leftovers import clean, leftovers
from stormcast.chaos.backends.netns.names import RunId
from stormcast.chaos.backends.netns.running import what_is_missing


def nothing_is_left() -> Iterator[None]:
    """Whatever ran, and however it ended: no namespace, mount or process of it remains."""
    if what_is_missing():
        yield
        return
    clean()
    yield
    mine = RunId.next()

    def is_ours(run: RunId) -> bool:
        return (run.pid, run.started) == (mine.pid, mine.started)

    assert not leftovers(is_left=is_ours).names()
