"""The simulated network: a directed path per pair of members, and what is done to frames on it.

A path without faults costs one comparison per fault kind. Every fault counts what it did, because a
fault that did nothing proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from chaos.faults.fate import Fate, fate_key, threshold, unit
from chaos.faults.loss_models import LossModel, make_model
from chaos.faults.message_rules import RuleState

QUEUE_SECONDS: Final = 0.25
"""A bandwidth limit queues this much, and drops what would wait longer."""
DUPLICATE_GAP: Final = 0.0005
"""Seconds by which a duplicate follows its original at least."""
NOWHERE: Final = ("", "")
"""The path of what is done to a member."""


class Dice(NamedTuple):
    """A fault that strikes frames by chance, on one path."""

    fault: str
    key: int
    below: int
    amount: float = 0.0


class Path:
    """What happens to frames from one member to another."""

    __slots__ = (
        "bandwidth",
        "blocked_by",
        "busy_until",
        "corrupts",
        "delay",
        "delayed_by",
        "duplicates",
        "ends",
        "is_plain",
        "jitters",
        "limited_by",
        "losses",
        "models",
        "reorders",
        "rules",
    )

    def __init__(self, delay: float) -> None:
        self.ends = NOWHERE
        self.delay = delay
        self.delayed_by: tuple[str, ...] = ()
        self.blocked_by: tuple[str, ...] = ()
        self.losses: tuple[Dice, ...] = ()
        self.models: tuple[LossModel, ...] = ()
        self.jitters: tuple[Dice, ...] = ()
        self.reorders: tuple[Dice, ...] = ()
        self.duplicates: tuple[Dice, ...] = ()
        self.corrupts: tuple[Dice, ...] = ()
        self.bandwidth = 0.0
        self.limited_by = ""
        self.busy_until = 0.0
        self.rules: tuple[RuleState, ...] = ()

        self.is_plain = True
        """Whether frames are only delayed and lost: the common, and fast, case."""

    def seal(self) -> None:
        """Note, once, whether the path is plain."""
        self.is_plain = not (
            self.rules
            or self.blocked_by
            or self.jitters
            or self.reorders
            or self.duplicates
            or self.corrupts
            or self.bandwidth
            or self.delayed_by
            or self.models
        )


Arrive = Callable[[float, int, bytes], None]
"""When, at whom (short id), what."""
ArriveAtEach = Callable[[float, Sequence[int], bytes], None]


class Network:
    """All paths of a run, and the counts of what faults did."""

    def __init__(self, fate: Fate, seed: int, arrive: Arrive) -> None:
        self.bitten: dict[tuple[str, tuple[str, str]], int] = {}
        """How many frames each fault has affected, by its id and the path; members, under NOWHERE.
        """
        self.connections: dict[tuple[int, int], list[int]] | None = None
        """Connections in order of appearance, kept only where a rule selects by it."""
        self.seed = seed
        """Of the dice."""
        self._fate = fate
        self._arrive = arrive
        self._paths: dict[tuple[str, str], Path] = {}
        self._models: dict[tuple[str, str, str], LossModel] = {}

    def path(self, source: str, dest: str) -> Path:
        """The path between two members, by name; incarnations share it."""
        return self._paths[source, dest]

    def set_path(self, source: str, dest: str, path: Path) -> None:
        """Replace a path, keeping the queue of its bandwidth limit."""
        path.ends = (source, dest)
        before = self._paths.get(path.ends)
        if before is not None:
            path.busy_until = before.busy_until
        self._paths[path.ends] = path

    def on_change(self, now: float) -> None:
        """Paths were replaced. A datagram that waits for bandwidth does so for a moment only."""

    def dice(self, fault: str, kind: str, dest: str, share: float, amount: float = 0.0) -> Dice:
        """A fault's dice at one receiver."""
        return Dice(fault, fate_key(self.seed, f"{fault}/{kind}", dest), threshold(share), amount)

    def model(self, fault: str, source: str, dest: str, action: object) -> LossModel:
        """A fault's model of loss on one path; it outlives the path's rebuilding."""
        key = fault, source, dest
        if key not in self._models:
            dice = fate_key(self.seed, f"{fault}/{source}", dest)
            self._models[key] = make_model(fault, dice, action)
        return self._models[key]

    def bite(self, fault: str, path: Path | None = None, count: int = 1) -> None:
        """Note that a fault had an effect, on a frame of a path or on a member."""
        where = fault, NOWHERE if path is None else path.ends
        self.bitten[where] = self.bitten.get(where, 0) + count

    @property
    def bites(self) -> dict[str, int]:
        """How many frames (or members) each fault has affected."""
        found: dict[str, int] = {}
        for (fault, _ends), count in self.bitten.items():
            found[fault] = found.get(fault, 0) + count
        return found

    def send(self, path: Path, dest: int, frame: bytes, now: float) -> None:
        """Put a frame on a path."""
        if self.connections is not None:
            RuleState.note_connection(self.connections, frame)
        if path.rules and not path.blocked_by:
            for rule in path.rules:
                if rule.takes(frame):
                    self.bite(rule.fault, path)
                    self._apply_rule(rule, path, dest, frame, now)
                    return
        self.pass_on(path, dest, frame, now)

    def send_to_each(
        self, paths: Iterable[tuple[Path, int]], frame: bytes, now: float, arrive: ArriveAtEach
    ) -> None:
        """Put a multicast frame on each path; where nothing but equal delays and losses is in its
        way, it arrives everywhere at once."""
        fate = self._fate
        together: dict[float, list[int]] = {}
        for path, dest in paths:
            if not path.is_plain or self.connections is not None:
                self.send(path, dest, frame, now)
                continue
            for fault, key, below, _amount in path.losses:
                if fate(frame, key) < below:
                    self.bite(fault, path)
                    break
            else:
                together.setdefault(path.delay, []).append(dest)
        for delay, dests in together.items():
            arrive(now + delay, dests, frame)

    def pass_on(self, path: Path, dest: int, frame: bytes, now: float) -> None:
        """The chances and delays of a path, rules apart."""
        if path.blocked_by:
            for fault in path.blocked_by:
                self.bite(fault, path)
            return
        fate = self._fate
        for fault, key, below, _amount in path.losses:
            if fate(frame, key) < below:
                self.bite(fault, path)
                return
        if path.is_plain:
            self._arrive(now + path.delay, dest, frame)
            return
        self._pass_through_faults(path, dest, frame, now)

    def is_lost_by_model(self, path: Path) -> bool:
        """Whether a loss with a memory takes the next frame of a path; all of them see it."""
        struck = [model.fault for model in path.models if model.loses()]
        for fault in struck:
            self.bite(fault, path)
        return bool(struck)

    def _pass_through_faults(self, path: Path, dest: int, frame: bytes, now: float) -> None:
        fate = self._fate
        at = now + path.delay
        if path.models and self.is_lost_by_model(path):
            return
        for fault in path.delayed_by:
            self.bite(fault, path)
        if path.bandwidth:
            start = max(now, path.busy_until)
            if start - now > QUEUE_SECONDS:
                self.bite(path.limited_by, path)
                return
            path.busy_until = start + len(frame) / path.bandwidth
            if path.busy_until > now + path.delay / 100:
                self.bite(path.limited_by, path)
            at += path.busy_until - now
        for fault, key, _below, amount in path.jitters:
            at += amount * unit(fate(frame, key))
            self.bite(fault, path)
        for fault, key, below, amount in path.reorders:
            if fate(frame, key) < below:
                at += amount
                self.bite(fault, path)
        for fault, key, below, amount in path.duplicates:
            drawn = fate(frame, key)
            if drawn < below:
                self._arrive(at + DUPLICATE_GAP + amount * unit(fate(frame, key + 1)), dest, frame)
                self.bite(fault, path)
        for fault, key, below, _amount in path.corrupts:
            if fate(frame, key) < below:
                frame = corrupted(frame, fate(frame, key + 1))
                self.bite(fault, path)
        self._arrive(at, dest, frame)

    def _apply_rule(
        self, state: RuleState, path: Path, dest: int, frame: bytes, now: float
    ) -> None:
        does = state.rule.does
        at = now + path.delay
        if does == "hold":
            state.held.append((path, dest, frame))
        elif does == "delay":
            self._arrive(at + state.rule.delay, dest, frame)
        elif does == "duplicate":
            for copy in range(state.rule.copies + 1):
                self._arrive(at + copy * DUPLICATE_GAP, dest, frame)
        elif does == "corrupt":
            # Spread the flipped bits over the frame by the golden ratio.
            self._arrive(at, dest, corrupted(frame, state.taken * 0x9E3779B97F4A7C15))

    def release(self, rule: RuleState, now: float) -> int:
        """Let go what a rule held, in order, onto what the paths have become; returns how much."""
        held, rule.held = rule.held, []
        for path, dest, frame in held:
            current = self._paths.get(path.ends, path)
            if current.blocked_by:
                for fault in current.blocked_by:
                    self.bite(fault, current)
            else:
                self._arrive(now + current.delay, dest, frame)
        return len(held)


def corrupted(frame: bytes, drawn: int) -> bytes:
    """The frame with one bit flipped."""
    bit = drawn % (len(frame) * 8)
    changed = bytearray(frame)
    changed[bit >> 3] ^= 1 << (bit & 7)
    return bytes(changed)
