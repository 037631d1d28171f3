"""H4: transactions that append to lists and read them have a serial order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormcast.chaos.histories import list_append, transactions
from stormcast.chaos.histories.cycles import Edge, Graph
from stormcast.chaos.histories.operations import History, Operation, Outcome
from stormcast.chaos.histories.quiet import Quiet
from stormcast.chaos.histories.transactions import steps_of
from stormcast.chaos.histories.values import Value
from stormcast.findings import Finding, Verdict
from tests.histories.clients import history, read_lines
from tests.histories.simulated import Line, Request, Simulation, ends

SEEDS = st.integers(0, 2**32)
Lists = dict[Value, tuple[Value, ...]]


def txn(steps: str, process: int = 0, end: str = "ok") -> tuple[str, str]:
    """A transaction: `a x 1, r x [1]`."""
    asked, answered = [], []
    for step in steps.split(", "):
        kind, key, value = step.split(" ", 2)
        name = '"append"' if kind == "a" else '"r"'
        asked.append(f'[{name}, "{key}", {value if kind == "a" else "null"}]')
        answered.append(f'[{name}, "{key}", {value.replace(" ", ", ")}]')
    asked_text, answered_text = ", ".join(asked), ", ".join(answered)
    return f"{process} invoke txn [{asked_text}]", f"{process} {end} txn [{answered_text}]"


def strict(*told: str) -> list[Finding]:
    return list_append.check_strict(history(*told), Quiet(0.0))


def serial(*told: str) -> list[Finding]:
    return list_append.check_serial(history(*told), Quiet(0.0))


def together(*pairs: tuple[str, str]) -> tuple[str, ...]:
    """Transactions of which each is invoked before any ends; process n has the n-th."""
    told = [(f"{n}{one[1:]}", f"{n}{other[1:]}") for n, (one, other) in enumerate(pairs)]
    return (*(one for one, _other in told), *(other for _one, other in told))


def assert_violated(found: list[Finding], detail: str, *witness: int) -> None:
    (one,) = [one for one in found if one.verdict is Verdict.VIOLATED]
    assert one.detail == detail
    assert [int(shown.split(":")[1].split(" ")[0]) for shown in one.witness] == list(witness)


def assert_unknown(found: list[Finding], detail: str) -> None:
    (one,) = found
    assert one.verdict is Verdict.UNKNOWN
    assert detail in one.detail


def test_transactions_one_after_the_other_are_serial() -> None:
    assert (
        strict(*txn("a x 1, r x [1]"), *txn("r x [1], a x 2, a y 1"), *txn("r x [1 2], r y [1]"))
        == []
    )


def test_single_appends_and_reads_are_transactions_of_one() -> None:
    told = ("0 invoke append@x 1", "0 ok append@x", "0 invoke read@x", "0 ok read@x [1]")
    assert strict(*told) == []
    assert strict(*told[:-1], "0 ok read@x []")[0].verdict is Verdict.VIOLATED


def test_a_transaction_reads_what_it_has_read_and_appended_itself() -> None:
    detail = "x: a transaction does not read what it had read and appended itself"
    assert_violated(strict(*txn("a x 1, r x []")), detail, 1)
    assert_violated(strict(*txn("a x 1"), *txn("r x [], r x [1]")), detail, 3)
    assert_violated(strict(*txn("a x 1"), *txn("a x 2, r x [2 1]")), detail, 3)
    assert_violated(
        strict(*txn("r x [1], a x 1")), "x: a transaction reads what it appends later", 1
    )


def test_an_element_that_nobody_appended_is_a_violation() -> None:
    assert_violated(strict(*txn("r x [7]")), "x: 7 was read, and nobody appended it", 1)
    found = strict(*txn("r x [1]"), *txn("a x 1"), *txn("r x [1]"))
    assert_violated(found, "x: 1 was read before anybody appended it", 1, 3)
    found = strict(*txn("a x 1"), *txn("r x [1 1]"))
    assert_violated(found, "x: a list that was read has an element twice", 3)


def test_g1a_what_failed_is_read_by_nobody() -> None:
    found = serial(*txn("a x 1", end="fail"), *txn("r x [1]"))
    assert_violated(found, "x: 1 was read, and its transaction failed (G1a)", 1, 3)


def test_g1b_nobody_reads_within_a_transaction() -> None:
    found = serial(*txn("a x 1, a x 2"), *txn("r x [1]"), *txn("r x [1 2]"))
    assert_violated(found, "x: a read ends with 1, within its transaction (G1b)", 1, 3)


def test_lists_grow_at_their_ends_only() -> None:
    detail = "x: two reads cannot be of one list that grows at its end"
    appended = (*txn("a x 1"), *txn("a x 2"))
    assert_violated(serial(*appended, *txn("r x [1 2]"), *txn("r x [2]")), detail, 5, 7)
    assert_violated(serial(*appended, *txn("r x [1 2]"), *txn("r x [2 1]")), detail, 5, 7)


def test_g0_appends_of_two_transactions_are_not_mixed() -> None:
    both = together(txn("a x 1, a y 1"), txn("a x 2, a y 2"))
    found = serial(*both, *txn("r x [1 2], r y [2 1]"))
    assert_violated(found, "no serial order (G0): line 1 -ww x-> line 2 -ww y-> line 1", 1, 2)


def test_g1c_two_transactions_do_not_read_of_each_other() -> None:
    both = together(txn("a x 1, r y [1]"), txn("a y 1, r x [1]"))
    found = serial(*both, *txn("r x [1], r y [1]"))
    assert_violated(found, "no serial order (G1c): line 1 -wr x-> line 2 -wr y-> line 1", 1, 2)


def test_g_single_a_transaction_reads_all_of_another_one_or_nothing() -> None:
    both = together(txn("a x 1, a y 1"), txn("r x [1], r y []"))
    found = serial(*both, *txn("r x [1], r y [1]"))
    assert_violated(found, "no serial order (G-single): line 1 -wr x-> line 2 -rw y-> line 1", 1, 2)


def test_g_single_an_update_is_not_lost() -> None:
    """Both read nothing, and append: the second had to read what the first appended."""
    both = together(txn("r x [], a x 1"), txn("r x [], a x 2"))
    found = serial(*both, *txn("r x [1 2]"))
    assert_violated(found, "no serial order (G-single): line 1 -ww x-> line 2 -rw x-> line 1", 1, 2)


def test_g2_two_do_not_both_read_what_was_before_the_other() -> None:
    """Write skew."""
    both = together(txn("r x [], a y 1"), txn("r y [], a x 1"))
    found = serial(*both, *txn("r x [1], r y [1]"))
    assert_violated(found, "no serial order (G2): line 1 -rw x-> line 2 -rw y-> line 1", 1, 2)
    both = together(txn("r x [], a x 1"), txn("r x [], a x 2"))
    assert_violated(
        serial(*both)[:1], "no serial order (G2): line 1 -rw x-> line 2 -rw x-> line 1", 1, 2
    )


def test_a_stale_read_is_serial_and_not_strict() -> None:
    told = (*txn("a x 1"), *txn("a x 2"), *txn("r x [1]"), *txn("r x [1 2]"))
    assert serial(*told) == []
    detail = "no serial order (G-single, by real time): line 3 -rt-> line 5 -rw x-> line 3"
    assert_violated(strict(*told), detail, 3, 5)


def test_real_time_goes_by_way_of_nobody_else() -> None:
    """Twenty transactions lie between the two of which the witness is."""
    between = [line for n in range(20) for line in txn(f"a y {n}")]
    told = (*txn("a x 1"), *between, *txn("r x []"), *txn(f"r y [{' '.join(map(str, range(20)))}]"))
    detail = "no serial order (G-single, by real time): line 1 -rt-> line 43 -rw x-> line 1"
    assert_violated(strict(*told), detail, 1, 43)


def test_a_lost_append_is_not_strict_and_where_stale_reads_are_legal_unknown() -> None:
    told = (*txn("a x 1"), *txn("a x 2"), *txn("r x [1]"))
    detail = "no serial order (G-single, by real time): line 3 -rt-> line 5 -rw x-> line 3"
    assert_violated(strict(*told), detail, 3, 5)
    assert_unknown(serial(*told), "x: nobody has read what 1 transactions appended to it (line 3)")


def test_what_nobody_read_later_is_unknown() -> None:
    assert_unknown(
        strict(*txn("r x []"), *txn("a x 1")), "(line 3): have the client read each list"
    )
    assert_unknown(strict(*txn("a x 1, r y []")), "(line 1)")


def test_what_nobody_knows_happened_if_somebody_read_it() -> None:
    unknown = txn("a x 1, a y 1", end="info")
    assert strict(*unknown, *txn("r x [], r y []")) == []
    assert strict(*unknown, *txn("r x []"), *txn("r x [1], r y [1]")) == []
    found = serial(*unknown, *txn("r x [1], r y []", process=1), *txn("r y [1]", process=1))
    assert_violated(found, "no serial order (G-single): line 1 -wr x-> line 3 -rw y-> line 1", 1, 3)


def test_an_element_that_is_appended_twice_lets_nothing_be_judged() -> None:
    assert_unknown(
        strict(*txn("a x 1"), *txn("a x 1"), *txn("r x [7]")), "1 is appended to x twice"
    )


@pytest.mark.parametrize(
    "told",
    [
        ["0 invoke write 1"],
        ["0 invoke append@x"],
        ["0 invoke append@x 1", "0 ok append@x 2"],
        ["0 invoke read@x", "0 ok read@x 1"],
        ["0 invoke txn"],
        ["0 invoke txn 1"],
        ["0 invoke txn [1]"],
        ['0 invoke txn [["append", "x"]]'],
        ['0 invoke txn [["append", "x", null]]'],
        ['0 invoke txn [["w", "x", 1]]'],
        ['0 invoke txn [["r", ["x"], null]]'],
        ['0 invoke txn [["r", "x", null]]', "0 ok txn"],
        ['0 invoke txn [["r", "x", null]]', '0 ok txn [["r", "x", null]]'],
        ['0 invoke txn [["r", "x", null]]', '0 ok txn [["r", "y", []]]'],
        ['0 invoke txn [["r", "x", null]]', "0 ok txn []"],
        ['0 invoke txn [["append", "x", 1]]', '0 ok txn [["append", "x", 2]]'],
    ],
)
def test_what_is_no_transaction_is_malformed(told: list[str]) -> None:
    assert transactions.malformed(history(*told).operations[0])


def test_a_cycle_is_found_in_a_knot_larger_than_the_stack_of_python() -> None:
    graph = Graph(5000)
    for node in range(5000):
        graph.add(Edge(node, (node + 1) % 5000, "ww"))
    assert len(graph.cycle(frozenset({"ww"}))) == 5000
    graph.add(Edge(17, 15, "ww"))
    assert [edge.source for edge in graph.cycle(frozenset({"ww"}))] == [15, 16, 17]
    assert graph.cycle(frozenset({"rw"})) == []


# -- Against a search that tries everything --------------------------------------------------------


def has_order(operations: Sequence[Operation], *, is_strict: bool) -> bool:
    """Whether some order of what happened, with some of what may have, explains all reads."""
    unsure = [one for one in operations if one.outcome is Outcome.INFO]
    sure = [one for one in operations if one.is_ok]
    return any(
        _has_order([*sure, *some], {}, is_strict)
        for count in range(len(unsure) + 1)
        for some in combinations(unsure, count)
    )


def _has_order(left: Sequence[Operation], lists: Lists, is_strict: bool) -> bool:
    if not left:
        return True
    first_end = min(one.completed for one in left) if is_strict else 2**62
    for one in left:
        if one.invoked < first_end:
            after = applied(one, lists)
            rest = [other for other in left if other is not one]
            if after is not None and _has_order(rest, after, is_strict):
                return True
    return False


def applied(one: Operation, lists: Lists) -> Lists | None:
    """The lists after a transaction; None if it would have read something else."""
    after = dict(lists)
    for key, appended, found in steps_of(one):
        if appended is not None:
            after[key] = (*after.get(key, ()), appended)
        elif one.is_ok and found != after.get(key, ()):
            return None
    return after


class Wrong:
    """Lists of which some transactions see only what was there a while ago, or do not append."""

    def __init__(self, random: Random, wrong: float) -> None:
        self.random = random
        self.wrong = wrong
        self.lists: dict[str, list[int]] = defaultdict(list)

    def __call__(self, request: Request) -> tuple[bool, Any]:
        answered = []
        lag = self.random.random() < self.wrong
        loses = self.random.random() < self.wrong / 3
        own: dict[str, list[int]] = defaultdict(list)
        seen = {
            key: held[: len(held) - lag * self.random.randint(0, 2)]
            for key, held in self.lists.items()
        }
        for f, key, value in request.value:
            if f == "append":
                own[key].append(value)
                if not loses:
                    self.lists[key].append(value)
                answered.append([f, key, value])
            else:
                answered.append([f, key, seen.get(key, []) + own[key]])
        return True, answered


def played(
    seed: int, count: int, wrong: float, processes: int = 3, *, is_read_last: bool = False
) -> list[Line]:
    random = Random(seed)
    simulation = Simulation(random, Wrong(random, wrong), processes=processes, fail=0.1, info=0.15)
    number = iter(range(10_000))
    requests: list[tuple[str, str | None, Any]] = []
    for _ in range(count):
        steps = [
            ["append", random.choice("xy"), next(number)]
            if random.random() < 0.5
            else ["r", random.choice("xy"), None]
            for _ in range(random.randint(1, 3))
        ]
        requests.append(("txn", None, steps))
    simulation.play(requests)
    if is_read_last:
        simulation.late.clear()
        simulation.alone("txn", None, [["r", "x", None], ["r", "y", None]])
    return simulation.lines


def shortened(lines: list[Line]) -> History:
    """The history without the ends of what failed or nobody knows having any values."""
    for line in lines:
        if line["type"] in {"fail", "info"}:
            line.pop("value")
    return read_lines(lines)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1200, 400))
def test_the_verdict_is_that_of_a_search_that_tries_everything(first: int) -> None:
    """`holds` and `violated` both mean it; `unknown` is left where nobody read at the end."""
    seen = defaultdict(int)
    for seed in range(first, first + 400):
        told = shortened(played(seed, 6, wrong=0.3))
        for is_strict, check in (
            (True, list_append.check_strict),
            (False, list_append.check_serial),
        ):
            found = check(told, Quiet(0.0))
            worst = max((one.verdict for one in found), default=Verdict.HOLDS)
            expected = has_order(told.operations, is_strict=is_strict)
            assert (worst is Verdict.VIOLATED) != expected, (seed, is_strict, found)
            seen[is_strict, worst] += 1
    assert len(seen) == 6, seen


@pytest.mark.slow
@given(seed=SEEDS)
def test_clients_of_lists_find_them(seed: int) -> None:
    told = shortened(played(seed, 60, wrong=0.0, processes=6, is_read_last=True))
    assert list_append.check_strict(told, Quiet(0.0)) == []
    assert list_append.check_serial(told, Quiet(0.0)) == []


@pytest.mark.slow
@given(seed=SEEDS)
def test_a_list_that_lacks_an_element_or_has_two_changed_is_found(seed: int) -> None:
    random = Random(seed)
    lines = played(seed, 60, wrong=0.0, is_read_last=True)
    lists = [
        step[2]
        for line in ends(lines, "txn")[:-1]
        for step in line["value"]
        if step[0] == "r" and len(step[2]) > 1
    ]
    if lists:
        chosen = random.choice(lists)
        if random.random() < 0.5:
            chosen[0], chosen[1] = chosen[1], chosen[0]
        else:
            del chosen[0]
        told = shortened(lines)
        for check in (list_append.check_strict, list_append.check_serial):
            found = check(told, Quiet(0.0))
            assert found[0].verdict is Verdict.VIOLATED
            assert 1 <= len(found[0].witness) <= 2


@pytest.mark.slow
@given(seed=SEEDS)
def test_an_append_that_is_in_no_list_is_found_by_real_time(seed: int) -> None:
    lines = played(seed, 60, wrong=0.0, is_read_last=True)
    acked = [
        step[2] for line in ends(lines, "txn")[:-1] for step in line["value"] if step[0] == "append"
    ]
    lost = acked[seed % len(acked)]
    for line in ends(lines, "txn"):
        own = any(step[0] == "append" and step[2] == lost for step in line["value"])
        for step in line["value"]:
            if step[0] == "r" and lost in step[2] and not own:
                step[2].remove(lost)
    told = shortened(lines)
    verdicts = {one.verdict for one in list_append.check_strict(told, Quiet(0.0))}
    assert Verdict.VIOLATED in verdicts
    assert list_append.check_serial(told, Quiet(0.0))
