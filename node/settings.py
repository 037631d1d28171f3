"""Stack and timing files to checked settings: which protocols, in which order, set how.

A stack says *what* (protocols, top to bottom), a timing says *when*. What cannot work is refused
here, before anything starts, with the reason and the remedy.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from math import inf
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

from node.core import wire
from node.core.errors import ConfigError, require
from node.core.timing import Timing
from node.jgroups_names import protocol_here, setting_here
from node.protocols.flow import HistoricalFlow
from node.protocols.frag import FragConfig, HistoricalFrag
from node.protocols.multicast import HistoricalMulticast, MulticastConfig
from node.protocols.probes import PROBES, read_probe
from node.protocols.unicast import Historical, UnicastConfig
from node.stack_rules import (
    CONFIGS,
    DISCOVERIES,
    RELIABLE_MULTICAST,
    RELIABLE_UNICAST,
    check_known,
    check_order,
    check_retransmission,
    check_values,
    suggestion,
)
from node.transport_settings import TransportConfig
from node.units import parse_duration, parse_size
from node.yaml_text import lines_of, parse_yaml, text_of

__all__ = [
    "DISCOVERIES",
    "GENERATIONS",
    "RELIABLE_MULTICAST",
    "RELIABLE_UNICAST",
    "StackSettings",
    "build",
    "convert",
    "describe",
    "load_settings",
]

T = TypeVar("T")
Values = Mapping[str, object]
Layers = tuple[tuple[str, Any], ...]
"""Protocols, top to bottom, each with its settings."""

GENERATIONS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "UNICAST": ("UNICAST", {}),
    "UNICAST2": ("UNICAST2", {}),
    # The first UNICAST3 knew no least interval: it asks at each tick.
    "UNICAST3": ("UNICAST3", {"sync": "deferred", "sync_min_interval": 0.001}),
    "UNICAST3-SYNC": ("UNICAST3", {"sync": "spaced"}),
    "UNICAST4": ("UNICAST4", {}),
}
"""The five unicast protocols of the design notes: a protocol, and what it is set to."""
_STACK_KEYS: Final = ("about", "museum", "protocols")
_MOST: Final = 1 << 63
"""Above any number that a setting may be, in whatever unit."""
MAX_COUNT: Final = 0xFFFF
"""Messages that a frame can count."""
_HISTORICAL: Final[dict[type, str]] = {
    HistoricalMulticast: "multicast",
    HistoricalFlow: "flow control",
    HistoricalFrag: "FRAG",
}
"""Kinds of historical flaws besides those of unicast, and what a stack needs to have them."""
_FLAWS: Final = {field.name: kind for kind in _HISTORICAL for field in dataclasses.fields(kind)}
"""The kind of each of these flaws, by its name."""
_KINDS: Final = {
    name: type(field.default)
    for name, config in CONFIGS.items()
    for field in dataclasses.fields(config)
    if field.name == "historical"
}
"""The kind of historical flaws that a protocol may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSettings:
    """Everything a member's stack is made from."""

    name: str = "unicast-only"
    layers: Layers
    """Protocols, top to bottom, each with its settings."""
    timing: Timing
    is_museum: bool = False
    """Whether it may have flaws on purpose."""

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
        check_values(self.layers, self.name, museum=self.is_museum, max_frame=self.max_frame)

    def of(self, name: str) -> Any:  # noqa: ANN401 the type follows the name
        """The settings of a protocol; None when the stack does not have it."""
        return next((config for listed, config in self.layers if listed == name), None)

    def _one_of(self, names: Mapping[str, object]) -> str | None:
        return next((name for name, _config in self.layers if name in names), None)

    @property
    def unicast(self) -> str:
        """The name of the reliable unicast."""
        name = self._one_of(RELIABLE_UNICAST)
        assert name is not None
        return name

    @property
    def unicast_config(self) -> UnicastConfig:
        config: UnicastConfig = self.of(self.unicast)
        return config

    @property
    def has_group(self) -> bool:
        """Whether members form a group."""
        return self.of("GMS") is not None

    @property
    def multicast(self) -> str | None:
        """The name of the reliable multicast, if there is one."""
        return self._one_of(RELIABLE_MULTICAST)

    @property
    def multicast_config(self) -> MulticastConfig | None:
        config: MulticastConfig | None = self.of(self.multicast) if self.multicast else None
        return config

    @property
    def fragments(self) -> FragConfig | None:
        """How large messages are split; None where they are not."""
        config: FragConfig | None = self.of("FRAG")
        return config

    @property
    def transport(self) -> str:
        """The name of the transport."""
        return self.layers[-1][0]

    @property
    def transport_config(self) -> TransportConfig:
        config: TransportConfig = self.layers[-1][1]
        return config

    @property
    def probes(self) -> tuple[tuple[int, str, Any], ...]:
        """Test protocols: place in the list, name, settings."""
        return tuple(
            (place, name, config)
            for place, (name, config) in enumerate(self.layers)
            if name in PROBES
        )

    def check_retransmission(self, interval: float, layers: Layers | None = None) -> None:
        """Refuse an `xmit_interval` with which this stack would lose messages; `layers` where test
        protocols were put in or taken out since it was made."""
        check_retransmission(layers or self.layers, self.name, interval, museum=self.is_museum)


