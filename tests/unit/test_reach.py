"""Whom a multicast reaches: proven member by member, again and again, as a proof grows old."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count

import pytest

from stormcast.node.transports.reach import FIRST_WAIT, LONGEST_WAIT, PROOF_SECONDS, Reach

CLUSTER, SECRET = 0xC1, 0x1122334455667788
ME, B, C = 0xA, 0xB, 0xC


class Call:
    """A call that is to come."""

    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at = at
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Asker:
    """A member's Reach, with a network and a clock that only the test moves."""

    def __init__(self, me: int = ME, cluster: int = CLUSTER, secret: int = SECRET) -> None:
        self.multicasts: list[bytes] = []
        self.unicasts: list[tuple[int, bytes]] = []
        self.waits: list[float] = []
        self.now = 100.0
        self.is_out_of_memory = False
        self._counters: Counter[str] = Counter()
        self._calls: list[Call] = []
        secrets = count(secret)
        self.reach = Reach(
            cluster,
            me,
            lambda: next(secrets),
            self._send,
            lambda to, data: self.unicasts.append((to, data)),
            lambda: self.now,
            self._later,
            self._counters,
        )

    def _later(self, wait: float, call: Callable[[], None]) -> Call:
        self.waits.append(wait)
        self._calls.append(Call(self.now + wait, call))
        return self._calls[-1]

    def _send(self, question: bytes) -> None:
        if self.is_out_of_memory:
            raise MemoryError
        self.multicasts.append(question)

    def refused(self) -> list[str]:
        """Why datagrams were refused since the last call."""
        counted = sorted(self._counters.elements())
        self._counters.clear()
        return [reason.removeprefix("refused_reach-") for reason in counted]

    def wait(self) -> None:
        """Until the next timer; there is one at most."""
        (due,) = [one for one in self._calls if not one.is_cancelled]
        self._calls.clear()
        self.now = due.at
        due.call()

    @property
    def is_waiting(self) -> bool:
        return any(not one.is_cancelled for one in self._calls)

    def hear(self, datagram: bytes, *, by_multicast: bool) -> bool:
        return self.reach.receive_untrusted(memoryview(datagram), by_multicast=by_multicast)


def answer_of(short: int, question: bytes, cluster: int = CLUSTER) -> bytes:
    """What a member says that heard a question."""
    other = Asker(short, cluster)
    assert other.hear(question, by_multicast=True)
    ((to, said),) = other.unicasts
    assert to == ME
    return said


def test_golden_bytes() -> None:
    asker = Asker()
    asker.reach.on_view({B})
    (question,) = asker.multicasts
    assert question == b"SCmp\x01" + bytes.fromhex("000000c10000000a1122334455667788")
    assert answer_of(B, question) == b"SCmp\x02" + bytes.fromhex("000000c10000000b1122334455667788")


def test_who_has_said_so_is_reached_and_nobody_else() -> None:
    asker = Asker()
    asker.reach.on_view({B, C})
    (question,) = asker.multicasts
    assert not asker.reach.reached
    assert asker.hear(answer_of(B, question), by_multicast=False)
    assert set(asker.reach.reached) == {B}
    assert not asker.reach.is_complete
    asker.hear(answer_of(C, question), by_multicast=False)
    assert asker.reach.is_complete


def test_it_asks_again_ever_more_rarely_until_all_have_answered() -> None:
    asker = Asker()
    asker.reach.on_view({B})
    for _ in range(9):
        asker.wait()
    assert asker.waits[:3] == [FIRST_WAIT, 2 * FIRST_WAIT, 4 * FIRST_WAIT]
    assert asker.waits[-1] == LONGEST_WAIT
    assert len(asker.multicasts) == 10


def test_who_has_answered_is_asked_again_each_longest_wait() -> None:
    """One question in that time, whatever else happens, and the wait before it is not shortened."""
    asker = Asker()
    asker.reach.on_view({B})
    for number in range(6):
        assert len(asker.multicasts) == number + 1
        asker.hear(answer_of(B, asker.multicasts[-1]), by_multicast=False)
        if not number:
            asker.wait()
        asker.reach.on_view({B})
        asker.wait()
    assert asker.waits == [FIRST_WAIT] + [LONGEST_WAIT] * 7
    assert len(set(asker.multicasts)) == 7, "each has a secret of its own"


