"""The timeline of a scenario file: the keys of each action, and the checks across steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import cycle, permutations
from typing import Any, Final

from stormcast.chaos import faults
from stormcast.chaos.faults import RANDOM, ROLES, SHAPES, Action, Names
from stormcast.chaos.language.members import members_of
from stormcast.chaos.language.packet_faults import (
    DEEDS,
    PACKETS,
    asks_scapy,
    check_deed,
    check_names,
)
from stormcast.chaos.language.protocol_settings import attribute_value
from stormcast.node.core import wire
from stormcast.node.core.errors import ConfigError, suggestion
from stormcast.node.core.match import Match
from stormcast.node.reading.items import Item
from stormcast.node.reading.matches import match_keys
from stormcast.node.reading.notations import (
    POSITIVE_TIME,
    TIME,
    Notation,
    Plain,
    list_of,
    one_of,
    quantity,
    some_of,
    whole,
    word,
)
from stormcast.node.reading.quantities import BANDWIDTH, DURATION, SHARE
from stormcast.node.reading.shapes import Key, Shape

RULES: Final = ("drop", "delay", "hold", "duplicate", "corrupt")
HALVES: Final = ("both", "sender", "receiver")
LASTING: Final = (
    faults.NetworkFault,
    faults.Crash,
    faults.Pause,
    faults.Stall,
    faults.Leave,
    faults.Churn,
)
"""Actions that may have a duration (`for:`)."""
FLAPPING: Final = (faults.Partition, faults.LinkFault)
"""Actions that may come and go (`every:`, `up:`)."""
FEWEST: Final = {"bridge": 3, "ring": 4, "majorities": 4}
"""The fewest members of which a partition of each shape can be made."""
CURES: Final = (faults.Heal, faults.Release, faults.Resume, faults.Consume)
"""Actions that end faults, and so have no name of their own."""

_FAULT_NAME: Final = re.compile(r"(?!(?:f\d+|network)$)[a-z][a-z0-9-]{0,62}")
_ATTRIBUTE: Final = re.compile(r"([A-Z][A-Z0-9_]{0,31}\.)?[a-z][a-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An action and its time, seconds from the start of the run."""

    at: float
    action: Action
    name: str | None = None
    """The fault's id, by which `heal` and `release` call it; None: the schedule numbers it."""
    duration: float | None = None
    """Seconds until the action is undone (`for:`); None: until something else undoes it."""
    every: float | None = None
    """Seconds from one beginning of the fault to the next; None: it does not come and go."""
    up: float | None = None
    """Seconds at the end of each such period without the fault."""
    line: int = field(default=0, compare=False)
    """The line of the file in which the step stands; not compared."""


NAME: Final = word(
    _FAULT_NAME,
    "use small letters, digits and dashes, and not network, f1, f2 …: these are taken",
)
_SHARE: Final = quantity(SHARE, above_zero=True)

_SETTING: Final = word(_ATTRIBUTE, "name a setting, such as xmit_interval or NAKACK2.xmit_interval")

AT: Final = {"at": Key("at", TIME)}
FOR: Final = {"for": Key("duration", POSITIVE_TIME, None)}
NAMED: Final = {"name": Key("name", NAME, None)}
FLAPS: Final = {
    "every": Key("every", POSITIVE_TIME, None),
    "up": Key("up", POSITIVE_TIME, None),
}


@dataclass(frozen=True, slots=True)
class _ChangeShape(Shape):
    """The shape of `set-attribute`: how its value is read follows from the name of the setting."""

    def read(self, item: Item, besides: Collection[str] = ()) -> Any:  # noqa: ANN401 as its base
        return self._shape(_SETTING.read(item.peek("attribute"))).read(item, besides)

    def write(self, record: Any) -> dict[str, Plain]:  # noqa: ANN401 as its base
        return self._shape(record.attribute).write(record)

    def _shape(self, attribute: str) -> Shape:
        value = {"value": Key("value", attribute_value(attribute))}
        return Shape(self.make, self.keys | value)


def _groups(members: Names) -> Notation:
    listed = list_of(list_of(one_of(members, "member"), at_least=1), at_least=1)

    def read(item: Item) -> tuple[tuple[Names, ...], str]:
        if item.is_list():
            groups: tuple[Names, ...] = listed.read(item)
            return groups, RANDOM
        shape = item.one_of(SHAPES, "way to group; list the groups ([[n0], [n1]])")
        if len(members) == 1:
            raise item.refuse("one member cannot be parted")
        if len(members) < FEWEST.get(shape, 0):
            raise item.refuse(f"it takes {FEWEST[shape]} members or more; choose another")
        return (), shape

    def write(value: tuple[tuple[Names, ...], str]) -> Plain:
        groups, shape = value
        return listed.write(groups) if groups else shape

    return Notation(read, write)