def load_settings(
    stack: str = "unicast-only",
    timing: str = "compatible",
    *,
    unicast: str | None = None,
    discovery: str | None = None,
    overrides: Values | None = None,
    historical: Values | None = None,
    protocols: Mapping[str, Values] | None = None,
    max_batch: int | None = None,
) -> StackSettings:
    """A stack file and a timing file, made one. A stack that ends in .yaml is the path of a file,
    any other the name of one that ships.

    `unicast` replaces the stack's own generation, `discovery` its way to find members, `overrides`
    sets the unicast, `protocols` sets any protocol, and `historical` brings flaws back, of unicast
    or of multicast.
    """
    listed = list_layers(stack, unicast, discovery)
    require(
        not historical or is_museum(stack),
        "historical flaws are for museum stacks only: drop `historical`, "
        f"or use stack unicast-museum, not {stack}",
    )
    timing_file = _read_file("timings", timing)
    given: dict[str, dict[str, object]] = {
        name: dict(values) for name, values in (protocols or {}).items()
    }
    reliable = next(name for name, _values in listed if name in RELIABLE_UNICAST)
    given[reliable] = {**given.get(reliable, {}), **(overrides or {})}
    names = [name for name, _values in listed]
    _check_flaws(historical or {}, names, stack)
    for name in given:
        if name not in names:
            near = protocol_here(name) or suggestion(name, names)
            raise ConfigError(f"stack {stack} has no protocol {name}{near}")
    paced = timing_file.get("protocols") or {}
    layers = tuple(
        (name, _build_layer(name, {**paced.get(name, {}), **values, **given.get(name, {})},
                            historical or {}))
        for name, values in listed
    )  # fmt: skip
    return StackSettings(
        name=Path(stack).stem if is_path(stack) else stack,
        layers=layers,
        timing=build(Timing, {"name": timing, **(timing_file.get("timing") or {})}, "timing"),
        is_museum=is_museum(stack),
        **({"max_batch": max_batch} if max_batch is not None else {}),
    )


def list_layers(
    stack: str, unicast: str | None = None, discovery: str | None = None
) -> list[tuple[str, dict[str, Any]]]:
    """The protocols of a stack, top to bottom, with what was chosen in place of its own."""
    listed = [_with_generation(name, values, unicast) for name, values in read_layers(stack)]
    if discovery is None:
        return listed
    require(
        discovery in DISCOVERIES,
        f"discovery is {discovery!r}: choose one of {', '.join(DISCOVERIES)}",
    )
    require(
        any(name in DISCOVERIES for name, _values in listed),
        f"discovery is {discovery}, and stack {stack} finds nobody: it forms no group; drop it, or "
        "use a stack with GMS",
    )
    listed = [
        (discovery, {}) if name in DISCOVERIES and name != discovery else (name, values)
        for name, values in listed
    ]
    check_order([name for name, _values in listed], stack)
    return listed


def _with_generation(
    name: str, values: dict[str, Any], unicast: str | None
) -> tuple[str, dict[str, Any]]:
    if unicast is None or name not in RELIABLE_UNICAST:
        return name, values
    require(
        unicast in GENERATIONS,
        f"unicast is {unicast!r}: choose one of {', '.join(GENERATIONS)}",
    )
    return GENERATIONS[unicast]


