"""The docker backend: members in containers of the project's images, on a network of their own.

Requests to keepers and agents travel over that network, too, but on ports and from an address that
no fault of a run strikes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import stormcast
from stormcast.chaos.backends.docker.place import DockerPlace
from stormcast.chaos.backends.pods.backend import PodsBackend


class DockerBackend(PodsBackend):
    """Members in containers."""

    def __init__(
        self,
        features: Mapping[str, str | None] | None = None,
        key_file: Path | None = None,
        *,
        ipv6: bool = False,
    ) -> None:
        """`features`: the answer of `features`, if it was asked before, as that takes seconds;
        `key_file`: the keys of sealed members, in place of a file that is made for the run;
        `ipv6`: whether members speak IPv6."""
        place = DockerPlace(stormcast.__version__, ipv6=ipv6, key_file=key_file, features=features)
        super().__init__("docker", place)
