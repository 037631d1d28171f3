"""The containers of one run: made, asked what they can do, and removed."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from stormcast.chaos.agent.client import AgentError
from stormcast.chaos.backends.base import BackendError, ClusterPlan
from stormcast.chaos.backends.docker.containers import (
    KEYS,
    MOUNT,
    SUBNETS,
    PodNames,
    Subnets,
    agent_settings,
    files_of_pod,
    keeper_settings,
    keys_in_pod,
    pod_of,
    tar_of,
)
from stormcast.chaos.backends.docker.daemon import ConflictError, Daemon, open_daemon
from stormcast.chaos.backends.docker.images import CHAOS_IMAGE, NODE_IMAGE, own_image
from stormcast.chaos.backends.docker.leftovers import labels_of, leftovers, remove
from stormcast.chaos.backends.docker.way import ContainerWay, Ends, has_ended
from stormcast.chaos.backends.pods.features import (
    BY_ITSELF,
    OF_PODS,
    common_features,
    features_of_agent,
)
from stormcast.chaos.backends.pods.journals import chosen_bound
from stormcast.chaos.backends.pods.member_pod import MemberPod
from stormcast.chaos.backends.pods.pod import Pod
from stormcast.chaos.backends.run_id import RunId
from stormcast.node.core.errors import NodeError
from stormcast.node.keys.cluster_keys import change_keys, write_new_key

START_SECONDS: Final = 60.0
"""Seconds that containers may take until they answer."""
POLL_SECONDS: Final = 0.05
KEY_FILE: Final = "cluster.key"


class DockerPlace:
    """Makes a pod for each member of a run."""

    def __init__(
        self,
        version: str,
        *,
        ipv6: bool = False,
        key_file: Path | None = None,
        features: Mapping[str, str | None] | None = None,
        daemon: Daemon | None = None,
    ) -> None:
        """`version`: the tag of the images that are used if the environment names none;
        `key_file`: the keys of sealed members, in place of a file that is made for the run;
        `features`: the answer of `features`, if it was asked before, as that takes seconds."""
        self._ipv6 = ipv6
        self._given_keys = key_file
        self._features = features
        self._daemon = daemon
        self._images = {name: own_image(name, version) for name in (NODE_IMAGE, CHAOS_IMAGE)}
        self._runs: list[RunId] = []
        """The runs whose things are to be removed."""
        self._pods: dict[str, MemberPod] = {}
        self._ends: Ends | None = None
        self._way: ContainerWay | None = None
        self._keys: Path | None = None

    @property
    def daemon(self) -> Daemon:
        """The docker daemon; BackendError if none answers, or it lacks an image."""
        if self._daemon is None:
            self._daemon = open_daemon()
        return self._daemon

    # -- Features --------------------------------------------------------------------------------

    def features(self, threads: ThreadPoolExecutor) -> Mapping[str, str | None]:
        """Return the features of this machine's containers, found by trying them in one."""
        if self._features is None:
            run = self._new_run()
            try:
                made = self._make_pods(run, ("n0",), threads, None)
                self._features = common_features(
                    map(features_of_agent, made.values()), OF_PODS, _BY_ITSELF
                )
            finally:
                self._remove(run)
        return self._features

    # -- Pods ------------------------------------------------------------------------------------

    def take_pods(self, plan: ClusterPlan, threads: ThreadPoolExecutor) -> dict[str, MemberPod]:
        """Make a pod for each member of the plan."""
        keys = None
        if plan.sealed:
            self._keys = self._given_keys or self._make_keys(plan.folder)
            keys = self._keys.read_bytes()
        self._pods = self._make_pods(self._new_run(), plan.names, threads, keys)
        return self._pods

    def pods(self) -> Sequence[Pod]:
        """Return the pods as they are now."""
        assert self._ends is not None
        found = []
        for one in self._pods.values():
            with suppress(BackendError):
                self._ends.look(one.pod.name)
            found.append(self._ends.seen_at(one.pod))
        return found

    def own_settings(self) -> Mapping[str, Any]:
        """Return where members find their keys, if they have any."""
        return {} if self._keys is None else {"key_file": KEYS}

    def change_keys(self, step: str) -> None:
        """Do one of KEY_STEPS to the keys of all members."""
        if self._given_keys is not None:
            raise BackendError(f"{self._given_keys} was given to the run, which does not change it")
        assert self._keys is not None, "a run without keys has no feature to change them"
        change_keys(self._keys, step)
        tar = tar_of(keys_in_pod(self._keys.read_bytes()))
        for one in self._pods.values():
            self.daemon.put(one.pod.name, MOUNT, tar)

    def close(self) -> None:
        """Remove all that was made."""
        if self._way is not None:
            self._way.close()
        if self._keys is not None and self._given_keys is None:
            self._keys.unlink(missing_ok=True)
        self._pods, self._keys = {}, None
        for run in tuple(self._runs):
            self._remove(run)
        if self._daemon is not None:
            self._daemon.close()

    # -- Making and removing ---------------------------------------------------------------------

    def _new_run(self) -> RunId:
        """Make the name of what is made from now on, which is removed at the latest when this
        process ends."""
        for image in self._images.values():
            if not self.daemon.has_image(image):
                variables = " and ".join(self._images)
                raise BackendError(
                    f"docker has no image {image}: make image, or set {variables} to others"
                )
        run = RunId.next()
        if not self._runs:
            atexit.register(self.close)
        self._runs.append(run)
        return run

    def _make_keys(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        write_new_key(folder / KEY_FILE)
        return folder / KEY_FILE

    def _make_pods(
        self,
        run: RunId,
        members: Sequence[str],
        threads: ThreadPoolExecutor,
        keys: bytes | None,
    ) -> dict[str, MemberPod]:
        """Make a network and a pod in it for each member, and wait until they answer."""
        subnets = self._make_network(run)
        self._ends = Ends(self.daemon)
        self._way = ContainerWay(self._ends)
        bound = chosen_bound(os.environ)

        def make(ordinal: int) -> MemberPod:
            names = PodNames(run, members[ordinal])
            token = token_hex(16)
            assert self._way is not None
            pod = MemberPod(self._way, pod_of(names, ordinal, subnets), names.member, token, bound)
            self._make_pod(names, pod, keys, token)
            return pod

        made = list(threads.map(make, range(len(members))))
        self._ends.is_begun = True
        return dict(zip(members, made, strict=True))

    def _make_network(self, run: RunId) -> Subnets:
        used = set(self.daemon.subnets())
        for index in range(SUBNETS):
            subnets = Subnets.at(index, ipv6=self._ipv6)
            if subnets.v4 in used:
                continue
            # Another run may be quicker, and this machine may use addresses without docker.
            with suppress(ConflictError):
                self.daemon.make_network(str(run), subnets.gateways, labels_of(run))
                return subnets
        raise BackendError("docker has no free subnet in 198.18.0.0/15: stormcast clean")

    def _make_pod(self, names: PodNames, made: MemberPod, keys: bytes | None, token: str) -> None:
        daemon, labels, pod = self.daemon, labels_of(names.run), made.pod
        host = pod.addresses[0]
        daemon.make_volume(names.volume, labels)
        settings, of_host = agent_settings(names, self._images[CHAOS_IMAGE])
        *v6, v4 = pod.addresses
        place = daemon.at_address(str(names.run), v4, next(iter(v6), None))
        daemon.make_container(
            names.agent, of_host, labels=labels, networking_config=place, **settings
        )
        settings, of_host = keeper_settings(names, self._images[NODE_IMAGE], host)
        daemon.make_container(names.keeper, of_host, labels=labels, **settings)
        daemon.put(names.keeper, MOUNT, files_of_pod(f"n{pod.ordinal}", host, token, keys))
        for container in (names.agent, names.keeper):
            daemon.start(container)
        self._wait_for(names.keeper, partial(made.keeper.ask, "GET", "/state"))
        self._wait_for(names.agent, made.agent.clear)

    def _wait_for(self, container: str, ask: Callable[[], object]) -> None:
        """Wait until whoever is in a container answers; BackendError if it ends, or does not."""
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                ask()
            except (BackendError, AgentError) as error:
                why = error
            else:
                return
            self._check_runs(container)
            if time.monotonic() > until:
                raise BackendError(f"{container} does not answer: {why}")
            time.sleep(POLL_SECONDS)

    def _check_runs(self, container: str) -> None:
        state = self.daemon.state(container)
        if has_ended(state):
            said = self.daemon.last_lines(container) or state.get("Error") or "it said nothing"
            raise BackendError(f"container {container} has ended with {state['ExitCode']}: {said}")

    def _remove(self, run: RunId) -> None:
        """Remove all that a run has made; what stays is found by `stormcast clean`."""
        with suppress(NodeError):
            remove(self.daemon, leftovers(self.daemon, lambda other: other == run))
        self._runs.remove(run)
        if not self._runs:
            atexit.unregister(self.close)


_BY_ITSELF: Final = BY_ITSELF | {"keys", "change-keys"}
