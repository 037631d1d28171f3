"""Stack and timing files to checked settings: which protocols, in which order, set how.

A stack says *what* (protocols, top to bottom), a timing says *when*. What cannot work is refused
here, before anything starts, with the reason and the remedy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from math import inf
from typing import Any, Final, TypeVar

import yaml

from node.core import wire
from node.core.errors import ConfigError, require
from node.core.timing import Timing
from node.protocols.unicast import (
    Historical,
    Unicast,
    Unicast1,
    Unicast2,
    Unicast3,
    Unicast4,
    UnicastConfig,
)
from node.units import parse_duration, parse_size

T = TypeVar("T")

RELIABLE_UNICAST: Final[dict[str, type[Unicast]]] = {
    "UNICAST": Unicast1,
    "UNICAST2": Unicast2,
    "UNICAST3": Unicast3,
    "UNICAST4": Unicast4,
}
GENERATIONS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "UNICAST": ("UNICAST", {}),
    "UNICAST2": ("UNICAST2", {}),
    "UNICAST3": ("UNICAST3", {"sync": "deferred"}),
    "UNICAST3-SYNC": ("UNICAST3", {"sync": "spaced"}),
    "UNICAST4": ("UNICAST4", {}),
}
"""The five unicast protocols of the design notes: a protocol, and what it is set to."""
MAX_COUNT: Final = 0xFFFF
"""Messages that a frame can count."""
TRANSPORTS: Final = frozenset({"UDP"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSettings:
    """Everything a member's stack is made from."""

    name: str = "unicast-only"
    unicast: str = "UNICAST3"
    unicast_config: UnicastConfig
    timing: Timing
    transport: str = "UDP"

    max_batch: int = 1024
    """Messages in one batch, and so in one frame."""

    max_frame: int = 60_000
    """Bytes of payload after which a batch is closed; one message may be larger."""

    outbox_bytes: int = 8 << 20
    """Bytes accepted per destination and not yet numbered, 64 more per message. Beyond it
    `try_send` refuses."""

    def __post_init__(self) -> None:
        require(
            0 < self.max_batch <= MAX_COUNT,
            f"max_batch is {self.max_batch}: it must be 1..{MAX_COUNT}",
        )
        require(
            0 < self.max_frame <= wire.MAX_BODY,
            f"max_frame is {self.max_frame}: it must be 1..{wire.MAX_BODY}, "
            "what a frame carries at most",
        )
        # No more than a frame: so whatever fits the outbox unasked can be sent.
        require(
            0 < self.outbox_bytes <= wire.MAX_BODY,
            f"outbox_bytes is {self.outbox_bytes}: it must be 1..{wire.MAX_BODY}",
        )


def load_settings(
    stack: str = "unicast-only",
    timing: str = "compatible",
    *,
    unicast: str | None = None,
    overrides: Mapping[str, object] | None = None,
    historical: Mapping[str, object] | None = None,
    max_batch: int | None = None,
) -> StackSettings:
    """A stack file and a timing file, made one; `overrides` set the unicast protocol, `historical`
    its flaws."""
    layers = read_layers(stack)
    require(
        not historical or is_museum(stack),
        "historical flaws are for museum stacks only: drop `historical`, "
        f"or use stack unicast-museum, not {stack}",
    )
    timing_file = _read_file("timings", timing)
    protocol, stack_values = next(
        (name, values) for name, values in layers if name in RELIABLE_UNICAST
    )
    if unicast is not None:
        require(
            unicast in GENERATIONS,
            f"unicast is {unicast!r}: choose one of {', '.join(GENERATIONS)}",
        )
        protocol, stack_values = GENERATIONS[unicast]
    config_type = RELIABLE_UNICAST[protocol].config_type
    values = dict(stack_values)
    values |= (timing_file.get("protocols") or {}).get(protocol, {})
    values |= overrides or {}
    config = build(config_type, values, protocol)
    if historical:
        config = dataclasses.replace(config, historical=build(Historical, historical, "historical"))
    return StackSettings(
        name=stack,
        unicast=protocol,
        unicast_config=config,
        timing=build(Timing, {"name": timing, **(timing_file.get("timing") or {})}, "timing"),
        transport=layers[-1][0],
        **({"max_batch": max_batch} if max_batch is not None else {}),
    )


