"""The configuration of a member in its pod: that of the run, with its addresses filled in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from stormcast.chaos.backends.base import MemberPlan
from stormcast.node.settings import DISCOVERIES, list_layers

PORT: Final = 7800
"""The port of members, as in the chart."""
STATIC: Final = "STATIC"
UDP: Final = "UDP"


def member_config(plan: MemberPlan, address: str, hosts: Sequence[str]) -> dict[str, Any]:
    """Return the content of a configuration file (docs/node.md). The member binds to its pod's
    address, and is told those of all others, for pod networks rarely carry multicast."""
    config = dict(plan.config)
    protocols: dict[str, dict[str, Any]] = {
        name: dict(values or {}) for name, values in (config.get("protocols") or {}).items()
    }
    names = [name for name, _values in list_layers(config.get("stack", "udp"))]
    _set(protocols, names[-1], {"bind_addr": address, "bind_port": PORT, "port_range": 0})
    if names[-1] == UDP:
        protocols[UDP] = {"ip_mcast": "never", **protocols[UDP]}
    if any(name in DISCOVERIES for name in names):
        config["discovery"] = STATIC
        for other in set(DISCOVERIES) - {STATIC}:
            protocols.pop(other, None)
        listed = ",".join(f"{host}[{PORT}]" for host in hosts)
        _set(protocols, STATIC, {"initial_hosts": listed, "port_range": 0})
    return {**config, "name": plan.name, "protocols": protocols}


def _set(protocols: dict[str, dict[str, Any]], name: str, values: Mapping[str, Any]) -> None:
    protocols[name] = {**protocols.get(name, {}), **values}
