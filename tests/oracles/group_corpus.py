"""More small runs with a known verdict: groups, their views and their multicasts.

In `a_group`, n0, n1 and n2 share a view from 0.5 s on; whoever watches n0 does so in window 1, n1
in window 2, n2 in window 3.
"""

from __future__ import annotations

import json
from typing import Any, Final

from stormcast.node import trace
from stormcast.node.core import wire
from tests.oracles.corpus import CASES, broken, sound
from tests.oracles.story import IDS, Story

__all__ = ["CASES"]


def nakack2(**bounds: float) -> dict[str, dict[str, Any]]:
    """A stack whose NAKACK2 repairs every second and promises this."""
    return {"NAKACK2": {"xmit_interval": 1.0, "bounds": bounds}, "GMS": {}}


VERIFIED: Final = {"VERIFY_SUSPECT2": {"timeout": 1.0}}


def mcast(**bounds: float) -> dict[str, dict[str, Any]]:
    return {"MCAST": {"xmit_interval": 1.0, "bounds": bounds}, "GMS": {}}


SILENT: Final = {"NAKACK2": {"xmit_interval": 0.0}, "GMS": {}}
"""A stack that repairs nothing: the transport does."""


# -- G1: no loss ---------------------------------------------------------------------------------


@sound()
def all_multicasts_are_delivered(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6, 10).casts(11, oob=True)
    s.at(2.1).takes(11, oob=True).takes(6, 7, part_of=(6, 10)).takes(6, 10, "n2")
    s.at(2.2).takes(8, 10, part_of=(6, 10)).takes(11, who="n2", oob=True).at(2.3).drops(6, 11)


@broken("G1", "A1", witness=("n0#7 t=2.000 sent to the group multicasts 6..10",))
def a_multicast_is_lost_at_one_member(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6, 10).at(2.1).takes(6, 10, "n2")


@broken("G1", witness=("n0#7 t=2.000 sent to the group multicasts 6..10",))
def a_multicast_is_lost_at_every_member(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6, 10)


@broken("G1", witness=("n0#8 t=3.000 sent to the group multicasts 7..7",))
def a_multicast_is_lost_on_its_own_sender(s: Story) -> None:
    """Seqno 6 is muted, and so is not missed; 7 is."""
    s.a_group().a_clean_cast().at(2.0).casts(6, muted=True).at(2.1)
    s.takes(6, muted=True).takes(6, who="n2", muted=True)
    s.at(3.0).casts_mutely(7, 7)
    s.at(3.1).takes(7).takes(7, who="n2")


@broken(
    "G1",
    "G6",
    "A1",
    witness=(
        "n0#7 t=2.000 sent to the group multicasts 6..10",
        "n0#9 t=2.100 purged for the group multicasts 6..10",
    ),
)
def a_multicast_is_dropped_and_lost(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6, 10).at(2.1).takes(6, 10, "n2").drops(6, 10)


@sound()
def what_was_sent_before_a_join_is_not_owed(s: Story) -> None:
    """The joiner's window begins after what the coordinator had delivered."""
    s.a_group("n0", "n1").at(1.0).casts(1, 5).at(1.1).takes(1, 5)
    s.at(2.0).installs(2, "n0", "n1", "n2", who="n0").installs(2, "n0", "n1", "n2", who="n1")
    s.watches("n0", "n2", epoch=9).watches("n1", "n2", epoch=9)
    s.at(2.1).watches("n2", "n0", after=5, why="digest").watches("n2", "n1", epoch=2, why="digest")
    s.installs(2, "n0", "n1", "n2", who="n2", by="n0")
    s.at(3.0).casts(6, 7).at(3.1).takes(6, 7).takes(6, 7, "n2")


@sound()
def what_was_sent_in_the_view_before_a_join_is_not_owed(s: Story) -> None:
    """The digest is older than 6, which n0 sent when it did not know of the joiner yet."""
    s.a_group("n0", "n1").at(1.0).casts(1, 5).at(1.1).takes(1, 5)
    s.at(1.9).casts(6).at(1.95).takes(6)
    s.at(2.0).installs(2, "n0", "n1", "n2", who="n0").installs(2, "n0", "n1", "n2", who="n1")
    s.watches("n0", "n2", epoch=9).watches("n1", "n2", epoch=9)
    s.at(2.1).watches("n2", "n0", after=5, why="digest").watches("n2", "n1", epoch=2, why="digest")
    s.installs(2, "n0", "n1", "n2", who="n2", by="n0")


@broken("G1", "A1", witness=("n0#6 t=2.100 sent to the group multicasts 6..6",))
def what_was_sent_after_a_join_is_owed(s: Story) -> None:
    """6 was sent in the view with the joiner, before the joiner had it: the digest was older."""
    s.a_group("n0", "n1").at(1.0).casts(1, 5).at(1.1).takes(1, 5)
    s.at(2.0).installs(2, "n0", "n1", "n2", who="n0").installs(2, "n0", "n1", "n2", who="n1")
    s.at(2.1).casts(6).at(2.2).takes(6)
    s.at(2.3).watches("n2", "n0", after=5, why="digest")
    s.installs(2, "n0", "n1", "n2", who="n2", by="n0")


@sound()
def a_later_digest_begins_later(s: Story) -> None:
    """The joiner's first answer was lost; in the second view the digest is newer."""
    s.a_group("n0", "n1").at(1.0).casts(1, 5).at(1.1).takes(1, 5)
    s.at(2.0).installs(2, "n0", "n1", "n2", who="n0").installs(2, "n0", "n1", "n2", who="n1")
    s.at(2.1).casts(6).at(2.2).takes(6)
    s.at(3.0).watches("n2", "n0", after=6, why="digest").installs(3, "n0", "n1", "n2")


@broken(
    "G1",
    witness=(
        "n0#7 t=2.000 sent to the group multicasts 6..10",
        "n1#6 t=3.000 receiver open from n0 window 9 at multicast 10 (view)",
    ),
)
def a_merge_replaces_the_window_of_a_mutual_pair(s: Story) -> None:
    """n1 was never apart from n0, only slower: 6..10 are lost to it (JGRP-699)."""
    s.a_group().a_clean_cast().at(2.0).casts(6, 10).at(2.1).takes(6, 10, "n2")
    s.at(3.0).unwatches("n1", "n0", at=5, why="merge").watches("n1", "n0", after=10, epoch=9)
    s.installs(2, "n0", "n1", "n2", merge=True)


def _excludes_the_sender(s: Story) -> None:
    """n1 is alone from 2.0 on; n0 does not notice."""
    s.a_group().a_clean_cast().at(2.0).installs(2, "n1", who="n1")
    s.unwatches("n1", "n0", at=5).unwatches("n1", "n2", epoch=3)


def _comes_back(s: Story) -> None:
    s.installs(3, "n0", "n1", "n2", merge=True)
    s.watches("n1", "n0", after=10, epoch=9, why="merge")
    s.watches("n1", "n2", epoch=8, why="merge")


@sound()
def what_was_sent_in_the_moment_of_a_merge_is_not_owed(s: Story) -> None:
    """Where nothing takes time, the digest that says 10 and the merge view have one time."""
    _excludes_the_sender(s)
    s.at(4.0).casts(6, 10).takes(6, 10, "n2")
    _comes_back(s)


@broken(
    "G1",
    witness=(
        "n0#8 t=4.000010 sent to the group multicasts 6..10",
        "n1#9 t=4.000 receiver open from n0 window 9 at multicast 10 (merge)",
    ),
)
def what_was_sent_after_a_merge_is_owed(s: Story) -> None:
    """No digest can know of it: a window that begins above it loses it."""
    _excludes_the_sender(s)
    s.at(4.0)
    _comes_back(s)
    s.at(4.00001).casts(6, 10).takes(6, 10, "n2")


@sound()
def a_merge_begins_above_what_was_sent_apart(s: Story) -> None:
    """n1 was alone from 2.0 to 4.0: what n0 sent in the views without it is not owed."""
    s.a_group().a_clean_cast().at(2.0).installs(2, "n1", who="n1")
    s.unwatches("n1", "n0", at=5).unwatches("n1", "n2", epoch=3)
    s.installs(2, "n0", "n2").unwatches("n0", "n1", epoch=2).unwatches("n2", "n1", epoch=2)
    s.at(2.5).casts(6, 10).at(2.6).takes(6, 10, "n2").drops(6, 10, view=2)
    s.at(4.0).installs(3, "n0", "n1", "n2", merge=True)
    s.watches("n1", "n0", after=10, epoch=9, why="merge")
    s.at(5.0).casts(11).at(5.1).takes(11, epoch=9).takes(11, who="n2")


@broken("G1", "A1", witness=("n0#11 t=5.000 sent to the group multicasts 11..11",))
def what_is_sent_after_a_merge_is_owed(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).installs(2, "n1", who="n1").unwatches("n1", "n0", at=5)
    s.installs(2, "n0", "n2").at(2.5).casts(6, 10).at(2.6).takes(6, 10, "n2")
    s.at(4.0).installs(3, "n0", "n1", "n2", merge=True)
    s.watches("n1", "n0", after=10, epoch=9, why="merge")
    s.at(5.0).casts(11).at(5.1).takes(11, who="n2")


@sound()
def one_side_that_expelled_is_owed_nothing_of_before(s: Story) -> None:
    """n1 excluded n0, which did not notice; 6..10 lie below where the new window begins."""
    s.a_group("n0", "n1").at(1.0).casts(1, 5).at(1.1).takes(1, 5)
    s.at(2.0).installs(2, "n1", who="n1").unwatches("n1", "n0", at=5).at(2.5).casts(6, 10)
    s.at(4.0).watches("n1", "n0", after=10, epoch=9, why="merge").installs(3, "n0", "n1")
    s.at(5.0).casts(11).at(5.1).takes(11, epoch=9)


@broken(
    "G1",
    witness=(
        "n0#4 t=2.500 sent to the group multicasts 1..5",
        "n2#2 t=3.000 receiver open from n0 window 1 at multicast 5 (digest)",
    ),
)
def a_window_begins_above_what_was_sent_since(s: Story) -> None:
    """The joiner had its view, and opened its window late, with a digest of later."""
    s.a_group("n0", "n1").at(2.0).installs(2, "n0", "n1", "n2").at(2.5).casts(1, 5)
    s.at(2.6).takes(1, 5).at(3.0).watches("n2", "n0", after=5, why="digest")


@sound()
def multicasts_to_a_crashed_member_may_be_lost(s: Story) -> None:
    s.a_group("n0", "n1").at(1.0).casts(1, 5).at(1.1).fault("crash", member="n1").bites(1)
    s.at(3.0).installs(2, "n0").unwatches("n0", "n1")


@sound()
def multicasts_of_a_crashed_member_may_be_lost(s: Story) -> None:
    """Each has a prefix, and they differ."""
    s.a_group().a_clean_cast().at(2.0).casts(6, 10).at(2.1).takes(6, 10, "n2")
    s.fault("crash", member="n0").bites(1).at(3.0).installs(2, "n1", "n2")


@sound(protocols=SILENT)
def without_repair_a_lost_multicast_raises_the_alarm(s: Story) -> None:
    """What waits behind the gap waits on, where it can be seen."""
    s.a_group().at(0.9).fault("rule").at(1.0).casts(1, 5).casts(6, 10).casts(11)
    s.at(1.1).takes(1, 5).takes(1, 5, "n2").takes(6, 10, "n2").takes(11, who="n2")
    s.at(30.0).alarms(6, 10).bites(1).quiet(40.0).ends(50.0).fills(trace.RECEIVE_MESSAGES, 1, 100)


@broken("G1", protocols=SILENT, witness=("n0#3 t=1.000 sent to the group multicasts 1..5",))
def without_repair_an_alarm_is_about_another_gap(s: Story) -> None:
    s.a_group("n0", "n1").at(0.9).fault("rule").at(1.0).casts(1, 5).casts(6, 10)
    s.at(30.0).alarms(6, 10).bites(1).quiet(40.0).ends(50.0)


@broken("G1", protocols=SILENT, witness=("n0#3 t=1.000 sent to the group multicasts 1..5",))
def without_repair_an_alarm_was_about_an_earlier_loss(s: Story) -> None:
    s.a_group("n0", "n1").at(0.9).fault("rule").alarms(1).at(1.0).casts(1, 5).bites(1)


@broken("G1", protocols=SILENT, witness=("n0#5 t=1.000 sent to the group multicasts 6..10",))
def without_repair_a_multicast_is_lost_in_silence(s: Story) -> None:
    s.a_group("n0", "n1").at(0.9).fault("rule").bites(1).at(1.0).casts(1, 5).casts(6, 10)
    s.at(1.1).takes(1, 5)


@broken("G1", protocols=SILENT, witness=("n0#5 t=1.000 sent to the group multicasts 6..10",))
def without_repair_and_without_a_fault_nothing_may_be_lost(s: Story) -> None:
    s.a_group("n0", "n1").at(1.0).casts(1, 5).casts(6, 10).at(1.1).takes(1, 5)
    s.at(30.0).alarms(6, 10).quiet(40.0).ends(50.0)


