"""Plots in which groups end or begin anew, or views are installed that no protocol would make."""

from __future__ import annotations

from stormcast.chaos import faults
from stormcast.chaos.campaigns.generate.groups.dice import BEGIN_SECONDS, END_SECONDS, GroupDraw
from stormcast.chaos.campaigns.generate.groups.kinds import KINDS, aimed, join
from stormcast.chaos.campaigns.generate.groups.lifetimes import short_lives
from stormcast.chaos.faults import Names
from stormcast.chaos.language.timeline import Step


def all_leave(draw: GroupDraw) -> list[Step]:
    """All members leave at about one time, so that no member can take over, and come back."""
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


def only_a_joiner_lives(draw: GroupDraw) -> list[Step]:
    """All members but one are killed when that one has just joined, or is about to: it was let in
    by a group that has ended. The others come back later."""
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


def _views_of(draw: GroupDraw) -> list[tuple[Names, Names]]:
    """Draw views that no protocol would make: for each its receivers and its members."""
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
        return [
            ((name,), tuple(n for n in names if n != names[at - 1]))
            for at, name in enumerate(names)
        ]
    return [(names, names), (names, names)]


def odd_views(draw: GroupDraw) -> list[Step]:
    """Odd views are installed, such as views that overlap, form a ring, or name all members in
    another order, and a further fault strikes."""
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
