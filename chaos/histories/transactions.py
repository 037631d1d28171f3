"""Transactions of appends and reads: what they look like in a history."""

from __future__ import annotations

from typing import Final, NamedTuple

from stormcast.chaos.histories.operations import Operation
from stormcast.chaos.histories.values import NULL, Value

MOST_STEPS: Final = 1000
"""Steps of one transaction."""
_APPEND: Final = '"append"'
_READS: Final = ('"r"', '"read"')
_PARTS: Final = 3
_SHAPE: Final = "a list of [append, key, element] and [r, key, null or what was read]"


class Step(NamedTuple):
    """One step of a transaction."""

    key: Value
    appended: Value | None
    """The element; None for a read."""
    found: tuple[Value, ...] | None
    """The list that a read found; None for an append, and where nobody knows."""


def malformed(operation: Operation) -> str:
    """Return what no transaction looks like; nothing if it is one."""
    match operation.f:
        case "append":
            return _malformed_append(operation)
        case "read":
            if operation.is_ok and not isinstance(operation.result, tuple):
                return "the value of the ok of a read is no list"
            return ""
        case "txn":
            return _malformed_txn(operation)
        case _:
            return "no operation of list-append: txn, append, read"


def steps_of(operation: Operation) -> tuple[Step, ...]:
    """Return the steps of an operation that is not malformed."""
    value = operation.result if operation.is_ok else operation.argument
    if operation.f == "append":
        return (Step(operation.key, operation.argument, None),)
    if operation.f == "read":
        return (Step(operation.key, None, value if isinstance(value, tuple) else None),)
    assert isinstance(value, tuple)
    return tuple(_step(one) for one in value)


def is_read(operation: Operation) -> bool:
    """Whether the operation says what is in a list."""
    return any(step.appended is None for step in steps_of(operation))


def _malformed_append(operation: Operation) -> str:
    if operation.argument in {None, NULL}:
        return "an append has no value"
    if operation.result not in {None, operation.argument}:
        return "the ok of an append has another value than its invocation"
    return ""


def _malformed_txn(operation: Operation) -> str:
    if not _are_steps(operation.argument):
        return f"the value of a txn is not {_SHAPE}"
    if operation.is_ok and not _answers(operation.argument, operation.result):
        return "the ok of a txn has not the steps of its invocation, with what was read"
    return ""


def _step(part: Value) -> Step:
    f, key, value = tuple(part)
    if f == _APPEND:
        return Step(key, value, None)
    return Step(key, None, value if isinstance(value, tuple) else None)


def _are_steps(value: Value | None) -> bool:
    if not isinstance(value, tuple) or len(value) > MOST_STEPS:
        return False
    return all(_is_step(part) for part in value)


def _is_step(part: Value) -> bool:
    if not isinstance(part, tuple) or len(part) != _PARTS or not isinstance(part[1], str):
        return False
    if part[0] == _APPEND:
        return part[2] != NULL
    return part[0] in _READS and (part[2] == NULL or isinstance(part[2], tuple))


def _answers(asked: Value | None, result: Value | None) -> bool:
    """Whether a result has the steps that were asked for, and a list for each read."""
    if not isinstance(asked, tuple) or not isinstance(result, tuple) or len(asked) != len(result):
        return False
    for wanted, part in zip(asked, result, strict=True):
        if not _is_step(part) or wanted[:2] != part[:2]:
            return False
        if part[0] == _APPEND and part != wanted:
            return False
        if part[0] != _APPEND and not isinstance(part[2], tuple):
            return False
    return True
