"""`stormcast soak`: a storm without end over one cluster, judged window by window."""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, Final

from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.backends.by_name import SIM, make_backend
from stormcast.chaos.backends.signals import sigterm_interrupts
from stormcast.chaos.campaigns.rows import differences
from stormcast.chaos.commands.arguments import (
    add_backend,
    add_json,
    parser_of,
    read_duration,
    read_seed,
    read_size,
)
from stormcast.chaos.commands.output import (
    RUNS,
    end_progress,
    give_up,
    in_plain_lines,
    progress,
    refuse,
    say,
    say_leftovers,
    unsupported,
)
from stormcast.chaos.language.cluster import TIMINGS, Cluster
from stormcast.chaos.language.scenario import dump
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.records.directory import make_fresh
from stormcast.chaos.session.plans import check_supported, cluster_plan
from stormcast.chaos.session.versions import versions
from stormcast.chaos.soak.cutting import chosen, cut
from stormcast.chaos.soak.directory import Kept, SoakDirectory
from stormcast.chaos.soak.drift import LIMITS, Drift, drifts
from stormcast.chaos.soak.kept_chapters import BOUND, KeptChapters
from stormcast.chaos.soak.player import Soak, Window
from stormcast.chaos.soak.second_judge import SecondJudge
from stormcast.chaos.soak.storm import Storm
from stormcast.chaos.soak.storm_file import load_storm
from stormcast.exits import Exit
from stormcast.locks import lock
from stormcast.node.core.errors import ConfigError, NodeError
from stormcast.node.reading.quantities import DURATION

MEMBERS: Final = 4
LINE_SECONDS: Final = 60.0
"""Real seconds between two lines on how it goes, besides those on incidents."""
DRIFT_SECONDS: Final = 60.0
"""Real seconds between two looks at what grows."""


Report = Callable[[Path], None]
"""Writes the page of a soak into its directory."""


def soak(argv: list[str], report: Report) -> int:
    """Run `stormcast soak`: windows of a storm, until the time is over or Ctrl-C; or with `cut` as
    first word, write windows of a soak as a scenario."""
    if argv[:1] == ["cut"]:
        return _cut(argv[1:])
    parser = parser_of(
        "soak",
        "Play a storm over one cluster, window after window, and judge each as it ends. Exit 0 all "
        "hold, 1 one is violated, 2 usage, 3 one is unknown, or something is missing here.",
    )
    add_backend(parser)
    parser.add_argument(
        "--for",
        dest="seconds",
        type=read_duration,
        default=1800.0,
        metavar="TIME",
        help="how long members live: virtual time in the simulator (default 30min)",
    )
    parser.add_argument(
        "--seed", type=read_seed, default=None, help="chooses the storm (default 1)"
    )
    parser.add_argument("--storm", type=Path, metavar="FILE", help="what may happen (docs/soak.md)")
    parser.add_argument("--stack", help="the members' stack, in place of the file's (default udp)")
    parser.add_argument("--timing", choices=TIMINGS, help="in place of the file's (default fast)")
    parser.add_argument(
        "--out",
        type=Path,
        help="the directory of the soak, empty or not there yet (runs/NAME-SEED)",
    )
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="DIR",
        help="go on with the next window of a soak, with a new cluster",
    )
    parser.add_argument(
        "--until-violated", action="store_true", help="end with the first window that does not hold"
    )
    parser.add_argument(
        "--keep-chapters",
        type=read_size,
        nargs="?",
        const=BOUND,
        metavar="SIZE",
        help="keep the traces of each chapter until stormcast verify --follow has judged them, in "
        "no more than SIZE (default 1GiB; the oldest are dropped)",
    )
    add_json(parser)
    args = parser.parse_args(argv)
    try:
        return _soak(args, report)
    except Unsupported as refusal:
        return unsupported(refusal, as_json=args.json, seed=args.seed or 1)
    except (ConfigError, OSError) as error:
        return refuse(error)
    except NodeError as error:
        return give_up(error, args.seed or 1)


