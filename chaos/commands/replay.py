"""`stormcast replay`: runs a run directory again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from stormcast.chaos.backends.base import Unsupported
from stormcast.chaos.backends.by_name import SIM
from stormcast.chaos.campaigns.replay import (
    NotARunError,
    NotRepeatableError,
    Result,
    read_run,
)
from stormcast.chaos.campaigns.replay import replay as replay_run
from stormcast.chaos.commands.arguments import add_json, parser_of
from stormcast.chaos.commands.guests import Report, replay_guests
from stormcast.chaos.commands.output import give_up, no_longer, refuse
from stormcast.chaos.guests.scenario_file import has_guests
from stormcast.node.core.errors import ConfigError, NodeError
from stormcast.node.keys.cluster_keys import read_keys

REPLAYED: Final = {Result.IDENTICAL: 0, Result.DIFFERENT: 1, Result.UNPROVEN: 3}


def replay(argv: list[str], page_of: Report | None = None) -> int:
    """Run `stormcast replay RUN`: run a run directory again, and compare it to the byte; of one
    with guests, the same steps once more, and compare the verdict."""
    parser = parser_of(
        "replay",
        "Run a run directory's scenario and seed again, and compare every trace byte for byte, and "
        "the verdict. Exit 0 identical, 1 different, 2 usage, 3 different, but so are the versions "
        "it ran with, which proves nothing. Guests are real programs: of their runs the steps are "
        "the same, and what is compared is the verdict; 3: it is unknown now.",
    )
    parser.add_argument("run", type=Path, help="what stormcast run, search or chaos-test has left")
    parser.add_argument(
        "--key-file",
        type=Path,
        metavar="FILE",
        help="the one that the run was given; needed where strangers listened",
    )
    add_json(parser)
    args = parser.parse_args(argv)
    try:
        kept = read_run(args.run)
        keys = read_keys(str(args.key_file), "--key-file") if args.key_file else ()
        is_of_guests = has_guests(args.run / "scenario.yaml")
        if kept.backend != SIM and not is_of_guests:
            raise kept.real_run_error(f"--backend {kept.backend}")
    except (NotARunError, NotRepeatableError, ConfigError, OSError) as error:
        return refuse(error)
    if is_of_guests:
        return replay_guests(kept, as_json=args.json, page_of=page_of)
    try:
        found = replay_run(kept, keys)
    except NotRepeatableError as error:
        return refuse(error)
    except (ConfigError, Unsupported, OSError) as error:
        return no_longer(kept, error)
    except NodeError as error:
        return give_up(error, kept.seed)
    print(json.dumps(found.as_json()) if args.json else found.report())
    return REPLAYED[found.result]
