"""Whether this machine has places for members on real packets, and what these can do."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from stormcast.chaos.backends.base import BackendError
from stormcast.chaos.backends.by_name import DOCKER, make_backend


def why_no_namespaces() -> str | None:
    """Return why this machine cannot make network namespaces; None if it can."""
    from stormcast.chaos.backends.netns import why_not  # noqa: PLC0415 only where it is wanted

    return why_not()


def why_no_containers() -> str | None:
    """Return why this machine cannot start containers; None if it can."""
    try:
        features_of(DOCKER)
    except BackendError as error:
        return str(error)
    return None


@cache
def features_of(place: str) -> Mapping[str, str | None]:
    """Return the features of a backend, found out once: it takes a second or more."""
    backend = make_backend(place)
    try:
        return backend.features()
    finally:
        backend.close()
