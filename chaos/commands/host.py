"""`stormcast doctor`, `stormcast clean`: check what this host can do, and remove what killed runs
left on it. Results go to stdout, other lines to stderr."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Final

from stormcast.chaos.backends.netns import CommandError, clean, what_is_missing
from stormcast.chaos.backends.netns.leftovers import leftovers
from stormcast.chaos.commands.health import examine
from stormcast.exits import Exit
from stormcast.node.core.names import one_line, printable

FINE: Final = 0


def doctor(argv: list[str]) -> int:
    """Run `stormcast doctor`: try everything, and report it."""
    parser = _parser(
        "doctor",
        "Try what this host can do, per backend and feature, and say what to do about what it "
        "cannot. Leaves nothing behind. Exit 0 if the default backend works (namespaces for root, "
        "else the simulator), 2 usage, 3 if not.",
    )
    _add_json(parser)
    args = parser.parse_args(argv)
    if not args.json:
        print("this takes a few seconds", file=sys.stderr)
    found = examine()
    print(json.dumps(found.as_json()) if args.json else found.report())
    return FINE if found.works else Exit.UNKNOWN


def clean_up(argv: list[str]) -> int:
    """Run `stormcast clean`: remove what killed runs left behind."""
    parser = _parser(
        "clean",
        "Remove what runs left behind that were killed: the processes that they started, their "
        "namespaces, with all processes, rules and queues in them, their mounts and temporary "
        "folders. Runs that live keep theirs. Exit 0 done, 2 usage, 3 if it cannot be done.",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    _add_json(parser)
    args = parser.parse_args(argv)
    why = what_is_missing()
    if why is not None:
        # Without the programs nothing can be looked for, so do not report that nothing is left.
        return _give_up(why, as_json=args.json)
    try:
        found = leftovers().names() if args.dry_run else clean()
    except CommandError as error:
        return _give_up(one_line(error), as_json=args.json)
    if args.json:
        print(json.dumps({"removed": [] if args.dry_run else found, "found": found}))
    else:
        for each in found:
            print(printable(each))
        what = "would be removed" if args.dry_run else "removed"
        _say(f"{len(found)} {what}" if found else "nothing is left of killed runs")
    return FINE


def _give_up(why: str, *, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"removed": [], "found": None, "why": why}))
    _say(f"cannot clean: {why}")
    return Exit.UNKNOWN


def _parser(name: str, about: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog=f"stormcast {name}", description=about, allow_abbrev=False)


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON value on stdout")


def _say(text: str) -> None:
    print(f"stormcast: {text}", file=sys.stderr)
