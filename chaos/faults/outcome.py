"""Decides whether, when and how a frame arrives on a path: for simulated frames and, where nftables
cannot decide alone, for real packets.

The order of the faults, and what counts as a bite, are those of docs/scenarios.md. Bites of every
fault are counted, because a fault that never bit proves nothing; the network's own delay is no
fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Final, NamedTuple

from stormcast.chaos.faults.fate import Fate, unit
from stormcast.chaos.faults.paths import ActingRule, Ends, Path
from stormcast.node.core.wire import identity, read_preamble

QUEUE_SECONDS: Final = 0.25
"""Seconds that a frame waits for bandwidth at most: those that would wait longer are dropped."""
COPY_GAP: Final = 0.0005
"""Seconds by which a duplicate follows its original at least, and each copy the one before."""
GOLDEN: Final = 0x9E3779B97F4A7C15
"""The golden ratio spreads the bits that a rule flips over the frame."""
_KEY_MASK: Final = (1 << 64) - 1

PASS: Final = "pass"  # noqa: S105 no secret
DROP: Final = "drop"
HOLD: Final = "hold"


class FrameOutcome(NamedTuple):
    """The decision on one frame."""

    does: str
    """PASS, DROP or HOLD."""
    at: float = 0.0
    """The time at which it arrives."""
    flips: tuple[int, ...] = ()
    """Numbers that choose one bit each, to be flipped; copies are not damaged."""
    copies: tuple[float, ...] = ()
    """The time at which each of its copies arrives."""
    held_by: str = ""
    """The id of the rule that holds it."""


LOST: Final = FrameOutcome(DROP)


class Decider:
    """Decides on frames, with one function for their fates, and counts the bites of faults."""

    __slots__ = ("_fate", "bites")

    def __init__(self, fate: Fate) -> None:
        self.bites: defaultdict[str, defaultdict[Ends, int]] = defaultdict(_counts)
        """By fault and path, the number of frames that the fault has affected."""
        self._fate = fate

    def counted(self) -> dict[str, dict[Ends, int]]:
        """A copy of the bites."""
        return {fault: dict(counts) for fault, counts in self.bites.items()}

    def forget(self, acting: Collection[str]) -> None:
        """Forget the bites of faults that are not among these."""
        for fault in self.bites.keys() - acting:
            del self.bites[fault]

    def decide(self, path: Path, frame: bytes, size: int, now: float) -> FrameOutcome:
        """Decide on a frame of `size` bytes; `frame` may be its preamble alone."""
        rule = self.rule_for(path, frame) if path.is_watched else None
        if rule is not None:
            return self.by_rule(rule, path, now)
        return self.after_rules(path, frame, size, now)

    def after_rules(self, path: Path, frame: bytes, size: int, now: float) -> FrameOutcome:
        """Decide on a frame that no rule took."""
        if path.blocked_by and self.is_blocked(path):
            return LOST
        return self.after_cuts(path, identity(frame), size, now)

    def after_cuts(self, path: Path, known: bytes | None, size: int, now: float) -> FrameOutcome:
        """Decide on a frame, or a packet, of this identity that no cut took."""
        if path.losses and known is not None and self.is_lost(path, known):
            return LOST
        return self.after_losses(path, known, size, now)

    def rule_for(self, path: Path, frame: bytes) -> ActingRule | None:
        """Return the first rule that takes a frame, or None. On a path that is cut none does."""
        head = read_preamble(frame)
        if path.connections is not None:
            path.connections.note(head)
        for rule in () if path.blocked_by else path.rules:
            if rule.matcher.takes(head):
                self.bites[rule.fault][path.ends] += 1
                return rule
        return None

    def by_rule(self, acting: ActingRule, path: Path, now: float) -> FrameOutcome:
        """Return what a rule does with a frame. The path delays what arrives all the same."""
        if acting.rule.does != "drop":
            self.note_delay(path)
        return outcome_of(acting, now + path.delay)

    def is_blocked(self, path: Path) -> bool:
        """Whether a path is cut. Counts a bite of each of its cuts."""
        self._bite_all(path.blocked_by, path)
        return bool(path.blocked_by)

    def is_lost(self, path: Path, known: bytes) -> bool:
        """Whether a plain loss takes a frame of this identity."""
        fate = self._fate
        for fault, key, below, _amount in path.losses:
            if fate(known, key) < below:
                self.bites[fault][path.ends] += 1
                return True
        return False

    def is_lost_by_model(self, path: Path) -> bool:
        """Whether a loss with a memory takes the next frame. All models of the path count it."""
        struck = [model.fault for model in path.models if model.loses()]
        self._bite_all(struck, path)
        return bool(struck)

    def fails(self, path: Path, frame: bytes, attempt: int) -> bool:
        """Whether a connection has to transmit a frame again, because it is lost or damaged. Each
        attempt has dice of its own."""
        if path.blocked_by and self.is_blocked(path):
            return True
        if path.is_plain and not path.losses:
            return False
        known = identity(frame)
        for fault, key, below, _amount in path.losses + path.corrupts:
            if self._fate(known, (key + attempt) & _KEY_MASK) < below:
                self.bites[fault][path.ends] += 1
                return True
        return bool(path.models) and self.is_lost_by_model(path)

    def after_losses(self, path: Path, known: bytes | None, size: int, now: float) -> FrameOutcome:
        """Decide on a frame that no cut, rule or plain loss took. A packet without an identity,
        which is no frame, is only delayed, or dropped by a bandwidth limit."""
        if known is not None and path.models and self.is_lost_by_model(path):
            return LOST
        at = now + path.delay
        self.note_delay(path)
        if path.limit is not None:
            wait = self._wait(path, size, now)
            if wait is None:
                return LOST
            at += wait
        flips: tuple[int, ...] = ()
        copies: tuple[float, ...] = ()
        if known is not None and path.has_chances:
            at = self.late(path, known, at)
            flips, copies = self._flips(path, known), self.copies(path, known, at)
        # This costs a third of `FrameOutcome(…)`, which is a function written in Python.
        return tuple.__new__(FrameOutcome, (PASS, at, flips, copies, ""))

    def late(self, path: Path, known: bytes, at: float) -> float:
        """Return the time at which a frame arrives, after jitter and reordering."""
        fate = self._fate
        for fault, key, _below, amount in path.jitters:
            at += amount * unit(fate(known, key))
            self.bites[fault][path.ends] += 1
        for fault, key, below, amount in path.reorders:
            if fate(known, key) < below:
                at += amount
                self.bites[fault][path.ends] += 1
        return at

    def copies(self, path: Path, known: bytes, at: float) -> tuple[float, ...]:
        """Return the times at which the copies of a frame arrive; it arrives itself at `at`."""
        found: tuple[float, ...] = ()
        for fault, key, below, amount in path.duplicates:
            if self._fate(known, key) < below:
                found += (at + COPY_GAP + amount * unit(self._fate(known, key + 1)),)
                self.bites[fault][path.ends] += 1
        return found

    def let_go(self, path: Path, now: float) -> FrameOutcome:
        """Decide on a frame that a rule held, by its path as it is now."""
        return LOST if self.is_blocked(path) else FrameOutcome(PASS, now + path.delay)

    def note_delay(self, path: Path) -> None:
        """Count a bite of each fault that delays a path."""
        for fault in path.delayed_by:
            self.bites[fault][path.ends] += 1

    def _flips(self, path: Path, known: bytes) -> tuple[int, ...]:
        found: tuple[int, ...] = ()
        for fault, key, below, _amount in path.corrupts:
            if self._fate(known, key) < below:
                found += (self._fate(known, key + 1),)
                self.bites[fault][path.ends] += 1
        return found

    def _wait(self, path: Path, size: int, now: float) -> float | None:
        """Return the seconds that a frame waits for bandwidth and takes to pass; None: no room."""
        limit = path.limit
        assert limit is not None
        start = max(now, limit.busy_until)
        has_room = start - now <= QUEUE_SECONDS
        if has_room:
            limit.busy_until = start + size / limit.rate
        if not has_room or limit.busy_until > now + path.delay / 100:
            self.bites[limit.fault][path.ends] += 1
        return limit.busy_until - now if has_room else None

    def _bite_all(self, struck: tuple[str, ...] | list[str], path: Path) -> None:
        for fault in struck:
            self.bites[fault][path.ends] += 1


def _counts() -> defaultdict[Ends, int]:
    return defaultdict(int)


def outcome_of(acting: ActingRule, at: float) -> FrameOutcome:
    """Return what a rule does with a frame that would arrive at `at`."""
    rule = acting.rule
    match rule.does:
        case "hold":
            return FrameOutcome(HOLD, at, held_by=acting.fault)
        case "delay":
            return FrameOutcome(PASS, at + rule.delay)
        case "duplicate":
            return FrameOutcome(
                PASS, at, copies=tuple(at + copy * COPY_GAP for copy in range(1, rule.copies + 1))
            )
        case "corrupt":
            return FrameOutcome(PASS, at, flips=(acting.matcher.taken * GOLDEN,))
    return LOST


def damaged(data: bytes, flips: tuple[int, ...], begin: int = 0) -> bytes:
    """Return the data with one bit flipped for each number, none of them before byte `begin`."""
    if not flips:
        return data
    changed = bytearray(data)
    for drawn in flips:
        bit = drawn % ((len(data) - begin) * 8)
        changed[begin + (bit >> 3)] ^= 1 << (bit & 7)
    return bytes(changed)
