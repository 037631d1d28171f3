"""Scenarios of whole groups: three to six members on a real stack, views, merges and multicasts.

Half of them also have a plot: steps that only together reach what one fault hardly ever does, most
of them about a second fault soon after the first. Whatever is broken ends within the traffic, and
the settling time is long enough for suspicion, merge and stability to do their work, so the last
view can be judged (V4, G8). Someone always lives: no more members go for good than a group can
miss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from chaos import faults
from chaos.campaigns.generate import draw as draws
from chaos.campaigns.generate.draw import Draw, Names
from chaos.faults import COORDINATOR, PARTICIPANT, Link
from chaos.language.cluster import Cluster, Settings
from chaos.language.scenario import GUARANTEES as ALL_GUARANTEES
from chaos.language.scenario import Limits, Scenario
from chaos.language.timeline import Step
from chaos.language.workload import Load

STACKS: Final = ("udp", "mcast", "tcp", "tcp-nio2", "tcp-no-retransmit")
GUARANTEES: Final = tuple(name for name in ALL_GUARANTEES if name != "T1")
BEGIN_SECONDS: Final = 1.5
"""Until the first view, at most, where nothing is wrong; earlier faults fall into the joins."""
END_SECONDS: Final = 8.0
"""When the last fault begins, and the last message is offered."""
SETTLE_SECONDS: Final = 20.0
"""Suspicion (2.3 s), a look of MERGE3 (1.6 s), a merge that fails first (4 s), twice; stability."""
MIN_MESSAGES: Final = 150
MIN_BITES: Final = 2

SPARSE: Final[dict[str, tuple[str, ...]]] = {
    "GMS": (
        "VIEW", "VIEW", "VIEW_ACK", "JOIN_REQ", "JOIN_RSP", "LEAVE_REQ", "LEAVE_RSP", "GET_VIEW",
        "MERGE_REQ", "MERGE_RSP", "GET_DIGEST_REQ", "GET_DIGEST_RSP", "CANCEL_MERGE",
    ),
    "STABLE": ("GOSSIP", "STABILITY"),
    "MERGE3": ("INFO", "VIEW_REQ", "VIEW_RSP"),
    "FD_ALL3": ("HEARTBEAT",),
    "FD_SOCK2": ("SUSPECT", "UNSUSPECT"),
    "VERIFY_SUSPECT2": ("ARE_YOU_DEAD", "I_AM_NOT_DEAD"),
    "DISCOVERY": ("GET_MBRS_REQ", "GET_MBRS_RSP"),
    "MFC": ("CREDIT", "CREDIT_REQ"),
    "UFC": ("CREDIT", "CREDIT_REQ"),
    "NAKACK2": ("XMIT_REQ", "HIGHEST_SEQNO", "BASELINE", "BASELINE_REQ"),
    "MCAST": ("ACK", "ACK", "XMIT_REQ", "HIGHEST_SEQNO", "BASELINE"),
}  # fmt: skip
"""Control frames that a rule may be aimed at, by their protocol."""
ONLY_ON: Final[dict[str, tuple[str, ...]]] = {
    "STABLE": ("udp", "tcp", "tcp-nio2", "tcp-no-retransmit"),
    "MFC": ("udp", "tcp", "tcp-nio2", "tcp-no-retransmit"),
    "NAKACK2": ("udp", "tcp", "tcp-nio2", "tcp-no-retransmit"),
    "MCAST": ("mcast",),
}
"""Protocols that not every stack has."""


class GroupDraw(Draw):
    """The dice of one group, what it runs on, and how many members it may still lose."""

    def __init__(self, random: Random, members: Names, stack: str) -> None:
        super().__init__(random, members)
        self.stack = stack
        self.multicast = "MCAST" if stack == "mcast" else "NAKACK2"
        self.is_stream = stack.startswith("tcp")
        self.switches = stack == "tcp-no-retransmit" or (self.is_stream and random.random() < 0.5)
        """Whether retransmission is off, or may be for a while. Then no rule may take a multicast
        away for good: nothing would be there to bring it back."""
        self.late: Names = ()
        self.has_large = False
        """Whether messages of many pieces are sent, which take for ever through small windows."""
        self.spare = len(members) - 2
        """Members that may go without coming back."""

    def moment(self) -> float:
        """When a fault begins: mostly in the middle of the traffic, sometimes during the joins."""
        if self.random.random() < 0.2:
            return self.seconds(0.0, BEGIN_SECONDS)
        return self.seconds(BEGIN_SECONDS, END_SECONDS - 1.0)

    def anyone(self) -> str:
        """A member, by its name or its role."""
        role = self.random.choice((COORDINATOR, COORDINATOR, PARTICIPANT, ""))
        return role or self.random.choice(self.members)

    def goes(self) -> float | None:
        """How long one that goes is away; None, if it may be, is for good."""
        if self.spare > 0 and self.random.random() < 0.4:
            self.spare -= 1
            return None
        return self.seconds(0.1, 4.0)


Kind = Callable[[GroupDraw], Step]


def _lasting(make: Callable[[Draw], faults.Action], low: float = 0.2, high: float = 4.0) -> Kind:
    """A fault of links, which ends, and sometimes comes and goes."""

    def step(draw: GroupDraw) -> Step:
        duration = draw.seconds(low, high)
        one = Step(at=draw.moment(), action=make(draw), duration=duration)
        if isinstance(one.action, faults.Partition | faults.Cut) and draw.random.random() < 0.2:
            every = draw.seconds(0.3, 1.5)
            return replace(one, every=every, up=round(every * draw.share(0.1, 0.8), 3))
        return one

    return step


def _partition(draw: Draw) -> faults.Action:
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
    """One way: a link, all that one says, or all that one hears."""
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
        sources=sources, dests=dests, p_bad=draw.share(0.01, 0.1), p_good=draw.share(0.05, 0.5),
        loss_bad=draw.random.choice((1.0, draw.share(0.3, 0.9))),
        loss_good=draw.random.choice((0.0, 0.02)),
    )  # fmt: skip


def _nth(draw: Draw) -> faults.Action:
    sources, dests = draw.side()
    nth = draw.random.choice((2, 3, 5, 10))
    return faults.NthLoss(sources=sources, dests=dests, nth=nth, burst=1)


def _slow(draw: Draw) -> faults.Action:
    """Narrow enough for queues to build up, too wide for everybody to be suspected. A connection
    drops nothing, so what queues up in it must have time to pass."""
    assert isinstance(draw, GroupDraw)
    sources, dests = draw.side()
    low, high = (100_000, 300_000) if draw.is_stream else (8_000, 40_000)
    return faults.Bandwidth(
        sources=sources, dests=dests, rate=float(draw.random.randint(low, high))
    )


def _rule(draw: Draw) -> faults.Action:
    assert isinstance(draw, GroupDraw)
    return _aimed(draw, *_meaning(draw))


def _meaning(draw: GroupDraw) -> tuple[str, str]:
    """Protocol and kind of the frames that a rule takes."""
    random = draw.random
    if random.random() < 0.25:
        return random.choice((draw.multicast, draw.multicast, "")), "DATA"
    there = [name for name in SPARSE if draw.stack in ONLY_ON.get(name, STACKS)]
    weights = [4 if name in ("GMS", draw.multicast) else 1 for name in there]
    (protocol,) = random.choices(there, weights)
    return protocol, random.choice(SPARSE[protocol])


def _aimed(draw: GroupDraw, protocol: str, kind: str) -> faults.Rule:
    """Frames of one meaning, from one member or to one or between all, are lost, late or double."""
    random = draw.random
    one = (random.choice(draw.members),)
    side = random.randrange(4)
    deeds = ["hold", "delay", "duplicate"]
    if kind != "DATA" or not draw.switches:
        deeds += ["drop", "drop", "drop", "corrupt"]
    does = random.choice(deeds)
    match = faults.Match(
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


def _join(draw: GroupDraw) -> Step:
    """Somebody comes late: one of those who are kept for that, or one of the others."""
    waiting = [name for name in draw.members if name not in draw.late]
    if len(waiting) > 2:
        name = draw.random.choice(waiting)
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
    source, dest = draw.pair()
    half = draw.random.choice(("receiver", "sender", "both"))
    member, peer = (dest, source) if half == "receiver" else (source, dest)
    at = draw.seconds(BEGIN_SECONDS, END_SECONDS - 2.0)
    return Step(at=at, action=faults.Forget(member=member, peer=peer, half=half))


def _view(draw: GroupDraw) -> Step:
    """Some believe in a view that lacks others: views that no protocol would make."""
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
    "partition": _lasting(_partition, 0.5),
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
    "join": _join,
    "churn": _churn,
    "stall": _stall,
    "forget": _forget,
    "install-view": _view,
    "set-attribute": _set,
}


# -- Plots -----------------------------------------------------------------------------------------


def _hit_the_merge(draw: GroupDraw) -> list[Step]:
    """A partition heals, and soon after that something happens to the merge (mid-merge faults)."""
    at, length = draw.seconds(1.5, 3.5), draw.seconds(2.0, 3.5)
    healed = at + length
    soon = round(draw.seconds(0.0, 3.0) + healed, 3)
    second = draw.random.choice(("crash", "pause", "partition", "rule", "join", "leave", "cut"))
    steps = [Step(at=at, action=_partition(draw), duration=length)]
    if second == "rule":
        kind = draw.random.choice(
            ("MERGE_REQ", "MERGE_RSP", "VIEW", "VIEW_ACK", "GET_DIGEST_RSP", "CANCEL_MERGE")
        )
        rule = _aimed(draw, "GMS", kind)
        steps.append(Step(at=at, action=rule, duration=round(length + draw.seconds(0.5, 4.0), 3)))
    else:
        steps.append(replace(KINDS[second](draw), at=soon))
    return steps


def _coordinators_fall(draw: GroupDraw) -> list[Step]:
    """One coordinator after the other goes, each before the view without the one before it."""
    at = draw.seconds(1.0, 5.0)
    steps = []
    for _ in range(draw.random.randint(2, 3)):
        how = draw.random.choice((faults.Crash, faults.Crash, faults.Leave))
        action = how(member=COORDINATOR)
        steps.append(Step(at=at, action=action, duration=draw.goes()))
        at = round(at + draw.random.choice((draw.seconds(0.0, 0.1), draw.seconds(0.1, 2.6))), 3)
    return steps


def _views_run_ahead(draw: GroupDraw) -> list[Step]:
    """While two sides are apart, one of them goes through several views: when they merge, the
    number of its view is far above the other's."""
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
    """Several leave at one time, the coordinator among them, while their goodbyes get lost."""
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
        steps.append(Step(at=at, action=_aimed(draw, "GMS", kind), duration=draw.seconds(0.3, 2.0)))
    return steps


