"""What a member promises that lives in real time."""

from __future__ import annotations

from stormcast.chaos.backends.netns.watch import LATE_SECONDS
from stormcast.node.core.model import Address
from stormcast.node.runtime import LATENESS
from stormcast.node.settings import load_settings
from stormcast.node.stack import Stack
from stormcast.node.trace.tracer import Tracer


def promises(lateness: float) -> dict[str, float]:
    settings = load_settings("unicast-only", "compatible")
    tracer = Tracer(1, 0, hash, lambda _block: None)
    stack = Stack(Address(1, "n", ""), "c", settings, hash, tracer, 0.0)
    return stack.record.bounds(lateness)["UNICAST3"]


def test_what_is_due_may_be_later_and_what_is_spaced_closer_by_the_lateness_of_a_turn() -> None:
    exact, late = promises(0.0), promises(0.2)
    assert late["ack_within"] == exact["ack_within"] + 0.2
    assert late["resend_within"] == exact["resend_within"] + 0.2
    assert late["request_spacing"] == max(
        exact["request_spacing"] - 0.2, exact["request_spacing"] / 2
    )
    others = [name for name in exact if not name.endswith(("_within", "_spacing"))]
    assert others
    assert all(late[name] == exact[name] for name in others)


def test_no_spacing_vanishes() -> None:
    assert promises(1e6)["request_spacing"] == promises(0.0)["request_spacing"] / 2


def test_a_rig_notes_what_members_do_not_allow_for() -> None:
    assert LATE_SECONDS == LATENESS
