"""`stormcast compare`: the costs of each generation of unicast in the scenario `storm`."""

from __future__ import annotations

import json

from stormcast.chaos.campaigns.compare import compare as compare_generations
from stormcast.chaos.commands.arguments import add_backend, add_json, add_seed, parser_of
from stormcast.chaos.commands.output import in_columns, lacks, say
from stormcast.chaos.language.cluster import TIMINGS
from stormcast.chaos.oracles.verdict import Verdict, worst
from stormcast.exits import Exit


def compare(argv: list[str]) -> int:
    """Run `stormcast compare`: all generations on the scenario `storm`."""
    parser = parser_of(
        "compare", "Run the storm scenario on every generation and print what each pays."
    )
    add_backend(parser)
    add_seed(parser)
    parser.add_argument("--timing", choices=TIMINGS, default="compatible")
    add_json(parser)
    args = parser.parse_args(argv)
    if lacks(args.backend):
        return Exit.UNKNOWN
    say(f"seed {args.seed}")
    rows = list(compare_generations(args.seed, args.timing))
    if args.json:
        print(json.dumps([row.as_json() for row in rows]))
    else:
        table = [
            (
                "unicast",
                "verdict",
                "frames",
                "acks",
                "requests",
                "resent",
                "syncs",
                "unacked peak",
                "resync",
                "repaired",
            )
        ]
        table += [
            (
                row.unicast,
                row.verdict,
                str(row.data_frames),
                str(row.acks),
                str(row.requests),
                str(row.resent),
                str(row.syncs),
                f"{row.unacked_peak} ({row.unacked_peak_bytes / 1024:.0f} KiB)",
                f"{row.resync_ms:.0f} ms",
                f"{row.repaired_ms:.0f} ms",
            )
            for row in rows
        ]
        print(in_columns(table))
    return Exit.of(worst(Verdict[row.verdict.upper()] for row in rows))
