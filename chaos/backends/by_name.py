"""The backends of this version, by name."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from stormcast.chaos.backends.base import Backend, BackendError, Unsupported

SIM: Final = "sim"
NETNS: Final = "netns"
DOCKER: Final = "docker"
KUBERNETES: Final = "kubernetes"
MADE_BY: Final = {
    SIM: "stormcast.chaos.backends.sim.backend:SimBackend",
    NETNS: "stormcast.chaos.backends.netns.backend:NetnsBackend",
    DOCKER: "stormcast.chaos.backends.docker.backend:DockerBackend",
    KUBERNETES: "stormcast.chaos.backends.kubernetes.backend:KubernetesBackend",
}
BACKENDS: Final = tuple(MADE_BY)


def make_backend(name: str, **options: Any) -> Backend:  # noqa: ANN401 whatever that backend takes
    """Make a backend by its name; its libraries are imported only now."""
    if name not in MADE_BY:
        raise Unsupported(f"backend {name!r}: this version has: {', '.join(BACKENDS)}")
    module, _, what = MADE_BY[name].partition(":")
    try:
        make = getattr(import_module(module), what)
    except ImportError as error:
        raise BackendError(
            f"backend {name} cannot be loaded ({error}): pip install 'stormcast[chaos]'"
        ) from None
    backend: Backend = make(**options)
    return backend
