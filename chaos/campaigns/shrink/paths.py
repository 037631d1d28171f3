"""The parts of a scenario, by their paths, with the types and defaults of the dataclasses."""

from __future__ import annotations

from dataclasses import MISSING, Field, replace
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

Path = tuple[str | int, ...]
"""The path of a part: names of fields, and indexes in lists."""


@cache
def hints_of(kind: Any) -> dict[str, Any]:  # noqa: ANN401 any dataclass
    """Return the types of the fields of a dataclass."""
    return get_type_hints(kind)


def tuple_hint(hint: Any) -> Any:  # noqa: ANN401 hints have no type
    """Return the tuple among the types that a part may have."""
    if get_origin(hint) is tuple:
        return hint
    return next((one for one in get_args(hint) if get_origin(one) is tuple), None)


def default_of(part: Field[Any]) -> object:
    """Return the default of a field; MISSING if it has none."""
    if part.default_factory is not MISSING:
        return part.default_factory()
    return part.default


def part_at(root: object, path: Path) -> Any:  # noqa: ANN401 a part of any kind
    """Return the part at a path."""
    for step in path:
        root = getattr(root, step) if isinstance(step, str) else root[step]  # type: ignore[index]
    return root


def with_part(root: Any, path: Path, value: object) -> Any:  # noqa: ANN401 a part of any kind
    """Return a copy in which the part at a path is replaced by `value`."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(step, str):
        return replace(root, **{step: with_part(getattr(root, step), rest, value)})
    return (*root[:step], with_part(root[step], rest, value), *root[step + 1 :])
