"""Plots that bring their own loads and settings: bounds, credits and timeouts that are met.

A limit shows what it does only where it is small against what is sent, or short against what is
broken. So these plots say what the cluster runs as well. They are drawn last: how long a closed
connection must be remembered depends on what the other steps hold back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from stormcast.chaos import faults
from stormcast.chaos.campaigns.generate.draw import Names
from stormcast.chaos.campaigns.generate.groups.dice import BEGIN_SECONDS, END_SECONDS, GroupDraw
from stormcast.chaos.campaigns.generate.groups.kinds import KINDS, aimed, join
from stormcast.chaos.language.timeline import Step
from stormcast.chaos.language.workload import Load
from stormcast.node.core.match import Match

Steps = list[Step]
StagedPlot = Callable[[GroupDraw], Steps]

STREAM_GIVES_UP: Final = 15.8
"""Seconds until the first retransmission of a kernel that is its last on a connection that gets
nothing through."""
QUEUE_LIFE: Final = 2.0
"""Seconds for which a bandwidth limit or a kernel's retransmission may keep a frame."""


def frame_life(draw: GroupDraw) -> float:
    """How long the steps may keep a frame under way. A connection that was removed must be
    remembered for longer: only then is a frame of it known for what it is."""
    longest = 0.0
    broken: list[tuple[float, float]] = []
    for step in draw.steps:
        action, duration = step.action, step.duration or 0.0
        match action:
            case faults.Rule(does="hold") | faults.Pause():
                longest = max(longest, duration)
            case faults.Rule(delay=delay):
                longest = max(longest, delay)
            case faults.Delay():
                longest = max(longest, action.delay + action.jitter)
            case faults.Reorder():
                longest = max(longest, action.by)
            case faults.Bandwidth():
                longest = max(longest, QUEUE_LIFE)
        if isinstance(action, faults.NetworkFault) and not isinstance(action, faults.Rule):
            broken.append((step.at, step.at + duration))
    # A kernel keeps what it could not send, until the network lets it pass.
    return max(longest, _longest_stretch(broken)) if draw.is_stream else longest


def _longest_stretch(spans: list[tuple[float, float]]) -> float:
    """How long it takes until a frame that meets one fault after the other is through."""
    longest = begin = end = 0.0
    for start, stop in sorted(spans):
        if start > end:
            begin = start
        end = max(end, stop + QUEUE_LIFE)
        longest = max(longest, end - begin)
    return longest


def short_lives(draw: GroupDraw, at_least: float = 0.0) -> float:
    """Have idle connections close soon and be removed soon; returns after how many seconds."""
    expiry = draw.random.choice((0.5, 1.0, 2.0))
    close = max(at_least, round(frame_life(draw) + draw.seconds(0.3, 1.5), 3))
    draw.settings.update(conn_expiry_timeout=expiry, conn_close_timeout=close)
    return expiry + close


def _small_credits(draw: GroupDraw) -> int:
    """Have credits be a few pieces, whatever the windows take; returns how many bytes they are."""
    size = draw.random.choice((200, 400, 1500))
    budget = draw.random.choice((6, 12)) * size
    draw.ask("FRAG", frag_size=size)
    for name in ("UFC", "MFC"):
        draw.ask(name, max_credits=budget, min_threshold=draw.random.choice((0.2, 0.5)))
    return budget


