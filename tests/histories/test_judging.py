"""The verdict on a history: `holds` only where something struck, and nothing is in doubt."""

from __future__ import annotations

import json
from math import inf, nan
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormcast.chaos.histories import judging
from stormcast.chaos.histories.judging import MODELS, FaultWindow, judge
from stormcast.chaos.histories.operations import History, HistoryError
from stormcast.chaos.histories.quiet import Quiet
from stormcast.chaos.histories.readiness import judge_readiness
from stormcast.findings import RUN, Finding, Verdict, worst
from tests.histories.clients import history, read_bytes, read_lines

STRUCK = [FaultWindow(0.0, 2.0, "f1")]
RIGHT = {
    "register": ("0 invoke write 1", "0 ok write", "1 invoke read", "1 ok read 1"),
    "set": ("0 invoke add 1", "0 ok add", "1 invoke read", "1 ok read [1]"),
    "queue": ("0 invoke enqueue 1", "0 ok enqueue", "1 invoke drain", "1 ok drain [1]"),
    "list-append": ("0 invoke append 1", "0 ok append", "1 invoke read", "1 ok read [1]"),
    "list-append-serial": ("0 invoke append 1", "0 ok append", "1 invoke read", "1 ok read [1]"),
}
WRONG = {
    "register": "1 ok read 2",
    "set": "1 ok read [2]",
    "queue": "1 ok drain [2]",
    "list-append": "1 ok read [2]",
    "list-append-serial": "1 ok read [2]",
}


def verdict(found: tuple[Finding, ...]) -> Verdict:
    return worst(one.verdict for one in found)


def doubts(found: tuple[Finding, ...]) -> list[str]:
    return [one.detail for one in found if one.guarantee == RUN]


@pytest.mark.parametrize("model", MODELS)
def test_a_right_history_that_was_struck_holds(model: str) -> None:
    (found,) = judge(history(*RIGHT[model]), model, STRUCK)
    assert found.guarantee == MODELS[model].guarantee
    assert found.verdict is Verdict.HOLDS
    assert found.detail == "no violation found in 2 operations"


@pytest.mark.parametrize("model", MODELS)
def test_a_wrong_one_is_violated_struck_or_not(model: str) -> None:
    told = history(*RIGHT[model][:-1], WRONG[model])
    for windows in (STRUCK, []):
        found = judge(told, model, windows)
        assert verdict(found) is Verdict.VIOLATED
        assert found[0].verdict is Verdict.VIOLATED
        assert found[0].witness
        assert found[0].at == 4.0


@pytest.mark.parametrize("model", MODELS)
def test_without_a_fault_nothing_is_proven(model: str) -> None:
    found = judge(history(*RIGHT[model]), model, [])
    assert verdict(found) is Verdict.UNKNOWN
    assert doubts(found) == ["no fault was done, so nothing struck"]


@pytest.mark.parametrize(
    ("start", "end", "strikes"),
    [
        (0, 0.9, False),
        (0, 1, True),
        (1.4, 1.6, True),
        (2, 2.5, True),
        (2.1, 2.9, False),
        (4, 9, True),
        (4.1, 9, False),
    ],
)
def test_a_fault_struck_if_an_operation_was_under_way(
    start: float, end: float, strikes: bool
) -> None:
    """The operations lasted from 1 s to 2 s and from 3 s to 4 s."""
    window = FaultWindow(start, end, "f2")
    found = judge(history(*RIGHT["register"]), "register", [*STRUCK, window])
    assert (verdict(found) is Verdict.HOLDS) == strikes
    if not strikes:
        told = f"fault f2 did not strike: no operation was under way from {start:g}s to {end:g}s"
        assert doubts(found) == [told]


def test_nobody_knows_how_long_an_operation_lasted_that_has_no_end() -> None:
    told = history(*RIGHT["register"], "2 invoke read", "3 invoke read", "3 info read")
    late = FaultWindow(6.5, 9, "f2")
    assert verdict(judge(told, "register", [FaultWindow(5, 5, "f2")])) is Verdict.HOLDS
    assert verdict(judge(told, "register", [late])) is Verdict.HOLDS
    assert verdict(judge(told, "register", [FaultWindow(7.5, 9, "f2")])) is Verdict.UNKNOWN


