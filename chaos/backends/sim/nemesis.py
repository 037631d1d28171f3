"""Steps of the schedule, done to a world: faults on paths, rules on frames, commands to members."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from chaos import faults
from chaos.backends.sim.network import Dice, Path
from chaos.faults.message_rules import RuleState
from chaos.language.roles import Roles
from chaos.language.schedule import End, TimedStep
from chaos.records.rig_trace import fault_text
from node import trace
from node.core import wire
from node.core.model import FLAG_NAMES, View, ViewId

if TYPE_CHECKING:
    from chaos.backends.sim.engine import Host
    from chaos.backends.sim.world import World
    from chaos.language.network_state import NetworkState

LINK_FAULTS: Final = (
    faults.Partition,
    faults.Cut,
    faults.Loss,
    faults.LossModel,
    faults.Delay,
    faults.Duplicate,
    faults.Reorder,
    faults.Corrupt,
    faults.Bandwidth,
)
FLAG_BITS: Final = {name: bit for bit, name in FLAG_NAMES.items()}


Roll = Callable[..., Dice]


def _name(host: Host | None) -> str | None:
    return None if host is None else host.name


class Nemesis:
    """Holds what is wrong at the moment, and makes it so."""

    def __init__(self, world: World) -> None:
        self.kinds: dict[str, str] = {}
        """Every fault of the run, by id: what it is."""
        self._world = world
        self._base = world.scenario.network
        self._links: dict[str, faults.NetworkFault] = {}
        self._rules: dict[str, RuleState] = {}
        self._stalled: dict[str, str] = {}
        self._paused: dict[str, str] = {}
        self._roles = Roles(
            world.scenario.cluster.members,
            lambda: _name(world.coordinator()),
            lambda fault: _name(world.participant(fault)),
        )
        self._views = 0

    # -- Steps -------------------------------------------------------------------------------

    def do(self, step: TimedStep) -> None:
        """Do one step of the schedule."""
        action = step.action
        if isinstance(action, End):
            self._end(action.fault)
        elif isinstance(action, faults.Heal):
            self._heal(action.name)
        elif isinstance(action, faults.Release):
            self.release(action.name)
        elif isinstance(action, LINK_FAULTS):
            self._note(step, "on")
            self._links[step.fault] = self._roles.aimed(action)
            self.rebuild_paths()
        elif isinstance(action, faults.Rule):
            self._note(step, "on")
            self._rules[step.fault] = self._rule_state(step.fault, action)
            self.rebuild_paths()
        elif isinstance(action, faults.InstallView):
            self._note(step, "on")
            self._install_view(step.fault, action)
        else:
            assert not isinstance(action, faults.Churn)
            name = self._roles.name_of(step.fault, action)
            if name is not None:
                self._command(step, name)

    def _note(self, step: TimedStep, phase: str, host: Host | None = None) -> None:
        """Write a fault into the rig's trace; checkers need to know when and whom."""
        text = fault_text(step, phase, None if host is None else host.short)
        if phase == "on" and not isinstance(step.action, faults.Resume | faults.Consume):
            self.kinds.setdefault(step.fault, step.do)
        self._world.rig.record(trace.FAULT, self._world.engine.now, text=json.dumps(text))

    def _command(self, step: TimedStep, name: str) -> None:
        action, world = step.action, self._world
        host = world.members.get(name)
        if isinstance(action, faults.Resume | faults.Consume):
            if host is not None:
                self._undo(step, host)
        elif isinstance(action, faults.Restart | faults.Join):
            self._start(step, name, host)
        elif host is not None:
            self._note(step, "on", host)
            if host.is_alive:
                self._strike(step, host)

    def _start(self, step: TimedStep, name: str, host: Host | None) -> None:
        """Bring a member up; a restart ends the incarnation that may still run."""
        world = self._world
        if host is not None and host.is_alive and isinstance(step.action, faults.Join):
            return
        self._note(step, "on", host)
        world.network.bite(step.fault)
        if host is not None and host.is_alive:
            world.crash(host)
        for held in (self._paused, self._stalled):
            held.pop(name, None)
        world.start(name)

    def _strike(self, step: TimedStep, host: Host) -> None:
        action, world = step.action, self._world
        now = world.engine.now
        if isinstance(action, faults.Crash | faults.Leave | faults.SetAttribute):
            world.network.bite(step.fault)
        if isinstance(action, faults.Crash):
            world.crash(host)
        elif isinstance(action, faults.Leave):
            world.engine.tell(host, lambda: world.leave(host))
        elif isinstance(action, faults.Pause):
            host.is_paused = True
            self._paused[host.name] = step.fault
        elif isinstance(action, faults.Stall):
            world.stall(host)
            self._stalled[host.name] = step.fault
        elif isinstance(action, faults.SetAttribute):
            host.stack.set_attribute(action.attribute, action.value, now)
        else:
            self._lose_connection(step, host)
        if not host.is_paused and host.is_alive:
            world.engine.end_turn(host)

    def _lose_connection(self, step: TimedStep, host: Host) -> None:
        action, world = step.action, self._world
        assert isinstance(action, faults.Forget | faults.Close)
        other = world.members.get(action.peer)
        if other is None:
            # Nobody is connected to who has not come yet.
            return
        now, peer = world.engine.now, other.short
        unicast = host.stack.unicast
        if peer in unicast.send_connections() or peer in unicast.receive_connections():
            world.network.bite(step.fault)
        if isinstance(action, faults.Forget):
            half = action.half
            host.stack.forget(peer, now, sender=half != "receiver", receiver=half != "sender")
        else:
            host.stack.close_connection(peer, now)

    def _undo(self, step: TimedStep, host: Host) -> None:
        """End a pause or a stall; what it held back is how much it bit."""
        world = self._world
        if isinstance(step.action, faults.Resume):
            fault = self._paused.pop(host.name, None)
            if fault is None or not host.is_alive:
                return
            self._note(step, "off", host)
            world.network.bite(fault, count=world.engine.resume(host))
        else:
            fault = self._stalled.pop(host.name, None)
            if fault is None or not host.is_alive:
                return
            self._note(step, "off", host)
            before = world.delivered
            waited = world.consume(host)
            if not host.is_paused:
                world.engine.end_turn(host)
            world.network.bite(fault, count=world.delivered - before + waited)

    def _install_view(self, fault: str, action: faults.InstallView) -> None:
        world = self._world
        now = world.engine.now
        self._views += 1
        there = [world.members[name] for name in action.members if name in world.members]
        if not there:
            return
        addresses = tuple(host.stack.address for host in there)
        told = [world.members[name] for name in action.at_members if name in world.members]
        told = [host for host in told if host.is_alive]
        view_id = ViewId(self._views, addresses[0])
        if there[0].is_grouped:
            # As if a member had made it: later than all views, under an id that nobody else uses.
            # Of one that has no view any more nobody knows which numbers it used.
            held = [h.stack.view for h in world.members.values() if h.stack.view is not None]
            number = 1 + max((view.id.number for view in held), default=0)
            makers = [host for host in told if host.stack.view or not world.is_leaving(host)]
            if not makers:
                return
            view_id = ViewId(number, makers[0].stack.address)
        for host in told:
            before = len(host.stack.unicast.send_connections()) + len(
                host.stack.unicast.receive_connections()
            )
            if before:
                world.network.bite(fault)
            host.stack.install_view(View(view_id, addresses), now)
            if not host.is_paused:
                world.engine.end_turn(host)

    # -- Ending faults ---------------------------------------------------------------------------

    def _end(self, fault: str) -> None:
        self._links.pop(fault, None)
        rule = self._rules.pop(fault, None)
        self.rebuild_paths()
        world = self._world
        text = json.dumps({"id": fault, "do": self.kinds.get(fault, "end"), "phase": "off"})
        world.rig.record(trace.FAULT, world.engine.now, text=text)
        if rule is not None:
            world.network.release(rule, world.engine.now)
        for member, by in [*self._paused.items(), *self._stalled.items()]:
            if by == fault:
                undo = (
                    faults.Resume(member=member)
                    if member in self._paused
                    else faults.Consume(member=member)
                )
                self._undo(
                    TimedStep(at=world.engine.now, fault=fault, do="end", action=undo),
                    world.members[member],
                )

    def _heal(self, name: str | None) -> None:
        for fault in [*self._links, *self._rules] if name is None else [name]:
            self._end(fault)

    def release(self, name: str | None) -> None:
        """Let go what one rule holds, or all do."""
        for fault, rule in self._rules.items():
            if name in (None, fault):
                self._world.network.release(rule, self._world.engine.now)

    # -- Paths -------------------------------------------------------------------------------

    def apply(self, state: NetworkState) -> None:
        """Make the network what a state says, whatever it was; a rule that is still there goes on
        counting and holding where it was."""
        world, before = self._world, self._rules
        world.network.seed = state.seed
        self._base = state.base
        rules = {key: one for key, one in state.faults.items() if isinstance(one, faults.Rule)}
        self._links = {key: one for key, one in state.faults.items() if key not in rules}
        self._rules = {
            key: before[key]
            if key in before and before[key].rule == rule
            else self._rule_state(key, rule)
            for key, rule in rules.items()
        }
        self.rebuild_paths()
        for key, held in before.items():
            if self._rules.get(key) is not held:
                world.network.release(held, world.engine.now)

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
        shared = self._world.network.connections
        return {} if shared is None else shared

    def rebuild_paths(self) -> None:
        """Make every path what the scenario's network and the active faults say, together."""
        world = self._world
        names = world.scenario.cluster.members
        for source in names:
            for dest in names:
                if source != dest:
                    world.network.set_path(source, dest, self._path(source, dest))
        for host in world.engine.hosts.values():
            host.routes.clear()
            host.group = None
        world.network.on_change(world.engine.now)
        world.notices.retry()

    def _path(self, source: str, dest: str) -> Path:
        base, network = self._base, self._world.network
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
