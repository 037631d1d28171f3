"""Lines for people about who is not heard."""

from __future__ import annotations

from stormcast.node.refusals import LINES, TELL_SECONDS, RefusalLines


def test_who_is_not_heard_is_told_once_a_minute() -> None:
    said: list[str] = []
    figures = {"stack.refused.not-sealed": 0}
    lines = RefusalLines(said.append, lambda: figures)
    lines.look(1.0)
    figures["stack.refused.not-sealed"] = 3
    lines.look(2.0)
    figures["stack.refused.not-sealed"] = 4
    lines.look(1.0 + TELL_SECONDS)
    assert len(said) == 1
    assert said[0].endswith("(3 refused so far)")
    lines.look(2.0 + TELL_SECONDS)
    lines.look(2.0 + 3 * TELL_SECONDS)
    assert len(said) == 2


def test_frames_and_connections_that_are_refused_alike_are_one_line() -> None:
    said: list[str] = []
    lines = RefusalLines(said.append, lambda: dict.fromkeys(LINES, 2))
    lines.look(0.0)
    assert len(said) == len(set(LINES.values()))
    assert all("(4 refused so far)" in line for line in said)
