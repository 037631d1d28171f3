"""What becomes of a packet on its path from one member to another, where nftables cannot tell.

The same that the simulator makes of a frame (chaos/backends/sim/network.py), in the same order and
by the same dice: so a run on real packets and one in the simulator with `fate: jhash` treat equal
frames alike. Pure: a packet's first frame in, an outcome out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from chaos import faults
from chaos.drivers.base import (
    NFQUEUE,
    Bites,
    SlowLink,
    driver_of,
    is_base_delayed_by,
    slow_for_multicasts,
)
from chaos.drivers.selection import statements
from chaos.faults.fate import fate_key, jhash_fate, threshold, unit
from chaos.faults.loss_models import LossModel, make_model
from chaos.faults.message_rules import RuleState
from chaos.language.network_state import BASE, NetworkState
from node.core import wire
from node.core.model import FLAG_NAMES

Pair = tuple[str, str]
"""Sender and receiver, by name."""

PASS: Final = "pass"  # noqa: S105 no secret
DROP: Final = "drop"
HOLD: Final = "hold"
QUEUE_SECONDS: Final = 0.25
"""What would wait longer for a narrow link is dropped: as in the simulator."""
COPY_GAP: Final = 0.0005
"""Seconds by which a duplicate follows its original at least, and each copy the one before."""
COPY_SPREAD: Final = 0.01
"""Seconds by which a duplicate follows its original at most: as in the simulator."""
GOLDEN: Final = 0x9E3779B97F4A7C15
"""Spreads the bits that a rule flips over the frame."""
_FLAG_BITS: Final = {name: bit for bit, name in FLAG_NAMES.items()}


class Outcome(NamedTuple):
    """What becomes of one packet."""

    does: str
    """PASS, DROP or HOLD."""
    delay: float = 0.0
    """Seconds until it passes."""
    flip: int | None = None
    """Which bit is flipped before."""
    copies: tuple[float, ...] = ()
    """Seconds until each of its copies arrives."""
    rule: str = ""
    """Which fault holds it."""


class Dice(NamedTuple):
    """A fault that strikes frames by chance, on one path."""

    fault: str
    key: int
    below: int
    amount: float = 0.0


AS_IT_IS: Final = Outcome(PASS)
LOST: Final = Outcome(DROP)


@dataclass(slots=True, kw_only=True)
class Path:
    """One directed path, as it is at the moment."""

    ends: Pair
    blocked_by: tuple[str, ...] = ()
    rules: tuple[RuleState, ...] = ()
    losses: tuple[Dice, ...] = ()
    models: tuple[LossModel, ...] = ()
    delay: float = 0.0
    delayed_by: tuple[str, ...] = ()
    slow: SlowLink | None = None
    """Of multicasts alone; all else waits where it goes out (tc)."""
    busy: dict[Pair, float] = field(default_factory=dict)
    """Until when it is taken, if it is narrow."""
    jitters: tuple[Dice, ...] = ()
    reorders: tuple[Dice, ...] = ()
    duplicates: tuple[Dice, ...] = ()
    corrupts: tuple[Dice, ...] = ()


class Counts:
    """What each fault did, per directed pair."""

    def __init__(self) -> None:
        self._counts: defaultdict[str, dict[Pair, int]] = defaultdict(dict)

    def bite(self, fault: str, ends: Pair) -> None:
        """Note that a fault had an effect on a packet."""
        counts = self._counts[fault]
        counts[ends] = counts.get(ends, 0) + 1

    def as_bites(self) -> Bites:
        """A copy."""
        return {fault: dict(counts) for fault, counts in self._counts.items()}


@dataclass(slots=True)
class Memory:
    """What outlives the rebuilding of paths: how far rules and models have counted."""

    rules: dict[str, RuleState] = field(default_factory=dict)
    busy: dict[Pair, float] = field(default_factory=dict)
    """Until when each narrow link is taken by what has come so far."""
    connections: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    """Of each two members, in order of appearance: as far as rules wanted to know."""
    selects_by_connection: bool = False
    """Whether a rule wants to know."""
    _models: dict[tuple[str, str, str], LossModel] = field(default_factory=dict)

    def renew_rules(self, state: NetworkState) -> list[str]:
        """Rules that are still there go on counting; returns the ids of those that ended."""
        wanted = {
            fault: rule for fault, rule in state.faults.items() if isinstance(rule, faults.Rule)
        }
        ended = [fault for fault, known in self.rules.items() if wanted.get(fault) != known.rule]
        self.rules = {
            fault: self.rules[fault]
            if fault in self.rules and fault not in ended
            else self._rule_state(fault, rule)
            for fault, rule in wanted.items()
        }
        self.selects_by_connection = any(
            rule.match.connection is not None for rule in wanted.values()
        )
        return ended

    def model(self, state: NetworkState, fault: str, ends: Pair) -> LossModel:
        """A fault's model of loss on one path."""
        key = fault, *ends
        if key not in self._models:
            dice = fate_key(state.seed, f"{fault}/{ends[0]}", ends[1])
            self._models[key] = make_model(fault, dice, state.faults[fault])
        return self._models[key]

    def _rule_state(self, fault: str, rule: faults.Rule) -> RuleState:
        match = rule.match
        flags = 0
        for name in match.flags:
            flags |= _FLAG_BITS[name]
        return RuleState(
            fault=fault,
            rule=rule,
            protocols=frozenset(wire.PROTOCOL_BY_NAME[name] for name in match.protocols),
            kinds=frozenset(wire.KIND_BY_NAME[name] for name in match.kinds),
            flags=flags,
            connections=self.connections,
            held=[],
        )


Bite = Callable[[str, Pair], None]