def _join_while_all_changes(draw: GroupDraw) -> list[Step]:
    """Somebody joins into traffic, and its answer is late or lost while the group changes."""
    join = _join(draw)
    at = join.at
    kind = draw.random.choice(("JOIN_REQ", "JOIN_RSP", "JOIN_RSP", "VIEW", "VIEW_ACK"))
    rule = Step(at=at, action=_aimed(draw, "GMS", kind), duration=draw.seconds(0.2, 2.0))
    other = draw.random.choice(("crash", "leave", "partition", "join", "loss", "pause"))
    soon = round(at + draw.seconds(0.0, 0.6), 3)
    return [join, rule, replace(KINDS[other](draw), at=soon)]


def _one_is_stolen(draw: GroupDraw) -> list[Step]:
    """Where nothing is lost, one multicast is, in the middle of the traffic: what only an alarm
    tells (M-12)."""
    source, dest = draw.pair()
    match = faults.Match(
        protocols=(draw.multicast,), kinds=("DATA",), sources=(source,), dests=(dest,)
    )
    return [
        Step(
            at=draw.seconds(BEGIN_SECONDS, 3.0),
            action=faults.Rule(does="drop", match=match, times=1),
            duration=1.0,
        )
    ]


def _last_is_lost(draw: GroupDraw) -> list[Step]:
    """The last multicasts of one are lost to one member, and what would announce them, too."""
    if draw.switches:
        return _one_is_stolen(draw)
    source, dest = draw.pair()
    data = faults.Match(
        protocols=(draw.multicast,), kinds=("DATA",), sources=(source,), dests=(dest,),
        transmission=(0, 0),
    )  # fmt: skip
    told = replace(data, kinds=("HIGHEST_SEQNO",), transmission=None)
    at = draw.seconds(END_SECONDS - 3.0, END_SECONDS - 1.0)
    length = draw.seconds(2.5, 6.0)
    return [
        Step(at=at, action=faults.Rule(does="drop", match=data), duration=length),
        Step(at=at, action=faults.Rule(does="drop", match=told), duration=length),
    ]


