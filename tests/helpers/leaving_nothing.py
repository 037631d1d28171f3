"""What a session of tests with real members owes to its machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from stormcast.chaos.backends.by_name import DOCKER
from stormcast.chaos.backends.leftovers import clean as clean_backend
from stormcast.chaos.backends.netns import why_not
from stormcast.chaos.backends.netns.leftovers import clean, leftovers
from stormcast.chaos.backends.netns.running import what_is_missing
from stormcast.chaos.backends.run_id import RunId


def skip_without_a_network(items: list[pytest.Item]) -> None:
    """Skip what needs a network of its own where there can be none, and say why."""
    concerned = [item for item in items if item.get_closest_marker("root")]
    why = why_not() if concerned else None
    for item in concerned:
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


def no_container_is_left() -> Iterator[None]:
    """Whatever ran in docker, and however it ended: nothing of it remains."""
    from stormcast.chaos.backends.docker.daemon import open_daemon  # noqa: PLC0415 as above
    from stormcast.chaos.backends.docker.leftovers import leftovers as left  # noqa: PLC0415 its library takes a while

    clean_backend(DOCKER)
    yield
    mine = RunId.next()
    with closing(open_daemon()) as daemon:
        found = left(daemon, lambda run: (run.pid, run.started) == (mine.pid, mine.started))
    assert not found.names()


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
