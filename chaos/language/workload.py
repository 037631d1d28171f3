"""The loads of a scenario, and what it expects to come of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from stormcast.chaos.faults import Names
from stormcast.chaos.language.members import members_of
from stormcast.node.member.loads import LOADS, Load, message_keys
from stormcast.node.reading.items import Item
from stormcast.node.reading.notations import Notation, Plain, quantity, whole
from stormcast.node.reading.quantities import DURATION, RATE, SIZE
from stormcast.node.reading.shapes import Key, Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioLoad(Load):
    """A load whose members are all named, and which ends."""

    do: str = "unicast"
    count: int = 1000

    def __post_init__(self) -> None:
        # Where no source is a dest, both values mean the same: keep one.
        if set(self.sources).isdisjoint(self.dests):
            object.__setattr__(self, "excludes_self", True)

    @property
    def end(self) -> float:
        """The time at which the last message is offered."""
        return self.start + self.count / self.rate

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield each source with each dest that it sends to."""
        for source in self.sources:
            for dest in self.dests:
                if source != dest or not self.excludes_self:
                    yield source, dest


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """By a time, so many messages have arrived; without a count, all that were accepted."""

    by: float
    sources: Names
    dests: Names
    count: int | None = None

    def wanted(self, sent: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
        """Return how many messages must arrive for each source and dest; `sent` were accepted."""
        pairs = [
            (source, dest)
            for source in self.sources
            for dest in self.dests
            # A member is a dest of itself only where it sends to itself.
            if source != dest or (source, dest) in sent
        ]
        if self.count is None:
            return {pair: sent[pair] for pair in pairs if pair in sent}
        return dict.fromkeys(pairs, self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectView:
    """At a time, some members hold one view, and it has exactly these members."""

    by: float
    seen_by: Names
    view: Names


def _dests(members: Names) -> Notation:
    """Read and write `others`, `all`, or names of members. Only with `others` does a source not
    send to itself."""
    named = members_of(members)

    def read(item: Item) -> tuple[Names, bool]:
        if not item.is_list():
            word = item.one_of(["all", "others", *members], "member")
            if word in ("all", "others"):
                return members, word == "others"
        return named.read(item), False

    def write(value: tuple[Names, bool]) -> Plain:
        dests, excludes_self = value
        return "others" if dests == members and excludes_self else named.write(dests)

    return Notation(read, write)


def load_shapes(members: Names) -> dict[str, Shape]:
    """Return the keys of a load, by its kind."""
    keys = {
        "from": Key("sources", members_of(members), members),
        **message_keys(DURATION, RATE, SIZE),
    }
    to = {"to": Key(("dests", "excludes_self"), _dests(members), (members, True))}
    everyone = partial(ScenarioLoad, do="multicast", dests=members, excludes_self=False)
    return {
        "unicast": Shape(partial(ScenarioLoad, do="unicast"), keys | to, _check_load),
        "multicast": Shape(everyone, keys),
    }


def _check_load(item: Item, load: ScenarioLoad) -> None:
    if not any(load.pairs()):
        raise item.peek("do").refuse("it sends to nobody; name a dest other than the source")


def load_notation(members: Names) -> Notation:
    """Return the notation of one entry of a workload."""
    shapes = load_shapes(members)

    def read(item: Item) -> ScenarioLoad:
        load: ScenarioLoad = shapes[item.peek("do").one_of(LOADS, "load")].read(
            item, besides=["do"]
        )
        return load

    def write(load: ScenarioLoad) -> Plain:
        overlap = set(load.sources) & set(load.dests)
        assert load.dests == members or not (load.excludes_self and overlap), (
            "a file can leave out the sender only with `to: others`"
        )
        return {"do": load.do, **shapes[load.do].write(load)}

    return Notation(read, write)


class _Delivered(NamedTuple):
    """The value of the key `delivered`."""

    sources: Names
    dests: Names
    messages: int | None = None


def expect_shape(members: Names) -> Shape:
    """Return the shape of an expectation about deliveries."""
    some = members_of(members)
    chosen = Shape(
        _Delivered,
        {
            "from": Key("sources", some, members),
            "to": Key("dests", some, members),
            "count": Key("messages", whole(1), None),
        },
    )

    def read(item: Item) -> _Delivered:
        if not item.is_mapping():
            item.one_of(["all"], "expectation; write all, or {from, to, count}")
            return _Delivered(members, members)
        delivered: _Delivered = chosen.read(item)
        return delivered

    def write(value: tuple[Names, Names, int | None]) -> Plain:
        return chosen.write(_Delivered(*value)) or "all"

    return Shape(
        Expect,
        {
            "by": Key("by", quantity(DURATION)),
            "delivered": Key(("sources", "dests", "count"), Notation(read, write)),
        },
    )


def expect_view_shape(members: Names) -> Shape:
    """Return the shape of an expectation about a view."""
    some = members_of(members)
    return Shape(
        ExpectView,
        {
            "by": Key("by", quantity(DURATION)),
            "seen_by": Key("seen_by", some),
            "view": Key("view", some),
        },
        _check_view,
    )


def _check_view(item: Item, expect: ExpectView) -> None:
    for name in expect.seen_by:
        if name not in expect.view:
            raise item.peek("view").refuse(f"{name} is to see this view but is not in it (V2)")


def expect_notation(members: Names) -> Notation:
    """Return the notation of one expectation, of either kind."""
    delivered, viewed = expect_shape(members), expect_view_shape(members)

    def read(item: Item) -> Expect | ExpectView:
        is_view = item.has("view") or item.has("seen_by")
        expect: Expect | ExpectView = (viewed if is_view else delivered).read(item)
        return expect

    def write(expect: Expect | ExpectView) -> Plain:
        return (viewed if isinstance(expect, ExpectView) else delivered).write(expect)

    return Notation(read, write)


def check_workload(parsed: Iterable[tuple[Item, ScenarioLoad]], run: float) -> None:
    """Refuse loads that cannot end within the run."""
    for item, load in parsed:
        if load.end > run:
            raise item.error(
                f"{load.do}: the last of {load.count} messages is offered at {load.end:g}s, "
                f"beyond limits.run ({DURATION.write(run)}); send fewer, faster or earlier"
            )


def check_expectations(
    parsed: Iterable[tuple[Item, Expect | ExpectView]], workload: Iterable[ScenarioLoad], run: float
) -> None:
    """Refuse expectations that come too late to fail, and those that no load can meet."""
    offered: Counter[tuple[str, str]] = Counter()
    for load in workload:
        for pair in load.pairs():
            offered[pair] += load.count
    for item, expect in parsed:
        if expect.by > run:
            raise item.peek("by").refuse(
                f"it is beyond limits.run ({DURATION.write(run)}); expect it earlier"
            )
        if isinstance(expect, ExpectView):
            continue
        wanted = expect.wanted(offered)
        if not wanted:
            raise item.peek("delivered").error("delivered: no load sends anything there; add one")
        for (source, dest), count in wanted.items():
            if count > offered[source, dest]:
                raise item.peek("delivered").error(
                    f"delivered: {count} messages are expected from {source} to {dest}, "
                    f"but the workload sends {offered[source, dest]}; expect fewer or send more"
                )
