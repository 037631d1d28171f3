"""A docker daemon for tests, and what this repository's images can do there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Final

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.docker import DockerBackend

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
