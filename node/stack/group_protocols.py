"""Makes the protocols of one member's group, those that its stack has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stormcast.node.protocols.fd_all3 import FdAll3
from stormcast.node.protocols.fd_sock2 import FdSock2
from stormcast.node.protocols.flow import Mfc, Ufc, WindowsBelow
from stormcast.node.protocols.gms import Gms
from stormcast.node.protocols.layer import Layer, MemberContext
from stormcast.node.protocols.merge3 import Merge3
from stormcast.node.protocols.multicast import Multicast
from stormcast.node.protocols.stable import Stable
from stormcast.node.protocols.verify_suspect2 import VerifySuspect2
from stormcast.node.settings import StackSettings
from stormcast.node.settings.protocols import DISCOVERIES, RELIABLE_MULTICAST
from stormcast.node.stack.positions import MulticastPositions


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProtocols:
    """All protocols of a member except its unicast; None where the stack has no such one."""

    multicast: Multicast
    gms: Gms
    stable: Stable | None
    verify: VerifySuspect2 | None
    fd_all: FdAll3 | None
    fd_sock: FdSock2 | None
    merge: Merge3 | None
    discovery: Any
    flow: dict[int, Any]
    """Flow control, by the number of its protocol."""
    layers: dict[int, Layer]
    """All but multicast, by number: each is told of views and of the member's end in this order."""
    names: dict[int, str]
    """The names of all in the stack file, by number."""


def make_protocols(
    settings: StackSettings,
    context: MemberContext,
    places: WindowsBelow,
    make_multicast: Callable[..., Multicast] | None,
) -> GroupProtocols:
    """Make the protocols that the settings name."""
    config = settings.multicast_config
    assert settings.multicast is not None
    assert config is not None
    port = context.port
    multicast: Multicast = (make_multicast or Multicast)(
        RELIABLE_MULTICAST[settings.multicast], config, context.timing, port, context.dice
    )
    layers: dict[int, Layer] = {}
    names = {multicast.protocol: settings.multicast}

    def make(name: str, kind: type[Any], *more: object) -> Any:  # noqa: ANN401 of `kind`
        config = settings.of(name)
        if config is None:
            return None
        layer = kind(config, context, *more)
        layers[layer.protocol] = layer
        names[layer.protocol] = name
        return layer

    (discovery,) = (name for name in DISCOVERIES if settings.of(name) is not None)
    # In this order they are told of views and of the end, and draw from one generator.
    return GroupProtocols(
        multicast=multicast,
        gms=make("GMS", Gms, multicast.digest, _suspicion_life(settings)),
        stable=make("STABLE", Stable, multicast.digest),
        verify=make("VERIFY_SUSPECT2", VerifySuspect2),
        fd_all=make("FD_ALL3", FdAll3),
        fd_sock=make("FD_SOCK2", FdSock2),
        merge=make("MERGE3", Merge3),
        discovery=make(discovery, DISCOVERIES[discovery]),
        flow=_stood(
            make("MFC", Mfc), make("UFC", Ufc), MulticastPositions(multicast, port), places
        ),
        layers=layers,
        names=names,
    )


def _stood(
    mfc: Mfc | None, ufc: Ufc | None, multicasts: WindowsBelow, unicasts: WindowsBelow
) -> dict[int, Any]:
    """Have flow control stand on the windows below it; return it by the number of its protocol."""
    if mfc is not None:
        mfc.stand_on(multicasts)
    if ufc is not None:
        ufc.stand_on(unicasts)
    return {layer.protocol: layer for layer in (mfc, ufc) if layer is not None}


def _suspicion_life(settings: StackSettings) -> float:
    """Return for how long a confirmed suspicion counts: a suspect that is still dead is confirmed
    again by then, as detectors repeat what they suspect."""
    verify, fd_all, fd_sock = map(settings.of, ("VERIFY_SUSPECT2", "FD_ALL3", "FD_SOCK2"))
    repeats = [
        fd_all.interval if fd_all is not None else 0.0,
        fd_sock.suspect_msg_interval if fd_sock is not None else 0.0,
    ]
    return max(repeats) + (2 * verify.timeout if verify is not None else 0.0)
