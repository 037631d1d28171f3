"""H1: each key is one linearizable register."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormcast.chaos.histories import register
from stormcast.chaos.histories.linearizable import search
from stormcast.chaos.histories.operations import NEVER, History, Operation, Outcome
from stormcast.chaos.histories.values import NULL, Value
from stormcast.findings import Finding, Verdict
from tests.histories.clients import history, read_lines
from tests.histories.simulated import Line, Request, Simulation, ends

SEEDS = st.integers(0, 2**32)


def findings(*told: str) -> list[Finding]:
    return register.check(history(*told), None)


def lines_of(finding: Finding) -> list[int]:
    """The lines whose operations a witness has."""
    return [int(one.split(":")[1].split(" ")[0]) for one in finding.witness]


def assert_violated(found: list[Finding], *witness: int) -> None:
    (one,) = found
    assert one.verdict is Verdict.VIOLATED
    assert lines_of(one) == list(witness), one


# -- From the sentence ---------------------------------------------------------------------------


def test_a_read_finds_the_last_write() -> None:
    assert not findings("0 invoke write 1", "0 ok write", "1 invoke read", "1 ok read 1")


def test_a_register_that_nobody_wrote_is_null() -> None:
    assert not findings("1 invoke read", "1 ok read null")
    assert_violated(findings("1 invoke read", "1 ok read 1"), 1)


def test_a_stale_read_is_a_violation() -> None:
    """1 is read, overwritten by 2, and read again. By whom it was written does not matter: it was
    once."""
    found = findings(
        "0 invoke write 1",
        "0 ok write",
        "9 invoke read",
        "9 ok read 1",
        "0 invoke write 2",
        "0 ok write",
        "1 invoke read",
        "1 ok read 1",
    )
    assert_violated(found, 3, 5, 7)
    assert found[0].at == 8.0
    assert found[0].detail == (
        "the register: no order explains its operations up to line 8; just before it could be 2"
    )


def test_a_read_during_a_write_may_find_both_values_but_not_the_old_one_after_the_new() -> None:
    wrote = ["0 invoke write 1", "0 ok write", "0 invoke write 2"]
    new, old = ["1 invoke read", "1 ok read 2"], ["2 invoke read", "2 ok read 1"]
    assert not findings(*wrote, *new)
    assert not findings(*wrote, *old, *new)
    assert_violated(findings(*wrote, *new, *old, "0 ok write"), 1, 4, 6)


def test_keys_are_registers_of_their_own() -> None:
    assert not findings("0 invoke write@x 1", "0 ok write@x", "0 invoke read@y", "0 ok read@y null")
    found = findings("0 invoke write@x 1", "0 ok write@x", "0 invoke read@x", "0 ok read@x null")
    assert_violated(found, 1, 3)
    assert found[0].detail.startswith("register x: ")


def test_compare_and_set_needs_what_it_expects() -> None:
    wrote = ["0 invoke write 1", "0 ok write"]
    right = [*wrote, "0 invoke cas [1, 2]", "0 ok cas", "0 invoke read", "0 ok read 2"]
    assert not findings(*right)
    assert_violated(findings(*wrote, "0 invoke cas [2, 3]", "0 ok cas"), 3)
    first = ["0 invoke cas [null, 1]", "0 ok cas"]
    assert not findings(*first)
    assert_violated(findings(*wrote, *first), 1, 3)


def test_of_two_that_expect_the_same_one_fails() -> None:
    both = ["0 invoke cas [null, 1]", "1 invoke cas [null, 2]", "0 ok cas"]
    assert not findings(*both, "1 fail cas")
    assert_violated(findings(*both, "1 ok cas"), 1, 2)


def test_what_failed_did_not_happen() -> None:
    failed = ["0 invoke write 1", "0 fail write", "1 invoke read"]
    assert not findings(*failed, "1 ok read null")
    assert_violated(findings(*failed, "1 ok read 1"), 3)


def test_what_nobody_knows_happened_once_at_any_time_or_never() -> None:
    unknown = ["0 invoke write 1", "0 info write", "1 invoke write 2", "1 ok write"]
    old, new = ["2 invoke read", "2 ok read 2"], ["3 invoke read", "3 ok read 1"]
    assert not findings(*unknown, *old)
    assert not findings(*unknown, *new)
    assert not findings(*unknown, *old, *new)
    assert_violated(findings(*unknown, *new, *old), 3, 5, 7)
    # The end of another one is not in its way, and it cannot come before it was invoked.
    assert_violated(findings(*new, "0 invoke write 1", "0 info write"), 1, 3)


def test_values_differ_as_json_does() -> None:
    wrote = ["0 invoke write true", "0 ok write", "0 invoke read"]
    assert not findings(*wrote, "0 ok read true")
    assert findings(*wrote, "0 ok read 1")


def test_what_is_not_decided_in_time_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes that overlap, all read much later: without luck each set of them is tried."""
    told = [f"{n} invoke write {n}" for n in range(12)] + [f"{n} ok write" for n in range(12)]
    told += [f"{n} invoke read" for n in range(12)] + [f"{n} ok read {n}" for n in range(12)]
    monkeypatch.setattr(register, "MOST_STEPS", 5000)
    (found,) = findings(
        *told, "0 invoke write@y 1", "0 ok write@y", "0 invoke read@y", "0 ok read@y 2"
    )[1:]
    assert found.verdict is Verdict.UNKNOWN
    assert found.detail.startswith("the register: not decided within 5000 steps; ")


