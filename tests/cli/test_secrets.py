"""No command takes a secret on its command line or from a variable: both are seen by others."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

import pytest

from bench.cli import WHAT
from stormcast.cli import COMMANDS, main
from stormcast.node.control.settings import TOKEN_VARIABLE
from stormcast.node.member.options import BY_KEY, OPTIONS, SHORTCUTS
from stormcast.node.settings.protocols import CONFIGS

SECRET = re.compile(
    r"token|secret|password|passphrase|credential|(private|cluster)[-_]key|\bkeys?\b"
)
WORDS = [[name] for name in COMMANDS if name != "bench"] + [["bench", name] for name in WHAT]


class Built(Exception):
    """A command has built its parser, and is not to go on."""


def parsers(words: list[str], monkeypatch: pytest.MonkeyPatch) -> list[argparse.ArgumentParser]:
    """The parser of a command, and those of its steps."""
    found: list[argparse.ArgumentParser] = []

    def stop(parser: argparse.ArgumentParser, *_args: object, **_rest: object) -> None:
        found.append(parser)
        raise Built

    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", stop)
    monkeypatch.setattr("traceback.print_exc", lambda: None)
    main(words)
    assert found, f"{words} has no parser"
    return [one for parser in found for one in walk(parser)]


def walk(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from walk(inner)


def takes_a_secret(action: argparse.Action) -> bool:
    """Whether the value of an option is a secret itself, and not the file with it."""
    names = [*action.option_strings, action.dest]
    if action.nargs == 0 or not any(map(SECRET.search, names)):
        return False
    return not all(name.endswith(("file", "FILE")) for name in (names[0], action.metavar or ""))


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_no_option_takes_the_value_of_a_secret(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for parser in parsers(words, monkeypatch):
        assert not [one.option_strings for one in parser._actions if takes_a_secret(one)]


def test_the_walk_would_find_one() -> None:
    parser = argparse.ArgumentParser()
    steps = parser.add_subparsers()
    step = steps.add_parser("step")
    wrong = [
        step.add_argument("--token"),
        step.add_argument("--control-token", metavar="FILE"),
        step.add_argument("--private-key"),
        step.add_argument("--password-file", metavar="TEXT"),
    ]
    right = [
        step.add_argument("--token-file", metavar="FILE"),
        step.add_argument("--key-file", metavar="FILE"),
        step.add_argument("--new-token", action="store_true"),
        step.add_argument("--keep"),
    ]
    assert list(walk(parser)) == [parser, step]
    assert [takes_a_secret(one) for one in (*wrong, *right)] == [True] * 4 + [False] * 4


def test_no_setting_of_a_member_is_a_secret() -> None:
    """Each has a flag and a variable of its own."""
    names = [*BY_KEY, *(key for key, _, _ in SHORTCUTS.values())]
    names += [key for config in CONFIGS.values() for key in config.__dataclass_fields__]
    assert [name for name in names if SECRET.search(name)] == [
        "control.token_file",
        "control.private_key_file",
    ]
    assert TOKEN_VARIABLE not in {option.variable for option in OPTIONS}
