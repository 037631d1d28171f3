"""Plots in which settings change during a join, a merge or another fault."""

from __future__ import annotations

from stormcast.chaos import faults
from stormcast.chaos.campaigns.generate.groups.dice import END_SECONDS, GroupDraw
from stormcast.chaos.campaigns.generate.groups.kinds import KINDS, join
from stormcast.chaos.faults import Names
from stormcast.chaos.language.timeline import Step
from stormcast.node.core.match import Match


def _switches(draw: GroupDraw) -> tuple[str, tuple[object, ...]]:
    """Draw a setting that may change at any moment, and its values."""
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


def switch_meanwhile(draw: GroupDraw) -> list[Step]:
    """Settings change about the beginning or the end of another fault, such as a partition."""
    random = draw.random
    kind = random.choice(("join", "join", "partition", "partition", "cut", "restart", "leave"))
    during = KINDS[kind](draw)
    moments = [during.at, round(during.at + (during.duration or 0.0), 3)]
    changed: list[Step] = []
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


def joiner_overflows(draw: GroupDraw) -> list[Step]:
    """A joiner gets more messages before its first view than it may keep, and its retransmission is
    switched off about that time."""
    random = draw.random
    coming = join(draw)
    assert isinstance(coming.action, faults.Join)
    name = coming.action.member
    draw.windows.update(become_server_queue_size=random.choice((1, 5)), gap_alarm=60.0)
    length = draw.seconds(0.3, 1.5)
    let_in = Match(protocols=("GMS",), kinds=("JOIN_RSP", "VIEW"), dests=(name,))
    late = Step(at=coming.at, action=faults.Rule(does="hold", match=let_in), duration=length)
    changed: list[Step] = []
    moment = coming.at
    for value in (0.25, 0.0) if draw.stack == "tcp-no-retransmit" else (0.0,):
        moment = round(moment + draw.seconds(0.01, length), 3)
        action = faults.SetAttribute(member=name, attribute="NAKACK2.xmit_interval", value=value)
        changed.append(Step(at=moment, action=action))
    return [coming, late, *changed]