@broken("G1", protocols=nakack2(), witness=("n0#5 t=1.000 sent to the group multicasts 6..10",))
def where_there_is_repair_an_alarm_excuses_nothing(s: Story) -> None:
    s.a_group("n0", "n1").at(0.9).fault("rule").bites(1).at(1.0).casts(1, 5).casts(6, 10)
    s.at(1.1).takes(1, 5).at(5.0).alarms(6, 10)


def a_loss_while_it_repairs_nothing(
    s: Story, *, after: str = "500ms", attribute: str = "NAKACK2.xmit_interval"
) -> Story:
    """n1 repairs nothing from the start, misses 6 to 10, and says so; at 8 s its interval is
    changed."""
    s.a_group("n0", "n1").at(0.9).fault("rule").bites(1).at(1.0).casts(1, 5).casts(6, 10)
    s.at(1.1).takes(1, 5).at(5.0).alarms(6, 10).at(8.0)
    return sets_interval(s, after, attribute=attribute)


def sets_interval(
    s: Story,
    value: object,
    *,
    name: str = "f2",
    attribute: str = "NAKACK2.xmit_interval",
    **more: object,
) -> Story:
    s.fault("set-attribute", member="n1", attribute=attribute, value=value, name=name, **more)
    return s.bites(1, name, "set-attribute")


UNREPAIRED: Final = ("n0#5 t=1.000 sent to the group multicasts 6..10",)


@broken("G1", protocols=SILENT, witness=UNREPAIRED)
def what_is_lost_without_repair_is_repaired_when_there_is(s: Story) -> None:
    """G1: "When Q's windows repair again, they repair what was lost before, too"."""
    a_loss_while_it_repairs_nothing(s)


@sound(protocols=SILENT)
def what_is_lost_without_repair_is_excused_though_unicast_repairs(s: Story) -> None:
    """A setting without a protocol is one of unicast."""
    a_loss_while_it_repairs_nothing(s, attribute="xmit_interval").quiet(13.0).ends(20.0)


@broken("G1", protocols=SILENT, witness=UNREPAIRED)
def an_alarm_while_there_is_repair_excuses_no_earlier_loss(s: Story) -> None:
    a_loss_while_it_repairs_nothing(s).at(9.0).alarms(6, 10)


@broken("G1", protocols=SILENT, witness=UNREPAIRED)
def what_repair_left_over_needs_another_alarm(s: Story) -> None:
    """n1 repairs for two seconds, and nothing after that."""
    sets_interval(a_loss_while_it_repairs_nothing(s).at(10.0), 0, name="f3")


@sound(protocols=SILENT)
def what_repair_left_over_has_another_alarm(s: Story) -> None:
    sets_interval(a_loss_while_it_repairs_nothing(s).at(10.0), 0, name="f3")
    s.at(12.0).alarms(6, 10).quiet(13.0).ends(20.0)


@sound(protocols=SILENT)
def switching_repair_off_again_changes_no_excuse(s: Story) -> None:
    a_loss_while_it_repairs_nothing(s, after="0s")


@broken("A1", "G1", protocols=SILENT)
def members_differ_in_what_only_one_of_them_repaired(s: Story) -> None:
    s.a_group().at(0.9).fault("rule").bites(1).at(1.0).casts(1, 5).casts(6, 10)
    s.at(1.1).takes(1, 5).takes(1, 5, "n2").takes(6, 10, "n2").at(5.0).alarms(6, 10)
    sets_interval(s.at(8.0), "500ms")


@sound(both_ends=True, protocols=SILENT)
def who_left_before_there_was_repair_repairs_nothing(s: Story) -> None:
    """n0 is gone when n1 is to repair."""
    s.a_group().at(0.9).fault("rule").bites(1).at(1.0).offers(1, 10, to="")
    s.casts(1, 5, number=1).casts(6, 10, number=6).is_given_cast(1, 10, "n0")
    s.at(1.1).takes(1, 5).is_given_cast(1, 5)
    s.takes(1, 5, "n2").takes(6, 10, "n2").is_given_cast(1, 10, "n2").at(5.0).alarms(6, 10)
    s.at(6.0).stops("n0").at(6.1).unwatches("n1", "n0", at=5).unwatches("n2", "n0", at=10)
    s.installs(2, "n1", "n2")
    sets_interval(s.at(8.0), "500ms")


# -- G1: no loss without a cause ------------------------------------------------------------------


def a_late_delivery(s: Story, *, is_completed: bool = False) -> Story:
    """n1 misses 6 for a while, and says so."""
    s.a_group("n0", "n1")
    if is_completed:
        s.at(0.6).inquires()
    s.at(1.0).casts(1, 5).casts(6).at(1.1).takes(1, 5)
    return s.at(5.0).alarms(6, epoch=1).at(5.1).takes(6)


LATE: Final = ("n1#4 t=5.000 alarm about n0 window 1 multicasts 6..6 (a gap stands)",)


@broken("G1", protocols=nakack2(), witness=LATE)
def an_alarm_has_no_cause(s: Story) -> None:
    a_late_delivery(s)


@broken(
    "G1",
    protocols=SILENT | {"TCP": {"drop_when_full": False}},
    witness=("n1#5 t=5.000 alarm about n0 window 1 multicasts 6..6 (a gap stands)",),
)
def an_alarm_has_no_cause_where_nothing_is_repaired(s: Story) -> None:
    a_late_delivery(s, is_completed=True)


@broken("G1", protocols=nakack2(), witness=LATE)
def an_alarm_is_older_than_the_first_fault(s: Story) -> None:
    a_late_delivery(s).at(6.0).fault("loss").bites(1)


@broken("G1", protocols=nakack2(), witness=LATE)
def an_alarm_under_what_loses_nothing(s: Story) -> None:
    s.at(0.9).fault("delay").fault("reorder", name="f2").fault("duplicate", name="f3")
    s.fault("pause", member="n1", name="f4").fault("pause", "off", member="n1", name="f4")
    s.fault("stall", member="n1", name="f5").fault("consume", member="n1", name="f6")
    for name, do in [
        ("f1", "delay"),
        ("f2", "reorder"),
        ("f3", "duplicate"),
        ("f4", "pause"),
        ("f5", "stall"),
    ]:
        s.bites(1, name, do)
    a_late_delivery(s)


@broken("G1", protocols=nakack2(), witness=LATE)
def the_end_of_a_fault_is_none(s: Story) -> None:
    """A heal of everything is recorded even where there was nothing to heal."""
    s.at(0.9).fault("loss", "off")
    a_late_delivery(s)


@sound(protocols=nakack2())
def an_alarm_after_a_fault_has_a_cause(s: Story) -> None:
    s.at(0.9).fault("loss").fault("loss", "off").bites(1)
    a_late_delivery(s)


@sound(protocols=nakack2())
def an_alarm_on_a_network_that_loses_has_a_cause(s: Story) -> None:
    s.at(0.0).fault("network", name="network")
    a_late_delivery(s)


@sound(protocols=nakack2())
def an_alarm_after_a_test_protocol_took_something_has_a_cause(s: Story) -> None:
    s.at(0.9).refuses("probe-discard", "n0")
    a_late_delivery(s)


@broken(
    "G1",
    protocols=nakack2(),
    witness=("n1#5 t=5.000 alarm about n0 window 1 multicasts 6..6 (a gap stands)",),
)
def what_a_member_refuses_is_no_cause(s: Story) -> None:
    s.at(0.9).refuses("duplicate", "n1")
    a_late_delivery(s)


@sound(protocols=nakack2())
def an_alarm_after_a_member_ended_has_a_cause(s: Story) -> None:
    s.at(0.9).stops("n2")
    a_late_delivery(s)


@sound(protocols=nakack2())
def an_alarm_after_a_view_left_somebody_out_has_a_cause(s: Story) -> None:
    s.at(0.2).installs(1, "n0", "n1", who="n1", by="n0").installs(2, "n1", who="n1")
    s.at(0.5).installs(3, "n0", "n1", merge=True)
    for epoch, (who, of) in enumerate((("n1", "n0"), ("n0", "n1")), 1):
        s.watches(who, of, epoch=epoch)
    s.at(1.0).casts(1).at(5.0).alarms(1, epoch=1).at(5.1).takes(1)


@broken(
    "G1",
    protocols=nakack2(),
    witness=("n1#4 t=5.000 alarm about n0 window 1 multicasts 1..1 (a gap stands)",),
)
def a_view_that_grows_is_no_cause(s: Story) -> None:
    s.at(0.2).installs(1, "n0", who="n0")
    s.installs(1, "n1", who="n1")
    s.at(0.5).watches("n1", "n0").watches("n0", "n1", epoch=2)
    s.installs(2, "n0", "n1", merge=True)
    s.at(1.0).casts(1).at(5.0).alarms(1, epoch=1).at(5.1).takes(1)


@sound(protocols={"NAKACK2": {"xmit_interval": 1.0, "historical": {"split_send": True}}, "GMS": {}})
def a_flaw_of_history_is_a_cause(s: Story) -> None:
    a_late_delivery(s)


@sound(protocols={"MCAST": {"historical": {"queue_overflow": "drop-oldest"}}, "GMS": {}})
def a_queue_that_drops_is_a_cause(s: Story) -> None:
    a_late_delivery(s)


@broken(
    "G1",
    protocols={
        "NAKACK2": {"historical": {"split_send": False, "queue_overflow": "none"}},
        "UDP": {"drop_when_full": True},
        "GMS": {},
    },
    witness=LATE,
)
def settings_without_a_flaw_are_no_cause(s: Story) -> None:
    """What the transport drops is repaired."""
    a_late_delivery(s)


@sound(protocols=SILENT | {"UDP": {"drop_when_full": True}})
def without_repair_a_transport_that_drops_is_a_cause(s: Story) -> None:
    a_late_delivery(s, is_completed=True)


@broken("G1", witness=("n1#4 t=2.100 skipped from n0 conn 1 seqnos up to 10",))
def messages_are_given_up_without_a_cause(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6, 10).sends(11, 15)
    s.at(2.1).skips(10).delivers(11, 15).at(3.0).removes(why="forgot")


@broken(
    "G1",
    protocols=nakack2(),
    witness=("n1#5 t=2.000 skipped from n0 window 1 multicasts up to 6",),
)
def a_multicast_is_given_up_without_a_cause(s: Story) -> None:
    """It came early and out of band before, so that nothing else shows."""
    s.a_group("n0", "n1").at(1.0).casts(1, 5).casts(6, oob=True)
    s.at(1.1).takes(1, 5).at(1.2).takes(6, oob=True).at(2.0).misses(6)


TCP: Final = nakack2() | {"TCP_NIO2": {"drop_when_full": False, "receive_queue": 0}}
LOST: Final = ("n0#4 t=1.000 sent to  conn 0 unnumbered",)


@broken("G1", protocols=TCP, witness=LOST)
def an_unnumbered_multicast_is_lost_without_a_cause(s: Story) -> None:
    s.a_group().at(1.0).shouts_to_all("lost").at(1.1).hears("lost", "n2")


@broken("G1", protocols=TCP, witness=("n0#4 t=1.000 sent to n1 conn 0 unnumbered",))
def an_unnumbered_message_is_lost_without_a_cause(s: Story) -> None:
    s.at(0.9).fault("delay").bites(1)
    s.a_group().at(1.0).shouts("lost").shouts("hello", to="n2").at(1.1).hears("hello", "n2")


@sound(protocols=TCP)
def unnumbered_messages_arrive_over_connections(s: Story) -> None:
    """What is sent while somebody joins, or when the run is over, is nobody's due."""
    s.a_group("n0", "n1").at(1.0).shouts_to_all("one").shouts("two").at(1.1).hears("one")
    s.hears("two").at(2.0).shouts_to_all("three").at(2.1).hears("three")
    s.at(2.0).installs(2, "n0", "n1", "n2").quiet(10.0).at(12.0).shouts_to_all("four").ends(20.0)


@sound(protocols=TCP)
def an_unnumbered_message_is_lost_with_a_cause(s: Story) -> None:
    """A connection that is cut takes with it what is under way."""
    s.a_group().at(1.0).shouts_to_all("lost").at(1.001).fault("cut").bites(1)


@broken("G1", protocols=TCP, witness=("n0#3 t=1.000 sent to  conn 0 unnumbered",))
def an_unnumbered_message_was_lost_before_the_first_fault(s: Story) -> None:
    """What was sent after it had come before anything was done."""
    s.a_group("n0", "n1").at(1.0).shouts_to_all("lost").at(1.1).shouts("next")
    s.at(1.2).hears("next").at(2.0).fault("cut").bites(1)