def _cut(argv: list[str]) -> int:
    """Run `stormcast soak cut DIR`."""
    parser = parser_of(
        "soak cut",
        "Write the windows of a stretch of a soak as one scenario, which begins with a fresh "
        "cluster: stormcast run plays it in the simulator with the soak's seed, and shrink takes "
        "what that leaves.",
    )
    parser.add_argument("soak", type=Path, metavar="DIR", help="what stormcast soak has left")
    parser.add_argument(
        "--from", dest="start", type=read_duration, default=0.0, metavar="TIME", help="(default 0s)"
    )
    parser.add_argument(
        "--to",
        dest="end",
        type=read_duration,
        default=inf,
        metavar="TIME",
        help="(default the end)",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="a new file (default stdout)")
    args = parser.parse_args(argv)
    try:
        kept = SoakDirectory(args.soak).read()
        windows = chosen(kept, args.start, args.end)
        text = dump(cut(kept, windows))
        had = (_others(kept, one.number) for one in windows)
        if others := next(filter(None, had), ""):
            say(f"these windows were played with {others}: drawn here they may be others")
        if args.out is None:
            print(text, end="")
        else:
            with args.out.open("x") as file:
                file.write(text)
            say(f"{args.out}: stormcast run {args.out} --seed {kept.seed}")
    except FileExistsError:
        return refuse(ConfigError(f"{args.out} is there already: name a new file"))
    except (ConfigError, OSError) as error:
        return refuse(error)
    return Exit.HOLDS


def _others(kept: Kept, number: int) -> str:
    """Return the versions of a window that differ from those here, in words; empty: none does."""
    others = differences(kept.versions_of(number), versions())
    return f"other versions than here ({others})" if others else ""


def _soak(args: argparse.Namespace, report: Report) -> int:
    directory, kept = _directory(args)
    say_leftovers(kept.backend)
    with ExitStack() as held:
        held.enter_context(sigterm_interrupts())
        holder = lock(directory.path, held)
        if holder is not None:
            raise ConfigError(
                f"another stormcast soak plays in {directory.path} ({holder}): wait, or end it"
            )
        directory.mend()
        directory.go_on(kept)
        chapters = _chapters(directory, kept, args)
        watch = _Watch(directory, kept, args, report, chapters)
        is_over, number = False, len(kept.windows)
        try:
            while not is_over:
                is_over, number = _live(watch, directory, kept, number)
        except KeyboardInterrupt:
            say("interrupted: what was judged is kept")
            watch.is_interrupted = True
        except (NodeError, OSError) as error:
            if isinstance(error, ConfigError) or not directory.lines:
                raise
            # The verdicts on the windows before stand.
            end_progress()
            watch.is_broken = True
            if isinstance(error, OSError):
                refuse(error)
            else:
                give_up(error, kept.seed)
        except Exception:  # noqa: BLE001 whatever our code got wrong, what was judged before stands
            end_progress()
            watch.is_broken = True
            say(traceback.format_exc())
        finally:
            end_progress()
        return watch.end()


def _live(watch: _Watch, directory: SoakDirectory, kept: Kept, number: int) -> tuple[bool, int]:
    """Play windows on a new cluster, as long as it can be judged; returns whether the soak is over,
    and the number of the next window."""
    logs, backend = directory.make_logs(number), make_backend(kept.backend)
    player = Soak(kept.storm, kept.seed, backend, logs, tell=watch.tell)
    begun, is_judged, why = time.monotonic(), False, ""
    try:
        player.open()
        for window in _played(watch, player, number):
            took, begun = time.monotonic() - begun, time.monotonic()
            number, is_judged = number + 1, True
            if watch.note(window, took):
                with suppress(NodeError, OSError):
                    # All is judged: what cannot be forgotten now only takes room.
                    player.end(window)
                return True, number
            why = window.lost
    except NodeError as error:
        if not is_judged:
            # Neither does this cluster come up nor, it seems, the next one.
            raise
        why = " ".join(str(error).split())
        if watch.note_broken(number, why, time.monotonic() - begun):
            return True, number + 1
        number += 1
    finally:
        player.close()
    end_progress()
    say(f"{why}: a new cluster begins with window {number}")
    return False, number


def _played(watch: _Watch, player: Soak, number: int) -> Iterator[Window]:
    """Yield windows, each judged; note the one in which our own code failed."""
    begun = time.monotonic()
    try:
        for window in player.windows(number):
            yield window
            number, begun = number + 1, time.monotonic()
    except (NodeError, OSError):
        raise
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        watch.note_broken(number, why, time.monotonic() - begun)
        raise