def test_who_answers_no_longer_is_not_reached_any_more() -> None:
    """The network stops carrying multicasts: within 20 s each member gets copies again."""
    asker = Asker()
    asker.reach.on_view({B, C})
    for one in (B, C):
        asker.hear(answer_of(one, asker.multicasts[0]), by_multicast=False)
    asker.wait()
    asker.wait()
    asker.hear(answer_of(B, asker.multicasts[1]), by_multicast=False)
    asker.hear(answer_of(C, asker.multicasts[1]), by_multicast=False)
    stopped = asker.now
    for _ in range(3):
        assert set(asker.reach.reached) == {B, C}
        asker.wait()
        asker.hear(answer_of(B, asker.multicasts[-1]), by_multicast=False)
    asker.wait()
    assert set(asker.reach.reached) == {B}
    assert asker.now - stopped <= 20.0
    # Who had only lost the questions is asked soon.
    assert asker.waits[-1] == FIRST_WAIT
    asker.hear(answer_of(C, asker.multicasts[-1]), by_multicast=False)
    assert asker.reach.is_complete


def test_a_question_that_could_not_be_sent_is_not_the_last() -> None:
    asker = Asker()
    asker.reach.on_view({B})
    asker.hear(answer_of(B, asker.multicasts[0]), by_multicast=False)
    asker.wait()
    asker.is_out_of_memory = True
    with pytest.raises(MemoryError):
        asker.wait()
    asker.is_out_of_memory = False
    while asker.now <= 100.0 + PROOF_SECONDS + LONGEST_WAIT:
        asker.wait()
    assert not asker.reach.reached


def test_an_old_question_that_somebody_says_again_proves_nothing() -> None:
    """Otherwise a stranger, who needs no key for that, ends the copies of a member whom no
    multicast reaches."""
    asker = Asker()
    asker.reach.on_view({B})
    old = asker.multicasts[0]
    while asker.now < 100.0 + PROOF_SECONDS + LONGEST_WAIT:
        asker.wait()
    asker.hear(answer_of(B, old), by_multicast=False)
    assert not asker.reach.reached
    assert asker.refused() == ["unasked"]


def test_a_proof_is_as_old_as_its_question() -> None:
    """Who holds questions back, and lets a member hear them late, gains no time by that."""
    asker = Asker()
    asker.reach.on_view({B})
    started = asker.now
    while asker.now < started + PROOF_SECONDS - LONGEST_WAIT:
        asker.wait()
    asker.hear(answer_of(B, asker.multicasts[0]), by_multicast=False)
    assert set(asker.reach.reached) == {B}
    while asker.now < started + PROOF_SECONDS:
        asker.wait()
    assert not asker.reach.reached


def test_a_late_answer_counts_and_does_not_age_a_newer_one() -> None:
    asker = Asker()
    asker.reach.on_view({B})
    for _ in range(3):
        asker.wait()
    asker.hear(answer_of(B, asker.multicasts[3]), by_multicast=False)
    newest = asker.now
    asker.hear(answer_of(B, asker.multicasts[0]), by_multicast=False)
    assert asker.reach.reached == {B: newest}


def test_a_newcomer_is_asked_at_once_however_long_the_wait_that_runs() -> None:
    asker = Asker()
    asker.reach.on_view({B})
    asker.hear(answer_of(B, asker.multicasts[0]), by_multicast=False)
    asker.wait()
    assert asker.waits[-1] == LONGEST_WAIT
    asker.reach.on_view({B, C})
    assert len(asker.multicasts) == 2
    asker.wait()
    assert asker.waits[-2:] == [FIRST_WAIT, 2 * FIRST_WAIT]


def test_who_becomes_alone_asks_no_more() -> None:
    asker = Asker()
    asker.reach.on_view({B})
    asker.reach.on_view(set())
    asker.wait()
    assert len(asker.multicasts) == 1
    assert not asker.is_waiting


