"""`stormcast verify RUN…`: converts runs to Parquet, has Spark judge them, and shows beside its
verdict the run's own. `stormcast verify --follow SOAK`: the same for chapters of a soak.

This is glue: the pipeline knows neither members nor scenarios, and files are all that it shares
with them.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeGuard

from stormcast.chaos.backends.signals import sigterm_interrupts
from stormcast.chaos.commands.arguments import add_spark_settings
from stormcast.chaos.language.scenario import ExpectView, Scenario, load_scenario
from stormcast.chaos.records.directory import BEGUN, settled
from stormcast.chaos.session.versions import versions
from stormcast.chaos.soak.directory import STATUS
from stormcast.chaos.soak.second_judge import SecondJudge, with_second_judge
from stormcast.exits import Exit
from stormcast.findings import RUN, Finding, worst
from stormcast.locks import lock
from stormcast.node.core.errors import NodeError
from stormcast.node.core.names import printable
from stormcast.node.trace.export import ExportError, export
from stormcast.node.trace.files import Source, find_sources, member_names
from stormcast.pipeline import cli, session
from stormcast.pipeline.evidence import KEY, Belief, belief_in, digest_of
from stormcast.pipeline.findings import THE_RUN, read_finding
from stormcast.pipeline.follow import FollowOrder, follow
from stormcast.pipeline.follow_lines import Lines
from stormcast.pipeline.followed import FollowedSoak
from stormcast.pipeline.questions import (
    Arrivals,
    Budget,
    CannotError,
    Expectations,
    OneView,
    Question,
    VerifyError,
)
from stormcast.pipeline.report.run_files import OF_OTHERS, UNJUDGED
from stormcast.pipeline.report.writing import write_report, write_soak
from stormcast.pipeline.store import SCHEMES, Url, read_url
from stormcast.pipeline.stored_run import OF, PARQUET, Fetched, Results, StoredRun, scratch
from stormcast.whole import write_whole

KEPT: Final = ("seed", "fate", "backend")
"""Keys of the run's own verdict that are repeated in that of Spark."""
_OTHERS: Final = {
    "guarantee": RUN,
    "verdict": "unknown",
    "detail": f"the verdict.json of the run {OF_OTHERS}",
    "witness": (),
}
"""Stands for the findings of a verdict that is not of these traces."""
_UNJUDGED: Final = {
    "guarantee": RUN,
    "verdict": "unknown",
    "detail": UNJUDGED,
    "witness": (),
}
"""Stands for the findings of a run that was killed while it judged."""
_NO_END: Final = {"complete": False, "interrupted": True}
"""Without a verdict nobody knows whether a run came to its end: what is missing might have come."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A run directory, and its name among the others."""

    path: Path
    name: str
    stored: StoredRun | None = None
    """The run in a store of which the directory is a copy; None: it is none."""

    @property
    def shown(self) -> str:
        """The run as it was asked for."""
        return str(self.stored.url if self.stored else self.path)


def verify_quietly(paths: Sequence[Path]) -> Exit:
    """Verify run directories; print nothing about those that hold."""
    with ExitStack() as held:
        try:
            runs = _named(paths)
            _lock((run.path for run in runs), held)
            tasks = [cli.Task(question=_question(run), directory=run.path) for run in runs]
        except (VerifyError, NodeError, OSError) as error:
            _refuse(error)
            return Exit.UNKNOWN
        order = cli.Order(tasks=tasks, shown=printable, is_brief=True, on_measured=_report)
        return Exit(cli.verify(order))


def verify(argv: list[str]) -> int:
    """`stormcast verify RUN…`: judge the traces of runs once more, on Spark."""
    parser = _parser()
    args = parser.parse_args(argv)
    _check(parser, args)
    if args.follow is not None:
        return _follow(args)
    fetched = Fetched()
    with ExitStack() as held:
        try:
            session.check_pyspark()
            session.check_java()
            tasks = _tasks(args, fetched, held)
        except (CannotError, ExportError) as error:
            _refuse(error, fetched)
            return Exit.UNKNOWN
        except (VerifyError, NodeError, OSError) as error:
            _refuse(error, fetched)
            return Exit.USAGE
        order = cli.Order(
            tasks=tasks,
            shown=lambda text: printable(fetched.named(text)),
            named=fetched.named,
            master=args.master,
            settings=dict(args.conf),
            tables=args.tables,
            as_json=args.json,
            on_measured=_report,
        )
        return cli.verify(order)