def _directory(args: argparse.Namespace) -> tuple[SoakDirectory, Kept]:
    """Return the directory, and what is there of the soak: of a new one no window."""
    if args.resume is not None:
        for flag in ("storm", "stack", "timing", "seed", "out"):
            if getattr(args, flag) is not None:
                raise ConfigError(f"--{flag}: a soak goes on as it began; drop it")
        directory = SoakDirectory(args.resume)
        kept = directory.read()
        if args.backend not in (SIM, kept.backend):
            raise ConfigError(f"--backend: the soak is on {kept.backend}; drop it")
        say(
            f"{len(kept.windows)} windows are there; a new cluster begins with window "
            f"{len(kept.windows)}: of the time in between nothing is known"
        )
        if others := _others(kept, len(kept.windows)):
            say(f"the soak was played with {others}: from here on windows may be others")
        return directory, kept
    storm = load_storm(args.storm) if args.storm is not None else _default_storm()
    cluster = storm.cluster
    if args.stack is not None:
        cluster = replace(cluster, stack=args.stack)
    if args.timing is not None:
        cluster = replace(cluster, timing=args.timing)
    storm = replace(storm, cluster=cluster)
    seed = args.seed if args.seed is not None else 1
    # Refused before anything is written: what the stack, or the backend, cannot do.
    widest = storm.widest()
    check_supported(widest, args.backend)
    with closing(make_backend(args.backend)) as backend:
        cluster_plan(widest, seed, storm.name, Path(), backend.features())
    path = args.out or make_fresh(RUNS, f"soak-{storm.name}-{seed}")
    directory = SoakDirectory(path)
    return directory, directory.begin(storm, seed, args.backend)


def _chapters(
    directory: SoakDirectory, kept: Kept, args: argparse.Namespace
) -> KeptChapters | None:
    """Return where chapters are kept; None: they are not. A soak that kept them goes on to."""
    chapters = KeptChapters(directory.path, say)
    if args.keep_chapters is None and not chapters.is_there:
        return None
    chapters.begin(args.keep_chapters, len(kept.windows))
    return chapters


def _default_storm() -> Storm:
    members = tuple(f"n{number}" for number in range(MEMBERS))
    return Storm(cluster=Cluster(members=members, stack="udp", timing="fast"))


