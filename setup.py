"""Makes the package. Where STORMCAST_COMPILED is 1, mypyc compiles the protocols of a member, the
simulator and the oracles: a C compiler takes some minutes (docs/adr/0005-compiled-protocols.md)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from setuptools import setup

ROOMS = (
    "stormcast/node/core",
    "stormcast/node/protocols",
    "stormcast/node/stack",
    "stormcast/chaos/backends/sim",
    "stormcast/chaos/oracles",
)
"""What runs for each frame, message and recorded event."""
BESIDE = (
    "stormcast/node/member/workload.py",
    "stormcast/node/payloads.py",
    "stormcast/node/trace/tracer.py",
    "stormcast/chaos/faults/outcome.py",
    "stormcast/chaos/session/facts.py",
    "stormcast/chaos/session/ledger.py",
)
"""The same, in rooms of which the rest runs rarely."""
LEFT_OUT = {
    "stormcast/chaos/backends/sim/sending.py": "mypyc takes a slice of bytes for a number",
    "stormcast/chaos/backends/sim/world.py": "mypyc fails at a lambda that takes all arguments",
    "stormcast/chaos/oracles/application.py": "its tuples have types that are imported for checks",
    "stormcast/chaos/oracles/hand_over.py": "the same",
    "stormcast/chaos/oracles/history.py": "the same",
}
EXTENDED_ELSEWHERE = frozenset({"codec.py", "errors.py", "layer.py"})
"""Modules whose classes others extend that stay interpreted, which mypyc does not allow."""
STAYS_INTERPRETED = re.compile(
    # mypyc takes slots, hash and resolvable hints from a dataclass, and compiles no class that
    # extends an interpreted one.
    r"^@dataclass|get_type_hints|^class \w+\(.*(?:Layer|Discovery|TestProtocol|Codec|Protocol)\)",
    re.MULTILINE,
)


def compiled_modules(root: Path) -> Iterator[str]:
    """Yield the paths of the modules that can be compiled."""
    places = [place for room in ROOMS for place in sorted((root / room).rglob("*.py"))]
    for place in [*places, *(root / path for path in BESIDE)]:
        path = str(place.relative_to(root))
        is_left_out = place.name in {"__init__.py", *EXTENDED_ELSEWHERE} or path in LEFT_OUT
        if not is_left_out and not STAYS_INTERPRETED.search(place.read_text()):
            yield path


def extensions() -> list[object]:
    """Return what is to be compiled: nothing, unless it is asked for."""
    if os.environ.get("STORMCAST_COMPILED") != "1":
        return []
    from mypyc.build import mypycify  # noqa: PLC0415 only here: to build takes no mypy else

    modules = list(compiled_modules(Path(__file__).resolve().parent))
    options = ["--config-file=", "--python-version=3.11", "--ignore-missing-imports"]
    built: list[object] = mypycify(
        [*options, *modules], opt_level="2", debug_level="0", multi_file=True
    )
    return built


if __name__ == "__main__":
    setup(ext_modules=extensions())
