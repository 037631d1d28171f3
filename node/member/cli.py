"""`stormcast node`: the command line of one member."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from stormcast.exits import Exit
from stormcast.machine import in_words, is_exhausted
from stormcast.node.core.errors import ConfigError, NodeError, suggestion
from stormcast.node.core.names import one_line
from stormcast.node.member.options import OPTIONS, SHORTCUTS
from stormcast.node.member.settings import load_member

_PROG: Final = "stormcast node"


class _Parser(argparse.ArgumentParser):
    """Refuses unknown words in one line, which suggests a flag that is spelt alike."""

    def error(self, message: str) -> NoReturn:
        wrong, _, words = message.partition("unrecognized arguments: ")
        if not wrong and words:
            word = words.split()[0]
            flag = word.partition("=")[0]
            known = [flag for action in self._actions for flag in action.option_strings]
            about = suggestion(flag, known) if flag.startswith("-") else "; it takes only flags"
            message = f"unknown flag {word}{about}" if flag.startswith("-") else f"{word}{about}"
        raise ConfigError(f"error: {message}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=_PROG,
        description="Run one member. A later source wins: stack and timing, --config, "
        "environment, flags. docs/node.md tells more.",
        allow_abbrev=False,
        epilog="exit codes: 0 left; 2 usage; 3 ended without having left. A token for --control "
        "comes from a file.",
    )
    parser.add_argument("--config", metavar="FILE", help="settings in YAML")
    for option in OPTIONS:
        default = "" if option.default in ("", 0.0) else f" ({option.default})"
        parser.add_argument(
            option.flag,
            dest=option.flag,
            metavar=option.metavar,
            help=(option.about + default).replace("%", "%%"),
        )
    for flag, (_key, about, metavar) in SHORTCUTS.items():
        parser.add_argument(flag, dest=flag, metavar=metavar, help=about)
    parser.add_argument(
        "--set",
        dest="--set",
        metavar="PROTOCOL.KEY=VALUE",
        action="append",
        help="any setting of any protocol of the stack",
    )
    parser.add_argument(
        "--workload", dest="--workload", metavar="FILE", help="loads to begin with, in YAML"
    )
    parser.add_argument(
        "--print-config", action="store_true", help="print what is in force, and end"
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    return parser


def node(argv: Sequence[str]) -> int:
    """Run a member until it is told to leave, or print its settings; return the exit code."""
    try:
        flags = vars(_parser().parse_args(list(argv)))
        flags["--config"] = flags.pop("config")
        wants_json, prints = flags.pop("json"), flags.pop("print_config")
        effective = load_member(flags, os.environ)
        if wants_json and not prints:
            raise ConfigError("--json goes with --print-config; add it")
        if prints:
            print(effective.as_json() if wants_json else effective.as_yaml(), end="")
            return 0
    except NodeError as error:
        return _refuse(error)
    # Imported only now: --print-config does not need the sockets, and need not wait for them.
    from stormcast.node.member.member import run_member  # noqa: PLC0415 a wrong flag is told at once

    try:
        return run_member(effective.settings)
    except (NodeError, OSError) as error:
        return _refuse(error)


def _refuse(error: Exception) -> int:
    """Print an error in one line; return the exit code."""
    said = in_words(error) if isinstance(error, OSError) else error
    print(f"{_PROG}: {one_line(said) or type(error).__name__}", file=sys.stderr)
    return Exit.UNKNOWN if is_exhausted(error) else Exit.USAGE
