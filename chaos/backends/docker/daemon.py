"""The docker daemon, as far as this backend needs it. Every error is one line with its remedy."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from stormcast.chaos.backends.base import BackendError
from stormcast.node.core.names import one_line

if TYPE_CHECKING:
    from docker.api.client import APIClient

SECONDS: Final = 60.0
"""Seconds that one answer may take: a machine that is busy takes long to start a container."""
MOST_AT_ONCE: Final = 8
"""The most requests at once."""
_LONGEST: Final = 300
_GONE: Final = ("already in progress", "is not running")
"""What the daemon says of what is as good as gone."""
START_IT: Final = "start it (dockerd, or systemctl start docker), or set DOCKER_HOST"


class ConflictError(BackendError):
    """The daemon has something already that excludes what was asked for."""


class Daemon:
    """Requests to the docker daemon, for several threads."""

    def __init__(self, client: APIClient) -> None:
        self._client = client

    def close(self) -> None:
        """Close all connections."""
        with suppress(Exception):
            self._client.close()

    # -- Images ----------------------------------------------------------------------------------

    def has_image(self, name: str) -> bool:
        """Whether the daemon has an image."""
        with _errors(f"image {name}"):
            return bool(self._client.images(name))

    # -- Networks --------------------------------------------------------------------------------

    def make_network(
        self, name: str, subnets: Mapping[str, str], labels: Mapping[str, str]
    ) -> None:
        """Make a network that leads nowhere else, with these subnets (gateway by subnet).
        ConflictError if one of them is in use."""
        with _errors(f"network {name}"):
            self._client.create_network(
                name,
                driver="bridge",
                internal=True,
                enable_ipv6=any(":" in subnet for subnet in subnets),
                ipam={
                    "Driver": "default",
                    "Config": [
                        {"Subnet": subnet, "Gateway": gateway}
                        for subnet, gateway in subnets.items()
                    ],
                },
                labels=dict(labels),
            )

    def subnets(self) -> list[str]:
        """Return the subnets of all networks."""
        with _errors("networks"):
            found = self._client.networks()
        configs = [(one.get("IPAM") or {}).get("Config") or () for one in found]
        return [str(one["Subnet"]) for config in configs for one in config if "Subnet" in one]

    def networks(self, label: str) -> list[dict[str, Any]]:
        """Return the networks with a label."""
        with _errors("networks"):
            found: list[dict[str, Any]] = self._client.networks(filters={"label": label})
        return found

    def remove_network(self, name: str) -> None:
        """Remove a network; one that is gone is no trouble."""
        with _errors(f"network {name}", gone_is_fine=True):
            self._client.remove_network(name)

    # -- Volumes ---------------------------------------------------------------------------------

    def make_volume(self, name: str, labels: Mapping[str, str]) -> None:
        """Make a volume."""
        with _errors(f"volume {name}"):
            self._client.create_volume(name, labels=dict(labels))

    def volumes(self, label: str) -> list[dict[str, Any]]:
        """Return the volumes with a label."""
        with _errors("volumes"):
            found = self._client.volumes(filters={"label": label})
        return list(found.get("Volumes") or ())

    def remove_volume(self, name: str) -> None:
        """Remove a volume; one that is gone is no trouble."""
        with _errors(f"volume {name}", gone_is_fine=True):
            self._client.remove_volume(name, force=True)

    # -- Containers ------------------------------------------------------------------------------

    def make_container(self, name: str, host: Mapping[str, Any], **settings: Any) -> None:  # noqa: ANN401 as the daemon takes them
        """Make a container, which does not run yet; `host`: what its host does for it."""
        with _errors(f"container {name}"):
            self._client.create_container(
                name=name,
                detach=True,
                host_config=self._client.create_host_config(**host),
                **settings,
            )

    def at_address(self, network: str, address4: str, address6: str | None) -> dict[str, Any]:
        """Return the settings of a container that has these addresses in a network."""
        place = self._client.create_endpoint_config(ipv4_address=address4, ipv6_address=address6)
        found: dict[str, Any] = self._client.create_networking_config({network: place})
        return found

    def put(self, container: str, folder: str, tar: bytes) -> None:
        """Unpack a tar in a folder of a container."""
        with _errors(f"container {container}"):
            self._client.put_archive(container, folder, tar)

    def start(self, container: str) -> None:
        """Start a container."""
        with _errors(f"container {container}"):
            self._client.start(container)

    def restart(self, container: str) -> None:
        """Kill a container, if it runs, and start it again."""
        with _errors(f"container {container}"):
            self._client.restart(container, timeout=0)

    def kill(self, container: str, by: str = "SIGKILL") -> None:
        """Send a signal to the first process of a container; by SIGKILL all of them end. One that
        does not run is no trouble."""
        with _errors(f"container {container}", gone_is_fine=True):
            self._client.kill(container, by)

    def pause(self, container: str) -> None:
        """Stop all processes of a container."""
        with _errors(f"container {container}"):
            self._client.pause(container)

    def unpause(self, container: str) -> None:
        """Have the processes of a paused container go on."""
        with _errors(f"container {container}"):
            self._client.unpause(container)

    def environment(self, container: str) -> list[str]:
        """Return the variables that a container's first process was started with, as NAME=VALUE."""
        with _errors(f"container {container}"):
            found: list[str] = self._client.inspect_container(container)["Config"]["Env"] or []
        return found

    def write_log(self, container: str, file: BinaryIO, most: int) -> None:
        """Write what a container has printed, as far as the daemon has it, and `most` bytes."""
        with _errors(f"container {container}"):
            lines = self._client.logs(container, stream=True, follow=False)
            with closing(lines):
                for piece in lines:
                    file.write(piece[:most])
                    most -= len(piece)
                    if most <= 0:
                        return

    def state(self, container: str) -> dict[str, Any]:
        """Return how a container is, as the daemon says it."""
        with _errors(f"container {container}"):
            found: dict[str, Any] = self._client.inspect_container(container)["State"]
        return found

    def last_lines(self, container: str, number: int = 1) -> str:
        """Return the last lines that a container has printed, as one; empty if there are none."""
        with suppress(BackendError), _errors(f"container {container}"):
            lines = self._client.logs(container, tail=number, stdout=True, stderr=True)
            return one_line(lines.decode(errors="replace").strip(), _LONGEST)
        return ""

    def containers(self, label: str = "") -> list[dict[str, Any]]:
        """Return the containers, running or not: all, or those with a label."""
        with _errors("containers"):
            found: list[dict[str, Any]] = self._client.containers(
                all=True, filters={"label": label} if label else None
            )
        return found

    def network_of(self, container: str) -> str:
        """Return the path of a container's network namespace, on its machine."""
        with _errors(f"container {container}"):
            found = self._client.inspect_container(container)
        mode = str(found["HostConfig"].get("NetworkMode", ""))
        if mode.startswith("container:"):
            return self.network_of(mode.partition(":")[2])
        kept: str = found["NetworkSettings"].get("SandboxKey") or ""
        # That of the host has no file of its own.
        return kept if kept and mode != "host" else f"/proc/{found['State']['Pid']}/ns/net"

    def processes(self, container: str) -> list[int]:
        """Return the processes of a container, by their numbers on its machine."""
        with _errors(f"container {container}"):
            found = self._client.top(container, "-eo pid")
        return [int(row[0]) for row in found["Processes"]]

    def remove_container(self, name: str) -> None:
        """Kill and remove a container; one that is gone is no trouble."""
        with _errors(f"container {name}", gone_is_fine=True):
            self._client.remove_container(name, force=True, v=True)


