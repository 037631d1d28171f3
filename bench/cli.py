"""`stormcast bench …`: calls the module that measures what is asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Final

from stormcast.exits import Exit

WHAT: Final = {
    "multicast": "members on loopback, all multicast",
    "unicast": "members on loopback, one sends to one",
    "roundtrip": "members on loopback, one request at a time",
    "idle": "memory and threads of members that do nothing",
    "table": "all of these against their goals (make bench)",
    "sweep": "how cost grows with members, size, loss and delay",
    "faults": "from the request for a fault until it is in force, and back",
    "verify": "Spark's verdict on large runs",
    "core": "full stacks in memory",
    "sim": "the simulator",
    "pairs": "this tree beside another commit, in turns",
}
MODULES: Final = {
    "table": "table_cli",
    "sweep": "table_cli",
    "faults": "in_force",
    "verify": "verifying",
    "core": "memory_cli",
    "sim": "memory_cli",
    "pairs": "pairs_cli",
}
"""The module that measures each, if it is not that of members."""
MEMBERS: Final = "members_cli"


def bench(argv: list[str]) -> int:
    """Measure, and print medians with their spread."""
    match argv:
        case ["-h" | "--help", *_]:
            print(_usage(), end="")
            return Exit.HOLDS
        case [what, *words] if what in WHAT:
            # Only now: the simulator is not needed by those that measure members.
            measure: Callable[[str, list[str]], int] = import_module(
                f"bench.{MODULES.get(what, MEMBERS)}"
            ).bench
            return measure(what, words)
    wrong = f"nothing to measure named {argv[0]!r}" if argv else "name what to measure"
    print(f"{_usage()}\nstormcast bench: error: {wrong}", file=sys.stderr)
    return Exit.USAGE


def _usage() -> str:
    rows = "".join(f"  {what:<10} {about}\n" for what, about in WHAT.items())
    return f"usage: stormcast bench WHAT [...]\n       stormcast bench WHAT --help\n\n{rows}"
