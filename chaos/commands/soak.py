"""`stormcast soak`: a storm without end over one cluster, judged window by window."""

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.backends.by_name import KUBERNETES, SIM, make_backend
from stormcast.chaos.backends.signals import sigterm_interrupts
from stormcast.chaos.commands.arguments import (
    add_backend,
    add_flags_of_one_backend,
    add_json,
    own_options,
    parser_of,
    read_duration,
    read_seed,
    read_size,
    way_not_verified,
)
from stormcast.chaos.commands.key_file import OF_A_RELEASE, Keys, add_key_file, read_key_file
from stormcast.chaos.commands.listeners import add_listeners, listeners_of, serve_status
from stormcast.chaos.commands.output import (
    RUNS,
    end_progress,
    give_up,
    refuse,
    say,
    say_leftovers,
    unsupported,
)
from stormcast.chaos.commands.soak_cut import cut_soak, other_versions
from stormcast.chaos.commands.soak_figures import SoakFigures
from stormcast.chaos.commands.soak_watch import Report, Watch
from stormcast.chaos.language.cluster import TIMINGS, Cluster
from stormcast.chaos.records.directory import make_fresh
from stormcast.chaos.session.plans import check_supported, cluster_plan
from stormcast.chaos.soak.directory import Kept, SoakDirectory
from stormcast.chaos.soak.kept_chapters import BOUND, KeptChapters
from stormcast.chaos.soak.player import Soak, Window
from stormcast.chaos.soak.storm import Storm, what_runs
from stormcast.chaos.soak.storm_file import load_storm
from stormcast.locks import lock
from stormcast.node.core.errors import ConfigError, NodeError

MEMBERS: Final = 4


def soak(argv: list[str], report: Report) -> int:
    """Run `stormcast soak`: windows of a storm, until the time is over or Ctrl-C; or with `cut` as
    first word, write windows of a soak as a scenario."""
    if argv[:1] == ["cut"]:
        return cut_soak(argv[1:])
    parser = parser_of(
        "soak",
        "Play a storm over one cluster, window after window, and judge each as it ends. Exit 0 all "
        "hold, 1 one is violated, 2 usage, 3 one is unknown, or something is missing here.",
    )
    add_backend(parser)
    add_flags_of_one_backend(parser)
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
        "--go-on",
        type=Path,
        metavar="DIR",
        help="the same, or begin there where no soak is yet; --for is the time of all its starts",
    )
    add_key_file(parser)
    add_listeners(parser)
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


def _soak(args: argparse.Namespace, report: Report) -> int:
    options = own_options(args)
    listen, probes = listeners_of(args)
    keys = read_key_file(args.key_file)
    directory, kept = _directory(args, options)
    options |= _sealing(args, kept, keys)
    say_leftovers(kept.backend)
    figures = SoakFigures(kept.storm.window + kept.storm.settle)
    if warning := way_not_verified(kept.backend, options.get("ca_file")):
        say(warning)
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
        watch = Watch(directory, kept, args, report, chapters, figures)
        is_over, number = watch.is_over, len(kept.windows)
        if listen is not None:
            where = serve_status(figures, listen, probes, say)
            say(f"listens on {' and '.join(where)}")
        try:
            while not is_over:
                play = _Play(directory, kept, options, figures)
                is_over, number = _live(watch, play, number)
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
        code = watch.end()
        if listen is not None and not watch.is_broken:
            _stay(figures)
        return code


def _stay(figures: SoakFigures) -> None:
    """Tell what came of a soak, until a signal comes."""
    figures.is_ready = True
    # The signal may come as soon as the line is out, before this thread goes on.
    with suppress(KeyboardInterrupt):
        say("its time is over; told until SIGTERM")
        while True:
            figures.hear()
            time.sleep(1.0)


class _Play(NamedTuple):
    """What windows are played with."""

    directory: SoakDirectory
    kept: Kept
    options: Mapping[str, Any]
    """Arguments of the backend."""
    figures: SoakFigures