def test_views_that_follow_each_other_share_one_timer() -> None:
    asker = Asker()
    asker.reach.on_view({B})
    asker.reach.on_view({B, C})
    assert len(asker.multicasts) == len(asker.waits) == 1
    # And the patience begins anew.
    asker.wait()
    assert asker.waits == [FIRST_WAIT, FIRST_WAIT]


def test_who_was_away_must_prove_it_again() -> None:
    asker = Asker()
    asker.reach.on_view({B, C})
    for one in (B, C):
        asker.hear(answer_of(one, asker.multicasts[0]), by_multicast=False)
    asker.reach.on_view({B})
    assert asker.reach.is_complete
    asker.reach.on_view({B, C})
    assert set(asker.reach.reached) == {B}


def test_a_member_that_is_alone_asks_nobody() -> None:
    asker = Asker()
    asker.reach.on_view(set())
    assert asker.multicasts == asker.waits == []
    assert asker.reach.is_complete


def test_a_probe_that_came_by_unicast_proves_nothing() -> None:
    asker = Asker()
    asker.reach.on_view({B})
    other = Asker(B)
    assert other.hear(asker.multicasts[0], by_multicast=False)
    assert other.unicasts == []
    assert other.refused() == ["unicast"]


def test_a_question_of_its_own_that_comes_back_is_none_of_a_stranger() -> None:
    """The kernel hands a multicast to its sender, too; what others send in its name is counted."""
    asker = Asker()
    asker.reach.on_view({B})
    (question,) = asker.multicasts
    assert asker.hear(question, by_multicast=True)
    assert asker.refused() == []
    assert asker.hear(question[:-1] + b"\x00", by_multicast=True)
    assert asker.hear(question, by_multicast=False)
    assert asker.refused() == ["source", "source"]


def test_answers_that_are_none_prove_nothing() -> None:
    asker = Asker()
    asker.reach.on_view({B})
    question = asker.multicasts[0]
    heard = answer_of(B, question)
    for forged, why in (
        # Whoever did not hear the question does not know its secret.
        (heard[:-1] + b"\x00", "unasked"),
        (answer_of(C, question), "unasked"),  # Nobody of this view.
        (heard[:4] + b"\x03" + heard[5:], "kind"),  # No kind of ours.
        (heard[:5] + bytes.fromhex("000000c2") + heard[9:], "cluster"),  # Of another cluster.
        # In this member's own name.
        (heard[:9] + bytes.fromhex("0000000a") + heard[13:], "source"),
    ):
        assert asker.hear(forged, by_multicast=False)
        assert not asker.reach.reached
        assert asker.refused() == [why]
    assert asker.unicasts == []


def test_the_probe_of_another_cluster_is_not_answered() -> None:
    asker = Asker()
    asker.reach.on_view({B})
    other = Asker(B, cluster=CLUSTER + 1)
    assert other.hear(asker.multicasts[0], by_multicast=True)
    assert other.unicasts == []
    assert other.refused() == ["cluster"]


@pytest.mark.parametrize("size", range(22))
def test_what_has_not_its_size_is_something_else(size: int) -> None:
    asker = Asker()
    asker.reach.on_view({B})
    question = asker.multicasts[0]
    assert asker.hear(question[:size], by_multicast=True) == (size == len(question))
    assert not asker.hear(question + b"x", by_multicast=True)
    assert not asker.hear(b"X" + question[1:], by_multicast=True)


def test_who_has_closed_asks_no_more() -> None:
    asker = Asker()
    asker.reach.on_view({B})
    asker.reach.close()
    assert not asker.is_waiting


def test_one_answer_goes_to_who_is_named_and_it_is_no_longer_than_the_question() -> None:
    """Anybody may name anybody: nobody gets more than was sent in its name."""
    asker = Asker(B)
    asker.reach.on_view({ME})
    (question,) = asker.multicasts
    member = Asker()
    assert member.hear(question, by_multicast=True)
    ((_to, answer),) = member.unicasts
    assert len(answer) <= len(question)
    for by_multicast in (True, False):
        assert member.hear(answer, by_multicast=by_multicast)
    assert member.hear(question, by_multicast=False)
    assert len(member.unicasts) == 1
