"""Plots: steps that together reach a state that one fault hardly ever reaches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from stormcast.chaos import faults
from stormcast.chaos.campaigns.generate.groups.dice import BEGIN_SECONDS, END_SECONDS, GroupDraw
from stormcast.chaos.campaigns.generate.groups.kinds import KINDS, aimed, join, partition
from stormcast.chaos.faults import COORDINATOR
from stormcast.chaos.language.timeline import Step
from stormcast.node.core.match import Match


def _hit_the_merge(draw: GroupDraw) -> list[Step]:
    """A partition heals, and soon after that a second fault strikes the merge."""
    at, length = draw.seconds(1.5, 3.5), draw.seconds(2.0, 3.5)
    healed = at + length
    soon = round(draw.seconds(0.0, 3.0) + healed, 3)
    second = draw.random.choice(("crash", "pause", "partition", "rule", "join", "leave", "cut"))
    steps = [Step(at=at, action=partition(draw), duration=length)]
    if second == "rule":
        kind = draw.random.choice(
            ("MERGE_REQ", "MERGE_RSP", "VIEW", "VIEW_ACK", "GET_DIGEST_RSP", "CANCEL_MERGE")
        )
        rule = aimed(draw, "GMS", kind)
        steps.append(Step(at=at, action=rule, duration=round(length + draw.seconds(0.5, 4.0), 3)))
    else:
        steps.append(replace(KINDS[second](draw), at=soon))
    return steps


def _coordinators_fall(draw: GroupDraw) -> list[Step]:
    """One coordinator after the other goes, often before the view without its predecessor."""
    at = draw.seconds(1.0, 5.0)
    steps = []
    for _ in range(draw.random.randint(2, 3)):
        how = draw.random.choice((faults.Crash, faults.Crash, faults.Leave))
        action = how(member=COORDINATOR)
        steps.append(Step(at=at, action=action, duration=draw.goes()))
        at = round(at + draw.random.choice((draw.seconds(0.0, 0.1), draw.seconds(0.1, 2.6))), 3)
    return steps


def _views_run_ahead(draw: GroupDraw) -> list[Step]:
    """While two sides are apart, one side goes through several views: when the sides merge, its
    view number is far above the other's."""
    shuffled = draw.random.sample(draw.members, len(draw.members))
    alone, rest = tuple(shuffled[:1]), tuple(shuffled[1:])
    at = draw.seconds(1.0, 2.0)
    split = Step(at=at, action=faults.Partition(groups=(alone, rest)), duration=6.0)
    steps = [split]
    for name in rest[1:]:
        at = round(at + draw.seconds(0.3, 1.0), 3)
        how = draw.random.choice((faults.Leave, faults.Crash))
        steps.append(Step(at=at, action=how(member=name), duration=draw.seconds(0.5, 2.0)))
    return steps


def _leave_together(draw: GroupDraw) -> list[Step]:
    """Several members leave at one time, the coordinator among them, mostly while a rule strikes
    frames of their leaving."""
    at = draw.seconds(1.5, 5.0)
    goers = [COORDINATOR, *draw.random.sample(draw.members, draw.random.randint(1, 2))]
    steps = [
        Step(
            at=round(at + draw.seconds(0.0, 0.05), 3),
            action=faults.Leave(member=name),
            duration=draw.goes(),
        )
        for name in goers
    ]
    kind = draw.random.choice(("LEAVE_REQ", "LEAVE_RSP", "VIEW", "VIEW_ACK"))
    if draw.random.random() < 0.6:
        steps.append(Step(at=at, action=aimed(draw, "GMS", kind), duration=draw.seconds(0.3, 2.0)))
    return steps


def _join_while_all_changes(draw: GroupDraw) -> list[Step]:
    """A member joins, a rule strikes frames of its join, and the group changes soon after."""
    coming = join(draw)
    at = coming.at
    kind = draw.random.choice(("JOIN_REQ", "JOIN_RSP", "JOIN_RSP", "VIEW", "VIEW_ACK"))
    rule = Step(at=at, action=aimed(draw, "GMS", kind), duration=draw.seconds(0.2, 2.0))
    other = draw.random.choice(("crash", "leave", "partition", "join", "loss", "pause"))
    soon = round(at + draw.seconds(0.0, 0.6), 3)
    return [coming, rule, replace(KINDS[other](draw), at=soon)]


def _one_is_stolen(draw: GroupDraw) -> list[Step]:
    """One multicast is dropped in the middle of the traffic, though retransmission may be off: then
    only the gap alarm tells of it (M-12)."""
    source, dest = draw.pair()
    match = Match(protocols=(draw.multicast,), kinds=("DATA",), sources=(source,), dests=(dest,))
    return [
        Step(
            at=draw.seconds(BEGIN_SECONDS, 3.0),
            action=faults.Rule(does="drop", match=match, times=1),
            duration=1.0,
        )
    ]


def _last_is_lost(draw: GroupDraw) -> list[Step]:
    """The last multicasts of a member are lost on the way to another one, and HIGHEST_SEQNO, which
    would announce them, too."""
    source, dest = draw.pair()
    data = Match(
        protocols=(draw.multicast,),
        kinds=("DATA",),
        sources=(source,),
        dests=(dest,),
        transmission=(0, 0),
    )
    told = replace(data, kinds=("HIGHEST_SEQNO",), transmission=None)
    at = draw.seconds(END_SECONDS - 3.0, END_SECONDS - 1.0)
    length = draw.seconds(2.5, 6.0)
    return [
        Step(at=at, action=faults.Rule(does="drop", match=data), duration=length),
        Step(at=at, action=faults.Rule(does="drop", match=told), duration=length),
    ]


