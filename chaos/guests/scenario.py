"""A scenario with `guests:` in place of a cluster: programs of others, and one client of them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stormcast.chaos.backends.by_name import KUBERNETES, NETNS
from stormcast.chaos.faults import Names
from stormcast.chaos.language.cluster import Cluster
from stormcast.chaos.language.scenario import Limits, Scenario
from stormcast.chaos.language.timeline import Step

CLIENT: Final = "client"
"""The client's name among the guests, where a step aims at its network."""
ADDRESS: Final = "address"
FOLDER: Final = "folder"
PYTHON: Final = "python"
_HOLE: Final = re.compile(r"(?<!\$)\{([a-z][a-z0-9-]*)\}")
"""A word in braces; not ${a}, which is the shell's."""
_OF_PODS: Final = ("pod", "label")
"""Kinds of targets, in the words of an attack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """How one knows that a guest is ready: it takes connections, a command succeeds, or its cluster
    says so."""

    tcp: int | None = None
    command: str | None = None
    condition: str | None = None
    """Of a pod: which one the cluster must say that it has."""
    within: float = 30.0
    """Seconds that it may take at the start of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """A program: how it is started, is known to be ready, and is stopped."""

    name: str
    command: str
    """Empty: what the image says."""
    image: str | None = None
    """The image of docker whose container it is; None: a command of this machine."""
    target: str | None = None
    """What runs already, in the words of an attack; None: the run starts it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, str] = field(default_factory=dict)
    """What a container may read: paths from the scenario's folder, and where it sees them."""
    ready: Ready | None = None
    stop: str = "SIGTERM"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """The program that uses the guests, and prints the history of that."""

    command: str
    model: str
    settle: float = 0.0
    """Seconds that the guests may take, after the last fault and change, until reads must show
    everything."""
    stop: str = "SIGTERM"
    """The signal that tells it to come to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestLimits:
    """The limits of a run."""

    run: float = 60.0
    """Seconds in which the timeline must be over, and guests ready again."""
    finish: float = 20.0
    """Seconds that the client may take to come to its end once it is told to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestExpect:
    """What is expected of guests themselves."""

    ready_within: float
    """Seconds from the last end of a fault until each is ready again (H5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestScenario:
    """One scenario file with guests."""

    name: str
    about: str = ""
    guests: tuple[Guest, ...]
    client: Client | None = None
    timeline: tuple[Step, ...] = ()
    expect: GuestExpect | None = None
    limits: GuestLimits = field(default_factory=GuestLimits)
    path: str = field(default="", compare=False)
    text: str = field(default="", compare=False)

    @property
    def names(self) -> Names:
        """The names of all who have a network of their own: the guests, and the client of those
        that the run starts."""
        has_client = self.client is not None and not self.targets
        return (*(guest.name for guest in self.guests), *((CLIENT,) if has_client else ()))

    @property
    def targets(self) -> dict[str, str]:
        """What the guests are that run already, by name."""
        return {one.name: one.target for one in self.guests if one.target is not None}

    @property
    def is_of_pods(self) -> bool:
        """Whether its guests are pods of a cluster."""
        return any(is_pod_word(word) for word in self.targets.values())

    @property
    def backend(self) -> str:
        """The backend that a run of it names."""
        return KUBERNETES if self.is_of_pods else NETNS

    @property
    def folder(self) -> Path:
        """The folder of the file, which commands have as `{folder}`."""
        return Path(self.path).resolve().parent

    def plan(self) -> Scenario:
        """Return the faults as those of a scenario, for its schedule and its record."""
        return Scenario(
            name=self.name,
            about=self.about,
            guarantees=(),
            # No random choice crashes or stops a member that has not come yet, and so not the
            # client; its network is parted like all others.
            cluster=Cluster(members=self.names, late=(CLIENT,) if CLIENT in self.names else ()),
            timeline=self.timeline,
            limits=Limits(run=self.limits.run, settle=self.limits.finish),
            path=self.path,
            text=self.text,
        )


def is_pod_word(word: str) -> bool:
    """Whether the word of a target names pods."""
    return word.partition(":")[0] in _OF_PODS


def holes(text: str) -> list[str]:
    """Return the words in braces of a text."""
    found: list[str] = _HOLE.findall(text)
    return found


def fill(command: str, places: Mapping[str, str]) -> str:
    """Return a command with what its words in braces stand for."""
    return _HOLE.sub(lambda match: shlex.quote(places[match[1]]), command)


def put(text: str, places: Mapping[str, str]) -> str:
    """Return a text that no shell reads with what its words in braces stand for."""
    return _HOLE.sub(lambda match: places[match[1]], text)
