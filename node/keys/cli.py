"""`stormcast key`: makes the key of a cluster, and changes it in steps while members run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn

from stormcast.exits import Exit
from stormcast.machine import in_words, is_exhausted
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.names import one_line
from stormcast.node.keys.cluster_keys import change_keys, read_keys, write_new_key

_PROG: Final = "stormcast key"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"error: {message}; see {_PROG} --help")


def _new(path: Path) -> str:
    key = write_new_key(path)
    return f"key {key.name} in {path}; give this file to all members, and to nobody else"


def _add(path: Path) -> str:
    old, new = change_keys(path, "add")
    return f"key {new.name} opens, {old.name} seals; when all members have this file: turn"


def _turn(path: Path) -> str:
    new, old = change_keys(path, "turn")
    return f"key {new.name} seals, {old.name} still opens; when all members have it: drop"


def _drop(path: Path) -> str:
    (left,) = change_keys(path, "drop")
    return f"key {left.name} is left, and is the only one that opens"


def _show(path: Path) -> str:
    roles = ("seals", "opens")
    keys = read_keys(str(path), "key file")
    return "\n".join(f"{key.name} {role}" for key, role in zip(keys, roles, strict=False))


_STEPS: Final[dict[str, tuple[Callable[[Path], str], str]]] = {
    "new": (_new, "make a key in a new file"),
    "show": (_show, "print the ids of a file's keys, which tell nothing of them"),
    "add": (_add, "change keys, step 1: add a key that opens, and does not seal yet"),
    "turn": (_turn, "step 2, when all members have step 1: seal with it; the old one opens"),
    "drop": (_drop, "step 3, when all members have step 2: drop the old one"),
}


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=_PROG,
        description="Make the key of a cluster, or change it while members run: they read their "
        "file again when it changes. docs/security.md tells more.",
        allow_abbrev=False,
        epilog="exit codes: 0 done; 2 usage; 3 the machine has run out of something",
    )
    steps = parser.add_subparsers(metavar="STEP", required=True, dest="step")
    for name, (_make, about) in _STEPS.items():
        step = steps.add_parser(name, help=about, description=about, allow_abbrev=False)
        step.add_argument("file", metavar="FILE", type=Path)
    return parser


def key(argv: Sequence[str]) -> int:
    """Do one step with a key file; return the exit code."""
    try:
        given = _parser().parse_args(list(argv))
        print(_STEPS[given.step][0](given.file))
    except (ConfigError, OSError) as error:
        said = in_words(error) if isinstance(error, OSError) else error
        print(f"{_PROG}: {one_line(said)}", file=sys.stderr)
        return Exit.UNKNOWN if is_exhausted(error) else Exit.USAGE
    return Exit.HOLDS
