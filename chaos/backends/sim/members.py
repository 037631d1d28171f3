"""Simulated members, steered by requests as processes are: each has the workload and the control
endpoint of a real member.

A member's answers come from the product's own table (node/member/endpoints.py). This module has
stand-ins for the channel and runtime of a process, on which that table relies.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from stormcast.node.control.answers import Answer, RefusedError
from stormcast.node.core.errors import ClosedError, ConfigError, require
from stormcast.node.core.model import Address
from stormcast.node.member.endpoints import endpoints
from stormcast.node.member.workload import TICK, WAIT_FOR_VIEW, Driver, Receiver
from stormcast.node.payloads import INDEX_BYTES

if TYPE_CHECKING:
    from stormcast.chaos.backends.sim.engine import Engine, Host
    from stormcast.chaos.backends.sim.world import World
    from stormcast.node.core.model import Delivery, View
    from stormcast.node.member.loads import Load
    from stormcast.node.member.settings import MemberSettings
    from stormcast.node.stack import Stack

NOT_THERE: Final = 404
NOT_ALLOWED: Final = 405


class SimRuntime:
    """Stands in for the runtime of a process: the engine drives the stack."""

    def __init__(self, host: Host, engine: Engine) -> None:
        self.stack: Stack = host.stack
        self.journal = None
        """None: a journal is a file, and the simulator keeps its traces in memory."""
        self._host = host
        self._engine = engine

    @property
    def is_running(self) -> bool:
        """Whether the member lives."""
        return self._host.is_alive

    def now(self) -> float:
        """Return the virtual time."""
        return self._engine.now

    def wake(self) -> None:
        """End a turn, so that a change takes effect."""
        if self._host.is_alive and not self._host.is_paused:
            self._engine.end_turn(self._host)


class SimChannel:
    """Stands in for the channel of a process: what a member's application calls."""

    def __init__(self, world: World, host: Host) -> None:
        self.runtime = SimRuntime(host, world.engine)
        self._world = world
        self._host = host
        self._known: dict[int, Address] = {}
        """All members that were in a view or were named by `meet`, by short id."""

    @property
    def address(self) -> Address:
        """The address of this member."""
        return self.runtime.stack.address

    @property
    def view(self) -> View | None:
        """The current view."""
        return self.runtime.stack.view

    @property
    def state(self) -> str:
        """The state of the channel, in the words of node/channel.py."""
        if not self._host.is_alive:
            return "closed"
        if self._world.is_leaving(self._host):
            return "leaving"
        is_in = not self._host.is_grouped or self.runtime.stack.view is not None
        return "connected" if is_in else "joining"

    def meet(self, *addresses: Address) -> None:
        """Remember the addresses of members."""
        self._known.update({address.short: address for address in addresses})

    def member(self, name: str) -> Address:
        """Return the member of a name: of several the one that became known last."""
        for address in reversed(self._known.values()):
            if address.name == name:
                return address
        known = ", ".join(sorted(map(str, self._known.values()))) or "nobody"
        raise ConfigError(f"no member named {name!r} in the view; there is {known}")

    def try_send(self, dest: Address | int | None, payload: bytes, flags: int = 0) -> bool:
        """Send a message; returns whether the stack accepted it."""
        if not self._host.is_alive:
            raise ClosedError(f"{self.address} is closed")
        short = dest.short if isinstance(dest, Address) else dest or 0
        return self.runtime.stack.try_send(short, payload, flags)

    def set_attribute(self, name: str, value: object) -> None:
        """Change a setting of the stack."""
        self.runtime.stack.set_attribute(name, value, self.runtime.now())
        self.runtime.wake()

    def set_consuming(self, consuming: bool) -> int:  # noqa: FBT001 as the channel has it
        """Set whether the application takes messages; returns how many waited for that."""
        waited = 0
        if consuming:
            waited = self._world.consume(self._host)
        else:
            self._world.stall(self._host)
        self.runtime.wake()
        return waited


