"""`stormcast bench multicast|unicast|roundtrip|idle`: real members, beside their peers."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import idle, machine
from bench.cluster import Plan, Result, measure
from bench.errors import BenchError
from bench.ours import Options
from bench.report import as_json, lines
from bench.work import OURS, PEERS, TRANSPORTS, Work
from stormcast.exits import Exit
from stormcast.node.core.errors import ConfigError
from stormcast.node.reading.quantities import SETTING_DURATION, SETTING_SIZE

PER_CENT = 100


def bench(what: str, argv: list[str]) -> int:
    """Measure one kind of traffic."""
    parser = _parser(what)
    args = parser.parse_args(argv)
    if what == "idle":
        return _idle(args)
    try:
        plan = _plan(what, args)
    except (BenchError, ConfigError) as error:
        parser.error(str(error))
    with interruptible():
        try:
            result = measure(plan)
        except BenchError as error:
            print(f"stormcast: {error}", file=sys.stderr)
            return Exit.UNKNOWN
    said = as_json(result)
    if args.json:
        print(json.dumps(said))
    else:
        print("\n".join(lines(result, said)))
    return exit_code(result)


def _idle(args: argparse.Namespace) -> int:
    """Measure memory and threads of members that do nothing."""
    peers = [peer for peer in dict.fromkeys(args.peer) if peer.startswith("jgroups")]
    work = Work(mode="multicast", transport=args.transport, members=args.members)
    with interruptible():
        try:
            found = idle.measure(work, peers)
        except BenchError as error:
            print(f"stormcast: {error}", file=sys.stderr)
            return Exit.UNKNOWN
    if args.json:
        print(json.dumps({"idle": found, **machine.describe()}))
        return Exit.HOLDS
    for name, members in found.items():
        for each in members:
            print(
                f"  {name:14} {each['rss_mb']:7.1f} MB  {each['threads']:3} threads  "
                f"{each['cpu_percent']:.1f} % of a core"
            )
    return Exit.HOLDS


def _parser(what: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"stormcast bench {what}",
        description="Measure members on loopback, in a network namespace of their own.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--transport", choices=TRANSPORTS, default="udp")
    members = 3 if what in {"multicast", "idle"} else 2
    add("--members", type=int, default=members, metavar="N")
    add("--size", default="1000", metavar="BYTES", help="of a message: 100, 60KiB")
    add("--loss", default="0", metavar="SHARE", help="of all datagrams: 0.05, or 5%%")
    add("--delay", default="0", metavar="MS", help="of everything that arrives: 20, or 20ms")
    add("--peer", action="append", default=[], choices=PEERS, help="compare with; repeatable")
    add("--without-ours", action="store_true", help="only the peers")
    add("--rounds", type=int, default=5, metavar="R")
    add("--seconds", type=float, default=3.0, metavar="S", help="per round")
    add("--json", action="store_true", help="one JSON object on stdout")
    add_options(parser)
    return parser


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options by which two runs of ours may differ."""
    add = parser.add_argument
    add("--warm-up", type=int, default=8, metavar="N", help="rounds that a JVM gets at most")
    add("--stack", default="", help="of ours, when not the one named like the transport")
    add("--timing", default="fast", help="of ours")
    add("--set", action="append", default=[], metavar="PROTOCOL.KEY=VALUE", help="of ours")
    add("--encrypt", action="store_true", help="ours have a key, and seal what they send")
    add("--burst", type=int, default=0, metavar="N", help="messages between two looks at the net")
    add("--journal", type=Path, metavar="DIR", help="where ours keeps its journals meanwhile")
    add("--profile", type=Path, metavar="DIR", help="write a cProfile of each member of ours")


def options_of(args: argparse.Namespace) -> Options:
    """Return the options of ours that the arguments name."""
    settings: dict[str, dict[str, str]] = {}
    for words in args.set:
        name, has_value, value = words.partition("=")
        protocol, has_key, key = name.partition(".")
        if not has_value or not has_key:
            raise BenchError(f"--set {words}: write PROTOCOL.KEY=VALUE")
        settings.setdefault(protocol, {})[key] = value
    if args.profile:
        args.profile.mkdir(parents=True, exist_ok=True)
    return Options(
        stack=args.stack,
        timing=args.timing,
        settings=settings,
        journal=args.journal,
        profile=args.profile.resolve() if args.profile else None,
        encrypt=args.encrypt,
        burst=args.burst,
    )


def _plan(what: str, args: argparse.Namespace) -> Plan:
    work = Work(
        mode=what,
        transport=args.transport,
        members=args.members,
        size=parse_bytes(args.size),
        loss=parse_share(args.loss),
        delay=parse_delay(args.delay),
    )
    teams = (*(() if args.without_ours else (OURS,)), *dict.fromkeys(args.peer))
    if not teams:
        raise BenchError("--without-ours: name a --peer")
    check_rounds(args)
    return Plan(
        work=work,
        teams=teams,
        rounds=args.rounds,
        seconds=args.seconds,
        warm_rounds=args.warm_up,
        options=options_of(args),
    )


def check_rounds(args: argparse.Namespace) -> None:
    """Refuse numbers of rounds or seconds that give no figure."""
    for name, value in (("--rounds", args.rounds), ("--warm-up", args.warm_up)):
        if value < 1:
            raise BenchError(f"{name}: write a whole number from 1")
    if args.seconds <= 0:
        raise BenchError("--seconds: write a positive number")


def parse_bytes(text: str) -> int:
    """Return a size in bytes; a bare number is bytes."""
    return int(text) if text.isdigit() else int(SETTING_SIZE.read(text, "--size"))


def parse_share(text: str) -> float:
    """Read a share: `0.05` or `5%`."""
    try:
        return float(text.removesuffix("%")) / (PER_CENT if text.endswith("%") else 1)
    except ValueError:
        raise BenchError(f"--loss {text}: write a share, such as 0.05 or 5%") from None


def parse_delay(text: str) -> float:
    """Return a delay in seconds; a bare number is milliseconds."""
    try:
        return float(text) / 1e3
    except ValueError:
        return SETTING_DURATION.read(text, "--delay")


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM end a run as Ctrl-C does: it removes processes and namespace on the way out."""

    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def exit_code(result: Result) -> Exit:
    """Return the exit code; a figure does not count if the journals do not hold."""
    if result.is_interrupted:
        return Exit.INTERRUPTED
    if result.check is not None and not result.check.holds:
        return Exit.VIOLATED
    return Exit.UNKNOWN if result.failed else Exit.HOLDS