def test_a_history_in_which_nothing_succeeded_proves_nothing() -> None:
    for told in (History("ops.jsonl", ()), history("0 invoke write 1", "0 fail write")):
        found = judge(told, "register", [FaultWindow(0, 9, "f")])
        assert verdict(found) is Verdict.UNKNOWN
        assert "no operation succeeded" in doubts(found)


def test_a_history_in_which_nothing_was_read_proves_nothing() -> None:
    for told in (
        ("0 invoke write 1", "0 ok write"),
        ("0 invoke write 1", "0 ok write", "1 invoke read"),
    ):
        found = judge(history(*told), "register", STRUCK)
        assert verdict(found) is Verdict.UNKNOWN
        assert doubts(found) == ["nothing was read"]


@pytest.mark.parametrize("model", MODELS)
def test_with_a_line_that_nobody_can_read_nothing_is_judged(model: str) -> None:
    """Neither `holds` nor `violated`: the line may be the one that explains the others."""
    for last in (RIGHT[model][-1], WRONG[model]):
        told = history(*RIGHT[model][:-1], last)
        broken = History(told.source, told.operations, ("ops.jsonl:9: no JSON",), 7)
        (found,) = judge(broken, model, STRUCK)
        assert found.verdict is Verdict.UNKNOWN
        assert found.detail == "7 problems in the history, the first: ops.jsonl:9: no JSON"


@pytest.mark.parametrize("model", MODELS)
def test_an_operation_of_another_model_is_a_problem_with_its_line(model: str) -> None:
    (found,) = judge(history(*RIGHT[model], "0 invoke jump 1"), model, STRUCK)
    assert found.verdict is Verdict.UNKNOWN
    assert "1 problems in the history, the first: ops.jsonl:5: no operation of " in found.detail


def test_a_check_that_crashes_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(_history: History, _quiet: Quiet) -> list[Finding]:
        raise RecursionError

    model = MODELS["register"]
    crashing = judging.Model(model.guarantee, model.malformed, model.is_read, crash)
    monkeypatch.setattr(judging, "MODELS", {"register": crashing})
    (found,) = judge(history(*RIGHT["register"]), "register", STRUCK)
    assert found.verdict is Verdict.UNKNOWN
    assert "its check crashed" in found.detail


def test_quiet_begins_when_the_last_fault_ends_and_the_guest_has_settled() -> None:
    """The read at 3 s lacks an element: it had not to have it while a fault was done."""
    told = history(*RIGHT["set"][:-1], "1 ok read []", "1 invoke read", "1 ok read [1]")
    assert verdict(judge(told, "set", STRUCK)) is Verdict.VIOLATED
    assert verdict(judge(told, "set", STRUCK, settle=1.5)) is Verdict.HOLDS
    assert verdict(judge(told, "set", [*STRUCK, FaultWindow(3, 3.5, "f2")])) is Verdict.HOLDS


def test_findings_are_bounded_and_the_gravest_come_first() -> None:
    told = [f"0 invoke read@k{n}\n0 ok read@k{n} 1" for n in range(100)]
    lines = [line for pair in told for line in pair.split("\n")]
    found = judge(history(*lines), "register", STRUCK)
    assert len(found) == judging.MOST_FINDINGS
    assert [one.at for one in found] == sorted(one.at or 0.0 for one in found)


def test_what_makes_no_sense_is_refused_with_the_remedy() -> None:
    told = history(*RIGHT["register"])
    with pytest.raises(
        HistoryError, match="there is no model regster: choose one of register, set"
    ):
        judge(told, "regster", STRUCK)
    for settle in (-1.0, nan, inf):
        with pytest.raises(HistoryError, match="give seconds, from 0 on"):
            judge(told, "register", STRUCK, settle)
    for start, end in ((2.0, 1.0), (nan, 1.0), (0.0, inf)):
        with pytest.raises(HistoryError, match="fault f lasts from"):
            FaultWindow(start, end, "f")


# -- Strangers -------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    ["read", "write", "cas", "add", "enqueue", "dequeue", "drain", "append", "txn", "r", "invoke"]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | WORDS
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=6,
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "r"]),
        st.sampled_from(["x", 1]),
        st.integers(0, 3) | st.none() | st.lists(st.integers(0, 3), max_size=3),
    ),
    max_size=3,
)
LINE = st.fixed_dictionaries(
    {
        "process": st.integers(0, 2) | SCALARS,
        "type": st.sampled_from(["invoke", "ok", "fail", "info"]),
        "f": WORDS,
        "time": st.just(1) | st.floats(),
    },
    optional={"key": SCALARS, "value": STEPS | st.integers(0, 3) | ANYTHING},
)