class SimMember:
    """One incarnation of a member, its workload and its control endpoint."""

    def __init__(self, world: World, host: Host, settings: MemberSettings) -> None:
        self.host = host
        self.name = host.name
        self.settings = settings
        self.bound: list[str] = []
        self.channel = SimChannel(world, host)
        self.driver = Driver(self.channel, settings.seed, self.channel.runtime.now)
        self.receiver = Receiver(settings.seed, settings.verify)
        self._world = world
        self._drives = 0
        """The number of calls of `_drive`: a call that was scheduled before the latest one is
        skipped."""
        self._places: dict[tuple[int, int], int] = {}
        """By source and connection: the distance from a message's seqno to its index among all that
        the source sends. It is the same for all messages of one connection."""
        self._table = endpoints(self)

    # -- What its endpoints use --------------------------------------------------------------------

    @property
    def me(self) -> Address:
        """The address of this member."""
        return self.channel.address

    @property
    def view(self) -> View | None:
        """The current view."""
        return self.channel.view

    @property
    def is_connected(self) -> bool:
        """Whether the member is in its group, or runs without one."""
        return self.channel.state == "connected"

    @property
    def labels(self) -> dict[str, str]:
        """The labels of this member's metrics."""
        stack = self.settings.stack
        return {
            "member": self.name,
            "short": f"{self.me.short:08x}",
            "cluster": self.settings.cluster,
            "stack": stack.name,
            "timing": stack.timing.name,
        }

    def received_from(self) -> dict[str, int]:
        """Return the numbers of delivered messages, by the sender's name."""
        return self.receiver.by_name()

    def stats(self) -> dict[str, int | float]:
        """Return the counters, by name."""
        stack = self.channel.runtime.stack
        dropped: dict[str, int | float] = {
            f"stack.refused.{why}": n for why, n in stack.record.refused.items()
        }
        dropped |= {f"stack.abandoned.{why}": n for why, n in stack.outbox.abandoned.items()}
        return dropped | self.driver.stats() | self.receiver.stats()

    def say(self, line: str) -> None:
        """Do nothing: a process would print the line."""

    def leave(self) -> None:
        """Stop the workload, leave the group, and end."""
        self.driver.stop()
        self._world.engine.tell(self.host, lambda: self._world.leave(self.host))

    def set_peers(self, peers: tuple[Address, ...]) -> None:
        """Set the addresses of the other members, for a stack that forms no group."""
        require(
            not self.host.is_grouped,
            f"members of stack {self.settings.stack.name} find each other; only without a group "
            "they are told",
        )
        self.channel.meet(*peers)
        self.receiver.meet(peers)
        self.driver.set_peers(peers)
        self._drive()

    def add_loads(self, loads: tuple[Load, ...]) -> None:
        """Add loads to the workload, and begin to send them."""
        require(
            self.host.is_grouped or all(load.do == "unicast" for load in loads),
            f"workload: stack {self.settings.stack.name} forms no group to multicast to; use "
            "unicast, or a stack with GMS",
        )
        self._world.note_loads(loads)
        self.driver.add(loads)
        self._drive()

    def _drive(self) -> None:
        """Offer messages when they are due, as `Driver.run` does. Unlike there, no polling for a
        view: `on_view` calls this when one comes."""
        engine, host = self._world.engine, self.host
        self._drives += 1
        if not host.is_alive or not self.driver.is_running:
            return
        wait = WAIT_FOR_VIEW
        if not host.is_paused:
            before = self.driver.offers.accepted
            wait = self.driver.tick(engine.now) - engine.now
            if self.driver.offers.accepted > before:
                engine.end_turn(host)
        if wait < inf:
            at = engine.now + (max(wait, TICK) if wait > 0 else 0.0)
            engine.call(at, partial(self._drive_on, self._drives))

    def _drive_on(self, drives: int) -> None:
        if drives == self._drives:
            self._drive()

    def on_view(self, view: View) -> None:
        """Tell the application of a new view."""
        self.channel.meet(*view.members)
        self.receiver.on_view(view)
        if self.driver.is_running:
            engine = self._world.engine
            engine.call(engine.now, self._drive)

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        """Hand messages to the application, which verifies each of them."""
        receiver = self.receiver
        is_in_order = self._world.is_in_order
        for delivery in deliveries:
            before = receiver.mismatches
            receiver.on_batch(delivery)
            if receiver.mismatches > before:
                self._note_mismatch(delivery, "not what was sent")
            elif is_in_order and delivery.conn:
                self._check_place(delivery)

    def _check_place(self, delivery: Delivery) -> None:
        """Note a mismatch where a connection's messages are not consecutive in what was sent."""
        key = delivery.source, delivery.conn
        expected = self._places.get(key)
        for seqno, payload in enumerate(delivery.messages, delivery.lo):
            place = int.from_bytes(payload[:INDEX_BYTES], "big") - seqno
            if expected is None:
                expected = self._places[key] = place
            elif place != expected:
                self._note_mismatch(delivery, f"message {place + seqno} came as seqno {seqno}")
                return

    def _note_mismatch(self, delivery: Delivery, what: str) -> None:
        self._world.mismatches.append(
            f"{self.name} t={self.channel.runtime.now():.6f} got from "
            f"{self._world.name_of(delivery.source)} conn {delivery.conn} seqnos "
            f"{delivery.lo}..{delivery.hi}: {what}"
        )

    # -- Its control endpoint ----------------------------------------------------------------------

    def answer(self, method: str, target: str, body: object) -> Answer:
        """Return the answer to one request; RefusedError or another NodeError on a refusal."""
        methods = self._table.get(target)
        if methods is None:
            there = ", ".join(sorted(self._table))
            raise RefusedError(NOT_THERE, f"no {target}; there is {there}")
        if method not in methods:
            raise RefusedError(NOT_ALLOWED, f"{target} takes {', '.join(sorted(methods))}")
        answer = methods[method](body)
        assert isinstance(answer, Answer), "a member has nothing to wait for"
        return answer
