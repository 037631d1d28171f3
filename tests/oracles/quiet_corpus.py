"""More small runs with a known verdict: when control traffic has to end (C1)."""

from __future__ import annotations

from typing import Any, Final

from stormcast.node.core import wire
from tests.oracles.corpus import broken, sound
from tests.oracles.group_corpus import SILENT, mcast, nakack2
from tests.oracles.held_corpus import CASES
from tests.oracles.story import Story

__all__ = ["CASES"]

CREDITS: Final[dict[str, dict[str, Any]]] = {"UFC": {"bounds": {"ask_within": 1.0}}, "GMS": {}}


# -- Ageing ----------------------------------------------------------------------------------------


def n1_crashes(s: Story) -> Story:
    """n0 sends five messages, which are acked; then n1 crashes, at 2 s."""
    return s.a_clean_exchange().at(2.0).fault("crash", member="n1").bites(1)


@broken(
    "C1",
    age_within=10.0,
    quiet_within=1.0,
    witness=("n0#5 t=13.100 resent to n1 conn 1 seqnos 6..8",),
)
def what_nobody_answers_is_resent_for_too_long(s: Story) -> None:
    n1_crashes(s).sends(6, 8).at(13.1).resends(6, 8).ends(20.0)


@sound(age_within=10.0, quiet_within=1.0)
def what_nobody_answers_is_resent_until_its_connection_ages(s: Story) -> None:
    n1_crashes(s).sends(6, 8).at(13.0).resends(6, 8).ends(20.0)


@sound(age_within=10.0, quiet_within=1.0)
def what_is_sent_to_a_dead_member_later_ages_from_then_on(s: Story) -> None:
    """C1: "counted from the end of that member, the last answer of it, and the first sending of the
    oldest batch that it has not acked"."""
    n1_crashes(s).at(9.0).sends(6, 8).at(20.0).resends(6, 8).ends(25.0)


@broken(
    "C1",
    age_within=10.0,
    quiet_within=1.0,
    witness=("n0#6 t=20.100 resent to n1 conn 1 seqnos 9..9",),
)
def the_oldest_unacked_batch_counts_and_not_the_newest(s: Story) -> None:
    n1_crashes(s).at(9.0).sends(6, 8).at(19.0).sends(9).at(20.1).resends(9).ends(25.0)


@sound(age_within=10.0, quiet_within=1.0)
def an_answer_that_was_under_way_counts(s: Story) -> None:
    """n1 took and acked 6 to 8 as it crashed; that is heard later."""
    s.a_clean_exchange().at(1.9).sends(6, 8).sends(9).at(2.0).delivers(6, 8).acks(8)
    s.fault("crash", member="n1").bites(1).at(4.0).purges(6, 8).at(15.0).resends(9).ends(20.0)


@sound(age_within=10.0, quiet_within=1.0)
def a_view_names_its_members_in_fewer_digits(s: Story) -> None:
    """Events, view: "eight hexadecimal digits each (a reader takes fewer)"."""
    n1_crashes(s).sends(6, 8).is_handed(1, "n0", "n1", who="n0", digits=2)
    s.at(30.0).resends(6, 8).ends(40.0)


@broken("C1", age_within=10.0, quiet_within=1.0)
def a_view_in_fewer_digits_lacks_the_receiver(s: Story) -> None:
    n1_crashes(s).sends(6, 8).is_handed(1, "n0", "n2", who="n0", digits=2)
    s.at(30.0).resends(6, 8).ends(40.0)


@sound(age_within=10.0, quiet_within=1.0)
def what_is_resent_in_the_turn_of_the_view_is_still_of_the_connection(s: Story) -> None:
    n1_crashes(s).sends(6, 8).is_handed(1, "n0", "n1", who="n0").at(30.0)
    s.is_handed(2, "n0", who="n0").resends(6, 8).removes(why="aged", unacked=3)


# -- Frames that are long under way ----------------------------------------------------------------


def frames_are_delayed(s: Story, until: float) -> Story:
    """A fault delays frames by five seconds, until then; the run is quiet from 3 s on."""
    s.at(0.5).fault("delay", late=5.0).a_clean_exchange().at(until).fault("delay", "off")
    return s.bites(1, do="delay").quiet(3.0)


@sound(quiet_within=2.0)
def a_frame_that_a_fault_delayed_is_acked_when_it_comes(s: Story) -> None:
    """C1: "A frame that a fault kept arrives after its end, and is answered then"."""
    frames_are_delayed(s, 2.0).at(9.0).acks(5).ends(20.0)


@broken("C1", quiet_within=2.0, witness=("n1#4 t=9.010 acked to n0 conn 1 up to seqno 5",))
def what_a_fault_delayed_has_come(s: Story) -> None:
    frames_are_delayed(s, 2.0).at(9.01).acks(5).ends(20.0)


def two_delays(s: Story, first_until: float) -> Story:
    """One fault delays by five seconds from 0.5 s on, another by one from 1.9 s to 2.5 s."""
    s.at(0.5).fault("delay", late=5.0).a_clean_exchange()
    for time, what in sorted([(1.9, "reorder"), (first_until, "delay")]):
        if what == "delay":
            s.at(time).fault("delay", "off")
        else:
            s.at(time).fault("reorder", name="f2", late=1.0)
    s.at(2.5).fault("reorder", "off", name="f2").bites(1, do="delay")
    return s.bites(1, "f2", "reorder").quiet(3.0)


