"""All settings of `stormcast node`, checked before anything starts, with the origin of each value:
stack and timing < file < environment < flag.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from stormcast.node.control.settings import (
    ControlSettings,
    TlsSettings,
    read_control,
    read_probes,
    read_token,
)
from stormcast.node.core.errors import ConfigError, Place, require, suggestion
from stormcast.node.core.names import check_name
from stormcast.node.core.timing import Timing
from stormcast.node.member.loads import Load, write_load
from stormcast.node.member.options import (
    CONFIG_VARIABLE,
    DEFAULT,
    OPTIONS,
    Given,
    Option,
    Setting,
)
from stormcast.node.protocols.testing import TEST_PROTOCOLS
from stormcast.node.reading.config_shapes import shape_of
from stormcast.node.reading.error_places import placed, to_blame
from stormcast.node.reading.items import PlainItem
from stormcast.node.reading.notations import Plain
from stormcast.node.reading.writing import flow
from stormcast.node.settings import (
    GENERATIONS,
    StackSettings,
    list_layers,
    load_settings,
    read_layers,
)
from stormcast.node.settings.files import read_timing
from stormcast.node.settings.jgroups_names import protocol_here
from stormcast.node.settings.protocols import CONFIGS, DISCOVERIES, RELIABLE_UNICAST
from stormcast.node.trace.journal import JournalConfig

_INDENT: Final = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """The settings of one member."""

    name: str
    """Empty: made from host and process."""
    cluster: str
    stack: StackSettings
    journal: JournalConfig | None
    control: ControlSettings | None
    probes: ControlSettings | None
    """A further listener for /livez and /readyz, with connections of its own; None: there is
    none."""
    workload: tuple[Load, ...]
    test_protocols: Mapping[str, Mapping[str, Any]]
    """In the stack from its first frame, as `POST /probes` would put them in."""
    key_file: str
    """The file with the cluster's keys; empty: nothing is sealed."""
    seed: int
    """The payloads of all members follow from it."""
    verify: str
    """The messages of a batch that are compared with what was sent: `all`, `one` or `none`."""
    loop: str
    run_for: float
    """Seconds; 0 until told to leave."""
    leave_timeout: float


class Entry(NamedTuple):
    """One line of the effective configuration."""

    path: tuple[str, ...]
    value: Plain
    """The value as YAML and JSON have it."""
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """Settings, and where each value comes from."""

    settings: MemberSettings
    entries: tuple[Entry, ...]
    notes: tuple[str, ...]
    """Lines about what cannot be set, or must not be shown."""

    def as_yaml(self) -> str:
        """Return the settings as a file that `--config` takes."""
        lines = [f"# {note}" for note in self.notes]
        before: tuple[str, ...] = ()
        for path, value, origin in self.entries:
            for depth, part in enumerate(path[:-1]):
                if path[: depth + 1] != before[: depth + 1]:
                    lines.append(f"{_INDENT * depth}{part}:")
            before = path[:-1]
            text = f"{_INDENT * len(before)}{path[-1]}: {flow(value)}"
            lines.append(f"{text}  # {origin}")
        return "\n".join(lines) + "\n"

    def as_json(self) -> str:
        """Return the same for programs: the settings, and their origins by dotted name."""
        settings: dict[str, Any] = {}
        for path, value, _origin in self.entries:
            inner = settings
            for part in path[:-1]:
                inner = inner.setdefault(part, {})
            inner[path[-1]] = value
        origins = {".".join(path): origin for path, _value, origin in self.entries}
        return json.dumps({"settings": settings, "origins": origins, "notes": self.notes})


def load_member(
    flags: Mapping[str, str | list[str] | None], environ: Mapping[str, str]
) -> Effective:
    """Return the settings of all sources together; ConfigError for those that cannot work."""
    given = Given()
    config = flags.get("--config") or environ.get(CONFIG_VARIABLE)
    if config:
        assert isinstance(config, str)
        given.add_file(config)
    given.add_environment(environ)
    given.add_flags(flags)
    return _blamed(given, lambda some: _effective(some, environ))


def _effective(given: Given, environ: Mapping[str, str]) -> Effective:
    values = {option.key: _told(given, option) for option in OPTIONS}
    stack = _stack(given, values)
    token = read_token(values["control.token_file"].value, environ)
    settings = _settings(given, values, stack, token)
    notes = [
        "stormcast node: what is in force, and where each value comes from",
        *_stack_notes(stack),
    ]
    if token:
        from_file = values["control.token_file"].value
        notes.append(f"the token is not shown; it is from {from_file}")
    return Effective(
        settings=settings,
        entries=tuple(_entries(given, values, stack)),
        notes=tuple(notes),
    )


def read_member(config: Mapping[str, Any], what: str) -> MemberSettings:
    """Return the settings of a mapping in the form of a file; ConfigError if they cannot work."""
    given = Given()
    given.add_mapping(PlainItem(config, where=lambda *_keys: Place(what)), what)
    values = {option.key: _told(given, option) for option in OPTIONS}
    return _settings(given, values, _stack(given, values), "")


def _blamed(given: Given, make: Callable[[Given], Effective]) -> Effective:
    """Return what `make` makes of all values; its ConfigError gets the place of the value that is
    to blame."""
    try:
        return make(given.without(None))
    except ConfigError as error:
        if error.place is not None:
            raise
        told = to_blame(given.everything(), error.message, lambda told: make(given.without(told)))
        if told is None:
            raise
        raise ConfigError(error.message, told.place or Place(told.origin)) from None


def _told(given: Given, option: Option) -> Setting:
    return given.values.get(option.key, Setting(option.default, DEFAULT))


# -- The stack -----------------------------------------------------------------------------------


