"""Writes values as YAML on one line, so that any YAML reader takes them for what they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

import yaml

from stormcast.node.reading.notations import Plain
from stormcast.node.reading.yaml_nodes import SWITCHES

_UNQUOTED: Final = re.compile(r"[A-Za-z0-9/][A-Za-z0-9_./%-]*")
_STRING: Final = "tag:yaml.org,2002:str"
_resolve: Final[Callable[..., object]] = yaml.resolver.Resolver().resolve


def flow(value: Plain) -> str:
    """Write a value on one line, with quotes only where YAML would misread it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        # YAML 1.1 takes 1e-05 for text.
        return repr(value) if "." in repr(value) else repr(value).replace("e", ".0e")
    if isinstance(value, str):
        return value if _is_unquoted(value) else _quoted(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(name)}: {flow(part)}" for name, part in value.items()) + "}"
    return "[" + ", ".join(map(flow, value)) + "]"


def _is_unquoted(text: str) -> bool:
    if _UNQUOTED.fullmatch(text) is None or text.lower() in SWITCHES:
        return False
    return _resolve(yaml.ScalarNode, text, (True, False)) == _STRING


def _quoted(text: str) -> str:
    # The emitter knows which characters YAML wants escaped; `width` keeps it from breaking lines.
    return yaml.dump(text, Dumper=yaml.SafeDumper, default_style='"', width=float("inf")).rstrip(
        "\n"
    )