class _Watch:
    """Follows a soak: writes each window, says how it goes, and knows when it is over."""

    def __init__(
        self,
        directory: SoakDirectory,
        kept: Kept,
        args: argparse.Namespace,
        report: Report,
        chapters: KeptChapters | None,
    ) -> None:
        self._report = report
        self._chapters = chapters
        self._second = SecondJudge(directory.path)
        self._directory = directory
        self._kept = kept
        self._args = args
        self._verdicts = Counter(str(one["verdict"]) for one in kept.windows)
        self._seconds = sum(float(one["seconds"]) for one in kept.windows)
        self._sent = sum(int(one["sent"]) for one in kept.windows)
        self._faults = sum(sum(one["faults"].values()) for one in kept.windows)
        self._lived = 0.0
        self._told_at = time.monotonic()
        self._unrest = ""
        self._drifts: list[Drift] = []
        self._drifts_at = -inf
        self.is_interrupted = False
        self.is_broken = False
        """Whether it ended by an error: no more than `unknown` can be told of it."""
        self.tell = None if args.json else progress

    def note(self, window: Window, took: float) -> bool:
        """Take a window that has ended; returns whether it was the last."""
        self._verdicts[str(window.judgement.verdict)] += 1
        incident = self._directory.add(window, took)
        self._seconds += window.run.seconds
        self._lived += window.run.seconds
        self._sent += window.sent
        self._faults += sum(window.run.bites.values())
        self._unrest = window.unrest
        if self._chapters is not None:
            self._chapters.take(window)
        if incident is not None:
            bad = [one for one in window.judgement.findings if one.verdict is not Verdict.HOLDS]
            what = "; ".join(f"{one.guarantee} {one.verdict}: {one.detail}" for one in bad[:3])
            end_progress()
            say(f"window {window.number}: {window.judgement.verdict}: {what}\n  {incident}")
        self._directory.say(self.status(is_over=False))
        if time.monotonic() - self._told_at >= LINE_SECONDS:
            self._told_at = time.monotonic()
            end_progress()
            say(self.line())
            self._write_report()
        elif not self._args.json:
            progress(self.line())
        is_bad = window.judgement.verdict is not Verdict.HOLDS
        return self._lived >= self._args.seconds or (is_bad and self._args.until_violated)

    def note_broken(self, number: int, why: str, took: float) -> bool:
        """Take a window that broke off by an error of the rig; returns whether it was the last."""
        self._directory.add_broken(number, why, took)
        self._end_chapter()
        self._verdicts[str(Verdict.UNKNOWN)] += 1
        self._directory.say(self.status(is_over=False))
        if self._args.until_violated:
            end_progress()
            say(f"window {number}: {Verdict.UNKNOWN}: {why}")
        return bool(self._args.until_violated)

    def _end_chapter(self) -> None:
        """Keep the chapter that went on: no window of it follows."""
        if self._chapters is not None:
            self._chapters.end()

    def line(self) -> str:
        """Say how the soak is, in one line."""
        windows = sum(self._verdicts.values())
        bad = ", ".join(f"{self._verdicts[one]} {one}" for one in ("violated", "unknown"))
        left = max(0.0, self._args.seconds - self._lived)
        return (
            f"{windows} windows, {DURATION.write(round(self._seconds))}, {bad}, {self._sent} sent, "
            f"{self._faults} bites of faults; {DURATION.write(round(left))} left"
        )

    def status(self, *, is_over: bool) -> dict[str, Any]:
        """Return what `status.json` says."""
        second = self._second.as_json()
        return {
            "windows": sum(self._verdicts.values()),
            "verdicts": dict(self._verdicts),
            "verdict": str(self._verdict()),
            "seconds": round(self._seconds, 3),
            "sent": self._sent,
            "bites": self._faults,
            "unrest": self._unrest,
            "drift": [drift.as_json() for drift in self._drift(is_over=is_over)],
            **({} if second is None else {"spark": second}),
            "is_over": is_over,
        }

    def _drift(self, *, is_over: bool) -> list[Drift]:
        """Return what grows. To compare all pairs of samples takes long after many windows, so it
        is done now and then."""
        if is_over or time.monotonic() - self._drifts_at >= DRIFT_SECONDS:
            self._drifts_at = time.monotonic()
            self._drifts = drifts([*self._kept.windows, *self._directory.lines])
        return self._drifts

    def _verdict(self) -> Verdict:
        if self._verdicts["violated"]:
            return Verdict.VIOLATED
        is_unknown = self._verdicts["unknown"] or self.is_broken or self._second.disagrees
        if is_unknown or not self._verdicts["holds"]:
            return Verdict.UNKNOWN
        return Verdict.HOLDS

    def _write_report(self) -> None:
        """Write the page; where that fails, the soak goes on: what was judged is kept."""
        try:
            self._report(self._directory.path)
        except Exception as error:  # noqa: BLE001 a page is worth no soak, whatever spoiled it
            say(f"no report of the soak: {error}")

    def end(self) -> int:
        """Say what became of it; returns the exit code."""
        self._end_chapter()
        status = self.status(is_over=True)
        try:
            self._directory.say(status)
        except OSError as error:
            self.is_broken = True
            refuse(error)
            status = self.status(is_over=True)
        self._write_report()
        if self._args.json:
            print(json.dumps({**status, "soak": str(self._directory.path)}))
        else:
            print(
                in_plain_lines(f"soak: {self._verdict()}   seed {self._kept.seed}   {self.line()}")
            )
            for drift in self._drift(is_over=True):
                print(in_plain_lines(_drift_line(drift)))
            print(in_plain_lines(f"soak: {self._directory.path}"))
        if self.is_interrupted and self._verdict() is not Verdict.VIOLATED:
            raise KeyboardInterrupt
        return Exit.of(self._verdict())


def _drift_line(drift: Drift) -> str:
    slope, limit = drift.slope, LIMITS[drift.figure]
    unit, scale = ("MiB", 1 << 20) if drift.figure == "memory" else ("", 1)
    said = drift.as_json()
    if said["per_hour"] is None:
        return f"drift: {drift.figure} of {drift.of}: too short to tell ({slope.samples} samples)"
    return (
        f"drift: {drift.figure} of {drift.of}: {said['verdict']}, {slope.value / scale:+.2f} {unit}"
        f" an hour by {slope.samples} samples (above {limit / scale:g} it grows)"
    )
