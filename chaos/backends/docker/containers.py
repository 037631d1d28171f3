"""What the pod of a member is made of in docker: two containers in one network, and a volume.

The network is that of the agent's container, which the keeper's container joins. So a keeper that
has ended, and is started again, is where the faults act. No container is privileged, has a root
file system that can be written to, or a way to other networks.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any, Final, NamedTuple

from stormcast.chaos.backends.pods.pod import AGENT, KEEPER, PORTS, Pod
from stormcast.chaos.backends.run_id import RunId

MOUNT: Final = "/var/lib/stormcast"
"""The folder of a pod's volume in both containers."""
FOLDER: Final = f"{MOUNT}/members"
"""The keeper's folder, with journals and logs: it outlives the container."""
KEYS: Final = f"{MOUNT}/keeper/cluster.key"
USER: Final = 10001
"""The user of keepers and members, as in the image."""
ROOT: Final = 0
"""The user of agents: only as root do their capabilities take effect in what they start."""
LOG_BYTES: Final = "10m"
_RESTRICTED: Final[Mapping[str, Any]] = {
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
    "read_only": True,
    "log_config": {"Type": "json-file", "Config": {"max-size": LOG_BYTES, "max-file": "1"}},
}


class Subnets(NamedTuple):
    """The networks of a run's addresses."""

    v4: str
    v6: str | None
    """None: members have no IPv6 address."""

    @classmethod
    def at(cls, index: int, *, ipv6: bool) -> Subnets:
        """Return the subnets at an index below `SUBNETS`."""
        v4 = next_subnet(index)
        return cls(v4, f"fd00:5c:0:{index:x}::/64" if ipv6 else None)

    @property
    def gateways(self) -> dict[str, str]:
        """The first address of each subnet, which is this machine's."""
        return {subnet: str(ip_network(subnet)[1]) for subnet in self if subnet is not None}

    def addresses(self, ordinal: int) -> tuple[str, ...]:
        """Return the addresses of a pod; with IPv6 that one is first, and members bind to it."""
        found = [str(ip_network(subnet)[2 + ordinal]) for subnet in self if subnet is not None]
        return tuple(reversed(found))


RANGE: Final = ip_network("198.18.0.0/15")
"""For tests of networks: it leads nowhere on the internet."""
PREFIX: Final = 23
"""Of the subnet of one run, which has room for 509 members."""
SUBNETS: Final = 1 << (PREFIX - RANGE.prefixlen)


def next_subnet(index: int) -> str:
    """Return the IPv4 subnet at an index."""
    first = RANGE.network_address + (index << (RANGE.max_prefixlen - PREFIX))
    return f"{first}/{PREFIX}"


def agent_of(pod: str) -> str:
    """Return the name of the agent's container of a pod."""
    return f"{pod}-agent"


@dataclass(frozen=True, slots=True)
class PodNames:
    """The names of the parts of one member's pod."""

    run: RunId
    member: str

    @property
    def keeper(self) -> str:
        """The keeper's container, after which the pod is called."""
        return f"{self.run}-{self.member}"

    @property
    def agent(self) -> str:
        return agent_of(self.keeper)

    @property
    def volume(self) -> str:
        return f"{self.run}-{self.member}"


def pod_of(names: PodNames, ordinal: int, subnets: Subnets) -> Pod:
    """Return the pod of a member, as a run sees it."""
    return Pod(
        name=names.keeper,
        ordinal=ordinal,
        addresses=subnets.addresses(ordinal),
        ports=PORTS,
        has_agent=True,
        is_tls=False,
    )


def agent_settings(names: PodNames, image: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the agent's container is, and what its host does for it."""
    return (
        {
            "image": image,
            "command": ["agent", f"--config={MOUNT}/agent/agent.yaml"],
            "user": f"{ROOT}:{ROOT}",
            "hostname": names.member,
        },
        {
            **_RESTRICTED,
            "cap_add": ["NET_ADMIN", "NET_RAW"],
            "binds": {names.volume: {"bind": MOUNT, "mode": "ro"}},
            # nft and iptables want to lock something.
            "tmpfs": {"/run": "size=1m", "/tmp": "size=16m"},  # noqa: S108 in a container
        },
    )


def keeper_settings(
    names: PodNames, image: str, host: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the keeper's container is, and what its host does for it; `host`: on which of its
    addresses it is asked."""
    return (
        {
            "image": image,
            "command": [
                "keep",
                f"--listen={_at(host, KEEPER)}",
                "--tls=none",
                f"--token-file={MOUNT}/keeper/token",
                f"--folder={FOLDER}",
            ],
            "user": f"{USER}:{USER}",
        },
        {
            **_RESTRICTED,
            "network_mode": f"container:{names.agent}",
            "binds": {names.volume: {"bind": MOUNT, "mode": "rw"}},
            "tmpfs": {"/tmp": "size=16m"},  # noqa: S108 in a container
        },
    )


def files_of_pod(site: str, host: str, token: str, keys: bytes | None) -> bytes:
    """Return a tar with the files of a pod: each secret once for each user that reads it, as nobody
    else may. `site`: what states call its member."""
    agent = {
        "table": "stormcast",
        "control": _at(host, AGENT),
        "token_file": f"{MOUNT}/agent/token",
        "tls": "none",
        "sites": [{"name": site}],
    }
    files = {
        "agent/agent.yaml": (ROOT, json.dumps(agent).encode()),
        "agent/token": (ROOT, token.encode()),
        "keeper/token": (USER, token.encode()),
    }
    if keys is not None:
        files |= keys_in_pod(keys)
    return tar_of(files, folders={"agent": ROOT, "keeper": USER, "members": USER})


def keys_in_pod(keys: bytes) -> dict[str, tuple[int, bytes]]:
    """Return the file with the keys of the members."""
    return {KEYS.removeprefix(f"{MOUNT}/"): (USER, keys)}


def tar_of(files: Mapping[str, tuple[int, bytes]], folders: Mapping[str, int] = {}) -> bytes:
    """Return a tar with these folders and files, each with the user that alone may read it."""
    kept = io.BytesIO()
    with tarfile.open(fileobj=kept, mode="w") as tar:
        for path, user in folders.items():
            entry = tarfile.TarInfo(path)
            entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, 0o700, user, user
            tar.addfile(entry)
        for path, (user, content) in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode, entry.uid, entry.gid = len(content), 0o400, user, user
            tar.addfile(entry, io.BytesIO(content))
    return kept.getvalue()


def _at(host: str, what: str) -> str:
    return f"[{host}]:{PORTS[what]}" if ":" in host else f"{host}:{PORTS[what]}"
