"""What tests on a real network start from: the right to make one, and nothing left of it behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chaos.backends.netns import clean, probe, what_is_missing
from chaos.backends.netns.leftovers import leftovers
from chaos.backends.netns.names import RunId


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a network of its own where there can be none, and say why."""
    concerned = [item for item in items if item.get_closest_marker("root")]
    why = probe() if concerned else None
    for item in concerned:
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Whatever ran, and however it ended: no namespace, mount or process of it remains."""
    if what_is_missing():
        yield
        return
    clean()
    yield
    mine = RunId.next()

    def is_ours(run: RunId) -> bool:
        return (run.pid, run.started) == (mine.pid, mine.started)

    # A namespace goes with its last process, so this speaks of processes too.
    assert leftovers(is_left=is_ours) == ([], [])