@sound(protocols=TCP)
def an_unnumbered_message_was_under_way_at_the_first_fault(s: Story) -> None:
    """What was sent after it came later."""
    s.a_group("n0", "n1").at(1.0).shouts_to_all("lost").at(1.1).shouts("next")
    s.at(1.15).fault("cut").bites(1).at(1.2).hears("next")


@sound(protocols=TCP)
def an_unnumbered_message_finds_nobody_who_takes_it(s: Story) -> None:
    s.a_group("n0", "n1").at(0.9).fault("stall", member="n1").bites(1)
    s.at(1.0).shouts_to_all("lost").at(1.5).fault("stall", "off", member="n1")


@sound(protocols=nakack2() | {"TCP": {"drop_when_full": True}})
def an_unnumbered_message_found_no_room(s: Story) -> None:
    s.a_group().at(1.0).shouts_to_all("lost")


@sound(protocols=nakack2() | {"UDP": {"drop_when_full": False}})
def an_unnumbered_message_is_lost_as_a_datagram(s: Story) -> None:
    s.a_group().at(1.0).shouts_to_all("lost")


# -- G2: at most once ----------------------------------------------------------------------------


@broken(
    "G2",
    "G3",
    witness=(
        "n1#4 t=1.100 delivered from n0 window 1 multicasts 1..5",
        "n1#5 t=2.000 delivered from n0 window 1 multicasts 1..5",
    ),
)
def a_multicast_is_delivered_twice_in_a_window(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).takes(1, 5)


@broken(
    "G2",
    witness=(
        "n1#4 t=1.100 delivered from n0 window 1 multicasts 1..5",
        "n1#8 t=2.100 delivered from n0 window 9 multicasts 4..5 (a part)",
    ),
)
def a_multicast_is_delivered_again_after_a_merge(s: Story) -> None:
    """The digest of the sender was behind what n1 had: nothing may come twice even so."""
    s.a_group().a_clean_cast().at(2.0).unwatches("n1", "n0", at=5)
    s.watches("n1", "n0", after=3, epoch=9, why="merge").installs(2, "n0", "n1", "n2", merge=True)
    s.at(2.1).takes(4, 5, part_of=(1, 5), epoch=9)


@broken(
    "G2",
    witness=(
        "n1#5 t=2.100 delivered from n0 window 1 multicasts 6..6 (OOB)",
        "n1#6 t=2.200 delivered from n0 window 1 multicasts 6..6 (OOB)",
    ),
)
def an_oob_multicast_is_delivered_twice(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6, oob=True).at(2.1).takes(6, who="n2", oob=True)
    s.takes(6, oob=True).at(2.2).takes(6, oob=True)


@sound()
def a_new_window_delivers_what_is_new(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).unwatches("n1", "n0", at=5)
    s.watches("n1", "n0", after=5, epoch=9, why="merge").installs(2, "n0", "n1", "n2", merge=True)
    s.at(2.1).casts(6, 8).at(2.2).takes(6, 8, epoch=9).takes(6, 8, "n2")


# -- G3: FIFO ------------------------------------------------------------------------------------


@broken(
    "G3",
    witness=(
        "n1#4 t=1.100 delivered from n0 window 1 multicasts 1..5",
        "n1#5 t=2.100 delivered from n0 window 1 multicasts 7..7",
    ),
)
def two_multicasts_change_places(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6).casts(7).at(2.1).takes(6, who="n2")
    s.takes(7, who="n2").takes(7).takes(6)


@broken(
    "G3",
    "G1",
    "A1",
    witness=(
        "n1#1 t=0.500 receiver open from n0 window 1 at multicast 0 (view)",
        "n1#4 t=1.100 delivered from n0 window 1 multicasts 2..2",
    ),
)
def a_window_does_not_begin_where_it_says(s: Story) -> None:
    s.a_group().at(1.0).casts(1).casts(2).at(1.1).takes(2).takes(1, who="n2").takes(2, who="n2")


@broken(
    "G3",
    witness=(
        "n2#1 t=2.100 receiver open from n0 window 1 at multicast 5 (digest)",
        "n2#3 t=2.200 delivered from n0 window 1 multicasts 1..5",
    ),
)
def a_window_delivers_from_below_where_it_begins(s: Story) -> None:
    s.a_group("n0", "n1").at(1.0).casts(1, 5).at(1.1).takes(1, 5)
    s.at(2.0).installs(2, "n0", "n1", "n2", who="n0").installs(2, "n0", "n1", "n2", who="n1")
    s.at(2.1).watches("n2", "n0", after=5, why="digest")
    s.installs(2, "n0", "n1", "n2", who="n2", by="n0").at(2.2).takes(1, 5, "n2")


@broken(
    "G3",
    witness=(
        "n2#1 t=2.100 receiver open from n0 window 1 at multicast 1 (digest)",
        "n2#3 t=2.200 delivered from n0 window 1 multicasts 1..1 (OOB)",
    ),
)
def an_oob_multicast_comes_from_below_where_a_window_begins(s: Story) -> None:
    s.a_group("n0", "n1").at(1.0).casts(1, oob=True).at(1.1).takes(1, oob=True)
    s.at(2.0).installs(2, "n0", "n1", "n2", who="n0").installs(2, "n0", "n1", "n2", who="n1")
    s.at(2.1).watches("n2", "n0", after=1, why="digest")
    s.installs(2, "n0", "n1", "n2", who="n2", by="n0").at(2.2).takes(1, who="n2", oob=True)


@broken(
    "G3",
    witness=(
        "n2#4 t=1.100 delivered from n0 window 1 multicasts 1..1",
        "n2#5 t=1.100 delivered from n0 window 1 multicasts 3..3",
    ),
)
def what_a_crashed_member_left_has_a_gap(s: Story) -> None:
    s.a_group().at(1.0).casts(1).casts(2).casts(3).at(1.1).takes(1).takes(2).takes(3)
    s.takes(1, who="n2").takes(3, who="n2")
    s.fault("crash", member="n0").bites(1).at(3.0).installs(2, "n1", "n2")


@broken(
    "G3",
    witness=(
        "n0#5 t=1.000 delivered from n0 multicasts 1..1",
        "n0#8 t=1.000 delivered from n0 multicasts 3..3",
    ),
)
def own_multicasts_change_places(s: Story) -> None:
    s.a_group().at(1.0).casts(1)
    s.casts_mutely(2, 2).casts_mutely(3, 3)
    s.hears_itself(3, 3)
    s.hears_itself(2, 2).at(1.1)
    for who in ("n1", "n2"):
        s.takes(1, who=who).takes(2, who=who).takes(3, who=who)


@sound()
def own_multicasts_may_be_muted(s: Story) -> None:
    s.a_group().at(1.0).casts(1).casts(2, muted=True).casts(3).at(1.1)
    for who in ("n1", "n2"):
        s.takes(1, who=who).takes(2, who=who, muted=True).takes(3, who=who)
    s.at(1.2).drops(1, 3)


@sound()
def what_the_sender_dropped_before_a_join_is_skipped(s: Story) -> None:
    """The digest promised 4..5, which were dropped before the sender heard of the joiner."""
    s.a_group("n0", "n1").at(1.0).casts(1, 5).at(1.1).takes(1, 5).at(1.2).drops(1, 5, view=1)
    s.at(2.0).installs(2, "n0", "n1", "n2", who="n0").installs(2, "n0", "n1", "n2", who="n1")
    s.at(2.1).watches("n2", "n0", after=3, why="digest")
    s.installs(2, "n0", "n1", "n2", who="n2", by="n0").at(3.0).casts(6)
    s.at(3.1).misses(5, "n2", meant=False).takes(6).takes(6, who="n2").at(3.2).drops(6, view=2)


# -- G4: intact ----------------------------------------------------------------------------------


@broken(
    "G4",
    "G1",
    "A1",
    witness=(
        "n0#7 t=2.000 sent to the group multicasts 6..10",
        "n1#5 t=2.100 delivered from n0 window 1 multicasts 6..10",
    ),
)
def a_corrupted_multicast_is_delivered(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6, 10).at(2.1).takes(6, 10, "n2")
    s.takes(6, 10, digest=666)


@broken("G4", witness=("n1#5 t=2.100 delivered from n0 window 1 multicasts 6..6",))
def a_multicast_is_delivered_that_nobody_sent(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.1).takes(6)


@broken(
    "G4",
    "G1",
    "A1",
    witness=(
        "n0#7 t=2.000 sent to the group multicasts 6..10",
        "n1#5 t=1.900 delivered from n0 window 1 multicasts 6..10",
    ),
)
def a_multicast_is_delivered_before_it_was_sent(s: Story) -> None:
    s.a_group().a_clean_cast().at(1.9).takes(6, 10).at(2.0).casts(6, 10).takes(6, 10, "n2")


@broken(
    "G4",
    witness=(
        "n0#7 t=2.000 sent to the group multicasts 6..10",
        "n1#5 t=2.100 delivered from n0 window 1 multicasts 6..10",
    ),
)
def a_multicast_is_delivered_with_a_byte_too_many(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6, 10).at(2.1).takes(6, 10, "n2")
    s.takes(6, 10, size=51)


@broken("G4")
def all_of_a_multicast_is_delivered_as_a_part_of_it_with_one_byte(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6, 10).at(2.1).takes(6, 10, "n2")
    s.takes(6, 10, part_of=(6, 10), size=1)


@sound()
def unnumbered_multicasts_may_be_lost_and_repeated(s: Story) -> None:
    s.a_group().at(1.0).shouts_to_all("hello").shouts_to_all("lost")
    s.at(1.1).hears("hello").hears("hello", "n2").hears("hello")


@broken("G4", witness=("n1#4 t=1.100 delivered from n0 conn 0 unnumbered",))
def an_unnumbered_multicast_is_delivered_that_nobody_sent(s: Story) -> None:
    s.a_group().at(1.0).shouts_to_all("hello").at(1.1).hears("goodbye")


@broken(
    "G4",
    "G1",
    "A1",
    witness=(
        "n0#7 t=2.000 sent to the group multicasts 6..10",
        "n1#5 t=2.100 delivered from n0 window 1 multicasts 6..12",
    ),
)
def more_multicasts_are_delivered_than_the_batch_held(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6, 10).at(2.1).takes(6, 10, "n2")
    s.takes(6, 12, digest=s.digest("n0", "", 6, 10, conn=0))


# -- G5: bounded memory --------------------------------------------------------------------------


@broken("G5", witness=("n0#7 t=2.000 send window messages the group 101 of 100",))
def a_multicast_window_holds_more_than_its_bound(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).fills(trace.SEND_MESSAGES, 101, 100, "n0", None)


@broken(
    "G5",
    "G1",
    "A1",
    protocols=nakack2(),
    witness=(
        "n1#4 t=1.100 delivered from n0 window 1 multicasts 1..5",
        "n1#5 t=20.000 receive window messages n0 4 of 100",
    ),
)
def a_multicast_window_waits_behind_a_gap_for_ever(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6).casts(7, 10).at(2.1).takes(6, who="n2")
    s.takes(7, 10, "n2").quiet(10.0).ends(20.0).fills(trace.RECEIVE_MESSAGES, 4, 100)


@sound(protocols=nakack2())
def a_multicast_window_waits_for_a_sender_that_is_gone(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6).casts(7, 10).at(2.1).takes(6, who="n2")
    s.at(3.0).fault("crash", member="n0").bites(1).at(4.0).installs(2, "n1", "n2")
    s.quiet(10.0).ends(20.0).fills(trace.RECEIVE_MESSAGES, 4, 100)


@sound()
def the_queue_of_a_joiner_may_be_unbounded(s: Story) -> None:
    s.a_group().a_clean_cast().fills(trace.QUEUED_MESSAGES, 1 << 20, 0)


@sound(protocols=nakack2())
def a_multicast_window_waits_for_a_sender_that_is_apart(s: Story) -> None:
    s.a_group("n0", "n1").at(1.0).casts(1, 5).at(1.1).takes(1, 5).fault("partition").bites(1)
    s.at(4.0).installs(2, "n0", who="n0").quiet(10.0).ends(20.0)
    s.fills(trace.RECEIVE_MESSAGES, 4, 100)


# -- G6: purge safety ----------------------------------------------------------------------------


@broken(
    "G6",
    witness=(
        "n0#4 t=1.000 sent to the group multicasts 1..5",
        "n0#6 t=1.200 purged for the group multicasts 1..5",
        "n2#4 t=1.300 delivered from n0 window 1 multicasts 1..5",
    ),
)
def a_multicast_is_dropped_before_the_last_member_has_it(s: Story) -> None:
    s.a_group().at(1.0).casts(1, 5).at(1.1).takes(1, 5).at(1.2).drops(1, 5)
    s.at(1.3).takes(1, 5, "n2")


