"""Members on a real network, where one can be made."""

from __future__ import annotations

import pytest

from tests.helpers.leaving_nothing import skip_without_a_network


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_without_a_network(items)
