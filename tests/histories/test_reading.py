"""Lines of strangers: what is a history, what is a problem of one, and that nothing is raised."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stormcast.chaos.histories import reading
from stormcast.chaos.histories.operations import NEVER, Outcome
from stormcast.chaos.histories.values import Freezer, text_of
from tests.histories.clients import history, read_bytes, read_lines

INVOKE = {"process": 0, "type": "invoke", "f": "write", "key": "x", "value": 1, "time": 1.0}


def changed(**fields: Any) -> dict[str, Any]:
    return {**INVOKE, **fields}


def without(field: str) -> dict[str, Any]:
    return {name: value for name, value in INVOKE.items() if name != field}


def test_an_invocation_and_its_end_are_an_operation() -> None:
    found = history("3 invoke write@x 1", "4 invoke read@x null", "4 ok read@x 1", "3 ok write@x")

    write, read = found.operations
    assert (write.process, write.f, write.key, write.argument) == ("3", "write", '"x"', "1")
    assert (write.outcome, write.invoked, write.ended) == (Outcome.OK, 1, 4)
    assert (write.start, write.end) == (1.0, 4.0)
    assert (read.argument, read.result) == ("null", "1")
    assert found.describe([read, write]) == (
        "ops.jsonl:1 process 3: write x 1, ok at line 4, t=1.000..4.000",
        "ops.jsonl:2 process 4: read x, ok 1 at line 3, t=2.000..3.000",
    )


def test_what_never_ends_is_info() -> None:
    """As what its client calls info; and the process may go on after that."""
    found = history("0 invoke add 1", "0 info add", "0 invoke add 2")

    first, second = found.operations
    assert first.outcome is second.outcome is Outcome.INFO
    assert (first.ended, second.ended) == (2, NEVER)
    assert first.completed == second.completed == NEVER


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"nonsense", "no JSON: Expecting value at column 1"),
        (b'{"process": 0', "no JSON: "),
        (b"[1, 2]", "no JSON object"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b'\xef\xbb\xbf{"process": 0}', "no JSON"),
        (b"[" * 100_000, "too many levels"),
        (b'{"process": 0, "process": 1}', "names one field twice"),
        (without("process"), "no process"),
        (without("type"), "no type"),
        (without("f"), "no f"),
        (without("time"), "no time"),
        (changed(type="done"), "type is none of invoke, ok, fail, info"),
        (changed(type=["ok"]), "type is none of"),
        (changed(process=-1), "process is neither"),
        (changed(process=True), "process is neither"),
        (changed(process=2**31), "process is neither"),
        (changed(process="a\nb"), "process is neither"),
        (changed(process=""), "process is neither"),
        (changed(f=1), "f is no string"),
        (changed(f="w\x1b[31m"), "f is no string"),
        (changed(f="w" * 101), "f is no string"),
        (changed(key=["x"]), "key is neither"),
        (changed(key="x\x00"), "key is neither"),
        (changed(time="1"), "time is no number of seconds"),
        (changed(time=True), "time is no number of seconds"),
        (changed(time=-0.1), "time is no number of seconds from 0"),
        (changed(time=10**10 + 1), "time is no number of seconds from 0"),
        (changed(time=float("nan")), "NaN is no JSON"),
        (changed(value=float("inf")), "Infinity is no JSON"),
        (b'{"time": 1e400}', "too large an exponent"),
        (b'{"time": 1e-99999999999999999999}', "too large an exponent"),
        (changed(value=2**64 + 1), "a number beyond 2^64"),
        (b'{"value": ' + b"9" * 5000 + b"}", "a number too long"),
        (changed(value=1e31), "too large, too small or too exact"),
        (changed(value=1e-40), "too large, too small or too exact"),
        (changed(value=[[[[[[[[[1]]]]]]]]]), "may stand 8 deep"),
    ],
)
def test_a_bad_line_is_a_problem_with_its_place(line: bytes | dict[str, Any], problem: str) -> None:
    data = line if isinstance(line, bytes) else json.dumps(line).encode()

    found = read_bytes(b"\n" + data + b"\n")
    assert found.operations == ()
    assert found.problem_count == 1
    assert found.problems[0].startswith("ops.jsonl:2: ")
    assert problem in found.problems[0]
    assert "\n" not in found.problems[0]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([changed(type="ok")], "ops.jsonl:1: process 0 ends an operation that no line before"),
        (
            [INVOKE, INVOKE],
            "ops.jsonl:2: process 0 invokes an operation, and its last one (line 1)",
        ),
        ([INVOKE, changed(type="ok", f="read")], "ends another operation than the one"),
        ([INVOKE, changed(type="ok", key="y")], "ends another operation than the one"),
        ([INVOKE, changed(type="ok", time=0.5)], "ops.jsonl:2: time goes back from 1 to 0.5"),
        ([INVOKE, changed(type="ok"), changed(type="fail")], "ops.jsonl:3: process 0 ends an"),
    ],
)
def test_lines_that_do_not_fit_together_are_a_problem(
    lines: list[dict[str, Any]], problem: str
) -> None:
    found = read_lines(lines)
    assert found.problem_count == 1
    assert problem in found.problems[0]


def test_only_an_ok_has_a_result() -> None:
    told = ("0 invoke read", "0 fail read 7", "0 invoke read", "0 info read 7", "0 invoke read")
    assert [one.result for one in history(*told, "0 ok read 7").operations] == [None, None, "7"]


def test_fields_that_nobody_knows_do_no_harm_and_a_key_is_said_once() -> None:
    end = {"process": 0, "type": "ok", "f": "write", "time": 1, "error": None, "index": 7}
    found = read_lines([INVOKE, end])
    assert found.problem_count == 0
    assert found.operations[0].is_ok


def test_all_problems_are_counted_and_the_first_are_kept() -> None:
    found = read_bytes(b"nonsense\n" * 1000)
    assert found.problem_count == 1000
    assert len(found.problems) == reading.MOST_PROBLEMS


def test_a_line_at_the_bound_is_read_and_a_longer_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What follows a line that is too long is read."""
    line = json.dumps(INVOKE).encode()
    monkeypatch.setattr(reading, "MOST_LINE_BYTES", len(line) + 1)
    end = json.dumps(changed(type="ok")).encode()

    assert read_bytes(line + b"\n").problem_count == 0
    found = read_bytes(line + b" " * 200_000 + b"\n" + line + b"\n" + end)
    assert found.problem_count == 1
    assert "ops.jsonl:1: longer than" in found.problems[0]
    assert [one.invoked for one in found.operations] == [2]


