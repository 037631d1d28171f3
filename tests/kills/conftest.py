"""As for the other tests on a real network: the right to make one, and nothing left of it."""

from __future__ import annotations

import pytest

from tests.helpers.leaving_nothing import nothing_is_left, skip_without_a_network


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_without_a_network(items)


_nothing_is_left = pytest.fixture(scope="session", autouse=True)(nothing_is_left)