@sound(quiet_within=2.0)
def two_faults_at_once_delay_a_frame_by_both(s: Story) -> None:
    two_delays(s, 2.0).at(10.0).acks(5).ends(20.0)


@broken("C1", quiet_within=2.0)
def two_faults_at_once_delay_a_frame_by_no_more(s: Story) -> None:
    two_delays(s, 2.0).at(10.01).acks(5).ends(20.0)


@broken("C1", quiet_within=2.0)
def two_faults_one_after_the_other_do_not_delay_a_frame_by_both(s: Story) -> None:
    two_delays(s, 1.8).at(8.81).acks(5).ends(20.0)


@sound(quiet_within=2.0)
def a_fault_that_is_begun_again_delays_as_it_says_last(s: Story) -> None:
    s.at(0.2).fault("delay", late=50.0).at(0.5)
    frames_are_delayed(s, 2.0).at(9.0).acks(5).ends(20.0)


@broken("C1", quiet_within=2.0)
def a_fault_that_is_begun_again_delays_no_longer(s: Story) -> None:
    s.at(0.2).fault("delay", late=50.0).at(0.5)
    frames_are_delayed(s, 2.0).fault("delay", "off").at(9.01).acks(5).ends(20.0)


def the_network_delays(s: Story, do: str = "delay") -> Story:
    """The network of the scenario keeps frames under way for two seconds."""
    return s.at(0.0).fault(do, name="network", late=2.0).a_clean_exchange().quiet(3.0)


@sound(quiet_within=2.0)
def a_slow_network_is_crossed_three_times(s: Story) -> None:
    """C1: "a frame travels, its answer does, and what was resent until that came"."""
    the_network_delays(s).at(11.0).acks(5).ends(20.0)


@broken("C1", quiet_within=2.0)
def a_slow_network_is_crossed_three_times_at_most(s: Story) -> None:
    the_network_delays(s).at(11.01).acks(5).ends(20.0)


@sound(quiet_within=2.0)
def a_network_that_loses_may_be_slow_too(s: Story) -> None:
    the_network_delays(s, "network").at(11.0).acks(5).ends(20.0)


@broken("C1", quiet_within=2.0)
def a_network_that_loses_may_be_slow_and_no_more(s: Story) -> None:
    the_network_delays(s, "network").at(11.01).acks(5).ends(20.0)


@sound(quiet_within=2.0)
def a_delay_that_nothing_ended_makes_the_network_slow(s: Story) -> None:
    s.at(0.0).fault("delay", late=2.0).a_clean_exchange().bites(1, do="delay").quiet(3.0)
    s.at(11.0).acks(5).ends(20.0)


@sound(age_within=10.0, quiet_within=1.0)
def a_connection_ages_later_on_a_slow_network(s: Story) -> None:
    s.at(0.0).fault("delay", name="network", late=2.0)
    n1_crashes(s).sends(6, 8).at(19.0).resends(6, 8).ends(30.0)


@broken("C1", age_within=10.0, quiet_within=1.0)
def a_connection_ages_on_a_slow_network(s: Story) -> None:
    s.at(0.0).fault("delay", name="network", late=2.0)
    n1_crashes(s).sends(6, 8).at(19.1).resends(6, 8).ends(30.0)


def n0_asks_for_credits(s: Story, until: float) -> None:
    s.at(0.0).fault("delay", name="network", late=2.0)
    s.a_group("n0", "n1").a_clean_exchange().quiet(2.0).at(3.0).wants(30, 5)
    s.at(until).wants(30, 5).ends(20.0)


@sound(protocols=CREDITS)
def an_answer_about_credits_takes_longer_on_a_slow_network(s: Story) -> None:
    n0_asks_for_credits(s, 11.0)


@broken("C1", protocols=CREDITS)
def an_answer_about_credits_comes_on_a_slow_network(s: Story) -> None:
    n0_asks_for_credits(s, 11.01)


def all_have_what_n0_keeps(s: Story, until: float) -> None:
    s.at(0.0).fault("delay", name="network", late=1.0).a_group().at(1.0).casts(1, 5)
    s.at(1.1).takes(1, 5).takes(1, 5, "n2").quiet(3.0).ends(until)


@sound(protocols=nakack2(purge_within=2.0))
def news_of_what_all_have_takes_longer_on_a_slow_network(s: Story) -> None:
    all_have_what_n0_keeps(s, 7.9)


@broken("L1", protocols=nakack2(purge_within=2.0))
def news_of_what_all_have_comes_on_a_slow_network(s: Story) -> None:
    all_have_what_n0_keeps(s, 8.1)


