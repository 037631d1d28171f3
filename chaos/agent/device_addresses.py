"""Where a site's member is, for an agent that was not told: at the addresses of its device."""

from __future__ import annotations

import json
from dataclasses import replace

from stormcast.chaos.drivers.base import DriverError, Run, Site, inside
from stormcast.chaos.faults import Names


def read_addresses(text: str) -> Names:
    """Those that others can reach, of an answer to `ip -j addr`."""
    return tuple(
        address["local"]
        for link in json.loads(text or "[]")
        for address in link.get("addr_info", ())
        if address["scope"] == "global"
    )


async def located(site: Site, run: Run) -> Site:
    """The site with its addresses. DriverError if its device has none."""
    if site.addresses:
        return site
    words = inside(site, ("ip", "-j", "addr", "show", "dev", site.device))
    addresses = read_addresses(await run(words, ""))
    if not addresses:
        raise DriverError(f"{site.device} of {site.name} has no address; name another `device`")
    return replace(site, addresses=addresses)
