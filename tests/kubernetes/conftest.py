"""One release of the chart for all tests, in a namespace of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.kube import ASKED, SHARED, Cluster, missing


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


@pytest.fixture(scope="module")
def runs(cluster: Cluster) -> Iterator[Path]:
    """The folder of a claim with run directories."""
    shared = os.environ.get(SHARED)
    if not shared:
        pytest.skip(f"{SHARED} names no folder that all nodes see")
    with cluster.claimed(Path(shared)) as folder:
        yield folder