@pytest.mark.slow
@given(data=st.lists(st.binary(max_size=30), max_size=5))
def test_no_bytes_raise_anything(data: list[bytes]) -> None:
    for model in MODELS:
        found = judge(read_bytes(b"\n".join(data)), model, STRUCK)
        assert verdict(found) is Verdict.UNKNOWN


@pytest.mark.slow
@given(lines=st.lists(LINE, max_size=8), cut=st.integers(0, 10**6))
def test_no_lines_raise_anything(lines: list[dict[str, Any]], cut: int) -> None:
    data = b"\n".join(json.dumps(line).encode() for line in lines)
    for told in (read_bytes(data), read_bytes(data[: cut % (len(data) + 1)])):
        for model in MODELS:
            for one in judge(told, model, STRUCK):
                assert "crashed" not in one.detail
                assert all(text.isprintable() for text in (one.detail, *one.witness))


@pytest.mark.slow
@given(seed=st.integers(0, 2**32))
def test_no_operations_crash_a_check(seed: int) -> None:
    """Lines that fit together, with values that do not."""
    random = Random(seed)
    values = [None, 0, 1, [], [0], [0, 1], [1, 1], [[1]], {}, "x", [["r", "x", [1]]]]
    values += [[["append", "x", 1]], [["append", "x", 2], ["r", "x", None]]]
    for model, told in RIGHT.items():
        names = [line.split(" ")[2] for line in told] + ["cas", "txn", "dequeue"]
        lines: list[dict[str, Any]] = []
        for _ in range(20):
            process, f, value = random.randrange(4), random.choice(names), random.choice(values)
            line = {"process": process, "f": f, "key": random.choice("xy"), "time": len(lines)}
            lines.append({**line, "type": "invoke", "value": value})
            end = random.choice(["ok", "ok", "fail", "info"])
            answer = value if random.random() < 0.5 else random.choice(values)
            lines.append({**line, "type": end, "value": answer})
        found = judge(read_lines(lines), model, STRUCK)
        assert all("crashed" not in one.detail for one in found)


# -- H5 --------------------------------------------------------------------------------------------


def ready(told: str, heals: tuple[float, ...] = (3.0, 10.0), within: float = 5.0) -> Finding:
    """Samples: `9- 11- 12+` is not ready at 9 s and 11 s, and ready at 12 s."""
    samples = [(float(one[:-1]), one[-1] == "+") for one in told.split()]
    return judge_readiness(samples, heals, within)


@pytest.mark.parametrize("told", ["1+ 9- 11- 12+ 20+", "15+", "10+", "11+ 12- 15+", "12+ 9- 11-"])
def test_a_guest_that_is_ready_in_time_is_ready_again(told: str) -> None:
    found = ready(told)
    assert found.guarantee == "H5"
    assert found.verdict is Verdict.HOLDS, found


@pytest.mark.parametrize("told", ["9+ 15.1-", "11- 15- 16- 17+", "12+ 14+ 20- 21+"])
def test_a_guest_that_is_not_ready_when_it_is_due_is_not(told: str) -> None:
    found = ready(told)
    assert found.verdict is Verdict.VIOLATED
    assert found.at == float(
        next(one[:-1] for one in told.split() if one[-1] == "-" and float(one[:-1]) > 15)
    )
    assert 1 <= len(found.witness) <= 2


@pytest.mark.parametrize("told", ["", "9+", "11-", "12+ 15-", "16+", "11- 15.1+"])
def test_where_nobody_asked_in_time_nothing_is_known(told: str) -> None:
    assert ready(told).verdict is Verdict.UNKNOWN


def test_without_a_fault_a_guest_that_is_ready_proves_nothing() -> None:
    assert ready("9+ 11+", heals=()).verdict is Verdict.UNKNOWN


def test_times_that_are_no_numbers_are_refused() -> None:
    for told, heals, within in (("nan+", (1.0,), 1.0), ("1+", (inf,), 1.0), ("1+", (1.0,), -1.0)):
        with pytest.raises(HistoryError):
            ready(told, heals, within)