def _refuse(error: Exception, fetched: Fetched | None = None) -> None:
    said = fetched.named(str(error)) if fetched else str(error)
    cli.say("\n".join(map(printable, said.splitlines())))


def _tasks(args: argparse.Namespace, fetched: Fetched, held: ExitStack) -> list[cli.Task]:
    """Return what is to be verified. The directories that it is written to are locked as long as
    `held` is open: two that verify one run would remove each other's files."""
    runs = _named(_directories(args, fetched, held), fetched)
    _lock((run.path for run in runs), held)
    results = {} if args.out else {run.path: fetched.results(run.path) for run in runs}
    questions = [_question(run, results=results.get(run.path)) for run in runs]
    aparts = [args.out / _file_name(run) if args.out else None for run in runs]
    for apart in filter(None, aparts):
        apart.mkdir(parents=True, exist_ok=True)
    _lock(filter(None, aparts), held)
    return [
        cli.Task(
            question=question,
            directory=run.path,
            apart=apart,
            results=results.get(run.path),
        )
        for run, question, apart in zip(runs, questions, aparts, strict=True)
    ]


def _directories(args: argparse.Namespace, fetched: Fetched, held: ExitStack) -> list[Path]:
    """Return the directories of runs, those of runs in a store fetched, for as long as `held` is
    open."""
    places: list[Path | Url] = args.runs
    urls = [place for place in places if isinstance(place, Url)]
    # A path that leads nowhere is refused before anything is fetched.
    _named([place for place in places if isinstance(place, Path)])
    for url in urls:
        if urls.count(url) > 1:
            raise VerifyError(f"{url} is named twice")
    if not urls:
        return [place for place in places if isinstance(place, Path)]
    held.enter_context(sigterm_interrupts())
    is_local = args.master.startswith("local")
    into = held.enter_context(scratch(args.tables, is_local=is_local))
    copies = iter(fetched.fetch(urls, into, lambda text: cli.say(printable(text))))
    return [next(copies) if isinstance(place, Url) else place for place in places]


def _lock(directories: Iterable[Path], held: ExitStack) -> None:
    """Lock directories until `held` is closed; VerifyError if another process has one of them."""
    for directory in directories:
        holder = lock(directory, held)
        if holder is not None:
            raise VerifyError(
                f"another stormcast verify writes to {directory} ({holder}): wait for it, or end it"
            )


def _report(task: cli.Task) -> None:
    about = task.question.about["run"]
    task.keep(write_report(task.directory, task.apart, about if read_url(about) else ""))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="stormcast verify",
        description="Judge the traces of runs on Spark, all of them together. Exit 0 all hold, "
        "1 one is violated, 2 usage, 3 one is unknown, or something is missing here.",
        allow_abbrev=False,
        usage="%(prog)s [options] RUN [RUN ...]\n       %(prog)s [options] --follow SOAK",
    )
    parser.add_argument(
        "runs",
        nargs="*",
        type=_place,
        metavar="RUN",
        help="a run directory, or a run in an object store, s3a://BUCKET/PATH",
    )
    parser.add_argument(
        "--follow",
        type=Path,
        metavar="SOAK",
        help="in place of runs: judge the chapters of a soak (stormcast soak --keep-chapters) as "
        "they come, and end when it is over or nobody plays it",
    )
    parser.add_argument(
        "--until-over",
        action="store_true",
        help="with --follow: wait for a soak that was killed to be resumed",
    )
    parser.add_argument(
        "--master", default="local[*]", help="where Spark runs (default local[*]: this machine)"
    )
    add_spark_settings(parser)
    parser.add_argument(
        "--tables",
        type=_folder,
        metavar="DIR",
        help="keep computed tables in DIR, which all hosts of the master see, so that none is lost "
        "with a worker (default: each worker keeps its own)",
    )
    parser.add_argument("--out", type=_folder, help="write to DIR/RUN, not to RUN/verify")
    parser.add_argument("--json", action="store_true", help="one JSON object per run")
    return parser


def _place(text: str) -> Path | Url:
    try:
        return read_url(text) or Path(text)
    except VerifyError as error:
        raise argparse.ArgumentTypeError(printable(str(error))) from None


def _folder(text: str) -> Path:
    if text.startswith(SCHEMES):
        raise argparse.ArgumentTypeError(
            "it is a directory; the results of a run in a store go there where --out is not given"
        )
    return Path(text)