def _build_layer(name: str, values: dict[str, object], historical: Values) -> Any:  # noqa: ANN401 the type follows the name
    """The settings of one protocol, with the flaws that concern it."""
    if name in PROBES:
        return read_probe(name, values)
    config = build(CONFIGS[name], values, name)
    kind = _KINDS.get(name)
    if kind is None:
        return config
    mine = {key: value for key, value in historical.items() if _FLAWS.get(key, Historical) is kind}
    return dataclasses.replace(config, historical=build(kind, mine, "historical"))


def _check_flaws(historical: Values, names: Sequence[str], stack: str) -> None:
    """Refuse flaws of protocols that the stack does not have."""
    there = {_KINDS.get(name) for name in names}
    for kind, what in _HISTORICAL.items():
        stray = sorted(key for key in historical if _FLAWS.get(key) is kind)
        require(
            not stray or kind in there,
            f"historical.{', '.join(stray)}: stack {stack} has no {what}; drop it, or use a stack "
            "that has it, such as group-museum",
        )


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
        return _read_file("stacks", stack)
    content = parse_yaml(text_of(stack, "stack"), stack)
    require(isinstance(content, dict), f"{stack}: write `protocols:` and a list, top to bottom")
    for key in content:
        require(
            key in _STACK_KEYS, f"{stack}: unknown key {key}{suggestion(str(key), _STACK_KEYS)}"
        )
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
            _build_layer(name, values, {})
        except ConfigError as error:
            wrong = next((key for key in values if not _is_right(name, key, values[key])), "")
            raise ConfigError(f"{path}:{inner.get(wrong, line)}: {error}") from None


def _is_right(name: str, key: str, value: object) -> bool:
    """Whether a setting of a protocol could be as it is, whatever the others are."""
    try:
        check_known(name)
        _build_layer(name, {key: value}, {})
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


def describe(settings: StackSettings, bounds: Mapping[str, Mapping[str, float]]) -> str:
    """The settings as a trace keeps them, with what each protocol promises."""
    unicast = settings.unicast
    protocols = {
        name: {**_plain(config), "bounds": _finite(bounds.get(name, {}))}
        for name, config in settings.layers
    }
    mine = protocols.pop(unicast)
    return json.dumps(
        {
            "stack": settings.name,
            "protocol": unicast,
            "timing": settings.timing.name,
            "protocols": protocols,
            **mine,
        },
        sort_keys=True,
    )


def _plain(config: Any) -> dict[str, Any]:  # noqa: ANN401 any settings
    """A settings dataclass as a mapping."""
    return dataclasses.asdict(config)


def _finite(bounds: Mapping[str, float]) -> dict[str, float | None]:
    return {name: None if bound == inf else bound for name, bound in bounds.items()}


def build(kind: type[T], values: Mapping[str, object], what: str) -> T:
    """A settings dataclass from plain values; unknown names and wrong types are refused."""
    known = {
        field.name: field
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]
        # Flaws have a place of their own, which only museum stacks have.
        if field.name != "historical"
    }
    checked = {}
    for name, value in values.items():
        if name not in known:
            raise ConfigError(
                setting_here(what, name, known)
                or f"{what}: unknown setting {name}{suggestion(name, known)}"
            )
        checked[name] = convert(f"{what}.{name}", value, known[name].type)
    return kind(**checked)


def convert(name: str, value: object, wanted: object) -> object:  # noqa: PLR0911 one per type
    """A value as its setting wants it: text with a unit becomes a number."""
    wanted = str(wanted)
    if wanted == "float":
        if isinstance(value, str):
            return parse_duration(value, name)
        require(
            isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST,
            f"{name} is {value!r}: write a duration with its unit, such as 500ms",
        )
        assert isinstance(value, int | float)
        return float(value)
    if wanted == "int":
        if isinstance(value, str):
            return parse_size(value, name)
        require(
            isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MOST,
            f"{name} is {value!r}: write a whole number",
        )
        return value
    if wanted == "bool":
        require(isinstance(value, bool), f"{name} is {value!r}: write true or false")
        return value
    if wanted.startswith("tuple"):
        require(
            isinstance(value, list | tuple) and all(isinstance(part, str) for part in value),
            f"{name} is {value!r}: write a list of words",
        )
        assert isinstance(value, list | tuple)
        return tuple(value)
    require(isinstance(value, str), f"{name} is {value!r}: write a word")
    return value


def _read_file(folder: str, name: str) -> Mapping[str, Any]:
    path = files("node").joinpath(folder)
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
