"""Small runs with a known verdict: every one breaks the guarantees it names and no other, or none.

The in-process oracles and the pipeline are held to the same corpus. A case is the traces of a run
(label to blocks), so that whoever reads traces can judge it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from stormcast.node import trace
from tests.oracles.story import Protocols, Story, digest_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A scenario's budget of control traffic."""

    acks: float | None = None
    resends: float | None = None
    syncs: int | None = None
    requests: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run and what is to be found in it."""

    name: str
    about: str
    blocks: dict[str, bytes]
    violates: tuple[str, ...]
    """All that is broken; the first is what the case is about, and what the witness proves."""
    witness: tuple[str, ...] | None = None
    budget: Budget | None = None


CASES: Final[dict[str, Case]] = {}
"""All cases, by name."""

Telling = Callable[[Story], object]


def broken(
    *violates: str,
    witness: tuple[str, ...] | None = None,
    budget: Budget | None = None,
    protocols: Protocols | None = None,
    both_ends: bool = False,
    **bounds: float | None,
) -> Callable[[Telling], Telling]:
    """Add a run that breaks these guarantees; the first has this witness, if one is said."""

    def add(tell: Telling) -> Telling:
        _add(tell, violates, witness, budget, Story(protocols, both_ends=both_ends, **bounds))
        return tell

    return add


def sound(
    *,
    budget: Budget | None = None,
    protocols: Protocols | None = None,
    both_ends: bool = False,
    **bounds: float | None,
) -> Callable[[Telling], Telling]:
    """Add a run in which everything holds."""
    return broken(budget=budget, protocols=protocols, both_ends=both_ends, **bounds)


def _add(
    tell: Telling,
    violates: tuple[str, ...],
    witness: tuple[str, ...] | None,
    budget: Budget | None,
    story: Story,
) -> None:
    tell(story)
    name = tell.__name__
    assert name not in CASES, name
    CASES[name] = Case(
        name=name,
        about=tell.__doc__ or "",
        blocks=story.told(),
        violates=violates,
        witness=witness,
        budget=budget,
    )


# -- G1: no loss ---------------------------------------------------------------------------------


@sound()
def all_is_delivered(s: Story) -> None:
    """One batch whole, one in two parts, one ahead of its turn."""
    s.a_clean_exchange()
    s.at(2.0).sends(6, 10).sends(11, oob=True)
    s.at(2.1).delivers(11, oob=True).delivers(6, 7, part_of=(6, 10))
    s.at(2.2).delivers(8, 10, part_of=(6, 10)).acks(11).at(2.3).purges(6, 11)


@broken("G1", witness=("n0#4 t=2.000 sent to n1 conn 1 seqnos 6..10",))
def a_batch_is_lost(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10)


@broken("G1", witness=("n0#4 t=2.000 sent to n1 conn 1 seqnos 6..10",))
def the_end_of_a_batch_is_lost(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10).at(2.1).delivers(6, 7, part_of=(6, 10))


@broken("G1", "G3", witness=("n0#4 t=2.000 sent to n1 conn 1 seqnos 6..10",))
def the_middle_of_a_batch_is_lost(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10)
    s.at(2.1).delivers(6, part_of=(6, 10)).delivers(8, 10, part_of=(6, 10))


@broken(
    "G1",
    "G6",
    witness=(
        "n0#4 t=2.000 sent to n1 conn 1 seqnos 6..10",
        "n0#5 t=2.200 purged for n1 conn 1 seqnos 6..10",
    ),
)
def a_batch_is_purged_and_lost(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10).at(2.2).purges(6, 10)


@broken(
    "G1",
    witness=(
        "n0#4 t=2.000 sent to n1 conn 1 seqnos 6..10",
        "n0#5 t=3.000 sender removed to n1 conn 1 (close)",
    ),
)
def an_open_connection_is_closed_without_flushing(s: Story) -> None:
    """JGRP-1586: the original designs removed a connection with what it still held."""
    s.a_clean_exchange().at(2.0).sends(6, 10).at(3.0).removes(why="close")


@broken(
    "G1",
    witness=(
        "n0#6 t=4.000 sent to n1 conn 1 seqnos 6..10",
        "n0#7 t=5.000 sender removed to n1 conn 1 (closed)",
    ),
)
def a_reopened_connection_is_closed_without_flushing(s: Story) -> None:
    """It had been closing, but a message opened it again: what came before does not count."""
    s.a_clean_exchange().at(2.0).closes().at(4.0).opens(why="used").sends(6, 10)
    s.at(5.0).removes()


@sound(request_patience=1.0)
def what_a_later_life_sends_was_not_asked_for_before(s: Story) -> None:
    """The id of a connection is used again; a request of its first life is patient all the same."""
    s.at(1.0).opens().sends(1, 2).sends(3, oob=True).at(1.1).listens().delivers(3, oob=True)
    s.at(3.0).requests(1, 2).at(3.1).delivers(1, 2).acks(3).at(3.2).purges(1, 3)
    s.at(4.0).removes().forgets().at(5.0).opens().sends(1, 2).at(5.1).listens(epoch=2)
    s.delivers(1, 2, epoch=2).acks(2, epoch=2).at(5.2).purges(1, 2)


@sound()
def a_closing_connection_gave_its_messages_their_time(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10).at(3.0).closes().at(9.0).removes()


@sound()
def a_forgotten_peer_ends_the_connection(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10).at(3.0).removes(why="forgot")


@sound()
def what_is_sent_to_a_crashed_member_may_be_lost(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10).at(2.05).fault("crash", member="n1").bites(1)


@sound()
def what_a_crashed_member_sent_may_be_lost(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10).at(2.05).fault("crash", member="n0").bites(1)


@sound()
def what_is_sent_to_a_stopped_member_may_be_lost(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10).at(2.05).stops("n1")


@sound()
def what_is_sent_to_an_earlier_incarnation_may_be_lost(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10).at(3.0).opens(to="n1-2", conn=2)
    s.sends(1, to="n1-2", conn=2).listens("n1-2", conn=2).delivers(1, who="n1-2", conn=2)


@sound()
def what_is_sent_to_nobody_may_be_lost(s: Story) -> None:
    """A mistyped address: the connection ages out."""
    s.a_clean_exchange().at(2.0).opens(to="ghost", conn=2).sends(1, 5, to="ghost", conn=2)


@broken("G1", witness=("n0#3 t=1.000 sent to n0 conn 1 seqnos 2..2",))
def a_message_to_self_is_lost(s: Story) -> None:
    s.at(1.0).sends(1, to="n0").delivers(1, who="n0", epoch=0).sends(2, to="n0")


@sound()
def a_message_to_self_may_be_muted(s: Story) -> None:
    """DONT_LOOPBACK takes a seqno and is not delivered."""
    s.at(1.0).sends(1, to="n0").delivers(1, who="n0", epoch=0)
    s.sends(2, to="n0", muted=True).sends(3, to="n0").delivers(3, who="n0", epoch=0)


@broken("G1", witness=("n0#4 t=2.000 sent to n1 conn 1 seqnos 6..10 (DONT_LOOPBACK)",))
def a_muted_message_to_another_is_lost(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10, muted=True)


# -- G2: at most once ----------------------------------------------------------------------------


@broken(
    "G2",
    witness=(
        "n1#4 t=2.100 delivered from n0 conn 1 seqnos 6..6 (OOB)",
        "n1#5 t=2.200 delivered from n0 conn 1 seqnos 6..6 (OOB)",
    ),
)
def an_oob_message_is_delivered_twice(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, oob=True)
    s.at(2.1).delivers(6, oob=True).at(2.2).delivers(6, oob=True)


@broken(
    "G2",
    "G3",
    witness=(
        "n1#2 t=1.100 delivered from n0 conn 1 seqnos 1..5",
        "n1#4 t=2.000 delivered from n0 conn 1 seqnos 4..5 (a part)",
    ),
)
def the_end_of_a_batch_is_delivered_twice(s: Story) -> None:
    s.a_clean_exchange().at(2.0).delivers(4, 5, part_of=(1, 5))


@broken(
    "G2",
    witness=(
        "n1#2 t=1.100 delivered from n0 conn 1 seqnos 1..5",
        "n1#5 t=3.000 delivered from n0 conn 1 seqnos 1..5",
    ),
)
def a_new_window_repeats_what_the_sender_still_owed(s: Story) -> None:
    """Scenario 5: the ack was lost, the receiver forgot, the sender begins at its lowest."""
    s.at(1.0).opens().sends(1, 5).at(1.1).listens().delivers(1, 5)
    s.at(2.0).forgets().at(3.0).listens(epoch=2).delivers(1, 5, epoch=2)


@broken(
    "G2",
    witness=(
        "n1#2 t=1.100 delivered from n0 conn 1 seqnos 1..5",
        "n1#4 t=3.000 delivered from n0 conn 1 seqnos 1..5",
    ),
)
def a_second_window_repeats_though_the_first_was_not_removed(s: Story) -> None:
    s.at(1.0).opens().sends(1, 5).at(1.1).listens().delivers(1, 5)
    s.at(3.0).listens(epoch=2).delivers(1, 5, epoch=2)


@broken(
    "G2",
    witness=(
        "n1#2 t=1.100 delivered from n0 conn 1 seqnos 1..5",
        "n1#6 t=3.000 delivered from n0 conn 1 seqnos 1..5",
    ),
)
def a_new_window_repeats_what_was_purged(s: Story) -> None:
    s.a_clean_exchange().at(2.0).forgets()
    s.at(3.0).listens(epoch=2).delivers(1, 5, epoch=2)


@broken(
    "G2",
    witness=(
        "n1#3 t=1.100 delivered from n0 conn 1 seqnos 4..6 (a part)",
        "n1#7 t=3.000 delivered from n0 conn 1 seqnos 4..8",
    ),
)
def a_new_window_repeats_a_part_of_a_batch(s: Story) -> None:
    """A batch is resent whole, and the receiver did not cut off what it had delivered."""
    s.at(1.0).opens().sends(1, 3).sends(4, 8)
    s.at(1.1).listens().delivers(1, 3).delivers(4, 6, part_of=(4, 8)).acks(3).at(1.2).purges(1, 3)
    s.at(2.0).forgets().at(3.0).listens(epoch=2).delivers(4, 8, epoch=2)


@sound()
def a_new_window_begins_above_what_was_delivered(s: Story) -> None:
    """Whatever of that the sender had purged, and had not."""
    s.at(1.0).opens().sends(1, 3).sends(4, 8)
    s.at(1.1).listens().delivers(1, 3).delivers(4, 6, part_of=(4, 8)).acks(3)
    s.at(1.2).purges(1, 3).at(2.0).forgets()
    s.at(3.0).listens(epoch=2).delivers(7, 8, epoch=2, part_of=(4, 8))


@broken(
    "G2",
    witness=(
        "n1#4 t=2.100 delivered from n0 conn 1 seqnos 7..7 (OOB)",
        "n1#8 t=3.000 delivered from n0 conn 1 seqnos 7..7 (OOB)",
    ),
)
def a_new_window_repeats_what_came_out_of_band(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6).sends(7, oob=True)
    s.at(2.1).delivers(7, oob=True).forgets()
    s.at(3.0).listens(epoch=2).delivers(6, epoch=2).delivers(7, oob=True, epoch=2)


@sound()
def what_came_out_of_band_keeps_its_place_in_a_new_window(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6).sends(7, oob=True).sends(8)
    s.at(2.1).delivers(7, oob=True).forgets()
    s.at(3.0).listens(epoch=2).delivers(6, epoch=2).delivers(8, epoch=2)


@broken(
    "G3",
    witness=(
        "n1#7 t=3.000 delivered from n0 conn 1 seqnos 6..6",
        "n1#8 t=3.000 delivered from n0 conn 1 seqnos 9..9",
    ),
)
def a_new_window_passes_over_more_than_came_out_of_band(s: Story) -> None:
    """7 was delivered before, 8 never; that 8 is lost G1 says too, but for the removal."""
    s.a_clean_exchange().at(2.0).sends(6).sends(7, oob=True).sends(8).sends(9)
    s.at(2.1).delivers(7, oob=True).forgets()
    s.at(3.0).listens(epoch=2).delivers(6, epoch=2).delivers(9, epoch=2).removes(why="forgot")


@sound()
def a_window_that_was_closing_is_used_again(s: Story) -> None:
    """It is the same window, whatever state it says it is in."""
    s.at(1.0).opens().sends(1, 5).at(1.1).listens().delivers(1, 5)
    s.at(2.0).forgets().at(2.5).sends(6).at(3.0).listens(epoch=2).delivers(6, epoch=2)
    s.at(3.1).purges(1, 6).at(4.0).listens(epoch=2, why="used")


# -- G3: FIFO ------------------------------------------------------------------------------------


@broken(
    "G3",
    witness=(
        "n1#5 t=2.100 delivered from n0 conn 1 seqnos 11..15",
        "n1#6 t=2.200 delivered from n0 conn 1 seqnos 6..10",
    ),
)
def a_batch_is_delivered_after_it_was_given_up(s: Story) -> None:
    """The skip was said aloud; the step back is what is wrong."""
    s.fault("loss").bites(1).a_clean_exchange().at(2.0).sends(6, 10).sends(11, 15)
    s.at(2.05).skips(10).at(2.1).delivers(11, 15).at(2.2).delivers(6, 10)


@broken(
    "G3",
    witness=(
        "n1#2 t=1.100 delivered from n0 conn 1 seqnos 1..5",
        "n1#4 t=2.100 delivered from n0 conn 1 seqnos 11..15",
    ),
)
def two_batches_change_places(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10).sends(11, 15)
    s.at(2.1).delivers(11, 15).at(2.2).delivers(6, 10)


@broken(
    "G3",
    witness=(
        "n1#2 t=1.100 delivered from n0 conn 1 seqnos 1..5",
        "n1#4 t=2.100 delivered from n0 conn 1 seqnos 11..15",
    ),
)
def a_batch_is_passed_over(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10).sends(11, 15).at(2.1).delivers(11, 15)
    s.at(3.0).removes(why="forgot")


@broken(
    "G3",
    "G2",
    witness=(
        "n1#2 t=1.100 delivered from n0 conn 1 seqnos 1..5",
        "n1#4 t=2.000 delivered from n0 conn 1 seqnos 5..5 (a part)",
    ),
)
def the_last_message_is_delivered_again(s: Story) -> None:
    s.a_clean_exchange().at(2.0).delivers(5, part_of=(1, 5))


@sound()
def a_hole_was_given_up_aloud(s: Story) -> None:
    s.fault("loss").bites(1).a_clean_exchange().at(2.0).sends(6, 10).sends(11, 15)
    s.at(2.1).skips(10).delivers(11, 15).at(3.0).removes(why="forgot")


@broken(
    "G3",
    witness=(
        "n1#2 t=1.100 delivered from n0 conn 1 seqnos 1..5",
        "n1#5 t=2.100 delivered from n0 conn 1 seqnos 11..15",
    ),
)
def a_hole_is_larger_than_what_was_given_up(s: Story) -> None:
    s.fault("loss").bites(1).a_clean_exchange().at(2.0).sends(6, 10).sends(11, 15)
    s.at(2.1).skips(9).delivers(11, 15).at(3.0).removes(why="forgot")


@sound()
def a_hole_was_delivered_out_of_band(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 7, oob=True).sends(8, oob=True).sends(9)
    s.at(2.1).delivers(8, oob=True).delivers(6, 7, oob=True).delivers(9)


@broken(
    "G3",
    "G1",
    witness=(
        "n1#2 t=1.100 delivered from n0 conn 1 seqnos 1..5",
        "n1#5 t=2.100 delivered from n0 conn 1 seqnos 9..9",
    ),
)
def a_hole_was_only_partly_delivered_out_of_band(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 7, oob=True).sends(8, oob=True).sends(9)
    s.at(2.1).delivers(6, 7, oob=True).delivers(9)


@broken(
    "G3",
    "G1",
    witness=(
        "n0#2 t=1.000 delivered from n0 conn 1 seqnos 1..1",
        "n0#5 t=1.000 delivered from n0 conn 1 seqnos 3..3",
    ),
)
def a_message_to_self_is_passed_over(s: Story) -> None:
    s.at(1.0).sends(1, to="n0").delivers(1, who="n0", epoch=0)
    s.sends(2, to="n0").sends(3, to="n0").delivers(3, who="n0", epoch=0)


@sound()
def a_new_window_may_begin_anywhere(s: Story) -> None:
    """Order is promised within a window; where it begins is what the sender still has."""
    s.a_clean_exchange().at(2.0).forgets().at(3.0).sends(6, 10)
    s.at(3.1).listens(epoch=2).delivers(6, 10, epoch=2)


# -- G4: intact ----------------------------------------------------------------------------------


@broken(
    "G4",
    "G1",
    witness=(
        "n0#4 t=2.000 sent to n1 conn 1 seqnos 6..10",
        "n1#4 t=2.100 delivered from n0 conn 1 seqnos 6..10",
    ),
)
def a_corrupted_batch_is_delivered(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10).at(2.1).delivers(6, 10, digest=666)


@broken("G4", witness=("n1#4 t=2.100 delivered from n0 conn 1 seqnos 6..6",))
def a_message_is_delivered_that_nobody_sent(s: Story) -> None:
    s.a_clean_exchange().at(2.1).delivers(6)


@broken(
    "G4",
    "G1",
    witness=("n1#4 t=2.100 delivered from n0 conn 1 seqnos 6..10",),
)
def a_message_for_another_is_delivered(s: Story) -> None:
    s.a_clean_exchange().at(2.0).opens(to="n2", conn=2).sends(6, 10, to="n2", conn=2)
    s.at(2.1).delivers(6, 10)


@broken("G4", "G1", witness=("n1#4 t=2.100 delivered from n0 conn 1 seqnos 6..10",))
def a_message_is_delivered_as_of_another_sender(s: Story) -> None:
    s.a_clean_exchange().at(2.0).opens("n2", conn=2).sends(6, 10, "n2", conn=2)
    s.at(2.1).delivers(6, 10, digest=s.digest("n2", "n1", 6, 10, conn=2))


@broken(
    "G4",
    "G1",
    witness=(
        "n0#4 t=2.000 sent to n1 conn 1 seqnos 6..10",
        "n1#4 t=1.900 delivered from n0 conn 1 seqnos 6..10",
    ),
)
def a_batch_is_delivered_before_it_was_sent(s: Story) -> None:
    s.a_clean_exchange().at(1.9).delivers(6, 10).at(2.0).sends(6, 10)


@broken(
    "G4",
    "G1",
    witness=(
        "n0#4 t=2.000 sent to n1 conn 1 seqnos 6..10",
        "n1#4 t=2.100 delivered from n0 conn 1 seqnos 6..12",
    ),
)
def more_is_delivered_than_the_batch_held(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10)
    s.at(2.1).delivers(6, 12, digest=s.digest("n0", "n1", 6, 10))


@broken(
    "G4",
    witness=(
        "n0#4 t=2.000 sent to n1 conn 1 seqnos 6..10",
        "n1#4 t=2.100 delivered from n0 conn 1 seqnos 6..10 (OOB)",
    ),
)
def a_batch_is_delivered_with_another_flag(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10).at(2.1).delivers(6, 10, oob=True)


@broken(
    "G4",
    witness=(
        "n0#4 t=2.000 sent to n1 conn 1 seqnos 6..10",
        "n1#4 t=2.100 delivered from n0 conn 1 seqnos 6..10",
    ),
)
def a_batch_is_delivered_with_a_byte_too_many(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10).at(2.1).delivers(6, 10, size=51)


@broken(
    "G4",
    witness=(
        "n0#4 t=2.000 sent to n1 conn 1 seqnos 6..10",
        "n1#4 t=2.100 delivered from n0 conn 1 seqnos 6..7",
    ),
)
def a_part_is_delivered_as_the_whole(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10)
    s.at(2.1).delivers(6, 7, digest=s.digest("n0", "n1", 6, 10))
    s.delivers(8, 10, part_of=(6, 10))


@broken(
    "G4",
    witness=(
        "n0#4 t=2.000 sent to n1 conn 1 seqnos 6..10",
        "n1#4 t=2.100 delivered from n0 conn 1 seqnos 6..9 (a part)",
    ),
)
def a_part_is_larger_than_its_batch(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10)
    s.at(2.1).delivers(6, 9, part_of=(6, 10), size=51).delivers(10, part_of=(6, 10))


@broken(
    "G4",
    witness=(
        "n0#4 t=2.000 sent to n1 conn 1 seqnos 6..10",
        "n1#4 t=2.100 delivered from n0 conn 1 seqnos 6..10 (a part)",
    ),
)
def all_of_a_batch_is_delivered_as_a_part_of_it_with_one_byte(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10).at(2.1).delivers(6, 10, part_of=(6, 10), size=1)


@sound()
def a_part_may_be_as_large_as_its_batch(s: Story) -> None:
    """The others are empty."""
    s.a_clean_exchange().at(2.0).sends(6, 10)
    s.at(2.1).delivers(6, 9, part_of=(6, 10), size=50).delivers(10, part_of=(6, 10), size=0)


@sound()
def unnumbered_messages_may_be_lost_and_repeated(s: Story) -> None:
    s.at(1.0).shouts("hello").shouts("lost").at(1.1).hears("hello").hears("hello")


@broken("G4", witness=("n1#2 t=1.100 delivered from n0 conn 0 unnumbered",))
def an_unnumbered_message_is_delivered_that_nobody_sent(s: Story) -> None:
    s.at(1.0).shouts("hello").at(1.1).hears("hello").hears("goodbye")


# -- G5: bounded memory --------------------------------------------------------------------------


@sound()
def a_window_is_full(s: Story) -> None:
    s.a_clean_exchange().at(2.0).gauges(trace.RECEIVE_MESSAGES, 100, 100)


@broken("G5", witness=("n1#4 t=2.000 receive window messages n0 101 of 100",))
def a_window_holds_more_than_its_bound(s: Story) -> None:
    s.a_clean_exchange().at(2.0).gauges(trace.RECEIVE_MESSAGES, 101, 100)


@broken("G5", witness=("n0#4 t=2.000 send window bytes n1 4097 of 4096",))
def a_send_window_holds_a_byte_too_many(s: Story) -> None:
    s.a_clean_exchange().at(2.0).gauges(trace.SEND_BYTES, 4097, 4096, who="n0", peer="n1")


@sound()
def what_is_unbounded_by_design_may_grow(s: Story) -> None:
    s.a_clean_exchange().at(2.0).gauges(trace.OUTBOX_BYTES, 1 << 40, 0)


@broken(
    "G5",
    "G1",
    witness=(
        "n1#2 t=1.100 delivered from n0 conn 1 seqnos 1..5",
        "n1#4 t=20.000 receive window messages n0 4 of 100",
    ),
)
def a_window_waits_behind_a_gap_for_ever(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6).sends(7, 10).quiet(10.0).ends(20.0)
    s.gauges(trace.RECEIVE_MESSAGES, 4, 100)


@broken("G5", witness=("n1#6 t=20.000 receive window bytes n0 50 of 4096",))
def a_new_window_waits_for_what_was_purged(s: Story) -> None:
    """JGRP-1873: the receiver forgot what it delivered, and cannot know that it is gone."""
    s.a_clean_exchange().at(2.0).forgets().at(3.0).listens(epoch=2).quiet(10.0).ends(20.0)
    s.gauges(trace.RECEIVE_BYTES, 50, 4096)


@sound()
def a_window_is_empty_at_the_end(s: Story) -> None:
    s.a_clean_exchange().quiet(10.0).ends(20.0).gauges(trace.RECEIVE_BYTES, 0, 4096)


@sound()
def a_window_waits_for_nothing_in_the_middle_of_a_run(s: Story) -> None:
    s.a_clean_exchange().at(9.0).gauges(trace.RECEIVE_BYTES, 50, 4096)


@sound()
def a_window_waits_for_a_sender_that_is_gone(s: Story) -> None:
    """Its own expiry will remove it."""
    s.a_clean_exchange().at(2.0).sends(6).sends(7, 10).at(3.0).fault("crash", member="n0").bites(1)
    s.quiet(10.0).ends(20.0).gauges(trace.RECEIVE_MESSAGES, 4, 100)


@sound()
def a_window_waits_for_a_connection_that_was_given_up(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6).sends(7, 10).at(3.0).removes(why="forgot")
    s.quiet(10.0).ends(20.0).gauges(trace.RECEIVE_MESSAGES, 4, 100)


# -- G6: purge safety ----------------------------------------------------------------------------


@broken(
    "G6",
    witness=(
        "n0#2 t=1.000 sent to n1 conn 1 seqnos 1..5",
        "n0#3 t=1.050 purged for n1 conn 1 seqnos 1..5",
        "n1#2 t=1.100 delivered from n0 conn 1 seqnos 1..5",
    ),
)
def a_batch_is_purged_before_it_is_delivered(s: Story) -> None:
    s.at(1.0).opens().sends(1, 5).at(1.05).purges(1, 5).at(1.1).listens().delivers(1, 5)


@sound()
def a_batch_is_purged_the_moment_it_is_delivered(s: Story) -> None:
    s.at(1.0).opens().sends(1, 5).at(1.1).listens().delivers(1, 5).purges(1, 5)


@broken(
    "G6",
    witness=(
        "n0#4 t=2.000 sent to n1 conn 1 seqnos 6..10",
        "n0#5 t=2.200 purged for n1 conn 1 seqnos 6..10",
        "n1#5 t=2.300 delivered from n0 conn 1 seqnos 9..10 (a part)",
    ),
)
def the_end_of_a_batch_is_purged_too_early(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10).at(2.1).delivers(6, 8, part_of=(6, 10))
    s.at(2.2).purges(6, 10).at(2.3).delivers(9, 10, part_of=(6, 10))


@broken(
    "G6",
    witness=(
        "n0#4 t=2.000 sent to n1 conn 1 seqnos 6..10",
        "n0#5 t=2.200 purged for n1 conn 1 seqnos 6..10",
    ),
)
def a_batch_is_purged_that_a_crashed_member_never_had(s: Story) -> None:
    """It crashed later: when it was alive and consuming, it delivered before it acked."""
    s.a_clean_exchange().at(2.0).sends(6, 10).at(2.2).purges(6, 10)
    s.at(3.0).fault("crash", member="n1").bites(1)


@broken(
    "G6",
    witness=(
        "n0#4 t=2.000 sent to n1 conn 1 seqnos 6..6",
        "n0#6 t=2.200 purged for n1 conn 1 seqnos 6..10",
        "n1#5 t=2.300 delivered from n0 conn 1 seqnos 6..6",
    ),
)
def a_gap_is_purged_with_what_follows_it(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6).sends(7, 10, oob=True).at(2.1).delivers(7, 10, oob=True)
    s.at(2.2).purges(6, 10).at(2.3).delivers(6)


@sound()
def a_stalled_member_acks_what_it_delivers_later(s: Story) -> None:
    s.a_clean_exchange().at(1.5).fault("stall", member="n1", name="f2").at(2.0).sends(6, 10)
    s.at(2.1).acks(10).at(2.2).purges(6, 10)
    s.at(3.0).fault("consume", "off", member="n1", name="f2").delivers(6, 10).bites(
        1, "f2", "stall"
    )


@sound()
def a_stalled_member_crashes_with_what_it_acked(s: Story) -> None:
    s.a_clean_exchange().at(1.5).fault("stall", member="n1", name="f2").at(2.0).sends(6, 10)
    s.at(2.1).acks(10).at(2.15).fault("crash", member="n1").at(2.2).purges(6, 10).bites(
        1, do="crash"
    )
    s.bites(1, "f2", "stall")


@sound()
def a_stall_ends_after_the_member_and_before_the_purge(s: Story) -> None:
    """The ack was long under way: n0 was paused."""
    s.a_clean_exchange().at(4.0).fault("stall", member="n1", name="f2").at(4.1).sends(6, 10)
    s.at(4.2).acks(10).fault("pause", member="n0", name="f3").bites(1, "f3", do="pause")
    s.at(4.5).fault("crash", member="n1").at(6.0).fault("stall", "off", member="n1", name="f2")
    s.fault("pause", "off", member="n0", name="f3").at(7.0).purges(6, 10).bites(1)
    s.bites(1, "f2", "stall")


@broken(
    "G6",
    "G1",
    witness=(
        "n0#4 t=2.000 sent to n1 conn 1 seqnos 6..10",
        "n0#5 t=2.200 purged for n1 conn 1 seqnos 6..10",
    ),
)
def a_stalled_member_never_delivers_what_it_acked(s: Story) -> None:
    s.a_clean_exchange().at(1.5).fault("stall", member="n1", name="f2").at(2.0).sends(6, 10)
    s.at(2.1).acks(10).at(2.2).purges(6, 10)
    s.at(3.0).fault("consume", "off", member="n1", name="f2").bites(1, "f2", "stall")


@broken(
    "G1",
    witness=(
        "n0#4 t=2.000 sent to n1 conn 1 seqnos 6..10",
        "n0#5 t=2.200 purged for n1 conn 1 seqnos 6..10",
    ),
)
def a_run_breaks_off_while_a_stalled_member_holds_what_it_acked(s: Story) -> None:
    """It has no time to deliver: that is no fault of the purge."""
    s.a_clean_exchange().at(1.5).fault("stall", member="n1", name="f2").at(2.0).sends(6, 10)
    s.at(2.1).acks(10).at(2.2).purges(6, 10).bites(1, "f2", "stall")


@broken(
    "G6",
    "G1",
    witness=(
        "n0#4 t=2.000 sent to n1 conn 1 seqnos 6..6",
        "n0#6 t=2.200 purged for n1 conn 1 seqnos 6..10",
    ),
)
def a_stalled_member_had_not_the_first_that_it_acked(s: Story) -> None:
    s.a_clean_exchange().at(1.5).fault("stall", member="n1", name="f2").at(2.0)
    s.sends(6).sends(7, 10, oob=True).at(2.1).acks(10).at(2.2).purges(6, 10)
    s.at(3.0).fault("consume", "off", member="n1", name="f2").delivers(7, 10, oob=True).bites(
        1, "f2", "stall"
    )


@broken(
    "G6",
    witness=(
        "n0#4 t=2.000 sent to n1 conn 1 seqnos 6..10",
        "n0#5 t=2.200 purged for n1 conn 1 seqnos 6..10",
        "n1#4 t=2.500 delivered from n0 conn 1 seqnos 6..10",
    ),
)
def a_stall_that_is_over_excuses_nothing(s: Story) -> None:
    s.a_clean_exchange().at(1.5).fault("stall", member="n1", name="f2")
    s.at(1.8).fault("consume", "off", member="n1", name="f2").bites(1, "f2", "stall")
    s.at(2.0).sends(6, 10).at(2.2).purges(6, 10).at(2.5).delivers(6, 10)


# -- G7: connections are apart -------------------------------------------------------------------


@broken(
    "G7",
    witness=(
        "n1#4 t=3.100 receiver open from n0 conn 2",
        "n1#6 t=3.200 delivered from n0 conn 1 seqnos 6..10",
    ),
)
def an_old_connection_delivers_after_the_new_one_opened(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10).at(2.5).removes(why="forgot")
    s.at(3.0).opens(conn=2).sends(1, 3, conn=2)
    s.at(3.1).listens(conn=2, epoch=2).delivers(1, 3, conn=2, epoch=2).at(3.2).delivers(6, 10)


@sound()
def a_connection_follows_another(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10).at(2.1).delivers(6, 10).at(2.5).removes(why="forgot")
    s.at(3.0).opens(conn=2).sends(1, 3, conn=2).at(3.1).forgets(why="replaced")
    s.listens(conn=2, epoch=2).delivers(1, 3, conn=2, epoch=2)


@sound()
def the_two_directions_of_a_pair_count_apart(s: Story) -> None:
    """n1 opens connection 9 to n0, and n0 stays on connection 1."""
    s.a_clean_exchange().at(2.0).opens("n1", "n0", conn=9).sends(1, 3, "n1", "n0", conn=9)
    s.at(2.1).listens("n0", "n1", conn=9).delivers(1, 3, "n0", "n1", conn=9)
    s.sends(6, 10).at(2.2).delivers(6, 10)


@sound()
def connection_ids_wrap(s: Story) -> None:
    """1 follows 0xffffffff: 0 is no connection."""
    last = 0xFFFFFFFF
    s.at(1.0).opens(conn=last).sends(1, 5, conn=last)
    s.at(1.1).listens(conn=last).delivers(1, 5, conn=last).at(2.0).removes(conn=last, why="forgot")
    s.at(3.0).opens(conn=1).sends(1, 3).at(3.1).forgets(conn=last, why="replaced")
    s.listens(epoch=2).delivers(1, 3, epoch=2)


@broken(
    "G7",
    witness=(
        "n1#1 t=3.050 receiver open from n0 conn 1",
        "n1#2 t=3.100 delivered from n0 conn 4294967295 seqnos 1..5",
    ),
)
def an_old_connection_delivers_after_the_ids_wrapped(s: Story) -> None:
    last = 0xFFFFFFFF
    s.at(1.0).opens(conn=last).sends(1, 5, conn=last).at(2.0).removes(conn=last, why="forgot")
    s.at(3.0).opens(conn=1).at(3.05).listens(epoch=2).at(3.1).delivers(1, 5, conn=last)


@broken(
    "G7",
    "G6",
    witness=(
        "n1#3 t=1.100 acked to n0 conn 1 up to seqno 5",
        "n0#7 t=3.050 purged for n1 conn 2 seqnos 1..3",
    ),
)
def an_old_ack_purges_a_new_connection(s: Story) -> None:
    """JGRP-1577: a late ack acts on whatever connection is there."""
    s.a_clean_exchange().at(2.5).removes(why="forgot").at(3.0).opens(conn=2).sends(1, 3, conn=2)
    s.at(3.05).purges(1, 3, conn=2).at(3.1).acks(5).forgets(why="replaced")
    s.listens(conn=2, epoch=2).delivers(1, 3, conn=2, epoch=2)


@broken(
    "G6",
    witness=(
        "n0#6 t=3.000 sent to n1 conn 2 seqnos 1..7",
        "n0#7 t=3.100 purged for n1 conn 2 seqnos 1..7",
        "n1#7 t=3.200 delivered from n0 conn 2 seqnos 6..7 (a part)",
    ),
)
def a_purge_that_no_older_ack_explains(s: Story) -> None:
    """The older connection had five messages, and lacked the sixth too: G7 is not what broke."""
    s.a_clean_exchange().at(2.5).removes(why="forgot").at(3.0).opens(conn=2).sends(1, 7, conn=2)
    s.at(3.05).forgets(why="replaced").listens(conn=2, epoch=2)
    s.delivers(1, 5, conn=2, epoch=2, part_of=(1, 7)).at(3.1).purges(1, 7, conn=2)
    s.at(3.2).delivers(6, 7, conn=2, epoch=2, part_of=(1, 7))


@broken(
    "G6",
    witness=(
        "n0#2 t=2.000 sent to n1 conn 2 seqnos 1..3",
        "n0#3 t=2.100 purged for n1 conn 2 seqnos 1..3",
        "n1#5 t=2.200 delivered from n0 conn 2 seqnos 1..3",
    ),
)
def a_purge_that_another_senders_ack_does_not_explain(s: Story) -> None:
    """n1 had seqnos 1..5 of connection 1: of n2."""
    s.at(1.0).opens("n2").sends(1, 5, "n2").at(1.1).listens("n1", "n2").delivers(1, 5, of="n2")
    s.acks(5, to="n2").at(2.0).opens(conn=2).sends(1, 3, conn=2).at(2.1).purges(1, 3, conn=2)
    s.at(2.2).listens(conn=2, epoch=2).delivers(1, 3, conn=2, epoch=2)


@broken(
    "G7",
    "G1",
    "G4",
    witness=(
        "n0#6 t=3.000 sent to n1 conn 2 seqnos 6..10",
        "n1#4 t=3.100 delivered from n0 conn 1 seqnos 6..10",
    ),
)
def a_new_message_comes_up_in_the_old_connection(s: Story) -> None:
    """Only the first message names its connection, and it was lost: scenario 6 of the notes."""
    s.a_clean_exchange().at(2.5).removes(why="forgot").at(3.0).opens(conn=2).sends(6, 10, conn=2)
    s.at(3.1).delivers(6, 10, digest=s.digest("n0", "n1", 6, 10, conn=2))


@broken(
    "G7",
    "G1",
    "G6",
    witness=(
        "n1#4 t=3.050 acked to n0 conn 0 up to seqno 5",
        "n0#7 t=3.100 purged for n1 conn 0 seqnos 1..3",
    ),
)
def without_connection_ids_an_old_window_acks_new_messages(s: Story) -> None:
    """The receiver took 1..3 of the second connection for old duplicates of the first."""
    s.at(1.0).opens(conn=0).sends(1, 5, conn=0).at(1.1).listens(conn=0).delivers(1, 5, conn=0)
    s.acks(5, conn=0).at(1.2).purges(1, 5, conn=0).at(2.0).removes(conn=0, why="forgot")
    s.at(3.0).opens(conn=0).sends(1, 3, conn=0)
    s.at(3.05).acks(5, conn=0).at(3.1).purges(1, 3, conn=0)


@sound()
def without_connection_ids_seqnos_may_start_again(s: Story) -> None:
    """Both ends forgot: the same seqnos are other messages."""
    s.at(1.0).opens(conn=0).sends(1, 5, conn=0).at(1.1).listens(conn=0).delivers(1, 5, conn=0)
    s.acks(5, conn=0).at(1.2).purges(1, 5, conn=0)
    s.at(2.0).removes(conn=0, why="forgot").forgets(conn=0)
    again = digest_of("again")
    s.at(3.0).opens(conn=0).sends(1, 5, conn=0, digest=again).at(3.1).listens(conn=0, epoch=2)
    s.delivers(1, 5, conn=0, epoch=2, digest=again).acks(5, conn=0, epoch=2)
    s.at(3.2).purges(1, 5, conn=0)


@broken(
    "G7",
    witness=(
        "n1#2 t=3.100 delivered from n0 conn 0 seqnos 1..3",
        "n1#3 t=3.200 delivered from n0 conn 0 seqnos 4..5",
    ),
)
def without_connection_ids_an_old_message_comes_up_late(s: Story) -> None:
    s.at(1.0).opens(conn=0).sends(4, 5, conn=0).at(2.0).removes(conn=0, why="forgot")
    s.at(3.0).opens(conn=0).sends(1, 3, conn=0).at(3.1).listens(conn=0).delivers(1, 3, conn=0)
    s.at(3.2).delivers(4, 5, conn=0)


# -- C1: control traffic -------------------------------------------------------------------------


@sound(sync_spacing=2.0)
def syncs_are_spaced(s: Story) -> None:
    s.a_clean_exchange().at(2.0).syncs().at(4.0).syncs()


@broken(
    "C1",
    sync_spacing=2.0,
    witness=(
        "n1#4 t=2.000 asked n0 for the first seqno of conn 1",
        "n1#5 t=3.990 asked n0 for the first seqno of conn 2",
    ),
)
def syncs_follow_each_other_too_fast(s: Story) -> None:
    """JGRP-1874. The spacing is one per peer, whatever the connection."""
    s.a_clean_exchange().at(2.0).syncs().at(3.99).syncs(conn=2)


@sound(sync_spacing=2.0)
def a_sync_that_a_pause_held_up_is_late_and_the_next_is_not(s: Story) -> None:
    s.a_clean_exchange().at(2.0).fault("pause", member="n1").at(3.7).fault(
        "resume", "off", member="n1"
    ).bites(1)
    s.at(3.7).syncs().at(4.0).syncs()


@sound(sync_spacing=2.0)
def syncs_to_two_peers_need_no_spacing(s: Story) -> None:
    s.a_clean_exchange().at(2.0).syncs().syncs(to="n2")


@sound(request_spacing=0.5, request_size=10)
def requests_are_spaced(s: Story) -> None:
    """What is new may be asked for at once, and a full request is still a request."""
    s.a_clean_exchange().at(2.0).requests(6, 15).at(2.1).requests(16, 20).at(2.5).requests(6, 15)


@broken(
    "C1",
    request_spacing=0.5,
    witness=(
        "n1#4 t=2.000 requested from n0 conn 1 seqnos 6..10",
        "n1#6 t=2.490 requested from n0 conn 1 seqnos 6..10",
    ),
)
def a_request_is_repeated_too_soon(s: Story) -> None:
    s.a_clean_exchange().at(2.0).requests(6, 10).at(2.2).requests(20).at(2.49).requests(6, 10)


@broken(
    "C1",
    request_spacing=0.5,
    witness=(
        "n1#4 t=2.000 requested from n0 conn 1 seqnos 6..10",
        "n1#5 t=2.400 requested from n0 conn 1 seqnos 8..20 (2 of them)",
    ),
)
def a_part_of_a_request_is_repeated_too_soon(s: Story) -> None:
    s.a_clean_exchange().at(2.0).requests(6, 10).at(2.4).requests(8, 20, count=2)


@broken(
    "C1",
    request_spacing=0.5,
    witness=(
        "n1#4 t=2.000 requested from n0 conn 1 seqnos 8..12",
        "n1#5 t=2.400 requested from n0 conn 1 seqnos 6..10 (2 of them)",
    ),
)
def a_request_reaches_into_the_last_one(s: Story) -> None:
    s.a_clean_exchange().at(2.0).requests(8, 12).at(2.4).requests(6, 10, count=2)


@broken(
    "C1",
    request_spacing=0.5,
    witness=(
        "n1#4 t=2.000 requested from n0 conn 1 seqnos 8..12",
        "n1#5 t=2.400 requested from n0 conn 1 seqnos 6..12 (2 of them)",
    ),
)
def a_request_ends_where_the_last_one_ended(s: Story) -> None:
    s.a_clean_exchange().at(2.0).requests(8, 12).at(2.4).requests(6, 12, count=2)


@broken(
    "C1",
    request_spacing=0.5,
    witness=(
        "n1#4 t=2.000 requested from n0 conn 1 seqnos 6..10 (2 of them)",
        "n1#5 t=2.400 requested from n0 conn 1 seqnos 8..12",
    ),
)
def a_request_covers_the_end_of_the_last_one(s: Story) -> None:
    s.a_clean_exchange().at(2.0).requests(6, 10, count=2).at(2.4).requests(8, 12)


@broken(
    "C1",
    request_spacing=0.5,
    witness=(
        "n1#4 t=2.000 requested from n0 conn 1 seqnos 8..20 (2 of them)",
        "n1#5 t=2.400 requested from n0 conn 1 seqnos 6..10",
    ),
)
def a_request_covers_the_start_of_the_last_one(s: Story) -> None:
    s.a_clean_exchange().at(2.0).requests(8, 20, count=2).at(2.4).requests(6, 10)


@sound(request_spacing=0.5)
def two_requests_with_holes_may_interlock(s: Story) -> None:
    """6 and 10, then 7 and 9: their spans meet, and they ask for nothing twice."""
    s.a_clean_exchange().at(2.0).requests(6, 10, count=2).at(2.1).requests(7, 9, count=2)


@sound(request_spacing=0.5)
def a_new_window_may_ask_at_once(s: Story) -> None:
    s.a_clean_exchange().at(2.0).requests(6, 10).forgets()
    s.at(2.1).listens(epoch=2).requests(6, 10, epoch=2)


@broken(
    "C1",
    request_size=10,
    witness=("n1#4 t=2.000 requested from n0 conn 1 seqnos 6..16",),
)
def a_request_is_too_large(s: Story) -> None:
    s.a_clean_exchange().at(2.0).requests(6, 16)


@broken(
    "C1",
    witness=(
        "n1#2 t=1.100 delivered from n0 conn 1 seqnos 1..5",
        "n1#4 t=2.000 requested from n0 conn 1 seqnos 5..6",
    ),
)
def what_was_delivered_is_asked_for(s: Story) -> None:
    s.a_clean_exchange().at(2.0).requests(5, 6)


@sound()
def what_was_delivered_ahead_of_its_turn_leaves_a_gap(s: Story) -> None:
    s.a_clean_exchange().at(1.5).sends(6).sends(7, oob=True).at(1.6).delivers(7, oob=True)
    s.at(2.0).requests(6).at(2.1).resends(6).at(2.2).delivers(6).purges(6, 7)


@broken(
    "C1",
    witness=(
        "n1#3 t=1.200 delivered from n0 conn 1 seqnos 5..5 (OOB)",
        "n1#4 t=2.000 requested from n0 conn 1 seqnos 5..5",
    ),
)
def what_was_delivered_ahead_of_its_turn_is_asked_for(s: Story) -> None:
    """Only 4 is missing."""
    s.at(1.0).opens().sends(1, 3).sends(4).sends(5, oob=True)
    s.at(1.1).listens().delivers(1, 3).at(1.2).delivers(5, oob=True)
    s.at(2.0).requests(5).at(2.1).delivers(4).acks(5).at(2.2).purges(1, 5)


@broken(
    "C1",
    witness=(
        "n1#3 t=1.200 delivered from n0 conn 1 seqnos 5..7 (OOB)",
        "n1#4 t=2.000 requested from n0 conn 1 seqnos 4..6",
    ),
)
def a_request_ends_in_what_was_delivered_ahead_of_its_turn(s: Story) -> None:
    s.at(1.0).opens().sends(1, 3).sends(4).sends(5, 7, oob=True)
    s.at(1.1).listens().delivers(1, 3).at(1.2).delivers(5, 7, oob=True)
    s.at(2.0).requests(4, 6).at(2.1).delivers(4).acks(7).at(2.2).purges(1, 7)


@sound()
def a_request_goes_around_what_was_delivered_ahead_of_its_turn(s: Story) -> None:
    """It has a hole there: two of three are asked for."""
    s.at(1.0).opens().sends(1, 3).sends(4).sends(5, oob=True).sends(6)
    s.at(1.1).listens().delivers(1, 3).at(1.2).delivers(5, oob=True)
    s.at(2.0).requests(4, 6, count=2).at(2.1).delivers(4).delivers(6).acks(6).at(2.2).purges(1, 6)


def _four_more(s: Story) -> Story:
    """6, 7, 8 and 9, each in a frame, and none of them acked."""
    return s.a_clean_exchange().at(2.0).sends(6).sends(7).sends(8).sends(9)


def _answered(s: Story, times: int) -> None:
    """One request for 8, in the middle, and so many answers."""
    _four_more(s).at(2.5).requests(8)
    for _ in range(times):
        s.at(2.6).resends(8)
    for seqno in range(6, 10):
        s.delivers(seqno)


REPEATS: Final[Protocols] = {"DUPLICATE": {"copies": 1}}


@sound(protocols=REPEATS)
def a_test_protocol_at_both_ends_makes_eight_of_one_request(s: Story) -> None:
    """The network may make two of it, and each end two of each."""
    _answered(s, 8)


@broken(
    "C1",
    protocols=REPEATS,
    witness=(
        "n0#6 t=2.000 sent to n1 conn 1 seqnos 8..8",
        "n0#16 t=2.600 resent to n1 conn 1 seqnos 8..8",
    ),
)
def it_makes_no_nine(s: Story) -> None:
    _answered(s, 9)


@broken(
    "C1",
    witness=(
        "n0#5 t=2.000 sent to n1 conn 1 seqnos 7..7",
        "n0#9 t=2.600 resent to n1 conn 1 seqnos 7..7",
    ),
)
def a_request_is_answered_with_everything(s: Story) -> None:
    """Only 6 was lost, and asked for."""
    _four_more(s).at(2.5).requests(6).at(2.6).resends(6).resends(7).resends(8).resends(9)
    for seqno in range(6, 10):
        s.delivers(seqno)


@broken(
    "C1",
    witness=(
        "n0#6 t=2.000 sent to n1 conn 1 seqnos 8..8",
        "n0#10 t=2.800 resent to n1 conn 1 seqnos 8..8",
    ),
)
def a_frame_in_the_middle_is_sent_again_more_often_than_it_was_asked_for(s: Story) -> None:
    """One request may arrive twice; the third repeat answers nobody."""
    _four_more(s).at(2.5).requests(8).at(2.6).resends(8).at(2.7).resends(8).at(2.8).resends(8)
    for seqno in range(6, 10):
        s.delivers(seqno)


@broken(
    "C1",
    witness=(
        "n0#3 t=1.000 sent to n1 conn 1 seqnos 2..6",
        "n0#5 t=1.050 resent to n1 conn 1 seqnos 3..6",
    ),
)
def the_end_of_a_batch_in_the_middle_is_sent_again_unasked(s: Story) -> None:
    s.at(1.0).opens().sends(1).sends(2, 6).sends(7).at(1.05).resends(3, 6)
    s.at(1.1).listens().delivers(1).delivers(2, 6).delivers(7).acks(7).at(1.2).purges(1, 7)


@broken(
    "C1",
    resend_interval=0.6,
    resend_within=1.2,
    request_spacing=0.5,
    witness=(
        "n0#2 t=1.000 sent to n1 conn 1 seqnos 1..5",
        "n0#5 t=1.030 resent to n1 conn 1 seqnos 3..5",
    ),
)
def the_end_of_a_batch_is_sent_again_for_no_silence(s: Story) -> None:
    """Two repeats are to spare."""
    s.at(1.0).opens().sends(1, 5)
    for repeat in range(1, 5):
        s.at(1.0 + 0.01 * repeat).resends(3, 5)
    s.at(1.1).listens().delivers(1, 5).acks(5).at(1.2).purges(1, 5)


def _late_syncs(s: Story, conn: int) -> None:
    """Nothing was unacked when they were sent."""
    s.a_clean_exchange().at(1.5).forgets()
    for number in range(8):
        s.at(1.6 + 0.01 * number).syncs(conn=conn)
    s.at(2.0).sends(6).sends(7)
    for _ in range(8):
        s.at(2.01).resends(6)
    s.at(2.1).listens(epoch=2).delivers(6, epoch=2).delivers(7, epoch=2).at(2.2).purges(6, 7)


def _silence(s: Story, repeats: int) -> None:
    """n1 never answers, and n0 repeats every half second."""
    s.at(1.0).opens().sends(1)
    for look in range(1, repeats + 1):
        s.at(1.0 + 0.5 * look).resends(1)
    s.at(1.0 + 0.5 * repeats).fault("crash", member="n1").bites(1, do="crash")


@sound(resend_interval=0.5, resend_within=1.2, request_spacing=0.5)
def what_late_turns_loosen_is_no_longer_interval(s: Story) -> None:
    """A real member promises to resend within two intervals and what a turn may be late."""
    _silence(s, 120)
    s.quiet(61.0).ends(61.2)


@broken("C1", resend_interval=0.6, resend_within=1.2, request_spacing=0.5)
def resends_come_faster_than_their_interval(s: Story) -> None:
    _silence(s, 120)
    s.quiet(61.0).ends(61.2)


@sound(resend_within=1.0, request_spacing=0.5)
def syncs_that_were_long_under_way_are_answered_with_what_is_the_lowest_by_then(s: Story) -> None:
    _late_syncs(s, 1)


@broken(
    "C1",
    resend_within=1.0,
    request_spacing=0.5,
    witness=(
        "n0#4 t=2.000 sent to n1 conn 1 seqnos 6..6",
        "n0#8 t=2.010 resent to n1 conn 1 seqnos 6..6",
    ),
)
def syncs_of_another_connection_are_answered_with_nothing(s: Story) -> None:
    _late_syncs(s, 9)


@sound()
def the_ends_of_what_is_unacked_are_sent_again_unasked(s: Story) -> None:
    """The newest, because no ack came, and the oldest, to begin a window with. What was newest once
    is in the middle when another was sent."""
    _four_more(s).at(2.3).resends(9).at(2.4).resends(6).at(2.5).requests(8).at(2.6).resends(8)
    for seqno in range(6, 10):
        s.delivers(seqno)
    s.at(2.7).sends(10).at(2.8).purges(6, 8).at(2.9).resends(9).resends(10).at(3.0).delivers(10)


def _acks(s: Story, number: int) -> None:
    """Ten messages in a window of two seconds, and so many acks."""
    s.at(1.0).opens().sends(1, 10).at(1.1).listens().delivers(1, 10)
    for index in range(number):
        s.at(1.1 + index * 0.01).acks(10)
    s.at(3.1).forgets()


@sound(ack_threshold=10, ack_spacing=0.5)
def acks_are_few(s: Story) -> None:
    """One for ten messages, four for two seconds, three to spare."""
    _acks(s, 8)


@broken(
    "C1",
    ack_threshold=10,
    ack_spacing=0.5,
    witness=(
        "n1#3 t=1.100 acked to n0 conn 1 up to seqno 10",
        "n1#11 t=1.180 acked to n0 conn 1 up to seqno 10",
    ),
)
def acks_are_many(s: Story) -> None:
    _acks(s, 9)


@sound(ack_threshold=0, ack_spacing=0.5)
def acks_are_unlimited_where_every_frame_is_acked(s: Story) -> None:
    _acks(s, 100)


@sound(quiet_within=3.0)
def traffic_ends_in_time(s: Story) -> None:
    s.a_clean_exchange().quiet(5.0).at(8.0).acks(5).ends(20.0)


@broken(
    "C1",
    quiet_within=3.0,
    witness=("n1#4 t=8.010 acked to n0 conn 1 up to seqno 5",),
)
def traffic_does_not_end_in_time(s: Story) -> None:
    s.a_clean_exchange().quiet(5.0).at(8.01).acks(5).at(9.0).acks(5).ends(20.0)


@sound(quiet_within=3.0)
def who_sends_after_all_is_answered_after_all(s: Story) -> None:
    """What the rig called quiet was not."""
    s.a_clean_exchange().quiet(5.0).at(10.0).sends(6, 10).delivers(6, 10).at(13.0).acks(10)
    s.ends(20.0)


@broken(
    "C1",
    quiet_within=3.0,
    witness=("n1#5 t=13.010 acked to n0 conn 1 up to seqno 10",),
)
def who_sends_after_all_is_answered_for_too_long(s: Story) -> None:
    s.a_clean_exchange().quiet(5.0).at(10.0).sends(6, 10).delivers(6, 10).at(13.01).acks(10)
    s.ends(20.0)


@sound(quiet_within=3.0)
def a_crashed_peer_is_called_for_longer(s: Story) -> None:
    s.a_clean_exchange().at(2.0).fault("crash", member="n1").bites(1).sends(6, 10)
    s.quiet(5.0).at(15.0).resends(6, 10).ends(20.0)


@sound(resend_within=0.2, request_spacing=0.1)
def members_work_on_for_a_moment_after_the_end(s: Story) -> None:
    """What is sent again then had its time, too."""
    s.a_clean_exchange().at(2.0).fault("crash", member="n1").bites(1).sends(6, 10)
    for number in range(1, 15):
        s.at(2.0 + 0.1 * number).resends(6, 10)
    s.quiet(2.0).ends(2.5)


@sound(budget=Budget(acks=0.2, resends=0.4, syncs=1, requests=2))
def the_budget_is_spent(s: Story) -> None:
    s.a_clean_exchange().at(2.0).resends(1, 2).syncs().requests(6).requests(7)


@broken(
    "C1",
    budget=Budget(acks=0.2),
    witness=("n1#4 t=2.000 acked to n0 conn 1 up to seqno 5",),
)
def the_budget_of_acks_is_exceeded(s: Story) -> None:
    s.a_clean_exchange().at(2.0).acks(5)


@broken(
    "C1",
    budget=Budget(resends=0.4),
    witness=("n0#5 t=2.100 resent to n1 conn 1 seqnos 3..3",),
)
def the_budget_of_resends_is_exceeded(s: Story) -> None:
    s.a_clean_exchange().at(2.0).resends(1, 2).at(2.1).resends(3)


@broken(
    "C1",
    budget=Budget(syncs=1),
    witness=("n1#5 t=5.000 asked n0 for the first seqno of conn 1",),
)
def the_budget_of_syncs_is_exceeded(s: Story) -> None:
    s.a_clean_exchange().at(2.0).syncs().at(5.0).syncs()


@broken(
    "C1",
    budget=Budget(requests=0),
    witness=("n1#4 t=2.000 requested from n0 conn 1 seqnos 6..6",),
)
def the_budget_of_requests_is_exceeded(s: Story) -> None:
    s.a_clean_exchange().at(2.0).requests(6)


# -- L1: liveness --------------------------------------------------------------------------------


@sound(ack_within=0.5)
def an_ack_comes_at_the_last_moment(s: Story) -> None:
    s.at(1.0).opens().sends(1, 5).at(1.1).listens().delivers(1, 5).at(1.6).acks(5)


@broken(
    "L1",
    ack_within=0.5,
    witness=(
        "n1#2 t=1.100 delivered from n0 conn 1 seqnos 1..5",
        "n1#3 t=1.610 acked to n0 conn 1 up to seqno 5",
    ),
)
def an_ack_comes_too_late(s: Story) -> None:
    s.at(1.0).opens().sends(1, 5).at(1.1).listens().delivers(1, 5).at(1.61).acks(5)


@broken(
    "L1",
    ack_within=0.5,
    witness=("n1#4 t=2.100 delivered from n0 conn 1 seqnos 6..10",),
)
def an_ack_covers_too_little(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10).at(2.1).delivers(6, 10).at(2.2).acks(9)


@broken(
    "L1",
    ack_within=0.5,
    witness=("n1#2 t=1.100 delivered from n0 conn 1 seqnos 1..5",),
)
def an_ack_of_another_window_does_not_count(s: Story) -> None:
    s.at(1.0).opens().sends(1, 5).at(1.1).listens().delivers(1, 5)
    s.at(1.2).listens(epoch=2).acks(5, epoch=2)


@sound(ack_within=0.5)
def an_ack_may_come_before_the_delivery(s: Story) -> None:
    """Received in order is enough (JGRP-1664)."""
    s.at(1.0).opens().sends(1, 5).at(1.1).listens().acks(5).at(1.9).delivers(1, 5)


@sound(ack_within=0.5)
def what_came_ahead_of_its_turn_is_not_acked_yet(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6).sends(7, oob=True).at(2.1).delivers(7, oob=True)
    s.at(4.0).delivers(6).acks(7)


@sound(ack_within=0.5)
def a_removed_window_acks_no_more(s: Story) -> None:
    s.at(1.0).opens().sends(1, 5).at(1.1).listens().delivers(1, 5).at(1.5).forgets()


@sound(ack_within=0.5)
def a_paused_member_acks_later(s: Story) -> None:
    s.at(1.0).opens().sends(1, 5).at(1.1).listens().delivers(1, 5)
    s.at(1.2).fault("pause", member="n1").at(5.0).fault("resume", "off", member="n1", name="heal")
    s.acks(5).bites(1)


@broken(
    "L1",
    ack_within=0.5,
    witness=(
        "n1#2 t=3.100 delivered from n0 conn 1 seqnos 1..5",
        "n1#3 t=5.000 acked to n0 conn 1 up to seqno 5",
    ),
)
def a_pause_that_is_over_excuses_nothing_later(s: Story) -> None:
    s.at(1.0).fault("pause", member="n1").at(2.0).fault("pause", "off", member="n1").bites(1)
    s.at(3.0).opens().sends(1, 5).at(3.1).listens().delivers(1, 5).at(5.0).acks(5)


@sound(resend_within=1.0)
def a_sender_repeats_in_time(s: Story) -> None:
    s.at(1.0).opens().sends(1, 5).at(2.0).resends(1, 5).at(2.1).listens().delivers(1, 5)
    s.at(3.0).purges(1, 5)


@broken(
    "L1",
    resend_within=1.0,
    witness=(
        "n0#2 t=1.000 sent to n1 conn 1 seqnos 1..5",
        "n0#3 t=2.010 resent to n1 conn 1 seqnos 1..5",
    ),
)
def a_sender_repeats_too_late(s: Story) -> None:
    s.at(1.0).opens().sends(1, 5).at(2.01).resends(1, 5).at(2.1).listens().delivers(1, 5)
    s.at(3.0).purges(1, 5)


@sound(ack_within=None, resend_within=None)
def what_is_not_promised_is_not_asked_for(s: Story) -> None:
    s.at(1.0).opens().sends(1, 5).at(9.0).listens().delivers(1, 5)


@broken(
    "L1",
    resend_within=1.0,
    witness=("n0#3 t=2.000 purged for n1 conn 1 seqnos 1..4",),
)
def a_sender_falls_silent_with_one_message_unacked(s: Story) -> None:
    s.at(1.0).opens().sends(1, 5).at(1.1).listens().delivers(1, 5).at(2.0).purges(1, 4)


@broken(
    "L1",
    resend_within=1.0,
    witness=("n0#2 t=1.000 sent to n1 conn 1 seqnos 1..5",),
)
def a_sender_falls_silent_until_it_gives_up(s: Story) -> None:
    s.at(1.0).opens().sends(1, 5).at(2.01).removes(why="forgot")


@broken(
    "L1",
    resend_within=1.0,
    witness=("n0#3 t=2.000 resent to n1 conn 1 seqnos 1..5",),
)
def a_sender_falls_silent_after_one_repeat(s: Story) -> None:
    s.at(1.0).opens().sends(1, 5).at(2.0).resends(1, 5).at(9.0).listens().delivers(1, 5)


@sound(resend_within=1.0)
def a_sender_gives_up_in_time(s: Story) -> None:
    s.at(1.0).opens().sends(1, 5).at(2.0).removes(why="forgot")


@sound(resend_within=1.0)
def a_paused_sender_is_excused_for_its_pause(s: Story) -> None:
    s.at(1.0).opens().sends(1, 5).at(1.4).fault("pause", member="n0")
    s.at(5.0).fault("resume", member="n0", name="f2").bites(1).at(5.6).resends(1, 5)
    s.at(5.7).listens().delivers(1, 5).at(6.0).purges(1, 5)


@broken(
    "L1",
    resend_within=1.0,
    witness=(
        "n0#2 t=1.000 sent to n1 conn 1 seqnos 1..5",
        "n0#3 t=5.610 resent to n1 conn 1 seqnos 1..5",
    ),
)
def a_paused_sender_is_excused_for_no_more(s: Story) -> None:
    s.at(1.0).opens().sends(1, 5).at(1.4).fault("pause", member="n0")
    s.at(5.0).fault("resume", member="n0", name="f2").bites(1).at(5.61).resends(1, 5)
    s.at(5.7).listens().delivers(1, 5).at(6.0).purges(1, 5)


# -- S1: unread ----------------------------------------------------------------------------------


@broken(
    "S1",
    witness=(
        "rig#1 t=1.000 overheard from n0 conn 1 seqnos 1..5",
        "n0#2 t=1.000 sent to n1 conn 1 seqnos 1..5",
    ),
)
def a_stranger_reads_a_batch(s: Story) -> None:
    s.at(0.5).fault("listen").a_clean_exchange().at(1.0).overhears(1, 5).bites(1, do="listen")


@broken(
    "S1",
    witness=(
        "rig#1 t=2.000 overheard from n0 conn 1 seqnos 1..5",
        "n0#2 t=1.000 sent to n1 conn 1 seqnos 1..5",
    ),
)
def a_stranger_reads_a_repeat(s: Story) -> None:
    """It was not there when the batch was sent for the first time."""
    s.at(1.0).opens().sends(1, 5).at(1.5).fault("listen").at(2.0).resends(1, 5).overhears(1, 5)
    s.at(2.1).listens().delivers(1, 5).acks(5).at(2.2).purges(1, 5).bites(1, do="listen")


@sound()
def a_stranger_hears_and_cannot_read(s: Story) -> None:
    """What it takes for the batch is nothing that anybody sent."""
    s.at(0.5).fault("listen").a_clean_exchange()
    s.at(1.0).overhears(1, 5, digest=digest_of("noise")).bites(1, do="listen")


@sound()
def a_stranger_hears_what_was_not_sent_by_whom_it_names(s: Story) -> None:
    """Another stranger says in n2's name what n0 says: nothing of n2's was read."""
    s.at(0.5).fault("listen").a_clean_exchange()
    said = s.digest("n0", "n1", 1, 5)
    s.at(1.0).overhears(1, 5, "n2", digest=said).bites(1, do="listen")


@sound()
def a_stranger_says_a_batch_before_its_sender(s: Story) -> None:
    """What it hears of itself is no reading, whoever sends the same later."""
    s.at(0.5).fault("listen").overhears(1, 5).a_clean_exchange().bites(1, do="listen")
