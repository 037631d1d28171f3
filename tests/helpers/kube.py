"""A release of the chart in a real cluster: installed, asked through the API server, taken away."""

from __future__ import annotations

import base64
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from shutil import rmtree
from typing import Any, Final

import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException
from kubernetes.stream import stream
from urllib3.exceptions import HTTPError

from stormcast.chaos.backends.kubernetes.api import Api, open_api
from stormcast.chaos.backends.pods.pod import Port, request_of
from stormcast.node.core.errors import NodeError
from tests.helpers.chart import CHART, HELM, merged

RELEASE: Final = "demo"
NAME: Final = "demo-stormcast"
MEMBER_PORT: Final = 7801
AGENT_PORT: Final = 7802
CONTROLLER_PORT: Final = 7803
ASKED: Final = "STORMCAST_KUBERNETES"
"""Set by `make test-kubernetes`: nobody's cluster is touched by a mere `make test`."""
TAG: Final = "STORMCAST_IMAGE_TAG"
"""Of images that the cluster has, or can pull; by default those of `make image`."""
SHARED: Final = "STORMCAST_SHARED"
"""A folder that has the same content on each node, and here: nobody else's cluster has a volume for
us."""
CLAIM: Final = "runs"
INSTALL_SECONDS: Final = 180
# Runs in the processes of the node, where the first process of a container can be killed: inside
# of the container the kernel protects it.
_KILLER: Final = """
import os, signal, sys
pod, word = sys.argv[1:]
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        cgroup = open(f"/proc/{pid}/cgroup").read().replace("_", "-")
        words = open(f"/proc/{pid}/cmdline").read().split("\\0")
    except OSError:
        continue
    if pod in cgroup and word in words:
        os.kill(int(pid), signal.SIGKILL)
        print("killed", pid)
"""


def missing() -> str | None:
    """Why there is no cluster to test in; None where there is one."""
    if not os.environ.get(ASKED):
        return "only run by make test-kubernetes: it installs the chart where KUBECONFIG points"
    try:
        config.load_kube_config()
        client.VersionApi().get_code(_request_timeout=10)
    except (ConfigException, HTTPError, ApiException, OSError) as error:
        reason = str(error).splitlines()[0]
        return f"no cluster answers: {reason}; set KUBECONFIG, or begin with manifests/kind.yaml"
    return None


class Failed(Exception):
    """A command that should have worked: what it said, and how the pods are."""


