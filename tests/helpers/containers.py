"""A docker daemon for tests, and what this repository's images can do there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

import pytest

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.docker import DockerBackend
from tests.helpers.leaving_nothing import no_container_is_left

ASKED: Final = "STORMCAST_DOCKER"
"""Set by `make test-docker`: nobody's daemon is touched by a mere `make test`."""
REQUIRED: Final = "required"
"""Its value where it is a failure, and no reason to skip, that there is no daemon."""


@cache
def features() -> Mapping[str, str | None]:
    """Found out once: it takes some seconds."""
    backend = DockerBackend()
    try:
        return backend.features()
    finally:
        backend.close()


@cache
def missing() -> str | None:
    """Why there are no containers to test in; None where there are."""
    asked = os.environ.get(ASKED)
    if not asked:
        return "only run by make test-docker: it starts containers"
    try:
        features()
    except BackendError as error:
        if asked == REQUIRED:
            raise
        return str(error)
    return None


def answering() -> Iterator[None]:
    """Skip where there are no containers; whatever ran there: nothing of it remains."""
    if why := missing():
        pytest.skip(why)
    yield from no_container_is_left()
