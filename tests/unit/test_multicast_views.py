"""Views, and another interval while the stack runs: what a change does to the windows."""

from __future__ import annotations

from math import inf
from random import Random

import pytest

from stormcast.node.core import wire
from stormcast.node.core.digest import Digest
from stormcast.node.core.errors import ConfigError
from stormcast.node.core.wire import Head
from stormcast.node.protocols.multicast import MCAST, Multicast, MulticastConfig, Nakack2Config
from stormcast.node.protocols.multicast.early import Early
from stormcast.node.protocols.multicast.retention import UntilAcked
from stormcast.node.protocols.multicast.state import ALARM, LOOK, OWN, SYNC
from stormcast.node.protocols.multicast.switching import Switching
from stormcast.node.protocols.multicast.views import Views
from stormcast.node.protocols.windowed import changed, unpack_arrival_untrusted
from tests.helpers.multicast import ME, OTHER, PEER, STRANGER, Parts, view


class Member(Parts):
    """With what changes it as a whole; frames that came too early are noted."""

    def __init__(self, *generation: object, **settings: object) -> None:
        super().__init__(*generation, alone=True, **settings)  # type: ignore[arg-type]
        self.taken: list[int] = []
        self.early = Early(self.state, self._take)
        self.views = Views(
            self.state,
            self.outgoing,
            self.announcing,
            self.retention,
            self.windows,
            self.early,
            self.asking,
        )
        self.switching = Switching(
            self.state, self.asking, self.baselines, self.announcing, self.early, self.reports
        )

    def _take(self, head: Head, _body: bytes, _now: float) -> None:
        self.taken.append(head.source)

    def install(
        self, *members: int, digest: dict[int, int] | None = None, mutual: set[int] | None = None
    ) -> None:
        seqnos = None if digest is None else Digest({m: (s, s) for m, s in digest.items()})
        stayed = None if mutual is None else frozenset(mutual)
        number = self.state.view_number + 1
        self.views.install(view(number, ME, *members), seqnos, stayed, float(number))

    def begun(self) -> dict[int, tuple[int, int]]:
        """Per sender the epoch of its window, and up to where it delivered."""
        entries = self.state.inbound.values()
        return {entry.peer: (entry.epoch, entry.window.delivered) for entry in entries}

    def switch(self, interval: float, now: float = 5.0) -> None:
        self.switching.adopt(changed(self.state.config, "xmit_interval", interval), now)


# -- Views ------------------------------------------------------------------------------------


def test_there_is_a_window_for_each_other_member() -> None:
    member = Member()
    member.install(PEER, OTHER)
    member.install(OTHER, STRANGER)
    assert member.begun() == {OTHER: (2, 0), STRANGER: (3, 0)}
    assert member.state.members == {ME, OTHER, STRANGER}


def test_a_digest_says_where_windows_begin_and_is_ignored_about_others() -> None:
    member = Member()
    member.install(PEER, OTHER, digest={ME: 8, PEER: 5, STRANGER: 9})
    assert member.begun() == {PEER: (1, 5), OTHER: (2, 0)}
    assert member.state.own_delivered == 0


def test_a_merge_replaces_what_is_behind_unless_it_was_connected_all_the_time() -> None:
    member = Member()
    member.install(PEER, OTHER)
    member.install(PEER, OTHER, digest={PEER: 5, OTHER: 5}, mutual={ME, PEER})
    assert member.begun() == {PEER: (1, 0), OTHER: (3, 5)}


def test_a_window_that_is_ahead_of_a_merge_stays() -> None:
    member = Member()
    member.install(PEER, digest={PEER: 9})
    member.install(PEER, digest={PEER: 5}, mutual=set())
    assert member.begun() == {PEER: (1, 9)}


def test_a_new_member_is_told_what_there_is_and_what_it_sent_is_taken() -> None:
    member = Member()
    member.send(b"1")
    member.sent()
    member.early.keep(*member.data(1, b"early", source=OTHER), 1.0)
    member.install(PEER, OTHER)
    baselines = member.sent(wire.BASELINE)
    assert [(head.dest, head.mark, head.lo) for head in baselines] == [(PEER, 1, 1), (OTHER, 1, 1)]
    assert {head.stamp for head in baselines} == {member.state.view_tag}
    assert member.taken == [OTHER]


def test_who_comes_back_is_told_until_it_says_that_it_knows() -> None:
    """Nothing waits for an ack, so nothing else would tell it that the group went on without it."""
    member = Member(MCAST)
    retention = member.retention
    assert isinstance(retention, UntilAcked)
    member.install()
    member.send(b"1")
    member.install()
    member.install(PEER, OTHER)
    assert member.state.own.low == 1
    retention.acks.ack(OTHER, 1)
    member.sent()
    for now in (5.0, 6.0, 7.0):
        member.announcing.look(now)
    told = member.sent(wire.HIGHEST_SEQNO)
    assert [(head.lo, head.mark) for head in told] == [(1, 1)] * 2
    retention.acks.ack(PEER, 1)
    member.announcing.look(8.0)
    assert member.sent() == []


