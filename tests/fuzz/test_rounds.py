"""A round says what is wrong: each thing that it asks for is broken here once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from stormcast.chaos.backends.base import BackendError, MemberError
from tests.fuzz import rounds
from tests.fuzz.datagrams import FILTERED
from tests.fuzz.frames import CHUNK
from tests.fuzz.groups import BY_NAME, NAMES
from tests.fuzz.rounds import BLOCKS, KEYED, LEAST_RATE, MIB, PLAIN, Assault, Result, Round
from tests.fuzz.tallies import Tally

COUNT = BLOCKS * 64 * CHUNK


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "END_PAUSE", 0.0)


class Process:
    """A member's process, of which a test says what becomes of it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.code: int | None = None
        self.lingers = 0
        """Looks at it before its end is seen."""
        self.memory = 35 * MIB

    @property
    def is_alive(self) -> bool:
        if self.code is None or self.lingers:
            self.lingers -= self.code is not None
            return True
        return False

    def rss(self) -> int:
        if self.code is not None:
            raise ProcessLookupError
        return self.memory

    def tail(self, _lines: int) -> str:
        return "Traceback\nsegmentation fault"


class Group:
    """Three members that count all that is sent to them, rightly unless a test says otherwise."""

    def __init__(self) -> None:
        self.members = {name: Process() for name in NAMES}
        self.stats: dict[str, Counter[str]] = {name: Counter() for name in NAMES}
        self.view = "5@n0"
        self.is_mute = False
        self.catches_up = 0
        self.target = BY_NAME["udp"]
        self.group = self

    def processes(self) -> dict[str, Process]:
        return self.members

    def wait(self, seconds: float) -> None:
        """Let a member read what it has not read yet, in the third second of it."""
        if seconds >= 1.0 and self.catches_up:
            self.catches_up -= 1
            if not self.catches_up:
                self.stats["n0"]["stack.refused.digest"] += 64

    def state(self, name: str) -> dict[str, Any]:
        if self.is_mute:
            raise MemberError("no answer")
        return {"view": {"id": self.view}, "stats": dict(self.stats[name])}


class Attacker:
    """Sends nothing: members count what it says that it has sent."""

    def __init__(self, group: Group, does: Callable[[Group, int], None]) -> None:
        self._group = group
        self._does = does
        self.rates: list[float] = []
        self._asked = (0, 0)

    def ask(self, first: int, count: int, rate: float) -> None:
        self._asked = first, count
        self.rates.append(rate)

    def has_answered(self) -> bool:
        return True

    def tally(self) -> Tally:
        first, count = self._asked
        tally = Tally()
        tally.sent["frames"] = count * CHUNK
        for name in NAMES:
            told = {"digest": count, "short": 1}
            tally.foresee(name, told, {"magic": 2})
            for why, number in {**told, "magic": 1}.items():
                self._group.stats[name][f"stack.refused.{why}"] += number
        self._does(self._group, first)
        return tally


def assault(
    does: Callable[[Group, int], None] = lambda _group, _first: None, part: str = PLAIN
) -> tuple[Result, Any]:
    """A round at such a group; `does` happens after each block."""
    group = Group()
    attacker = Attacker(group, does)
    result = Result(round=Round(target="udp", part=part, seed=1, first=0, count=COUNT))
    made = Assault(group, attacker, result, lambda _text: None)  # type: ignore[arg-type]
    made.run()
    made.count_files()
    return result, attacker