@broken(
    "G6",
    "G1",
    witness=(
        "n0#3 t=1.000 sent to the group multicasts 1..5",
        "n0#5 t=1.200 purged for the group multicasts 1..5",
    ),
)
def a_multicast_is_dropped_that_a_later_window_of_a_member_does_not_want(s: Story) -> None:
    """Its first window wanted it, and was there when it was dropped."""
    s.a_group("n0", "n1").at(1.0).casts(1, 5).at(1.2).drops(1, 5).at(5.0)
    s.unwatches("n1", "n0", epoch=1).watches("n1", "n0", epoch=11, after=5, why="merge")
    s.at(6.0).casts(6).at(6.1).takes(6, epoch=11).at(6.2).drops(6)


@broken(
    "G6",
    witness=(
        "n0#4 t=1.000 sent to the group multicasts 1..5",
        "n0#6 t=1.200 purged for the group multicasts 1..5",
    ),
)
def a_multicast_is_dropped_that_a_dead_member_never_had(s: Story) -> None:
    """It is still in the sender's view, and may live."""
    s.a_group().at(1.0).casts(1, 5).at(1.1).takes(1, 5).at(1.15).fault("crash", member="n2")
    s.at(1.2).drops(1, 5, view=1).bites(1).at(3.0).installs(2, "n0", "n1")


@sound()
def a_dead_member_is_not_waited_for_any_more(s: Story) -> None:
    s.a_group().at(1.0).casts(1, 5).at(1.1).takes(1, 5).at(1.15).fault("crash", member="n2")
    s.bites(1).at(3.0).drops(1, 5, view=2).installs(2, "n0", "n1")


@broken(
    "G6",
    witness=(
        "n0#4 t=1.000 sent to the group multicasts 1..5",
        "n0#5 t=1.200 purged for the group multicasts 1..5",
        "n0#6 t=1.300 delivered from n0 multicasts 1..5",
    ),
)
def a_multicast_is_dropped_before_its_own_sender_has_it(s: Story) -> None:
    """The application of the sender is stalled."""
    s.a_group().at(1.0).casts_mutely(1, 5)
    s.at(1.1).takes(1, 5).takes(1, 5, "n2").at(1.2).drops(1, 5)
    s.at(1.3).hears_itself(1, 5)


@sound()
def what_a_joiner_never_wants_may_be_dropped(s: Story) -> None:
    """It is in the view at the sender before its window opens, which begins above."""
    s.a_group("n0", "n1").at(1.0).casts(1, 5).at(1.1).takes(1, 5)
    s.at(2.0).installs(2, "n0", "n1", "n2", who="n0").installs(2, "n0", "n1", "n2", who="n1")
    s.drops(1, 5, view=2).at(2.1).watches("n2", "n0", after=5, why="digest")
    s.installs(2, "n0", "n1", "n2", who="n2", by="n0")


@broken(
    "G6",
    witness=(
        "n0#3 t=1.000 sent to the group multicasts 1..5",
        "n0#6 t=2.000 purged for the group multicasts 1..5",
    ),
)
def what_a_joiner_wants_is_dropped(s: Story) -> None:
    """The purge race: its digest promised 4 and 5."""
    s.a_group("n0", "n1").at(1.0).casts(1, 5).at(1.1).takes(1, 5)
    s.at(2.0).installs(2, "n0", "n1", "n2", who="n0").installs(2, "n0", "n1", "n2", who="n1")
    s.drops(1, 5, view=2).at(2.1).watches("n2", "n0", after=3, why="digest")
    s.installs(2, "n0", "n1", "n2", who="n2", by="n0").at(2.5).misses(5, "n2", meant=False)


@sound()
def what_a_merge_began_above_may_be_dropped_after_it(s: Story) -> None:
    s.a_group("n0", "n1").at(1.0).casts(1, 5).at(1.1).takes(1, 5)
    s.at(2.0).installs(2, "n1", who="n1").unwatches("n1", "n0", at=5).at(2.5).casts(6, 10)
    s.at(4.0).watches("n1", "n0", after=10, epoch=9, why="merge").installs(3, "n0", "n1")
    s.at(4.1).drops(1, 10, view=3)


# -- G7: windows are apart -----------------------------------------------------------------------


@broken(
    "G7",
    witness=(
        "n1#5 t=2.100 receiver removed from n0 window 1 at multicast 5 (view)",
        "n1#8 t=2.200 delivered from n0 window 1 multicasts 6..6",
    ),
)
def a_removed_window_delivers(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6).at(2.1).takes(6, who="n2")
    s.unwatches("n1", "n0", at=5).watches("n1", "n0", after=6, epoch=9)
    s.installs(2, "n0", "n1", "n2", merge=True).at(2.2).takes(6)


@broken(
    "G7",
    witness=(
        "n1#5 t=2.000 installed view 2 of n1: n1",
        "n1#6 t=2.100 delivered from n0 window 1 multicasts 6..6",
    ),
)
def a_multicast_of_a_stranger_is_delivered(s: Story) -> None:
    """n1 went on alone, kept its window for n0, and delivers from it."""
    s.a_group().a_clean_cast().at(2.0).installs(2, "n1", who="n1").casts(6)
    s.at(2.1).takes(6, who="n2").takes(6)
    s.at(4.0).installs(3, "n0", "n1", "n2", merge=True)


@sound()
def a_window_that_goes_hands_up_its_rest(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6).at(2.1).takes(6, who="n2")
    s.fault("crash", member="n0").bites(1).at(3.0).installs(2, "n1", "n2").takes(6)
    s.unwatches("n1", "n0", at=6)


@sound()
def a_connection_and_a_window_are_no_rivals(s: Story) -> None:
    """Unicast names its connections; windows on multicasts have none."""
    s.a_group().a_clean_exchange(at=1.0).a_clean_cast(at=2.0)


# -- A1: agreement -------------------------------------------------------------------------------


@broken(
    "A1",
    witness=(
        "n2#5 t=2.200 delivered from n0 window 1 multicasts 6..6",
        "n1#1 t=0.500 receiver open from n0 window 1 at multicast 0 (view)",
    ),
)
def two_members_differ_about_one_that_did_not_have_them(s: Story) -> None:
    """n0 is alone in its view, so owes nobody anything; n1 and n2 have it, and must agree."""
    s.a_group().a_clean_cast().at(2.0).fault("partition").bites(1).installs(2, "n0", who="n0")
    s.at(2.1).casts(6).at(2.2).takes(6, who="n2").quiet(10.0).ends(20.0)


@broken(
    "A1",
    "G1",
    witness=(
        "n1#5 t=2.100 delivered from n0 window 1 multicasts 6..6 (OOB)",
        "n2#1 t=0.500 receiver open from n0 window 1 at multicast 0 (view)",
    ),
)
def an_oob_multicast_reaches_only_one(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6, oob=True).at(2.1).takes(6, oob=True)


@broken(
    "A1",
    "G1",
    witness=(
        "n1#6 t=3.100 delivered from n0 window 1 multicasts 7..7",
        "n2#1 t=2.000 receiver open from n0 window 1 at multicast 5 (digest)",
    ),
)
def a_joiner_differs_above_where_it_began(s: Story) -> None:
    s.a_group("n0", "n1").at(1.0).casts(1, 5).at(1.1).takes(1, 5)
    s.at(2.0).watches("n2", "n0", after=5, why="digest").installs(2, "n0", "n1", "n2")
    s.at(3.0).casts(6).casts(7).at(3.1).takes(6).takes(7).takes(6, who="n2")


@sound()
def members_of_different_views_need_not_agree(s: Story) -> None:
    """n1 left n0's company on its own, and came back later: it saw other views."""
    s.a_group().a_clean_cast().at(2.0).fault("partition").bites(1).installs(2, "n0", who="n0")
    s.at(2.1).casts(6).at(2.2).takes(6, who="n2").installs(3, "n1", who="n1")
    s.unwatches("n1", "n0", at=5).quiet(10.0).ends(20.0)


@sound()
def members_agree_above_where_both_begin(s: Story) -> None:
    s.a_group("n0", "n1").at(1.0).casts(1, 5).at(1.1).takes(1, 5)
    s.at(2.0).watches("n2", "n0", after=4, why="digest").installs(2, "n0", "n1", "n2")
    s.at(3.0).casts(6).at(3.1).takes(6).takes(5, who="n2", part_of=(1, 5)).takes(6, who="n2")


@sound()
def members_of_other_views_need_not_agree(s: Story) -> None:
    """The same, but n1 kept its window: what it saw in between is a view that n2 never had."""
    s.a_group().a_clean_cast().at(2.0).fault("partition").bites(1).installs(2, "n0", who="n0")
    s.at(2.1).casts(6).at(2.2).takes(6, who="n2")
    s.installs(2, "n0", "n1", "n2", who="n1", by="n1").quiet(10.0).ends(20.0)


@sound()
def what_an_expelled_member_left_may_differ(s: Story) -> None:
    """n0 lives on alone; each of the others has a prefix."""
    s.a_group().a_clean_cast().at(2.0).fault("partition").bites(1).installs(2, "n0", who="n0")
    s.at(2.1).casts(6).at(2.2).takes(6, who="n2").at(3.0).installs(3, "n1", "n2")
    s.quiet(10.0).ends(20.0)


# -- V1 to V4: views -----------------------------------------------------------------------------


@broken(
    "V1",
    witness=(
        "n0#7 t=2.000 installed view 2 of n0: n0, n1, n2",
        "n2#5 t=2.000 installed view 2 of n0: n0, n2, n1",
    ),
)
def one_id_names_two_lists(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).installs(2, "n0", "n1", "n2", who="n0")
    s.installs(2, "n0", "n2", "n1", who="n2", by="n0").installs(3, "n0", "n1", "n2")


@broken(
    "V1",
    "V4",
    witness=(
        "n0#7 t=2.000 installed view 2 of n0: n0, n1",
        "n1#5 t=2.000 installed view 2 of n0: n0, n1, n2",
    ),
)
def one_id_names_two_lists_at_the_end(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).installs(2, "n0", "n1", who="n0")
    s.installs(2, "n0", "n1", "n2", who="n1", by="n0").installs(2, "n0", "n1", "n2", who="n2")


@broken(
    "V1",
    witness=(
        "n0#7 t=2.000 installed view 2 of n0: n0, n2",
        "n1#5 t=3.000 installed view 2 of n0: n0, n1, n2",
    ),
)
def a_creator_uses_a_number_twice(s: Story) -> None:
    """n1 missed the first of the two."""
    s.a_group().a_clean_cast().at(2.0).installs(2, "n0", "n2")
    s.at(3.0).installs(2, "n0", "n1", "n2", who="n1", by="n0").installs(3, "n0", "n1", "n2")


@sound()
def two_creators_may_use_one_number(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).installs(2, "n0", "n2").installs(2, "n1")
    s.unwatches("n1", "n0", at=5).unwatches("n0", "n1", epoch=2)
    s.at(4.0).installs(3, "n0", "n1", "n2", merge=True)
    s.watches("n1", "n0", after=5, epoch=9, why="merge")


@broken("V2", witness=("n1#5 t=2.000 installed view 2 of n0: n0, n2",))
def a_member_installs_a_view_without_itself(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).installs(2, "n0", "n2", who="n1", by="n0")
    s.at(3.0).installs(3, "n0", "n1", "n2")


@broken("V2", witness=("n2#5 t=2.000 installed view 2 of n0: n0, n1",))
def an_expelled_member_installs_the_view_that_expels_it(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).installs(2, "n0", "n1").installs(2, "n0", "n1", who="n2")
    s.at(3.0).installs(3, "n0", "n1", "n2")


@broken("V2", "V4", witness=("n1#4 t=2.000 installed view 2 of n0: n0",))
def a_member_ends_outside_of_its_view(s: Story) -> None:
    s.a_group("n0", "n1").at(1.0).casts(1).at(1.1).takes(1)
    s.at(2.0).installs(2, "n0").installs(2, "n0", who="n1")


@sound(protocols=VERIFIED)
def a_living_member_is_left_out_after_it_was_asked(s: Story) -> None:
    s.a_group().a_clean_cast().at(1.9).convicts("n2")
    s.at(2.0).installs(2, "n0", "n1").at(3.0).installs(3, "n0", "n1", "n2", merge=True)


@broken(
    "V2",
    protocols=VERIFIED,
    witness=(
        "n0#3 t=0.500 installed view 1 of n0: n0, n1, n2",
        "n0#7 t=2.000 installed view 2 of n0: n0, n1",
    ),
)
def a_living_member_is_left_out_unheard(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).installs(2, "n0", "n1")
    s.at(3.0).installs(3, "n0", "n1", "n2", merge=True)


@broken(
    "V2",
    protocols=VERIFIED,
    witness=(
        "n0#3 t=0.500 installed view 1 of n0: n0, n1, n2",
        "n0#9 t=30.000 installed view 2 of n0: n0, n1",
    ),
)
def a_living_member_is_left_out_long_after_it_was_cleared(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).convicts("n2").at(2.1).acquits("n2")
    s.at(30.0).installs(2, "n0", "n1").at(31.0).installs(3, "n0", "n1", "n2", merge=True)
    s.quiet(40.0).ends(50.0)


