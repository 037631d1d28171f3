"""`stormcast serve`: a controller, which runs the scenarios of a folder one after the other and
reports the results: as lines, as metrics, and in run directories.

A run that fails is reported and counted, and the next one follows. On SIGTERM or SIGINT the current
run heals its network, and the controller ends.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

from stormcast.chaos.backends.base import BackendError, Unsupported
from stormcast.chaos.backends.by_name import BACKENDS, SIM, make_backend
from stormcast.chaos.commands.arguments import (
    add_flags_of_one_backend,
    own_options,
    way_not_verified,
)
from stormcast.chaos.commands.controller_status import ERROR, ControllerStatus
from stormcast.chaos.commands.key_file import OF_A_RELEASE, Keys, add_key_file, read_key_file
from stormcast.chaos.commands.listeners import add_listeners, listeners_of
from stormcast.chaos.language.scenario import load_scenario
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.records.directory import give_back, make_fresh
from stormcast.chaos.session.outcome import RunOutcome
from stormcast.chaos.session.plans import check_supported
from stormcast.chaos.session.runner import run_on, run_scenario
from stormcast.exits import Exit
from stormcast.locks import lock
from stormcast.machine import in_words
from stormcast.node.control.settings import ControlSettings
from stormcast.node.core.errors import ConfigError, NodeError, require
from stormcast.node.core.names import one_line
from stormcast.node.reading.quantities import SETTING_DURATION

UNSUPPORTED: Final = "unsupported"
PATIENCE_SECONDS: Final = 300.0
"""Seconds from its start that a controller waits for its backend: members may still be starting."""
AGAIN_SECONDS: Final = 3.0
SERVED: Final = ".served"
"""The folder beside the run directories with a mark (an empty file) for each run of a controller:
of these runs the oldest may be removed."""
_PROG: Final = "stormcast serve"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """The settings of a controller."""

    backend: str
    options: dict[str, str]
    """Arguments of the backend."""
    key_file: Path | None
    keys: Keys
    """The keys of that file, by which all members seal; (): as each scenario says."""
    scenarios: Path
    runs: Path
    listen: ControlSettings | None
    probes: ControlSettings | None
    """A further listener for /livez and /readyz, with connections of its own; None: there is
    none."""
    every: float | None
    """Seconds from the start of one round to that of the next; None: only one round."""
    is_once: bool
    """Whether to end after one round; otherwise the status is served on."""
    seed: int
    keep: int
    """The most run directories that are kept."""
    is_json: bool


class Controller:
    """Runs scenarios until told to end."""

    def __init__(self, settings: ServeSettings) -> None:
        self.settings = settings
        self.status = ControllerStatus(self._say)
        self.worst = Exit.HOLDS
        """The exit code of all runs so far."""
        self._has_verdict = False
        self._is_told = False
        self._has_run = False
        """Whether a run on a real backend has ended with an outcome."""
        self._patience_until = time.monotonic() + PATIENCE_SECONDS
        self._trouble = ""

    # -- Life ----------------------------------------------------------------------------------

    def run(self) -> int:
        """Serve; returns the exit code."""
        # First of all, so that a controller without scenarios ends before it listens.
        self._files()
        with ExitStack() as held:
            self._lock(held)
            return self._serve()

    def _lock(self, held: ExitStack) -> None:
        """Lock the directory of runs; ConfigError if another controller has it: each would remove
        the other's run directories."""
        runs = self.settings.runs
        runs.mkdir(parents=True, exist_ok=True)
        holder = lock(runs, held)
        require(
            holder is None,
            f"--runs {runs}: another stormcast serve keeps its runs there ({holder}); end it, or "
            "name another directory",
        )

    def _serve(self) -> int:
        settings = self.settings
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        if warning := way_not_verified(settings.backend, settings.options.get("ca_file")):
            self._say(warning)
        try:
            if settings.listen is not None:
                where = self.status.serve(settings.listen, settings.probes)
                self._say(f"listens on {' and '.join(where)}")
            self._rounds()
        except KeyboardInterrupt:
            self._say("told to end")
        return self._exit_code()

    def _exit_code(self) -> Exit:
        """Return the worst of all runs; of a round that was to be the only one, nothing holds
        unless all of it was run."""
        if not self.settings.is_once or self.worst == Exit.VIOLATED:
            return self.worst
        if self._is_told:
            return Exit.INTERRUPTED
        return self.worst if self._has_verdict else Exit.UNKNOWN

    def _rounds(self) -> None:
        seed, began = self.settings.seed, time.monotonic()
        while not self._is_told:
            self._round(seed)
            self.status.count_round()
            if self.settings.is_once:
                return
            seed += 1
            began += self.settings.every or 0.0
            self._rest(None if self.settings.every is None else began)

    def _rest(self, until: float | None) -> None:
        """Wait until the next round; without one (None), until a signal."""
        while not self._is_told and (until is None or time.monotonic() < until):
            self.status.hear()
            time.sleep(min(1.0, max(0.0, (until or time.monotonic() + 1) - time.monotonic())))

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._is_told:
            # A second signal: end without healing; leases heal the network.
            raise SystemExit(128 + number)
        self._is_told = True
        # The interrupted run heals its network, and keeps its run directory.
        raise KeyboardInterrupt

    # -- Runs ----------------------------------------------------------------------------------

    def _files(self) -> list[Path]:
        """Return the scenario files; ConfigError if there are none. They may change meanwhile."""
        found = sorted(self.settings.scenarios.glob("*.yaml"))
        require(
            bool(found),
            f"--scenarios {self.settings.scenarios}: no *.yaml in it; name a folder of scenarios",
        )
        return found

    def _round(self, seed: int) -> None:
        try:
            files = self._files()
        except ConfigError as error:
            # Files were there at the start; perhaps they are being replaced just now.
            self._say(str(error))
            return
        self.status.know(file.stem for file in files)
        for file in files:
            if self._is_told:
                return
            self.status.hear()
            self._one(file, seed)

    def _one(self, file: Path, seed: int) -> None:
        """Run one file, and report its result, also after an error."""
        name, outcome, why = file.stem, None, ""
        self.status.begin(name)
        began = time.monotonic()
        try:
            outcome = self._outcome(file, seed)
            verdict = str(outcome.verdict)
        except Unsupported as refusal:
            verdict, why = UNSUPPORTED, str(refusal)
        except (NodeError, OSError) as error:
            verdict, why = ERROR, str(error)
        except Exception as error:  # noqa: BLE001 a bug in one run must not end all others
            verdict, why = ERROR, f"a bug: {error!r}"
        except BaseException:
            self.status.end(name, ERROR, None)
            self._tidy()
            raise
        self.status.end(name, verdict, outcome)
        self._count(verdict)
        self._tell(name, seed, verdict, outcome, why, time.monotonic() - began)
        self._tidy()

    def _outcome(self, file: Path, seed: int) -> RunOutcome:
        scenario = load_scenario(file)
        self.status.expect(scenario.limits.run + scenario.limits.settle)
        name, settings = f"{file.stem}-{seed}", self.settings
        options: dict[str, Any] = dict(settings.options)
        keys: Keys = ()
        if settings.keys and not scenario.changes_keys:
            scenario, keys = scenario.with_keys(), settings.keys
            options["key_file"] = settings.key_file
        if settings.backend == SIM:
            self.status.is_ready = True
        # Refused before there is a run directory, which would stay.
        check_supported(scenario, settings.backend)
        if settings.backend == SIM:
            return run_scenario(scenario, seed, out=self._directory(name), keys=keys)
        while True:
            backend = make_backend(settings.backend, **options)
            try:
                backend.features()
                self.status.is_ready = True
                outcome = run_on(backend, scenario, seed, out=self._directory(name))
            except BackendError as error:
                self._wait_for_backend(error)
            else:
                self._has_run = True
                return outcome

    def _wait_for_backend(self, error: BackendError) -> None:
        """Wait a moment if the backend may still be starting; otherwise raise its error."""
        if self._has_run or time.monotonic() > self._patience_until:
            raise error
        if str(error) != self._trouble:
            self._trouble = str(error)
            self._say(f"waiting: {error}")
        self.status.hear()
        time.sleep(AGAIN_SECONDS)

    def _directory(self, name: str) -> Path:
        """Make a fresh run directory, and its mark."""
        out = make_fresh(self.settings.runs, name)
        # The marks are on disk, so that runs of an earlier controller count, too; run directories
        # of other commands have no mark, and are not removed.
        served = self.settings.runs / SERVED
        served.mkdir(exist_ok=True)
        (served / out.name).touch()
        return out

    def _tidy(self) -> None:
        try:
            self._remove_oldest()
        except OSError as error:
            # The results stand, and the next run tries it again.
            self._say(f"run directories beyond --keep stay: {in_words(error)}")

    def _remove_oldest(self) -> None:
        """Remove the oldest run directories beyond `keep`; those of runs that left nothing do not
        count, and go, too."""
        marks = sorted(
            (self.settings.runs / SERVED).glob("*"), key=lambda mark: mark.stat().st_mtime_ns
        )
        left = []
        for mark in marks:
            directory = self.settings.runs / mark.name
            give_back(directory)
            if directory.exists():
                left.append(mark)
            else:
                mark.unlink()
        for mark in left[: -self.settings.keep]:
            shutil.rmtree(self.settings.runs / mark.name, ignore_errors=True)
            mark.unlink()

    # -- Results -------------------------------------------------------------------------------

    def _count(self, verdict: str) -> None:
        self._has_verdict = True
        code = Exit.of(verdict)
        # A violation is proof, and outweighs everything.
        if self.worst != Exit.VIOLATED and code != Exit.HOLDS:
            self.worst = code

    def _tell(
        self, name: str, seed: int, verdict: str, outcome: RunOutcome | None, why: str, took: float
    ) -> None:
        """Print the result of a run as one line."""
        if self.settings.is_json:
            told: dict[str, Any] = {"scenario": name, "seed": seed, "verdict": verdict}
            told |= outcome.as_json() if outcome is not None else {"error": _line(why)}
            print(json.dumps(told), flush=True)
            return
        parts = [f"{verdict:<11} {name} seed {seed} ({took:.1f}s)"]
        if outcome is not None:
            resync = outcome.run.resync
            if resync is not None and resync.seconds is not None:
                parts.append(f"resync {resync.seconds:.2f}s")
            parts += [
                f"{finding.guarantee} {finding.verdict}: {_line(finding.detail)}"
                for finding in outcome.judgement.findings
                if finding.verdict is not Verdict.HOLDS
            ][:3]
        elif why:
            parts.append(_line(why))
        print("; ".join(parts), flush=True)

    @staticmethod
    def _say(line: str) -> None:
        print(f"{_PROG}: {_line(line)}", file=sys.stderr, flush=True)


