"""Hostile frames and requests against groups at work: a short piece of `make fuzz-live`.

Frames are those of `tests/fuzz`, of a seed of their own. Nobody ends, memory and descriptors stay,
each refusal that follows from the bytes is counted, the view stays, and all guarantees hold.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.groups import BY_NAME, NAMES, Attacker, Siege
from tests.fuzz.rounds import FORGED, KEYED, MIB, PLAIN, Round, attack, judge, play
from tests.fuzz.streams import HELLO, UNKNOWN
from tests.helpers.live import stats

pytestmark = [pytest.mark.root, pytest.mark.slow]

SEED = 2026
DEAF = 12
"""Connections on which nothing is read."""
DEAF_BYTES = 8 * MIB
"""What they may cost, as much as other strangers (docs/testing.md#strangers)."""


def frames(target: str, count: int, part: str = PLAIN) -> Round:
    return Round(target=target, part=part, seed=SEED, first=0, count=count)


def say(text: str) -> None:
    print(text)


def test_datagrams_watchers_and_requests_at_one_group(tmp_path: Path) -> None:
    """One group over UDP: its sockets, the ports of FD_SOCK2, and an endpoint with a token."""
    with Siege(BY_NAME["control"], tmp_path, SEED) as siege:
        for target, count in (("udp", 16_000), ("fd-sock2", 4000), ("control", 1200)):
            result = attack(siege, frames(target, count), say)
            print(result)
            assert result.findings == []
            assert result.sent["frames"] == count
            assert target == "control" or sum(result.refused.values()) > count / 10
        judge(siege, result)
    assert result.findings == []
    assert result.verdict == "holds"


def test_streams_at_a_group_over_tcp(tmp_path: Path) -> None:
    result = play(BY_NAME["tcp-nio2"], frames("tcp-nio2", 4000), tmp_path, say, None)
    print(result)
    assert result.findings == []
    assert result.verdict == "holds"
    assert result.refused["transport.refused_hello-cookie"] > 10


def test_a_group_with_a_key_its_keeper_and_an_agent(tmp_path: Path) -> None:
    """Over UDP. All that a group without keys believes is sent, and nothing comes of it."""
    with Siege(BY_NAME["keeper"], tmp_path, SEED, is_keyed=True) as siege:
        siege.start_agent()
        for target, count in (("udp", 4096), ("fd-sock2", 512), ("keeper", 504), ("agent", 504)):
            result = attack(siege, frames(target, count, KEYED), say)
            print(result)
            assert result.findings == []
            assert result.views == 0
            assert result.sent["frames"] == count
            if target == "udp":
                assert result.powers["view"] > 10
                assert result.sent["KEYS"] > 0
                for why in ("not-sealed", "key-unknown", "forged", "replayed"):
                    assert result.refused[why] > 10
            if target == "fd-sock2":
                assert result.refused[UNKNOWN] > 100
        judge(siege, result)
    assert result.findings == []
    assert result.verdict == "holds"


def test_streams_at_a_group_with_a_key(tmp_path: Path) -> None:
    """Connections of those without the key end, and are told that there is one."""
    result = play(BY_NAME["tcp"], frames("tcp", 1024, KEYED), tmp_path, say, None)
    print(result)
    assert result.findings == []
    assert (result.views, result.verdict) == (0, "holds")
    for why in ("not-sealed", "key-unknown", "forged", "replayed"):
        assert result.refused[f"{HELLO}{why}"] > 5
    assert result.sent["KEYS"] > 50


@pytest.mark.long
@pytest.mark.parametrize("target", ["tcp", "tcp-nio2"])
def test_who_asks_and_never_reads_costs_a_bounded_amount(target: str, tmp_path: Path) -> None:
    """Strangers whose connections stand, with as many answers in them as a member lets wait."""
    most = 0
    with Siege(BY_NAME[target], tmp_path, SEED) as siege:
        path = tmp_path / "facts.json"
        facts = siege.facts(0.0)
        facts.save(path)
        rss = siege.processes()[facts.members[0].name].rss
        before = rss()
        order = {"by": "deaf", "seed": SEED, "facts": str(path), "is_defused": True}
        with Attacker(siege, order) as attacker:
            attacker.ask(0, DEAF, 0.0)
            while not attacker.has_answered():
                siege.group.wait(0.1)
                most = max(most, rss() - before)
            assert attacker.tally().sent["connections"] == DEAF
            siege.group.wait_for_traffic(*NAMES)
            most = max(most, rss() - before)
        siege.group.stop()
        siege.group.finish()
    print(f"{target}: memory grown by {most / MIB:.1f} MiB")
    assert most < DEAF_BYTES


@pytest.mark.parametrize("target", ["tcp", pytest.param("tcp-nio2", marks=pytest.mark.long)])
def test_strangers_cannot_have_a_member_dial_the_world(target: str, tmp_path: Path) -> None:
    """A thousand greetings, each of which names another address, and then nothing more of them."""
    most = 0
    with Siege(BY_NAME[target], tmp_path, SEED) as siege:
        facts = tmp_path / "facts.json"
        siege.facts(0.0).save(facts)
        order = {"by": "greetings", "seed": SEED, "facts": str(facts), "is_defused": True}
        with Attacker(siege, order) as attacker:
            attacker.ask(0, 1000, 0.0)
            while not attacker.has_answered():
                siege.group.wait(0.1)
            assert attacker.tally().sent["connections"] == 1000
        for _look in range(15):
            siege.group.wait(0.2)
            most = max(most, stats(siege.group, "n0")["transport.connections_dialled"])
        siege.group.wait_for_traffic(*NAMES)
        siege.group.stop()
        siege.group.finish()
    assert most < 100


@pytest.mark.long
@pytest.mark.parametrize("target", ["tcp", "agent", "keeper"])
def test_the_same_elsewhere(target: str, tmp_path: Path) -> None:
    result = play(BY_NAME[target], frames(target, 3000), tmp_path, say, None)
    print(result)
    assert result.findings == []
    assert result.verdict == "holds"


@pytest.mark.long
@pytest.mark.parametrize("target", ["udp", "tcp", "tcp-nio2"])
def test_frames_that_members_must_believe_end_nobody(target: str, tmp_path: Path) -> None:
    """Without keys the group is the attacker's: its members still run, and answer."""
    result = play(BY_NAME[target], frames(target, 8000, FORGED), tmp_path, say, None)
    print(result)
    assert result.findings == []
    assert result.powers["view"] > 50
