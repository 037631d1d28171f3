"""`stormcast search`: generated scenarios, on all cores."""

from __future__ import annotations

import json
from pathlib import Path

from chaos.campaigns.generate import CELLS
from chaos.campaigns.search import SearchResult, empty_cells
from chaos.campaigns.search import search as search_seeds
from chaos.commands.arguments import add_json, parser_of, read_count, read_seed
from chaos.commands.talk import EXIT, RUNS, end_progress, progress
from chaos.oracles.verdict import Verdict


def search(argv: list[str]) -> int:
    """`stormcast search --seeds N`: generated scenarios in parallel."""
    parser = parser_of("search", "Run generated scenarios, one per seed, on all cores.")
    parser.add_argument("--seeds", type=read_count, default=500, help="how many (default 500)")
    parser.add_argument(
        "--from", dest="first", type=read_seed, default=0, help="the first one (default 0)"
    )
    parser.add_argument(
        "--out", type=Path, default=RUNS / "search", help="where seeds that do not hold are kept"
    )
    parser.add_argument("--workers", type=read_count, help="processes (default: one per core)")
    add_json(parser)
    args = parser.parse_args(argv)
    seeds = range(args.first, args.first + args.seeds)

    def tell(result: SearchResult) -> None:
        rate = result.seeds / result.seconds if result.seconds else 0.0
        progress(
            f"{result.seeds}/{len(seeds)} seeds, {len(result.violations)} violated, "
            f"{len(result.unknown)} unknown, {result.events} events, {rate:.1f} seeds/s"
        )

    result = search_seeds(seeds, tell, args.out, args.workers)
    end_progress()
    if args.json:
        print(json.dumps(result.as_json()))
    else:
        for one in [*result.violations, *result.unknown]:
            print(f"seed {one.seed}: {one.verdict}: {'; '.join(one.broken[:2])}")
            print(
                f"  again: stormcast search --from {one.seed} --seeds 1   "
                f"kept: {args.out}/seed-{one.seed}"
            )
        empty = empty_cells(result)
        print(
            f"{result.seeds} seeds from {args.first}, {len(result.violations)} violated, "
            f"{len(result.unknown)} unknown, {result.events} events in {result.seconds:.1f}s"
        )
        print(f"stack × fault: {len(CELLS) - len(empty)} of {len(CELLS)} met")
        if empty:
            print(f"not met: {', '.join('×'.join(cell) for cell in empty)}")
    if result.violations:
        return EXIT[Verdict.VIOLATED]
    return EXIT[Verdict.UNKNOWN] if result.unknown else 0