def test_a_group_that_does_all_of_it_has_no_finding() -> None:
    result, attacker = assault()
    assert result.findings == []
    assert result.sent["frames"] == COUNT
    assert result.foreseen == 3 * (COUNT // CHUNK + BLOCKS)
    assert (result.views, result.lost) == (0, 0)
    assert set(attacker.rates) == {BY_NAME["udp"].rate}


def test_an_end_is_found_at_once_and_its_words_are_told() -> None:
    def ends(group: Group, first: int) -> None:
        if first >= 640:
            group.members["n1"].code = -11

    result, attacker = assault(ends)
    assert result.findings == ["n1 ended with -11: Traceback | segmentation fault"]
    assert len(attacker.rates) == 11


def test_an_end_between_two_looks_is_found() -> None:
    """The process is there when it is looked for, and gone when its memory is."""

    def ends(group: Group, first: int) -> None:
        if first == 640:
            ended = group.members["n2"]
            ended.code, ended.lingers, group.is_mute = 3, 1, True

    assert "n2 ended with 3" in assault(ends)[0].findings[0]


def test_what_breaks_while_a_member_ends_is_its_end() -> None:
    """The rig asks a member that leaves because of a bug, and whose endpoint is gone."""

    def ends(group: Group, first: int) -> None:
        if first == 640:
            group.members["n0"].code, group.members["n0"].lingers = 3, 5
            raise BackendError("n0: no such socket")

    assert "n0 ended with 3" in assault(ends)[0].findings[0]


def test_what_breaks_while_everybody_lives_is_no_finding() -> None:
    def breaks(_group: Group, _first: int) -> None:
        raise BackendError("the agent is gone")

    with pytest.raises(BackendError, match="the agent is gone"):
        assault(breaks)


def test_memory_that_grows_with_the_frames_is_found() -> None:
    def grows(group: Group, _first: int) -> None:
        group.members["n2"].memory += 64 * CHUNK * 1000 // len(NAMES)

    (finding,) = assault(grows)[0].findings
    assert "memory of n2 grows by 1000.0 bytes per frame" in finding


@pytest.mark.parametrize(("change", "counted"), [(-1, 63), (1, 65)])
def test_a_refusal_too_few_or_too_many_is_found(change: int, counted: int) -> None:
    def miscounts(group: Group, first: int) -> None:
        if first == 0:
            group.stats["n0"]["stack.refused.digest"] += change

    (finding,) = assault(miscounts)[0].findings
    total = COUNT // CHUNK
    assert finding == (
        f"n0 counted {total - 64 + counted} refusals for digest, not {total} to {total}"
    )


@pytest.mark.parametrize(("part", "number", "is_found"), [
    (KEYED, 1, False), (KEYED, 10**6, True), (PLAIN, 1, True),
])  # fmt: skip  # one case after the other
def test_what_members_say_twice_in_one_seal_is_no_replay_of_the_attacker(
    part: str, number: int, *, is_found: bool
) -> None:
    """A few a second, in a group with keys; more are a finding."""

    def repeats(group: Group, first: int) -> None:
        if first == 0:
            group.stats["n0"]["stack.refused.replayed"] += number

    findings = assault(repeats, part)[0].findings
    assert bool(findings) is is_found
    assert not is_found or findings[0].startswith(f"n0 counted {number} refusals for replayed")


def test_what_may_be_refused_has_a_range() -> None:
    def refuses(group: Group, _first: int) -> None:
        group.stats["n1"]["stack.refused.magic"] += 1

    def refuses_more(group: Group, _first: int) -> None:
        group.stats["n1"]["stack.refused.magic"] += 2

    assert assault(refuses)[0].findings == []
    assert len(assault(refuses_more)[0].findings) == 1


def test_what_the_kernel_dropped_is_subtracted_and_slows_the_attack_down() -> None:
    def drops(group: Group, first: int) -> None:
        if first < 20 * 64:
            group.stats["n0"]["transport.kernel_drops"] += 10
            group.stats["n0"]["stack.refused.digest"] -= 10

    result, attacker = assault(drops)
    assert result.findings == []
    assert result.lost == 200
    assert min(attacker.rates) == LEAST_RATE
    assert attacker.rates[-1] > LEAST_RATE


def test_what_the_filter_dropped_is_no_loss() -> None:
    group = Group()
    attacker = Attacker(group, lambda _group, _first: None)
    result = Result(round=Round(target="udp", part=PLAIN, seed=1, first=0, count=64 * CHUNK))
    plain = attacker.tally

    def tally() -> Tally:
        made = plain()
        made.foresee("n0", {FILTERED: 7})
        group.stats["n0"]["transport.kernel_drops"] += 7
        return made

    attacker.tally = tally  # type: ignore[method-assign]
    Assault(group, attacker, result, lambda _text: None).run()  # type: ignore[arg-type]
    assert result.lost == 0
    assert result.findings == []


def test_another_view_is_counted_at_each_member_that_holds_it() -> None:
    def changes(group: Group, first: int) -> None:
        if first == 640:
            group.view = "6@n0"

    assert assault(changes)[0].views == 3


def test_a_member_that_runs_and_does_not_answer_is_found() -> None:
    def mutes(group: Group, first: int) -> None:
        group.is_mute = first >= 640

    assert assault(mutes)[0].findings == ["n0 does not answer: no answer"]


def test_what_a_busy_member_counts_late_is_waited_for() -> None:
    late: list[Group] = []

    def falls_behind(group: Group, first: int) -> None:
        if first == 0:
            late.append(group)
            group.stats["n0"]["stack.refused.digest"] -= 64
            group.catches_up = 3

    assert assault(falls_behind)[0].findings == []
    assert late[0].catches_up == 0


def test_descriptors_that_stay_open_are_found() -> None:
    opened: list[int] = []

    def leaves(_group: Group, first: int) -> None:
        if first == 0:
            opened.extend(os.dup(0) for _ in range(20))

    result, _attacker = assault(leaves)
    for one in opened:
        os.close(one)
    assert len(result.findings) == len(NAMES)
    assert "descriptors, and had" in result.findings[0]


def test_an_answer_that_must_not_be_is_a_finding_with_its_number() -> None:
    group = Group()
    attacker = Attacker(group, lambda _group, _first: None)
    plain = attacker.tally

    def tally() -> Tally:
        made = plain()
        made.find(77, "hostile-body: answered 500")
        return made

    attacker.tally = tally  # type: ignore[method-assign]
    result = Result(round=Round(target="udp", part=PLAIN, seed=1, first=0, count=64 * CHUNK))
    Assault(group, attacker, result, lambda _text: None).run()  # type: ignore[arg-type]
    assert result.findings == ["frame 77: hostile-body: answered 500"]