def _late_words(draw: GroupDraw) -> list[Step]:
    """What was said in one view arrives in a later one: votes, acks, digests, messages, views."""
    kinds = [
        ("GMS", "VIEW"), ("GMS", "VIEW_ACK"), ("GMS", "JOIN_RSP"), ("GMS", "GET_DIGEST_RSP"),
        (draw.multicast, "DATA"), (draw.multicast, "XMIT_REQ"), (draw.multicast, "HIGHEST_SEQNO"),
        (draw.multicast, "BASELINE"),
    ]  # fmt: skip
    if draw.multicast == "MCAST":
        kinds += [("MCAST", "ACK")] * 3
    else:
        kinds += [("STABLE", "GOSSIP"), ("STABLE", "STABILITY"), ("STABLE", "STABILITY")]
    at = draw.seconds(1.0, 5.0)
    length = draw.seconds(0.3, 3.5)
    steps = []
    for protocol, kind in draw.random.sample(kinds, draw.random.randint(1, 2)):
        one = (draw.random.choice(draw.members),)
        match = faults.Match(protocols=(protocol,), kinds=(kind,), sources=one)
        steps.append(Step(at=at, action=faults.Rule(does="hold", match=match), duration=length))
    change = draw.random.choice(("partition", "leave", "crash", "join", "restart", "install-view"))
    within = round(at + draw.seconds(0.0, length), 3)
    return [*steps, replace(KINDS[change](draw), at=within)]


