"""The mutants and what caught each, as a Markdown table: `python tests/mutants/table.py`.

With `--write docs/testing.md` the table replaces what stands between the markers in that file.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path
from typing import Final

if __package__ in {None, ""}:
    # Run as a file: the tree that the file is in, not one that is installed.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from stormcast.chaos.campaigns.pool import ProcessPool
from tests.mutants.hidden import HIDDEN_MUTANTS
from tests.mutants.hunt import ALL_BLIND, ALL_MUTANTS, SEEDS, AnyMutant, Catch, hunt

BEGIN: Final = "<!-- mutants -->"
END: Final = "<!-- /mutants -->"


def hunt_named(seeds: int, name: str) -> tuple[str, Catch | None]:
    """What a worker does; a class made at run time does not travel, its name does."""
    return name, hunt(ALL_MUTANTS[name], seeds)


def table(caught: dict[str, Catch | None]) -> str:
    """One row per mutant: what it does, and the first seed of its cells that shows it."""
    rows = [
        "| mutant | the bug | source | where | broken | seeds needed | seed |",
        "|---|---|---|---|---|---:|---:|",
    ]
    rows += [_row(ALL_MUTANTS[name], catch) for name, catch in caught.items()]
    rows += [
        f"| {mutant.name} | {mutant.about} | {mutant.source} | `{mutant.test.partition('::')[0]}` "
        "| the test | – | – |"
        for mutant in HIDDEN_MUTANTS.values()
    ]
    return "\n".join(rows)


def _row(mutant: AnyMutant, caught: Catch | None) -> str:
    broken = ", ".join(caught.broken) if caught else f"none: {ALL_BLIND.get(mutant.name, 'missed')}"
    needed, seed = (caught.needed, caught.seed) if caught else ("–", "–")
    cells = (mutant.name, mutant.about, mutant.source, mutant.where, broken, needed, seed)
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def written(text: str, rows: str) -> str:
    """A document with what is between its markers replaced."""
    before, begin, rest = text.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"no place for the table: put {BEGIN} and {END} where it shall stand")
    return f"{before}{BEGIN}\n\n{rows}\n\n{END}{after}"


def main() -> int:
    """Hunt all mutants, and print or write what caught them; 1 when one was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, metavar="FILE", help="replace the table in FILE")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds per mutant (default: 500)")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    options = parser.parse_args()
    with ProcessPool(options.workers) as pool:
        hunts = pool.each(partial(hunt_named, options.seeds), list(ALL_MUTANTS))
        found = dict(one[1] for one in hunts if one is not None)
    caught = {name: found[name] for name in ALL_MUTANTS}
    rows = table(caught)
    if options.write:
        options.write.write_text(written(options.write.read_text(), rows))
    else:
        print(rows)
    missed = [name for name, catch in caught.items() if catch is None and name not in ALL_BLIND]
    if missed:
        print("missed:", ", ".join(missed), file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