def _late_words(draw: GroupDraw) -> list[Step]:
    """Frames of one view arrive in a later view: votes, acks, digests, messages, views."""
    kinds = [
        ("GMS", "VIEW"),
        ("GMS", "VIEW_ACK"),
        ("GMS", "JOIN_RSP"),
        ("GMS", "GET_DIGEST_RSP"),
        (draw.multicast, "DATA"),
        (draw.multicast, "XMIT_REQ"),
        (draw.multicast, "HIGHEST_SEQNO"),
        (draw.multicast, "BASELINE"),
    ]
    if draw.multicast == "MCAST":
        kinds += [("MCAST", "ACK")] * 3
    else:
        kinds += [("STABLE", "GOSSIP"), ("STABLE", "STABILITY"), ("STABLE", "STABILITY")]
    at = draw.seconds(1.0, 5.0)
    length = draw.seconds(0.3, 3.5)
    steps = []
    for protocol, kind in draw.random.sample(kinds, draw.random.randint(1, 2)):
        one = (draw.random.choice(draw.members),)
        match = Match(protocols=(protocol,), kinds=(kind,), sources=one)
        steps.append(Step(at=at, action=faults.Rule(does="hold", match=match), duration=length))
    change = draw.random.choice(("partition", "leave", "crash", "join", "restart", "install-view"))
    within = round(at + draw.seconds(0.0, length), 3)
    return [*steps, replace(KINDS[change](draw), at=within)]


def _views_by_hand(draw: GroupDraw) -> list[Step]:
    """Views are installed by hand that part the group: in both halves, or in one of them only."""
    shuffled = draw.random.sample(draw.members, len(draw.members))
    at = draw.random.randint(1, len(shuffled) - 1)
    when = draw.seconds(BEGIN_SECONDS, END_SECONDS - 2.0)
    steps: list[Step] = []
    for half in (tuple(shuffled[:at]), tuple(shuffled[at:])):
        if not steps or draw.random.random() < 0.7:
            believers = half if draw.random.random() < 0.6 else half[:1]
            view = faults.InstallView(at_members=believers, members=half)
            steps.append(Step(at=round(when + draw.seconds(0.0, 0.3), 3), action=view))
    return steps


def _switch_all(draw: GroupDraw) -> list[Step]:
    """All members switch retransmission off and on again under traffic, while links break."""
    at = draw.seconds(1.5, 4.0)
    steps = []
    for value in draw.random.choice(((0.0, 0.25), (0.25, 0.0), (0.0, 0.25, 0.0))):
        for name in draw.members:
            action = faults.SetAttribute(
                member=name, attribute="NAKACK2.xmit_interval", value=value
            )
            steps.append(Step(at=round(at + draw.seconds(0.0, 0.2), 3), action=action))
        at = round(at + draw.seconds(0.3, 2.0), 3)
    second = draw.random.choice(("partition", "pause", "delay", "join", "stall"))
    return [*steps, KINDS[second](draw)]


def _slow_member(draw: GroupDraw) -> list[Step]:
    """A member's application takes no messages while the view changes."""
    name = draw.random.choice(draw.members)
    at, length = draw.seconds(1.0, 4.0), draw.seconds(1.0, 4.0)
    change = draw.random.choice(("crash", "leave", "join", "partition", "pause"))
    return [
        Step(at=at, action=faults.Stall(member=name), duration=length),
        replace(KINDS[change](draw), at=round(at + draw.seconds(0.0, length), 3)),
    ]


def _early_and_deaf(draw: GroupDraw) -> list[Step]:
    """A member gets a view late, or not, so that its peers' messages come before the view."""
    one = (draw.random.choice(draw.members),)
    match = Match(protocols=("GMS",), kinds=("VIEW", "JOIN_RSP"), dests=one)
    does = draw.random.choice(("delay", "hold", "drop"))
    at, length = draw.seconds(0.0, 4.0), draw.seconds(0.3, 3.0)
    rule = faults.Rule(does=does, match=match, delay=length if does == "delay" else 0.0)
    change = draw.random.choice(("join", "restart", "partition", "leave"))
    return [
        Step(at=at, action=rule, duration=length),
        replace(KINDS[change](draw), at=round(at + draw.seconds(0.0, length / 2), 3)),
    ]


Plot = Callable[[GroupDraw], list[Step]]
PLOTS: Final[tuple[Plot, ...]] = (
    _hit_the_merge,
    _hit_the_merge,
    _coordinators_fall,
    _views_run_ahead,
    _leave_together,
    _join_while_all_changes,
    _last_is_lost,
    _late_words,
    _late_words,
    _views_by_hand,
    _switch_all,
    _slow_member,
    _early_and_deaf,
)


def drawn_plot(draw: GroupDraw) -> Plot:
    """Draw a plot that the stack can play."""
    plot = draw.random.choice(PLOTS)
    while plot is _switch_all and not draw.switches:
        plot = draw.random.choice(PLOTS)
    return _one_is_stolen if plot is _last_is_lost and draw.switches else plot