def _line(text: str) -> str:
    return one_line(text)


# -- The command ---------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_PROG,
        description="Run the scenarios of a folder one after the other. Prints each verdict, and "
        "keeps the run directories; with --listen, verdicts are metrics.",
        allow_abbrev=False,
        epilog="exit codes: 0 everything held; 1 violated; 2 usage; 3 unknown, unsupported or an "
        "error; 130 --once was told to end before all were run",
    )
    parser.add_argument(
        "--backend",
        default="kubernetes",
        choices=BACKENDS,
        help="where members live (default kubernetes)",
    )
    add_flags_of_one_backend(parser)
    add_key_file(parser)
    parser.add_argument(
        "--scenarios", type=Path, required=True, metavar="DIR", help="every *.yaml in it is run"
    )
    add_listeners(parser)
    when = parser.add_mutually_exclusive_group()
    when.add_argument(
        "--every",
        metavar="TIME",
        help="begin a round so often, such as 10min (default: one round, then serve on)",
    )
    when.add_argument("--once", action="store_true", help="end after one round")
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the first round; each round adds 1 (default 1)"
    )
    parser.add_argument(
        "--runs",
        type=Path,
        default=Path("runs"),
        metavar="DIR",
        help="where run directories are kept (default runs)",
    )
    parser.add_argument(
        "--keep",
        type=int,
        default=50,
        help="keep this many run directories; the oldest go (default 50)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per run")
    return parser


def serve(argv: Sequence[str]) -> int:
    """Run `stormcast serve`, until it is done or a signal comes."""
    words = _parser().parse_args(list(argv))
    try:
        return Controller(_settings(words)).run()
    except (NodeError, OSError) as error:
        print(f"{_PROG}: {_line(str(error))}", file=sys.stderr)
        return Exit.USAGE


def _settings(words: argparse.Namespace) -> ServeSettings:
    options = own_options(words)
    require(
        words.key_file is None or words.backend != "kubernetes",
        OF_A_RELEASE,
    )
    require(words.seed >= 0, f"--seed is {words.seed}: it must not be negative")
    require(words.keep > 0, f"--keep is {words.keep}: keep one at least")
    every = SETTING_DURATION.read(words.every, "--every") if words.every is not None else None
    require(every is None or every > 0, "--every is 0s: leave it out, or say how often")
    listen, probes = listeners_of(words)
    return ServeSettings(
        backend=words.backend,
        options=options,
        key_file=words.key_file,
        keys=read_key_file(words.key_file),
        scenarios=words.scenarios,
        runs=words.runs,
        listen=listen,
        probes=probes,
        every=every,
        is_once=words.once,
        seed=words.seed,
        keep=words.keep,
        is_json=words.json,
    )