@broken("G1", protocols=SILENT, witness=("n0#5 t=1.000 sent to the group multicasts 6..6",))
def a_slow_network_is_nothing_that_was_done(s: Story) -> None:
    """G1: "... nothing may be lost either, unless something was done to the run"."""
    s.at(0.0).fault("delay", name="network", late=0.1).a_group("n0", "n1").at(0.6).inquires()
    s.at(1.0).casts(1, 5).casts(6).at(1.1).takes(1, 5).at(5.0).alarms(6, epoch=1)


# -- Members whose settings are changed ------------------------------------------------------------


def settings_change(s: Story, member: str) -> Story:
    """A setting of a member is changed at 1.5 s; nobody knows what the member promises then."""
    s.at(1.5).fault("set-attribute", member=member, attribute="max_xmit_req_size", value=1)
    return s.bites(1, do="set-attribute")


def n1_asks_late(s: Story) -> None:
    s.at(1.0).sends(1, 5).sends(6, 10).at(1.1).delivers(1, 5).acks(5)
    settings_change(s, "n1").at(8.0).requests(6, 10).at(8.01).resends(6, 10)
    s.at(8.02).delivers(6, 10).acks(10).purges(1, 10).ends(20.0)


@sound(quiet_within=2.0)
def what_a_member_with_changed_settings_asks_for_late_is_resent_late(s: Story) -> None:
    """C1: "A conversation lasts as long as the slowest of those who take part promises"."""
    n1_asks_late(s)


def n1_acks_late(s: Story, changed: str) -> None:
    settings_change(s.a_clean_exchange(), changed).at(3.0).quiet(3.0).at(6.0).acks(5).ends(20.0)


@sound(quiet_within=2.0)
def a_conversation_with_one_whose_settings_changed_may_last(s: Story) -> None:
    n1_acks_late(s, "n0")


@broken("C1", quiet_within=2.0, witness=("n1#4 t=6.000 acked to n0 conn 1 up to seqno 5",))
def the_settings_of_a_third_member_excuse_no_conversation(s: Story) -> None:
    n1_acks_late(s, "n2")


@sound(protocols=nakack2(quiet_within=3.0))
def a_group_with_one_whose_settings_changed_may_not_fall_silent(s: Story) -> None:
    settings_change(s.a_group().a_clean_cast(), "n2").quiet(5.0).at(8.1).announces(5).ends(20.0)


@sound(protocols=mcast(purge_within=2.0))
def one_whose_settings_changed_may_keep_a_sender_from_dropping_what_all_have(s: Story) -> None:
    s.multicast = wire.MCAST
    s.a_group("n0", "n1").at(1.0).casts(1, 5).at(1.1).takes(1, 5).confirms(5)
    settings_change(s, "n1").quiet(3.0).ends(20.0)


# -- Members that end before their acks are heard --------------------------------------------------


@sound(request_spacing=0.05, request_size=100, resend_within=2.0, resend_interval=0.5)
def what_a_member_asked_for_before_it_crashed_was_sent_again(s: Story) -> None:
    """What it had asked for twice is in the middle of what its sender keeps."""
    s.at(1.0).opens().sends(1).at(1.01).sends(2).at(1.02).sends(3).sends(4).listens()
    s.at(1.03).delivers(1).at(1.1).requests(2, 3).at(1.11).resends(2).resends(3)
    s.at(1.2).requests(2).at(1.21).resends(2).at(1.22).delivers(2).delivers(3).delivers(4)
    s.at(1.25).fault("crash", member="n1").bites(1).at(2.5).resends(4).at(4.0).resends(4)
    s.at(5.0).removes(why="aged", unacked=4).gives_up(1, 4).ends(20.0)


@sound(resend_within=2.0, request_spacing=1.0, resend_interval=1.0)
def what_a_member_synced_for_before_it_crashed_was_sent_again(s: Story) -> None:
    s.at(1.0).opens().sends(1)
    for number in range(6):
        s.at(1.1 + number * 0.1).syncs().resends(1)
    s.at(1.8).listens().delivers(1).at(2.0).fault("crash", member="n1").bites(1)
    s.at(2.5).resends(1).at(3.0).removes(why="aged", unacked=1).gives_up(1).ends(6.0)


@sound(age_within=10.0, quiet_within=1.0)
def what_is_sent_long_after_a_crash_is_given_up_in_time(s: Story) -> None:
    n1_crashes(s).at(20.0).sends(6).at(25.0).resends(6).at(29.0).resends(6)
    s.at(30.0).removes(why="aged", unacked=1).gives_up(6).at(31.0).ends(50.0)


@sound(both_ends=True)
def what_waits_for_a_member_that_is_long_gone_is_given_up_once(s: Story) -> None:
    s.at(1.0).offers(1).opens().sends(1, number=1).at(1.1).listens().delivers(1).is_given(1)
    s.acks(1).at(1.2).purges(1).at(2.0).fault("crash", member="n1").bites(1).at(3.0).offers(2, 3)
    s.at(310.0).offers(1, to="n2").opens(to="n2").sends(1, to="n2", number=1)
    s.at(310.1).listens(who="n2").delivers(1, who="n2").is_given(1, who="n2")
    s.at(320.0).fault("loss", name="f2").bites(1, "f2", "loss")
    s.at(330.0).fault("loss", "off", name="f2").at(340.0).throws_away(2, 3).ends(360.0)
