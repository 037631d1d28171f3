"""Test protocols: they lose, delay, repeat and reorder what passes their place in a stack.

Directly above the transport they are a bad network; between two protocols, a faulty neighbour. Each
takes the items that pass its place, and returns those that go on: at once, or when `release` is
due. All chance comes from the dice it was given, so a run replays; `count` says how often it
struck, and the stack traces that, because a checker must be able to tell a fault from a bug.

Above the reliable protocols, what goes up are deliveries: items whose head describes them and whose
data is opaque.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import Any, ClassVar, Final, NamedTuple

from stormcast.node.core import wire
from stormcast.node.core.errors import require
from stormcast.node.core.match import ANYTHING, Direction, Match, Matcher
from stormcast.node.core.wire import Head
from stormcast.node.reading.config_shapes import Share, shape_of
from stormcast.node.reading.items import PlainItem

MAX_COPIES: Final = 16
MAX_HELD: Final = 4096
"""Items that a test protocol holds back per direction at most."""


class Item(NamedTuple):
    """A frame or a delivery that passes."""

    peer: int
    """On the way down its destination (a short id, or the group), on the way up its source."""
    head: Head
    data: Any


Items = list[Item]


@dataclass(frozen=True, slots=True, kw_only=True)
class TestProtocolConfig:
    """Settings that all test protocols share."""

    __test__: ClassVar[bool] = False
    """For pytest: no class of tests, though it is called so."""

    settable: ClassVar[frozenset[str]] = frozenset()
    """Settings that may change while the stack runs."""

    match: Match = field(default=ANYTHING)
    """Selects the items that the test protocol strikes; all others pass untouched."""


class TestProtocol:
    """A place in the stack. The base class lets everything pass."""

    __test__: ClassVar[bool] = False

    config_type: ClassVar[type[Any]] = TestProtocolConfig
    loses: ClassVar[bool] = False
    """Whether items that it strikes are lost, and not merely late, doubled or out of order."""

    def __init__(
        self, config: TestProtocolConfig, dice: Random, name_of: Callable[[int], str]
    ) -> None:
        self.config = config
        self.dice = dice
        self.count = 0
        """Items struck so far."""
        self._name_of = name_of
        self._matcher = Matcher(config.match)

    def down(self, items: Items, now: float) -> Items:
        """Take items on their way down; return those that go on."""
        return self._through(items, "down", now)

    def up(self, items: Items, now: float) -> Items:
        """Take items on their way up; return those that go on."""
        return self._through(items, "up", now)

    def next_deadline(self) -> float:
        """Return when to call `release` next; infinity when nothing waits for time."""
        return inf

    def release(self, now: float) -> tuple[Items, Items]:
        """Return the items that were held back and are due: those that go down, those that go up.
        At `now` infinity, all items are due."""
        return [], []

    def _through(self, items: Items, direction: Direction, now: float) -> Items:
        passed: Items = []
        for item in items:
            if self._is_for(item, direction) and self._matcher.takes(item.head):
                self._strike(item, direction, now, passed)
            else:
                passed.append(item)
        return passed

    def _is_for(self, item: Item, direction: Direction) -> bool:
        """Whether an item passes in the direction, and between the members, of the match."""
        match, dest = self.config.match, item.peer if direction == "down" else item.head.dest
        return (
            match.direction in ("both", direction)
            and self._is_named(match.sources, item.head.source)
            and self._is_named(match.dests, dest)
        )

    def _is_named(self, names: tuple[str, ...], member: int) -> bool:
        """Whether a member, or the group, is among `names`; without names, any member is."""
        if not names:
            return True
        if member <= wire.GROUP:
            return "group" in names
        return self._name_of(member) in names or f"{member:08x}" in names

    def _strike(self, item: Item, direction: Direction, now: float, passed: Items) -> None:
        """Apply the protocol's fault to `item`; append what goes on at once to `passed`."""
        passed.append(item)


