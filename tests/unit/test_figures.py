"""The figures of a member, by part."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from stormcast.node.figures import collect_figures


def part(**figures: int) -> Any:
    return SimpleNamespace(stats=lambda: figures)


STACK: Any = SimpleNamespace(
    record=SimpleNamespace(refused={"cluster": 2}), outbox=SimpleNamespace(abandoned={"aged": 3})
)


def test_each_part_names_its_figures() -> None:
    """Watchers, which are counted with the transport, name only what has happened."""
    monitors = part(watchers_refused=1, watchers_lost=0)
    assert collect_figures(5, part(queued_bytes=0), monitors, STACK, part(lost=4)) == {
        "runtime.turns": 5,
        "transport.queued_bytes": 0,
        "transport.watchers_refused": 1,
        "stack.refused.cluster": 2,
        "stack.abandoned.aged": 3,
        "journal.lost": 4,
    }


def test_a_member_may_have_no_watchers_and_no_journal() -> None:
    assert "journal.lost" not in collect_figures(1, part(), None, STACK, None)
