"""Makes the host of each incarnation: its identity, its stack and its tracer follow from the seed,
the member's name, and how many incarnations there were before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from xxhash import xxh3_64_intdigest, xxh3_128_intdigest

from stormcast.chaos.backends.base import ClusterPlan
from stormcast.chaos.backends.sim.engine import Host
from stormcast.chaos.backends.sim.frames import LastFrame, SharingCodec
from stormcast.chaos.backends.sim.traces import Traces
from stormcast.chaos.language.stacks import STREAM_TRANSPORTS
from stormcast.node.core.model import Address
from stormcast.node.member.settings import MemberSettings
from stormcast.node.protocols.unicast import Unicast
from stormcast.node.stack import Stack

if TYPE_CHECKING:
    from stormcast.chaos.backends.sim.keys import SimKeys

UNBOUNDED: Final = 1 << 60


class HostMaker:
    """What all hosts of a cluster are made of, and how many each member had."""

    def __init__(
        self,
        plan: ClusterPlan,
        settings: Mapping[str, MemberSettings],
        traces: Traces,
        keys: SimKeys | None,
        make_unicast: Callable[..., Unicast] | None,
        make_multicast: Callable[..., Any] | None,
    ) -> None:
        # All members of a cluster have the same stack.
        self.stack = next(iter(settings.values())).stack
        self.is_stream = self.stack.transport in STREAM_TRANSPORTS
        self._plan = plan
        self._settings = settings
        self._traces = traces
        self._keys = keys
        self._make_unicast = make_unicast
        self._make_multicast = make_multicast
        self._last_frame = LastFrame()
        self._incarnations: dict[str, int] = {}

    def transport_setting(self, name: str) -> int:
        """Return a bound that only some transports have; 0 means no bound."""
        return int(getattr(self.stack.transport_config, name, 0))

    def make(self, name: str, now: float) -> Host:
        """Make the host of a new incarnation, with an identity of its own."""
        incarnation = self._incarnations[name] = self._incarnations.get(name, 0) + 1
        label = f"{name}-{incarnation}"
        identity = xxh3_128_intdigest(f"{self._plan.seed}/{name}/{incarnation}".encode()) or 1
        address = Address(identity, name)
        tracer = self._traces.tracer(address.short, label)
        stack = Stack(
            address,
            "sim",
            self._settings[name].stack,
            xxh3_64_intdigest,
            tracer,
            now,
            dice=Random(f"{self._plan.seed}/{label}"),
            first_conn=self._plan.first_conn,
            make_unicast=self._make_unicast,
            make_multicast=self._make_multicast,
            make_codec=partial(SharingCodec, last=self._last_frame),
            seals=self._keys.seals(label, address.short) if self._keys is not None else None,
        )
        host = Host(name, stack, tracer)
        host.label = label
        if self.is_stream:
            # A full receiver stops its senders; the network drops nothing.
            host.held_limit = UNBOUNDED
        host.held_limit = self.transport_setting("receive_queue") or host.held_limit
        return host