def make_path(state: NetworkState, source: str, dest: str, memory: Memory) -> Path:
    """A path as the network's own faults and those that strike it say, together."""
    path = Path(ends=(source, dest), busy=memory.busy)
    path.slow = slow_for_multicasts(state, source, dest)

    def dice(fault: str, kind: str, share: float, amount: float = 0.0) -> tuple[Dice, ...]:
        key = fate_key(state.seed, f"{fault}/{kind}", dest)
        return (Dice(fault, key, threshold(share), amount),) if share else ()

    base = state.base
    path.losses = dice(BASE, "loss", base.loss)
    path.jitters = dice(BASE, "jitter", float(base.jitter > 0), base.jitter)
    path.reorders = dice(BASE, "reorder", base.reorder, base.reorder_by)
    path.duplicates = dice(BASE, "duplicate", base.duplicate)
    path.corrupts = dice(BASE, "corrupt", base.corrupt)
    if is_base_delayed_by(state, NFQUEUE):
        path.delay, path.delayed_by = base.delay, (BASE,)
    for fault, action in state.faults.items():
        if not action.strikes(source, dest):
            continue
        match action:
            case faults.Partition() | faults.Cut():
                path.blocked_by += (fault,)
            case faults.Rule():
                path.rules += (memory.rules[fault],)
            case faults.LossModel():
                path.models += (memory.model(state, fault, path.ends),)
            case faults.Loss():
                path.losses += dice(fault, "loss", action.rate)
            case faults.Delay() if driver_of(action, netem=state.netem) == NFQUEUE:
                path.delay += action.delay
                path.delayed_by += (fault,)
                path.jitters += dice(fault, "jitter", float(action.jitter > 0), action.jitter)
            case faults.Duplicate():
                path.duplicates += dice(fault, "duplicate", action.rate, COPY_SPREAD)
            case faults.Reorder():
                path.reorders += dice(fault, "reorder", action.rate, action.by)
            case faults.Corrupt():
                path.corrupts += dice(fault, "corrupt", action.rate)
    return path


def asks(state: NetworkState, source: str, dest: str) -> bool:
    """Whether nftables leaves anything of what comes on a path to be told here."""
    return any("mark" in one.verdict for one in statements(state, dest, source))


def may_corrupt(state: NetworkState) -> bool:
    """Whether frames may be changed."""
    return state.base.corrupt > 0 or any(
        isinstance(fault, faults.Corrupt)
        or (isinstance(fault, faults.Rule) and fault.does == "corrupt")
        for fault in state.faults.values()
    )


def by_rules(path: Path, frame: bytes, bite: Bite) -> Outcome | None:
    """What the first rule that takes a frame makes of it; None if none takes it."""
    for state in path.rules:
        if not state.takes(frame):
            continue
        bite(state.fault, path.ends)
        rule = state.rule
        match rule.does:
            case "drop":
                return LOST
            case "hold":
                return Outcome(HOLD, rule=state.fault)
            case "delay":
                return Outcome(PASS, path.delay + rule.delay)
            case "duplicate":
                gaps = range(1, rule.copies + 1)
                copies = tuple(path.delay + copy * COPY_GAP for copy in gaps)
                return Outcome(PASS, path.delay, copies=copies)
            case "corrupt":
                return Outcome(PASS, path.delay, flip=state.taken * GOLDEN)
    return None


def is_lost(path: Path, frame: bytes, bite: Bite) -> bool:
    """Whether a plain loss takes a frame."""
    for fault, key, below, _amount in path.losses:
        if jhash_fate(frame, key) < below:
            bite(fault, path.ends)
            return True
    return False


def slowed(path: Path, size: int, now: float, bite: Bite) -> float | None:
    """Seconds that a multicast of so many bytes waits for a slow link; None: there is no room."""
    link = path.slow
    if link is None:
        return 0.0
    for fault in link.delayed_by:
        bite(fault, path.ends)
    if link.rate is None:
        return link.delay
    start = max(now, path.busy.get(path.ends, 0.0))
    bite(link.narrowed_by, path.ends)
    if start - now > QUEUE_SECONDS:
        return None
    end = path.busy[path.ends] = start + size / link.rate
    return end - now + link.delay


def by_chances(path: Path, frame: bytes | None, bite: Bite) -> Outcome:
    """What models of loss, delays and chances make of a packet; one without a fate is but late."""
    ends = path.ends
    if path.models and frame is not None:
        # All of them see the frame: that one loses it does not keep it from the others.
        struck = [model.fault for model in path.models if model.loses()]
        for fault in struck:
            bite(fault, ends)
        if struck:
            return LOST
    at = path.delay
    for fault in path.delayed_by:
        bite(fault, ends)
    if frame is None or not (path.jitters or path.reorders or path.duplicates or path.corrupts):
        return Outcome(PASS, at) if at else AS_IT_IS
    for fault, key, _below, amount in path.jitters:
        at += amount * unit(jhash_fate(frame, key))
        bite(fault, ends)
    for fault, key, below, amount in path.reorders:
        if jhash_fate(frame, key) < below:
            at += amount
            bite(fault, ends)
    copies: tuple[float, ...] = ()
    for fault, key, below, amount in path.duplicates:
        if jhash_fate(frame, key) < below:
            copies += (at + COPY_GAP + amount * unit(jhash_fate(frame, key + 1)),)
            bite(fault, ends)
    flip = None
    for fault, key, below, _amount in path.corrupts:
        if jhash_fate(frame, key) < below:
            flip = jhash_fate(frame, key + 1)
            bite(fault, ends)
    return Outcome(PASS, at, flip, copies)


def paths_to(state: NetworkState, dest: str, memory: Memory) -> Mapping[str, Path]:
    """All paths to one member, by who sends."""
    return {
        source: make_path(state, source, dest, memory) for source in state.members if source != dest
    }