def _live(watch: Watch, play: _Play, number: int) -> tuple[bool, int]:
    """Play windows on a new cluster, as long as it can be judged and its turn lasts; returns
    whether the soak is over, and the number of the next window."""
    kept = play.kept
    logs, backend = play.directory.make_logs(number), make_backend(kept.backend, **play.options)
    storm, upto = kept.storm.of_window(number), kept.storm.turn_ends(number)
    player = Soak(storm, kept.seed, backend, logs, tell=watch.tell)
    begun, is_judged, why = time.monotonic(), False, ""
    try:
        player.open()
        play.figures.is_ready = True
        for window in _played(watch, player, number, upto):
            took, begun = time.monotonic() - begun, time.monotonic()
            number, is_judged = number + 1, True
            if watch.note(window, took):
                with suppress(NodeError, OSError):
                    # All is judged: what cannot be forgotten now only takes room.
                    player.end(window)
                return True, number
            why = window.lost
        if not why:
            why = f"the turn of {what_runs(storm.cluster)} is over"
            watch.end_chapter()
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


def _played(watch: Watch, player: Soak, number: int, upto: int | None) -> Iterator[Window]:
    """Yield windows, each judged; note the one in which our own code failed."""
    begun = time.monotonic()
    try:
        for window in player.windows(number, upto):
            yield window
            number, begun = number + 1, time.monotonic()
    except (NodeError, OSError):
        raise
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        watch.note_broken(number, why, time.monotonic() - begun)
        raise


def _directory(args: argparse.Namespace, options: Mapping[str, Any]) -> tuple[SoakDirectory, Kept]:
    """Return the directory, and what is there of the soak: of a new one no window."""
    if args.go_on is not None:
        for flag in ("resume", "out"):
            if getattr(args, flag) is not None:
                raise ConfigError(f"--{flag}: --go-on names the directory; drop one of them")
    if args.resume is not None:
        for flag in ("storm", "stack", "timing", "seed", "out"):
            if getattr(args, flag) is not None:
                raise ConfigError(f"--{flag}: a soak goes on as it began; drop it")
    goes_on = args.go_on is not None and SoakDirectory(args.go_on).is_there
    if args.resume is not None or goes_on:
        directory = SoakDirectory(args.resume or args.go_on)
        kept = directory.read()
        if goes_on:
            _check_same(args, kept)
        if args.backend not in (SIM, kept.backend):
            raise ConfigError(f"--backend: the soak is on {kept.backend}; drop it")
        say(
            f"{len(kept.windows)} windows are there; a new cluster begins with window "
            f"{len(kept.windows)}: of the time in between nothing is known"
        )
        if others := other_versions(kept, len(kept.windows)):
            say(f"the soak was played with {others}: from here on windows may be others")
        return directory, kept
    storm, seed = _storm(args), args.seed if args.seed is not None else 1
    # Refused before anything is written: what the stack, or the backend, cannot do.
    for turn in storm.by_turn():
        widest = turn.widest()
        check_supported(widest, args.backend)
        with closing(make_backend(args.backend, **options)) as backend:
            cluster_plan(widest, seed, storm.name, Path(), backend.features())
    path = args.go_on or args.out or make_fresh(RUNS, f"soak-{storm.name}-{seed}")
    directory = SoakDirectory(path)
    return directory, directory.begin(storm, seed, args.backend)


def _sealing(args: argparse.Namespace, kept: Kept, keys: Keys) -> dict[str, Any]:
    """Return what a backend is told of the keys that were given."""
    if not keys:
        return {}
    if not kept.storm.cluster.sealed:
        raise ConfigError("--key-file: the soak goes on as it began, without keys; drop it")
    return {"keys": keys} if kept.backend == SIM else {"key_file": args.key_file}


def _check_same(args: argparse.Namespace, kept: Kept) -> None:
    """Say where a soak that goes on is another than is asked for."""
    if (args.storm, args.stack, args.timing) != (None, None, None) and _storm(args) != kept.storm:
        say(
            f"{args.go_on} goes on with the storm it began with; name another directory for another"
        )
    if args.seed is not None and args.seed != kept.seed:
        say(f"{args.go_on} began with seed {kept.seed}, and goes on with that")


def _storm(args: argparse.Namespace) -> Storm:
    """Return the storm that is asked for."""
    storm = load_storm(args.storm) if args.storm is not None else _default_storm()
    cluster = storm.cluster
    for flag in ("stack", "timing"):
        if storm.turns and getattr(args, flag) is not None:
            raise ConfigError(f"--{flag}: the storm has turns, which say it; drop one of them")
    if args.stack is not None:
        cluster = replace(cluster, stack=args.stack)
    if args.timing is not None:
        cluster = replace(cluster, timing=args.timing)
    if args.key_file is not None:
        if args.backend == KUBERNETES:
            raise Unsupported(OF_A_RELEASE)
        cluster = replace(cluster, sealed=True)
    return replace(storm, cluster=cluster)


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