def open_daemon() -> Daemon:
    """Return the daemon that the environment names; BackendError if none answers."""
    try:
        # Imported only here: it takes a while, and only this backend needs it.
        from docker.api.client import APIClient  # noqa: PLC0415 slow to import, and optional
        from docker.utils import kwargs_from_env, parse_host  # noqa: PLC0415 slow to import, and optional
    except ImportError:
        raise BackendError(
            "the package docker is not installed: pip install stormcast[chaos]"
        ) from None
    with _errors("the daemon"):
        settings = kwargs_from_env()
        _knock(parse_host(settings.get("base_url")))
        # By `version="auto"` the daemon is asked at once.
        return Daemon(
            APIClient(version="auto", timeout=SECONDS, max_pool_size=MOST_AT_ONCE, **settings)
        )


def _knock(address: str) -> None:
    """Connect to the daemon's socket, if it has one: where nobody listens, the library would leave
    its own socket open."""
    from docker.errors import DockerException  # noqa: PLC0415 slow to import, and optional

    kind, _, path = address.partition("://")
    if kind != "http+unix":
        return
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(SECONDS)
        try:
            door.connect(f"/{path.lstrip('/')}")
        except OSError as error:
            raise DockerException(f"{path}: {error.strerror}") from None


@contextmanager
def _errors(what: str, *, gone_is_fine: bool = False) -> Iterator[None]:
    """Turn whatever the library raises into one line; `what`: what was asked about."""
    from docker.errors import APIError, DockerException, NotFound  # noqa: PLC0415 slow to import, and optional
    from requests.exceptions import RequestException  # noqa: PLC0415 slow to import, and optional

    try:
        yield
    except NotFound as error:
        if not gone_is_fine:
            raise BackendError(f"docker: {what}: {_words(error)}") from None
    except APIError as error:
        said = _words(error)
        if gone_is_fine and any(words in said for words in _GONE):
            return
        kind = ConflictError if "overlap" in said else BackendError
        raise kind(f"docker: {what}: {said}") from None
    except (DockerException, RequestException) as error:
        said = one_line(error, _LONGEST)
        if "Permission denied" in said:
            raise BackendError(
                "this user may not ask the docker daemon: run as root, or join the group docker"
            ) from None
        if isinstance(error, DockerException):
            raise BackendError(f"no docker daemon answers: {START_IT}") from None
        raise BackendError(f"the docker daemon does not answer: {said}; {START_IT}") from None


def _words(error: Any) -> str:  # noqa: ANN401 of the library
    return one_line(error.explanation or error, _LONGEST)