@sound(protocols=VERIFIED)
def who_was_cleared_is_asked_anew(s: Story) -> None:
    s.a_group().a_clean_cast().at(1.7).convicts("n2").at(1.8).acquits("n2").at(1.9).convicts("n2")
    s.at(2.0).installs(2, "n0", "n1").at(3.0).installs(3, "n0", "n1", "n2", merge=True)


def _is_left_out_and_comes_back(s: Story) -> Story:
    """n0 and n1, until n0 confirms n1 to be dead; from 30 s on they are together again."""
    s.a_group("n0", "n1").a_clean_exchange().at(10.0).convicts("n1").convicts("n0", "n1")
    s.at(11.0).installs(2, "n0").installs(2, "n1")
    return s.at(30.0).installs(3, "n0", "n1", merge=True)


@broken(
    "V2",
    protocols=VERIFIED,
    witness=(
        "n0#8 t=30.000 merged view 3 of n0: n0, n1",
        "n0#9 t=100.000 installed view 4 of n0: n0",
    ),
)
def who_came_back_is_left_out_for_what_was_confirmed_before(s: Story) -> None:
    _is_left_out_and_comes_back(s).at(100.0).convicts("n0", "n1").installs(4, "n0")
    s.installs(4, "n1").at(120.0).installs(5, "n0", "n1", merge=True).quiet(130.0).ends(140.0)


@sound(protocols=VERIFIED)
def who_came_back_is_asked_anew(s: Story) -> None:
    _is_left_out_and_comes_back(s).at(99.0).convicts("n1").convicts("n0", "n1")
    s.at(100.0).installs(4, "n0").installs(4, "n1")
    s.at(120.0).installs(5, "n0", "n1", merge=True).quiet(130.0).ends(140.0)


@broken(
    "V2",
    protocols=VERIFIED,
    witness=(
        "n0#3 t=0.500 installed view 1 of n0: n0, n1, n2",
        "n0#7 t=5.000 installed view 2 of n0: n0, n1",
    ),
)
def a_living_member_is_confirmed_in_the_moment_after_it_was_left_out(s: Story) -> None:
    """Both have one time: the trace has their order."""
    s.a_group().a_clean_cast().at(5.0).installs(2, "n0", "n1").convicts("n2")
    s.at(6.0).installs(3, "n0", "n1", "n2", merge=True)


@broken(
    "V2",
    protocols=VERIFIED,
    witness=(
        "n0#3 t=0.500 installed view 1 of n0: n0, n1, n2",
        "n0#7 t=2.000 installed view 2 of n0: n0, n1",
    ),
)
def a_fault_that_has_the_name_of_another_installs_no_views(s: Story) -> None:
    s.at(0.1).fault("delay", name="install-view").bites(1, "install-view", do="delay")
    s.a_group().a_clean_cast().at(2.0).installs(2, "n0", "n1")
    s.at(3.0).installs(3, "n0", "n1", "n2", merge=True)


@sound(protocols=VERIFIED)
def views_that_the_rig_installs_may_leave_out_anybody(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).fault("install-view").bites(1).installs(2, "n0", "n1")
    s.at(3.0).installs(3, "n0", "n1", "n2", merge=True)


@broken("G4", witness=("n1#5 t=2.000 dropped fragment-inconsistent",))
def pieces_of_two_messages_are_mixed(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).refuses("fragment-inconsistent")


@broken(
    "V3",
    witness=(
        "n1#3 t=0.500 installed view 1 of n0: n0, n1, n2",
        "n1#5 t=2.000 installed view 1 of n0: n0, n1, n2",
    ),
)
def a_view_is_installed_twice(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).installs(1, "n0", "n1", "n2", who="n1")


@broken(
    "V3",
    witness=(
        "n1#3 t=0.500 installed view 5 of n0: n0, n1, n2",
        "n1#5 t=2.000 installed view 4 of n0: n0, n1, n2",
    ),
)
def an_older_view_is_installed_late(s: Story) -> None:
    s.a_group(number=5).a_clean_cast().at(2.0).installs(4, "n0", "n1", "n2", who="n1")
    s.at(3.0).installs(6, "n0", "n1", "n2")


@broken(
    "V3",
    witness=(
        "n0#3 t=0.500 installed view 1 of n0: n0, n1, n2",
        "n0#7 t=2.000 installed view 1 of n1: n1, n2, n0",
    ),
)
def another_creator_uses_the_same_number(s: Story) -> None:
    """Whoever made it: a number that does not grow is refused."""
    s.a_group().a_clean_cast().at(2.0).installs(1, "n1", "n2", "n0", who="n0")
    s.at(3.0).installs(2, "n0", "n1", "n2")


@sound()
def a_new_incarnation_starts_again(s: Story) -> None:
    s.a_group(number=5).a_clean_cast().at(2.0).fault("restart", member="n1").bites(1)
    s.at(2.5).installs(1, "n1-2").at(3.0).installs(6, "n0", "n2").at(4.0)
    s.installs(7, "n0", "n2", "n1-2", merge=True)


@broken("V4", witness=("n0#7 t=2.000 installed view 2 of n0: n0, n2",))
def two_groups_do_not_merge(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).installs(2, "n0", "n2").installs(2, "n1")


@broken("V4", witness=("n0#3 t=0.500 installed view 1 of n0: n0, n1, n2",))
def a_dead_member_stays_in_the_view(s: Story) -> None:
    """What it sent, and what was sent to it, may be lost all the same."""
    s.a_group().at(1.0).casts(1).at(1.1).takes(1).at(1.2).casts(1, who="n2")
    s.at(1.3).takes(1, who="n0", of="n2", epoch=3)
    s.at(2.0).fault("crash", member="n2").bites(1)


@broken(
    "V4",
    witness=(
        "n0#5 t=2.000 installed view 2 of n0: n0, n1",
        "n1#4 t=2.000 installed view 2 of n1: n0, n1",
    ),
)
def two_views_of_the_same_members_remain(s: Story) -> None:
    s.a_group("n0", "n1").at(1.0).casts(1).at(1.1).takes(1)
    s.at(2.0).installs(2, "n0", "n1", who="n0").installs(2, "n0", "n1", who="n1", by="n1")


@sound()
def a_member_that_stays_paused_is_not_waited_for(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).fault("pause", member="n2").bites(1)
    s.at(4.0).installs(2, "n0", "n1").quiet(10.0).ends(20.0)


@sound()
def a_member_without_a_group_that_stays_paused_may_keep_the_others_apart(s: Story) -> None:
    s.a_group("n0", "n1").a_clean_exchange().at(2.0).fault("pause", member="n2").bites(1)
    s.at(4.0).installs(2, "n0").installs(2, "n1").quiet(10.0).ends(20.0)


@broken("V4", protocols=nakack2(), witness=("n0#2 t=0.500 installed view 1 of n0: n0, n1",))
def a_member_never_gets_in(s: Story) -> None:
    s.a_group("n0", "n1").at(1.0).casts(1).at(1.1).takes(1).at(2.0).stops("n3")
    s.gauges(trace.OUTBOX_BYTES, 1, 10, "n2", "n0")


@sound()
def two_groups_that_cannot_meet_stay_apart(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).fault("partition").bites(1)
    s.at(4.0).installs(2, "n0", "n2").installs(2, "n1").quiet(10.0).ends(20.0)


@broken("V4", witness=("n0#7 t=4.000 installed view 2 of n0: n0, n2",))
def two_groups_that_can_meet_again_stay_apart(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).fault("partition").bites(1)
    s.at(4.0).installs(2, "n0", "n2").installs(2, "n1").at(5.0).fault("partition", "off")


@sound()
def a_group_parts_after_the_end(s: Story) -> None:
    s.a_group().a_clean_cast().quiet(10.0).ends(20.0).at(20.1).installs(2, "n0", "n2")


@broken("V4", witness=("n0#7 t=4.000 installed view 2 of n0: n0, n2",))
def two_groups_meet_only_after_the_end(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).fault("partition").bites(1)
    s.at(4.0).installs(2, "n0", "n2").installs(2, "n1").at(5.0).fault("partition", "off")
    s.quiet(10.0).ends(20.0).at(20.1).installs(3, "n0", "n1", "n2", merge=True)


@sound()
def a_view_that_was_handed_in_is_no_group(s: Story) -> None:
    """In place of a membership protocol: nobody creates it, and nobody is held to it."""
    s.a_clean_exchange()
    for who in ("n0", "n1"):
        s.is_handed(1, "n0", who=who)


# -- C1: control traffic -------------------------------------------------------------------------


@sound(protocols=nakack2(request_spacing=0.5, request_size=10))
def a_lost_multicast_is_asked_for(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6).casts(7).at(2.1).takes(6, who="n2")
    s.takes(7, who="n2").at(2.5).asks(6).at(2.6).recasts(6).at(2.7).takes(6).takes(7)


@broken(
    "C1", protocols=SILENT, witness=("n1#5 t=2.100 requested from n0 window 1 multicasts 6..6",)
)
def a_repair_is_asked_for_where_nothing_is_repaired(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6).at(2.1).takes(6, who="n2").asks(6)
    s.at(2.2).recasts(6).at(2.3).takes(6)


@sound(protocols=SILENT)
def a_new_window_is_completed_where_nothing_is_repaired(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6).at(2.1).takes(6, who="n2").asks(6, joining=True)
    s.at(2.2).recasts(6).at(2.3).takes(6)


@broken("C1", protocols=SILENT, witness=("n0#7 t=2.000 announced multicast 5",))
def the_last_multicast_is_announced_where_nothing_is_repaired(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).announces(5)


@broken(
    "C1", protocols=nakack2(), witness=("n1#5 t=3.100 requested from n0 window 1 multicasts 6..6",)
)
def repair_is_switched_off_and_goes_on(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0)
    s.fault("set-attribute", member="n1", attribute="NAKACK2.xmit_interval", value=0)
    s.bites(1).at(3.0).casts(6).at(3.1).takes(6, who="n2").asks(6).at(3.2).takes(6)


def switches_repair_off(s: Story, *, asks_at: float) -> None:
    """n1 is asked to at 2.0, and has done so half a second later."""
    s.a_group().a_clean_cast().at(2.0)
    s.fault("set-attribute", member="n1", attribute="NAKACK2.xmit_interval", value=0, within=0.5)
    s.bites(1).casts(6).at(2.1).takes(6, who="n2").at(asks_at).asks(6).at(3.2).takes(6)


@sound(protocols=nakack2())
def repair_is_asked_for_before_it_is_surely_switched_off(s: Story) -> None:
    switches_repair_off(s, asks_at=2.4)


@broken(
    "C1", protocols=nakack2(), witness=("n1#5 t=2.600 requested from n0 window 1 multicasts 6..6",)
)
def repair_is_asked_for_after_it_is_surely_switched_off(s: Story) -> None:
    switches_repair_off(s, asks_at=2.6)


@broken(
    "C1", protocols=SILENT, witness=("n1#5 t=1.900 requested from n0 window 1 multicasts 6..6",)
)
def repair_is_asked_for_before_it_is_switched_on(s: Story) -> None:
    s.a_group().a_clean_cast().at(1.5).casts(6).at(1.6).takes(6, who="n2").at(1.9).asks(6).at(2.0)
    sets_interval(s, "500ms", within=0.5).at(3.2).takes(6)


@sound(protocols=SILENT)
def repair_is_asked_for_while_it_is_switched_on(s: Story) -> None:
    s.a_group().a_clean_cast().at(1.5).casts(6).at(1.6).takes(6, who="n2").at(2.0)
    sets_interval(s, "500ms", within=0.5).at(2.1).asks(6).at(3.2).takes(6)


@sound(protocols=nakack2())
def repair_is_asked_for_after_a_change_that_nobody_confirmed(s: Story) -> None:
    """The first change may still wait in the member's socket, and undo the second."""
    s.a_group().a_clean_cast().at(2.0)
    sets_interval(s, "500ms", name="f1", within=1e9).at(3.0)
    sets_interval(s, 0, within=0.01).casts(6).at(3.1).takes(6, who="n2").at(4.1).asks(6)
    s.at(4.2).takes(6)


@sound(protocols=nakack2())
def repair_is_asked_for_within_the_first_of_two_changes(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0)
    sets_interval(s, 0, name="f1", within=1.0).casts(6).at(2.1).takes(6, who="n2").at(2.5)
    sets_interval(s, 0).at(2.7).asks(6).at(3.2).takes(6)


@sound(protocols=SILENT)
def what_is_lost_is_excused_where_nobody_confirmed_that_it_repairs(s: Story) -> None:
    s.a_group("n0", "n1").at(0.9).fault("rule").bites(1).at(1.0).casts(1, 5).at(1.1).takes(1, 5)
    s.at(2.0)
    sets_interval(s, "500ms", within=1e9).at(2.2).casts(6, 10).at(5.0).alarms(6, 10)


@sound(protocols=SILENT)
def repair_is_asked_for_where_nobody_confirmed_that_there_is_some(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0)
    sets_interval(s, "500ms", within=1e9).casts(6).at(3.1).takes(6, who="n2").asks(6)
    s.at(3.2).takes(6)


