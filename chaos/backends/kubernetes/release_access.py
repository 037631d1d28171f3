"""The way to the pods of one release: the API server that knows them, and what their keepers and
agents ask of whoever asks them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from stormcast.chaos.backends.base import BackendError, ClusterPlan
from stormcast.chaos.backends.kubernetes.api import Api, ApiServer, open_api
from stormcast.chaos.backends.kubernetes.direct import DirectWay
from stormcast.chaos.backends.kubernetes.release import (
    ReleasePod,
    choose_pods,
    find_release,
    member_pods,
    read_token,
)
from stormcast.chaos.backends.pods.features import OF_PODS, common_features, features_of_agent
from stormcast.chaos.backends.pods.journals import chosen_bound
from stormcast.chaos.backends.pods.member_pod import MemberPod

RELEASE_VARIABLE: Final = "STORMCAST_RELEASE"
NAMESPACE_VARIABLE: Final = "STORMCAST_NAMESPACE"
CA_FILE_VARIABLE: Final = "STORMCAST_CA_FILE"
_ITS_OWN_KEY: Final = "members of a release have its key, and no run one of its own; drop `sealed`"
NO_POD_HAS: Final = {
    **OF_PODS,
    "keys": _ITS_OWN_KEY,
    "change-keys": _ITS_OWN_KEY,
}
"""Features that members of a release never have, and why."""


class ReleaseAccess:
    """One release, which is looked for when it is first needed."""

    def __init__(
        self,
        namespace: str = "",
        release: str = "",
        kubeconfig: str = "",
        server: ApiServer | None = None,
        ca_file: str = "",
    ) -> None:
        self._namespace = namespace or os.environ.get(NAMESPACE_VARIABLE, "")
        self._release = release or os.environ.get(RELEASE_VARIABLE, "")
        self._kubeconfig = kubeconfig
        self._server = server
        ca_file = ca_file or os.environ.get(CA_FILE_VARIABLE, "")
        self._way = DirectWay(ca_file) if ca_file else None
        """To keepers and agents; None: through the API server."""
        self.journals = chosen_bound(os.environ)
        """The most bytes of journals and logs that are fetched of a member."""
        self._found: Api | None = None
        self._features: Mapping[str, str | None] | None = None

    @property
    def _api(self) -> Api:
        """The API server's client, made when it is first needed."""
        if self._found is None:
            namespace = ""
            if self._server is None:
                self._server, namespace = open_api(self._kubeconfig)
            chosen = self._namespace or namespace or "default"
            self._found = Api(self._server, chosen, self._way)
        return self._found

    def features(self, threads: ThreadPoolExecutor) -> Mapping[str, str | None]:
        """Return by feature None where all agents of the release have it, else a reason why not.
        The agents are asked the first time."""
        if self._features is None:
            release = find_release(self._api, self._release)
            pods = member_pods(self._api, release)
            first = choose_pods(pods, 1, release, self._api.namespace)[0]
            there = [pod for pod in pods if not pod.trouble]
            token = read_token(self._api, first)
            asked = [MemberPod(self._api, pod, pod.name, token) for pod in there]
            self._features = common_features(threads.map(features_of_agent, asked), NO_POD_HAS)
        return self._features

    def pods(self) -> list[ReleasePod]:
        """Return the member pods of the release, as the API server sees them now."""
        return member_pods(self._api, find_release(self._api, self._release))

    def take_pods(self, plan: ClusterPlan, _threads: ThreadPoolExecutor) -> dict[str, MemberPod]:
        """Return the first pods of the release, one for each of these members; BackendError if
        there are fewer, or one does not run."""
        release = find_release(self._api, self._release)
        pods = choose_pods(
            member_pods(self._api, release), len(plan.names), release, self._api.namespace
        )
        token = read_token(self._api, pods[0])
        return {
            name: MemberPod(self._api, pod, name, token, self.journals)
            for name, pod in zip(plan.names, pods, strict=True)
        }

    def own_settings(self) -> Mapping[str, Any]:
        """Return nothing: keepers have the release's settings."""
        return {}

    def change_keys(self, step: str) -> None:
        """Refuse: the keys of a release are in a Secret."""
        raise BackendError(f"change-keys {step}: the keys of a release change by helm upgrade")

    def close(self) -> None:
        """Close connections to pods."""
        if self._way is not None:
            self._way.close()
