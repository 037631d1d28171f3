"""What the sub-commands of the rig are asked in: flags and their values."""

from __future__ import annotations

import argparse

from stormcast.chaos.backends.by_name import BACKENDS
from stormcast.node.reading.quantities import DURATION, UnitError


def parser_of(name: str, about: str) -> argparse.ArgumentParser:
    """What reads the words of a sub-command."""
    return argparse.ArgumentParser(prog=f"stormcast {name}", description=about, allow_abbrev=False)


def add_scenario(parser: argparse.ArgumentParser) -> None:
    """Which scenario."""
    parser.add_argument(
        "file",
        help="the scenario file, or the name of one that ships (stormcast scenarios lists them)",
    )


def add_backend(parser: argparse.ArgumentParser) -> None:
    """Where it is run."""
    parser.add_argument(
        "--backend", default="sim", help=f"where members live: {', '.join(BACKENDS)} (default sim)"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """For programs instead of people."""
    parser.add_argument("--json", action="store_true", help="print one JSON value on stdout")


def read_seed(text: str) -> int:
    """A whole number from 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no seed: write a whole number from 0")
    return int(text)


def read_count(text: str) -> int:
    """A whole number from 1."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}: write a whole number from 1")
    return int(text)


def read_duration(text: str) -> float:
    """Seconds, of a text such as 5min."""
    try:
        return DURATION.parse(text)
    except UnitError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
