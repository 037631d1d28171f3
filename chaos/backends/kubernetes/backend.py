"""The Kubernetes backend: members in the pods of a release, steered through the API server.

Requests to keepers and agents travel over the pods' network, too, but on ports and from addresses
that no fault of a run strikes.
"""

from __future__ import annotations

from stormcast.chaos.backends.kubernetes.api import ApiServer
from stormcast.chaos.backends.kubernetes.release_access import ReleaseAccess
from stormcast.chaos.backends.pods.backend import PodsBackend


class KubernetesBackend(PodsBackend):
    """Members in the first pods of a release."""

    def __init__(
        self,
        namespace: str = "",
        release: str = "",
        kubeconfig: str = "",
        server: ApiServer | None = None,
        ca_file: str = "",
    ) -> None:
        access = ReleaseAccess(namespace, release, kubeconfig, server, ca_file)
        super().__init__("kubernetes", access)
