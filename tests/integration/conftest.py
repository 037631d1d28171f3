"""What tests on a real network start from: the right to make one, and nothing left of it behind."""

from __future__ import annotations

import pytest

from stormcast.chaos.backends.netns import why_not
from tests.helpers.leaving_nothing import nothing_is_left


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a network of its own where there can be none, and say why."""
    concerned = [item for item in items if item.get_closest_marker("root")]
    why = why_not() if concerned else None
    for item in concerned:
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


_nothing_is_left = pytest.fixture(scope="session", autouse=True)(nothing_is_left)
