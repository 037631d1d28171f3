"""What a run cost: the figures of a story that is told by hand."""

from __future__ import annotations

import pytest
from xxhash import xxh3_64_intdigest

from stormcast.chaos.oracles.evidence import Evidence
from stormcast.chaos.session.costs import Costs, costs_in
from tests.oracles.story import Story


def costs(story: Story, since: float = 0.0) -> Costs:
    return costs_in(Evidence.from_blocks(story.told(), xxh3_64_intdigest), 40, since)


@pytest.fixture
def story() -> Story:
    """Twenty messages, of which five are purged before the next ten leave."""
    s = Story().at(1.0).opens("n0", "n1")
    s.at(1.1).sends(1, 10).sends(11, 20)
    s.at(1.2).listens("n1").delivers(1, 10).acks(5).at(1.3).purges(1, 5)
    s.at(1.4).sends(21, 30).at(1.5).resends(11, 20).resends(11, 20)
    return s


def test_frames_acks_and_repairs_are_counted(story: Story) -> None:
    found = costs(story)
    assert (found.messages, found.frames, found.acks) == (40, 3, 1)
    assert (found.resent, found.resent_frames) == (20, 2)


def test_the_sender_keeps_what_is_not_purged_also_of_a_batch(story: Story) -> None:
    assert costs(story).unacked == 25
    story.at(1.6).purges(6, 30).sends(31, 40)
    assert costs(story).unacked == 25, "ten are less"


def test_half_of_the_batches_took_no_longer_from_sending_to_delivery(story: Story) -> None:
    assert costs(story).latency == pytest.approx(0.1)
    story.at(1.9).listens("n1").delivers(11, 20).at(2.0).delivers(21, 30)
    assert costs(story).latency == pytest.approx(0.6), "0.1, 0.8 from the first sending, and 0.6"
    # What was sent in an earlier window took as long as that.
    assert costs(story, since=1.35).latency == pytest.approx(0.6)
    assert costs(story, since=1.45).latency is None


def test_what_was_before_counts_for_nothing(story: Story) -> None:
    """A chapter of a soak begins with an earlier window: what that sent is purged in this one."""
    story.at(1.6).purges(6, 30).sends(31, 34)
    found = costs(story, since=1.35)
    assert (found.frames, found.acks, found.unacked) == (2, 0, 10)