@sound(protocols=SILENT)
def a_member_is_asked_to_repair_before_it_has_recorded_its_start(s: Story) -> None:
    s.a_group().a_clean_cast().at(3.0).casts(6).at(3.1).takes(6, who="n2").asks(6).at(3.2).takes(6)
    told = {"id": "f1", "do": "set-attribute", "phase": "on", "member": IDS["n1"], "value": "500ms"}
    told["attribute"] = "NAKACK2.xmit_interval"
    s.rig.record(trace.FAULT, -0.001, text=json.dumps(told))
    s.bites(1, "f1", "set-attribute")


@sound(protocols=nakack2())
def what_is_lost_while_repair_is_switched_off_is_excused(s: Story) -> None:
    """It was sent when n1 may have repaired nothing any more, and n1 says that it misses it."""
    s.a_group("n0", "n1").at(0.9).fault("rule").bites(1).at(1.0).casts(1, 5).at(1.1).takes(1, 5)
    s.at(2.0)
    sets_interval(s, 0, within=0.5).at(2.2).casts(6, 10).at(5.0).alarms(6, 10)


@sound(protocols=SILENT)
def repair_is_switched_on_and_off_in_one_moment(s: Story) -> None:
    """What is missing is asked for at once, in the very moment between."""
    s.a_group().a_clean_cast().at(2.0).casts(6).at(2.1).takes(6, who="n2").at(3.0)
    for number, value in enumerate(("500ms", 0)):
        sets_interval(s, value, name=f"f{number}")
    s.asks(6).at(3.1).takes(6)


@sound(protocols=SILENT)
def repair_is_switched_on(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0)
    sets_interval(s, "500ms").at(3.0).casts(6).at(3.1).takes(6, who="n2").asks(6)
    s.at(3.2).takes(6)


@broken(
    "C1", protocols=SILENT, witness=("n1#5 t=3.100 requested from n0 window 1 multicasts 6..6",)
)
def the_interval_of_unicast_switches_no_repair_of_multicasts_on(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0)
    sets_interval(s, "500ms", attribute="xmit_interval").at(3.0).casts(6)
    s.at(3.1).takes(6, who="n2").asks(6).at(3.2).takes(6)


@broken("C1", protocols=nakack2())
def an_interval_that_is_text_without_a_unit_switches_repair_off(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0)
    sets_interval(s, "0").at(3.0).casts(6).at(3.1).takes(6, who="n2").asks(6).at(3.2).takes(6)


@broken(
    "C1",
    witness=(
        "n1#4 t=1.100 delivered from n0 window 1 multicasts 1..5",
        "n1#5 t=2.000 requested from n0 window 1 multicasts 5..5",
    ),
)
def a_multicast_is_asked_for_that_was_delivered(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).asks(5)


@broken("C1", witness=("n1#5 t=2.000 requested from n0 window 1 multicasts 6..6",))
def a_multicast_is_asked_for_that_was_not_sent(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).asks(6)


@broken(
    "C1",
    protocols=nakack2(request_spacing=0.5),
    witness=(
        "n1#5 t=2.100 requested from n0 window 1 multicasts 6..6",
        "n1#6 t=2.500 requested from n0 window 1 multicasts 6..6",
    ),
)
def a_multicast_is_asked_for_again_too_soon(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6).at(2.1).takes(6, who="n2").asks(6)
    s.at(2.5).asks(6).at(2.7).takes(6)


@broken(
    "C1",
    protocols=nakack2(request_size=3),
    witness=("n1#5 t=2.100 requested from n0 window 1 multicasts 6..9",),
)
def a_request_for_multicasts_is_too_large(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6, 9).at(2.1).takes(6, 9, "n2").asks(6, 9)
    s.at(2.7).takes(6, 9)


@broken(
    "C1",
    protocols=nakack2(request_patience=1.0),
    witness=(
        "n0#7 t=2.000 sent to the group multicasts 6..6",
        "n1#5 t=2.900 requested from n0 window 1 multicasts 6..6",
    ),
)
def a_multicast_is_asked_for_that_may_be_under_way(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6).at(2.1).takes(6, who="n2").at(2.9).asks(6)
    s.at(3.0).takes(6)


@broken(
    "C1",
    witness=(
        "n1#4 t=1.100 delivered from n0 window 1 multicasts 1..5",
        "n1#5 t=2.100 requested from n0 window 1 multicasts 5..6",
    ),
)
def a_request_reaches_into_what_was_delivered(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6).at(2.1).takes(6, who="n2").asks(5, 6)
    s.at(2.2).takes(6)


@broken(
    "C1",
    witness=(
        "n0#7 t=2.000 sent to the group multicasts 6..9",
        "n0#9 t=2.100 resent to the group multicasts 8..9",
    ),
)
def the_end_of_a_batch_of_multicasts_is_sent_again_unasked(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6, 9).at(2.1).recasts(8, 9)
    s.at(2.2).takes(6, 9).takes(6, 9, "n2")


@sound()
def what_came_ahead_of_its_turn_leaves_a_gap_to_ask_for(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6).casts(7, oob=True).at(2.1).takes(6, who="n2")
    s.takes(7, who="n2", oob=True).takes(7, oob=True).at(2.5).asks(6).at(2.6).takes(6)


def _an_early_multicast(s: Story) -> Story:
    """n1 has 7, ahead of 6, which it lacks."""
    s.a_group().a_clean_cast().at(2.0).casts(6).casts(7, oob=True).at(2.1).takes(6, who="n2")
    return s.takes(7, who="n2", oob=True).takes(7, oob=True)


@broken(
    "C1",
    witness=(
        "n1#5 t=2.100 delivered from n0 window 1 multicasts 7..7 (OOB)",
        "n1#6 t=2.500 requested from n0 window 1 multicasts 6..7",
    ),
)
def a_multicast_is_asked_for_that_came_ahead_of_its_turn(s: Story) -> None:
    _an_early_multicast(s).at(2.5).asks(6, 7).at(2.6).takes(6)


@sound()
def a_multicast_is_asked_for_in_the_moment_in_which_it_comes(s: Story) -> None:
    _an_early_multicast(s).asks(6, 7).at(2.6).takes(6)


@sound(protocols=nakack2(request_patience=1.0))
def a_new_window_is_completed_at_once(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6).at(2.1).takes(6, who="n2").asks(6, joining=True)
    s.at(2.2).takes(6)


def _a_late_joiner(s: Story, view: int = 0) -> Story:
    """n2 joins in view 2, with a digest that is older than 6, which n0 sent to n1 alone."""
    s.a_group("n0", "n1").at(1.0).casts(1, 5).at(1.1).takes(1, 5).at(1.9).casts(6)
    s.at(1.95).takes(6).at(2.0).installs(2, "n0", "n1", "n2", who="n0")
    s.installs(2, "n0", "n1", "n2", who="n1").watches("n0", "n2", epoch=9)
    s.watches("n1", "n2", epoch=9).at(2.1).watches("n2", "n0", after=5, why="digest", view=view)
    return s.watches("n2", "n1", epoch=2, why="digest", view=view).installs(
        2, "n0", "n1", "n2", who="n2", by="n0"
    )


@broken(
    "C1",
    "G1",
    protocols=SILENT,
    witness=(
        "n0#5 t=1.900 sent to the group multicasts 6..6",
        "n2#4 t=5.500 alarm about n0 window 1 multicasts 6..6 (a gap stands)",
    ),
)
def a_new_window_is_completed_by_an_alarm(s: Story) -> None:
    """Nobody lost 6: it was never sent to n2."""
    _a_late_joiner(s).at(2.5).casts(7).at(2.6).takes(7).at(5.5).alarms(6, who="n2", epoch=1)
    s.at(5.6).asks(6, who="n2", joining=True).at(5.7).takes(6, who="n2").takes(7, who="n2")


@sound(protocols=SILENT)
def a_window_that_was_completed_may_raise_an_alarm(s: Story) -> None:
    """7 was sent to n2, and lost."""
    _a_late_joiner(s).at(2.2).inquires("n2").asks(6, who="n2", joining=True).at(2.3).takes(
        6, who="n2"
    )
    s.fault("loss").at(2.5).casts(7).at(2.6).takes(7).at(5.5).alarms(7, who="n2", epoch=1).bites(1)
    s.at(5.6).asks(7, who="n2", joining=True).at(5.7).takes(7, who="n2")


@sound(protocols=SILENT)
def a_window_that_was_there_before_may_raise_an_alarm(s: Story) -> None:
    """n0 was alone for a while, which n1 never noticed: to n1 its messages are lost."""
    s.a_group("n0", "n1").inquires().at(1.0).casts(1, 5).at(1.1).takes(1, 5)
    s.at(2.0).installs(2, "n0").unwatches("n0", "n1", epoch=2).at(2.5).casts(6).drops(6).fault(
        "cut"
    ).bites(1)
    s.at(3.0).installs(3, "n0", "n1", merge=True).watches("n0", "n1", epoch=9, why="merge")
    s.at(3.5).alarms(6, epoch=1).misses(6)


def _a_view_comes_late(s: Story, view: int) -> Story:
    """n2 was let in, and excluded at once. It hears of view 2 when n0 has sent 6 in view 3."""
    s.a_group("n0", "n1").at(1.0).casts(1, 5).at(1.1).takes(1, 5)
    s.at(2.0).installs(2, "n0", "n1", "n2", who="n0").installs(2, "n0", "n1", "n2", who="n1")
    s.at(2.2).installs(3, "n0", "n1", who="n0").installs(3, "n0", "n1", who="n1")
    s.at(2.3).casts(6).takes(6).drops(6).at(2.5).installs(2, "n0", "n1", "n2", who="n2")
    if view != 2:
        s.installs(view, "n0", "n1", "n2", who="n2")
    s.watches("n2", "n0", after=5, view=view).fault("pause", member="n2").bites(1)
    return s.at(2.6).alarms(6, who="n2", epoch=1).misses(6, who="n2")


@sound(protocols=SILENT)
def a_member_that_hears_late_that_it_is_excluded_may_raise_an_alarm(s: Story) -> None:
    _a_view_comes_late(s, 2)


@sound(protocols=SILENT)
def a_member_that_leaves_before_its_window_is_complete_may_raise_an_alarm(s: Story) -> None:
    """n0 purged 6, as nobody in its view missed it, and n2 still waits to hear that it is out."""
    _a_late_joiner(s, view=2).fault("loss").bites(1).at(2.5).installs(3, "n0", "n1", who="n0")
    s.unwatches("n0", "n2", epoch=9).installs(3, "n0", "n1", who="n1")
    s.at(2.6).alarms(6, who="n2", epoch=1).misses(6, who="n2").at(2.7).stops("n2")


@broken(
    "C1",
    protocols=SILENT,
    witness=(
        "n0#5 t=1.900 sent to the group multicasts 6..6",
        "n2#4 t=2.400 alarm about n0 window 1 multicasts 6..6 (a gap stands)",
    ),
)
def an_alarm_comes_before_the_view_that_would_explain_it(s: Story) -> None:
    _a_late_joiner(s, view=2).fault("loss").bites(1).at(2.4).alarms(6, who="n2", epoch=1)
    s.misses(6, who="n2").at(2.5).installs(3, "n0", "n1", who="n0")
    s.unwatches("n0", "n2", epoch=9).installs(3, "n0", "n1", who="n1").at(2.7).stops("n2")


@broken(
    "C1",
    protocols=SILENT,
    witness=(
        "n0#7 t=2.300 sent to the group multicasts 6..6",
        "n2#4 t=2.600 alarm about n0 window 1 multicasts 6..6 (a gap stands)",
    ),
)
def a_window_of_a_later_view_raises_an_alarm_about_what_came_before(s: Story) -> None:
    _a_view_comes_late(s, 4)


def _lost_at_1(s: Story) -> Story:
    """6 is sent at 1 s, and lost on its way to n1, which repairs nothing."""
    s.at(1.0).fault("loss").casts(1, 5).casts(6).casts(7).at(1.1).takes(1, 5).bites(1)
    return s


def _alarm_at_5(s: Story) -> None:
    s.at(5.0).alarms(6, epoch=1).at(5.1).takes(6).takes(7)


@broken(
    "C1",
    protocols=SILENT,
    witness=(
        "n0#5 t=1.000 sent to the group multicasts 6..6",
        "n1#4 t=5.000 alarm about n0 window 1 multicasts 6..6 (a gap stands)",
    ),
)
def a_window_whose_sender_was_never_asked_is_not_complete(s: Story) -> None:
    _alarm_at_5(_lost_at_1(s.a_group("n0", "n1")))


@broken(
    "C1",
    protocols=SILENT,
    witness=(
        "n0#5 t=1.000 sent to the group multicasts 6..6",
        "n1#5 t=5.000 alarm about n0 window 1 multicasts 6..6 (a gap stands)",
    ),
)
def a_question_out_of_doubt_completes_no_window(s: Story) -> None:
    _alarm_at_5(_lost_at_1(s.a_group("n0", "n1").at(0.6).inquires(epoch=0)))


