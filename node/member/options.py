"""The settings of `stormcast node`, from a file, the environment and flags; the later wins.

One table names every setting once; its key in a file, its variable and its flag follow from it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from stormcast.node.control.settings import REQUIRED, TLS_MODES, TOKEN_VARIABLE
from stormcast.node.core.errors import ConfigError, Place, require, suggestion
from stormcast.node.member.loads import read_loads
from stormcast.node.member.workload import VERIFY
from stormcast.node.protocols.testing import read_test_protocol
from stormcast.node.reading.documents import read_document
from stormcast.node.reading.error_places import placed
from stormcast.node.reading.items import LARGEST, Item, PlainItem, TextItem
from stormcast.node.reading.notations import BYTES, TEXT, Notation, quantity, whole
from stormcast.node.reading.parsing import text_of
from stormcast.node.reading.quantities import SETTING_DURATION
from stormcast.node.settings import GENERATIONS, StackSettings
from stormcast.node.settings.files import values_of
from stormcast.node.settings.protocols import DISCOVERIES
from stormcast.node.trace.journal import JournalConfig

PREFIX: Final = "STORMCAST_"
SET_PREFIX: Final = "STORMCAST_SET_"
CONFIG_VARIABLE: Final = "STORMCAST_CONFIG"
DEFAULT: Final = "default"
LOOPS: Final = ("asyncio", "uvloop")

_TIME: Final = quantity(SETTING_DURATION)
_NUMBER: Final = whole(0, LARGEST)


@dataclass(frozen=True, slots=True)
class Option:
    """One setting of a member."""

    key: str
    """In a file; a dot leads into a mapping."""
    notation: Notation
    default: Any
    about: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    """The words that it may be; the empty one, if it is among them, is for the default."""

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

    def read(self, item: Item) -> object:
        """Return the value that a file, a variable or a flag gives."""
        if self.choices:
            return item.one_of(self.choices, "choice")
        value: object = self.notation.read(item)
        return value


def _default_of(config: type, name: str) -> object:
    fields: Mapping[str, Any] = config.__dataclass_fields__  # type: ignore[attr-defined]
    return fields[name].default


OPTIONS: Final[tuple[Option, ...]] = (
    Option("name", TEXT, "", "this member's name; made from host and process if empty", "NAME"),
    Option("cluster", TEXT, "stormcast", "members of other clusters are not heard", "NAME"),
    Option("stack", TEXT, "udp", "which protocols, in which order; docs/stacks.md", "STACK"),
    Option("timing", TEXT, "fast", "how patient they are: fast or compatible", "TIMING"),
    Option("unicast", TEXT, "", "another generation of the stack's unicast protocol", "PROTOCOL",
           ("", *GENERATIONS)),
    Option("discovery", TEXT, "", "another way to find members than the stack's", "PROTOCOL",
           ("", *DISCOVERIES)),
    Option("max_batch", _NUMBER, _default_of(StackSettings, "max_batch"),
           "messages in one batch", "N"),
    Option("max_frame", BYTES, _default_of(StackSettings, "max_frame"),
           "bytes of payload after which a batch is closed", "SIZE"),
    Option("outbox_bytes", BYTES, _default_of(StackSettings, "outbox_bytes"),
           "bytes accepted per destination and not yet numbered", "SIZE"),
    Option("loop", TEXT, "asyncio", "event loop; uvloop if it is installed", "LOOP", LOOPS),
    Option("run_for", _TIME, 0.0, "leave after this time; 0s: when told to", "TIME"),
    Option("leave_timeout", _TIME, 10.0, "how long leaving may take", "TIME"),
    Option("journal.directory", TEXT, "", "where the journal is kept; none if empty", "DIR"),
    Option("journal.segment_bytes", BYTES, _default_of(JournalConfig, "segment_bytes"),
           "bytes of one of its files", "SIZE"),
    Option("journal.limit_bytes", BYTES, _default_of(JournalConfig, "limit_bytes"),
           "bytes of this incarnation's journal at most", "SIZE"),
    Option("journal.when_full", TEXT, _default_of(JournalConfig, "when_full"),
           "at the limit: drop-oldest or stop", "POLICY"),
    Option("control.address", TEXT, "",
           "control endpoint: HOST:PORT or unix:PATH; closed if empty", "ADDR"),
    Option("control.probes", TEXT, "",
           "another listener for /livez and /readyz alone: HOST:PORT or unix:PATH; none if empty",
           "ADDR"),
    Option("control.token_file", TEXT, "",
           "file with the endpoint's token, for its owner only", "FILE"),
    Option("control.certificate_file", TEXT, "",
           "PEM file with the endpoint's certificate; plain HTTP if empty", "FILE"),
    Option("control.private_key_file", TEXT, "",
           "PEM file with the certificate's private key, for its owner only", "FILE"),
    Option("control.tls", TEXT, REQUIRED,
           "where others reach the endpoint: required, or none for plain HTTP", "WHICH", TLS_MODES),
    Option("key_file", TEXT, "",
           "file with the cluster's keys, made by `stormcast key new`; nothing is sealed if empty",
           "FILE"),
    Option("seed", _NUMBER, 1, "the workload's payloads follow from it; the same in all members",
           "N"),
    Option("verify", TEXT, "all",
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
    """What was read; of protocols and historical flaws the item that is read once the stack is
    known."""
    origin: str
    place: Place | None = None
    """The place in a file; None for other origins."""


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
        file = read_document(text_of(path, "--config"), path).item()
        if file.value is not None:
            self.add_mapping(file, f"file {path}")

    def add_mapping(self, content: PlainItem, origin: str) -> None:
        """Take the values of a mapping, which has the form of a file."""
        for key, value in content.pairs():
            if key.name in _SECTIONS:
                self._add_section(key.name, value, origin)
            elif key.name in BY_KEY:
                self._add_value(key.name, value, origin)
            else:
                self._add_group(key, value, origin)

    def _add_value(self, key: str, item: Item, origin: str) -> None:
        self.values[key] = Setting(BY_KEY[key].read(item), origin, item.place)

    def _add_group(self, group: PlainItem, values: PlainItem, origin: str) -> None:
        """Take the values of `journal:` or `control:`."""
        groups = dict.fromkeys(key.split(".")[0] for key in BY_KEY if "." in key)
        if group.name not in groups:
            known = [*(key for key in BY_KEY if "." not in key), *groups, *_SECTIONS]
            raise group.error(f"unknown key {group.name}{suggestion(group.name, known)}")
        before = f"{group.name}."
        known = [key.removeprefix(before) for key in BY_KEY if key.startswith(before)]
        for name, item in values.entries((), known).items():
            self._add_value(before + name, item, origin)

    def _add_section(self, key: str, section: PlainItem, origin: str) -> None:
        if key == "workload":
            loads = read_loads(section.called(key, joint=": "))
            self.values[key] = Setting(loads, origin, section.place)
        elif key == "test_protocols":
            self.values[key] = Setting(_test_protocols(section), origin, section.place)
        elif key == "historical":
            for flaw, value in section.pairs():
                self.historical[flaw.name] = Setting(value, origin, value.place)
        else:
            for protocol, settings in section.pairs():
                for name, value in values_of(settings.called(protocol.name)).items():
                    self.add_setting(protocol.name, name, value, origin)

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
                self._add_value(options[name].key, TextItem(text, name), origin)
            elif name in shortcuts:
                self._add_shortcut(shortcuts[name], text, origin)
            elif name.startswith(SET_PREFIX):
                protocol, mark, key = name.removeprefix(SET_PREFIX).partition("__")
                require(bool(mark and key), f"{name}: write {SET_PREFIX}PROTOCOL__KEY=value")
                self._add_text(protocol, key.lower(), text, origin)
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
                self._add_value(options[flag].key, TextItem(text, flag), origin)
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
        self._add_text(protocol, key, value, origin)

    # -- Both ----------------------------------------------------------------------------------

    def add_setting(self, protocol: str, key: str, item: PlainItem, origin: str) -> None:
        """Take a setting of a protocol."""
        self.protocols[protocol, key] = Setting(item, origin, item.place)

    def _add_text(self, protocol: str, key: str, text: str, origin: str) -> None:
        item = TextItem(text, f"{protocol}.{key}", lambda *_keys: Place(origin))
        self.protocols[protocol, key] = Setting(item, origin)

    def add_workload(self, path: str, origin: str) -> None:
        """Take the loads of a file: a list, or a mapping with one under `workload`."""
        loads = read_document(text_of(path, origin), path).item("workload")
        if loads.is_mapping():
            loads = values_of(loads).get("workload", loads)
        self.values["workload"] = Setting(read_loads(loads.called("workload", ": ")), origin)

    def _add_shortcut(self, key: str, text: str, origin: str) -> None:
        self.shortcuts[key] = Setting(text, origin)

    def resolve(self, key: str, protocol: str) -> None:
        """Turn a shortcut into the setting of a protocol, unless a stronger origin set that."""
        told = self.shortcuts[key]
        other = self.protocols.get((protocol, key))
        if other is None or _rank(other) < _rank(told):
            self._add_text(protocol, key, told.value, told.origin)
        else:
            require(
                _rank(other) > _rank(told),
                f"{told.origin} and {other.origin} both set {protocol}.{key}; keep one",
            )


def _rank(told: Setting) -> int:
    return ("file", "environment", "flag").index(told.origin.split()[0])


def _variable(flag: str) -> str:
    return PREFIX + flag[2:].upper().replace("-", "_")


def _is_kubernetes(name: str, text: str) -> bool:
    """Whether Kubernetes makes this variable for a Service."""
    return bool(_KUBERNETES.fullmatch(name)) or (
        name.endswith("_PORT") and text.startswith(("tcp://", "udp://"))
    )


def _test_protocols(section: PlainItem) -> dict[str, dict[str, Any]]:
    """Read the test protocols of a member: each a mapping, as for `POST /probes`."""
    found: dict[str, dict[str, Any]] = {}
    for key, settings in section.pairs():
        found[key.name] = {name.name: value.value for name, value in settings.pairs()}
        values = values_of(settings.called(key.name))
        values.pop("above", None)
        with placed(key.place):
            read_test_protocol(key.name, values)
    return found
