"""Agents in pods: an ephemeral container in each, whose agent acts on the pod's network.

It is asked over its standard input and output, so it opens no port and needs no token. It ends when
its input does, which the kubelet sees to when this command is gone; what acts ends with the lease
in any case. Pods of a release of ours have an agent already, which is left alone: one way serves
all pods, and needs no right to read Secrets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from secrets import token_hex
from threading import Event
from typing import Any, Final

import stormcast
from stormcast.chaos.agent.agent import merged
from stormcast.chaos.agent.client import AgentClient, AgentError
from stormcast.chaos.agent.lines import LineClient, Wire
from stormcast.chaos.attack.targets import PodName, Target
from stormcast.chaos.backends.base import LEASE_SECONDS, BackendError
from stormcast.chaos.backends.docker.images import CHAOS_IMAGE, own_image
from stormcast.chaos.backends.kubernetes.any_pods import AnyPods
from stormcast.chaos.backends.kubernetes.pod_status import why_not_running
from stormcast.chaos.backends.pods.leases import MOST_AT_ONCE
from stormcast.chaos.drivers.base import Bites
from stormcast.chaos.language.network_state import NetworkState
from stormcast.node.core.errors import NodeError

START_SECONDS: Final = 120.0
"""Seconds until an agent must run: its node may have to fetch the image."""
POLL_SECONDS: Final = 0.2
RENEWALS: Final = 4
"""Renewals of a lease while it lasts, so that one late renewal does not end it."""
_PREFIX: Final = "stormcast-attack-"
"""Of the names of containers and tables. The rest is drawn: a pod keeps those that have ended."""


def chosen_image() -> str:
    """Return the image of agents."""
    return own_image(CHAOS_IMAGE, stormcast.__version__)


def container_of(name: str, image: str, table: str, word: str) -> dict[str, Any]:
    """Return the container of an agent: it has two rights, and no others."""
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["agent", f"--lines={table}", f"--name={word}"],
        # One who attaches, and the end of the input with it.
        "stdin": True,
        "stdinOnce": True,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "runAsUser": 0,
            "runAsGroup": 0,
            "runAsNonRoot": False,
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


class PodAgent:
    """The agent of an attack in one pod."""

    def __init__(self, cluster: AnyPods, target: Target, image: str, mark: str) -> None:
        assert target.pod is not None
        self._cluster = cluster
        self._pod: PodName = target.pod
        self._word = target.word
        self._image = image
        self._mark = mark
        self._wire: Wire | None = None
        self._client: AgentClient | None = None

    @property
    def client(self) -> AgentClient:
        """The agent's client, once it is attached."""
        assert self._client is not None
        return self._client

    @property
    def is_there(self) -> bool:
        """Whether this command is attached to it."""
        return self._wire is not None

    def start(self, is_over: Event) -> None:
        """Have the pod run the agent, and attach to it; BackendError if it does not run."""
        pod, name = self._pod, f"{_PREFIX}{self._mark}"
        table = name.replace("-", "_")
        made = container_of(name, self._image, table, self._word)
        try:
            self._cluster.add_container(pod.namespace, pod.name, made)
            self._wait(name, is_over)
            self._wire = self._cluster.attach(pod.namespace, pod.name, name)
        except BackendError as error:
            raise BackendError(f"pod {pod}: {error}") from None
        whose = f"the agent of pod {pod}"
        self._client = AgentClient(LineClient(whose, self._wire).ask)

    def _wait(self, name: str, is_over: Event) -> None:
        until = time.monotonic() + START_SECONDS
        while not is_over.is_set():
            found = self._cluster.get(self._pod.namespace, self._pod.name)
            if self._runs(name, found.get("status", {})):
                return
            if time.monotonic() > until:
                raise BackendError(f"its agent ({self._image}) does not run yet")
            is_over.wait(POLL_SECONDS)
        raise BackendError("the attack is over before it began")

    def _runs(self, name: str, status: dict[str, Any]) -> bool:
        listed: list[dict[str, Any]] = status.get("ephemeralContainerStatuses", [])
        one = next((one for one in listed if one.get("name") == name), {})
        state = one.get("state", {})
        reason = str(state.get("waiting", {}).get("reason", ""))
        if "Image" in reason:
            raise BackendError(
                f"its node cannot have the image of the agent: {why_not_running(one)}; bring it "
                f"there, or have {CHAOS_IMAGE} name one that can be pulled"
            )
        if "Error" in reason or "terminated" in state:
            raise BackendError(f"its agent does not run: {why_not_running(one) or 'it has ended'}")
        return "running" in state

    def close(self) -> None:
        """Have the agent end."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None


class PodAgents:
    """The agents of some pods under one lease, started when they are first needed."""

    def __init__(self, cluster: AnyPods, targets: Sequence[Target], image: str) -> None:
        mark = token_hex(4)
        self._places = {one.word: one.pod.addresses for one in targets if one.pod is not None}
        self._agents = [PodAgent(cluster, target, image, mark) for target in targets]
        self._threads = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="attack")
        self._is_over = Event()
        self._is_started = False
        self._renewed: float | None = None
        """The time at which the lease began; None: no fault acts."""
        self._is_broken = False
        """Whether an agent failed: that error is the one to be told."""
        self._bites: Bites = {}

    @property
    def lease_left(self) -> float | None:
        """Seconds left of the lease; None: no fault acts."""
        if self._renewed is None:
            return None
        return max(0.0, self._renewed + LEASE_SECONDS - time.monotonic())

    def features(self) -> dict[str, str | None]:
        """Return by feature None where all pods have it, else the reason why one has not."""
        self._start()
        found: dict[str, str | None] = {}
        for one in self._each(lambda agent: agent.client.features()):
            for feature, why in one.items():
                found[feature] = found.get(feature) or why
        return found

    def apply(self, state: NetworkState) -> None:
        """Bring the networks of all pods into `state`."""
        self._start()
        begun = time.monotonic()
        whole = replace(state, places=self._places)
        self._each(lambda agent: agent.client.apply(whole, LEASE_SECONDS))
        self._renewed = begun

    def keep(self) -> None:
        """Renew the lease if a quarter of it has passed: to be called often while waiting."""
        begun = time.monotonic()
        if self._renewed is not None and begun - self._renewed >= LEASE_SECONDS / RENEWALS:
            self._each(lambda agent: agent.client.renew(LEASE_SECONDS))
            self._renewed = begun

    def bites(self) -> Bites:
        """Return the bites of each fault; after the end, those of the last answer."""
        if self._renewed is not None:
            self._bites = merged(self._each(lambda agent: agent.client.bites()))
        return self._bites

    def close(self) -> None:
        """Have all agents clear everything, and end; BackendError if one cannot be told to."""
        self._is_over.set()
        try:
            if not self._is_broken:
                self.bites()
        finally:
            self._renewed = None
            # What Ctrl-C has left under way, such as a start, comes to its end first.
            self._threads.shutdown()
            with ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="heal") as threads:
                failed = list(filter(None, threads.map(_healed, self._agents)))
        if failed and not self._is_broken:
            raise BackendError(
                f"{failed[0]}; it heals by itself when its lease is over, in "
                f"{LEASE_SECONDS + 1:g} s at the latest"
            )

    def _start(self) -> None:
        if not self._is_started:
            self._is_started = True
            self._each(lambda agent: agent.start(self._is_over))

    def _each(self, do: Callable[[PodAgent], Any]) -> list[Any]:
        """Do something for all pods at once, each to its end, and raise the first failure. Ctrl-C
        may come while this thread waits, and disturbs no question that is under way."""
        works = [self._threads.submit(do, agent) for agent in self._agents]
        errors = [work.exception() for work in works]
        for error in errors:
            if error is not None:
                self._is_broken = True
                raise error
        return [work.result() for work in works]


def _healed(agent: PodAgent) -> NodeError | None:
    """Have an agent clear everything, and end; return why it could not be told to."""
    try:
        if agent.is_there:
            agent.client.clear()
    except AgentError as error:
        return error
    finally:
        agent.close()
    return None
