"""The loads of staged plots, and the credits that limit them."""

from __future__ import annotations

from stormcast.chaos.campaigns.generate.groups.dice import END_SECONDS, GroupDraw
from stormcast.chaos.language.workload import ScenarioLoad


def small_credits(draw: GroupDraw) -> int:
    """Set credits worth a few pieces; returns them, in bytes."""
    size = draw.random.choice((200, 400, 1500))
    budget = draw.random.choice((6, 12)) * size
    draw.ask("FRAG", frag_size=size)
    for name in ("UFC", "MFC"):
        draw.ask(name, max_credits=budget, min_threshold=draw.random.choice((0.2, 0.5)))
    return budget


def unicasts(
    draw: GroupDraw,
    ends: tuple[str, str],
    size: int,
    total: int,
    start: float,
    *,
    fast: bool = True,
) -> None:
    """Add a load of about `total` bytes between two members from `start` on: within a second
    (`fast`), or until `END_SECONDS`."""
    random = draw.random
    source, dest = ends
    count = max(2, total // size)
    within = random.choice((0.2, 0.2, 1.0)) if fast else END_SECONDS - start
    draw.loads.append(
        ScenarioLoad(
            sources=(source,),
            dests=(dest,),
            count=count,
            rate=round(count / within, 3),
            size=(size, size),
            start=start,
            burst=random.choice((1, 5, count)),
            flags=random.choice(((), (), ("DONT_BUNDLE",))),
        )
    )