def _match(members: Names) -> Shape:
    keys = match_keys(members_of(members, everyone=()))
    return Shape(Match, keys | {"connection": Key("connection", whole(1), None)})


def actions(members: Names) -> dict[str, Shape]:
    """Return every word that may stand behind `do:`, with the keys that belong to it."""
    some, one = members_of(members), one_of(members, "member")
    anyone = {"member": Key("member", one_of([*members, RANDOM, *ROLES], "member"))}
    member, peer = {"member": Key("member", one)}, {"peer": Key("peer", one)}
    links = {"from": Key("sources", some, members), "to": Key("dests", some, members)}
    share = links | {"rate": Key("rate", _SHARE)}

    def on_links(make: type[faults.LinkFault], keys: dict[str, Key]) -> Shape:
        return Shape(make, keys, _checked_links(members))

    return {
        "partition": Shape(
            faults.Partition,
            {"groups": Key(("groups", "shape"), _groups(members))},
            _checked_links(members),
        ),
        "cut": on_links(faults.Cut, links),
        "loss": on_links(faults.Loss, share),
        "gilbert-elliott": on_links(
            faults.GilbertElliott,
            links
            | {
                "p_bad": Key("p_bad", _SHARE),
                "p_good": Key("p_good", _SHARE),
                "loss_bad": Key("loss_bad", _SHARE, 1.0),
                "loss_good": Key("loss_good", quantity(SHARE), 0.0),
            },
        ),
        "nth-loss": on_links(
            faults.NthLoss,
            links | {"nth": Key("nth", whole(2)), "burst": Key("burst", whole(1), 1)},
        ),
        "delay": on_links(
            faults.Delay,
            links | {"delay": Key("delay", TIME), "jitter": Key("jitter", TIME, 0.0)},
        ),
        "duplicate": on_links(faults.Duplicate, share),
        "reorder": on_links(faults.Reorder, share | {"by": Key("by", POSITIVE_TIME)}),
        "corrupt": on_links(faults.Corrupt, share),
        "bandwidth": on_links(
            faults.Bandwidth, links | {"rate": Key("rate", quantity(BANDWIDTH, above_zero=True))}
        ),
        "drop": on_links(faults.DropPackets, links | PACKETS),
        "packets": Shape(faults.AlterPackets, links | PACKETS | DEEDS, _checked_deed(members)),
        "listen": on_links(faults.Listen, links),
        "replay": on_links(
            faults.Replay,
            links
            | {
                "kind": Key("kinds", some_of(wire.KIND_BY_NAME, "kind of frame"), ()),
                "after": Key("after", POSITIVE_TIME),
                "copies": Key("copies", whole(1, 1000), 1),
            },
        ),
        "forge": on_links(
            faults.Forge,
            links
            | {
                "says": Key("says", one_of(faults.FORGERIES, "forgery")),
                "times": Key("times", whole(1, 1000), 1),
            },
        ),
        "rule": Shape(
            faults.Rule,
            {
                "does": Key("does", one_of(RULES, "deed")),
                "match": Key("match", _match(members).notation(), Match()),
                "delay": Key("delay", POSITIVE_TIME, 0.0),
                "copies": Key("copies", whole(1, 100), 1),
                "times": Key("times", whole(1), None),
            },
            _checked_rule(members),
        ),
        "release": Shape(faults.Release, NAMED),
        "heal": Shape(faults.Heal, NAMED),
        "crash": Shape(faults.Crash, anyone),
        "pause": Shape(faults.Pause, anyone),
        "resume": Shape(faults.Resume, member),
        "restart": Shape(faults.Restart, anyone),
        "leave": Shape(faults.Leave, anyone),
        "join": Shape(faults.Join, member),
        "churn": Shape(
            faults.Churn,
            {"members": Key("members", some, members), "every": Key("every", POSITIVE_TIME)},
        ),
        "forget": Shape(
            faults.Forget,
            member | peer | {"half": Key("half", one_of(HALVES, "half"), "both")},
            _check_peer,
        ),
        "close": Shape(faults.Close, member | peer, _check_peer),
        "install-view": Shape(
            faults.InstallView,
            {
                "member": Key("at_members", some),
                "members": Key("members", members_of(members)),
            },
            _check_view,
        ),
        "set-attribute": _ChangeShape(
            faults.SetAttribute,
            member
            | {"attribute": Key("attribute", _SETTING), "value": Key("value", attribute_value(""))},
        ),
        "change-keys": Shape(
            faults.ChangeKeys,
            {"step": Key("step", one_of(faults.KEY_STEPS, "step of a change of keys"))},
        ),
        "stall": Shape(faults.Stall, member),
        "consume": Shape(faults.Consume, member),
    }


