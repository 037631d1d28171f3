"""Every backend that this machine has, for one and the same suite."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from stormcast.chaos.backends.netns import why_not
from tests.conformance.lab import KINDS, Lab
from tests.helpers.leaving_nothing import nothing_is_left

MARKS = {
    "netns": (pytest.mark.root, pytest.mark.slow),
    "docker": (pytest.mark.docker, pytest.mark.slow),
    "kubernetes": (pytest.mark.k8s, pytest.mark.slow),
}


@cache
def missing_of(kind: str) -> str | None:
    """Why a kind of backend cannot be had here; None: it can."""
    if kind == "netns":
        return why_not()
    if kind == "docker":
        from tests.helpers import containers  # noqa: PLC0415 its library takes a while

        return containers.missing()
    if kind == "kubernetes":
        from tests.helpers.kube import missing  # noqa: PLC0415 its library takes a second

        return missing()
    return None


@pytest.fixture(scope="session")
def release() -> Iterator[None]:
    """One release of the chart for all stories that want one."""
    from stormcast.chaos.backends.kubernetes.release_access import (  # noqa: PLC0415 as above
        NAMESPACE_VARIABLE,
        RELEASE_VARIABLE,
    )
    from tests.helpers.kube import RELEASE, Cluster  # noqa: PLC0415 as above

    with Cluster().opened() as made, pytest.MonkeyPatch.context() as patch:
        made.install({"controller": {"enabled": False}})
        patch.setenv(NAMESPACE_VARIABLE, made.namespace)
        patch.setenv(RELEASE_VARIABLE, RELEASE)
        yield


@pytest.fixture(params=[pytest.param(kind, marks=MARKS.get(kind, ())) for kind in KINDS])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    why = missing_of(request.param)
    if why is not None:
        pytest.skip(why)
    if request.param == "kubernetes":
        request.getfixturevalue("release")
    lab = Lab(KINDS[request.param], tmp_path)
    try:
        yield lab
    finally:
        lab.backend.close()


_nothing_is_left = pytest.fixture(scope="session", autouse=True)(nothing_is_left)
