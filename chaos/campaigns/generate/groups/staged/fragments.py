"""Messages of several pieces, and receivers that may keep few of them unfinished."""

from __future__ import annotations

from typing import Final

from stormcast.chaos import faults
from stormcast.chaos.campaigns.generate.groups.dice import BEGIN_SECONDS, END_SECONDS, GroupDraw
from stormcast.chaos.campaigns.generate.groups.kinds import KINDS
from stormcast.chaos.campaigns.generate.groups.staged.traffic import small_credits
from stormcast.chaos.language.timeline import Step
from stormcast.chaos.language.workload import ScenarioLoad
from stormcast.node.core.match import Match

STRANGERS_EXPIRY: Final = 60.0
"""Seconds for which members keep the pieces of one that was never in their view."""


def pieces_overtake(draw: GroupDraw) -> list[Step]:
    """OOB messages of a few pieces each, more at once than a receiver keeps unfinished, while
    pieces are lost, late and overtaken."""
    random = draw.random
    size = random.choice((400, 1500))
    draw.ask("FRAG", frag_size=size, max_open_messages=random.choice((1, 2, 4)))
    draw.has_large = True
    broken: list[Step] = []
    for _ in range(random.randint(1, 2)):
        one, other = draw.pair()
        draw.busy += ((one, other),)
        is_multicast = random.random() < 0.4
        start, count = draw.seconds(1.0, 4.0), random.randint(10, 40)
        draw.loads.append(
            ScenarioLoad(
                do="multicast" if is_multicast else "unicast",
                sources=(one,),
                dests=draw.members if is_multicast else (other,),
                excludes_self=not is_multicast,
                count=count,
                rate=round(count / draw.seconds(0.2, 3.0), 3),
                size=(size + 1, random.randint(2, 5) * size),
                start=start,
                burst=random.choice((1, 5, count)),
                flags=("OOB",),
            )
        )
        kind = random.choice(("reorder", "reorder", "loss", "delay", "nth-loss", "duplicate"))
        action = KINDS[kind](draw).action
        broken.append(Step(at=start, action=action, duration=draw.seconds(0.5, 4.0)))
    return broken


def pieces_left_over(draw: GroupDraw) -> list[Step]:
    """Members come, or are expelled and merge, amid OOB multicasts. Credits let about two be on the
    way at a time, and receivers may keep two unfinished: a member may keep the end of a message
    whose beginning it missed, while pieces overtake each other."""
    random = draw.random
    budget = small_credits(draw)
    draw.ask("FRAG", max_open_messages=2)
    draw.has_large = True
    start = draw.seconds(0.5, 1.5)
    for source in random.sample(draw.members, random.randint(1, 2)):
        count = random.randint(60, 150)
        draw.loads.append(
            ScenarioLoad(
                do="multicast",
                sources=(source,),
                dests=draw.members,
                excludes_self=False,
                count=count,
                rate=round(count / (END_SECONDS - start), 3),
                size=(budget // 6 + 1, budget // 2),
                start=start,
                burst=random.choice((1, 10)),
                flags=("OOB",),
            )
        )
    late = KINDS[random.choice(("reorder", "reorder", "delay"))](draw).action
    kinds = random.choices(("restart", "restart", "join", "pause", "partition"), k=2)
    begun = Step(at=start, action=late, duration=END_SECONDS)
    return [begun, *(KINDS[kind](draw) for kind in kinds)]


def all_send_large(draw: GroupDraw) -> list[Step]:
    """Several members send messages of many pieces at one time, and receivers may keep little more
    than one of the largest; with small credits the pieces of all messages arrive in turns."""
    random = draw.random
    budget = small_credits(draw)
    draw.has_large = draw.has_least_bounds = True
    large = budget * random.randint(2, 6)
    start = draw.seconds(BEGIN_SECONDS, 5.0)
    dest = random.choice(draw.members)
    senders = random.sample(draw.members, random.randint(2, min(4, len(draw.members))))
    is_multicast = random.random() < 0.6
    for source in senders:
        if source == dest and not is_multicast:
            continue
        draw.loads.append(
            ScenarioLoad(
                do="multicast" if is_multicast else "unicast",
                sources=(source,),
                dests=draw.members if is_multicast else (dest,),
                excludes_self=not is_multicast,
                count=random.randint(1, 3),
                rate=2.0,
                size=(large, large),
                start=round(start + draw.seconds(0.0, 0.1), 3),
                flags=random.choice(((), (), ("OOB",))),
            )
        )
    kind = random.choice(("loss", "reorder", "delay", "stall", "partition"))
    action = KINDS[kind](draw).action
    return [Step(at=start, action=action, duration=draw.seconds(0.3, 1.8))]


def outside_amid_a_message(draw: GroupDraw) -> list[Step]:
    """Pieces of a large message are lost for longer than a receiver keeps those of strangers, and
    its sender is outside of the receiver's view: twice and briefly, or all the time."""
    random = draw.random
    one, other = draw.pair()
    draw.busy += ((one, other),)
    size = random.choice((400, 1500))
    draw.ask("FRAG", frag_size=size)
    draw.has_large = True
    start = draw.seconds(BEGIN_SECONDS, 3.0)
    draw.loads.append(
        ScenarioLoad(
            do="unicast",
            sources=(one,),
            dests=(other,),
            excludes_self=True,
            count=random.randint(1, 4),
            rate=1.0,
            size=(10 * size, 30 * size),
            start=start,
            flags=("OOB",) if random.random() < 0.3 else (),
        )
    )
    length = round(STRANGERS_EXPIRY + draw.seconds(5.0, 40.0), 3)
    at = round(start + draw.seconds(0.0, 1.5), 3)
    first = random.randint(2, 60)
    pieces = Match(
        protocols=("UNICAST", "UNICAST2", "UNICAST3", "UNICAST4"),
        kinds=("DATA",),
        sources=(one,),
        dests=(other,),
        seqno=(first, first + random.randint(0, 20)),
    )
    broken = [Step(at=at, action=faults.Rule(does="drop", match=pieces), duration=length)]
    if random.random() < 0.4:
        rest = tuple(name for name in draw.members if name != one)
        cut = faults.Cut(sources=(one,), dests=rest)
        return [*broken, Step(at=at + 1.0, action=cut, duration=round(length + 5.0, 3))]
    alone = faults.InstallView(at_members=(other,), members=(other,))
    return [
        *broken,
        Step(at=round(at + draw.seconds(0.5, 5.0), 3), action=alone),
        Step(at=round(at + length - draw.seconds(0.5, 8.0), 3), action=alone),
    ]