def read_step(item: Item, shapes: dict[str, Shape]) -> Step:
    """Read one entry of a timeline."""
    shape = shapes[item.peek("do").one_of(shapes, "fault or action")]
    timing = _timing(shape.make)
    action = read_action(item, shape, besides=["do", *timing.keys])
    line = item.place.line if item.place else 0
    step = Step(action=action, line=line, **timing.read(item, besides=["do", *shape.keys]))
    _check_periods(item, step)
    return step


def read_action(item: Item, shape: Shape, besides: Collection[str]) -> Any:  # noqa: ANN401 of the shape's kind
    """Read an action that somebody writes: scapy must know what it names, too."""
    action = shape.read(item, besides)
    try:
        if isinstance(action, faults.PacketFault) and asks_scapy(action):
            check_names(action)
    except ConfigError as error:
        raise item.error(str(error)) from None
    return action


def _check_periods(item: Item, step: Step) -> None:
    """Refuse a fault that comes and goes without `every`, `up` or `for`, and an endless churn."""
    if isinstance(step.action, faults.Churn):
        if step.duration is None:
            raise item.error("timeline: churn needs the key 'for'; say how long it lasts")
        return
    if (step.every is None) != (step.up is None):
        raise item.error(
            "timeline: every and up need each other: a period, and how much of it is good; "
            "add the other"
        )
    if step.every is None or step.up is None:
        return
    if step.duration is None:
        raise item.peek("every").refuse("it needs the key 'for'; say how long it comes and goes")
    if step.up >= step.every:
        raise item.peek("up").refuse(
            "it must be shorter than every, or nothing is left to go wrong"
        )


def write_step(step: Step, shapes: dict[str, Shape]) -> dict[str, Plain]:
    """Return the mapping that `read_step` turns into an equal step."""
    action, do = step.action, WORDS[type(step.action)]
    words, times = shapes[do].write(action), _timing(type(action)).write(step)
    return {"at": times.pop("at"), "do": do, **words, **times}


def _timing(kind: Callable[..., Any]) -> Shape:
    """Return the keys about the step itself: some actions last, all but cures have a name."""
    lasts = isinstance(kind, type) and issubclass(kind, LASTING)
    flaps = isinstance(kind, type) and issubclass(kind, FLAPPING)
    keys = AT | (FOR if lasts else {}) | (FLAPS if flaps else {})
    return Shape(dict, keys | ({} if kind in CURES else NAMED))


def check_timeline(
    parsed: Iterable[tuple[Item, Step]],
    run: float,
    late: Collection[str] = (),
    *,
    sealed: bool = False,
) -> None:
    """Refuse steps beyond the end of the run, names given twice, cures of what no earlier step
    broke, and changes of keys that no member has, or out of order."""
    due = cycle(faults.KEY_STEPS)
    names: dict[str, Step] = {}
    broken: set[tuple[str, str]] = {("gone", name) for name in late}
    for item, step in sorted(parsed, key=lambda entry: entry[1].at):
        for key, end in (("at", step.at), ("for", step.at + (step.duration or 0.0))):
            if end > run:
                raise item.peek(key).refuse(
                    f"it reaches {DURATION.write(end)}, beyond limits.run ({DURATION.write(run)}); "
                    "raise the limit or begin earlier"
                )
        if step.name in names:
            raise item.peek("name").refuse("another fault has this name; choose another")
        if step.name is not None:
            names[step.name] = step
        if isinstance(step.action, faults.ChangeKeys):
            _check_keys(item, step.action, next(due), sealed=sealed)
        _check_cure(item, step.action, names, broken)
        broken.update(_breaks(step.action))


def _check_cure(
    item: Item, action: Action, names: dict[str, Step], broken: set[tuple[str, str]]
) -> None:
    if isinstance(action, faults.Heal | faults.Release) and action.name is not None:
        if action.name not in names:
            known = suggestion(action.name, names) if names else "; name one (name: …)"
            raise item.peek("name").error(
                f"name is {action.name!r}: no earlier fault has this name{known}"
            )
        if not isinstance(names[action.name].action, faults.NetworkFault):
            raise item.peek("name").refuse("it is no network fault; restart or resume the member")
        named = names[action.name].action
        if isinstance(action, faults.Release) and getattr(named, "does", "") != "hold":
            raise item.peek("name").refuse("it holds no frames; name a rule that does (does: hold)")
    mends = _mends(action)
    if mends and broken.isdisjoint(mends):
        raise item.peek("do").refuse(_NOTHING_TO_MEND[type(action)])


