"""Finds a site's addresses, where the agent's settings name none: those of its device."""

from __future__ import annotations

import json
from dataclasses import replace

from stormcast.chaos.drivers.base import DriverError, Run, Site, inside
from stormcast.chaos.faults import Names


def read_addresses(text: str) -> Names:
    """Read an answer to `ip -j addr`: its addresses of global scope, which others can reach."""
    return tuple(
        address["local"]
        for link in json.loads(text or "[]")
        for address in link.get("addr_info", ())
        if address["scope"] == "global"
    )


async def located(site: Site, run: Run) -> Site:
    """Return the site with its addresses. DriverError if its device has none."""
    if site.addresses:
        return site
    words = inside(site, ("ip", "-j", "addr", "show", "dev", site.device))
    addresses = read_addresses(await run(words, ""))
    if not addresses:
        raise DriverError(f"{site.device} of {site.name} has no address; name another `device`")
    return replace(site, addresses=addresses)
