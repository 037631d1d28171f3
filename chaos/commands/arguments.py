"""Arguments that sub-commands of the rig share: flags, and readers of their values."""

from __future__ import annotations

import argparse

from stormcast.chaos.backends.by_name import BACKENDS
from stormcast.node.reading.quantities import DURATION, UnitError


def parser_of(name: str, about: str) -> argparse.ArgumentParser:
    """Return a parser for the arguments of a sub-command."""
    return argparse.ArgumentParser(prog=f"stormcast {name}", description=about, allow_abbrev=False)


def add_scenario(parser: argparse.ArgumentParser) -> None:
    """Add the argument `file`, which names the scenario."""
    parser.add_argument(
        "file",
        help="the scenario file, or the name of one that ships (stormcast scenarios lists them)",
    )


def add_backend(parser: argparse.ArgumentParser) -> None:
    """Add the flag `--backend`."""
    parser.add_argument(
        "--backend", default="sim", help=f"where members live: {', '.join(BACKENDS)} (default sim)"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the flag `--json`."""
    parser.add_argument("--json", action="store_true", help="print one JSON value on stdout")


def read_seed(text: str) -> int:
    """Read a whole number from 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no seed: write a whole number from 0")
    return int(text)


def read_count(text: str) -> int:
    """Read a whole number from 1."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}: write a whole number from 1")
    return int(text)


def read_duration(text: str) -> float:
    """Read seconds from a text such as 5min."""
    try:
        return DURATION.parse(text)
    except UnitError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