# -- DISCARD, DROP ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardConfig(TestProtocolConfig):
    """Settings of DISCARD."""

    up: Share = 0.0
    """Share of what comes that is lost."""

    down: Share = 0.0
    """Share of what leaves that is lost."""

    next_unicasts: int = 0
    """So many of the first items to single members do not leave."""

    next_multicasts: int = 0
    """So many of the first items to the group do not leave."""

    ignored: tuple[str, ...] = ()
    """Members of whom nothing comes through: this cuts one way only."""

    def __post_init__(self) -> None:
        for name in ("up", "down"):
            share = getattr(self, name)
            require(0 <= share <= 1, f"discard.{name} is {share:g}: it must be 0..1")
        for name in ("next_unicasts", "next_multicasts"):
            number = getattr(self, name)
            require(number >= 0, f"discard.{name} is {number}: it must not be negative")


class Discard(TestProtocol):
    """DISCARD: loses a share of what passes, the next few items, or all of one member."""

    config_type = DiscardConfig
    loses = True
    config: DiscardConfig

    def __init__(self, config: DiscardConfig, dice: Random, name_of: Callable[[int], str]) -> None:
        super().__init__(config, dice, name_of)
        self.next_unicasts = config.next_unicasts
        """Still to be lost; may be set again at any time."""
        self.next_multicasts = config.next_multicasts

    def _strike(self, item: Item, direction: Direction, now: float, passed: Items) -> None:
        if self._loses(item, direction):
            self.count += 1
        else:
            passed.append(item)

    def _loses(self, item: Item, direction: Direction) -> bool:
        if direction == "up":
            ignored = self.config.ignored
            if ignored and self._is_named(ignored, item.head.source):
                return True
            return self.dice.random() < self.config.up
        if item.peer > wire.GROUP and self.next_unicasts:
            self.next_unicasts -= 1
            return True
        if item.peer <= wire.GROUP and self.next_multicasts:
            self.next_multicasts -= 1
            return True
        return self.dice.random() < self.config.down


class Drop(TestProtocol):
    """DROP: loses what matches."""

    loses = True

    def _strike(self, item: Item, direction: Direction, now: float, passed: Items) -> None:
        self.count += 1


# -- DUPLICATE -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateConfig(TestProtocolConfig):
    """Settings of DUPLICATE."""

    copies: int = 1
    """Extra copies, right behind the original."""

    def __post_init__(self) -> None:
        require(
            0 < self.copies <= MAX_COPIES,
            f"duplicate.copies is {self.copies}: it must be 1..{MAX_COPIES}",
        )


class Duplicate(TestProtocol):
    """DUPLICATE: passes on copies."""

    config_type = DuplicateConfig
    config: DuplicateConfig

    def _strike(self, item: Item, direction: Direction, now: float, passed: Items) -> None:
        self.count += 1
        passed += [item] * (1 + self.config.copies)


# -- DELAY -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayConfig(TestProtocolConfig):
    """Settings of DELAY."""

    delay: float = 0.1
    """Seconds that each item is held back."""

    jitter: float = 0.0
    """The most seconds that are added to the delay, drawn for each item: this reorders."""

    keep_order: bool = False
    """True: nobody overtakes among those held back."""

    def __post_init__(self) -> None:
        require(self.delay >= 0, f"delay.delay is {self.delay:g}: it must not be negative")
        require(self.jitter >= 0, f"delay.jitter is {self.jitter:g}: it must not be negative")
        require(
            self.delay + self.jitter > 0,
            "delay.delay and delay.jitter are 0: nothing would be delayed; set one",
        )


