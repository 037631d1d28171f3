"""Attacks on pods: faults of their networks by an agent in each, and pods that are killed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stormcast.chaos.attack.kinds import PAUSE
from stormcast.chaos.attack.playing import Plan
from stormcast.chaos.attack.pod_agents import PodAgents, chosen_image
from stormcast.chaos.attack.targets import Target, TargetError
from stormcast.chaos.backends.kubernetes.any_pods import AnyPods
from stormcast.chaos.drivers.base import Bites
from stormcast.chaos.language.network_state import PACKETS, NetworkState

NO_PAUSE: Final = (
    "nothing in a pod can stop the first process of another container (the kernel protects it "
    "there)"
)


def check_pods(plan: Plan) -> None:
    """Refuse (TargetError) what cannot be done to pods."""
    if plan.kind == PAUSE:
        raise TargetError(f"pause: {NO_PAUSE}; cut its network: partition, or kill the pod")


class OnPods:
    """Faults of pods' networks."""

    def __init__(self, plan: Plan, cluster: AnyPods, image: str) -> None:
        self._plan = plan
        self.agents = PodAgents(cluster, plan.targets, image)

    @property
    def lease_left(self) -> float | None:
        """Seconds left of the lease; None: no fault acts."""
        return self.agents.lease_left

    def begin(self) -> None:
        self.agents.apply(
            NetworkState(
                members=self._plan.words,
                faults=self._plan.network_faults(),
                seed=self._plan.seed,
                dice=PACKETS,
            )
        )

    def keep(self) -> None:
        self.agents.keep()

    def bites(self) -> Bites:
        return self.agents.bites()

    def end(self) -> None:
        self.agents.close()


class KilledPods:
    """Pods that are deleted at once. What made them may make others in their place."""

    def __init__(self, plan: Plan, cluster: AnyPods) -> None:
        self._plan = plan
        self._cluster = cluster
        self._bites: dict[str, dict[tuple[str, str], int]] = {}

    def begin(self) -> None:
        for fault, target in zip(self._plan.actions(), self._plan.targets, strict=True):
            pod = target.pod
            assert pod is not None
            was_there = self._cluster.delete(pod.namespace, pod.name, pod.uid)
            self._bites[fault] = {(target.word, target.word): int(was_there)}

    def keep(self) -> None:
        """Do nothing: nothing acts any more."""

    def bites(self) -> Bites:
        return self._bites

    def end(self) -> None:
        """Do nothing: what is killed stays so."""


def striking_pods(plan: Plan, cluster: AnyPods) -> OnPods | KilledPods:
    """Return what carries out a plan on pods."""
    if plan.is_of_processes:
        return KilledPods(plan, cluster)
    return OnPods(plan, cluster, chosen_image())


def lines_of_dry_run(plan: Plan, targets: Sequence[Target]) -> list[str]:
    """Return what would be done to each pod, in words for people."""
    if plan.is_of_processes:
        return [f"  {one.word}: {one.what} would be deleted" for one in targets]
    places = [(one, one.pod.addresses) for one in targets if one.pod is not None]
    return [f"  {one.word}: {one.what}, at {' '.join(found)}" for one, found in places] + [
        f"  each would get an ephemeral container of {chosen_image()}, with NET_ADMIN and NET_RAW, "
        "which ends with the attack and stays in the pod's description"
    ]
