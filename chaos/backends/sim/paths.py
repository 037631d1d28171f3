"""Faults as paths: what a state of the network makes of each way from one member to another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from chaos import faults
from chaos.backends.sim.network import Dice, Network, Path
from chaos.faults import Names
from chaos.faults.message_rules import RuleState
from chaos.language.network_state import NetworkState
from node.core import wire
from node.core.model import FLAG_NAMES

FLAG_BITS: Final = {name: bit for bit, name in FLAG_NAMES.items()}

Roll = Callable[..., Dice]


class Paths:
    """Holds what is wrong with the network at the moment, and makes its paths so."""

    def __init__(self, network: Network, members: Names, on_change: Callable[[], None]) -> None:
        self._network = network
        self._members = members
        self._on_change = on_change
        self._base = faults.Link()
        self._links: dict[str, faults.NetworkFault] = {}
        self._rules: dict[str, RuleState] = {}
        self._rebuild()

    def apply(self, state: NetworkState, now: float) -> None:
        """Make the network what a state says, whatever it was; a rule that is still there goes on
        counting and holding where it was."""
        before = self._rules
        self._network.seed = state.seed
        self._base = state.base
        rules = {key: one for key, one in state.faults.items() if isinstance(one, faults.Rule)}
        self._links = {key: one for key, one in state.faults.items() if key not in rules}
        self._rules = {
            key: before[key]
            if key in before and before[key].rule == rule
            else self._rule_state(key, rule)
            for key, rule in rules.items()
        }
        self._rebuild()
        for key, held in before.items():
            if self._rules.get(key) is not held:
                self._network.release(held, now)

    def release(self, name: str | None, now: float) -> None:
        """Let go what one rule holds, or all do."""
        for fault, rule in self._rules.items():
            if name in (None, fault):
                self._network.release(rule, now)

    def _rule_state(self, fault: str, action: faults.Rule) -> RuleState:
        match = action.match
        flags = 0
        for name in match.flags:
            flags |= FLAG_BITS[name]
        return RuleState(
            fault=fault,
            rule=action,
            protocols=frozenset(wire.PROTOCOL_BY_NAME[name] for name in match.protocols),
            kinds=frozenset(wire.KIND_BY_NAME[name] for name in match.kinds),
            flags=flags,
            connections=self._connections(),
            held=[],
        )

    def _connections(self) -> dict[tuple[int, int], list[int]]:
        """The one table of connections, shared by all rules; empty where no rule selects by it."""
        shared = self._network.connections
        return {} if shared is None else shared

    def _rebuild(self) -> None:
        for source in self._members:
            for dest in self._members:
                if source != dest:
                    self._network.set_path(source, dest, self._path(source, dest))
        self._on_change()

    def _path(self, source: str, dest: str) -> Path:
        base, network = self._base, self._network
        path = Path(base.delay)

        def dice(fault: str, kind: str, share: float, amount: float = 0.0) -> Dice:
            return network.dice(fault, kind, dest, share, amount)

        if base.loss:
            path.losses += (dice("network", "loss", base.loss),)
        if base.jitter:
            path.jitters += (dice("network", "jitter", 1.0, base.jitter),)
        if base.reorder:
            path.reorders += (dice("network", "reorder", base.reorder, base.reorder_by),)
        if base.duplicate:
            path.duplicates += (dice("network", "duplicate", base.duplicate),)
        if base.corrupt:
            path.corrupts += (dice("network", "corrupt", base.corrupt),)
        if base.bandwidth:
            path.bandwidth, path.limited_by = base.bandwidth, "network"
        for fault, action in self._links.items():
            if not action.strikes(source, dest):
                continue
            if isinstance(action, faults.LossModel):
                path.models += (network.model(fault, source, dest, action),)
            else:
                self._add_fault(path, fault, action, dice)
        path.rules = tuple(
            state for state in self._rules.values() if state.rule.strikes(source, dest)
        )
        path.seal()
        return path

    @staticmethod
    def _add_fault(path: Path, fault: str, action: faults.NetworkFault, dice: Roll) -> None:
        if isinstance(action, faults.Cut | faults.Partition):
            path.blocked_by += (fault,)
        elif isinstance(action, faults.Loss):
            path.losses += (dice(fault, "loss", action.rate),)
        elif isinstance(action, faults.Delay):
            path.delay += action.delay
            path.delayed_by += (fault,)
            if action.jitter:
                path.jitters += (dice(fault, "jitter", 1.0, action.jitter),)
        elif isinstance(action, faults.Duplicate):
            path.duplicates += (dice(fault, "duplicate", action.rate, 0.01),)
        elif isinstance(action, faults.Reorder):
            path.reorders += (dice(fault, "reorder", action.rate, action.by),)
        elif isinstance(action, faults.Corrupt):
            path.corrupts += (dice(fault, "corrupt", action.rate),)
        elif isinstance(action, faults.Bandwidth) and not 0 < path.bandwidth <= action.rate:
            path.bandwidth, path.limited_by = action.rate, fault
