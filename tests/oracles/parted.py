"""Traces written by hand of two that part: what n0 sent to n1, and all of it is expected by t=9.

What was under way as they parted need not arrive any more, whether or not it does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tests.oracles.story import Story

BY: Final = 9.0


class Parted(NamedTuple):
    """A run of two that part, and what is to be found in it."""

    story: Story
    wanted: int
    had: int
    """Of what was wanted, by t=9."""


def one_sided() -> Story:
    """Four of ten messages had arrived when n1 took a view without n0."""
    story = Story().opens().listens().installs(1, "n0", "n1")
    return story.at(1.0).sends(1, 10).at(1.1).delivers(1, 4).at(2.0).installs(2, "n1")


def rest(story: Story) -> Story:
    return story.quiet(15.0).ends(20.0)


def after_the_parting(then: Callable[[Story], Story]) -> Story:
    """Six messages more, and what becomes of them, and of the six that were under way."""
    return rest(then(one_sided().at(3.0).sends(11, 16)))


def equal_ones(heard: int) -> Story:
    """Equal messages without seqnos: one before the parting, which is lost, and two after it."""
    story = one_sided().at(1.5).shouts("a").at(3.0).shouts("a").shouts("a").at(3.1)
    for _time in range(heard):
        story.hears("a")
    return rest(story)


def multicasts() -> Story:
    """What n1 gets of them that it is not owed stands in for none either."""
    story = Story().installs(1, "n0", "n1").watches("n1", "n0").at(1.0).casts(1, 10)
    story.at(1.1).takes(1, 4, part_of=(1, 10)).at(2.0).installs(2, "n1").at(3.0).casts(11, 20)
    story.at(4.0).takes(5, 10, part_of=(1, 10)).takes(11, 20).at(5.0).installs(3, "n0", "n1").at(
        6.0
    ).casts(21, 25)
    return rest(story.at(12.0).takes(21, 25))


def begins_a_large_one(story: Story) -> Story:
    """The first of three pieces of a multicast leaves."""
    story.at(1.0).offers(1, to="").cuts(1, 3, to="")
    return story.casts(1, number=1, piece=True, muted=True)


def ends_the_large_one(story: Story, epoch: int = 1) -> Story:
    """The two others leave, and arrive at n1; so does a small message."""
    for seqno in (2, 3):
        story.casts(seqno, number=1, piece=True, muted=True)
        story.takes(seqno, piece=True, muted=True, epoch=epoch)
    return rest(story.offers(2, to="").casts(4, number=2).takes(4, epoch=epoch))


def joined_amid() -> Story:
    """n1 comes after the first piece: it can never have that message."""
    story = begins_a_large_one(Story().installs(1, "n0"))
    story.at(2.0).installs(2, "n0", "n1").watches("n1", "n0", after=1)
    return ends_the_large_one(story.at(3.0))


def parted_amid() -> Story:
    """n1 has the first piece, and is away for a moment in which none leaves."""
    story = Story().installs(1, "n0", "n1").watches("n1", "n0")
    begins_a_large_one(story).at(1.1).takes(1, piece=True, muted=True)
    story.at(2.0).installs(2, "n1").unwatches("n1", "n0", at=1)
    story.at(3.0).installs(3, "n0", "n1").watches("n1", "n0", after=1, epoch=2)
    return ends_the_large_one(story.at(4.0), epoch=2)


def in_two_windows() -> Story:
    """A unicast in pieces, whose receiver forgets its window in the middle."""
    story = Story().opens().listens().at(1.0).offers(1).cuts(1, 3)
    for seqno in (1, 2, 3):
        story.sends(seqno, number=1, piece=True)
    story.at(1.1).delivers(1, piece=True).at(1.2).listens(epoch=2)
    story.at(1.3).delivers(2, piece=True, epoch=2).delivers(3, piece=True, epoch=2)
    return rest(story)


PARTED: Final = {
    "what-is-owed-no-more-stands-in": Parted(
        after_the_parting(lambda story: story.at(4.0).delivers(5, 10).at(12.0).delivers(11, 16)),
        wanted=10,
        had=4,
    ),
    "it-arrives-and-so-does-the-rest": Parted(
        after_the_parting(lambda story: story.at(4.0).delivers(5, 10).delivers(11, 16)),
        wanted=10,
        had=10,
    ),
    "it-arrives-too-late-and-the-rest-does-not": Parted(
        after_the_parting(lambda story: story.at(4.0).delivers(11, 16).at(12.0).delivers(5, 10)),
        wanted=10,
        had=10,
    ),
    "it-never-arrives": Parted(
        after_the_parting(lambda story: story.at(4.0).delivers(11, 16)), wanted=10, had=10
    ),
    "what-arrives-twice-is-one": Parted(
        after_the_parting(lambda story: story.at(4.0).delivers(11, 13).delivers(11, 13)),
        wanted=10,
        had=7,
    ),
    "equal-ones-arrive": Parted(equal_ones(2), wanted=6, had=6),
    "of-equal-ones-one-is-missing": Parted(equal_ones(1), wanted=6, had=5),
    "multicasts": Parted(multicasts(), wanted=9, had=4),
    "who-joins-amid-a-message": Parted(joined_amid(), wanted=1, had=1),
    "who-parts-amid-a-message": Parted(parted_amid(), wanted=1, had=1),
    "a-message-in-two-windows": Parted(in_two_windows(), wanted=1, had=1),
}
