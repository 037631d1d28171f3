"""Files with guests: what may be in them, and what is refused.

Faults are those of any scenario, where they make sense for a program that knows nothing of us;
others are refused with the reason.
"""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from stormcast.chaos import faults
from stormcast.chaos.attack.finders import KINDS
from stormcast.chaos.attack.on_pods import NO_PAUSE
from stormcast.chaos.faults import Names
from stormcast.chaos.guests.scenario import (
    ADDRESS,
    CLIENT,
    FOLDER,
    PYTHON,
    Client,
    Guest,
    GuestExpect,
    GuestLimits,
    GuestScenario,
    Ready,
    holes,
    is_pod_word,
)
from stormcast.chaos.histories.judging import MODELS
from stormcast.chaos.language.timeline import Step, actions, check_timeline, read_step, write_step
from stormcast.node.core.errors import ConfigError, suggestion
from stormcast.node.reading.items import Item
from stormcast.node.reading.notations import (
    POSITIVE_TIME,
    TEXT,
    TIME,
    Notation,
    list_of,
    one_of,
    whole,
    word,
)
from stormcast.node.reading.parsing import MAX_BYTES, decode
from stormcast.node.reading.shapes import Key, Shape
from stormcast.node.reading.yaml_nodes import compose

GUESTS: Final = "guests"
"""The key by which such a file is known."""
MOST_GUESTS: Final = 32
_FILLED: Final = (ADDRESS, FOLDER, PYTHON)
"""Words that a command may have in braces, besides the names of guests."""

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,79}")
_TAKEN: Final = "|".join(
    (*_FILLED, CLIENT, "bridge", "all", "others", faults.RANDOM, *faults.ROLES, "rig", "on", "off",
     "yes", "no", "y", "n", "true", "false", "null")
)  # fmt: skip  # a list of words
_GUEST: Final = re.compile(rf"(?!(?:{_TAKEN})$)[a-z][a-z0-9-]{{0,30}}")
_CONDITION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,316}")
_IMAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")
_VARIABLE: Final = (
    re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}"),
    "a variable has letters, digits and _",
)
_SOURCE: Final = (
    re.compile(r"[^:\0]{1,255}"),
    "write a path, from the folder of this file on, without a colon",
)
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
SIGNALS: Final = ("SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGKILL")

OF_NETWORKS: Final = (
    *("partition", "cut", "loss", "gilbert-elliott", "nth-loss", "delay", "duplicate", "reorder"),
    *("corrupt", "bandwidth", "drop", "packets", "heal"),
)
OF_PROCESSES: Final = ("crash", "restart", "pause", "resume")
_OUR_FRAMES: Final = (
    "it chooses frames of Stormcast, and guests send none; choose drop, or a fault of links"
)
_NO_MEMBER: Final = "nobody can tell a guest to do that; choose crash, restart, pause or resume"
REFUSED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("rule", "release", "listen", "replay", "forge"), _OUR_FRAMES),
    **dict.fromkeys(
        ("leave", "join", "churn", "forget", "close", "install-view", "set-attribute"), _NO_MEMBER
    ),
    **dict.fromkeys(("change-keys", "stall", "consume"), _NO_MEMBER),
}
"""Words of other scenarios, and why they are none of guests."""
_OTHER_KEYS: Final[Mapping[str, str]] = {
    "cluster": "a file has a cluster or guests: remove one of them",
    "workload": "what guests do is the client's matter: remove workload, and write a client",
    "guarantees": "guarantees are of members; for guests write a client with a model",
    "budget": "a budget is of members; remove it",
    "needs": "guests live in namespaces, and need nothing else; remove it",
    "network": "guests have the network as it is; write a delay, or what it shall be, as a step",
}


def has_guests(path: str | Path) -> bool:
    """Whether a file is a scenario with guests; one that is no scenario at all is none."""
    try:
        # What is no regular file, such as a pipe, can be read once only.
        return Path(path).is_file() and bool(
            compose(_text_of(path), str(path), "scenario").has(GUESTS)
        )
    except (ConfigError, OSError):
        # Whoever reads it as another scenario says what is wrong.
        return False


def load_guests(path: str | Path) -> GuestScenario:
    """Read a scenario file with guests."""
    return parse_guests(_text_of(path), str(path))


def _text_of(path: str | Path) -> str:
    with Path(path).open("rb") as file:
        return decode(file.read(MAX_BYTES + 1), str(path))


def parse_guests(text: str, path: str = "<text>") -> GuestScenario:
    """Read a scenario with guests from its text; raises nothing but ConfigError."""
    root = compose(text, path, "scenario")
    found = {key.name: value for key, value in root.pairs()}
    names = _guest_names(root.peek(GUESTS))
    limits = _LIMITS.read(found["limits"]) if "limits" in found else GuestLimits()
    run_already = any(one.is_mapping() and one.has("target") for _key, one in found[GUESTS].pairs())
    everyone = (*names, *((CLIENT,) if CLIENT in found and not run_already else ()))
    scenario: GuestScenario = _whole(names, everyone, limits.run, path, text).read(root)
    return scenario