def _check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Refuse what does not go together."""
    if args.follow is None:
        if not args.runs:
            parser.error("name a run directory, or a soak with --follow")
        if args.until_over:
            parser.error("--until-over: it is about a soak; drop it, or name one with --follow")
        return
    if args.runs:
        parser.error("--follow: it is in place of runs; drop one of them")
    for flag, value in (("--out", args.out), ("--tables", args.tables)):
        if value is not None:
            parser.error(f"{flag}: it is about runs, not about a soak; drop it")


# -- A soak ----------------------------------------------------------------------------------------


def _follow(args: argparse.Namespace) -> int:
    """Judge the chapters of a soak as they come."""
    with ExitStack() as held:
        held.enter_context(sigterm_interrupts())
        try:
            session.check_pyspark()
            session.check_pyarrow()
            session.check_java()
            soak = FollowedSoak(args.follow)
            soak.begin()
            _lock([soak.folder], held)
        except CannotError as error:
            _refuse(error)
            return Exit.UNKNOWN
        except (VerifyError, OSError) as error:
            _refuse(error)
            return Exit.USAGE
        order = FollowOrder(
            soak=soak,
            ask=lambda directory, name: _question(_Run(directory, name), _tell_nobody),
            lines=Lines(shown=printable, as_json=args.json, on_kept=write_report),
            until_over=args.until_over,
            on_end=lambda: _end_soak(args.follow),
        )
        return follow(order, args.master, dict(args.conf))


def _end_soak(soak: Path) -> None:
    """Show what Spark said in the page and the status of a soak, unless it is played: then it does
    that itself."""
    with ExitStack() as held:
        if lock(soak, held) is not None:
            return
        try:
            path = soak / STATUS
            if path.is_file():
                told = with_second_judge(json.loads(path.read_text()), SecondJudge(soak))
                write_whole(path, json.dumps(told, indent=2) + "\n")
            write_soak(soak)
        except Exception as error:  # noqa: BLE001 a page that fails must not take verdicts along
            _refuse(VerifyError(f"no report of the soak: {error}"))


def _tell_nobody(_text: str) -> None:
    """Tell nobody that a run is exported: of chapters there are too many."""


def _named(paths: Sequence[Path], fetched: Fetched | None = None) -> list[_Run]:
    """Runs by the name of their directory, or by their path or URL where two have the same."""
    for path in paths:
        if not path.is_dir():
            raise VerifyError(f"{path} is no directory: name what stormcast run has left")
    # Where a shell puts in all that is in a folder, the latest run is there by its link, too.
    stay = {path: settled(path) for path in paths}
    there = {path.resolve() for path in paths if not path.is_symlink()}
    kept = [
        stay[path] for path in paths if not path.is_symlink() or stay[path].resolve() not in there
    ]
    whole = [path.resolve() for path in kept]
    for path in whole:
        if whole.count(path) > 1:
            raise VerifyError(f"{path} is named twice")
    names = [path.name for path in whole]
    stored = [fetched.get(path) if fetched else None for path in kept]
    return [
        _Run(path, name if names.count(name) == 1 else str(one.url if one else here), one)
        for path, here, name, one in zip(kept, whole, names, stored, strict=True)
    ]


def _file_name(run: _Run) -> str:
    return run.name.strip("/").replace("/", "-")


# -- Parquet ---------------------------------------------------------------------------------------


def _exported(
    run: _Run, digest: str, tell: Callable[[str], None], results: Results | None = None
) -> Path:
    """The Parquet files of a run, made anew where they are missing or not of its traces."""
    directory, sources = run.path / PARQUET, find_sources(run.path)
    if not sources:
        if any(directory.glob("*.parquet")):
            return directory
        raise VerifyError(f"{run.shown} holds no traces: name what stormcast run has left")
    if _is_fresh(run, directory, sources, digest):
        return directory
    tell(printable(f"exporting {run.shown}"))
    part = run.path / f".{PARQUET}"
    shutil.rmtree(part, ignore_errors=True)
    named = run.stored.named if run.stored else str
    for _file in export(sources, part, run.name, member_names(sources), [], named):
        pass
    (part / OF).write_text(f"{_made_of(digest)}\n")
    is_stored = _says_of(directory, digest)
    shutil.rmtree(directory, ignore_errors=True)
    part.rename(directory)
    if results is not None and not is_stored:
        results.put(directory)
    return directory


def _made_of(digest: str) -> str:
    """Return what `of` says of Parquet files: which traces they were made from, and by what."""
    return f"{digest} {versions()['code']}"


def _says_of(directory: Path, digest: str) -> bool:
    """Whether `of` beside Parquet files says that they are of these traces, and by this code."""
    of = directory / OF
    return of.is_file() and of.read_text(errors="replace").strip() == _made_of(digest)


def _is_fresh(run: _Run, directory: Path, sources: Sequence[Source], digest: str) -> bool:
    """Whether all files of a directory were made of these traces, and under this name."""
    if not _says_of(directory, digest):
        return False
    if {path.stem for path in directory.glob("*.parquet")} != {source.label for source in sources}:
        return False
    from stormcast.pipeline.files import find  # noqa: PLC0415 it needs PySpark

    return all(
        not trace.broken and all(name == run.name for name in trace.runs)
        for trace in find(directory)
    )


# -- What a run says of itself ---------------------------------------------------------------------


def _question(
    run: _Run, tell: Callable[[str], None] = cli.say, results: Results | None = None
) -> Question:
    """Return the question about a run: the guarantees that its scenario promises, or all that can
    be judged. Say if its traces are exported; `results` puts them into the store of the run."""
    own, digest = _own_verdict(run.path), digest_of(run.path)
    if belief_in(own.get(KEY), digest) is Belief.OTHERS:
        cli.say(printable(f"{run.shown}/verdict.json {OF_OTHERS}: it is not believed"))
        own = {"findings": [_OTHERS], **_NO_END}
    elif not own and (run.path / BEGUN).is_file():
        own = {"findings": [_UNJUDGED], **_NO_END}
    found = _own_findings(own)
    scenario = _scenario(run.path)
    bites = own.get("min_bites")
    about: dict[str, Any] = {"scenario": scenario.name if scenario else run.name}
    about["run"] = run.shown
    about |= {key: value for key, value in own.items() if key in KEPT} | {KEY: digest}
    return Question(
        run=run.name,
        traces=_exported(run, digest, tell, results),
        guarantees=tuple(scenario.guarantees) if scenario else None,
        budget=_budget(scenario) if scenario else None,
        min_bites=bites if isinstance(bites, int) else 1,
        expected=expectations_of(scenario) if scenario else None,
        is_complete=own.get("complete") is not False,
        is_interrupted=own.get("interrupted", not own) is not False,
        own=found,
        doubts=run.stored.doubts if run.stored else (),
        about=about,
    )


def _scenario(directory: Path) -> Scenario | None:
    path = directory / "scenario.yaml"
    return load_scenario(path) if path.is_file() else None


def _budget(scenario: Scenario) -> Budget | None:
    budget = scenario.budget
    if budget is None:
        return None
    return Budget(
        acks=budget.acks, resends=budget.resends, syncs=budget.syncs, requests=budget.requests
    )


def expectations_of(scenario: Scenario) -> Expectations:
    """Return what a scenario expects by when (G8)."""
    return Expectations(
        awaited=tuple(
            OneView(by=one.by, seen_by=tuple(one.seen_by), members=tuple(one.view))
            if isinstance(one, ExpectView)
            else Arrivals(
                by=one.by, sources=tuple(one.sources), dests=tuple(one.dests), count=one.count
            )
            for one in scenario.expect
        ),
        asks_one_group="G8" in scenario.guarantees,
    )


def _own_verdict(directory: Path) -> dict[str, Any]:
    """Return what the run says of itself; empty if it has no verdict."""
    path = directory / "verdict.json"
    if not path.is_file():
        return {}
    try:
        said = json.loads(path.read_text())
    except ValueError as error:
        raise VerifyError(
            f"{path} is no JSON ({error}): run it again, or remove the file"
        ) from None
    if not _is_verdict(said):
        raise VerifyError(f"{path} is no verdict: run it again, or remove the file")
    return said


def _is_verdict(said: object) -> TypeGuard[dict[str, Any]]:
    if not isinstance(said, dict) or "verdict" not in said:
        return False
    findings = said.get("findings", [])
    return isinstance(findings, list) and all(isinstance(one, dict) for one in findings)


def _own_findings(own: dict[str, Any]) -> tuple[Finding, ...]:
    """Return the run's own findings, with one about the run where its verdict is worse than they
    are."""
    found = tuple(read_finding(one, THE_RUN) for one in own.get("findings", ()))
    detail = "its verdict.json says so, and no finding in it says why"
    told = {"verdict": own.get("verdict", "holds"), "detail": detail}
    whole = read_finding(told, THE_RUN)
    if whole.verdict > worst(finding.verdict for finding in found):
        return (*found, whole)
    return found
