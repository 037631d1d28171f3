"""Docker: members in containers on a network that a run makes for itself."""

from stormcast.chaos.backends.docker.backend import DockerBackend

__all__ = ["DockerBackend"]