def _stack(given: Given, values: Mapping[str, Setting]) -> StackSettings:
    name, timing = values["stack"].value, values["timing"].value
    unicast, discovery = values["unicast"].value or None, values["discovery"].value or None
    # Listed before settings of protocols are looked at, to know which protocols there are.
    names = [listed for listed, _values in list_layers(name, unicast, discovery)]
    for key, told in given.shortcuts.items():
        protocol = next(
            (
                listed
                for listed in reversed(names)
                if key in getattr(CONFIGS.get(listed), "__dataclass_fields__", {})
            ),
            None,
        )
        finder = next((one for one in names if one in DISCOVERIES), "nothing")
        with placed(Place(told.origin)):
            require(
                protocol is not None,
                f"stack {name} finds members by {finder}; use a stack with STATIC, such as tcp, or "
                "discovery STATIC",
            )
        given.resolve(key, protocol or "")
    protocols: dict[str, dict[str, object]] = {}
    for (protocol, key), told in given.protocols.items():
        if protocol not in names:
            raise ConfigError(
                f"{protocol}.{key}: stack {name} has no protocol {protocol}"
                f"{protocol_here(protocol) or suggestion(protocol, names)}",
                told.place or Place(told.origin),
            )
        protocols.setdefault(protocol, {})[key] = told.value
    whole = load_settings(
        name,
        timing,
        unicast=unicast,
        discovery=discovery,
        historical={key: told.value for key, told in given.historical.items()},
        protocols=protocols,
    )
    return dataclasses.replace(
        whole, **{key: values[key].value for key in ("max_batch", "max_frame", "outbox_bytes")}
    )


def _stack_notes(stack: StackSettings) -> Iterator[str]:
    timing = stack.timing
    pairs = (
        f"{name} {flow(key.notation.write(getattr(timing, name)))}"
        for name, key in shape_of(Timing).keys.items()
        if name != "name"
    )
    yield f"timing {timing.name}: {', '.join(pairs)}"
    test_protocols = [name for name, _config in stack.layers if name in TEST_PROTOCOLS]
    if test_protocols:
        yield f"stack {stack.name} has test protocols, set by its file: {', '.join(test_protocols)}"


def _entries(given: Given, values: Mapping[str, Setting], stack: StackSettings) -> Iterator[Entry]:
    for option in OPTIONS:
        told = values[option.key]
        value = option.notation.write(told.value)
        yield Entry(tuple(option.key.split(".")), value, told.origin)
    workload = given.values.get("workload", Setting((), DEFAULT))
    yield Entry(("workload",), [write_load(load) for load in workload.value], workload.origin)
    if test_protocols := given.values.get("test_protocols"):
        yield Entry(("test_protocols",), test_protocols.value, test_protocols.origin)
    for key, told in given.historical.items():
        yield Entry(("historical", key), told.value.value, told.origin)
    origins = _origins(given, values, stack)
    for name, config in stack.layers:
        if name in TEST_PROTOCOLS:
            continue
        for key, one in shape_of(type(config)).keys.items():
            value = one.notation.write(getattr(config, key))
            origin = origins.get((name, key), DEFAULT)
            yield Entry(("protocols", name, key), value, origin)


def _origins(
    given: Given, values: Mapping[str, Setting], stack: StackSettings
) -> dict[tuple[str, str], str]:
    """Return the origin of each setting of the protocols that is no default: the stack wins over
    the timing, and given values win over both."""
    found: dict[tuple[str, str], str] = {}
    for name, paced in read_timing(stack.timing.name)[1].items():
        found |= dict.fromkeys(((name, key) for key in paced), f"timing {stack.timing.name}")
    for name, told in read_layers(values["stack"].value):
        origin, protocol, keys = f"stack {stack.name}", name, told
        if name in RELIABLE_UNICAST and values["unicast"].value:
            origin = values["unicast"].origin
            protocol, keys = GENERATIONS[values["unicast"].value]
        elif name in DISCOVERIES and values["discovery"].value not in ("", name):
            # The stack's settings of its own discovery do not apply to another.
            continue
        found |= dict.fromkeys(((protocol, key) for key in keys), origin)
    return found | {key: told.origin for key, told in given.protocols.items()}


# -- The rest ------------------------------------------------------------------------------------


def _settings(
    given: Given, values: Mapping[str, Setting], stack: StackSettings, token: str
) -> MemberSettings:
    value = {key: told.value for key, told in values.items()}
    for key in ("name", "cluster"):
        if value[key] or key != "name":
            check_name(key, value[key])
    require(value["leave_timeout"] > 0, "leave_timeout is 0s: leaving takes some time; give it 1s")
    journal = None
    if value["journal.directory"]:
        journal = JournalConfig(
            directory=Path(value["journal.directory"]),
            segment_bytes=value["journal.segment_bytes"],
            limit_bytes=value["journal.limit_bytes"],
            when_full=value["journal.when_full"],
        )
    tls = TlsSettings(
        certificate_file=value["control.certificate_file"],
        private_key_file=value["control.private_key_file"],
        mode=value["control.tls"],
    )
    control = None
    if value["control.address"]:
        control = read_control(value["control.address"], token, tls=tls)
    probes = None
    if value["control.probes"]:
        probes = read_probes(value["control.probes"], "control.probes")
    workload: tuple[Load, ...] = given.values.get("workload", Setting((), DEFAULT)).value
    return MemberSettings(
        name=value["name"],
        cluster=value["cluster"],
        stack=stack,
        journal=journal,
        control=control,
        probes=probes,
        workload=workload,
        test_protocols=given.values.get("test_protocols", Setting({}, DEFAULT)).value,
        key_file=value["key_file"],
        seed=value["seed"],
        verify=value["verify"],
        loop=value["loop"],
        run_for=value["run_for"],
        leave_timeout=value["leave_timeout"],
    )
