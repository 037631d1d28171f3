"""Paths: all that acts on frames from one member to another, made of a state of the network.

Paths are made anew with every change of that state. The `PathMaker` keeps what must outlive them:
how far rules and losses have counted, and until when a narrow link is busy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from stormcast.chaos import faults
from stormcast.chaos.faults.fate import fate_key, threshold
from stormcast.chaos.faults.loss_models import LossModel, make_model
from stormcast.node.core.match import FOREVER, Connections, Matcher

Ends = tuple[str, str]
"""Sender and receiver, by name."""
COPY_SPREAD: Final = 0.01
"""Seconds over which the duplicates of a fault are spread."""


class Dice(NamedTuple):
    """A fault that strikes frames by chance, on one path."""

    fault: str
    key: int
    below: int
    amount: float = 0.0


class ActingRule(NamedTuple):
    """A message rule, and the frames that it has counted, on all paths."""

    fault: str
    rule: faults.Rule
    matcher: Matcher


class Limit:
    """The bandwidth of a path, by the narrowest of its faults."""

    __slots__ = ("busy_until", "fault", "rate")

    def __init__(self, fault: str = "", rate: float = 0.0) -> None:
        self.fault = fault
        self.rate = rate
        self.busy_until = 0.0


class Path:
    """All that acts on frames from one member to another."""

    __slots__ = (
        "attacks",
        "blocked_by",
        "connections",
        "corrupts",
        "delay",
        "delayed_by",
        "duplicates",
        "ends",
        "has_chances",
        "is_plain",
        "is_watched",
        "jitters",
        "limit",
        "losses",
        "models",
        "reorders",
        "rules",
    )

    def __init__(self, delay: float, ends: Ends) -> None:
        self.ends = ends
        self.delay = delay
        self.delayed_by: tuple[str, ...] = ()
        self.blocked_by: tuple[str, ...] = ()
        self.attacks: tuple[str, ...] = ()
        """The attacks of strangers who hear what is put on this path."""
        self.rules: tuple[ActingRule, ...] = ()
        self.connections: Connections | None = None
        """Numbers the connections of the frames that pass; None where no rule asks for that."""
        self.losses: tuple[Dice, ...] = ()
        self.models: tuple[LossModel, ...] = ()
        self.limit: Limit | None = None
        self.jitters: tuple[Dice, ...] = ()
        self.reorders: tuple[Dice, ...] = ()
        self.duplicates: tuple[Dice, ...] = ()
        self.corrupts: tuple[Dice, ...] = ()
        self.has_chances = False
        """Whether dice are thrown for frames that were not lost."""
        self.is_watched = False
        """Whether frames must be shown to rules, to `connections` or to strangers."""
        self.is_plain = True
        """Whether frames that no rule takes are only delayed and lost: the common, and fast, case.
        """

    def seal(self) -> None:
        """Set `has_chances`, `is_watched` and `is_plain`, once all faults were added."""
        self.has_chances = bool(self.jitters or self.reorders or self.duplicates or self.corrupts)
        self.is_watched = self.connections is not None or bool(self.rules or self.attacks)
        self.is_plain = not (
            self.has_chances or self.blocked_by or self.limit or self.delayed_by or self.models
        )


class PathMaker:
    """Makes paths, and keeps what outlives them."""

    def __init__(self) -> None:
        self.rules: dict[str, ActingRule] = {}
        """By fault, in the order in which they began."""
        self.selects_by_connection = False
        """Whether connections are numbered: from the first rule that selects by them, or when set.
        """
        self._connections = Connections()
        self._limits: dict[Ends, Limit] = {}
        self._models: dict[tuple[str, Ends], LossModel] = {}
        self._ended: Counter[str] = Counter()
        """By fault, the number of times that its loss with a memory has ended: one that comes and
        goes begins anew, with other dice."""
        self._seed = 0

    def renew(self, seed: int, acting: Mapping[str, faults.NetworkFault]) -> list[str]:
        """Take the rules and losses that act from now on; those that acted before go on counting.
        Returns the ids of the rules that ended."""
        self._seed = seed
        over = {fault for fault, _ends in self._models} - set(acting)
        self._ended.update(over)
        self._models = {key: one for key, one in self._models.items() if key[0] not in over}
        wanted = {key: one for key, one in acting.items() if isinstance(one, faults.Rule)}
        before = self.rules
        ended = [key for key, known in before.items() if wanted.get(key) != known.rule]
        self.rules = {
            key: before[key] if key in before and key not in ended else self._acting(key, rule)
            for key, rule in wanted.items()
        }
        if any(rule.match.connection is not None for rule in wanted.values()):
            self.selects_by_connection = True
        return ended

    def rules_named(self, name: str | None) -> list[str]:
        """Return the id of one rule, if it acts, or of all that act, oldest first."""
        return [fault for fault in self.rules if name in (None, fault)]

    def path(
        self, source: str, dest: str, base: faults.Link, acting: Mapping[str, faults.NetworkFault]
    ) -> Path:
        """Make a path of what the network is by itself and the faults that strike it."""
        path = Path(base.delay, (source, dest))
        if self.selects_by_connection:
            path.connections = self._connections
        self._add_base(path, base)
        for fault, action in acting.items():
            if action.strikes(source, dest):
                self._add(path, fault, action)
        path.seal()
        return path

    def _add_base(self, path: Path, base: faults.Link) -> None:
        path.losses = self._dice(path, faults.BASE, "loss", base.loss)
        path.jitters = self._dice(path, faults.BASE, "jitter", float(base.jitter > 0), base.jitter)
        path.reorders = self._dice(path, faults.BASE, "reorder", base.reorder, base.reorder_by)
        path.duplicates = self._dice(path, faults.BASE, "duplicate", base.duplicate)
        path.corrupts = self._dice(path, faults.BASE, "corrupt", base.corrupt)
        if base.bandwidth:
            self._narrow(path, faults.BASE, base.bandwidth)

    def _add(self, path: Path, fault: str, action: faults.NetworkFault) -> None:
        match action:
            case faults.Partition() | faults.Cut():
                path.blocked_by += (fault,)
            case faults.ByStranger():
                path.attacks += (fault,)
            case faults.Rule():
                path.rules += (self.rules[fault],)
            case faults.Loss():
                path.losses += self._dice(path, fault, "loss", action.rate)
            case faults.LossModel():
                path.models += (self._model(path, fault, action),)
            case faults.Delay(delay=delay, jitter=jitter):
                path.delay += delay
                path.delayed_by += (fault,)
                path.jitters += self._dice(path, fault, "jitter", float(jitter > 0), jitter)
            case faults.Bandwidth():
                self._narrow(path, fault, action.rate)
            case faults.Reorder():
                path.reorders += self._dice(path, fault, "reorder", action.rate, action.by)
            case faults.Duplicate():
                path.duplicates += self._dice(path, fault, "duplicate", action.rate, COPY_SPREAD)
            case faults.Corrupt():
                path.corrupts += self._dice(path, fault, "corrupt", action.rate)

    def _dice(
        self, path: Path, fault: str, kind: str, share: float, amount: float = 0.0
    ) -> tuple[Dice, ...]:
        if not share:
            return ()
        key = fate_key(self._seed, f"{fault}/{kind}", path.ends[1])
        return (Dice(fault, key, threshold(share), amount),)

    def _narrow(self, path: Path, fault: str, rate: float) -> None:
        limit = self._limits.setdefault(path.ends, Limit())
        if path.limit is None or rate < limit.rate:
            path.limit, limit.fault, limit.rate = limit, fault, rate

    def _model(self, path: Path, fault: str, action: faults.LossModel) -> LossModel:
        key = fault, path.ends
        if key not in self._models:
            source, dest = path.ends
            # Each period has dice of its own.
            nth = f"/{self._ended[fault]}" if self._ended[fault] else ""
            dice = fate_key(self._seed, f"{fault}/{source}{nth}", dest)
            self._models[key] = make_model(fault, dice, action)
        return self._models[key]

    def _acting(self, fault: str, rule: faults.Rule) -> ActingRule:
        match = replace(rule.match, times=FOREVER if rule.times is None else rule.times)
        return ActingRule(fault, rule, Matcher(match, self._connections))
