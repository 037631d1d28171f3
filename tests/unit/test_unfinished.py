"""The unfinished messages of one sender, and its bounds."""

from __future__ import annotations

import pytest

from stormcast.node.core.errors import BadFrame
from stormcast.node.protocols.unfinished import PIECE_COST, Fragment, Sender

FEW = 2
"""OOB messages that the sender may have unfinished."""


def begin(sender: Sender, message: int) -> None:
    """Take the first of two pieces of an OOB message."""
    fragment = Fragment(message, 0, 2, 20)
    found = sender.find_early(fragment, 1, 10 * message, 0.0)
    sender.add(found, fragment, bytes(10), 0.0)
    sender.keep_bounds(found, 0)


def test_what_is_unfinished_is_charged_until_it_is_over_and_is_not_begun_again() -> None:
    sender = Sender(FEW, 1000, 0.0)
    begin(sender, 1)
    assert sender.kept() == (1, 10 + PIECE_COST)
    sender.give_up(sender.early[1])
    assert (sender.kept(), sender.given_up) == ((0, 0), 1)
    with pytest.raises(BadFrame, match="fragment-old"):
        begin(sender, 1)


def test_a_sender_that_begins_more_than_it_may_loses_its_first_message() -> None:
    sender = Sender(FEW, 1000, 0.0)
    begin(sender, 1)
    begin(sender, 2)
    with pytest.raises(BadFrame, match="fragment-beyond-settings"):
        begin(sender, 3)
    assert [*sender.early] == [2, 3]
