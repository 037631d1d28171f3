"""`stormcast museum`: shows each known flaw, and that it is gone."""

from __future__ import annotations

import json
from collections.abc import Sequence

from stormcast.chaos.campaigns.museum import EXHIBITS, WINGS, Exhibit, Setting, Shown, tour
from stormcast.chaos.commands.arguments import add_backend, add_json, add_seed, parser_of
from stormcast.chaos.commands.output import in_columns, lacks, refuse, say
from stormcast.exits import Exit


def museum(argv: list[str]) -> int:
    """Run `stormcast museum`: every exhibit, flawed and fixed."""
    parser = parser_of(
        "museum", "Run every exhibit on the version that has the flaw and on the one that fixed it."
    )
    add_backend(parser)
    add_seed(parser)
    parser.add_argument("--exhibit", help="only this one")
    add_json(parser)
    args = parser.parse_args(argv)
    if lacks(args.backend):
        return Exit.UNKNOWN
    names = [exhibit.name for exhibit in EXHIBITS]
    if args.exhibit and args.exhibit not in names:
        return refuse(ValueError(f"no exhibit named {args.exhibit}; there are: {', '.join(names)}"))
    chosen: tuple[Exhibit, ...] = tuple(one for one in EXHIBITS if args.exhibit in (None, one.name))
    say(f"seed {args.seed}")
    shown = list(tour(chosen, args.seed))
    if args.json:
        print(json.dumps([one.as_json() for one in shown]))
    else:
        wings = [[one for one in shown if one.exhibit.wing == wing] for wing in WINGS]
        print("\n\n".join(_wing(wing) for wing in wings if wing))
    bad = [one.exhibit.name for one in shown if not one.is_as_described]
    if bad:
        say(f"not as described: {', '.join(bad)}")
    return Exit.VIOLATED if bad else Exit.HOLDS


def _wing(shown: Sequence[Shown]) -> str:
    """Return the table of the exhibits of one wing of the museum."""
    rows: list[Sequence[str]] = [
        (
            f"exhibit ({shown[0].exhibit.wing})",
            "guarantee",
            "flawed",
            "",
            "fixed",
            "",
            "witness of the flaw",
        )
    ]
    rows += [
        (
            one.exhibit.name,
            one.exhibit.guarantee,
            _setting(one.exhibit.flawed),
            str(one.flawed.verdict),
            _setting(one.exhibit.fixed),
            str(one.fixed.verdict),
            one.shown_witness,
        )
        for one in shown
    ]
    return in_columns(rows)


def _setting(values: Setting) -> str:
    """Return the generation or stack of a run, with its settings, as text."""
    what, *rest = values.items()
    return " ".join([str(what[1]), *(f"{key}={str(value).lower()}" for key, value in rest)])
