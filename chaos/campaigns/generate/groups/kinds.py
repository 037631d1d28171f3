"""The kinds of faults of a group's scenario: for each a function that draws a step of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from stormcast.chaos import faults
from stormcast.chaos.campaigns.generate import draw as draws
from stormcast.chaos.campaigns.generate.draw import Draw
from stormcast.chaos.campaigns.generate.groups.dice import (
    BEGIN_SECONDS,
    END_SECONDS,
    ONLY_ON,
    SPARSE,
    STACKS,
    GroupDraw,
)
from stormcast.chaos.language.timeline import Step
from stormcast.node.core.match import Match

Kind = Callable[[GroupDraw], Step]


def _lasting(make: Callable[[Draw], faults.Action], low: float = 0.2, high: float = 4.0) -> Kind:
    """Return a kind that draws a lasting fault; partitions and cuts sometimes come and go."""

    def step(draw: GroupDraw) -> Step:
        duration = draw.seconds(low, high)
        one = Step(at=draw.moment(), action=make(draw), duration=duration)
        if isinstance(one.action, faults.Partition | faults.Cut) and draw.random.random() < 0.2:
            every = draw.seconds(0.3, 1.5)
            return replace(one, every=every, up=round(every * draw.share(0.1, 0.8), 3))
        return one

    return step


def partition(draw: Draw) -> faults.Action:
    """Draw a partition: by its shape, or with named sides, or with every member alone."""
    random = draw.random
    shapes = ["halves", "random", "isolate-random", "isolate-coordinator", "bridge"]
    if len(draw.members) > 3:
        shapes += ["ring", "majorities"]
    if random.random() < 0.25:
        return draws.partition(draw)
    if random.random() < 0.1:
        return faults.Partition(groups=tuple((name,) for name in draw.members))
    return faults.Partition(shape=random.choice(shapes))


def _cut(draw: Draw) -> faults.Action:
    """Draw a cut in one direction: of one link, or of all links from or to one member."""
    one, other = draw.pair()
    rest = tuple(name for name in draw.members if name != one)
    side = draw.random.randrange(3)
    if side == 0:
        return faults.Cut(sources=(one,), dests=(other,))
    return (
        faults.Cut(sources=(one,), dests=rest)
        if side == 1
        else faults.Cut(sources=rest, dests=(one,))
    )


def _gilbert(draw: Draw) -> faults.Action:
    sources, dests = draw.side()
    return faults.GilbertElliott(
        sources=sources,
        dests=dests,
        p_bad=draw.share(0.01, 0.1),
        p_good=draw.share(0.05, 0.5),
        loss_bad=draw.random.choice((1.0, draw.share(0.3, 0.9))),
        loss_good=draw.random.choice((0.0, 0.02)),
    )


def _nth(draw: Draw) -> faults.Action:
    sources, dests = draw.side()
    nth = draw.random.choice((2, 3, 5, 10))
    return faults.NthLoss(sources=sources, dests=dests, nth=nth, burst=1)


def _slow(draw: Draw) -> faults.Action:
    """Draw a bandwidth limit: narrow enough for queues to build up, too wide for all members to be
    suspected. It is wider for connections, which drop nothing: their queues must have time to
    pass."""
    assert isinstance(draw, GroupDraw)
    sources, dests = draw.side()
    low, high = (100_000, 300_000) if draw.is_stream else (8_000, 40_000)
    return faults.Bandwidth(
        sources=sources, dests=dests, rate=float(draw.random.randint(low, high))
    )


def _rule(draw: Draw) -> faults.Action:
    assert isinstance(draw, GroupDraw)
    return aimed(draw, *_meaning(draw))


def _meaning(draw: GroupDraw) -> tuple[str, str]:
    """Draw the protocol and kind of the frames that a rule selects."""
    random = draw.random
    if random.random() < 0.25:
        return random.choice((draw.multicast, draw.multicast, "")), "DATA"
    there = [name for name in SPARSE if draw.stack in ONLY_ON.get(name, STACKS)]
    weights = [4 if name in ("GMS", draw.multicast) else 1 for name in there]
    (protocol,) = random.choices(there, weights)
    return protocol, random.choice(SPARSE[protocol])


def aimed(draw: GroupDraw, protocol: str, kind: str) -> faults.Rule:
    """Draw a rule that holds, delays, doubles, drops or corrupts frames of one protocol and kind,
    from one member, to one member, or between all."""
    random = draw.random
    one = (random.choice(draw.members),)
    side = random.randrange(4)
    deeds = ["hold", "delay", "duplicate"]
    if kind != "DATA" or not draw.switches:
        deeds += ["drop", "drop", "drop", "corrupt"]
    does = random.choice(deeds)
    match = Match(
        protocols=(protocol,) if protocol else (),
        kinds=(kind,),
        sources=one if side in (0, 3) else (),
        dests=one if side == 1 else (),
        occurrence=(1, random.randint(1, 12)) if random.random() < 0.4 else None,
        transmission=(0, 0) if random.random() < 0.2 else None,
    )
    return faults.Rule(
        does=does,
        match=match,
        delay=draw.seconds(0.01, 1.5) if does == "delay" else 0.0,
        copies=random.choice((1, 3)) if does == "duplicate" else 1,
    )


def _crash(draw: GroupDraw) -> Step:
    return Step(at=draw.moment(), action=faults.Crash(member=draw.anyone()), duration=draw.goes())


def _leave(draw: GroupDraw) -> Step:
    return Step(at=draw.moment(), action=faults.Leave(member=draw.anyone()), duration=draw.goes())


def _restart(draw: GroupDraw) -> Step:
    return Step(at=draw.moment(), action=faults.Restart(member=draw.anyone()))


def _pause(draw: GroupDraw) -> Step:
    return Step(
        at=draw.moment(),
        action=faults.Pause(member=draw.anyone()),
        duration=draw.random.choice((draw.seconds(0.05, 1.0), draw.seconds(1.0, 5.0))),
    )


def join(draw: GroupDraw) -> Step:
    """Draw a late join: of a member not late so far while there are more than two, else of a member
    that is late already. Who is needed is never late."""
    waiting = [name for name in draw.members if name not in draw.late]
    if len(waiting) > 2:
        name = draw.random.choice([name for name in waiting if name not in draw.needed])
        draw.late += (name,)
        return Step(at=draw.seconds(0.5, END_SECONDS - 1.0), action=faults.Join(member=name))
    return Step(at=draw.moment(), action=faults.Join(member=draw.random.choice(draw.late)))


def _churn(draw: GroupDraw) -> Step:
    count = draw.random.randint(1, len(draw.members) - 1)
    return Step(
        at=draw.seconds(0.5, END_SECONDS - 4.0),
        action=faults.Churn(
            members=tuple(draw.random.sample(draw.members, count)), every=draw.seconds(0.3, 2.0)
        ),
        duration=draw.seconds(2.0, 4.0),
    )


def _stall(draw: GroupDraw) -> Step:
    return Step(
        at=draw.moment(),
        action=faults.Stall(member=draw.random.choice(draw.members)),
        duration=draw.seconds(0.3, 4.0),
    )


def _forget(draw: GroupDraw) -> Step:
    """Draw the loss of a half of a connection, mostly of one in use."""
    is_used = draw.busy and draw.random.random() < 0.9
    source, dest = draw.random.choice(draw.busy) if is_used else draw.pair()
    half = draw.random.choice(("receiver", "sender", "both"))
    member, peer = (dest, source) if half == "receiver" else (source, dest)
    at = draw.seconds(BEGIN_SECONDS, END_SECONDS - 2.0)
    return Step(at=at, action=faults.Forget(member=member, peer=peer, half=half))


def _view(draw: GroupDraw) -> Step:
    """Draw a view that is handed to some members, and that no protocol would make."""
    random = draw.random
    members = tuple(random.sample(draw.members, random.randint(1, len(draw.members))))
    believers = tuple(random.sample(members, random.randint(1, len(members))))
    return Step(
        at=draw.seconds(BEGIN_SECONDS, END_SECONDS - 1.0),
        action=faults.InstallView(at_members=believers, members=members),
    )


def _set(draw: GroupDraw) -> Step:
    member = draw.random.choice(draw.members)
    values = [0.1, 0.25, 1.0]
    if draw.switches:
        values += [0.0, 0.0, 0.0]
    if draw.multicast == "MCAST" and draw.random.random() < 0.4:
        action = faults.SetAttribute(
            member=member, attribute="MCAST.ack_threshold", value=draw.random.choice((1, 3))
        )
    else:
        value = draw.random.choice(values)
        action = faults.SetAttribute(
            member=member, attribute=f"{draw.multicast}.xmit_interval", value=value
        )
    return Step(at=draw.moment(), action=action)


KINDS: Final[dict[str, Kind]] = {
    "partition": _lasting(partition, 0.5),
    "cut": _lasting(_cut, 0.5),
    "loss": _lasting(draws.loss),
    "gilbert-elliott": _lasting(_gilbert),
    "nth-loss": _lasting(_nth),
    "delay": _lasting(draws.delay),
    "duplicate": _lasting(draws.duplicate),
    "reorder": _lasting(draws.reorder),
    "corrupt": _lasting(draws.corrupt),
    "bandwidth": _lasting(_slow),
    "rule": _lasting(_rule),
    "crash": _crash,
    "leave": _leave,
    "restart": _restart,
    "pause": _pause,
    "join": join,
    "churn": _churn,
    "stall": _stall,
    "forget": _forget,
    "install-view": _view,
    "set-attribute": _set,
}
