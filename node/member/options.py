"""The settings of `stormcast node`, from a file, the environment and flags; the later wins.

One table names every setting once; its key in a file, its variable and its flag follow from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from stormcast.node.control.settings import REQUIRED, TLS_MODES, TOKEN_VARIABLE
from stormcast.node.core.errors import ConfigError, Place, require, suggestion
from stormcast.node.member.loads import read_loads
from stormcast.node.member.workload import VERIFY
from stormcast.node.protocols.testing import read_test_protocol
from stormcast.node.reading.documents import read_document
from stormcast.node.reading.error_places import placed
from stormcast.node.reading.parsing import text_of
from stormcast.node.reading.quantities import SETTING_DURATION, SETTING_SIZE, Quantity
from stormcast.node.settings import GENERATIONS, StackSettings
from stormcast.node.settings.protocols import CONFIGS, DISCOVERIES
from stormcast.node.trace.journal import JournalConfig

PREFIX: Final = "STORMCAST_"
SET_PREFIX: Final = "STORMCAST_SET_"
CONFIG_VARIABLE: Final = "STORMCAST_CONFIG"
DEFAULT: Final = "default"
LOOPS: Final = ("asyncio", "uvloop")

WORD: Final = "word"
WHOLE: Final = "whole"


@dataclass(frozen=True, slots=True)
class Option:
    """One setting of a member."""

    key: str
    """In a file; a dot leads into a mapping."""
    kind: str | Quantity
    default: Any
    about: str
    metavar: str = ""
    choices: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        short = {
            "journal.directory": "journal",
            "control.address": "control",
            "control.probes": "probes",
        }
        return "--" + short.get(self.key, self.key).replace(".", "-").replace("_", "-")

    @property
    def variable(self) -> str:
        return PREFIX + self.flag[2:].upper().replace("-", "_")

    def read(self, value: object, what: str) -> object:
        """Return the value that a file, a variable or a flag gives."""
        if self.kind is WHOLE or self.kind is SETTING_SIZE:
            return _read_number(value, what, is_size=self.kind is SETTING_SIZE)
        if not isinstance(value, str):
            wanted = "text" if self.kind is WORD else "a duration with its unit, such as 500ms"
            raise ConfigError(f"{what} is {value!r}: write {wanted}")
        if isinstance(self.kind, Quantity):
            return self.kind.read(value, what)
        require(
            not self.choices or value in self.choices,
            f"{what} is {value!r}: choose one of {', '.join(filter(None, self.choices))}",
        )
        return value

    def write(self, value: Any) -> object:  # noqa: ANN401 the type follows the kind
        """Return the value as a file has it."""
        return self.kind.write(value) if isinstance(self.kind, Quantity) else value


def _default_of(config: type, name: str) -> object:
    fields: Mapping[str, Any] = config.__dataclass_fields__  # type: ignore[attr-defined]
    return fields[name].default


def _read_number(value: object, what: str, *, is_size: bool) -> int:
    if isinstance(value, str):
        if is_size and not value.isdigit():
            return int(SETTING_SIZE.read(value, what))
        require(value.isascii() and value.isdigit(), f"{what} is {value!r}: write a whole number")
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise ConfigError(f"{what} is {value!r}: write a whole number that is not negative")
    return value


OPTIONS: Final[tuple[Option, ...]] = (
    Option("name", WORD, "", "this member's name; made from host and process if empty", "NAME"),
    Option("cluster", WORD, "stormcast", "members of other clusters are not heard", "NAME"),
    Option("stack", WORD, "udp", "which protocols, in which order; docs/stacks.md", "STACK"),
    Option("timing", WORD, "fast", "how patient they are: fast or compatible", "TIMING"),
    Option("unicast", WORD, "", "another generation of the stack's unicast protocol", "PROTOCOL",
           ("", *GENERATIONS)),
    Option("discovery", WORD, "", "another way to find members than the stack's", "PROTOCOL",
           ("", *DISCOVERIES)),
    Option("max_batch", WHOLE, _default_of(StackSettings, "max_batch"),
           "messages in one batch", "N"),
    Option("max_frame", SETTING_SIZE, _default_of(StackSettings, "max_frame"),
           "bytes of payload after which a batch is closed", "SIZE"),
    Option("outbox_bytes", SETTING_SIZE, _default_of(StackSettings, "outbox_bytes"),
           "bytes accepted per destination and not yet numbered", "SIZE"),
    Option("loop", WORD, "asyncio", "event loop; uvloop if it is installed", "LOOP", LOOPS),
    Option("run_for", SETTING_DURATION, 0.0, "leave after this time; 0s: when told to", "TIME"),
    Option("leave_timeout", SETTING_DURATION, 10.0, "how long leaving may take", "TIME"),
    Option("journal.directory", WORD, "", "where the journal is kept; none if empty", "DIR"),
    Option("journal.segment_bytes", SETTING_SIZE, _default_of(JournalConfig, "segment_bytes"),
           "bytes of one of its files", "SIZE"),
    Option("journal.limit_bytes", SETTING_SIZE, _default_of(JournalConfig, "limit_bytes"),
           "bytes of this incarnation's journal at most", "SIZE"),
    Option("journal.when_full", WORD, _default_of(JournalConfig, "when_full"),
           "at the limit: drop-oldest or stop", "POLICY"),
    Option("control.address", WORD, "",
           "control endpoint: HOST:PORT or unix:PATH; closed if empty", "ADDR"),
    Option("control.probes", WORD, "",
           "another listener for /livez and /readyz alone: HOST:PORT or unix:PATH; none if empty",
           "ADDR"),
    Option("control.token_file", WORD, "",
           "file with the endpoint's token, for its owner only", "FILE"),
    Option("control.certificate_file", WORD, "",
           "PEM file with the endpoint's certificate; plain HTTP if empty", "FILE"),
    Option("control.private_key_file", WORD, "",
           "PEM file with the certificate's private key, for its owner only", "FILE"),
    Option("control.tls", WORD, REQUIRED,
           "where others reach the endpoint: required, or none for plain HTTP", "WHICH", TLS_MODES),
    Option("key_file", WORD, "",
           "file with the cluster's keys, made by `stormcast key new`; nothing is sealed if empty",
           "FILE"),
    Option("seed", WHOLE, 1, "the workload's payloads follow from it; the same in all members",
           "N"),
    Option("verify", WORD, "all",
           "which messages of a batch are compared with what was sent: all, one or none", "WHICH",
           VERIFY),
)  # fmt: skip  # one option after the other
BY_KEY: Final = {option.key: option for option in OPTIONS}
SHORTCUTS: Final = {
    "--bind-addr": ("bind_addr", "what the transport binds: an address or an interface", "ADDR"),
    "--port": ("bind_port", "the port that the transport binds", "PORT"),
    "--initial-hosts": ("initial_hosts", "where members may be: host[port],…", "HOSTS"),
}
"""Flags for settings of a protocol, which one depends on the stack."""
_SECTIONS: Final = ("protocols", "historical", "workload", "test_protocols")
"""Keys of a file that hold mappings or lists, and no single value."""
_KUBERNETES: Final = re.compile(r".*_SERVICE_(HOST|PORT(_\w+)?)|.*_PORT_\d+_(TCP|UDP)(_\w+)?")
"""Variables that Kubernetes adds to the environment for a Service called stormcast-something."""


class Setting(NamedTuple):
    """A value, and where it was given."""

    value: Any
    origin: str
    place: Place | None = None
    """The place in a file; None for other origins."""


Where = Callable[..., Place]
"""Takes the keys and numbers that lead to a value; returns its place."""


class Given:
    """Everything that was given; a later value replaces an earlier one."""

    def __init__(self) -> None:
        self.values: dict[str, Setting] = {}
        """By key of an option, and `workload` and `test_protocols`."""
        self.protocols: dict[tuple[str, str], Setting] = {}
        """By protocol and key."""
        self.historical: dict[str, Setting] = {}
        self.shortcuts: dict[str, Setting] = {}
        """By key, which is that of some protocol."""

    def without(self, told: Setting | None) -> Given:
        """Return a copy without one value."""
        rest = Given()
        rest.values = {key: one for key, one in self.values.items() if one is not told}
        rest.protocols = {key: one for key, one in self.protocols.items() if one is not told}
        rest.historical = {key: one for key, one in self.historical.items() if one is not told}
        rest.shortcuts = {key: one for key, one in self.shortcuts.items() if one is not told}
        return rest

    def everything(self) -> list[Setting]:
        """Return all values, those of the strongest origin last."""
        parts = (self.values, self.historical, self.protocols, self.shortcuts)
        return sorted((told for part in parts for told in part.values()), key=_rank)

    # -- A file --------------------------------------------------------------------------------

    def add_file(self, path: str) -> None:
        """Take the values of a file."""
        document = read_document(text_of(path, "--config"), path)
        content = {} if document.content is None else document.content
        with placed(document.place()):
            require(isinstance(content, dict), "write a mapping of keys to values")
        self.add_mapping(content, f"file {path}", document.place)

    def add_mapping(self, content: Mapping[str, Any], origin: str, where: Where) -> None:
        """Take the values of a mapping, which has the form of a file."""
        for key, value in content.items():
            with placed(where(key)):
                if key in _SECTIONS:
                    self._add_section(str(key), value, origin, where)
                elif key in BY_KEY:
                    self._add_value(str(key), value, Setting(None, origin, where(key)))
                else:
                    self._add_group(str(key), value, origin, where)

    def _add_value(self, key: str, value: object, told: Setting, what: str = "") -> None:
        self.values[key] = told._replace(value=BY_KEY[key].read(value, what or key))

    def _add_group(self, group: str, values: object, origin: str, where: Where) -> None:
        """Take the values of `journal:` or `control:`."""
        groups = dict.fromkeys(key.split(".")[0] for key in BY_KEY if "." in key)
        known = [*(key for key in BY_KEY if "." not in key), *groups, *_SECTIONS]
        require(group in groups, f"unknown key {group}{suggestion(group, known)}")
        for name, value in _mapping(values, group).items():
            key = f"{group}.{name}"
            known = [one.split(".")[1] for one in BY_KEY if one.startswith(f"{group}.")]
            with placed(where(group, name)):
                require(key in BY_KEY, f"{group}: unknown key {name}{suggestion(name, known)}")
                self._add_value(key, value, Setting(None, origin, where(group, name)))

    def _add_section(self, key: str, value: object, origin: str, where: Where) -> None:
        if key == "workload":
            self.values[key] = Setting(read_loads(value, partial(where, key)), origin, where(key))
        elif key == "test_protocols":
            self.values[key] = Setting(_test_protocols(value), origin, where(key))
        elif key == "historical":
            self.historical |= {
                name: Setting(one, origin, where(key, name))
                for name, one in _mapping(value, key).items()
            }
        else:
            for protocol, settings in _mapping(value, key).items():
                with placed(where(key, protocol)):
                    pairs = _mapping(settings or {}, f"{key}.{protocol}")
                for name, one in pairs.items():
                    self.protocols[protocol, name] = Setting(
                        one, origin, where(key, protocol, name)
                    )

    # -- The environment -----------------------------------------------------------------------

    def add_environment(self, environ: Mapping[str, str]) -> None:
        """Take the values of environment variables."""
        options = {option.variable: option for option in OPTIONS}
        shortcuts = {_variable(flag): key for flag, (key, _, _) in SHORTCUTS.items()}
        workload = f"{PREFIX}WORKLOAD"
        # Read elsewhere: the file comes before the environment, and a token here is refused.
        elsewhere = (CONFIG_VARIABLE, TOKEN_VARIABLE)
        for name, text in environ.items():
            if not name.startswith(PREFIX) or name in elsewhere or _is_kubernetes(name, text):
                continue
            origin = f"environment {name}"
            if name in options:
                self._add_value(options[name].key, text, Setting(None, origin), name)
            elif name in shortcuts:
                self._add_shortcut(shortcuts[name], text, origin)
            elif name.startswith(SET_PREFIX):
                protocol, mark, key = name.removeprefix(SET_PREFIX).partition("__")
                require(bool(mark and key), f"{name}: write {SET_PREFIX}PROTOCOL__KEY=value")
                self.add_setting(protocol, key.lower(), text, origin)
            elif name == workload:
                self.add_workload(text, origin)
            else:
                known = [
                    *options,
                    *shortcuts,
                    CONFIG_VARIABLE,
                    workload,
                    f"{SET_PREFIX}PROTOCOL__KEY",
                ]
                raise ConfigError(f"{name}: no such setting{suggestion(name, known)}")

    # -- Flags ---------------------------------------------------------------------------------

    def add_flags(self, flags: Mapping[str, str | list[str] | None]) -> None:
        """Take the values of flags, by flag."""
        options = {option.flag: option for option in OPTIONS}
        for flag, text in flags.items():
            origin = f"flag {flag}"
            if text is None or flag == "--config":
                continue
            if isinstance(text, list):
                for one in text:
                    self._add_set(one, origin)
            elif flag in options:
                self._add_value(options[flag].key, text, Setting(None, origin), flag)
            elif flag in SHORTCUTS:
                self._add_shortcut(SHORTCUTS[flag][0], text, origin)
            else:
                assert flag == "--workload"
                self.add_workload(text, origin)

    def _add_set(self, text: str, origin: str) -> None:
        name, mark, value = text.partition("=")
        protocol, dot, key = name.partition(".")
        require(
            bool(mark and dot and protocol and key),
            f"--set {text}: write PROTOCOL.key=value, such as UDP.bind_addr=127.0.0.1",
        )
        before = self.protocols.get((protocol, key))
        require(before is None or before.origin != origin, f"--set {name} is given twice; keep one")
        self.add_setting(protocol, key, value, origin)

    # -- Both ----------------------------------------------------------------------------------

    def add_setting(self, protocol: str, key: str, text: str, origin: str) -> None:
        """Take a setting of a protocol, given as text."""
        self.protocols[protocol, key] = Setting(_typed(protocol, key, text, origin), origin)

    def add_workload(self, path: str, origin: str) -> None:
        """Take the loads of a file: a list, or a mapping with one under `workload`."""
        document = read_document(text_of(path, origin), path)
        loads, where = document.content, document.place
        if isinstance(loads, dict) and "workload" in loads:
            loads, where = loads["workload"], partial(where, "workload")
        self.values["workload"] = Setting(read_loads(loads, where), origin)

    def _add_shortcut(self, key: str, text: str, origin: str) -> None:
        self.shortcuts[key] = Setting(text, origin)

    def resolve(self, key: str, protocol: str) -> None:
        """Turn a shortcut into the setting of a protocol, unless a stronger origin set that."""
        told = self.shortcuts[key]
        other = self.protocols.get((protocol, key))
        if other is None or _rank(other) < _rank(told):
            value = _typed(protocol, key, told.value, told.origin)
            self.protocols[protocol, key] = Setting(value, told.origin)
        else:
            require(
                _rank(other) > _rank(told),
                f"{told.origin} and {other.origin} both set {protocol}.{key}; keep one",
            )


def _rank(told: Setting) -> int:
    return ("file", "environment", "flag").index(told.origin.split()[0])


def _typed(protocol: str, key: str, text: str, origin: str) -> object:
    """Convert text to the setting's type; leave text that does not fit for the stack to refuse."""
    fields = getattr(CONFIGS.get(protocol), "__dataclass_fields__", {})
    kind = str(fields[key].type) if key in fields else "str"
    if kind == "bool":
        return {"true": True, "false": False}.get(text, text)
    if kind == "int" and re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    if kind in ("float", "Share") and re.fullmatch(r"-?[0-9]{1,15}(\.[0-9]{1,15})?", text):
        require(
            kind == "Share" or not float(text),
            f"{origin}: {protocol}.{key} is {text}: write its unit, as {text}ms or {text}s; in "
            "JGroups it is milliseconds",
        )
        return float(text)
    if kind.startswith("tuple"):
        is_yaml = text.startswith("[")
        listed = read_document(text, origin).content if is_yaml else text.split(",")
        return listed or []
    return text


def _variable(flag: str) -> str:
    return PREFIX + flag[2:].upper().replace("-", "_")


def _is_kubernetes(name: str, text: str) -> bool:
    """Whether Kubernetes makes this variable for a Service."""
    return bool(_KUBERNETES.fullmatch(name)) or (
        name.endswith("_PORT") and text.startswith(("tcp://", "udp://"))
    )


def _test_protocols(values: object) -> dict[str, dict[str, Any]]:
    """Read the test protocols of a member: each a mapping, as for `POST /probes`."""
    found = {
        name: _mapping(one, f"test_protocols.{name}")
        for name, one in _mapping(values, "test_protocols").items()
    }
    for name, one in found.items():
        read_test_protocol(name, {key: value for key, value in one.items() if key != "above"})
    return found


def _mapping(values: object, what: str) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise ConfigError(f"{what} is {values!r}: write a mapping of keys to values")
    return {str(key): value for key, value in values.items()}
