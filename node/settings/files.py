"""Reads stack and timing files: the protocols of a stack, top to bottom, each with the values that
its file gives."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

from stormcast.node.core.errors import ConfigError, Place, require, suggestion
from stormcast.node.reading.documents import Document, read_document
from stormcast.node.reading.error_places import placed, to_blame
from stormcast.node.reading.parsing import text_of
from stormcast.node.settings.layers import build_layer
from stormcast.node.settings.rules import check_known, check_order

_STACK_KEYS: Final = ("about", "museum", "protocols")

Listed = list[tuple[str, dict[str, Any]]]
"""The protocols of a stack, top to bottom, each with the values that its file gives."""


def read_layers(stack: str) -> Listed:
    """Return the protocols of a stack file, checked to be a stack that can work."""
    return [(name, dict(values)) for name, values in _checked(read_stack(stack), stack)]


@lru_cache(maxsize=64)
def _checked(document: Document, stack: str) -> Listed:
    listed = document.content.get("protocols") or []
    with placed(document.place("protocols")):
        require(isinstance(listed, list), f"stack {stack}: protocols must be a list, top to bottom")
    layers: Listed = []
    for number, item in enumerate(listed):
        with placed(document.place("protocols", number)):
            layers.append(_layer(item, stack))
            if is_path(stack):
                _check_layer(*layers[-1], number, document)
    _check_order([name for name, _values in layers], stack, document)
    return layers


def is_path(stack: str) -> bool:
    """Whether a stack is the path of a file, and not the name of one that ships."""
    return stack.endswith((".yaml", ".yml"))


def read_stack(stack: str) -> Document:
    """Read the file of a stack."""
    if not is_path(stack):
        return read_shipped("stacks", stack)
    document = _read(text_of(stack, "stack"), stack)
    for key in document.content:
        with placed(document.place(key)):
            require(key in _STACK_KEYS, f"unknown key {key}{suggestion(str(key), _STACK_KEYS)}")
    return document


def _layer(item: object, stack: str) -> tuple[str, dict[str, Any]]:
    """Read one entry of a stack file: a protocol's name alone, or its name and its settings."""
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


def _check_layer(name: str, values: dict[str, Any], number: int, document: Document) -> None:
    """Refuse an entry that is wrong by itself, with the place of the wrong value."""
    check_known(name)
    try:
        build_layer(name, values, {})
    except ConfigError as error:
        wrong = to_blame(
            list(values),
            error.message,
            lambda key: build_layer(name, {k: v for k, v in values.items() if k != key}, {}),
        )
        place = document.place("protocols", number, name, wrong)
        raise ConfigError(error.message, place) from None


def _check_order(names: list[str], stack: str, document: Document) -> None:
    try:
        check_order(names, stack)
    except ConfigError as error:
        place = place_named(error.message.removeprefix(f"stack {stack}: "), names, document)
        raise ConfigError(error.message, place) from None


def place_named(complaint: str, names: list[str], document: Document) -> Place:
    """Return the place of the protocol that a complaint names first, which is the one it is about;
    if it names none, the place of the list."""
    found = {
        match.start(): number
        for number, name in enumerate(names)
        if (match := re.search(rf"\b{re.escape(name)}\b", complaint))
    }
    return document.place("protocols", *([found[min(found)]] if found else []))


def is_museum(stack: str) -> bool:
    """Whether a stack may have flaws on purpose."""
    return bool(read_stack(stack).content.get("museum"))


def read_shipped(folder: str, name: str) -> Document:
    """Read a file that ships with the product, from the folder `stacks` or `timings`."""
    path = files("stormcast.node").joinpath(folder)
    there = sorted(entry.name.removesuffix(".yaml") for entry in path.iterdir())
    # Looked up in the listing first, so that a name cannot lead out of the folder.
    if name not in there:
        raise ConfigError(f"no {folder.removesuffix('s')} named {name}{suggestion(name, there)}")
    text = path.joinpath(f"{name}.yaml").read_text()
    return _read(text, f"{folder.removesuffix('s')} {name}")


@lru_cache(maxsize=64)
def _read(text: str, source: str) -> Document:
    """Return a file's document. It is cached, so no caller may change it: a search asks for the
    same few files for every seed, and reading YAML took a tenth of its time."""
    document = read_document(text, source)
    with placed(document.place()):
        require(isinstance(document.content, dict), "write `protocols:` and a list, top to bottom")
    return document
