"""Makes the package. Where STORMCAST_COMPILED is 1, mypyc compiles the protocols of a member, which
takes a C compiler and some minutes (docs/adr/0005-compiled-protocols.md)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from setuptools import setup

ROOMS = ("stormcast/node/core", "stormcast/node/protocols", "stormcast/node/stack")
"""What runs for each frame and message."""
BESIDE = ("stormcast/node/trace/tracer.py",)
"""The same, in rooms of which the rest runs rarely."""
EXTENDED_ELSEWHERE = frozenset({"codec.py", "errors.py", "layer.py"})
"""Modules whose classes others extend that stay interpreted, which mypyc does not allow."""
STAYS_INTERPRETED = re.compile(
    # mypyc takes slots, hash and resolvable hints from a dataclass, and compiles no class that
    # extends an interpreted one.
    r"^@dataclass|get_type_hints|^class \w+\((?:Layer|Discovery|TestProtocol)\)",
    re.MULTILINE,
)


def compiled_modules(root: Path) -> Iterator[str]:
    """Yield the paths of the modules that can be compiled."""
    places = [place for room in ROOMS for place in sorted((root / room).rglob("*.py"))]
    for place in [*places, *(root / path for path in BESIDE)]:
        is_left_out = place.name == "__init__.py" or place.name in EXTENDED_ELSEWHERE
        if not is_left_out and not STAYS_INTERPRETED.search(place.read_text()):
            yield str(place.relative_to(root))


def extensions() -> list[object]:
    """Return what is to be compiled: nothing, unless it is asked for."""
    if os.environ.get("STORMCAST_COMPILED") != "1":
        return []
    from mypyc.build import mypycify  # noqa: PLC0415 only here: to build takes no mypy else

    modules = list(compiled_modules(Path(__file__).resolve().parent))
    options = ["--config-file=", "--python-version=3.11", "--ignore-missing-imports"]
    built: list[object] = mypycify([*options, *modules], opt_level="2")
    return built


if __name__ == "__main__":
    setup(ext_modules=extensions())
