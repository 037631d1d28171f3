"""Plays contests, each by one side after the other, and keeps a row of each run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from shutil import rmtree

from stormcast.chaos.campaigns.versus.contests import Contest
from stormcast.chaos.campaigns.versus.rows import (
    JGROUPS,
    ROW,
    SYSTEMS,
    Row,
    directory_of,
    read_row,
    row_of,
    write_row,
)
from stormcast.chaos.peers.jgroups_backend import JGroupsBackend
from stormcast.chaos.peers.traffic import CountedBackend
from stormcast.chaos.records.directory import BEGUN
from stormcast.chaos.session.runner import run_on

Features = Mapping[str, str | None]
Begins = Callable[[Contest, str], None]
"""Told of each run that begins, with the system that plays."""


def play_all(
    contests: Iterable[Contest],
    seed: int,
    out: Path,
    features: Features,
    begins: Begins,
    about: str = "",
) -> Iterator[Row]:
    """Play each contest by both; yields a row per run. What `out` has a row of is not played again,
    unless that one proves nothing. `about`: where, and with what, it is played."""
    for contest in contests:
        for system in SYSTEMS:
            directory = out / directory_of(contest.name, contest.stack, system)
            if (directory / ROW).exists():
                row = read_row(directory / ROW)
                if row.verdict != "unknown":
                    yield row
                    continue
            # It is unknown, or what a broken-off comparison has left.
            if (directory / BEGUN).exists():
                rmtree(directory)
            begins(contest, system)
            yield _play(contest, system, seed, directory, features, about)


def backend_of(system: str, stack: str, features: Features) -> CountedBackend:
    """Return the backend with members of a system."""
    return JGroupsBackend(stack, features) if system == JGROUPS else CountedBackend(features)


def _play(
    contest: Contest, system: str, seed: int, directory: Path, features: Features, about: str
) -> Row:
    backend = backend_of(system, contest.stack, features)
    outcome = run_on(backend, contest.scenario, seed, out=directory)
    if outcome.run.is_cut_short:
        raise KeyboardInterrupt
    traffic = backend.traffic
    row = row_of(outcome, contest.stack, system, traffic.packets, traffic.bytes, about)
    write_row(row, directory)
    return row