def test_who_sent_nothing_greets_only_where_nothing_is_retransmitted() -> None:
    for interval, greeted in ((1.0, 0), (0.0, 1)):
        member = Member(xmit_interval=interval)
        member.install(PEER)
        assert len(member.sent(wire.BASELINE)) == greeted


def test_what_arrives_of_a_member_that_left_is_late() -> None:
    member = Member()
    member.install(PEER)
    member.install()
    member.early.keep(*member.data(1, b"late"), 3.0)
    assert member.port.drops == {"former-member": 1}


def test_two_groups_with_a_view_of_one_number_are_told_apart() -> None:
    member = Member()
    tags = set()
    for first in (ME, PEER):
        member.views.install(view(7, first, OTHER), None, None, 1.0)
        tags.add(member.state.view_tag)
    assert len(tags) == 2


def test_who_may_come_may_ask_and_is_waited_for() -> None:
    member = Member(MCAST)
    member.views.on_tentative(view(2, ME, PEER))
    assert member.state.may_ask(PEER)
    assert not member.state.may_ask(OTHER)
    assert isinstance(member.retention, UntilAcked)
    assert PEER in member.retention.acks
    member.install()
    assert not member.state.may_ask(PEER)
    assert PEER not in member.retention.acks


def test_a_digest_of_this_member_has_its_own_messages_too() -> None:
    member = Member()
    member.install(PEER, digest={PEER: 5})
    member.state.inbound[PEER].window.note(8)
    member.send(b"1", b"2")
    assert member.views.digest().seqnos == {ME: (2, 2), PEER: (5, 8)}


# -- Another interval -------------------------------------------------------------------------


def gapped(member: Member) -> None:
    """2 of PEER is there, 1 is not."""
    arrival = unpack_arrival_untrusted(*member.data(2, b"2"))
    member.state.inbound[PEER].window.add(2, 2, len(arrival.body), arrival)


def test_the_end_of_retransmission_asks_once_more_and_has_every_window_completed() -> None:
    member = Member()
    member.install(PEER, OTHER)
    for entry in member.state.inbound.values():
        entry.is_synced = True
    gapped(member)
    member.sent()
    member.switch(0.0)
    assert [head.dest for head in member.sent(wire.XMIT_REQ)] == [PEER]
    assert not any(entry.is_synced for entry in member.state.inbound.values())
    assert member.state.timers.due((SYNC, OTHER)) == 5.5
    assert member.state.timers.due((OWN, 0)) == inf


def test_the_beginning_of_retransmission_looks_at_what_is_missing() -> None:
    member = Member(xmit_interval=0.0)
    member.install(PEER)
    entry = member.state.inbound[PEER]
    entry.is_synced = True
    gapped(member)
    member.asking.notice(entry, 2.0)
    assert member.state.timers.due((ALARM, PEER)) < inf
    member.send(b"1")
    member.switch(0.5)
    assert member.state.timers.due((ALARM, PEER)) == inf
    assert member.state.timers.due((LOOK, PEER)) == 5.5
    assert member.state.timers.due((OWN, 0)) == 5.5


def test_what_was_kept_without_a_bound_stays_and_is_the_bound() -> None:
    member = Member(xmit_interval=0.0, max_unknown_messages=1)
    for lo in (1, 2, 3):
        member.early.keep(*member.data(lo, b"x", source=STRANGER), 1.0)
    member.switch(1.0)
    member.early.keep(*member.data(4, b"x", source=STRANGER), 6.0)
    assert member.port.drops == {"unknown-sender": 1}
    member.early.replay_of(STRANGER, 7.0)
    assert len(member.taken) == 3


def test_what_may_not_change_while_the_stack_runs_is_refused_with_what_may() -> None:
    config: MulticastConfig = Nakack2Config()
    with pytest.raises(ConfigError, match=r"window_bytes can not .* max_xmit_req_size, xmit_inter"):
        changed(config, "window_bytes", 1)
    assert changed(config, "max_xmit_req_size", 7).max_xmit_req_size == 7


# -- The whole --------------------------------------------------------------------------------


def test_who_has_left_takes_nothing() -> None:
    """Before the first view frames are kept; after the last they are counted."""
    parts = Parts()
    state = parts.state
    whole = Multicast(state.generation, state.config, state.pacer.timing, parts.port, Random(1))
    whole.receive(*parts.data(1, b"1"), 0.0)
    whole.install(view(1, ME, PEER), None, None, 1.0)
    whole.become_server(1.0)
    assert parts.delivered() == [(1, 1)]
    whole.stop(2.0)
    assert whole.timers.next_deadline() == inf
    whole.receive(*parts.data(2, b"2"), 3.0)
    assert parts.port.drops == {"left": 1}
