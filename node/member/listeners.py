"""The listeners of a member: its control endpoint, and another for probes, as its settings say."""

from __future__ import annotations

from collections.abc import Callable

from stormcast.node.control.server import Control
from stormcast.node.member.asked import AskedMember
from stormcast.node.member.endpoints import endpoints


async def open_listeners(
    member: AskedMember, on_failure: Callable[[Exception], None]
) -> list[Control]:
    """Open the listeners that the member's settings name, and note in its `bound` where they
    are."""
    settings, table = member.settings, endpoints(member)
    opened: list[Control] = []
    try:
        if settings.control is not None:
            opened.append(Control(settings.control, table, on_failure, say=member.say))
            member.bound.append(f"control endpoint on {await opened[-1].open()}")
        if settings.probes is not None:
            opened.append(Control.for_probes(settings.probes, table, on_failure))
            member.bound.append(f"probes are answered on {await opened[-1].open()}")
    except BaseException:
        for control in opened:
            await control.close()
        raise
    return opened