def read_layers(stack: str) -> list[tuple[str, dict[str, Any]]]:
    """The protocols of a stack file, top to bottom, checked to be a stack that can work."""
    listed = _read_file("stacks", stack).get("protocols") or []
    require(isinstance(listed, list), f"stack {stack}: protocols must be a list, top to bottom")
    layers = [_layer(item, stack) for item in listed]
    check_order([name for name, _values in layers], stack)
    return layers


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
    return str(name), values or {}


def is_museum(stack: str) -> bool:
    """Whether a stack may have flaws on purpose."""
    return bool(_read_file("stacks", stack).get("museum"))


def check_order(names: Sequence[str], stack: str) -> None:
    """Refuse a list of protocols that cannot work, with what to do about it."""
    known = [*RELIABLE_UNICAST, *TRANSPORTS]
    for name in names:
        require(name in known, f"stack {stack}: unknown protocol {name}{suggestion(name, known)}")
    require(len(set(names)) == len(names), f"stack {stack}: a protocol is listed twice; keep one")
    transports = [name for name in names if name in TRANSPORTS]
    require(
        len(transports) == 1,
        f"stack {stack}: needs exactly one transport ({', '.join(sorted(TRANSPORTS))})",
    )
    require(
        names[-1] in TRANSPORTS,
        f"stack {stack}: {transports[0]} must come last: a transport is the bottom",
    )
    reliable = [name for name in names if name in RELIABLE_UNICAST]
    require(
        len(reliable) == 1,
        f"stack {stack}: has {len(reliable)} reliable unicast protocols; "
        f"list exactly one of {', '.join(RELIABLE_UNICAST)}",
    )


def build(kind: type[T], values: Mapping[str, object], what: str) -> T:
    """A settings dataclass from plain values; unknown names and wrong types are refused."""
    known = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    checked = {}
    for name, value in values.items():
        require(name in known, f"{what}: unknown setting {name}{suggestion(name, known)}")
        checked[name] = convert(f"{what}.{name}", value, known[name].type)
    return kind(**checked)


def convert(name: str, value: object, wanted: object) -> object:
    """A value as its setting wants it: text with a unit becomes a number."""
    wanted = str(wanted)
    if wanted == "float":
        if isinstance(value, str):
            return parse_duration(value, name)
        require(
            isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < inf,
            f"{name} is {value!r}: write a duration with its unit, such as 500ms",
        )
        assert isinstance(value, int | float)
        return float(value)
    if wanted == "int":
        if isinstance(value, str):
            return parse_size(value, name)
        require(
            isinstance(value, int) and not isinstance(value, bool),
            f"{name} is {value!r}: write a whole number",
        )
        return value
    if wanted == "bool":
        require(isinstance(value, bool), f"{name} is {value!r}: write true or false")
        return value
    require(isinstance(value, str), f"{name} is {value!r}: write a word")
    return value


def suggestion(name: str, known: Mapping[str, object] | Sequence[str]) -> str:
    """`; did you mean X?`, or what there is."""
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"


def _read_file(folder: str, name: str) -> dict[str, Any]:
    path = files("node").joinpath(folder)
    there = sorted(entry.name.removesuffix(".yaml") for entry in path.iterdir())
    what = f"{folder.removesuffix('s')} {name}"
    # Looked up, not joined: a name is no path out of the folder.
    require(name in there, f"no {folder.removesuffix('s')} named {name}{suggestion(name, there)}")
    try:
        content = yaml.safe_load(path.joinpath(f"{name}.yaml").read_text()) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"{what}: not YAML: {error}") from None
    require(isinstance(content, dict), f"{what}: must be a mapping of keys to values")
    assert isinstance(content, dict)
    return content