class Delay(TestProtocol):
    """DELAY: holds each item back for a time of its own."""

    config_type = DelayConfig
    config: DelayConfig

    def __init__(self, config: DelayConfig, dice: Random, name_of: Callable[[int], str]) -> None:
        super().__init__(config, dice, name_of)
        self._held: list[tuple[float, int, Direction, Item]] = []
        self._latest: dict[str, float] = {"up": 0.0, "down": 0.0}

    def _strike(self, item: Item, direction: Direction, now: float, passed: Items) -> None:
        if len(self._held) >= 2 * MAX_HELD:
            # When it is full, DELAY lets items pass at once: it must not lose any.
            passed.append(item)
            return
        due = now + self.config.delay
        if self.config.jitter:
            due += self.dice.random() * self.config.jitter
        if self.config.keep_order:
            due = self._latest[direction] = max(due, self._latest[direction])
        self.count += 1
        # The number keeps the order of items that are due together.
        heappush(self._held, (due, self.count, direction, item))

    def next_deadline(self) -> float:
        return self._held[0][0] if self._held else inf

    def release(self, now: float) -> tuple[Items, Items]:
        going: dict[str, Items] = {"up": [], "down": []}
        while self._held and self._held[0][0] <= now:
            _due, _number, direction, item = heappop(self._held)
            going[direction].append(item)
        return going["down"], going["up"]


# -- SHUFFLE, REVERSE ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldConfig(TestProtocolConfig):
    """Settings of SHUFFLE and of REVERSE."""

    max_size: int = 10
    """So many items are collected per direction, then passed on."""

    max_time: float = 1.5
    """Seconds after the first of them when they are passed on, however few there are."""

    def __post_init__(self) -> None:
        require(
            0 < self.max_size <= MAX_HELD,
            f"max_size is {self.max_size}: it must be 1..{MAX_HELD}",
        )
        require(self.max_time > 0, f"max_time is {self.max_time:g}: it must be positive")


class Hold(TestProtocol):
    """Collects items, and passes them on in another order."""

    config_type = HoldConfig
    config: HoldConfig

    def __init__(self, config: HoldConfig, dice: Random, name_of: Callable[[int], str]) -> None:
        super().__init__(config, dice, name_of)
        self._held: dict[Direction, Items] = {"up": [], "down": []}
        self._due: dict[Direction, float] = {"up": inf, "down": inf}

    def _strike(self, item: Item, direction: Direction, now: float, passed: Items) -> None:
        self.count += 1
        held = self._held[direction]
        if not held:
            self._due[direction] = now + self.config.max_time
        held.append(item)
        if len(held) >= self.config.max_size:
            passed += self._let_go(direction)

    def next_deadline(self) -> float:
        return min(self._due.values())

    def release(self, now: float) -> tuple[Items, Items]:
        down = self._let_go("down") if self._due["down"] <= now else []
        up = self._let_go("up") if self._due["up"] <= now else []
        return down, up

    def _let_go(self, direction: Direction) -> Items:
        held, self._held[direction] = self._held[direction], []
        self._due[direction] = inf
        return self._ordered(held)

    def _ordered(self, held: Items) -> Items:
        raise NotImplementedError


class Shuffle(Hold):
    """SHUFFLE: passes items on in random order."""

    def _ordered(self, held: Items) -> Items:
        self.dice.shuffle(held)
        return held


class Reverse(Hold):
    """REVERSE: passes the last item on first."""

    def _ordered(self, held: Items) -> Items:
        return held[::-1]


TEST_PROTOCOLS: Final[dict[str, type[TestProtocol]]] = {
    "DISCARD": Discard,
    "DROP": Drop,
    "DELAY": Delay,
    "DUPLICATE": Duplicate,
    "SHUFFLE": Shuffle,
    "REVERSE": Reverse,
}
"""By the name that stack files use."""


def read_test_protocol(name: str, values: Mapping[str, object]) -> TestProtocolConfig:
    """Settings from a stack file: durations with a unit, `match` as a mapping."""
    known = ", ".join(TEST_PROTOCOLS)
    require(name in TEST_PROTOCOLS, f"unknown test protocol {name}; known: {known}")
    shape = shape_of(TEST_PROTOCOLS[name].config_type)
    config: TestProtocolConfig = shape.read(PlainItem(values, name))
    return config
