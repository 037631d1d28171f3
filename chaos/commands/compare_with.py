"""`stormcast compare-with`: scenarios with a group, played by Stormcast and by a peer in turn."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from signal import SIGINT, SIGTERM
from types import FrameType
from typing import Final

from stormcast.chaos.backends.base import BackendError, Unsupported
from stormcast.chaos.backends.by_name import NETNS
from stormcast.chaos.backends.netns.backend import features_here
from stormcast.chaos.backends.netns.running import what_is_missing
from stormcast.chaos.campaigns.versus.contests import Contest, LeftOut, contests
from stormcast.chaos.campaigns.versus.page import cells, check_place, written
from stormcast.chaos.campaigns.versus.playing import play_all
from stormcast.chaos.campaigns.versus.rows import (
    STORMCAST,
    Row,
    lines_of,
    merged,
    read_rows,
    read_store,
    store_of,
)
from stormcast.chaos.commands.arguments import add_json, add_seed, parser_of
from stormcast.chaos.commands.output import (
    RUNS,
    end_progress,
    give_up,
    in_columns,
    progress,
    refuse,
    say,
    say_leftovers,
    unsupported,
)
from stormcast.chaos.peers import jgroups_member
from stormcast.chaos.peers.jars import JarError, missing
from stormcast.chaos.records.directory import make_fresh
from stormcast.chaos.session.versions import versions
from stormcast.exits import Exit
from stormcast.node.core.errors import ConfigError, NodeError, did_you_mean
from stormcast.whole import write_whole

PEERS: Final = ("jgroups",)
BATCH: Final = "compare-with-jgroups"
_JAVA_SECONDS: Final = 20


def compare_with(argv: list[str]) -> int:
    """Run `stormcast compare-with jgroups`."""
    args = _arguments(argv)
    try:
        _check(args)
        if why := missing(*jgroups_member.ARTIFACTS):
            raise Unsupported(why)
        jgroups_member.classes()
        if args.fetch:
            return Exit.HOLDS
        if why := what_is_missing():
            raise Unsupported(why)
        features = features_here()
        played, left_out = contests(args.only, features)
        if not played and not left_out:
            raise ConfigError(
                f"--only {' '.join(args.only)}: no scenario with a group has that in its name; "
                "stormcast scenarios lists them"
            )
        if not played:
            raise Unsupported("; ".join(f"{one.name}: {one.why}" for one in left_out))
        out = args.out or make_fresh(RUNS, BATCH)
        return _compare(args, played, left_out, out, features)
    except Unsupported as refusal:
        return unsupported(refusal, as_json=args.json, seed=args.seed)
    except JarError as error:
        return unsupported(Unsupported(str(error)), as_json=args.json, seed=args.seed)
    except (ConfigError, OSError) as error:
        return refuse(error)
    except (BackendError, NodeError) as error:
        return give_up(error, args.seed)


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = parser_of(
        "compare-with",
        "As root: play the scenarios with a group on real packets, by members of Stormcast and of "
        "a peer in turn, on the stacks udp and tcp; judge both alike, and print one table. Exit 0: "
        "all was judged, 1: Stormcast violated something, 2: usage, 3: a run is unknown.",
    )
    parser.add_argument("peer", help=f"whom to compare with: {', '.join(PEERS)}")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="WORD",
        help="scenarios with this in their name; may be repeated",
    )
    parser.add_argument(
        "--fetch",
        action="store_true",
        help="fetch the peer's jars and compile its member, which are kept, and play nothing",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help=f"where the runs are kept (default runs/{BATCH}, or with -2 … where that is there); "
        "runs that are there already, and not unknown, are not played again",
    )
    parser.add_argument(
        "--write",
        type=Path,
        metavar="FILE",
        help="write the results into a page, at its markers: all that DIR has, and of what it has "
        "not, what the file beside the page (.jsonl) has kept from before",
    )
    add_seed(parser)
    add_json(parser)
    return parser.parse_args(argv)


def _check(args: argparse.Namespace) -> None:
    """Refuse what cannot be meant, before anything is made."""
    if args.peer not in PEERS:
        near = did_you_mean(args.peer, PEERS) or f"write {' or '.join(PEERS)}"
        raise ConfigError(f"there is no peer {args.peer!r}: {near}")
    if args.write is not None:
        check_place(args.write.read_text(), str(args.write))


def _compare(
    args: argparse.Namespace,
    played: Sequence[Contest],
    left_out: Sequence[LeftOut],
    out: Path,
    features: dict[str, str | None],
) -> int:
    # Before anything is played: a page whose rows are damaged is not written.
    kept = [] if args.write is None else read_store(store_of(args.write))
    say(f"seed {args.seed}, {len(played)} times two runs, kept in {out}")
    say_leftovers(NETNS)
    total = 2 * len(played)
    done: list[Row] = []

    def begins(contest: Contest, system: str) -> None:
        progress(f"{len(done)} of {total}: {contest.name} on {contest.stack}, {system}")

    with _interrupts() as interrupts:
        for row in play_all(played, args.seed, out, features, begins, _about(args.seed)):
            if interrupts:
                # It came when the run could not be cut short in order: this one is unknown.
                raise KeyboardInterrupt
            done.append(row)
    end_progress()
    if args.write is not None:
        rows = merged(kept, read_rows(out))
        page = written(args.write.read_text(), rows, _not_played(rows, features))
        write_whole(store_of(args.write), lines_of(rows))
        write_whole(args.write, page)
    if args.json:
        print(json.dumps([asdict(row) for row in done]))
    else:
        print(in_columns(cells(done)))
        for one in left_out:
            say(f"not played: {one.name}: {one.why}")
    return _exit(done)


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Have SIGINT and SIGTERM raise KeyboardInterrupt; gives a list of those that came."""
    came: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (SIGINT, SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _not_played(rows: Sequence[Row], features: dict[str, str | None]) -> list[LeftOut]:
    """Return all scenarios of which there is no row: what cannot be played, and what was not."""
    possible, left_out = contests((), features)
    unasked = {one.name for one in possible} - {row.scenario for row in rows}
    found = [*left_out, *(LeftOut(name, "no run of it is in this comparison") for name in unasked)]
    return sorted(found, key=lambda one: one.name)


def _exit(rows: Sequence[Row]) -> int:
    """Return the exit code: what the peer violates is an answer, and no failure."""
    if any(row.system == STORMCAST and row.verdict == "violated" for row in rows):
        return Exit.VIOLATED
    return Exit.UNKNOWN if any(row.verdict == "unknown" for row in rows) else Exit.HOLDS


def _about(seed: int) -> str:
    """Return where, and with what, the results were measured."""
    java = subprocess.run(  # noqa: S603 our own words
        (shutil.which("java") or "java", "-version"),
        capture_output=True,
        text=True,
        timeout=_JAVA_SECONDS,
        check=False,
    ).stderr.splitlines()
    ours = versions()
    return (
        f"Stormcast {ours['stormcast']} on Python {ours['python']}; JGroups "
        f"{jgroups_member.JGROUPS.version} on {java[0] if java else 'Java'}; Linux "
        f"{platform.release().partition('-')[0]}, {os.cpu_count()} cores; seed {seed}."
    )
