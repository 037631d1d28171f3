"""Reads stack and timing files: the protocols of a stack, top to bottom, each with the values that
its file gives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Final

from stormcast.node.core.errors import ConfigError, Place, require, suggestion
from stormcast.node.reading.documents import Document, read_document
from stormcast.node.reading.error_places import placed
from stormcast.node.reading.items import PlainItem
from stormcast.node.reading.parsing import text_of
from stormcast.node.settings.layers import Values
from stormcast.node.settings.rules import check_known, check_order

_STACK_KEYS: Final = ("about", "museum", "protocols")

Listed = list[tuple[str, Values]]
"""The protocols of a stack, top to bottom, each with the values that its file gives."""


def read_layers(stack: str) -> Listed:
    """Return the protocols of a stack file, checked to be a stack that can work."""
    return list(_checked(read_stack(stack), stack))


@lru_cache(maxsize=64)
def _checked(document: Document, stack: str) -> Listed:
    listed = next((one for key, one in document.item().pairs() if key.name == "protocols"), None)
    layers: Listed = []
    if listed is not None and listed.value:
        if not listed.is_list():
            raise listed.error(f"stack {stack}: protocols must be a list, top to bottom")
        layers = [_layer(entry, stack) for entry in listed.items()]
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


def _layer(entry: PlainItem, stack: str) -> tuple[str, Values]:
    """Read one entry of a stack file: a protocol's name alone, or its name and its settings."""
    name, settings = entry.name, PlainItem(None)
    if entry.is_mapping() and len(entry.pairs()) == 1:
        ((key, settings),) = entry.pairs()
        name = key.name
    elif not isinstance(entry.value, str):
        raise entry.error(
            f"stack {stack}: {entry.shown()}: name one protocol per entry, as `- UNICAST3: {{}}`"
        )
    if is_path(stack):
        with placed(entry.place):
            check_known(name)
    if settings.value is not None and not settings.is_mapping():
        raise entry.error(
            f"stack {stack}: {name} is followed by {settings.shown()}: write its settings as a "
            "mapping"
        )
    return name, values_of(settings.called(name))


def values_of(settings: PlainItem) -> dict[str, PlainItem]:
    """Return the values of a mapping, or of nothing, by their names."""
    return {key.name: value for key, value in settings.pairs()} if settings.value else {}


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


def read_timing(timing: str) -> tuple[PlainItem, Mapping[str, Values]]:
    """Return the mapping `timing` of a timing file, and the values that it gives protocols."""
    return _timed(read_shipped("timings", timing))


@lru_cache(maxsize=16)
def _timed(document: Document) -> tuple[PlainItem, Mapping[str, Values]]:
    found = {key.name: value for key, value in document.item().pairs()}
    protocols = found.get("protocols", PlainItem({})).pairs()
    paced = {key.name: values_of(settings.called(key.name)) for key, settings in protocols}
    return found.get("timing", PlainItem({})).called("timing"), paced


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
