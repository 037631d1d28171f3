"""The versions of all that runs: they tell later whether a run can be repeated exactly."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.resources.abc import Traversable

from xxhash import xxh3_64


def versions() -> dict[str, str]:
    """Return the versions of Stormcast, Python and xxhash, and the digest of the sources."""
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
    """Return a digest of the sources: two commits may have the same version of the package."""
    digest = xxh3_64()
    for package in ("chaos", "node"):
        for place, source in _sources(files(f"stormcast.{package}"), package):
            digest.update(place.encode())
            digest.update(source.read_bytes())
    return digest.hexdigest()


def _sources(folder: Traversable, place: str) -> Iterator[tuple[str, Traversable]]:
    """Yield the code and the files of settings of a package, which may lie in an archive. Scenarios
    are left out, as each is kept with its run."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            if entry.name != "scenarios":
                yield from _sources(entry, f"{place}/{entry.name}")
        elif entry.name.endswith((".py", ".yaml", ".java")):
            yield f"{place}/{entry.name}", entry
