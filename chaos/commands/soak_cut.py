"""`stormcast soak cut`: windows of a soak, as a scenario."""

from __future__ import annotations

from math import inf
from pathlib import Path

from stormcast.chaos.campaigns.rows import differences
from stormcast.chaos.commands.arguments import parser_of, read_duration
from stormcast.chaos.commands.output import refuse, say
from stormcast.chaos.language.scenario import dump
from stormcast.chaos.session.versions import versions
from stormcast.chaos.soak.cutting import chosen, cut
from stormcast.chaos.soak.directory import Kept, SoakDirectory
from stormcast.exits import Exit
from stormcast.node.core.errors import ConfigError


def cut_soak(argv: list[str]) -> int:
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
        had = (other_versions(kept, one.number) for one in windows)
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


def other_versions(kept: Kept, number: int) -> str:
    """Return the versions of a window that differ from those here, in words; empty: none does."""
    others = differences(kept.versions_of(number), versions())
    return f"other versions than here ({others})" if others else ""