def test_reading_stops_at_the_bounds_of_a_history(monkeypatch: pytest.MonkeyPatch) -> None:
    line = json.dumps(INVOKE).encode() + b"\n" + json.dumps(changed(type="ok")).encode() + b"\n"
    monkeypatch.setattr(reading, "MOST_LINES", 2)
    assert read_bytes(line).problem_count == 0
    found = read_bytes(line * 2)
    assert found.problem_count == 1
    assert "ops.jsonl:3: the history ends here for its reader" in found.problems[0]

    monkeypatch.setattr(reading, "MOST_LINES", 10)
    monkeypatch.setattr(reading, "MOST_BYTES", len(line))
    assert read_bytes(line).problem_count == 0
    assert read_bytes(line * 2).problem_count == 1
    assert read_bytes(b"x" * 10_000_000).problem_count == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "1.0"),
        ("1", "10e-1"),
        ("0", "-0.0"),
        ("0", "0e-999999"),
        ("1.5", "1.50"),
        ('"é"', '"\\u00e9"'),
        ('{"a": 1, "b": 2}', '{"b": 2, "a": 1.0}'),
    ],
)
def test_equal_json_is_an_equal_value(one: str, other: str) -> None:
    assert frozen(one) == frozen(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "true"),
        ("0", "false"),
        ("1", '"1"'),
        ("null", '"null"'),
        ("[]", '"[]"'),
        ("[1]", "[[1]]"),
        ("9007199254740992", "9007199254740993"),
        ("9007199254740992.0", "9007199254740993.0"),
        ("0.1", "0.1000000000000000055"),
        ('{"a": [1, 2]}', '{"a": [1], "b": 2}'),
    ],
)
def test_other_json_is_another_value(one: str, other: str) -> None:
    assert frozen(one) != frozen(other)


def frozen(text: str) -> object:
    line = json.dumps(INVOKE).replace('"value": 1', f'"value": {text}')
    found = read_bytes(line.encode())
    assert not found.problems
    return found.operations[0].argument


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@pytest.mark.slow
@given(one=JSON, other=JSON)
def test_values_are_equal_if_their_json_is(one: Any, other: Any) -> None:
    def spelled(value: Any) -> str:
        return json.dumps(value, sort_keys=True)

    def found(value: Any) -> object:
        return Freezer().freeze(json.loads(spelled(value)))

    assert (found(one) == found(other)) == (spelled(one) == spelled(other))
    assert text_of(Freezer().freeze(one)).isascii()