@broken(
    "C1",
    protocols=SILENT,
    witness=(
        "n0#5 t=1.000 sent to the group multicasts 6..6",
        "n1#6 t=5.000 alarm about n0 window 1 multicasts 6..6 (a gap stands)",
    ),
)
def what_was_sent_before_the_last_question_is_asked_for(s: Story) -> None:
    """The connection was lost, so n1 asked anew: 6 is part of the answer."""
    _lost_at_1(s.a_group("n0", "n1").at(0.6).inquires()).at(1.5).inquires(question=2)
    _alarm_at_5(s)


@sound(protocols=SILENT)
def a_question_that_is_repeated_began_when_it_was_asked_first(s: Story) -> None:
    """The answer left at 0.9, and came after the repeat: it knew nothing of 6."""
    _lost_at_1(s.a_group("n0", "n1").at(0.6).inquires()).at(1.5).inquires()
    _alarm_at_5(s)


@sound(protocols=SILENT)
def a_doubt_about_a_complete_window_takes_it_for_no_other(s: Story) -> None:
    _lost_at_1(s.a_group("n0", "n1").at(0.6).inquires())
    _alarm_at_5(s.at(1.5).inquires(question=2, epoch=0))


@sound(protocols=SILENT)
def an_older_trace_does_not_say_which_questions_are_one(s: Story) -> None:
    _lost_at_1(s.a_group("n0", "n1").at(0.6).inquires(question=0, epoch=0))
    _alarm_at_5(s.at(1.5).inquires(question=0, epoch=0))


@sound(age_within=1.0, quiet_within=1.0)
def a_group_does_not_age(s: Story) -> None:
    """What is resent to it is resent to nobody in particular."""
    s.a_group().a_clean_cast().at(5.0).casts(6).at(5.1).takes(6, who="n2").asks(6)
    s.at(5.2).recasts(6).at(5.3).takes(6)


def _confirms(s: Story, number: int) -> None:
    s.multicast = wire.MCAST
    s.a_group("n0", "n1").at(1.0).casts(1, 10).at(1.1).takes(1, 10)
    for index in range(number):
        s.at(1.1 + index * 0.01).confirms(10)
    s.at(2.5).unwatches("n1", "n0", at=10, why="merge").watches("n1", "n0", after=10, epoch=9)


@sound(protocols=mcast(ack_threshold=10, ack_spacing=0.5))
def acks_of_multicasts_are_few(s: Story) -> None:
    """One for ten messages, four for two seconds, three to spare."""
    _confirms(s, 8)


@broken(
    "C1",
    protocols=mcast(ack_threshold=10, ack_spacing=0.5),
    witness=(
        "n1#4 t=1.100 acked to n0 up to multicast 10",
        "n1#12 t=1.180 acked to n0 up to multicast 10",
    ),
)
def acks_of_multicasts_are_many(s: Story) -> None:
    _confirms(s, 9)


@broken("C1", protocols=nakack2(quiet_within=3.0), witness=("n0#7 t=8.010 announced multicast 5",))
def a_group_does_not_fall_silent(s: Story) -> None:
    s.a_group().a_clean_cast().quiet(5.0).at(8.01).announces(5).ends(20.0)


@sound(protocols=nakack2(quiet_within=3.0))
def a_group_falls_silent(s: Story) -> None:
    s.a_group().a_clean_cast().quiet(5.0).at(8.0).announces(5).ends(20.0)


def _alarmed(s: Story) -> Story:
    """6 is lost where nothing is repaired, and missed long after the rig has fallen silent."""
    s.a_group("n0", "n1").at(0.9).fault("loss").bites(1).at(1.0).casts(1, 5).casts(6).casts(7)
    return s.at(1.1).takes(1, 5).quiet(5.0).at(15.0).alarms(6)


QUIET_SILENT: Final = {
    "NAKACK2": {"xmit_interval": 0.0, "bounds": {"quiet_within": 3.0}},
    "GMS": {},
}


@sound(protocols=QUIET_SILENT)
def what_is_missing_is_asked_for_after_an_alarm(s: Story) -> None:
    _alarmed(s).asks(6, joining=True).at(15.1).recasts(6, to="n1").at(15.2).takes(6).takes(7)
    s.ends(30.0)


@broken(
    "C1",
    protocols=QUIET_SILENT,
    witness=("n1#6 t=18.100 requested from n0 window 1 multicasts 6..6 (joining)",),
)
def what_is_missing_is_asked_for_long_after_an_alarm(s: Story) -> None:
    _alarmed(s).asks(6, joining=True).at(18.1).asks(6, joining=True).at(18.2).takes(6).takes(7)
    s.ends(30.0)


@broken(
    "C1",
    witness=(
        "n0#4 t=1.000 sent to the group multicasts 1..5",
        "n0#7 t=2.000 resent to the group multicasts 1..5",
    ),
)
def a_multicast_is_repeated_that_nobody_asked_for(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).recasts(1, 5)


@broken(
    "C1",
    witness=(
        "n0#7 t=2.000 sent to the group multicasts 6..6",
        "n2#6 t=2.200 resent to n1 multicasts 6..6 of n0",
    ),
)
def a_multicast_is_repeated_more_often_than_asked_for(s: Story) -> None:
    """A network may repeat a request once; three answers are one too many."""
    s.a_group().a_clean_cast().at(2.0).casts(6).at(2.1).takes(6, who="n2").asks(6)
    s.at(2.2).recasts(6).recasts(6, to="n1").recasts(6, who="n2", to="n1", of="n0").at(2.3).takes(6)


@sound(protocols={"NAKACK2": {"use_mcast_xmit_req": True}})
def everyone_answers_who_was_asked(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6).at(2.1).takes(6, who="n2").asks(6)
    s.at(2.2).recasts(6, to="n1").recasts(6, to="n1").recasts(6, who="n2", to="n1", of="n0")
    s.at(2.3).takes(6)


@sound(resend_within=1.0, request_spacing=0.5)
def a_message_is_resent_at_a_growing_distance(s: Story) -> None:
    s.a_clean_exchange().at(2.0).sends(6).at(2.5).resends(6).at(3.0).resends(6).at(3.5).resends(6)
    s.at(4.0).delivers(6).acks(6).at(4.1).purges(6)


@broken(
    "C1",
    resend_within=1.0,
    request_spacing=0.5,
    witness=(
        "n0#4 t=2.000 sent to n1 conn 1 seqnos 6..6",
        "n0#10 t=2.600 resent to n1 conn 1 seqnos 6..6",
    ),
)
def a_message_is_resent_without_a_pause(s: Story) -> None:
    """In a second two looks fit, and a half; two more to spare."""
    s.a_clean_exchange().at(2.0).sends(6)
    for tenth in range(1, 10):
        s.at(2.0 + tenth / 10).resends(6)
    s.at(3.0).delivers(6).acks(6).purges(6)


@broken(
    "C1",
    resend_within=1.0,
    request_spacing=0.5,
    witness=(
        "n0#4 t=2.000 sent to n1 conn 1 seqnos 6..6",
        "n0#9 t=2.300 resent to n1 conn 1 seqnos 6..6",
    ),
)
def a_message_is_resent_in_spite_of_progress(s: Story) -> None:
    """Silence has no time to come up between the messages."""
    s.a_clean_exchange().at(2.0).sends(6)
    for tenth in range(1, 6):
        s.at(2.0 + tenth / 10).resends(6).sends(6 + tenth)
    s.at(2.6)
    for seqno in range(6, 12):
        s.delivers(seqno)
    s.acks(11).purges(6, 11)


@sound(resend_within=1.0, request_spacing=0.3)
def a_message_is_resent_as_often_as_asked_for(s: Story) -> None:
    """A network may repeat each of three requests."""
    s.a_clean_exchange().at(2.0).sends(6)
    for tenth in range(1, 10):
        s.at(2.0 + tenth / 10).resends(6)
        if not tenth % 3:
            s.requests(6)
    s.at(3.0).delivers(6).acks(6).purges(6)


# -- L1: liveness --------------------------------------------------------------------------------


@sound(protocols=mcast(ack_within=0.5))
def a_multicast_is_acked_in_time(s: Story) -> None:
    s.multicast = wire.MCAST
    s.a_group().at(2.0).casts(1, 5).at(2.1).takes(1, 5).takes(1, 5, "n2")
    s.at(2.6).confirms(5).confirms(5, "n2")


def frozen_for_moments(s: Story) -> Story:
    """n1 is frozen just before an ack is due at 3.1, and again before it would be due at 4.95."""
    s.multicast = wire.MCAST
    s.a_group("n0", "n1").at(1.0).casts(1, 5).at(1.1).takes(1, 5)
    return s.at(2.9).freezes().at(2.95).thaws().at(4.5).freezes().at(4.6).thaws()


@broken("L1", protocols=mcast(ack_within=2.0))
def a_moment_of_freeze_is_no_excuse_for_ever(s: Story) -> None:
    frozen_for_moments(s)


@sound(protocols=mcast(ack_within=2.0))
def after_each_freeze_a_member_has_its_time_to_ack(s: Story) -> None:
    frozen_for_moments(s).at(6.5).confirms(5)


@broken(
    "L1",
    protocols=mcast(ack_within=0.5),
    witness=(
        "n1#4 t=2.100 delivered from n0 window 1 multicasts 1..5",
        "n1#5 t=2.700 acked to n0 up to multicast 5",
    ),
)
def a_multicast_is_acked_too_late(s: Story) -> None:
    s.multicast = wire.MCAST
    s.a_group().at(2.0).casts(1, 5).at(2.1).takes(1, 5).takes(1, 5, "n2").confirms(5, "n2")
    s.at(2.7).confirms(5)


@sound(protocols=mcast(ack_within=0.5))
def acks_are_frozen_while_a_view_is_made(s: Story) -> None:
    s.multicast = wire.MCAST
    s.a_group().at(2.0).casts(1, 5).freezes().at(2.1).takes(1, 5).takes(1, 5, "n2")
    s.confirms(5, "n2").at(2.6).installs(2, "n0", "n1", "n2").at(2.65).thaws()
    s.at(2.7).confirms(5)


@broken(
    "L1",
    protocols=mcast(ack_within=0.5),
    witness=(
        "n1#6 t=2.100 delivered from n0 window 1 multicasts 1..1",
        "n1#7 t=2.700 acked to n0 up to multicast 1",
    ),
)
def a_freeze_that_is_over_excuses_nothing(s: Story) -> None:
    s.multicast = wire.MCAST
    s.a_group().at(1.0).freezes().at(1.2).thaws().at(2.0).casts(1).at(2.1).takes(1)
    s.takes(1, who="n2").confirms(1, "n2").at(2.7).confirms(1)


@broken(
    "L1",
    protocols=mcast(ack_within=0.5),
    witness=(
        "n1#4 t=2.100 delivered from n0 window 1 multicasts 1..1",
        "n1#8 t=2.700 acked to n0 up to multicast 1",
    ),
)
def a_member_that_acks_others_is_not_frozen(s: Story) -> None:
    s.multicast = wire.MCAST
    s.a_group().at(2.0).casts(1).casts(1, who="n2").at(2.1).takes(1).takes(1, who="n2")
    s.takes(1, who="n1", of="n2", epoch=3).takes(1, who="n0", of="n2", epoch=3)
    s.confirms(1, "n2").confirms(1, "n0", "n2", epoch=3).at(2.2).confirms(1, of="n2", epoch=3)
    s.at(2.5).installs(2, "n0", "n1", "n2").at(2.7).confirms(1)


def _parts_with_a_sender(s: Story) -> Story:
    """n0 sends to n1, whose view has lost it."""
    s.at(0.5).installs(1, "n0", "n1").at(1.0).opens().sends(1, 5)
    return s.installs(2, "n1").at(1.1).listens()


@sound(ack_within=0.5, stranger_ack_within=1.5)
def a_sender_outside_of_the_view_is_acked_later(s: Story) -> None:
    _parts_with_a_sender(s).delivers(1, 5).at(2.6).acks(5).at(3.0).installs(3, "n1", "n0")


@broken(
    "L1",
    ack_within=0.5,
    stranger_ack_within=1.5,
    witness=(
        "n1#4 t=1.100 delivered from n0 conn 1 seqnos 1..5",
        "n1#5 t=2.700 acked to n0 conn 1 up to seqno 5",
    ),
)
def a_sender_outside_of_the_view_is_acked_too_late(s: Story) -> None:
    _parts_with_a_sender(s).delivers(1, 5).at(2.7).acks(5).at(3.0).installs(3, "n1", "n0")


@sound(ack_within=0.5, stranger_ack_within=1.5)
def a_sender_is_back_in_the_view_before_it_is_acked(s: Story) -> None:
    _parts_with_a_sender(s).delivers(1, 5).installs(3, "n1", "n0").at(2.6).acks(5)


