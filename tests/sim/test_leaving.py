"""What a member sent before it leaves: those that stay get it, or the leaver says that it gave it
up."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from stormcast.chaos.language.scenario import parse_scenario
from stormcast.chaos.oracles.history import Member
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.session.outcome import RunOutcome
from stormcast.chaos.session.runner import run_scenario
from stormcast.node.trace import ABANDONED, SENT, STOP

REPAIRING = ("udp", "mcast", "tcp", "tcp-nio2")
GROUP = "{members: 3, stack: udp, timing: fast, joins: one-by-one}"
ALONE = "{members: 2, stack: unicast-only, timing: fast}"
BURST = "{do: multicast, from: n1, count: 400, rate: 2000/s}"
UNICASTS = "{do: unicast, from: n1, to: n0, count: 400, rate: 2000/s}"


class Leaver(NamedTuple):
    sent: int
    given_up: int
    reasons: set[str]
    seconds: float
    """From the last message that it sent to its end."""
    was_sending: float
    """Seconds from the first message that it sent to the last."""


def run(*steps: str, cluster: str, load: str = BURST, network: str = "") -> RunOutcome:
    text = "name: leaving\nabout: A member leaves.\nguarantees: [G1, G2, G3, G4]\n"
    text += f"cluster: {cluster}\nworkload:\n  - {load}\n"
    text += f"network: {network}\n" if network else ""
    text += "timeline:\n" + "".join(f"  - {{{step}}}\n" for step in steps)
    return run_scenario(parse_scenario(text), 1)


def leaver(outcome: RunOutcome, name: str = "n1") -> Leaver:
    (member,) = (m for m in outcome.run.evidence.members.values() if m.name == name)
    assert member.events[-1].kind == STOP
    given_up = [event for event in member.events if event.kind == ABANDONED]
    reasons = {text for number, text in member.texts.items() if _is_given_up(member, number)}
    sent = [event for event in member.events if event.kind == SENT]
    return Leaver(
        sum(event.count for event in sent),
        sum(event.count for event in given_up),
        reasons,
        member.ended - sent[-1].time,
        sent[-1].time - sent[0].time,
    )


def _is_given_up(member: Member, number: int) -> bool:
    return member.events[number].kind == ABANDONED


@pytest.mark.parametrize("stack", REPAIRING)
def test_all_that_a_leaver_multicast_in_a_bad_network_arrives(stack: str) -> None:
    """It leaves in the midst of its load."""
    outcome = run(
        "at: 150ms, do: leave, member: n1",
        cluster=GROUP.replace("udp", stack),
        network="{delay: 20ms, loss: 20%}",
    )
    left = leaver(outcome)
    assert outcome.verdict is Verdict.HOLDS, outcome.judgement.findings
    assert left.sent > 100
    assert left.given_up == 0
    # It owed each of the two others, and they each had, all that it sent.
    owed = outcome.judgement.owed
    assert owed is not None
    assert (owed.owed, owed.delivered) == (2 * left.sent, 2 * left.sent)


@pytest.mark.parametrize("stack", ["udp", "mcast"])
def test_what_nobody_confirms_is_given_up_aloud(stack: str) -> None:
    """n2 hears nothing of n1 for longer than n1 waits, and n1 is not suspected meanwhile."""
    outcome = run(
        "at: 100ms, do: rule, does: drop, match: {kind: DATA, to: n2}, for: 30s",
        "at: 150ms, do: leave, member: n1",
        cluster=GROUP.replace("udp", stack),
    )
    left = leaver(outcome)
    assert outcome.verdict is Verdict.HOLDS, outcome.judgement.findings
    assert 0 < left.given_up < left.sent
    assert left.reasons == {"stop"}
    assert 4.0 < left.seconds < 10.0
    owed = outcome.judgement.owed
    assert owed is not None
    assert owed.delivered == owed.owed
    assert owed.owed >= left.sent, "n0 has what n2 has not"


def test_without_a_group_a_leaver_brings_its_messages_too() -> None:
    outcome = run(
        "at: 100ms, do: leave, member: n1",
        cluster=ALONE,
        load=UNICASTS,
        network="{delay: 20ms, loss: 20%}",
    )
    left = leaver(outcome)
    assert outcome.verdict is Verdict.HOLDS, outcome.judgement.findings
    assert left.sent > 100
    assert left.given_up == 0


def test_without_a_group_a_leaver_waits_for_its_whole_timeout() -> None:
    """`leave_timeout` ends it: nobody says that the peer is gone."""
    outcome = run(
        "at: 50ms, do: cut, from: n1, to: n0, for: 30s",
        "at: 100ms, do: leave, member: n1",
        cluster=ALONE,
        load=UNICASTS,
    )
    left = leaver(outcome)
    assert left.given_up > 0
    assert left.reasons == {"stop"}
    assert 9.0 < left.seconds < 11.0


def test_a_long_way_is_no_standstill() -> None:
    """Of a message of many pieces a few leave at a time, for longer than a leaver waits where
    nothing moves."""
    outcome = run(
        "at: 1s, do: leave, member: n1",
        cluster="{members: 2, stack: udp, timing: fast, joins: one-by-one, "
        "protocols: {MFC: {max_credits: 3000}, FRAG: {frag_size: 500}}}",
        load="{do: multicast, from: n1, count: 1, rate: 10/s, size: 40KB}",
        network="{delay: 300ms}",
    )
    left = leaver(outcome)
    assert outcome.verdict is Verdict.HOLDS, outcome.judgement.findings
    assert left.given_up == 0
    assert left.was_sending > 5.0
