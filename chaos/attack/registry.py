"""The attacks that were started on this machine, each with a file that other commands read."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

from stormcast.chaos.agent.client import AgentClient, AgentError, over_unix
from stormcast.chaos.backends.netns.agent import SOCKET
from stormcast.chaos.backends.run_id import start_of
from stormcast.node.core.errors import ConfigError
from stormcast.whole import write_whole

_FILE: Final = "attack.json"


def usual_place() -> Path:
    """Return the folder of all attacks: of this machine for root, else of this user, whose session
    may have no folder for what runs."""
    if os.geteuid() == 0:
        root = Path("/run")
    elif runtime := os.environ.get("XDG_RUNTIME_DIR"):
        root = Path(runtime)
    else:
        root = Path.home() / ".local" / "state"
    return root / "stormcast" / "attacks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One attack, as others see it."""

    id: str
    pid: int
    started: int
    """The start time of its process, in clock ticks since boot: the pid alone may be used again."""
    what: str
    """Its kind, its options and its targets, in words."""
    since: float
    """Seconds since 1970."""
    until: float | None
    """None: it acts until it is ended."""
    folder: str
    run: str = ""
    """Its run directory."""
    struck: Mapping[str, int] = field(default_factory=dict)
    """How often its faults had an effect, where no agent of this machine counts."""
    lease_until: float | None = None
    """Seconds since 1970: the end of its lease, where no agent of this machine has it."""

    @property
    def lives(self) -> bool:
        """Whether its process runs."""
        return start_of(self.pid) == self.started

    def bites(self) -> tuple[int, float | None]:
        """Return how often it struck so far, and the seconds left of its lease; None: nothing
        acts on a network."""
        struck, left = sum(self.struck.values()), None
        if self.lease_until is not None:
            left = max(0.0, self.lease_until - time.time())
        if (Path(self.folder) / SOCKET).exists():
            ask = over_unix(Path(self.folder) / SOCKET)
            with suppress(AgentError):
                left = ask("GET", "/state", None)["lease"]
                counted = AgentClient(ask).bites()
                struck += sum(sum(pairs.values()) for pairs in counted.values())
        return struck, left


class Registry:
    """The folder of all attacks."""

    def __init__(self, place: Path | None = None) -> None:
        self._place = usual_place() if place is None else place

    def begin(self) -> tuple[str, Path]:
        """Take an id and a folder for a new attack."""
        self._place.mkdir(parents=True, exist_ok=True)
        for number in count(1):
            folder = self._place / f"a{number}"
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
                return folder.name, folder
        raise AssertionError("numbers do not end")

    def write(self, entry: Entry) -> None:
        """Write what others read."""
        write_whole(Path(entry.folder) / _FILE, json.dumps(asdict(entry), indent=1) + "\n")

    def end(self, folder: Path) -> None:
        """Remove the folder of an attack that is over."""
        shutil.rmtree(folder, ignore_errors=True)

    def living(self) -> list[Entry]:
        """Return the attacks that act, by their ids; what others left is removed."""
        found = []
        for entry in self._entries():
            if entry.lives:
                found.append(entry)
            else:
                self.end(Path(entry.folder))
        return found

    def named(self, name: str) -> Entry:
        """Return the attack of an id; ConfigError if there is none."""
        found = {entry.id: entry for entry in self.living()}
        if name not in found:
            there = f"there is {', '.join(found)}" if found else "there is none at all"
            raise ConfigError(f"no attack {name} acts here; {there}")
        return found[name]

    def _entries(self) -> Iterator[Entry]:
        if not self._place.is_dir():
            return
        for folder in sorted(self._place.iterdir(), key=lambda path: (len(path.name), path.name)):
            with suppress(OSError, ValueError, TypeError):
                told: dict[str, Any] = json.loads((folder / _FILE).read_text())
                yield Entry(**told)
