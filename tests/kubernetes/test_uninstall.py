"""The release goes, and nothing of it stays. Last, for it takes away what all others test."""

from __future__ import annotations

import pytest
from kubernetes import client

from tests.helpers.kube import Cluster, until

pytestmark = [pytest.mark.k8s, pytest.mark.slow]


def test_uninstalling_leaves_nothing(cluster: Cluster) -> None:
    cluster.helm("uninstall", "demo", "--wait", "--cascade", "foreground")

    until(lambda: not left(cluster), 60, f"nothing is left but {left(cluster)}")


def left(cluster: Cluster) -> list[str]:
    """What is in the namespace, but for what Kubernetes itself puts into each."""
    apps, rbac = client.AppsV1Api(), client.RbacAuthorizationV1Api()
    core = cluster.core
    lists = (
        core.list_namespaced_pod,
        core.list_namespaced_service,
        core.list_namespaced_config_map,
        core.list_namespaced_secret,
        core.list_namespaced_service_account,
        core.list_namespaced_persistent_volume_claim,
        apps.list_namespaced_stateful_set,
        apps.list_namespaced_deployment,
        apps.list_namespaced_replica_set,
        apps.list_namespaced_controller_revision,
        rbac.list_namespaced_role,
        rbac.list_namespaced_role_binding,
        client.DiscoveryV1Api().list_namespaced_endpoint_slice,
        client.BatchV1Api().list_namespaced_job,
        client.CoordinationV1Api().list_namespaced_lease,
    )
    found = [one.metadata.name for each in lists for one in each(cluster.namespace).items]
    return [name for name in found if name not in ("kube-root-ca.crt", "default")]
