"""Plots in which senders wait, mostly for credits, and connections end meanwhile."""

from __future__ import annotations

from stormcast.chaos import faults
from stormcast.chaos.campaigns.generate.groups.dice import BEGIN_SECONDS, GroupDraw
from stormcast.chaos.campaigns.generate.groups.lifetimes import STREAM_GIVES_UP, short_lives
from stormcast.chaos.campaigns.generate.groups.staged.traffic import small_credits, unicasts
from stormcast.chaos.language.timeline import Step
from stormcast.node.core.match import Match


def forgotten_while_blocked(draw: GroupDraw) -> list[Step]:
    """A sender waits for credits while its link is cut or its receiver stalls, and a half of the
    connection is lost for which it asks for credits."""
    random = draw.random
    one, other = draw.pair()
    budget = small_credits(draw)
    at, length = draw.seconds(BEGIN_SECONDS, 4.0), draw.seconds(0.4, 1.8)
    start = draw.seconds(at - 0.3, at + length / 3)
    unicasts(draw, (one, other), random.choice((100, 500)), budget * random.randint(3, 8), start)
    # Waiting messages are given up with the connection: only later messages find it blocked.
    unicasts(draw, (one, other), 100, random.randint(10, 40) * 100, start, fast=False)
    ends = (one,), (other,)
    if random.random() < 0.3:
        ends = ends[1], ends[0]
    lost = draw.seconds(at + length / 3, at + length + 0.1)
    losses: list[Step] = []
    for half in random.choice((("sender",), ("both",), ("receiver",), ("sender", "receiver"))):
        member, peer = (other, one) if half == "receiver" else (one, other)
        action = faults.Forget(member=member, peer=peer, half=half)
        losses.append(Step(at=round(lost + draw.seconds(0.0, 0.2), 3), action=action))
    broken: faults.Action = faults.Cut(sources=ends[0], dests=ends[1])
    if random.random() < 0.2:
        broken = faults.Stall(member=other)
    return [Step(at=at, action=broken, duration=length), *losses]


def blocked_for_long(draw: GroupDraw) -> list[Step]:
    """An application takes no messages for longer than an idle connection lives, while a sender
    waits for credits from it."""
    random = draw.random
    one, other = draw.pair()
    life = short_lives(draw)
    budget = small_credits(draw)
    at = draw.seconds(BEGIN_SECONDS, 4.0)
    start = draw.seconds(max(1.0, at - 1.0), at + 0.5)
    unicasts(draw, (one, other), random.choice((100, 500)), budget * random.randint(3, 8), start)
    length = round(life + draw.seconds(0.3, 2.5), 3)
    return [Step(at=at, action=faults.Stall(member=other), duration=length)]


def _late_detection(draw: GroupDraw, silence: float) -> None:
    """Have failure detection tolerate `silence` seconds without frames."""
    timeout = round(1.3 * (silence + draw.seconds(0.5, 2.0)), 3)
    draw.ask("FD_ALL3", timeout=timeout, interval=round(timeout / 10, 3))


def parted_unnoticed(draw: GroupDraw) -> list[Step]:
    """A partition or cut ends after idle connections are given up, and before a member is
    suspected, while messages for the other side wait."""
    random = draw.random
    source, dest = draw.pair()
    life = short_lives(draw) if not draw.is_stream else draw.seconds(2.0, 6.0)
    length = round(life + draw.seconds(0.3, 2.5), 3)
    _late_detection(draw, length)
    if random.random() < 0.5:
        small_credits(draw)
    at = draw.seconds(BEGIN_SECONDS, 3.0)
    if random.random() < 0.7:
        # Earlier messages, so that the connection is in use when the fault begins.
        unicasts(draw, (source, dest), 100, random.randint(5, 20) * 100, draw.seconds(1.0, at))
    unicasts(draw, (source, dest), random.choice((100, 500)), random.randint(2, 30) * 500, at)
    broken: faults.Action
    if random.random() < 0.4:
        broken = faults.Cut(sources=(source,), dests=(dest,))
    else:
        rest = tuple(name for name in draw.members if name != dest)
        broken = faults.Partition(groups=(rest, (dest,)))
    return [Step(at=at, action=broken, duration=length)]


def baseline_from_before(draw: GroupDraw) -> list[Step]:
    """Retransmission is off, a lost connection loses the messages in it, and a BASELINE from before
    that, which says where the sender's messages begin, arrives late."""
    random = draw.random
    one, other = draw.pair()
    draw.windows["gap_alarm"] = 60.0
    at = draw.seconds(1.0, 3.0)
    length = round(STREAM_GIVES_UP + draw.seconds(2.5, 4.0), 3)
    _late_detection(draw, length + 1.0)
    cut_at = round(at + draw.seconds(0.1, 3.0), 3)
    told = Match(protocols=("NAKACK2",), kinds=("BASELINE",), sources=(one,), dests=(other,))
    # One BASELINE is late, and later ones are dropped: it is among the first frames that the next
    # connection brings, and until then no other frame says which messages there are.
    held = round(cut_at - at + STREAM_GIVES_UP + draw.seconds(0.2, 2.4), 3)
    broken = [
        Step(at=at, action=faults.Rule(does="hold", match=told, times=1), duration=held),
        # A loss of all frames, not a cut: under a cut, rules do not act and news of lost
        # connections does not pass.
        Step(
            at=cut_at,
            action=faults.Loss(sources=(one,), dests=(other,), rate=1.0),
            duration=length,
        ),
    ]
    silence = Match(
        protocols=("NAKACK2", "STABLE"),
        kinds=("BASELINE", "GOSSIP", "STABILITY"),
        sources=(one,),
        dests=(other,),
    )
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
