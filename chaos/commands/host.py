"""`stormcast doctor`, `stormcast clean`: check what this host can do, and remove what killed runs
left on it. Results go to stdout, other lines to stderr."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Final

from stormcast.chaos.backends.by_name import DOCKER, NETNS
from stormcast.chaos.backends.leftovers import clean, leftovers_of, may_have_docker
from stormcast.chaos.commands.health import examine
from stormcast.exits import Exit
from stormcast.node.core.errors import NodeError
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
        "folders; containers, networks and volumes of docker. Runs that live keep theirs. Exit 0 "
        "done, 2 usage, 3 if it cannot be done.",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    _add_json(parser)
    args = parser.parse_args(argv)
    look = leftovers_of if args.dry_run else clean
    found: list[str] = []
    unseen: dict[str, str] = {}
    places = (NETNS, DOCKER) if may_have_docker() else (NETNS,)
    for place in places:
        try:
            found += look(place)
        except NodeError as error:
            unseen[place] = one_line(error)
    if len(unseen) == len(places):
        # Do not report that nothing is left where nothing could be looked for.
        return _give_up(unseen[NETNS], as_json=args.json)
    for place, why in unseen.items():
        _say(f"{place} was not looked at: {why}")
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