# -- The shapes of the file ------------------------------------------------------------------------


def _read_only(read: Callable[[Item], Any]) -> Notation:
    """A value that is read, and never written: such a file is kept as its author wrote it."""
    return Notation(read, str)


def _guest_names(item: Item) -> Names:
    names = tuple(
        key.word(_GUEST, "a guest's name has small letters, digits and dashes, 31 at most, and is "
                 "no word that is taken, such as client, address or all")
        for key, _value in item.pairs()
    )  # fmt: skip
    if not 1 <= len(names) <= MOST_GUESTS:
        raise item.error(f"guests: name 1 to {MOST_GUESTS}")
    return names


def _command(known: Names) -> Notation:
    """A line for `sh`, with names of guests in braces."""

    def read(item: Item) -> str:
        text = item.text("write a command, in quotes")
        if not text.strip() or "\0" in text:
            raise item.refuse("write a command, such as redis-server --bind {address}")
        _check_holes(item, text, known, "braces of the shell's want a blank: { … }")
        return text

    return _read_only(read)


def _value(known: Names) -> Notation:
    """The value of a variable, with names of guests in braces."""

    def read(item: Item) -> str:
        text = item.text("write text, a number in quotes")
        if "\0" in text:
            raise item.refuse("a variable has no NUL")
        _check_holes(item, text, known, "choose a guest, or address")
        return text

    return _read_only(read)


def _check_holes(item: Item, text: str, known: Names, remedy: str) -> None:
    for hole in holes(text):
        if hole not in (*_FILLED, *known):
            near = suggestion(hole, (*_FILLED, *known))
            raise item.error(f"{item.key} has {{{hole}}}, which is no guest{near}; {remedy}")


def _check_ready(item: Item, ready: Ready) -> None:
    ways = (ready.tcp, ready.command, ready.condition)
    if sum(one is not None for one in ways) != 1:
        raise item.error(
            "ready: it needs one of tcp (a port), command, or of a pod condition; write one of them"
        )


def _ready(known: Names) -> Shape:
    return Shape(
        Ready,
        {
            "tcp": Key("tcp", whole(1, 65535), None),
            "command": Key("command", _command(known), None),
            "condition": Key(
                "condition", word(_CONDITION, "write a condition of a pod, such as Ready"), None
            ),
            "within": Key("within", POSITIVE_TIME, 30.0),
        },
        _check_ready,
    )


_SIGNAL: Final = one_of(SIGNALS, "signal")
assert all(hasattr(signal, name) for name in SIGNALS)


def _guest(name: str, known: Names) -> Shape:
    return Shape(
        partial(Guest, name=name),
        {
            "command": Key("command", _command(known), ""),
            "image": Key("image", _read_only(_image), None),
            "target": Key("target", _read_only(_target_word), None),
            "environment": Key("environment", _pairs(_VARIABLE, _value(known)), _NOTHING),
            "mounts": Key("mounts", _pairs(_SOURCE, _read_only(_target)), _NOTHING),
            "ready": Key("ready", _ready(known).notation(), None),
            "stop": Key("stop", _SIGNAL, "SIGTERM"),
        },
        _check_guest,
    )


def _check_guest(item: Item, guest: Guest) -> None:
    is_pod = guest.target is not None and is_pod_word(guest.target)
    if guest.ready is not None and guest.ready.condition is not None and not is_pod:
        raise (
            item.peek("ready")
            .peek("condition")
            .error("condition: only a cluster says one, of a pod; write tcp or command")
        )
    if guest.target is not None:
        for key in ("command", "image", "environment", "mounts", "stop"):
            if item.has(key):
                raise item.peek(key).error(
                    f"{key}: what runs already is neither started nor stopped; remove it, or target"
                )
        return
    if guest.image is None and not guest.command:
        raise item.error(f"{item.key} needs command, image or target; write one of them")
    if guest.image is None and guest.mounts:
        raise item.peek("mounts").error(
            "mounts: a command sees the files of this machine as they are; remove it"
        )
    if guest.image is not None:
        try:
            shlex.split(guest.command)
        except ValueError as error:
            why = str(error).lower()
            raise item.peek("command").refuse(f"close what is open in it ({why})") from None


def _image(item: Item) -> str:
    text = item.text("write the name of an image, such as redis:7")
    if not _IMAGE.fullmatch(text):
        raise item.refuse("write the name of an image, such as redis:7")
    return text


def _target_word(item: Item) -> str:
    text = item.text("write what runs already, such as container:web")
    if text.partition(":")[0] not in KINDS or not text.partition(":")[2]:
        known = ", ".join(f"{kind}:…" for kind in KINDS)
        raise item.refuse(f"write what runs already, as one of {known}")
    return text


def _target(item: Item) -> str:
    text = item.text("write a path in the container")
    if not text.startswith("/") or ":" in text:
        raise item.refuse("write where the container sees it, from / on, such as /etc/redis.conf")
    return text


def _pairs(pattern: tuple[re.Pattern[str], str], value: Notation) -> Notation:
    """A mapping whose keys are the author's own."""

    def read(item: Item) -> Mapping[str, Any]:
        return {key.word(*pattern): value.read(found) for key, found in item.pairs()}

    return _read_only(read)


