"""The scenario files that ship with the rig, by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from stormcast.chaos.language.scenario import Scenario, load_scenario, parse_scenario
from stormcast.node.core.errors import ConfigError, did_you_mean

FOLDERS: Final = {
    ".": "the library",
    "live": "short ones, for real packets",
    "museum": "flaws of earlier designs: stormcast museum shows each, and that it is gone",
}
"""The folders below chaos/scenarios, and what is in each."""
SUFFIX: Final = ".yaml"


class NoScenarioError(ConfigError):
    """No scenario of that name ships."""


@dataclass(frozen=True, slots=True)
class Shipped:
    """One file that ships."""

    name: str
    folder: str
    file: Traversable

    @property
    def text(self) -> str:
        return self.file.read_text()

    def read(self) -> Scenario:
        """Read the scenario of the file."""
        return parse_scenario(self.text, self.file.name)


def shipped(folder: str | None = None) -> Iterator[Shipped]:
    """Yield the files of one folder, or of all folders, in order of their names."""
    root = files("stormcast.chaos").joinpath("scenarios")
    for chosen in FOLDERS if folder is None else (folder,):
        for entry in sorted(root.joinpath(chosen).iterdir(), key=lambda entry: entry.name):
            if entry.name.endswith(SUFFIX):
                yield Shipped(entry.name.removesuffix(SUFFIX), chosen, entry)


def find_shipped(name: str) -> Shipped:
    """Return the file that ships under a name."""
    known = {one.name: one for one in shipped()}
    if name in known:
        return known[name]
    remedy = did_you_mean(name, known) or "stormcast scenarios lists them"
    raise NoScenarioError(f"no file {name}, and no scenario of that name ships: {remedy}")


def open_scenario(word: str | Path) -> Scenario:
    """Read a scenario, given the path of its file or the name of one that ships."""
    if isinstance(word, Path) or "/" in word or word.endswith(SUFFIX) or Path(word).is_file():
        return load_scenario(word)
    return find_shipped(word).read()