@broken(
    "L1",
    ack_within=0.5,
    stranger_ack_within=1.5,
    witness=(
        "n1#5 t=1.200 delivered from n0 conn 1 seqnos 1..5",
        "n1#6 t=2.600 acked to n0 conn 1 up to seqno 5",
    ),
)
def a_sender_that_was_outside_of_an_earlier_view_is_acked_too_late(s: Story) -> None:
    _parts_with_a_sender(s).installs(3, "n1", "n0").at(1.2).delivers(1, 5).at(2.6).acks(5)


@broken("L1", witness=("n0#6 t=2.000 blocked towards the group",))
def a_lane_waits_for_a_joiner_that_has_everything(s: Story) -> None:
    """From where its window begins."""
    s.a_group("n0", "n1").at(1.0).casts(1, 5).at(1.1).takes(1, 5)
    s.at(2.0).watches("n2", "n0", after=5, why="digest").installs(2, "n0", "n1", "n2").blocks()


@broken("L1", witness=("n0#7 t=2.000 blocked towards the group",))
def a_lane_to_the_group_waits_for_ever(s: Story) -> None:
    """JGRP-2854."""
    s.a_group().a_clean_cast().at(2.0).blocks()


@broken("L1", witness=("n0#6 t=2.000 blocked towards the group",))
def a_lane_to_the_group_waits_for_ever_with_its_first_message(s: Story) -> None:
    s.a_group("n0", "n1").a_clean_exchange().at(2.0).blocks()


@sound(ack_within=0.5)
def an_ack_that_says_less_than_one_before_delays_nothing(s: Story) -> None:
    s.at(1.0).opens().sends(1, 5).sends(6, 10).listens().at(1.1).delivers(1, 5).delivers(6, 10)
    s.at(1.2).acks(10).at(1.3).purges(1, 10).at(4.0).acks(5)


@sound()
def a_lane_to_the_group_waits_for_a_member_that_misses_something(s: Story) -> None:
    """Which is for V4 and G1 to judge: here the member's view lacks the sender for good."""
    s.a_group().a_clean_cast().at(2.0).fault("partition").bites(1).installs(2, "n1", who="n1")
    s.unwatches("n1", "n0", at=5).casts(6).at(2.1).takes(6, who="n2").blocks()
    s.quiet(10.0).ends(20.0)


@broken(
    "L1",
    protocols=nakack2(purge_within=5.0),
    witness=("n0#7 t=2.000 sent to the group multicasts 6..6",),
)
def multicasts_that_all_have_are_kept_for_ever(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6).at(2.1).takes(6).takes(6, who="n2")


@sound(protocols=nakack2(purge_within=5.0))
def multicasts_are_kept_for_who_misses_them(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).fault("partition").bites(1).installs(2, "n1", who="n1")
    s.unwatches("n1", "n0", at=5).casts(6).at(2.1).takes(6, who="n2").quiet(10.0).ends(20.0)


@sound(protocols=nakack2(purge_within=11.0))
def multicasts_may_be_kept_for_a_while(s: Story) -> None:
    s.a_group().a_clean_cast().at(2.0).casts(6).at(2.1).takes(6).takes(6, who="n2")


# -- G5: credits ---------------------------------------------------------------------------------

CREDITED: Final = {"UFC": {"bounds": {"most_untaken": 1000.0, "ask_within": 5.0}}, "GMS": {}}
"""A stack that lets 1000 bytes of one sender be under way. A message takes 4 bytes more of a body
than it has."""


def a_pair(s: Story) -> Story:
    """n0 and n1 are in one view, and n0 has sent 600 bytes, and 400 more."""
    s.at(0.5).installs(1, "n0", "n1").at(1.0).opens().sends(1, size=604)
    return s.at(1.1).sends(2, size=404).listens()


@sound(protocols=CREDITED)
def credits_are_spent_to_the_byte(s: Story) -> None:
    a_pair(s).at(1.2).delivers(1, size=604).lets(1600, 600).at(1.3).believes(1600, 1000)
    s.sends(3, size=604).at(1.4).delivers(2, size=404).delivers(3, size=604).purges(1, 3)


@broken("G5", witness=("n0#5 t=1.200 sent to n1 conn 1 seqnos 3..3",), protocols=CREDITED)
def more_is_sent_than_everybody_begins_with(s: Story) -> None:
    a_pair(s).at(1.2).sends(3, size=5)
    s.at(1.4).delivers(1, size=604).delivers(2, size=404).delivers(3, size=5)


@broken(
    "G5",
    witness=(
        "n1#4 t=1.200 let n0 send up to byte 1600, with 600 taken",
        "n0#6 t=1.300 sent to n1 conn 1 seqnos 3..3",
    ),
    protocols=CREDITED,
)
def more_is_sent_than_the_receiver_let_be(s: Story) -> None:
    """By one byte; what it takes meanwhile, it has not said."""
    a_pair(s).at(1.2).delivers(1, size=604).lets(1600, 600).delivers(2, size=404)
    s.at(1.3).believes(1600, 1000).sends(3, size=605).at(1.4).delivers(3, size=605)


@broken(
    "G5",
    witness=(
        "n1#4 t=1.200 let n0 send up to byte 2600, with 600 taken",
        "n0#7 t=1.500 sent to n1 conn 1 seqnos 4..4",
    ),
    protocols=CREDITED,
)
def a_credit_is_granted_twice(s: Story) -> None:
    """n1 took 600 bytes and lets 1600 more come. The third message is within what is allowed."""
    a_pair(s).at(1.2).delivers(1, size=604).lets(2600, 600).at(1.3).believes(2600, 1000)
    s.sends(3, size=604).at(1.5).sends(4, size=604)
    s.at(1.6).delivers(2, size=404).delivers(3, size=604).delivers(4, size=604)


@broken(
    "G5",
    witness=("n0#5 t=1.300 heard of n1 that it may send up to byte 2600, with 1000 sent",),
    protocols=CREDITED,
)
def a_limit_is_believed_that_nobody_named(s: Story) -> None:
    a_pair(s).at(1.2).delivers(1, size=604).lets(1600, 600).at(1.3).believes(2600, 1000)
    s.at(1.4).delivers(2, size=404)


@sound(protocols=CREDITED)
def what_is_free_takes_no_credits(s: Story) -> None:
    a_pair(s).sends(3, size=5000, free=True).at(1.2).delivers(1, size=604).delivers(2, size=404)
    s.delivers(3, size=5000, free=True)


@sound(protocols=CREDITED)
def what_ended_with_its_connection_takes_no_credits(s: Story) -> None:
    """n1 heard nothing of it, and settled on the count of all that was sent."""
    a_pair(s).at(2.0).removes(why="forgot").forgets().at(2.1).lets(2000, 1000).at(2.2)
    s.believes(2000, 1000).opens(conn=2).sends(1, conn=2, size=1004).listens(conn=2, epoch=2)
    s.at(2.3).delivers(1, conn=2, epoch=2, size=1004)


@sound(protocols=CREDITED)
def what_was_sent_before_they_met_takes_no_credits(s: Story) -> None:
    s.at(0.2).installs(1, "n0").opens().sends(1, size=5004).listens()
    s.at(0.5).installs(2, "n0", "n1").at(1.0).sends(2, size=1004)
    s.at(1.2).delivers(1, size=5004).delivers(2, size=1004)


@sound(protocols={"UFC": {"bounds": {"ask_within": 5.0}}, "GMS": {}})
def traces_that_tell_nothing_of_credits_are_not_judged_by_them(s: Story) -> None:
    """Those of older versions."""
    a_pair(s).sends(3, size=5004).at(1.4)
    s.delivers(1, size=604).delivers(2, size=404).delivers(3, size=5004)


MULTICAST_CREDITS: Final = nakack2() | {
    "MFC": {"bounds": {"most_untaken": 1000.0, "ask_within": 5.0}}
}


@broken(
    "G5",
    witness=(
        "n2#5 t=1.200 let n0 send up to byte 1600, with 600 taken",
        "n0#10 t=1.500 sent to the group multicasts 3..3",
    ),
    protocols=MULTICAST_CREDITS,
)
def the_slowest_member_is_overrun(s: Story) -> None:
    """n1 has taken all of it; n2 only the first."""
    s.a_group().at(1.0).casts(1, size=604).casts(2, size=404)
    s.at(1.2).takes(1, size=604).takes(2, size=404).lets(2000, 1000, flow=wire.MFC)
    s.takes(1, who="n2", size=604).lets(1600, 600, "n2", flow=wire.MFC)
    s.at(1.5).believes(2000, 1000, flow=wire.MFC).believes(1600, 1000, of="n2", flow=wire.MFC)
    s.casts(3, size=805).at(1.6).takes(3, size=805)
    s.takes(2, who="n2", size=404).takes(3, who="n2", size=805)


@sound(protocols=MULTICAST_CREDITS)
def below_where_a_window_begins_nothing_is_wanted(s: Story) -> None:
    """n0 has n1 in its view before n1 has it, and sends 1..2: n1's window begins after them."""
    s.at(0.5).installs(1, "n0", "n1", who="n0").at(1.0).casts(1, size=604).casts(2, size=404)
    s.at(1.2).watches("n1", "n0", after=2, why="digest").watches("n0", "n1", epoch=2)
    s.installs(1, "n0", "n1", who="n1", by="n0")
    s.lets(2000, 1000, flow=wire.MFC).at(1.3).believes(2000, 1000, flow=wire.MFC)
    s.casts(3, size=1004).at(1.4).takes(3, size=1004)


# -- C1: questions for credits -------------------------------------------------------------------


@broken(
    "C1",
    witness=(
        "n0#5 t=2.000 sender removed to n1 conn 1 (forgot)",
        "n0#6 t=2.500 asked n1 to send more than 1000 bytes, with 1000 sent, "
        "the last conn 1 seqno 2",
    ),
    protocols=CREDITED,
)
def credits_are_asked_for_by_a_connection_that_is_gone(s: Story) -> None:
    a_pair(s).at(2.0).removes(why="forgot").at(2.5).wants(1000, 2, unacked=2)


@sound(protocols=CREDITED)
def credits_are_asked_for_by_what_may_come(s: Story) -> None:
    """While the connection lives, and then by the one that is not there yet."""
    a_pair(s).at(1.5).wants(1000, 2, unacked=2).at(2.0).removes(why="forgot")
    s.at(2.5).wants(1000, 0, conn=2).lets(2000, 1000).at(2.6).believes(2000, 1000)


@broken(
    "C1",
    witness=(
        "n0#6 t=12.000 asked n1 to send more than 1000 bytes, with 1000 sent, "
        "the last conn 1 seqno 2",
        "n0#8 t=22.500 asked n1 to send more than 1000 bytes, with 1000 sent, "
        "the last conn 1 seqno 2",
    ),
    protocols=CREDITED,
)
def a_question_for_credits_is_never_answered(s: Story) -> None:
    """The first in a quiet network at 12.0; two intervals later it is asked again."""
    a_pair(s).at(1.4).delivers(1, size=604).delivers(2, size=404).quiet(10.0)
    s.at(11.0).purges(1, 2).at(12.0).wants(1000, 2).at(17.0).wants(1000, 2).at(22.5).wants(1000, 2)
    s.ends(30.0)


@sound(protocols=CREDITED)
def a_question_for_credits_is_asked_again_after_an_alarm(s: Story) -> None:
    """It has what is missing asked for, so the network is quiet only after it."""
    a_pair(s).at(1.4).delivers(1, size=604).delivers(2, size=404).fault("loss").bites(1).quiet(10.0)
    s.at(11.0).purges(1, 2).at(12.0).wants(1000, 2).at(16.0).alarms(1).at(17.0).wants(1000, 2)
    s.at(22.5).wants(1000, 2).ends(30.0)


@sound(protocols=CREDITED)
def a_question_for_credits_waits_for_a_slow_application(s: Story) -> None:
    """What it names is not acked, or the receiver's application takes nothing."""
    a_pair(s).fault("stall", member="n1").quiet(10.0)
    for second in range(11, 36, 5):
        s.at(float(second)).wants(1000, 2, unacked=2)
    s.at(36.0).purges(1, 2)
    for second in range(36, 55, 5):
        s.at(float(second)).wants(1000, 2)
    s.at(55.0).fault("stall", phase="off", member="n1").bites(1)
    s.delivers(1, size=604).delivers(2, size=404).ends(56.0)


# -- S1: unread ----------------------------------------------------------------------------------


@broken(
    "S1",
    witness=(
        "rig#1 t=1.000 overheard from n0 multicasts 1..5",
        "n0#4 t=1.000 sent to the group multicasts 1..5",
    ),
)
def a_stranger_reads_a_multicast(s: Story) -> None:
    s.at(0.4).fault("listen").a_group().a_clean_cast().at(1.0).overhears(1, 5, to="")
    s.bites(1, do="listen")