def _unicasts(
    draw: GroupDraw,
    ends: tuple[str, str],
    size: int,
    total: int,
    start: float,
    *,
    fast: bool = True,
) -> None:
    """Have one send so many bytes to another from a moment on: mostly fast, or until the end."""
    random = draw.random
    source, dest = ends
    count = max(2, total // size)
    within = random.choice((0.2, 0.2, 1.0)) if fast else END_SECONDS - start
    draw.loads.append(
        Load(
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


# -- Fragments -------------------------------------------------------------------------------------


def _pieces_overtake(draw: GroupDraw) -> Steps:
    """OOB messages of a few pieces each, more at once than a receiver keeps unfinished, while
    pieces are lost, late and overtaken."""
    random = draw.random
    size = random.choice((400, 1500))
    draw.ask("FRAG", frag_size=size, max_open_messages=random.choice((1, 2, 4)))
    draw.has_large = True
    broken: Steps = []
    for _ in range(random.randint(1, 2)):
        one, other = draw.pair()
        draw.busy += ((one, other),)
        is_multicast = random.random() < 0.4
        start, count = draw.seconds(1.0, 4.0), random.randint(10, 40)
        draw.loads.append(
            Load(
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


def _pieces_left_over(draw: GroupDraw) -> Steps:
    """Members come, or are expelled and merge, within OOB multicasts of which two are on the way at
    any time, and no more may be unfinished: they keep the end of one that they missed the beginning
    of, while pieces overtake each other."""
    random = draw.random
    budget = _small_credits(draw)
    draw.ask("FRAG", max_open_messages=2)
    draw.has_large = True
    start = draw.seconds(0.5, 1.5)
    for source in random.sample(draw.members, random.randint(1, 2)):
        count = random.randint(60, 150)
        draw.loads.append(
            Load(
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


def _all_send_large(draw: GroupDraw) -> Steps:
    """Several send messages of many pieces at one time, and receivers may keep no more than one of
    the largest; small credits have the pieces of all of them arrive in turns."""
    random = draw.random
    budget = _small_credits(draw)
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
            Load(
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


# -- Credits and connections -----------------------------------------------------------------------


def _forgotten_while_blocked(draw: GroupDraw) -> Steps:
    """A sender waits for credits, nothing comes through, and one half of the connection that its
    question names is lost."""
    random = draw.random
    one, other = draw.pair()
    budget = _small_credits(draw)
    at, length = draw.seconds(BEGIN_SECONDS, 4.0), draw.seconds(0.4, 1.8)
    start = draw.seconds(at - 0.3, at + length / 3)
    _unicasts(draw, (one, other), random.choice((100, 500)), budget * random.randint(3, 8), start)
    # What waits goes with the connection: only what is sent later finds the way closed.
    _unicasts(draw, (one, other), 100, random.randint(10, 40) * 100, start, fast=False)
    ends = (one,), (other,)
    if random.random() < 0.3:
        ends = ends[1], ends[0]
    lost = draw.seconds(at + length / 3, at + length + 0.1)
    losses: Steps = []
    for half in random.choice((("sender",), ("both",), ("receiver",), ("sender", "receiver"))):
        member, peer = (other, one) if half == "receiver" else (one, other)
        action = faults.Forget(member=member, peer=peer, half=half)
        losses.append(Step(at=round(lost + draw.seconds(0.0, 0.2), 3), action=action))
    broken: faults.Action = faults.Cut(sources=ends[0], dests=ends[1])
    if random.random() < 0.2:
        broken = faults.Stall(member=other)
    return [Step(at=at, action=broken, duration=length), *losses]


def _blocked_for_long(draw: GroupDraw) -> Steps:
    """An application takes nothing for longer than an idle connection lives, while somebody waits
    for its credits."""
    random = draw.random
    one, other = draw.pair()
    life = short_lives(draw)
    budget = _small_credits(draw)
    at = draw.seconds(BEGIN_SECONDS, 4.0)
    start = draw.seconds(max(1.0, at - 1.0), at + 0.5)
    _unicasts(draw, (one, other), random.choice((100, 500)), budget * random.randint(3, 8), start)
    length = round(life + draw.seconds(0.3, 2.5), 3)
    return [Step(at=at, action=faults.Stall(member=other), duration=length)]


def _late_detection(draw: GroupDraw, silence: float) -> None:
    """Have failure detection bear so many seconds of silence."""
    timeout = round(1.3 * (silence + draw.seconds(0.5, 2.0)), 3)
    draw.ask("FD_ALL3", timeout=timeout, interval=round(timeout / 10, 3))


def _parted_unnoticed(draw: GroupDraw) -> Steps:
    """A partition that ends after idle connections are given up, and before anybody is suspected,
    while messages for the other side wait."""
    random = draw.random
    source, dest = draw.pair()
    life = short_lives(draw) if not draw.is_stream else draw.seconds(2.0, 6.0)
    length = round(life + draw.seconds(0.3, 2.5), 3)
    _late_detection(draw, length)
    if random.random() < 0.5:
        _small_credits(draw)
    at = draw.seconds(BEGIN_SECONDS, 3.0)
    if random.random() < 0.7:
        # Known to each other already: this is about a connection in use.
        _unicasts(draw, (source, dest), 100, random.randint(5, 20) * 100, draw.seconds(1.0, at))
    _unicasts(draw, (source, dest), random.choice((100, 500)), random.randint(2, 30) * 500, at)
    broken: faults.Action
    if random.random() < 0.4:
        broken = faults.Cut(sources=(source,), dests=(dest,))
    else:
        rest = tuple(name for name in draw.members if name != dest)
        broken = faults.Partition(groups=(rest, (dest,)))
    return [Step(at=at, action=broken, duration=length)]


def _baseline_from_before(draw: GroupDraw) -> Steps:
    """Without retransmission a connection takes what it held along, and where the sender's
    messages begin is told by a frame from before, late."""
    random = draw.random
    one, other = draw.pair()
    draw.windows["gap_alarm"] = 60.0
    at = draw.seconds(1.0, 3.0)
    length = round(STREAM_GIVES_UP + draw.seconds(2.5, 4.0), 3)
    _late_detection(draw, length + 1.0)
    cut_at = round(at + draw.seconds(0.1, 3.0), 3)
    told = Match(
        protocols=("NAKACK2",), kinds=("BASELINE",), sources=(one,), dests=(other,)
    )  # fmt: skip
    # One is late, and those after it are lost: it is the first that the next connection brings, or
    # nearly so, and until it comes nothing else says what there is.
    held = round(cut_at - at + STREAM_GIVES_UP + draw.seconds(0.2, 2.4), 3)
    broken = [
        Step(at=at, action=faults.Rule(does="hold", match=told, times=1), duration=held),
        # Not cut: rules are for what could pass, and the network tells of a lost connection.
        Step(
            at=cut_at,
            action=faults.Loss(sources=(one,), dests=(other,), rate=1.0),
            duration=length,
        ),
    ]
    silence = Match(
        protocols=("NAKACK2", "STABLE"), kinds=("BASELINE", "GOSSIP", "STABILITY"),
        sources=(one,), dests=(other,),
    )  # fmt: skip
    dropped = faults.Rule(does="drop", match=silence)
    broken.append(Step(at=at, action=dropped, duration=held + 4.0))
    attribute = "NAKACK2.xmit_interval"
    for value in (0.25, 0.0):
        soon = round(at + draw.seconds(0.0, 0.1) + (0.1 if not value else 0.0), 3)
        action = faults.SetAttribute(member=other, attribute=attribute, value=value)
        broken.append(Step(at=soon, action=action))
    if random.random() < 0.5:
        action = faults.SetAttribute(member=one, attribute=attribute, value=0.0)
        broken.append(Step(at=at, action=action))
    return broken


# -- Members ---------------------------------------------------------------------------------------


def _all_leave(draw: GroupDraw) -> Steps:
    """Everybody leaves at one time, and comes back: nobody is left to hand the group over to."""
    random = draw.random
    at = draw.seconds(BEGIN_SECONDS, 6.0)
    within = random.choice((0.0, 0.05, 0.5))
    goodbyes = [
        Step(
            at=round(at + draw.seconds(0.0, within), 3),
            action=faults.Leave(member=name)
            if random.random() < 0.9
            else faults.Crash(member=name),
            duration=draw.seconds(0.3, 4.0),
        )
        for name in draw.members
    ]
    if random.random() < 0.4:
        kind = random.choice(("LEAVE_REQ", "LEAVE_RSP", "VIEW", "VIEW_ACK"))
        goodbyes.append(Step(at=at, action=aimed(draw, "GMS", kind), duration=draw.seconds(0.3, 2)))
    return goodbyes


def _only_a_joiner_lives(draw: GroupDraw) -> Steps:
    """Everybody is killed but one that has just joined, or is about to: it was let in by a group
    that is no more. The others come back later."""
    random = draw.random
    coming = join(draw)
    assert isinstance(coming.action, faults.Join)
    around = draw.random.choice((0.02, 0.3, 1.2))
    killed = [
        Step(
            at=round(max(0.0, coming.at + draw.seconds(-around / 4, around)), 3),
            action=faults.Crash(member=name),
            duration=draw.seconds(1.0, 6.0),
        )
        for name in draw.members
        if name != coming.action.member
    ]
    random.shuffle(killed)
    return [coming, *killed]


# -- Settings while it runs ------------------------------------------------------------------------


def _switches(draw: GroupDraw) -> tuple[str, tuple[object, ...]]:
    """A setting that may change at any moment, and its values."""
    random = draw.random
    if draw.switches and random.random() < 0.7:
        return "NAKACK2.xmit_interval", (0.0, 0.25, 0.0, 0.1)
    if draw.multicast == "MCAST" and random.random() < 0.5:
        return random.choice(
            (
                ("MCAST.xmit_interval", (0.1, 1.0)),
                ("MCAST.max_xmit_req_size", (1, 64)),
                ("MCAST.slow_member_timeout", (0.0, 2.0)),
                ("MCAST.ack_threshold", (1, 0)),
            )
        )
    return random.choice(
        (
            (f"{draw.multicast}.xmit_interval", (0.1, 1.0)),
            (f"{draw.multicast}.max_xmit_req_size", (1, 64)),
            ("xmit_interval", (0.1, 1.0)),
            ("ack_threshold", (1, 2)),  # At most half of the smallest window.
            ("conn_expiry_timeout", (1.5, 60.0)),
            ("max_retransmit_time", (4.0, 60.0)),
            ("sync_min_interval", (0.1, 1.0)),
            ("max_xmit_req_size", (1, 64)),
        )
    )


def _switch_meanwhile(draw: GroupDraw) -> Steps:
    """Settings change in the middle of something else: a join, a merge, a partition."""
    random = draw.random
    kind = random.choice(("join", "join", "partition", "partition", "cut", "restart", "leave"))
    during = KINDS[kind](draw)
    moments = [during.at, round(during.at + (during.duration or 0.0), 3)]
    changed: Steps = []
    for _ in range(random.randint(1, 2)):
        attribute, values = _switches(draw)
        who: Names = tuple(random.sample(draw.members, random.randint(1, len(draw.members))))
        moment = random.choice(moments)
        for value in values[: random.randint(1, len(values))]:
            moment = round(max(0.0, moment + draw.seconds(-0.3, 1.2)), 3)
            spread = random.choice((0.0, 0.0, 0.3))
            for name in who:
                action = faults.SetAttribute(member=name, attribute=attribute, value=value)
                at = min(round(moment + draw.seconds(0.0, spread), 3), END_SECONDS + 1.9)
                changed.append(Step(at=at, action=action))
    return [during, *changed]


def _joiner_overflows(draw: GroupDraw) -> Steps:
    """What comes before a joiner's first view is more than it keeps; before that view comes, it is
    told to repair nothing."""
    random = draw.random
    coming = join(draw)
    assert isinstance(coming.action, faults.Join)
    name = coming.action.member
    draw.windows.update(become_server_queue_size=random.choice((1, 5)), gap_alarm=60.0)
    length = draw.seconds(0.3, 1.5)
    let_in = Match(protocols=("GMS",), kinds=("JOIN_RSP", "VIEW"), dests=(name,))
    late = Step(at=coming.at, action=faults.Rule(does="hold", match=let_in), duration=length)
    changed: Steps = []
    moment = coming.at
    for value in (0.25, 0.0) if draw.stack == "tcp-no-retransmit" else (0.0,):
        moment = round(moment + draw.seconds(0.01, length), 3)
        action = faults.SetAttribute(member=name, attribute="NAKACK2.xmit_interval", value=value)
        changed.append(Step(at=moment, action=action))
    return [coming, late, *changed]


# -- Views by hand ---------------------------------------------------------------------------------


def _views_of(draw: GroupDraw) -> list[tuple[Names, Names]]:
    """Believers and members of some views that no protocol would make."""
    random = draw.random
    names = tuple(random.sample(draw.members, len(draw.members)))
    shape = random.choice(("alone", "chain", "overlap", "turned", "one-less", "everyone-twice"))
    if shape == "alone":
        return [((name,), (name,)) for name in names]
    if shape == "chain":
        return [((name,), (name, names[at - 1])) for at, name in enumerate(names)]
    if shape == "overlap":
        at = random.randint(1, len(names) - 1)
        return [(names[: at - 1] or names[:1], names[:at]), (names[at:], names[at - 1 :])]
    if shape == "turned":
        return [(names[::2], names), (names[1::2], names[::-1])]
    if shape == "one-less":
        return [((name,), tuple(n for n in names if n != names[at - 1]))
                for at, name in enumerate(names)]  # fmt: skip
    return [(names, names), (names, names)]


def _odd_views(draw: GroupDraw) -> Steps:
    """Views that overlap, follow each other in a ring, or name everybody in another order, with
    something else at the same time."""
    random = draw.random
    at = draw.seconds(BEGIN_SECONDS, END_SECONDS - 2.0)
    within = random.choice((0.0, 0.3, 1.5))
    handed = [
        Step(
            at=round(at + draw.seconds(0.0, within), 3),
            action=faults.InstallView(at_members=believers, members=members),
        )
        for believers, members in _views_of(draw)
    ]
    if random.random() < 0.5:
        short_lives(draw)
    second = KINDS[random.choice(("partition", "loss", "leave", "set-attribute", "forget", "join"))]
    return [*handed, second(draw)]


STAGED: Final[tuple[StagedPlot, ...]] = (
    _pieces_overtake,
    _pieces_overtake,
    _pieces_left_over,
    _all_send_large,
    _all_send_large,
    _forgotten_while_blocked,
    _forgotten_while_blocked,
    _blocked_for_long,
    _blocked_for_long,
    _parted_unnoticed,
    _parted_unnoticed,
    _all_leave,
    _only_a_joiner_lives,
    _switch_meanwhile,
    _odd_views,
)
SWITCHING: Final[tuple[StagedPlot, ...]] = (
    _baseline_from_before,
    _baseline_from_before,
    _joiner_overflows,
    _joiner_overflows,
    _switch_meanwhile,
)
"""Those besides where retransmission is off, or may be for a while."""