def _views_by_hand(draw: GroupDraw) -> list[Step]:
    """Two halves, each with a view of its own, or of which only one knows of the parting."""
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
    if not draw.switches:
        return []
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
    """A member takes nothing while windows are small, and the view changes."""
    name = draw.random.choice(draw.members)
    at, length = draw.seconds(1.0, 4.0), draw.seconds(1.0, 4.0)
    change = draw.random.choice(("crash", "leave", "join", "partition", "pause"))
    return [
        Step(at=at, action=faults.Stall(member=name), duration=length),
        replace(KINDS[change](draw), at=round(at + draw.seconds(0.0, length), 3)),
    ]


def _early_and_deaf(draw: GroupDraw) -> list[Step]:
    """A member gets a view late, so that its peers' messages come before it."""
    one = (draw.random.choice(draw.members),)
    match = faults.Match(protocols=("GMS",), kinds=("VIEW", "JOIN_RSP"), dests=one)
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


# -- The scenario ----------------------------------------------------------------------------------


def generate(seed: int, attempt: int, stack: str, leading: str) -> Scenario:
    """The scenario of a seed in a cell of the grid; `attempt` draws another one for it."""
    random = Random(f"stormcast/group/{seed}/{attempt}")
    members = tuple(f"n{number}" for number in range(random.choice((3, 3, 4, 4, 5, 6))))
    draw = GroupDraw(random, members, stack)
    workload = _workload(draw, needs_unicast=leading == "forget")
    draw.busy = tuple((load.sources[0], load.dests[0]) for load in workload if load.do == "unicast")
    timeline = _timeline(draw, leading)
    return Scenario(
        name=f"generated-{seed}",
        about=f"{stack} under {leading} and more, drawn from seed {seed}.",
        guarantees=GUARANTEES,
        needs=("multicast",),
        cluster=_cluster(draw),
        network=Link(delay=draw.seconds(0.0002, 0.01), jitter=random.choice((0.0, 0.0, 0.002))),
        workload=workload,
        timeline=timeline,
        limits=Limits(run=120.0, settle=SETTLE_SECONDS),
    )


def _timeline(draw: GroupDraw, leading: str) -> tuple[Step, ...]:
    random = draw.random
    steps = random.choice(PLOTS)(draw) if random.random() < 0.5 else []
    weights = [OFTEN.get(kind, 1) for kind in KINDS]
    kinds = [leading, *random.choices(tuple(KINDS), weights, k=random.randint(1, 4))]
    steps += [KINDS[kind](draw) for kind in kinds]
    known = (_without_strangers(draw, step) for step in steps)
    return tuple(sorted((step for step in known if step is not None), key=lambda step: step.at))