def read_guest(name: str, item: Item, known: Names) -> Guest:
    """Read one guest; `known` are the names that its commands may have in braces."""
    guest: Guest = _guest(name, known).read(item)
    return guest


def _guests(known: Names) -> Notation:
    return _read_only(
        lambda item: tuple(read_guest(key.name, value, known) for key, value in item.pairs())
    )


def _client(known: Names) -> Shape:
    return Shape(
        Client,
        {
            "command": Key("command", _command(known)),
            "model": Key("model", one_of(MODELS, "model")),
            "settle": Key("settle", TIME, 0.0),
            "stop": Key("stop", _SIGNAL, "SIGTERM"),
        },
    )


_LIMITS: Final = Shape(
    GuestLimits,
    {"run": Key("run", POSITIVE_TIME, 60.0), "finish": Key("finish", POSITIVE_TIME, 20.0)},
)
_EXPECT: Final = Shape(GuestExpect, {"ready_within": Key("ready_within", POSITIVE_TIME)})


def guest_actions(guests: Names, everyone: Names) -> dict[str, Shape]:
    """Return every word that may stand behind `do:`, with its keys: faults of the network strike
    the client's, too, and faults of processes only guests."""
    of_all, of_guests = actions(everyone), actions(guests)
    return {do: of_all[do] for do in OF_NETWORKS} | {do: of_guests[do] for do in OF_PROCESSES}


def _step(guests: Names, everyone: Names) -> Notation:
    shapes = guest_actions(guests, everyone)

    def read(item: Item) -> Step:
        do = item.peek("do")
        if (why := REFUSED.get(do.name)) is not None:
            raise do.refuse(why)
        step = read_step(item, shapes)
        if getattr(step.action, "member", "") in faults.ROLES:
            raise item.peek("member").refuse("guests have no coordinator; name one, or random")
        if getattr(step.action, "shape", "") == "isolate-coordinator":
            raise item.peek("groups").refuse("guests have no coordinator; list the groups")
        return step

    return Notation(read, lambda step: write_step(step, shapes))


def _hint(_mapping: str, key: str, _known: object) -> str:
    return f"{key}: {_OTHER_KEYS[key]}" if key in _OTHER_KEYS else ""


def _check_targets(item: Item, scenario: GuestScenario) -> None:
    if not scenario.targets:
        return
    if len(scenario.targets) < len(scenario.guests):
        raise item.peek(GUESTS).error(
            "guests: some run already, and some are to be started in networks apart from those; "
            "write two files, or start them all yourself"
        )
    if scenario.is_of_pods and not all(map(is_pod_word, scenario.targets.values())):
        raise item.peek(GUESTS).error(
            "guests: some are pods, and some run on this machine, in networks apart from those; "
            "write two files"
        )
    if scenario.client is not None and ADDRESS in holes(scenario.client.command):
        raise (
            item.peek(CLIENT)
            .peek("command")
            .error(
                f"command has {{{ADDRESS}}}: beside guests that run already the client has this "
                "machine's network, and no address of its own; remove it"
            )
        )
    for index, step in enumerate(scenario.timeline):
        if why := why_not_of_others(step.action, is_of_pods=scenario.is_of_pods):
            raise item.peek("timeline").items()[index].peek("do").refuse(why)


def why_not_of_others(action: object, *, is_of_pods: bool) -> str:
    """Return why something cannot be done to what runs already; empty if it can."""
    if isinstance(action, faults.Crash | faults.Restart):
        other = "partition" if is_of_pods else "pause"
        return f"what runs already is not started again here; choose {other}, or attack kill"
    if is_of_pods and isinstance(action, faults.Pause):
        return f"{NO_PAUSE}; choose partition"
    return ""


def _whole(guests: Names, everyone: Names, run: float, path: str, text: str) -> Shape:
    def check(item: Item, scenario: GuestScenario) -> None:
        if scenario.client is None and scenario.expect is None:
            raise item.error("nothing would be judged: add a client, or expect: {ready_within: …}")
        if scenario.expect is not None and not any(one.ready for one in scenario.guests):
            raise item.peek("expect").error(
                "expect: no guest says how it is known to be ready; add ready to one"
            )
        _check_targets(item, scenario)
        steps = item.peek("timeline").items() if item.has("timeline") else ()
        check_timeline(zip(steps, scenario.timeline, strict=True), run)

    def make(**values: Any) -> GuestScenario:  # noqa: ANN401 of the shape below
        return GuestScenario(path=path, text=text, **values)

    return Shape(
        make,
        {
            "name": Key("name", word(_NAME, "use small letters, digits and dashes")),
            "about": Key("about", TEXT, ""),
            GUESTS: Key("guests", _guests(everyone)),
            CLIENT: Key("client", _client(everyone).notation(), None),
            "timeline": Key("timeline", list_of(_step(guests, everyone)), ()),
            "expect": Key("expect", _EXPECT.notation(), None),
            "limits": Key("limits", _LIMITS.notation(), GuestLimits()),
        },
        check,
        hint=_hint,
    )