class Cluster:
    """A namespace of its own in the cluster of KUBECONFIG."""

    def __init__(self) -> None:
        self.namespace = f"stormcast-test-{token_hex(3)}"
        self.core = client.CoreV1Api()
        door, _namespace = open_api()
        self._api = Api(door, self.namespace)
        self._token = ""
        self._values: dict[str, Any] = {"pod": {"spread": {"whenUnsatisfiable": "DoNotSchedule"}}}
        if tag := os.environ.get(TAG):
            self._values["images"] = {"node": {"tag": tag}, "chaos": {"tag": tag}}

    # -- Life --------------------------------------------------------------------------------------

    @contextmanager
    def opened(self) -> Iterator[Cluster]:
        """A namespace that goes with everything in it, whatever becomes of the tests."""
        named = client.V1Namespace(metadata=client.V1ObjectMeta(name=self.namespace))
        self.core.create_namespace(named)
        try:
            yield self
        finally:
            self.core.delete_namespace(self.namespace)

    @contextmanager
    def claimed(self, shared: Path) -> Iterator[Path]:
        """A claim whose volume is a new folder of a shared one."""
        folder = shared / f"stormcast-{token_hex(3)}"
        folder.mkdir(parents=True)
        # Pods write to it as users of their own.
        folder.chmod(0o777)
        volume = f"stormcast-{token_hex(3)}"
        of_volume = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "hostPath": {"path": str(folder), "type": "Directory"},
            "claimRef": {"namespace": self.namespace, "name": CLAIM},
            "storageClassName": "",
        }
        of_claim = {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
            "volumeName": volume,
            "storageClassName": "",
        }
        self.core.create_persistent_volume({"metadata": {"name": volume}, "spec": of_volume})
        try:
            self.core.create_namespaced_persistent_volume_claim(
                self.namespace, {"metadata": {"name": CLAIM}, "spec": of_claim}
            )
            yield folder
        finally:
            with suppress(ApiException):
                # Another module of tests may make one of this name.
                self.core.delete_namespaced_persistent_volume_claim(CLAIM, self.namespace)
            self.core.delete_persistent_volume(volume)
            rmtree(folder, ignore_errors=True)

    def install(self, values: Mapping[str, Any], *, waits: bool = True) -> None:
        """The chart with some values, and those of earlier times; as often as one likes."""
        self._token = ""
        self._values = merged(self._values, values)
        wait = ("--wait", "--timeout", f"{INSTALL_SECONDS}s") if waits else ()
        self.helm(
            "upgrade",
            "--install",
            RELEASE,
            CHART,
            "--values",
            "-",
            *wait,
            text=yaml.safe_dump(self._values),
        )

    def helm(self, *words: object, text: str = "") -> str:
        """What Helm prints on both streams."""
        argv = [str(word) for word in (HELM, *words, "--namespace", self.namespace)]
        done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"{done.stdout}\n{done.stderr}\n{self.troubles()}")
        return done.stdout + done.stderr

    def run(self, file: Path, out: Path) -> subprocess.CompletedProcess[str]:
        """A scenario, run from the outside to its end."""
        process = self.begin(file, out)
        try:
            said, errors = process.communicate(timeout=300)
        finally:
            process.kill()
            process.wait()
        return subprocess.CompletedProcess(process.args, process.returncode, said, errors)

    def begin(self, file: Path, out: Path) -> subprocess.Popen[str]:
        """A scenario that begins to run; whoever asks for it ends it."""
        argv = [
            HELM.with_name("stormcast"), "run", file, "--backend", "kubernetes", "--json",
            "--namespace", self.namespace, "--release", RELEASE, "--out", out,
        ]  # fmt: skip  # one command
        pipe = subprocess.PIPE
        return subprocess.Popen(list(map(str, argv)), stdout=pipe, stderr=pipe, text=True)

    # -- Pods --------------------------------------------------------------------------------------

    def pods(self, component: str = "member") -> list[Any]:
        """Those of one component, by name."""
        selector = f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component={component}"
        found = self.core.list_namespaced_pod(self.namespace, label_selector=selector).items
        return sorted(found, key=lambda pod: str(pod.metadata.name))

    def names(self) -> list[str]:
        """Of the members' pods."""
        return [pod.metadata.name for pod in self.pods()]

    def restarts(self, pod: str, container: str) -> int:
        """How often a container was started again."""
        status = self.core.read_namespaced_pod(pod, self.namespace).status
        every = [*(status.init_container_statuses or []), *status.container_statuses]
        return next(int(one.restart_count) for one in every if one.name == container)

    def run_in(self, pod: str, container: str, *words: str) -> str:
        """What a program prints in a container."""
        session = stream(
            self.core.connect_get_namespaced_pod_exec,
            pod,
            self.namespace,
            container=container,
            command=list(words),
            stderr=True,
            stdin=False,
            stdout=True,
            tty=False,
            _preload_content=False,
        )
        try:
            session.run_forever(timeout=30)
            said: str = session.read_all()
        finally:
            # Its own close leaves the socket open once the other side has ended.
            session.sock.shutdown()
        return said

    def troubles(self) -> str:
        """How all pods are, and what was said of them."""
        pods = self.core.list_namespaced_pod(self.namespace).items
        lines = [f"{pod.metadata.name}: {pod.status.phase}" for pod in pods]
        events = self.core.list_namespaced_event(self.namespace).items
        lines += [
            f"{one.involved_object.name}: {one.message}" for one in events if one.type != "Normal"
        ]
        return "\n".join(lines)

    def log(self, pod: str, container: str) -> str:
        said: str = self.core.read_namespaced_pod_log(pod, self.namespace, container=container)
        return said

    # -- Questions ---------------------------------------------------------------------------------

    @property
    def token(self) -> str:
        """That of this release."""
        if not self._token:
            self._token = self.secret("token")["token"]
        return self._token

    def secret(self, name: str) -> dict[str, str]:
        """What a Secret of this release has."""
        found = self.core.read_namespaced_secret(f"{NAME}-{name}", self.namespace).data
        return {key: base64.b64decode(text).decode() for key, text in found.items()}

    def ask(
        self,
        pod: str,
        port: int,
        method: str,
        path: str,
        body: object = None,
        *,
        is_tls: bool = True,
    ) -> Any:
        """One question to a keeper or an agent, through the API server."""
        reply = self._api.send(
            Port(pod, port, "", is_tls), request_of(method, path, body, self.token)
        )
        assert reply.is_ok, f"{pod}: {method} {path}: {reply.status} {reply.value()}"
        return reply.value()

    def state(self, pod: str) -> dict[str, Any]:
        """What a member says of itself."""
        state: dict[str, Any] = self.ask(pod, MEMBER_PORT, "GET", "/member/state")
        return state

    def views(self) -> set[tuple[str, ...]]:
        """The views that members hold, each with who is in it."""
        found = set()
        for pod in self.names():
            view = self.state(pod)["view"]
            members = [] if view is None else sorted(one["name"] for one in view["members"])
            found.add((str(view and view["id"]), *members))
        return found

    def is_one_group(self) -> bool:
        """Whether all members hold one view, of all members."""
        views = self.views()
        return len(views) == 1 and list(next(iter(views)))[1:] == self.names()

    def received(self, pod: str, peer: str) -> int:
        """Messages of a peer that were delivered to a member."""
        text: str = self.ask(pod, MEMBER_PORT, "GET", "/member/metrics")
        start = f'stormcast_peer_received_messages_total{{peer="{peer}"}} '
        lines = [line for line in text.splitlines() if line.startswith(start)]
        return int(float(lines[0].removeprefix(start))) if lines else 0

    # -- Harm --------------------------------------------------------------------------------------

    def kill(self, pod: Any, word: str) -> None:
        """SIGKILL the process of a pod that has a word on its command line."""
        name = f"killer-{token_hex(3)}"
        image = next(one.image for one in self.pods()[0].spec.containers)
        box = {
            "name": "killer",
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["python", "-c", _KILLER, pod.metadata.uid, word],
            "securityContext": {"runAsUser": 0, "capabilities": {"add": ["KILL"]}},
        }
        spec = {
            "nodeName": pod.spec.node_name,
            "hostPID": True,
            "restartPolicy": "Never",
            "tolerations": [{"operator": "Exists"}],
            "containers": [box],
        }
        self.core.create_namespaced_pod(
            self.namespace, {"metadata": {"name": name}, "spec": spec, "kind": "Pod"}
        )
        try:
            until(lambda: self._is_over(name), 60, f"{name} is done")
            said = self.log(name, "killer")
            assert said.startswith("killed"), f"nothing to kill: {said!r}"
        finally:
            self.core.delete_namespaced_pod(name, self.namespace, grace_period_seconds=0)

    def _is_over(self, name: str) -> bool:
        phase = self.core.read_namespaced_pod(name, self.namespace).status.phase
        return phase in ("Succeeded", "Failed")


def until(is_done: Callable[[], bool], seconds: float, what: str, poll: float = 0.2) -> float:
    """Wait for something, also while it cannot be asked; returns how long it took."""
    begin, trouble = time.monotonic(), ""
    while True:
        try:
            if is_done():
                return time.monotonic() - begin
            trouble = ""
        except (AssertionError, NodeError) as error:
            # A container that is being started again, most often.
            trouble = f"; the last time: {error}"
        waited = time.monotonic() - begin
        assert waited < seconds, f"waited {seconds:g} s in vain: {what}{trouble}"
        time.sleep(poll)


def scenario(name: str) -> Path:
    """One of those that the chart ships."""
    return CHART / "scenarios" / f"{name}.yaml"
