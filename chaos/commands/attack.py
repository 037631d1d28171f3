"""`stormcast attack`: faults that a person aims at whatever runs here or in a cluster, now."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from stormcast.chaos.attack.finders import KINDS as TARGETS
from stormcast.chaos.attack.finders import Finder
from stormcast.chaos.attack.kinds import (
    KILL,
    KINDS,
    check_groups,
    needs_neighbours,
)
from stormcast.chaos.attack.on_pods import (
    OnPods,
    check_pods,
    lines_of_dry_run,
    striking_pods,
)
from stormcast.chaos.attack.playing import (
    OnNetworks,
    Plan,
    Striking,
    act,
    own_process,
    striking,
    total,
)
from stormcast.chaos.attack.pod_agents import chosen_image
from stormcast.chaos.attack.record import NOTHING, AttackRecord
from stormcast.chaos.attack.registry import Entry, Registry
from stormcast.chaos.attack.targets import BETWEEN, check_together, read_groups
from stormcast.chaos.backends.netns.running import what_is_missing
from stormcast.chaos.backends.run_id import start_of
from stormcast.chaos.backends.signals import sigterm_interrupts
from stormcast.chaos.commands.output import RUNS, end_progress, in_columns, progress, refuse, say
from stormcast.chaos.records.directory import give_back, make_fresh, take
from stormcast.exits import Exit
from stormcast.node.core.errors import ConfigError, NodeError
from stormcast.node.core.names import one_line
from stormcast.node.reading.quantities import DURATION, Quantity, UnitError

LIST: Final = "list"
HEAL: Final = "heal"
_PROG: Final = "stormcast attack"
HEAL_SECONDS: Final = 20.0
"""Seconds that an attack may take to end once it was told to."""
TELL_SECONDS: Final = 1.0
_SEPARATOR: Final = "\0"
"""Stands for `--`, which the library that reads words takes for itself."""

Report = Callable[[Path], Path]
"""Writes the page of a run directory, and returns its path."""


def attack(argv: Sequence[str], report: Report) -> int:
    """Run `stormcast attack`."""
    words = [_SEPARATOR if word == BETWEEN else word for word in argv]
    args = _parser().parse_args(words)
    try:
        if args.kind == LIST:
            return _list(as_json=args.json)
        if args.kind == HEAL:
            return _heal(args.ids)
        return _attack(args, report)
    except (ConfigError, UnitError) as error:
        return refuse(error)
    except (NodeError, OSError) as error:
        say(f"{_PROG}: {one_line(error)}")
        return Exit.UNKNOWN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_PROG,
        description="Do something to whatever runs on this machine, as root, or to pods of a "
        "cluster, for a time or until Ctrl-C. It ends, too, when this command is killed.",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(
            [
                "targets:",
                *(f"  {f'{kind}:…':<12} {about}" for kind, about in TARGETS.items()),
                "Without a kind a name is looked for among all that have one. `a -- b` stands for",
                "both ways between groups, `a→b` (or 'a->b') for one; one target alone for all",
                "ways between it and its neighbours: the other members of its run, the other",
                "containers of its networks. Pods have none: name both sides. A pod that is",
                "attacked gets an ephemeral container of STORMCAST_CHAOS_IMAGE (default:",
                f"{chosen_image()}); docs/attack.md has the rights that it takes.",
                "",
                "exit codes: 0 it acted and struck; 2 usage; 3 it could not act, or struck nothing",
            ]
        ),
    )
    commands = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    for word, kind in KINDS.items():
        made = commands.add_parser(word, help=kind.about, description=kind.about)
        made.add_argument("targets", nargs="+", metavar="TARGET")
        for option in kind.options:
            made.add_argument(
                f"--{option.flag}",
                type=_reader(option.quantity),
                required=option.default is None,
                default=None if option.default is None else option.quantity.parse(option.default),
                metavar=option.quantity.example,
                help=option.about,
            )
        if word != KILL:
            made.add_argument(
                "--for",
                dest="seconds",
                type=_reader(DURATION),
                metavar="TIME",
                help="how long, such as 30s (default: until Ctrl-C)",
            )
        made.add_argument("--seed", type=int, default=1, help="of its dice (default 1)")
        made.add_argument(
            "--dry-run", action="store_true", help="only say what would be done, and to whom"
        )
        made.add_argument(
            "--out",
            type=Path,
            help="the run directory, empty or not there yet (default runs/attack-KIND)",
        )
    listed = commands.add_parser(LIST, help="what acts now")
    listed.add_argument("--json", action="store_true", help="print one JSON value on stdout")
    healed = commands.add_parser(HEAL, help="end an attack, or all")
    healed.add_argument("ids", nargs="*", metavar="ID", help="as `list` shows it (default all)")
    return parser


def _reader(quantity: Quantity) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = quantity.parse(text)
        except UnitError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        if value <= 0 and text != "0s":
            raise argparse.ArgumentTypeError(f"{text}: it must be above zero")
        return value

    return read


# -- An attack -----------------------------------------------------------------------------------


def _attack(args: argparse.Namespace, report: Report) -> int:
    with closing(Finder()) as finder:
        return _strike(args, report, finder)


def _strike(args: argparse.Namespace, report: Report, finder: Finder) -> int:
    plan = _plan(args, finder)
    about = _about(args, plan)
    if args.dry_run:
        _show(plan, about)
        return Exit.HOLDS
    if not (plan.is_of_processes or plan.is_of_pods) and (why := what_is_missing()):
        raise NodeError(f"{args.kind}: {why}")
    registry = Registry()
    name, folder = registry.begin()
    try:
        if plan.is_of_pods:
            work: Striking = striking_pods(plan, finder.pods.cluster)
        else:
            work = striking(plan, folder, finder.processes_now)
        out = _directory(args)
        try:
            return _play(_Played(plan, about, work, registry, name, folder, out), report)
        except BaseException:
            # Where it has not begun, nothing is in it.
            give_back(out)
            raise
    finally:
        registry.end(folder)


def _plan(args: argparse.Namespace, finder: Finder) -> Plan:
    asked = read_groups(BETWEEN if word == _SEPARATOR else word for word in args.targets)
    check_groups(args.kind, asked)
    groups = [[target for word in group for target in finder.find(word)] for group in asked.groups]
    check_together([target for group in groups for target in group])
    if needs_neighbours(args.kind, asked):
        groups.append(finder.near(groups[0]))
    options = {option.flag: getattr(args, option.flag) for option in KINDS[args.kind].options}
    plan = Plan(
        kind=args.kind,
        groups=tuple(map(tuple, groups)),
        is_directed=asked.is_directed,
        options=options,
        seconds=getattr(args, "seconds", None),
        seed=args.seed,
    )
    if plan.is_of_pods:
        check_pods(plan)
    return plan


def _about(args: argparse.Namespace, plan: Plan) -> str:
    """Return what an attack does, in the words of its command line."""
    words = [args.kind]
    between = "→" if plan.is_directed else f" {BETWEEN} "
    words.append(between.join(" ".join(one.word for one in group) for group in plan.groups))
    words += [
        f"--{option.flag} {option.quantity.write(plan.options[option.flag])}"
        for option in KINDS[args.kind].options
        if plan.options[option.flag]
    ]
    return " ".join(words)


def _show(plan: Plan, about: str) -> None:
    lasts = "until it is ended" if plan.seconds is None else f"for {DURATION.write(plan.seconds)}"
    print(f"would do: {about}, {lasts if plan.kind != KILL else 'at once'}")
    if plan.is_of_pods:
        print("\n".join(lines_of_dry_run(plan, plan.targets)))
        return
    for group in plan.groups:
        for target in group:
            at = f"in {target.netns}"
            if plan.is_of_processes:
                at = f"processes {', '.join(map(str, target.pids)) or 'none'}"
            print(f"  {target.word}: {target.what}, {at}")


def _directory(args: argparse.Namespace) -> Path:
    if args.out is not None:
        take(args.out)
        out: Path = args.out
        return out
    return make_fresh(RUNS, f"attack-{args.kind}")


class _Played:
    """An attack that is carried out."""

    def __init__(
        self,
        plan: Plan,
        about: str,
        work: Striking,
        registry: Registry,
        name: str,
        folder: Path,
        out: Path,
    ) -> None:
        self.plan = plan
        self.about = about
        self.work = work
        self.out = out
        self.record = AttackRecord(plan, about)
        self._registry = registry
        pid, started = own_process()
        now = time.time()
        self._entry = Entry(
            id=name,
            pid=pid,
            started=started,
            what=about,
            since=now,
            until=None if plan.seconds is None else now + plan.seconds,
            folder=str(folder),
            run=str(out.absolute()),
        )
        self._told = 0.0

    def announce(self) -> None:
        """Have others see it."""
        if isinstance(self.work, OnNetworks):
            self._registry.write(self._entry)
            return
        entry = replace(self._entry, struck=total(self.work.bites()))
        if isinstance(self.work, OnPods) and (left := self.work.lease_left) is not None:
            entry = replace(entry, lease_until=time.time() + left)
        self._registry.write(entry)

    def tell(self) -> None:
        """Show how often it struck so far, now and then, where somebody looks."""
        now = time.monotonic()
        if now - self._told <= TELL_SECONDS:
            return
        self._told = now
        if isinstance(self.work, OnPods):
            # Its agents are asked by this command alone.
            self.announce()
        if sys.stderr.isatty():
            progress(f"{self._entry.id}: {self.about}: struck {_sum(self.work)} times so far")

    @property
    def name(self) -> str:
        return self._entry.id


def _sum(work: Striking) -> int:
    return sum(total(work.bites()).values())


def _play(played: _Played, report: Report) -> int:
    plan, work, record = played.plan, played.work, played.record
    was_cut_short = False
    with sigterm_interrupts():
        try:
            try:
                work.begin()
                record.begin(time.monotonic())
                played.announce()
                if plan.kind != KILL:
                    _say_begin(played)
                    act(work, plan.seconds, played.tell, time.monotonic)
            except KeyboardInterrupt:
                was_cut_short = True
        finally:
            # Also after an error: nothing is left acting.
            _undisturbed(work.end)
            end_progress()
    if not record.has_begun:
        raise KeyboardInterrupt
    bites = work.bites()
    record.end(time.monotonic(), total(bites))
    record.write(played.out, bites)
    page = report(played.out)
    struck = sum(total(bites).values())
    what = "packets"
    if plan.is_of_processes:
        what = "pods" if plan.is_of_pods else "processes"
    ended = "ended early: " if was_cut_short and plan.seconds is not None else ""
    print(f"{ended}{played.about}: {f'it struck {struck} {what}' if struck else NOTHING}")
    for fault, pairs in bites.items():
        ways = ", ".join(
            f"{source if source == dest else f'{source}→{dest}'} {number}"
            for (source, dest), number in pairs.items()
            if number
        )
        if ways:
            print(f"  {fault}: {ways}")
    print(f"run: {played.out}   report: {page}")
    return Exit.HOLDS if struck else Exit.UNKNOWN


def _undisturbed(do: Callable[[], None]) -> None:
    """Do something to its end, also where Ctrl-C comes a second time."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        do()
    finally:
        signal.signal(signal.SIGINT, before)