@pytest.mark.parametrize(
    "told",
    [
        ["0 invoke delete 1"],
        ["0 invoke write"],
        ["0 invoke write null"],
        ["0 invoke write 1", "0 ok write 2"],
        ["0 invoke cas 1"],
        ["0 invoke cas [1]"],
        ["0 invoke cas [1, null]"],
        ["0 invoke read", "0 ok read"],
    ],
)
def test_what_is_no_operation_of_a_register_is_malformed(told: list[str]) -> None:
    assert register.malformed(history(*told).operations[0])


# -- Against a search that tries everything --------------------------------------------------------


def is_linearizable(operations: Sequence[Operation], state: Value = NULL) -> bool:
    """Whether some order of all that happened, and some of what may have, explains it."""
    must = [one for one in operations if one.is_ok]
    if not must:
        return True
    first_end = min(one.ended for one in must)
    for one in operations:
        if one.outcome is Outcome.FAIL or one.invoked > first_end:
            continue
        after = state
        if one.f == "write":
            assert one.argument is not None
            after = one.argument
        elif one.f == "cas":
            assert isinstance(one.argument, tuple)
            expected, after = one.argument
            if expected != state:
                continue
        elif one.is_ok and one.result != state:
            continue
        if is_linearizable([other for other in operations if other is not one], after):
            return True
    return False


def first_bad_line(operations: Sequence[Operation]) -> int | None:
    """The first end up to which there is no order; who ends later may have happened by then."""
    for line in sorted(one.ended for one in operations if one.is_ok):
        begun = [one for one in operations if one.invoked < line]
        sure = [one for one in begun if not one.is_ok or one.ended <= line]
        # A read that has not ended explains nothing, and hinders nothing.
        open_ones = [as_info(one, one.invoked) for one in begun if one.is_ok and one.ended > line]
        if not is_linearizable(sure + open_ones):
            return line
    return None


def as_info(one: Operation, invoked: int) -> Operation:
    return replace(one, result=None, outcome=Outcome.INFO, invoked=invoked, ended=NEVER)


def arbitrary(seed: int, most: int = 7) -> History:
    """Clients of an object that answers anything."""
    random = Random(seed)
    values = [1, 2, 3][: random.randint(1, 3)]

    def answer(request: Request) -> tuple[bool, object]:
        return True, random.choice([None, *values]) if request.f == "read" else request.value

    simulation = Simulation(random, answer, info=0.2)
    return read_lines(simulation.play(requests(random, random.randint(1, most), values)))


def requests(
    random: Random, count: int, values: list[int], keys: str = ""
) -> list[tuple[str, str | None, object]]:
    made: list[tuple[str, str | None, object]] = []
    for _ in range(count):
        key = random.choice(keys) if keys else None
        match random.choice(["read", "read", "write", "write", "cas"]):
            case "cas":
                pair = [random.choice([None, *values]), random.choice(values)]
                made.append(("cas", key, pair))
            case "write":
                made.append(("write", key, random.choice(values)))
            case f:
                made.append((f, key, None))
    return made


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 4000, 1000))
def test_the_verdict_and_the_line_are_those_of_a_search_that_tries_everything(first: int) -> None:
    verdicts = set()
    for seed in range(first, first + 1000):
        told = arbitrary(seed)
        calls = register._calls_of(told).get(NULL, [])
        answer = search(calls, NULL, 10**6)
        line = answer.stuck_at.last if answer.stuck_at else None
        assert answer.is_decided
        assert line == first_bad_line(told.operations), f"seed {seed}"
        assert (line is None) == is_linearizable(told.operations), f"seed {seed}"
        verdicts.add(line is None)
    assert verdicts == {True, False}


