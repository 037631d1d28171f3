"""The result of one run of a contest, as a file in its run directory."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.session.outcome import RunOutcome
from stormcast.node.core.errors import ConfigError

ROW: Final = "row.json"
"""In a run directory: this run is over, and this is what came of it."""
STORMCAST: Final = "Stormcast"
JGROUPS: Final = "JGroups"
SYSTEMS: Final = (STORMCAST, JGROUPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run: who played what, the verdict, and what it took."""

    scenario: str
    stack: str
    system: str
    seed: int
    verdict: str
    owed: str
    """How many messages had to arrive, and did, in words."""
    resync: float | None
    """Seconds from the last heal until all was well again; None: never, or nothing healed."""
    healed: bool
    """Whether anything was healed."""
    packets: int
    bytes: int
    seconds: float | None
    """How long the scenario took, from its begin to its end; None: nobody kept it."""
    findings: list[tuple[str, str, str]] = field(default_factory=list)
    """Guarantee, verdict and detail of each finding that does not hold."""
    witness: list[str] = field(default_factory=list)
    """The lines that prove the violations."""
    about: str = ""
    """Where, and with what, it was measured."""

    @property
    def sum(self) -> str:
        """The verdict, with the guarantees that are violated."""
        broken = sorted({name for name, verdict, _detail in self.findings if verdict == "violated"})
        return " ".join([self.verdict, *broken])


def row_of(
    outcome: RunOutcome, stack: str, system: str, packets: int, size: int, about: str
) -> Row:
    """Return the row of a run."""
    found = [one for one in outcome.judgement.findings if one.verdict is not Verdict.HOLDS]
    run = outcome.run
    return Row(
        scenario=outcome.scenario.name,
        stack=stack,
        system=system,
        seed=outcome.seed,
        verdict=str(outcome.verdict),
        owed=str(outcome.judgement.owed or ""),
        resync=None if run.resync is None else run.resync.seconds,
        healed=run.resync is not None,
        packets=packets,
        bytes=size,
        seconds=run.seconds,
        findings=[(one.guarantee, str(one.verdict), one.detail) for one in found],
        witness=[f"{one.guarantee}: {line}" for one in found for line in one.witness],
        about=about,
    )


def directory_of(scenario: str, stack: str, system: str) -> str:
    """Return the name of a run's directory."""
    return f"{scenario}-{stack}-{system.lower()}"


def write_row(row: Row, directory: Path) -> None:
    """Keep a row in its run directory. It names files as they are there: pages made of it are read
    elsewhere."""
    above = f"{directory.absolute()}/"
    found = [(name, verdict, detail.replace(above, "")) for name, verdict, detail in row.findings]
    witness = [line.replace(above, "") for line in row.witness]
    kept = replace(row, findings=found, witness=witness)
    (directory / ROW).write_text(json.dumps(asdict(kept), indent=1) + "\n")


def read_row(path: Path) -> Row:
    """Read a row; ConfigError if the file is none."""
    try:
        return _row(path.read_text())
    except _NO_ROW:
        raise ConfigError(f"{path} is no row of a comparison: remove its folder") from None


def read_rows(out: Path) -> list[Row]:
    """Read all rows that are below a directory, by scenario, stack and system."""
    return _sorted(read_row(path) for path in out.glob(f"*/{ROW}"))


def store_of(page: Path) -> Path:
    """Return the file beside a page that keeps the rows of which the page was written."""
    return page.with_suffix(".jsonl")


def read_store(path: Path) -> list[Row]:
    """Read the rows that a page was written of; none if nobody has written it yet."""
    if not path.exists():
        return []
    try:
        return [_row(line) for line in path.read_text().splitlines()]
    except _NO_ROW:
        raise ConfigError(
            f"{path} is damaged: a line of it is no row of a comparison; restore it, or remove it "
            "and play everything again"
        ) from None


def lines_of(rows: Iterable[Row]) -> str:
    """Return rows as the text of such a file."""
    return "".join(f"{json.dumps(asdict(row))}\n" for row in rows)


def merged(kept: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """Return all rows, the new ones in place of those kept; one that proves nothing takes the place
    of none that does."""
    found = {(row.scenario, row.stack, row.system): row for row in kept}
    for row in new:
        place = (row.scenario, row.stack, row.system)
        if row.verdict != "unknown" or found.get(place, row).verdict == "unknown":
            found[place] = row
    return _sorted(found.values())


_NO_ROW: Final = (ValueError, TypeError, KeyError)


def _row(text: str) -> Row:
    said: dict[str, Any] = json.loads(text)
    said["findings"] = [tuple(one) for one in said["findings"]]
    return Row(**said)


def _sorted(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.scenario, row.stack, SYSTEMS.index(row.system)))


def pairs_of(rows: Iterable[Row]) -> list[tuple[Row | None, Row | None]]:
    """Return for each scenario and stack the row of Stormcast and of JGroups."""
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        found.setdefault((row.scenario, row.stack), {})[row.system] = row
    return [(each.get(STORMCAST), each.get(JGROUPS)) for each in found.values()]
