"""`stormcast scenarios`, `stormcast init`: list the shipped scenarios, write a first one."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

from stormcast.chaos.commands.arguments import add_json, parser_of
from stormcast.chaos.commands.output import in_columns, refuse, say
from stormcast.chaos.language.shipped import (
    FOLDERS,
    NoScenarioError,
    Shipped,
    find_shipped,
    shipped,
)
from stormcast.node.core.errors import ConfigError

FIRST = "first-scenario.yaml"
"""The file beside this module that `init` writes."""


def scenarios(argv: list[str]) -> int:
    """Run `stormcast scenarios`: list the shipped files, a line each, or show one of them."""
    parser = parser_of(
        "scenarios", "List the scenarios that ship; `stormcast run NAME` runs one of them."
    )
    parser.add_argument("--show", metavar="NAME", help="print the file of this one")
    add_json(parser)
    args = parser.parse_args(argv)
    if args.show is not None:
        return _show(args.show)
    if args.json:
        print(json.dumps([_as_json(one) for one in shipped()]))
    else:
        print("\n\n".join(f"{about}:\n{_listed(folder)}" for folder, about in FOLDERS.items()))
    return 0


def _show(name: str) -> int:
    try:
        print(find_shipped(name).text, end="")
    except NoScenarioError as error:
        return refuse(error)
    return 0


def _listed(folder: str) -> str:
    # Only the first sentence of `about`, to fit on a line.
    return in_columns(
        [(f"  {one.name}", one.read().about.partition(". ")[0]) for one in shipped(folder)]
    )


def _as_json(one: Shipped) -> dict[str, str]:
    return {"name": one.name, "folder": one.folder, "about": one.read().about}


def init(argv: list[str]) -> int:
    """Run `stormcast init FILE`: write a first scenario, with comments."""
    parser = parser_of("init", "Write a first scenario, with comments, to begin with.")
    parser.add_argument("file", type=Path, help="must not be there yet, and ends in .yaml")
    args = parser.parse_args(argv)
    file: Path = args.file
    text = files("stormcast.chaos.commands").joinpath(FIRST).read_text()
    try:
        if file.suffix != ".yaml":
            raise ConfigError(f"{file}: the name of a scenario file ends in .yaml")
        with file.open("x") as made:
            made.write(text.replace("name: first", f"name: {file.stem}", 1))
    except FileExistsError:
        return refuse(ConfigError(f"{file} is there already: name another"))
    except (ConfigError, OSError) as error:
        return refuse(error)
    say(f"run it: stormcast run {file}")
    return 0
