"""The sizes that code keeps to, so that a part is read at one sitting."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("node", "chaos", "pipeline", "stormcast")
MODULE_LINES = 500
CLASS_LINES, CLASS_METHODS = 360, 31
PROTOCOL_LINES, PROTOCOL_METHODS = 250, 25
"""Bounds of the objects of which unicast and multicast are made."""
STACK_LINES = 400


class Size(NamedTuple):
    """A class, and how large it is."""

    path: str
    name: str
    lines: int
    methods: int


def modules() -> list[Path]:
    """Return all modules of the product; folders that are links to others count once."""
    found = [path for room in PRODUCT for path in (ROOT / room).rglob("*.py")]
    return sorted({path.resolve() for path in found})


def classes() -> Iterator[Size]:
    """Yield all classes of the product."""
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                methods = [one for one in node.body if isinstance(one, ast.FunctionDef)]
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                yield Size(str(path.relative_to(ROOT)), node.name, lines, len(methods))


def test_no_module_is_too_long() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in modules()}
    assert len(lengths) > 300
    assert {path: n for path, n in lengths.items() if n > MODULE_LINES} == {}


@pytest.mark.parametrize(
    ("folder", "lines", "methods"),
    [
        ("", CLASS_LINES, CLASS_METHODS),
        ("node/protocols/unicast/", PROTOCOL_LINES, PROTOCOL_METHODS),
        ("node/protocols/multicast/", PROTOCOL_LINES, PROTOCOL_METHODS),
    ],
)
def test_no_class_is_too_large(folder: str, lines: int, methods: int) -> None:
    found = [one for one in classes() if one.path.startswith(folder) and one.name != "Stack"]
    assert found
    assert [one for one in found if one.lines > lines or one.methods > methods] == []


def test_the_stack_is_what_joins_its_parts() -> None:
    (stack,) = [one for one in classes() if one.name == "Stack"]
    assert stack.lines < STACK_LINES
