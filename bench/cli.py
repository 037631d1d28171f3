"""`stormcast bench …`: calls the module that measures what is asked for."""

from __future__ import annotations

import sys
from typing import Final

from stormcast.exits import Exit

WHAT: Final = {
    "multicast": "members on loopback, all multicast",
    "unicast": "members on loopback, one sends to one",
    "roundtrip": "members on loopback, one request at a time",
    "idle": "memory and threads of members that do nothing",
    "table": "all of these against their goals (make bench)",
    "sweep": "how cost grows with members, size, loss and delay",
    "core": "full stacks in memory",
    "sim": "the simulator",
    "pairs": "this tree beside another commit, in turns",
}


def bench(argv: list[str]) -> int:
    """Measure, and print medians with their spread."""
    match argv:
        case ["-h" | "--help", *_]:
            print(_usage(), end="")
            return Exit.HOLDS
        case ["core" | "sim" as what, *words]:
            from bench import memory_cli  # noqa: PLC0415 the simulator is not needed by the others

            return memory_cli.bench(what, words)
        case ["pairs", *words]:
            from bench import pairs_cli  # noqa: PLC0415 as above

            return pairs_cli.bench(words)
        case ["table" | "sweep" as what, *words]:
            from bench import table_cli  # noqa: PLC0415 as above

            return table_cli.bench(what, words)
        case [what, *words] if what in WHAT:
            from bench import members_cli  # noqa: PLC0415 as above

            return members_cli.bench(what, words)
    wrong = f"nothing to measure named {argv[0]!r}" if argv else "name what to measure"
    print(f"{_usage()}\nstormcast bench: error: {wrong}", file=sys.stderr)
    return Exit.USAGE


def _usage() -> str:
    rows = "".join(f"  {what:<10} {about}\n" for what, about in WHAT.items())
    return f"usage: stormcast bench WHAT [...]\n       stormcast bench WHAT --help\n\n{rows}"