@pytest.mark.slow
@given(seed=SEEDS)
def test_a_witness_shows_a_violation_whatever_the_others_did(seed: int) -> None:
    """The operations of a witness cannot be ordered even if each other one happened at any time, or
    never; and of no fewer of them is that so."""
    told = arbitrary(seed)
    for finding in register.check(told, None):
        witness = set(lines_of(finding))
        assert finding.at is not None
        assert cannot_be_ordered(told, witness, finding.at)
        for line in witness:
            assert not cannot_be_ordered(told, witness - {line}, finding.at)


def cannot_be_ordered(told: History, lines: set[int], until: float) -> bool:
    at_any_time = [
        as_info(one, 0)
        for one in told.operations
        if one.invoked not in lines and one.outcome is not Outcome.FAIL and one.f != "read"
    ]
    kept = [
        one if one.end <= until else as_info(one, one.invoked)
        for one in told.operations
        if one.invoked in lines
    ]
    return not is_linearizable([*kept, *at_any_time])


# -- Of registers that are right, and wrong --------------------------------------------------------


class Registers:
    """Registers as they should be."""

    def __init__(self) -> None:
        self.held: dict[str | None, object] = {}

    def __call__(self, request: Request) -> tuple[bool, object]:
        held = self.held.get(request.key)
        if request.f == "read":
            return True, held
        if request.f == "cas":
            assert isinstance(request.value, list)
            expected, new = request.value
            if held != expected:
                return False, None
            self.held[request.key] = new
        else:
            self.held[request.key] = request.value
        return True, request.value


def played(seed: int, count: int, values: list[int], keys: str) -> list[Line]:
    random = Random(seed)
    simulation = Simulation(random, Registers(), processes=random.randint(1, 8))
    return simulation.play(requests(random, count, values, keys))


@pytest.mark.slow
@given(seed=SEEDS, most=st.sampled_from([3, 1000]), keys=st.sampled_from(["x", "xyz"]))
def test_clients_of_a_register_find_one(seed: int, most: int, keys: str) -> None:
    lines = played(seed, 120, list(range(1, most)), keys)
    assert register.check(read_lines(lines), None) == []


@pytest.mark.slow
@given(seed=SEEDS)
def test_a_value_that_nobody_wrote_is_found_with_its_read_alone(seed: int) -> None:
    lines = played(seed, 60, list(range(1, 1000)), "xy")
    reads = ends(lines, "read")
    if reads:
        wrong = reads[seed % len(reads)]
        wrong["value"] = 5000
        (found,) = register.check(read_lines(lines), None)
        assert found.at == wrong["time"]
        assert len(found.witness) == 1
        assert "ok 5000" in found.witness[0]


@pytest.mark.slow
@given(seed=SEEDS)
def test_a_changed_answer_is_judged_as_by_a_search_that_tries_everything(seed: int) -> None:
    """Stale reads, lost writes, and a compare-and-set that does not compare: some are legal."""
    lines = played(seed, 9, [1, 2, 3], "x")
    random = Random(seed)
    changed = random.choice(lines)
    if changed["type"] == "ok" and changed["f"] == "read":
        changed["value"] = random.choice([None, 1, 2, 3])
    elif changed["type"] == "fail":
        changed["type"] = "ok"
        changed["value"] = 1 if changed["f"] == "read" else None
        if changed["f"] != "read":
            del changed["value"]
    told = read_lines(lines)
    found = register.check(told, None)
    assert bool(found) != is_linearizable(told.operations)


def test_a_cas_that_ignores_what_it_expects_is_found() -> None:
    class Careless(Registers):
        def __call__(self, request: Request) -> tuple[bool, object]:
            if request.f == "cas":
                assert isinstance(request.value, list)
                self.held[request.key] = request.value[1]
                return True, request.value
            return super().__call__(request)

    found = 0
    for seed in range(20):
        random = Random(seed)
        simulation = Simulation(random, Careless())
        lines = simulation.play(requests(random, 60, list(range(1, 1000)), "x"))
        found += bool(register.check(read_lines(lines), None))
    assert found == 20