OFTEN: Final = {"rule": 4, "partition": 2, "crash": 2, "join": 2}
"""Faults with many forms come more often than the others."""


def _without_strangers(draw: GroupDraw, step: Step) -> Step | None:
    """A step that names no one who may not have started yet, where that cannot be; or None."""
    action = step.action
    if isinstance(action, faults.Forget) and not {action.member, action.peer}.isdisjoint(draw.late):
        return None
    if isinstance(action, faults.InstallView):
        members = tuple(name for name in action.members if name not in draw.late)
        believers = tuple(name for name in action.at_members if name in members)
        if not believers:
            return None
        return replace(step, action=faults.InstallView(at_members=believers, members=members))
    return step


def _workload(draw: GroupDraw, *, needs_unicast: bool) -> tuple[Load, ...]:
    """Some hundred multicasts over the time in which faults happen, and unicasts among them."""
    random, members = draw.random, draw.members
    loads = [_load(draw, members, random.randint(40, 120))]
    if random.random() < 0.6:
        some = tuple(random.sample(members, random.randint(1, 2)))
        loads.append(_load(draw, some, random.randint(50, 200)))
    if random.random() < 0.3:
        # Large messages, each a burst by itself.
        large = random.choice((3_000, 20_000, 100_000))
        draw.has_large = large > 3_000
        load = _load(draw, (random.choice(members),), random.randint(5, 20))
        loads.append(replace(load, size=(large // 4, large), burst=1))
    if needs_unicast or random.random() < 0.5:
        one, other = draw.pair()
        load = _load(draw, (one,), random.randint(50, 200))
        loads.append(replace(load, do="unicast", dests=(other,), excludes_self=True))
    return tuple(loads)


FLAGS: Final[tuple[Names, ...]] = (
    *[()] * 4,
    ("DONT_BUNDLE",),
    ("DONT_LOOPBACK",),
    ("OOB",),
    ("OOB", "DONT_LOOPBACK"),
    ("NO_FC",),
    ("NO_RELIABILITY",),
)


def _load(draw: GroupDraw, sources: Names, count: int) -> Load:
    random = draw.random
    start = draw.seconds(0.0, 1.0)
    low = random.choice((16, 16, 100))
    until = random.choice((END_SECONDS, END_SECONDS, draw.seconds(4.0, END_SECONDS)))
    return Load(
        do="multicast",
        sources=sources,
        dests=draw.members,
        excludes_self=False,
        count=count,
        rate=round(count / (until - start), 3),
        size=(low, random.choice((low, low, 500, 2000))),
        start=start,
        burst=random.choice((1, 1, 5, 20)),
        oob_every=random.choice((0, 0, 0, 0, 7, 2)),
        flags=random.choice(FLAGS),
    )


# -- What it runs ----------------------------------------------------------------------------------


SHORTER: Final[dict[str, dict[str, object]]] = {
    "GMS": {
        "join_timeout": 0.5, "all_clients_retry_timeout": 0.1, "merge_timeout": 2.0,
        "view_ack_collection_timeout": 1.0,
    },
    "MERGE3": {"min_interval": 0.2, "max_interval": 1.0, "check_interval": 1.6},
    "FD_ALL3": {"timeout": 2.0, "interval": 0.25},
    "FD_SOCK2": {"suspect_msg_interval": 0.5},
    "VERIFY_SUSPECT2": {"timeout": 0.3, "num_msgs": 2},
    "STABLE": {"desired_avg_gossip": 2.0},
    "MFC": {"max_block_time": 0.5},
    "UFC": {"max_block_time": 0.5},
}  # fmt: skip
"""`compatible` timing with intervals that fit a run of half a minute."""


def _cluster(draw: GroupDraw) -> Cluster:
    random = draw.random
    timing = random.choice(("fast", "fast", "fast", "compatible"))
    protocols: dict[str, dict[str, object]] = {}
    if timing == "compatible":
        protocols = {
            name: dict(values)
            for name, values in SHORTER.items()
            if draw.stack in ONLY_ON.get(name, STACKS)
        }
    _set_membership(draw, protocols.setdefault("GMS", {}))
    _set_flow(draw, protocols)
    if draw.switches and draw.stack != "tcp-no-retransmit":
        # Only what loses nothing may do without retransmission.
        protocols["TCP_NIO2" if draw.stack == "tcp-nio2" else "TCP"] = {"drop_when_full": False}
    if draw.multicast == "NAKACK2" and random.random() < 0.4:
        stable = protocols.setdefault("STABLE", {})
        stable["max_messages"] = random.choice((8, 30))
        stable["desired_avg_gossip"] = random.choice((0.5, 2.0, 5.0))
    return Cluster(
        members=draw.members,
        stack=draw.stack,
        timing=timing,
        multicast_settings=_flat(_multicast_settings(draw, timing)),
        protocols=tuple((name, _flat(values)) for name, values in protocols.items() if values),
        max_batch=random.choice((None, None, None, 1, 3, 20)),
        late=draw.late,
        joins=random.choice(("together", "together", "one-by-one")),
    )


def _flat(values: dict[str, object]) -> Settings:
    return tuple(sorted(values.items()))


def _set_membership(draw: GroupDraw, gms: dict[str, object]) -> None:
    random = draw.random
    if random.random() < 0.2:
        gms["view_ack_collection_timeout"] = random.choice((0.2, 2.0))
    if random.random() < 0.2:
        gms["merge_timeout"] = random.choice((0.5, 1.0))
    if random.random() < 0.1:
        gms["leave_timeout"] = 0.3


def _set_flow(draw: GroupDraw, protocols: dict[str, dict[str, object]]) -> None:
    """Small credits need fragments that are smaller still."""
    random = draw.random
    is_tight = random.random() < 0.35
    names = ["UFC"] if draw.multicast == "MCAST" else ["MFC", "UFC"]
    if is_tight or random.random() < 0.4:
        size = random.choice((400, 1500)) if is_tight else random.choice((1000, 8000))
        protocols["FRAG"] = {"frag_size": size}
        if is_tight:
            for name in names:
                credit = protocols.setdefault(name, {})
                credit["max_credits"] = random.choice((6, 20)) * size
                credit["min_threshold"] = random.choice((0.2, 0.5))


def _multicast_settings(draw: GroupDraw, timing: str) -> dict[str, object]:
    """Windows and queues that are met, and every way to repair."""
    random = draw.random
    never_repairs = draw.stack == "tcp-no-retransmit"
    settings: dict[str, object] = {}
    if draw.switches:
        settings["gap_alarm"] = 3.0
    if timing == "compatible" and not never_repairs:
        settings["xmit_interval"] = random.choice((0.25, 0.5))
    if random.random() < 0.5:
        settings.update(_window(draw))
    for name, chance, values in RARE_SETTINGS:
        if random.random() < chance and not (name == "window_bytes" and draw.has_large):
            settings[name] = random.choice(values)
    if random.random() < 0.15 and not never_repairs:
        settings[random.choice(("use_mcast_xmit_req", "xmit_from_random_member"))] = True
    if draw.multicast == "NAKACK2" and random.random() < 0.2:
        settings["resend_last_seqno"] = False
    if draw.multicast == "MCAST" and random.random() < 0.2:
        settings["slow_member_timeout"] = random.choice((0.5, 2.0))
    return settings


RARE_SETTINGS: Final[tuple[tuple[str, float, tuple[object, ...]], ...]] = (
    ("window_bytes", 0.15, (4096, 32768)),
    ("become_server_queue_size", 0.25, (1, 5)),
    ("max_unknown_messages", 0.2, (1, 5)),
    ("unknown_sender_timeout", 0.2, (1.0,)),
    ("use_mcast_xmit", 0.2, (True, False)),
)
"""Settings of both multicast protocols: name, how often it is set, values."""


def _window(draw: GroupDraw) -> dict[str, object]:
    """A window that the traffic fills; of MCAST down to a single message."""
    random = draw.random
    # Not beyond what small requests can ask for within a run.
    requests: dict[str, object] = {}
    if random.random() < 0.5:
        requests["max_xmit_req_size"] = random.choice((1, 4, 64))
    if draw.multicast != "MCAST":
        return {"window_messages": 100 if draw.has_large else random.choice((8, 30, 100)),
                **requests}  # fmt: skip
    window = 100 if draw.has_large else random.choice((1, 8, 30, 100))
    threshold = random.choice((0, max(1, window // 2), window - 1))
    return {"window_messages": window, "ack_threshold": threshold, **requests}