_NOTHING_TO_MEND: Final[dict[type, str]] = {
    faults.Heal: "there is no earlier fault of the network to heal; remove it",
    faults.Release: "there is no earlier rule that holds frames; add one (does: hold)",
    faults.Resume: "the member is not paused before; pause it first",
    faults.Consume: "the member is not stalled before; stall it first",
    faults.Join: "the member is there already; list it under cluster.late, or have it leave before",
}


def _breaks(action: Action) -> Iterator[tuple[str, str]]:
    """Yield what an action breaks: a kind of thing, and the member that it belongs to."""
    match action:
        case faults.NetworkFault():
            yield "network", ""
            if isinstance(action, faults.Rule) and action.does == "hold":
                yield "frames", ""
        case faults.Pause(member=member):
            yield "pause", member
        case faults.Stall(member=member):
            yield "stall", member
        case faults.Crash(member=member) | faults.Leave(member=member):
            yield "gone", member
        case faults.Churn(members=members):
            yield from (("gone", member) for member in members)


def _mends(action: Action) -> set[tuple[str, str]]:
    """Return what a cure mends: one of these must have been broken by an earlier step."""
    match action:
        case faults.Heal():
            return {("network", "")}
        case faults.Release():
            return {("frames", "")}
        case faults.Resume(member=member):
            return {("pause", whoever) for whoever in (member, RANDOM, *ROLES)}
        case faults.Consume(member=member):
            return {("stall", member)}
        case faults.Join(member=member):
            return {("gone", whoever) for whoever in (member, RANDOM, *ROLES)}
    return set()


def _checked_links(members: Names) -> Callable[[Item, faults.NetworkFault], None]:
    def check(item: Item, fault: faults.NetworkFault) -> None:
        if isinstance(fault, faults.Delay) and not fault.delay and not fault.jitter:
            raise item.peek("delay").refuse("it would do nothing; give a delay or a jitter above 0")
        if isinstance(fault, faults.Partition) and not fault.groups:
            return
        if not any(fault.strikes(source, dest) for source, dest in permutations(members, 2)):
            raise item.peek("do").refuse(
                "it is aimed at nobody: no two members are on a link it names"
            )

    return check


def _checked_rule(members: Names) -> Callable[[Item, faults.Rule], None]:
    links = _checked_links(members)

    def check(item: Item, rule: faults.Rule) -> None:
        if rule.does == "delay" and not rule.delay:
            raise item.error("timeline: a rule that delays needs the key 'delay'; add it")
        if rule.does != "delay" and rule.delay:
            raise item.peek("delay").refuse(f"a rule that does {rule.does} has no delay; remove it")
        if rule.does != "duplicate" and rule.copies != 1:
            raise item.peek("copies").refuse(
                f"a rule that does {rule.does} has no copies; remove it"
            )
        links(item, rule)

    return check


def _checked_deed(members: Names) -> Callable[[Item, faults.AlterPackets], None]:
    links = _checked_links(members)

    def check(item: Item, fault: faults.AlterPackets) -> None:
        check_deed(item, fault)
        links(item, fault)

    return check


def _check_peer(item: Item, action: faults.Forget | faults.Close) -> None:
    if action.member == action.peer:
        raise item.peek("peer").refuse("a member has no connection to itself; name another")


def _check_view(item: Item, action: faults.InstallView) -> None:
    for name in action.at_members:
        if name not in action.members:
            raise item.peek("members").refuse(
                f"{name} gets this view but is not in it; add it (V2)"
            )


def _check_keys(item: Item, action: faults.ChangeKeys, due: str, *, sealed: bool) -> None:
    if not sealed:
        raise item.peek("do").refuse("members have no keys; write `sealed: true` under cluster")
    if action.step != due:
        raise item.peek("step").refuse(f"keys change by add, turn, drop, in turns: this is {due}")


WORDS: Final = {shape.make: do for do, shape in actions(("n0",)).items()}
"""Every kind of action, and its word behind `do:`."""
NETWORK_FAULTS: Final = tuple(
    do
    for kind, do in WORDS.items()
    if isinstance(kind, type) and issubclass(kind, faults.NetworkFault)
)
"""The words of the faults that act on the network, and that `heal` ends."""
