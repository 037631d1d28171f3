"""The versions of what runs, by which it is seen later whether a run can be repeated exactly."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.resources.abc import Traversable

from xxhash import xxh3_64


def versions() -> dict[str, str]:
    """What ran."""
    try:
        stormcast = version("stormcast")
    except PackageNotFoundError:
        stormcast = "not installed"
    return {
        "stormcast": stormcast,
        "python": platform.python_version(),
        "xxhash": version("xxhash"),
        "code": _code(),
    }


@cache
def _code() -> str:
    """A digest of the sources: between two commits the version of the package stays what it is."""
    digest = xxh3_64()
    for package in ("chaos", "node"):
        for place, source in _sources(files(f"stormcast.{package}"), package):
            digest.update(place.encode())
            digest.update(source.read_bytes())
    return digest.hexdigest()


def _sources(folder: Traversable, place: str) -> Iterator[tuple[str, Traversable]]:
    """What is run, and what it is set to; a scenario is kept with its run. The packages may lie in
    an archive."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            if entry.name != "scenarios":
                yield from _sources(entry, f"{place}/{entry.name}")
        elif entry.name.endswith((".py", ".yaml")):
            yield f"{place}/{entry.name}", entry
