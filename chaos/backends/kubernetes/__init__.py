"""Kubernetes: members in the pods of a release of the chart, reached through the API server."""

from stormcast.chaos.backends.kubernetes.backend import KubernetesBackend

__all__ = ["KubernetesBackend"]