def _say_begin(played: _Played) -> None:
    until = "until Ctrl-C" if played.plan.seconds is None else "Ctrl-C ends it before"
    if played.plan.seconds is not None:
        until = f"for {DURATION.write(played.plan.seconds)}; {until}"
    say(f"{played.name}: {played.about}, {until}")


# -- Others --------------------------------------------------------------------------------------


def _list(*, as_json: bool) -> int:
    found = [(entry, *entry.bites()) for entry in Registry().living()]
    if as_json:
        print(json.dumps([_as_json(*one) for one in found]))
        return Exit.HOLDS
    if not found:
        print("nothing acts: no attack is under way here")
        return Exit.HOLDS
    now = time.time()
    rows = [("id", "since", "left", "lease", "struck", "what")]
    rows += [
        (
            entry.id,
            f"{now - entry.since:.0f}s",
            "until it is ended" if entry.until is None else f"{max(0.0, entry.until - now):.0f}s",
            "-" if left is None else f"{left:.1f}s",
            str(struck),
            entry.what,
        )
        for entry, struck, left in found
    ]
    print(in_columns(rows))
    return Exit.HOLDS


def _as_json(entry: Entry, struck: int, left: float | None) -> dict[str, Any]:
    return {
        "id": entry.id,
        "pid": entry.pid,
        "what": entry.what,
        "since": round(entry.since, 3),
        "until": None if entry.until is None else round(entry.until, 3),
        "lease": left,
        "struck": struck,
        "run": entry.run,
    }


def _heal(ids: Iterable[str]) -> int:
    registry = Registry()
    found = [registry.named(name) for name in ids] or registry.living()
    for entry in found:
        _end(entry)
        print(f"{entry.id}: ended: {entry.what}")
    if not found:
        print("nothing acts: no attack is under way here")
    return Exit.HOLDS


def _end(entry: Entry) -> None:
    """Tell an attack to end, and wait until it has healed what it did."""
    with suppress(ProcessLookupError):
        process = os.pidfd_open(entry.pid)
        try:
            if start_of(entry.pid) == entry.started:
                signal.pidfd_send_signal(process, signal.SIGTERM)
        finally:
            os.close(process)
    until = time.monotonic() + HEAL_SECONDS
    while entry.lives:
        if time.monotonic() > until:
            raise NodeError(f"{entry.id} (process {entry.pid}) has not ended; kill it: it heals")
        time.sleep(0.05)
