"""One release of the chart for all tests, in a namespace of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.helpers.kube import ASKED, Cluster, missing


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Three members and their agents; nobody runs scenarios yet."""
    reason = missing()
    if reason is not None:
        # Where a cluster was brought up for these tests, that none answers is a failure.
        (pytest.fail if os.environ.get(ASKED) == "required" else pytest.skip)(reason)
    with Cluster().opened() as made:
        made.install({"controller": {"enabled": False}})
        yield made
