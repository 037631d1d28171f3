"""What stack and timing files say: the protocols of a stack, top to bottom, each with the values
that its file gives."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

import yaml

from stormcast.node.core.errors import ConfigError, require, suggestion
from stormcast.node.settings.layers import build_layer
from stormcast.node.settings.rules import check_known, check_order
from stormcast.node.yaml_text import lines_of, parse_yaml, text_of

_STACK_KEYS: Final = ("about", "museum", "protocols")


def read_layers(stack: str) -> list[tuple[str, dict[str, Any]]]:
    """The protocols of a stack file, top to bottom, checked to be a stack that can work."""
    content = _read_stack(stack)
    listed = content.get("protocols") or []
    require(isinstance(listed, list), f"stack {stack}: protocols must be a list, top to bottom")
    if is_path(stack):
        _check_entries(listed, stack)
    layers = [_layer(item, stack) for item in listed]
    check_order([name for name, _values in layers], stack)
    return layers


def is_path(stack: str) -> bool:
    """Whether a stack is the path of a file, and not the name of one that ships."""
    return stack.endswith((".yaml", ".yml"))


def _read_stack(stack: str) -> Mapping[str, Any]:
    if not is_path(stack):
        return read_shipped("stacks", stack)
    content = parse_yaml(text_of(stack, "stack"), stack)
    require(isinstance(content, dict), f"{stack}: write `protocols:` and a list, top to bottom")
    for key in content:
        if key not in _STACK_KEYS:
            raise ConfigError(f"{stack}: unknown key {key}{suggestion(str(key), _STACK_KEYS)}")
    found: dict[str, Any] = content
    return found


def _check_entries(listed: list[object], path: str) -> None:
    """Refuse what one entry alone has wrong, with its line."""
    lines = lines_of(text_of(path, "stack"), "protocols")
    for item, (line, inner) in zip(listed, lines, strict=True):
        name, values = "", dict[str, Any]()
        try:
            name, values = _layer(item, path)
            check_known(name)
            build_layer(name, values, {})
        except ConfigError as error:
            wrong = next((key for key in values if not _is_right(name, key, values[key])), "")
            raise ConfigError(f"{path}:{inner.get(wrong, line)}: {error}") from None


def _is_right(name: str, key: str, value: object) -> bool:
    """Whether a setting of a protocol could be as it is, whatever the others are."""
    try:
        check_known(name)
        build_layer(name, {key: value}, {})
    except ConfigError:
        return False
    return True


def _layer(item: object, stack: str) -> tuple[str, dict[str, Any]]:
    """One protocol of a stack file: its name alone, or its name and its settings."""
    named = {item: None} if isinstance(item, str) else item
    require(
        isinstance(named, dict) and len(named) == 1,
        f"stack {stack}: {item!r}: name one protocol per entry, as `- UNICAST3: {{}}`",
    )
    assert isinstance(named, dict)
    ((name, values),) = named.items()
    require(
        values is None or isinstance(values, dict),
        f"stack {stack}: {name} is followed by {values!r}: write its settings as a mapping",
    )
    return str(name), dict(values or {})


def is_museum(stack: str) -> bool:
    """Whether a stack may have flaws on purpose."""
    return bool(_read_stack(stack).get("museum"))


def read_shipped(folder: str, name: str) -> Mapping[str, Any]:
    """What a file that ships says, of the folder `stacks` or `timings`."""
    path = files("stormcast.node").joinpath(folder)
    there = sorted(entry.name.removesuffix(".yaml") for entry in path.iterdir())
    # Looked up, not joined: a name is no path out of the folder.
    if name not in there:
        raise ConfigError(f"no {folder.removesuffix('s')} named {name}{suggestion(name, there)}")
    text = path.joinpath(f"{name}.yaml").read_text()
    return _parse(text, f"{folder.removesuffix('s')} {name}")


@lru_cache(maxsize=64)
def _parse(text: str, what: str) -> Mapping[str, Any]:
    """The content of a file, not to be changed by who gets it: a search asks for the same few files
    for every seed, and reading YAML took a tenth of its time."""
    try:
        content = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"{what}: not YAML: {error}") from None
    require(isinstance(content, dict), f"{what}: must be a mapping of keys to values")
    assert isinstance(content, dict)
    return content
